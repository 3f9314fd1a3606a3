"""What a value is and what it should be, in plain words."""

from __future__ import annotations

import re
import shlex
from typing import Any

from arena_cli.ground.yamlfiles import yamllines
from arena_cli.ground.yamlfiles.shapeerrors import Error

_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_FLAG_WORDS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def other(error: Error, *, is_secret: bool) -> str:
    """What is wrong with a value whose type is right; a secret is not repeated."""
    if error.kind in _BOUNDS:
        key, words = _BOUNDS[error.kind]
        got = "" if is_secret else f", not {error.value}"
        return f"{words} {error.context[key]:g}{got}"
    if error.kind == "finite_number":
        return "must be a finite number"
    if error.kind in ("too_short", "string_too_short"):
        return f"needs at least {error.context['min_length']}"
    if error.kind in ("too_long", "string_too_long"):
        return f"may have at most {error.context['max_length']}"
    message = error.message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message.replace("Input should", "must")


def as_asked(asked: str, value: Any, raw: str, *, key: str | int) -> tuple[str, str] | None:
    """How the value of a key is written as what is asked, and what to do in words.

    None if that is unknown.
    """
    if asked.startswith("a text") and raw:
        text = yamllines.quoted(raw)
        return text, f"quote it: {text}"
    if asked == "true or false" and str(value).lower() in _FLAG_WORDS:
        word = _FLAG_WORDS[str(value).lower()]
        return word, f"write {word}"
    if "number" in asked and isinstance(value, str) and number(value.rstrip(",;")):
        bare = value.rstrip(",;")
        return bare, "take the quotes away" if value == bare else f"take the `{value[-1]}` away"
    if "a list" in asked and isinstance(value, str) and key == "command":
        words = as_command(value)
        return words, f"write {words}"
    if "a list" in asked and isinstance(value, str | int | float) and raw:
        items = yamllines.quoted(raw) if _is_bare_flow(value, raw) else raw
        return f"[{items}]", f"write [{items}]"
    return None


def as_check(value: Any, raw: str | None) -> str:
    """A text as the check that it is contained; "" where it is none, or takes several lines."""
    if not raw or isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    is_bare = value == raw and re.fullmatch(r"[\w ]+", raw)
    text = raw if is_bare or raw[0] in "'\"" else yamllines.quoted(raw)
    return f"{{contains: {text}}}"


def as_command(line: str) -> str:
    """A program and its arguments in one text, as the list that it should be."""
    try:
        words = line.split() if "\\" in line else shlex.split(line)
    except ValueError:
        words = line.split()
    return f"[{', '.join(w if w.isalnum() else yamllines.quoted(w) for w in words)}]"


def _is_bare_flow(value: Any, raw: str) -> bool:
    return value == raw and any(mark in raw for mark in "[]{}")


def kind_of(value: Any) -> str:
    """A value in a few words: `the number 3`, `a list`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:39] + "…"
        return f"the text `{shown}`"
    return "a list" if isinstance(value, list) else "a mapping"


def number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def words(listed: str) -> list[str]:
    """Pydantic's `'skip', 'retry' or 'abort'` as words."""
    return [word.strip().strip("'") for word in listed.replace(" or ", ", ").split(",")]
