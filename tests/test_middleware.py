"""Calls of agents pass their middlewares from the first to the last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from product import (
    AgentInput,
    AgentOutput,
    AgentUnavailable,
    Answer,
    CallNext,
    CallRequest,
    Calls,
    Heard,
    Member,
    Redactor,
)
from support import member


@dataclass
class Agents:
    """The adapters at the end; they note each call."""

    log: list[str]
    redactor: Redactor = field(default_factory=Redactor)

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        self.log.append(f"{member.id} called")
        return Answer(AgentOutput(content="yes"), declined=False)

    async def stop(self) -> None:
        self.log.append("stopped")


@dataclass
class Watch:
    """A middleware that notes what passes it."""

    name: str
    log: list[str]

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        self.log.append(f"{self.name} before")
        answer = await call_next(request)
        self.log.append(f"{self.name} after {answer.output.content}")
        return answer


@dataclass
class Refusal:
    """A middleware that passes nothing on."""

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        raise AgentUnavailable(request.member.id, "not now")


def call(pipeline: Calls) -> Answer:
    agent_input = AgentInput.model_construct(agent_id="dev")
    heard = Heard(pipeline.redactor, lambda _: None)
    return asyncio.run(pipeline.invoke(member("dev", []), agent_input, heard))


def test_a_call_passes_each_of_them_in_order_and_its_answer_comes_back_through_them() -> None:
    log: list[str] = []
    pipeline = Calls(Agents(log), [Watch("outer", log), Watch("inner", log)])
    assert call(pipeline).output.content == "yes"
    assert log == [
        "outer before",
        "inner before",
        "dev called",
        "inner after yes",
        "outer after yes",
    ]
    asyncio.run(pipeline.stop())
    assert log[-1] == "stopped"


def test_one_that_refuses_ends_the_call() -> None:
    log: list[str] = []
    pipeline = Calls(Agents(log), [Watch("outer", log), Refusal(), Watch("inner", log)])
    with pytest.raises(AgentUnavailable, match="not now"):
        call(pipeline)
    assert log == ["outer before"]
