"""Checks on one text: small pure functions that say whether it holds, and why.

Text, wanted texts and patterns are compared in NFKC, so that full-width and decomposed forms of
one character are one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from arena_cli.ground import text as texts
from arena_cli.ground.userpattern import PatternTimeout
from arena_cli.scenario.expect import language, patterns
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.team import letters
from arena_cli.yamlio.nodes import Loc

EXCERPT = 160  # characters of a text that a verdict shows
REASON = 2000  # characters of a reason that somebody else gives


class NoVerdict(Exception):
    """A check can say neither that it holds nor that it does not; the message says why.

    `expected` is what it asks, in words.
    """

    def __init__(self, expected: str, why: str) -> None:
        super().__init__(why)
        self.expected = expected


class Verdict(NamedTuple):
    """Whether an expectation holds, what it asks, and what was there, in words.

    `at` is the place of what did not hold, below the expectation's own, where it has parts.
    """

    holds: bool
    expected: str
    actual: str
    at: Loc = ()


class Check(NamedTuple):
    """One expectation, with its place below `expect`; `warns`: it does not fail."""

    loc: Loc
    judge: Callable[[Conversation], Verdict]
    warns: bool = False


def contains(text: str, wanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """Every wanted text is in it."""
    seen = patterns.form(text, ignore_case)
    missing = [part for part in wanted if patterns.form(part, ignore_case) not in seen]
    expected = f"contains {_listed(wanted)}{case(ignore_case)}"
    if missing:
        return Verdict(False, expected, f"no {_listed(missing, 'or')} in {excerpt(text)}")
    return Verdict(True, expected, _around(text, seen, patterns.form(wanted[0], ignore_case)))


def not_contains(text: str, unwanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """None of the unwanted texts is in it."""
    seen = patterns.form(text, ignore_case)
    expected = f"does not contain {_listed(unwanted, 'or')}{case(ignore_case)}"
    for part in unwanted:
        if patterns.form(part, ignore_case) in seen:
            found = _around(text, seen, patterns.form(part, ignore_case))
            return Verdict(False, expected, f"{quoted(part)} in {found}")
    return Verdict(True, expected, excerpt(text))


def regex(text: str, pattern: str, *, ignore_case: bool = False) -> Verdict:
    """The pattern is found somewhere in it (Python's `re.search`)."""
    expected = f"matches /{pattern}/{case(ignore_case)}"
    try:
        found = patterns.compiled(pattern, ignore_case=ignore_case).search(patterns.form(text))
    except PatternTimeout as error:
        raise NoVerdict(expected, str(error)) from error
    if found is None:
        return Verdict(False, expected, f"no match in {excerpt(text)}")
    return Verdict(True, expected, f"matched {excerpt(found.group())}")


def equals(text: str, wanted: str, *, ignore_case: bool = False) -> Verdict:
    """It is that text, whitespace around both apart."""
    holds = patterns.form(text, ignore_case).strip() == patterns.form(wanted, ignore_case).strip()
    return Verdict(holds, f"is {excerpt(wanted)}{case(ignore_case)}", excerpt(text))


def starts_with(text: str, wanted: str, *, ignore_case: bool = False) -> Verdict:
    """It begins with that text."""
    holds = patterns.form(text, ignore_case).startswith(patterns.form(wanted, ignore_case))
    return Verdict(holds, f"starts with {quoted(wanted)}{case(ignore_case)}", excerpt(text))


def max_words(text: str, most: int, **_: bool) -> Verdict:
    """It has at most so many words; a letter of a script without spaces is a word."""
    count = len(words(text))
    return Verdict(count <= most, f"at most {most} words", f"{count} words: {excerpt(text)}")


def words(text: str, *, ignore_case: bool = False) -> list[str]:
    """The words of a text, in order; a letter of a script without spaces is one."""
    return _word().findall(patterns.form(text, ignore_case))


@cache
def _word() -> re.Pattern[str]:
    spaced = rf"{letters.SPACED_WORD}+"
    return re.compile(rf"[{letters.UNSPACED}]|{spaced}(?:['’-]{spaced})*")


def max_chars(text: str, most: int, **_: bool) -> Verdict:
    """It has at most so many characters (code points, in NFKC)."""
    chars = len(patterns.form(text))
    return Verdict(
        chars <= most, f"at most {most} characters", f"{chars} characters: {excerpt(text)}"
    )


def in_language(text: str, code: str, **_: bool) -> Verdict:
    """Most of it is in that language. Raises NoVerdict where that cannot be told here."""
    expected = f"is in language {code}"
    try:
        holds, found = language.is_in(text, code)
    except LookupError as error:
        raise NoVerdict(expected, str(error)) from error
    return Verdict(holds, expected, f"{found}: {excerpt(text)}")


def excerpt(text: str) -> str:
    """The beginning of a text, in quotes."""
    return quoted(shortened(text))


def shortened(text: str, most: int = EXCERPT) -> str:
    """The beginning of a text."""
    beginning = texts.cut(text, most)
    return beginning if len(beginning) == len(text) else beginning + "…"


def quoted(text: str) -> str:
    """A text in double quotes, line ends written as `\\n`."""
    return json.dumps(text, ensure_ascii=False)


def _around(text: str, seen: str, part: str) -> str:
    """The text in quotes; of a long one what is `seen` around its first `part`."""
    start = max(seen.index(part) - EXCERPT // 4, 0)
    if len(text) <= EXCERPT or start == 0:
        return excerpt(text)
    return f'"…{excerpt(seen[start:])[1:]}'


def _listed(wanted: Sequence[str], joined: str = "and") -> str:
    return f" {joined} ".join(quoted(part) for part in wanted)


def case(ignore_case: bool) -> str:
    """What is said of a check to which case does not count."""
    return " (upper and lower case alike)" if ignore_case else ""
