"""What holds for programs of every kind: where they are found, what environment they get."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena_cli.adapters.base import Settings
from arena_cli.ground import ownfiles
from arena_cli.ground import text as texts

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

    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "."


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
    given = {name: value for name, value in environ.items() if _is_given(name)}
    for name, value in more.items():
        if value != "inherit":
            given[name] = value
        elif name in environ:
            given[name] = environ[name]
    return given


def _is_given(name: str) -> bool:
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
