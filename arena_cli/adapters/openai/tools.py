"""Offer tools to models of OpenAI's protocol, send the steps of a reply, and read their calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters import reading, tool_calls
from arena_cli.adapters.openai.request import Server, content_of
from arena_cli.adapters.tool_calls import ToolNames
from arena_cli.chat import ChatPart
from arena_cli.protocol import AgentInput, AgentOutput, ToolCall, ToolStep
from arena_cli.util.text import cut_text

Message = dict[str, Any]

SET_JSON_MODE = (
    "set `tools_mode: json` in its adapter, or use a server and a model that support tool calls"
)
# Statuses with which servers say that they cannot call tools; 0 is an error within a stream.
_TELLING = frozenset({0, 400, 404, 405, 422, 500, 501})
_TOOLS = r"\b(?:tools?|tool[_ -](?:choice|calls?|calling|use)|functions?|function[_ -]call\w*)\b"
_NO_TOOLS = re.compile(
    r"(?:not|n't|cannot|no endpoints found that support|unsupported|unknown|unrecognized|requires?)"
    rf"[^.]{{0,60}}{_TOOLS}"
    rf"|{_TOOLS}[^.]{{0,60}}(?:\bnot\b|n't|unsupported|requires?|--jinja|--enable-auto-tool-choice)",
    re.IGNORECASE,
)
_AN_OWN_TOOL = re.compile(r"schema|parameters|arguments|\bname\b", re.IGNORECASE)


class NativeMessage(NamedTuple):
    """An answer as its server wants it back, and the address and model that wrote it."""

    source: str
    message: Message


def _function_call(call_id: str, name: str, arguments: str) -> Message:
    """Return a call as a message has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _dump(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def text_or_empty(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def offer(input: AgentInput, names: ToolNames, server: Server) -> dict[str, Any]:
    """Return the keys of a request that offer the tools of an input; none without tools."""
    offered: list[Message] = []
    for tool in input.tools:
        description, schema = tool_calls.describe_for_api(tool)
        if server.short_descriptions:
            description = cut_text(description, tool_calls.SHORT_DESCRIPTION)
        name = names.sent(tool.name)
        function = {"name": name, "description": description, "parameters": schema}
        offered.append({"type": "function", "function": function})
    return {"tools": offered, "tool_choice": "auto"} if offered else {}


def lacks_tools(status: int, text: str, body: dict[str, Any]) -> bool:
    """Return True if an error means that a server, or its model, cannot call tools."""
    if "tools" not in body or status not in _TELLING:
        return False
    return bool(_NO_TOOLS.search(text)) and not _AN_OWN_TOOL.search(text)


def messages_of_steps(
    steps: Sequence[ToolStep], names: ToolNames, source: str, server: Server, workspace: Path
) -> list[Message]:
    """Return the messages of the steps of a reply: answers, results, and what arena adds.

    Images are in a message of the user after the results, since a result is text.
    """
    messages: list[Message] = []
    for number, step in enumerate(steps, 1):
        native = step.native
        if isinstance(native, NativeMessage) and native.source == source:
            answer = dict(native.message)
        else:
            answer = _rebuild(step, number, names)
        if answer["content"] or "tool_calls" in answer:
            messages.append(_with_thinking(answer, server))
        for call, result in zip(answer.get("tool_calls", []), step.results, strict=False):
            text = result.text if result.status == "ok" else f"{result.status}: {result.text}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        if additions := _rest(step):
            messages.append({"role": "user", "content": content_of(additions, server, workspace)})
    return messages


def messages_in_text(steps: Sequence[ToolStep], server: Server, workspace: Path) -> list[Message]:
    """Return the messages of the steps of a reply whose calls are JSON in text."""
    messages: list[Message] = []
    for step in steps:
        if answer := tool_calls.describe_answer(step):
            messages.append({"role": "assistant", "content": answer})
        results = tool_calls.describe_results(step)
        chat_parts = [*([results] if results else []), *_rest(step)]
        if chat_parts:
            messages.append({"role": "user", "content": content_of(chat_parts, server, workspace)})
    return messages


def join_users(messages: list[Message]) -> list[Message]:
    """Return the messages with those of the user joined that follow each other as text.

    The templates of many models refuse a request whose roles do not alternate.
    """
    joined: list[Message] = []
    for message in messages:
        last: Message = joined[-1] if joined else {}
        previous, added = last.get("content"), message["content"]
        both = last.get("role") == message["role"] == "user"
        if both and isinstance(previous, str) and isinstance(added, str):
            joined[-1] = {"role": "user", "content": f"{previous}\n\n{added}"}
        else:
            joined.append(message)
    return joined


def _rest(step: ToolStep) -> list[ChatPart]:
    """Return the images among the results of a step, and arena's notice."""
    images: list[ChatPart] = []
    for call, result in zip(step.calls, step.results, strict=False):
        if result.attachments:
            names = ", ".join(file.name for file in result.attachments)
            source = _dump([call.tool, names])
            images += [f"From the result of your call (data of the tool): {source}"]
            images += result.attachments
    return [*images, *([step.notice] if step.notice else [])]


def _rebuild(step: ToolStep, number: int, names: ToolNames) -> Message:
    message: Message = {"role": "assistant", "content": step.text}
    calls = [
        _function_call(f"call_{number}_{position}", names.sent(call.tool), _dump(call.arguments))
        for position, call in enumerate(step.calls, 1)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _with_thinking(answer: Message, server: Server) -> Message:
    """Return an answer with its thinking, as far as the server wants it back."""
    message = {key: value for key, value in answer.items() if key != "reasoning_content"}
    if "tool_calls" not in answer or server.thinking_back == "never":
        return message
    thinking = answer.get("reasoning_content", "")
    if thinking or server.thinking_back == "always":
        return {**message, "reasoning_content": thinking}
    return message


def add_calls(
    output: AgentOutput, calls_made: GrowingCalls, thinking: str, input: AgentInput, source: str
) -> AgentOutput:
    """Return the output with the calls of its answer, and the message to send back.

    `thinking` is what the server may want back.
    """
    calls, sent = calls_made.read(ToolNames.of(input), len(input.steps) + 1)
    message: Message = {"role": "assistant", "content": output.content}
    if sent:
        message |= {"tool_calls": sent, **({"reasoning_content": thinking} if thinking else {})}
    with_calls = output.model_copy(update={"tool_calls": calls})
    return with_calls.with_native(NativeMessage(source, message))


def add_calls_in_text(output: AgentOutput, input: AgentInput) -> AgentOutput:
    """Return the output with the calls that its text makes in JSON."""
    without, error = reading.move_thinking(output)
    if error:
        return output
    tool_names = [tool.name for tool in input.tools]
    content, calls = tool_calls.parse_calls(without.content, tool_names)
    if not calls:
        return output
    number = len(input.steps) + 1
    calls = [
        call.model_copy(update={"id": f"call_{number}_{position}"})
        for position, call in enumerate(calls, 1)
    ]
    return without.model_copy(update={"content": content, "tool_calls": calls})


# Read the calls of answers, streamed or whole.


@dataclass
class _GrowingCall:
    """A call as it arrives; `more` are keys that its server may want back."""

    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    whole: object = None
    more: Message = field(default_factory=dict)

    def add(self, piece: Message) -> None:
        """Add a piece of the call."""
        self.call_id = self.call_id or text_or_empty(piece.get("id"))
        function = piece.get("function")
        if isinstance(function, dict):
            name = text_or_empty(function.get("name"))
            # Some servers repeat the name in each piece.
            self.name += "" if name == self.name else name
            arguments = function.get("arguments")
            if isinstance(arguments, str):
                self.pieces.append(arguments)
            elif arguments is not None:
                self.whole = arguments
        standard_keys = ("index", "id", "type", "function")
        self.more.update({key: value for key, value in piece.items() if key not in standard_keys})

    @property
    def arguments(self) -> object:
        """The arguments: JSON text, or what a server sent in its place."""
        return self.whole if self.whole is not None else "".join(self.pieces)


class GrowingCalls:
    """The calls of an answer as they arrive, streamed by index or whole."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        self._by_index: dict[object, _GrowingCall] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def names(self) -> list[str]:
        """The names of the called tools, as the model wrote them."""
        return [call.name for call in self._calls]

    def add(self, pieces: object, *, streamed: bool) -> None:
        """Add the `tool_calls` of a message, or of a piece of a stream."""
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict) and isinstance(piece.get("function"), dict):
                self._find(piece, streamed=streamed).add(piece)

    def _find(self, piece: Message, *, streamed: bool) -> _GrowingCall:
        """Return the call that a piece belongs to.

        Some servers leave out the index, and some give each call the same; then another id, or a
        name without an index, begins a call.
        """
        index = piece.get("index")
        call_id = text_or_empty(piece.get("id"))
        call = self._by_index.get(index) if streamed else None
        if call is not None and call_id and call.call_id not in ("", call_id):
            call = None
        if call is not None and index is None and not call_id and piece["function"].get("name"):
            call = None
        if call is None:
            call = _GrowingCall()
            self._calls.append(call)
            self._by_index[index] = call
        return call

    def raw(self) -> list[Message]:
        """Return the calls as one message has them."""
        messages: list[Message] = []
        for call in self._calls:
            raw = call.arguments
            text = raw if isinstance(raw, str) else _dump(raw)
            messages.append({**call.more, **_function_call(call.call_id, call.name, text)})
        return messages

    def read(self, names: ToolNames, number: int) -> tuple[list[ToolCall], list[Message]]:
        """Return the calls, and as messages to send back; `number` is that of the step.

        A call without an id gets one. Arguments that cannot be read are sent back as none, since
        servers read them again.
        """
        calls: list[ToolCall] = []
        sent: list[Message] = []
        used_ids: set[str] = set()
        for position, call in enumerate(self._calls, 1):
            call_id = call.call_id
            if not call_id or call_id in used_ids:
                call_id = f"call_{number}_{position}"
            used_ids.add(call_id)
            arguments, problem = tool_calls.read_arguments(call.arguments)
            tool = names.own(call.name)
            calls.append(ToolCall(id=call_id, tool=tool, arguments=arguments, problem=problem))
            text = "{}" if problem else _dump(arguments)
            sent.append({**call.more, **_function_call(call_id, call.name, text)})
        return calls, sent
