"""Hide the secrets in the lines of a file that an error quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from arena_cli.util.redaction import Redactor

HIDDEN = "[hidden]"

_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:api|access|auth|client|private|secret)?"
    r"(?:key|token|secret|pass|password|passwd|pwd|pat|dsn|authorization|auth|cookie|credentials?|headers)$",
    re.IGNORECASE,
)
_KEY = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)[\"']?\s*[:：]\s*[\"']?(?P<value>\S)?")
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|, not .*")
# Values that name a secret and are none: `${env:NAME}`, `${NAME}`, and, for a program, `inherit`.
_NAMES_SECRET = re.compile(r"\$\{(?:env:|[A-Za-z_]\w*\})|inherit[\"']?\s*(?:[,}#]|$)")


def is_secret_key(name: str) -> bool:
    """Return True if the value of a key of that name may be a secret."""
    return _SECRET_NAME.search(name) is not None


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
    return _redactor().text(line)


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
    return _QUOTED.sub(f"`{HIDDEN}`", message).partition(": ")[0]


@cache
def _redactor() -> Redactor:
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
