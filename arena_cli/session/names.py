"""Session names: any script, never a way out of the `sessions` folder."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from arena_cli.ground import filenames
from arena_cli.ground.clock import Clock
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line

LONGEST = 64
RESERVED = frozenset({"knowledge"})

_AUTOMATIC = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def automatic(clock: Clock) -> str:
    """`YYYYMMDD-HHMMSS-<4 hex>`, in UTC."""
    return f"{clock.now():%Y%m%d-%H%M%S}-{clock.token(4)}"


def is_automatic(name: str) -> bool:
    """Whether it is one that nobody chose."""
    return _AUTOMATIC.fullmatch(name) is not None


def checked(name: str) -> str:
    """The name in NFC. Raises UsageError where it cannot name a folder of `sessions`."""
    normal = unicodedata.normalize("NFC", name)
    what = _fault(normal)
    if what:
        said = shown_line(normal if len(normal) <= LONGEST else normal[:LONGEST] + "...")
        raise UsageError(
            f"session name {said!r}: {what}",
            "Use letters, digits, `-` and `_` of any script, at most 64 characters.",
        )
    return normal


def _fault(name: str) -> str:
    faults = {
        "it is empty": not name.strip(),
        f"it is longer than {LONGEST} characters": len(name) > LONGEST,
        f"it is longer than {filenames.MOST_BYTES} bytes": filenames.size(name)
        > filenames.MOST_BYTES,
        'a name cannot hold a path separator, or any of : * ? " < > |': any(
            c in filenames.FORBIDDEN for c in name
        ),
        "it holds a character that cannot be printed": not name.isprintable(),
        "it starts with a dot or a dash": name[:1] in ".-",
        "it starts or ends with a space or a dot": name != name.strip(" ").rstrip("."),
        "that name is reserved": name.casefold() in RESERVED or filenames.is_device(name),
    }
    return next((what for what, holds in faults.items() if holds), "")


def existing(sessions: Path, name: str) -> Path | None:
    """The folder of the session with that name, case-folded, or None. Refuses a link."""
    folder = sessions / name
    if not is_automatic(name):
        folder = _alike(sessions, name) or folder
    if folder.is_symlink():
        raise UsageError(
            f"session {shown_line(name)}: {folder} is a link",
            "A session is a folder of its own below `sessions`.",
        )
    return folder if folder.is_dir() else None


def _alike(sessions: Path, name: str) -> Path | None:
    """What is there by that name, as it is written there.

    Whether a path is there does not tell: to Windows and macOS, `Foo` is there if `foo` is.
    """
    entries = list(sessions.iterdir()) if sessions.is_dir() else []
    alike = [entry for entry in entries if _folded(entry.name) == _folded(name)]
    # A decomposed name goes by its composed form, where the platform takes both for one.
    same = [entry for entry in alike if unicodedata.normalize("NFC", entry.name) == name]
    if same and (sessions / name).is_dir():
        return sessions / name
    return next(iter(same or alike), None)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
