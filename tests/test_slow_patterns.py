"""A pattern that a user wrote has a second: what it guards fails safe, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from product import (
    WITHHELD,
    AgentOutput,
    CallNote,
    PatternTimeout,
    RecordingStore,
    Redactor,
    Runner,
    ScenarioResult,
    SessionConfig,
    StatusEvent,
    TextDelta,
    UserPattern,
    user_pattern,
)
from program import LIMIT_S
from stage import Stage, broken
from support import Puppets, Talk, puppet, team

SLOW = r"(?:x|xx|x)+[yz]"
TEXT = "x" * 60
TOLD = f"the pattern /{SLOW}/ takes longer than 0.05 s"


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_pattern, "LIMIT_S", 0.05)
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LIMIT_S


def test_the_limit_is_a_second() -> None:
    assert user_pattern.LIMIT_S in (0.05, 1.0)
    pattern = UserPattern(SLOW, where="a.yaml:3")
    for use in (
        lambda: pattern.search(TEXT),
        lambda: list(pattern.finditer(TEXT)),
        lambda: pattern.sub(lambda _: "", TEXT),
    ):
        with pytest.raises(PatternTimeout, match=re.escape(f"a.yaml:3: {TOLD}")):
            use()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"工单 A-\d{6}", "看 工单 A-123456"),
        (r"foo{s}|{name}|a{e<=1}", "foo{s} {name} a{e<=1} fo aX"),
        (r"a{2}b{1,}c{,2}d{0,3}", "aabbccddd"),
        (r"\N{BULLET}[{}\]]+\{x\}", "•{}]{x}"),
        (r"(?i:STRASSE)|(?P<n>k)(?P=n)", "strasse kk Straße"),
        (r"(?x) a \s # {a comment}", "a b"),
        (r"[[a-c]&&b]", "a b] &]"),
        (r"^.*$", "one\ntwo"),
        (r"\bword\b|x*", "a word xx"),
        (r"(?<=a)b(?!c)", "ab abc"),
        (r"\d+|\w+|\s", "a1 ١٢ é ß_"),
    ],
)
@pytest.mark.parametrize("flags", [0, re.IGNORECASE, re.DOTALL, re.MULTILINE])
@pytest.mark.filterwarnings("ignore:Possible")
def test_a_pattern_means_what_it_means_in_re(pattern: str, text: str, flags: int) -> None:
    plain = [(match.span(), match.groups()) for match in re.compile(pattern, flags).finditer(text)]
    timed = UserPattern(pattern, flags)
    assert [(match.span(), match.groups()) for match in timed.finditer(text)] == plain
    assert timed.sub(lambda _: "-", text) == re.sub(pattern, "-", text, flags=flags)


def test_what_is_no_pattern_is_told_as_before() -> None:
    with pytest.raises(re.error, match="unterminated"):
        Redactor(patterns=["(a"])


def _talk(folder: Path, answer: Any) -> Talk:
    async def spoken(_: Any) -> Any:
        return answer

    adapter_type = Puppets({"dev": spoken})
    return Talk(folder, team(puppet("dev")), adapter_type=adapter_type, redact=[SLOW])


@pytest.mark.parametrize(
    "answer",
    [
        AgentOutput(content=f"secret {TEXT}"),
        AgentOutput(content="ok", metadata={"raw": f"secret {TEXT}"}),
        AgentOutput(content="ok", attachments=[{"name": "a.txt", "data": f"secret {TEXT}"}]),
        AgentOutput(content="ok", structured=[{"type": "note", "data": [f"secret {TEXT}"]}]),
        AgentOutput(content="ok", status_updates=[{"status": "done", "detail": f"secret {TEXT}"}]),
    ],
)
def test_an_answer_that_cannot_be_redacted_fails(tmp_path: Path, answer: AgentOutput) -> None:
    talk = _talk(tmp_path, answer)
    talk.send("@dev hello")
    done = talk.last("reply_finished")
    assert done.status == "error"
    assert f"its answer cannot be redacted, so it is not written: arena.yaml: redact: {TOLD}" in (
        done.error
    )
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"secret" not in written
    assert b"xxx" not in written


def test_what_an_agent_tells_beside_its_answer_is_withheld(tmp_path: Path) -> None:
    class Telling(Puppets):
        def __call__(self, kind: str) -> type[Any]:
            base = super().__call__(kind)

            class Puppet(base):  # type: ignore[misc,valid-type]
                async def invoke(self, input: Any, emit: Any) -> AgentOutput:
                    emit(StatusEvent(status="generating", detail=f"secret {TEXT}"))
                    emit(CallNote({"raw": f"secret {TEXT}"}))
                    emit(TextDelta(f"secret {TEXT}"))
                    raise RuntimeError(f"secret {TEXT}")

            return Puppet

    talk = Talk(
        tmp_path, team(puppet("dev")), adapter_type=Telling({"dev": lambda _: ""}), redact=[SLOW]
    )
    talk.send("@dev hello")
    done = talk.last("reply_finished")
    assert WITHHELD in done.error
    assert done.metadata["raw"] == done.metadata["partial"] == WITHHELD
    assert talk.last("status").detail == WITHHELD
    assert b"secret" not in talk.transcript.read_bytes()


def test_a_message_that_cannot_be_redacted_is_not_sent(tmp_path: Path) -> None:
    talk = _talk(tmp_path, AgentOutput(content="ok"))
    with pytest.raises(PatternTimeout) as raised:
        talk.send(f"secret {TEXT}")
    assert raised.value.exit_code == 2
    assert b"secret" not in talk.transcript.read_bytes()
    talk.send("@dev hello")
    assert talk.last("reply_finished").status == "success"


def test_a_slow_pattern_for_notes_is_skipped_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    patterns = {"decision": [SLOW, "we agree"]}
    crew = team(puppet("dev"), memory={"patterns": patterns})
    talk = Talk(tmp_path, crew, adapter_type=Puppets({"dev": lambda _: f"we agree. {TEXT}"}))
    monkeypatch.setattr(
        "support.SessionConfig",
        lambda **keys: SessionConfig(**keys, on_problem=lambda fault: told.append(str(fault))),
    )
    talk.send(f"{TEXT} @dev")
    talk.send(f"{TEXT} @dev again")
    assert {note.title for note in talk.of("note")} == {"we agree"}
    assert len(told) == 2  # once in each session that is opened
    assert f"config.memory.patterns: {TOLD}" in told[0]
    assert "it is skipped from now on" in told[0]


EXPECTED = """
scenario: slow
steps:
  - send: "@dev hello"
    expect:
      replies:
        dev:
          - regex: '{slow}'
          - not: {{regex: '{slow}'}}
          - json: {{schema: {{items: {{pattern: '{slow}'}}}}}}
          - json: {{schema: {{patternProperties: {{'{slow}': {{}}}}}}, path: ''}}
"""


def test_an_expectation_that_takes_too_long_is_an_error_with_its_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", json.dumps([TEXT, {TEXT: 1}]))
    stage.team()
    text = EXPECTED.format(slow=SLOW).replace(", path: ''", "")
    errors = broken(stage.play(text))
    assert [(one.status, one.line) for one in errors] == [
        ("error", line) for line in (8, 9, 10, 11)
    ]
    for error in errors:
        assert TOLD in error.actual
        assert error.file == "scenarios/s0.yaml"


def test_so_is_what_a_step_saves(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", TEXT)
    stage.team()
    save = f"{{x: {{from: dev, regex: '{SLOW}'}}}}"
    text = f"scenario: slow\nsteps:\n  - send: '@dev hi'\n    save: {save}\n"
    (error,) = broken(stage.play(text))
    assert (error.status, error.line) == ("error", 4)
    assert TOLD in error.actual


def test_a_script_whose_pattern_takes_too_long_is_an_error_of_that_agent(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"when": {"regex": SLOW}, "say": "hi"}, {"say": "no"})
    stage.team()
    result = stage.play(f"scenario: slow\nsteps:\n  - send: '@dev {TEXT}'\n")
    (failure,) = result.steps[0].failures
    assert f"when.regex: {TOLD}" in failure.error


def test_what_a_recording_ignores_is_an_error_of_the_scenario_with_its_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", "hi", role_prompt=TEXT)
    stage.team()
    text = f"scenario: slow\nignore:\n  - regex: '{SLOW}'\nsteps:\n  - send: '@dev hi'\n"
    scenarios = stage.load(text)
    results: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, "record", drift="fail")
    asyncio.run(Runner(scenarios, stage.place(), results.append, shelf=shelf).run())
    assert results[0].status == "error"
    assert f"scenarios/s0.yaml:3: ignore: {TOLD}" in (results[0].steps[0].error or "")
    assert not list(tmp_path.rglob("*.jsonl.part"))


@pytest.mark.parametrize("title", ["slow", "another title"])
def test_a_slow_ignore_stops_no_other_scenario_of_a_replay(tmp_path: Path, title: str) -> None:
    stage = Stage(tmp_path).agent("dev", "hi")
    stage.team()
    quick = "scenario: quick\nsteps:\n  - {send: '@dev hi', expect: {replied: [dev]}}\n"
    text = f"scenario: slow\nsteps:\n  - {{send: '@dev {TEXT}', expect: {{replied: [dev]}}}}\n"
    recorded = stage.load(quick, text)
    shelf = RecordingStore(recorded, "record", drift="fail")
    asyncio.run(Runner(recorded, stage.place(), lambda _: None, shelf=shelf).run())
    ignore = f"ignore: [{{regex: '{SLOW}'}}]\n"
    scenarios = stage.load(quick, text.replace("slow", title, 1) + ignore)
    results: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, "replay", drift="fail", lenient=True)
    sound = [one for one in scenarios if one.path not in shelf.faults]
    asyncio.run(Runner(sound, stage.place(), results.append, shelf=shelf).run())
    problems = [fault.what for faults in shelf.faults.values() for fault in faults]
    problems += [result.steps[0].error or "" for result in results[1:]]
    assert results[0].status == "passed"
    assert any(TOLD in problem for problem in problems)


def test_a_pattern_of_a_note_in_an_expectation_takes_no_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", "we decided x")
    stage.team()
    exclude = "*a" * 40 + "b"
    text = (
        "scenario: notes\nsteps:\n  - send: '@dev hi'\n"
        f"    expect: {{shown_notes: {{dev: {{exclude: ['{exclude}']}}}}}}\n"
    )
    assert stage.play(text).status in ("passed", "failed")
