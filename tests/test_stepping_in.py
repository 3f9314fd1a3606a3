"""People who step in at odd moments: twice at once, at the limit, between replies, after a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from product import AgentInput, AgentOutput, ControlRequest, Inbox, StructuredContent, reader
from program import Program, until
from support import Puppets, Talk, puppet, team


def answers(**by_agent: Any) -> Puppets:
    """Agents that say this, or do it."""
    return Puppets(
        {
            name: said if callable(said) else (lambda _, said=said: said)
            for name, said in by_agent.items()
        }
    )


def asks(text: str = "May I?") -> AgentOutput:
    part = StructuredContent(type="approval_request", data={"action": "deploy", "detail": "prod"})
    return AgentOutput(content=text, structured=[part])


def talk_of(folder: Path, puppets: Puppets, **config: Any) -> Talk:
    members = team(*map(puppet, puppets.inputs), humans=["maya"], **{"selection": "none", **config})
    return Talk(folder, members, adapter_type=puppets)


def decide(talk: Talk, **fields: Any) -> None:
    with talk.open() as session:
        session.carry_out(ControlRequest(act="decide", **{"request": 1, **fields}))


async def steer(talk: Talk, text: str, by: str = "user") -> None:
    """Steer the running chain, as from another process."""
    inbox = Inbox(talk.transcript.parent)
    path = inbox.put(ControlRequest(act="steer", text=text, by=by))
    for _ in range(3_000):
        if inbox.read_answer(path) is not None:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody answered")


def notices(talk: Talk) -> list[str]:
    told = [event.message.content for event in talk.of("message")]
    return [text for text in told if text.startswith("The chain reached")]


def test_two_people_who_cancel_at_once_end_the_chain_once(tmp_path: Path) -> None:
    async def slow(shown: AgentInput) -> str:
        inbox = Inbox(talk.transcript.parent)
        inbox.put(ControlRequest(act="cancel", agent="slow"))
        inbox.put(ControlRequest(act="cancel", by="maya"))
        await asyncio.sleep(60)
        return "never"

    talk = talk_of(tmp_path, answers(slow=slow))
    assert talk.send("@slow go").end == "cancelled"
    (done,) = talk.of("reply_finished")
    assert (done.status, done.cancelled_by) == ("cancelled", "user")


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_whoever_the_limit_stops_is_named_before_a_decision_is_told(
    tmp_path: Path, decision: Any
) -> None:
    said = iter([asks("May I? @other"), AgentOutput(content="I am done.")])
    talk = talk_of(tmp_path, answers(dev=lambda _: next(said), other="here"), chain_depth_limit=0)
    assert talk.send("@dev go").type == "chain_paused"
    decide(talk, decision=decision)
    finished = talk.resume()
    assert finished is not None
    assert finished.end == "chain_limit"
    assert talk.turns() == [(["dev"], []), (["dev"], [])]
    (notice,) = notices(talk)
    assert notice.endswith("Still due: other.")


def test_the_limit_names_those_that_settings_answered_and_those_that_were_called(
    tmp_path: Path,
) -> None:
    talk = talk_of(
        tmp_path,
        answers(dev=asks("May I? @other"), other="here"),
        chain_depth_limit=0,
        approvals={"deploy": "deny"},
    )
    assert talk.send("@dev go").end == "chain_limit"
    (notice,) = notices(talk)
    assert notice.endswith("Still due: dev, other.")


def test_a_chain_that_an_agent_aborted_has_failed_also_at_its_limit(tmp_path: Path) -> None:
    def fails(_: AgentInput) -> str:
        raise RuntimeError("broken")

    members = team(
        puppet("dev"),
        puppet("other", on_failure="abort"),
        selection="none",
        chain_depth_limit=0,
        approvals={"deploy": "deny"},
    )
    talk = Talk(tmp_path, members, adapter_type=answers(dev=asks(), other=fails))
    assert talk.send("@dev @other go").end == "failed"


def test_in_a_steering_message_the_user_is_whoever_opened_the_chain(tmp_path: Path) -> None:
    async def dev(shown: AgentInput) -> str:
        if shown.call == 1:
            await steer(talk, "@user what do you say?", by="maya")
        return "done"

    talk = talk_of(tmp_path, answers(dev=dev))
    talk.send("@dev go")
    assert talk.last("message").message.mentions == ["user"]


def shown_of(talk: Talk) -> list[str]:
    """The texts that agents are shown, in order, as the transcript is read."""
    texts: list[str] = []
    reader.load_fold(
        talk.transcript,
        on_message=lambda message: texts.append(message.content),
        weigh=lambda _: 1,
        budget=10**9,
    )
    return texts


def test_messages_between_the_replies_of_a_phase_are_shown_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)

    async def late(shown: AgentInput) -> str:
        if shown.call == 1:
            await steer(talk, "@late more")
        return "done"

    puppets = answers(early="at once", late=late, asking=asks())
    talk = talk_of(tmp_path, puppets, approvals={"deploy": "allow"})
    talk.send("@late @early @asking go")
    shown = [one.content for one in puppets.inputs["asking"][-1].messages]
    assert shown[:5] == ["@late @early @asking go", "done", "at once", "May I?", "@late more"]

    assert reader.cache_path(talk.transcript).exists()
    cached = shown_of(talk)
    reader.cache_path(talk.transcript).unlink()
    assert cached == shown_of(talk)


def test_who_is_called_in_the_same_phase_is_not_shown_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back, each message stands where agents were shown it, also after a failed reply."""
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)

    def steers(text: str, answer: str) -> Any:
        async def reply(shown: AgentInput) -> str:
            if shown.call == 1:
                await steer(talk, text)
            if not answer:
                raise RuntimeError("broken")
            return answer

        return reply

    plans = iter(['{"should_reply": ["first", "second", "third"], "order": "sequence"}'])
    puppets = answers(
        first=steers("after the first", ""),
        second=steers("@last after the second", "two"),
        third="three",
        last=steers("after phase B", "four"),
        boss=lambda _: next(plans, '{"done": true}'),
    )
    asked = puppet("last", response={"auto_respond": True, "threshold": 0.0})
    called = map(puppet, ("first", "second", "third"))
    members = team(*called, asked, mode="supervisor", supervisor="boss", max_responders=4)
    object.__setattr__(members, "supervisor", puppet("boss", member=False))
    talk = Talk(tmp_path, members, adapter_type=puppets)
    talk.send("go")
    third = [message.content for message in puppets.inputs["third"][0].messages]
    assert third == ["go", "after the first", "two", "@last after the second"]
    phase_b = [message.content for message in puppets.inputs["last"][0].messages]
    assert phase_b == [*third, "three"]
    texts = shown_of(talk)
    assert texts[:7] == [*phase_b, "four", "after phase B"]
    assert reader.cache_path(talk.transcript).exists()
    reader.cache_path(talk.transcript).unlink()
    assert texts == shown_of(talk)


def test_a_note_is_taken_of_what_a_person_says_between_replies(tmp_path: Path) -> None:
    async def dev(shown: AgentInput) -> str:
        if shown.call == 1:
            await steer(talk, "Decision: we release on Monday.")
        return "done"

    asked = puppet("dev", response={"auto_respond": True, "threshold": 0.0})
    members = team(puppet("first"), asked)
    talk = Talk(tmp_path, members, adapter_type=answers(first="here", dev=dev))
    talk.send("@first go")
    (note,) = talk.of("note")
    (message,) = [one.message for one in talk.of("message") if "Monday" in one.message.content]
    assert note.message == message.id


def test_a_clock_that_jumps_back_approves_nothing_twice(tmp_path: Path) -> None:
    said = iter([asks(), AgentOutput(content="Done."), AgentOutput(content="again")])
    talk = talk_of(tmp_path, answers(dev=lambda _: next(said)))
    talk.clock.seconds = 50_000
    talk.send("@dev go")
    talk.clock.seconds = 0
    decide(talk, decision="approved")
    talk.clock.seconds = 200_000  # beyond the time of the request, which is decided
    assert talk.resume() is not None
    assert talk.of("approval_decided")[0].decision == "approved"
    assert [event.request for event in talk.of("approval_used")] == [1]
    assert [event.seq for event in talk.events] == list(range(1, len(talk.events) + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="processes are stopped by a signal")
def test_a_stopped_process_carries_out_what_waited_for_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.program("slow", "read", "wait", "go", "say", "done")
    program.agent("other", {"say": "here"})
    program.team(selection="none", humans=["maya"])
    running = program.start("send", "-s", "s", "@slow go")
    until(lambda: b'"reply_started"' in program.raw())
    os.kill(running.pid, signal.SIGSTOP)
    refused = program.run("steer", "s", "--wait", "1", "@other too late")
    assert refused.code == 5
    assert "did not answer within 1 s" in refused.stderr
    waiting = program.start("steer", "s", "@other now")
    folder = program.folder / "sessions" / "s" / "control"
    until(lambda: list(folder.glob("*.json")))
    os.kill(running.pid, signal.SIGCONT)
    assert program.finish(waiting).code == 0
    (program.folder / "go").touch()
    assert program.finish(running).code == 0
    assert program.finished() == [("slow", "success"), ("other", "success")]
    assert b"too late" not in program.raw()


def test_settings_that_decide_call_nobody_beyond_the_limit_while_a_person_decides(
    tmp_path: Path,
) -> None:
    said = iter([asks(), AgentOutput(content="I am done.")])
    part = StructuredContent(type="approval_request", data={"action": "publish", "detail": "x"})
    loud = AgentOutput(content="Again!", structured=[part])
    talk = talk_of(
        tmp_path,
        answers(dev=lambda _: next(said), loud=loud),
        chain_depth_limit=0,
        approvals={"publish": "deny"},
    )
    assert talk.send("@loud @dev go").type == "chain_paused"
    decide(talk, decision="approved", request=2)
    finished = talk.resume()
    assert finished is not None
    assert finished.end == "chain_limit"
    assert talk.turns() == [(["loud", "dev"], []), (["dev"], [])]
    assert [event.depth for event in talk.of("turn_started")] == [0, 0]
    (notice,) = notices(talk)
    assert notice.endswith("Still due: loud.")


def test_an_agent_that_was_terminated_is_not_called_when_a_cut_turn_continues(
    tmp_path: Path,
) -> None:
    puppets = answers(a="x", b="y")
    talk = talk_of(tmp_path, puppets)
    talk.send("@a @b go")
    lines = talk.transcript.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if b'"reply_finished"' in line)
    talk.transcript.write_bytes(b"".join(lines[:cut]))
    with talk.open() as session:
        session.carry_out(ControlRequest(act="agent_state", agent="b", state="terminated"))
    finished = talk.resume()
    assert finished is not None
    assert finished.end == "quiet"
    assert len(puppets.inputs["b"]) == 1
    errors = {event.agent: event.error for event in talk.of("reply_finished")}
    assert errors == {"a": None, "b": "b is terminated"}


def test_nothing_opens_after_an_abort_though_a_request_was_made(tmp_path: Path) -> None:
    def broken(_: AgentInput) -> str:
        raise RuntimeError("no")

    puppets = answers(a=lambda _: asks(), b=broken)
    talk = talk_of(tmp_path, puppets, on_failure="abort")
    assert talk.send("@a @b go").end == "failed"
    assert len(talk.of("turn_started")) == 1
