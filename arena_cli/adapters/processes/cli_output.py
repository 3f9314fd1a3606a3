"""Read a program's answer: bytes in, `AgentOutput` out."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from arena_cli.adapters.processes.json_objects import JsonObjects
from arena_cli.adapters.processes.tail import ByteTail, Tail
from arena_cli.ground import ansi
from arena_cli.ground import text as texts
from arena_cli.ground.protocol import AgentOutput

Kind = Literal["text", "json", "jsonl"]
Source = Literal["stdout", "stderr"]

_MB = 1_000_000
_REPLACEMENT = texts.REPLACEMENT.encode("utf-8")
MISSING = object()


class NotAnAnswerError(ValueError):
    """The output is no answer; `mend` is a hint."""

    def __init__(self, problem: str, mend: str = "") -> None:
        super().__init__(problem)
        self.what = problem
        self.mend = mend


@dataclass(frozen=True)
class Format:
    """The form of an answer: see the keys of `CliSettings`."""

    kind: Kind = "text"
    answer: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    max_output_mb: float = 32

    def fits(self, value: dict[str, Any]) -> bool:
        """Return True if an object has the values of `where`."""
        return all(is_equal(at(value, path), expected) for path, expected in self.where.items())

    def answer_in(self, value: dict[str, Any]) -> AgentOutput:
        """Return the answer in an object. Raises NotAnAnswerError."""
        if self.answer is None:
            return output_of(value)
        answer = at(value, self.answer)
        if answer is MISSING:
            keys = ", ".join(list(value)[:12])
            raise NotAnAnswerError(
                f"its result has no `{self.answer}`, only {keys or 'nothing'}",
                "compare `answer` with what the program writes, or choose the object by `where`",
            )
        if isinstance(answer, dict):
            return output_of(answer)
        content = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        if answer is None or not content.strip():
            raise NotAnAnswerError(f"answered nothing: `{self.answer}` of its result is empty")
        return AgentOutput(content=content)


class ProgramOutput:
    """Read a program's output as it comes."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._size = {"stdout": 0, "stderr": 0}
        self._streams = {"stdout": TextStream(), "stderr": TextStream()}
        self._stderr_tail = ByteTail()
        self._text: list[str] = []
        self._tail = Tail()
        self._objects = {"stdout": JsonObjects(format.fits), "stderr": JsonObjects(format.fits)}
        self._replaced = False

    def feed(self, source: Source, data: bytes) -> str:
        """Read the next bytes; return the new text of the answer ("" in JSON).

        Raises NotAnAnswerError if stdout grows over the limit.
        """
        limit = self._format.max_output_mb * _MB
        self._size[source] += len(data)
        if source == "stderr":
            self._stderr_tail.add(data)
            if self._format.kind == "text" or self._size["stderr"] > limit:
                return ""
        elif self._size["stdout"] > limit:
            raise NotAnAnswerError(
                f"wrote more than {self._format.max_output_mb:g} MB to stdout",
                "raise `max_output_mb` if its answers are so long",
            )
        return self._read(source, self._streams[source].feed(data))

    def finish(self) -> str:
        """Read the end of the output; return the last text of the answer."""
        if self._format.kind != "text":
            self._read("stderr", self._streams["stderr"].finish())
            self._objects["stderr"].finish()
        text = self._read("stdout", self._streams["stdout"].finish())
        self._objects["stdout"].finish()
        return text

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
        """Return the other output: `log`, `stderr`, `replaced_bytes`, as far as there is any."""
        log = "" if self._format.kind == "text" else self._objects["stdout"].log.text
        bad = self._streams["stdout"].replaced or self._replaced
        notes = {"log": log, "stderr": self._stderr_tail.text, "replaced_bytes": bad}
        return {name: note for name, note in notes.items() if note}

    def partial(self) -> str:
        """Return the text on stdout; in JSON only its end."""
        return "".join(self._text) if self._format.kind == "text" else self._tail.text

    def _read(self, source: Source, text: str) -> str:
        if self._format.kind == "text":
            self._text.append(text)
            return text
        if source == "stdout":
            self._tail.add(text)
        self._objects[source].feed(text)
        return ""

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
        value, replaced = texts.clean_value(last)
        self._replaced = self._replaced or replaced
        return self._format.answer_in(value)

    def _no_object(self) -> NotAnAnswerError:
        count = sum(objects.count for objects in self._objects.values())
        if count:
            return NotAnAnswerError(
                f"none of its {count} JSON objects has {_format_conditions(self._format.where)}",
                "compare `where` with what the program writes",
            )
        if not self._size["stdout"]:
            return NotAnAnswerError("answered nothing on stdout, and no JSON object on stderr")
        return NotAnAnswerError(
            "wrote no JSON object", "a program that answers in plain text has `output: text`"
        )


class TextStream:
    """Decode bytes that come in pieces to text without control sequences."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._stripper = ansi.Stripper()
        self._last_bytes = b""
        self._marks = 0

    @property
    def replaced(self) -> bool:
        """True if bytes that are not UTF-8 were replaced."""
        return self._marks > 0

    def feed(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        # The output itself may contain U+FFFD, even across two pieces.
        self._marks += text.count(texts.REPLACEMENT)
        self._marks -= (self._last_bytes + data).count(_REPLACEMENT)
        self._last_bytes = (self._last_bytes + data)[-2:]
        return self._stripper.feed(text)

    def finish(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._marks += text.count(texts.REPLACEMENT)
        return self._stripper.feed(text) + self._stripper.finish()


def output_of(value: dict[str, Any]) -> AgentOutput:
    """Return the object as an answer. Raises NotAnAnswerError, which names the wrong field."""
    fields = AgentOutput.model_fields.keys() - {"metadata"}
    if not fields & value.keys():
        keys = ", ".join(list(value)[:12])
        raise NotAnAnswerError(
            f"its result has no `content`, only {keys or 'nothing'}",
            "say with `answer` where in the object the text stands",
        )
    try:
        return AgentOutput.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise NotAnAnswerError(f"its result is no answer: `{path}`: {first['msg']}") from error


def at(value: Any, path: str) -> Any:
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


def _format_conditions(conditions: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{path}: {json.dumps(value, ensure_ascii=False)}" for path, value in conditions.items()
    )
