"""What tests of tools share: tools that count and wait, and agents that call them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from product import (
    AgentOutput,
    PermissionRequest,
    ToolCall,
    ToolOutput,
    ToolScope,
    ToolSpec,
    arena_tools,
)

Answer = Callable[[Mapping[str, Any]], Awaitable[str] | str]

ONCE, TWICE, SLOW = "add_note", "search_notes", "search_history"
"""The names under which agents have the tools of a test: not idempotent, idempotent, any."""


@dataclass
class FakeTool:
    """A tool that does what a test says; `made` are the arguments of its calls."""

    name: str
    answer: Answer
    idempotent: bool = True
    action: str = ""
    made: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def spec(self) -> ToolSpec:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return ToolSpec(name=self.name, input_schema=schema)

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        if not self.action:
            return None
        return PermissionRequest(action=self.action, detail=str(dict(arguments)))

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        self.made.append(arguments)
        given = self.answer(arguments)
        return ToolOutput(given if isinstance(given, str) else await given)


def offer(monkeypatch: pytest.MonkeyPatch, *tools: FakeTool) -> None:
    """Let agents find these tools under their names, in place of arena's own."""
    by_name = {tool.name: tool for tool in tools}

    class Source:
        def __init__(self, room: Any) -> None: ...

        async def find(self, entry: Any, member: Any) -> list[Any]:
            return [by_name[entry]] if entry in by_name else []

        async def stop(self) -> None: ...

    monkeypatch.setattr(arena_tools, "ArenaSource", Source)


def asks(*calls: tuple[str, Mapping[str, Any]] | ToolCall, text: str = "") -> AgentOutput:
    """An answer of a model that calls tools."""
    made = [
        each if isinstance(each, ToolCall) else ToolCall(tool=each[0], arguments=dict(each[1]))
        for each in calls
    ]
    return AgentOutput(content=text, tool_calls=made)


def scripted(*answers: AgentOutput | str) -> Callable[[Any], AgentOutput]:
    """A model that gives these answers in turn, by the steps that it is shown; then the last."""

    def answer(shown: Any) -> AgentOutput:
        given = answers[min(len(shown.steps), len(answers) - 1)]
        return AgentOutput(content=given) if isinstance(given, str) else given

    return answer


def statuses(events: Sequence[Any]) -> list[tuple[str, str, str]]:
    """(call, tool, status) of every call that ended, by call."""
    ended = [event for event in events if event.type == "tool_finished"]
    ordered = sorted(
        ended, key=lambda event: [int(part.strip("pr")) for part in event.call.split(".")]
    )
    return [(event.call, event.tool, event.status) for event in ordered]
