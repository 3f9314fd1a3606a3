"""What all coding agents need before their program can be started, and what is said without it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import Setup
from arena_cli.adapters.processes import programs
from arena_cli.ground.errors import AgentUnavailable


def program(
    setup: Setup, name: str, install: str, *, instead: Callable[[], Path | None] = lambda: None
) -> Path:
    """The program file, found by its name or path, or `instead`; there is a folder to run it in.

    Raises AgentUnavailable, which says how to get it (`install`).
    """
    found = programs.find(name, workspace=setup.workspace, environ=setup.environ) or instead()
    if found is None:
        what, mend = programs.why_missing(
            name, workspace=setup.workspace, key="program", install=install
        )
        raise AgentUnavailable(setup.agent_id, what, asked=name, mend=mend)
    if not programs.may_run_in(setup.workspace, setup.settings.cwd):
        what = f"there is no folder {setup.workspace / setup.settings.cwd}"
        raise AgentUnavailable(setup.agent_id, what, asked=name, mend="mend `cwd`, or make it")
    return found


@contextlib.contextmanager
def system_file(setup: Setup, program: Path, system: str) -> Iterator[str]:
    """The path of a file with the system text, which may be longer than an argument."""
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(programs.text_file(setup.scratch, system))
        except OSError as error:
            raise AgentUnavailable(
                setup.agent_id,
                f"its system text could not be written: {error}",
                asked=program.name,
                mend="make room for it",
            ) from error
        if programs.holds_commands(program, path):
            raise AgentUnavailable(
                setup.agent_id,
                f"{program.name} is a batch file, which would read commands in {path}",
                asked=program.name,
                mend="name the session without special characters",
            )
        yield path


def missing_key(keys: Sequence[str], env: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """What is wrong with the keys that a profile's `env` gives its program; "" where nothing is."""
    given = programs.environment(environ, env)
    if any(key in given for key in keys):
        return ""
    for key in keys:
        if key in environ:
            return f"{key} is set, but not passed on; env: {{{key}: inherit}} does"
    for name in env:
        if name not in given:
            return f"its `env` passes {name} on, but {name} is not set"
    return ""


def suggested(
    keys: Sequence[str], environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> dict[str, Any]:
    """The `env` of a new profile that hands on the first key that is set, and where it belongs."""
    key = next((key for key in keys if environ.get(key)), None)
    if key is None:
        return {}
    named = [key, *(name for name in addresses if environ.get(name))]
    return {"env": dict.fromkeys(named, "inherit")}
