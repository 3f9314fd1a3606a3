"""Check what agents want to say or do by the rules of a team, before it takes effect.

`Rulebook` holds the rules of a session, `Review` checks one reply over its attempts. A rule that
gives no verdict refuses: nothing passes because a function of the user crashed.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import tokens
from arena_cli.engine import answers
from arena_cli.engine.plan import Planned, Room
from arena_cli.errors import AgentBrokeRule, AgentError
from arena_cli.notes.model import Draft
from arena_cli.protocol import AgentInput, AgentOutput, ShownMessage, Usage
from arena_cli.transcript.control_events import Decision, DecisionKind, RuleBroken
from arena_cli.util.clock import format_timestamp
from arena_cli.util.language import Texts
from arena_cli.util.redaction import REDACTED, Redactor
from arena_cli.util.text import cut_text, iter_texts
from arena_cli.workspace import control
from arena_cli.workspace.control import RuleKind, RuleSpec
from arena_cli.workspace.mentions import Roster, parse_mentions, resolve_mentions

if TYPE_CHECKING:
    from arena_cli.adapters.python import UserFunction
    from arena_cli.transcript.state import Fold

LONGEST_REFUSED = 4_000
"""The characters of a refused reply that its agent, and the transcript, are shown."""

LONGEST_ERROR = 1_000


class BrokenRule(NamedTuple):
    """A rule that refuses, and the reason; `failed`: it gave no verdict."""

    rule: str
    error: str
    failed: bool = False

    def __str__(self) -> str:
        verb = f"rule {self.rule} failed" if self.failed else f"refused by rule {self.rule}"
        return f"{verb}: {self.error}"


class Findings(NamedTuple):
    """The ids of the rules that looked at something, and those of them that refuse it."""

    looked: Sequence[str]
    broken: Sequence[BrokenRule]

    @property
    def reason(self) -> str:
        """The reason of a refusal, in one text; empty if nothing refuses."""
        return "; ".join(map(str, self.broken))


class _RuleFailed(Exception):
    """A rule gave no verdict; the message has the reason."""


class LoadedRule:
    """A rule with its checks built, whose files are below `root`.

    `function` returns a function of the user by its target. A rule that no agent breaks has no
    `roster`.
    """

    def __init__(
        self,
        rule: RuleSpec,
        root: Path,
        redactor: Redactor,
        function: Callable[[str], UserFunction],
        roster: Roster | None = None,
    ) -> None:
        self.rule = rule
        self.id = rule.key
        self._roster = roster
        self._redactor = redactor
        self._function = function
        checks = control.import_text_checks()
        raw = [rule.checks, {"not": rule.forbid} if rule.forbid else None]
        self._checks = [checks.build_check(keys, root) for keys in raw if keys]
        condition = rule.when.text_checks if rule.when else {}
        self._condition = checks.build_check(condition, root) if condition else None
        self._failures: type[Exception] = checks.CheckFailed

    @property
    def has_checks(self) -> bool:
        """True if it can be broken; otherwise it only repairs."""
        rule = self.rule
        return bool(self._checks or rule.python or (rule.built_in and not rule.checks))

    def applies(self, decision: Mapping[str, Any]) -> bool:
        """Return True if the conditions of the rule hold. Raises _RuleFailed."""
        when = self.rule.when
        if when is None:
            return True
        if when.agent is not None and decision["agent"] not in when.agent:
            return False
        if when.mentions is not None and not {*when.mentions} & {*decision.get("mentions", ())}:
            return False
        if when.step is not None and decision.get("step_kind") not in when.step:
            return False
        names = when.tool
        if names is not None and not any(
            fnmatch.fnmatchcase(str(decision.get("tool", "")), name) for name in names
        ):
            return False
        return self._condition is None or not self._check(self._condition, decision)

    async def find_error(self, decision: Mapping[str, Any], shown: str) -> str:
        """Return why the rule refuses, "" if it does not; `shown` is what the agent was shown.

        Raises _RuleFailed.
        """
        error = self._find_built_in_error(decision, shown)
        for check in self._checks:
            error = error or self._check(check, decision)
        if not error and self.rule.python is not None:
            error = await self._ask(self.rule.python, decision)
        return cut_text(self.rule.error or error, LONGEST_ERROR) if error else ""

    async def correct(self, decision: Mapping[str, Any]) -> str | None:
        """Return the repaired text, None if there is none. Raises _RuleFailed."""
        if self.rule.correct is None:
            return None
        answer = await self._call(self.rule.correct, decision)
        if answer is None:
            return None
        if not isinstance(answer, str) or not answer.strip():
            raise _RuleFailed(
                f"{self.rule.correct} returned {answer!r:.80}, expected a text or None"
            )
        return self._redactor.text(answer)

    def _check(self, check: Callable[[str], str], decision: Mapping[str, Any]) -> str:
        try:
            return check(str(decision["text"]))
        except self._failures as error:
            raise _RuleFailed(str(error)) from error

    def _find_built_in_error(self, decision: Mapping[str, Any], shown: str) -> str:
        rule, text = self.rule, str(decision["text"])
        if rule.no_secrets and self._has_secret(decision, shown):
            return "it contains a secret; name a secret, and never write its value"
        if rule.no_mass_mention and self._calls_all(decision, text):
            return "it calls all agents; call only those that you need"
        if rule.calls_only is not None:
            allowed = rule.calls_only.get(decision["agent"])
            others = [name for name in decision["mentions"] if name not in (allowed or ())]
            if allowed is not None and others:
                return f"{decision['agent']} may call only {', '.join(allowed) or 'no agent'}"
        if rule.step_kinds is not None and decision["step_kind"] not in rule.step_kinds:
            return f"only steps of these kinds run: {', '.join(rule.step_kinds)}"
        return ""

    def _has_secret(self, decision: Mapping[str, Any], shown: str) -> bool:
        """Return True if text was redacted in a line that the agent was not shown."""
        redact = self._redactor.text
        lines = [line for _, text in iter_texts(decision) for line in redact(text).splitlines()]
        return any(REDACTED in line and line.strip() not in shown for line in lines)

    def _calls_all(self, decision: Mapping[str, Any], text: str) -> bool:
        if self._roster is None:
            return False
        parsed = parse_mentions(text, self._roster, author="", opener="")
        named = resolve_mentions(
            decision.get("next_mentions", ()), self._roster, author="", opener=""
        )
        return bool(parsed.by_all_only or named.by_all_only)

    async def _ask(self, target: str, decision: Mapping[str, Any]) -> str:
        answer = await self._call(target, decision)
        if answer is True or answer is None:
            return ""
        if answer is False:
            return f"{target} returned False"
        if isinstance(answer, str) and answer.strip():
            return self._redactor.text(answer)
        raise _RuleFailed(f"{target} returned {answer!r:.80}, expected True, None or an error text")

    async def _call(self, target: str, decision: Mapping[str, Any]) -> Any:
        functions = import_module("arena_cli.adapters.python")
        try:
            return await self._function(target).call(json.dumps(decision, default=str))
        except functions.FunctionFailed as error:
            raise _RuleFailed(self._redactor.text(str(error))) from error


async def look(
    rules: Iterable[LoadedRule], decision: Mapping[str, Any], shown: str = ""
) -> Findings:
    """Check a decision by rules; `shown` is what its agent was shown."""
    looked: list[str] = []
    broken: list[BrokenRule] = []
    for rule in rules:
        try:
            if not rule.applies(decision):
                continue
            looked.append(rule.id)
            error = await rule.find_error(decision, shown)
        except _RuleFailed as failure:
            looked += [rule.id] if rule.id not in looked else []
            broken.append(BrokenRule(rule.id, cut_text(str(failure), LONGEST_ERROR), failed=True))
        else:
            broken += [BrokenRule(rule.id, error)] if error else []
    return Findings(looked, broken)


def count_decisions(fold: Fold) -> int:
    """Return the number of decisions of a session that rules or a supervisor looked at."""
    state = fold.control
    return sum(total for total, _ in state.decisions.values()) if state else 0


def write_decision(
    room: Room, kind: DecisionKind, agent: str, findings: Findings, reply: int = 0
) -> None:
    """Write a decision of an agent that rules or a supervisor looked at."""
    room.journal.write(
        Decision,
        decision=count_decisions(room.scene.fold) + 1,
        kind=kind,
        by=agent,
        allowed=not findings.broken,
        rules=list(findings.looked),
        reply=reply,
    )


class Rulebook:
    """The rules of a session's team and of its agents."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._by_place: dict[tuple[RuleKind, str], list[LoadedRule]] = {}
        self._functions: dict[str, UserFunction] = {}

    def of(self, kind: RuleKind, agent: str) -> list[LoadedRule]:
        """Return the rules on an agent's decisions of a kind, those of low priority first."""
        if (kind, agent) not in self._by_place:
            self._by_place[kind, agent] = [
                rule for rule in self._loaded(agent) if rule.rule.kind == kind
            ]
        return self._by_place[kind, agent]

    async def check_act(
        self,
        kind: Literal["tool", "note", "task"],
        decision: dict[str, Any],
        reply: int,
        *,
        is_written: bool = False,
    ) -> str:
        """Return why an action or a note of an agent is refused, "" if it is not.

        It is written down, unless it is already.
        """
        agent = decision["agent"]
        findings = await look(self.of(kind, agent), {"kind": kind, **decision})
        if findings.looked and not is_written:
            write_decision(self._room, kind, agent, findings, reply)
            for broken in findings.broken:
                self.record_broken(broken, agent, reply, corrected=False)
        return findings.reason

    def record_broken(self, broken: BrokenRule, agent: str, reply: int, *, corrected: bool) -> None:
        """Write that a rule was broken."""
        self._room.journal.write(
            RuleBroken,
            reply=reply,
            agent=agent,
            rule=broken.rule,
            error=broken.error,
            corrected=corrected,
        )

    async def stop(self) -> None:
        """End the processes of functions."""
        for function in self._functions.values():
            await function.stop()

    def _loaded(self, agent: str) -> list[LoadedRule]:
        member = self._room.scene.team.agent(agent)
        rules = [*self._team_rules, *(map(self._load, member.profile.rules) if member else ())]
        return sorted(rules, key=lambda loaded: loaded.rule.priority)

    @cached_property
    def _team_rules(self) -> list[LoadedRule]:
        return [self._load(rule) for rule in self._room.scene.team.config.rules]

    def _load(self, rule: RuleSpec) -> LoadedRule:
        room = self._room
        redactor = room.runtime.redactor
        return LoadedRule(rule, room.workspace, redactor, self._function, room.roster)

    def _function(self, target: str) -> UserFunction:
        if target not in self._functions:
            self._functions[target] = self._room.make_function(target)
        return self._functions[target]


class Review:
    """The review of one reply by the rules, over its attempts.

    `refused` are the calls of colleagues that rules refuse, with the reasons.
    """

    def __init__(self, book: Rulebook, planned: Planned, room: Room) -> None:
        self.refused: dict[str, str] = {}
        self._book = book
        self._planned = planned
        self._room = room
        self._left = room.scene.team.config.corrections
        self._attempts: list[Findings] = []
        self._repaired: list[BrokenRule] = []
        self._mentions: list[BrokenRule] = []

    async def check(self, answer: Answer, heard: Heard) -> Answer:
        """Return the answer, repaired by functions of rules. Raises AgentBrokeRule.

        A refused answer's usage and notes are kept in `heard`.
        """
        if answer.declined:
            return answer
        self._repaired, self._mentions, self.refused = [], [], {}
        rules = self._book.of("reply", self._planned.agent)
        output, failed = await self._repair(answer.output, rules)
        findings = await look(rules, self._describe(output), _shown(self._planned.input))
        if failed:
            findings = Findings(findings.looked, [*failed, *findings.broken])
        if not findings.broken:
            looked = await self._check_calls(output)
            findings = Findings([*dict.fromkeys((*findings.looked, *looked))], ())
        self._attempts.append(findings)
        if findings.broken:
            raise self._refuse(output, findings, heard)
        return answer._replace(output=output)

    def corrects(self, error: AgentError, seconds_left: float) -> bool:
        """Return True if the reply goes back to its agent, with the errors."""
        if not isinstance(error, AgentBrokeRule) or not error.text or seconds_left <= 0:
            return False
        if self._left == 0:
            return False
        self._left -= 1
        self._planned.correct(self._correction(error.text, self._attempts[-1].broken))
        return True

    def settle(self, *, has_reply: bool) -> None:
        """Write the decisions on the reply, then each rule that it broke; at its end."""
        agent, reply = self._planned.agent, self._planned.reply
        for findings in self._attempts:
            if findings.looked:
                write_decision(self._room, "reply", agent, findings, reply)
        broken = [broken for findings in self._attempts for broken in findings.broken]
        broken += [*self._repaired, *self._mentions] if has_reply else ()
        for last in {one.rule: one for one in broken}.values():
            self._book.record_broken(last, agent, reply, corrected=has_reply)

    async def _repair(
        self, output: AgentOutput, rules: Sequence[LoadedRule]
    ) -> tuple[AgentOutput, list[BrokenRule]]:
        """Return the output as functions of rules repair it, and the rules that failed to."""
        failed: list[BrokenRule] = []
        shown = _shown(self._planned.input)
        for rule in rules:
            if rule.rule.correct is None:
                continue
            decision = self._describe(output)
            try:
                error = ""
                if not rule.applies(decision):
                    continue
                if rule.has_checks and not (error := await rule.find_error(decision, shown)):
                    continue
                text = await rule.correct(decision)
            except _RuleFailed as failure:
                failed.append(
                    BrokenRule(rule.id, cut_text(str(failure), LONGEST_ERROR), failed=True)
                )
                continue
            if text is not None and text != output.content:
                output = output.model_copy(update={"content": text})
                error = error or f"repaired by {rule.rule.correct}"
                self._repaired.append(BrokenRule(rule.id, error))
        return output, failed

    async def _check_calls(self, output: AgentOutput) -> list[str]:
        """Check each call of a colleague; return the ids of the rules that looked."""
        planned, room = self._planned, self._room
        rules = self._book.of("mention", planned.agent)
        if not rules or planned.member is None:
            return []
        calls = answers.resolve_calls(
            output, planned.member, room.scene.team, room.roster, opener=planned.opener
        )
        looked: list[str] = []
        for name in calls.next_mentions:
            decision = {**self._describe(output), "kind": "mention", "mentions": [name]}
            findings = await look(rules, decision)
            looked += findings.looked
            if findings.broken:
                self.refused[name] = findings.reason
                self._mentions += findings.broken
        return looked

    def _describe(self, output: AgentOutput) -> dict[str, Any]:
        """Return a reply as rules see it."""
        planned, room = self._planned, self._room
        calls: Sequence[str] = ()
        if planned.member is not None:
            calls = answers.resolve_calls(
                output, planned.member, room.scene.team, room.roster, opener=planned.opener
            ).next_mentions
        return {
            "kind": "reply",
            "agent": planned.agent,
            "text": output.content,
            "mentions": list(calls),
            "next_mentions": list(output.next_mentions),
            "structured": [item.model_dump(mode="json") for item in output.structured],
            "attachments": [
                {"name": item.name, "type": item.type}
                | ({"data": item.data} if isinstance(item.data, str) else {})
                for item in output.attachments
            ],
            "invocation": planned.input.invocation,
            "turn": planned.input.turn,
        }

    def _refuse(self, output: AgentOutput, findings: Findings, heard: Heard) -> AgentBrokeRule:
        """Return the error of a refused answer, whose usage counts."""
        heard.usage = output.usage or Usage(
            input_tokens=self._planned.input_tokens,
            output_tokens=tokens.estimate(output.content),
            estimated=True,
        )
        text = cut_text(output.content, LONGEST_REFUSED)
        heard.notes.update({**output.metadata, "refused_text": text})
        error = AgentBrokeRule(self._planned.agent, findings.reason)
        can_correct = not any(broken.failed for broken in findings.broken)
        error.text = (text or "(no text)") if can_correct else ""
        return error

    def _correction(self, text: str, broken: Sequence[BrokenRule]) -> ShownMessage:
        """Return the system message that gives a refused reply back to its agent."""
        say = Texts(self._room.language)
        lines = [
            say("Your reply was not sent, because it breaks rules of this team:"),
            *(f"- {rule}: {' '.join(error.split())}" for rule, error, _ in broken),
            "",
            say("Your reply was:"),
            *(f"| {line}" for line in text.splitlines()),
            "",
            say("Write a reply that keeps these rules."),
        ]
        return ShownMessage(
            id="m0",
            author_id="system",
            author_name="system",
            author_type="system",
            content="\n".join(lines),
            timestamp=format_timestamp(self._room.clock.now()),
            kind="system",
            role="system",
        )


def _shown(input: AgentInput) -> str:
    """Return the texts that an agent was shown."""
    texts = [input.role_prompt, input.memory_context or ""]
    return "\n".join([*texts, *(message.content for message in input.messages)])


def describe_note(draft: Draft, agent: str) -> dict[str, Any]:
    """Return a note of an agent as rules see it."""
    text = f"{draft.title}\n{draft.body}".strip()
    return {"agent": agent, "text": text, "note": {"kind": draft.kind, "title": draft.title}}
