"""The supervisor of a team: it decides which agents reply in a turn (docs/guides/control.md).

It is asked before each turn of a chain, or in the mode `mixed` only if no new message mentions an
agent or a person. The usable parts of its answer are used; otherwise the free rules decide, and the
event `supervised` has the reason. Without a supervisor, another plan is asked of the team's default
responders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from arena_cli.context import window
from arena_cli.engine import plan, rules, side_calls
from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Room
from arena_cli.engine.reply_rules import BrokenRule, Findings, write_decision
from arena_cli.protocol import parse_decision, parse_seq
from arena_cli.transcript.control_events import ControlState, Decision, Supervised, find_control
from arena_cli.transcript.conversation import FAILED, Chain, Turn
from arena_cli.transcript.events import Order
from arena_cli.util.language import Texts
from arena_cli.util.text import cut_text, escape_line
from arena_cli.workspace.mentions import Roster, resolve_mentions
from arena_cli.workspace.models import Member, Team

REPLAN_NOTICE = "replan"
"""The `notice` in the metadata of the system message that asks for another plan."""

LONGEST_BRIEF = 4_000
"""Characters of a brief that its agent is shown."""

_LONGEST_REASON = 500
_LONGEST_NAME = 60
_MOST_NAMES = 100


class SupervisorAnswer(NamedTuple):
    """An answer as read: `ignored` are the parts that cannot be used.

    `problem` is the reason why nothing can be used, or empty.
    """

    should_reply: list[str]
    reason: str = ""
    order: Order = "parallel"
    briefs: dict[str, str] = {}
    done: bool = False
    ignored: Sequence[str] = ()
    problem: str = ""


def read_answer(
    text: str, team: Team, roster: Roster, unavailable: Mapping[str, str]
) -> SupervisorAnswer:
    """Read the last decision in a text: a JSON object, in a fence or between words too.

    Names are resolved like mentions. `unavailable` are agents that cannot be called now, with the
    reasons.
    """
    fields = side_calls.read_object(text, ("should_reply", "done"))
    if fields is None:
        return SupervisorAnswer([], problem="its answer holds no decision in JSON")
    return _DecisionReader(team, roster, unavailable).read(fields)


class _DecisionReader:
    """Reads one decision, and notes what it ignores."""

    def __init__(self, team: Team, roster: Roster, unavailable: Mapping[str, str]) -> None:
        assert team.supervisor is not None
        self._supervisor = team.supervisor.id
        self._team = team
        self._roster = roster
        self._unavailable = unavailable
        self._ignored: list[str] = []

    def read(self, fields: Mapping[str, Any]) -> SupervisorAnswer:
        """Return the decision in the fields of a JSON object."""
        done = False
        if "done" in fields:
            read_done = parse_decision(fields["done"])
            self._ignore_unless(read_done is not None, "`done` is neither true nor false")
            done = read_done or False
        names = self._read_names(fields.get("should_reply", []))
        agents = self._find_agents(names or [])
        problem = ""
        if not done and (names is None or "should_reply" not in fields):
            problem = "its answer has no list `should_reply`"
        elif not done and names and not agents:
            problem = f"it names no agent that can be called: {'; '.join(self._ignored)}"
        order = self._read_order(fields.get("order"))
        briefs = self._read_briefs(fields.get("briefs"), agents)
        reason = fields.get("reason")
        reason = cut_text(reason.strip(), _LONGEST_REASON) if isinstance(reason, str) else ""
        if problem:
            return SupervisorAnswer([], reason, problem=problem)
        agents = [] if done else agents
        return SupervisorAnswer(agents, reason, order, briefs, done, self._ignored)

    def _read_order(self, value: Any) -> Order:
        if value == "sequence":
            return "sequence"
        is_known = value is None or value in ("", "parallel")
        self._ignore_unless(is_known, "`order` is neither parallel nor sequence")
        return "parallel"

    def _read_names(self, value: Any) -> list[str] | None:
        """Return the names in a list, or one alone; None if it is neither."""
        values = [value] if isinstance(value, str) and value.strip() else value
        if not isinstance(values, list):
            return None
        names = [name for name in values[:_MOST_NAMES] if isinstance(name, str)]
        self._ignore_unless(
            len(names) == len(values), f"{len(values) - len(names)} entries of `should_reply`"
        )
        return names or (None if values else [])

    def _find_agents(self, names: Iterable[str]) -> list[str]:
        agents: dict[str, None] = {}
        for name in names:
            resolved = resolve_mentions([name], self._roster, author="", opener="user").ids
            shown = f"`{escape_line(cut_text(name, _LONGEST_NAME))}`"
            problems = {agent: self._explain(agent) for agent in resolved}
            usable = [agent for agent, problem in problems.items() if not problem]
            agents.update(dict.fromkeys(usable))
            if not usable:
                problem = next(iter(problems.values()), "is no member of the team")
                self._ignored.append(f"{shown} {problem}")
        return list(agents)

    def _explain(self, agent: str) -> str:
        """Return the reason why an agent cannot be called; empty if it can."""
        if agent == self._supervisor:
            return "is the supervisor itself"
        if self._team.member(agent) is None:
            return "is no agent"
        if agent in self._unavailable:
            return f"cannot be called now ({self._unavailable[agent]})"
        return ""

    def _read_briefs(self, value: Any, agents: Sequence[str]) -> dict[str, str]:
        briefs: dict[str, str] = {}
        self._ignore_unless(value is None or isinstance(value, dict), "`briefs` is no mapping")
        for name, text in value.items() if isinstance(value, dict) else ():
            resolved = resolve_mentions([str(name)], self._roster, author="", opener="user").ids
            named = [agent for agent in resolved if agent in agents]
            shown = f"the brief for `{escape_line(cut_text(str(name), _LONGEST_NAME))}`"
            if not named or not isinstance(text, str) or not text.strip():
                self._ignored.append(shown)
                continue
            if len(text) > LONGEST_BRIEF:
                self._ignored.append(f"{shown} beyond {LONGEST_BRIEF} characters")
            briefs.update(dict.fromkeys(named, cut_text(text.strip(), LONGEST_BRIEF)))
        return briefs

    def _ignore_unless(self, holds: bool, part: str) -> None:
        if not holds:
            self._ignored.append(part)


def find_problems(turn: Turn, team: Team) -> list[str]:
    """Return what of a turn requires another plan: failures, and notes that replies ignored."""
    problems = []
    for done in turn.results():
        code = done.error_code or done.status
        if done.status in FAILED:
            strategy = rules.choose_strategy(team.member(done.agent), team, code)
            problems += [f"{done.agent} failed: {code}"] if strategy == "replan" else []
    problems += [
        f"{event.agent} ignored the note {event.note}: {event.reason}"
        for event in turn.deviations
        if event.level == "replan_required"
    ]
    return problems


class Supervisor:
    """Decides about the turns of a session: its agent does, or else the default responders."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._advisor = side_calls.Advisor(room)

    def next_step(
        self,
        step: rules.Step,
        chain: Chain,
        state: ControlState,
        told: Sequence[str],
        unavailable: Mapping[str, str],
    ) -> rules.Step:
        """Return the step as the supervisor changes it, or the one that asks it.

        `told` are agents that are called in any case: those that a person answered.
        """
        team = self._room.scene.team
        if team.supervisor is None:
            return self._replan(step, chain)
        decision = state.supervised.get(self._room.scene.fold.turn + 1)
        if decision is not None and not _has_news(decision, chain, state):
            if _is_unnoted(decision, chain):
                return rules.Prepare(partial(self._note, decision))
            return _apply(decision, step, chain, team, told)
        if (pause := self._advisor.take_pause()) is not None:
            return pause
        problems = self._find_problems(chain, state)
        if not _is_asked(step, chain, team, problems):
            return step
        return rules.Prepare(partial(self._ask, step, chain, problems, unavailable))

    def _find_problems(self, chain: Chain, state: ControlState) -> list[str]:
        """Return what requires another plan, unless the chain was planned often enough."""
        team = self._room.scene.team
        replans = sum(decision.replan for decision in state.supervised.values())
        if not chain.turns or replans >= team.config.replans:
            return []
        return find_problems(chain.turns[-1], team)

    async def _ask(
        self,
        step: rules.Step,
        chain: Chain,
        problems: Sequence[str],
        unavailable: Mapping[str, str],
    ) -> None:
        """Ask the supervisor about the next turn, and write its decision."""
        room = self._room
        scene, team = room.scene, room.scene.team
        supervisor = team.supervisor
        assert supervisor is not None
        trigger = _list_trigger(step, chain)
        if scene.recollection is not None:
            scene.recollection.follow()
            if scene.recollection.waits:
                about = "\n".join(chain.messages[name].content for name in trigger)
                await asyncio.to_thread(scene.recollection.find, [about])
        due = (*step.must, *step.deferred) if isinstance(step, rules.StartTurn) else ()
        supervision = plan.describe_chain(
            chain, team, trigger, due=due, problems=problems, unavailable=unavailable
        )
        built = plan.plan_supervision(chain, scene, trigger, supervision)
        answer = await self._call(supervisor, built, chain)
        if answer is None:
            return
        decision = SupervisorAnswer([], problem=answer.error)
        if not answer.error:
            decision = read_answer(answer.text, team, room.roster, unavailable)
        # An escape in JSON may have hidden a secret from the redaction of the text.
        redact = room.runtime.redactor.value_or_nothing
        room.journal.write(
            Supervised,
            turn=scene.fold.turn + 1,
            trigger=list(trigger),
            agent=supervisor.id,
            should_reply=decision.should_reply,
            reason=redact(decision.reason),
            order=decision.order,
            briefs={agent: redact(brief) for agent, brief in decision.briefs.items()},
            done=decision.done,
            ignored=redact(list(decision.ignored)),
            fallback=redact(decision.problem),
            replan=bool(problems),
            attempts=answer.attempts,
            usage=answer.usage,
            metadata=answer.describe(decision.problem),
        )

    async def _call(
        self, supervisor: Member, built: window.Built, chain: Chain
    ) -> side_calls.AgentAnswer | None:
        """Call the supervisor; None if a person or the budget stops the call."""
        steered = len(find_control(chain).steering)
        ask = partial(side_calls.consult, supervisor, built.input, built.input_tokens, self._room)
        is_stopped = partial(self._is_overtaken, chain, steered)
        return await self._advisor.consult(supervisor, built.input_tokens, ask, is_stopped)

    def _is_overtaken(self, chain: Chain, steered: int) -> bool:
        """Return True if a person steered the chain more often than that, or stops it."""
        control = self._room.control.current
        is_steered = len(find_control(chain).steering) > steered
        return is_steered or (control is not None and control.is_stopping)

    async def _note(self, decision: Supervised) -> None:
        """Write that the supervisor looked at the routing of a turn (`decision`)."""
        broken = [BrokenRule("", decision.fallback)] if decision.fallback else []
        write_decision(self._room, "route", decision.agent, Findings((), broken))

    # Without a supervisor.

    def _replan(self, step: rules.Step, chain: Chain) -> rules.Step:
        """Return a turn of the default responders if the last turn requires another plan."""
        team = self._room.scene.team
        if not chain.turns or not isinstance(step, (rules.StartTurn, rules.FinishChain)):
            return step
        turn = chain.turns[-1]
        responders = rules.list_default_responders(team)
        is_over = rules.aborted(turn, team) or turn.started.depth >= team.config.chain_depth_limit
        if is_over or not responders or turn.finished is None:
            return step
        notices = [
            message.id
            for message in chain.messages.values()
            if message.author_type == "system" and message.metadata.get("notice") == REPLAN_NOTICE
        ]
        if notices and parse_seq(notices[-1]) > turn.finished.seq:
            return _start_again(step, chain, team, responders, notices[-1])
        problems = find_problems(turn, team)
        if not problems or len(notices) >= team.config.replans:
            return step
        return rules.Prepare(partial(self._tell_problems, problems))

    async def _tell_problems(self, problems: Sequence[str]) -> None:
        """Write the system message that asks for another plan."""
        say = Texts(self._room.language)
        lines = [f"- {problem}" for problem in problems]
        lines = [say("The last turn did not work out:"), *lines, say("Find another way.")]
        write_notice(self._room, "\n".join(lines), {"notice": REPLAN_NOTICE})


def _has_news(decision: Supervised, chain: Chain, state: ControlState) -> bool:
    """Return True if a person's message joined the chain that the supervisor has not been shown."""
    known = {*decision.trigger, *(name for turn in chain.turns for name in turn.started.trigger)}
    return not known.issuperset(state.steering)


def _is_unnoted(decision: Supervised, chain: Chain) -> bool:
    """Return True if the event that counts the decision is missing, as after a crash."""
    for event in reversed(chain.events):
        if event is decision:
            return True
        if isinstance(event, Decision) and event.kind == "route":
            return False
    return False


def _is_asked(step: rules.Step, chain: Chain, team: Team, problems: Sequence[str]) -> bool:
    """Return True if the supervisor is asked about this step."""
    if chain.limit_told or (chain.turns and rules.aborted(chain.turns[-1], team)):
        return isinstance(step, rules.StartTurn)
    is_free = team.config.mode == "mixed" and not problems
    return not is_free or rules.mentions_no_agent(chain, _list_trigger(step, chain))


def _list_trigger(step: rules.Step, chain: Chain) -> tuple[str, ...]:
    if isinstance(step, rules.StartTurn):
        return step.trigger
    return rules.list_new_replies(chain)


def _apply(
    decision: Supervised, step: rules.Step, chain: Chain, team: Team, told: Sequence[str]
) -> rules.Step:
    """Return the step that a decision leads to."""
    if decision.fallback:
        return step
    due = dict.fromkeys(told)
    if decision.should_reply and not decision.done:
        due.update(dict.fromkeys(chain.turns[-1].started.deferred if chain.turns else ()))
        due.update(dict.fromkeys(decision.should_reply))
    if not due:
        end, awaits = rules.decide_end(chain, team, is_limited=bool(chain.limits_told))
        return rules.FinishChain(end, awaits)
    agents = tuple(due)
    depth = chain.turns[-1].started.depth + 1 if chain.turns else 0
    mentioned_by: dict[str, list[str]] = {}
    if isinstance(step, rules.StartTurn):
        depth = step.depth
        mentioned_by = {name: by for name, by in step.mentioned_by.items() if name in due}
    elif depth > team.config.chain_depth_limit:
        if not chain.limit_told:
            return rules.TellLimit(agents)
        end, awaits = rules.decide_end(chain, team, is_limited=True)
        return rules.FinishChain(end, awaits)
    for agent in decision.should_reply:
        mentioned_by[agent] = [*mentioned_by.get(agent, []), decision.agent]
    places = team.config.max_responders
    return rules.StartTurn(
        depth,
        agents[:places],
        agents[places:],
        _list_trigger(step, chain),
        mentioned_by,
        order=decision.order,
    )


def _start_again(
    step: rules.StartTurn | rules.FinishChain,
    chain: Chain,
    team: Team,
    responders: Sequence[str],
    notice: str,
) -> rules.StartTurn:
    """Return the turn in which the default responders are asked for another way."""
    due = dict.fromkeys(responders)
    depth, mentioned_by = chain.turns[-1].started.depth + 1, {}
    if isinstance(step, rules.StartTurn):
        due.update(dict.fromkeys((*step.must, *step.deferred)))
        mentioned_by = step.mentioned_by
    agents, places = tuple(due), team.config.max_responders
    trigger = (*_list_trigger(step, chain), notice)
    return rules.StartTurn(depth, agents[:places], agents[places:], trigger, mentioned_by)
