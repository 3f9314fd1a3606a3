"""The message of `arena send`: an argument, a file, or what comes by a pipe."""

from __future__ import annotations

import codecs
import contextlib
import locale
import sys
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand

from arena_cli.cli import common
from arena_cli.ground import regularfiles
from arena_cli.ground.errors import UsageError

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# Of all wrong uses typer names only this one's children.
_WrongUse = cast("type[Exception]", typer.BadParameter.__base__)


class Command(TyperCommand):
    """A command that takes a message; whoever did not quote it is told how."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, as every command does."""
        try:
            return super().parse_args(ctx, args)
        except _WrongUse as error:
            wrong: Any = error
            hint = _hint(wrong)
            if hint:
                wrong.message += f"\n  {hint}"
            raise


def _hint(wrong: Any) -> str:
    if type(wrong) is _WrongUse:  # too many arguments
        return 'Quote a message of several words: arena send "hello there"'
    if not getattr(wrong, "possibilities", True):  # an option that is like no other
        return 'Put `--` before a message that begins with `-`: arena send -- "- hello"'
    return ""


def given(argument: str | None, file: Path | None) -> str:
    """The text to send: the argument, a file, or stdin where it is a pipe or `-`."""
    if argument is not None and file is not None:
        raise UsageError("a MESSAGE and --file were given", "Give one of them.")
    if file is not None:
        return _read(file)
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise UsageError("there is no message", 'Say something: `arena send "hello"`.')
    return _read(None)


def _read(file: Path | None) -> str:
    """The text of a file, or of stdin, without its last line end."""
    name = file or "stdin"
    try:
        data = regularfiles.read_input(file) if file else sys.stdin.buffer.read()
    except OSError as error:
        what = "this file" if file else "it"
        raise UsageError(f"{name}: cannot read {what}: {error.strerror or error}") from error
    return decoded(data, str(name)).removesuffix("\n").removesuffix("\r")


def decoded(data: bytes, name: str) -> str:
    """Bytes from outside as text: by their byte order mark, as UTF-8, else by the locale.

    What cannot be read so is replaced; a line on stderr tells it of `name`.
    """
    marked = [encoding for bom, encoding in _BOMS.items() if data.startswith(bom)]
    encodings = marked or ["utf-8", locale.getencoding()]
    for encoding in encodings:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding)
    tried = " or ".join(dict.fromkeys(one.upper().removesuffix("-SIG") for one in encodings))
    common.warn(f"{name}: not all of it is {tried}; what is not was replaced by \ufffd")
    common.warn("  Give the message as UTF-8, or with a byte order mark.")
    return data.decode(encodings[-1], "replace")
