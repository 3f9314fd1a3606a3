"""What holds for programs of every kind: where they are found, what environment they get."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

_ALWAYS_GIVEN = frozenset({"PATH", "HOME", "USER", "LANG", "TMPDIR", "TERM"})
_GIVEN_ON_WINDOWS = frozenset(
    {"SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP"}
)
_GIVEN_BEGINNINGS = ("LC_", "SSL_CERT_", "XDG_")


def find(name: str, *, workspace: Path, environ: Mapping[str, str]) -> Path | None:
    """The program file; a name without a separator is looked for on PATH, others from `workspace`.

    None where there is none that may be executed.
    """
    if Path(name).name != name:
        found = shutil.which(str(workspace / name))
    else:
        found = shutil.which(name, path=environ.get("PATH", ""))
    return Path(found).absolute() if found else None


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


def how_it_ended(code: int) -> str:
    """What became of a program that failed: its exit code, or (below 0) the signal's name."""
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
