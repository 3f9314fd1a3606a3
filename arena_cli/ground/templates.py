"""`${name}` in texts: the one grammar of all that is filled in. `$${` is a literal `${`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Loc = tuple[str | int, ...]

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}\n]*)\}")


def names(text: str) -> list[str]:
    """What stands between the braces of each placeholder, in order."""
    if "${" not in text:
        return []
    return [found[1] for found in _PLACEHOLDER.finditer(text) if found[1] is not None]


def filled(text: str, value_of: Callable[[str], str | None], *, literal: str = "${") -> str:
    """The text with each placeholder replaced by what `value_of` its name gives; by None: left.

    `literal` takes the place of `$${`, which stays what it is in a text that is filled again.
    """
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return literal
        given = value_of(found[1])
        return found[0] if given is None else given

    return _PLACEHOLDER.sub(value, text)


def escaped(text: str) -> str:
    """A text that says just this when it is filled."""
    return text.replace("${", "$${")


def mapped(data: Any, change: Callable[[str, Loc], Any], loc: Loc = ()) -> Any:
    """Nested data with each text changed; `change` is told its place. Keys are no templates."""
    if isinstance(data, str):
        return change(data, loc)
    if isinstance(data, Mapping):
        return {key: mapped(value, change, (*loc, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [mapped(item, change, (*loc, index)) for index, item in enumerate(data)]
    return data


def texts(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Each text of nested data, keys apart, and its place."""
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from texts(value, (*loc, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from texts(item, (*loc, index))
