"""What stands around every adapter: a foreign fault is that agent's, and never arena's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import (
    Adapter,
    AgentInput,
    AgentOutput,
    AgentUnavailable,
    CallNote,
    DiskRefused,
    Emit,
    Event,
    Health,
    Redactor,
    Renderer,
    Runtime,
    SessionConfig,
    StatusEvent,
    runtime,
)
from product import context_render as render
from product import util_text as text
from support import Puppets, Talk, puppet, team


def kind(**verbs: Callable[..., Any]) -> Callable[[str], type[Adapter]]:
    """A kind whose agents say `done`, with these verbs instead of its own."""
    base: Any = Puppets({"a": lambda _: "done", "b": lambda _: "done"})("puppet")
    made: type[Adapter] = type("Foreign", (base,), verbs)
    return lambda _: made


async def never(_: Adapter) -> Any:
    await asyncio.Event().wait()


async def breaks(_: Adapter) -> Any:
    raise RuntimeError("the key hunter2hunter2 is wrong")


def broken_at_once(_: Adapter) -> Any:
    raise RuntimeError("no coroutine")


async def says_no_text(_: Adapter) -> Health:
    return Health(True, None)  # type: ignore[arg-type] # what a kind of somebody else does


def health(folder: Path, adapter_type: Callable[[str], type[Adapter]]) -> Health:
    agents = Runtime(
        SessionConfig(workspace=folder, adapter_type=adapter_type),
        scratch=folder,
        records=folder,
        renderer=Renderer(render.render, render.chat),
        redactor=Redactor(patterns=["hunter2hunter2"]),
    )
    return asyncio.run(agents.health(puppet("a")))


@pytest.mark.parametrize("stop", [breaks, broken_at_once])
def test_an_adapter_that_fails_to_stop_changes_no_chain(
    tmp_path: Path, stop: Callable[..., Any]
) -> None:
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(stop=stop))
    assert talk.send("@a go").end == "quiet"


def test_an_adapter_that_never_stops_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "STOP_LIMIT_S", 0.0)
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(stop=never))
    assert talk.send("@a go").end == "quiet"


def test_one_that_fails_to_stop_does_not_keep_another_from_it(tmp_path: Path) -> None:
    stopped: list[str] = []

    async def stop(self: Any) -> None:
        if self.agent_id == "a":
            raise RuntimeError("no")
        await asyncio.sleep(0)
        stopped.append(self.agent_id)

    people = team(puppet("a"), puppet("b"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=kind(stop=stop))
    assert talk.send("@a @b go").end == "quiet"
    assert stopped == ["b"]


def test_an_adapter_that_failed_to_start_is_stopped(tmp_path: Path) -> None:
    stopped: list[str] = []

    async def stop(self: Any) -> None:
        stopped.append(self.agent_id)

    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(start=breaks, stop=stop))
    assert talk.send("@a go").end == "failed"
    assert stopped == ["a"]


@pytest.mark.parametrize("verb", [breaks, broken_at_once, says_no_text])
def test_an_adapter_that_fails_to_tell_its_health_has_none(
    tmp_path: Path, verb: Callable[..., Any]
) -> None:
    ok, detail = health(tmp_path, kind(health=verb))
    assert not ok
    assert "its adapter failed" in detail
    assert "hunter2" not in detail


def test_an_adapter_that_never_tells_its_health_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "HEALTH_LIMIT_S", 0.0)
    assert health(tmp_path, kind(health=never)) == (
        False,
        "its adapter did not report its health within 0 s",
    )


@pytest.mark.parametrize("said", ["text", None])
def test_an_answer_of_another_type_is_the_adapters_fault(tmp_path: Path, said: Any) -> None:
    async def invoke(_: Adapter, input: AgentInput, emit: Emit) -> Any:
        return said

    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(invoke=invoke))
    assert talk.send("@a go").end == "failed"
    assert "expected AgentOutput" in talk.last("reply_finished").error


def test_a_disk_that_is_full_is_no_fault_of_the_adapter(tmp_path: Path) -> None:
    calls: list[int] = []

    async def invoke(_: Adapter, input: AgentInput, emit: Emit) -> AgentOutput:
        calls.append(input.call)
        emit(StatusEvent(status="generating"))
        return AgentOutput(content="done")

    def full(event: Event) -> None:
        if event.type == "status":
            raise DiskRefused("the disk is full")

    people = team(puppet("a", on_failure="retry"))
    talk = Talk(tmp_path, people, adapter_type=kind(invoke=invoke), on_event=full)
    with pytest.raises(DiskRefused, match="the disk is full"):
        talk.send("@a go")
    assert calls == [1]
    assert talk.of("reply_finished") == []


def a_raw_answer(raw: Any) -> Callable[..., Any]:
    async def invoke(self: Any, input: AgentInput, emit: Emit) -> AgentOutput:
        return AgentOutput(content="done", metadata={"raw": raw, "other": "x" * 20_000})

    return invoke


@pytest.mark.parametrize(
    "raw", [{"text": "好" * 20_000}, "y" * 20_000, ["sk-abcdefghijklmnopqrst123456", "z" * 20_000]]
)
def test_what_a_provider_answered_is_kept_within_a_limit_and_without_secrets(
    tmp_path: Path, raw: Any
) -> None:
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(invoke=a_raw_answer(raw)))
    talk.send("@a go")
    kept = talk.last("reply_finished").metadata
    assert len(kept["raw"]) < text.MOST_RAW_CHARS + 40
    assert kept["raw"].endswith(" characters)")
    assert "sk-abc" not in kept["raw"]
    assert len(kept["other"]) == 20_000


def test_what_a_call_that_was_cut_off_had_got_is_kept_within_the_same_limit(tmp_path: Path) -> None:
    async def invoke(self: Any, input: AgentInput, emit: Emit) -> AgentOutput:
        emit(CallNote({"raw": {"text": "好" * 20_000}, "other": "x"}))
        raise AgentUnavailable("a", "it went away")

    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(invoke=invoke))
    talk.send("@a go")
    kept = talk.last("reply_finished").metadata
    assert len(kept["raw"]) < text.MOST_RAW_CHARS + 40
    assert kept["other"] == "x"


def test_a_short_raw_answer_is_kept_as_it_is(tmp_path: Path) -> None:
    raw = {"id": "msg_1", "stop_reason": "end_turn"}
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=kind(invoke=a_raw_answer(raw)))
    talk.send("@a go")
    assert talk.last("reply_finished").metadata["raw"] == raw
