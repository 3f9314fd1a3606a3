"""What the commands share: finding the workspace, a line on stdout or stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from arena_cli.cli import streams
from arena_cli.ground.errors import ArenaError, Fault, FileFaults, UsageError

if TYPE_CHECKING:
    from arena_cli.ground.redact import Redactor
    from arena_cli.scenario.load.file import Sorted
    from arena_cli.scenario.load.select import Selected
    from arena_cli.session.session import Place
    from arena_cli.session.store import Stored
    from arena_cli.team.model import Team
    from arena_cli.team.workspace import Workspace
    from arena_cli.transcript.read import Problem


@dataclass
class Options:
    """The options that every command takes.

    `has_left`: whether a killed arena left processes running; None before that is known.
    """

    workspace: Path | None = None
    debug: bool = False
    allow_outside: bool = False
    has_left: bool | None = None


# These call agents; before they do, what a killed arena left running is ended.
_CALLING = frozenset({"send", "resume", "run", "promote", "test"})


def root_of(context: typer.Context) -> Path:
    """The workspace's folder. Raises UsageError where there is none.

    A command that calls no agent reports once what an arena that was killed left running there.
    """
    options: Options = context.obj
    root = _root_of(options)
    if options.has_left is None and context.info_name not in _CALLING:
        options.has_left = _warn_of_left(root)
    return root


def _root_of(options: Options) -> Path:
    from arena_cli.team import workspace

    return workspace.find(here(), options.workspace, os.environ)


def _warn_of_left(root: Path) -> bool:
    """Warn of the processes that a killed arena left running; return whether there are any."""
    from arena_cli.ground.text import shown_line
    from arena_cli.session import left

    strays = left.behind(root)
    for stray in strays:
        agent = f" of agent {shown_line(stray.agent)}" if stray.agent else ""
        program = f" ({shown_line(stray.program)})" if stray.program else ""
        warn(f"still running after its arena was killed: process {stray.pid}{program}{agent}")
    if strays:
        pids = [str(stray.pid) for stray in strays]
        by_hand = f"kill -9 {' '.join(pids)}"
        if sys.platform == "win32":
            by_hand = f"taskkill /F {' '.join(f'/PID {pid}' for pid in pids)}"
        warn(f"  The next `arena send`, `resume` or `run` here ends them; at once: `{by_hand}`")
    return bool(strays)


def here() -> Path:
    """The current folder. Raises UsageError where it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        from arena_cli.ground.text import shown_line

        name = os.environ.get("PWD")
        raise UsageError(
            f"the current folder was removed{f': {shown_line(name)}' if name else ''}",
            "`cd` to a folder that is there, also if this one was made anew, and run it again",
        ) from error


def workspace_of(context: typer.Context) -> Workspace:
    """The workspace, loaded. Raises FileFaults with every fault of every file."""
    return _load(root_of(context), context.obj)


def _load(root: Path, options: Options) -> Workspace:
    from arena_cli.adapters import registry
    from arena_cli.team import workspace

    return workspace.load(root, kinds=registry.KINDS, anywhere=options.allow_outside)


def redactor_of(options: Options) -> Redactor:
    """Return the workspace's redactor; without a sound workspace, that of the environment."""
    from arena_cli.ground.redact import Redactor
    from arena_cli.team import environ

    try:
        from arena_cli.session import session

        return session.redactor_of(place_of(_load(_root_of(options), options), wait_s=0))
    except Exception:  # noqa: BLE001 - it is called where something has failed already
        return Redactor(environ.secret_variables(os.environ))


def avatars_of(context: typer.Context) -> dict[str, str]:
    """The faces of the agents, by id; none where the workspace cannot be loaded."""
    try:
        profiles = workspace_of(context).profiles
    except ArenaError:
        return {}
    return {agent_id: profile.avatar for agent_id, profile in profiles.items()}


def scenarios_of(context: typer.Context, selected: Selected) -> tuple[Workspace, Sorted]:
    """The workspace, its scenarios among these files, and the files that have faults.

    Raises FileFaults with every fault of every file where the workspace has some.
    """
    from arena_cli.scenario.load import file

    try:
        loaded = workspace_of(context)
    except FileFaults as error:
        faults = file.shape_faults(selected, root_of(context), anywhere=context.obj.allow_outside)
        raise FileFaults([*error.faults, *faults]) from error
    return loaded, file.sort(selected, loaded)


def warn_of_faults(faults: Iterable[Fault]) -> None:
    """Warn on stderr of what is suspicious in files, each once."""
    for fault in dict.fromkeys(faults):
        warn(f"warning: {fault}")


def stored_of(context: typer.Context, session: str | None) -> Stored:
    """The session of that name; without one, the last. Raises UsageError."""
    from arena_cli.session import store

    root = root_of(context)
    return store.find(root, session) if session is not None else store.last(root)


def team_of(loaded: Workspace, stored: Stored | None, name: str | None = None) -> Team:
    """The team of that name, else the session's, else the workspace's, else every agent."""
    from arena_cli.transcript import passage

    known = passage.session_of(stored.transcript) if stored and name is None else None
    return loaded.team(known.team if known else name or loaded.file.team)


def place_of(loaded: Workspace, *, wait_s: float, connects: bool = False) -> Place:
    """Return where and how sessions of that workspace are written.

    Unless it `connects` it serves commands that only read; `trust` decides about all others.
    """
    from arena_cli.session.session import Place
    from arena_cli.team import environ

    return Place(
        workspace=loaded.root,
        durability=loaded.file.durability or "fsync",
        language=loaded.file.language,
        redact=loaded.file.redact,
        environ={**environ.read_dotenv(loaded.root), **os.environ},
        profiles=tuple(loaded.profiles.values()),
        wait_s=wait_s,
        models=loaded.file.models,
        memory=loaded.file.memory,
        summarizer=loaded.summarizer,
        extractor=loaded.extractor,
        connects=connects,
        on_problem=lambda problem: warn(str(problem)),
    )


def warn(text: str) -> None:
    """A line on stderr; if nobody can be told, what is done goes on."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        streams.drop(sys.stderr)


def say(text: str) -> None:
    """A line on stdout. Raises DiskRefused; a reader that stopped reading is no error."""
    output = streams.Stdout()
    output.write(f"{text}\n")
    output.check()


def say_json(value: Any) -> None:
    """A value as JSON on stdout; see `say`."""
    streams.speak_utf8()
    from arena_cli.ground.text import shown_json

    say(shown_json(json.dumps(value, ensure_ascii=False, indent=2)))


def warn_of(transcript: Path, problems: Iterable[Problem]) -> None:
    """A line on stderr for each line of a transcript that was skipped."""
    for problem in problems:
        warn(f"{transcript}:{problem.line}: {problem.what}")
