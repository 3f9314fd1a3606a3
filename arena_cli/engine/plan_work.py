"""Turn a plan into tasks, and follow them: checkpoints, failures, the delivery at the end.

The delivery says what was planned, how each task ended, and which files were made: it is the folder
`delivery` of the session, with a `README.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from arena_cli.engine import rules, task_changes
from arena_cli.engine.past_work import list_changed
from arena_cli.engine.plan import Room
from arena_cli.engine.task_changes import ARENA, get_board, list_begotten
from arena_cli.errors import DiskRefused
from arena_cli.transcript.acting_events import ToolFinished
from arena_cli.transcript.control_events import Checkpoint, ControlState, find_control
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.plan_events import Delivered, PlanMade, PlanPhase, PlanStep
from arena_cli.transcript.task_events import (
    ENDED,
    LONGEST_TITLE,
    Task,
    TaskChanged,
    TaskFacts,
    WorkStarted,
)
from arena_cli.util import files
from arena_cli.util.language import Texts
from arena_cli.util.text import cut_text, escape_line

REPLANNED = "replanned"
"""Why the open tasks of a plan that was given up are cancelled."""

LONGEST_LABEL = 64
_FOLDER = "delivery"
_LARGEST = 5_000_000
_MOST_FILES = 500


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
        plans = find_control(chain).plans
        return [task for plan in plans for task in self._list_own(plan, chain)]

    def _list_own(self, plan: PlanMade, chain: Chain) -> list[Task]:
        tasks = get_board(self._room).tasks
        return [tasks[name] for name in list_added(plan, chain).values() if name in tasks]

    async def _carry_out(self, plan: PlanMade, chain: Chain) -> None:
        """Add the tasks of a plan, those that are not added yet, and start the work on them."""
        journal = self._room.journal
        by = ARENA if plan.fallback else plan.agent
        added = list_added(plan, chain)
        board = get_board(self._room)
        begotten = [board.tasks[name] for name in list_begotten(chain)]
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
        return rules.Prepare(partial(_deliver, self._room))


def list_added(plan: PlanMade, chain: Chain) -> dict[str, str]:
    """Return the tasks that carry out a plan, by their steps."""
    following = [later.seq for later in find_control(chain).plans if later.seq > plan.seq]
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


# The delivery.


class MadeFile(NamedTuple):
    """A file that an agent made or changed; `path` is where it is."""

    name: str
    agent: str
    path: Path


async def _deliver(room: Room) -> None:
    """Write the delivery of the open chain, and the event that lists it. Raises DiskRefused."""
    chain = room.scene.fold.open
    path = getattr(room.journal.log, "path", None)
    if chain is None:
        return
    folder = f"sessions/{room.scene.session_id}/{_FOLDER}"
    names: list[str] = []
    if path is not None:
        target = path.parent / _FOLDER
        try:
            files.make_own_folder(target, below=room.workspace)
            names = _copy_files(list(_list_made(chain, room)), target, room)
            text = _write_readme(chain, names, room)
            files.write_file(
                target / "README.md", text.encode("utf-8", "replace"), below=room.workspace
            )
        except OSError as error:
            problem = f"{target}: could not write: {error.strerror or error}"
            raise DiskRefused(problem, files.suggest_fix(error, "")) from error
    room.journal.write(Delivered, chain=chain.number, folder=folder, files=["README.md", *names])


def _list_made(chain: Chain, room: Room) -> Iterator[MadeFile]:
    """Yield the files that tools made or changed in the chain, each once."""
    seen: set[Path] = set()
    for event in chain.events:
        if not isinstance(event, ToolFinished) or event.status != "ok" or not event.diff:
            continue
        member = room.scene.team.agent(event.agent)
        if member is None or member.profile.workdir is None:
            continue
        root = room.config.place_workdir(room.workspace / member.profile.workdir).resolve()
        for name in list_changed(event.diff):
            path = (root / name).resolve()
            is_part = path.is_relative_to(root) and ".." not in PurePosixPath(name).parts
            if is_part and path not in seen and path.is_file() and len(seen) < _MOST_FILES:
                seen.add(path)
                yield MadeFile(name, event.agent, path)


def _copy_files(made_files: list[MadeFile], target: Path, room: Room) -> list[str]:
    """Copy files into the delivery, except those that are too large; return their paths there.

    A file whose name another agent has used in its own folder goes below the id of its agent.
    """
    names: list[str] = []
    for file in made_files:
        name = f"files/{file.name}"
        if name in names:
            name = f"files/{file.agent}/{file.name}"
        try:
            content = files.read_regular(file.path)
        except OSError:
            continue
        if len(content) <= _LARGEST:
            place = target / name
            files.make_own_folder(place.parent, below=room.workspace)
            files.write_file(place, content, below=room.workspace)
            names.append(name)
    return names


def _write_readme(chain: Chain, names: list[str], room: Room) -> str:
    """Return the text of `README.md`."""
    say = Texts(room.language)
    tasks = get_board(room).tasks
    lines = [f"# {say('Delivery')}", "", *_quote(chain.opening.message.content), ""]
    for plan in find_control(chain).plans:
        if plan.refused:
            continue
        lines += [*_describe_plan(plan, say), ""]
        for name in list_added(plan, chain).values():
            if name in tasks:
                lines += [*_describe_task(tasks[name], say), ""]
    for name in list_begotten(chain):
        lines += [*_describe_task(tasks[name], say), ""]
    if names:
        lines += [f"## {say('Files')}", "", *(f"- [{name}](<{name}>)" for name in names), ""]
    return "\n".join(lines)


def _quote(text: str) -> list[str]:
    return [f"> {line}".rstrip() for line in text.splitlines()]


def _describe_plan(plan: PlanMade, say: Texts) -> list[str]:
    title = f"## {say('Plan')}{say(': ')}{say.enum(plan.mode)}"
    lines = [title, ""]
    if plan.fallback:
        lines += [say("Without a plan: {why}", why=say.message(plan.fallback)), ""]
    if plan.failed:
        lines += [say("Planned again: {why}", why="; ".join(plan.failed)), ""]
    if plan.reasoning:
        lines += [plan.reasoning, ""]
    for phase in plan.phases:
        steps = say(", ").join(f"{step.id} (@{step.agent})" for step in phase.steps)
        lines.append(f"- {phase.name}{say(': ')}{steps}")
    lines += [f"- {say('risk: {risk}', risk=risk)}" for risk in plan.risks]
    return lines


def _describe_task(task: Task, say: Texts) -> list[str]:
    lines = [f"### {task.id} · {task.title}", ""]
    agent = f" · @{task.assigned_to}" if task.assigned_to else ""
    lines += [f"{say.enum(task.status)}{agent}", ""]
    text = task.result or task.error
    return [*lines, text] if text else lines[:-1]
