"""Fill `${name}` in texts: the one grammar of all templates. `$${` is a literal `${`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Loc = tuple[str | int, ...]

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}\n]*)\}")


def names(text: str) -> list[str]:
    """Return the names between the braces of each placeholder, in order."""
    if "${" not in text:
        return []
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1] is not None]


def filled(text: str, value_of: Callable[[str], str | None], *, literal: str = "${") -> str:
    """Return the text with each placeholder replaced by `value_of` its name, if not None.

    `literal` replaces `$${`, which stays as it is in a text that is filled again.
    """
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return literal
        replacement = value_of(match[1])
        return match[0] if replacement is None else replacement

    return _PLACEHOLDER.sub(value, text)


def escaped(text: str) -> str:
    """Return a text that gives just this text when it is filled."""
    return text.replace("${", "$${")


def mapped(data: Any, change: Callable[[str, Loc], Any], loc: Loc = ()) -> Any:
    """Return nested data with each text changed; `change` gets its place. Keys are no templates."""
    if isinstance(data, str):
        return change(data, loc)
    if isinstance(data, Mapping):
        return {key: mapped(value, change, (*loc, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [mapped(item, change, (*loc, index)) for index, item in enumerate(data)]
    return data


def texts(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield each text of nested data, without keys, and its place."""
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from texts(value, (*loc, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from texts(item, (*loc, index))
