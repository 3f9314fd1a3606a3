"""Read `.env` files: `KEY=VALUE` lines, with quotes, comments and `export`."""

from __future__ import annotations

import io
from pathlib import Path

from arena_cli.ground import regularfiles
from arena_cli.ground.errors import Fault, FileFaults

_FORM = "write NAME=value; put the value in quotes if it holds spaces, quotes or #"


def read(path: Path, name: str) -> dict[str, str]:
    """Return the variables of a file, none if it does not exist; raise FileFaults with lines.

    No fault quotes the file. `$NAME` in a value stays as it is.
    """
    try:
        raw = regularfiles.read(path)
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
    return parse(text, name)


def parse(text: str, name: str) -> dict[str, str]:
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
            faults.append(Fault(name, line, "", "is no `NAME=value`", _FORM))
    if faults:
        raise FileFaults(faults)
    return values
