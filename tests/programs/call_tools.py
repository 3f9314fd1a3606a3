"""A stand-in for opencode that calls tools of arena's MCP server, and keeps the results.

What it calls stands in CALLS_FOLDER/calls.json, by its runs: steps, each a list of calls that are
made at once ([name, arguments]), then a text to say. `"tools"` in place of a call lists
them; `"die"` ends the program, `"stay"` lets it wait. `["wait", FILE]` in place of a call waits
until the file of CALLS_FOLDER is there. Each result is a line of results.jsonl. CALLS_ARENA is a
faster way to start arena than that in the given command.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

folder = Path(os.environ["CALLS_FOLDER"])


def keep(value: Any) -> None:
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


class Client:
    """A server's client without a library, which would take longer than all the rest."""

    def __init__(self, command: list[str]) -> None:
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        self._count = 0
        about = {"capabilities": {}, "clientInfo": {"name": "calls", "version": "1"}}
        self.ask(("initialize", {"protocolVersion": "2025-06-18", **about}))
        self._write(method="notifications/initialized")

    def ask(self, *requests: tuple[str, Any]) -> list[Any]:
        """Make these requests at once; return their results."""
        assert self._server.stdout
        first, results = self._count, {}
        for method, params in requests:
            while method == "wait" and not (folder / params).exists():
                time.sleep(0.02)
            if method == "wait":
                continue
            self._write(id=self._count, method=method, params=params)
            self._count += 1
        while len(results) < self._count - first:
            answer = json.loads(self._server.stdout.readline())
            if "method" not in answer:
                results[answer["id"]] = answer["result"]
        return [results[number] for number in range(first, self._count)]

    def end(self) -> None:
        self._server.communicate()

    def _write(self, **message: Any) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._server.stdin.flush()


def take(client: Client, step: list[Any]) -> None:
    if step == ["tools"]:
        (listed,) = client.ask(("tools/list", {}))
        keep({"tools": [tool["name"] for tool in listed["tools"]]})
    elif step == ["die"]:
        os._exit(3)
    elif step == ["stay"]:
        keep({"stays": os.getpid()})
        time.sleep(600)
    else:
        requests = [
            ("wait", given)
            if name == "wait"
            else ("tools/call", {"name": name, "arguments": given})
            for name, given in step
        ]
        calls = [name for name, _ in step if name != "wait"]
        for name, result in zip(calls, client.ask(*requests), strict=True):
            is_error, text = result.get("isError", False), result["content"][0]["text"]
            keep({"tool": name, "error": is_error, "text": text})


def main() -> None:
    runs = folder / "runs"
    done = int(runs.read_text()) if runs.exists() else 0
    runs.write_text(str(done + 1))
    plans = json.loads((folder / "calls.json").read_text(encoding="utf-8"))
    *steps, text = plans[min(done, len(plans) - 1)]
    config = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
    keep({"config": config, "permission": json.loads(os.environ["OPENCODE_PERMISSION"])})
    if steps:
        command = config["mcp"]["arena"]["command"]
        if "CALLS_ARENA" in os.environ:
            options = command[command.index("--workspace") :]
            command = [*json.loads(os.environ["CALLS_ARENA"]), *options]
        client = Client(command)
        for step in steps:
            take(client, step)
        client.end()
    part = {"type": "text", "text": text, "time": {"start": 1, "end": 2}}
    tokens = {"input": 12, "output": 9, "reasoning": 0, "cache": {"write": 0, "read": 0}}
    for kind, fields in (
        ("step_start", {"type": "step-start"}),
        ("text", part),
        ("step_finish", {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0}),
    ):
        print(json.dumps({"type": kind, "sessionID": "ses_1", "part": fields}))


sys.stdin.read()
main()
