"""Match names against globs and the patterns of `.gitignore`, in a time that no pattern explodes.

`*` is any part of a name, `?` a character, `[...]` one of several, and `**` any folders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.util import files

IGNORE_FILE = ".gitignore"

_MOST_IGNORE_BYTES = 1_000_000
_TOKEN = re.compile(r"\\(.)|(\[[!^]?\]?[^\]]*\])|(.)", re.DOTALL)
_ANY = ""


class Glob:
    """A glob over the path of a file from a folder; one without `/` matches a name anywhere."""

    def __init__(self, pattern: str) -> None:
        components = [component for component in pattern.split("/") if component not in ("", ".")]
        if "/" not in pattern.rstrip("/"):
            components.insert(0, "**")
        self._parts = [
            None if component == "**" else _compile(component) for component in components
        ]

    def matches(self, components: Sequence[str]) -> bool:
        """Return True if the whole path matches, given by its names."""
        reached = {0}
        for pattern in self._parts:
            if pattern is None:
                reached = set(range(min(reached), len(components) + 1))
            else:
                reached = {
                    index + 1
                    for index in reached
                    if index < len(components) and _match(pattern, components[index])
                }
            if not reached:
                return False
        return len(components) in reached


class _IgnoreRule(NamedTuple):
    glob: Glob
    ignores: bool
    folders_only: bool


class IgnoreFile:
    """The rules of a `.gitignore`, for the paths below its folder."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for line in text.splitlines() if (rule := _read_rule(line))]

    def decide(self, components: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path from its folder is ignored; None if no rule says so."""
        for rule in reversed(self._rules):
            if (is_folder or not rule.folders_only) and rule.glob.matches(components):
                return rule.ignores
        return None


def read_ignore_file(folder: Path) -> IgnoreFile | None:
    """Return the rules of a folder's `.gitignore`; None if it has none that can be read."""
    try:
        with files.open_binary(folder / IGNORE_FILE) as file:
            text = file.read(_MOST_IGNORE_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return None
    return IgnoreFile(text)


def _read_rule(line: str) -> _IgnoreRule | None:
    pattern = re.sub(r"(?<!\\)[ \t]+$", "", line)
    if not pattern or pattern.startswith("#"):
        return None
    ignores = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    folders_only = pattern.endswith("/")
    if not pattern.strip("/"):
        return None
    if pattern.endswith("/**"):
        pattern += "/*"  # all below a folder, and not the folder itself
    return _IgnoreRule(Glob(pattern), ignores, folders_only)


_Matcher = re.Pattern[str] | str
"""A character, a class of characters, or `_ANY` for any text."""


def _compile(component: str) -> list[_Matcher]:
    tokens: list[_Matcher] = []
    for match in _TOKEN.finditer(component):
        escaped, group, plain = match.groups()
        if group:
            tokens.append(_compile_class(group))
        elif plain == "*":
            tokens.append(_ANY)
        elif plain == "?":
            tokens.append(_EACH)
        else:
            tokens.append(escaped or plain)
    return tokens


_EACH = re.compile(".", re.DOTALL)


def _compile_class(group: str) -> _Matcher:
    inner = re.sub(r"([\\\[\]&~|^])", r"\\\1", group[1:-1].removeprefix("!").removeprefix("^"))
    sign = "^" if group[1:2] in ("!", "^") else ""
    try:
        return re.compile(f"[{sign}{inner}]", re.DOTALL)
    except re.error:  # such as a range that runs backwards
        return re.compile(r"(?!)")


def _match(tokens: Sequence[_Matcher], name: str) -> bool:
    """Return True if the whole name matches; only the last `*` is ever tried again."""
    position = token = 0
    star, again = -1, 0
    while position < len(name):
        current = tokens[token] if token < len(tokens) else None
        if current == _ANY:
            star, again, token = token, position, token + 1
        elif current is not None and _fits(current, name[position]):
            position, token = position + 1, token + 1
        elif star >= 0:
            again += 1
            position, token = again, star + 1
        else:
            return False
    return all(matcher == _ANY for matcher in tokens[token:])


def _fits(token: _Matcher, char: str) -> bool:
    return token == char if isinstance(token, str) else token.fullmatch(char) is not None
