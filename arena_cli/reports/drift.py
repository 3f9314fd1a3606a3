"""Draw how replays differ from their recordings, and list the findings of a scenario.

It makes lines of pieces (`reports.lines`). Texts of agents are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from arena_cli.reports import lines as lines_module
from arena_cli.reports.diff.text import draw_text_diff
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words
from arena_cli.reports.lines import line as lines_line
from arena_cli.scenarios import select
from arena_cli.scenarios.result import (
    DRIFTED,
    DRIFTED_AND_NEW,
    FLOW_STEP,
    TOOL,
    Cause,
    CheckResult,
    Drift,
    RunResult,
    ScenarioResult,
    StepResult,
)
from arena_cli.util.text import escape_line

LIVE = "live"
_KEPT = {"live": LIVE, "replay": "replayed", "record": "recorded", "update": "updated"}
_UNKEPT = {"record": "not recorded", "update": "not updated"}


def word(result: ScenarioResult) -> str:
    """Return the word for the mode of a scenario; empty if it was not played."""
    if result.mode is None:
        return ""
    if why_unkept(result, Words()):
        return _UNKEPT[result.mode]
    nothing_new = result.mode == "update" and not result.written
    return _KEPT["replay" if nothing_new else result.mode]


def counted(run_result: RunResult) -> dict[str, int]:
    """Count scenarios by mode."""
    counter = Counter(map(word, run_result.scenarios))
    words = (*_KEPT.values(), *_UNKEPT.values())
    return {name: counter[name] for name in words if counter[name]}


def why_unkept(result: ScenarioResult, say: Words) -> str:
    """Explain why its recording was not written although that was requested."""
    if result.mode not in _UNKEPT:
        return ""
    if result.status == "interrupted" or not result.unkept:
        return say("it was cut short") if result.status == "interrupted" else ""
    if not result.unkept_agents:
        return say(result.unkept)
    agents = escape_line(", ".join(result.unkept_agents))
    stays = say("{recording} is unchanged", recording=escape_line(result.recording or ""))
    return f"{say(result.unkept)} ({agents}){say(': ')}{stays}"


MOST_CAUSES = 30
MOST_SCENARIOS = 3
MOST_NAMES = 5
MOST_LINES = 24
SHORT = 60  # characters of both values together that stand in the line itself


_CALLS = ("left_over", "miss")
_OPTIONS = ("--update", "--record", "--record=missing")
_ENGLISH = Words()
_KEEPING = {DRIFTED: "--update", DRIFTED_AND_NEW: "--record"}


def where(drift: Drift, say: Words) -> str:
    """Return `step 2, turn 1: `, with the parts that are known."""
    pieces = [lines_module.step(drift.step, "", say)] if drift.step else []
    pieces += [say("turn {turn}", turn=drift.turn)] if drift.turn is not None else []
    return f"{say(', ').join(pieces)}{say(': ')}" if pieces else ""


def describe_drift(drift: Drift | Cause, say: Words) -> str:
    """Describe a difference in one line, with both values if they are short."""
    agents = drift.agents if isinstance(drift, Cause) else [drift.agent] if drift.agent else []
    name = _join_names([escape_line(agent) for agent in agents], say)
    field = escape_line(drift.field)
    if drift.field in ("compacted", "summary") and (isinstance(drift, Cause) or not drift.follows):
        description = say("the summary differs: the rules for summaries have changed")
        return f"{description}{say(': ')}{_values(drift, say)}" if _is_short(drift) else description
    match drift.kind:
        case "left_over" | "miss":
            if drift.field.startswith(FLOW_STEP):
                return _unmatched_step(drift, say)
            return _unmatched(drift, name, say)
        case "input":
            description = _input(drift.field, field, name, len(agents), say)
        case "settings":
            description = _setting(drift.field, field, name, len(agents), say)
        case _:
            changed = f"{name}{say(': ')}{field}" if name else field
            description = say("{field} has changed", field=changed)
    return f"{description}{say(': ')}{_values(drift, say)}" if _is_short(drift) else description


def _unmatched(drift: Drift | Cause, name: str, say: Words) -> str:
    """Describe a case or a call that only the recording has, or only the replay."""
    is_case = drift.field == "case"
    if drift.kind == "left_over" and is_case:
        return say("the file no longer has the case {case}", case=escape_line(drift.before))
    if drift.kind == "left_over":
        return say("{who} is no longer called", who=name)
    if drift.field.startswith(TOOL):
        tool = escape_line(drift.field.removeprefix(TOOL))
        text = "{who} calls the tool {tool}, but no recorded result is left for it"
        return say(text, who=name, tool=tool)
    if is_case:
        case_id = escape_line(drift.after)
        return say("the file has a case {case} that was not recorded", case=case_id)
    return say("{who} is called, but no recorded answer is left for it", who=name)


def _unmatched_step(drift: Drift | Cause, say: Words) -> str:
    """Describe a step of a flow that only the recording has, or only the replay."""
    text = "the flow runs its step {step}, but no recorded result is left for it"
    if drift.kind == "left_over":
        text = "the flow no longer runs its step {step}"
    return say(text, step=escape_line(drift.field.removeprefix(FLOW_STEP)))


def _input(name: str, field: str, owner: str, agents: int, say: Words) -> str:
    """Describe a changed input of agents, of a judge, or of the first agent of all."""
    if name.startswith(FLOW_STEP):
        return say("the step {step} of the flow has changed", step=field.removeprefix(FLOW_STEP))
    if name.startswith(TOOL):
        return _tool(*field.removeprefix(TOOL).partition(" ")[::2], owner, say)
    if owner and name == "rubric":
        return say("the judge {who} uses a different rubric", who=owner)
    if not owner:
        return say("a different message is sent")
    text = "{who} is shown a different {field}"
    if agents > 1:
        text = "{who} are shown a different {field}"
    return say(text, who=owner, field=field)


def _tool(tool: str, part: str, owner: str, say: Words) -> str:
    """Describe a changed tool: its answer, the arguments it is called with, or what it is."""
    texts = {
        "answer": "tool {tool}: its answer changed",
        "arguments": "{who} calls the tool {tool} with other arguments",
    }
    text = texts.get(part, "tool {tool}: its schema or description changed ({who})")
    return say(text, tool=tool, who=owner)


def _setting(name: str, field: str, owner: str, agents: int, say: Words) -> str:
    """Return the owner of the changed setting: agents, the scenario, `arena.yaml`, or the team."""
    if agents > 1:
        return say("{who} have a different {field}", who=owner, field=field)
    if agents:
        return say("{who} has a different {field}", who=owner, field=field)
    if name.startswith("ignore["):
        return say("the scenario has a different {field}", field=field)
    if name.startswith(("models.", "memory.")):
        return say("arena.yaml has a different {field}", field=field)
    return say("the team has a different {field}", field=field)


def _is_short(drift: Drift | Cause) -> bool:
    texts = drift.before, drift.after
    return any(texts) and sum(map(len, texts)) <= SHORT and not any("\n" in text for text in texts)


def _values(drift: Drift | Cause, say: Words) -> str:
    old_text, new_text = (
        escape_line(value) or say("nothing") for value in (drift.before, drift.after)
    )
    return f"{old_text} → {new_text}"


def row(drift: Drift, result: ScenarioResult, say: Words) -> Line:
    """Return `scenarios/a.yaml:12: step 2, turn 1: dev is shown another role_prompt (2 calls)`."""
    location = escape_line(f"{result.file}:{result.line_of(drift.step)}: ")
    calls = f" ({say('{count} calls', count=drift.calls)})" if drift.calls > 1 else ""
    return lines_line(location, where(drift, say), describe_drift(drift, say), Span(calls, "dim"))


def ordered(result: ScenarioResult) -> list[Drift]:
    """Return the drift of a scenario: causes first, then what only follows from them."""
    return sorted(result.drift, key=lambda drift: drift.follows)


def updated(result: ScenarioResult) -> bool:
    """Return True if the drift was written into its recording."""
    return result.mode == "update" and result.written


class Causes:
    """The causes of a run's drift, each once for all scenarios that it affects."""

    def __init__(self, run_result: RunResult, say: Words) -> None:
        self._whole = run_result
        self._say = say
        self._results = {
            (scenario.file, scenario.title): scenario for scenario in run_result.scenarios
        }

    def lines(self) -> Iterator[Line]:
        """Yield the difference, the place and the advice of the causes that affect most."""
        for cause in self.ordered()[:MOST_CAUSES]:
            yield EMPTY
            style = "failed" if self.is_wrong(cause) else "warned"
            span = Span(describe_drift(cause, self._say), "strong")
            yield lines_line(Span(self._say("drift: "), style), span, hang=4)
            yield from self.below(cause)
        omitted = len(self._whole.drift) - MOST_CAUSES
        if omitted > 0:
            yield EMPTY
            yield lines_line(self._say("drift: "), self._say("and {count} more", count=omitted))

    def ordered(self) -> list[Cause]:
        """Return the causes, those that affect most scenarios first."""
        return sorted(self._whole.drift, key=lambda one: -len(one.touches))

    def is_wrong(self, cause: Cause) -> bool:
        """Return True if it makes any scenario fail."""
        return any(result.drift_fails for result in self._touched(cause))

    def is_accepted(self, cause: Cause) -> bool:
        """Return True if all of it was written into the recordings."""
        return all(updated(result) for result in self._touched(cause))

    def below(self, cause: Cause) -> Iterator[Line]:
        """Yield the lines below a cause: its differences, its places, and how to resolve it."""
        yield from difference(cause, self._say)
        if cause.changed:
            yield lines_line(INDENT, self.changed(cause))._replace(whole=True)
        yield from _places(cause, self._say)
        yield self.advice(cause)

    def changed(self, cause: Cause) -> str:
        """Return the place of the change as a text; empty if it is unknown."""
        places = _join_names([escape_line(location) for location in cause.changed], self._say)
        return self._say("changed in {places}", places=places) if places else ""

    def advice(self, cause: Cause) -> Line:
        """Return the advice on a cause, or the action already taken."""
        say = self._say
        remaining = [result for result in self._touched(cause) if not updated(result)]
        commands = _commands(remaining)
        if commands:
            listed = say(", ").join(f"`{command}`" for command in commands)
            advice = say("review the change; to accept it: {command}", command=listed)
            # A command is copied: it is never broken.
            return lines_line(INDENT, advice)._replace(whole=True)
        if remaining:
            reason = why_unkept(remaining[0], say)
            return lines_line(INDENT, say("not accepted: {why}", why=reason), hang=4)
        advice = say("accepted: written into the recording")
        return lines_line(INDENT, Span(advice, "dim"), hang=4)

    def _touched(self, cause: Cause) -> list[ScenarioResult]:
        keys = dict.fromkeys((touch.file, touch.scenario) for touch in cause.touches)
        return [self._results[key] for key in keys]


def texts(drift: Drift | Cause) -> tuple[str, str]:
    """Return both texts if they are not in the line itself, without a final newline of both."""
    if drift.kind in _CALLS or _is_short(drift):
        return "", ""
    ends = drift.before.endswith("\n") and drift.after.endswith("\n")
    return (drift.before[:-1], drift.after[:-1]) if ends else (drift.before, drift.after)


def difference(drift: Drift | Cause, say: Words) -> Iterator[Line]:
    """Yield the changes in the texts, if they do not fit the line itself."""
    lines = list(draw_text_diff(*texts(drift), say, indent=INDENT * 2))
    yield from lines[:MOST_LINES]
    omitted = len(lines) - MOST_LINES
    if omitted > 0:
        yield lines_line(INDENT * 2, Span(say("and {count} more lines", count=omitted), "dim"))


def _places(cause: Cause, say: Words) -> Iterator[Line]:
    places = list(dict.fromkeys((one.file, one.line, one.scenario) for one in cause.touches))
    calls = sum(touch.calls for touch in cause.touches)
    count = len({(file, scenario) for file, _, scenario in places})
    summary = lines_module.count_of(say, count, "in 1 scenario", "in {count} scenarios")
    if calls > 1:
        summary += f"{say(', ')}{say('{count} calls', count=calls)}"
    yield lines_line(INDENT, Span(summary, "dim"), hang=4)
    for file, number, scenario in places[:MOST_SCENARIOS]:
        title = Span(escape_line(scenario), "dim")
        yield lines_line(INDENT * 2, Span(escape_line(f"{file}:{number}")), BETWEEN, title, hang=6)
    omitted = len(places) - MOST_SCENARIOS
    if omitted > 0:
        yield lines_line(INDENT * 2, Span(say("and {count} more", count=omitted), "dim"))


def _commands(scenario_results: Iterable[ScenarioResult]) -> list[str]:
    """Return the commands that accept the drift; none if an update did not keep it."""
    names: dict[str, dict[str, None]] = {option: {} for option in _OPTIONS}
    for result in scenario_results:
        option = _option(result)
        if option:
            names[option][select.run_name(result.file)] = None
    for name in names["--record"]:  # all else is in it
        names["--update"].pop(name, None)
        names["--record=missing"].pop(name, None)
    return [
        " ".join(["arena run", option, *(files if len(files) <= MOST_NAMES else [])])
        for option, files in names.items()
        if files
    ]


def _option(result: ScenarioResult) -> str:
    """Return the option that accepts the drift of one scenario.

    `--record=missing` suffices only if all other drift is new content of the steps with missing
    records.
    """
    misses = [difference for difference in result.drift if difference.kind == "miss"]
    if not misses:
        return _KEEPING.get(result.unkept, "") if why_unkept(result, _ENGLISH) else "--update"
    is_followed = any(difference.is_followed for difference in misses)
    return "--record=missing" if _is_all_new(result, misses) and not is_followed else "--record"


def _is_all_new(result: ScenarioResult, misses: Sequence[Drift]) -> bool:
    """Return True if all other drift is new content of a new case or of the steps of `misses`."""
    steps = {difference.step for difference in misses}
    is_new = any(difference.field == "case" for difference in misses)
    others = (difference for difference in result.drift if difference.kind != "miss")
    return all(
        not difference.before and (is_new or difference.step in steps) for difference in others
    )


def _join_names(names: list[str], say: Words) -> str:
    """Return the first few names and the number of omitted ones."""
    listing = say(", ").join(names[:MOST_SCENARIOS])
    omitted = len(names) - MOST_SCENARIOS
    return f"{listing} {say('and {count} more', count=omitted)}" if omitted > 0 else listing


Kind = Literal[
    "expectation", "drift", "agent", "judge", "check", "arena", "file", "interrupted", "warning"
]


class Finding(NamedTuple):
    """A finding of a scenario. `kind`: a failed expectation, drift, or a failed agent.

    `step` is None if the finding belongs to no step. `title` is one line, `text` is printed below
    it. Neither is escaped; the caller escapes them. `aside` is True if the finding matches the
    `xfail`, or if an agent failed only because its record was missing, which the drift already
    reports.
    """

    kind: Kind
    file: str
    line: int
    step: int | None
    title: str
    text: str = ""
    aside: bool = False

    @property
    def place(self) -> str:
        """Its file and, if it is known, its line."""
        return f"{self.file}:{self.line}" if self.line else self.file


def was_to_fail(result: ScenarioResult) -> bool:
    """Return True if its failure is the one of its `xfail`; drift may still make it fail."""
    return result.status == "xfailed" or (result.drift_fails and result.reason is not None)


def missed(result: ScenarioResult) -> set[tuple[int | None, str | None]]:
    """Return the (step, agent) of all agents that failed only because of a missing record."""
    return {
        (difference.step, difference.agent)
        for difference in result.drift
        if difference.kind == "miss"
    }


def list_findings(result: ScenarioResult, say: Words) -> Iterator[Finding]:
    """Yield failures and warnings in the order of the file; the drift last."""
    missing, to_fail = missed(result), was_to_fail(result)
    for step in result.steps:
        yield from _of_failures(step, missing, say)
        for check in step.checks:
            yield from _of_check(check, step.number, say, to_fail=to_fail)
    for check in result.checks:
        yield from _of_check(check, None, say, to_fail=to_fail)
    for fault in result.faults:
        problem, hint = say.message(fault.what), say.message(fault.hint)
        title = f"{fault.field}: {problem}" if fault.field else problem
        yield Finding("file", fault.file, fault.line, None, title, hint)
    if result.error and not result.faults:
        passed_anyway = result.status == "failed" and result.reason is not None and not to_fail
        kind: Kind = "expectation" if passed_anyway else "arena"
        first, _, details = say.message(result.error).partition("\n")
        yield Finding(kind, result.file, result.line, None, first, details)
    if result.status == "interrupted":
        yield Finding("interrupted", result.file, result.line, None, say("it was cut short"))
    for difference in ordered(result):
        line = result.line_of(difference.step)
        problem = f"{where(difference, say)}{describe_drift(difference, say)}"
        yield Finding("drift", result.file, line, difference.step, problem)


def wrong(result: ScenarioResult, say: Words) -> list[Finding]:
    """Return the findings that made it fail: expectations, then agents, then the drift."""
    order = {"expectation": 0, "drift": 2}
    findings = [finding for finding in list_findings(result, say) if finding.kind != "warning"]
    return sorted(findings, key=lambda one: 3 if one.aside else order.get(one.kind, 1))


def _of_failures(
    step: StepResult, missing: Container[tuple[int | None, str | None]], say: Words
) -> Iterator[Finding]:
    file, line = step.place()
    if step.error:
        first, _, details = say.message(step.error).partition("\n")
        yield Finding("arena", file, line, step.number, first, details)
    for failure in step.failures:
        title = f"{failure.agent}: {failure.status}"
        aside = (step.number, failure.agent) in missing
        error = say.message(failure.error)
        yield Finding("agent", file, line, step.number, title, error, aside)


def _of_check(
    check: CheckResult, step: int | None, say: Words, *, to_fail: bool
) -> Iterator[Finding]:
    if check.status == "passed":
        return
    kind: Kind = "expectation"
    if check.status == "warned":
        kind = "warning"
    elif check.status == "error":
        kind = "judge" if check.judge else "check"
    sides = ((say("expected: "), check.expected), (say("actual:   "), check.actual))
    text = "\n".join(f"{label}{say.check(side)}" for label, side in sides if side)
    aside = to_fail and kind == "expectation"
    yield Finding(kind, check.file, check.line, step, check.field, text, aside)
