"""Keep a team within its budget: estimate each call before it is made, and reserve its estimate.

What counts is all that a chain causes: replies with their retries, and the calls for the team's
memory and control. The sums are those of the transcripts (`transcript.spending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from arena_cli.adapters import pricing
from arena_cli.context import tokens
from arena_cli.engine import plan, rules
from arena_cli.engine.inbox import ControlRequest
from arena_cli.engine.plan import Planned, Room
from arena_cli.errors import UsageError
from arena_cli.protocol import Usage
from arena_cli.transcript.control_events import BudgetRaised, Degraded, find_control
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import FREE_KINDS, Reasons, SideEvent
from arena_cli.transcript.spending import (
    ALL,
    Running,
    Spent,
    SpentByAgent,
    TranscriptSpending,
    WorkspaceSpending,
    count_tokens,
    format_amount,
    sum_chain,
)
from arena_cli.util.clock import format_timestamp
from arena_cli.workspace import agents
from arena_cli.workspace.control import AgentBudget, BudgetScope, BudgetUnit, ModelStep
from arena_cli.workspace.control import Budget as Limits
from arena_cli.workspace.models import Member, ModelFacts

REASON = "budget"
"""The reason of agents that are passed over, and of pauses."""

NO_MAY_REPLY, SMALLER_CONTEXT, CONCISE = "no_may_reply", "smaller_context", "concise"
_MODEL = "model: "
_ONE_TOKEN = Usage(input_tokens=1, output_tokens=1)
_QUESTION_TOKENS = 120  # for what stands around a question's text in a prompt


class Excess(NamedTuple):
    """A bound that a call would pass: the sum with the call, and the bound.

    `agent` is the agent whose own bound it is, `ALL` for the team's. `is_alone`: the call exceeds
    the bound even if nothing else was used.
    """

    agent: str
    scope: BudgetScope
    unit: BudgetUnit
    used: float
    bound: float
    is_alone: bool

    def __str__(self) -> str:
        owner = f"{self.agent}, " if self.agent else ""
        used = format_amount(self.used, self.unit)
        bound = format_amount(self.bound, self.unit)
        return f"{owner}{self.scope}: {used} of {bound}{' tokens' * (self.unit == 'tokens')}"


class UnreportedCost(NamedTuple):
    """What a question used that no event reports yet; `seq` is that of the last event then."""

    agent: str
    spent: Spent
    seq: int


class Reserved(NamedTuple):
    """What a running call may use: that of its earlier attempts, and its estimate.

    The estimate counts twice for the calls that run at the same time. So a bound holds within the
    error of one estimate, even if all of them use up to twice their estimates.
    """

    used: Spent
    estimate: Spent

    @property
    def most(self) -> Spent:
        """What is kept free for the call."""
        return self.used.plus(self.estimate).plus(self.estimate)


class BudgetGuard:
    """The budget of one session; `excess` is the bound that no call of a phase fits into."""

    def __init__(self, room: Room, limits: Limits) -> None:
        self._room = room
        self._limits = limits
        self.excess = ""
        self._reserved: dict[str, Reserved] = {}
        self._questions: list[UnreportedCost] = []
        self._own: TranscriptSpending | None = None
        self._others: WorkspaceSpending | None = None
        self._members = {
            member.id: member for member in (*room.scene.team.agents, *room.memory_agents)
        }

    # Prices.

    def check_prices(self) -> None:
        """Check that the cost of each call is known, if it has a bound. Raises UsageError."""
        check_prices(self._limits, self._members.values(), self._room.models)

    def _price(self, agent: str, usage: Usage) -> float:
        """Return the cost of what an agent used; where it was not reported, by its settings."""
        if usage.cost_usd is not None:
            return usage.cost_usd
        member = self._members.get(agent) or self._room.config.find_agent(agent)
        if member is None or not self._limits.has_unit("usd"):
            return 0.0
        return self._highest_cost(member, usage)

    def _highest_cost(self, member: Member, usage: Usage) -> float:
        """Return the cost of a call by the most expensive adapter that may answer it."""
        adapters = agents.list_adapters(member.profile.adapter)
        models = self._room.models
        return max(_estimate_cost(usage, settings, models) or 0.0 for settings in adapters)

    def _estimate(self, member: Member | None, input_tokens: int, output_tokens: int) -> Spent:
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self._highest_cost(member, usage) if member and self._limits.has_unit("usd") else 0.0
        return Spent(count_tokens(usage), cost)

    # Calls.

    def admit(self, planned: Planned, used: Sequence[Usage] | None = None) -> bool:
        """Reserve the estimate of a call; return False if it does not fit.

        `used` is what earlier attempts of the running reply used, if it is one. The plan is changed
        if the team works with less; it is `refused` if the call can never be made.
        """
        chain = self._open()
        before = self._add_up(planned.agent, used or ())
        self._reserved.pop(planned.agent, None)
        self._apply_steps(planned, chain)
        while excess := self._find_excess(planned, before):
            # Others that run now may leave enough.
            step = None if self._reserved else self._take_step(chain, planned.agent, excess)
            if step is None:
                break
            if step == NO_MAY_REPLY and planned.phase == "B":
                planned.refused = f"the budget is used up: {excess}"
                return used is None
            self._apply_steps(planned, chain)
        if excess is None:
            self._reserved[planned.agent] = Reserved(before, self._estimate_of(planned))
            return True
        if used is not None:
            self._reserved[planned.agent] = Reserved(before, Spent())
            return False
        if excess.is_alone and not self._next_step(chain, planned.agent):
            planned.refused = f"the call alone exceeds the budget: {excess}"
            return True
        self.excess = self.excess or f"{excess}, with the next call of {planned.agent}"
        return False

    def record(self, planned: Planned, used: Sequence[Usage]) -> None:
        """Count what a running reply has used so far; none of its calls runs now."""
        self._reserved[planned.agent] = Reserved(self._add_up(planned.agent, used), Spent())

    def release(self, agent: str) -> None:
        """Release what is reserved for an agent's reply: it has ended."""
        self._reserved.pop(agent, None)

    def take_excess(self) -> str:
        """Return the bound that no call of the last phase fitted into, once."""
        excess, self.excess = self.excess, ""
        return excess

    def limit_candidates(
        self, asked: Sequence[str], passed_over: Reasons, chain: Chain
    ) -> tuple[list[str], Reasons]:
        """Return the agents that the budget allows to be asked, and those that are passed over."""
        while asked:
            unavailable = self._list_excluded(asked, chain)
            if not unavailable:
                break
            room = self._room
            earlier = [agent for agent, why in passed_over.items() if why.reason == REASON]
            unavailable |= dict.fromkeys(earlier, REASON) | room.control.get(room).unavailable()
            asked, passed_over = rules.choose_candidates(
                chain.turns[-1], chain, room.scene.team, room.roster, unavailable
            )
        return list(asked), passed_over

    def _list_excluded(self, asked: Sequence[str], chain: Chain) -> dict[str, str]:
        """Return the agents that may not be asked in phase B, with the reason.

        An agent that does not fit its own bounds is one. If the team works without phase B, or must
        do so for these agents, all are.
        """
        if NO_MAY_REPLY in _steps(chain):
            return dict.fromkeys(self._members, REASON)
        total = Spent()
        for agent in asked:
            planned = plan.plan(agent, "B", chain, self._room.scene)
            self._apply_steps(planned, chain)
            if (excess := self._find_excess(planned, Spent(), (agent,))) is not None:
                return {agent: REASON}
            excess = self._find_excess(planned, total, (ALL,))
            if excess is not None and self._next_step(chain, agent) == NO_MAY_REPLY:
                self._take_step(chain, agent, excess)
                return dict.fromkeys(self._members, REASON)
            total = total.plus(self._estimate_of(planned))
        return {}

    # Questions for the team's memory and control.

    def admit_question(self, member: Member, text: str) -> str:
        """Reserve the estimate of a question; return the bound that it would pass, else ""."""
        role_tokens = tokens.estimate(member.role_prompt)
        excess = self.admit_call(member, tokens.estimate(text) + role_tokens + _QUESTION_TOKENS)
        return str(excess) if excess else ""

    def admit_call(self, member: Member, input_tokens: int) -> Excess | None:
        """Reserve the estimate of a call that is no reply; return the bound that it would pass."""
        most = member.profile.context.max_output_tokens
        estimate = self._estimate(member, input_tokens, most)
        excess = self._compare(estimate, Spent(), (ALL, member.id))
        if excess is None:
            self._reserved[_question_key(member)] = Reserved(Spent(), estimate)
        return excess

    def find_excess_of_steps(self, count: int) -> str:
        """Return why that number of replies exceeds the dollars that are left, "" if it does not.

        It is an estimate: a reply costs what the session has cost so far, by its replies.
        """
        replies = self._room.scene.fold.reply
        if not replies or not self._limits.has_unit("usd"):
            return ""
        average, sums = self._follow_own().session.spent(ALL).usd / replies, self._sum_up()
        for scope, unit, given in self._limits.list_bounds():
            if unit != "usd" or scope == "turn":
                continue
            left = given + self._raised(scope, unit) - sums[scope].spent(ALL).usd
            if count * average > left:
                cost, rest = (
                    format_amount(each, "usd") for each in (count * average, max(left, 0))
                )
                each = format_amount(average, "usd")
                return (
                    f"its {count} steps cost about {cost}, an estimate: a reply has cost {each} so "
                    f"far; the budget of the {scope} has {rest} left"
                )
        return ""

    def settle_question(self, member: Member, usage: Usage | None) -> None:
        """Replace the estimate of a question by what it used."""
        self._reserved.pop(_question_key(member), None)
        if usage is not None:
            spent = self._add_up(member.id, [usage])
            self._questions.append(UnreportedCost(member.id, spent, self._room.scene.fold.seq))

    def _list_unreported(self, chain: Chain | None) -> Iterator[UnreportedCost]:
        """Yield the questions whose events are not written yet."""
        if self._questions:
            begun = chain.opening.seq if chain else 0
            last: dict[str, int] = {}
            for event in chain.events if chain else ():
                if isinstance(event, SideEvent) and (call := event.agent_call):
                    last[call.agent] = event.seq
            self._questions = [
                question
                for question in self._questions
                if max(last.get(question.agent, 0), begun) <= question.seq
            ]
        yield from self._questions

    # Bounds.

    def raise_by(self, request: ControlRequest) -> None:
        """Raise the bounds by what a person allows. Raises UsageError or DiskRefused."""
        amounts: tuple[tuple[BudgetUnit, float], ...]
        amounts = (("tokens", request.tokens), ("usd", request.usd))
        for unit, amount in amounts:
            if amount and not self._limits.has_unit(unit):
                raise UsageError(
                    f"the team's budget has no bound in {unit}",
                    f"`budget: {{{unit}: ...}}` of its config sets one.",
                )
        self._room.journal.write(
            BudgetRaised, by=request.by, tokens=request.tokens, usd=request.usd
        )

    def _open(self) -> Chain:
        chain = self._room.scene.fold.open
        assert chain is not None
        return chain

    def _add_up(self, agent: str, usages: Sequence[Usage]) -> Spent:
        total = Spent()
        for usage in usages:
            total = total.plus(Spent(count_tokens(usage), self._price(agent, usage)))
        return total

    def _estimate_of(self, planned: Planned) -> Spent:
        return self._estimate(planned.member, planned.input_tokens, planned.input.max_output_tokens)

    def _find_excess(
        self, planned: Planned, before: Spent, owners: tuple[str, ...] | None = None
    ) -> Excess | None:
        owners = owners or (ALL, planned.agent)
        return self._compare(self._estimate_of(planned), before, owners)

    def _compare(self, estimate: Spent, before: Spent, owners: tuple[str, ...]) -> Excess | None:
        """Return a bound of these owners that a call would pass; `ALL` owns the team's.

        One that the call exceeds alone comes first. `before` is used, but not written yet.
        """
        first: Excess | None = None
        sums: dict[BudgetScope, SpentByAgent] | None = None
        for owner in owners:
            limits = self._limits if owner == ALL else self._limits.agents.get(owner)
            for scope, unit, given in limits.list_bounds() if limits else ():
                bound = given + self._raised(scope, unit)
                call = estimate.of_unit(unit)
                if sums is None:
                    sums = self._sum_up()
                used = sums[scope].spent(owner).plus(before).of_unit(unit)
                used += self._running(owner).of_unit(unit)
                if used + call > bound:
                    is_alone = call > bound
                    excess = Excess(owner, scope, unit, used + call, bound, is_alone)
                    if is_alone:
                        return excess
                    first = first or excess
        return first

    def _running(self, owner: str) -> Spent:
        """Return what is reserved by the calls that run now, or used and not written yet."""
        total = Spent()
        for key, reserved in self._reserved.items():
            if owner in (ALL, key.strip()):
                total = total.plus(reserved.most)
        for question in self._list_unreported(self._room.scene.fold.open):
            if owner in (ALL, question.agent):
                total = total.plus(question.spent)
        return total

    def _raised(self, scope: BudgetScope, unit: BudgetUnit) -> float:
        fold = self._room.scene.fold
        if scope in ("session", "day"):
            control = fold.control
            if control is None:
                return 0
            return control.raised_tokens if unit == "tokens" else control.raised_usd
        raised = find_control(fold.open).raised
        return sum(event.tokens if unit == "tokens" else event.usd for event in raised)

    def _sum_up(self) -> dict[BudgetScope, SpentByAgent]:
        """Return what was used in each scope that has a bound."""
        rules = (self._limits, *self._limits.agents.values())
        scopes = {scope for own in rules for scope, _, _ in own.list_bounds()}
        chain = self._room.scene.fold.open
        sums: dict[BudgetScope, SpentByAgent] = {}
        sums["turn"], sums["chain"] = sum_chain(chain.events if chain else (), self._price)
        if scopes & {"session", "day"}:
            session = self._follow_own()
            sums["session"] = session.session
            if "day" in scopes:
                sums["day"] = self._sum_day(session)
        return sums

    def _follow_own(self) -> TranscriptSpending:
        if self._own is None:
            self._own = TranscriptSpending(self._room.journal.log.path, self._price)
        self._own.follow()
        return self._own

    def _sum_day(self, own: TranscriptSpending) -> SpentByAgent:
        """Return what all sessions used on the UTC day of the session's clock."""
        room = self._room
        now = room.clock.now().astimezone(UTC)
        day = format_timestamp(now)[:10]
        total = SpentByAgent()
        total.add_all(own.of_day(day))
        if room.sessions is None:
            return total
        if self._others is None:
            self._others = WorkspaceSpending(room.sessions, room.scene.session_id, self._price)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for session in self._others.follow(midnight):
            total.add_all(session.of_day(day))
            for running in session.running.values():
                if self._may_run(running, now):
                    total.add(running.agent, self._estimate_running(running))
        return total

    def _may_run(self, running: Running, now: datetime) -> bool:
        """Return True if a reply of another session may still run, by its time limit."""
        member = self._members.get(running.agent)
        limit = plan.limit_s(member, self._room.scene.team)
        try:
            started = datetime.fromisoformat(running.ts)
        except ValueError:
            return False
        return abs(now - started) <= timedelta(seconds=limit)

    def _estimate_running(self, running: Running) -> Spent:
        member = self._members.get(running.agent)
        most = member.profile.context.max_output_tokens if member else 0
        return self._estimate(member, running.input_tokens, most)

    # Working with less.

    def _apply_steps(self, planned: Planned, chain: Chain) -> None:
        """Change a plan by the steps that the team takes to work with less."""
        steps = _steps(chain)
        if not steps or planned.member is None:
            return
        scene = self._room.scene
        is_concise = CONCISE in steps
        most = planned.most
        if SMALLER_CONTEXT in steps:
            half = round(scene.room(planned.agent) / 2 / scene.limits(planned.agent).factor)
            most = half if most is None else min(most, half)
        if (most, is_concise) != (planned.most, planned.is_concise):
            again = plan.plan(
                planned.agent, planned.phase, chain, scene, most=most, is_concise=is_concise
            )
            planned.take_input(again)
        for step in steps:
            if step.startswith(_MODEL):
                self._change_model(planned, step.removeprefix(_MODEL))

    def _change_model(self, planned: Planned, model: str) -> None:
        assert planned.member is not None
        cheaper = _replace_model(planned.member, model, self._room.models)
        if cheaper is not None and cheaper != planned.member:
            planned.member = cheaper
            planned.input = planned.input.afresh()  # its own session is another model's

    def _next_step(self, chain: Chain, agent: str) -> str | None:
        """Return the next step of working with less; None if all are used up.

        A model that an agent cannot take is no step for its calls.
        """
        if self._limits.on_exceed != "degrade":
            return None
        taken, member = _steps(chain), self._members.get(agent)
        for step in self._limits.degrade:
            name: str
            if not isinstance(step, ModelStep):
                name = step
            elif member and _replace_model(member, step.model, self._room.models):
                name = f"{_MODEL}{step.model}"
            else:
                continue
            if name not in taken:
                return name
        return None

    def _take_step(self, chain: Chain, agent: str, excess: Excess) -> str | None:
        """Take the next step of working with less; None if all are used up."""
        step = self._next_step(chain, agent)
        if step is not None:
            detail = f"{excess}, with the next call of {agent}"
            self._room.journal.write(Degraded, chain=chain.number, step=step, detail=detail)
        return step


def _steps(chain: Chain) -> list[str]:
    return find_control(chain).degraded


def _question_key(member: Member) -> str:
    """Return the key of a question's reservation: an agent may be asked while it replies."""
    return f"{member.id} "


def check_prices(
    limits: Limits, members: Iterable[Member], models: Mapping[str, ModelFacts]
) -> None:
    """Check that the cost of each call of these agents is known, if it has a bound.

    Raises UsageError.
    """
    for member in members:
        own = limits.agents.get(member.id)
        if not any(bounds and _has_usd(bounds) for bounds in (limits, own)):
            continue
        for candidate in (member, *_list_cheaper(limits, member, models)):
            for settings in agents.list_adapters(candidate.profile.adapter):
                if _estimate_cost(_ONE_TOKEN, settings, models) is None:
                    raise _unpriced_error(member.id, settings)


def _estimate_cost(
    usage: Usage, settings: Mapping[str, object], models: Mapping[str, ModelFacts]
) -> float | None:
    if settings["type"] in FREE_KINDS:
        return 0.0
    return pricing.estimate_cost(usage, settings, models)


def _replace_model(member: Member, model: str, models: Mapping[str, ModelFacts]) -> Member | None:
    """Return the agent with another model; None if its adapter cannot take it."""
    adapter = member.profile.adapter
    if not pricing.offers_model(adapter, model, models):
        return None
    adapter = {**adapter, "model": model}
    if adapter.get("pricing") != "free":
        adapter.pop("pricing", None)  # it is the other model's
    profile = member.profile.model_copy(update={"adapter": adapter})
    return replace(member, profile=profile)


def _list_cheaper(
    limits: Limits, member: Member, models: Mapping[str, ModelFacts]
) -> Iterator[Member]:
    """Yield the agent with each model to which the team degrades."""
    for step in limits.degrade if limits.on_exceed == "degrade" else ():
        if isinstance(step, ModelStep) and (other := _replace_model(member, step.model, models)):
            yield other


def _has_usd(limits: AgentBudget) -> bool:
    return any(unit == "usd" for _, unit, _ in limits.list_bounds())


def _unpriced_error(agent: str, settings: Mapping[str, object]) -> UsageError:
    model = settings.get("model")
    kind = settings["type"]
    if not model:
        return UsageError(
            f"the budget in usd cannot be kept: {agent} ({kind}) names no model, so its calls "
            "have no known price",
            "Name its model in `adapter.model`, or set a budget in tokens.",
        )
    return UsageError(
        f"the budget in usd cannot be kept: the price of {model}, the model of {agent}, is unknown",
        f"State it in arena.yaml: `models: {{{model}: {{input_per_m: ..., output_per_m: ...}}}}`, "
        "or in `adapter.pricing` of the agent (`free`, if it costs nothing).",
    )
