"""Ids of agents, teams and humans: any script, fit for a file name and for a mention."""

from __future__ import annotations

import unicodedata

LONGEST = 64
RULE = "use letters, digits, `-`, `_` and `.` of any script, at most 64 characters"

# https://learn.microsoft.com/windows/win32/fileio/naming-a-file: names of devices, not of files.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789¹²³"}
)
_JOINERS = "\u200c\u200d"  # Persian words and joined emoji are written with them


def normal(text: str) -> str:
    """Return the form in which ids are kept and compared: NFC."""
    return unicodedata.normalize("NFC", text)


def fault(text: str) -> str:
    """Return the reason why `text` cannot be an id, "" if it can."""
    if not text:
        return "is empty"
    if len(text) > LONGEST:
        return f"is longer than {LONGEST} characters"
    for char in text:
        category = unicodedata.category(char)
        fits = category[0] in "LMN" or category in ("So", "Sk") or char in "-_." + _JOINERS
        if not fits or (category == "Sk" and char.isascii()):
            name = "a space" if char == " " else f"`{char}`"
            return f"cannot hold {name if char.isprintable() else f'U+{ord(char):04X}'}"
    if text[0] in "-." or text[-1] == ".":
        return "cannot start with `-` or `.`, nor end with `.`"
    if text.partition(".")[0].casefold() in _DEVICES:
        return "is the name of a device on Windows"
    return ""
