"""Compare two results of `arena run`, scenario by scenario.

Two results are the same if their checks are: statuses, failures, drift, and each expectation with
its verdict. Texts and usage that changed within the expectations are reported separately. Times,
paths of sessions, and lines of files are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError, computed_field

from arena_cli.errors import UsageError
from arena_cli.protocol import Shape, Usage
from arena_cli.reports import columns, lines
from arena_cli.reports.diff import compare
from arena_cli.reports.diff.model import Compared, Side
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.transcript.compare import Changed
from arena_cli.util.text import escape_line
from arena_cli.yamlio.schema_errors import explain_first

VERSION = 1

_DRIFT = "drift"
_UNCHECKED = frozenset(
    ("reason", "mode", "unkept", "usage", "judges_usage", "kind", "name", "session", "end")
)


class _CheckRecord(Shape):
    field: str
    status: str
    expected: str = ""
    actual: str = ""


class _FailureRecord(Shape):
    agent: str
    turn: int
    status: str
    error: str = ""


class _StepRecord(Shape):
    number: int
    kind: str = "send"
    name: str = ""
    session: str | None = None
    status: str
    end: str = ""
    error: str | None = None
    usage: Usage | None = None
    checks: list[_CheckRecord] = []
    failures: list[_FailureRecord] = []


class _DriftRecord(Shape):
    kind: str
    agent: str | None = None
    field: str
    before: str = ""
    after: str = ""
    step: int | None = None
    turn: int | None = None
    follows: bool = False


class _ScenarioRecord(Shape):
    scenario: str
    case: str | None = None
    file: str
    status: str
    reason: str | None = None
    error: str | None = None
    mode: str | None = None
    unkept: str = ""
    steps: list[_StepRecord] = []
    checks: list[_CheckRecord] = []
    drift: list[_DriftRecord] = []
    usage: Usage | None = None
    judges_usage: Usage | None = None


class RunRecord(Shape):
    """The part of a result that is compared."""

    version: int
    scenarios: list[_ScenarioRecord]


class StepChanged(Changed):
    """A field that differs. `step` counts from 1, None: over the whole scenario.

    `checked`: the difference is in a checked value, so the results are not the same.
    """

    step: int | None = None
    checked: bool = True


class ScenarioDiff(Shape):
    """A scenario, or case; `only`: it is in one of the results.

    For an expectation, by its place below `expect`, each side has `status`, `expected` and
    `actual`; for drift `before` and `after`, and `follows` if it follows from another one.
    """

    scenario: str
    case: str | None
    file: str
    only: Side | None = None
    fields: list[StepChanged] = []


class RunTold(Shape):
    """The totals of a result: scenarios by status, usage of agents and judges."""

    counts: dict[str, int]
    usage: Usage | None


class RunDifference(Shape):
    """Two results; `scenarios` are those that differ, `same` is True if no checked value does."""

    version: int = 1
    a: Compared
    b: Compared
    a_told: RunTold
    b_told: RunTold
    scenarios: list[ScenarioDiff]

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
    @property
    def same(self) -> bool:
        return not any(
            scenario.only or any(field.checked for field in scenario.fields)
            for scenario in self.scenarios
        )


def read(document: Any, label: str) -> RunRecord:
    """Return the result that `arena run --json` printed. Raises UsageError."""
    try:
        run_read = RunRecord.model_validate(document)
    except ValidationError as error:
        raise UsageError(
            f"{label}: not a result: {explain_first(error)}",
            "write it with `arena run --json > FILE`",
        ) from error
    if run_read.version != VERSION:
        raise UsageError(
            f"{label}: is a result of version {run_read.version}; "
            f"this arena reads version {VERSION}"
        )
    return run_read


def between(a: Compared, b: Compared, ours: RunRecord, theirs: RunRecord) -> RunDifference:
    """Compare scenario by scenario, paired by file and case, or by title after a renaming."""
    diffs = []
    for first, second in _beside(ours.scenarios, theirs.scenarios):
        present = first or second
        assert present is not None
        only: Side | None = None if first and second else "a" if first else "b"
        fields = list(_changed(first, second)) if first and second else []
        if only or fields:
            header = {"scenario": present.scenario, "case": present.case, "file": present.file}
            diffs.append(ScenarioDiff(**header, only=only, fields=fields))
    return RunDifference(a=a, b=b, a_told=_sum_run(ours), b_told=_sum_run(theirs), scenarios=diffs)


def _beside(
    ours: Sequence[_ScenarioRecord], theirs: Sequence[_ScenarioRecord]
) -> Iterator[tuple[_ScenarioRecord | None, _ScenarioRecord | None]]:
    by_key = {(first.file, first.case): first for first in theirs}
    pairs = [(first, by_key.pop((first.file, first.case), None)) for first in ours]
    by_title = {(first.scenario, first.case): key for key, first in by_key.items()}
    for first, second in pairs:
        key = by_title.pop((first.scenario, first.case), None) if second is None else None
        yield first, second if key is None else by_key.pop(key)
    yield from ((None, second) for second in by_key.values())


def _changed(scenario: _ScenarioRecord, second: _ScenarioRecord) -> Iterator[StepChanged]:
    a, b = _flat(scenario), _flat(second)
    for step, field in sorted(dict.fromkeys([*a, *b]), key=_in_order):
        old_value, new_value = a.get((step, field)), b.get((step, field))
        if old_value != new_value:
            checked = field not in _UNCHECKED and not _both_held(old_value, new_value)
            yield StepChanged(step=step, field=field, a=old_value, b=new_value, checked=checked)


def _both_held(old_value: Any, new_value: Any) -> bool:
    """Return whether one expectation passed on both sides, with different values."""
    sides = (old_value, new_value)
    if not all(isinstance(side, dict) and side.get("status") == "passed" for side in sides):
        return False
    return bool(old_value["expected"] == new_value["expected"])


Place = tuple[int | None, str]


def _in_order(key: Place) -> tuple[int, int]:
    """Return the sort key: the whole scenario first, then by step its status, drift, the rest."""
    step, field = key
    return step or 0, (0 if field == "status" else 1 if field.startswith(_DRIFT) else 2)


def _flat(scenario: _ScenarioRecord) -> dict[Place, Any]:
    """Return all compared values of a scenario, by step and field."""
    values: dict[Place, Any] = {}
    dumped = scenario.model_dump(mode="json")
    for name in ("status", "reason", "error", "mode", "unkept", "usage", "judges_usage"):
        values[None, name] = dumped[name]
    values.update(_drift(scenario.drift))
    values.update(_checks(None, scenario.checks))
    for step in scenario.steps:
        dumped = step.model_dump(mode="json")
        for name in ("status", "kind", "name", "session", "end", "error", "usage"):
            values[step.number, name] = dumped[name]
        values[step.number, "failures"] = [
            f"{failed.agent}, turn {failed.turn}: {failed.status}: {failed.error}"
            for failed in step.failures
        ]
        values.update(_checks(step.number, step.checks))
    return {key: value for key, value in values.items() if value not in (None, "", [])}


def _drift(drifts: Iterable[_DriftRecord]) -> dict[Place, Any]:
    count = Counter[Place]()
    values: dict[Place, Any] = {}
    for drift in drifts:
        turn = f", turn {drift.turn}" if drift.turn is not None else ""
        field = f"{_DRIFT}: {drift.kind}: {drift.agent or 'team'}: {drift.field}{turn}"
        follows = {"follows": True} if drift.follows else {}
        value = {"before": drift.before, "after": drift.after, **follows}
        values[_numbered((drift.step, field), count)] = value
    return values


def _checks(step: int | None, checks: Iterable[_CheckRecord]) -> dict[Place, Any]:
    count = Counter[Place]()
    return {
        _numbered((step, check.field), count): check.model_dump(exclude={"field"})
        for check in checks
    }


def _numbered(key: Place, count: Counter[Place]) -> Place:
    """Return the key, numbered if it is not the first at its place."""
    count[key] += 1
    return key if count[key] == 1 else (key[0], f"{key[1]} ({count[key]})")


def _sum_run(run: RunRecord) -> RunTold:
    usages = [
        usage
        for scenario in run.scenarios
        for usage in (scenario.usage, scenario.judges_usage)
        if usage is not None
    ]
    counts = Counter(scenario.status for scenario in run.scenarios)
    return RunTold(
        counts=dict(sorted(counts.items())), usage=Usage.total(usages) if usages else None
    )


_FOLLOWS = frozenset({"usage", "judges_usage"})
_NOT_RUN = "not_run"


def draw_run_diff(difference: RunDifference, say: Words, *, width: int) -> Iterator[Line]:
    """Yield the lines for the whole difference; columns are drawn for a screen of `width`."""
    yield _heading(difference.a, "a", difference.a_told, say)
    yield _heading(difference.b, "b", difference.b_told, say)
    left_out: dict[str, None] = {}
    for scenario in difference.scenarios:
        yield from _scenario(scenario, say, width, left_out)
    if left_out:
        yield EMPTY
        yield compare.left_out(left_out, say)
    if difference.same:
        yield EMPTY
        beside = say("no difference in the checks")
        yield line(Span(beside if difference.scenarios else say("no difference"), "strong"))


def _heading(run: Compared, side: Side, totals: RunTold, say: Words) -> Line:
    counts = [f"{count} {say.enum(status)}" for status, count in totals.counts.items()]
    facts = [say(", ").join(counts)] if counts else []
    facts += [lines.tokens(totals.usage)] if totals.usage else []
    spans = [span for fact in facts for span in (BETWEEN, Span(fact, "dim"))]
    return line(compare.compared(run, side, say).spans, spans, hang=3)


def _scenario(
    scenario_diff: ScenarioDiff, say: Words, width: int, left_out: dict[str, None]
) -> Iterator[Line]:
    unplayed = {field.step for field in scenario_diff.fields if _NOT_RUN in (field.a, field.b)}
    fields = []
    for field in scenario_diff.fields:
        if field.field in _FOLLOWS or _follows(field):
            left_out[field.field.partition(":")[0]] = None
        elif isinstance(field.a, Mapping) and not field.checked:
            left_out["actual"] = None
        elif field.step not in unplayed or field.field == "status":
            fields.append(field)
    if not fields and not scenario_diff.only:
        return
    title = scenario_diff.scenario + (f" [{scenario_diff.case}]" if scenario_diff.case else "")
    span = Span(escape_line(scenario_diff.file), "dim")
    only = compare.only(scenario_diff.only, say)
    yield EMPTY
    yield line(Span(escape_line(title), "strong"), BETWEEN, span, only, hang=2)
    for field in fields:
        yield from _field(field, say, width)


def _follows(step_changed: StepChanged) -> bool:
    """Return True for drift that follows from another one in the report."""
    sides = [side for side in (step_changed.a, step_changed.b) if side is not None]
    return all(isinstance(side, Mapping) and side.get("follows") for side in sides)


def _field(step_changed: StepChanged, say: Words, width: int) -> Iterator[Line]:
    number = step_changed.step
    step = f"{lines.step(number, '', say)}{say(': ')}" if number is not None else ""
    present = step_changed.a if step_changed.a is not None else step_changed.b
    if not isinstance(present, Mapping):
        change = Changed(field=step + step_changed.field, a=step_changed.a, b=step_changed.b)
        yield from compare.fields([change], say, indent=INDENT)
        return
    side: Side | None = "b" if step_changed.a is None else "a" if step_changed.b is None else None
    name = Span(step + escape_line(step_changed.field), "dim")
    yield line(INDENT, name, compare.only(side, say), hang=4)
    for value in (step_changed.a, step_changed.b):
        if value is not None and "before" in value:
            drifted = Changed(field="content", a=value["before"], b=value["after"])
            yield from compare.fields([drifted], say, indent=INDENT * 2)
    if "status" in present:
        yield from _check(step_changed, say, width)


def _check(step_changed: StepChanged, say: Words, width: int) -> Iterator[Line]:
    """Yield an expectation with its verdict on each side."""
    sides = [value for value in (step_changed.a, step_changed.b) if value is not None]
    is_edited = len(sides) == 2 and sides[0]["expected"] != sides[1]["expected"]
    both: dict[Side, Any] = {"a": step_changed.a, "b": step_changed.b}
    for side, value in both.items():
        if value is None:
            continue
        verdict = f"{side.upper()} {say.enum(value['status'])}"
        yield line(INDENT * 2, Span(verdict, compare.STYLES[side]), hang=6)
        if is_edited or value["status"] != "passed":
            texts = str(value["expected"]), str(value["actual"])
            yield from columns.draw_columns(*texts, say, width=width, indent=INDENT * 3)
