"""Speak the Model Context Protocol by its official SDK: connect, list tools, call them.

Imported when a server is started, since the SDK takes a while to load.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import mimetypes
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import arena_cli
from arena_cli.adapters.process.output import LineSplitter, OtherOutput
from arena_cli.adapters.process.spawn import Process
from arena_cli.protocol import Attachment, ToolSpec
from arena_cli.tools.base import SessionLost, ToolFailed, ToolOutput, find_schema_problem
from arena_cli.util.text import clean_text, cut_text
from arena_cli.yamlio.schema_errors import explain_first

LONGEST_MESSAGE = 64 * 1024 * 1024
MOST_PAGES = 100
MOST_TOOLS = 10_000
_CONNECT_S = 30.0
_SILENT_STREAM_S = 300.0
_EXIT_GRACE_S = 0.5
_LONGEST_REASON = 500
_LONGEST_DESCRIPTION = 8000
_ANY_OBJECT = {"type": "object"}
_NAME = re.compile(r"[\w./-]{1,128}")

# The SDK logs what its callers are told by exceptions.
for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

Streams = tuple[Any, Any]


class Connection:
    """An open connection to a server."""

    def __init__(self, client: Client, problems: Mapping[str, str]) -> None:
        self._client = client
        self._problems = problems

    async def list_tools(self) -> list[ToolSpec]:
        """Return the tools of all pages. Raises ToolFailed, ConnectionError."""
        specs: list[ToolSpec] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            with _translated():
                page = await self._client.list_tools(cursor=cursor)
            specs += [self._specify(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or len(specs) >= MOST_TOOLS:
                break
        return specs[:MOST_TOOLS]

    def _specify(self, tool: types.Tool) -> ToolSpec:
        hints = tool.annotations or types.ToolAnnotations()
        problem = self._problems.get(tool.name, "") or find_schema_problem(tool.input_schema)
        return ToolSpec(
            name=tool.name,
            description=cut_text(clean_text(tool.description or "")[0], _LONGEST_DESCRIPTION),
            input_schema=_ANY_OBJECT if problem else tool.input_schema,
            read_only=bool(hints.read_only_hint),
            idempotent=bool(hints.idempotent_hint or hints.read_only_hint),
            problem=problem,
        )

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], on_progress: Any
    ) -> ToolOutput:
        """Call a tool. Raises ToolFailed, ConnectionError."""
        with _translated():
            result = await self._client.call_tool(
                tool, dict(arguments), progress_callback=on_progress
            )
        return read_result(tool, result)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of the SDK as ToolFailed, or as ConnectionError if the server is gone."""
    try:
        yield
    except (MCPError, ValidationError, RuntimeError, BaseExceptionGroup) as raised:
        error = find_cause(raised)
        if isinstance(error, MCPError):
            if error.code == types.CONNECTION_CLOSED:
                raise ConnectionError(error.message) from error
            if error.code == types.INVALID_REQUEST and error.message == "Session terminated":
                raise SessionLost(error.message) from error
            raise ToolFailed(cut_text(error.message, _LONGEST_REASON)) from error
        if isinstance(error, ValidationError):
            problem = f"the server's answer does not follow the protocol: {explain_first(error)}"
            raise ToolFailed(problem) from error
        if not isinstance(error, Exception):
            raise
        raise ToolFailed(cut_text(f"{error}", _LONGEST_REASON)) from error


def find_cause(error: BaseException) -> BaseException:
    """Return the first error in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.asynccontextmanager
async def connect(
    transport: contextlib.AbstractAsyncContextManager[Streams],
    *,
    root: Path,
    on_change: Callable[[], None],
) -> AsyncIterator[Connection]:
    """Open a connection; `on_change` is called when the list of tools has changed.

    `root` is the folder that the server may ask for. It cannot ask persons or models.
    """
    problems: dict[str, str] = {}

    async def list_roots(context: Any) -> types.ListRootsResult:  # noqa: ARG001 - given by the SDK
        return types.ListRootsResult(roots=[types.Root(uri=root.as_uri(), name=root.name)])

    async def note_change(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    client = Client(
        _clean_lists(transport, problems),
        list_roots_callback=list_roots,
        message_handler=note_change,
        client_info=types.Implementation(name="arena", version=arena_cli.__version__),
        cache=None,
    )
    async with client:
        listening = asyncio.create_task(_listen(client, on_change))
        try:
            yield Connection(client, problems)
        finally:
            listening.cancel()
            await asyncio.wait({listening})


async def _listen(client: Client, on_change: Callable[[], None]) -> None:
    """Report changes of the list, of a server that reports them only to those who listen."""
    tools = client.server_capabilities.tools
    is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not (is_modern and tools and tools.list_changed):
        return
    with contextlib.suppress(Exception):
        async with client.listen(tools_list_changed=True) as events:
            async for _ in events:
                on_change()


# Transports.


@contextlib.asynccontextmanager
async def open_pipes(
    process: Process, other: OtherOutput, on_end: Callable[[], None]
) -> AsyncIterator[Streams]:
    """Exchange messages with a program, a line each; all else is added to `other`."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read_messages() -> None:
        try:
            async with incoming:
                await _read_messages(process, other, incoming.send)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the connection was closed meanwhile
        finally:
            on_end()

    async def write_messages() -> None:
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.write(text.encode() + b"\n", last=False)

    async with anyio.create_task_group() as group, incoming, read, write, outgoing:
        group.start_soon(read_messages)
        group.start_soon(write_messages)
        try:
            yield read, write
        finally:
            group.cancel_scope.cancel()


async def _read_messages(
    process: Process, other: OtherOutput, deliver: Callable[[SessionMessage], Awaitable[None]]
) -> None:
    """Read messages until the program ends, or closes its stdout."""
    lines = LineSplitter()
    open_bytes = 0
    while event := await process.event(None if process.returncode is None else _EXIT_GRACE_S):
        if event.source == "stderr":
            other.stderr.add_bytes(event.data)
        elif event.source == "stdout" and not event.data:
            return
        elif event.source == "stdout":
            complete = lines.feed(event.data)
            open_bytes = len(event.data) + (0 if complete else open_bytes)
            if open_bytes > LONGEST_MESSAGE:
                problem = f"\na message has more than {LONGEST_MESSAGE >> 20} MB\n"
                other.stderr.add(problem)
                return
            for line in filter(bytes.strip, complete):
                message = _parse_message(line)
                if message is None:
                    other.log.add(line.decode("utf-8", "replace") + "\n")
                else:
                    await deliver(message)


def _parse_message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


@contextlib.asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], timeout_s: float, on_status: Callable[[int], None]
) -> AsyncIterator[Streams]:
    """Exchange messages with a server by streamable HTTP; `on_status` gets each HTTP status."""

    async def note_status(response: httpx2.Response) -> None:
        on_status(response.status_code)

    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(_CONNECT_S, read=max(_SILENT_STREAM_S, timeout_s)),
        event_hooks={"response": [note_status]},
    )
    async with (
        client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=LONGEST_MESSAGE
        ) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def _clean_lists(
    transport: contextlib.AbstractAsyncContextManager[Streams], problems: dict[str, str]
) -> AsyncIterator[Streams]:
    """Open a transport whose lists of tools are cleaned: one that is none must not lose the others.

    `problems` receives the reason why a tool of the list cannot be called.
    """
    async with transport as (read, write):
        yield _CleanedStream(read, problems), write


class _CleanedStream:
    """The messages of a server, with each list of tools cleaned."""

    def __init__(self, stream: Any, problems: dict[str, str]) -> None:
        self._stream = stream
        self._problems = problems

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, types.JSONRPCResponse) and isinstance(message.result, dict):
                tools = message.result.get("tools")
                if isinstance(tools, list):
                    cleaned = [self._clean(tool) for tool in tools]
                    message.result["tools"] = [tool for tool in cleaned if tool is not None]
            yield item

    def _clean(self, tool: Any) -> dict[str, Any] | None:
        """Return a tool with what arena uses of it; None if it has no name that a model may use."""
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return None
        schema, hints = tool.get("inputSchema"), tool.get("annotations")
        description = tool.get("description")
        self._problems.pop(name, None)
        if not isinstance(schema, dict) or schema.get("type") != "object":
            self._problems[name] = "its input schema is not the JSON Schema of an object"
            schema = _ANY_OBJECT
        return {
            "name": name,
            "description": description if isinstance(description, str) else "",
            "inputSchema": schema,
            "annotations": {
                key: hint
                for key, hint in (hints.items() if isinstance(hints, dict) else ())
                if isinstance(hint, bool)
            },
        }

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, of a stream that knows it."""
        return getattr(self._stream, "last_context", None)

    async def __aenter__(self) -> _CleanedStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


# Results.


def read_result(tool: str, result: types.CallToolResult) -> ToolOutput:
    """Return the result of a call: its texts, its images and other files."""
    texts: list[str] = []
    files: list[Attachment] = []
    for block in result.content:
        name = f"{tool}-{len(files) + 1}"
        if isinstance(block, types.TextContent):
            texts.append(block.text)
        elif isinstance(block, types.ImageContent):
            name += _find_suffix(block.mime_type)
            files.append(Attachment(type="image", name=name, data=block.data))
        elif isinstance(block, types.AudioContent):
            files.append(_make_file(name, block.data, block.mime_type))
            texts.append(f"audio: the attachment {files[-1].name}")
        elif isinstance(block, types.ResourceLink):
            about = [block.title or block.name, block.description, block.mime_type]
            texts.append(f"resource {block.uri}: {', '.join(filter(None, about))}")
        elif isinstance(block.resource, types.TextResourceContents):
            texts.append(f"resource {block.resource.uri}:\n{block.resource.text}")
        else:
            name = Path(str(block.resource.uri).rstrip("/")).name or name
            files.append(_make_file(name, block.resource.blob, block.resource.mime_type))
            texts.append(f"resource {block.resource.uri}: the attachment {files[-1].name}")
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False, indent=2)]
    if files and not texts:
        texts = [f"attached: {', '.join(file.name for file in files)}"]
    return ToolOutput("\n".join(texts), files, is_error=bool(result.is_error))


def _find_suffix(mime_type: str | None) -> str:
    subtype = (mime_type or "").rpartition("/")[2]
    guess = mimetypes.guess_extension(mime_type or "")
    return guess or (f".{subtype}" if subtype.isalnum() else ".bin")


def _make_file(name: str, data: str, mime_type: str | None) -> Attachment:
    """Return a file of base64, or an image; data that is no base64 is kept as it is."""
    if not Path(name).suffix:
        name += _find_suffix(mime_type)
    if (mime_type or "").startswith("image/"):
        return Attachment(type="image", name=name, data=data)
    content: bytes | str
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        content = data
    return Attachment(type="file", name=name, data=content)
