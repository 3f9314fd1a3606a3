"""Shapes of everything a scenario may expect. A key that is left out is not checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from arena_cli.notes.model import Kind, Status
from arena_cli.protocol import ToolStatus
from arena_cli.scenarios.expect import python_checks
from arena_cli.scenarios.expect.json_checks import JsonCheck
from arena_cli.scenarios.expect.judge_checks import Judged
from arena_cli.scenarios.expect.python_checks import Target
from arena_cli.scenarios.expect.text_checks import Similar
from arena_cli.scenarios.expect.values import (
    AgentId,
    Agents,
    Amount,
    ByAgent,
    CheckPattern,
    Cost,
    Count,
    Ends,
    LanguageCode,
    Pauses,
    Reaction,
    TaskId,
    Wanted,
    WantedTexts,
    as_list,
    refuse_repeated,
)
from arena_cli.transcript.events import Phase, ReplyStatus, Severity
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape, read_keys


def _without_defaults(schema: dict[str, Any]) -> None:
    """Remove the defaults from the schema: a key that is left out is not checked."""
    for key in schema["properties"].values():
        key.pop("default", None)


def _with_plugged(schema: dict[str, Any]) -> None:
    """Add the installed plugin checks, so that editors accept them."""
    _without_defaults(schema)
    for key in python_checks.list_plugins():
        schema["properties"].setdefault(key, {})


class Sparse(FileShape):
    """A mapping in which only the given keys count (`model_fields_set`)."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class CheckKeys(Sparse):
    """Checks on one text; all that are given must hold."""

    model_config = ConfigDict(json_schema_extra=_with_plugged)
    contains: WantedTexts = Field(default_factory=list)
    not_contains: WantedTexts = Field(default_factory=list)
    equals: str = ""
    regex: CheckPattern = ""
    starts_with: Wanted = ""
    max_words: int = Field(default=0, ge=0)
    max_chars: int = Field(default=0, ge=0)
    language: LanguageCode = ""
    none_of: Checks = Field(default=None, alias="not")  # type: ignore[assignment]  # Sparse
    any_of: list[Checks] = Field(default_factory=list, min_length=1)
    as_json: JsonCheck = Field(default=None, alias="json")  # type: ignore[assignment]  # Sparse
    similar: Similar = Field(default=None)  # type: ignore[assignment]  # Sparse
    python: Target = ""
    snapshot: Literal[True] = True
    judge: Judged = Field(default=None)  # type: ignore[assignment]  # Sparse
    tool: ExpectedCalls = Field(default=None)  # type: ignore[assignment]  # Sparse
    ignore_case: bool = False
    _plugged: ClassVar[Mapping[str, BaseModel]] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _with_those_of_others(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        """Accept keys that arena does not have if an installed plugin provides the check."""
        keys = _keys_of(cls)
        if not isinstance(data, dict) or data.keys() <= keys:
            return handler(data)
        unknown = sorted(data.keys() - keys)
        theirs = {key: data[key] for key in unknown if key in python_checks.list_plugins()}
        for key in unknown:
            if key not in theirs and (
                error := python_checks.explain_misspelt_plugin(key, sorted(keys))
            ):
                raise error
        checks = handler({key: value for key, value in data.items() if key not in theirs})
        options = {
            key: python_checks.read_plugin_options(key, value) for key, value in theirs.items()
        }
        # As a private attribute it would double the time that reading each check takes.
        object.__setattr__(checks, "_plugged", options)
        return checks

    @property
    def kinds(self) -> list[str]:
        """The given checks, in the order of this shape, then those of plugins."""
        own_kinds = self.model_fields_set & _KINDS.keys()
        return [*sorted(own_kinds, key=_KINDS.__getitem__), *self._plugged]

    def given(self, kind: str) -> Any:
        """Return the value given for a check; for a plugged-in one with its key."""
        return (kind, self._plugged[kind]) if kind in self._plugged else getattr(self, kind)


_KINDS = {key: at for at, key in enumerate(CheckKeys.model_fields) if key != "ignore_case"}
"""The fields of `CheckKeys` that are checks, and their order."""


@cache
def _keys_of(shape: type[CheckKeys]) -> frozenset[str]:
    """Return the keys that belong to arena itself."""
    fields = shape.model_fields.items()
    return frozenset(field.alias or name for name, field in fields)


def key_of(kind: str) -> str:
    """Return the key in the file for a field of `CheckKeys`."""
    field = CheckKeys.model_fields.get(kind)
    return (field.alias if field else None) or kind


_NEEDS_ONE = f"needs one of {', '.join(key_of(kind) for kind in _KINDS)}"


_CASELESS = frozenset({"max_words", "max_chars", "language", "python", "judge", "tool"})


def _case_counts(check_keys: CheckKeys) -> None:
    """Check that `ignore_case` affects at least one of the checks. Raises ValueError."""
    if check_keys.ignore_case and not set(check_keys.kinds) & _KINDS.keys() - _CASELESS:
        both = " and ".join(key_of(kind) for kind in check_keys.kinds)
        raise ValueError(f"`ignore_case` has no effect on {both}; remove it")


class Checks(CheckKeys):
    """One or several checks on one text."""

    @model_validator(mode="after")
    def _is_something(self) -> Checks:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        _case_counts(self)
        return self


class TextCheck(CheckKeys):
    """A check with `ignore_case` and `level`; the level `warn` reports and does not fail."""

    level: Literal["fail", "warn"] = "fail"

    @model_validator(mode="after")
    def _is_one(self) -> TextCheck:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        if len(self.kinds) > 1:
            both = " and ".join(sorted(key_of(kind) for kind in self.kinds))
            raise ValueError(f"{both} are two checks; write each as an item of its own")
        _case_counts(self)
        return self

    @property
    def kind(self) -> str:
        """The field of the check."""
        return self.kinds[0]


def _sort_argument(value: Any) -> str:
    """Return `checks` for a mapping with keys of checks only, `value` for all else."""
    is_checks = isinstance(value, dict) and value and value.keys() <= _keys_of(Checks)
    return "checks" if is_checks or isinstance(value, Checks) else "value"


Argument = Annotated[
    Annotated[Checks, Tag("checks")] | Annotated[Any, Tag("value")], Discriminator(_sort_argument)
]
"""An expected argument of a tool: a value, or checks on it."""


class Row(Sparse):
    """A mapping that needs at least one key."""

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"needs one of {', '.join(type(self).model_fields)}")
        return self


class ExpectedCalls(Row):
    """Calls of a tool: its name, in which `*` matches any text, and some of its arguments.

    `status` is how they ended. Without `times` there is at least one.
    """

    name: Wanted = ""
    arguments: dict[str, Argument] = Field(default_factory=dict)
    times: Count = 1
    status: ToolStatus = "ok"


CheckKeys.model_rebuild()  # shapes of other modules inherit it, and do not know `Checks`

Outcome = Literal[
    "success", "declined", "timeout", "error", "cancelled", "passed_over", "not_called"
]
Structured = Literal[
    "task_list", "code_block", "architecture_diagram", "diff", "approval_request", "note"
]
EVERYBODY = "*"


class Which(Row):
    """Checks on the last reply, the first, any one (which passes them all), or all of them."""

    last: list[TextCheck] = Field(default_factory=list)
    first: list[TextCheck] = Field(default_factory=list)
    any: list[TextCheck] = Field(default_factory=list)
    all: list[TextCheck] = Field(default_factory=list)


class Replied(FileShape):
    """The agents that must have replied, in order unless `any_order`, and those that must not."""

    include: list[AgentId] = Field(default_factory=list)
    exclude: Agents = Field(default_factory=list)
    any_order: bool = False

    @model_validator(mode="after")
    def _is_something(self) -> Replied:
        if not self.include and not self.exclude:
            raise ValueError("needs `include` or `exclude`")
        return self


class PassedOverBy(FileShape):
    """The agents that were passed over; `relevance` is that of each, from 0 to 1."""

    relevance: Amount | None = None


class Exactly(FileShape):
    """All the names, in any order, and no other."""

    exactly: Agents


class ReplyRow(CheckKeys):
    """A row of the timeline: one call of an agent. `mentions` are among those of its message."""

    turn: int = Field(default=0, ge=1)
    phase: Phase = "A"
    agent: AgentId = ""
    status: ReplyStatus = "success"
    mentions: Agents | Exactly = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_something(self) -> ReplyRow:
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
    """A note that was added or changed: its present state, with checks on its title and text.

    `note` is its id, in which `*` matches any text. `by` is an agent or a person that changed it.
    """

    note: Wanted = ""
    kind: Kind = "decision"
    title: Wanted = ""
    status: Status = "draft"
    by: Wanted = ""

    @model_validator(mode="after")
    def _is_something(self) -> NoteRow:
        if not self.model_fields_set - {"ignore_case"}:
            raise ValueError("a note needs its id, a kind, a title, a status, by whom, or a check")
        return self


class Noted(Row):
    """The number of notes of each kind; `exactly`: these, in any order, and no other."""

    exactly: list[Kind | NoteRow] = Field(default_factory=list)
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


NoteIds = Annotated[list[Wanted], AfterValidator(refuse_repeated)]


class NotesShown(FileShape):
    """Notes that an agent was shown, by id, in which `*` matches any text; or all of them."""

    include: NoteIds = Field(default_factory=list)
    exclude: NoteIds = Field(default_factory=list)
    exactly: NoteIds | None = None

    @model_validator(mode="after")
    def _is_something(self) -> NotesShown:
        if self.exactly is None and not self.include and not self.exclude:
            raise ValueError("needs `include`, `exclude`, or `exactly`")
        if self.exactly is not None and (self.include or self.exclude):
            raise ValueError("`exactly` lists all; remove `include` and `exclude`")
        return self


class DeviationRow(Row):
    """A deviation from a note: the agent, the note (`*` matches any text), and its kind."""

    agent: AgentId = ""
    note: Wanted = ""
    kind: Kind = "blocker"
    level: Literal["replan_required", "warning"] = "warning"
    severity: Severity = "low"


class SpentAmounts(Row):
    """What all calls used: tokens, cached ones included, and US dollars."""

    tokens: Count = 0
    usd: Annotated[float, Field(ge=0)] | Cost = 0


class SupervisedRow(Row):
    """A decision of the supervisor before a turn (of the chain, from 1).

    `fallback` is `none`, or `free`: the free rules decided instead.
    """

    turn: Annotated[int, Field(ge=1)] = 1
    should_reply: list[AgentId] = []
    order: Literal["parallel", "sequence"] = "parallel"
    fallback: Literal["none", "free"] = "none"
    done: bool = False
    replan: bool = False


class RuleRow(Row):
    """A rule that was broken: by which agent, and whether the reply took effect without it."""

    agent: AgentId = ""
    rule: str = ""
    corrected: bool = False


class ApprovalRow(Row):
    """A request of an agent and its decision, `open` if there is none; `option` is the choice."""

    agent: AgentId = ""
    action: str = ""
    decision: Literal["approved", "rejected", "expired", "open"] = "open"
    option: str = ""
    by: str = ""


class ReactionRow(Row):
    """A reaction: who reacted, how, and the author of the message."""

    by: str = ""
    reaction: Reaction = "👍"
    to: str = ""


class ExchangeRow(Row):
    """A direct conversation of two agents: `turns` are the answers, `end` is how it ended.

    It is `timed_out` if the agent that asked gave up waiting before the first answer.
    """

    requester: AgentId = ""
    target: AgentId = ""
    mode: Literal["wait", "notify"] = "wait"
    priority: Literal["normal", "high"] = "normal"
    timed_out: bool = False
    turns: Count = 0
    end: Literal["done", "limit", "timeout", "error", "refused", "open"] = "done"
    announced: bool = False


class PlanExpectation(Row):
    """The last plan: its mode, the agents of its steps (in any order), and its confidence.

    `fallback`: one agent did the work since there was no plan. `replans` counts the plans that were
    given up before it.
    """

    mode: Literal["single", "orchestrator", "parallel", "layered"] = "single"
    agents: list[AgentId] | Replied = Field(default_factory=list)
    confidence: Amount = 0
    fallback: bool = False
    replans: Count = 0


class ToolRow(ExpectedCalls):
    """Calls of a tool by an agent, or by one that it called as a tool."""

    agent: AgentId = ""


_ToolRowOrList = ToolRow | list[ToolRow]
ToolRows = Annotated[list[ToolRow], BeforeValidator(as_list, json_schema_input_type=_ToolRowOrList)]
EndedAs = Literal["goal", "timeout", "max_turns", "aborted", "error", "error_no_complete_task"]
"""How a reply with tools has ended, as in the event `agent_ended`."""


class FlowStepRow(Sparse):
    """How a step of a flow ended: its status, the class of its error, and checks on its output."""

    status: Literal["success", "failed", "skipped", "cancelled", "none"] = "success"
    error_code: str = ""
    output: JsonCheck | list[JsonCheck] = Field(default_factory=list)


TaskStatus = Literal["pending", "running", "blocked", "completed", "failed", "cancelled", "none"]


class TaskRow(Row):
    """A task: its status (`none`: it is not there), its agent, and how often it was started."""

    status: TaskStatus = "completed"
    agent: AgentId = ""
    attempts: Annotated[int, Field(ge=0)] = 1


class Expect(Sparse):
    """The expectations of a step, or of all steps."""

    not_built: ClassVar[frozenset[str]] = read_keys(
        "changed command conflict files learned unchanged"
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
    paused: Pauses = Field(default_factory=list)
    spent: SpentAmounts = Field(default=None)  # type: ignore[assignment]  # Sparse
    awaits: Agents = Field(default_factory=list)
    unresolved: Annotated[list[str], AfterValidator(refuse_repeated)] = Field(default_factory=list)
    refused: ByAgent[Count] = Field(default_factory=dict, min_length=1)
    system: list[TextCheck] = Field(default_factory=list)
    timeline: list[ReplyRow] = Field(default_factory=list, min_length=1)
    timeline_exact: list[ReplyRow] = Field(default_factory=list)
    replies: ByAgent[list[TextCheck] | Which] = Field(default_factory=dict, min_length=1)
    structured: list[Structured | CarriedPart] | dict[Structured, list[TextCheck]] = Field(
        default_factory=list
    )
    attachments: list[Wanted | CarriedFile] | dict[str, list[TextCheck]] = Field(
        default_factory=list
    )
    shown: ByAgent[list[TextCheck] | Which] = Field(default_factory=dict, min_length=1)
    notes: list[Kind | NoteRow] | Noted = Field(default_factory=list)
    shown_notes: ByAgent[NoteIds | NotesShown] = Field(default_factory=dict, min_length=1)
    deviations: Count | list[DeviationRow] = 0
    supervised: list[SupervisedRow] = Field(default_factory=list)
    approvals: list[ApprovalRow] = Field(default_factory=list)
    reactions: list[ReactionRow] = Field(default_factory=list)
    unread: ByAgent[Count] = Field(default_factory=dict, min_length=1)
    compactions: Count = 0
    tool: ToolRows = Field(default_factory=list)
    ended: ByAgent[EndedAs] = Field(default_factory=dict, min_length=1)
    output: ByAgent[JsonCheck | list[JsonCheck]] = Field(default_factory=dict, min_length=1)
    rules: list[RuleRow] = Field(default_factory=list)
    exchanges: list[ExchangeRow] = Field(default_factory=list)
    plan: PlanExpectation = Field(default=None)  # type: ignore[assignment]  # Sparse
    flow: dict[str, FlowStepRow] = Field(default_factory=dict, min_length=1)
    tasks: dict[TaskId, TaskStatus | TaskRow] = Field(default_factory=dict, min_length=1)


AS_JSON = "as_json"


class GivenCheck(NamedTuple):
    """A check: its place below `expect`, its field, and its value."""

    loc: Loc
    kind: str
    value: Any


def iter_checks(expect: Sparse) -> Iterator[GivenCheck]:
    """Yield every check, including those within `not` and `any_of`, and those of outputs."""
    yield from _in(expect, ())


def _in(value: Any, loc: Loc) -> Iterator[GivenCheck]:
    if isinstance(value, CheckKeys):
        for kind in value.kinds:
            here, options = (*loc, key_of(kind)), value.given(kind)
            yield GivenCheck(here, kind, options)
            if kind != AS_JSON:
                yield from _in(options, here)
    elif isinstance(value, JsonCheck):
        yield GivenCheck(loc, AS_JSON, value)
    elif isinstance(value, FileShape):
        given = value.model_fields_set
        for name in type(value).model_fields:
            if name in given:
                yield from _in(getattr(value, name), (*loc, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _in(item, (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _in(item, (*loc, index))
