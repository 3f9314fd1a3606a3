"""Keep the messages of a session ready to be shown, with the memory of a call.

Everything that can be computed once per message is computed once: the cost of a call does not
depend on the length of the session.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import hashing, render
from arena_cli.context.tokens import estimate
from arena_cli.notes.model import MOST_SHOWN, Note
from arena_cli.protocol import Message, ShownMessage
from arena_cli.util import text
from arena_cli.util.text import lazy_pattern

# What tells of an attachment, its name apart: its type, path and size.
_ATTACHMENT_TOKENS = 40

FIRST_SEQ = 2
"""The seq of a session's first message, after the event that opens the session."""

KEPT_AT_LEAST = 512
"""So many messages are never forgotten, however small the windows: a deferred agent's triggers may
lie this far back, and what is not summarised yet."""


class Selection(NamedTuple):
    """The messages that an agent is shown, oldest first, with their hashes and tokens.

    The messages that are always shown come first, then all messages from index `start` of the
    history.
    """

    messages: list[ShownMessage]
    digests: list[str]
    tokens: int
    start: int


class _Private(NamedTuple):
    """A message that only some agents are shown: its seq, these agents, and its tokens."""

    seq: int
    agents: tuple[str, ...]
    tokens: int


@dataclass
class _View:
    """The newest messages as one agent is shown them, from message number `first` on."""

    first: int
    shown: list[ShownMessage] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


class History:
    """The messages of a session in order, oldest first, ready to be shown.

    Messages that no window of `max_tokens` reaches are forgotten (None: all are kept).
    """

    def __init__(self, max_tokens: int | None = None) -> None:
        self._max_tokens = max_tokens
        self._messages: list[ShownMessage] = []
        self._seqs: list[int] = []
        self._digests: list[tuple[str, str] | None] = []
        self._before: list[int] = []
        self._total = 0
        self._views: dict[str, _View] = {}
        self._forgotten = 0
        self._number: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._far: dict[tuple[str, str], tuple[ShownMessage, str]] = {}
        self._private: list[_Private] = []

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: Message) -> None:
        """Append the next message."""
        entry = shown_to_others(message)
        self._number[message.id] = self._forgotten + len(self._messages)
        self._messages.append(entry)
        self._seqs.append(message.seq)
        self._digests.append(None)
        self._before.append(self._total)
        if message.shown_to:  # those that are not shown it lose no room by it
            self._private.append(_Private(message.seq, tuple(message.shown_to), _weight(entry)))
        else:
            self._total += _weight(entry)
        if self._max_tokens is not None:
            self._forget(self._max_tokens)

    def replace(self, message: Message) -> None:
        """Replace the message of that id, which was corrected, where it is remembered."""
        self._weights.pop(message.id, None)
        self._far = {key: pair for key, pair in self._far.items() if key[0] != message.id}
        number = self._number.get(message.id)
        if number is None:
            return
        index = number - self._forgotten
        entry = shown_to_others(message)
        growth = 0 if message.shown_to else _weight(entry) - self._cost(index)
        self._messages[index], self._digests[index] = entry, None
        for later in range(index + 1, len(self._before)):
            self._before[later] += growth
        self._total += growth
        self._views.clear()

    def message(self, message_id: str) -> ShownMessage | None:
        """Return a message as others than its author are shown it; None if forgotten."""
        number = self._number.get(message_id)
        return None if number is None else self._messages[number - self._forgotten]

    def after(self, upto: int = 0) -> list[ShownMessage]:
        """Return the remembered messages for all agents with a greater seq, oldest first."""
        messages = self._messages[self._first_after(upto) :]
        if self._private:
            messages = [message for message in messages if not message.shown_to]
        return messages

    def tokens_after(self, upto: int) -> int:
        """Return the estimated tokens of the remembered messages with a greater seq."""
        return self._total - self._tokens_before(self._first_after(upto))

    @property
    def is_complete(self) -> bool:
        """True if it has every message of the session: the first one opens the session."""
        return self._forgotten == 0 and bool(self._seqs) and self._seqs[0] <= FIRST_SEQ

    def begin_in_steps(self, budget: int) -> int:
        """Return a seq after which about `budget` tokens of messages follow, at most these.

        It moves in steps of up to a quarter of them, so that the beginning of an input seldom
        changes. It depends on the newest messages only, not on how many are remembered.
        """
        first = self._fitting(budget)
        if first >= len(self._seqs):
            return self._seqs[-1] if self._seqs else 0
        begin, last = self._seqs[first], self._seqs[-1]
        step = 1 << max(0, ((last - begin) // 4).bit_length() - 1)
        return -(-begin // step) * step - 1

    def older(self, message_ids: Iterable[str], start: int) -> list[str]:
        """Return the ids of the messages before `start` (`Selection.start`), in the given order."""
        last = self._forgotten + start
        return [message_id for message_id in message_ids if self._number.get(message_id, -1) < last]

    def weight_of(self, message: ShownMessage) -> int:
        """Return the estimated tokens of a message in a prompt, even of a forgotten one."""
        number = self._number.get(message.id)
        if number is not None:
            return self._cost(number - self._forgotten)
        if message.id not in self._weights:
            self._weights[message.id] = _weight(message)
        return self._weights[message.id]

    def select(self, agent_id: str, budget: int, always: Iterable[str], upto: int = 0) -> Selection:
        """Return the messages that an agent is shown within a budget of tokens.

        They are those that are always shown (ids), and as many of the newest messages with a seq
        greater than `upto` as fit in addition.
        """
        lowest = self._first_after(upto)
        start = self._fitting(budget, lowest)
        if self._private:
            budget -= self._private_tokens(agent_id, start)
            start = self._fitting(budget, lowest)
        numbers = {self._number.get(message_id) for message_id in always}
        indexes = sorted(number - self._forgotten for number in numbers if number is not None)
        older = indexes[: bisect.bisect_left(indexes, start)]
        extra = 0
        while older and (tokens := sum(map(self._cost, older))) != extra:
            extra = tokens
            start = self._fitting(budget - extra, lowest)
            older = indexes[: bisect.bisect_left(indexes, start)]
        messages, digests = self._newest(agent_id, start)
        if self._private:
            messages, digests = _leave_out_private(messages, digests, agent_id)
        if older:
            pairs = [self.far(self._messages[index], agent_id) for index in older]
            messages = [*(message for message, _ in pairs), *messages]
            digests = [*(hashed for _, hashed in pairs), *digests]
        used = self._total - self._tokens_before(start) + extra
        if self._private:
            used += self._private_tokens(agent_id, start)
        return Selection(messages, digests, used, start)

    def _private_tokens(self, agent_id: str, start: int) -> int:
        """Return the tokens of the private messages of an agent from index `start` on."""
        first = self._seqs[start] if start < len(self._seqs) else None
        return sum(
            private.tokens
            for private in self._private
            if agent_id in private.agents and first is not None and private.seq >= first
        )

    def far(self, message: ShownMessage, agent_id: str) -> tuple[ShownMessage, str]:
        """Return an older message as that agent is shown it, and its hash."""
        key = (message.id, agent_id)
        if key not in self._far:
            self._far[key] = _as_shown(message, agent_id)
        return self._far[key]

    def _first_after(self, upto: int) -> int:
        """Return the index of the first message with a greater seq."""
        return bisect.bisect_right(self._seqs, upto) if upto else 0

    def _tokens_before(self, index: int) -> int:
        return self._before[index] if index < len(self._before) else self._total

    def _fitting(self, budget: int, lowest: int = 0) -> int:
        return max(lowest, bisect.bisect_left(self._before, self._total - max(budget, 0)))

    def _cost(self, index: int) -> int:
        return self._tokens_before(index + 1) - self._before[index]

    def _newest(self, agent_id: str, start: int) -> tuple[list[ShownMessage], list[str]]:
        """Return the messages from index `start` on as an agent is shown them, and their hashes."""
        view = self._views.get(agent_id)
        if view is None or view.first - self._forgotten > start:
            # Windows move forwards, so that a view is made from scratch once, as a rule.
            view = self._views[agent_id] = _View(start + self._forgotten)
        for index in range(view.first - self._forgotten + len(view.shown), len(self._messages)):
            message, hashed = self._as_shown(index, agent_id)
            view.shown.append(message)
            view.digests.append(hashed)
        skipped = start - (view.first - self._forgotten)
        return view.shown[skipped:], view.digests[skipped:]

    def _as_shown(self, index: int, agent_id: str) -> tuple[ShownMessage, str]:
        message = self._messages[index]
        digests = self._digests[index]
        if digests is None:
            digests = self._digests[index] = hashing.message_digests(message)
        if _is_own(message, agent_id):
            return message.model_copy(update={"role": "assistant"}), digests[1]
        return message, digests[0]

    def _forget(self, max_tokens: int) -> None:
        """Forget the messages that are out of reach, once they are half of those remembered."""
        most = len(self._messages) - KEPT_AT_LEAST
        if most < len(self._messages) // 2:
            return
        count = min(most, self._fitting(max_tokens))
        if count < len(self._messages) // 2:
            return
        for message in self._messages[:count]:
            self._number.pop(message.id, None)
        self._forgotten += count
        for agent_id, view in list(self._views.items()):
            gone = self._forgotten - view.first
            if gone > len(view.shown):
                del self._views[agent_id]
            elif gone > 0:
                del view.shown[:gone], view.digests[:gone]
                view.first = self._forgotten
        del self._messages[:count], self._seqs[:count]
        first = min(self._seqs, default=0)
        self._private = [private for private in self._private if private.seq >= first]
        del self._digests[:count], self._before[:count]


def _as_shown(message: ShownMessage, agent_id: str) -> tuple[ShownMessage, str]:
    """Return a message as that agent is shown it, and its hash."""
    if _is_own(message, agent_id):
        message = message.model_copy(update={"role": "assistant"})
    return message, hashing.message_digest(message)


def _leave_out_private(
    messages: Sequence[ShownMessage], digests: Sequence[str], agent_id: str
) -> tuple[list[ShownMessage], list[str]]:
    """Return the messages that this agent is shown, with their hashes."""
    kept = [
        index
        for index, message in enumerate(messages)
        if not message.shown_to or agent_id in message.shown_to
    ]
    return [messages[index] for index in kept], [digests[index] for index in kept]


def _is_own(message: ShownMessage, agent_id: str) -> bool:
    return message.author_id == agent_id and message.author_type == "agent"


def _weight(message: ShownMessage) -> int:
    # Where an attachment lies has the message's id in it, which follows the order of arrival.
    bare = message.model_copy(update={"attachments": []}) if message.attachments else message
    names = "".join(attachment.name for attachment in message.attachments)
    extra = len(message.attachments) * _ATTACHMENT_TOKENS + estimate(names)
    return estimate(render.frame(bare)) + extra + 1


def shown_to_others(message: Message) -> ShownMessage:
    """Return the message as all agents except its author are shown it."""
    role = "system" if message.author_type == "system" else "user"
    return ShownMessage.model_validate({**vars(message), "metadata": {}, "role": role})


_HEADING = lazy_pattern("#{1,6} ")

MOST_TITLES = 40
"""The largest number of titles that an agent is shown in place of pinned messages."""

LONGEST_NOTE = 800
"""Characters of a note that an agent is shown; a note is to be read at a glance."""


class Pinned(NamedTuple):
    """A message that is always shown, and the note that names it as its source."""

    message: ShownMessage
    note: Note


class RecalledNote(NamedTuple):
    """A note that is relevant to a call, and why it was found."""

    note: Note
    why: str = ""


class Memory(NamedTuple):
    """The memory of one call: summary, pinned messages and notes.

    `summary` replaces the `summarised` messages up to the seq `upto`. `pinned` are sorted from
    oldest to newest, `notes` from best to worst; at most `most_notes` of them are shown.
    """

    summary: str = ""
    upto: int = 0
    summarised: int = 0
    pinned: Sequence[Pinned] = ()
    notes: Sequence[RecalledNote] = ()
    most_notes: int = MOST_SHOWN


NOTHING = Memory()


def stable(summary: str, titles: Sequence[Note], unlisted: int = 0) -> str:
    """Return the text before the messages; it only changes with the summary and pinned messages.

    `unlisted` is the number of pinned messages of which not even the title is shown.
    """
    paragraphs = []
    if summary:
        paragraphs.append(f"{render.SUMMARISED}\n{summary}")
    if titles or unlisted:
        listed = [title_line(note) for note in titles]
        listed += [f"- and {unlisted} more; a search of the notes finds them"] if unlisted else []
        listing = "\n".join(listed)
        paragraphs.append(f"{render.TITLES_ONLY}\n{listing}")
    return "\n\n".join(paragraphs)


def title_line(note: Note) -> str:
    """Return a note as it is listed if there is only room for its title."""
    return f"- {_headline(note)}"


def noted(note: Note) -> str:
    """Return a note as an agent is shown it."""
    body = _shown_body(note.title, note.body)
    return f"- [{note.id}] {_headline(note)}" + (f"\n{body}" if body else "")


@lru_cache(maxsize=512)
def _shown_body(title: str, body: str) -> str:
    """Return the text of a note as it is shown below its title; most calls show the same notes."""
    lines = list(_body_lines(body.splitlines()))
    if [line.strip() for line in lines if not _HEADING.match(line)] == [title.strip()]:
        lines = []
    full_text = "\n".join(lines).strip()
    shown = text.cut_text(full_text, LONGEST_NOTE)
    ellipsis = " ..." if len(shown) < len(full_text) else ""
    return f"{_indented(shown)}{ellipsis}" if shown else ""


def _body_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, except blank ones and headings of empty sections."""
    heading = ""
    for line in lines:
        if _HEADING.match(line):
            heading = line
        elif line.strip():
            if heading:
                yield heading
                heading = ""
            yield line


def _headline(note: Note) -> str:
    title = " ".join(note.title.split())
    owner = f", for {note.owner}" if note.owner else ""
    return f"{note.kind.replace('_', ' ')}, {note.status.replace('_', ' ')}{owner}: {title}"


def _indented(body: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in body.splitlines())
