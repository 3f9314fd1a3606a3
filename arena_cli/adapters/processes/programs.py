"""Find an agent's program, and prepare its folder, arguments and environment."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, ClassVar

from arena_cli.adapters.base import Endpoint, Settings
from arena_cli.ground import excerpt, ownfiles
from arena_cli.ground import text as texts
from arena_cli.team.environ import INHERIT, is_open
from arena_cli.team.files import WORK

_ALWAYS_GIVEN = frozenset({"PATH", "HOME", "USER", "LANG", "TMPDIR", "TERM"})
_GIVEN_ON_WINDOWS = frozenset(
    {"SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP"}
)
_LINES_SHOWN = 5
_CHARACTERS_SHOWN = 600
_GIVEN_BEGINNINGS = ("LC_", "SSL_CERT_", "XDG_")

LONGEST_ARGUMENT = 30_000
# The first characters of an option, a Windows switch and a file of arguments.
_OPTION_MARKS = ("-", "/", "@")
_BATCH_SUFFIXES = (".cmd", ".bat")
_BATCH_SPECIAL = frozenset('&|<>^%!"')


class ProgramSettings(Settings):
    """The keys of all kinds whose agent is a program.

    `args` are more arguments, `env` more variables (a value, or `inherit`), `cwd` is where it runs,
    from the workspace.
    """

    looks_only: ClassVar[bool] = True
    powers: ClassVar[tuple[str, ...]] = ()
    """The keys that tell what the program may do."""

    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "."

    @classmethod
    def command_line(cls, keys: Mapping[str, Any]) -> list[str]:
        """Return the program and its own arguments."""
        command = keys.get("command") or keys.get("program")
        return [str(word) for word in command] if isinstance(command, list) else [str(command)]

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the command line, with the variables that the profile sets and its powers."""
        args, env = keys.get("args"), keys.get("env")
        words = [*cls.command_line(keys), *(args if isinstance(args, list) else [])]
        variables = env if isinstance(env, Mapping) else {}
        for name, value in variables.items():
            if value != INHERIT:
                secret = excerpt.is_secret(str(name)) and not is_open(value)
                words.insert(0, f"{name}={excerpt.HIDDEN if secret else value}")
        facts = [shlex.join(map(str, words))]
        facts += [f"{key}: {keys[key]}" for key in (*cls.powers, "cwd") if keys.get(key)]
        inherited = (str(name) for name, value in variables.items() if value == INHERIT)
        return [Endpoint("program", " · ".join(facts), tuple(inherited))]


def may_run_in(workspace: Path, cwd: str) -> bool:
    """Return True if the folder is there, or will be made when a program is started in it.

    The latter are the agents' own folders below `work/`, if no link leads there.
    """
    folder = workspace / cwd
    if not _is_own_folder(cwd):
        return folder.is_dir()
    return folder.resolve().is_relative_to(workspace.resolve()) and (
        folder.is_dir() or not folder.exists()
    )


def folder(workspace: Path, cwd: str) -> Path:
    """Return the folder to run a program in; make an agent's own, which git ignores."""
    path = workspace / cwd
    if _is_own_folder(cwd) and not path.is_dir():
        # A folder that cannot be made is reported when the program is started.
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError), (workspace / WORK / ".gitignore").open("x") as file:
            file.write("*\n")
    return path


def _is_own_folder(cwd: str) -> bool:
    names = PurePath(cwd).parts
    return len(names) > 1 and names[0] == WORK and ".." not in names


def find(name: str, *, workspace: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the program file: a bare name on PATH, any other from `workspace`.

    None if there is none that can be executed.
    """
    if Path(name).name != name:
        path = shutil.which(str(workspace / name))
    else:
        path = shutil.which(name, path=environ.get("PATH", ""))
    return Path(path).absolute() if path else None


def why_missing(name: str, *, workspace: Path, key: str, install: str = "") -> tuple[str, str]:
    """Return why `find` found nothing, and a hint; `key` is the setting that names the program.

    `install` tells how to get it.
    """
    if Path(name).name == name:
        get = f"install it ({install})" if install else "install it"
        return f"there is no program {name} on PATH", f"{get}, or give its path in `{key}`"
    problem = f"there is no program {name} at {workspace / name}"
    if not (workspace / name).is_file():
        return problem, f"paths in `{key}` start from the workspace"
    return (
        f"{problem}: the file is there, but it cannot be executed",
        "make it executable, or name what runs it first, as in [python, bot.py]",
    )


def is_batch(program: Path) -> bool:
    """Return True for a batch file, in which an argument could run commands."""
    return program.suffix.lower() in _BATCH_SUFFIXES


def holds_commands(program: Path, text: str) -> bool:
    """Return True if the program is a batch file and would find commands in an argument."""
    return is_batch(program) and not _BATCH_SPECIAL.isdisjoint(text)


def argument(text: str) -> str:
    """Return a text as an argument that is no option, and that no system cuts at a NUL."""
    text = text.replace("\0", texts.REPLACEMENT)
    return f" {text}" if text.startswith(_OPTION_MARKS) else text


@contextlib.contextmanager
def text_file(folder: Path, text: str) -> Iterator[str]:
    """Write the text to a new file in `folder`, yield its path, remove it. Raises OSError."""
    ownfiles.make_folder(folder, below=folder.parents[2])
    handle, path = tempfile.mkstemp(".txt", "prompt-", folder.absolute())
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        yield path
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def environment(environ: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return a program's variables: the common ones, and those of `env` (a value, or `inherit`).

    A variable to inherit that is not set is left out.
    """
    passed = {name: value for name, value in environ.items() if is_always_given(name)}
    for name, value in env.items():
        if value != INHERIT:
            passed[name] = value
        elif name in environ:
            passed[name] = environ[name]
    return passed


def is_always_given(name: str) -> bool:
    """Return True if every program gets the variable, with any profile."""
    if name.upper().endswith("_PROXY"):
        return True
    if sys.platform == "win32":
        name = name.upper()
        if name in _GIVEN_ON_WINDOWS:
            return True
    return name in _ALWAYS_GIVEN or name.startswith(_GIVEN_BEGINNINGS)


def last_words(text: str) -> str:
    """Return the last lines of a program's output, as one line."""
    lines = text.splitlines()[-_LINES_SHOWN:]
    joined = " | ".join(line for line in lines if line.strip())
    return texts.end_of(joined, _CHARACTERS_SHOWN)


def how_it_ended(code: int) -> str:
    """Describe the end of a failed program by its exit code, or the signal's name (below 0)."""
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
