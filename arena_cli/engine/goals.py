"""The goals of an agent: a stack that it keeps by its tools, and is shown on every turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from arena_cli.engine.plan import Room
from arena_cli.engine.toolbox import EngineTool
from arena_cli.protocol import ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript import queries
from arena_cli.transcript.acting_events import GOAL_MOST, Goal, GoalChanged

_TEXT = {"type": "string", "minLength": 1, "maxLength": 500}
_PUSH = ToolSpec(
    name="push_goal",
    description="Begin a goal; it is below the current one, and becomes the current one.",
    input_schema={
        "type": "object",
        "properties": {"description": _TEXT},
        "required": ["description"],
    },
)
_POP = ToolSpec(
    name="pop_goal",
    description="End the current goal: it is reached, or given up. Its parent becomes current.",
    input_schema={"type": "object", "properties": {"result": {"type": "string"}}},
)
_SPLIT = ToolSpec(
    name="split_goal",
    description="Split the current goal into parts, in order; the first part becomes current.",
    input_schema={
        "type": "object",
        "properties": {"parts": {"type": "array", "items": _TEXT, "minItems": 1}},
        "required": ["parts"],
    },
)


class GoalStack:
    """The open goals of an agent in a session; the last one is the current one."""

    def __init__(self, room: Room, agent: str) -> None:
        self._room = room
        self._agent = agent
        self._goals, self._count = self._read()

    def make_tools(self) -> Iterator[Tool]:
        """Yield the three tools."""
        for spec, change in ((_PUSH, self._push), (_POP, self._pop), (_SPLIT, self._split)):
            run = partial(self._change, change)
            yield EngineTool(spec, run, idempotent=False, remind=self.describe)

    async def _change(
        self,
        change: Callable[[Mapping[str, Any], int], str],
        arguments: Mapping[str, Any],
        scope: ToolScope,
    ) -> ToolOutput:
        """Change the stack, and return it."""
        done = change(arguments, scope.reply)
        return ToolOutput(f"{done}\n{self.describe() or 'There is no open goal.'}")

    def describe(self) -> str:
        """Return the open goals as text, the current one last; "" if there are none."""
        if not self._goals:
            return ""
        lines = [
            f"{'current: ' if goal is self._goals[-1] else ''}{goal.id} {goal.description}"
            + (f" (part of {goal.parent})" if goal.parent else "")
            for goal in self._goals
        ]
        return "Your open goals:\n" + "\n".join(f"- {line}" for line in lines)

    def _push(self, arguments: Mapping[str, Any], reply: int) -> str:
        self._check_room(1)
        parent = self._goals[-1].id if self._goals else ""
        goal = self._add(arguments["description"], parent)
        self._write("push", goal, reply)
        return f"{goal.id} is the current goal."

    def _pop(self, arguments: Mapping[str, Any], reply: int) -> str:
        if not self._goals:
            raise ToolFailed("there is no open goal")
        goal = self._goals.pop()
        self._write("pop", goal, reply, str(arguments.get("result", "")))
        return f"{goal.id} is ended."

    def _split(self, arguments: Mapping[str, Any], reply: int) -> str:
        if not self._goals:
            raise ToolFailed("there is no open goal to split; push one first")
        descriptions = arguments["parts"]
        self._check_room(len(descriptions))
        goal = self._goals[-1]
        names = [f"{goal.id}.{number}" for number in range(1, len(descriptions) + 1)]
        open_ids = {open_goal.id for open_goal in self._goals}
        if open_ids & set(names):
            raise ToolFailed(f"{goal.id} is split already")
        subgoals = [
            Goal(id=name, description=description, parent=goal.id)
            for name, description in zip(names, descriptions, strict=True)
        ]
        self._goals += reversed(subgoals)
        self._write("split", goal, reply)
        return f"{goal.id} has {len(subgoals)} parts; {subgoals[0].id} is the current goal."

    def _check_room(self, count: int) -> None:
        if len(self._goals) + count > GOAL_MOST:
            raise ToolFailed(f"{GOAL_MOST} goals may be open; end one with pop_goal first")

    def _add(self, description: str, parent: str) -> Goal:
        self._count += 1
        goal = Goal(id=f"g{self._count}", description=description, parent=parent)
        self._goals.append(goal)
        return goal

    def _write(self, action: str, goal: Goal, reply: int, result: str = "") -> None:
        self._room.journal.write(
            GoalChanged,
            reply=reply,
            agent=self._agent,
            action=action,
            goal=goal,
            open=list(self._goals),
            count=self._count,
            result=result,
        )

    def _read(self) -> tuple[list[Goal], int]:
        """Return the open goals of the session so far, and how many were pushed."""
        path = getattr(self._room.journal.log, "path", None)  # a single call keeps no transcript
        for event in queries.list_newest(path, {"goal"}, self._room.scene.fold.revisions):
            if isinstance(event, GoalChanged) and event.agent == self._agent:
                return list(event.open), event.count
        return [], 0
