"""A transcript loaded: its fold, and its newest messages, at a cost that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from arena_cli.ground.protocol import Message
from arena_cli.transcript import index, read
from arena_cli.transcript.events import MessageEvent, ReplyFinished
from arena_cli.transcript.fold import Fold
from arena_cli.transcript.read import Problem

# All that old messages are read from.
TELLING = frozenset({"message", "reply_finished"})


def fold_of(
    path: Path,
    *,
    on_message: Callable[[Message], None],
    weigh: Callable[[Message], int],
    budget: int,
    least: int = 0,
    on_problem: Callable[[Problem], None] = lambda _: None,
    keep: bool = True,
) -> Fold:
    """The fold of a transcript, `on_message` told of its newest messages in order.

    Messages are told from so far back that by `weigh` they come to `budget` or more, in tokens,
    and that they are `least` or more, if there are as many.
    `on_problem` is told of lines that are skipped, where it is all read. A missing transcript
    folds to nothing. `keep` writes the cache.
    """
    fold = Fold(on_message)
    if not path.exists():
        return fold
    offset = index.load(path, fold)
    if offset:
        for message in newest_messages(path, offset, weigh, budget, least):
            on_message(message)
    end = offset
    for line in read.lines(path, start=offset):
        end = line.end
        if line.problem and not offset:
            on_problem(line.problem)
        for event in line.events:
            fold.apply(event)
    fold.seq = max(fold.seq, read.last_seq(path))
    if keep and end > offset:
        index.save(path, fold, end)
    return fold


def newest_messages(
    path: Path, end: int, weigh: Callable[[Message], int], budget: int, least: int = 0
) -> list[Message]:
    """The messages before byte `end` that a window may still show, from a chain's start on.

    They are `least` or more, if there are as many.
    """
    newest_first: list[MessageEvent | ReplyFinished] = []
    weight = 0
    for event in read.newest_first(path, end, TELLING):
        if not isinstance(event, (MessageEvent, ReplyFinished)) or event.message is None:
            continue
        newest_first.append(event)
        weight += weigh(event.message)
        begins = isinstance(event, MessageEvent) and event.chain is not None
        if begins and weight >= budget and len(newest_first) >= least:
            break
    return _in_order_of_call(reversed(newest_first))


def _in_order_of_call(told: Iterable[MessageEvent | ReplyFinished]) -> list[Message]:
    """Their messages as a `Fold` tells them: replies are numbered in the order of call."""
    messages: list[Message] = []
    for is_reply, group in groupby(told, lambda event: isinstance(event, ReplyFinished)):
        listed = list(group)
        if is_reply:
            listed.sort(key=lambda event: getattr(event, "reply", 0))
        messages += [event.message for event in listed if event.message is not None]
    return messages
