"""The planner of a team: it decides how a chain does its work (docs/guides/planning.md).

It is asked once, before the first turn. Its plan becomes tasks, which `engine.tasks` lets agents
work on. An answer that is no plan, or comes too late, costs only its own call: one agent does the
work instead, and the event `planned` has the reason. A task that finally failed asks for another
plan.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.context import tokens
from arena_cli.engine import (
    call,
    past_work,
    plan_texts,
    reply_rules,
    rules,
    side_calls,
)
from arena_cli.engine.plan import Room, attempt_limit_s, limit_s
from arena_cli.engine.plan_texts import PLAN, PlanDraft
from arena_cli.engine.plan_work import PlanWork, make_labels
from arena_cli.engine.reply_rules import BrokenRule, Findings
from arena_cli.engine.side_calls import AgentAnswer
from arena_cli.protocol import AgentInput, ShownMessage, Usage
from arena_cli.transcript.control_events import (
    ControlState,
    Decision,
    Request,
    RuleBroken,
    find_control,
)
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.util.text import cut_text
from arena_cli.workspace.models import Member, Team

if TYPE_CHECKING:
    from arena_cli.engine.control import Control

EXPERIENCE = ("pit", "pattern", "solution", "decision")
"""The kinds of notes that a planner is shown."""

_MOST_NOTES = 5
_MOST_EARLIER = 6


def is_plan_asked(chain: Chain, team: Team) -> bool:
    """Return True if the chain is to be planned: a person asks for it, or the team's mode does.

    In the mode planner, a message that names somebody is for them.
    """
    if team.planner is None or chain.thread:
        return False
    message = chain.opening.message
    if message.metadata.get(PLAN):
        return True
    return team.config.mode == "planner" and message.kind != "task" and not message.mentions


def find_fallback(team: Team, unavailable: Mapping[str, str]) -> str:
    """Return the agent that does the work if there is no plan; empty if none can be called."""
    planner = team.planner.id if team.planner else ""
    others = [member.id for member in team.members if member.id != planner]
    choice = (team.config.fallback_agent, *rules.list_default_responders(team), *others, planner)
    usable = (name for name in choice if name and team.member(name) and name not in unavailable)
    return next(usable, "")


def estimate_prompt(message: str, team: Team) -> int:
    """Return the tokens of what the planner is asked about a message, without notes and past work.

    They are estimates.
    """
    estimate = past_work.estimate_complexity(message)
    question = plan_texts.PlanQuestion(message, team.members, (), (), estimate)
    role = team.planner.role_prompt if team.planner else ""
    return tokens.estimate(plan_texts.write_prompt(question, "en")) + tokens.estimate(role)


class Planner:
    """Plans the chains of a session, and turns their plans into tasks.

    If it `only_reads`, it is called without consequences: its tools are those that read.
    """

    def __init__(self, room: Room, control: Control) -> None:
        self.only_reads = False
        self._room = room
        self._control = control
        self._work = PlanWork(room)
        self._advisor = side_calls.Advisor(room)

    def next_step(self, chain: Chain, state: ControlState) -> rules.Step | None:
        """Return the step that the plan of the chain leads to; None if it changes nothing."""
        if held := _list_held(state):
            return rules.Pause("approval", held)
        if not state.plans:
            is_asked = is_plan_asked(chain, self._room.scene.team)
            is_begun = chain.turns or state.work is not None
            return self._asked(chain) if is_asked and not is_begun else None
        plan = state.plans[-1]
        if _find_unwritten(plan, chain):
            return rules.Prepare(partial(self._note_rules, plan, chain))
        if plan.refused:
            return self._asked(chain, plan.failed, replan=plan.replan, refused=plan.refused)
        waiting = self._await_person(plan, chain, state) if plan.approval else None
        if waiting is not None or not plan.phases:
            return waiting
        return self._follow(plan, chain)

    def deliver(self, step: rules.Step, state: ControlState) -> rules.Step:
        """Return the end of a planned chain, or before it the step that collects its results."""
        return self._work.deliver(step, state)

    def _follow(self, plan: PlanMade, chain: Chain) -> rules.Step | None:
        """Return the step that an approved plan leads to; None if the work just continues."""
        if (step := self._work.next_step(plan, chain)) is not None:
            return step
        failed = self._work.list_failed(plan, chain)
        if failed and plan.replan < self._room.scene.team.config.replans:
            return self._asked(chain, failed, replan=plan.replan + 1)
        return None

    def _asked(
        self, chain: Chain, failed: Sequence[str] = (), *, replan: int = 0, refused: str = ""
    ) -> rules.Step:
        """Return the step that asks the planner, or the pause if the budget stops the call."""
        if (pause := self._advisor.take_pause()) is not None:
            return pause
        return rules.Prepare(partial(self.ask, chain, failed, replan=replan, refused=refused))

    # Asking.

    async def ask(
        self, chain: Chain, failed: Sequence[str] = (), *, replan: int = 0, refused: str = ""
    ) -> None:
        """Ask the planner, and write its plan. `refused` is why rules refused the one before."""
        room, team = self._room, self._room.scene.team
        planner = team.planner
        assert planner is not None
        text = await self._write_prompt(chain, [*failed, *filter(None, [refused])])
        number = _import_loop().find_call(chain).name if _has_loop(planner) else ""
        answer = await self._call(planner, text)
        if answer is None or _list_held(find_control(chain)):
            return
        draft = self._read(answer)
        metadata = answer.describe(draft.problem)
        findings = await self._check_rules(draft, planner)
        reason = findings.reason
        if reason and refused:  # again
            draft, reason = draft._replace(problem=reason), ""
        # An escape in JSON may have hidden a secret from the redaction of the text.
        redact = room.runtime.redactor.value_or_nothing
        room.journal.write(
            PlanMade,
            chain=chain.number,
            agent=planner.id,
            **redact(self._describe(draft, chain)),
            ignored=redact(list(draft.ignored)),
            fallback=redact(draft.problem),
            replan=replan,
            failed=list(failed),
            rules=list(findings.looked),
            broken=redact({broken.rule: broken.error for broken in findings.broken}),
            refused=redact(reason),
            approval=team.config.approve_plan and not draft.problem and not reason,
            call=number,
            attempts=answer.attempts,
            usage=answer.usage,
            metadata=metadata,
        )

    def _read(self, answer: AgentAnswer) -> PlanDraft:
        """Return the plan in an answer, with the reason why it cannot be carried out."""
        if answer.error:
            return PlanDraft(problem=answer.error)
        team, unavailable = self._room.scene.team, self._control.unavailable()
        least = team.config.min_confidence
        draft = plan_texts.read_plan(answer.text, team, self._room.roster, unavailable, least)
        return draft if draft.problem else draft._replace(problem=self._find_excess(draft))

    async def _write_prompt(self, chain: Chain, failed: Sequence[str]) -> str:
        """Return what the planner is asked."""
        room, scene = self._room, self._room.scene
        message = chain.opening.message.content
        similar = await asyncio.to_thread(past_work.find_similar, message, room)
        notes = await asyncio.to_thread(
            past_work.search_notes, room, message, EXPERIENCE, _MOST_NOTES
        )
        planner = scene.team.planner
        members = [
            member for member in scene.team.members if planner is None or member.id != planner.id
        ]
        question = plan_texts.PlanQuestion(
            message=message,
            members=members or scene.team.members,
            notes=notes or (),
            similar=similar,
            estimate=past_work.estimate_complexity(message, similar, room.workspace),
            earlier=self._list_earlier(chain),
            failed=failed,
            done=[
                f"{task.id} {task.title} (@{task.assigned_to}): {cut_text(task.result, 300)}"
                for task in self._work.list_tasks(chain)
                if task.status == "completed"
            ],
        )
        return room.runtime.redactor.text(plan_texts.write_prompt(question, room.language))

    def _list_earlier(self, chain: Chain) -> list[ShownMessage]:
        """Return the last messages before the chain that all agents may be shown."""
        return [
            message
            for message in self._room.scene.history.after()
            if message.seq < chain.opening.seq and not getattr(message, "shown_to", None)
        ][-_MOST_EARLIER:]

    async def _call(self, planner: Member, text: str) -> AgentAnswer | None:
        """Call the planner; None if it is not called for now."""
        room, seconds = self._room, self._room.scene.team.config.plan_timeout_s
        if problem := self._control.unavailable().get(planner.id):
            reason = f"{planner.id} cannot be called now ({problem})"
            return AgentAnswer("", reason, Usage(cost_usd=0.0), {}, 0)
        has_loop = _has_loop(planner)
        if has_loop:
            planner = _import_loop().prepare(planner, seconds)
        elif seconds is not None:
            profile = planner.profile.model_copy(update={"timeout_s": seconds})
            planner = replace(planner, profile=profile)
        agent_input = side_calls.make_input(planner, text, room)
        limit = attempt_limit_s(limit_s(planner, room.scene.team), room.scene.team)
        agent_input = agent_input.model_copy(update={"deadline_s": limit})
        input_tokens = tokens.estimate(text) + tokens.estimate(planner.role_prompt)
        ask = partial(self._ask_in_place, planner, agent_input, input_tokens)
        return await self._advisor.consult(
            planner, input_tokens, ask, lambda: self._control.is_stopping, is_counted=has_loop
        )

    async def _ask_in_place(
        self, planner: Member, agent_input: AgentInput, input_tokens: int
    ) -> AgentAnswer:
        """Call the planner when its lane has a place; with tools, in their loop."""
        room = self._room
        with contextlib.ExitStack() as held:
            if room.draw_planner_place is not None:
                place = held.enter_context(room.draw_planner_place(planner.id))
                await call.wait_unreported(place)
            if not _has_loop(planner):
                return await side_calls.consult(planner, agent_input, input_tokens, room)
            if budget := room.control.budget:  # each turn of its model counts by itself
                budget.settle_question(planner, None)
            answer: AgentAnswer = await _import_loop().consult(
                planner, agent_input, input_tokens, room, only_reads=self.only_reads
            )
            return answer

    # Checking.

    def _find_excess(self, draft: PlanDraft) -> str:
        """Return why the steps of a plan exceed the team's budget, "" if they need not.

        Each step costs at least what its agent is always shown, and about what a reply has cost.
        """
        limits, scene = self._room.scene.team.config.budget, self._room.scene
        if limits is None:
            return ""
        heads = [scene.head(step.agent).tokens for step in draft.steps]
        beyond = max((draft.estimated_steps or 0) - len(heads), 0)
        steps = len(heads) + beyond
        bounds = [limits.tokens.chain, limits.tokens.session]
        bound = min((bound for bound in bounds if bound is not None), default=None)
        least = sum(heads) + beyond * min(heads, default=0)
        if bound is not None and least > bound:
            return f"its {steps} steps need at least {least} tokens, the budget is {bound}"
        budget = self._room.control.budget
        return budget.find_excess_of_steps(steps) if budget else ""

    async def _check_rules(self, draft: PlanDraft, planner: Member) -> Findings:
        """Return the rules that looked at a plan, and those that refuse it."""
        book = self._control.rulebook
        if book is None or draft.problem or not (checks := book.of("plan", planner.id)):
            return Findings((), ())
        steps = [step.model_dump() for step in draft.steps]
        decision = {
            "kind": "plan",
            "agent": planner.id,
            "mode": draft.mode,
            "confidence": draft.confidence,
            "mentions": list(dict.fromkeys(step.agent for step in draft.steps)),
            "steps": steps,
            "text": json.dumps({"mode": draft.mode, "steps": steps}, ensure_ascii=False),
        }
        return await reply_rules.look(checks, decision)

    async def _note_rules(self, plan: PlanMade, chain: Chain) -> None:
        """Write what rules decided about a plan, unless it is written."""
        journal = self._room.journal
        for kind in _find_unwritten(plan, chain):
            if kind is None:
                broken = [BrokenRule(*pair) for pair in plan.broken.items()]
                findings = Findings(plan.rules, broken)
                reply_rules.write_decision(self._room, "plan", plan.agent, findings)
            else:
                error = plan.broken[kind]
                journal.write(RuleBroken, reply=0, agent=plan.agent, rule=kind, error=error)

    def _describe(self, draft: PlanDraft, chain: Chain) -> dict[str, Any]:
        """Return the fields of the event: of the plan, or of the work of one agent without it."""
        phases, plan = draft.phases, {}
        if draft.problem:
            agent = find_fallback(self._room.scene.team, self._control.unavailable())
            message = chain.opening.message.content
            phases = plan_texts.make_single(agent, message) if agent else []
        else:
            control = self._room.scene.fold.control
            labels = control.checkpoints if control else {}
            plan = {
                "checkpoints": make_labels(draft.checkpoints, labels, chain.number),
                "estimated_steps": draft.estimated_steps,
                "estimated_duration": draft.estimated_duration,
                "risks": list(draft.risks),
            }
        return {
            "mode": "single" if draft.problem else draft.mode,
            "reasoning": draft.reasoning,
            "confidence": draft.confidence,
            "phases": [phase.model_dump() for phase in phases],
            **plan,
        }

    # Approval.

    def _await_person(self, plan: PlanMade, chain: Chain, state: ControlState) -> rules.Step | None:
        """Return the step of a plan that a person approves; None once it is approved."""
        request = _find_request(plan, state)
        if request is None:
            return rules.Prepare(partial(self._request_approval, plan))
        decided = request.decided
        if decided is None:
            detail = f"request {request.asked.request} of {plan.agent}: {PLAN}"
            return rules.Pause("approval", detail)
        if decided.decision == "approved":
            return None
        is_last = plan.replan >= self._room.scene.team.config.replans
        if decided.decision == "expired" or is_last:
            return rules.FinishChain("cancelled", ())
        because = f": {decided.because}" if decided.because else ""
        failed = [f"{decided.by} rejected the plan{because}"]
        return self._asked(chain, failed, replan=plan.replan + 1)

    async def _request_approval(self, plan: PlanMade) -> None:
        steps = [f"{step.id} @{step.agent}: {step.task}" for _, step in plan.steps]
        self._control.approvals.request_plan(plan.agent, PLAN, plan.mode, steps)


def _import_loop() -> Any:
    return import_module("arena_cli.engine.planner_loop")


def _has_loop(planner: Member) -> bool:
    """Return True if the planner has tools, and arena runs their loop."""
    return planner.profile.acts and find_tool_way(planner.profile) == "loop"


def _list_held(state: ControlState) -> str:
    """Return the acts of the planner about which a person decides, "" if there are none."""
    return ", ".join(
        f"request {request.asked.request} of {request.asked.agent}: {request.asked.action}"
        for request in state.pending
        if not request.asked.reply and request.asked.action != PLAN
    )


def _find_request(plan: PlanMade, state: ControlState) -> Request | None:
    """Return the request for the approval of a plan."""
    for request in state.requests.values():
        asked = request.asked
        if (asked.action, asked.reply) == (PLAN, 0) and asked.seq > plan.seq:
            return request
    return None


def _find_unwritten(plan: PlanMade, chain: Chain) -> list[str | None]:
    """Return the broken rules of a plan without an event; None: the decision itself."""
    if not plan.rules:
        return []
    written: set[str | None] = set()
    for event in chain.events:
        if event.seq > plan.seq and isinstance(event, RuleBroken) and not event.reply:
            written.add(event.rule)
        if event.seq > plan.seq and isinstance(event, Decision) and event.kind == "plan":
            written.add(None)
    return [kind for kind in (*plan.broken, None) if kind not in written]
