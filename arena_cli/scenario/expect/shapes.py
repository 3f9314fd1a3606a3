"""What a scenario may expect, as shapes. A key that is left out is not checked."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from arena_cli.memory.note import Kind as NoteKind
from arena_cli.memory.note import Status as NoteStatus
from arena_cli.scenario.expect.check_shapes import CheckKeys, Sparse, TextCheck, Wanted, listed
from arena_cli.team import ids
from arena_cli.team.model import FileShape
from arena_cli.transcript.events import End, Phase, ReplyStatus

Outcome = Literal[
    "success", "declined", "timeout", "error", "cancelled", "passed_over", "not_called"
]
Structured = Literal[
    "task_list", "code_block", "architecture_diagram", "diff", "approval_request", "note"
]
EVERYBODY = "*"


def _once(value: Any) -> Any:
    """Keys that are one id in two spellings would be one key, and the other be lost."""
    if isinstance(value, dict):
        seen: set[str] = set()
        for key in value:
            if ids.normal(str(key)) in seen:
                raise ValueError(f"`{key}` stands twice, in two spellings")
            seen.add(ids.normal(str(key)))
    return value


def _not_all(ends: list[End]) -> list[End]:
    if set(ends) == set(get_args(End)):
        raise ValueError("it lists all ends, so it cannot fail; name those that are right")
    return ends


T = TypeVar("T")


def _distinct(names: list[T]) -> list[T]:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"`{twice}` stands twice, and can be there once only")
    return names


AgentId = Annotated[str, AfterValidator(ids.normal)]
Agents = Annotated[list[AgentId], AfterValidator(_distinct)]
"""Agents of which each can be there once."""

Ends = Annotated[
    list[End],
    BeforeValidator(listed, json_schema_input_type=End | list[End]),
    AfterValidator(_not_all),
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
        """Whether it holds where the number is not known."""
        return True


class Cost(Range):
    """A range in US dollars. A cost that is not known is not free: it fails, unless `pass`."""

    unknown: Literal["fail", "pass"] = "fail"

    @property
    def holds_of_unknown(self) -> bool:
        return self.unknown == "pass"


Count = Annotated[int, Field(ge=0)] | Range
Amount = Annotated[float, Field(ge=0)] | Range


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
    exclude: Agents = Field(default_factory=list)
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

    exactly: Agents


class Row(CheckKeys):
    """A row of the timeline: one call of an agent. `mentions` are among those of its message."""

    turn: int = Field(default=0, ge=1)
    phase: Phase = "A"
    agent: AgentId = ""
    status: ReplyStatus = "success"
    mentions: Agents | Exactly = Field(default_factory=list)

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


class NoteRow(CheckKeys):
    """A note that was taken, or changed: what it is now, with checks on its title and text.

    `note` is its id, in which `*` stands for anything; `by` did something to it.
    """

    note: Wanted = ""
    kind: NoteKind = "decision"
    title: Wanted = ""
    status: NoteStatus = "draft"
    by: Wanted = ""

    @model_validator(mode="after")
    def _is_something(self) -> NoteRow:
        if not self.model_fields_set - {"ignore_case"}:
            raise ValueError("a note needs its id, a kind, a title, a status, by whom, or a check")
        return self


class Noted(Sparse):
    """How many notes there are of each kind; `exactly`: these, in any order, and no other."""

    exactly: list[NoteKind | NoteRow] = Field(default_factory=list)
    decision: Count = 0
    requirement: Count = 0
    task: Count = 0
    issue: Count = 0
    summary: Count = 0
    progress: Count = 0
    conclusion: Count = 0
    blocker: Count = 0
    next_action: Count = 0
    reference: Count = 0
    pit: Count = 0
    pattern: Count = 0
    solution: Count = 0

    @model_validator(mode="after")
    def _is_something(self) -> Noted:
        if not self.model_fields_set:
            raise ValueError("needs a kind of note, or `exactly`")
        return self


NoteIds = Annotated[list[Wanted], AfterValidator(_distinct)]


class NotesShown(FileShape):
    """Notes that an agent was shown, by id, in which `*` stands for anything; or all of them."""

    include: NoteIds = Field(default_factory=list)
    exclude: NoteIds = Field(default_factory=list)
    exactly: NoteIds | None = None

    @model_validator(mode="after")
    def _is_something(self) -> NotesShown:
        if self.exactly is None and not self.include and not self.exclude:
            raise ValueError("needs `include`, `exclude`, or `exactly`")
        if self.exactly is not None and (self.include or self.exclude):
            raise ValueError("`exactly` says all; take `include` and `exclude` out")
        return self


class DeviationRow(Sparse):
    """A note that was not heeded: by whom, which (`*` stands for anything), of what kind."""

    agent: AgentId = ""
    note: Wanted = ""
    kind: NoteKind = "blocker"
    level: Literal["replan_required", "warning"] = "warning"

    @model_validator(mode="after")
    def _is_something(self) -> DeviationRow:
        if not self.model_fields_set:
            raise ValueError("needs an agent, a note, a kind, or a level")
        return self


class Expect(Sparse):
    """What must have come of a step, or of all steps."""

    not_built: ClassVar[frozenset[str]] = frozenset(
        {
            "end: approval",
            "end: budget",
        }
    )

    replied: list[AgentId] | Replied = Field(default_factory=list)
    must: list[list[AgentId]] = Field(default_factory=list)
    asked: list[AgentId] = Field(default_factory=list)
    silent: Agents = Field(default_factory=list, min_length=1)
    outcome: ByAgent[Outcome] = Field(default_factory=dict, min_length=1)
    passed_over: ByAgent[PassedOverBy] = Field(default_factory=dict, min_length=1)
    turns: Count = 0
    replies_count: Count = 0
    tokens: Count = 0
    cost_usd: Annotated[float, Field(ge=0)] | Cost = 0
    latency_s: Amount = 0
    end: Ends = Field(default_factory=list)
    awaits: Agents = Field(default_factory=list)
    unresolved: Annotated[list[str], AfterValidator(_distinct)] = Field(default_factory=list)
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
    shown: ByAgent[list[TextCheck] | Which] = Field(default_factory=dict, min_length=1)
    notes: list[NoteKind | NoteRow] | Noted = Field(default_factory=list)
    shown_notes: ByAgent[NoteIds | NotesShown] = Field(default_factory=dict, min_length=1)
    deviations: Count | list[DeviationRow] = 0
    compactions: Count = 0
