"""What a scenario may expect, as shapes. A key that is left out is not checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from arena_cli.scenario.expect import language, patterns, plugged
from arena_cli.scenario.expect.as_json import JsonCheck
from arena_cli.scenario.expect.judging import Judged
from arena_cli.scenario.expect.python import Target
from arena_cli.scenario.expect.similar import Similar
from arena_cli.team import ids
from arena_cli.team.model import FileShape
from arena_cli.transcript.events import End, Phase, ReplyStatus

Outcome = Literal[
    "success", "declined", "timeout", "error", "cancelled", "passed_over", "not_called"
]
Structured = Literal["task_list", "code_block", "architecture_diagram", "diff", "approval_request"]
EVERYBODY = "*"


def _wanted(text: str) -> str:
    if not text:
        raise ValueError("an empty text is found in every text; write what is looked for")
    return text


def _pattern(text: str) -> str:
    try:
        patterns.compiled(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}; quote it with '...'") from error
    return text


def _language(code: str) -> str:
    if not language.is_code(code):
        raise ValueError("a language is a code of ISO 639-1: zh, en, ja, ...")
    return code


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _without_defaults(schema: dict[str, Any]) -> None:
    """A key that is left out is not checked, whatever its shape has as default."""
    for key in schema["properties"].values():
        key.pop("default", None)


def _with_plugged(schema: dict[str, Any]) -> None:
    """Editors know the checks that are plugged in too."""
    _without_defaults(schema)
    for key in plugged.installed():
        schema["properties"].setdefault(key, {})


def _once(value: Any) -> Any:
    """Keys that are one id in two spellings would be one key, and the other be lost."""
    if isinstance(value, dict):
        seen: set[str] = set()
        for key in value:
            if ids.normal(str(key)) in seen:
                raise ValueError(f"`{key}` stands twice, in two spellings")
            seen.add(ids.normal(str(key)))
    return value


AgentId = Annotated[str, AfterValidator(ids.normal)]
Wanted = Annotated[str, AfterValidator(_wanted)]
WantedTexts = Annotated[
    list[Wanted],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Pattern = Annotated[Wanted, AfterValidator(_pattern)]
Ends = Annotated[
    list[End],
    BeforeValidator(_listed, json_schema_input_type=End | list[End]),
    Field(min_length=1),
]


T = TypeVar("T")
ByAgent = Annotated[dict[AgentId, T], BeforeValidator(_once)]


class Sparse(FileShape):
    """A mapping of which only the keys that are given count (`model_fields_set`)."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


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
        return self


class Cost(Range):
    """A range in US dollars. A cost that is not known is not free: it fails, unless `pass`."""

    unknown: Literal["fail", "pass"] = "fail"


Count = Annotated[int, Field(ge=0)] | Range
Amount = Annotated[float, Field(ge=0)] | Range


class CheckKeys(Sparse):
    """Checks on one text; all that are given must hold."""

    model_config = ConfigDict(json_schema_extra=_with_plugged)
    not_built: ClassVar[frozenset[str]] = frozenset({"tool"})

    contains: WantedTexts = Field(default_factory=list)
    not_contains: WantedTexts = Field(default_factory=list)
    equals: str = ""
    regex: Pattern = ""
    starts_with: Wanted = ""
    max_words: int = Field(default=0, ge=0)
    max_chars: int = Field(default=0, ge=0)
    language: Annotated[str, AfterValidator(_language)] = ""
    none_of: Checks = Field(default=None, alias="not")  # type: ignore[assignment]  # Sparse
    any_of: list[Checks] = Field(default_factory=list, min_length=1)
    as_json: JsonCheck = Field(default=None, alias="json")  # type: ignore[assignment]  # Sparse
    similar: Similar = Field(default=None)  # type: ignore[assignment]  # Sparse
    python: Target = ""
    snapshot: Literal[True] = True
    judge: Judged = Field(default=None)  # type: ignore[assignment]  # Sparse
    ignore_case: bool = False
    _plugged: dict[str, BaseModel] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _with_those_of_others(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        """A key that arena does not have may be that of a check that is plugged in."""
        keys = _keys_of(cls)
        if not isinstance(data, dict) or data.keys() <= keys:
            return handler(data)
        unknown = sorted(data.keys() - keys)
        theirs = {key: data[key] for key in unknown if key in plugged.installed()}
        for key in unknown:
            if key not in theirs and (error := plugged.misspelt(key, sorted(keys))):
                raise error
        given = handler({key: value for key, value in data.items() if key not in theirs})
        given._plugged = {key: plugged.options(key, value) for key, value in theirs.items()}
        return given

    @property
    def kinds(self) -> list[str]:
        """The checks that are given, in the order of this shape, then those that others plug in."""
        return [*(key for key in KINDS if key in self.model_fields_set), *self._plugged]

    def given(self, kind: str) -> Any:
        """What is given for a check; for one that is plugged in with its key."""
        return (kind, self._plugged[kind]) if kind in self._plugged else getattr(self, kind)


KINDS = tuple(key for key in CheckKeys.model_fields if key != "ignore_case")
"""The fields of `CheckKeys` that are checks."""


@cache
def _keys_of(shape: type[CheckKeys]) -> frozenset[str]:
    """The keys that arena itself has, built or not."""
    fields = shape.model_fields.items()
    return shape.not_built | {field.alias or name for name, field in fields}


def key_of(kind: str) -> str:
    """The key in the file of a field of `CheckKeys`."""
    field = CheckKeys.model_fields.get(kind)
    return (field.alias if field else None) or kind


_NEEDS_ONE = f"needs one of {', '.join(key_of(kind) for kind in KINDS)}"


class Checks(CheckKeys):
    """One check or several, on one text."""

    @model_validator(mode="after")
    def _is_something(self) -> Checks:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        return self


class TextCheck(CheckKeys):
    """One check; `ignore_case` and `level` beside it. `warn` reports and does not fail."""

    level: Literal["fail", "warn"] = "fail"

    @model_validator(mode="after")
    def _is_one(self) -> TextCheck:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        if len(self.kinds) > 1:
            both = " and ".join(sorted(key_of(kind) for kind in self.kinds))
            raise ValueError(f"{both} are two checks; write each as an item of its own")
        return self

    @property
    def kind(self) -> str:
        """The field of the check."""
        return self.kinds[0]


class Which(Sparse):
    """Checks on the last reply, the first, any one (which passes them all), or all of them."""

    last: list[TextCheck] = Field(default_factory=list)
    first: list[TextCheck] = Field(default_factory=list)
    any: list[TextCheck] = Field(default_factory=list)
    all: list[TextCheck] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_something(self) -> Which:
        if not self.model_fields_set:
            raise ValueError("needs one of last, first, any, all")
        return self


class Replied(FileShape):
    """Who must be among those who replied, in this order unless `any_order`, and who must not."""

    include: list[AgentId] = Field(default_factory=list)
    exclude: list[AgentId] = Field(default_factory=list)
    any_order: bool = False

    @model_validator(mode="after")
    def _is_something(self) -> Replied:
        if not self.include and not self.exclude:
            raise ValueError("needs `include` or `exclude`")
        return self


class PassedOverBy(FileShape):
    """Who was not asked; `relevance` says how near it was, from 0 to 1."""

    relevance: Amount | None = None


class Exactly(FileShape):
    """All the names, in any order, and no other."""

    exactly: list[AgentId]


class Row(CheckKeys):
    """A row of the timeline: one call of an agent. `mentions` are among those of its message."""

    turn: int = Field(default=0, ge=1)
    phase: Phase = "A"
    agent: AgentId = ""
    status: ReplyStatus = "success"
    mentions: list[AgentId] | Exactly = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_something(self) -> Row:
        if not self.model_fields_set - {"ignore_case"}:
            raise ValueError("a row needs an agent, a turn, a status, or a check")
        return self


class CarriedPart(CheckKeys):
    """Structured content that a reply carried: of a type, by an agent, with checks on its data."""

    type: Structured
    agent: AgentId = ""


class CarriedFile(CheckKeys):
    """An attachment that a reply carried: by its name and agent, with checks on its text."""

    name: Wanted
    agent: AgentId = ""


class Expect(Sparse):
    """What must have come of a step, or of all steps."""

    not_built: ClassVar[frozenset[str]] = frozenset(
        {
            "compactions",
            "deviations",
            "end: approval",
            "end: budget",
            "notes",
            "shown",
            "shown_notes",
        }
    )

    replied: list[AgentId] | Replied = Field(default_factory=list)
    must: list[list[AgentId]] = Field(default_factory=list)
    asked: list[AgentId] = Field(default_factory=list)
    silent: list[AgentId] = Field(default_factory=list, min_length=1)
    outcome: ByAgent[Outcome] = Field(default_factory=dict, min_length=1)
    passed_over: ByAgent[PassedOverBy] = Field(default_factory=dict, min_length=1)
    turns: Count = 0
    replies_count: Count = 0
    tokens: Count = 0
    cost_usd: Annotated[float, Field(ge=0)] | Cost = 0
    latency_s: Amount = 0
    end: Ends = Field(default_factory=list)
    awaits: list[AgentId] = Field(default_factory=list)
    unresolved: list[str] = Field(default_factory=list)
    system: list[TextCheck] = Field(default_factory=list)
    timeline: list[Row] = Field(default_factory=list, min_length=1)
    timeline_exact: list[Row] = Field(default_factory=list)
    replies: ByAgent[list[TextCheck] | Which] = Field(default_factory=dict, min_length=1)
    structured: list[Structured | CarriedPart] | dict[Structured, list[TextCheck]] = Field(
        default_factory=list
    )
    attachments: list[Wanted | CarriedFile] | dict[str, list[TextCheck]] = Field(
        default_factory=list
    )
