"""The fixed words of reports, in English and in Chinese.

In the code they stand in English: `say("turn {turn}", turn=1)`. Whoever adds one adds its Chinese
to `chinese.py`. Words that stand in files too (`quiet`, `declined`) are never replaced: their
Chinese goes beside them (`say.enum`).
"""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Iterator, Mapping

from arena_cli.report import chinese
from arena_cli.report.spans import Span
from arena_cli.team.model import Language

_WINDOWS_CHINESE = 0x04
_WINDOWS_PRIMARY = 0x3FF


class Words:
    """Fixed words in one language."""

    def __init__(self, language: Language = "en") -> None:
        self.language: Language = language
        self._table: Mapping[str, str] = chinese.TEXTS if language == "zh" else {}
        self._beside: Mapping[str, str] = chinese.BESIDE if language == "zh" else {}

    def __call__(self, text: str, /, **values: object) -> str:
        """The text in this language, `{name}` filled in."""
        said = self._table.get(text, text)
        return said.format(**values) if values else said

    def enum(self, word: str) -> str:
        """A word that stands in files: itself, and beside it what it means."""
        meaning = self._beside.get(word)
        return f"{word}（{meaning}）" if meaning else word

    def spans(
        self, text: str, /, style: str = "", **values: str | int | list[Span]
    ) -> Iterator[Span]:
        """The same as pieces of a line; a value may be pieces with styles of their own."""
        for literal, name, _, _ in string.Formatter().parse(self._table.get(text, text)):
            if literal:
                yield Span(literal, style)
            if name is not None:
                value = values[name]
                if isinstance(value, list):
                    yield from value
                else:
                    yield Span(str(value), style)


def language(environ: Mapping[str, str]) -> Language:
    """`ARENA_LANG` (zh, or English), else the locale, else on Windows that of its windows."""
    asked = environ.get("ARENA_LANG")
    if asked:
        return _of(asked)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return _of(environ[name])
    return _windows() if sys.platform == "win32" else "en"


def here() -> Words:
    """The words in the language that this process was asked to speak."""
    return Words(language(os.environ))


def _of(tag: str) -> Language:
    return "zh" if tag.casefold().startswith("zh") else "en"


def _windows() -> Language:
    import ctypes  # noqa: PLC0415 - there is no other way on Windows, and no need elsewhere

    try:
        tag = ctypes.windll.kernel32.GetUserDefaultUILanguage()  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    except (AttributeError, OSError):
        return "en"
    return "zh" if tag & _WINDOWS_PRIMARY == _WINDOWS_CHINESE else "en"
