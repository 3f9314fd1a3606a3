"""How replays differ from their recordings: a line in each scenario, and each cause once.

Makes lines of pieces (`report.spans`). What agents said is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arena_cli.ground.text import shown_line
from arena_cli.report import facts, modes, textdiff
from arena_cli.report.spans import BETWEEN, EMPTY, INDENT, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.scenario.load import select
from arena_cli.scenario.result import (
    DRIFTED,
    DRIFTED_AND_NEW,
    Cause,
    Drift,
    RunResult,
    ScenarioResult,
)

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
            return say("{who} is not called any more", who=who)
        case "miss" if drift.field == "case":
            case_id = shown_line(drift.after)
            return say("the file has a case {case} that was not recorded", case=case_id)
        case "miss":
            return say("{who} is called, and no record is left for it", who=who)
        case "input" if who and drift.field == "rubric":
            told = say("the judge {who} is asked by another rubric", who=who)
        case "input" if len(agents) > 1:
            told = say("{who} are shown another {field}", who=who, field=field)
        case "input" if who:
            told = say("{who} is shown another {field}", who=who, field=field)
        case "input":
            told = say("another message is sent")
        case "settings":
            told = _setting(drift.field, field, who, len(agents), say)
        case _:
            told = say(
                "{field} is not what it was", field=f"{who}{say(': ')}{field}" if who else field
            )
    return f"{told}{say(': ')}{_values(drift, say)}" if _is_short(drift) else told


def _setting(name: str, field: str, who: str, agents: int, say: Words) -> str:
    """What has another setting: agents, the scenario, `arena.yaml`, or the team."""
    if agents > 1:
        return say("{who} have another {field}", who=who, field=field)
    if agents:
        return say("{who} has another {field}", who=who, field=field)
    if name.startswith("ignore["):
        return say("the scenario has another {field}", field=field)
    if name.startswith(("models.", "memory.")):
        return say("arena.yaml has another {field}", field=field)
    return say("the team has another {field}", field=field)


def _is_short(drift: Drift | Cause) -> bool:
    texts = drift.before, drift.after
    return any(texts) and sum(map(len, texts)) <= SHORT and not any("\n" in one for one in texts)


def _values(drift: Drift | Cause, say: Words) -> str:
    before, after = (shown_line(one) or say("nothing") for one in (drift.before, drift.after))
    return f"{before} → {after}"


def row(drift: Drift, result: ScenarioResult, say: Words) -> Line:
    """`scenarios/a.yaml:12: step 2, turn 1: dev is shown another role_prompt (2 calls)`."""
    place = shown_line(f"{result.file}:{result.line_of(drift.step)}: ")
    calls = f" ({say('{count} calls', count=drift.calls)})" if drift.calls > 1 else ""
    return line(Span(place), Span(where(drift, say)), Span(what(drift, say)), Span(calls, "dim"))


def ordered(result: ScenarioResult) -> list[Drift]:
    """What drifted in a scenario, and then what only follows from it."""
    return sorted(result.drift, key=lambda drift: drift.follows)


def updated(result: ScenarioResult) -> bool:
    """Whether what drifted was written into its recording."""
    return result.mode == "update" and result.written


class Causes:
    """What the drift of a run comes from, each told once for all scenarios that it touches."""

    def __init__(self, whole: RunResult, say: Words) -> None:
        self._whole = whole
        self._say = say
        self._results = {(one.file, one.title): one for one in whole.scenarios}

    def lines(self) -> Iterator[Line]:
        """What differs, where, and what to do about it; of those that touch most."""
        for cause in self.ordered()[:MOST_CAUSES]:
            yield EMPTY
            style = "failed" if self.is_wrong(cause) else "warned"
            told = Span(what(cause, self._say), "strong")
            yield line(Span(self._say("drift: "), style), told, hang=4)
            yield from self.below(cause)
        more = len(self._whole.drift) - MOST_CAUSES
        if more > 0:
            yield EMPTY
            yield line(Span(self._say("drift: ")), self._say("and {count} more", count=more))

    def ordered(self) -> list[Cause]:
        """Those that touch most first."""
        return sorted(self._whole.drift, key=lambda one: -len(one.touches))

    def is_wrong(self, cause: Cause) -> bool:
        """Whether it makes any scenario go wrong."""
        return any(result.drift_fails for result in self._touched(cause))

    def is_accepted(self, cause: Cause) -> bool:
        """Whether all of it was written into the recordings."""
        return all(updated(result) for result in self._touched(cause))

    def below(self, cause: Cause) -> Iterator[Line]:
        """The lines below a cause: how it differs, where, and what to do about it."""
        yield from difference(cause, self._say)
        if cause.changed:
            yield line(INDENT, self.changed(cause))._replace(whole=True)
        yield from _places(cause, self._say)
        yield self.advice(cause)

    def changed(self, cause: Cause) -> str:
        """Return where it was changed, as a text; empty where that is not known."""
        places = _listed([shown_line(place) for place in cause.changed], self._say)
        return self._say("changed in {places}", places=places) if places else ""

    def advice(self, cause: Cause) -> Line:
        """What to do about it, or what was done."""
        say = self._say
        left = [result for result in self._touched(cause) if not updated(result)]
        commands = _commands(left)
        if commands:
            listed = say(", ").join(f"`{command}`" for command in commands)
            told = say("look at it; if it is meant: {command}", command=listed)
            # A command is copied: it is never broken.
            return line(INDENT, told)._replace(whole=True)
        if left:
            why = modes.why_unkept(left[0], say)
            return line(INDENT, say("not accepted: {why}", why=why), hang=4)
        told = say("accepted: it was written into the recording")
        return line(INDENT, Span(told, "dim"), hang=4)

    def _touched(self, cause: Cause) -> list[ScenarioResult]:
        keys = dict.fromkeys((touch.file, touch.scenario) for touch in cause.touches)
        return [self._results[key] for key in keys]


def texts(drift: Drift | Cause) -> tuple[str, str]:
    """Both texts, where they do not stand in the line itself, without a last line end of both."""
    if drift.kind in _CALLS or _is_short(drift):
        return "", ""
    ends = drift.before.endswith("\n") and drift.after.endswith("\n")
    return (drift.before[:-1], drift.after[:-1]) if ends else (drift.before, drift.after)


def difference(drift: Drift | Cause, say: Words) -> Iterator[Line]:
    """What changed in the texts, where they do not stand in the line itself."""
    lines = list(textdiff.drawn(*texts(drift), say, indent=INDENT * 2))
    yield from lines[:MOST_LINES]
    more = len(lines) - MOST_LINES
    if more > 0:
        yield line(INDENT * 2, Span(say("and {count} more lines", count=more), "dim"))


def _places(cause: Cause, say: Words) -> Iterator[Line]:
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


def _commands(left: Iterable[ScenarioResult]) -> list[str]:
    """What to do where it is meant to be so; nothing where an update did not keep it."""
    names: dict[str, dict[str, None]] = {option: {} for option in _OPTIONS}
    for result in left:
        option = _option(result)
        if option:
            names[option][select.run_name(result.file)] = None
    for name in names["--record"]:  # all else is in it
        names["--update"].pop(name, None)
        names["--record=missing"].pop(name, None)
    return [
        " ".join(["arena run", option, *(found if len(found) <= MOST_NAMES else [])])
        for option, found in names.items()
        if found
    ]


def _option(result: ScenarioResult) -> str:
    """What takes over the drift of one scenario: what no record answers is to be recorded.

    What is missing is recorded alone only where nothing else drifted but what is new.
    """
    misses = [one for one in result.drift if one.kind == "miss"]
    if not misses:
        return _KEEPING.get(result.unkept, "") if modes.why_unkept(result, _ENGLISH) else "--update"
    steps = {one.step for one in misses}
    is_new = any(one.field == "case" for one in misses)
    others = (one for one in result.drift if one.kind != "miss")
    alone = all(not one.before and (is_new or one.step in steps) for one in others)
    return (
        "--record=missing" if alone and not any(one.is_followed for one in misses) else "--record"
    )


def _listed(names: list[str], say: Words) -> str:
    """The first few."""
    told = say(", ").join(names[:MOST_SCENARIOS])
    more = len(names) - MOST_SCENARIOS
    return f"{told} {say('and {count} more', count=more)}" if more > 0 else told
