"""`.env` files: `KEY=VALUE` lines, with quotes, comments and `export`."""

from __future__ import annotations

import io
from pathlib import Path

from arena_cli.ground import regularfiles
from arena_cli.ground.errors import Fault, FileFaults

_FORM = "write NAME=value; put the value in quotes if it holds spaces, quotes or #"


def read(path: Path, shown: str) -> dict[str, str]:
    """The variables of a file, empty where there is none; raises FileFaults with line numbers.

    No fault shows what stands in the file. `$NAME` in a value stays as it is.
    """
    try:
        raw = regularfiles.read(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise FileFaults([Fault(shown, 0, "", what)]) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = Fault(shown, line, "", "is not UTF-8", "save the file as UTF-8")
        raise FileFaults([fault]) from error
    return parse(text, shown)


def parse(text: str, shown: str) -> dict[str, str]:
    """The variables of a text, the last of a name; raises FileFaults with line numbers."""
    from dotenv.parser import parse_stream  # noqa: PLC0415  # only where there is a `.env`

    values: dict[str, str] = {}
    faults = []
    for binding in parse_stream(io.StringIO(text)):
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
        elif binding.error or binding.key is not None:
            written = binding.original.string
            blank = len(written) - len(written.lstrip())
            line = binding.original.line + written.count("\n", 0, blank)
            faults.append(Fault(shown, line, "", "is no `NAME=value`", _FORM))
    if faults:
        raise FileFaults(faults)
    return values
