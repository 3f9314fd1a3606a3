"""Types of single values of what a scenario expects: texts, patterns, numbers, agents, ends."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from arena_cli.scenarios.expect import text_checks
from arena_cli.transcript.events import End, PauseReason
from arena_cli.workspace import models
from arena_cli.yamlio.shapes import FileShape


def _refuse_empty(text: str) -> str:
    if not text:
        raise ValueError("an empty text matches every text; write the text to find")
    return text


def _pattern(text: str) -> str:
    try:
        text_checks.compiled(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}; quote it with '...'") from error
    return text


def _can_fail(pattern: str) -> str:
    if text_checks.holds_of_every_text(pattern):
        raise ValueError(
            "it matches the empty text, which is in every text; write what the text must contain"
        )
    return pattern


def _language(code: str) -> str:
    if not text_checks.is_code(code):
        raise ValueError("a language is a code of ISO 639-1: zh, en, ja, ...")
    return code


def as_list(value: Any) -> Any:
    """Return a single value as a list; a list is returned unchanged."""
    return value if isinstance(value, list) else [value]


LanguageCode = Annotated[str, AfterValidator(_language)]
Wanted = Annotated[str, AfterValidator(_refuse_empty)]
WantedTexts = Annotated[
    list[Wanted],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Pattern = Annotated[Wanted, AfterValidator(_pattern)]
CheckPattern = Annotated[Pattern, AfterValidator(_can_fail)]


def _once(value: Any) -> Any:
    """Refuse two spellings of one id as keys, since one of the two would be lost."""
    if isinstance(value, dict):
        seen: set[str] = set()
        for key in value:
            if models.normalize_id(str(key)) in seen:
                raise ValueError(f"`{key}` appears twice, in two spellings")
            seen.add(models.normalize_id(str(key)))
    return value


EndOrPause = End | PauseReason
"""The end of a chain, or the reason why it waits."""


def _not_all(ends: list[EndOrPause]) -> list[EndOrPause]:
    if set(ends) >= set(get_args(End)):
        raise ValueError("it lists all ends, so it cannot fail; name only those that are right")
    return ends


T = TypeVar("T")


def refuse_repeated(names: list[T]) -> list[T]:
    """Return the names. Raises ValueError if one appears twice."""
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"`{twice}` appears twice, but may appear only once")
    return names


AgentId = Annotated[str, AfterValidator(models.normalize_id)]
TaskId = Annotated[str, Field(pattern=r"^t[1-9]\d*$")]
Reaction = Literal["👍", "👎", "✅", "❓", "🎉"]
Agents = Annotated[list[AgentId], AfterValidator(refuse_repeated)]
"""Agents of which each can be there once."""

Ends = Annotated[
    list[EndOrPause],
    BeforeValidator(as_list, json_schema_input_type=EndOrPause | list[EndOrPause]),
    AfterValidator(_not_all),
    Field(min_length=1),
]

Pauses = Annotated[
    list[PauseReason],
    BeforeValidator(as_list, json_schema_input_type=PauseReason | list[PauseReason]),
    AfterValidator(refuse_repeated),
    Field(min_length=1),
]

ByAgent = Annotated[dict[AgentId, T], BeforeValidator(_once)]


class Range(FileShape):
    """`{min, max}`, both included; one of them may be left out."""

    min: float | None = Field(default=None, ge=0)
    max: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounds_something(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("needs `min` or `max`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is more than max {self.max:g}")
        if not self.min and self.max is None and self.holds_of_unknown:
            raise ValueError("every number is at least 0, so this cannot fail; raise `min`")
        return self

    @property
    def holds_of_unknown(self) -> bool:
        """True if it holds for an unknown number."""
        return True


class Cost(Range):
    """A range in US dollars. An unknown cost is not free: it fails, unless `pass`."""

    unknown: Literal["fail", "pass"] = "fail"

    @property
    def holds_of_unknown(self) -> bool:
        return self.unknown == "pass"


Count = Annotated[int, Field(ge=0)] | Range
Amount = Annotated[float, Field(ge=0)] | Range


def within(expected: float | Range, actual: float) -> bool:
    """Return True if a number equals the expected one, or lies in the expected range."""
    if not isinstance(expected, Range):
        return actual == expected
    least, most = expected.min, expected.max
    return (least is None or actual >= least) and (most is None or actual <= most)


def describe_limit(expected: float | Range) -> str:
    """Describe an expectation in words."""
    if not isinstance(expected, Range):
        return f"{expected:g}"
    least, most = expected.min, expected.max
    if least is not None and most is not None:
        return f"{least:g} to {most:g}"
    return f"at most {most:g}" if least is None else f"at least {least:g}"
