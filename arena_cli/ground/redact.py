"""Remove secrets from text once, at the edge, before it is shown, stored or hashed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from arena_cli.ground import text as texts
from arena_cli.ground.protocol import Attachment
from arena_cli.ground.userpattern import PatternTimeout, UserPattern

MARK = "[redacted]"
WITHHELD = "[withheld: a `redact` pattern takes too long on it]"
PATTERNS = "arena.yaml: redact"

# A text that was cut may end within a secret: so many of its first characters are redacted too,
# where the text ends after them, or a mark says that something is left out.
_LEAST_PIECE, _MOST_PIECE = 12, 24
_CUT_MARKS = ("…", "...", "*")

_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]*")
_HTML_SPECIAL = frozenset("&<>\"'")

# A replacement can bring together what a user's pattern matches; few passes settle any real text.
_MOST_PASSES = 4

_START = r"(?<![A-Za-z0-9])"
_HAS_DIGIT = r"(?=[A-Za-z._~+/=-]{0,64}[0-9])"
_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

# A character that is rarer than the rest (one is found far quicker than many), what each shape
# begins with, and the shape, as published by who issues it. A digit is asked for
# where prose with hyphens would fit too. Every repetition that may fail is bounded, or cannot start
# again inside of itself: the time stays linear.
_SHAPES = (
    ("-", ("sk-",), rf"{_START}sk-{_HAS_DIGIT}[A-Za-z0-9_-]{{20,}}"),
    ("_", ("sk_", "rk_"), rf"{_START}[sr]k_(?:live|test)_[A-Za-z0-9]{{16,}}"),
    ("_", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_START}gh[pousr]_[A-Za-z0-9]{{20,}}"),
    ("_", ("github_pat_",), rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}"),
    ("-", ("glpat-",), rf"{_START}glpat-[A-Za-z0-9_-]{{20,}}"),
    ("I", ("AKIA", "ASIA"), rf"{_START}A[KS]IA[A-Z0-9]{{16}}(?![A-Za-z0-9])"),
    ("I", ("AIza",), rf"{_START}AIza[A-Za-z0-9_-]{{30,}}"),
    ("-", ("xox", "xapp-"), rf"{_START}(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{{10,}}"),
    ("_", ("hf_",), rf"{_START}hf_[A-Za-z0-9]{{30,}}"),
    ("_", ("npm_",), rf"{_START}npm_[A-Za-z0-9]{{30,}}"),
    ("-", ("pypi-",), rf"{_START}pypi-[A-Za-z0-9_-]{{50,}}"),
    (
        "J",
        ("eyJ",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    ),
    (" ", ("earer ",), rf"(?<=[Bb]earer ){_HAS_DIGIT}[A-Za-z0-9._~+/=-]{{16,}}"),
    (
        "K",
        ("PRIVATE KEY",),
        rf"-----BEGIN {_KEY_LABEL}"
        rf"(?:(?:(?!-----BEGIN)[\s\S]){{0,20000}}?-----END {_KEY_LABEL}"
        r"|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*)",
    ),
)
_KNOWN = tuple((rare, beginnings, re.compile(shape)) for rare, beginnings, shape in _SHAPES)


class Redactor:
    """Replaces secrets, matches of the workspace's `redact` patterns and known key shapes.

    `secrets` are literal texts (also found as JSON writes them), `patterns` regular expressions;
    raise `re.error` for a wrong one. Overlapping matches become one `[redacted]`. Redacting twice
    gives the same as once. All methods raise PatternTimeout if a pattern takes too long.
    """

    def __init__(
        self, secrets: Iterable[str] = (), patterns: Iterable[re.Pattern[str] | str] = ()
    ) -> None:
        self.patterns = tuple(UserPattern(source, where=PATTERNS) for source in patterns)
        self.literals = tuple(
            sorted({form for source in secrets if source for form in _forms(source)})
        )
        self._beginnings = tuple(
            (source, source[: _recognisable(source)]) for source in self.literals
        )

    def text(self, text: str) -> str:
        """Return the text with every secret in it replaced."""
        for _ in range(_MOST_PASSES):
            spans = list(self.spans(text))
            if not spans:
                return text
            redacted = _replace(text, spans)
            if redacted == text:
                return text
            text = redacted
        return text

    def text_or_nothing(self, text: str) -> str:
        """Return `text`, or `WITHHELD` for a text on which a pattern takes too long."""
        try:
            return self.text(text)
        except PatternTimeout:
            return WITHHELD

    def value_or_nothing(self, value: Any) -> Any:
        """Apply `text_or_nothing` to nested data, keys included."""
        return texts.map_text(value, self.text_or_nothing)

    def value(self, value: Any) -> Any:
        """Apply `text` to nested data, keys included; bytes stay as they are."""
        return texts.map_text(value, self.text)

    def attachment(self, attachment: Attachment) -> Attachment:
        """Redact its name and content; a picture that is no text would break and is kept."""
        data: Any
        picture = attachment.picture()
        if picture is not None:
            data = self._picture(attachment.data, picture)
        elif isinstance(attachment.data, bytes):
            data = self._bytes(attachment.data)
        else:
            data = self.value(attachment.data)
        return attachment.model_copy(update={"name": self.text(attachment.name), "data": data})

    def _picture(self, encoded: str, content: bytes) -> str:
        """Redact a picture that is a text, such as SVG; `encoded` is its base64."""
        try:
            redacted = self.text(content.decode("utf-8")).encode("utf-8")
        except UnicodeDecodeError:
            return encoded
        import base64  # noqa: PLC0415 - few messages carry a picture

        return encoded if redacted == content else base64.b64encode(redacted).decode("ascii")

    def _bytes(self, data: bytes) -> bytes:
        """Redact bytes: UTF-8 as text, in all else the literal secrets."""
        with contextlib.suppress(UnicodeDecodeError):
            return self.text(data.decode("utf-8")).encode("utf-8")
        for literal in self.literals:
            data = data.replace(literal.encode("utf-8", "replace"), MARK.encode())
        return data

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each secret; they may overlap."""
        for literal, least in self._beginnings:
            start = text.find(least)
            while start >= 0:
                end = start + _common(literal, text, start)
                if end - start == len(literal) or _is_cut(text, end):
                    yield start, end
                start = text.find(least, start + 1)
        for pattern in self.patterns:
            yield from _matches(pattern, text)
        for rare, beginnings, shape in _KNOWN:
            if rare in text:
                for beginning in beginnings:
                    if beginning in text:
                        yield from _matches(shape, text)
                        break


def _recognisable(literal: str) -> int:
    """Return the number of first characters that still give the literal away in a cut text."""
    return min(max(_LEAST_PIECE, len(literal) // 2), _MOST_PIECE, len(literal))


def _common(literal: str, text: str, start: int) -> int:
    """Return the number of characters of the literal that the text has from `start` on."""
    if text.startswith(literal, start):
        return len(literal)
    return next(i for i, char in enumerate(literal) if text[start + i : start + i + 1] != char)


def _is_cut(text: str, end: int) -> bool:
    """Return True if the text seems to be cut there."""
    return end == len(text) or text.startswith(_CUT_MARKS, end)


def _matches(pattern: re.Pattern[str] | UserPattern, text: str) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(text):
        if match.group():
            yield match.span()


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret as it is, and as JSON, a URL, HTML and a shell write it."""
    yield secret
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
    if not _UNRESERVED.fullmatch(secret):
        from urllib.parse import quote, quote_plus  # noqa: PLC0415 - few secrets need it

        yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))
    if not _HTML_SPECIAL.isdisjoint(secret):
        import html  # noqa: PLC0415 - few secrets need it

        yield from (html.escape(secret), html.escape(secret, quote=False))
        yield secret.replace("'", "'\"'\"'")  # shlex


def _replace(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with each group of overlapping spans replaced; existing marks stay."""
    index = text.find(MARK)
    while index >= 0:
        spans.append((index, index + len(MARK)))
        index = text.find(MARK, index + len(MARK))
    spans.sort()
    pieces = []
    kept_from = 0
    start, end = spans[0]
    for next_start, next_end in [*spans[1:], (len(text) + 1, len(text) + 1)]:
        if next_start < end:
            end = max(end, next_end)
            continue
        pieces += [text[kept_from:start], MARK]
        kept_from = end
        start, end = next_start, next_end
    return "".join([*pieces, text[kept_from:]])
