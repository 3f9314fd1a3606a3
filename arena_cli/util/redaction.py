"""Remove secrets from text once, at the edge, before it is shown, stored or hashed."""

from __future__ import annotations

import contextlib
import json
import re
import string
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from arena_cli.protocol import Attachment
from arena_cli.util.text import clean_text, lazy_pattern, map_text
from arena_cli.util.user_pattern import PatternTimeout, UserPattern

REDACTED = "[redacted]"
WITHHELD = "[withheld: a `redact` pattern takes too long on it]"
PATTERNS_SETTING = "arena.yaml: redact"

# A text that was cut may end within a secret: so many of its first characters are redacted too,
# where the text ends after them, or a mark says that something is left out.
_LEAST_PIECE, _MOST_PIECE = 12, 24
_CUT_MARKS = ("…", "...", "*")

_UNRESERVED = lazy_pattern(r"[A-Za-z0-9._~-]*")
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


class Redactor:
    """Replaces secrets, matches of the workspace's `redact` patterns and known key shapes.

    `secrets` are literal texts (also found as JSON writes them), `patterns` regular expressions;
    raise `re.error` for a wrong one. Overlapping matches become one `[redacted]`. Redacting twice
    gives the same as once. All methods raise PatternTimeout if a pattern takes too long.
    """

    def __init__(
        self, secrets: Iterable[str] = (), patterns: Iterable[re.Pattern[str] | str] = ()
    ) -> None:
        self.patterns = tuple(UserPattern(source, where=PATTERNS_SETTING) for source in patterns)
        self.literals = tuple(
            sorted({form for source in secrets if source for form in _encode_variants(source)})
        )
        # The first characters of a literal that give it away in a text that was cut.
        self._beginnings = tuple(
            (source, source[: min(max(_LEAST_PIECE, len(source) // 2), _MOST_PIECE)])
            for source in self.literals
        )

    def text(self, text: str) -> str:
        """Return the text with every secret in it replaced."""
        for _ in range(_MOST_PASSES):
            spans = list(self.spans(text))
            if not spans:
                return text
            redacted = _replace_spans(text, spans)
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
        return map_text(value, self.text_or_nothing)

    def value(self, value: Any) -> Any:
        """Apply `text` to nested data, keys included; keep bytes unchanged."""
        return map_text(value, self.text)

    def attachment(self, attachment: Attachment) -> Attachment:
        """Redact its name and content; keep a binary picture, which redaction would break."""
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
        """Redact bytes: UTF-8 as text, in all other data the literal secrets."""
        with contextlib.suppress(UnicodeDecodeError):
            return self.text(data.decode("utf-8")).encode("utf-8")
        for literal in self.literals:
            data = data.replace(literal.encode("utf-8", "replace"), REDACTED.encode())
        return data

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each secret; they may overlap."""
        for literal, least in self._beginnings:
            start = text.find(least)
            while start >= 0:
                end = start + _measure_common(literal, text, start)
                is_cut = end == len(text) or text.startswith(_CUT_MARKS, end)
                if end - start == len(literal) or is_cut:
                    yield start, end
                start = text.find(least, start + 1)
        for pattern in self.patterns:
            yield from _find_spans(pattern, text)
        for rare, beginnings, shape in _SHAPES:
            if rare in text:
                for beginning in beginnings:
                    if beginning in text:
                        yield from _find_spans(re.compile(shape), text)
                        break


def _measure_common(literal: str, text: str, start: int) -> int:
    """Return the number of characters of the literal that the text has from `start` on."""
    if text.startswith(literal, start):
        return len(literal)
    return next(i for i, char in enumerate(literal) if text[start + i : start + i + 1] != char)


def _find_spans(pattern: re.Pattern[str] | UserPattern, text: str) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(text):
        if match.group():
            yield match.span()


def _encode_variants(secret: str) -> Iterator[str]:
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


def _replace_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with each group of overlapping spans replaced; keep existing marks."""
    index = text.find(REDACTED)
    while index >= 0:
        spans.append((index, index + len(REDACTED)))
        index = text.find(REDACTED, index + len(REDACTED))
    spans.sort()
    pieces = []
    kept_from = 0
    start, end = spans[0]
    for next_start, next_end in [*spans[1:], (len(text) + 1, len(text) + 1)]:
        if next_start < end:
            end = max(end, next_end)
            continue
        pieces += [text[kept_from:start], REDACTED]
        kept_from = end
        start, end = next_start, next_end
    return "".join([*pieces, text[kept_from:]])


TAIL_LENGTH = 400
# What is held back can be no longer; the rest of that text is not shown while it grows.
MOST_HELD = 4096

_KEY_CHARACTERS = string.ascii_letters + string.digits + "._~+/=-"
_BEARER = "earer "
_PEM_BEGIN = "-----BEGIN "
_KEY_BEGINS = lazy_pattern(
    r"-----BEGIN (?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[A-Z0-9 ]{0,60}-{0,4}\Z)"
)
_KEY_ENDS = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Patterns of these pieces alone match within a line, and the same whatever stands around it.
_IN_ONE_LINE = lazy_pattern(
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
        self._literals = (*redactor.literals, REDACTED)
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
        redacted = self._redactor.text(clean_text(text[:certain])[0])
        self.tail = (self.tail + redacted)[-TAIL_LENGTH:]
        return redacted

    def _certain(self, text: str) -> int:
        """Return the length of the text that no later piece can change."""
        begun = (_find_begun_literal(text, literal) for literal in self._literals)
        certain = self._boundary(text, min(_find_open_key(text), *begun))
        while certain:
            spans = self._redactor.spans(text)
            crossed = min((start for start, end in spans if start < certain < end), default=certain)
            if crossed == certain:
                break
            certain = self._boundary(text, crossed)
        return certain

    def _boundary(self, text: str, limit: int) -> int:
        """Return the last position up to `limit` after which no text depends on that before."""
        if self._by_line:
            return text.rfind("\n", 0, limit) + 1
        end = len(text[:limit].rstrip(_KEY_CHARACTERS))
        while text.endswith(_BEARER, 0, end):
            end = len(text[: end - 1].rstrip(_KEY_CHARACTERS))
        return end


def _find_begun_literal(text: str, literal: str) -> int:
    """Return the position, at the end of the text, where a literal may have begun."""
    index = max(len(text) - len(literal) + 1, 0)
    while (index := text.find(literal[0], index)) >= 0:
        if literal.startswith(text[index:]):
            return index
        index += 1
    return len(text)


def _find_open_key(text: str) -> int:
    """Return the position of a private key that has not ended."""
    index = text.rfind(_PEM_BEGIN)
    if index >= 0 and _KEY_BEGINS.match(text, index) and not _KEY_ENDS.search(text, index):
        return index
    return len(text)


HIDDEN = "[hidden]"

_SECRET_NAME = (
    r"(?i)(?:^|[^a-z])(?:api|access|auth|client|private|secret)?"
    r"(?:key|token|secret|pass|password|passwd|pwd|pat|dsn|authorization|auth|cookie|credentials?|headers)$"
)
_KEY = lazy_pattern(r"(?<![\w.-])(?P<name>[\w.-]+)[\"']?\s*[:：]\s*[\"']?(?P<value>\S)?")
_QUOTED = r"`[^`]*`|\"[^\"]*\"|'[^']*'|, not .*"
# Values that name a secret and are none: `${env:NAME}`, `${NAME}`, and, for a program, `inherit`.
_NAMES_SECRET = lazy_pattern(r"\$\{(?:env:|[A-Za-z_]\w*\})|inherit[\"']?\s*(?:[,}#]|$)")


def is_secret_key(name: str) -> bool:
    """Return True if the value of a key of that name may be a secret."""
    return re.search(_SECRET_NAME, name) is not None


def find_secret_lines(lines: Iterable[str]) -> frozenset[int]:
    """Return the indexes of the lines that belong to the value of a secret key above them."""
    indexes = set()
    column: int | None = None  # of the secret key
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        if column is not None and len(line) - len(line.lstrip(" \t")) > column:
            indexes.add(index)
        else:
            is_key = _secret_start(line) is not None
            column = len(line) - len(line.lstrip(" \t-")) if is_key else None
    return frozenset(indexes)


@lru_cache(maxsize=8)
def mask_line(line: str) -> str:
    """Return a line of a file without the values of its secret keys."""
    start = _secret_start(line)
    if start is not None:
        line = line[:start] + HIDDEN
    return _default_redactor().text(line)


def mask_text(text: str) -> str:
    """Return the text of a file without the values of its secret keys, line by line."""
    lines = text.split("\n")
    hidden = find_secret_lines(lines)
    return "\n".join(
        HIDDEN if index in hidden else mask_line(line) for index, line in enumerate(lines)
    )


def hide_quotes(message: str, line: str, masked_line: str) -> str:
    """Return `message` without its quotes from `line` that the masked line does not show."""
    if line == masked_line:
        return message

    def hide(match: re.Match[str]) -> str:
        is_hidden = match[1] in line and match[1] not in masked_line
        return f"`{HIDDEN}`" if is_hidden else match[0]

    return re.sub(r"`([^`]+)`", hide, message)


def hide_all_quotes(message: str) -> str:
    """Return `message` without anything that may be quoted in it, by quotes or after a colon."""
    return re.sub(_QUOTED, f"`{HIDDEN}`", message).partition(": ")[0]


@cache
def _default_redactor() -> Redactor:
    return Redactor()


def _secret_start(line: str) -> int | None:
    """Return the column of the first value of a secret key, None if there is none."""
    for match in _KEY.finditer(line):
        if not is_secret_key(match["name"]):
            continue
        if not match["value"]:
            return len(line)
        if not _NAMES_SECRET.match(line, match.start("value")):
            return match.end("value") - 1
    return None
