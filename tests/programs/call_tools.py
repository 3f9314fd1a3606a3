"""A stand-in for opencode that calls tools of arena's MCP server, and keeps the results.

What it calls stands in CALLS_FOLDER/calls.json, by its runs: steps, each a list of calls that are
made at once ([name, arguments]), then a text to say. `"tools"` in place of a call lists
them; `"die"` ends the program, `"stay"` lets it wait. Each result is a line of results.jsonl.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

folder = Path(os.environ["CALLS_FOLDER"])


def keep(value: Any) -> None:
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


async def make(client: Any, call: Any) -> None:
    if call == "tools":
        listed = await client.list_tools()
        keep({"tools": [tool.name for tool in listed.tools]})
    elif call == "die":
        os._exit(3)
    elif call == "stay":
        keep({"stays": os.getpid()})
        await asyncio.sleep(600)
    else:
        result = await client.call_tool(call[0], call[1])
        keep({"tool": call[0], "error": result.is_error, "text": result.content[0].text})


async def main() -> None:
    runs = folder / "runs"
    done = int(runs.read_text()) if runs.exists() else 0
    runs.write_text(str(done + 1))
    plans = json.loads((folder / "calls.json").read_text(encoding="utf-8"))
    *steps, text = plans[min(done, len(plans) - 1)]
    config = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
    keep({"config": config, "permission": json.loads(os.environ["OPENCODE_PERMISSION"])})
    if steps:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters

        program, *args = config["mcp"]["arena"]["command"]
        server = StdioServerParameters(command=program, args=args, env=dict(os.environ))
        async with Client(server) as client:
            for step in steps:
                await asyncio.gather(*(make(client, call) for call in step))
    part = {"type": "text", "text": text, "time": {"start": 1, "end": 2}}
    tokens = {"input": 12, "output": 9, "reasoning": 0, "cache": {"write": 0, "read": 0}}
    for kind, fields in (
        ("step_start", {"type": "step-start"}),
        ("text", part),
        ("step_finish", {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0}),
    ):
        print(json.dumps({"type": kind, "sessionID": "ses_1", "part": fields}))


sys.stdin.read()
asyncio.run(main())
