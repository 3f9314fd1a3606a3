"""Redact text while it grows, and hold back what may be the beginning of a secret.

Of a secret nothing is shown: a literal one is held from its beginning at the end of the text on; a
known key shape, which is one run of letters, digits and `._~+/=-`, while that run may continue; a
private key until its end. With `redact` patterns of the workspace only whole lines are shown, and
nothing at all if one of them could match a line end, or looks at where the text begins or ends.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from arena_cli.ground import text as texts
from arena_cli.ground.redact import MARK, Redactor

TAIL = 400
# What is held back can be no longer; the rest of that text is not shown while it grows.
MOST_HELD = 4096

_RUN = string.ascii_letters + string.digits + "._~+/=-"
_LABEL = "earer "
_BEGIN = "-----BEGIN "
_KEY_BEGINS = re.compile(
    r"-----BEGIN (?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[A-Z0-9 ]{0,60}-{0,4}\Z)"
)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Patterns of these pieces alone match within a line, and the same whatever stands around it.
_IN_ONE_LINE = re.compile(
    r"(?:\\[dwSbB\-./+()\[\]{}*?|:@\\,]|\(\?:|\(\?<?[=!]|\(\?i[:)]|\[(?!\^)|[^\\\[(\x00-\x1f^$]|\((?!\?))*"
)


class GrowingText:
    """Takes text piece by piece; the end of its certain part is `tail`, redacted.

    The results, all together, are always the beginning of the redacted text. Each piece is read
    once, and text that is held back again.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.tail = ""
        self._redactor = redactor
        self._literals = (*redactor.literals, MARK)
        sources = [pattern.pattern for pattern in redactor.patterns]
        self._silent = not all(_IN_ONE_LINE.fullmatch(source) for source in sources) or any(
            pattern.flags & (re.DOTALL | re.VERBOSE | re.MULTILINE) for pattern in redactor.patterns
        )
        self._by_line = bool(sources)
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that has become certain, redacted."""
        if self._silent:
            return ""
        text = self._held + piece
        certain = self._certain(text)
        self._held = text[certain:]
        if len(self._held) > MOST_HELD:
            self._silent, self._held = True, ""
        redacted = self._redactor.text(texts.clean(text[:certain])[0])
        self.tail = (self.tail + redacted)[-TAIL:]
        return redacted

    def _certain(self, text: str) -> int:
        """Return the length of the text that no later piece can change."""
        begun = (_begun(text, literal) for literal in self._literals)
        certain = self._boundary(text, min(_key(text), *begun))
        while certain:
            crossed = _crossed(self._redactor.spans(text), certain)
            if crossed == certain:
                break
            certain = self._boundary(text, crossed)
        return certain

    def _boundary(self, text: str, limit: int) -> int:
        """Return the last position up to `limit` after which no text depends on that before."""
        if self._by_line:
            return text.rfind("\n", 0, limit) + 1
        end = len(text[:limit].rstrip(_RUN))
        while text.endswith(_LABEL, 0, end):
            end = len(text[: end - 1].rstrip(_RUN))
        return end


def _begun(text: str, literal: str) -> int:
    """Return the position, at the end of the text, where a literal may have begun."""
    index = max(len(text) - len(literal) + 1, 0)
    while (index := text.find(literal[0], index)) >= 0:
        if literal.startswith(text[index:]):
            return index
        index += 1
    return len(text)


def _key(text: str) -> int:
    """Return the position of a private key that has not ended."""
    index = text.rfind(_BEGIN)
    if index >= 0 and _KEY_BEGINS.match(text, index) and not _KEY_ENDS.search(text, index):
        return index
    return len(text)


def _crossed(spans: Iterable[tuple[int, int]], index: int) -> int:
    """Return the start of the first secret that `index` is within; else `index`."""
    return min((start for start, end in spans if start < index < end), default=index)
