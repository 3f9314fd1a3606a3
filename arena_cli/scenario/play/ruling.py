"""What a judge is sent, and how its answer is read. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from arena_cli.scenario.expect import checks, patterns
from arena_cli.scenario.expect.verdicts import MATTER, RUBRIC, Question, Vote

PASS = frozenset({"pass", "passed", "passes", "true", "yes", "holds", "是", "通过", "符合"})
FAIL = frozenset({"fail", "failed", "fails", "false", "no", "否", "不通过", "不符合"})

# An object at the beginning of a line or behind another one, after nothing or words: within a
# string of a broken one there would be a quote before it.
_NEXT = re.compile(r'[^{}"\r\n]*+\{(?=\s*+["}])')
_FIRST = re.compile(f"^{_NEXT.pattern}", re.MULTILINE)
_BLANK = re.compile(r"\s*+(?:[`~]{3,}+\w*+\s*+)?")  # or the beginning of a fence
_WORD = re.compile(r"\w")

_ANSWER = """\
Answer with exactly one JSON object and nothing else:
{"verdict": "pass" or "fail", "reason": "one sentence, in the language of the rubric"}
"pass" means that all points of the rubric hold."""


def message(question: Question) -> str:
    """What the judge is sent: the rubric, what is to be judged, and how to answer.

    What agents said stands after `> ` in all its lines, and the rubric, in which something that was
    saved may stand, is numbered and indented: no line of either can look like one of arena's own.
    """
    points = [
        f"{number}. " + "\n   ".join(point.strip().splitlines())
        for number, point in enumerate(question.rubric, 1)
    ]
    return "\n\n".join([RUBRIC, "\n".join(points), MATTER, question.matter, _ANSWER])


def read(answer: str) -> Vote:
    """What a judge's answer says: the verdict of the JSON object that it is, or that stands in it.

    Verdicts are read by a table (`PASS`, `FAIL`), upper and lower case alike. Any other, none, or
    several that differ are no verdict, and so is JSON that is broken, or that stands between words:
    it may be what the judge only quotes.
    """
    try:
        found = list(_verdicts(answer))
    except (ValueError, RecursionError):
        return _none("its answer is broken JSON", answer)
    if not found:
        return _none("its answer has none", answer)
    votes = [_vote(one["verdict"], one.get("reason")) for _, one, _ in found]
    if None in {vote.holds for vote in votes}:
        return _none("it is neither pass nor fail", answer)
    if len({vote.holds for vote in votes}) > 1:
        return _none("there are several that differ", answer)
    start, end = found[0][0], found[-1][-1]
    if not _BLANK.fullmatch(answer, 0, start) and _WORD.search(answer, end):
        return _none("it may be a quotation: words stand before and behind it", answer)
    return votes[-1]


def _verdicts(answer: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The objects with a verdict, their keys folded, each with its start and its end.

    Raises ValueError, RecursionError.
    """
    end = 0
    while opening := _NEXT.match(answer, end) or _FIRST.search(answer, end):
        start = opening.end() - 1
        one, end = _DECODER.raw_decode(answer, start)
        if "verdict" in one:
            yield start, one, end


def _folded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key.strip().casefold(), value) != value:
            raise ValueError(f"{key} stands twice")
    return found


def _vote(verdict: object, reason: object) -> Vote:
    word = patterns.form(str(verdict), ignore_case=True).strip()
    holds = True if word in PASS else False if word in FAIL else None
    return Vote(holds, " ".join(reason.split()) if isinstance(reason, str) else "")


def _none(why: str, answer: str) -> Vote:
    return Vote(None, f"{why}: {checks.excerpt(answer.strip())}")


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_folded)
