"""Opening a transcript: its fold, and its newest messages, at a cost that does not grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arena_cli.ground.protocol import Message
from arena_cli.transcript import index, read
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    Recovered,
    ReplyFinished,
    SessionEvent,
)
from arena_cli.transcript.fold import Fold

# Their lines are most of a transcript, and a window needs nothing of them.
PASSED_OVER = (b'"type":"reply_started"', b'"type":"status"')


def fold_of(
    path: Path,
    *,
    on_message: Callable[[Message], None],
    weigh: Callable[[Message], int],
    budget: int,
) -> Fold:
    """The fold of a transcript, `on_message` told of its newest messages in order.

    Messages are told from so far back that by `weigh` they come to `budget` or more, in tokens.
    A missing transcript folds to nothing.
    """
    fold = Fold(on_message)
    if not path.exists():
        return fold
    offset = index.load(path, fold)
    if offset:
        for message in _newest_messages(path, offset, weigh, budget):
            on_message(message)
    end = offset
    for line in read.lines(path, start=offset):
        end = line.end
        for event in line.events:
            fold.apply(event)
    fold.seq = max(fold.seq, read.last_seq(path))
    if end > offset:
        index.save(path, fold, end)
    return fold


def session_of(path: Path) -> SessionEvent | None:
    """Who talks in a session, as its transcript last said; takes no lock and writes nothing."""
    fold = Fold()
    for line in read.lines(path, start=index.load(path, fold)):
        for event in line.events:
            fold.apply(event)
    return fold.session


def summary_of(path: Path) -> dict[str, str | None]:
    """What a list of sessions says of one: its team, how it ended, when it last changed."""
    session = session_of(path)
    end, changed = "no messages", ""
    for raw in read.backwards(path, path.stat().st_size):
        last = next(reversed(read.events_of(raw)), None)
        if last is None:
            continue
        changed = changed or last.ts
        if isinstance(last, ChainFinished):
            end = last.end
        elif not isinstance(last, (SessionEvent, Recovered)):
            end = "open"
        else:
            continue
        break
    return {"team": session.team if session else None, "end": end, "changed": changed}


def _newest_messages(
    path: Path, end: int, weigh: Callable[[Message], int], budget: int
) -> list[Message]:
    """The messages before byte `end` that a window may still show, from a chain's start on."""
    newest_first: list[Event] = []
    weight = 0
    for raw in read.backwards(path, end):
        if any(kind in raw[:160] for kind in PASSED_OVER):
            continue
        at_a_start = False
        for event in reversed(read.events_of(raw)):
            newest_first.append(event)
            if isinstance(event, (MessageEvent, ReplyFinished)) and event.message:
                weight += weigh(event.message)
            at_a_start |= isinstance(event, MessageEvent) and event.chain is not None
        if at_a_start and weight >= budget:
            break
    messages: list[Message] = []
    older = Fold(messages.append)
    for event in reversed(newest_first):
        older.apply(event)
    return messages
