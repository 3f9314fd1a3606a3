"""The tools of a session's agents: found by the names in their profiles, started when needed.

A session without agents that act never imports this module (`ToolsHolder`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.engine.plan import Room
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import RUN_FLOW, TASK_LIST, TASK_UPDATE, PermissionRequest, ToolSpec
from arena_cli.tools import base
from arena_cli.tools.base import COMPLETE_TASK, Tool, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool, OutputSpec
from arena_cli.workspace.models import AGENT_TOOL, Member
from arena_cli.workspace.tool_entries import (
    ARENA_TOOLS,
    EXCHANGE_TOOLS,
    FILE_TOOLS,
    PYTHON,
    RUN_COMMAND,
    is_server_entry,
)

Run = Callable[[Mapping[str, Any], ToolScope], Awaitable[ToolOutput]]


def make_schema(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a tool."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


@dataclass(eq=False)
class EngineTool:
    """A tool of the engine, which `run` answers, also in a replay.

    `act` finds the act that people approve, if there is one; `remind` returns a text for the model
    on every turn.
    """

    spec: ToolSpec
    run: Run
    idempotent: bool = True
    act: Callable[[Mapping[str, Any]], PermissionRequest] | None = None
    remind: Callable[[], str] | None = None
    internal: bool = True

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        """Return the act that people approve; None if the call needs no approval."""
        return self.act(arguments) if self.act else None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Answer a call."""
        return await self.run(arguments, scope)


class CompleteTask(EngineTool):
    """The tool by which an agent hands in its output; the loop itself answers it."""

    def __init__(self, output: OutputSpec) -> None:
        self.output = output
        description = "Hand in the result and end the work. Call it once, when you are done."
        if output.description:
            description += f" The result: {output.description}"
        schema = {
            "type": "object",
            "properties": {
                output.name: {"type": "string"} if output.schema_ is None else output.schema_
            },
            "required": [output.name],
        }
        spec = ToolSpec(name=COMPLETE_TASK, description=description, input_schema=schema)
        super().__init__(spec, _accept)


async def _accept(_: Mapping[str, Any], __: ToolScope) -> ToolOutput:
    return ToolOutput("The result is accepted.")


class Toolbox:
    """The tools of one agent, by name."""

    def __init__(
        self,
        tools: Sequence[Tool],
        find_changed: Callable[[], Awaitable[Sequence[Tool] | None]] | None = None,
    ) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._find_changed = find_changed

    async def refresh(self) -> None:
        """Take the tools as they are now, if a server has changed its list."""
        tools = await self._find_changed() if self._find_changed else None
        if tools is not None:
            self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def tools(self) -> list[Tool]:
        """The tools, in order."""
        return list(self._tools.values())

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools as the model is shown them, in order."""
        return [tool.spec for tool in self._tools.values()]

    @property
    def complete_task(self) -> CompleteTask | None:
        """The tool by which the agent hands in its output; None if it has none."""
        tool = self._tools.get(COMPLETE_TASK)
        return tool if isinstance(tool, CompleteTask) else None

    def reminder(self) -> str:
        """Return what the model is reminded of on every turn, such as its goals."""
        reminds = [getattr(tool, "remind", None) for tool in self._tools.values()]
        texts = dict.fromkeys(remind() for remind in reminds if remind is not None)
        return "\n\n".join(text for text in texts if text)

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def find_problem(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return why a call cannot be made, "" if it can."""
        tool = self.find(name)
        if tool is None:
            tool_names = ", ".join(self._tools) or "none"
            return f"there is no tool {name}; you have: {tool_names}"
        return base.find_problem(tool.spec.input_schema, dict(arguments))


SERVED_ALWAYS = ("search_notes", "search_history", "list_members", "read_attachment")
"""The tools of an agent that is a program, in addition to those that its profile names."""


_SOURCES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(ARENA_TOOLS, ("arena_cli.engine.arena_tools", "ArenaSource")),
    **dict.fromkeys((*FILE_TOOLS, RUN_COMMAND), ("arena_cli.engine.local_tools", "FolderSource")),
    **dict.fromkeys((TASK_LIST, TASK_UPDATE), ("arena_cli.engine.task_tools", "TaskSource")),
    **dict.fromkeys(EXCHANGE_TOOLS, ("arena_cli.engine.exchange_tools", "AskSource")),
    RUN_FLOW: ("arena_cli.flows.flow_tool", "FlowSource"),  # of a higher layer
}
"""The module and the class that make the tools of an entry."""


def _find_source(entry: str | InlineTool) -> tuple[str, str]:
    """Return the module and the class that make the tools of an entry of `tools`."""
    if not isinstance(entry, str) or entry.startswith(PYTHON):
        return "arena_cli.engine.local_tools", "FunctionSource"
    if entry.startswith(AGENT_TOOL):
        return "arena_cli.engine.subagents", "ColleagueSource"
    return _SOURCES.get(entry, ("arena_cli.engine.mcp_tools", "ServerSource"))


class ToolShop:
    """Makes the toolboxes of a session's agents, and ends what they started."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._boxes: dict[tuple[str, bool], Toolbox] = {}
        self._sources: dict[str, Any] = {}

    async def open(self, member: Member, *, is_served: bool = False) -> Toolbox:
        """Return the tools of an agent, which are started if they were not.

        `is_served`: they are for a program, by `arena mcp`. Raises AgentUnavailable if one of them
        is not there.
        """
        key = (member.id, is_served)
        box = self._boxes.get(key)
        if box is None:
            tools = await self._find(member, is_served=is_served)
            changed = partial(self._find_changed, member, is_served=is_served)
            box = self._boxes[key] = Toolbox(tools, changed)
        return box

    async def _find(self, member: Member, *, is_served: bool, may_lack: bool = False) -> list[Tool]:
        """Return the tools of an agent; unless it `may_lack` some, each entry must name one."""
        tools: list[Tool] = []
        if member.profile.output is not None:
            tools.append(CompleteTask(member.profile.output))
        has_servers = find_tool_way(member.profile) == "mcp"  # its program has them itself
        for entry in member.profile.tools:
            if not (has_servers and is_server_entry(entry)):
                tools += await self._resolve(entry, member, may_lack=may_lack)
        for name in SERVED_ALWAYS if is_served else ():
            if name not in member.profile.tools:
                tools += await self._source(name).find(name, member)
        return tools

    async def _find_changed(self, member: Member, *, is_served: bool) -> list[Tool] | None:
        """Return the tools of an agent if a source offers others than before, else None."""
        for source in self._sources.values():
            has_changed = getattr(source, "has_changed", None)
            if has_changed is not None and has_changed(member):
                return await self._find(member, is_served=is_served, may_lack=True)
        return None

    async def _resolve(
        self, entry: str | InlineTool, member: Member, *, may_lack: bool = False
    ) -> list[Tool]:
        """Return the tools that an entry of `tools` names; a glob may name several."""
        if scripted := list(self._room.config.find_tools(entry)):
            return scripted
        tools: list[Tool] = await self._source(entry).find(entry, member)
        if not tools and not may_lack:
            raise AgentUnavailable(
                member.id, f"there is no tool {entry}", mend="see `tools` in its profile"
            )
        return tools

    def _source(self, entry: str | InlineTool) -> Any:
        """Return where the tools of an entry come from; it is imported when it is first needed."""
        module, name = _find_source(entry)
        if name not in self._sources:
            self._sources[name] = getattr(import_module(module), name)(self._room)
        return self._sources[name]

    async def stop(self) -> None:
        """End all that the tools started."""
        for source in self._sources.values():
            if (stop := getattr(source, "stop", None)) is not None:
                await stop()
