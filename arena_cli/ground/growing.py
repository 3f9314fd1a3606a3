"""Text that is shown while it grows, redacted: what may be the beginning of a secret is held back.

A secret is whole, or nothing of it is shown: a literal one is held from where its beginning stands
at the end of the text; a known key shape, which is one run of letters, digits and `._~+/=-`, while
that run may go on; a private key until its end. With `redact` patterns of the workspace only whole
lines are shown, and nothing at all if one of them could match a line end, or looks at where the
text begins or ends.
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
    """Takes text piece by piece; the end of what of it is certain is `tail`, redacted.

    What was told, all together, is always the beginning of the whole text redacted. Each piece is
    read once, and what is held back again.
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
        """What has become certain, redacted; empty where nothing has."""
        if self._silent:
            return ""
        text = self._held + piece
        certain = self._certain(text)
        self._held = text[certain:]
        if len(self._held) > MOST_HELD:
            self._silent, self._held = True, ""
        told = self._redactor.text(texts.clean(text[:certain])[0])
        self.tail = (self.tail + told)[-TAIL:]
        return told

    def _certain(self, text: str) -> int:
        """How much of the text no later piece can change."""
        begun = (_begun(text, literal) for literal in self._literals)
        certain = self._boundary(text, min(_key(text), *begun))
        while certain:
            crossed = _crossed(self._redactor.spans(text), certain)
            if crossed == certain:
                break
            certain = self._boundary(text, crossed)
        return certain

    def _boundary(self, text: str, at: int) -> int:
        """The last place up to `at` behind which text is read the same without what is before."""
        if self._by_line:
            return text.rfind("\n", 0, at) + 1
        end = len(text[:at].rstrip(_RUN))
        while text.endswith(_LABEL, 0, end):
            end = len(text[: end - 1].rstrip(_RUN))
        return end


def _begun(text: str, literal: str) -> int:
    """Where, at the end of the text, a literal may have begun."""
    at = max(len(text) - len(literal) + 1, 0)
    while (at := text.find(literal[0], at)) >= 0:
        if literal.startswith(text[at:]):
            return at
        at += 1
    return len(text)


def _key(text: str) -> int:
    """Where a private key begins that has not ended."""
    at = text.rfind(_BEGIN)
    if at >= 0 and _KEY_BEGINS.match(text, at) and not _KEY_ENDS.search(text, at):
        return at
    return len(text)


def _crossed(spans: Iterable[tuple[int, int]], at: int) -> int:
    """Where the first of the secrets begins that `at` stands within; else `at`."""
    return min((start for start, end in spans if start < at < end), default=at)
