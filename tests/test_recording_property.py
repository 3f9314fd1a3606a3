"""Recordings of any team and any scenario: what is recorded is what is replayed, byte for byte."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    Emit,
    HastyClock,
    RecordingStore,
    Runner,
    RunResult,
    ScenarioResult,
    ScriptedAdapter,
    Selected,
    SessionConfig,
    SystemClock,
    Wanted,
    causes,
    file,
    of_run,
)
from product import transcript_compare as compare
from stage import TEAM, Stage

IDS = ("ann", "bob", "cai")
NAMES = {"ann": "架构师", "bob": "Zoë", "cai": ""}
WORDS = ("parse", "cache", "磁盘")
CALLED = ("role_prompt", "timeout_s", "script")  # matters only where it is called

checked = settings(
    max_examples=settings.default.max_examples * 3 // 5,  # each records and plays several runs
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

texts = st.lists(
    st.sampled_from([*(f"@{name}" for name in IDS), "@架构师", "@maya", "@nobody", *WORDS]),
    max_size=4,
).map(lambda words: " ".join(["well", *words]))

rules: st.SearchStrategy[dict[str, Any]] = st.one_of(
    texts.map(lambda text: {"say": text}),
    st.just({"decline": True}),
    st.sampled_from(["error", "timeout", "overloaded", "refused", "empty"]).map(
        lambda how: {"fail": how}
    ),
    st.sampled_from(IDS).map(lambda name: {"say": "next", "next_mentions": [name]}),
    st.just({"structured": [{"type": "task_list", "data": ["写测试", {"n": 1}]}]}),
    st.just({"say": "see", "attachments": [{"type": "code", "name": "计划.md", "data": "一\r\n"}]}),
    st.just({"say": "12", "usage": {"input_tokens": 3, "output_tokens": 2, "cost_usd": 0.5}}),
)

conditions = st.one_of(
    st.integers(1, 3).map(lambda call: {"call": call}),
    st.sampled_from(["must_reply", "may_reply"]).map(lambda one: {"invocation": one}),
    st.sampled_from(WORDS).map(lambda word: {"contains": word}),
)


@st.composite
def agents(draw: st.DrawFn, name: str) -> dict[str, Any]:
    entries: list[Any] = draw(
        st.lists(
            st.one_of(texts, st.tuples(conditions, rules).map(lambda p: {"when": p[0], **p[1]})),
            max_size=3,
        )
    )
    return {
        "agent_id": name,
        "name": NAMES[name],
        "role_prompt": draw(st.sampled_from(["", "Plan.\nIn a few words.", "评审"])),
        "response": {
            "keywords": draw(st.lists(st.sampled_from(WORDS), unique=True)),
            "threshold": 0.4,
        },
        "adapter": {"type": "scripted", "replies": [*entries, draw(rules)]},
        "context": {"window_tokens": draw(st.sampled_from([3000, 32000]))},
    }


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    session = draw(st.sampled_from([None, None, "second"]))
    step: dict[str, Any] = {"session": session} if session else {}
    kind = draw(st.sampled_from(["send", "send", "send", "say", "system", "check"]))
    if kind == "say":
        return step | {"say": {"agent": draw(st.sampled_from(IDS)), "text": draw(texts)}}
    if kind == "system":
        return step | {"system": "15 minutes without an answer"}
    if kind == "check":
        return {"check": {"turns": {"max": 99}}}
    step |= {"send": draw(texts) + draw(st.sampled_from(["", " ${vars.x}"])), "on_fail": "continue"}
    if draw(st.booleans()):
        step["from"] = "maya"
    if draw(st.integers(0, 4)) == 0:
        step["save"] = {"last": {"from": draw(st.sampled_from(IDS))}}
    if draw(st.integers(0, 4)) == 0:
        step["send"] += " ${saved.last}"
    if draw(st.integers(0, 4)) == 0:
        step["attach"] = ["scenarios/fixtures/a.txt"]
    return step


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    ids = IDS[: draw(st.integers(1, len(IDS)))]
    scenario: dict[str, Any] = {
        "scenario": "S",
        "agents": list(ids),
        "humans": [{"id": "maya", "name": "Maya"}],
        "vars": {"x": "@ann"},
        "config": {
            "selection": draw(st.sampled_from(["relevance", "ask", "none"])),
            "max_responders": draw(st.integers(1, 3)),
            "chain_depth_limit": draw(st.integers(0, 3)),
            "on_failure": draw(st.sampled_from(["skip", "retry", "abort"])),
            "retries": 1,
            "re_invoke_already_replied": draw(st.booleans()),
        },
        "steps": _made_to_fit(draw(st.lists(steps(), min_size=1, max_size=4)), ids),
    }
    if draw(st.booleans()):
        scenario["cases"] = [{"id": "一", "vars": {"x": "one"}}, {"id": "b"}]
    if draw(st.integers(0, 3)) == 0:
        given = {"fill": {"messages": 30, "seed": draw(st.integers(0, 9))}}
        scenario["given"] = given | {"messages": [{"user": "before"}, {ids[0]: "said @maya"}]}
    return scenario


def _made_to_fit(found: list[dict[str, Any]], ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Only members speak, and nothing is waited for that nobody saves."""
    saved = False
    for step in found:
        if "say" in step and step["say"]["agent"] not in ids:
            step["say"]["agent"] = ids[0]
        if "save" in step and step["save"]["last"]["from"] not in ids:
            del step["save"]
        if not saved and "send" in step:
            step["send"] = step["send"].replace(" ${saved.last}", "")
        saved = saved or "save" in step
    return found


teams = st.fixed_dictionaries({name: agents(name) for name in IDS})


@dataclass
class Recorder(Stage):
    """Records and replays `scenarios/one.yaml`; `calls` are those that agents had, in order."""

    calls: list[str] = field(default_factory=list)

    def write(self, profiles: dict[str, Any], scenario: dict[str, Any]) -> None:
        for name, profile in profiles.items():
            self._write(f"agents/{name}.yaml", profile)
        self._write(f"agents/teams/{TEAM}.yaml", {"team": TEAM, "members": list(profiles)})
        self._write("arena.yaml", {"team": TEAM})
        self.path.parent.joinpath("fixtures").mkdir(parents=True, exist_ok=True)
        self.path.parent.joinpath("fixtures", "a.txt").write_text("attached", encoding="utf-8")
        self.scenario(json.dumps(scenario, ensure_ascii=False))

    @property
    def path(self) -> Path:
        return self.folder / "scenarios" / "one.yaml"

    @property
    def recording(self) -> Path:
        return file.path_of(self.path)

    def place(self) -> SessionConfig:
        calls = self.calls

        class Counted(ScriptedAdapter):
            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                calls.append(input.agent_id)
                return await super().invoke(input, emit)

        return replace(
            super().place(), adapter_type=lambda _: Counted, clock=HastyClock(SystemClock())
        )

    def run(self, wanted: Wanted, *, jobs: int = 1) -> RunResult:
        loaded = self.load_selected(Selected((self.path.resolve(),)))
        shelf = RecordingStore(loaded, wanted)
        told: list[ScenarioResult] = []
        self.calls.clear()
        runner = Runner(
            loaded, self.place(), told.append, jobs=jobs, shelf=shelf, keep="none", detail=True
        )
        asyncio.run(runner.run())
        return of_run(told, selected=len(loaded), seconds=0)


def named(scenario: dict[str, Any], result: RunResult) -> dict[str, Any]:
    """The scenario with an expectation for each agent that failed in it, as a user adds them."""
    found = [dict(step) for step in scenario["steps"]]
    for one in result.scenarios:
        for step in one.steps:
            for failure in step.failures:
                expect = found[step.number - 1].setdefault("expect", {})
                expect.setdefault("outcome", {})[failure.agent] = failure.status
    return {**scenario, "steps": found}


@contextmanager
def recorded(
    profiles: dict[str, Any], scenario: dict[str, Any]
) -> Iterator[tuple[Recorder, dict[str, Any]]]:
    """A scenario that was recorded, as it was then."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        recorder.write(profiles, scenario)
        scenario = named(scenario, recorder.run("live"))
        recorder.write(profiles, scenario)
        steps = [step for one in recorder.run("live").scenarios for step in one.steps]
        assume(not any(step.failures or step.error for step in steps))
        result = recorder.run("record")
        assert all(one.written and not one.unkept for one in result.scenarios), result
        yield recorder, scenario


def told(result: RunResult) -> list[Any]:
    """What a run tells, without times, sessions' names, and the mode."""
    varies = {"seconds", "sessions", "mode", "written", "unkept", "drift", "drift_fails"}
    return [
        (
            one.model_dump(mode="json", exclude=varies),
            [_form(step.events) for step in one.steps],
        )
        for one in result.scenarios
    ]


def _form(events: list[Any]) -> list[Any]:
    ids: dict[str, str] = {}
    found = [compare.canonicalize_event(event, ids) for event in compare.ordered(events)]
    return [{**one, "session": None} if one["type"] == "session" else one for one in found]


@checked
@given(teams, scenarios())
def test_what_is_recorded_is_what_is_replayed(
    profiles: dict[str, Any], scenario: dict[str, Any]
) -> None:
    with recorded(profiles, scenario) as (recorder, _):
        content = recorder.recording.read_bytes()
        calls = list(recorder.calls)
        again = recorder.run("record", jobs=2)
        assert recorder.recording.read_bytes() == content
        assert sorted(recorder.calls) == sorted(calls)
        assert not any(one.written for one in again.scenarios)
        for jobs in (1, 3):
            replayed = recorder.run("replay", jobs=jobs)
            assert (replayed.drift, recorder.calls) == ([], [])
            assert told(replayed) == told(again)
        updated = recorder.run("update")
        assert (updated.drift, recorder.calls) == ([], [])
        assert recorder.recording.read_bytes() == content
        missing = recorder.run("missing")
        assert (missing.drift, recorder.calls) == ([], [])
        assert recorder.recording.read_bytes() == content
        event(f"{len(calls)} calls")


@checked
@given(teams, scenarios())
def test_only_what_was_appended_is_asked(
    profiles: dict[str, Any], scenario: dict[str, Any]
) -> None:
    assume(len(scenario["steps"]) > 1 or "cases" in scenario)
    with recorded(profiles, scenario) as (recorder, whole):
        content, calls = recorder.recording.read_bytes(), list(recorder.calls)
        fewer = {**whole, "steps": whole["steps"][:-1] or whole["steps"]}
        fewer |= {"cases": fewer["cases"][:1]} if "cases" in fewer else {}
        recorder.write(profiles, fewer)
        recorder.run("record")
        known = list(recorder.calls)
        recorder.write(profiles, whole)
        result = recorder.run("missing")
        # A recording without a failure is not replaced by one in which a check fails by a failure.
        assume(not any("although" in one.unkept for one in result.scenarios))
        assert (result.drift, sorted([*recorder.calls, *known])) == ([], sorted(calls))
        assert recorder.recording.read_bytes() == content
        assert {one.mode for one in result.scenarios} <= {"record", "replay"}


Change = tuple[str, Any]

# What changes nothing of who is called, so that two of these are two causes.
QUIET: list[Change] = [
    *((what, name) for what in ("role_prompt", "timeout_s", "script") for name in IDS),
    *(("config", key) for key in ("retries", "turn_timeout_s")),
    *(("send", index) for index in range(3)),
]
LOUD: list[Change] = [
    *((what, name) for what in ("name", "threshold", "keywords") for name in IDS),
    *(("config", key) for key in ("max_responders", "chain_depth_limit")),
]

changes = st.one_of(
    st.sampled_from([*QUIET, *LOUD]).map(lambda one: [one]),
    st.lists(st.sampled_from(QUIET), min_size=2, max_size=2, unique=True),
)


def changed(
    change: Change, profiles: dict[str, Any], scenario: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The profiles and the scenario with a change, and what the told field begins with."""
    what, where = change
    if what == "config":
        config = {**scenario["config"], where: scenario["config"].get(where, 1) + 1}
        return profiles, {**scenario, "config": config}, f"config.{where}"
    if what == "send":
        steps = [dict(step) for step in scenario["steps"]]
        assume(where < len(steps) and "send" in steps[where])
        steps[where]["send"] = f"oh {steps[where]['send']}"
        return profiles, {**scenario, "steps": steps}, "message"
    assume(where in scenario["agents"])
    response = profiles[where]["response"]
    keys: dict[str, dict[str, Any]] = {
        "role_prompt": {"role_prompt": "Another."},
        "members": {"name": f"{where}-2"},
        "response.threshold": {"response": {**response, "threshold": 0.41}},
        "response.keywords": {"response": {**response, "keywords": ["nothing", *WORDS]}},
        "timeout_s": {"timeout_s": 7},
        "adapter.": {"adapter": {"type": "scripted", "replies": ["another"]}},
    }
    field = {"name": "members", "script": "adapter."}.get(what, what)
    field = f"response.{field}" if field in {"threshold", "keywords"} else field
    return {**profiles, where: {**profiles[where], **keys[field]}}, scenario, field


@checked
@given(teams, scenarios(), changes)
def test_what_was_changed_is_told_and_nothing_else(
    profiles: dict[str, Any], scenario: dict[str, Any], wanted: list[Change]
) -> None:
    with recorded(profiles, scenario) as (recorder, then):
        assume({*recorder.calls} >= {where for what, where in wanted if what in CALLED})
        played, fields = then, []
        for change in wanted:
            profiles, played, field = changed(change, profiles, played)
            fields.append(field)
        recorder.write(profiles, played)
        result = recorder.run("replay")
        assert recorder.calls == []
        # A message that a case fills in has another text in each case, and is reported as an input
        # of an agent (`messages[n]`) only where one was called: per case it is one cause.
        for replayed in result.scenarios:
            found_here = causes([replayed])
            assert len(found_here) <= len(wanted), found_here
        found = {
            ("message",) if "message" in cause.field else (cause.field.split("[")[0], cause.before)
            for cause in result.drift
        }
        told = [field for field, *_ in found]
        heard = [field for field in fields if field != "message"]
        assert [one for one in told if not one.startswith(tuple(fields))] == []
        assert [one for one in heard if not any(field.startswith(one) for field in told)] == []
        assert len(found) <= len(wanted)
