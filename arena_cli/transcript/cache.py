"""A cache of a transcript's counters, so that opening a session costs the same at any length.

It is written when no chain is open, checked against the bytes before its offset, and rebuilt if
they do not match; deleting it loses nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from arena_cli.protocol import Message, Usage
from arena_cli.transcript import reader
from arena_cli.transcript.events import Compacted, MessageEvent, ReplyFinished, SessionEvent
from arena_cli.transcript.reader import Problem
from arena_cli.transcript.state import Fold
from arena_cli.util import files

FORMAT = 4
CHECKED_BYTES = 4_096

# A shorter transcript is folded in a few milliseconds.
WORTH_BYTES = 65_536


def cache_path(transcript: Path) -> Path:
    """Return the path of the cache of that transcript."""
    return transcript.with_name(f"{transcript.stem}.index.json")


def save(transcript: Path, fold: Fold, offset: int) -> None:
    """Save the fold of the first `offset` bytes, if they are many and no chain is open there.

    A disk that refuses the write, or a missing transcript, is no error: it is a cache.
    """
    if fold.open is not None or offset < WORTH_BYTES:
        return
    target = cache_path(transcript)
    temporary = target.with_name(target.name + ".part")
    with contextlib.suppress(OSError):
        record = _record(fold, offset, _check(transcript, offset))
        content = json.dumps(record, ensure_ascii=False).encode("utf-8")
        files.check_no_link(target.parent, below=transcript.parents[2])
        files.write_part(temporary, content, instead_of=target)
        temporary.replace(target)


def _record(fold: Fold, offset: int, check: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "offset": offset,
        "check": check,
        "seq": fold.seq,
        "chain": fold.chain,
        "turn": fold.turn,
        "reply": fold.reply,
        "messages": fold.messages,
        "session": fold.session.model_dump() if fold.session else None,
        "calls": fold.calls,
        "scripted_used": {agent: sorted(used) for agent, used in fold.scripted_used.items()},
        "agent_sessions": fold.agent_sessions,
        "usage": fold.usage.model_dump() if fold.usage else None,
        "summary": fold.summary.model_dump() if fold.summary else None,
        "tried": fold.tried.model_dump() if fold.tried else None,
        "levels": fold.levels,
        "fits": fold.fits,
        "extracted": fold.extracted,
        "extracted_upto": fold.extracted_upto,
        "noted": fold.noted,
        "counts": fold.counts.record(),
    }


def load(transcript: Path, fold: Fold) -> int:
    """Fill a new fold from the cache; return the byte offset that it covers, 0 for none."""
    try:
        record = json.loads(files.read_regular(cache_path(transcript)).decode("utf-8"))
        offset = int(record["offset"])
        if record["format"] != FORMAT or record["check"] != _check(transcript, offset):
            return 0
        _fill(Fold(), record)  # what is of another shape is to leave nothing behind
        _fill(fold, record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return 0
    return offset


def _fill(fold: Fold, record: dict[str, Any]) -> None:
    session = record["session"] and SessionEvent.model_validate(record["session"])
    usage = record["usage"] and Usage.model_validate(record["usage"])
    calls = {str(agent): int(count) for agent, count in record["calls"].items()}
    used = {str(agent): set(entries) for agent, entries in record["scripted_used"].items()}
    summary = record["summary"] and Compacted.model_validate(record["summary"])
    attempt = record["tried"] and Compacted.model_validate(record["tried"])
    fold.summary, fold.tried = summary, attempt
    fold.levels = {str(agent): str(level) for agent, level in record["levels"].items()}
    fold.extracted_upto = str(record["extracted_upto"])
    fold.fits = {str(agent): int(tokens) for agent, tokens in record["fits"].items()}
    fold.extracted, fold.noted = int(record["extracted"]), int(record["noted"])
    fold.counts.restore(record["counts"])
    fold.seq, fold.chain = int(record["seq"]), int(record["chain"])
    fold.turn, fold.reply = int(record["turn"]), int(record["reply"])
    fold.messages = int(record["messages"])
    fold.agent_sessions = {
        str(agent): dict(own_session) for agent, own_session in record["agent_sessions"].items()
    }
    fold.session, fold.usage, fold.calls, fold.scripted_used = session, usage, calls, used


def _check(transcript: Path, offset: int) -> str:
    """Return a hash of the last bytes before `offset`; it differs if the file is shorter."""
    with files.open_binary(transcript) as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, offset - CHECKED_BYTES)
        file.seek(start)
        block = file.read(offset - start)
    return hashlib.sha256(f"{min(size, offset)}:".encode() + block).hexdigest()


# All that old messages are read from.
TELLING = frozenset({"message", "reply_finished"})


def load_fold(
    path: Path,
    *,
    on_message: Callable[[Message], None],
    weigh: Callable[[Message], int],
    budget: int,
    least: int = 0,
    on_problem: Callable[[Problem], None] = lambda _: None,
    keep: bool = True,
) -> Fold:
    """Return the fold of a transcript; call `on_message` for its newest messages, in order.

    They go back until their sizes by `weigh` add up to at least `budget` tokens, and until there
    are at least `least` of them, if there are that many. `on_problem` is called for skipped lines,
    if the whole transcript is read. A missing transcript folds to nothing. `keep` writes the cache.
    """
    fold = Fold(on_message)
    if not path.exists():
        return fold
    offset = load(path, fold)
    if offset:
        for message in newest_messages(path, offset, weigh, budget, least):
            on_message(message)
    end = offset
    for line in reader.read_lines(path, start=offset):
        end = line.end
        if line.problem and not offset:
            on_problem(line.problem)
        for event in line.events:
            fold.apply(event)
    fold.seq = max(fold.seq, reader.last_seq(path))
    if keep and end > offset:
        save(path, fold, end)
    return fold


def newest_messages(
    path: Path, end: int, weigh: Callable[[Message], int], budget: int, least: int = 0
) -> list[Message]:
    """Return the messages before byte `end` that a window may show, from a chain's start on.

    There are at least `least` of them, if there are that many.
    """
    newest_first: list[MessageEvent | ReplyFinished] = []
    weight = 0
    for event in reader.newest_first(path, end, TELLING):
        if not isinstance(event, (MessageEvent, ReplyFinished)) or event.message is None:
            continue
        newest_first.append(event)
        weight += weigh(event.message)
        begins = isinstance(event, MessageEvent) and event.chain is not None
        if begins and weight >= budget and len(newest_first) >= least:
            break
    return _in_order_of_call(reversed(newest_first))


def _in_order_of_call(message_events: Iterable[MessageEvent | ReplyFinished]) -> list[Message]:
    """Return the messages in the order of a `Fold`: replies are numbered in the order of call."""
    messages: list[Message] = []
    for is_reply, group in groupby(message_events, lambda event: isinstance(event, ReplyFinished)):
        listed = list(group)
        if is_reply:
            listed.sort(key=lambda event: getattr(event, "reply", 0))
        messages += [event.message for event in listed if event.message is not None]
    return messages
