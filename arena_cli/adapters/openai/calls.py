"""Read the calls of tools in answers of OpenAI's protocol, streamed or whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from arena_cli.adapters import tool_calls
from arena_cli.adapters.tool_calls import ToolNames
from arena_cli.protocol import ToolCall

Message = dict[str, Any]


def function_call(call_id: str, name: str, arguments: str) -> Message:
    """Return a call as a message has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def dump(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


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
        self.call_id = self.call_id or _text(piece.get("id"))
        function = piece.get("function")
        if isinstance(function, dict):
            name = _text(function.get("name"))
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
        call_id = _text(piece.get("id"))
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
        return [
            {**call.more, **function_call(call.call_id, call.name, _as_text(call.arguments))}
            for call in self._calls
        ]

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
            text = "{}" if problem else dump(arguments)
            sent.append({**call.more, **function_call(call_id, call.name, text)})
        return calls, sent


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else dump(arguments)
