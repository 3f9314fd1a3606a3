"""Check the entries of `tools` that need the workspace: functions of the user, and `workdir`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from arena_cli.errors import Fault
from arena_cli.util import files
from arena_cli.workspace import control
from arena_cli.workspace.agents import ProfileSource
from arena_cli.workspace.models import AgentProfile
from arena_cli.workspace.workspace import WORK_FOLDER
from arena_cli.yamlio.nodes import Loc

PYTHON = "python:"
FILE_TOOLS = ("read_file", "write_file", "edit_file", "delete_file", "list_files", "find")
RUN_COMMAND = "run_command"


def list_functions(profile: AgentProfile) -> list[str]:
    """Return the functions of the user that are tools of an agent, or process its output."""
    return list(dict.fromkeys(target for _, target in _list_functions(profile)))


def _list_functions(profile: AgentProfile) -> Iterator[tuple[Loc, str]]:
    for index, entry in enumerate(profile.tools):
        if not isinstance(entry, str):
            yield ("tools", index, "python"), entry.python
        elif entry.startswith(PYTHON):
            yield ("tools", index), entry.removeprefix(PYTHON)
    if profile.output is not None and profile.output.process is not None:
        yield ("output", "process"), profile.output.process


def describe_commands(profile: AgentProfile) -> str:
    """Return what an agent with `run_command` may start; "" without it."""
    if RUN_COMMAND not in profile.tools:
        return ""
    shell = ", also by a shell" if profile.run is not None and profile.run.shell else ""
    return f"any command (run_command) in {profile.workdir}{shell}"


def find_faults(
    profile: AgentProfile, source: ProfileSource, root: Path, *, anywhere: bool
) -> Iterator[Fault]:
    """Yield the errors of functions that are not there, and of a folder that is missing."""
    for loc, target in _list_functions(profile):
        problem = control.import_text_checks().find_function_problem(target, root)
        if problem is not None:
            yield source.fault(loc, *problem)
    needs = [name for name in (*FILE_TOOLS, RUN_COMMAND) if name in profile.tools]
    if profile.workdir is None and needs:
        loc = ("tools", profile.tools.index(needs[0]))
        hint = "set `workdir` to a folder of the workspace"
        yield source.fault(loc, f"{needs[0]} needs a folder to work in", hint)
    if profile.workdir is not None:
        problem = _find_folder_problem(profile.workdir, root, anywhere=anywhere)
        if problem is not None:
            yield source.fault(("workdir",), *problem)


def _find_folder_problem(name: str, root: Path, *, anywhere: bool) -> tuple[str, str] | None:
    path = root / name
    if not anywhere and not files.is_inside(path, root):
        return f"`{name}` is not in the workspace", files.OUTSIDE_HINT
    parts = PurePosixPath(name).parts
    is_made = len(parts) > 1 and parts[0] == WORK_FOLDER and not path.exists()
    if not path.is_dir() and not is_made:
        return f"there is no folder `{name}`", f"create it, or name one below {WORK_FOLDER}/"
    return None
