"""The settings that control a team (docs/control.md); some of them an agent may have of its own."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from arena_cli.workspace import act_patterns
from arena_cli.workspace.file_shape import FileShape

ApprovalPolicy = Literal["ask", "allow", "deny"]
BudgetScope = Literal["turn", "chain", "session", "day"]
BudgetUnit = Literal["tokens", "usd"]

APPROVAL_ACTIONS = ("execute_command", "modify_file", "external_api_call", "deploy")
"""The actions that a person approves unless the settings say otherwise."""

ActPattern = Annotated[str, AfterValidator(act_patterns.check_pattern)]
"""A pattern of a command or path."""

_PATHS = frozenset({"modify_file", "read_file"})
_SEVERAL = re.compile(r"\d+ files: ")
_APPROVAL_SETTINGS = frozenset({"default", "allow", "expires_s"})


class Approvals(FileShape):
    """What people approve: a policy by the name of the action, also for names of one's own.

    `default` is the policy of every other name. `allow` are commands and paths that need no
    approval: in a command, `*` is any text within a word, or by itself any words; in a path, `*` is
    any part of a name and `**` any folders. A request expires after `expires_s` seconds.
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
        return by_action.get(action, self.default)

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
        name = action if is_named or action in APPROVAL_ACTIONS else "default"
        return policy, f"approvals.{name}: {policy}"


def _matches(pattern: str, action: str, detail: str) -> bool:
    if action in _PATHS:
        is_one = not _SEVERAL.match(detail)
        return is_one and act_patterns.matches_path(pattern, detail)
    if action == "external_api_call":
        return act_patterns.matches_text(pattern, detail)
    return act_patterns.matches_command(pattern, detail)


def _count() -> Any:
    return Field(default=None, gt=0)


class TokenBounds(FileShape):
    """The most tokens that calls may use, cached ones included."""

    turn: int | None = _count()
    chain: int | None = _count()
    session: int | None = _count()
    day: int | None = _count()


class UsdBounds(FileShape):
    """The most US dollars that calls may cost."""

    turn: float | None = _count()
    chain: float | None = _count()
    session: float | None = _count()
    day: float | None = _count()


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
    """The bounds of the calls of a team; `agents` have bounds of their own besides.

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
