"""What servers offer, and calls of their tools, pass through the middlewares of a session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_agents import RAW
from product import (
    Answer,
    CallNext,
    CallRequest,
    Member,
    Session,
    SessionConfig,
    ToolAnswer,
    ToolFailed,
    ToolRequest,
    ToolResult,
    ToolSpec,
)
from product import outgoing_outgoing as outgoing
from support import member, team


@dataclass
class Tape:
    """A middleware that passes calls on and keeps what came of them, or answers with it."""

    specs: list[ToolSpec] = field(default_factory=list)
    answers: dict[str, ToolAnswer | ToolFailed] = field(default_factory=dict)
    is_replay: bool = False

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        return await call_next(request)

    async def list_tools(self, member: Member, list_next: Any) -> list[ToolSpec]:
        if not self.is_replay:
            self.specs = await list_next(member)
        return self.specs

    async def call_tool(self, request: ToolRequest, call_next: Any) -> ToolAnswer:
        if not self.is_replay:
            try:
                self.answers[request.call] = await call_next(request)
            except ToolFailed as failure:
                self.answers[request.call] = failure
        answer = self.answers[request.call]
        if isinstance(answer, ToolFailed):
            raise answer
        return answer


def play(folder: Path, command: list[str], tape: Tape) -> list[tuple[str, str]]:
    rule = {"calls": [{"tool": "s.pid"}, {"tool": "s.lies"}], "say": "${result}"}
    bob = member("bob", [rule], tools=["s.*"], mcp={"s": {"command": command}})
    crew = team(bob)
    events: list[Any] = []
    config = SessionConfig(workspace=folder, durability="flush", wait_s=0, environ={})
    with Session(config, "s", crew, on_event=events.append, middlewares=[tape]) as session:
        asyncio.run(session.last(session.send(outgoing(crew, "@bob go"))))
    return [(one.status, one.result) for one in events if one.type == "tool_finished"]


def test_recorded_lists_and_answers_need_no_server(tmp_path: Path) -> None:
    tape = Tape()
    recorded = play(tmp_path / "one", [*RAW, "lies"], tape)
    assert [status for status, _ in recorded] == ["ok", "error"]
    assert "s.pid" in [spec.name for spec in tape.specs]
    specs = [ToolSpec.model_validate(spec.model_dump()) for spec in tape.specs]
    replayed = play(tmp_path / "two", ["nosuch"], Tape(specs, tape.answers, is_replay=True))
    assert replayed == recorded


def test_a_middleware_may_answer_in_place_of_a_tool(tmp_path: Path) -> None:
    spec = ToolSpec(name="s.pid", read_only=True)
    tape = Tape([spec], {"1": ToolAnswer(ToolResult(text="scripted"))}, is_replay=True)
    assert play(tmp_path, ["nosuch"], tape)[0] == ("ok", "scripted")
