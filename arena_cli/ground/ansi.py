"""Terminal control sequences, taken out of a program's output.

The forms are those of ECMA-48 and of xterm: CSI, the strings (OSC, DCS, SOS, PM, APC), other
escapes, and the same with the C1 controls U+0080 to U+009F in place of `ESC`. A string that is
never closed ends with its line, so that it cannot swallow what comes after it.
"""

from __future__ import annotations

import re

_STRING_TEXT = "[^\x07\x1b\x9c\n\r]*+"
_STRING_END = "(?:\x07|\x1b\\\\|\x9c)"
# Nothing in it can fail after an unbounded repetition, so that one pass takes linear time.
_SEQUENCE = re.compile(
    f"(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f]){_STRING_TEXT}{_STRING_END}?"
    "|(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+[@-~]?"
    "|\x1b[ -/]*+[0-~]?"
    "|[\x80-\x9f]"
    "|\r(?=\n)"
)
_UNFINISHED = re.compile(
    f"(?:(\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f]){_STRING_TEXT}(\x1b?)"
    "|(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+"
    "|\x1b[ -/]*+"
    "|\r)\\Z"
)
_INTRODUCER = re.compile("[\x1b\x90\x98\x9b\x9d-\x9f\r]")
_LONGEST_HELD = 4096


def strip(text: str) -> str:
    """The text without control sequences, and with `\\n` where it had `\\r\\n`."""
    return _SEQUENCE.sub("", text) if _may_have_any(text) else text


class Stripper:
    """`strip` for text that comes in pieces, wherever these were cut."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of the text so far is certain and was not returned before."""
        text = self._held + piece
        start, self._held = _unfinished(text)
        return strip(text[:start])

    def finish(self) -> str:
        """The rest, when no more pieces come."""
        held, self._held = self._held, ""
        return strip(held)


def _may_have_any(text: str) -> bool:
    return "\x1b" in text or "\r" in text or not text.isascii()


def _unfinished(text: str) -> tuple[int, str]:
    """Where a sequence begins that the next piece may go on with, and what to keep of it.

    What stands in a string is dropped anyway, so that of an unfinished one only its ends are kept.
    """
    for introducer in _INTRODUCER.finditer(text) if _may_have_any(text) else ():
        found = _UNFINISHED.match(text, introducer.start())
        if found:
            held = found[1] + found[2] if found[1] else found[0]
            return (found.start(), held) if len(held) <= _LONGEST_HELD else (len(text), "")
    return len(text), ""
