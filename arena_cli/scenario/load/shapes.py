"""The scenario file as shapes."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from arena_cli.ground.errors import UsageError
from arena_cli.scenario.expect import patterns
from arena_cli.scenario.expect.check_shapes import Pattern
from arena_cli.scenario.expect.shapes import AgentId, ByAgent, Expect
from arena_cli.team.model import FileShape, Human, TeamConfig

StepKind = Literal["send", "say", "system", "check"]
KINDS: tuple[StepKind, ...] = ("send", "say", "system", "check")

_ONLY_SEND = ("attach", "from", "save", "expect")
_NAME = re.compile(r"\w[\w-]*")


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is made of letters, digits, `_` and `-`")
    return name


def _no_expect() -> Expect:
    return _NO_EXPECT


def _no_past() -> Given:
    return _NO_PAST


def _reason(text: str) -> str:
    if text.strip().casefold() in {"", "no", "off", "false", "n", "yes", "on", "true", "y"}:
        raise ValueError("write why, in words, or leave the key out")
    return text


class _AsTeamConfig:
    """The JSON schema of what is checked as a team's rules once it stands in the team."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(TeamConfig.__pydantic_core_schema__)


def _finds_something(pattern: str) -> str:
    try:
        is_empty = patterns.matches_empty(pattern)
    except UsageError as error:
        raise ValueError(error.what) from error
    if is_empty:
        raise ValueError("it matches the empty text, which is everywhere; write what varies")
    swallowed, sentences = patterns.count_swallowed(pattern)
    if swallowed == sentences:
        raise ValueError("it matches every text, so no change would be seen; write what varies")
    return pattern


Name = Annotated[str, AfterValidator(_name)]
Reason = Annotated[str, AfterValidator(_reason)]


class FromFile(FileShape):
    """`{file: path}`: a text that stands in a file of its own."""

    file: str


class Saved(FileShape):
    """What is kept of a step: of that agent's last reply the first group of `regex`, or all."""

    agent: AgentId = Field(alias="from")
    regex: Pattern | None = None


class Said(FileShape):
    """A message of a peer that is planted: nobody is called."""

    agent: AgentId
    text: str = Field(min_length=1)


class Step(FileShape):
    """One step: a message of one of the team's humans (`send`) and what must come of it, a planted
    message (`say`, `system`), or expectations over all steps so far (`check`).
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    step: str = ""
    send: str | FromFile | None = None
    say: Said | None = None
    system: str | None = Field(default=None, min_length=1)
    check: Expect | None = None
    session: Name | None = None
    attach: list[str] = Field(default_factory=list)
    author: str | None = Field(default=None, alias="from")
    save: dict[Name, Saved] = Field(default_factory=dict)
    on_fail: Literal["stop", "continue"] = "stop"
    expect: Expect = Field(default_factory=_no_expect)

    @property
    def kind(self) -> StepKind:
        """Which of the four it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @model_validator(mode="after")
    def _is_one(self) -> Step:
        found = [kind for kind in KINDS if getattr(self, kind) is not None]
        if not found:
            raise ValueError("a step needs one of send, say, system, check")
        if len(found) > 1:
            both = " and ".join(f"`{kind}`" for kind in found)
            raise ValueError(f"{both} are two steps; write each as a step of its own")
        if found == ["send"]:
            return self
        given = {"from" if key == "author" else key for key in self.model_fields_set}
        wrong = [f"`{key}`" for key in _ONLY_SEND if key in given]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} goes with `send` only, not with `{found[0]}`")
        return self


class Fill(FileShape):
    """So many neutral messages; the same `seed` gives the same ones."""

    messages: int = Field(ge=1, le=100_000)
    seed: int = 0


class Given(FileShape):
    """The past that a scenario starts from: `fill`, then what was said in a session up to event
    `until` (`transcript`), then `messages` (author: text); and the files of `notes`.
    """

    messages: list[Annotated[dict[str, str], Field(min_length=1, max_length=1)]] = []
    fill: Fill | None = None
    transcript: str | None = None
    until: int | None = Field(default=None, ge=1)
    notes: list[str] = []

    @model_validator(mode="after")
    def _until_an_event_of_something(self) -> Given:
        if self.until is not None and self.transcript is None:
            raise ValueError("`until` goes with `transcript`: up to which event of it")
        return self


class Ignored(FileShape):
    """What varies in a prompt from run to run, such as a date."""

    regex: Annotated[Pattern, AfterValidator(_finds_something)]


class Case(FileShape):
    """A scenario of its own, with values for `${vars.x}`."""

    id: str = Field(min_length=1)
    vars: dict[Name, Any] = Field(default_factory=dict)
    skip: Reason | None = None
    xfail: Reason | None = None


class TeamPart(FileShape):
    """Who plays: a team, or a list of agents, with changes to its rules, humans and profiles."""

    checked_as: ClassVar[dict[str, type[FileShape]]] = {"config": TeamConfig}

    team: str | None = None
    agents: list[AgentId] | None = None
    humans: list[Human] | None = None
    config: Annotated[dict[str, Any], _AsTeamConfig()] = Field(default_factory=dict)
    profiles: ByAgent[dict[str, Any]] = Field(default_factory=dict)


class Frame(FileShape):
    """What is read before anything else of a file: what it is put together from."""

    include: str | list[str] = Field(default_factory=list)
    vars: dict[Name, Any] = Field(default_factory=dict)
    cases: list[Case] = Field(default_factory=list, min_length=1)


class ScenarioFile(TeamPart, Frame):
    """`scenarios/<name>.yaml`."""

    not_built: ClassVar[frozenset[str]] = frozenset({"pass_rate", "repeat"})

    scenario: str
    tags: list[str] = Field(default_factory=list)
    skip: Reason | None = None
    xfail: Reason | None = None
    ignore: list[Ignored] = []
    given: Given = Field(default_factory=_no_past)
    steps: list[Step] = Field(min_length=1)
    expect: Expect = Field(default_factory=_no_expect)


_NO_EXPECT = Expect()
_NO_PAST = Given()
