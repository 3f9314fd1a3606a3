"""A secret that enters anywhere leaves nowhere: every place of entry, every output."""

from __future__ import annotations

import contextlib
import gc
import html
import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from product import escape_text, main
from program import Program

# One for each agent and server. Each ends in what JSON, HTML, URLs and shells write otherwise, and
# in a mark by which it is found again in every form.
KEYS = (
    *("REPLY_KEY", "RAISES_TOKEN", "PROGRAM_PASS", "ARGUMENT", "STREAM_PAT", "ECHO_SECRET"),
    *("CUT_PASSWD", "PAGE_AUTH", "SCRIBE_KEY", "CLERK_CREDENTIALS", "JUDGE_PWD", "VECTOR_KEY"),
    *("UNUSED_DSN", "PROXY"),
)
SECRETS = {name: f"leak{n:02}-Zq\"&<'/+x{n:02}end" for n, name in enumerate(KEYS)}
MARKS = [mark for n in range(len(KEYS)) for mark in (f"leak{n:02}", f"x{n:02}end")]
SECRETS["PROXY"] = f"leak{KEYS.index('PROXY'):02}-x{KEYS.index('PROXY'):02}end"
ENV = {f"LEAK_{name}": secret for name, secret in SECRETS.items() if name != "PROXY"}
ENV["HTTPS_PROXY"] = f"http://me:{SECRETS['PROXY']}@127.0.0.1:9"

AGENTS = """
import json, os, sys

PARTS = {
    "task_list": {"title": "%s", "items": [{"text": "%s", "done": False}]},
    "code_block": {"language": "py", "code": "k = %s", "file": "%s.py"},
    "diff": {"file": "%s", "diff": "-%s"},
    "note": {"kind": "decision", "title": "we use %s", "body": "%s"},
    "approval_request": {"title": "%s", "%s": "%s"},
    "architecture_diagram": "graph %s",
}

def filled(value, key):
    if isinstance(value, dict):
        return {filled(k, key): filled(v, key) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(v, key) for v in value]
    return value.replace("%s", key) if isinstance(value, str) else value

def reply(input):
    from base64 import b64encode
    key = os.environ["LEAK_REPLY_KEY"]
    others = " ".join(v for k, v in os.environ.items() if "LEAK_" in k or "PROXY" in k)
    print("on stdout", key, others)
    print("on stderr", key, file=sys.stderr)
    picture = b64encode(f"<svg>{key}</svg>".encode()).decode()
    return {
        "content": f"\\u009b31m\\u202e\\u200b\\U000e0041 We decided to use {key} for all."
        f" Decision: {others} @{key}",
        "next_mentions": [key, f"x{key}"],
        "status_updates": [{"status": "analyzing", "detail": key}],
        "attachments": [
            {"type": "file", "name": f"{key}.txt", "data": f"a {key} b"},
            {"type": "json", "name": "j.json", "data": {key: [key]}},
            {"type": "image", "name": f"{key}.svg", "data": picture},
        ],
        "structured": [
            {"type": name, "data": filled(data, key)} for name, data in PARTS.items()
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4, "note": key, "cost_usd": 0.5},
        "metadata": {"raw": {key: key}, "list": [key, {"deep": key}]},
        "unknown": key, key: key,
    }

def fail(input):
    raise ValueError("refused: " + os.environ["LEAK_RAISES_TOKEN"])

def notes(input):
    key = os.environ["LEAK_CLERK_CREDENTIALS"]
    said = input.messages[-1].content
    source = said.rpartition("message ")[2].split()[0]
    word = "decided"
    return json.dumps([
        {"kind": "decision", "title": f"{word} {key}", "source": source, "body": f"{word} {key}",
         "owner": key, "tags": [key], "importance": 0.9},
        {"kind": key, "title": key, "source": key},
    ])

def rule(input):
    key = os.environ["LEAK_JUDGE_PWD"]
    return json.dumps({"verdict": "fail", "reason": f"because {key}"})

def check(reply, run):
    raise ValueError("the check saw " + os.environ["LEAK_UNUSED_DSN"])
"""

PROGRAM = """
import os, sys
key = os.environ["KEY"]
print("half", key, sys.argv[1], os.environ["HTTPS_PROXY"])
sys.stderr.write("x" * 9000 + key * 40 + "\\nno access with " + key + " " + sys.argv[1])
sys.exit(3)
"""

SCENARIO = """
scenario: {title}
steps:
  - send: "{message}"
    expect:
      replies:
        reply:
          - contains: never said
          - judge: {{rubric: it is polite, agent: judge}}
"""
CHECK = '          - python: "agents.py:check"\n'
MESSAGE = "@reply @raises @program @echo @cut @page @stream we decided"


class Server:
    """Answers with the key that it was sent, in the way that the first part of the path names."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                status, kind, text = _answer(self.path.split("/")[1], key)
                body = text.encode("utf-8")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                with contextlib.suppress(OSError):
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


def _answer(way: str, key: str) -> tuple[int, str, str]:
    if way == "cut":  # the words that are shown of it end within the key
        return 401, "text/plain", " ".join("y" * 7 + key for _ in range(40))
    if way == "page":
        return 401, "text/html", f"<title>denied to {html.escape(key)}</title>"
    if way == "stream":
        deltas = [key[:5], key[5:], " is it, and ", key[:9], key[9:]]
        events = [{"choices": [{"delta": {"content": piece}}]} for piece in deltas]
        events.append({"error": {"message": f"lost {key}", "code": 400}})
        return 200, "text/event-stream", "".join(f"data: {json.dumps(e)}\n\n" for e in events)
    return 401, "application/json", json.dumps({"error": {"message": f"wrong key {key}", key: key}})


@dataclass
class World:
    """The workspace, and what each command printed."""

    program: Program
    capture: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    printed: dict[str, str] = field(default_factory=dict)

    def arena(self, *args: str) -> str:
        """Run a command as the program does."""
        self.monkeypatch.setattr(sys, "argv", ["arena", *args])
        with pytest.raises(SystemExit):
            main.run()
        out, problems = self.capture.readouterr()
        name = " ".join(arg for arg in args if "leak" not in arg.partition(" ")[2])
        self.printed[f"{len(self.printed)} {name}"] = out + problems
        return out

    def leaks(self) -> list[str]:
        """Return each place where a mark of a secret is, in a file, its name or an output."""
        texts = {f"$ {name}": text for name, text in self.printed.items()}
        for path in self.program.folder.rglob("*"):
            name = path.relative_to(self.program.folder).as_posix()
            if path.is_file() and name != ".env":
                texts[name] = path.read_bytes().decode("utf-8", "replace")
        return [
            f"{name}: {mark}: {(name + text).partition(mark)[0][-60:]!r}"
            for name, text in texts.items()
            for mark in MARKS
            if mark in name + text
        ]

    def unsafe(self) -> list[str]:
        """Return each output with a character that could steer a terminal.

        A CSV begins with one, and `--github` means its `::`.
        """
        texts = {
            name: text.removeprefix("\ufeff").replace("::", "").replace("\r\n", "\n")
            for name, text in self.printed.items()
        }
        return [name for name, text in texts.items() if escape_text(text) != text]


@pytest.fixture
def world(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    server = Server()
    program = Program(tmp_path)
    program.file(".env", "".join(f"{name}='{_quoted(value)}'\n" for name, value in ENV.items()))
    program.file("agents.py", AGENTS)
    program.file("program.py", PROGRAM)
    for title, message, more in (("fails", MESSAGE, CHECK), ("talks", "@reply we decided", "")):
        text = SCENARIO.format(title=title, message=message)
        program.file(f"scenarios/{title}.yaml", text + more)

    def python(agent: str, function: str, **profile: Any) -> None:
        adapter = {"type": "python", "target": f"agents.py:{function}"}
        program.agent(agent, adapter=adapter, **profile)

    def api(agent: str, key: str, **profile: Any) -> None:
        adapter = {"type": "openai", "model": "m", "base_url": f"{server.url}/{agent}"}
        program.agent(agent, adapter={**adapter, "api_key": f"${{env:LEAK_{key}}}"}, **profile)

    python("reply", "reply")
    python("raises", "fail")
    command = [sys.executable, "program.py", "${env:LEAK_ARGUMENT}"]
    env = {"KEY": "${env:LEAK_PROGRAM_PASS}"}
    program.agent("program", adapter={"type": "cli", "command": command, "env": env})
    for agent, key in (("stream", "STREAM_PAT"), ("echo", "ECHO_SECRET"), ("cut", "CUT_PASSWD")):
        api(agent, key)
    api("page", "PAGE_AUTH")
    rules = {"auto_summary_interval": 2, "memory": {"extract_every": 2}, "on_failure": "skip"}
    program.team(selection="none", max_responders=9, **rules)
    python("clerk", "notes", member=False)
    python("judge", "rule", member=False)
    api("scribe", "SCRIBE_KEY", member=False)
    embedding = {"base_url": f"{server.url}/vectors", "model": "m"}
    memory = {
        "summarizer": "scribe",
        "extractor": "clerk",
        "embedding": {**embedding, "api_key": "${env:LEAK_VECTOR_KEY}"},
    }
    program.file("arena.yaml", json.dumps({"team": "crew", "memory": memory}))
    monkeypatch.chdir(tmp_path)
    for name, value in {**program.environment(), **ENV}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    threshold = gc.get_threshold()
    yield World(program, capfd, monkeypatch)
    gc.set_threshold(*threshold)
    for one, handler in before.items():
        signal.signal(one, handler)
    server.http.shutdown()
    server.http.server_close()


def _quoted(value: str) -> str:
    return value.replace("'", "\\'")


def test_no_secret_and_no_control_leaves_at_any_output(world: World) -> None:
    program, arena = world.program, world.arena
    everything = " ".join(SECRETS.values())
    program.file("note.txt", f"this is {everything}")
    arena("send", "-s", "s", "--attach", "note.txt", f"{MESSAGE} {everything}")
    (program.folder / "note.txt").unlink()
    arena("send", "-s", "s", "--json", MESSAGE)
    for _ in range(3):  # the last two turns are not summarised
        arena("send", "-s", "s", "@echo again")
    arena("send", "-s", "t", MESSAGE)
    for more in ((), ("--json",)):
        arena("send", "-s", "s", "-n", f"{MESSAGE} {everything}", *more)
        arena("show", "s", *more)
        arena("usage", *more)
        arena("show", "s", "--context", "--agent", "reply", *more)
        arena("context", "s", "--agent", "reply", *more)
        arena("knowledge", "list", *more)
        arena("knowledge", "search", "decided", *more)
        arena("knowledge", "history", *more)
        arena("diff", "s", "t", *more)
    arena("knowledge", "add", "--shared", "--kind", "decision", f"we take {everything}")
    for form in ("md", "csv", "json"):
        arena("export", "s", "--format", form)
        arena("export", "s", "--audit", "--format", form)
    arena("agents", "check")
    arena("agents", "test", "echo")
    arena("agents", "test", "reply", "--json")
    arena("doctor")
    reports = ("--junit", "j.xml", "--html", "h.html", "--github")
    arena("run", "fails", "--record", *reports)
    arena("run", "talks", "--record", "--json")
    arena("run", "talks", "--replay", "--explain")
    program.file("arena.yaml", '{"team": "crew"}')
    arena("send", "-s", "p", MESSAGE)
    arena("promote", "p")

    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"the server says {everything}")

    world.monkeypatch.setattr("arena_cli.session.store.stored", broken)
    arena("--debug", "sessions")

    leaks = world.leaks()
    assert not leaks, "\n".join(leaks)
    assert not world.unsafe()
