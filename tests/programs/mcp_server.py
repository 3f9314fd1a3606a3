"""An MCP server by the official SDK: tools of every kind, over stdio or `--http PORT`."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()

server = MCPServer("tests")
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS)
def read_pid() -> str:
    """Return the server's process id."""
    return str(os.getpid())


@server.tool(annotations=READS)
def read_variables(names: list[str]) -> str:
    """Return variables of the environment."""
    return json.dumps({name: os.environ.get(name) for name in names})


@server.tool()
def write_issue(title: str) -> str:
    """Write an issue."""
    with Path("issues.txt").open("a", encoding="utf-8") as file:
        file.write(title + "\n")
    return f"wrote {title}"


@server.tool(annotations=READS)
async def read_slowly(seconds: float) -> str:
    """Return after a while."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool(annotations=READS)
def read_nothing() -> str:
    """Fail."""
    raise ValueError("nothing there")


@server.tool(annotations=READS)
def read_everything() -> CallToolResult:
    """Return content of all types."""
    blob = base64.b64encode(b"\x00\x01").decode()
    return CallToolResult(
        content=[
            TextContent(text="first"),
            ImageContent(data=PNG, mime_type="image/png"),
            AudioContent(data=blob, mime_type="audio/wav"),
            ResourceLink(name="report", uri="file:///report.pdf", mime_type="application/pdf"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="inside")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///b.dat", blob=blob)),
            TextContent(text="last"),
        ]
    )


@server.tool(annotations=READS)
def read_structured() -> CallToolResult:
    """Return data only."""
    return CallToolResult(content=[], structured_content={"count": 3})


@server.tool(annotations=READS)
async def read_with_progress(context: Context[Any, Any]) -> str:
    """Report progress."""
    await context.report_progress(1, 4, "one of four")
    await context.report_progress(4, 4, "all")
    return "done"


@server.tool(annotations=READS)
async def read_after_question(context: Context[Any, Any]) -> str:
    """Ask a person, by elicitation of the protocol."""
    from pydantic import BaseModel

    class Name(BaseModel):
        name: str

    answer = await context.elicit("your name?", Name)
    return f"answer: {answer.action}"


@server.tool(annotations=READS)
async def read_new_tool(context: Context[Any, Any]) -> str:
    """Add a tool, and report that the list has changed."""

    def read_added() -> str:
        """Return a text."""
        return "of the added tool"

    server.add_tool(read_added, annotations=READS)
    await context.notify_tools_changed()
    return "added"


@server.tool()
def start_child() -> str:
    """Start a process that stays, in a session of its own."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    return str(child.pid)


@server.tool()
def end_yourself() -> str:
    """End the server."""
    os._exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    options = parser.parse_args()
    if options.http:
        server.run("streamable-http", port=options.http)
    else:
        server.run("stdio")
