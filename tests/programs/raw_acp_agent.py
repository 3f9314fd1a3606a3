"""An agent of the Agent Client Protocol that answers with whatever it is told to, right or wrong.

    raw_acp_agent.py PLAN

PLAN is a JSON file: by method, the messages that are written at once when that is asked; "ID" as an
`id` is that of the request. What is not in it is answered as it should be. Answers to the agent's
own requests go to stderr, a line each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PLAN: dict[str, list[dict[str, Any]]] = {
    "initialize": [{"id": "ID", "result": {"protocolVersion": 1}}],
    "session/new": [{"id": "ID", "result": {"sessionId": "s"}}],
    "session/prompt": [{"id": "ID", "result": {"stopReason": "end_turn"}}],
    **json.loads(Path(sys.argv[1]).read_text("utf-8")),
}
for line in sys.stdin:
    asked = json.loads(line)
    if "method" not in asked:
        sys.stderr.write(line)
        sys.stderr.flush()
    lines = []
    for message in PLAN.get(asked.get("method", ""), []):
        identity = {"id": asked["id"]} if message.get("id") == "ID" else {}
        lines.append(json.dumps({"jsonrpc": "2.0", **message, **identity}) + "\n")
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
