"""How replays differ from their recordings: a line in each scenario, and each cause once.

Makes lines of pieces (`report.spans`). What agents said is escaped.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from arena_cli.ground.text import shown_line
from arena_cli.report import facts, textdiff
from arena_cli.report.spans import BETWEEN, EMPTY, INDENT, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.scenario.result import Cause, Drift, RunResult, ScenarioResult

MOST_SCENARIOS = 3
MOST_NAMES = 5
MOST_ROWS = 6
MOST_LINES = 24
SHORT = 60  # characters of both values together that stand in the line itself


_CALLS = ("left_over", "miss")


def counts(result: ScenarioResult) -> bool:
    """Whether what drifted counts as a failure, and does not only warn."""
    return result.drift_fails


def where(drift: Drift, say: Words) -> str:
    """`step 2, turn 1: `, as far as it is in one."""
    parts = []
    if drift.step:
        parts.append(facts.step(drift.step, "", say))
    if drift.turn is not None:
        parts.append(say("turn {turn}", turn=drift.turn))
    return f"{say(', ').join(parts)}{say(': ')}" if parts else ""


def what(drift: Drift | Cause, say: Words) -> str:
    """What differs, in one line; with both values where they are short."""
    agents = drift.agents if isinstance(drift, Cause) else [drift.agent] if drift.agent else []
    who = _listed([shown_line(agent) for agent in agents], say)
    field = shown_line(drift.field)
    match drift.kind:
        case "left_over" if drift.field == "case":
            return say("the file has no case {case} any more", case=shown_line(drift.before))
        case "left_over":
            return (
                say("{who} is not called any more", who=who)
                if who
                else say("a recorded call is not made any more")
            )
        case "miss":
            return (
                say("{who} is called, and no record is left for it", who=who)
                if who
                else say("a call is made, and no record is left for it")
            )
        case "input":
            told = say("{who} is shown another {field}", who=who or say("nobody"), field=field)
        case "settings" if who:
            told = say("{who} has another {field}", who=who, field=field)
        case "settings":
            told = say("the team has another {field}", field=field)
        case _:
            told = say(
                "{field} is not what it was", field=f"{who}{say(': ')}{field}" if who else field
            )
    return f"{told}{say(': ')}{_values(drift, say)}" if _is_short(drift) else told


def _is_short(drift: Drift | Cause) -> bool:
    texts = drift.before, drift.after
    return any(texts) and sum(map(len, texts)) <= SHORT and not any("\n" in one for one in texts)


def _values(drift: Drift | Cause, say: Words) -> str:
    before, after = (shown_line(one) or say("nothing") for one in (drift.before, drift.after))
    return f"{before} → {after}"


def drawn(result: ScenarioResult, say: Words) -> Iterator[Line]:
    """A line for each thing that drifted in a scenario, with its place; what follows comes last."""
    found = ordered(result)
    for drift in found[:MOST_ROWS]:
        yield row(drift, result, say)
    more = len(found) - MOST_ROWS
    if more > 0:
        yield line(Span(say("and {count} more", count=more), "dim"))


def row(drift: Drift, result: ScenarioResult, say: Words) -> Line:
    """`scenarios/a.yaml:12: step 2, turn 1: dev is shown another role_prompt (2 calls)`."""
    place = shown_line(f"{result.file}:{result.line_of(drift.step)}: ")
    calls = f" ({say('{count} calls', count=drift.calls)})" if drift.calls > 1 else ""
    return line(Span(place), Span(where(drift, say)), Span(what(drift, say)), Span(calls, "dim"))


def ordered(result: ScenarioResult) -> list[Drift]:
    """What drifted in a scenario, and then what only follows from it."""
    return sorted(result.drift, key=lambda drift: drift.follows)


def closing(whole: RunResult, say: Words) -> Iterator[Line]:
    """All causes of a run, each once: what differs, where, and what to do about it."""
    for cause in whole.drift:
        yield EMPTY
        style = "failed" if is_wrong(cause, whole) else "warned"
        yield line(Span(say("drift: "), style), Span(what(cause, say), "strong"), hang=4)
        yield from below(cause, whole, say)


def is_wrong(cause: Cause, whole: RunResult) -> bool:
    """Whether it makes any scenario go wrong."""
    return any(counts(result) for result in _touching(cause, whole))


def is_accepted(cause: Cause, whole: RunResult) -> bool:
    """Whether all of it was written into the recordings."""
    return all(updated(result) for result in _touching(cause, whole))


def updated(result: ScenarioResult) -> bool:
    """Whether what drifted was written into its recording."""
    return result.mode == "update" and result.written


def _touching(cause: Cause, whole: RunResult) -> list[ScenarioResult]:
    touched = {(touch.file, touch.scenario) for touch in cause.touches}
    return [one for one in whole.scenarios if (one.file, one.title) in touched]


def below(cause: Cause, whole: RunResult, say: Words) -> Iterator[Line]:
    """The lines below a cause: how it differs, where, and what to do about it."""
    yield from difference(cause, say)
    yield from _touched(cause, say)
    if is_accepted(cause, whole):
        told = say("accepted: it was written into the recording")
        yield line(INDENT, Span(told, "dim"), hang=4)
    else:
        # A command is copied: it is never broken.
        yield line(INDENT, _todo(_touching(cause, whole), say))._replace(whole=True)


def difference(drift: Drift | Cause, say: Words) -> Iterator[Line]:
    """What changed in the texts, where they do not stand in the line itself."""
    if drift.kind in _CALLS or _is_short(drift):
        return
    before, after = drift.before, drift.after
    if before.endswith("\n") and after.endswith("\n"):
        before, after = before[:-1], after[:-1]
    lines = list(textdiff.drawn(before, after, say, indent=INDENT * 2))
    yield from lines[:MOST_LINES]
    more = len(lines) - MOST_LINES
    if more > 0:
        yield line(INDENT * 2, Span(say("and {count} more lines", count=more), "dim"))


def _touched(cause: Cause, say: Words) -> Iterator[Line]:
    places = list(dict.fromkeys((one.file, one.line, one.scenario) for one in cause.touches))
    calls = sum(touch.calls for touch in cause.touches)
    count = len({(file, scenario) for file, _, scenario in places})
    told = say("in 1 scenario") if count == 1 else say("in {count} scenarios", count=count)
    if calls > 1:
        told += f"{say(', ')}{say('{count} calls', count=calls)}"
    yield line(INDENT, Span(told, "dim"), hang=4)
    for file, number, scenario in places[:MOST_SCENARIOS]:
        title = Span(shown_line(scenario), "dim")
        yield line(INDENT * 2, Span(shown_line(f"{file}:{number}")), BETWEEN, title, hang=6)
    more = len(places) - MOST_SCENARIOS
    if more > 0:
        yield line(INDENT * 2, Span(say("and {count} more", count=more), "dim"))


def _todo(touched: Iterable[ScenarioResult], say: Words) -> str:
    """What to do where it is meant to be so; what no record answers is to be recorded."""
    stems: dict[str, dict[str, None]] = {"--update": {}, "--record": {}}
    for result in touched:
        misses = any(drift.kind == "miss" for drift in result.drift)
        stem = PurePosixPath(result.file).stem
        stems["--record" if misses else "--update"][shlex.quote(shown_line(stem))] = None
    commands = [
        " ".join(["arena run", option, *(names if len(names) <= MOST_NAMES else [])])
        for option, names in stems.items()
        if names
    ]
    told = say(", ").join(f"`{command}`" for command in commands)
    return say("look at it; if it is meant: {command}", command=told)


def _listed(names: list[str], say: Words) -> str:
    """The first few."""
    told = say(", ").join(names[:MOST_SCENARIOS])
    more = len(names) - MOST_SCENARIOS
    return f"{told} {say('and {count} more', count=more)}" if more > 0 else told
