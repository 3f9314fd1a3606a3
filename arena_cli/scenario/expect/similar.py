"""`similar`: how near a text comes to another one, as a figure by a measure that has a name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from arena_cli.scenario.expect import checks, patterns
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Subject
from arena_cli.team.model import FileShape

Measure = Literal["words", "characters", "any_order", "part"]

_STEPS = 10_000  # of a figure: what is told is what is compared


class Similar(FileShape):
    """A text that comes near to `to`: from `min`, where 1 is the same.

    `measure` is what is compared: words in their order, characters, words in any order, or the part
    of the text that comes nearest. A letter of a script without spaces is a word.
    """

    to: str
    min: float = Field(gt=0, le=1)
    measure: Measure = "words"

    @model_validator(mode="after")
    def _can_be_measured(self) -> Similar:
        if not self.to.strip():
            raise ValueError("`to` is empty; write what the text is to come near to")
        if self.measure != "characters" and not checks.words(self.to):
            raise ValueError("`to` has no words; measure it by `measure: characters`")
        return self


def judge(subject: Subject, given: Similar, *, ignore_case: bool = False) -> Verdict:
    """The figure is at least `min`."""
    figure = _figure(subject.text, given, ignore_case)
    there = f"{figure:g} by {given.measure}: {checks.excerpt(subject.text)}"
    return Verdict(figure >= given.min, asks(given, ignore_case=ignore_case), there)


def asks(given: Similar, *, ignore_case: bool = False) -> str:
    """The text that it is to come near, and how near."""
    near = f"at least {given.min:g} near to {checks.excerpt(given.to)} by {given.measure}"
    return f"{near}{checks.case(ignore_case)}"


def _figure(text: str, given: Similar, ignore_case: bool) -> float:
    """From 0 to 1: twice what both have in common by all that they have (Indel similarity)."""
    from rapidfuzz import fuzz  # noqa: PLC0415 - few scenarios measure

    there: Sequence[str]
    wanted: Sequence[str]
    if given.measure == "characters":
        there, wanted = (patterns.form(one, ignore_case).strip() for one in (text, given.to))
    else:
        there, wanted = (checks.words(one, ignore_case=ignore_case) for one in (text, given.to))
    if given.measure == "any_order":
        there, wanted = sorted(there), sorted(wanted)
    # Of two texts the shorter one is looked for in the longer: a short answer is no part of it.
    compare = fuzz.ratio
    if given.measure == "part" and len(there) > len(wanted):
        compare = fuzz.partial_ratio
    # Rounded down, lest a word in a thousand be nothing; the tiny part is that of binary fractions.
    figure: float = compare(there, wanted) / 100
    return math.floor(figure * _STEPS + 1e-6) / _STEPS
