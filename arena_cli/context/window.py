"""Choose an agent's input within its window (docs/concepts/memory.md).

The choice depends only on the messages and notes, the member, and the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import history as history_module
from arena_cli.context import render
from arena_cli.context.history import NOTHING, History, Memory, Pinned, RecalledNote, Selection
from arena_cli.context.tokens import estimate
from arena_cli.notes.model import Note
from arena_cli.protocol import AgentInput, Invocation, MemberInfo, Message, ShownMessage
from arena_cli.workspace.models import ContextSettings, Member, Team

# What the summary, the pinned messages and the notes may take at most of the room for messages;
# of what the summary and what is new leave of it, in the case of pinned messages.
SUMMARY_SHARE = 0.5
_PINNED_SHARE = 0.5
_NOTES_SHARE = 0.15

SHOWN_WHOLE = "the message that it comes from is shown whole"
NO_ROOM = "there is no room"
BETTER_ONES = "there are as many better ones as are shown"


class Chosen(NamedTuple):
    """The selected context of an agent. Tokens are estimates, uncorrected.

    `pinned` are shown in addition to the newest messages; of `titles` there is only room for the
    titles. `withheld` are notes that are not shown, with the reason.
    """

    selection: Selection
    has_summary: bool
    pinned: list[Pinned]
    titles: list[Note]
    notes: list[RecalledNote]
    withheld: list[tuple[RecalledNote, str]]
    stable: str
    stable_tokens: int
    noted: str
    noted_tokens: int


def choose_context(
    agent_id: str, history: History, trigger: Sequence[str], memory: Memory, room: int
) -> Chosen:
    """Choose the context of an agent within that room, in estimated tokens.

    `trigger` are the ids of the messages that are new to the agent; they are always shown.
    """
    new = _weight_of(filter(None, map(history.message, trigger)), history)
    memory = fitting(memory, room, new)
    pinned, titles, selection = _pinned(agent_id, history, trigger, memory, room, new)
    stable = history_module.stable(memory.summary, memory.summarised, titles)
    stable_tokens = estimate(stable)
    notes: list[RecalledNote] = []
    withheld: list[tuple[RecalledNote, str]] = []
    noted = ""
    noted_tokens = 0
    beside = stable_tokens + new + _weight_of((entry.message for entry in pinned), history)
    most = min(int(room * _NOTES_SHARE), room - beside)
    while memory.notes:
        notes, withheld = _notes(memory, {entry.id for entry in selection.messages}, most)
        noted = "\n".join(history_module.noted(shown_note.note) for shown_note in notes)
        noted_tokens = estimate(noted)
        tokens_left = room - stable_tokens - noted_tokens
        less = _select(agent_id, history, trigger, memory, pinned, tokens_left)
        if less.start <= selection.start:
            break
        # The notes may have pushed out messages that other notes come from.
        selection = less
    return Chosen(
        selection=selection,
        has_summary=bool(memory.summary),
        pinned=pinned,
        titles=titles,
        notes=notes,
        withheld=withheld,
        stable=stable,
        stable_tokens=stable_tokens,
        noted=noted,
        noted_tokens=noted_tokens,
    )


def _weight_of(messages: Iterable[ShownMessage], history: History) -> int:
    return sum(map(history.weight_of, messages))


def fitting(memory: Memory, room: int, new: int = 0) -> Memory:
    """Return the memory, without its summary if that would leave too little room for messages.

    `new` are the tokens of the messages that are always shown.
    """
    if estimate(memory.summary) <= min(room * SUMMARY_SHARE, room - new):
        return memory
    return memory._replace(summary="", upto=0, summarised=0)


def _pinned(
    agent_id: str,
    history: History,
    trigger: Sequence[str],
    memory: Memory,
    room: int,
    new: int,
) -> tuple[list[Pinned], list[Note], Selection]:
    """Choose the pinned messages to show in addition to the newest.

    If there is no room for all, the newest pinned ones are kept. Returns them, the notes of which
    only the title is shown, and the messages to show.
    """
    by_id = {entry.message.id: entry for entry in memory.pinned}
    most = int((room - estimate(memory.summary) - new) * _PINNED_SHARE)
    beside: list[Pinned] = []
    while True:
        chosen, titles = _within(beside, history, most)
        stable = estimate(history_module.stable(memory.summary, memory.summarised, titles))
        used = _weight_of((entry.message for entry in chosen), history)
        if chosen and used > room - stable - new:
            most = used - 1  # the titles of others leave no room for as many
            continue
        selection = _select(agent_id, history, trigger, memory, chosen, room - stable)
        older = history.older(by_id, selection.start) if by_id else []
        # What is shown beside the newest pushes others out of them: until nothing more is.
        if len(older) <= len(beside):
            return chosen, titles, selection
        beside = [by_id[message_id] for message_id in older]


def _within(
    pinned: Sequence[Pinned], history: History, most: int
) -> tuple[list[Pinned], list[Note]]:
    """Return the newest within `most` tokens, and the notes of the others, oldest first."""
    index = len(pinned)
    while index and (most := most - history.weight_of(pinned[index - 1].message)) >= 0:
        index -= 1
    return list(pinned[index:]), [entry.note for entry in pinned[:index]]


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
        cost = estimate(history_module.noted(entry.note))
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


# For what stands around the messages in a prompt, the question at its end above all.
_PROMPT_TOKENS = 120

# The least that the line above a message takes up.
_FRAME_TOKENS = 4


class Head(NamedTuple):
    """The part of the input that all calls of one member in one team have in common.

    `room` is its window minus the tokens reserved for its answer; `tokens` is the estimate for
    everything except the messages.
    """

    agent_id: str
    role_prompt: str
    members: list[MemberInfo]
    max_output_tokens: int
    tokens: int
    room: int
    digest: render.HeadDigest

    @classmethod
    def of(cls, team: Team, member: Member, model_window: int | None = None) -> Head:
        """Return the head for a member; `model_window` is its model's limit in tokens, if known."""
        members = team.infos
        settings = member.profile.context
        takes, reserved = sizes(settings, model_window)
        system = render.system_text(member.id, member.role_prompt, members)
        return cls(
            agent_id=member.id,
            role_prompt=member.role_prompt,
            members=members,
            max_output_tokens=settings.max_output_tokens,
            tokens=estimate(system) + _PROMPT_TOKENS,
            room=takes - reserved,
            digest=render.HeadDigest(
                member.id, member.role_prompt, members, settings.max_output_tokens
            ),
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


class Limits(NamedTuple):
    """The limits on the content in addition to the head.

    `factor` is the ratio of the model's token counts to the estimates; the agent is asked to be
    concise from the share `concise_from` of the room on. `most`, in estimated tokens, is a lower
    limit.
    """

    factor: float = 1.0
    concise_from: float = 1.0
    most: int | None = None


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
    """Return the head for a member of the team, from a cache."""
    member = team.member(agent_id)
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
    chosen = choose_context(head.agent_id, history, call.trigger, memory, _room(head, limits))
    selection = chosen.selection
    digests = selection.digests
    memory_context = (
        "\n\n".join(paragraph for paragraph in (chosen.stable, chosen.noted) if paragraph) or None
    )
    is_concise = usage_ratio(head, history, memory, limits.factor) >= limits.concise_from
    input_hash = head.digest.of(
        call.invocation,
        call.turn,
        digests,
        mentioned_by=call.mentioned_by,
        memory_context=memory_context,
        prefer_concise=is_concise,
    )
    built = AgentInput(
        session_id=call.session_id,
        turn_id=call.turn_id,
        turn=call.turn,
        call=call.call,
        trigger=list(call.trigger),
        agent_id=head.agent_id,
        role_prompt=head.role_prompt,
        invocation=call.invocation,
        mentioned_by=list(call.mentioned_by),
        members=head.members,
        messages=selection.messages,
        memory_context=memory_context,
        max_output_tokens=head.max_output_tokens,
        prefer_concise=is_concise,
        deadline_s=call.deadline_s,
        memory_stable=len(chosen.stable),
        input_hash=input_hash,
    )
    used = head.tokens + chosen.stable_tokens + chosen.noted_tokens + selection.tokens
    return Built(built, input_hash, round(used * limits.factor), digests, chosen)


def usage_ratio(head: Head, history: History, memory: Memory, factor: float = 1.0) -> float:
    """Return the share of the window's room that everything that is not summarised takes."""
    return sum_usage(head, history, memory, factor) / max(head.room, 1)


def sum_usage(head: Head, history: History, memory: Memory, factor: float = 1.0) -> int:
    """Return the tokens of an input with everything that is not summarised."""
    used = head.tokens + estimate(memory.summary) + history.tokens_after(memory.upto)
    return round(used * max(factor, 1.0))


def reaches(head: Head, history: History, seq: int, memory: Memory, limits: Limits) -> bool:
    """Return True if the message of that seq is among the newest that fit into the window."""
    room = _room(head, limits)
    return seq > fitting(memory, room).upto and history.tokens_after(seq - 1) <= room


def _room(head: Head, limits: Limits) -> int:
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
    """Return the widest window of the team's members, in tokens."""
    return max((member.profile.context.window_tokens for member in team.members), default=0)


def weigh(message: Message) -> int:
    """Return a lower bound of a message's tokens in a prompt, estimated quickly."""
    return estimate(message.content) + _FRAME_TOKENS
