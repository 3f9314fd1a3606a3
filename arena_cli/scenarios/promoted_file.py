"""Select the part of a session to play again, and write it as a scenario with its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.errors import UsageError
from arena_cli.protocol import Attachment, Message
from arena_cli.scenarios import given, select
from arena_cli.scenarios.control_steps import find_answered, list_messages
from arena_cli.scenarios.given import messages, summary, with_content
from arena_cli.scenarios.promoted_steps import (
    ChainStep,
    NoStepError,
    list_expected,
    name_person,
    split_chain,
    write_step,
)
from arena_cli.scenarios.variables import Reader
from arena_cli.session import outgoing, store
from arena_cli.session.outgoing import USER
from arena_cli.session.store import Stored
from arena_cli.transcript import events, log
from arena_cli.transcript.conversation import Chain, Turn, read_conversation
from arena_cli.transcript.events import (
    Event,
    MessageEvent,
    NoteEvent,
    ReplyFinished,
    SessionEvent,
    SideEvent,
)
from arena_cli.util.text import cut_text, escape_line, escape_template, make_safe_name
from arena_cli.workspace import mentions, scaffold, visible_text
from arena_cli.workspace.models import Team
from arena_cli.yamlio import loader

FIXTURES = "fixtures"
PAST = "past.jsonl"

_LONGEST_TITLE = 60
_MOST_MESSAGES = 12
"""A longer past stands in a file of its own."""


class Writer:
    """Writes a part of a session as the scenario in the file `path`.

    It has a `title` and a `text`, the contents of the `files` that it uses by path, and the
    `pieces` that its steps play, each as it is played. `notes` are remarks on them.
    """

    def __init__(
        self,
        stored: Stored,
        selection: SessionPart,
        team: Team,
        name: Mapping[str, Any],
        path: Path,
        root: Path,
    ) -> None:
        """Write the session; `name` holds the keys of the file that make `team`.

        Raises UsageError if a part of it is gone.
        """
        self._stored = stored
        self._taken = selection
        self._team = team
        self._path = path
        self._root = root
        self._roster = mentions.build_roster(team)
        self.files: dict[Path, bytes] = {}
        self.notes: list[str] = []
        self.title, past_keys = self._title(), self._given()
        self.pieces = [self._routed(piece, n) for n, piece in enumerate(selection.pieces, 1)]
        data: dict[str, Any] = {
            "scenario": escape_template(self.title),
            **name,
            **({"given": past_keys} if past_keys else {}),
            "steps": [self._step(piece) for piece in self.pieces],
        }
        self.text = self._head() + loader.dump_yaml(data)

    def _head(self) -> str:
        """Return the lines above it: the schema for an editor, if there is one, and a comment."""
        schema = self._root / scaffold.SCHEMAS_FOLDER / "scenario.json"
        comment = f"# Made of the session {escape_line(self._stored.name)} by `arena promote`.\n"
        if not schema.is_file() or not self._path.is_relative_to(self._root):
            return comment
        up = "../" * (len(self._path.relative_to(self._root).parts) - 1)
        path = f"{up}{scaffold.SCHEMAS_FOLDER}/scenario.json"
        return f"# yaml-language-server: $schema={path}\n{comment}"

    def _title(self) -> str:
        """Return the session's name if it was chosen, else the beginning of the first message."""
        if not store.is_automatic(self._stored.name):
            return self._stored.name
        opening = self._taken.pieces[0].opening.message
        first = next((line for line in opening.content.splitlines() if line.strip()), "")
        title = cut_text(first.strip(), _LONGEST_TITLE).strip()
        return escape_line(title) or self._stored.name

    def _given(self) -> dict[str, Any]:
        """Return the `given` key: the past itself if it is short and plain, else a file with it."""
        history = messages(self._taken.before)
        if not history:
            return {}
        is_plain = all(map(self._is_plain, history)) and summary(self._taken.before) is None
        if len(history) <= _MOST_MESSAGES and is_plain:
            return {"messages": [{m.author_id: escape_template(m.content)} for m in history]}
        for message in history:
            for attachment in message.attachments:
                name = Path(attachment.path or "").name
                with_data = self._whole(attachment, message.id)
                if with_data.data is not None:  # else agents are told that it is gone
                    content = log.decode_content(with_data)
                    self._add(Path("attachments", message.id, name), content)
        transcript_events = [_bare(event) for event in self._taken.before if not event.is_progress]
        target = self._add(Path(PAST), b"".join(map(events.encode_line, transcript_events)))
        return {"transcript": self._named(target)}

    def _is_plain(self, message: Message) -> bool:
        """Return True if `given.messages` plants just this message."""
        try:
            planted = outgoing.planted(self._team, message.author_id, message.content)
        except UsageError:
            return False
        own_kind = "system" if message.author_type == "system" else "chat"
        mentioned = mentions.parse_mentions(
            message.content, self._roster, author=message.author_id, opener=USER.id
        )
        return (
            planted.author_type == message.author_type
            and planted.author_name == message.author_name
            and message.kind == own_kind
            and not message.attachments
            and not message.structured
            and list(mentioned.ids) == message.mentions
        )

    def _routed(self, piece: Piece, number: int) -> Piece:
        """Return the piece; its text names all agents, also those that only `--to` called."""
        opening = piece.opening
        message = opening.message
        if not piece.chain or not piece.has_message:
            return piece
        mentioned = self._parsed(message.content, message)
        missing = self._called_before(message.mentions, mentioned.ids)
        # Names that nobody has any more are what today's files make of it.
        if not missing or list(mentioned.unresolved) != opening.unresolved:
            return piece
        called = " ".join(f"@{agent}" for agent in missing)
        texts = (f"{called}{between}{message.content}" for between in (" ", "\n", "\n\n"))
        content = next((agent for agent in texts if self._calls_the_same(agent, opening)), None)
        if content is None:
            raise UsageError(
                f"message {message.id} was sent `--to` {', '.join(missing)}, "
                "and no text calls just "
                "these",
                "promote a part of the session without it: `--until SEQ`",
            )
        self.notes.append(f"step {number} begins with {called}, who got it by `--to`")
        replaced = opening.model_copy(
            update={"message": message.model_copy(update={"content": content})}
        )
        return piece._replace(opening=replaced)

    def _called_before(self, called: Sequence[str], mentioned: Sequence[str]) -> list[str]:
        """Return the called agents that must be named before the text names the others."""
        if not {*mentioned} <= {*called}:
            return []  # a name is another's by now, or `@all` is more: today's files make it so
        members = {member.id: member for member in self._taken.session.members}
        member_ids = [member.id for member in self._team.members if member.id in members]
        if member_ids != [name for name in members if self._team.member(name) is not None]:
            # `@all` names everybody in another order than it did.
            return [name for name in called if name not in mentioned]
        return next(
            list(called[:count])
            for count in range(len(called) + 1)
            if list(called[count:]) == [name for name in mentioned if name not in called[:count]]
        )

    def _calls_the_same(self, content: str, opening: MessageEvent) -> bool:
        """Return True if a text calls the agents of the message and keeps its own text."""
        mentioned = self._parsed(content, opening.message)
        bare_text = visible_text.blank_hidden(opening.message.content)
        return (
            list(mentioned.ids) == opening.message.mentions
            and list(mentioned.unresolved) == opening.unresolved
            and visible_text.blank_hidden(content).endswith(bare_text)
        )

    def _parsed(self, content: str, message: Message) -> mentions.Mentions:
        author = message.author_id
        return mentions.parse_mentions(content, self._roster, author=author, opener=author)

    def _step(self, piece: Piece) -> dict[str, Any]:
        message = piece.opening.message
        if piece.part and not piece.has_message:
            return {**write_step(piece.part), **self._expect(piece)}
        if piece.chain:
            return {**self._send(message, piece.part), **self._expect(piece)}
        if message.reactions:
            reacted = {"agent": self._find_answered(message), "emoji": message.reactions[0]}
            return {"react": reacted, **name_person(message.author_id)}
        escaped = escape_template(message.content)
        if message.author_type == "system":
            return {"system": escaped}
        return {"say": {"agent": message.author_id, "text": escaped}}

    def _send(self, message: Message, part: ChainStep | None) -> dict[str, Any]:
        step: dict[str, Any] = {"send": escape_template(message.content)}
        step |= name_person(message.author_id)
        if message.kind != "chat":
            step["kind"] = message.kind
        if message.reply_to:
            step["reply_to"] = self._find_answered(message)
        if message.attachments:
            step["attach"] = [
                self._attached(attachment, message.id) for attachment in message.attachments
            ]
        return {**step, **(part.stepping_in if part else {})}

    def _expect(self, piece: Piece) -> dict[str, Any]:
        return {"expect": dict(list_expected(piece.upto, piece.end, self._root))}

    def _find_answered(self, message: Message) -> str:
        """Return the author of the message that this one answers, whose last one it is."""
        return find_answered(message, list_messages(self._taken.every)) or ""

    def _attached(self, attachment: Attachment, message_id: str) -> str:
        """Add the file that a message carried, under its original name, and return its path."""
        name = make_safe_name(attachment.name)
        content = self._content(attachment, message_id)
        folder, count = Path(), 1
        while self.files.get(self._beside(folder / name), content) != content:
            folder, count = Path(message_id if count == 1 else f"{message_id}-{count}"), count + 1
        return self._named(self._add(folder / name, content))

    def _content(self, attachment: Attachment, message_id: str) -> bytes:
        with_data = self._whole(attachment, message_id)
        if with_data.data is None:
            raise UsageError(
                f"what was attached to {message_id} as {escape_line(attachment.name)} is gone",
                f"it was at {escape_line(attachment.path or '')}; without it the "
                "session cannot be promoted",
            )
        return log.decode_content(with_data)

    def _whole(self, attachment: Attachment, message_id: str) -> Attachment:
        return with_content(attachment, message_id, (self._stored.folder, self._root))

    def _beside(self, name: Path) -> Path:
        return self._path.parent / FIXTURES / self._path.stem / name

    def _add(self, name: Path, content: bytes) -> Path:
        path = self._beside(name)
        self.files[path] = content
        return path

    def _named(self, path: Path) -> str:
        """Return a file's name in the scenario: relative, unless that would find another file."""
        name = path.relative_to(self._path.parent).as_posix()
        located = Reader(self._root, anywhere=True).located(name, self._path)
        return name if located in (None, path.resolve()) else path.as_posix()


def _bare(event: Event) -> Event:
    """Return an event without the data that no agent is shown."""
    if isinstance(event, ReplyFinished):
        return event.model_copy(update={"metadata": {}, "agent_session": None})
    return event


class Piece(NamedTuple):
    """The content of one step: a chain from its message to its end, or one planted message.

    `part` is the part of the chain that the step plays, if people controlled it.
    """

    opening: MessageEvent
    chain: Chain | None
    part: ChainStep | None = None

    @property
    def events(self) -> list[Event]:
        """Its events, in order."""
        events = self.chain.events if self.chain else ()
        if self.part:
            events = self.part.events
            if self.part.key:
                return [*events]
        return [self.opening, *events[1:]]

    @property
    def upto(self) -> list[Event]:
        """The events of its chain up to its end."""
        if self.part is None:
            return self.events
        return [self.opening, *self.part.upto[1:]]

    @property
    def has_message(self) -> bool:
        """True if its step sends the message of the chain."""
        return self.part is None or not self.part.key

    @property
    def end(self) -> str:
        """The end of its chain; empty if it has none."""
        pause = self.part.pause if self.part else ""
        return pause or (self.chain.end if self.chain else "")

    @property
    def turns(self) -> list[Turn]:
        """The turns of its chain."""
        return self.chain.turns if self.chain else []

    def called(self) -> Iterator[str]:
        """Yield the agents that were called in it, or had to be."""
        for turn in self.turns:
            yield from (*turn.must, *turn.started.deferred, *turn.asked)


@dataclass
class SessionPart:
    """The part of a session that is promoted, and the events of the past before it.

    `session` lists the participants; `before` are the past events when the `pieces` begin, `every`
    are all events. `notes` are remarks on unexpected properties of the session.
    """

    session: SessionEvent
    before: list[Event]
    pieces: list[Piece]
    every: list[Event]
    notes: list[str] = field(default_factory=list)


def select_part(stored: Stored, until: int | None) -> SessionPart:
    """Return the part of a session up to the end of a chain, that of event `until` or the last.

    Chains that cannot be played again (interrupted, or with another team or other rules) and all
    before them belong to the past. Raises UsageError if nothing is left to play.
    """
    notes: list[str] = []
    events = _read_events(stored, until, notes)
    _refuse_tasks(events, stored.name)
    every = _pieces(events)
    session, cut, reason = _cut(events, every)
    pieces = [piece for piece in every if piece.opening.seq > cut]
    while pieces and not pieces[0].chain:
        cut = pieces.pop(0).opening.seq
    if not pieces:
        raise UsageError(
            f"session {escape_line(stored.name)}: no part of it can be replayed: {reason}",
            f"only what comes after event {cut} could be",
        )
    if not all(turn.is_whole for piece in pieces for turn in piece.turns):
        raise UsageError(
            f"session {escape_line(stored.name)}: events are missing in it",
            f"`arena doctor {escape_line(stored.name)}` shows which",
        )
    if reason:
        notes.append(f"what was said up to event {cut} is the scenario's past: {reason}")
    if elsewhere := _notes_from_elsewhere(pieces):
        notes.append(
            f"notes that were there before are left out ({select.shorten_list(elsewhere)}): "
            "`given: {notes: [FILE]}` gives them to the scenario"
        )
    if session.scenario is not None:
        title = escape_line(session.scenario)
        notes.append(
            f"it was played by the scenario `{title}`, whose profiles and rules are ignored"
        )
    before = [event for event in events if event.seq <= cut]
    return SessionPart(session, before, [*_split(pieces)], events, notes)


def _refuse_tasks(events: Iterable[Event], name: str) -> None:
    """Raise UsageError if there are tasks: agents are shown them in every later call.

    Those of a plan are refused as the plan is.
    """
    unplanned = takewhile(lambda event: event.type != "planned", events)
    first = next((event.seq for event in unplanned if event.type == "task"), None)
    if first is not None:
        raise UsageError(
            f"session {escape_line(name)} has tasks from event {first} on, and is not promoted",
            "promote a part before it: `--until SEQ`; or write the tasks as steps `task` and "
            "`work` of a scenario",
        )


def _read_events(stored: Stored, until: int | None, notes: list[str]) -> list[Event]:
    """Return the events of a session up to the end of a chain. Raises UsageError."""
    try:
        read = given.read_past(stored.transcript)
        end = _end(read.events, until, stored.name, notes)
        given.upto(read, end)
    except UsageError as error:
        raise UsageError(f"session {escape_line(stored.name)}: {error.what}", error.mend) from error
    return [event for event in read.events if event.seq <= end]


def _end(events: Sequence[Event], until: int | None, name: str, notes: list[str]) -> int:
    """Return the number of the last event that counts: the end of a chain."""
    if until is not None and until > (last := max(event.seq for event in events)):
        raise UsageError(f"it has no event {until}: its last is {last}")
    chains = [piece for piece in _pieces(events) if piece.chain]
    ends = [piece.events[-1].seq for piece in chains if piece.end]
    resume = f"`arena resume {escape_line(name)}` continues it"
    if not chains:
        raise UsageError("it has no message that was sent: there is nothing to play")
    if not ends:
        raise UsageError("its only chain is still open", resume)
    if until is None:
        if not chains[-1].end:
            notes.append(f"its last chain is still open, and left out; {resume}")
        return ends[-1]
    return _end_before(chains, ends, until, resume, notes)


def _end_before(
    chains: Sequence[Piece], ends: Sequence[int], until: int, resume: str, notes: list[str]
) -> int:
    """Return the last event of the chain that contains event `until`, or of the one before it."""
    inside = next((c for c in chains if c.opening.seq <= until <= c.events[-1].seq), None)
    if inside is None and until < ends[0]:
        raise UsageError(
            f"there is no answer up to event {until}",
            f"its first chain goes from event {chains[0].opening.seq} to {ends[0]}",
        )
    if inside is None:
        return max(end for end in ends if end < until)
    if not inside.end:
        raise UsageError(f"event {until} is in a chain that is still open", resume)
    end = inside.events[-1].seq
    if end != until:
        notes.append(
            f"event {until} is within a chain: the chain is included to its end, event {end}"
        )
    return end


def _pieces(events: Iterable[Event]) -> list[Piece]:
    """Return the chains and the planted messages, in order."""
    pieces = []
    for item in read_conversation(events).items:
        if isinstance(item, Chain):
            pieces += [Piece(item.opening, item)] if item.first else []
        elif isinstance(item, MessageEvent) and (item.planted or item.message.reactions):
            pieces.append(Piece(item, None))
    return pieces


def _cut(events: Sequence[Event], pieces: Sequence[Piece]) -> tuple[SessionEvent, int, str]:
    """Return the members, the event before the first played, and the reason for no earlier one."""
    session = [event for event in events if isinstance(event, SessionEvent)][-1]
    messages = list_messages(events)
    cut, reason = 0, ""
    for piece in pieces:
        if why := _find_reason(piece, messages, session):
            cut, reason = piece.events[-1].seq, why
    return session, cut, reason


def _find_reason(piece: Piece, messages: Sequence[Message], session: SessionEvent) -> str:
    """Return why a piece belongs to the past, with all before it; empty if it can be played."""
    chain, opening = piece.chain, piece.opening
    if chain and piece.end in ("", "interrupted"):
        return "its last chain was interrupted, which no scenario can play"
    if opening.message.reply_to and not find_answered(opening.message, messages):
        return "a person answered a message that is not the last of its author"
    if not chain and not _is_step(opening):
        return "a message was planted that no step can plant"
    if chain and (why := _find_unplayable(chain)):
        return f"no step can play its chain {chain.number}: {why}"
    if any(map(_is_by_agent, piece.events)):
        return (
            "an agent was called for its memory, or as a tool, "
            "and no transcript contains such answers"
        )
    is_earlier = opening.seq < session.seq
    return "then the team, or its rules, became what they were in the rest" if is_earlier else ""


def _find_unplayable(chain: Chain) -> str:
    """Return what a person did in a chain that no step can play; empty if there is nothing."""
    if any(isinstance(event, MessageEvent) and _is_reaction(event) for event in chain.events):
        return "a person reacted to a message while it ran"
    if chain.control is None:
        return ""
    try:
        split_chain(chain)
    except NoStepError as error:
        return str(error)
    return ""


def _split(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield a piece for each step; a chain that people controlled may be several."""
    for piece in pieces:
        if piece.chain is None or piece.chain.control is None:
            yield piece
            continue
        for part in split_chain(piece.chain):
            yield piece._replace(part=part)


def _is_by_agent(event: Event) -> bool:
    """Return True if an agent did work that is no reply; a library's work is done again."""
    call = event.agent_call if isinstance(event, SideEvent) else None
    return call is not None and call.is_by_agent


def _notes_from_elsewhere(pieces: Sequence[Piece]) -> list[str]:
    """Return the ids of the notes that agents were shown and that none of these chains made."""
    events = [event for piece in pieces for event in piece.events]
    own_notes = {
        event.note for event in events if isinstance(event, NoteEvent) and event.act == "added"
    }
    turns = [turn for piece in pieces for turn in piece.turns]
    shown_notes = [
        note for turn in turns for reply in turn.replies.values() for note in reply.notes
    ]
    return [note for note in dict.fromkeys(shown_notes) if note not in own_notes]


def _is_reaction(event: MessageEvent) -> bool:
    """Return True for a person's reaction."""
    return bool(event.message.reactions) and event.message.author_type == "human"


def _is_step(planted: MessageEvent) -> bool:
    """Return True if a `say` or a `system` step can plant it."""
    message = planted.message
    if _is_reaction(planted):
        return True
    own_kind = "system" if message.author_type == "system" else "chat"
    carries = message.attachments or message.structured or message.kind != own_kind
    return message.author_type != "human" and not carries
