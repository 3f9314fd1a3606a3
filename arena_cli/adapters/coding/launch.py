"""Find and prepare the program of a coding agent, and explain what it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import Setup
from arena_cli.adapters.processes import programs
from arena_cli.ground.errors import AgentUnavailable


def find_program(
    setup: Setup, name: str, install: str, *, fallback: Callable[[], Path | None] = lambda: None
) -> Path:
    """Return the program file, found by its name or path, else that of `fallback`.

    Raises AgentUnavailable if there is none (`install` tells how to get it), or no folder for it.
    """
    path = programs.find(name, workspace=setup.workspace, environ=setup.environ) or fallback()
    if path is None:
        problem, hint = programs.why_missing(
            name, workspace=setup.workspace, key="program", install=install
        )
        raise AgentUnavailable(setup.agent_id, problem, asked=name, mend=hint)
    if not programs.may_run_in(setup.workspace, setup.settings.cwd):
        problem = f"there is no folder {setup.workspace / setup.settings.cwd}"
        raise AgentUnavailable(setup.agent_id, problem, asked=name, mend="mend `cwd`, or make it")
    return path


@contextlib.contextmanager
def write_system_file(setup: Setup, program: Path, system: str) -> Iterator[str]:
    """Yield the path of a file with the system text, which may be longer than an argument."""
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


def explain_missing_key(
    keys: Sequence[str], env: Mapping[str, str], environ: Mapping[str, str]
) -> str:
    """Return why the program gets none of its keys by a profile's `env`; "" if it does."""
    passed = programs.environment(environ, env)
    if any(key in passed for key in keys):
        return ""
    for key in keys:
        if key in environ:
            return f"{key} is set, but not passed on; env: {{{key}: inherit}} does"
    for name in env:
        if name not in passed:
            return f"its `env` passes {name} on, but {name} is not set"
    return ""


def suggest_env(
    keys: Sequence[str], environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the `env` of a new profile that passes on the first key that is set, if any.

    Those of the `addresses` that are set go with it: they tell where the key belongs.
    """
    key = next((key for key in keys if environ.get(key)), None)
    if key is None:
        return {}
    names = [key, *(name for name in addresses if environ.get(name))]
    return {"env": dict.fromkeys(names, "inherit")}
