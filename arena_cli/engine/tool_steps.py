"""The steps of an agent that acts: those that fit its next turn, results of calls, its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.adapters.runtime import ToolAnswer
from arena_cli.context import hashing, tokens, window
from arena_cli.engine.plan import Planned, Room
from arena_cli.protocol import (
    AgentInput,
    Attachment,
    PermissionRequest,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
)
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript.acting_events import (
    ActingEvent,
    AgentEnded,
    EndMode,
    ToolFinished,
    ToolRequested,
    order_call,
)
from arena_cli.transcript.events import ReplyStatus
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, clean_value
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.workspace.models import Member

MOST_SHOWN_BYTES = 16_384
"""A longer result of a tool is cut; its whole text is kept as an attachment."""

MOST_KEPT_CHARS = 10_000_000
"""Of a longer result, the rest is not kept; its attachment ends with a line about it."""

_FULL = 0.8
_SQUEEZED = 0.5
_SHORT_TOKENS = 100
_REMOVED = "(This result was removed to save room. Call the tool again if you need it.)"


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


def fit_steps(
    agent_input: AgentInput,
    specs: Sequence[ToolSpec],
    steps: Sequence[ToolStep],
    member: Member,
    room: Room,
    *,
    is_squeezed: bool,
) -> list[ToolStep]:
    """Return the steps, with the oldest long results removed where the window is too full."""
    windows = room.scene.windows
    size, reserved = window.sizes(member.profile.context, windows.get(member.id))
    most = (size - reserved) * (_SQUEEZED if is_squeezed else _FULL)
    texts = [agent_input.role_prompt, agent_input.memory_context or ""]
    texts += [message.content for message in agent_input.messages]
    texts += [json.dumps(spec.input_schema) + spec.description for spec in specs]
    used = sum(map(tokens.estimate, texts)) + sum(map(_estimate_step, steps))
    fitting = list(steps)
    for index, step in enumerate(steps[:-1]):
        if used <= most:
            break
        results = list(step.results)
        for position, result in enumerate(step.results):
            size = tokens.estimate(result.text)
            if used > most and (size > _SHORT_TOKENS or result.attachments):
                used -= size
                short = {"text": _REMOVED, "attachments": []}
                results[position] = result.model_copy(update=short)
        fitting[index] = step.model_copy(update={"results": results})
    return fitting


def add_tools(
    agent_input: AgentInput, specs: Sequence[ToolSpec], steps: list[ToolStep]
) -> AgentInput:
    """Return the input of a turn of the model, with its tools and steps; its hash has the tools."""
    update = {"tools": list(specs), "steps": steps}
    changed = agent_input.model_copy(update=update)
    return changed.model_copy(update={"input_hash": hashing.input_digest(changed)})


def remind(steps: list[ToolStep], reminder: str) -> list[ToolStep]:
    """Return the steps with a reminder after the last one."""
    if not reminder:
        return steps
    last = steps[-1] if steps else ToolStep()
    notice = f"{last.notice}\n\n{reminder}".strip()
    return [*steps[:-1], last.model_copy(update={"notice": notice})]


def _estimate_step(step: ToolStep) -> int:
    texts = [step.text, step.notice, *(result.text for result in step.results)]
    texts += [json.dumps(tool_call.arguments, ensure_ascii=False) for tool_call in step.calls]
    return sum(map(tokens.estimate, texts))


def group_requests(events: Sequence[ActingEvent], within: str) -> dict[int, list[ToolRequested]]:
    """Return the calls of an agent by turn of its model; of a turn written twice, the last."""
    steps: dict[int, list[ToolRequested]] = {}
    for event in events:
        if isinstance(event, ToolRequested) and event.call.rpartition(".")[0] == within:
            earlier = steps.setdefault(event.step, [])
            order = order_call(event.call)
            earlier[:] = [request for request in earlier if order_call(request.call) < order]
            earlier.append(event)
    return steps


def restore_call(request: ToolRequested) -> ToolCall:
    """Return a call as the model asked for it."""
    return ToolCall(
        id=request.native or f"call_{request.call}",
        tool=request.tool,
        arguments=request.arguments,
        problem=request.problem,
    )


def write_end(planned: Planned, status: ReplyStatus, by: str, room: Room) -> None:
    """Write how the reply of an agent that acts has ended, unless it will be continued."""
    acting = planned.acting
    if acting is None or (status == "cancelled" and not by):
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


# Calls and their results: cleaned, redacted and cut before they are shown to anyone.


def redact_act(act: PermissionRequest, redactor: Redactor) -> PermissionRequest:
    """Return an act as people may see it. Raises ToolFailed if it cannot be redacted."""
    try:
        fields = redactor.value(clean_value(act.model_dump())[0])
    except PatternTimeout as error:
        raise ToolFailed(f"it cannot be redacted: {error.what}", "denied") from error
    return PermissionRequest(**fields)


def describe_call(tool_call: ToolCall) -> PermissionRequest:
    """Return a call that needs no approval, as rules look at it."""
    return PermissionRequest(
        action=tool_call.tool,
        detail=json.dumps(tool_call.arguments, ensure_ascii=False, sort_keys=True),
        tool=tool_call.tool,
        arguments=tool_call.arguments,
    )


async def call_tool(
    tool: Tool, arguments: Mapping[str, Any], scope: ToolScope, redactor: Redactor
) -> ToolAnswer:
    """Call a tool; return what it gave as it may be shown. Raises ToolFailed and TimeoutError."""
    try:
        output = await tool.call(arguments, scope)
    except (ToolFailed, TimeoutError):
        raise
    except Exception as error:
        raise ToolFailed(f"{type(error).__name__}: {error}") from error
    return _redact_output(output, redactor)


def _redact_output(output: ToolOutput, redactor: Redactor) -> ToolAnswer:
    text, _ = clean_text(output.text[:MOST_KEPT_CHARS])
    if len(output.text) > MOST_KEPT_CHARS:
        text += (
            f"\n(cut after {MOST_KEPT_CHARS} of {len(output.text)} characters; the rest is lost)"
        )
    result = ToolResult(
        status="error" if output.is_error else "ok",
        text=redactor.text_or_nothing(text),
        attachments=[redactor.attachment(file) for file in output.attachments],
    )
    diff = redactor.text_or_nothing(clean_text(output.diff)[0]) if output.diff else ""
    return ToolAnswer(result, diff, output.usage)


def write_result(
    number: str,
    tool: str,
    ended: ToolAnswer | ToolFailed,
    ms: int,
    *,
    planned: Planned,
    member: Member,
    room: Room,
) -> ToolResult:
    """Write the end of a call; return the result as the model is shown it."""
    if isinstance(ended, ToolFailed):
        text = room.runtime.redactor.text_or_nothing(clean_text(str(ended))[0])
        ended = ToolAnswer(ToolResult(status=ended.status, text=text))
    result, files = ended.result, list(ended.result.attachments)
    shown_text, is_cut = cut_bytes(result.text, MOST_SHOWN_BYTES)
    stamp = room.journal.stamp()
    if is_cut:
        name = f"{tool.replace('.', '-').replace(':', '-')}-{number}.txt"
        files.append(Attachment(type="file", name=name, data=result.text))
        size = len(result.text.encode("utf-8", "replace"))
        shown_text += (
            f"\n(cut after {MOST_SHOWN_BYTES // 1024} KB of {size // 1024} KB; "
            f"the whole text is the attachment {name})"
        )
    attachments = room.keep(files, stamp.message_id) if files else []
    room.journal.write(
        ToolFinished,
        stamp=stamp,
        reply=planned.reply,
        agent=member.id,
        call=number,
        tool=tool,
        status=result.status,
        result=shown_text,
        attachments=attachments,
        diff=ended.diff,
        ms=ms,
        usage=ended.usage,
    )
    images = [file for file in attachments if file.type == "image"]
    return ToolResult(status=result.status, text=shown_text, attachments=images)


def cut_bytes(text: str, most: int) -> tuple[str, bool]:
    """Return the text, cut to `most` bytes of UTF-8, and whether it was cut."""
    if len(text) * 4 <= most:
        return text, False
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text, False
    return data[:most].decode("utf-8", "ignore"), True
