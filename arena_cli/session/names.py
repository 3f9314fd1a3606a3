"""Session names: any script, never a way out of the `sessions` folder."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from arena_cli.ground.clock import Clock
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.transcript.attachments import DEVICE_NAMES, FORBIDDEN

LONGEST = 64
RESERVED = frozenset({"knowledge"})

_AUTOMATIC = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def automatic(clock: Clock) -> str:
    """`YYYYMMDD-HHMMSS-<4 hex>`, in UTC."""
    return f"{clock.now():%Y%m%d-%H%M%S}-{clock.token(4)}"


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
        'a name cannot hold a path separator, or any of : * ? " < > |': any(
            c in FORBIDDEN for c in name
        ),
        "it holds a character that cannot be printed": not name.isprintable(),
        "it starts with a dot or a dash": name[:1] in ".-",
        "it starts or ends with a space or a dot": name != name.strip(" ").rstrip("."),
        "that name is reserved": name.casefold() in RESERVED
        or name.split(".", maxsplit=1)[0].casefold() in DEVICE_NAMES,
    }
    return next((what for what, holds in faults.items() if holds), "")


def existing(sessions: Path, name: str) -> Path | None:
    """The folder of the session with that name, case-folded, or None. Refuses a link."""
    folder = sessions / name
    if not _AUTOMATIC.fullmatch(name) and not folder.is_dir() and sessions.is_dir():
        wanted = unicodedata.normalize("NFC", name).casefold()
        alike = (
            entry
            for entry in sessions.iterdir()
            if unicodedata.normalize("NFC", entry.name).casefold() == wanted
        )
        folder = next(alike, folder)
    if folder.is_symlink():
        raise UsageError(
            f"session {shown_line(name)}: {folder} is a link",
            "A session is a folder of its own below `sessions`.",
        )
    return folder if folder.is_dir() else None
