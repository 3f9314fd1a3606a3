"""Read a program's answer: bytes in, `AgentOutput` out."""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from arena_cli.protocol import AgentOutput, AgentReport, CallNote, TextDelta
from arena_cli.util.text import (
    REPLACEMENT,
    AnsiStripper,
    clean_value,
    cut_start,
    decode_output,
    strip_ansi,
)
from arena_cli.yamlio.schema_errors import explain_first

_DECODER = json.JSONDecoder(strict=False)
_BETWEEN = re.compile(r"[\s,\[\]]*+")
# A string matches as one token, so that no bracket in it counts; so does one without an end.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{}]')

# That a `{` at the beginning of a line is never closed shows at the end only; then the lines after
# it are read again. The limit keeps the time from growing with the square of the output.
_MOST_REREADINGS = 4
_MOST_STARTS_IN_A_LINE = 8


TAIL_LIMIT = 8192


class Tail:
    """The last `TAIL_LIMIT` characters of the added text, from the beginning of a word on."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, piece: str) -> None:
        """Append to the text."""
        self._text = (self._text + piece[-TAIL_LIMIT - 1 :])[-TAIL_LIMIT - 1 :]

    @property
    def text(self) -> str:
        """The end of the text, without white space around it."""
        return cut_start(self._text, TAIL_LIMIT).strip()


class ByteTail(Tail):
    """The last text of a stream of bytes, without control sequences."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = TextStream()
        self.has_ended = False

    def add_bytes(self, data: bytes) -> None:
        """Append to the stream; no bytes mean that it has ended."""
        self.has_ended = self.has_ended or not data
        self.add(self._stream.feed(data))


@dataclass
class _Open:
    """An object over many lines that is not closed yet: `depth` brackets are open."""

    lines: list[str]
    depth: int


class JsonObjects:
    """Find the last object for which `fits` is true; keep the end of all other text in `log`.

    It reads one object a line, an object over many lines, an array of objects, several objects in a
    line, and all of these between lines that are no JSON (a banner, a fence, a log). An object
    after other text in its line counts only if no object begins a line.
    """

    def __init__(self, fits: Callable[[dict[str, Any]], bool]) -> None:
        self.log = Tail()
        self.count = 0
        self._fits = fits
        self._last: dict[str, Any] | None = None
        self._last_within: dict[str, Any] | None = None
        self._ends_with_object = False
        self._line: list[str] = []
        self._open: _Open | None = None
        self._open_arrays = 0
        self._rereadings = 0

    @property
    def last(self) -> dict[str, Any] | None:
        """The last object that fits; None if there is none so far."""
        return self._last if self._last is not None else self._last_within

    def feed(self, text: str) -> None:
        """Read the next piece of the output."""
        *lines, tail = text.replace("\r", "\n").split("\n")
        for line in lines:
            self._line.append(line)
            self._read_lines(["".join(self._line)])
            self._line.clear()
        if tail:
            self._line.append(tail)

    def finish(self) -> None:
        """Read the end of the output; an open object is not JSON."""
        self._read_lines(["".join(self._line)])
        self._line.clear()
        while self._open is not None:
            self._read_lines(self._give_up(self._open))

    def is_complete(self) -> bool:
        """Return True if the output so far is complete and ends with an object.

        A last line without a line end is read if it is complete by itself.
        """
        line = "".join(self._line)
        if line.strip():
            if not self._is_complete_line(line):
                return False
            self._line.clear()
            self._read_lines([line])
        return self._ends_with_object and self._open is None and not self._open_arrays

    def _is_complete_line(self, line: str) -> bool:
        if not line.rstrip().endswith(("}", "]")):
            return False
        trial = JsonObjects(self._fits)
        trial._rereadings = _MOST_REREADINGS
        trial._ends_with_object = self._ends_with_object
        if self._open is not None:
            trial._open = _Open([*self._open.lines], self._open.depth)
        trial._read_lines([line])
        return trial._open is None and trial._ends_with_object

    def _read_lines(self, lines: list[str]) -> None:
        queue = deque(lines)
        while queue:
            line = queue.popleft()
            if self._open is None:
                self._read_from(line, 0)
            else:
                queue.extendleft(reversed(self._read_within(line, self._open)))

    def _read_from(self, line: str, position: int) -> None:
        """Read the objects of a line, from a position where none is open."""
        while True:
            between = _BETWEEN.match(line, position)
            start = between.end() if between else position
            if start < len(line) and line[start] != "{":
                return self._note(line[position:])
            arrays = line.count("[", position, start) - line.count("]", position, start)
            self._open_arrays = max(0, self._open_arrays + arrays)
            if start == len(line):
                return None
            try:
                value, position = _DECODER.raw_decode(line, start)
            except json.JSONDecodeError as error:
                # A line that ends too early is the beginning of an object, another is none.
                if error.pos < len(line.rstrip()) or self._rereadings >= _MOST_REREADINGS:
                    return self._note(line[start:])
                self._open = _Open([line[start:]], _closed_at(line, start, 0)[0])
                return None
            except (ValueError, RecursionError):
                return self._note(line[start:])
            self._take(value)

    def _read_within(self, line: str, open_object: _Open) -> list[str]:
        """Read a line of an object over many lines; return the lines to read again."""
        depth, end = _closed_at(line, 0, open_object.depth)
        if depth > 0:
            open_object.lines.append(line)
            open_object.depth = depth
            return []
        try:
            value = _DECODER.decode("\n".join([*open_object.lines, line[:end]]))
        except (ValueError, RecursionError):
            open_object.lines.append(line)
            return self._give_up(open_object)
        self._open = None
        self._take(value)
        self._read_from(line, end)
        return []

    def _give_up(self, open_object: _Open) -> list[str]:
        self._open = None
        self._rereadings += 1
        self._note(open_object.lines[0])
        return open_object.lines[1:]

    def _take(self, value: dict[str, Any]) -> None:
        self.count += 1
        self._ends_with_object = True
        if self._fits(value):
            self._last = value

    def _note(self, text: str) -> None:
        if not text.strip():
            return
        self._ends_with_object = False
        self.log.add(text + "\n")
        start = -1
        for _ in range(_MOST_STARTS_IN_A_LINE):
            start = text.find("{", start + 1)
            if start < 0:
                return
            try:
                value, end = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                continue
            if not text[end:].strip():
                self.count += 1
                if self._fits(value):
                    self._last_within = value
                return


def _closed_at(line: str, start: int, depth: int) -> tuple[int, int]:
    """Return the number of brackets open after the line, or 0 and the offset after the object.

    If a string does not end within the line, all brackets count as closed: it is not JSON.
    """
    for token in _TOKEN.finditer(line, start):
        mark = line[token.start()]
        if mark == '"':
            if not token[1]:
                return 0, len(line)
        elif mark in "{[":
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return 0, token.end()
    return depth, len(line)


OutputKind = Literal["text", "json", "jsonl"]
Source = Literal["stdout", "stderr"]

_MB = 1_000_000
_REPLACEMENT = REPLACEMENT.encode("utf-8")
MISSING = object()


class NotAnAnswerError(ValueError):
    """The output is not an answer; the error has a hint."""

    def __init__(self, problem: str, mend: str = "") -> None:
        super().__init__(problem)
        self.what = problem
        self.mend = mend


@dataclass(frozen=True)
class AnswerFormat:
    """The form of an answer: see the keys of `CliSettings`."""

    kind: OutputKind = "text"
    answer: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    max_output_mb: float = 32

    def fits(self, value: dict[str, Any]) -> bool:
        """Return True if an object has the values of `where`."""
        return all(
            is_equal(get_at_path(value, path), expected) for path, expected in self.where.items()
        )

    def answer_in(self, value: dict[str, Any]) -> AgentOutput:
        """Return the answer in an object. Raises NotAnAnswerError."""
        if self.answer is None:
            return parse_output(value)
        answer = get_at_path(value, self.answer)
        if answer is MISSING:
            keys = ", ".join(list(value)[:12])
            raise NotAnAnswerError(
                f"its result has no `{self.answer}`, only {keys or 'nothing'}",
                "compare `answer` with the program's output, or select the object with `where`",
            )
        if isinstance(answer, dict):
            return parse_output(answer)
        content = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        if answer is None or not content.strip():
            raise NotAnAnswerError(f"answered nothing: `{self.answer}` of its result is empty")
        return AgentOutput(content=content)


class ProgramOutput:
    """Read a program's output as it comes, and emit the text of its answer."""

    def __init__(self, format: AnswerFormat, emit: Callable[[AgentReport], None]) -> None:
        self._format = format
        self._emit = emit
        self._size = {"stdout": 0, "stderr": 0}
        self._streams = {"stdout": TextStream(), "stderr": TextStream()}
        self._stderr_tail = ByteTail()
        self._text: list[str] = []
        self._tail = Tail()
        self._objects = {"stdout": JsonObjects(format.fits), "stderr": JsonObjects(format.fits)}
        self._replaced = False

    def feed(self, source: Source, data: bytes) -> None:
        """Read the next bytes.

        Raises NotAnAnswerError if stdout grows over the limit.
        """
        limit = self._format.max_output_mb * _MB
        self._size[source] += len(data)
        if source == "stderr":
            self._stderr_tail.add_bytes(data)
            if self._format.kind == "text" or self._size["stderr"] > limit:
                return
        elif self._size["stdout"] > limit:
            raise NotAnAnswerError(
                f"wrote more than {self._format.max_output_mb:g} MB to stdout",
                "raise `max_output_mb` if its answers are that long",
            )
        self._read(source, self._streams[source].feed(data))

    def finish(self) -> None:
        """Read the end of the output."""
        if self._format.kind != "text":
            self._read("stderr", self._streams["stderr"].finish())
            self._objects["stderr"].finish()
        self._read("stdout", self._streams["stdout"].finish())
        self._objects["stdout"].finish()

    def cut_off(self) -> None:
        """Report the partial output of a call that was cancelled."""
        if self._format.kind == "text":
            self.finish()
        notes = self.notes()
        if self._format.kind != "text" and self.partial():
            notes["partial"] = self.partial()
        self._emit(CallNote(notes))

    def has_result(self) -> bool:
        """Return True if a whole result has come, so that a silent program may be ended.

        The end of plain text cannot be known.
        """
        if self._format.kind == "text":
            return False
        objects = self._objects["stdout"]
        is_complete = objects.is_complete()
        if objects.last is None:
            return False
        if self._format.where:
            return True
        try:
            self._format.answer_in(objects.last)
        except NotAnAnswerError:
            return False
        return is_complete

    def answer(self) -> AgentOutput:
        """Return the answer with `notes` as metadata, after `finish`. Raises NotAnAnswerError."""
        output = self._text_answer() if self._format.kind == "text" else self._json_answer()
        return output.model_copy(update={"metadata": {**output.metadata, **self.notes()}})

    def notes(self) -> dict[str, Any]:
        """Return the other output, if any: `log`, `stderr`, `replaced_bytes`."""
        log = "" if self._format.kind == "text" else self._objects["stdout"].log.text
        bad = self._streams["stdout"].replaced or self._replaced
        notes = {"log": log, "stderr": self._stderr_tail.text, "replaced_bytes": bad}
        return {name: note for name, note in notes.items() if note}

    def partial(self) -> str:
        """Return the text on stdout; in JSON only its end."""
        return "".join(self._text) if self._format.kind == "text" else self._tail.text

    def _read(self, source: Source, text: str) -> None:
        if self._format.kind == "text":
            self._text.append(text)
            if text:
                self._emit(TextDelta(text))
            return
        if source == "stdout":
            self._tail.add(text)
        self._objects[source].feed(text)

    def _text_answer(self) -> AgentOutput:
        content = "".join(self._text).removesuffix("\n")
        if not content.strip():
            stderr = " (but wrote to stderr)" if self._stderr_tail.text else ""
            raise NotAnAnswerError(f"answered nothing on stdout{stderr}")
        return AgentOutput(content=content)

    def _json_answer(self) -> AgentOutput:
        last = self._objects["stdout"].last or self._objects["stderr"].last
        if last is None:
            raise self._no_object()
        value, replaced = clean_value(last)
        self._replaced = self._replaced or replaced
        return self._format.answer_in(value)

    def _no_object(self) -> NotAnAnswerError:
        count = sum(objects.count for objects in self._objects.values())
        if count:
            conditions = ", ".join(
                f"{path}: {json.dumps(value, ensure_ascii=False)}"
                for path, value in self._format.where.items()
            )
            return NotAnAnswerError(
                f"none of its {count} JSON objects has {conditions}",
                "compare `where` with the program's output",
            )
        if not self._size["stdout"]:
            return NotAnAnswerError("answered nothing on stdout, and no JSON object on stderr")
        return NotAnAnswerError(
            "wrote no JSON object", "set `output: text` for a program that answers in plain text"
        )


class TextStream:
    """Decode bytes that come in pieces to text without control sequences."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._stripper = AnsiStripper()
        self._last_bytes = b""
        self._marks = 0

    @property
    def replaced(self) -> bool:
        """True if bytes that are not UTF-8 were replaced."""
        return self._marks > 0

    def feed(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        # The output itself may contain U+FFFD, even across two pieces.
        self._marks += text.count(REPLACEMENT)
        self._marks -= (self._last_bytes + data).count(_REPLACEMENT)
        self._last_bytes = (self._last_bytes + data)[-2:]
        return self._stripper.feed(text)

    def finish(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._marks += text.count(REPLACEMENT)
        return self._stripper.feed(text) + self._stripper.finish()


def parse_output(value: dict[str, Any]) -> AgentOutput:
    """Return the object as an answer. Raises NotAnAnswerError, which names the wrong field."""
    fields = AgentOutput.model_fields.keys() - {"metadata"}
    if not fields & value.keys():
        keys = ", ".join(list(value)[:12])
        raise NotAnAnswerError(
            f"its result has no `content`, only {keys or 'nothing'}",
            "set `answer` to the path of the text in the object",
        )
    try:
        return AgentOutput.model_validate(value)
    except ValidationError as error:
        problem = explain_first(error)
        raise NotAnAnswerError(f"its result is not an answer: {problem}") from error


def get_at_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path, where a number is an index of a list, or `MISSING`."""
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _is_index(key, len(value)):
            value = value[int(key)]
        else:
            return MISSING
    return value


def _is_index(key: str, length: int) -> bool:
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdigit() and -length <= int(key) < length


def is_equal(value: Any, expected: Any) -> bool:
    """Return True if the values are equal; 1 is not true, and 0 is not false."""
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


class LineSplitter:
    """Split a stream that comes in pieces into lines."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, without line ends."""
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._open, lines[0]])
            self._open.clear()
        if tail:
            self._open.append(tail)
        return lines

    def rest(self) -> list[bytes]:
        """Return the last line, which had no end."""
        line = b"".join(self._open)
        self._open.clear()
        return [line] if line else []


class JsonLine(NamedTuple):
    """A line without control sequences: its JSON object, if it is one, and its text.

    `replaced`: bytes that are not UTF-8 were replaced.
    """

    value: dict[str, Any] | None
    text: str
    replaced: bool


def parse_line(line: bytes) -> JsonLine:
    """Parse a line."""
    text, replaced = decode_output(line)
    text = strip_ansi(text).strip()
    try:
        value = _DECODER.decode(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    return JsonLine(value, text, replaced)


class OtherOutput:
    """The output of a program that is no message: the ends of its stderr and of other lines."""

    def __init__(self) -> None:
        self.log = Tail()
        self.stderr = ByteTail()
        self._has_replaced = False

    def read_object(self, line: bytes) -> dict[str, Any] | None:
        """Return the JSON object in a line of stdout; keep any other line in the log."""
        parsed = parse_line(line)
        self._has_replaced = self._has_replaced or parsed.replaced
        if parsed.value is None and parsed.text:
            self.log.add(parsed.text + "\n")
        return parsed.value

    def notes(self) -> dict[str, Any]:
        """Return what there is: `log`, `stderr`, `replaced_bytes`."""
        notes = {
            "log": self.log.text,
            "stderr": self.stderr.text,
            "replaced_bytes": self._has_replaced,
        }
        return {name: note for name, note in notes.items() if note}
