"""Remove terminal control sequences from a program's output.

The forms are those of ECMA-48 and of xterm that begin with `ESC`: CSI, the strings (OSC, DCS, SOS,
PM, APC) and other escapes. The C1 controls (U+0080 to U+009F) begin none: in UTF-8 they are seldom
sent, and more often the result of a wrong encoding, which must not swallow the text behind it. A
string that is never closed ends with its line, for the same reason.
"""

from __future__ import annotations

import re

_STRING = "\x1b[\\]PX^_]"
_STRING_TEXT = "[^\x07\x1b\n\r]*+"
# Nothing in it can fail after an unbounded repetition, so that one pass takes linear time.
_SEQUENCE = re.compile(
    f"{_STRING}{_STRING_TEXT}(?:\x07|\x1b\\\\)?"
    "|\x1b\\[[0-?]*+[ -/]*+[@-~]?"
    "|\x1b[ -/]*+[0-~]?"
    "|\r(?=\n)"
)
_UNFINISHED = re.compile(
    f"(?:({_STRING}){_STRING_TEXT}(\x1b?)|\x1b\\[[0-?]*+[ -/]*+|\x1b[ -/]*+|\r)\\Z"
)
_INTRODUCER = re.compile("[\x1b\r]")
_LONGEST_HELD = 4096


def strip(text: str) -> str:
    r"""Return the text without control sequences, and with `\n` for `\r\n`."""
    return _SEQUENCE.sub("", text) if "\x1b" in text or "\r" in text else text


class Stripper:
    """Applies `strip` to text that comes in pieces, wherever these were cut."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that has become certain with this piece."""
        text = self._held + piece
        start, self._held = _unfinished(text)
        return strip(text[:start])

    def finish(self) -> str:
        """Return the rest, when no more pieces come."""
        held, self._held = self._held, ""
        return strip(held)


def _unfinished(text: str) -> tuple[int, str]:
    """Return the start of a sequence that the next piece may continue, and the text to keep of it.

    The text of a string is dropped anyway, so only the ends of an unfinished one are kept.
    """
    for introducer in _INTRODUCER.finditer(text):
        match = _UNFINISHED.match(text, introducer.start())
        if match:
            held = match[1] + match[2] if match[1] else match[0]
            return (match.start(), held) if len(held) <= _LONGEST_HELD else (len(text), "")
    return len(text), ""
