"""Check the steps of flows by the rules of their file and their team (`on: step`)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.engine import reply_rules
from arena_cli.engine.reply_rules import LoadedRule
from arena_cli.flows.model import StepSpec
from arena_cli.flows.work import StepFailed
from arena_cli.session import session
from arena_cli.transcript.control_events import Decision, RuleBroken
from arena_cli.transcript.log import Journal
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.control import RuleSpec

if TYPE_CHECKING:
    from arena_cli.adapters.python import UserFunction

FLOW = "flow"
"""Who decides that a step runs, if no agent does: the flow of a person."""

_NO_WORK = frozenset(
    {"id", "needs", "when", "on_failure", "retries", "retry_delay_s", "timeout_s", "parallel"}
)

_TARGETS = ("method", "url", "image", "database", "dsn")
"""The keys that are shown in the first line of what a step does."""


class StepRules:
    """The rules on the steps of a flow that runs; `by` decides that they run."""

    def __init__(
        self, config: SessionConfig, journal: Journal, redactor: Redactor, *, by: str
    ) -> None:
        self._config = config
        self._journal = journal
        self._redactor = redactor
        self._by = by
        self._functions: dict[str, UserFunction] = {}
        self._loaded: dict[int, LoadedRule] = {}

    async def check(self, rules: Sequence[RuleSpec], step: str, spec: StepSpec) -> None:
        """Check a step whose placeholders are filled. Raises StepFailed if a rule refuses it."""
        ordered = sorted(rules, key=lambda rule: rule.priority)
        loaded = [self._load(rule) for rule in ordered]
        work = self._redactor.value(find_work(spec))
        decision = {
            "kind": "step",
            "agent": self._by,
            "step": step,
            "step_kind": spec.kind,
            "text": describe_work(spec.kind, work),
            "work": work,
        }
        findings = await reply_rules.look(loaded, decision)
        if not findings.looked:
            return
        self._journal.write(
            Decision,
            decision=reply_rules.count_decisions(self._journal.fold) + 1,
            kind="step",
            by=self._by,
            allowed=not findings.broken,
            rules=list(findings.looked),
            step=step,
        )
        for broken in findings.broken:
            self._journal.write(
                RuleBroken,
                reply=0,
                agent=self._by,
                rule=broken.rule,
                error=broken.error,
                step=step,
            )
        if findings.broken:
            raise StepFailed(findings.reason, "rule")

    def _load(self, rule: RuleSpec) -> LoadedRule:
        if id(rule) not in self._loaded:
            self._loaded[id(rule)] = LoadedRule(
                rule, self._config.workspace, self._redactor, self._find_function
            )
        return self._loaded[id(rule)]

    def _find_function(self, target: str) -> UserFunction:
        if target not in self._functions:
            self._functions[target] = session.make_user_function(self._config, target)
        return self._functions[target]

    async def stop(self) -> None:
        """End the processes of functions."""
        for function in self._functions.values():
            await function.stop()


def find_work(spec: StepSpec) -> dict[str, Any]:
    """Return the keys of a step that say what it does, its kind first."""
    data = spec.model_dump(exclude_unset=True, exclude={*_NO_WORK, spec.kind})
    kind = spec.model_dump(include={spec.kind}, exclude_none=True)
    return {**kind, **data}


def describe_work(kind: str, work: dict[str, Any]) -> str:
    """Return what a step does as rules look at it: a line for each key, its kind first."""
    own = work[kind]
    others = {key: value for key, value in work.items() if key != kind}
    if isinstance(own, dict):
        lines = [f"{kind}: {' '.join(own[key] for key in _TARGETS if key in own)}"]
        others = {**{key: value for key, value in own.items() if key not in _TARGETS}, **others}
    else:
        lines = [f"{kind}: {_show(own)}"]
    return "\n".join([*lines, *(f"{key}: {_show(value)}" for key, value in others.items())])


def _show(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return shlex.join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
