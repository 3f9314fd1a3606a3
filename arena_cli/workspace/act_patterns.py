"""Match patterns against what an agent wants to do: a whole command, or a whole path.

A command is split as a shell splits it. One that a shell would do more with than run one program
(operators, substitution, several lines) matches no pattern.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OPERATORS = frozenset(";|&<>()")
_EXPANDED = frozenset("$`")
"""Signs that a shell expands, also between double quotes."""

_ANY_WORDS = "*"
_ANY_FOLDERS = "**"


def check_pattern(pattern: str) -> str:
    """Return the pattern. Raises ValueError if no command and no path can match it."""
    if not pattern.strip() or _CONTROL.search(pattern):
        raise ValueError("must be a command or a path in one line")
    is_path = "/" in pattern and " " not in pattern
    if is_path and ".." in PurePosixPath(pattern).parts:
        raise ValueError("must be a path without `..`")
    if not is_path and split_command(pattern) is None:
        raise ValueError("must be one command, without shell operators, `$` and open quotes")
    return pattern


def matches_command(pattern: str, command: str) -> bool:
    """Return True if the whole command matches: `*` alone is any words, in a word any text."""
    patterns, words = split_command(pattern), split_command(command)
    return bool(patterns and words and _match_all(patterns, words, _ANY_WORDS))


def matches_path(pattern: str, path: str) -> bool:
    """Return True if the whole path matches: `**` is any folders, `*` any part of a name."""
    if _CONTROL.search(path):
        return False
    parts = PurePosixPath(path).parts
    return ".." not in parts and _match_all(PurePosixPath(pattern).parts, parts, _ANY_FOLDERS)


def matches_text(pattern: str, text: str) -> bool:
    """Return True if a whole text without blanks, such as a URL, matches: `*` is any text."""
    return not re.search(r"\s", text) and not _CONTROL.search(text) and _match(pattern, text)


def split_command(command: str) -> list[str] | None:
    """Return the words of a command; None if a shell would do more than run one program."""
    if _CONTROL.search(command) or _has_operator(command):
        return None
    try:
        return shlex.split(command)
    except ValueError:  # an open quote
        return None


def _has_operator(command: str) -> bool:
    quote = ""
    is_escaped = False
    for char in command:
        if is_escaped:
            is_escaped = False
        elif quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            is_escaped = True
        elif char in _EXPANDED or (not quote and char in _OPERATORS):
            return True
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
    return False


def _match_all(patterns: Sequence[str], words: Sequence[str], any_words: str) -> bool:
    """Return True if the words match the patterns in order; `any_words` matches any number."""
    reached = {0}
    for pattern in patterns:
        if pattern == any_words:
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and _match(pattern, words[at])}
        if not reached:
            return False
    return len(words) in reached


def _match(pattern: str, word: str) -> bool:
    """Return True if the word matches; `*` is any text without `..`."""
    first, *rest = pattern.split("*")
    if not rest:
        return word == pattern
    if ".." in word and ".." not in pattern:
        return False
    *middle, last = rest
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    at, end = len(first), len(word) - len(last)
    for text in middle:
        start = word.find(text, at, end)
        if start < 0:
            return False
        at = start + len(text)
    return True
