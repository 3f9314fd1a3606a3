"""The loop of an agent that acts: ask the model, run the calls of its answer, and again.

It ends as `agent_ended.mode` says. All that it needs to continue after a crash is in the events of
its reply: the model is shown them as steps of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from arena_cli.adapters import permission_requests
from arena_cli.adapters.runtime import Answer, Heard, ToolAnswer, ToolRequest
from arena_cli.context import tokens
from arena_cli.engine import call, tool_steps
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.tool_steps import Acting
from arena_cli.engine.toolbox import Toolbox
from arena_cli.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnfinished,
)
from arena_cli.protocol import (
    AgentInput,
    AgentOutput,
    Permission,
    PermissionRequest,
    StatusEvent,
    ToolCall,
    ToolResult,
    ToolStep,
    Usage,
)
from arena_cli.tools.base import COMPLETE_TASK, Tool, ToolFailed, ToolScope
from arena_cli.transcript.acting_events import (
    ActingEvent,
    AgentEnded,
    Thought,
    ToolFinished,
    ToolRequested,
)
from arena_cli.transcript.events import Event, ReplyFinished
from arena_cli.transcript.state import MARK
from arena_cli.workspace.acting import RunLimits
from arena_cli.workspace.models import Member

MOST_REPEATED = 5
"""So many equal calls in a row are answered; the next one is refused."""

MOST_INVALID = 3
"""After so many outputs that do not fit, the agent has its last turn."""

CUT_SHORT = (
    "arena was interrupted while this tool ran; nobody knows if it had an effect. "
    "Check before you call it again."
)
_COMPLETE_NOW = {
    "timeout": "Your time is over.",
    "max_turns": "You have used up your turns.",
    "error_no_complete_task": f"You stopped without calling {COMPLETE_TASK}.",
}


class _Requested(NamedTuple):
    """A call that was written: the call itself, the tool, the act that people approve.

    `problem` is the reason why it cannot be made, `failure` why the tool would not do it: that is
    its result, which a replay has of its own.
    """

    number: str
    tool_call: ToolCall
    tool: Tool | None
    act: PermissionRequest | None
    problem: str = ""
    failure: ToolFailed | None = None


async def attempt(
    planned: Planned, member: Member, room: Room, heard: Heard, seconds_left: float
) -> Answer:
    """Call an agent that acts, until it is done. Raises AgentError, OutOfBudget, DiskRefused.

    After an attempt that failed, its next one continues with the same steps.
    """
    toolbox = await room.tools.get(room).open(member)
    loop = ToolLoop(member, room, planned, heard, toolbox)
    acting = planned.acting
    if acting is None:
        limits = member.profile.run or RunLimits()
        seconds = min(limits.max_minutes * 60, seconds_left - limits.grace_s)
        acting = planned.acting = Acting(room.clock.monotonic() + seconds)
        await loop.restore(acting)
    limit = room.scene.team.config.attempt_timeout_s
    agent_input = call.count_failed(planned.sent, planned.failed, limit or seconds_left)
    return await loop.run(agent_input, acting)


class ToolLoop:
    """The loop of one agent in a reply; `within` is the call by which it is called as a tool."""

    def __init__(
        self,
        member: Member,
        room: Room,
        planned: Planned,
        heard: Heard,
        toolbox: Toolbox,
        *,
        within: str = "",
    ) -> None:
        self._member = member
        self._room = room
        self._planned = planned
        self._heard = heard
        self._toolbox = toolbox
        self._within = within
        self._permitted = self._make_permit()
        self._limits = member.profile.run or RunLimits()
        self._places = asyncio.Semaphore(self._limits.max_parallel_tools)

    def _make_permit(self) -> Callable[[PermissionRequest], Awaitable[Permission]]:
        """Return what asks if the agent may do something."""
        return call.Asking(self._planned, self._room, self._heard, None).permit

    async def run(self, agent_input: AgentInput, acting: Acting) -> Answer:
        """Ask the model and run its calls until the agent is done.

        Raises AgentError, OutOfBudget, DiskRefused.
        """
        while acting.output is None:
            await self._let_in(acting)
            self._check_limits(acting)
            answer = await self._ask(agent_input, acting)
            if answer is None:
                continue
            output = answer.output
            self._think(output, acting)
            if not output.tool_calls:
                if self._is_done(answer, acting):
                    # Its count of tokens is not that of the input alone.
                    metadata = {key: value for key, value in output.metadata.items() if key != MARK}
                    return answer._replace(output=output.model_copy(update={"metadata": metadata}))
                continue
            if acting.closing and self._toolbox.complete_task is None:
                raise self._unfinished(acting)
            self._record_usage()
            await self._run_calls(output, acting)
            if acting.output is None and acting.closing:
                raise self._unfinished(acting)
            if acting.output is None:
                self._admit()
        return await self._hand_in(acting.output[0])

    async def _let_in(self, acting: Acting) -> None:
        """Let the agent answer urgent questions first, outside of the time of its reply."""
        exchanges = self._room.tools.exchanges
        if exchanges is None or self._within or not acting.steps:
            return
        began = self._room.clock.monotonic()
        await exchanges.let_in(self._member.id)
        self._planned.waited_s += self._room.clock.monotonic() - began

    def _remind(self) -> str:
        """Return what the model is reminded of: its goals, and questions that came meanwhile."""
        reminder, exchanges = self._toolbox.reminder(), self._room.tools.exchanges
        if exchanges is None or self._within:
            return reminder
        shown = {message.id for message in self._planned.input.messages}
        asked = exchanges.describe_interruptions(self._member.id, shown)
        return f"{reminder}\n\n{asked}".strip()

    def _check_limits(self, acting: Acting) -> None:
        """Begin the last turn if a limit is reached."""
        if acting.closing:
            return
        if self._seconds_left(acting) <= 0:
            acting.closing = "timeout"
        elif acting.turns >= self._limits.max_turns:
            acting.closing = "max_turns"
        elif acting.invalid >= MOST_INVALID:
            acting.closing = "error_no_complete_task"
        else:
            return
        self._close(acting)

    def _close(self, acting: Acting) -> None:
        """Tell the model that this is its last turn."""
        assert acting.closing
        reason = _COMPLETE_NOW[acting.closing]
        action = f"Call {COMPLETE_TASK}" if self._toolbox.complete_task else "Answer in text"
        notice = (
            f"{reason} {action} now, with the best result that you have; no other tool is left."
        )
        acting.steps = tool_steps.remind(acting.steps, notice)

    def _seconds_left(self, acting: Acting) -> float:
        return acting.ends_at + self._planned.waited_s - self._room.clock.monotonic()

    def _add_steps(self, agent_input: AgentInput, acting: Acting) -> AgentInput:
        """Return the input with the tools that are open, and the steps so far."""
        specs = self._toolbox.specs
        if acting.closing:
            specs = [spec for spec in specs if spec.name == COMPLETE_TASK]
        squeezed = acting.squeezed
        fitting = tool_steps.fit_steps(
            agent_input, specs, acting.steps, self._member, self._room, is_squeezed=squeezed
        )
        steps = tool_steps.remind(fitting, self._remind())
        return tool_steps.add_tools(agent_input, specs, steps)

    async def _ask(self, agent_input: AgentInput, acting: Acting) -> Answer | None:
        """Ask the model once; return None if its time ended before it answered."""
        await self._toolbox.refresh()
        sent = self._add_steps(agent_input, acting)
        attempt_limit = self._room.scene.team.config.attempt_timeout_s
        remaining_s = self._limits.grace_s if acting.closing else self._seconds_left(acting)
        limit = remaining_s if attempt_limit is None else min(remaining_s, attempt_limit)
        try:
            async with asyncio.timeout(max(limit, 0)) as timeout:
                asking = call.Asking(self._planned, self._room, self._heard, timeout)
                self._heard.on_permit = asking.permit
                answer = await self._room.runtime.invoke(self._member, sent, self._heard)
        except TimeoutError as error:
            if not acting.closing and self._seconds_left(acting) <= 0:
                return None
            raise AgentTimeout(
                self._member.id,
                f"no answer within {round(limit, 3):.10g} s",
                mend="raise run.max_minutes, or run.grace_s, if it needs longer",
                again=not acting.closing,
            ) from error
        except AgentRefused as error:
            if error.overflow and not acting.squeezed and acting.steps:
                acting.squeezed = True
                return None
            raise
        acting.turns += 1
        if not answer.output.tool_calls:
            return call.apply_silence(answer, self._member, self._room, self._heard)
        usage = answer.output.usage or self._estimate_turn(answer.output.content)
        self._heard.earlier_usage.append(usage)
        self._heard.usage = None
        return answer

    def _think(self, output: AgentOutput, acting: Acting) -> None:
        """Write what the model showed of its thinking, and its text next to calls."""
        thinking = output.metadata.get("thinking")
        texts = [("thinking", thinking if isinstance(thinking, str) else "")]
        if output.tool_calls:
            texts.append(("text", output.content))
        for kind, text in texts:
            if text.strip():
                self._write(
                    Thought, step=acting.turns, text=text.strip(), kind=kind, within=self._within
                )

    def _is_done(self, answer: Answer, acting: Acting) -> bool:
        """Return True for an answer without calls that ends the reply; else tell the model."""
        if self._toolbox.complete_task is None or answer.declined:
            return True
        if acting.closing:
            raise self._unfinished(acting)
        self._heard.earlier_usage += [answer.output.usage] if answer.output.usage else []
        self._heard.usage = None
        acting.steps.append(ToolStep(text=answer.output.content, native=answer.output.native))
        acting.closing = "error_no_complete_task"
        self._close(acting)
        return False

    def _unfinished(self, acting: Acting) -> AgentError:
        stopped = f"it stopped without calling {COMPLETE_TASK}"
        if acting.invalid:
            stopped = f"it handed in no result that fits its schema, in {acting.invalid} attempts"
        problem, mend = {
            "timeout": (
                f"not done within {self._limits.max_minutes:g} minutes",
                "raise run.max_minutes in its profile",
            ),
            "max_turns": (
                f"not done within {self._limits.max_turns} turns",
                "raise run.max_turns in its profile",
            ),
        }.get(acting.closing or "", (stopped, "see its output.schema"))
        kind = AgentTimeout if acting.closing == "timeout" else AgentUnfinished
        return kind(self._member.id, problem, mend=mend, again=False)

    async def _hand_in(self, value: Any) -> Answer:
        """Return the answer of an agent that handed in its output; its turns are counted.

        Raises AgentProtocolError if the function that makes the text of it fails.
        """
        spec = self._member.profile.output
        if spec is not None and spec.process is not None:
            value = await self._process(value, spec.process)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        return Answer(AgentOutput(content=text, usage=Usage(cost_usd=0.0)), declined=False)

    async def _process(self, value: Any, target: str) -> Any:
        """Return what a function of the user makes of the output."""
        functions = import_module("arena_cli.adapters.python")
        function = self._room.make_function(target)
        try:
            output = await function.call(json.dumps(value))
        except functions.FunctionFailed as failure:
            raise AgentProtocolError(
                self._member.id,
                self._room.runtime.redactor.text_or_nothing(f"output.process: {failure}"),
                mend="correct the function, or `output.process` in its profile",
                again=False,
            ) from failure
        finally:
            await function.stop()
        return self._room.runtime.redactor.value_or_nothing(output)

    def _record_usage(self) -> None:
        """Count the turn in the team's budget before its calls, which may use more."""
        if budget := self._room.control.budget:
            budget.record(self._planned, self._heard.list_usage())

    def _admit(self) -> None:
        """Check that the team's budget allows the next turn. Raises OutOfBudget."""
        budget = self._room.control.budget
        if budget and not budget.admit(self._planned, self._heard.list_usage()):
            raise call.OutOfBudget("the budget is used up")

    # The calls of one answer.

    async def _run_calls(self, output: AgentOutput, acting: Acting) -> None:
        """Run the calls of an answer side by side, and keep them as a step."""
        names = ", ".join(dict.fromkeys(tool_call.tool for tool_call in output.tool_calls))
        self._heard.on_status(StatusEvent(status="calling_tool", detail=names))
        count = len(output.tool_calls)
        requested = [self._request(tool_call, acting, count) for tool_call in output.tool_calls]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(request, acting)) for request in requested]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        step = ToolStep(
            text=output.content,
            calls=output.tool_calls,
            results=[task.result() for task in tasks],
            native=output.native,
        )
        acting.steps.append(step)

    def _number(self, acting: Acting) -> str:
        acting.calls += 1
        return f"{self._within}.{acting.calls}" if self._within else str(acting.calls)

    def _request(self, tool_call: ToolCall, acting: Acting, count: int = 1) -> _Requested:
        """Write that the model calls a tool, in an answer with `count` calls."""
        problem = self._check(tool_call, acting)
        tool = self._toolbox.find(tool_call.tool)
        act, failure = _find_act(tool, tool_call) if tool and not problem else (None, None)
        number = self._number(acting)
        self._write(
            ToolRequested,
            call=number,
            step=acting.turns,
            of=count,
            tool=tool_call.tool,
            arguments=tool_call.arguments,
            problem=tool_call.problem,
            approval=act.action if act else "",
            native=tool_call.id,
        )
        return _Requested(number, tool_call, tool, act, problem, failure)

    def _check(self, tool_call: ToolCall, acting: Acting) -> str:
        """Return why a call cannot be made, "" if it can, and count it."""
        tool, arguments = tool_call.tool, tool_call.arguments
        problem = tool_call.problem or self._toolbox.find_problem(tool, arguments)
        if tool == COMPLETE_TASK and problem:
            acting.invalid += 1
        return problem or self._find_repetition(tool_call, acting)

    def _find_repetition(self, tool_call: ToolCall, acting: Acting) -> str:
        """Return why a call is refused that was made too often in a row, "" if it was not."""
        key = json.dumps([tool_call.tool, tool_call.arguments], sort_keys=True, default=str)
        acting.repeated = acting.repeated + 1 if key == acting.last_call else 1
        acting.last_call = key
        if acting.repeated <= MOST_REPEATED:
            return ""
        return (
            f"you made this call {MOST_REPEATED} times in a row with the same arguments; "
            "use the results above, or do something else"
        )

    async def _answer(self, requested: _Requested, acting: Acting) -> ToolResult:
        """Run a call, if it can be made and is allowed, and write how it ended."""
        number, tool_call, tool = requested.number, requested.tool_call, requested.tool
        if tool is None or requested.problem:
            return self._end_call(number, tool_call.tool, ToolFailed(requested.problem), 0)
        if tool is self._toolbox.complete_task:
            return self._complete(number, tool_call, acting)
        member, reply = self._member, self._planned.reply
        request = ToolRequest(member, reply, number, tool_call.tool, tool_call.arguments)
        began = self._room.clock.monotonic()
        try:
            if requested.failure is None:
                await self._permit(tool_call, requested.act)
            async with self._places:
                began = self._room.clock.monotonic()
                async with asyncio.timeout(max(self._seconds_left(acting), 0)):
                    run = partial(self._run_tool, requested)
                    if getattr(tool, "internal", False):
                        answer = await run(request)
                    else:  # a replay answers in its place
                        answer = await self._room.runtime.call_tool(request, run)
        except ToolFailed as failure:
            return self._end_call(number, tool_call.tool, failure, self._ms_since(began))
        except TimeoutError:
            late = ToolFailed("it did not end in time, and was ended", "timeout")
            return self._end_call(number, tool_call.tool, late, self._ms_since(began))
        return self._end_call(number, tool_call.tool, answer, self._ms_since(began))

    def _ms_since(self, began: float) -> int:
        return round((self._room.clock.monotonic() - began) * 1000)

    async def _permit(self, tool_call: ToolCall, act: PermissionRequest | None) -> None:
        """Ask the rules, and people, if the call may be made. Raises ToolFailed."""
        if act is not None:
            redactor = self._room.runtime.redactor
            permission = await self._permitted(tool_steps.redact_act(act, redactor))
            if permission.verdict == "asked":
                raise ToolFailed(permission_requests.explain(permission), "denied")
            if permission.verdict != "allowed":
                raise ToolFailed(f"not allowed: {permission.reason}", "denied")
            return
        control = self._room.control.current
        if control is None:
            return
        plain = tool_steps.describe_call(tool_call)
        if refused := await control.check_action(self._planned.agent, self._planned.reply, plain):
            raise ToolFailed(f"not allowed: {refused}", "denied")

    async def _run_tool(self, requested: _Requested, request: ToolRequest) -> ToolAnswer:
        """Call a tool; what it gave is cleaned and redacted before it is shown or recorded."""
        if requested.failure is not None:
            raise requested.failure
        assert requested.tool is not None
        permit = partial(self._permit, requested.tool_call)
        scope = ToolScope(request.call, self._heard, self._planned.reply, permit, self._planned)
        redactor = self._room.runtime.redactor
        return await tool_steps.call_tool(requested.tool, request.arguments, scope, redactor)

    def _complete(self, number: str, tool_call: ToolCall, acting: Acting) -> ToolResult:
        """Take the output that the agent hands in; only the first one counts."""
        if acting.output is not None:
            failure = ToolFailed("the result is accepted already; the first one counts")
            return self._end_call(number, tool_call.tool, failure, 0)
        complete_task = self._toolbox.complete_task
        assert complete_task is not None
        acting.output = (tool_call.arguments[complete_task.output.name],)
        accepted = ToolAnswer(ToolResult(text="The result is accepted."))
        return self._end_call(number, tool_call.tool, accepted, 0)

    def _end_call(
        self, number: str, tool: str, ended: ToolAnswer | ToolFailed, ms: int
    ) -> ToolResult:
        return tool_steps.write_result(
            number,
            tool,
            ended,
            ms,
            planned=self._planned,
            member=self._member,
            room=self._room,
        )

    def _write(self, shape: type[ActingEvent], **fields: Any) -> None:
        self._room.journal.write(shape, reply=self._planned.reply, agent=self._member.id, **fields)

    # After a restart.

    async def restore(self, acting: Acting) -> None:
        """Continue with the steps of an attempt that was interrupted.

        A call without a result is made again if its tool is idempotent; else it is an error. A turn
        of which not all calls were written ran none of them: the model is asked again.
        """
        events, counted = self.list_written(), self._find_counted()
        texts = {
            event.step: event.text
            for event in events
            if isinstance(event, Thought) and event.kind == "text" and event.within == self._within
        }
        ends = {event.call: event for event in events if isinstance(event, ToolFinished)}
        for number, requests in tool_steps.group_requests(events, self._within).items():
            if len(requests) < requests[-1].of:
                break
            if number > acting.turns + 1:  # a turn without calls, so the next one was the last
                acting.closing = "error_no_complete_task"
            acting.turns = number
            acting.calls = int(requests[-1].call.rpartition(".")[2])
            calls = [tool_steps.restore_call(request) for request in requests]
            checked = [self._check(tool_call, acting) for tool_call in calls]
            results = [
                await self._restore_result(request, ends.get(request.call), problem, acting)
                for request, problem in zip(requests, checked, strict=True)
            ]
            text = texts.get(number, "")
            if requests[-1].seq > counted:
                self._heard.earlier_usage.append(self._estimate_turn(text))
            acting.steps.append(ToolStep(text=text, calls=calls, results=results))

    def _find_counted(self) -> int:
        """Return the seq of the last end of the reply, up to which its usage is written."""
        chain = self._room.scene.fold.open
        for event in reversed(chain.events if chain else ()):
            if self._within:
                is_end = isinstance(event, AgentEnded) and event.within == self._within
            else:
                is_end = isinstance(event, ReplyFinished)
            if is_end and getattr(event, "reply", 0) == self._planned.reply:
                return event.seq
        return 0

    def list_written(self) -> list[ActingEvent]:
        """Return the events of the reply that are written; a planner's belong to the chain."""
        chain = self._room.scene.fold.open
        events: Sequence[Event] = ()
        if chain is not None and not self._planned.reply:
            events = chain.events
        elif chain is not None and chain.turns:
            events = chain.turns[-1].side_events
        return [
            event
            for event in events
            if isinstance(event, ActingEvent) and event.reply == self._planned.reply
        ]

    def _estimate_turn(self, text: str) -> Usage:
        """Return the usage of a turn of the model that reports none."""
        is_own = not self._within
        role = self._planned.input.role_prompt if is_own else self._member.role_prompt
        input_tokens = tokens.estimate(role)
        if self._within and self._planned.agent == self._member.id:  # in an exchange
            input_tokens = self._planned.input_tokens
        return Usage(input_tokens=input_tokens, output_tokens=tokens.estimate(text), estimated=True)

    async def _restore_result(
        self, request: ToolRequested, end: ToolFinished | None, problem: str, acting: Acting
    ) -> ToolResult:
        if end is None:
            tool_call = tool_steps.restore_call(request)
            tool = self._toolbox.find(tool_call.tool)
            act, failure = _find_act(tool, tool_call) if tool and not problem else (None, None)
            if not problem and tool is not None and not tool.idempotent:
                problem = CUT_SHORT
            requested = _Requested(request.call, tool_call, tool, act, problem, failure)
            return await self._answer(requested, acting)
        complete_task = self._toolbox.complete_task
        if end.tool == COMPLETE_TASK and end.status == "ok" and complete_task:
            acting.output = (request.arguments.get(complete_task.output.name),)
        images = [file for file in end.attachments if file.type == "image"]
        return ToolResult(status=end.status, text=end.result, attachments=images)


def _find_act(
    tool: Tool, tool_call: ToolCall
) -> tuple[PermissionRequest | None, ToolFailed | None]:
    """Return the act of a call that people approve, or why the tool would not do it."""
    try:
        return tool.find_act(tool_call.arguments), None
    except ToolFailed as failure:
        return None, failure
