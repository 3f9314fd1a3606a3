"""Collect a prompt's updates of an agent of the Agent Client Protocol, and its answer.

Imported when an agent is called, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from acp import schema
from pydantic import BaseModel

from arena_cli.adapters import http, permission_requests
from arena_cli.adapters.coding_agents import ToolUse, describe_tool_use, shorten_path
from arena_cli.adapters.coding_clis.kinds import AcpPreset
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.permission_requests import Change
from arena_cli.adapters.process import diagnosis
from arena_cli.adapters.process.output import get_at_path
from arena_cli.errors import AgentError, AgentProtocolError, AgentRefused
from arena_cli.protocol import (
    AgentOutput,
    AgentReport,
    Emit,
    Permission,
    PermissionRequest,
    RefusedAction,
    Status,
    StatusEvent,
    TextDelta,
    Usage,
)
from arena_cli.util.text import cut_text

_TITLE_CHARS = 200
_TOOLS_KEPT = 8
_BETWEEN = "\n\n"
_MERGED = frozenset({"title", "kind", "status", "locations", "raw_input", "content"})


class _TextPiece:
    """A message of the agent: text without a tool call in it. `id` is None if it has none."""

    def __init__(self, message_id: str | None, preceding: int) -> None:
        self.id = message_id
        self.after = preceding
        self.parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts).strip()


class PromptTurn:
    """The updates since the prompt was sent. `refused` names what the agent was not allowed to do.

    `failed` says that the agent gave up, though the prompt's answer does not say so; then
    `last_remark` is all that is known of it. `session_usd` is what the session has cost so far,
    None where that is not known, `refused_usd` one that is no sum of money. `fault` is the error
    of a listener that a report of the work reached. `folder` is where the agent works.
    `was_asked`: a person was asked for a permission and decides later. `granted` has the content
    that a file may be given, by path, after a permission that showed it.
    """

    def __init__(self, session_id: str, preset: AcpPreset, emit: Emit, folder: Path) -> None:
        self.session_id = session_id
        self.refused: list[RefusedAction] = []
        self._folder = folder
        self.failed = False
        self.was_asked = False
        self.granted: dict[str, str] = {}
        self._asking: set[asyncio.Future[Permission]] = set()
        self.session_usd: float | None = None
        self.refused_usd: float | None = None
        self.fault: Exception | None = None
        self._preset = preset
        self._emit = emit
        self._pieces: list[_TextPiece] = []
        self._thoughts: list[str] = []
        self._tools: dict[str, schema.ToolCallUpdate] = {}
        self._announced: set[str] = set()
        self._told: StatusEvent | None = None
        self._is_generating = False

    def take(self, update: BaseModel) -> None:
        """Read an update; ignore one that says nothing about the answer."""
        if isinstance(update, schema.AgentMessageChunk):
            self._say(update)
        elif isinstance(update, schema.AgentThoughtChunk):
            self._tell("analyzing")
            self._thoughts.append(_text(update))
        elif isinstance(update, (schema.ToolCallStart, schema.ToolCallProgress)):
            self.use(update)
        elif isinstance(update, schema.AgentPlanUpdate):
            done = sum(entry.status == "completed" for entry in update.entries)
            self._tell("analyzing", "plan", done / len(update.entries) if update.entries else None)
        elif isinstance(update, schema.UsageUpdate):
            if update.cost and update.cost.currency == "USD":
                self._count(update.cost.amount)
        elif isinstance(update, schema.SessionInfoUpdate):
            key_path, value = self._preset.failed
            self.failed = self.failed or get_at_path(update.field_meta, key_path) == value

    def _count(self, session_usd: float) -> None:
        if 0 <= session_usd < math.inf:
            self.session_usd = session_usd
        else:
            self.refused_usd = session_usd

    def use(self, update: schema.ToolCall | schema.ToolCallUpdate) -> schema.ToolCallUpdate:
        """Merge a tool call with its earlier updates; a permission request may come first."""
        merged = self._tools.get(update.tool_call_id)
        if merged is None:
            merged = schema.ToolCallUpdate(tool_call_id=update.tool_call_id)
        fields = {key: value for key, value in update if key in _MERGED and value is not None}
        if "raw_input" in fields:
            fields["raw_input"] = _with_folder(fields["raw_input"], merged.raw_input)
        self._tools[update.tool_call_id] = merged = merged.model_copy(update=fields)
        is_new = merged.tool_call_id not in self._announced
        is_over = merged.status in ("completed", "failed")
        # Some agents announce a call under a general title, and its input a moment later.
        is_vague = merged.status == "pending" and not (merged.raw_input or merged.locations)
        if is_new if is_over else not is_vague:
            self._announced.add(merged.tool_call_id)
            self._tell("calling_tool", describe_acp_tool(merged, self._folder).status.detail)
        return merged

    @property
    def has_begun(self) -> bool:
        """True if the agent has said or done something."""
        return bool(self.last_remark or self._thoughts or self._tools or self.refused)

    async def permit(self, request: PermissionRequest, use: ToolUse) -> Permission:
        """Return the decision about a request; report the use of a tool that is denied.

        The reply may end before a decision; nothing is allowed after that.
        """
        asking = asyncio.ensure_future(self._emit.permit(request))
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._asking.discard(asking)
            asking.cancel()
        if asking.cancelled():
            return Permission("denied", "the reply has ended")
        if error := asking.exception():
            fault = error if isinstance(error, Exception) else RuntimeError(str(error))
            self.fault = self.fault or fault
            return Permission("denied", "arena cannot decide now")
        permission = asking.result()
        self.was_asked = self.was_asked or permission.verdict == "asked"
        if permission.verdict == "denied":
            self.refuse(use, permission_requests.REFUSED_BY)
        return permission

    def close(self) -> None:
        """End the requests that are still undecided: the reply is over."""
        for asking in self._asking:
            asking.cancel()

    def refuse(self, use: ToolUse, by: str = "permissions") -> None:
        """Report that the agent was not allowed to use a tool; `by` is the setting that decided."""
        action = RefusedAction(tool=use.tool, target=use.target, by=by)
        self.refused.append(action)
        self._send(action)

    def output(self, answer: schema.PromptResponse, cost_usd: float | None) -> AgentOutput:
        """Return the answer: the last message, or the text after the last tool call.

        Earlier messages are comments, or attempts that the agent gave up. If it numbers its
        messages, text without a number is a remark of its program.
        """
        messages, remarks = self._said()
        metadata: dict[str, Any] = {
            "thinking": "".join(self._thoughts).strip(),
            "earlier_text": _BETWEEN.join(messages[:-1]),
            "remarks": remarks,
            "raw": self.raw(answer),
        }
        return AgentOutput(
            content=messages[-1] if messages else "",
            usage=_usage(answer, self._preset.usage_at, cost_usd),
            metadata={name: value for name, value in metadata.items() if value},
        )

    def raw(self, answer: schema.PromptResponse) -> dict[str, Any]:
        """Return the agent's response to the prompt, and a summary of its last tool calls."""
        tools = [
            {
                "title": cut_text(tool.title or "", _TITLE_CHARS),
                **tool.model_dump(include={"kind", "status"}, exclude_none=True),
            }
            for tool in list(self._tools.values())[-_TOOLS_KEPT:]
        ]
        response = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {
            name: value for name, value in (("answer", response), ("tool_calls", tools)) if value
        }

    @property
    def last_remark(self) -> str:
        """The last text of the agent, to explain a failure."""
        return next((piece.text for piece in reversed(self._pieces) if piece.text), "")

    def _say(self, chunk: schema.AgentMessageChunk) -> None:
        if not self._is_generating:
            self._is_generating = True
            self._tell("generating")
        text = _text(chunk)
        if not text:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is None or (last.id, last.after) != (chunk.message_id, len(self._tools)):
            if last is not None and last.text:
                self._send(TextDelta(_BETWEEN))
            last = _TextPiece(chunk.message_id, len(self._tools))
            self._pieces.append(last)
        last.parts.append(text)
        self._send(TextDelta(text))

    def _send(self, item: AgentReport) -> None:
        """Emit an item; keep an exception of the receiver until the answer is awaited."""
        if self.fault is None:
            try:
                self._emit(item)
            except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
                self.fault = error

    def _tell(self, status: Status, detail: str = "", progress: float | None = None) -> None:
        """Emit the agent's status if it has changed."""
        event = StatusEvent(status=status, detail=detail, progress=progress)
        if event != self._told:
            self._told = event
            self._send(event)

    def _said(self) -> tuple[list[str], str]:
        """Return the messages with a text, and the remarks of the agent's program."""
        pieces = [piece for piece in self._pieces if piece.text]
        is_numbered = any(piece.id for piece in pieces)
        remarks = [piece.text for piece in pieces if is_numbered and not piece.id]
        messages = [piece.text for piece in pieces if piece.id or not is_numbered]
        return messages, _BETWEEN.join(remarks)


def _text(chunk: schema.AgentMessageChunk | schema.AgentThoughtChunk) -> str:
    content = chunk.content
    return content.text if isinstance(content, schema.TextContentBlock) else ""


_FOLDER_KEYS = frozenset({"cwd", "workdir"})


def _with_folder(arguments: Any, earlier: Any) -> Any:
    """Return the arguments with the working folder that only earlier ones name, as of opencode."""
    if not isinstance(arguments, dict) or not isinstance(earlier, dict):
        return arguments
    if arguments.keys() & _FOLDER_KEYS:
        return arguments
    return {**{key: earlier[key] for key in _FOLDER_KEYS & earlier.keys()}, **arguments}


def describe_acp_tool(tool: schema.ToolCallUpdate, folder: Path) -> ToolUse:
    """Return the use of a tool by its title, and its command or path if the title lacks it.

    A title that begins with a path or a command gets the kind of the tool in front.
    """
    title = " ".join((tool.title or tool.kind or "a tool").split()).replace(f"{folder}/", "")
    paths = [shorten_path(location.path, folder) for location in tool.locations or []]
    has_verb = title.partition(" ")[0].isalpha() and not title.startswith(tuple(paths))
    if tool.kind and tool.kind != "other" and not has_verb:
        title = f"{tool.kind} {title}"
    use = describe_tool_use(cut_text(title, _TITLE_CHARS), tool.raw_input, folder)
    if not use.target and paths:
        use = ToolUse(use.tool, paths[0])
    return use if use.target not in title else ToolUse(use.tool)


_CHANGES = frozenset({"edit", "delete", "move"})
_READS = frozenset({"read", "search"})
_ACTIONS = {
    "execute": permission_requests.EXECUTE,
    "fetch": permission_requests.CALL,
    **dict.fromkeys(_CHANGES, permission_requests.MODIFY),
    **dict.fromkeys(_READS, permission_requests.READ),
}
_PATHS = ("path", "file_path", "filePath", "filepath", "absolute_path", "notebook_path")


def list_changes(tool: schema.ToolCallUpdate) -> list[Change]:
    """Return the changes of files that a tool call shows."""
    edits = [
        edit for edit in tool.content or [] if isinstance(edit, schema.FileEditToolCallContent)
    ]
    return [Change(edit.path, edit.old_text or "", edit.new_text) for edit in edits]


# Gemini names a command's folder in a text only, before the description.
_FOLDER = re.compile(r"\[(?:in|current working directory) (.+?)\](?: \(|$)")


def _read_folder(tool: schema.ToolCallUpdate) -> dict[str, str]:
    """Return the working folder that the content of a tool call names, as an argument."""
    for block in tool.content or []:
        text = getattr(getattr(block, "content", None), "text", "")
        if isinstance(text, str) and (match := _FOLDER.match(text)):
            return {"cwd": match[1]}
    return {}


def describe_acp_act(tool: schema.ToolCallUpdate, folder: Path) -> PermissionRequest:
    """Return what an agent wants to do with a tool, by its arguments before its title."""
    raw_arguments = tool.raw_input if isinstance(tool.raw_input, dict) else {}
    title, kind = tool.title or tool.kind or "a tool", tool.kind or "other"
    command = raw_arguments.get("command") or raw_arguments.get("cmd")
    if command or (kind == "execute" and not raw_arguments):
        arguments = raw_arguments or _read_folder(tool)
        return permission_requests.describe_command(kind, command or title, arguments, folder)
    if (request := _describe_file_act(tool, kind, raw_arguments, folder)) is not None:
        return request
    if kind == "fetch" and (target := _find_target(raw_arguments, title)):
        return permission_requests.describe_call(kind, target, raw_arguments)
    action = _ACTIONS.get(kind, permission_requests.OTHER)
    return permission_requests.describe_other(title, raw_arguments, action)


def _describe_file_act(
    tool: schema.ToolCallUpdate, kind: str, arguments: dict[str, Any], folder: Path
) -> PermissionRequest | None:
    """Return the change or the reading of files; None for other acts."""
    paths = [location.path for location in tool.locations or []]
    paths += [arguments[key] for key in _PATHS if isinstance(arguments.get(key), str)]
    changes = list_changes(tool)
    if changes or (kind in _CHANGES and paths):
        return permission_requests.describe_edit(kind, paths, changes, arguments, folder)
    if kind in _READS and paths:
        return permission_requests.describe_reading(kind, paths, arguments, folder)
    return None


def _find_target(arguments: dict[str, Any], title: str) -> str:
    """Return what is called: by the arguments, by the title if there are none."""
    return str(arguments.get("url") or arguments.get("query") or ("" if arguments else title))


def _usage(answer: schema.PromptResponse, key_path: str, cost_usd: float | None) -> Usage | None:
    """Return the usage of this prompt, from the protocol's field or from `key_path` in `_meta`."""
    reported = answer.usage
    if reported is not None and reported.total_tokens:
        thought = reported.thought_tokens or 0
        cached = (reported.cached_read_tokens or 0, reported.cached_write_tokens or 0)
        counted = reported.input_tokens + reported.output_tokens + sum(cached)
        return Usage(
            input_tokens=reported.input_tokens,
            output_tokens=reported.output_tokens
            + (thought if thought and reported.total_tokens == counted + thought else 0),
            cache_read_tokens=cached[0],
            cache_write_tokens=cached[1],
            cost_usd=cost_usd,
        )
    count = get_at_path(answer.field_meta, key_path)
    names = ("input_tokens", "output_tokens")
    tokens = [count.get(name) for name in names] if isinstance(count, dict) else [None]
    if not all(isinstance(number, int) and number >= 0 for number in tokens):
        return None
    return Usage(input_tokens=tokens[0], output_tokens=tokens[1], cost_usd=cost_usd)


AUTH_REQUIRED = -32000  # agentclientprotocol.com/protocol/schema, ErrorCode
_SHOWN = 300

_INTERNAL = re.compile(r"^internal error\W*", re.IGNORECASE)
_STATUS = re.compile(
    r"(?:error|status|code|rejected|http)\W{0,4}(?:code\W{0,4})?([45]\d\d)\b", re.IGNORECASE
)


class RemoteError(NamedTuple):
    """An error of the agent: its JSON-RPC code (for some agents an HTTP status) and its text."""

    code: object
    message: str
    data: object = None

    @property
    def text(self) -> str:
        """The message in one line, extracted if it is a provider's JSON."""
        details = self.data.get("details") if isinstance(self.data, dict) else None
        message = http.said_in(self.message)
        if isinstance(details, str) and details not in message:
            message = f"{message}: {details}"
        return cut_text(" ".join(message.split()), _SHOWN)

    @property
    def cause(self) -> str:
        """The text without the words that the protocol has for every internal error."""
        return _INTERNAL.sub("", self.text)


def failure(request: HttpRequest, remote_error: RemoteError, says: Mapping[str, int]) -> AgentError:
    """Return the error for an agent's error response; `says` maps patterns to HTTP statuses."""
    status = _status(remote_error, says)
    kind: type[AgentError] = AgentProtocolError
    problem, mend = "it answered with an error", ""
    is_cut_off = diagnosis.is_cut_off(remote_error.text)
    if is_cut_off:
        problem = "its answer was cut off"
        mend = "raise the limit in the agent's own settings, or ask for a shorter answer"
    elif remote_error.code == AUTH_REQUIRED:
        kind, problem, mend = AgentRefused, "it is not logged in", request.key
    elif status is not None:
        error = http.status_failure(request, status, {}, remote_error.text)
        if status == 404:
            error.mend = "see `model` in its profile"
        return error
    return kind(
        request.agent_id,
        problem,
        asked=request.url,
        came=remote_error.text,
        mend=mend,
        again=not is_cut_off,
    )


def _status(remote_error: RemoteError, says: Mapping[str, int]) -> int | None:
    """Return the HTTP status that the error amounts to, None if it names none."""
    if isinstance(remote_error.code, int) and 400 <= remote_error.code < 600:
        return remote_error.code
    full_text = f"{remote_error.text} {json.dumps(remote_error.data)}"
    match = _STATUS.search(remote_error.text)
    status_in_text = int(match[1]) if match else None
    for words, status in says.items():
        if re.search(words, full_text):
            # A server error may be overload, which the text says.
            return (
                status_in_text
                if status_in_text and status == HTTPStatus.INTERNAL_SERVER_ERROR
                else status
            )
    if status_in_text:
        return status_in_text
    if http.is_too_long(0, remote_error.text):
        return 400
    return diagnosis.find_status(remote_error.cause or remote_error.text)
