"""Choose an agent's input within its window (docs/concepts/memory.md).

The choice depends only on the messages and notes, the member, and the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import hashing, render
from arena_cli.context import history as history_module
from arena_cli.context.history import NOTHING, History, Memory, Pinned, RecalledNote, Selection
from arena_cli.context.summary import quotes, shorten_summary
from arena_cli.context.tokens import estimate
from arena_cli.notes.model import Note
from arena_cli.protocol import (
    AgentInput,
    ExampleTurn,
    Invocation,
    Message,
    ShownMessage,
    Supervision,
)
from arena_cli.util.language import Texts
from arena_cli.workspace.models import ContextSettings, Member, Team

KEEP = 0.5
"""The share of the room for messages that the newest ones have, whatever else there is."""

SHARE = 0.25
"""The share of the room that the summary may take, and so may pinned messages, and notes."""

# A summary longer than its share is shown as it is up to this share, then shortened.
_LARGEST_SUMMARY = 0.5
# A summary shorter than this says nothing.
_LEAST_SUMMARY = 40
NOTES_LEFT = 0.125
"""The share of the room that the summary and pinned messages leave to notes."""

SMALL_ROOM = 1_000
"""A room of fewer tokens is small."""

# The tokens of the lines around titles.
_TITLES_FRAME = 36
# The share of their room that pinned messages take in full if others are listed by title.
_IN_FULL = 0.6

SUMMARY_FRAME = estimate(render.memory_paragraph(render.BEFORE, f"{render.SUMMARISED}\n")) + 2
"""The tokens of the lines around a summary."""

# Tokens are rounded for each note, too.
_NOTES_FRAME = estimate(render.NOTES) + 6

SHOWN_WHOLE = "the message that it comes from is shown whole"
NO_ROOM = "there is no room"
BETTER_ONES = "there are as many better ones as are shown"


class Chosen(NamedTuple):
    """The selected context of an agent. Tokens are estimates, uncorrected.

    `pinned` are shown in addition to the newest messages. `titles` are the notes of the other
    pinned messages, the best first; the first `listed` of them are shown by title. `withheld` are
    notes that are not shown, with the reason.
    """

    selection: Selection
    has_summary: bool
    pinned: list[Pinned]
    titles: list[Note]
    listed: int
    notes: list[RecalledNote]
    withheld: list[tuple[RecalledNote, str]]
    stable: str
    stable_tokens: int
    noted: str
    noted_tokens: int


class _Pins(NamedTuple):
    """The choice among pinned messages, the text before the messages, and the messages."""

    pinned: list[Pinned]
    titles: list[Note]
    listed: int
    stable: str
    stable_tokens: int
    selection: Selection


def choose_context(
    agent_id: str,
    history: History,
    trigger: Sequence[str],
    memory: Memory,
    room: int,
    keep: float = KEEP,
    *,
    widens: bool = False,
) -> Chosen:
    """Choose the context of an agent within that room, in estimated tokens.

    `trigger` are the ids of the messages that are new to the agent; they are always shown. `keep`
    is the share of the room for the newest messages. If it `widens`, older messages are shown in
    full where the room is much wider than what is not summarised.
    """
    new = _weight_of(filter(None, map(history.message, trigger)), history)
    memory = fit_summary(memory, room, new, keep)
    if widens:
        memory = _widen(memory, history, room)
    pins = _choose_pins(agent_id, history, trigger, memory, room, new, keep)
    selection = pins.selection
    notes: list[RecalledNote] = []
    withheld: list[tuple[RecalledNote, str]] = []
    noted = ""
    noted_tokens = 0
    most = _room_for_notes(history, memory, pins, room, new, keep) if memory.notes else 0
    while memory.notes:
        notes, withheld = _notes(memory, {entry.id for entry in selection.messages}, most)
        noted = "\n".join(history_module.noted(shown_note.note) for shown_note in notes)
        noted_tokens = estimate(render.memory_paragraph(render.NOTES, noted))
        tokens_left = room - pins.stable_tokens - noted_tokens
        less = _select(agent_id, history, trigger, memory, pins.pinned, tokens_left)
        if less.start <= selection.start:
            break
        # The notes may have pushed out messages that other notes come from.
        selection = less
    return Chosen(
        selection=selection,
        has_summary=bool(memory.summary),
        pinned=pins.pinned,
        titles=pins.titles,
        listed=pins.listed,
        notes=notes,
        withheld=withheld,
        stable=pins.stable,
        stable_tokens=pins.stable_tokens,
        noted=noted,
        noted_tokens=noted_tokens,
    )


def _weight_of(messages: Iterable[ShownMessage], history: History) -> int:
    return sum(map(history.weight_of, messages))


def fit_summary(memory: Memory, room: int, new: int = 0, keep: float = KEEP) -> Memory:
    """Return the memory with a summary that leaves room for messages: with fewer items, or none.

    `new` are the tokens of the messages that are always shown.
    """
    if not memory.summary:
        return memory
    has_others = bool(memory.pinned or memory.notes)
    most = min(summary_limit(room, keep, has_others=has_others), room - new)
    tokens = _summary_tokens(memory)
    if tokens <= most:
        return memory
    most -= SUMMARY_FRAME
    summary = shorten_summary(memory.summary, most) if most >= _LEAST_SUMMARY else ""
    if summary:
        return memory._replace(summary=summary)
    return memory._replace(summary="", upto=0, summarised=0)


def summary_limit(room: int, keep: float, *, has_others: bool) -> int:
    """Return the tokens of the longest summary that is shown as it is, with the lines around it.

    `has_others` is True if there are pinned messages or notes, which have room too: in a small room
    half as much, since a summary that is cut there loses most.
    """
    left = NOTES_LEFT * (0.5 if room < SMALL_ROOM else 1.0) if has_others else 0.0
    return int(room * (min(_LARGEST_SUMMARY, 1 - keep) - left))


def _widen(memory: Memory, history: History, room: int) -> Memory:
    """Return the memory with fewer summarised messages, if the room is wide.

    A team's summary is made for its smallest window; the agents with wider ones have room for more
    messages in full, for all of them if these fit.
    """
    if not memory.summary or history.tokens_after(memory.upto) >= room * SHARE:
        return memory
    if history.tokens_after(0) <= room and history.is_complete:
        return memory._replace(summary="", upto=0, summarised=0)
    upto = history.begin_in_steps(room - _summary_tokens(memory) - int(room * SHARE))
    if upto >= memory.upto:
        return memory
    again = len(history.after(upto)) - len(history.after(memory.upto))
    return memory._replace(upto=upto, summarised=max(1, memory.summarised - again))


def _summary_tokens(memory: Memory) -> int:
    """Return the tokens of the summary as it is shown."""
    return _show_summary(memory.summary)[1]


@lru_cache(maxsize=64)
def _show_summary(summary: str) -> tuple[str, int]:
    """Return the text before the messages if only a summary is there, and its tokens."""
    text = history_module.stable(summary, ())
    return text, estimate(render.memory_paragraph(render.BEFORE, text))


def _choose_pins(
    agent_id: str,
    history: History,
    trigger: Sequence[str],
    memory: Memory,
    room: int,
    new: int,
    keep: float,
) -> _Pins:
    """Choose the pinned messages to show in addition to the newest.

    If there is no room for all, approved ones and the newest come first.
    """
    if not memory.pinned:
        stable, tokens = _show_summary(memory.summary)
        selection = history.select(agent_id, room - tokens, trigger, memory.upto)
        return _Pins([], [], 0, stable, tokens, selection)
    by_id = {entry.message.id: entry for entry in memory.pinned}
    most = _room_for_pins(history, memory, room, new, keep)
    beside: list[Pinned] = []
    while True:
        chosen, titles, title_room = _within(beside, history, most)
        titles = [note for note in titles if not quotes(memory.summary, note.title)]
        stable, listed = _stable(memory, titles, title_room)
        tokens = estimate(render.memory_paragraph(render.BEFORE, stable))
        used = _weight_of((entry.message for entry in chosen), history)
        if chosen and used > room - tokens - new:
            most = used - 1  # the titles of others leave no room for as many
            continue
        selection = _select(agent_id, history, trigger, memory, chosen, room - tokens)
        older = history.older(by_id, selection.start)
        # What is shown beside the newest pushes others out of them: until nothing more is.
        if len(older) <= len(beside):
            return _Pins(chosen, titles, listed, stable, tokens, selection)
        beside = [by_id[message_id] for message_id in older]


def _room_for_pins(history: History, memory: Memory, room: int, new: int, keep: float) -> int:
    """Return the tokens for pinned messages and titles.

    They have their share, as far as the newest messages and the summary leave it. Room that the
    messages do not take is added in steps, so that the beginning of the input seldom changes.
    """
    share = int(room * SHARE)
    left = room - _summary_tokens(memory) - int(room * NOTES_LEFT)
    unused = left - max(new, history.tokens_after(memory.upto))
    steps = unused // share * share if share > 0 else 0
    return max(0, min(share, left - max(new, int(room * keep))), steps)


def _room_for_notes(
    history: History, memory: Memory, pins: _Pins, room: int, new: int, keep: float
) -> int:
    """Return the tokens for notes: their share, as far as all else leaves it."""
    left = room - pins.stable_tokens - _weight_of((pin.message for pin in pins.pinned), history)
    newest = max(new, min(int(room * keep), history.tokens_after(memory.upto)))
    return min(int(room * SHARE), left - newest) - _NOTES_FRAME


def _within(
    pinned: Sequence[Pinned], history: History, most: int
) -> tuple[list[Pinned], list[Note], int]:
    """Return the pinned messages that fit, the notes of the others, and the room for titles.

    Messages are sorted from oldest to newest, notes from best to worst.
    """
    if _weight_of((entry.message for entry in pinned), history) <= most:
        return list(pinned), [], 0
    most = max(0, most - _TITLES_FRAME)
    left = int(most * _IN_FULL)
    chosen: list[Pinned] = []
    titles: list[Note] = []
    for entry in sorted(pinned, key=best_first):
        cost = history.weight_of(entry.message)
        if cost <= left:
            left -= cost
            chosen.append(entry)
        else:
            titles.append(entry.note)
    used = _weight_of((entry.message for entry in chosen), history)
    return sorted(chosen, key=lambda entry: entry.message.seq), titles, most - used


def best_first(entry: Pinned) -> tuple[bool, int]:
    """Return the key that sorts pinned messages: approved ones, then the newest, first."""
    return entry.note.status != "approved", -entry.message.seq


def _stable(memory: Memory, titles: Sequence[Note], room: int) -> tuple[str, int]:
    """Return the text before the messages, and the number of titles in it."""
    listed: list[Note] = []
    for note in titles[: history_module.MOST_TITLES]:
        room -= estimate(history_module.title_line(note)) + 1
        if room < 0:
            break
        listed.append(note)
    text = history_module.stable(memory.summary, listed[::-1], len(titles) - len(listed))
    return text, len(listed)


def _select(
    agent_id: str,
    history: History,
    trigger: Sequence[str],
    memory: Memory,
    pinned: Sequence[Pinned],
    budget: int,
) -> Selection:
    """Return the messages to show, including pinned ones that the history has forgotten."""
    far = [entry.message for entry in pinned if history.message(entry.message.id) is None]
    near = [entry.message.id for entry in pinned if history.message(entry.message.id) is not None]
    extra = _weight_of(far, history)
    selection = history.select(
        agent_id, budget - extra, [*trigger, *near] if near else trigger, memory.upto
    )
    if not far:
        return selection
    pairs = [history.far(message, agent_id) for message in far]
    return selection._replace(
        messages=[*(pinned_message for pinned_message, _ in pairs), *selection.messages],
        digests=[*(hashed for _, hashed in pairs), *selection.digests],
        tokens=selection.tokens + extra,
    )


def _notes(
    memory: Memory, message_ids: set[str], most: int
) -> tuple[list[RecalledNote], list[tuple[RecalledNote, str]]]:
    """Return the notes to show within `most` tokens, and the others with the reason."""
    notes: list[RecalledNote] = []
    withheld: list[tuple[RecalledNote, str]] = []
    for entry in memory.notes:
        cost = _weigh_note(history_module.noted(entry.note))
        if not entry.note.is_shared and entry.note.source in message_ids:
            withheld.append((entry, SHOWN_WHOLE))
        elif len(notes) >= memory.most_notes:
            withheld.append((entry, BETTER_ONES))
        elif cost > most:
            withheld.append((entry, NO_ROOM))
        else:
            most -= cost
            notes.append(entry)
    return notes, withheld


@lru_cache(maxsize=512)
def _weigh_note(noted: str) -> int:
    return estimate(render.memory_paragraph("", noted))


# For what stands around the messages in a prompt, the question at its end above all.
_PROMPT_TOKENS = 120

# The least that the line above a message takes up.
_FRAME_TOKENS = 4


def _estimate_turn(turn: ExampleTurn) -> int:
    return estimate(turn.text) + _FRAME_TOKENS


class Head(NamedTuple):
    """The part of the input that all calls of one member in one team have in common.

    `common` is an input with it alone. `room` is the member's window minus the tokens reserved for
    its answer; `tokens` is the estimate for everything except the messages.
    """

    common: AgentInput
    tokens: int
    room: int
    digest: hashing.HeadDigest

    @property
    def agent_id(self) -> str:
        """The id of the member."""
        return self.common.agent_id

    @classmethod
    def of(cls, team: Team, member: Member, model_window: int | None = None) -> Head:
        """Return the head for a member; `model_window` is its model's limit in tokens, if known."""
        settings = member.profile.context
        takes, reserved = sizes(settings, model_window)
        system = render.system_text(member.id, member.role_prompt, team.infos)
        turns = [ExampleTurn.of(turn.user, turn.agent) for turn in member.profile.examples]
        examples = [turn for turn in turns if turn.text.strip()]
        # Its values are arena's own; those of a call are filled in by `build`.
        common = AgentInput.model_construct(
            session_id="",
            turn_id="",
            turn=0,
            call=0,
            trigger=[],
            agent_id=member.id,
            role_prompt=member.role_prompt,
            invocation="must_reply",
            members=team.infos,
            max_output_tokens=settings.max_output_tokens,
            examples=examples,
        )
        tokens = estimate(system) + _PROMPT_TOKENS + sum(map(_estimate_turn, examples))
        return cls(common, tokens, takes - reserved, _digest_head(common))

    def halve_output(self) -> Head:
        """Return the head for an answer of half the length."""
        most = max(self.common.max_output_tokens // 2, 1)
        common = self.common.model_copy(update={"max_output_tokens": most})
        return self._replace(common=common, digest=_digest_head(common))


def _digest_head(common: AgentInput) -> hashing.HeadDigest:
    return hashing.HeadDigest(
        common.agent_id,
        common.role_prompt,
        common.members,
        common.max_output_tokens,
        examples=common.examples,
    )


class CallContext(NamedTuple):
    """The part of the input that belongs to one call (see `AgentInput`)."""

    session_id: str
    turn_id: str
    turn: int
    call: int
    trigger: Sequence[str]
    invocation: Invocation
    mentioned_by: Sequence[str] = ()
    deadline_s: float | None = None
    brief: str = ""
    supervision: Supervision | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of the brief, or of the state of the chain for the supervisor."""
        say, tokens = Texts(), 0
        if self.brief:
            tokens += estimate(render.brief_paragraph(self.brief, say))
        if self.supervision is not None:
            asked = render.supervision_paragraph(self.supervision, say)
            tokens += estimate(asked) + estimate(render.DECISION)
        return tokens


class Limits(NamedTuple):
    """The limits on the content in addition to the head.

    `factor` is the ratio of the model's token counts to the estimates; the agent is asked to be
    concise from the share `concise_from` of the room on. `most`, in estimated tokens, is a lower
    limit. `keep` is the share of the room for the newest messages; `widens` as in
    `choose_context`.
    """

    factor: float = 1.0
    concise_from: float = 1.0
    most: int | None = None
    keep: float = KEEP
    widens: bool = False


UNLIMITED = Limits()


class Built(NamedTuple):
    """An input, its hash, the hashes of its messages (`digests`), and its estimated tokens."""

    input: AgentInput
    input_hash: str
    input_tokens: int
    digests: Sequence[str]
    chosen: Chosen


def make_history(team: Team) -> History:
    """Return an empty history that reaches as far as the widest window of the team's members."""
    return History(history_budget(team))


@lru_cache(maxsize=256)
def make_head(team: Team, agent_id: str, model_window: int | None = None) -> Head:
    """Return the head for a member or the supervisor of the team, from a cache."""
    member = team.agent(agent_id)
    if member is None:
        raise KeyError(agent_id)
    return Head.of(team, member, model_window)


def build(
    head: Head,
    history: History,
    call: CallContext,
    memory: Memory = NOTHING,
    limits: Limits = UNLIMITED,
) -> Built:
    """Build the input of one call of an agent."""
    extra = call.tokens if call.brief or call.supervision else 0
    room = room_for_messages(head, limits) - extra
    chosen = choose_context(
        head.agent_id, history, call.trigger, memory, room, limits.keep, widens=limits.widens
    )
    selection = chosen.selection
    digests = selection.digests
    memory_context = (
        "\n\n".join(paragraph for paragraph in (chosen.stable, chosen.noted) if paragraph) or None
    )
    usage_ratio = sum_usage(head, history, memory, chosen, limits.factor) / max(head.room, 1)
    is_concise = usage_ratio >= limits.concise_from
    input_hash = head.digest.of(
        call.invocation,
        call.turn,
        digests,
        mentioned_by=call.mentioned_by,
        memory_context=memory_context,
        prefer_concise=is_concise,
        brief=call.brief,
        supervision=call.supervision,
    )
    # Its values are arena's own: checking each message again would cost more the more there are.
    built = head.common.model_copy(
        update={
            "session_id": call.session_id,
            "turn_id": call.turn_id,
            "turn": call.turn,
            "call": call.call,
            "trigger": list(call.trigger),
            "invocation": call.invocation,
            "mentioned_by": list(call.mentioned_by),
            "members": list(head.common.members),
            "messages": selection.messages,
            "memory_context": memory_context,
            "prefer_concise": is_concise,
            "deadline_s": call.deadline_s,
            "brief": call.brief,
            "supervision": call.supervision,
            "examples": list(head.common.examples),
            "memory_stable": len(chosen.stable),
            "input_hash": input_hash,
        }
    )
    used = head.tokens + chosen.stable_tokens + chosen.noted_tokens + selection.tokens + extra
    return Built(built, input_hash, round(used * limits.factor), digests, chosen)


def sum_usage(
    head: Head, history: History, memory: Memory, chosen: Chosen, factor: float = 1.0
) -> int:
    """Return the tokens of an input with everything that is not summarised."""
    unshown = estimate(memory.summary) if memory.summary and not chosen.has_summary else 0
    pinned = _weight_of((entry.message for entry in chosen.pinned), history)
    used = head.tokens + chosen.stable_tokens + unshown + pinned + chosen.noted_tokens
    return round((used + history.tokens_after(memory.upto)) * max(factor, 1.0))


def measure_usage(
    agent_id: str, head: Head, history: History, memory: Memory, limits: Limits
) -> tuple[int, int]:
    """Return the tokens of a member's input with everything that is not summarised.

    No message is new in it, as between two calls. The second number is that of the pinned messages
    of which not even the title has room.
    """
    room = room_for_messages(head, limits)
    if memory.pinned or memory.notes:
        chosen = choose_context(agent_id, history, (), memory, room, limits.keep)
        unlisted = len(chosen.titles) - chosen.listed
        return sum_usage(head, history, memory, chosen, limits.factor), unlisted
    shown = fit_summary(memory, room, 0, limits.keep)
    unshown = estimate(memory.summary) if memory.summary and not shown.summary else 0
    used = head.tokens + _summary_tokens(shown) + unshown + history.tokens_after(memory.upto)
    return round(used * max(limits.factor, 1.0)), 0


def reaches(head: Head, history: History, seq: int, memory: Memory, limits: Limits) -> bool:
    """Return True if the message of that seq is among the newest that fit into the window."""
    room = room_for_messages(head, limits)
    return (
        seq > fit_summary(memory, room, 0, limits.keep).upto
        and history.tokens_after(seq - 1) <= room
    )


def room_for_messages(head: Head, limits: Limits) -> int:
    """Return the room in addition to the head, in estimated tokens."""
    # What is estimated too high only leaves room unused; and what is loaded reaches no further.
    room = int(head.room / max(limits.factor, 1.0))
    return (room if limits.most is None else min(room, limits.most)) - head.tokens


def sizes(settings: ContextSettings, model_window: int | None = None) -> tuple[int, int]:
    """Return the window of an agent, and the part of it reserved for its answer, in tokens.

    `model_window` is its model's limit, if known. If the window is not larger than the setting for
    the answer, half of the window is reserved.
    """
    takes = min(settings.window_tokens, model_window or settings.window_tokens)
    reserved = settings.reserved_output_tokens
    return takes, reserved if reserved < takes else takes // 2


def history_budget(team: Team) -> int:
    """Return the widest window of the team's agents, in tokens."""
    return max((member.profile.context.window_tokens for member in team.agents), default=0)


def weigh(message: Message) -> int:
    """Return a lower bound of a message's tokens in a prompt, estimated quickly."""
    return estimate(message.content) + _FRAME_TOKENS
