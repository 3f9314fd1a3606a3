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
from arena_cli.ground.yamlfiles.yamlnodes import Loc
from arena_cli.scenario.expect import language, patterns
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.scenario.expect.shapes import CheckKeys
from arena_cli.team import letters

EXCERPT = 160  # characters of a text that a verdict shows


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
    expected = f"contains {_listed(wanted)}{_case(ignore_case)}"
    if missing:
        return Verdict(False, expected, f"no {_listed(missing, 'or')} in {excerpt(text)}")
    return Verdict(True, expected, _around(text, seen, patterns.form(wanted[0], ignore_case)))


def not_contains(text: str, unwanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """None of the unwanted texts is in it."""
    seen = patterns.form(text, ignore_case)
    expected = f"does not contain {_listed(unwanted, 'or')}{_case(ignore_case)}"
    for part in unwanted:
        if patterns.form(part, ignore_case) in seen:
            found = _around(text, seen, patterns.form(part, ignore_case))
            return Verdict(False, expected, f"{quoted(part)} in {found}")
    return Verdict(True, expected, excerpt(text))


def regex(text: str, pattern: str, *, ignore_case: bool = False) -> Verdict:
    """The pattern is found somewhere in it (Python's `re.search`)."""
    expected = f"matches /{pattern}/{_case(ignore_case)}"
    found = patterns.compiled(pattern, ignore_case=ignore_case).search(patterns.form(text))
    if found is None:
        return Verdict(False, expected, f"no match in {excerpt(text)}")
    return Verdict(True, expected, f"matched {excerpt(found.group())}")


def equals(text: str, wanted: str, *, ignore_case: bool = False) -> Verdict:
    """It is that text, whitespace around both apart."""
    holds = patterns.form(text, ignore_case).strip() == patterns.form(wanted, ignore_case).strip()
    return Verdict(holds, f"is {excerpt(wanted)}{_case(ignore_case)}", excerpt(text))


def starts_with(text: str, wanted: str, *, ignore_case: bool = False) -> Verdict:
    """It begins with that text."""
    holds = patterns.form(text, ignore_case).startswith(patterns.form(wanted, ignore_case))
    return Verdict(holds, f"starts with {quoted(wanted)}{_case(ignore_case)}", excerpt(text))


def max_words(text: str, most: int, **_: bool) -> Verdict:
    """It has at most so many words; a letter of a script without spaces is a word."""
    words = len(_word().findall(patterns.form(text)))
    return Verdict(words <= most, f"at most {most} words", f"{words} words: {excerpt(text)}")


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
    """Most of it is in that language. Raises LookupError where that cannot be told here."""
    holds, found = language.is_in(text, code)
    return Verdict(holds, f"is in language {code}", f"{found}: {excerpt(text)}")


def all_of(text: str, given: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    """Every check that is given holds; shows the first that does not."""
    verdicts = [one(text, kind, given, ignore_case=ignore_case) for kind in given.kinds]
    expected = " and ".join(verdict.expected for verdict in verdicts)
    shown = next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])
    return Verdict(shown.holds, expected, shown.actual)


def wanted(given: CheckKeys) -> str:
    """The checks that are given, in words."""
    return all_of("", given).expected


def one(text: str, kind: str, given: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    """One of the checks that are given, by its field; `ignore_case` is that of checks around it."""
    return _CHECKS[kind](text, getattr(given, kind), ignore_case=given.ignore_case or ignore_case)


def _none_of(text: str, unwanted: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    verdicts = [one(text, kind, unwanted, ignore_case=ignore_case) for kind in unwanted.kinds]
    expected = "not: " + " nor ".join(verdict.expected for verdict in verdicts)
    for verdict in verdicts:
        if verdict.holds:
            return Verdict(False, expected, f"{verdict.expected}: {verdict.actual}")
    return Verdict(True, expected, excerpt(text))


def _any_of(text: str, wanted: Sequence[CheckKeys], *, ignore_case: bool = False) -> Verdict:
    verdicts = [all_of(text, checks, ignore_case=ignore_case) for checks in wanted]
    expected = " or ".join(verdict.expected for verdict in verdicts)
    held = next((verdict for verdict in verdicts if verdict.holds), None)
    if held:
        return Verdict(True, expected, held.actual)
    return Verdict(False, expected, "; ".join(dict.fromkeys(v.actual for v in verdicts)))


def excerpt(text: str) -> str:
    """The beginning of a text, in quotes."""
    beginning = texts.cut(text, EXCERPT)
    return quoted(beginning if len(beginning) == len(text) else beginning + "…")


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


def _case(ignore_case: bool) -> str:
    return " (upper and lower case alike)" if ignore_case else ""


_CHECKS: dict[str, Callable[..., Verdict]] = {
    "contains": contains,
    "not_contains": not_contains,
    "equals": equals,
    "regex": regex,
    "starts_with": starts_with,
    "max_words": max_words,
    "max_chars": max_chars,
    "language": in_language,
    "none_of": _none_of,
    "any_of": _any_of,
}
