"""Read a planner's answer, and complete its plan: pure functions of the answer and the team.

Small errors of form are tolerated, errors of substance are not: a plan that names strangers or goes
in a circle is no plan. All its problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast, get_args

from arena_cli.notes.agent_extraction import read_values
from arena_cli.transcript.plan_events import PlanMode, PlanPhase, PlanStep
from arena_cli.util.graphs import find_circle
from arena_cli.util.text import cut_text, escape_line
from arena_cli.workspace.mentions import Roster, resolve_mentions
from arena_cli.workspace.models import Team

MOST_STEPS = 50
MOST_LABELS = 50
JOIN = "join"
"""The id of the step that arena adds where a plan does not bring its results together."""

_LONGEST_TASK = 4_000
_LONGEST_TEXT = 1_000
_LONGEST_NAME = 60
_MOST_PROBLEMS = 12

_MODES: Mapping[str, PlanMode] = {
    **{name: cast("PlanMode", name) for name in get_args(PlanMode)},
    "a": "single",
    "b": "orchestrator",
    "c": "parallel",
    "d": "layered",
    "master_slave": "orchestrator",
}


class PlanDraft(NamedTuple):
    """A plan as read: `ignored` are the parts that cannot be used.

    `problem` is the reason why it cannot be carried out, or empty. `lead` is the agent that leads.
    """

    mode: PlanMode = "single"
    reasoning: str = ""
    confidence: float = 0.0
    phases: Sequence[PlanPhase] = ()
    checkpoints: Sequence[str] = ()
    estimated_steps: int | None = None
    estimated_duration: str = ""
    risks: Sequence[str] = ()
    ignored: Sequence[str] = ()
    problem: str = ""
    lead: str = ""

    @property
    def steps(self) -> list[PlanStep]:
        """Its steps, in order."""
        return [step for phase in self.phases for step in phase.steps]


def read_plan(
    text: str, team: Team, roster: Roster, unavailable: Mapping[str, str], least: float = 0.0
) -> PlanDraft:
    """Read the last plan in a text: a JSON object, in a fence or between words too.

    Names are resolved like mentions. `unavailable` are agents that cannot be called now, with the
    reasons; `least` is the confidence that a plan needs.
    """
    plans = [value for value in read_values(text) if isinstance(value, dict) and _is_plan(value)]
    if not plans:
        return PlanDraft(problem="its answer holds no plan in JSON")
    return _PlanReader(team, roster, unavailable).read(plans[-1], least)


def holds_plan(text: str) -> bool:
    """Return True if a text holds a JSON object that means to be a plan."""
    return any(isinstance(value, dict) and _is_plan(value) for value in read_values(text))


def _is_plan(value: Mapping[str, Any]) -> bool:
    return not value.keys().isdisjoint(("mode", "plan", "phases"))


class _PlanReader:
    """Reads one plan, and notes its problems and what it ignores."""

    def __init__(self, team: Team, roster: Roster, unavailable: Mapping[str, str]) -> None:
        self._team = team
        self._roster = roster
        self._unavailable = unavailable
        self._problems: dict[str, None] = {}
        self._ignored: list[str] = []

    def read(self, fields: Mapping[str, Any], least: float) -> PlanDraft:
        """Return the plan in the fields of a JSON object."""
        inner = fields.get("plan")
        body = inner if isinstance(inner, dict) else fields
        mode = self._read_mode(fields.get("mode", body.get("mode")))
        confidence = self._read_confidence(fields.get("confidence", body.get("confidence")))
        phases = self._read_phases(body.get("phases"))
        lead = self._read_lead(fields.get("lead", body.get("lead")))
        draft = PlanDraft(
            mode=mode or "single",
            reasoning=_read_text(fields.get("reasoning"), _LONGEST_TEXT),
            confidence=confidence or 0.0,
            phases=phases,
            checkpoints=self._read_labels(body.get("checkpoints"), len(phases)),
            estimated_steps=_read_count(_either(fields, "estimated_steps", "estimatedSteps")),
            estimated_duration=_read_text(
                _either(fields, "estimated_duration", "estimatedDuration"), _LONGEST_NAME
            ),
            risks=self._read_texts(fields.get("risks"), "risks"),
            lead=lead,
        )
        self._check_steps(draft)
        if not self._problems:
            draft = complete_plan(draft, self._team)
            self._check_circle(draft.steps)
        problems = list(self._problems)
        if not problems and confidence is not None and confidence < least:
            problems = [f"its confidence {confidence:g} is below {least:g}"]
        if len(problems) > _MOST_PROBLEMS:
            problems = [*problems[:_MOST_PROBLEMS], f"{len(problems) - _MOST_PROBLEMS} more"]
        return draft._replace(ignored=self._ignored, problem="; ".join(problems))

    def _add_problem(self, problem: str) -> None:
        self._problems[problem] = None

    def _read_mode(self, value: Any) -> PlanMode | None:
        mode = _MODES.get(value.strip().casefold()) if isinstance(value, str) else None
        if mode is None:
            name = _quote(value) if isinstance(value, str) and value.strip() else "no mode"
            self._add_problem(
                f"{name} is none of its modes: single, orchestrator, parallel, layered"
            )
        return mode

    def _read_confidence(self, value: Any) -> float | None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self._add_problem("its confidence is not a number")
            return None
        if not 0 <= value <= 1:
            self._add_problem("its confidence is not from 0 to 1")
            return None
        return round(float(value), 4)

    def _read_lead(self, value: Any) -> str:
        if value is None or value == "":
            return ""
        agent = self._find_agent(value)[0] if isinstance(value, str) else ""
        if not agent:
            self._ignored.append("the agent that leads")
        return agent

    def _read_phases(self, value: Any) -> list[PlanPhase]:
        if not isinstance(value, list) or not value:
            self._add_problem("it has no phases")
            return []
        total = sum(len(phase["steps"]) for phase in value if _has_steps(phase))
        if total > MOST_STEPS:
            self._add_problem(f"it has {total} steps, at most {MOST_STEPS} are allowed")
            return []
        phases: list[PlanPhase] = []
        count = 0
        for number, phase in enumerate(value, start=1):
            if not _has_steps(phase):
                self._ignored.append(f"phase {number}, which has no steps")
                continue
            steps = []
            for step in phase["steps"]:
                count += 1
                steps += self._read_step(step, count)
            name = _read_text(phase.get("name"), _LONGEST_NAME) or f"phase {number}"
            name = _make_unused(name, [earlier.name for earlier in phases])
            phases.append(PlanPhase(name=name, steps=steps))
        if not count:
            self._add_problem("it has no steps")
        return phases

    def _read_step(self, value: Any, number: int) -> list[PlanStep]:
        """Return the step of that number in a list; an empty list if it is none."""
        fields = value if isinstance(value, dict) else {}
        task = _read_text(fields.get("task"), _LONGEST_TASK, in_lines=True)
        named = fields.get("id")
        is_number = isinstance(named, int) and not isinstance(named, bool)
        name = _read_text(str(named) if is_number else named, _LONGEST_NAME) or f"s{number}"
        shown = _quote(name)
        if not task:
            self._add_problem(f"step {shown} has no task")
        agent = fields.get("agent")
        if not isinstance(agent, str) or not agent.strip():
            self._add_problem(f"step {shown} has no agent")
            return []
        member, problem = self._find_agent(agent)
        if problem:
            self._add_problem(f"step {shown}: {_quote(agent)} {problem}")
        if not member or not task:
            return []
        needs = self._read_needs(fields.get("needs"), shown)
        lane = _read_text(fields.get("lane"), _LONGEST_NAME)
        return [PlanStep(id=name, agent=member, task=task, needs=needs, lane=lane)]

    def _read_needs(self, value: Any, shown: str) -> list[str]:
        values = [] if value is None else [value] if isinstance(value, (str, int)) else value
        if not isinstance(values, list):
            self._add_problem(f"the needs of step {shown} are no list")
            return []
        names = [str(name).strip() for name in values if isinstance(name, (str, int))]
        if len(names) < len(values):
            self._add_problem(f"the needs of step {shown} are no list of ids")
        return list(dict.fromkeys(_read_text(name, _LONGEST_NAME) for name in names))

    def _find_agent(self, name: str) -> tuple[str, str]:
        """Return the member that is meant and can be called, or the reason why there is none."""
        resolved = resolve_mentions([name], self._roster, author="", opener="user").ids
        members = [agent for agent in resolved if self._team.member(agent)]
        usable = [agent for agent in members if agent not in self._unavailable]
        if len(usable) == 1:
            return usable[0], ""
        if usable:
            return "", "names several agents"
        if not members:
            return "", "is no agent" if resolved else "is no member of the team"
        return "", f"cannot be called now ({self._unavailable[members[0]]})"

    def _check_steps(self, draft: PlanDraft) -> None:
        """Note duplicate ids, unknown needs, and steps that do not fit the mode."""
        steps = draft.steps
        ids = [step.id for step in steps]
        for name in dict.fromkeys(name for name in ids if ids.count(name) > 1):
            self._add_problem(f"two steps have the id {_quote(name)}")
        if self._problems:
            return
        for step in steps:
            for name in step.needs:
                if name not in ids:
                    self._add_problem(
                        f"step {_quote(step.id)} needs {_quote(name)}, which is no step"
                    )
        agents = dict.fromkeys(step.agent for step in steps)
        if draft.mode == "single" and len(agents) > 1:
            self._add_problem(f"the mode is single, and it names {len(agents)} agents")

    def _check_circle(self, steps: Sequence[PlanStep]) -> None:
        circle = find_circle({step.id: step.needs for step in steps})
        if circle:
            shown = " → ".join(escape_line(name) for name in circle[:MOST_STEPS])
            self._add_problem(f"steps need each other: {shown}")

    def _read_labels(self, value: Any, phases: int) -> list[str]:
        labels = self._read_texts(value, "checkpoints")
        if len(labels) > phases:
            self._ignored.append(f"{len(labels) - phases} checkpoints without a phase")
        return labels[:phases]

    def _read_texts(self, value: Any, key: str) -> list[str]:
        values = [value] if isinstance(value, str) else value
        if values is None:
            return []
        if not isinstance(values, list):
            self._ignored.append(f"`{key}`, which is no list")
            return []
        texts = [_read_text(text, _LONGEST_TEXT) for text in values[:MOST_LABELS]]
        return [text for text in texts if text]


def _has_steps(phase: Any) -> bool:
    return isinstance(phase, dict) and isinstance(phase.get("steps"), list) and bool(phase["steps"])


def _either(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _read_text(value: Any, most: int, *, in_lines: bool = False) -> str:
    if not isinstance(value, str):
        return ""
    text = value.strip() if in_lines else " ".join(value.split())
    return cut_text(text, most)


def _read_count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**6
    return value if is_count else None


def _quote(name: Any) -> str:
    return f"`{escape_line(cut_text(str(name).strip(), _LONGEST_NAME))}`"


def complete_plan(draft: PlanDraft, team: Team) -> PlanDraft:
    """Return a plan whose steps name all that they need.

    Each phase needs the phase before it; one agent does its steps in order. A leader's step needs
    those of the specialists next to it. Results that no step uses are joined by the leader.
    """
    steps = draft.steps
    lead = draft.lead or _find_lead(draft, team)
    phases = [phase for phase in draft.phases if phase.steps]
    needs = {step.id: dict.fromkeys(step.needs) for step in steps}
    for before, phase in pairwise(phases):
        for step in phase.steps:
            needs[step.id].update(dict.fromkeys(earlier.id for earlier in before.steps))
    if draft.mode == "single":
        for first, second in pairwise(steps):
            needs[second.id][first.id] = None
    if draft.mode == "orchestrator":
        _add_needs_of_lead(phases, lead, needs)
    phases = [
        phase.model_copy(
            update={
                "steps": [
                    step.model_copy(update={"needs": list(needs[step.id])}) for step in phase.steps
                ]
            }
        )
        for phase in phases
    ]
    draft = draft._replace(phases=phases, lead=lead)
    return _join_results(draft) if draft.mode in ("orchestrator", "parallel") else draft


def _find_lead(draft: PlanDraft, team: Team) -> str:
    """Return the agent that leads, where the plan does not say it."""
    steps, fallback = draft.steps, team.config.fallback_agent
    agents = {step.agent for step in steps}
    if draft.mode == "parallel" and fallback and fallback not in agents:
        return fallback
    return steps[0].agent if steps else ""


def _add_needs_of_lead(
    phases: Sequence[PlanPhase], lead: str, needs: dict[str, dict[str, None]]
) -> None:
    """Let the only step of the leader in a phase need the others of it, unless they need it."""
    for phase in phases:
        own = [step for step in phase.steps if step.agent == lead]
        others = [step.id for step in phase.steps if step.agent != lead]
        if len(own) == 1 and not any(own[0].id in needs[name] for name in others):
            needs[own[0].id].update(dict.fromkeys(others))


def _join_results(draft: PlanDraft) -> PlanDraft:
    """Add a last step for the leader if several results would be left side by side."""
    steps = draft.steps
    used = {name for step in steps for name in step.needs}
    last = [step for step in steps if step.id not in used]
    is_led = draft.mode == "parallel" or all(step.agent == draft.lead for step in last)
    if not last or (len(last) == 1 and is_led):
        return draft
    name = _make_unused(JOIN, {step.id for step in steps})
    task = "Bring the results of the other steps together, check that they fit, and answer."
    step = PlanStep(id=name, agent=draft.lead, task=task, needs=[step.id for step in last])
    phase = PlanPhase(name=_make_unused(JOIN, {phase.name for phase in draft.phases}), steps=[step])
    return draft._replace(phases=[*draft.phases, phase])


def _make_unused(name: str, used: Iterable[str]) -> str:
    """Return the name, with a number if it is used."""
    names = set(used)
    numbered = (f"{name} {number}" for number in range(2, len(names) + 3))
    return name if name not in names else next(n for n in numbered if n not in names)


def make_single(agent: str, task: str) -> list[PlanPhase]:
    """Return the phases of a plan in which one agent does all."""
    text = cut_text(task.strip(), _LONGEST_TASK) or "-"
    return [PlanPhase(name="work", steps=[PlanStep(id="s1", agent=agent, task=text)])]
