"""Serve tools to an agent that is a program (`arena mcp`), and take the output that it hands in.

Its program has a loop of its own. Its calls come as files (`engine.inbox`), since the MCP server
that the program starts is another process; they are carried out here, with the approvals, rules
and events of a reply.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.engine import call, plan, tool_steps
from arena_cli.engine.inbox import ControlRequest, Inbox, Outcome
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.subagents import SubLoop
from arena_cli.engine.tool_loop import CUT_SHORT, ToolLoop
from arena_cli.engine.tool_steps import Acting
from arena_cli.engine.toolbox import Toolbox
from arena_cli.errors import AgentError, ArenaError, DiskRefused
from arena_cli.protocol import (
    HANDED_IN,
    SERVED,
    AgentInput,
    Permission,
    PermissionRequest,
    ToolCall,
    ToolResult,
)
from arena_cli.tools.base import COMPLETE_TASK, ToolFailed, ToolScope
from arena_cli.transcript.acting_events import ToolFinished, ToolRequested
from arena_cli.util.text import clean_text, clean_value
from arena_cli.workspace.acting import RunLimits
from arena_cli.workspace.models import AGENT_TOOL, Member

POLL_S = 0.05
_NO_REPLY = "no reply of {} is running; only one can {}"
_WITHDRAWN = "the program withdrew this call before it ended"


async def attempt(
    planned: Planned, member: Member, room: Room, heard: Heard, seconds_left: float
) -> Answer:
    """Call an agent that is a program, and carry out its calls meanwhile.

    Raises AgentError and DiskRefused. A program that has handed in its output has done its task,
    even if it fails after that.
    """
    loop = ServedLoop(member, room, planned, heard, await open_served(member, room))
    acting = planned.acting
    if acting is None:
        acting = planned.acting = Acting(0)
        loop.settle(acting)
    acting.ends_at = room.clock.monotonic() + seconds_left - planned.waited_s
    if acting.output is not None:
        return await loop.finish(acting, None)
    limit = plan.attempt_limit_s(seconds_left, room.scene.team)
    agent_input = call.count_failed(planned.sent, planned.failed, limit)
    answer = await loop.serve(agent_input, acting, limit)
    if HANDED_IN in heard.notes and acting.output is None:  # as it was recorded
        acting.output = (heard.notes[HANDED_IN],)
    return await loop.finish(acting, answer)


async def open_served(member: Member, room: Room) -> Toolbox:
    """Return the tools of an agent that is a program."""
    if room.sessions is None:
        return Toolbox([])
    return await room.tools.get(room).open(member, is_served=True)


class ServedLoop(ToolLoop):
    """The calls of a program in its reply; each is a step of its own."""

    def _make_permit(self) -> Callable[[PermissionRequest], Awaitable[Permission]]:
        return self._heard.permit

    def settle(self, acting: Acting) -> None:
        """Continue the counts after a restart; calls that were interrupted are errors."""
        events = self.list_written()
        ends = {event.call: event for event in events if isinstance(event, ToolFinished)}
        for request in events:
            if not isinstance(request, ToolRequested):
                continue
            within, _, number = request.call.rpartition(".")
            if within != self._within:
                continue
            acting.calls = acting.turns = max(acting.calls, int(number))
            end = ends.get(request.call)
            if end is None:
                self._end_call(request.call, request.tool, ToolFailed(CUT_SHORT), 0)
            elif (end.tool, end.status) == (COMPLETE_TASK, "ok"):
                output = self._member.profile.output  # in a replay, no tool is there
                acting.output = (request.arguments.get(output.name),) if output else None

    async def serve(self, agent_input: AgentInput, acting: Acting, limit: float) -> Answer | None:
        """Call the program once, and carry out its calls meanwhile; None if it only handed in."""
        room, member = self._room, self._member
        invoked = call.invoke(member, agent_input, room, self._heard, limit, self._planned)
        try:
            if room.sessions is not None:
                inbox = Inbox.of_calls(room.sessions / room.scene.session_id, member.id)
                return await CallDesk(self, acting, inbox).serve(invoked)
            try:  # nothing is called, as in a replay
                return await invoked
            finally:
                await self.repeat(acting)
        except AgentError:
            if acting.output is None:
                raise
            return None
        finally:
            self._heard.notes.pop(SERVED, None)

    def list_tools(self) -> str:
        """Return the tools, as JSON."""
        return json.dumps([spec.model_dump() for spec in self._toolbox.specs])

    async def carry_out(self, request: ControlRequest, acting: Acting) -> ToolResult:
        """Carry out a call and write it; if cancelled, its end is written, too."""
        acting.turns += 1
        arguments = self._room.runtime.redactor.value(clean_value(request.arguments)[0])
        tool_call = ToolCall(tool=request.tool, arguments=arguments, problem=self._find_excess())
        requested = self._request(tool_call, acting)
        self._heard.notes.setdefault(SERVED, []).append(
            {"tool": tool_call.tool, "arguments": arguments}
        )
        try:
            result = await self._answer(requested, acting)
        except asyncio.CancelledError:
            with suppress(DiskRefused):
                failure = ToolFailed(_WITHDRAWN, "timeout")
                self._end_call(requested.number, tool_call.tool, failure, 0)
            raise
        if acting.output is not None and request.tool == COMPLETE_TASK:
            self._heard.notes[HANDED_IN] = acting.output[0]
        return result

    async def repeat(self, acting: Acting) -> None:
        """Carry out the calls of a recorded reply; what they give is recorded, too."""
        calls = self._heard.notes.pop(SERVED, ())
        if not calls:
            return
        self._toolbox = await self._room.tools.get(self._room).open(self._member, is_served=True)
        self._permitted = self._find_permission
        for fields in calls:
            await self.carry_out(ControlRequest(act="tool_call", **fields), acting)

    async def _find_permission(self, act: PermissionRequest) -> Permission:
        """Return the decision about an act that was asked before the calls are repeated."""
        for request, permission in self._heard.permits:
            if (request.action, request.detail) == (act.action, act.detail):
                return permission
        return await self._heard.permit(act)

    def _find_excess(self) -> str:
        """Return why the team's budget allows no call, "" if it does."""
        budget = self._room.control.budget
        if budget is None or budget.admit(self._planned, self._heard.list_usage()):
            return ""
        return "the budget is used up; end your reply"

    async def finish(self, acting: Acting, answer: Answer | None) -> Answer:
        """Return the answer with the output that was handed in; else the answer itself."""
        self._heard.notes.pop(HANDED_IN, None)
        if acting.output is not None:
            handed_in = await self._hand_in(acting.output[0])
            if answer is None:
                usage = {"usage": self._heard.usage or handed_in.output.usage}
                return Answer(handed_in.output.model_copy(update=usage), declined=False)
            changed = {"content": handed_in.output.content}
            return Answer(answer.output.model_copy(update=changed), declined=False)
        assert answer is not None
        acting.is_short = self._member.profile.output is not None and not answer.declined
        return answer


class ServedAside(SubLoop, ServedLoop):
    """A call of a program that is no reply (`engine.exchanges`); its calls are of `planned`."""

    async def restore(self, acting: Acting) -> None:
        """Begin again: arena does not know what a program did before a restart."""
        self.settle(acting)

    async def _run(self, agent_input: AgentInput) -> Answer:
        limit = max(self._seconds_left(self._acting), 0)
        answer = await self.serve(agent_input, self._acting, limit)
        return await self.finish(self._acting, answer)

    def _find_excess(self) -> str:
        """Return "": the call as a whole is within the budget, or is not made."""
        return ""


class CallDesk:
    """Carries out the calls in the inbox of an agent while its program works."""

    def __init__(self, loop: ServedLoop, acting: Acting, inbox: Inbox) -> None:
        self._loop = loop
        self._acting = acting
        self._inbox = inbox
        self._running: dict[Path, asyncio.Task[None]] = {}

    async def serve(self, invoked: Coroutine[Any, Any, Answer]) -> Answer:
        """Await the answer of the program; meanwhile carry out its calls."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(group))
                answer = await invoked
                for task in (watching, *self._running.values()):
                    task.cancel()
        except BaseExceptionGroup as failures:
            refused = failures.subgroup(DiskRefused)
            raise (refused or failures).exceptions[0] from None
        return answer

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        while True:
            for waiting in self._inbox.take():
                path = self._inbox.claim(waiting.path)
                self._running[path] = group.create_task(self._answer(path, waiting.request))
            for path, task in self._running.items():
                if not os.path.lexists(path):  # the program no longer waits for it
                    task.cancel()
            self._running = {p: task for p, task in self._running.items() if not task.done()}
            await asyncio.sleep(POLL_S)

    async def _answer(self, path: Path, request: ControlRequest | None) -> None:
        if request is None:
            self._inbox.answer(path, Outcome(text=f"{path.name} is not a request", is_error=True))
        elif request.act == "tool_list":
            self._inbox.answer(path, Outcome(text=self._loop.list_tools()))
        else:
            result = await self._loop.carry_out(request, self._acting)
            self._inbox.answer(path, Outcome(text=result.model_dump_json()))


async def carry_out_alone(member: Member, room: Room, request: ControlRequest) -> Outcome:
    """Carry out a request for tools while no reply runs, so that no person can approve anything."""
    try:
        box = await room.tools.get(room).open(member, is_served=True)
    except ArenaError as error:
        return Outcome.of_error(error)
    if request.act == "tool_list":
        return Outcome(text=json.dumps([spec.model_dump() for spec in box.specs]))
    result = await _call_alone(member, room, box, request)
    return Outcome(text=result.model_dump_json())


async def _call_alone(
    member: Member, room: Room, box: Toolbox, request: ControlRequest
) -> ToolResult:
    limits = member.profile.run or RunLimits()
    redactor = room.runtime.redactor
    arguments = clean_value(request.arguments)[0]
    try:
        tool = box.find(request.tool)
        problem = box.find_problem(request.tool, arguments)
        if tool is None or problem:
            raise ToolFailed(problem)
        if request.tool == COMPLETE_TASK or request.tool.startswith(AGENT_TOOL):
            raise ToolFailed(_NO_REPLY.format(member.id, f"call {request.tool}"))
        if tool.find_act(arguments) is not None:
            raise ToolFailed(_NO_REPLY.format(member.id, "ask for approval"), "denied")
        control = room.control.find(room)
        plain = tool_steps.describe_call(ToolCall(tool=request.tool, arguments=arguments))
        if control is not None and (refused := await control.check_action(member.id, 0, plain)):
            raise ToolFailed(f"not allowed: {refused}", "denied")
        async with asyncio.timeout(limits.max_minutes * 60):
            scope = ToolScope("0", lambda _: None)
            answer = await tool_steps.call_tool(tool, arguments, scope, redactor)
    except ToolFailed as failure:
        text = redactor.text_or_nothing(clean_text(str(failure))[0])
        return ToolResult(status=failure.status, text=text)
    except TimeoutError:
        return ToolResult(status="timeout", text="it did not end in time, and was ended")
    text, _ = tool_steps.cut_bytes(answer.result.text, tool_steps.MOST_SHOWN_BYTES)
    images = [file for file in answer.result.attachments if file.type == "image"]
    return answer.result.model_copy(update={"text": text, "attachments": images})
