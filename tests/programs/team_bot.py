"""Functions for the kind `python`."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from arena_cli.protocol import AgentInput, AgentOutput

seen: list[Any] = []


def echo(input: AgentInput) -> str:
    print("printed to stdout")
    print("printed to stderr", file=sys.stderr)
    return f"{input.agent_id}: {input.messages[-1].content}"


def count(input: AgentInput) -> str:
    seen.append(input.turn_id)
    return str(len(seen))


async def later(input: AgentInput) -> AgentOutput:
    await asyncio.sleep(0)
    return AgentOutput(content="later", next_mentions=["b"])


def fields(input: AgentInput) -> dict[str, Any]:
    return {"content": "d", "mood": "good"}


def wrong_field(input: AgentInput) -> dict[str, Any]:
    return {"content": 3}


def nothing(input: AgentInput) -> None:
    seen.append(input)


def number(input: AgentInput) -> int:
    return 4


def unwritable(input: AgentInput) -> dict[str, Any]:
    return {"content": "x", "data": object()}


def half_a_pair(input: AgentInput) -> dict[str, Any]:
    return {"content": "a\ud83db", "metadata": {"deep": ["\ud83d"]}}


def fails(input: AgentInput) -> str:
    raise ValueError("太大了")


def leaves(input: AgentInput) -> str:
    sys.exit(3)


def breaks(input: AgentInput) -> str:
    print("last words", flush=True)
    os._exit(7)


def big(input: AgentInput) -> str:
    os.write(2, b"e" * 1_000_000)
    return "x" * 3_000_000 + str(len(input.messages[-1].content))


def pid(input: AgentInput) -> str:
    return str(os.getpid())


def raw_output(input: AgentInput) -> str:
    os.write(1, b"raw\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return input_of_terminal()


def input_of_terminal() -> str:
    return f"read {sys.stdin.read()!r}"


def hangs(input: AgentInput) -> str:
    marker = input.messages[-1].content
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    whole = Path(marker + ".part")
    whole.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    whole.rename(marker)
    while True:
        time.sleep(0.01)


def leaves_a_thread(input: AgentInput) -> str:
    def print_on() -> None:
        while True:
            print("still here")
            time.sleep(0.01)

    threading.Thread(target=print_on).start()
    return "answered"
