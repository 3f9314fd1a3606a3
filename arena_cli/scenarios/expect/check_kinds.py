"""List the kinds of checks on a text by the field that holds them, and combine them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from arena_cli.scenarios.expect import (
    acting,
    json_checks,
    judge_checks,
    python_checks,
    snapshots,
    text_checks,
)
from arena_cli.scenarios.expect.context import Subject
from arena_cli.scenarios.expect.model import CheckKeys
from arena_cli.scenarios.expect.text_checks import Verdict


class Kind(NamedTuple):
    """A kind of check: `judge` gives a verdict on a text, `asks` describes the check in words.

    Both receive the value at the check's key, and `ignore_case`.
    """

    judge: Callable[..., Verdict]
    asks: Callable[..., str]


def all_of(subject: Subject, check_keys: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    """Check that every given check holds; the verdict shows the first that does not."""
    verdicts = [
        judge_one(subject, kind, check_keys, ignore_case=ignore_case) for kind in check_keys.kinds
    ]
    expected = " and ".join(verdict.expected for verdict in verdicts)
    decisive = next((verdict for verdict in verdicts if not verdict.holds), verdicts[-1])
    return Verdict(decisive.holds, expected, decisive.actual)


def judge_one(
    subject: Subject, kind: str, check_keys: CheckKeys, *, ignore_case: bool = False
) -> Verdict:
    """Judge one of the given checks, by its field; `ignore_case` is that of outer checks."""
    either = check_keys.ignore_case or ignore_case
    return _kind(kind).judge(subject, check_keys.given(kind), ignore_case=either)


def describe_checks(
    check_keys: CheckKeys, joined: str = " and ", *, ignore_case: bool = False
) -> str:
    """Describe the given checks in words."""
    either = check_keys.ignore_case or ignore_case
    phrases = (
        _kind(kind).asks(check_keys.given(kind), ignore_case=either) for kind in check_keys.kinds
    )
    return joined.join(phrases)


def _kind(kind: str) -> Kind:
    return KINDS.get(kind, _PLUGGED)


def _none_of(subject: Subject, unwanted: CheckKeys, *, ignore_case: bool = False) -> Verdict:
    expected = _no_one_of(unwanted, ignore_case=ignore_case)
    for kind in unwanted.kinds:
        verdict = judge_one(subject, kind, unwanted, ignore_case=ignore_case)
        if verdict.holds:
            return Verdict(False, expected, f"{verdict.expected}: {verdict.actual}")
    return Verdict(True, expected, text_checks.excerpt(subject.text))


def _no_one_of(unwanted: CheckKeys, *, ignore_case: bool = False) -> str:
    return f"not: {describe_checks(unwanted, ' nor ', ignore_case=ignore_case)}"


def _any_of(
    subject: Subject, choices: Sequence[CheckKeys], *, ignore_case: bool = False
) -> Verdict:
    verdicts = [all_of(subject, choice, ignore_case=ignore_case) for choice in choices]
    expected = " or ".join(verdict.expected for verdict in verdicts)
    held = next((verdict for verdict in verdicts if verdict.holds), None)
    if held:
        return Verdict(True, expected, held.actual)
    return Verdict(False, expected, "; ".join(dict.fromkeys(v.actual for v in verdicts)))


def _one_of(choices: Sequence[CheckKeys], *, ignore_case: bool = False) -> str:
    return " or ".join(describe_checks(choice, ignore_case=ignore_case) for choice in choices)


def _on_text(check: Callable[..., Verdict]) -> Kind:
    """Return a kind of check that looks at nothing but the text."""

    def judge(subject: Subject, options: Any, *, ignore_case: bool = False) -> Verdict:
        return check(subject.text, options, ignore_case=ignore_case)

    def asks(options: Any, *, ignore_case: bool = False) -> str:
        return check("", options, ignore_case=ignore_case).expected

    return Kind(judge, asks)


KINDS: dict[str, Kind] = {
    "contains": _on_text(text_checks.contains),
    "not_contains": _on_text(text_checks.not_contains),
    "equals": _on_text(text_checks.equals),
    "regex": _on_text(text_checks.regex),
    "starts_with": _on_text(text_checks.starts_with),
    "max_words": _on_text(text_checks.max_words),
    "max_chars": _on_text(text_checks.max_chars),
    "language": _on_text(text_checks.in_language),
    "none_of": Kind(_none_of, _no_one_of),
    "any_of": Kind(_any_of, _one_of),
    "as_json": Kind(json_checks.judge, json_checks.asks),
    "similar": Kind(text_checks.judge, text_checks.asks),
    "python": Kind(python_checks.judge, python_checks.asks),
    "snapshot": Kind(snapshots.judge, snapshots.asks),
    "judge": Kind(judge_checks.judge, judge_checks.asks),
    "tool": Kind(
        lambda subject, use, **_: acting.judge_reply(subject, use, all_of), acting.describe_use
    ),
}

_PLUGGED = Kind(python_checks.judge_plugin, python_checks.describe_plugin)
