"""An agent of the Agent Client Protocol that does as it is told.

    acp_agent.py LOG [FLAG...] [STEP...]

It speaks the protocol without the SDK, which takes half a second of CPU to import;
`sdk_acp_agent.py` shows that the SDK's other side says the same.

LOG takes one JSON object a line of what the agent was asked. Flags: `--load`, `--resume`, `--close`
(what it can), `--dies` (when it is to take a session up), `--forgets` (no session of another
process is known), `--login` (it wants one), `--images`, `--resources` (it takes), `--models`,
`--modes`, `--banner`, `--flood`, `--silent`, `--version=N`. Steps are what it does at every prompt,
such as `say:text`, `say@id:text`, `tool:kind:title`, `ask:kind:path` (or JSON as the tool's input),
`permit:JSON` (a whole tool call, and the kinds of its `options`), `read:path`, `write:path`,
`err:line`, `stop:refusal`, `leave:COMMAND` (asks and does not wait), `lost:STEP` (only in a session
that was taken up; it ends the prompt's steps); `/` stands between the steps of one prompt and the
next, `{n}` is how many prompts there were in this process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

LOG = sys.argv[1]
FLAGS = {word for word in sys.argv[2:] if word.startswith("--")}
STEPS: list[list[str]] = [[]]
for word in sys.argv[2:]:
    if word == "/":
        STEPS.append([])
    elif not word.startswith("--"):
        STEPS[-1].append(word)
KINDS = ["allow_always", "allow_once", "reject_always", "reject_once"]
WRITTEN = "written\n"


class Failed(Exception):
    """What a request is answered with, and what a request of the agent was answered with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def flag(name: str, default: str) -> str:
    return next((word.partition("=")[2] for word in FLAGS if word.startswith(f"{name}=")), default)


def log(**what: Any) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(what, ensure_ascii=False) + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def model_options() -> list[dict[str, Any]]:
    options = [{"value": name, "name": name} for name in ("big", "small")]
    choice = {"type": "select", "currentValue": "big", "options": options}
    return [{"id": "which", "name": "Model", "category": "model", **choice}]


def modes() -> dict[str, Any]:
    names = ("agent", "read-only")
    known = [{"id": name, "name": name} for name in names]
    return {"currentModeId": "agent", "availableModes": known}


def options_of(kinds: list[str]) -> list[dict[str, Any]]:
    return [{"optionId": f"o-{kind}", "name": kind, "kind": kind} for kind in kinds]


class Agent:
    def __init__(self) -> None:
        self.prompts = 0
        self.sessions = 0
        self.asked = 0
        self.session = ""
        self.taken_up = ""
        self.is_cancelled = False
        self.answers: dict[int, dict[str, Any]] = {}
        self.methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "initialize": self.initialize,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": lambda asked: self.take_up("resume", asked["sessionId"]),
            "session/close": lambda asked: log(close=asked["sessionId"]),
            "session/set_mode": lambda asked: log(mode=asked["modeId"]),
            "session/set_config_option": self.set_config_option,
            "session/cancel": self.cancel,
            "session/prompt": self.prompt,
        }

    def take_line(self) -> None:
        """Read a message and do what it asks; the end of the input ends the program."""
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        message = json.loads(line)
        if "method" not in message:
            self.answers[message["id"]] = message
            return
        try:
            result = self.methods[message["method"]](message["params"])
        except Failed as failed:
            send(id=message["id"], error={"code": failed.code, "message": str(failed)})
        else:
            if "id" in message:
                send(id=message["id"], result=result or {})

    def wait_until(self, holds: Callable[[], object]) -> None:
        while not holds():
            self.take_line()

    def initialize(self, asked: dict[str, Any]) -> dict[str, Any]:
        fs = (asked.get("clientCapabilities") or {}).get("fs") or {}
        reads, writes = (fs.get(key, False) for key in ("readTextFile", "writeTextFile"))
        log(initialize={"reads": reads, "writes": writes})
        if "--silent" in FLAGS:
            self.wait_until(lambda: False)
        shown = {"image": "--images" in FLAGS, "embeddedContext": "--resources" in FLAGS}
        can = {name: {} for name in ("resume", "close") if f"--{name}" in FLAGS}
        return {
            "protocolVersion": int(flag("--version", "1")),
            "agentCapabilities": {
                "promptCapabilities": shown,
                "loadSession": "--load" in FLAGS,
                "sessionCapabilities": can,
            },
            "agentInfo": {"name": "tiny", "version": "1"},
        }

    def new_session(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "--login" in FLAGS:
            raise Failed(-32000, "Authentication required")
        self.sessions += 1
        log(new={"cwd": asked["cwd"], "system": (asked.get("_meta") or {}).get("systemPrompt")})
        made: dict[str, Any] = {"sessionId": f"s-{os.getpid()}-{self.sessions}"}
        if "--models" in FLAGS:
            made["configOptions"] = model_options()
        if "--modes" in FLAGS:
            made["modes"] = modes()
        return made

    def load_session(self, asked: dict[str, Any]) -> None:
        self.take_up("load", asked["sessionId"])
        self.session = asked["sessionId"]
        self.say("agent_message_chunk", "an answer of the past")

    def take_up(self, how: str, session_id: str) -> None:
        log(**{how: session_id})
        self.taken_up = session_id
        if "--dies" in FLAGS:
            os._exit(3)
        if "--forgets" in FLAGS:
            raise Failed(-32002, "Resource not found")

    def set_config_option(self, asked: dict[str, Any]) -> dict[str, Any]:
        log(option={asked["configId"]: asked["value"]})
        if asked["value"] not in ("big", "small"):
            raise Failed(-32602, "Invalid params")
        return {"configOptions": model_options()}

    def cancel(self, asked: dict[str, Any]) -> None:
        log(cancel=asked["sessionId"])
        self.is_cancelled = True

    def prompt(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.prompts += 1
        self.session = asked["sessionId"]
        blocks = [block for block in asked["prompt"] if block["type"] != "text"]
        if blocks:
            log(files=blocks)
        texts = [block["text"] for block in asked["prompt"] if block["type"] == "text"]
        log(prompt=texts, session=self.session)
        answer: dict[str, Any] = {"stopReason": "end_turn"}
        for step in STEPS[min(self.prompts, len(STEPS)) - 1]:
            is_lost = step.startswith("lost:")
            if is_lost and self.session != self.taken_up:
                continue
            answer |= self.do(step.removeprefix("lost:").replace("{n}", str(self.prompts))) or {}
            if is_lost:
                break
        return answer

    def do(self, step: str) -> dict[str, Any] | None:
        """One step; what it returns goes into the answer to the prompt."""
        word, _, rest = step.partition(":")
        name, _, message_id = word.partition("@")
        if name == "say":
            more = {"messageId": message_id} if message_id else {}
            self.say("agent_message_chunk", rest, **more)
        elif name == "think":
            self.say("agent_thought_chunk", rest)
        elif name == "tool":
            kind, _, title = rest.partition(":")
            self.tell("tool_call", toolCallId=title, title=title, kind=kind)
            self.tell("tool_call_update", toolCallId=title, status="completed")
        elif name == "err":
            print(rest, file=sys.stderr, flush=True)
        elif name == "plan":
            states = ["completed"] * int(rest) + ["pending"] * (4 - int(rest))
            entry = {"content": "step", "priority": "medium"}
            self.tell("plan", entries=[{**entry, "status": state} for state in states])
        elif name == "cost":
            cost = {"amount": float(rest), "currency": "USD"}
            self.tell("usage_update", used=1, size=2, cost=cost)
        elif name == "raw":
            self.update(json.loads(rest))
        elif name == "usage":
            numbers = [int(part) for part in rest.split(",")]
            fields = ("inputTokens", "outputTokens", "cachedReadTokens", "thoughtTokens")
            used = dict(zip(fields, numbers, strict=True))
            return {"usage": {"totalTokens": sum(numbers), **used}}
        elif name == "quota":
            tokens = [int(part) for part in rest.split(",")]
            count = dict(zip(("input_tokens", "output_tokens"), tokens, strict=True))
            return {"_meta": {"quota": {"token_count": count}}}
        elif name == "stop":
            return {"stopReason": rest}
        elif name in ("ask", "permit", "read", "write", "elicit", "terminal"):
            self.ask(name, rest)
        else:
            self.go_wrong(name, rest)
        return None

    def ask(self, name: str, rest: str) -> None:
        """Something that the agent asks of arena; what came is logged."""
        try:
            if name == "ask":
                kind, _, path = rest.partition(":")
                self.tell("tool_call", toolCallId="t", title=f"{kind} {path}", kind=kind)
                told: dict[str, Any] = {"toolCallId": "t"}
                if path.startswith("{"):
                    told["rawInput"] = json.loads(path)
                elif path:
                    told["locations"] = [{"path": path}]
                log(answer=self.permitted(told, KINDS)["optionId"])
            elif name == "permit":
                asked = {"toolCallId": "p", **json.loads(rest)}
                kinds = asked.pop("options", ["allow_always", "allow_once", "reject_once"])
                came = self.permitted(asked, kinds)
                log(answer=came.get("optionId", came["outcome"]))
            elif name == "read":
                path, _, lines = rest.partition("#")
                some = {"line": int(lines), "limit": 1} if lines else {}
                log(answer=self.request("fs/read_text_file", path=path, **some)["content"])
            elif name == "write":
                self.request("fs/write_text_file", path=rest, content=WRITTEN)
                log(answer="written")
            elif name == "terminal":
                self.request("terminal/create", command="sh")
                log(answer="a terminal")
            else:
                form = {"requestedSchema": {"type": "object", "properties": {}}, "mode": "form"}
                log(answer=self.request("elicitation/create", message="which?", **form)["action"])
        except Failed as failed:
            log(refused=str(failed))

    def go_wrong(self, name: str, rest: str) -> None:
        if name == "error":
            code, _, text = rest.partition(":")
            raise Failed(int(code), text)
        if name == "die":
            sys.stderr.write(f"{rest}\n")
            sys.stderr.flush()
            os._exit(3)
        if name == "hang":
            self.wait_until(lambda: False)
        if name == "wait":
            self.wait_until(lambda: self.is_cancelled)
        if name == "leave":
            tool = {"toolCallId": "l", "kind": "execute", "rawInput": {"command": rest}}
            yes = {"optionId": "yes", "name": "yes", "kind": "allow_once"}
            self.begin_request("session/request_permission", toolCall=tool, options=[yes])
        if name == "child":
            import subprocess

            sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
            child = subprocess.Popen(sleeps, start_new_session=True)
            with open(f"{rest}.part", "w", encoding="utf-8") as part:
                part.write(f"{os.getpid()} {child.pid}")
            os.rename(f"{rest}.part", rest)

    def permitted(self, tool: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
        asked = {"toolCall": tool, "options": options_of(kinds)}
        outcome: dict[str, Any] = self.request("session/request_permission", **asked)["outcome"]
        return outcome

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.begin_request(method, **params)
        self.wait_until(lambda: number in self.answers)
        came = self.answers.pop(number)
        if "error" in came:
            raise Failed(came["error"]["code"], came["error"]["message"])
        result: dict[str, Any] = came["result"]
        return result

    def begin_request(self, method: str, **params: Any) -> int:
        self.asked += 1
        send(id=self.asked, method=method, params={"sessionId": self.session, **params})
        return self.asked

    def say(self, kind: str, text: str, /, **more: Any) -> None:
        self.tell(kind, content={"type": "text", "text": text}, **more)

    def tell(self, kind: str, /, **update: Any) -> None:
        self.update({"sessionUpdate": kind, **update})

    def update(self, update: dict[str, Any]) -> None:
        send(method="session/update", params={"sessionId": self.session, "update": update})


if "--banner" in FLAGS:
    print("\x1b[1mtiny agent\x1b[0m, ready", flush=True)
if "--flood" in FLAGS:
    sys.stderr.write("x" * 1_000_000 + "\nthe end of the flood\n")
    sys.stderr.flush()
Agent().wait_until(lambda: False)
