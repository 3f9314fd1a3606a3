"""Choose the language of texts, and translate them with the gettext catalog.

Reports translate a text where they write it (`Texts`). Errors and hints are raised in English, at
any depth, and are translated where they are printed (`translate_message`): transcripts, JSON and
logs keep the English text. The catalog has these messages in the context `message`; a message
with values in it is recognised by the text around them.
"""

from __future__ import annotations

import gettext
import os
import re
import string
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.util import files
from arena_cli.util.text import lazy_pattern

Language = Literal["en", "zh"]

_LOCALE = Path(__file__).parent.parent / "reports" / "locale"
_WINDOWS_CHINESE = 0x04
_WINDOWS_PRIMARY = 0x3FF

_WORD = "word"
_MESSAGE = "message"
_CHECK = "check"
_ROW = "row"
_CONDITION = "condition"


class Texts:
    """Fixed texts in one language."""

    def __init__(self, language: Language = "en") -> None:
        self.language: Language = language
        self._catalog = _catalog(language)

    def __call__(self, text: str, /, **values: object) -> str:
        """Return the text in this language, with `{name}` filled in."""
        translated = self.translate(text)
        return translated.format(**values) if values else translated

    def translate(self, text: str, context: str = "") -> str:
        """Return the text in this language, in that context of the catalog if it is there."""
        if context:
            translated = self._catalog.pgettext(context, text)
            if translated != text:
                return translated
        return self._catalog.gettext(text)

    def message(self, text: str) -> str:
        """Return an error or a hint in this language; see `translate_message`."""
        return translate_message(text, self.language)

    def check(self, text: str) -> str:
        """Return what a check expected or found in this language; texts of agents stay."""
        return _translate_check(text, self.language)

    def enum(self, word: str) -> str:
        """Return a word of a file's vocabulary: itself, followed by its translation."""
        meaning = self._catalog.pgettext(_WORD, word)
        return word if meaning == word else f"{word}（{meaning}）"


@lru_cache
def _catalog(language: Language) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    return gettext.translation("arena", _LOCALE, [language])


_workspace_language: list[Language] = []
_SETTING = lazy_pattern(rb"^language[ \t]*:[ \t]*[\"']?(en|zh)\b", re.MULTILINE)


def use_workspace(root: Path | None) -> None:
    """Use the language that `arena.yaml` in this folder sets, even if the file has errors."""
    _workspace_language.clear()
    if root is None:
        return
    try:
        match = _SETTING.search(files.read_regular(root / "arena.yaml"))
    except OSError:
        return
    if match:
        _workspace_language.append("zh" if match[1] == b"zh" else "en")


def current_language() -> Language:
    """Return the language of this process's user; see `choose_language`."""
    return choose_language(os.environ, _workspace_language[0] if _workspace_language else None)


def choose_language(environ: Mapping[str, str], workspace: Language | None = None) -> Language:
    """Return `ARENA_LANG` (zh, or English), else the workspace's language, else the locale's.

    On Windows without a locale, it is the language of the display.
    """
    setting = environ.get("ARENA_LANG")
    if setting:
        return _parse_language(setting)
    if workspace:
        return workspace
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return _parse_language(environ[name])
    return _windows() if sys.platform == "win32" else "en"


def _parse_language(tag: str) -> Language:
    return "zh" if tag.casefold().startswith("zh") else "en"


def _windows() -> Language:
    import ctypes  # noqa: PLC0415 - there is no other way on Windows, and no need elsewhere

    try:
        tag = ctypes.windll.kernel32.GetUserDefaultUILanguage()  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    except (AttributeError, OSError):
        return "en"
    return "zh" if tag & _WINDOWS_PRIMARY == _WINDOWS_CHINESE else "en"


class _MessagePattern(NamedTuple):
    """A message of the catalog: its literal parts, its pattern and its translation."""

    parts: tuple[str, ...]
    pattern: str
    translation: str


# Values that are messages themselves; all others are kept as they are.
_NESTED = frozenset({"actual", "expected", "hint", "problem", "reason", "scope"})

# Other values that may contain what separates the parts of a message, `; ` and `: `.
_LONG = frozenset({"command", "condition", "line", "request", "response", "text", "verdict"})

# A value that a check gave, or the text of the author of a rule.
_VERDICT = "verdict"

# What separates the parts of a row that a check describes, and a part that is an id or a word.
_BETWEEN = " · "
_NAME = lazy_pattern(r"[\w:.*@-]+")


@lru_cache
def _messages(
    language: Language, context: str
) -> tuple[Mapping[str, str], tuple[_MessagePattern, ...]]:
    """Return the messages of the catalog: fixed ones, and those with values, the longest first."""
    fixed: dict[str, str] = {}
    templates = []
    prefix = f"{context}\x04"  # between a context and its text, in the format of gettext
    entries: Mapping[Any, str] = getattr(_catalog(language), "_catalog", {})
    for key, translation in entries.items():
        if not isinstance(key, str) or not key.startswith(prefix):
            continue
        text = key.removeprefix(prefix)
        if "{" in text:
            templates.append(_compile(text, translation))
        else:
            fixed[text] = translation
    return fixed, tuple(sorted(templates, key=lambda one: -sum(map(len, one.parts))))


def _compile(text: str, translation: str) -> _MessagePattern:
    parts, pattern, names = [], "", set()
    for literal, name, _, _ in string.Formatter().parse(text):
        parts.append(literal)
        pattern += re.escape(literal)
        if name is not None:
            value = ".+?" if name in _NESTED else "(?:(?![;:] ).)+?"
            value = "(?s:.+?)" if name in _LONG else value
            pattern += f"(?P={name})" if name in names else f"(?P<{name}>{value})"
            names.add(name)
    return _MessagePattern(tuple(filter(None, parts)), pattern, translation)


def translate_message(text: str, language: Language | None = None) -> str:
    """Return a message in the user's language: as a whole, else by lines, clauses and prefixes.

    What the catalog does not have stays English.
    """
    language = language or current_language()
    if language == "en":
        return text
    translated = _translate_once(text, language, _MESSAGE, translate_message)
    if translated is not None:
        return translated
    if "\n" in text:
        return "\n".join(translate_message(line, language) for line in text.split("\n"))
    bare = text.lstrip(" ")
    if bare != text:
        return text[: len(text) - len(bare)] + translate_message(bare, language)
    if "; " in text:
        clauses = [translate_message(clause, language) for clause in text.split("; ")]
        return "；".join(clauses) if clauses != text.split("; ") else text
    prefix, colon, problem = text.partition(": ")
    return f"{prefix}{colon}{translate_message(problem, language)}" if problem else text


def _translate_check(text: str, language: Language) -> str:
    translated = _translate_once(text, language, _CHECK, _translate_check)
    return translated or _translate_rows(text, language) or text


def _translate_rows(text: str, language: Language) -> str | None:
    """Return the rows of a check; None if a part is unknown, as it may be the text of an agent."""
    rows = []
    for row in text.split("\n") if _BETWEEN in text else ():
        parts = [_translate_part(part, language) for part in row.split(_BETWEEN)]
        if None in parts:
            return None
        rows.append(_BETWEEN.join(filter(None, parts)))
    return "\n".join(rows) or None


def _translate_part(part: str, language: Language) -> str | None:
    for context in (_ROW, _CHECK):
        translated = _translate_once(part, language, context, _translate_check)
        if translated is not None:
            return translated
    return part if _NAME.fullmatch(part) else None


def _translate_once(
    text: str, language: Language, context: str, translate: Callable[[str, Language], str]
) -> str | None:
    """Return a text of that context as a whole; `translate` is for the messages in its values."""
    fixed, templates = _messages(language, context)
    if text in fixed:
        return fixed[text]
    for template in templates:
        if not all(part in text for part in template.parts):
            continue
        match = re.fullmatch(template.pattern, text)
        if match:
            values = match.groupdict()
            for name in values.keys() & _NESTED:
                values[name] = translate(values[name], language)
            if _VERDICT in values:
                values[_VERDICT] = _translate_check(values[_VERDICT], language)
            if _CONDITION in values:
                condition = values[_CONDITION]
                values[_CONDITION] = (
                    _translate_once(condition, language, _CONDITION, _translate_check) or condition
                )
            return template.translation.format(**values)
    return None
