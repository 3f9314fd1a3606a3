"""The scenario file as shapes. A key that is left out is not checked."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from arena_cli.scenario import checks
from arena_cli.team import ids
from arena_cli.team.model import FileShape, TeamConfig
from arena_cli.transcript.events import End

Outcome = Literal[
    "success", "declined", "timeout", "error", "cancelled", "passed_over", "not_called"
]
EVERYBODY = "*"

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{[^{}\n]*\}")


def _filled(text: str) -> str:
    """`$${` as a literal `${`; anything that asks for a variable is refused."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        raise ValueError(f"`{found[0]}` is not built yet; a literal `${{` is written `$${{`")

    return _PLACEHOLDER.sub(value, text)


def _sent(value: Any) -> Any:
    if isinstance(value, dict) and "file" in value:
        raise ValueError("`{file: ...}` is not built yet; write the text here")
    return value


def _wanted(text: str) -> str:
    if not text:
        raise ValueError("an empty text is found in every text; write what is looked for")
    return text


def _pattern(text: str) -> str:
    try:
        checks.compiled(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}; quote it with '...'") from error
    return text


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _without_defaults(schema: dict[str, Any]) -> None:
    """A key that is left out is not checked, whatever its shape has as default."""
    for key in schema["properties"].values():
        key.pop("default", None)


AgentId = Annotated[str, AfterValidator(ids.normal)]
Text = Annotated[str, AfterValidator(_filled)]
Wanted = Annotated[Text, AfterValidator(_wanted)]
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


class Sparse(FileShape):
    """A mapping of which only the keys that are given count (`model_fields_set`)."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class Range(FileShape):
    """`{min, max}`, both included; one of them may be left out."""

    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounds_something(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("needs `min` or `max`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


Count = Annotated[int, Field(ge=0)] | Range


class TextCheck(Sparse):
    """One check on a text: `contains`, `not_contains` or `regex`; `ignore_case` beside it."""

    not_built: ClassVar[frozenset[str]] = frozenset(
        {
            "any_of",
            "equals",
            "json",
            "judge",
            "language",
            "level",
            "max_chars",
            "max_words",
            "not",
            "python",
            "similar",
            "snapshot",
            "starts_with",
            "tool",
        }
    )

    contains: WantedTexts = []
    not_contains: WantedTexts = []
    regex: Pattern = ""
    ignore_case: bool = False

    @model_validator(mode="after")
    def _is_one(self) -> TextCheck:
        found = self.model_fields_set - {"ignore_case"}
        if not found:
            raise ValueError("needs one of contains, not_contains, regex")
        if len(found) > 1:
            both = " and ".join(sorted(found))
            raise ValueError(f"{both} are two checks; write each as an item of its own")
        return self

    @property
    def kind(self) -> str:
        """The key of the check."""
        return next(iter(self.model_fields_set - {"ignore_case"}))


class Which(Sparse):
    """Checks on the last reply, the first, any one (which passes them all), or all of them."""

    last: list[TextCheck] = []
    first: list[TextCheck] = []
    any: list[TextCheck] = []
    all: list[TextCheck] = []

    @model_validator(mode="after")
    def _is_something(self) -> Which:
        if not self.model_fields_set:
            raise ValueError("needs one of last, first, any, all")
        return self


class Replied(FileShape):
    """Who must be among those who replied, in this order unless `any_order`, and who must not."""

    include: list[AgentId] = []
    exclude: list[AgentId] = []
    any_order: bool = False

    @model_validator(mode="after")
    def _is_something(self) -> Replied:
        if not self.include and not self.exclude:
            raise ValueError("needs `include` or `exclude`")
        return self


class Expect(Sparse):
    """What must have come of a step, or of all steps."""

    not_built: ClassVar[frozenset[str]] = frozenset(
        {
            "attachments",
            "compactions",
            "cost_usd",
            "deviations",
            "end: approval",
            "end: budget",
            "latency_s",
            "notes",
            "passed_over",
            "replies_count",
            "shown",
            "shown_notes",
            "silent",
            "structured",
            "system",
            "timeline",
            "timeline_exact",
            "tokens",
        }
    )

    replied: list[AgentId] | Replied = []
    must: list[list[AgentId]] = []
    asked: list[AgentId] = []
    outcome: dict[AgentId, Outcome] = {}
    turns: Count = 0
    end: Ends = []
    awaits: list[AgentId] = []
    unresolved: list[str] = []
    replies: dict[AgentId, list[TextCheck] | Which] = {}


class Step(FileShape):
    """A message of one of the team's humans, and what must come of it."""

    model_config = ConfigDict(json_schema_extra={"required": ["send"]})

    not_built: ClassVar[frozenset[str]] = frozenset(
        {"attach", "check", "save", "say", "session", "system"}
    )

    step: str = ""
    send: Annotated[Text, BeforeValidator(_sent, json_schema_input_type=str)] = ""
    author: str | None = Field(default=None, alias="from")
    on_fail: Literal["stop", "continue"] = "stop"
    expect: Expect = Expect()


class TeamPart(FileShape):
    """Who plays: a team, or a list of agents, with changes to its rules and profiles."""

    team: str | None = None
    agents: list[AgentId] | None = None
    config: dict[str, Any] = Field(
        default={}, json_schema_extra=lambda schema: schema.update(TeamConfig.model_json_schema())
    )
    profiles: dict[str, dict[str, Any]] = {}


class ScenarioFile(TeamPart):
    """`scenarios/<name>.yaml`."""

    not_built: ClassVar[frozenset[str]] = frozenset(
        {
            "cases",
            "given",
            "humans",
            "include",
            "pass_rate",
            "repeat",
            "skip",
            "tags",
            "vars",
            "xfail",
        }
    )

    scenario: str
    steps: list[Step] = Field(min_length=1)
    expect: Expect = Expect()
