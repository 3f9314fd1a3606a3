"""The loop of an agent that acts: ask the model, run the calls of its answer, and again.

It ends as `agent_ended.mode` says. All that it needs to continue after a crash is in the events of
its reply: the model is shown them as steps of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Answer, Heard, ToolAnswer, ToolNext, ToolRequest
from arena_cli.context import render, tokens, window
from arena_cli.engine import call
from arena_cli.engine.plan import Planned, Room
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
    Attachment,
    Permission,
    PermissionRequest,
    StatusEvent,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Usage,
)
from arena_cli.tools.base import COMPLETE_TASK, Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript.acting_events import (
    ActingEvent,
    AgentEnded,
    EndMode,
    Thought,
    ToolFinished,
    ToolRequested,
    order_call,
)
from arena_cli.transcript.events import ReplyStatus
from arena_cli.transcript.state import MARK
from arena_cli.util.text import clean_text, clean_value
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.workspace.acting import RunLimits
from arena_cli.workspace.models import Member

MOST_SHOWN_BYTES = 16_384
"""A longer result of a tool is cut; its whole text is kept as an attachment."""

MOST_KEPT_CHARS = 10_000_000
MOST_REPEATED = 5
"""So many equal calls in a row are answered; the next one is refused."""

MOST_INVALID = 3
"""After so many outputs that do not fit, the agent has its last turn."""

_FULL = 0.8
_SQUEEZED = 0.5
_SHORT_TOKENS = 100

_REMOVED = "(This result was removed to save room. Call the tool again if you need it.)"
CUT_SHORT = (
    "arena was interrupted while this tool ran; nobody knows if it had an effect. "
    "Check before you call it again."
)
_COMPLETE_NOW = {
    "timeout": "Your time is over.",
    "max_turns": "You have used up your turns.",
    "error_no_complete_task": f"You stopped without calling {COMPLETE_TASK}.",
}


@dataclass
class Acting:
    """The state of a reply with tools: its steps, its counts, its output.

    `ends_at` is the end of its time, as the clock has it, without what people took to decide.
    `closing` is why its last turn came; `output` is what was handed in, in a tuple. `is_short`: it
    ended with a text in place of the output that it has.
    """

    ends_at: float
    steps: list[ToolStep] = field(default_factory=list)
    calls: int = 0
    turns: int = 0
    invalid: int = 0
    last_call: str = ""
    repeated: int = 0
    closing: EndMode | None = None
    output: tuple[Any] | None = None
    squeezed: bool = False
    is_short: bool = False


class _Requested(NamedTuple):
    """A call that was written: what was asked, the tool, the act that people approve.

    `problem` is the reason why it cannot be made, `failure` why the tool would not do it: that is
    its result, which a replay has of its own.
    """

    number: str
    asked: ToolCall
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


def write_end(planned: Planned, status: ReplyStatus, by: str, room: Room) -> None:
    """Write how the reply of an agent that acts has ended, unless it will be continued."""
    acting = planned.acting
    if acting is None:
        return
    if status == "cancelled" and not by:
        return
    mode: EndMode = acting.closing or "error"
    if status == "cancelled":
        mode = "aborted"
    elif status in ("success", "declined"):
        mode = "error_no_complete_task" if acting.is_short else "goal"
    output = acting.output[0] if acting.output else None
    room.journal.write(
        AgentEnded,
        reply=planned.reply,
        agent=planned.agent,
        mode=mode,
        turns=acting.turns,
        output=output,
    )


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
        permit: Callable[[PermissionRequest], Awaitable[Permission]] | None = None,
    ) -> None:
        self._member = member
        self._room = room
        self._planned = planned
        self._heard = heard
        self._toolbox = toolbox
        self._within = within
        self._permitted = permit or call.Asking(planned, room, heard, None).permit
        self._limits = member.profile.run or RunLimits()

    async def run(self, agent_input: AgentInput, acting: Acting) -> Answer:
        """Ask the model and run its calls until the agent is done.

        Raises AgentError, OutOfBudget, DiskRefused.
        """
        while acting.output is None:
            self._check_limits(acting)
            answer = await self._ask(agent_input, acting)
            if answer is None:
                continue
            output = answer.output
            self._think(output, acting)
            if not output.tool_calls:
                if self._is_done(answer, acting):
                    return self._finish(answer)
                continue
            if acting.closing and self._toolbox.complete_task is None:
                raise self._unfinished(acting.closing)
            self._record_usage()
            await self._run_calls(output, acting)
            if acting.output is None and acting.closing:
                raise self._unfinished(acting.closing)
            if acting.output is None:
                self._admit()
        return await self._hand_in(acting.output[0])

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
        why = _COMPLETE_NOW[acting.closing]
        how = f"Call {COMPLETE_TASK} now" if self._toolbox.complete_task else "Answer in text now"
        notice = f"{why} {how}, with the best result that you have; no other tool is left."
        if acting.steps:
            last = acting.steps[-1]
            acting.steps[-1] = last.model_copy(update={"notice": notice})
        else:
            acting.steps.append(ToolStep(notice=notice))

    def _seconds_left(self, acting: Acting) -> float:
        return acting.ends_at + self._planned.waited_s - self._room.clock.monotonic()

    async def _ask(self, agent_input: AgentInput, acting: Acting) -> Answer | None:
        """Ask the model once; return None if its time ended before it answered."""
        await self._toolbox.refresh()
        specs = self._toolbox.specs
        if acting.closing:
            specs = [spec for spec in specs if spec.name == COMPLETE_TASK]
        steps = _remind(self._fit(agent_input, specs, acting), self._toolbox.reminder())
        sent = _with_tools(agent_input, specs, steps)
        attempt_limit = self._room.scene.team.config.attempt_timeout_s
        left = self._limits.grace_s if acting.closing else self._seconds_left(acting)
        limit = left if attempt_limit is None else min(left, attempt_limit)
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
            raise self._unfinished(acting.closing)
        self._heard.earlier_usage += [answer.output.usage] if answer.output.usage else []
        self._heard.usage = None
        acting.steps.append(ToolStep(text=answer.output.content, native=answer.output.native))
        acting.closing = "error_no_complete_task"
        self._close(acting)
        return False

    def _unfinished(self, mode: EndMode) -> AgentError:
        problem, mend = {
            "timeout": (
                f"not done within {self._limits.max_minutes:g} minutes",
                "raise run.max_minutes in its profile",
            ),
            "max_turns": (
                f"not done within {self._limits.max_turns} turns",
                "raise run.max_turns in its profile",
            ),
        }.get(mode, (f"it stopped without calling {COMPLETE_TASK}", "see its output.schema"))
        kind = AgentTimeout if mode == "timeout" else AgentUnfinished
        return kind(self._member.id, problem, mend=mend, again=False)

    def _finish(self, answer: Answer) -> Answer:
        """Return the last answer; its count of tokens is not that of the input alone."""
        metadata = {key: value for key, value in answer.output.metadata.items() if key != MARK}
        return answer._replace(output=answer.output.model_copy(update={"metadata": metadata}))

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
        functions = import_module("arena_cli.adapters.user_function")
        function = self._room.make_function(target)
        try:
            made = await function.call(json.dumps(value))
        except functions.FunctionFailed as failure:
            raise AgentProtocolError(
                self._member.id,
                self._room.runtime.redactor.text_or_nothing(f"output.process: {failure}"),
                mend="correct the function, or `output.process` in its profile",
                again=False,
            ) from failure
        finally:
            await function.stop()
        return self._room.runtime.redactor.value_or_nothing(made)

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
        self._report(output.tool_calls)
        count = len(output.tool_calls)
        requested = [self._request(asked, acting, count) for asked in output.tool_calls]
        places = asyncio.Semaphore(self._limits.max_parallel_tools)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._answer(request, acting, places))
                    for request in requested
                ]
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

    def _report(self, calls: Sequence[ToolCall]) -> None:
        names = ", ".join(dict.fromkeys(asked.tool for asked in calls))
        self._heard.on_status(StatusEvent(status="calling_tool", detail=names))

    def _request(self, asked: ToolCall, acting: Acting, count: int = 1) -> _Requested:
        """Write that the model calls a tool, in an answer with `count` calls."""
        problem = self._check(asked, acting)
        tool = self._toolbox.find(asked.tool)
        act, failure = _find_act(tool, asked) if tool and not problem else (None, None)
        number = self._number(acting)
        self._write(
            ToolRequested,
            call=number,
            step=acting.turns,
            of=count,
            tool=asked.tool,
            arguments=asked.arguments,
            problem=asked.problem,
            approval=act.action if act else "",
            native=asked.id,
        )
        return _Requested(number, asked, tool, act, problem, failure)

    def _check(self, asked: ToolCall, acting: Acting) -> str:
        """Return why a call cannot be made, "" if it can, and count it."""
        problem = asked.problem or self._toolbox.find_problem(asked.tool, asked.arguments)
        if asked.tool == COMPLETE_TASK and problem:
            acting.invalid += 1
        return problem or self._find_repetition(asked, acting)

    def _find_repetition(self, asked: ToolCall, acting: Acting) -> str:
        """Return why a call is refused that was made too often in a row, "" if it was not."""
        key = json.dumps([asked.tool, asked.arguments], sort_keys=True, default=str)
        acting.repeated = acting.repeated + 1 if key == acting.last_call else 1
        acting.last_call = key
        if acting.repeated <= MOST_REPEATED:
            return ""
        return (
            f"you made this call {MOST_REPEATED} times in a row with the same arguments; "
            "use the results above, or do something else"
        )

    async def _answer(
        self, requested: _Requested, acting: Acting, places: asyncio.Semaphore
    ) -> ToolResult:
        """Run a call, if it can be made and is allowed, and write how it ended."""
        number, asked, tool = requested.number, requested.asked, requested.tool
        if tool is None or requested.problem:
            return self._end_call(number, asked.tool, ToolFailed(requested.problem), 0)
        if tool is self._toolbox.complete_task:
            return self._complete(number, asked, acting)
        began = self._room.clock.monotonic()
        try:
            if requested.failure is None:
                await self._permit(asked, requested.act)
            async with places:
                began = self._room.clock.monotonic()
                async with asyncio.timeout(max(self._seconds_left(acting), 0)):
                    request = ToolRequest(
                        self._member, self._planned.reply, number, asked.tool, asked.arguments
                    )
                    run = partial(self._run_tool, requested)
                    is_internal = getattr(tool, "internal", False)
                    call_tool = run if is_internal else partial(self._call_outside, run)
                    answer = await call_tool(request)
        except ToolFailed as failure:
            return self._end_call(number, asked.tool, failure, self._ms_since(began))
        except TimeoutError:
            late = ToolFailed("it did not end in time, and was ended", "timeout")
            return self._end_call(number, asked.tool, late, self._ms_since(began))
        return self._end_call(number, asked.tool, answer, self._ms_since(began))

    def _ms_since(self, began: float) -> int:
        return round((self._room.clock.monotonic() - began) * 1000)

    async def _permit(self, asked: ToolCall, act: PermissionRequest | None) -> None:
        """Ask the rules, and people, if the call may be made. Raises ToolFailed."""
        if act is not None:
            permission = await self._permitted(self._redact_act(act))
            if permission.verdict == "asked":
                raise ToolFailed(
                    permission.reason
                    or "a person was asked to approve this; end your reply, and say so",
                    "denied",
                )
            if permission.verdict != "allowed":
                raise ToolFailed(f"not allowed: {permission.reason}", "denied")
            return
        control = self._room.control.current
        if control is None:
            return
        shown = json.dumps(asked.arguments, ensure_ascii=False, sort_keys=True)
        plain = PermissionRequest(
            action=asked.tool, detail=shown, tool=asked.tool, arguments=asked.arguments
        )
        if refused := await control.check_action(self._planned, plain):
            raise ToolFailed(f"not allowed: {refused}", "denied")

    async def _call_outside(self, run: ToolNext, request: ToolRequest) -> ToolAnswer:
        """Call a tool that acts on the outside: a replay answers in its place."""
        return await self._room.runtime.call_tool(request, run)

    async def _run_tool(self, requested: _Requested, request: ToolRequest) -> ToolAnswer:
        """Call a tool; what it gave is cleaned and redacted here, before anybody sees it."""
        if requested.failure is not None:
            raise requested.failure
        assert requested.tool is not None
        permit = partial(self._permit, requested.asked)
        scope = ToolScope(request.call, self._heard, self._planned.reply, permit, self._planned)
        try:
            output = await requested.tool.call(request.arguments, scope)
        except (ToolFailed, TimeoutError):
            raise
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        return self._redact(output)

    def _redact_act(self, act: PermissionRequest) -> PermissionRequest:
        """Return an act as people may see it. Raises ToolFailed if it cannot be redacted."""
        try:
            fields = self._room.runtime.redactor.value(clean_value(act.model_dump())[0])
        except PatternTimeout as error:
            raise ToolFailed(f"it cannot be redacted: {error.what}", "denied") from error
        return PermissionRequest(**fields)

    def _redact(self, output: ToolOutput) -> ToolAnswer:
        redactor = self._room.runtime.redactor
        text, _ = clean_text(output.text[:MOST_KEPT_CHARS])
        result = ToolResult(
            status="error" if output.is_error else "ok",
            text=redactor.text_or_nothing(text),
            attachments=[redactor.attachment(file) for file in output.attachments],
        )
        diff = redactor.text_or_nothing(clean_text(output.diff)[0]) if output.diff else ""
        return ToolAnswer(result, diff, output.usage)

    def _complete(self, number: str, asked: ToolCall, acting: Acting) -> ToolResult:
        """Take the output that the agent hands in; only the first one counts."""
        if acting.output is not None:
            failure = ToolFailed("the result is accepted already; the first one counts")
            return self._end_call(number, asked.tool, failure, 0)
        complete_task = self._toolbox.complete_task
        assert complete_task is not None
        acting.output = (asked.arguments[complete_task.output.name],)
        accepted = ToolAnswer(ToolResult(text="The result is accepted."))
        return self._end_call(number, asked.tool, accepted, 0)

    def _end_call(
        self, number: str, tool: str, ended: ToolAnswer | ToolFailed, ms: int
    ) -> ToolResult:
        """Write the end of a call; return the result as the model is shown it."""
        if isinstance(ended, ToolFailed):
            text = self._room.runtime.redactor.text_or_nothing(clean_text(str(ended))[0])
            ended = ToolAnswer(ToolResult(status=ended.status, text=text))
        result, files = ended.result, list(ended.result.attachments)
        shown, is_cut = _cut_bytes(result.text, MOST_SHOWN_BYTES)
        stamp = self._room.journal.stamp()
        if is_cut:
            name = f"{tool.replace('.', '-').replace(':', '-')}-{number}.txt"
            files.append(Attachment(type="file", name=name, data=result.text))
            size = len(result.text.encode("utf-8", "replace"))
            shown += (
                f"\n(cut after {MOST_SHOWN_BYTES // 1024} KB of {size // 1024} KB; "
                f"the whole text is the attachment {name})"
            )
        kept = self._room.keep(files, stamp.message_id) if files else []
        self._room.journal.write(
            ToolFinished,
            stamp=stamp,
            reply=self._planned.reply,
            agent=self._member.id,
            call=number,
            tool=tool,
            status=result.status,
            result=shown,
            attachments=kept,
            diff=ended.diff,
            ms=ms,
            usage=ended.usage,
        )
        images = [file for file in kept if file.type == "image"]
        return ToolResult(status=result.status, text=shown, attachments=images)

    def _write(self, shape: type[ActingEvent], **fields: Any) -> None:
        self._room.journal.write(shape, reply=self._planned.reply, agent=self._member.id, **fields)

    # The room for steps.

    def _fit(
        self, agent_input: AgentInput, specs: Sequence[ToolSpec], acting: Acting
    ) -> list[ToolStep]:
        """Return the steps, with the oldest long results removed where the window is too full."""
        windows = self._room.scene.windows
        size, reserved = window.sizes(self._member.profile.context, windows.get(self._member.id))
        room = (size - reserved) * (_SQUEEZED if acting.squeezed else _FULL)
        texts = [agent_input.role_prompt, agent_input.memory_context or ""]
        texts += [message.content for message in agent_input.messages]
        texts += [json.dumps(spec.input_schema) + spec.description for spec in specs]
        used = sum(map(tokens.estimate, texts)) + sum(map(_estimate_step, acting.steps))
        steps = list(acting.steps)
        for index, step in enumerate(steps[:-1]):
            if used <= room:
                break
            results = list(step.results)
            for place, result in enumerate(step.results):
                size = tokens.estimate(result.text)
                if used > room and (size > _SHORT_TOKENS or result.attachments):
                    used -= size
                    short = {"text": _REMOVED, "attachments": []}
                    results[place] = result.model_copy(update=short)
            steps[index] = step.model_copy(update={"results": results})
        return steps

    # After a restart.

    async def restore(self, acting: Acting) -> None:
        """Continue with the steps of an attempt that was interrupted.

        A call without a result is made again if its tool is idempotent; else it is an error. A turn
        of which not all calls were written ran none of them: the model is asked again.
        """
        events = self.list_written()
        texts = {
            event.step: event.text
            for event in events
            if isinstance(event, Thought) and event.kind == "text" and event.within == self._within
        }
        ends = {event.call: event for event in events if isinstance(event, ToolFinished)}
        for number, requests in _group_requests(events, self._within).items():
            if len(requests) < requests[-1].of:
                break
            if number > acting.turns + 1:  # a turn without calls, so the next one was the last
                acting.closing = "error_no_complete_task"
            acting.turns = number
            acting.calls = int(requests[-1].call.rpartition(".")[2])
            calls = [_restore_call(request) for request in requests]
            checked = [self._check(asked, acting) for asked in calls]
            results = [
                await self._restore_result(request, ends.get(request.call), problem, acting)
                for request, problem in zip(requests, checked, strict=True)
            ]
            text = texts.get(number, "")
            self._heard.earlier_usage.append(self._estimate_turn(text))
            acting.steps.append(ToolStep(text=text, calls=calls, results=results))

    def list_written(self) -> list[ActingEvent]:
        """Return the events of the reply that are written."""
        chain = self._room.scene.fold.open
        turn = chain.turns[-1] if chain and chain.turns else None
        return [
            event
            for event in (turn.side_events if turn else ())
            if isinstance(event, ActingEvent) and event.reply == self._planned.reply
        ]

    def _estimate_turn(self, text: str) -> Usage:
        """Return the usage of a turn of the model that reports none."""
        is_own = not self._within
        role = self._planned.input.role_prompt if is_own else self._member.role_prompt
        role_tokens = tokens.estimate(role)
        return Usage(input_tokens=role_tokens, output_tokens=tokens.estimate(text), estimated=True)

    async def _restore_result(
        self, request: ToolRequested, end: ToolFinished | None, problem: str, acting: Acting
    ) -> ToolResult:
        if end is None:
            asked = _restore_call(request)
            tool = self._toolbox.find(asked.tool)
            act, failure = _find_act(tool, asked) if tool and not problem else (None, None)
            if not problem and tool is not None and not tool.idempotent:
                problem = CUT_SHORT
            requested = _Requested(request.call, asked, tool, act, problem, failure)
            return await self._answer(requested, acting, asyncio.Semaphore(1))
        complete_task = self._toolbox.complete_task
        if end.tool == COMPLETE_TASK and end.status == "ok" and complete_task:
            acting.output = (request.arguments.get(complete_task.output.name),)
        images = [file for file in end.attachments if file.type == "image"]
        return ToolResult(status=end.status, text=end.result, attachments=images)


def _find_act(tool: Tool, asked: ToolCall) -> tuple[PermissionRequest | None, ToolFailed | None]:
    """Return the act of a call that people approve, or why the tool would not do it."""
    try:
        return tool.find_act(asked.arguments), None
    except ToolFailed as failure:
        return None, failure


def _group_requests(events: Sequence[ActingEvent], within: str) -> dict[int, list[ToolRequested]]:
    """Return the calls of an agent by turn of its model; of a turn written twice, the last."""
    steps: dict[int, list[ToolRequested]] = {}
    for event in events:
        if isinstance(event, ToolRequested) and event.call.rpartition(".")[0] == within:
            earlier = steps.setdefault(event.step, [])
            order = order_call(event.call)
            earlier[:] = [request for request in earlier if order_call(request.call) < order]
            earlier.append(event)
    return steps


def _restore_call(request: ToolRequested) -> ToolCall:
    return ToolCall(
        id=request.native or f"call_{request.call}",
        tool=request.tool,
        arguments=request.arguments,
        problem=request.problem,
    )


def _with_tools(
    agent_input: AgentInput, specs: Sequence[ToolSpec], steps: list[ToolStep]
) -> AgentInput:
    """Return the input of a turn of the model, with its tools and steps; its hash has the tools."""
    update = {"tools": list(specs), "steps": steps}
    changed = agent_input.model_copy(update=update)
    return changed.model_copy(update={"input_hash": render.input_digest(changed)})


def _remind(steps: list[ToolStep], reminder: str) -> list[ToolStep]:
    """Return the steps with a reminder after the last one."""
    if not reminder:
        return steps
    last = steps[-1] if steps else ToolStep()
    notice = f"{last.notice}\n\n{reminder}".strip()
    return [*steps[:-1], last.model_copy(update={"notice": notice})]


def _estimate_step(step: ToolStep) -> int:
    texts = [step.text, step.notice, *(result.text for result in step.results)]
    texts += [json.dumps(asked.arguments, ensure_ascii=False) for asked in step.calls]
    return sum(map(tokens.estimate, texts))


def _cut_bytes(text: str, most: int) -> tuple[str, bool]:
    """Return the text, cut to `most` bytes of UTF-8, and whether it was cut."""
    if len(text) * 4 <= most:
        return text, False
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text, False
    return data[:most].decode("utf-8", "ignore"), True
