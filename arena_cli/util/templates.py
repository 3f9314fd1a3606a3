"""Fill `${name}` in texts: the one grammar of all templates. `$${` is a literal `${`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from arena_cli.errors import Fault, FileFaults
from arena_cli.util import files

Loc = tuple[str | int, ...]

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}\n]*)\}")
_SHELL_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::?[-=?+].*)?")


def list_placeholders(text: str) -> list[str]:
    """Return the names between the braces of each placeholder, in order."""
    if "${" not in text:
        return []
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1] is not None]


def fill_template(text: str, value_of: Callable[[str], str | None], *, literal: str = "${") -> str:
    """Return the text with each placeholder replaced by `value_of` its name, if not None.

    `literal` replaces `$${`, which is kept in a text that is filled again.
    """
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return literal
        replacement = value_of(match[1])
        return match[0] if replacement is None else replacement

    return _PLACEHOLDER.sub(value, text)


def escape_template(text: str) -> str:
    """Return a text that yields exactly this text when it is filled."""
    return text.replace("${", "$${")


def explain_unfilled(text: str) -> tuple[str, str] | None:
    """Return the problem and the hint of a text with `${NAME}`, which only `env:` fills."""
    for placeholder in list_placeholders(text):
        name = _SHELL_VARIABLE.fullmatch(placeholder)
        if name:
            hint = f"write `${{env:{name[1]}}}`; a literal `${{` is `$${{`"
            return f"`${{{placeholder}}}` is not filled in: it has no `env:`", hint
    return None


def map_texts(data: Any, change: Callable[[str, Loc], Any], loc: Loc = ()) -> Any:
    """Return nested data with each text changed; `change` gets its place. Keys are no templates."""
    if isinstance(data, str):
        return change(data, loc)
    if isinstance(data, Mapping):
        return {key: map_texts(value, change, (*loc, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [map_texts(item, change, (*loc, index)) for index, item in enumerate(data)]
    return data


def iter_texts(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield each text of nested data, without keys, and its place."""
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from iter_texts(value, (*loc, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from iter_texts(item, (*loc, index))


_DOTENV_FORM = "write NAME=value; put the value in quotes if it holds spaces, quotes or #"


def read_dotenv_file(path: Path, name: str) -> dict[str, str]:
    """Return the variables of a file, none if it does not exist; raise FileFaults with lines.

    No error quotes the file. `$NAME` in a value is kept unchanged.
    """
    try:
        raw = files.read_regular(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise FileFaults([Fault(name, 0, "", problem)]) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = Fault(name, line, "", "is not UTF-8", "save the file as UTF-8")
        raise FileFaults([fault]) from error
    return parse_dotenv(text, name)


def parse_dotenv(text: str, name: str) -> dict[str, str]:
    """Return the variables of a text, the last of a name; raise FileFaults with line numbers."""
    from dotenv.parser import parse_stream  # noqa: PLC0415  # only where there is a `.env`

    values: dict[str, str] = {}
    faults = []
    for binding in parse_stream(io.StringIO(text)):
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
        elif binding.error or binding.key is not None:
            source = binding.original.string
            blank = len(source) - len(source.lstrip())
            line = binding.original.line + source.count("\n", 0, blank)
            faults.append(Fault(name, line, "", "is no `NAME=value`", _DOTENV_FORM))
    if faults:
        raise FileFaults(faults)
    return values
