"""The delivery of a planned chain: what was planned, how each task ended, and the files made.

It is the folder `delivery` of the session, with a `README.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from arena_cli.engine.past_work import list_changed
from arena_cli.engine.plan import Room
from arena_cli.engine.plan_work import list_added
from arena_cli.engine.task_changes import get_board, list_begotten
from arena_cli.errors import DiskRefused
from arena_cli.transcript.acting_events import ToolFinished
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.plan_events import Delivered, PlanMade
from arena_cli.transcript.task_events import Task
from arena_cli.util import files
from arena_cli.util.language import Texts

FOLDER = "delivery"
FILES = "files"

_LARGEST = 5_000_000
_MOST_FILES = 500


class MadeFile(NamedTuple):
    """A file that an agent made or changed; `path` is where it is."""

    name: str
    agent: str
    path: Path


def deliver(room: Room) -> None:
    """Write the delivery of the open chain, and the event that lists it. Raises DiskRefused."""
    chain = room.scene.fold.open
    path = getattr(room.journal.log, "path", None)
    if chain is None:
        return
    folder = f"sessions/{room.scene.session_id}/{FOLDER}"
    names: list[str] = []
    if path is not None:
        target = path.parent / FOLDER
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
        name = f"{FILES}/{file.name}"
        if name in names:
            name = f"{FILES}/{file.agent}/{file.name}"
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
    plans = chain.control.plans if chain.control else []
    lines = [f"# {say('Delivery')}", "", *_quote(chain.opening.message.content), ""]
    for plan in plans:
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
