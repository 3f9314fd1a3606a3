"""Define a tool: its specification, the act that people approve, and its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jsonschema

from arena_cli.protocol import COMPLETE_TASK as COMPLETE_TASK  # noqa: PLC0414 - tools know it here
from arena_cli.protocol import (
    Attachment,
    PermissionRequest,
    StatusEvent,
    ToolSpec,
    ToolStatus,
    Usage,
)
from arena_cli.util import json_schemas
from arena_cli.util.text import cut_text

_LONGEST_PROBLEM = 500


class ToolFailed(Exception):
    """A tool could not do it; the text is for the model.

    `status` is how the call ended.
    """

    def __init__(self, text: str, status: ToolStatus = "error") -> None:
        super().__init__(text)
        self.status = status


class SessionLost(ConnectionError):
    """An MCP server does not know its session any more, so it carried out nothing."""


class ToolOutput(NamedTuple):
    """What a tool gave: a text, images and files with their `data`.

    `diff` is the unified diff of the files that it changed. `usage` is that of an agent that was
    called as a tool. `is_error`: the text says what went wrong.
    """

    text: str
    attachments: Sequence[Attachment] = ()
    diff: str = ""
    usage: Usage | None = None
    is_error: bool = False


class ToolScope(NamedTuple):
    """The call that a tool answers: its number in the `reply`, and where progress is reported.

    `permit` asks if another act may be done than the one that was found before; it raises
    ToolFailed if not. Without it, no other may.
    `planned` is the reply itself, for tools of the engine.
    """

    call: str
    report: Callable[[StatusEvent], None]
    reply: int = 0
    permit: Callable[[PermissionRequest], Awaitable[None]] | None = None
    planned: Any = None


class Tool(Protocol):
    """A tool of an agent. `call` raises ToolFailed and CancelledError only.

    If `call` is cancelled, it ends the work itself before it returns. An `idempotent` tool may be
    called again if arena was interrupted before its result. A tool with `internal = True` is part
    of arena: a replay runs it. One with `remind` has a text for the model on every turn.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model is shown it."""
        ...

    @property
    def idempotent(self) -> bool:
        """True if calling it twice does no harm."""
        ...

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        """Return the act that people approve; None if the call needs no approval.

        Raises ToolFailed if the call cannot be made at all, such as a path out of the folder.
        """
        ...

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Call the tool with arguments that fit its schema."""
        ...


def make_spec(name: str, description: str, required: str, **properties: Any) -> ToolSpec:
    """Return a tool with these arguments and no others; `required` are the names of some."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, input_schema=schema)


def find_schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why a text is no JSON Schema, "" if it is one."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except Exception as failure:  # noqa: BLE001 - as below
        message = getattr(failure, "message", "") or str(failure)
        return f"its input schema is invalid: {cut_text(message, _LONGEST_PROBLEM)}"
    return ""


def find_problem(schema: Mapping[str, Any], value: Any, name: str = "arguments") -> str:
    """Return why a value does not fit a JSON Schema, "" if it does."""
    try:
        json_schemas.check_names(schema, value)
        validator = json_schemas.make_validator(jsonschema.Draft202012Validator, schema)
        error = next(iter(validator.iter_errors(value)), None)
    except Exception as failure:  # noqa: BLE001 - a schema that a server made up may break anything
        return f"the schema of the tool is invalid: {cut_text(str(failure), _LONGEST_PROBLEM)}"
    if error is None:
        return ""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    return f"{name}{path}: {cut_text(error.message, _LONGEST_PROBLEM)}"
