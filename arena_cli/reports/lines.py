"""Lines of a report as data: pieces of text, each with its style. No colours here."""

from __future__ import annotations

import gettext
import os
import string
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli import errors
from arena_cli.protocol import COST_NOT_TAKEN, NOT_SHOWN, Usage
from arena_cli.transcript.events import PassedOver, ReplyFinished
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Language


class Span(NamedTuple):
    """A piece of a line, escaped text. `style` is its kind (`terminal.STYLES`)."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """A line. In a narrow terminal its further rows begin `hang` columns in.

    If `hang` is None, they begin where its own text does. `whole` lines are never broken, so that a
    copy of them equals the original.
    """

    spans: tuple[Span, ...]
    hang: int | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        """The line as plain text, without a line end."""
        if len(self.spans) == 1:
            return self.spans[0].text
        return "".join([span.text for span in self.spans])


EMPTY = Line(())
INDENT = "  "
BETWEEN = Span(" · ", "dim")


def line(*pieces: str | Span | Iterable[Span], hang: int | None = None) -> Line:
    """Return a line of texts, spans and lists of spans."""
    spans: list[Span] = []
    for piece in pieces:
        if isinstance(piece, Span):
            spans.append(piece)
        elif isinstance(piece, str):
            spans.append(Span(piece))
        else:
            spans.extend(piece)
    return Line(tuple(spans), hang)


CALLED_ALREADY = (
    "{who} (was called in this turn, is not called again: re_invoke_already_replied is false)"
)
BEING_CALLED = (
    "{who} (is called in this turn, again only if it declines: re_invoke_already_replied is false)"
)


def quote(name: str) -> str:
    """Return a name as an argument in a shell's command; in quotes if it has a space."""
    name = escape_line(name)
    return f'"{name}"' if " " in name else name


def unresolved(names: Iterable[str], members: Mapping[str, str], say: Words) -> str:
    """Return the text of names that no member has, with near ones; `members` are names by id."""
    listed = say(", ").join(f"@{escape_line(name)}" for name in names)
    known = (*members, *members.values())
    near = dict.fromkeys(filter(None, (errors.find_nearest(name, known) for name in names)))
    if not near:
        return say("no member is called {names}", names=listed)
    hints = say(", ").join(f"@{escape_line(name)}" for name in near)
    return say("no member is called {names} (did you mean {near}?)", names=listed, near=hints)


_WINDOWS_CHINESE = 0x04
_WINDOWS_PRIMARY = 0x3FF


_LOCALE = Path(__file__).parent / "locale"


class Words:
    """Fixed words in one language."""

    def __init__(self, language: Language = "en") -> None:
        self.language: Language = language
        self._texts = gettext.NullTranslations()
        if language != "en":
            self._texts = gettext.translation("arena", _LOCALE, [language])

    def __call__(self, text: str, /, **values: object) -> str:
        """Return the text in this language, with `{name}` filled in."""
        translated = self._texts.gettext(text)
        return translated.format(**values) if values else translated

    def enum(self, word: str) -> str:
        """Return a word of a file's vocabulary: itself, followed by its translation."""
        meaning = self._texts.pgettext("word", word)
        return word if meaning == word else f"{word}（{meaning}）"

    def spans(
        self, text: str, /, style: str = "", **values: str | int | list[Span]
    ) -> Iterator[Span]:
        """Yield the text as pieces of a line; a value may be pieces with their own styles."""
        for literal, name, _, _ in string.Formatter().parse(self._texts.gettext(text)):
            if literal:
                yield Span(literal, style)
            if name is not None:
                value = values[name]
                if isinstance(value, list):
                    yield from value
                else:
                    yield Span(str(value), style)


def language(environ: Mapping[str, str]) -> Language:
    """Return the language: `ARENA_LANG` (zh, or English), else the locale, else that of Windows."""
    setting = environ.get("ARENA_LANG")
    if setting:
        return _parse_language(setting)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return _parse_language(environ[name])
    return _windows() if sys.platform == "win32" else "en"


def user_words() -> Words:
    """Return the words in the language of this process."""
    return Words(language(os.environ))


def _parse_language(tag: str) -> Language:
    return "zh" if tag.casefold().startswith("zh") else "en"


def _windows() -> Language:
    import ctypes  # noqa: PLC0415 - there is no other way on Windows, and no need elsewhere

    try:
        tag = ctypes.windll.kernel32.GetUserDefaultUILanguage()  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    except (AttributeError, OSError):
        return "en"
    return "zh" if tag & _WINDOWS_PRIMARY == _WINDOWS_CHINESE else "en"


LONGEST_AVATAR = 12


def clock(ts: str) -> str:
    """Return the time of day in the local time zone."""
    try:
        return f"{datetime.fromisoformat(ts).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def avatar(text: str) -> str:
    """Return a profile's `avatar` for use before a name; empty for the address of a picture."""
    escaped = escape_line(text.strip())
    return "" if len(escaped) > LONGEST_AVATAR or "/" in escaped or "." in escaped else escaped


def tokens(usage: Usage) -> str:
    """Return input and output tokens, `~` before an estimate, and the cost if it is known."""
    about = "~" if usage.estimated else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return f"{about}{sent} → {about}{usage.output_tokens} tokens{cost}"


def cost_not_taken(metadata: Mapping[str, Any], say: Words) -> str:
    """Return the message about an implausible cost that is not counted; "" if there is none."""
    cost = metadata.get(COST_NOT_TAKEN)
    return "" if cost is None else say("cost not counted: {cost} USD", cost=escape_line(str(cost)))


def remarks(reply: ReplyFinished, say: Words) -> list[str]:
    """Return the lines about what the agent of a reply was refused, and what it did not see."""
    refused = [
        say("refused: {action}", action=escape_line(str(action)))
        for action in reply.refused_actions
    ]
    names = reply.metadata.get(NOT_SHOWN)
    if not isinstance(names, list) or not names:
        return refused
    shown = say(", ").join(escape_line(str(name)) for name in names)
    return [*refused, say("not shown, only its path was given: {names}", names=shown)]


def passed_over(reason: PassedOver | Mapping[str, Any], say: Words) -> str:
    """Explain why a candidate was not asked."""
    passed_over = PassedOver.model_validate(reason)
    relevance = f"{passed_over.relevance:g}"
    if passed_over.threshold is not None:
        threshold = f"{passed_over.threshold:g}"
        return say("relevance {relevance} < {threshold}", relevance=relevance, threshold=threshold)
    text = escape_line(passed_over.reason or "")
    return say("relevance {relevance}, {reason}", relevance=relevance, reason=text)


def joined(groups: Iterable[list[Span]], between: str) -> list[Span]:
    """Return the groups joined by a separator."""
    spans: list[Span] = []
    for group in groups:
        spans += [Span(between, "dim"), *group] if spans else group
    return spans


def step(number: int, name: str, say: Words, kind: str = "") -> str:
    """Return `step 2: its name`; `kind` follows the number."""
    suffix = f"{say(': ')}{escape_line(name)}" if name else ""
    return f"{say('step {number}', number=number)}{kind}{suffix}"
