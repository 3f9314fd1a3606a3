"""The loop of an agent with tools: what a model may do wrong, limits, ends, and people."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from product import AgentInput, AgentOutput, ControlRequest, Event, Inbox, ToolCall
from support import CountingClock, Puppets, Talk, puppet, team
from tools import ONCE, SLOW, TWICE, FakeTool, asks, offer, scripted, statuses

OUTPUT = {"name": "report", "schema": {"type": "integer"}}
DONE = ("complete_task", {"report": 1})
WRONG = ("complete_task", {"report": "many"})


class HandClock(CountingClock):
    """A clock whose monotonic time a test sets."""

    elapsed = 0.0

    def monotonic(self) -> float:
        return self.elapsed


def talk_of(folder: Path, answer: Any, **profile: Any) -> tuple[Talk, Puppets]:
    profile.setdefault("tools", [ONCE, TWICE])
    puppets = Puppets({"dev": answer})
    return Talk(folder, team(puppet("dev", **profile)), adapter_type=puppets), puppets


def results(puppets: Puppets, agent: str = "dev") -> list[str]:
    """The results that the model was shown at its last turn."""
    return [result.text for step in puppets.inputs[agent][-1].steps for result in step.results]


def mode(talk: Talk) -> str:
    return str(talk.last("agent_ended").mode)


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeTool]:
    made = {
        ONCE: FakeTool(ONCE, lambda arguments: f"noted {arguments.get('n')}", idempotent=False),
        TWICE: FakeTool(TWICE, lambda arguments: f"found {arguments.get('n')}"),
    }
    offer(monkeypatch, *made.values())
    return made


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (("nope", {}), f"there is no tool nope; you have: {ONCE}, {TWICE}"),
        (ToolCall(tool=TWICE, problem="the arguments are no JSON"), "the arguments are no JSON"),
        ((TWICE, {"n": "x"}), "arguments.n: 'x' is not of type 'integer'"),
    ],
)
def test_a_call_that_cannot_be_made_is_an_error_result(
    tmp_path: Path, tools: dict[str, FakeTool], asked: Any, problem: str
) -> None:
    talk, puppets = talk_of(tmp_path, scripted(asks(asked, (TWICE, {"n": 2})), "Done."))
    assert talk.send("@dev go").end == "quiet"
    assert results(puppets) == [problem, "found 2"]
    assert [status for _, _, status in statuses(talk.events)] == ["error", "ok"]
    assert tools[TWICE].made == [{"n": 2}]
    assert (mode(talk), talk.last("agent_ended").turns) == ("goal", 2)


def test_a_tool_that_raises_is_an_error_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> str:
        raise ValueError("no such row")

    offer(monkeypatch, FakeTool(TWICE, fail))
    answer = scripted(asks((TWICE, {})), "It failed.")
    talk, puppets = talk_of(tmp_path, answer, tools=[TWICE])
    talk.send("@dev go")
    assert results(puppets) == ["ValueError: no such row"]
    assert talk.last("reply_finished").message.content == "It failed."


def test_the_same_call_for_ever_ends_at_the_limit(
    tmp_path: Path, tools: dict[str, FakeTool]
) -> None:
    talk, puppets = talk_of(tmp_path, scripted(asks((ONCE, {"n": 1}))), run={"max_turns": 100})
    assert talk.send("@dev go").end == "failed"
    assert len(tools[ONCE].made) == 5
    assert len(puppets.inputs["dev"]) == 101
    assert puppets.inputs["dev"][-1].tools == []
    notice = puppets.inputs["dev"][-1].steps[-1].notice
    assert notice.startswith("You have used up your turns. Answer in text now")
    assert mode(talk) == "max_turns"
    assert "not done within 100 turns" in talk.last("reply_finished").error


def test_forty_calls_at_once_run_eight_at_a_time_and_answer_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0

    async def wait(arguments: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3 + arguments["n"] % 5):
            await asyncio.sleep(0)
        running -= 1
        return f"result {arguments['n']}"

    offer(monkeypatch, FakeTool(SLOW, wait))
    calls = [(SLOW, {"n": number}) for number in range(40)]
    talk, puppets = talk_of(tmp_path, scripted(asks(*calls), "Done."), tools=[SLOW])
    talk.send("@dev go")
    assert results(puppets) == [f"result {number}" for number in range(40)]
    assert most == 8
    requested = [event.call for event in talk.of("tool_requested")]
    assert requested == [str(number) for number in range(1, 41)]


def test_the_first_valid_output_counts(tmp_path: Path) -> None:
    second = ("complete_task", {"report": 2})
    talk, _ = talk_of(tmp_path, scripted(asks(WRONG, DONE, second)), output=OUTPUT)
    talk.send("@dev go")
    assert [status for _, _, status in statuses(talk.events)] == ["error", "ok", "error"]
    assert talk.last("agent_ended").output == 1
    assert talk.last("reply_finished").message.content == "1"


def test_calls_beside_the_output_are_made(tmp_path: Path, tools: dict[str, FakeTool]) -> None:
    calls = asks((ONCE, {"n": 1}), DONE, (ONCE, {"n": 2}))
    talk, puppets = talk_of(tmp_path, scripted(calls), output=OUTPUT)
    talk.send("@dev go")
    assert tools[ONCE].made == [{"n": 1}, {"n": 2}]
    assert [status for _, _, status in statuses(talk.events)] == ["ok", "ok", "ok"]
    assert len(puppets.inputs["dev"]) == 1


@pytest.mark.parametrize("gives_in", [True, False])
def test_an_output_that_does_not_fit_three_times_leaves_one_turn(
    tmp_path: Path, *, gives_in: bool
) -> None:
    last = asks(DONE if gives_in else WRONG)
    answer = scripted(asks(WRONG), asks(WRONG), asks(WRONG), last)
    talk, puppets = talk_of(tmp_path, answer, output=OUTPUT)
    talk.send("@dev go")
    assert len(puppets.inputs["dev"]) == 4
    assert [spec.name for spec in puppets.inputs["dev"][-1].tools] == ["complete_task"]
    assert mode(talk) == ("goal" if gives_in else "error_no_complete_task")
    assert talk.outcomes() == [("dev", "success" if gives_in else "error")]


@pytest.mark.parametrize("gives_in", [True, False])
@pytest.mark.parametrize("text", ["I think it is one.", ""])
def test_an_agent_that_stops_without_its_output_is_asked_once_more(
    tmp_path: Path, text: str, *, gives_in: bool
) -> None:
    answer = scripted(text, asks(DONE) if gives_in else "One.")
    talk, puppets = talk_of(tmp_path, answer, output=OUTPUT)
    talk.send("@dev go")
    notice = puppets.inputs["dev"][1].steps[0].notice
    assert notice.startswith("You stopped without calling complete_task. Call complete_task now")
    assert len(puppets.inputs["dev"]) == 2
    assert mode(talk) == ("goal" if gives_in else "error_no_complete_task")


def test_the_last_turn_offers_the_output_only(tmp_path: Path) -> None:
    answer = scripted(asks((TWICE, {"n": 1})), asks((TWICE, {"n": 2})), asks(DONE))
    talk, puppets = talk_of(tmp_path, answer, output=OUTPUT, run={"max_turns": 2})
    talk.send("@dev go")
    offered = [[spec.name for spec in shown.tools] for shown in puppets.inputs["dev"]]
    assert offered == [["complete_task", ONCE, TWICE]] * 2 + [["complete_task"]]
    assert (mode(talk), talk.last("agent_ended").turns) == ("goal", 3)


@pytest.mark.parametrize("hangs", [False, True])
def test_time_that_is_over_leaves_one_turn_of_grace(tmp_path: Path, *, hangs: bool) -> None:
    clock = HandClock()

    async def answer(shown: AgentInput) -> AgentOutput:
        if not shown.steps:
            clock.elapsed = 600
            return asks((TWICE, {"n": 1}))
        if hangs:
            await asyncio.sleep(60)
        return asks(DONE)

    run = {"max_minutes": 10, "grace_s": 0.05 if hangs else 60}
    talk, puppets = talk_of(tmp_path, answer, output=OUTPUT, run=run)
    talk.clock = clock
    talk.send("@dev go")
    assert puppets.inputs["dev"][1].steps[0].notice.startswith("Your time is over.")
    assert talk.outcomes() == [("dev", "timeout" if hangs else "success")]
    assert mode(talk) == ("timeout" if hangs else "goal")


def test_a_tool_that_outlives_the_time_of_its_agent_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def hang(_: Any) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise
        return "never"

    offer(monkeypatch, FakeTool(SLOW, hang))
    answer = scripted(asks((SLOW, {})), "It took too long.")
    run = {"max_minutes": 0.001}
    talk, puppets = talk_of(tmp_path, answer, tools=[SLOW], run=run)
    talk.send("@dev go")
    assert ended == [True]
    assert statuses(talk.events) == [("1", SLOW, "timeout")]
    assert results(puppets) == ["it did not end in time, and was ended"]


def cancel_dev(talk: Talk) -> None:
    Inbox(talk.transcript.parent).put(ControlRequest(act="cancel", agent="dev"))


def test_a_person_ends_an_agent_in_the_middle_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: Any) -> str:
        cancel_dev(talk)
        await asyncio.sleep(60)
        return "never"

    offer(monkeypatch, FakeTool(SLOW, hang))
    talk, _ = talk_of(tmp_path, scripted(asks((SLOW, {})), "Done."), tools=[SLOW])
    talk.send("@dev go")
    assert talk.outcomes() == [("dev", "cancelled")]
    assert (mode(talk), statuses(talk.events)) == ("aborted", [])


def test_an_interrupted_reply_has_no_end_and_continues(
    tmp_path: Path, tools: dict[str, FakeTool]
) -> None:
    first = asks((ONCE, {"n": 1}), text="I write it down.")
    answer = scripted(first, asks((TWICE, {"n": 2}), text="I look."), "Done.")
    talk, puppets = talk_of(tmp_path, answer)

    def interrupt(event: Event) -> None:
        if event.type == "tool_requested" and getattr(event, "tool", "") == TWICE:
            running = asyncio.current_task()
            assert running is not None
            running.cancel()

    talk.on_event = interrupt
    with pytest.raises(asyncio.CancelledError):
        talk.send("@dev go")
    assert talk.of("agent_ended") == []
    talk.on_event = lambda _: None
    finished = talk.resume()
    assert finished is not None
    assert finished.end == "quiet"
    assert results(puppets) == ["noted 1", "found 2"]
    assert tools[ONCE].made == [{"n": 1}]
    assert mode(talk) == "goal"
    whole, _ = talk_of(tmp_path / "whole", answer)
    whole.send("@dev go")
    expected = whole.last("reply_finished").usage.output_tokens
    assert sum(event.usage.output_tokens for event in talk.of("reply_finished")) == expected > 5


def test_a_long_result_is_cut_and_kept_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "line of text\n" * 100_000
    offer(monkeypatch, FakeTool(TWICE, lambda _: text))
    talk, puppets = talk_of(tmp_path, scripted(asks((TWICE, {})), "Done."), tools=[TWICE])
    talk.send("@dev go")
    (shown,) = results(puppets)
    assert len(shown.encode()) < 17_000
    assert "the whole text is the attachment search_notes-1.txt" in shown
    (kept,) = talk.last("tool_finished").attachments
    assert (tmp_path / kept.path).read_text(encoding="utf-8") == text


def test_other_agents_are_unharmed(tmp_path: Path) -> None:
    puppets = Puppets({"dev": scripted(asks(("nope", {}))), "ops": lambda _: "Fine."})
    members = team(
        puppet("dev", tools=[TWICE], run={"max_turns": 2}), puppet("ops"), selection="none"
    )
    talk = Talk(tmp_path, members, adapter_type=puppets)
    talk.send("@dev @ops go")
    assert talk.outcomes() == [("dev", "error"), ("ops", "success")]
