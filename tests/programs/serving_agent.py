"""Stands for Gemini CLI: calls tools of arena, as its MCP server would, then says what they gave.

Its calls are in `calls.json` of the workspace.
"""

import json
import sys
import time
from pathlib import Path

from arena_cli.engine.inbox import ControlRequest, Inbox

root = Path(__file__).resolve().parent
(session,) = [path.parent for path in (root / "sessions").glob("*/transcript.jsonl")]
inbox = Inbox.of_calls(session, "helper")
texts = []
for call in json.loads((root / "calls.json").read_text()):
    path = inbox.put(ControlRequest(act="tool_call", **call))
    while (outcome := inbox.read_answer(path)) is None:
        time.sleep(0.02)
    texts.append(json.loads(outcome.text)["text"])
for event in (
    {"type": "init", "session_id": "s1", "model": "m"},
    {"type": "message", "role": "assistant", "content": "; ".join(texts), "delta": True},
    {"type": "result", "status": "success", "stats": {"input_tokens": 1, "output_tokens": 1}},
):
    print(json.dumps(event))
sys.stdout.flush()
