"""What holds for programs of every kind: where they are found, what environment they get."""

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
# What an option, a Windows switch or a file of arguments begins with.
_OPTION_MARKS = ("-", "/", "@")
_BATCH_SUFFIXES = (".cmd", ".bat")
_BATCH_SPECIAL = frozenset('&|<>^%!"')


class ProgramSettings(Settings):
    """The keys that all kinds have whose agent is a program.

    `args` are more arguments, `env` more variables (a value, or `inherit`), `cwd` is where it runs,
    from the workspace.
    """

    looks_only: ClassVar[bool] = True
    powers: ClassVar[tuple[str, ...]] = ()
    """The keys that say what the program may do."""

    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "."

    @classmethod
    def command_line(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the program and its own arguments."""
        named = given.get("command") or given.get("program")
        return [str(word) for word in named] if isinstance(named, list) else [str(named)]

    @classmethod
    def endpoints(cls, given: Mapping[str, Any]) -> list[Endpoint]:
        """Return the command line, with the variables that the profile sets and what it may do."""
        args, env = given.get("args"), given.get("env")
        words = [*cls.command_line(given), *(args if isinstance(args, list) else [])]
        more = env if isinstance(env, Mapping) else {}
        for name, value in more.items():
            if value != INHERIT:
                secret = excerpt.is_secret(str(name)) and not is_open(value)
                words.insert(0, f"{name}={excerpt.HIDDEN if secret else value}")
        facts = [shlex.join(map(str, words))]
        facts += [f"{key}: {given[key]}" for key in (*cls.powers, "cwd") if given.get(key)]
        inherited = (str(name) for name, value in more.items() if value == INHERIT)
        return [Endpoint("program", " · ".join(facts), tuple(inherited))]


def may_run_in(workspace: Path, cwd: str) -> bool:
    """Return whether there is such a folder, or it is made when a program is started in it.

    That is a folder of an agent's own below `work/`, to which no link leads.
    """
    folder = workspace / cwd
    if not _is_own(cwd):
        return folder.is_dir()
    return folder.resolve().is_relative_to(workspace.resolve()) and (
        folder.is_dir() or not folder.exists()
    )


def folder(workspace: Path, cwd: str) -> Path:
    """Return the folder to run a program in; an agent's own is made, out of git's sight."""
    path = workspace / cwd
    if _is_own(cwd) and not path.is_dir():
        # Whoever starts the program reports a folder that cannot be made.
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError), (workspace / WORK / ".gitignore").open("x") as file:
            file.write("*\n")
    return path


def _is_own(cwd: str) -> bool:
    parts = PurePath(cwd).parts
    return len(parts) > 1 and parts[0] == WORK and ".." not in parts


def find(name: str, *, workspace: Path, environ: Mapping[str, str]) -> Path | None:
    """The program file; a name without a separator is looked for on PATH, others from `workspace`.

    None where there is none that may be executed.
    """
    if Path(name).name != name:
        found = shutil.which(str(workspace / name))
    else:
        found = shutil.which(name, path=environ.get("PATH", ""))
    return Path(found).absolute() if found else None


def why_missing(name: str, *, workspace: Path, key: str, install: str = "") -> tuple[str, str]:
    """What is wrong where `find` found nothing, and what to do; `key` is the setting that names it.

    `install` says how to get it.
    """
    if Path(name).name == name:
        get = f"install it ({install})" if install else "install it"
        return f"there is no program {name} on PATH", f"{get}, or give its path in `{key}`"
    what = f"there is no program {name} at {workspace / name}"
    if not (workspace / name).is_file():
        return what, f"paths in `{key}` start from the workspace"
    return (
        f"{what}: the file is there, but it cannot be executed",
        "make it executable, or name what runs it first, as in [python, bot.py]",
    )


def is_batch(program: Path) -> bool:
    """Whether it is a batch file, in which an argument could run commands."""
    return program.suffix.lower() in _BATCH_SUFFIXES


def holds_commands(program: Path, text: str) -> bool:
    """Whether the program, a batch file, would find commands in an argument."""
    return is_batch(program) and not _BATCH_SPECIAL.isdisjoint(text)


def argument(text: str) -> str:
    """A text as an argument that no program takes for an option, and no system cuts at a NUL."""
    text = text.replace("\0", texts.REPLACEMENT)
    return f" {text}" if text.startswith(_OPTION_MARKS) else text


@contextlib.contextmanager
def text_file(folder: Path, text: str) -> Iterator[str]:
    """The path of a new file in `folder` with the text, for as long as it is needed. OSError."""
    ownfiles.make_folder(folder, below=folder.parents[2])
    handle, path = tempfile.mkstemp(".txt", "prompt-", folder.absolute())
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        yield path
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def environment(environ: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """What a program gets of the environment, and `more`: a value, or `inherit`.

    What is to be inherited but is not set is left out.
    """
    given = {name: value for name, value in environ.items() if is_always_given(name)}
    for name, value in more.items():
        if value != INHERIT:
            given[name] = value
        elif name in environ:
            given[name] = environ[name]
    return given


def is_always_given(name: str) -> bool:
    """Return whether every program gets the variable, whatever its profile says."""
    if name.upper().endswith("_PROXY"):
        return True
    if sys.platform == "win32":
        name = name.upper()
        if name in _GIVEN_ON_WINDOWS:
            return True
    return name in _ALWAYS_GIVEN or name.startswith(_GIVEN_BEGINNINGS)


def last_words(text: str) -> str:
    """The last lines of what a program wrote, as one."""
    lines = text.splitlines()[-_LINES_SHOWN:]
    joined = " | ".join(line for line in lines if line.strip())
    return texts.end_of(joined, _CHARACTERS_SHOWN)


def how_it_ended(code: int) -> str:
    """What became of a program that failed: its exit code, or (below 0) the signal's name."""
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
