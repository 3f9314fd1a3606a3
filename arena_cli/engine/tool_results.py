"""Write the results of tool calls: cleaned, redacted and cut before they are shown to anyone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arena_cli.adapters.runtime import ToolAnswer
from arena_cli.engine.plan import Planned, Room
from arena_cli.protocol import Attachment, PermissionRequest, ToolCall, ToolResult
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript.acting_events import ToolFinished
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, clean_value
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.workspace.models import Member

MOST_SHOWN_BYTES = 16_384
"""A longer result of a tool is cut; its whole text is kept as an attachment."""

MOST_KEPT_CHARS = 10_000_000
"""Of a longer result, the rest is not kept; its attachment ends with a line about it."""


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
