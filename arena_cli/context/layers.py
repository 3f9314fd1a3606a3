"""The four layers of what an agent is shown of a conversation, within so much room.

The newest messages whole; those that are pinned always; the older part as a summary; the notes that
bear on the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arena_cli.context import remembered, tokens
from arena_cli.context.history import History, Selection
from arena_cli.context.remembered import Found, Memory, Pinned
from arena_cli.ground.protocol import ShownMessage
from arena_cli.memory.note import Note

# What the summary, the pinned messages and the notes may take at most of the room for messages;
# of what the summary and what is new leave of it, in the case of pinned messages.
SUMMARY_SHARE = 0.5
_PINNED_SHARE = 0.5
_NOTES_SHARE = 0.15

SHOWN_WHOLE = "the message that it comes from is shown whole"
NO_ROOM = "there is no room"
BETTER_ONES = "there are as many better ones as are shown"


class Chosen(NamedTuple):
    """What an agent is shown, and what not. Tokens are estimates, uncorrected.

    `pinned` are those that are shown beside the newest messages, `titles` those for which there is
    no more room than for their title. `withheld` are notes with the reason.
    """

    selection: Selection
    has_summary: bool
    pinned: list[Pinned]
    titles: list[Note]
    notes: list[Found]
    withheld: list[tuple[Found, str]]
    stable: str
    stable_tokens: int
    noted: str
    noted_tokens: int


def choose(
    agent_id: str, history: History, trigger: Sequence[str], memory: Memory, room: int
) -> Chosen:
    """What an agent is shown where there is so much room, in estimated tokens.

    `trigger` are the ids of the messages that are new to it, which are shown in any case.
    """
    new = _weight_of(filter(None, map(history.message, trigger)), history)
    memory = fitting(memory, room, new)
    pinned, titles, selection = _pinned(agent_id, history, trigger, memory, room, new)
    stable = remembered.stable(memory.summary, memory.summarised, titles)
    stable_tokens = tokens.estimate(stable)
    notes: list[Found] = []
    withheld: list[tuple[Found, str]] = []
    noted = ""
    noted_tokens = 0
    beside = stable_tokens + new + _weight_of((one.message for one in pinned), history)
    most = min(int(room * _NOTES_SHARE), room - beside)
    while memory.notes:
        notes, withheld = _notes(memory, {one.id for one in selection.messages}, most)
        noted = "\n".join(remembered.noted(found.note) for found in notes)
        noted_tokens = tokens.estimate(noted)
        left = room - stable_tokens - noted_tokens
        less = _select(agent_id, history, trigger, memory, pinned, left)
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
    """The memory without its summary, if that would leave too little room for messages.

    `new` are the tokens of those that are shown whatever there is room for.
    """
    if tokens.estimate(memory.summary) <= min(room * SUMMARY_SHARE, room - new):
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
    """The pinned messages that are shown beside the newest, those that only have a title, and
    the messages that are shown.

    The newest pinned ones stay, if there is no room for all.
    """
    by_id = {one.message.id: one for one in memory.pinned}
    most = int((room - tokens.estimate(memory.summary) - new) * _PINNED_SHARE)
    beside: list[Pinned] = []
    while True:
        kept, titles = _within(beside, history, most)
        stable = tokens.estimate(remembered.stable(memory.summary, memory.summarised, titles))
        taken = _weight_of((one.message for one in kept), history)
        if kept and taken > room - stable - new:
            most = taken - 1  # the titles of others leave no room for as many
            continue
        selection = _select(agent_id, history, trigger, memory, kept, room - stable)
        older = history.older(by_id, selection.start) if by_id else []
        # What is shown beside the newest pushes others out of them: until nothing more is.
        if len(older) <= len(beside):
            return kept, titles, selection
        beside = [by_id[message_id] for message_id in older]


def _within(
    pinned: Sequence[Pinned], history: History, most: int
) -> tuple[list[Pinned], list[Note]]:
    """The newest that take so many tokens together, and the notes of the others, oldest first."""
    at = len(pinned)
    while at and (most := most - history.weight_of(pinned[at - 1].message)) >= 0:
        at -= 1
    return list(pinned[at:]), [one.note for one in pinned[:at]]


def _select(
    agent_id: str,
    history: History,
    trigger: Sequence[str],
    memory: Memory,
    pinned: Sequence[Pinned],
    budget: int,
) -> Selection:
    """The messages that are shown, with those of the pinned ones that are remembered no more."""
    far = [one.message for one in pinned if history.message(one.message.id) is None]
    near = [one.message.id for one in pinned if history.message(one.message.id) is not None]
    extra = _weight_of(far, history)
    selection = history.select(
        agent_id, budget - extra, [*trigger, *near] if near else trigger, memory.upto
    )
    if not far:
        return selection
    pairs = [history.far(message, agent_id) for message in far]
    return selection._replace(
        messages=[*(shown for shown, _ in pairs), *selection.messages],
        digests=[*(hashed for _, hashed in pairs), *selection.digests],
        tokens=selection.tokens + extra,
    )


def _notes(
    memory: Memory, shown: set[str], most: int
) -> tuple[list[Found], list[tuple[Found, str]]]:
    """The notes that are shown, within so many tokens, and the others with the reason."""
    notes: list[Found] = []
    withheld: list[tuple[Found, str]] = []
    for one in memory.notes:
        cost = tokens.estimate(remembered.noted(one.note))
        if not one.note.is_shared and one.note.source in shown:
            withheld.append((one, SHOWN_WHOLE))
        elif len(notes) >= memory.most_notes:
            withheld.append((one, BETTER_ONES))
        elif cost > most:
            withheld.append((one, NO_ROOM))
        else:
            most -= cost
            notes.append(one)
    return notes, withheld
