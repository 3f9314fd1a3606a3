"""Offer tools to models of OpenAI's protocol, send the steps of a reply, and read their calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters import reading, tool_calls
from arena_cli.adapters.openai.calls import dump, function_call
from arena_cli.adapters.openai.request import Server, content_of
from arena_cli.adapters.openai.response import GrowingAnswer
from arena_cli.adapters.tool_calls import ToolNames
from arena_cli.chat import ChatPart
from arena_cli.protocol import AgentInput, AgentOutput, ToolStep
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
            source = json.dumps([call.tool, names], ensure_ascii=False)
            images += [f"From the result of your call (data of the tool): {source}"]
            images += result.attachments
    return [*images, *([step.notice] if step.notice else [])]


def _rebuild(step: ToolStep, number: int, names: ToolNames) -> Message:
    message: Message = {"role": "assistant", "content": step.text}
    calls = [
        function_call(f"call_{number}_{position}", names.sent(call.tool), dump(call.arguments))
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
    output: AgentOutput,
    answer: GrowingAnswer,
    input: AgentInput,
    source: str,
) -> AgentOutput:
    """Return the output with the calls of its answer, and the message to send back."""
    calls, sent = answer.calls.read(ToolNames.of(input), len(input.steps) + 1)
    thinking = "".join(answer.sendable)
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
