"""The settings that control a team, or a single agent (docs/guides/control.md).

Patterns in them match what an agent wants to do: a whole command, or a whole path. A command is
split as a shell splits it. One that a shell would do more with than run one program (operators,
substitution, several lines) matches no pattern.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from arena_cli.protocol import RUN_FLOW
from arena_cli.yamlio.shapes import FileShape, omit_default

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OPERATORS = frozenset(";|&<>()")
_EXPANDED = frozenset("$`")
"""Signs that a shell expands, also between double quotes."""

_ANY_WORDS = "*"
_ANY_FOLDERS = "**"


def check_pattern(pattern: str) -> str:
    """Return the pattern. Raises ValueError if no command and no path can match it."""
    if not pattern.strip() or _CONTROL.search(pattern):
        raise ValueError("must be a command or a path in one line")
    is_path = "/" in pattern and " " not in pattern
    if is_path and ".." in PurePosixPath(pattern).parts:
        raise ValueError("must be a path without `..`")
    if not is_path and split_command(pattern) is None:
        raise ValueError("must be one command, without shell operators, `$` and open quotes")
    return pattern


def matches_command(pattern: str, command: str) -> bool:
    """Return True if the whole command matches: `*` alone is any words, in a word any text."""
    patterns, words = split_command(pattern), split_command(command)
    return bool(patterns and words and _match_all(patterns, words, _ANY_WORDS))


def matches_path(pattern: str, path: str) -> bool:
    """Return True if the whole path matches: `**` is any folders, `*` any part of a name."""
    if _CONTROL.search(path):
        return False
    parts = PurePosixPath(path).parts
    return ".." not in parts and _match_all(PurePosixPath(pattern).parts, parts, _ANY_FOLDERS)


def matches_text(pattern: str, text: str) -> bool:
    """Return True if a whole text without blanks, such as a URL, matches: `*` is any text."""
    return not re.search(r"\s", text) and not _CONTROL.search(text) and _match(pattern, text)


def split_command(command: str) -> list[str] | None:
    """Return the words of a command; None if a shell would do more than run one program."""
    if _CONTROL.search(command) or _has_operator(command):
        return None
    try:
        return shlex.split(command)
    except ValueError:  # an open quote
        return None


def _has_operator(command: str) -> bool:
    quote = ""
    is_escaped = False
    for char in command:
        if is_escaped:
            is_escaped = False
        elif quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            is_escaped = True
        elif char in _EXPANDED or (not quote and char in _OPERATORS):
            return True
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
    return False


def _match_all(patterns: Sequence[str], words: Sequence[str], any_words: str) -> bool:
    """Return True if the words match the patterns in order; `any_words` matches any number."""
    reached = {0}
    for pattern in patterns:
        if pattern == any_words:
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and _match(pattern, words[at])}
        if not reached:
            return False
    return len(words) in reached


def _match(pattern: str, word: str) -> bool:
    """Return True if the word matches; `*` is any text without `..`."""
    first, *rest = pattern.split("*")
    if not rest:
        return word == pattern
    if ".." in word and ".." not in pattern:
        return False
    *middle, last = rest
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    at, end = len(first), len(word) - len(last)
    for text in middle:
        start = word.find(text, at, end)
        if start < 0:
            return False
        at = start + len(text)
    return True


ApprovalPolicy = Literal["ask", "allow", "deny"]
BudgetScope = Literal["turn", "chain", "session", "day"]
BudgetUnit = Literal["tokens", "usd"]

APPROVAL_ACTIONS = ("execute_command", "modify_file", "external_api_call", "deploy")
"""The actions that a person approves unless the settings say otherwise."""

ActPattern = Annotated[str, AfterValidator(check_pattern)]
"""A pattern of a command or path."""

_ASKED = (*APPROVAL_ACTIONS, RUN_FLOW)
_PATHS = frozenset({"modify_file", "read_file"})
_SEVERAL = re.compile(r"\d+ files: ")
_APPROVAL_SETTINGS = frozenset({"default", "allow", "expires_s"})


class Approvals(FileShape):
    """What people approve: a policy by the name of the action, also for names of one's own.

    `run_flow` is asked, too; `default` is the policy of every other name. `allow` are commands and
    paths that need no approval: in a command, `*` is any text within a word, or by itself any
    words; in a path, `*` is any part of a name and `**` any folders. A request expires after
    `expires_s` seconds.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ApprovalPolicy] = Field(init=False)

    execute_command: ApprovalPolicy = "ask"
    modify_file: ApprovalPolicy = "ask"
    external_api_call: ApprovalPolicy = "ask"
    deploy: ApprovalPolicy = "ask"
    default: ApprovalPolicy = "deny"
    allow: list[ActPattern] = []
    expires_s: float = Field(default=86_400, gt=0)

    def policy(self, action: str) -> ApprovalPolicy:
        """Return the policy for an action."""
        by_action: dict[str, ApprovalPolicy] = {
            name: policy for name, policy in self if name not in _APPROVAL_SETTINGS
        }
        return by_action.get(action, "ask" if action == RUN_FLOW else self.default)

    def decide(self, action: str, detail: str) -> tuple[ApprovalPolicy, str]:
        """Return the policy for an act, and the setting that decides; `deny` beats `allow`.

        `detail` is the whole command or path. A URL matches a pattern as one text.
        """
        policy = self.policy(action)
        if policy == "ask":
            pattern = next((p for p in self.allow if _matches(p, action, detail)), None)
            if pattern is not None:
                return "allow", f"approvals.allow: {pattern}"
        is_named = action in self.model_fields_set or action in (self.__pydantic_extra__ or {})
        name = action if is_named or action in _ASKED else "default"
        return policy, f"approvals.{name}: {policy}"


def _matches(pattern: str, action: str, detail: str) -> bool:
    if action in _PATHS:
        is_one = not _SEVERAL.match(detail)
        return is_one and matches_path(pattern, detail)
    if action == "external_api_call":
        return matches_text(pattern, detail)
    return matches_command(pattern, detail)


class TokenBounds(FileShape):
    """The most tokens that calls may use, cached ones included."""

    turn: int | None = Field(default=None, gt=0)
    chain: int | None = Field(default=None, gt=0)
    session: int | None = Field(default=None, gt=0)
    day: int | None = Field(default=None, gt=0)


class UsdBounds(FileShape):
    """The most US dollars that calls may cost."""

    turn: float | None = Field(default=None, gt=0)
    chain: float | None = Field(default=None, gt=0)
    session: float | None = Field(default=None, gt=0)
    day: float | None = Field(default=None, gt=0)


class AgentBudget(FileShape):
    """The bounds of one agent's calls in a turn, a chain, a session, and a day (UTC)."""

    tokens: TokenBounds = Field(default_factory=TokenBounds)
    usd: UsdBounds = Field(default_factory=UsdBounds)

    def list_bounds(self) -> list[tuple[BudgetScope, BudgetUnit, float]]:
        """Return the bounds that are set: where each holds, its unit, and the bound."""
        rows: list[tuple[BudgetScope, BudgetUnit, float | None]] = []
        for scope in get_args(BudgetScope):
            rows.append((scope, "tokens", getattr(self.tokens, scope)))
            rows.append((scope, "usd", getattr(self.usd, scope)))
        return [(scope, unit, bound) for scope, unit, bound in rows if bound is not None]


class ModelStep(FileShape):
    """A step of degrading: agents whose adapter has a `model` are called with this one."""

    model: str = Field(min_length=1)


DegradeStep = Literal["no_may_reply", "smaller_context", "concise"]


class Budget(AgentBudget):
    """The bounds of the calls of a team; `agents` have bounds of their own, too.

    A call that would pass a bound is not made: the chain pauses, or the team first works with less,
    step by step (`degrade`).
    """

    agents: dict[str, AgentBudget] = {}
    on_exceed: Literal["pause", "degrade"] = "pause"
    degrade: list[DegradeStep | ModelStep] = ["no_may_reply", "smaller_context", "concise"]

    @model_validator(mode="after")
    def _bounds_something(self) -> Budget:
        if not self.list_bounds() and not any(own.list_bounds() for own in self.agents.values()):
            raise ValueError("has no bound; write one, such as `tokens: {session: 100000}`")
        if "degrade" in self.model_fields_set and self.on_exceed != "degrade":
            raise ValueError("has steps in `degrade`, but not `on_exceed: degrade`")
        return self

    def has_unit(self, unit: BudgetUnit) -> bool:
        """Return True if there is a bound in that unit."""
        rules = (self, *self.agents.values())
        return any(unit == bound[1] for own in rules for bound in own.list_bounds())


class Intent(FileShape):
    """Whether messages are sorted by what they ask for: by an `agent`, else by arena's rules."""

    enabled: bool = True
    agent: str | None = None
    rules: bool = True

    @model_validator(mode="after")
    def _has_one(self) -> Intent:
        if self.enabled and self.agent is None and not self.rules:
            raise ValueError("needs an `agent`, or `rules: true`")
        return self


class SimpleAnswers(FileShape):
    """The member that answers greetings and simple queries alone.

    It does so if their intent was sorted with at least `min_confidence`, from 0 to 1.
    """

    agent: str
    min_confidence: float = Field(default=0.8, ge=0, le=1)


class ExchangeRules(FileShape):
    """The rules by which agents ask each other directly.

    After the first answer there are at most `max_turns` further messages. If they `announce`, the
    agent that was asked tells the group at the end.
    """

    max_turns: int = Field(default=5, ge=0, le=50)
    announce: bool = True


RuleKind = Literal["reply", "mention", "tool", "note", "task", "step", "plan"]
"""What a rule looks at: a reply, one call of a colleague, an action, a note of an agent, a task
that it adds or changes, a step of a flow, a plan."""

StepKind = Literal["send", "agent", "python", "shell", "http", "sql", "container"]
"""The kinds of steps that do work; the others have steps in them."""

RULES_BY_NAME = ("no_secrets", "no_mass_mention")
_BUILT_IN = (*RULES_BY_NAME, "calls_only", "step_kinds", "json_schema", "max_chars", "language")
_OWN = ("require", "forbid", "python", "correct")
_NOT_OF_FILE = frozenset({"id", "name", "priority", "on", "when", "error", *_BUILT_IN, *_OWN})


def _as_mapping(rule: Any) -> Any:
    if not isinstance(rule, str):
        return rule
    if rule not in RULES_BY_NAME:
        known = ", ".join(RULES_BY_NAME)
        raise ValueError(f"`{rule}` is no rule by its name alone; those are {known}")
    return {rule: True}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Names = Annotated[
    list[str],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
StepKinds = Annotated[
    list[StepKind],
    BeforeValidator(_as_list, json_schema_input_type=StepKind | list[StepKind]),
    Field(min_length=1),
]


class RuleCondition(FileShape):
    """The condition of a rule: all given keys must hold.

    `agent` are the ids of those that decide, `mentions` of those that a reply calls, `tool` the
    names of actions, `step` the kinds of steps; one of each list is enough. The others are checks
    on the text.
    """

    agent: Names | None = omit_default()
    mentions: Names | None = omit_default()
    tool: Names | None = omit_default()
    step: StepKinds | None = omit_default()
    contains: Names | None = omit_default()
    not_contains: Names | None = omit_default()
    regex: str | None = omit_default()
    ignore_case: bool = omit_default(False)

    @property
    def text_checks(self) -> dict[str, Any]:
        """The checks on the text, as in scenarios; empty if there are none."""
        keys = ("contains", "not_contains", "regex")
        checks = {key: value for key in keys if (value := getattr(self, key)) is not None}
        return {**checks, "ignore_case": True} if checks and self.ignore_case else checks


class RuleSpec(FileShape):
    """A rule on what an agent wants to say or do, before it takes effect (docs/guides/control.md).

    `require` and `forbid` are checks on the text, as in scenarios; `python` is a function of the
    user that decides, `correct` one that may repair the text. A built-in rule is one key of its
    own; without an `id` it has that key's name. `file` is a file of more rules.
    """

    id: str = ""
    name: str = omit_default("")
    priority: int = omit_default(10)
    on: RuleKind | None = omit_default()
    when: RuleCondition | None = omit_default()
    require: dict[str, Any] | None = omit_default()
    forbid: dict[str, Any] | None = omit_default()
    python: str | None = omit_default()
    error: str = omit_default("")
    correct: str | None = omit_default()
    no_secrets: Literal[True] | None = omit_default()
    no_mass_mention: Literal[True] | None = omit_default()
    calls_only: dict[str, list[str]] | None = omit_default()
    step_kinds: StepKinds | None = omit_default()
    json_schema: str | dict[str, Any] | None = omit_default()
    max_chars: int | None = omit_default(ge=1)
    language: str | None = omit_default()
    file: str | None = omit_default()

    @model_validator(mode="after")
    def _is_one(self) -> RuleSpec:
        given = {key for key in self.model_fields_set if getattr(self, key) is not None}
        if self.file is not None:
            if given & _NOT_OF_FILE:
                raise ValueError("an entry with `file` has no other key")
            return self
        self._check_keys(given)
        self._check_kind()
        return self

    def _check_kind(self) -> None:
        """Raise ValueError unless its keys fit what it looks at."""
        step = self.when.step if self.when is not None else None
        for value, kind, problem in (
            (self.calls_only, "mention", "`calls_only` looks at mentions; leave `on` out"),
            (step, "step", "`when: {step: ...}` belongs to a rule with `on: step`"),
            (self.step_kinds, "step", "`step_kinds` looks at steps; leave `on` out"),
            (self.no_mass_mention, "reply", "`no_mass_mention` looks at replies; leave `on` out"),
            (self.correct, "reply", "`correct` repairs replies; leave `on` out"),
        ):
            if value is not None and self.kind != kind:
                raise ValueError(problem)
        if self.no_secrets and self.kind == "step":
            raise ValueError("`no_secrets` does not look at steps, which may be given secrets")

    def _check_keys(self, given: set[str]) -> None:
        """Raise ValueError unless the keys of an entry make one rule."""
        built_in = [key for key in _BUILT_IN if key in given]
        if len(built_in) > 1:
            raise ValueError(f"{' and '.join(built_in)} are two rules; write two entries")
        if not built_in and not given & {*_OWN}:
            raise ValueError(f"needs one of {', '.join((*_OWN[:3], *_BUILT_IN, 'file'))}")
        if built_in and given & {"require", "forbid", "python"}:
            raise ValueError(f"`{built_in[0]}` is a rule by itself; write two entries")
        if not built_in and not self.id:
            raise ValueError("`id` is missing")

    @property
    def kind(self) -> RuleKind:
        """What it looks at; replies unless `on` says otherwise."""
        implied: RuleKind = "step" if self.step_kinds is not None else "reply"
        return self.on or (implied if self.calls_only is None else "mention")

    @property
    def key(self) -> str:
        """Its id; that of a built-in rule without one is the rule's name."""
        return self.id or self.built_in

    @property
    def built_in(self) -> str:
        """The name of a built-in rule; empty if it is one of the user's own."""
        return next((key for key in _BUILT_IN if getattr(self, key) is not None), "")

    @property
    def functions(self) -> list[str]:
        """The functions of the user that it calls."""
        return [target for target in (self.python, self.correct) if target is not None]

    @property
    def checks(self) -> dict[str, Any] | None:
        """The checks that the text must pass: `require`, or those that a built-in rule means."""
        if self.json_schema is not None:
            return {"json": {"schema": self.json_schema}}
        if self.max_chars is not None:
            return {"max_chars": self.max_chars}
        return {"language": self.language} if self.language is not None else self.require


RuleEntry = Annotated[
    RuleSpec, BeforeValidator(_as_mapping, json_schema_input_type=RuleSpec | Literal[RULES_BY_NAME])
]


class RulesFile(FileShape):
    """A file of rules."""

    rules: list[RuleEntry]


def import_text_checks() -> Any:
    """Return the module with the checks on texts, for teams with rules.

    They are those of scenarios, a higher layer: like the kinds of adapters they are imported by
    name when they are used.
    """
    return import_module("arena_cli.scenarios.expect.rule_checks")
