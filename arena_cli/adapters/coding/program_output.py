"""What an agent program wrote, read by its row of the table: bytes in, what they say out."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from arena_cli.adapters.coding.program_table import ProgramKind, Reads, UsageAt
from arena_cli.adapters.processes.cli_output import (
    MISSING,
    NotAnAnswerError,
    Source,
    TextStream,
    at,
    is_equal,
)
from arena_cli.adapters.processes.json_objects import JsonObjects
from arena_cli.adapters.processes.tail import Tail
from arena_cli.ground import text as texts
from arena_cli.ground.protocol import CallNote, Emit, StatusEvent, TextDelta, Usage

_MB = 1_000_000
_MAX_OUTPUT_MB = 256  # some repeat the text so far with every piece of it
_LONGEST_DETAIL = 200
_MOST = 1e15  # what is more is no number of tokens

# What is said about a failure at most, and which lines of stderr say nothing to a user.
_SHOWN = 400
_LINES_SHOWN = 3
_STATUS = re.compile(r"(?i)\b(?:status|code)\W{1,8}(?:code\W{1,4})?([45]\d\d)\b|^\W*([45]\d\d)\b")
_STACK = re.compile(r"\s+at .|\s*\d+: <unknown>|[\s{}\[\]]*$|Stack backtrace:|WARNING: proceeding")


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: what the program said, and the HTTP status that it amounts to."""

    message: str
    status: int | None = None


@dataclass
class ProgramText:
    """Reads a program's output (`one_run.Output`) and tells what it says as it comes."""

    kind: ProgramKind
    emit: Emit
    session: str = ""
    failure: Failure | None = None
    usage: Usage | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    _has_last: bool = False
    _trouble: str = ""
    _whole: str = ""
    _pieces: list[str] = field(default_factory=list)
    _before: str = ""
    _told: bool = False
    _size: int = 0
    _stderr: Tail = field(default_factory=Tail)
    _stderr_line: str = ""

    def __post_init__(self) -> None:
        self._streams = {"stdout": TextStream(), "stderr": TextStream()}
        aside = _ignored if self.kind.only_stdout else self._take
        self._objects = {"stdout": JsonObjects(self._take), "stderr": JsonObjects(aside)}

    def feed(self, source: Source, data: bytes) -> None:
        """Take what came. Raises NotAnAnswerError where there is no point in waiting for more."""
        self._size += len(data)
        if self._size > _MAX_OUTPUT_MB * _MB:
            raise NotAnAnswerError(f"wrote more than {_MAX_OUTPUT_MB} MB")
        self._read(source, self._streams[source].feed(data))

    def finish(self) -> None:
        for source, stream in self._streams.items():
            self._read("stderr" if source == "stderr" else "stdout", stream.finish())
            self._objects[source].finish()

    def has_result(self) -> bool:
        return self._has_last

    def cut_off(self) -> None:
        self.emit(CallNote(self.notes()))

    def answer(self) -> str:
        """The answer's text, after `finish`. Raises NotAnAnswerError where there is none."""
        if not self._has_last and any(reads.last for reads in self.kind.reads):
            raise NotAnAnswerError("ended before its answer was whole")
        content = self._whole or "".join(self._pieces) or self._before
        if not content.strip():
            raise NotAnAnswerError("answered nothing")
        return self.kind.unescape(content)

    def failed(self, code: int | None) -> Failure | None:
        """Why there is no answer; `code` is the program's exit code, None if it had none."""
        if self.failure is None and not code:
            return None
        message = self.failure.message if self.failure else self._trouble
        status = self.failure.status if self.failure else None
        stderr = self._stderr.text
        status = status or self._status(message) or self._status(stderr)
        return Failure(message or _last_lines(stderr), status or self.kind.exits.get(code or 0))

    def is_lost(self) -> bool:
        """Whether the program said that the session to go on in is not there."""
        said = f"{self.failure.message if self.failure else ''}\n{self._stderr.text}"
        return bool(self.kind.lost and re.search(self.kind.lost, said))

    def notes(self) -> dict[str, Any]:
        """What stands beside the answer, where there is any."""
        notes = {
            "log": self._objects["stdout"].log.text,
            "stderr": self._stderr.text,
            "trouble": self._trouble,
            "replaced_bytes": any(stream.replaced for stream in self._streams.values()),
            "raw": self.raw,
        }
        return {name: note for name, note in notes.items() if note}

    def partial(self) -> str:
        """The answer's text as far as it came."""
        return self._whole or "".join(self._pieces)

    def _read(self, source: Source, text: str) -> None:
        self._objects[source].feed(text)
        if source == "stdout":
            return
        self._stderr.add(text)
        *lines, self._stderr_line = (self._stderr_line + text).split("\n")
        for line in lines:
            self._give_up(line)

    def _give_up(self, said: str) -> None:
        """Fail if the program says that it will try again by itself."""
        found = re.search(self.kind.retries, said) if self.kind.retries else None
        if found:
            said = found.groupdict().get("said") or said
            status = next(filter(str.isdecimal, filter(None, found.groups())), None)
            self.failure = Failure(_plain(said), int(status) if status else None)
            raise NotAnAnswerError("would go on trying by itself")

    def _take(self, value: dict[str, Any]) -> bool:
        value, _ = texts.clean_value(value)
        for reads in self.kind.reads:
            if all(is_equal(at(value, place), wanted) for place, wanted in reads.where.items()):
                self._apply(reads, value)
        return False

    def _apply(self, reads: Reads, value: dict[str, Any]) -> None:
        self.session = _text(value, reads.session) or self.session
        if reads.anew:
            self._before = self._whole or "".join(self._pieces) or self._before
            self._whole = ""
            self._pieces.clear()
        piece = _text(value, reads.delta) or _text(value, reads.part)
        is_repeated = bool(reads.part) and piece == "".join(self._pieces)
        if piece and not is_repeated:
            self._pieces.append(piece)
            self._tell(piece)
        if whole := _text(value, reads.text):
            if not self._pieces:
                self._tell(f"\n\n{whole}" if self._told else whole)
            self._whole = whole
            self._pieces.clear()
        if reads.usage:
            self._add(_usage(value, reads.usage))
        if reads.failure and at(value, reads.failure) is not MISSING:
            said = _plain(_text(value, reads.failure) or json.dumps(at(value, reads.failure)))
            status = int(_number(value, reads.status) or 0)
            shown = f"{status} {said}" if status and str(status) not in said else said
            self.failure = Failure(shown, status or None)
        if reads.because:
            self.failure = Failure(reads.because)
        if trouble := _plain(_text(value, reads.trouble)):
            self._trouble = trouble
            self.emit(StatusEvent(status="waiting", detail=texts.cut(trouble, _LONGEST_DETAIL)))
            self._give_up(trouble)
        if reads.doing:
            detail = texts.cut(_text(value, reads.doing[1]), _LONGEST_DETAIL)
            self.emit(StatusEvent(status=reads.doing[0], detail=detail))
        if reads.last or reads.failure or reads.because:
            self.raw = value
        self._has_last = self._has_last or reads.last
        if reads.ends:
            raise NotAnAnswerError("was ended before it went on by itself")

    def _tell(self, text: str) -> None:
        self._told = True
        self.emit(TextDelta(text))

    def _add(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else Usage.total([self.usage, usage])

    def _status(self, text: str) -> int | None:
        for pattern, status in self.kind.says.items():
            if re.search(pattern, text):
                return status
        found = _STATUS.search(text)
        return int(next(filter(None, found.groups()))) if found else None


def _ignored(_: dict[str, Any]) -> bool:
    return False


def _text(value: dict[str, Any], place: str) -> str:
    """The text at a path; of a list of parts, that of those which have a `text`."""
    found = at(value, place) if place else ""
    if isinstance(found, list):
        parts = [part.get("text") for part in found if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return found if isinstance(found, str) else ""


def _number(value: dict[str, Any], place: str) -> float | None:
    found = at(value, place) if place else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if 0 <= found < _MOST else None


def _cost(value: dict[str, Any], place: str) -> float | None:
    """Return the cost as the program gives it: whether it can be is seen where all are."""
    cost = at(value, place) if place else None
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        return None
    return float(cost) if abs(cost) < _MOST else math.inf


def _usage(value: dict[str, Any], where: UsageAt) -> Usage | None:
    """The tokens and the cost that an object tells; None where it tells none."""
    given, output = _number(value, where.input), _number(value, where.output)
    if given is None and output is None:
        return None
    given = given or 0
    read = _number(value, where.cache_read) or 0
    write = _number(value, where.cache_write) or 0
    fresh = max(0, given - read - write) if where.input_has_cached else given
    total = _number(value, where.total)
    if total is not None:
        output = total - fresh - read - write
    return Usage(
        input_tokens=int(fresh),
        output_tokens=int(max(0, output or 0)),
        cache_read_tokens=int(read),
        cache_write_tokens=int(write),
        cost_usd=_cost(value, where.cost),
    )


def _plain(message: str) -> str:
    """A message in one line; where it holds a provider's error in JSON, what that says."""
    start = message.find("{")
    try:
        said = json.JSONDecoder().raw_decode(message, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        said = None
    error = said.get("error", said) if isinstance(said, dict) else None
    inner = error.get("message") if isinstance(error, dict) else None
    if isinstance(error, dict) and isinstance(inner, str) and inner.strip():
        before = message[:start].strip()
        code = before if before.isdecimal() else error.get("code")
        message = f"{code} {inner}" if str(code).isdecimal() else inner
    return texts.cut(" ".join(message.split()), _SHOWN)


def _last_lines(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if not _STACK.match(line)]
    return texts.cut(" | ".join(lines[-_LINES_SHOWN:]), _SHOWN)
