"""A program that plays what a `plan.json` says, one entry a call, and keeps what it was given.

It stands in the folder PLAY_FOLDER. An entry: {"stdout": text, "stderr": text, "code": 0,
"sleep": false}; the last one is played for ever. What it was given is a line of `calls.jsonl`:
{"args": [...], "stdin": text, "env": {...}, "pid": 1}.
"""

import json
import os
import sys
import time
from pathlib import Path

folder = Path(os.environ["PLAY_FOLDER"])
plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
given = {
    "args": sys.argv[1:],
    "stdin": sys.stdin.buffer.read().decode("utf-8"),
    "env": dict(os.environ),
    "pid": os.getpid(),
}
calls = folder / "calls.jsonl"
done = len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0
entry = plan[min(done, len(plan) - 1)]
# Before the output: arena may end this program as soon as it has read it.
with calls.open("a", encoding="utf-8", newline="\n") as file:
    file.write(json.dumps(given) + "\n")
for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
    stream.buffer.write(entry.get(name, "").encode("utf-8"))
    stream.flush()
if entry.get("sleep"):
    time.sleep(600)
sys.exit(entry.get("code", 0))
