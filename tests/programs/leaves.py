"""An agent that starts programs which sleep for long, and then does what it is asked.

"hang": it sleeps, too; "fail": it ends without an answer (as a function: raises); else it answers.
One JSON input a line on stdin, one JSON result a line on stdout, until stdin is closed; with the
argument `acp` in the Agent Client Protocol; or as `leaves.py:answer`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def leave(*, escape: bool) -> None:
    subprocess.Popen(
        SLEEP,
        start_new_session=escape,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def work(asked: str) -> str:
    leave(escape=False)
    if "escape" in asked:
        leave(escape=True)
    Path("ready").touch()
    if "hang" in asked:
        time.sleep(600)
    if "fail" in asked:
        raise RuntimeError("as asked")
    return "answered"


def answer(input: Any) -> str:
    return work(input.messages[-1].content)


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def handle(given: dict) -> None:
    """One input, or one request of the Agent Client Protocol."""
    method, params = given.get("method"), given.get("params", {})
    if method is None:
        say(type="result", content=work(given["messages"][-1]["content"]))
    elif method == "initialize":
        say(jsonrpc="2.0", id=given["id"], result={"protocolVersion": 1})
    elif method == "session/new":
        say(jsonrpc="2.0", id=given["id"], result={"sessionId": "one"})
    elif method == "session/prompt":
        asked = "".join(part["text"] for part in params["prompt"])
        content = {"type": "text", "text": work(asked)}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        say(
            jsonrpc="2.0",
            method="session/update",
            params={"sessionId": params["sessionId"], "update": update},
        )
        say(jsonrpc="2.0", id=given["id"], result={"stopReason": "end_turn"})


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            handle(json.loads(line))
        except RuntimeError:
            os._exit(3)
