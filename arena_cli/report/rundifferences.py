"""How two results of `arena run` differ, as lines: scenario by scenario what is another.

What follows from something else that is told is only named, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from arena_cli.ground.text import shown_line
from arena_cli.report import columns, differences, facts
from arena_cli.report.diffshapes import Changed, Side
from arena_cli.report.rundiff import RunDifference, ScenarioDiff, StepChanged
from arena_cli.report.spans import BETWEEN, EMPTY, INDENT, Line, Span, line
from arena_cli.report.words import Words

_FOLLOWS = frozenset({"usage", "judges_usage"})
_NOT_RUN = "not_run"


def drawn(difference: RunDifference, say: Words, *, width: int) -> Iterator[Line]:
    """The lines for all of it; what stands in columns for so wide a screen."""
    for what, told, side in (
        (difference.a, difference.a_told, "a"),
        (difference.b, difference.b_told, "b"),
    ):
        counts = [f"{count} {say.enum(status)}" for status, count in told.counts.items()]
        facts_told = [say(", ").join(counts)] if counts else []
        if told.usage:
            facts_told.append(facts.tokens(told.usage))
        heading = differences.compared(what, "a" if side == "a" else "b", say)
        spans = [span for fact in facts_told for span in (BETWEEN, Span(fact, "dim"))]
        yield line(heading.spans, spans, hang=3)
    left_out: dict[str, None] = {}
    for one in difference.scenarios:
        yield from _scenario(one, say, width, left_out)
    if left_out:
        yield EMPTY
        yield differences.left_out(left_out, say)
    if difference.same:
        yield EMPTY
        beside = say("no difference in what was checked")
        yield line(Span(beside if difference.scenarios else say("no difference"), "strong"))


def _scenario(
    one: ScenarioDiff, say: Words, width: int, left_out: dict[str, None]
) -> Iterator[Line]:
    unplayed = {field.step for field in one.fields if _NOT_RUN in (field.a, field.b)}
    fields = []
    for field in one.fields:
        if field.field in _FOLLOWS or _follows(field):
            left_out[field.field.partition(":")[0]] = None
        elif isinstance(field.a, Mapping) and not field.checked:
            left_out["actual"] = None
        elif field.step not in unplayed or field.field == "status":
            fields.append(field)
    if not fields and not one.only:
        return
    title = f"{one.scenario} [{one.case}]" if one.case else one.scenario
    place = Span(shown_line(one.file), "dim")
    only = differences.only(one.only, say)
    yield EMPTY
    yield line(Span(shown_line(title), "strong"), BETWEEN, place, only, hang=2)
    for field in fields:
        yield from _field(field, say, width)


def _follows(one: StepChanged) -> bool:
    """Whether it is drift that follows from another one, which is told."""
    sides = [side for side in (one.a, one.b) if side is not None]
    return all(isinstance(side, Mapping) and side.get("follows") for side in sides)


def _field(one: StepChanged, say: Words, width: int) -> Iterator[Line]:
    step = f"{facts.step(one.step, '', say)}{say(': ')}" if one.step is not None else ""
    there = one.a if one.a is not None else one.b
    if not isinstance(there, Mapping):
        named = Changed(field=step + one.field, a=one.a, b=one.b)
        yield from differences.fields([named], say, indent=INDENT)
        return
    side: Side | None = "b" if one.a is None else "a" if one.b is None else None
    name = Span(step + shown_line(one.field), "dim")
    yield line(INDENT, name, differences.only(side, say), hang=4)
    for value in (one.a, one.b):
        if value is not None and "before" in value:
            drifted = Changed(field="content", a=value["before"], b=value["after"])
            yield from differences.fields([drifted], say, indent=INDENT * 2)
    if "status" in there:
        yield from _check(one, say, width)


def _check(one: StepChanged, say: Words, width: int) -> Iterator[Line]:
    """An expectation as it was on each side."""
    sides = [value for value in (one.a, one.b) if value is not None]
    is_edited = len(sides) == 2 and sides[0]["expected"] != sides[1]["expected"]
    for side, value in (("A", one.a), ("B", one.b)):
        if value is None:
            continue
        style = differences.STYLES["a" if side == "A" else "b"]
        yield line(INDENT * 2, Span(f"{side} {say.enum(value['status'])}", style), hang=6)
        if is_edited or value["status"] != "passed":
            texts = str(value["expected"]), str(value["actual"])
            yield from columns.drawn(*texts, say, width=width, indent=INDENT * 3)
