"""Turn a plan into tasks, and follow them: checkpoints, failures, the delivery at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module

from arena_cli.engine import rules, task_changes
from arena_cli.engine.plan import Room
from arena_cli.engine.task_changes import ARENA
from arena_cli.transcript.control_events import Checkpoint, ControlState
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.plan_events import PlanMade, PlanPhase, PlanStep
from arena_cli.transcript.task_events import (
    ENDED,
    LONGEST_TITLE,
    Task,
    TaskChanged,
    TaskFacts,
    WorkStarted,
)
from arena_cli.util.text import cut_text, escape_line

REPLANNED = "replanned"
"""Why the open tasks of a plan that was given up are cancelled."""

LONGEST_LABEL = 64
_NO_ORDERS = ControlState()


class PlanWork:
    """Carries out the plans of a session's chains."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def next_step(self, plan: PlanMade, chain: Chain) -> rules.Step | None:
        """Return the step that adds tasks of a plan or sets a checkpoint; None if there is none."""
        added = list_added(plan, chain)
        if len(added) < len(list(plan.steps)) or not _is_at_work(plan, chain):
            return rules.Prepare(partial(self._carry_out, plan, chain))
        if label := self._find_label(plan, chain):
            return rules.Prepare(partial(self._set_checkpoint, label, plan))
        return None

    def list_failed(self, plan: PlanMade, chain: Chain) -> list[str]:
        """Return the tasks of a plan that failed, with the reasons."""
        tasks = self._list_own(plan, chain)
        return [
            f"{task.id} {task.title}: {task.error}" for task in tasks if task.status == "failed"
        ]

    def list_tasks(self, chain: Chain) -> list[Task]:
        """Return the tasks of all plans of the chain."""
        plans = (chain.control or _NO_ORDERS).plans
        return [task for plan in plans for task in self._list_own(plan, chain)]

    def _list_own(self, plan: PlanMade, chain: Chain) -> list[Task]:
        tasks = task_changes.get_board(self._room).tasks
        return [tasks[name] for name in list_added(plan, chain).values() if name in tasks]

    async def _carry_out(self, plan: PlanMade, chain: Chain) -> None:
        """Add the tasks of a plan, those that are not added yet, and start the work on them."""
        journal = self._room.journal
        by = ARENA if plan.fallback else plan.agent
        added = list_added(plan, chain)
        board = task_changes.get_board(self._room)
        begotten = [board.tasks[name] for name in task_changes.list_begotten(chain)]
        for task in (*self.list_tasks(chain), *begotten):
            if task.status not in ENDED and task.id not in added.values():
                task_changes.write_change(self._room, task.id, "cancel", by, REPLANNED)
        number = len(board.tasks)
        for phase, step in _order_by_needs(plan):
            if step.id in added:
                continue
            number += 1
            added[step.id] = f"t{number}"
            title = cut_text(step.task.partition("\n")[0].strip() or step.id, LONGEST_TITLE)
            facts = TaskFacts(
                title=title,
                description="" if title == step.task else step.task,
                needs=[added[name] for name in step.needs],
                step=step.id,
                phase=phase.name,
            )
            journal.write(
                TaskChanged, task=added[step.id], action="add", by=by, to=step.agent, facts=facts
            )
        journal.write(WorkStarted, chain=chain.number, by=by, tasks=list(added.values()))

    def _find_label(self, plan: PlanMade, chain: Chain) -> str:
        """Return the label of the first phase that has ended without its checkpoint."""
        labels = {event.label for event in chain.events if isinstance(event, Checkpoint)}
        tasks = self._list_own(plan, chain)
        open_phases = {task.phase for task in tasks if task.status != "completed"}
        for phase, label in zip(plan.phases, plan.checkpoints, strict=False):
            if phase.name in open_phases:
                return ""
            if label not in labels:
                return label
        return ""

    async def _set_checkpoint(self, label: str, plan: PlanMade) -> None:
        journal = self._room.journal
        size = getattr(journal.log, "size", 0)
        at = self._room.scene.fold.seq
        journal.write(Checkpoint, label=label, at=at, bytes=size, by=plan.agent)

    def deliver(self, step: rules.Step, state: ControlState) -> rules.Step:
        """Return the end of a planned chain, or before it the step that collects its results."""
        is_over = isinstance(step, rules.FinishChain) and step.end != "cancelled"
        if not is_over or not state.plans or state.is_delivered or state.work is None:
            return step
        return rules.Prepare(self._deliver)

    async def _deliver(self) -> None:
        import_module("arena_cli.engine.delivery").deliver(self._room)


def list_added(plan: PlanMade, chain: Chain) -> dict[str, str]:
    """Return the tasks that carry out a plan, by their steps."""
    following = [later.seq for later in (chain.control or _NO_ORDERS).plans if later.seq > plan.seq]
    end = min(following, default=None)
    return {
        event.facts.step: event.task
        for event in chain.events
        if isinstance(event, TaskChanged)
        and event.facts is not None
        and event.facts.step
        and event.seq > plan.seq
        and (end is None or event.seq < end)
    }


def _is_at_work(plan: PlanMade, chain: Chain) -> bool:
    """Return True if the work on the tasks of a plan was started."""
    return any(isinstance(event, WorkStarted) and event.seq > plan.seq for event in chain.events)


def _order_by_needs(plan: PlanMade) -> Iterator[tuple[PlanPhase, PlanStep]]:
    """Yield the steps of a plan, each after those that it needs."""
    left = list(plan.steps)
    done: set[str] = set()
    while left:
        ready = [pair for pair in left if done.issuperset(pair[1].needs)]
        if not ready:
            return
        yield from ready
        done.update(step.id for _, step in ready)
        left = [pair for pair in left if pair[1].id not in done]


def make_labels(labels: Sequence[str], known: Mapping[str, int], chain: int) -> list[str]:
    """Return labels of checkpoints that can be used, each once, and none that is `known`."""
    used = set(known)
    usable = []
    for number, text in enumerate(labels, start=1):
        label = cut_text("".join(c for c in escape_line(text) if c.isprintable()), 48).strip()
        label = f"phase {number}" if not label or label.isdecimal() else label
        if label in used:
            label = f"{label} ({chain})"
        while label in used:
            label += "+"
        used.add(label)
        usable.append(label[:LONGEST_LABEL])
    return usable
