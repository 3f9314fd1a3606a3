"""An MCP server of the older protocol without a library, which misbehaves as its arguments say."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FLAWS = set(sys.argv[1:])
FORM = {"type": "object", "properties": {}}
ASKED: dict[str, Any] = {
    "elicitation/create": {"message": "name?", "requestedSchema": FORM},
    "sampling/createMessage": {"messages": [], "maxTokens": 9},
    "roots/list": {},
}
TOOLS: list[Any] = [
    {"name": "pid", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "die", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "hang", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "odd", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "variables", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "write_issue", "inputSchema": {"type": "object"}},
]
LIES: list[Any] = [
    {"name": "untyped", "inputSchema": {"properties": {}}, "annotations": {"readOnlyHint": True}},
    {"name": "text", "inputSchema": "garbage"},
    {"name": "lies", "inputSchema": {"type": "object", "properties": {"a": {"type": "objekt"}}}},
    {
        "name": "slow",
        "inputSchema": {"type": "object", "properties": {"a": {"pattern": "^(a|aa)+$"}}},
    },
    {
        "name": "slow_names",
        "inputSchema": {"type": "object", "patternProperties": {"^(a|aa)+$": {}}},
    },
    {
        "name": "far",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/"}}},
    },
    {"name": "查询", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"inputSchema": {"type": "object"}},
    {"name": "no name\nfor a model", "inputSchema": {"type": "object"}},
    "no tool at all",
]
if "lies" in FLAWS:
    TOOLS += LIES


def write(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        raise SystemExit
    message: dict[str, Any] = json.loads(line)
    return message


def list_tools(cursor: str | None) -> dict[str, Any]:
    """Return all tools; with `pages`, one a page."""
    if "pages" not in FLAWS:
        return {"tools": TOOLS}
    at = int(cursor or 0)
    page: dict[str, Any] = {"tools": TOOLS[at : at + 1]}
    return page | ({"nextCursor": str(at + 1)} if at + 1 < len(TOOLS) else {})


def ask() -> str:
    """Ask for all that a client may be asked for; return its answers."""
    answers = []
    for number, (method, params) in enumerate(ASKED.items()):
        write(id=f"q{number}", method=method, params=params)
        answer = read()
        while answer.get("id") != f"q{number}":
            answer = read()
        answers.append(answer.get("error", {}).get("message") or json.dumps(answer["result"]))
    return " | ".join(answers)


def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    text = str(os.getpid())
    if tool == "die":
        print("out of memory in the engine room", file=sys.stderr, flush=True)
        os._exit(3)
    elif tool == "hang":
        time.sleep(600)
    elif tool == "ask":
        text = ask()
    elif tool == "odd":
        return {"content": "this is no list"}
    elif tool == "variables":
        text = json.dumps({name: os.environ.get(name) for name in arguments["names"]})
    elif tool == "write_issue":
        with Path("issues.txt").open("a", encoding="utf-8") as file:
            file.write(f"{arguments['title']}\n")
    elif tool == "add":
        TOOLS.append({**TOOLS[0], "name": "added"})
        write(method="notifications/tools/list_changed")
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    if "counts" in FLAWS:
        with Path("starts").open("a", encoding="utf-8") as file:
            file.write("x")
    if "noise" in FLAWS:
        print("Server listening...\n{not json}\n[1]", flush=True)
    if "quits" in FLAWS:
        sys.exit("no config file")
    if "hangs" in FLAWS:
        print("waiting for the database", file=sys.stderr, flush=True)
        time.sleep(600)
    while True:
        message = read()
        if "id" not in message:
            continue
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            about = {"name": "raw", "version": "1"}
            version = params["protocolVersion"]
            tools = {"tools": {"listChanged": True}}
            result = {"protocolVersion": version, "capabilities": tools, "serverInfo": about}
            write(id=message["id"], result=result)
        elif method == "tools/list":
            write(id=message["id"], result=list_tools(params.get("cursor")))
        elif method == "tools/call":
            write(id=message["id"], result=call(params["name"], params.get("arguments") or {}))
        else:
            write(id=message["id"], error={"code": -32601, "message": "unknown method"})


main()
