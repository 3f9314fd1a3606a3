"""Choose what an agent is shown: messages, a summary and notes within its room.

The choice depends only on the messages and notes, the agent and the room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import history as history_module
from arena_cli.context import render
from arena_cli.context.history import History, Memory, Pinned, RecalledNote, Selection
from arena_cli.context.summary import quotes, shorten_summary
from arena_cli.context.tokens import estimate
from arena_cli.notes.model import Note
from arena_cli.protocol import ShownMessage

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
    new = sum_weights(filter(None, map(history.message, trigger)), history)
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


def sum_weights(messages: Iterable[ShownMessage], history: History) -> int:
    """Return the estimated tokens of messages."""
    return sum(map(history.weight_of, messages))


def fit_summary(memory: Memory, room: int, new: int = 0, keep: float = KEEP) -> Memory:
    """Return the memory with a summary that leaves room for messages: with fewer items, or none.

    `new` are the tokens of the messages that are always shown.
    """
    if not memory.summary:
        return memory
    has_others = bool(memory.pinned or memory.notes)
    most = min(summary_limit(room, keep, has_others=has_others), room - new)
    tokens = estimate_summary(memory)
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
    upto = history.begin_in_steps(room - estimate_summary(memory) - int(room * SHARE))
    if upto >= memory.upto:
        return memory
    again = len(history.after(upto)) - len(history.after(memory.upto))
    return memory._replace(upto=upto, summarised=max(1, memory.summarised - again))


def estimate_summary(memory: Memory) -> int:
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
        used = sum_weights((entry.message for entry in chosen), history)
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
    left = room - estimate_summary(memory) - int(room * NOTES_LEFT)
    unused = left - max(new, history.tokens_after(memory.upto))
    steps = unused // share * share if share > 0 else 0
    return max(0, min(share, left - max(new, int(room * keep))), steps)


def _room_for_notes(
    history: History, memory: Memory, pins: _Pins, room: int, new: int, keep: float
) -> int:
    """Return the tokens for notes: their share, as far as all else leaves it."""
    left = room - pins.stable_tokens - sum_weights((pin.message for pin in pins.pinned), history)
    newest = max(new, min(int(room * keep), history.tokens_after(memory.upto)))
    return min(int(room * SHARE), left - newest) - _NOTES_FRAME


def _within(
    pinned: Sequence[Pinned], history: History, most: int
) -> tuple[list[Pinned], list[Note], int]:
    """Return the pinned messages that fit, the notes of the others, and the room for titles.

    Messages are sorted from oldest to newest, notes from best to worst.
    """
    if sum_weights((entry.message for entry in pinned), history) <= most:
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
    used = sum_weights((entry.message for entry in chosen), history)
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
    extra = sum_weights(far, history)
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
