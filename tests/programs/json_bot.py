"""A program that is kept alive and speaks the protocol: an AgentInput a line, JSON lines back.

What the last message says: `who`: its pid and how many inputs it has read, the first of them with a
call of `dev`; `raw TEXT`: the text as a line; `exit N`; `hang FILE`: write its pid to FILE, never
answer.
"""

import json
import os
import sys
import time
from pathlib import Path


def tell(line: str) -> None:
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


for count, line in enumerate(sys.stdin.buffer, 1):
    given = json.loads(line)
    verb, _, rest = given["messages"][-1]["content"].partition(" ")
    if verb == "who":
        tell("a banner")
        tell(json.dumps({"type": "progress", "content": "not yet"}))
        answer = {"type": "result", "content": f"{os.getpid()} {count}"}
        tell(json.dumps(answer | ({"next_mentions": ["dev"]} if count == 1 else {})))
    elif verb == "raw":
        tell(rest)
    elif verb == "exit":
        sys.stderr.write("dying\n")
        sys.stderr.flush()
        os._exit(int(rest))
    elif verb == "hang":
        Path(rest + ".part").write_text(str(os.getpid()), encoding="utf-8")
        Path(rest + ".part").rename(rest)
        time.sleep(600)
