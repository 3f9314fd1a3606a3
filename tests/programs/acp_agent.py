"""An agent of the Agent Client Protocol, made with the SDK's other side, that does as it is told.

    acp_agent.py LOG [FLAG...] [STEP...]

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

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema

LOG = Path(sys.argv[1])
FLAGS = {word for word in sys.argv[2:] if word.startswith("--")}
STEPS: list[list[str]] = [[]]
for word in sys.argv[2:]:
    if word == "/":
        STEPS.append([])
    elif not word.startswith("--"):
        STEPS[-1].append(word)


def flag(name: str, default: str) -> str:
    return next((word.partition("=")[2] for word in FLAGS if word.startswith(f"{name}=")), default)


def log(**what: Any) -> None:
    with LOG.open("a", encoding="utf-8") as file:
        file.write(json.dumps(what, ensure_ascii=False) + "\n")


def model_options() -> list[Any]:
    options = [schema.SessionConfigSelectOption(value=name, name=name) for name in ("big", "small")]
    return [
        schema.SessionConfigOptionSelect(
            id="which",
            name="Model",
            category="model",
            type="select",
            current_value="big",
            options=options,
        )
    ]


def modes() -> schema.SessionModeState:
    names = ("agent", "read-only")
    return schema.SessionModeState(
        current_mode_id="agent",
        available_modes=[schema.SessionMode(id=name, name=name) for name in names],
    )


class Agent:
    def __init__(self) -> None:
        self.client: Any = None
        self.prompts = 0
        self.sessions = 0
        self.taken_up = ""
        self.cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, **asked: Any) -> schema.InitializeResponse:
        fs = asked["client_capabilities"].fs
        log(initialize={"reads": fs.read_text_file, "writes": fs.write_text_file})
        if "--silent" in FLAGS:
            await asyncio.Event().wait()
        resume = schema.SessionResumeCapabilities() if "--resume" in FLAGS else None
        close = schema.SessionCloseCapabilities() if "--close" in FLAGS else None
        return schema.InitializeResponse(
            protocol_version=int(flag("--version", "1")),
            agent_capabilities=schema.AgentCapabilities(
                prompt_capabilities=schema.PromptCapabilities(
                    image="--images" in FLAGS, embedded_context="--resources" in FLAGS
                ),
                load_session="--load" in FLAGS,
                session_capabilities=schema.SessionCapabilities(resume=resume, close=close),
            ),
            agent_info=schema.Implementation(name="tiny", version="1"),
        )

    async def new_session(self, cwd: str, **meta: Any) -> schema.NewSessionResponse:
        if "--login" in FLAGS:
            raise acp.RequestError.auth_required()
        self.sessions += 1
        log(new={"cwd": cwd, "system": meta.get("systemPrompt")})
        return schema.NewSessionResponse(
            session_id=f"s-{os.getpid()}-{self.sessions}",
            config_options=model_options() if "--models" in FLAGS else None,
            modes=modes() if "--modes" in FLAGS else None,
        )

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        await self._take_up("load", session_id)
        await self._tell(session_id, acp.update_agent_message_text("an answer of the past"))
        return schema.LoadSessionResponse()

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        await self._take_up("resume", session_id)
        return schema.ResumeSessionResponse()

    async def _take_up(self, how: str, session_id: str) -> None:
        log(**{how: session_id})
        self.taken_up = session_id
        if "--dies" in FLAGS:
            os._exit(3)
        if "--forgets" in FLAGS:
            raise acp.RequestError.resource_not_found(session_id)

    async def close_session(self, session_id: str, **_: Any) -> None:
        log(close=session_id)

    async def set_session_mode(self, mode_id: str, **_: Any) -> None:
        log(mode=mode_id)

    async def set_config_option(self, config_id: str, value: Any, **_: Any) -> Any:
        log(option={config_id: value})
        if value not in ("big", "small"):
            raise acp.RequestError.invalid_params({"details": f"no {value}"})
        return schema.SetSessionConfigOptionResponse(config_options=model_options())

    async def cancel(self, session_id: str, **_: Any) -> None:
        log(cancel=session_id)
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        self.prompts += 1
        blocks = [block for block in prompt if block.type != "text"]
        if blocks:
            log(files=[block.model_dump(mode="json", exclude_none=True) for block in blocks])
        texts = [block.text for block in prompt if block.type == "text"]
        log(prompt=texts, session=session_id)
        answer: dict[str, Any] = {"stop_reason": "end_turn"}
        for step in STEPS[min(self.prompts, len(STEPS)) - 1]:
            is_lost = step.startswith("lost:")
            if is_lost and session_id != self.taken_up:
                continue
            words = step.removeprefix("lost:").replace("{n}", str(self.prompts))
            answer.update(await self._do(session_id, words) or {})
            if is_lost:
                break
        return schema.PromptResponse.model_construct(**answer)

    async def _do(self, session_id: str, step: str) -> dict[str, Any] | None:
        """One step; what it returns goes into the answer to the prompt."""
        word, _, rest = step.partition(":")
        name, _, message_id = word.partition("@")
        if name == "say":
            update = acp.update_agent_message_text(rest)
            await self._tell(
                session_id, update.model_copy(update={"message_id": message_id or None})
            )
        elif name == "think":
            await self._tell(session_id, acp.update_agent_thought_text(rest))
        elif name == "tool":
            kind, _, title = rest.partition(":")
            await self._tell(session_id, acp.start_tool_call(title, title, kind=kind))
            await self._tell(session_id, acp.update_tool_call(title, status="completed"))
        elif name == "err":
            print(rest, file=sys.stderr, flush=True)
        elif name == "plan":
            states = ["completed"] * int(rest) + ["pending"] * (4 - int(rest))
            entries = [acp.plan_entry("step", status=state) for state in states]
            await self._tell(session_id, acp.update_plan(entries))
        elif name == "cost":
            cost = schema.Cost(amount=float(rest), currency="USD")
            used = {"session_update": "usage_update", "used": 1, "size": 2, "cost": cost}
            await self._tell(session_id, schema.UsageUpdate(**used))
        elif name == "raw":
            await self._raw(session_id, json.loads(rest))
        elif name == "usage":
            numbers = [int(part) for part in rest.split(",")]
            fields = ("input_tokens", "output_tokens", "cached_read_tokens", "thought_tokens")
            used = dict(zip(fields, numbers, strict=True))
            return {"usage": schema.Usage(total_tokens=sum(numbers), **used)}
        elif name == "quota":
            tokens = dict(zip(("input_tokens", "output_tokens"), rest.split(","), strict=True))
            count = {key: int(value) for key, value in tokens.items()}
            return {"field_meta": {"quota": {"token_count": count}}}
        elif name == "stop":
            return {"stop_reason": rest}
        elif name in ("ask", "permit", "read", "write", "elicit", "terminal"):
            await self._ask(session_id, name, rest)
        else:
            await self._go_wrong(session_id, name, rest)
        return None

    async def _ask(self, session_id: str, name: str, rest: str) -> None:
        """Something that the agent asks of arena; what came is logged."""
        try:
            if name == "ask":
                kind, _, path = rest.partition(":")
                options = [
                    schema.PermissionOption(option_id=f"o-{kind}", name=kind, kind=kind)
                    for kind in ("allow_always", "allow_once", "reject_always", "reject_once")
                ]
                update = acp.start_tool_call("t", f"{kind} {path}", kind=kind)
                await self._tell(session_id, update)
                told: dict[str, Any] = {}
                if path.startswith("{"):
                    told["raw_input"] = json.loads(path)
                elif path:
                    told["locations"] = [schema.ToolCallLocation(path=path)]
                tool = schema.ToolCallUpdate(tool_call_id="t", **told)
                came = await self.client.request_permission(
                    session_id=session_id, tool_call=tool, options=options
                )
                log(answer=came.outcome.option_id)
            elif name == "permit":
                asked = json.loads(rest)
                options = [
                    schema.PermissionOption(option_id=f"o-{kind}", name=kind, kind=kind)
                    for kind in asked.pop("options", ["allow_always", "allow_once", "reject_once"])
                ]
                tool = schema.ToolCallUpdate.model_validate({"toolCallId": "p", **asked})
                came = await self.client.request_permission(
                    session_id=session_id, tool_call=tool, options=options
                )
                log(answer=getattr(came.outcome, "option_id", came.outcome.outcome))
            elif name == "read":
                path, _, lines = rest.partition("#")
                some = {"line": int(lines), "limit": 1} if lines else {}
                came = await self.client.read_text_file(session_id=session_id, path=path, **some)
                log(answer=came.content)
            elif name == "write":
                await self.client.write_text_file(
                    session_id=session_id, path=rest, content="written\n"
                )
                log(answer="written")
            elif name == "terminal":
                await self.client.create_terminal(session_id=session_id, command="sh")
                log(answer="a terminal")
            else:
                mode = schema.ElicitationFormSessionMode(
                    session_id=session_id, requested_schema=schema.ElicitationSchema(type="object")
                )
                came = await self.client.create_elicitation(message="which?", mode=mode)
                log(answer=came.action)
        except acp.RequestError as error:
            log(refused=str(error))

    async def _go_wrong(self, session_id: str, name: str, rest: str) -> None:
        if name == "error":
            code, _, text = rest.partition(":")
            raise acp.RequestError(int(code), text)
        if name == "die":
            sys.stderr.write(f"{rest}\n")
            sys.stderr.flush()
            os._exit(3)
        if name == "hang":
            await asyncio.Event().wait()
        if name == "wait":
            await self.cancelled.wait()
        if name == "leave":
            asked = {"toolCallId": "l", "kind": "execute", "rawInput": {"command": rest}}
            tool = schema.ToolCallUpdate.model_validate(asked)
            yes = schema.PermissionOption(option_id="yes", name="yes", kind="allow_once")
            self.left = asyncio.ensure_future(
                self.client.request_permission(session_id=session_id, tool_call=tool, options=[yes])
            )
            await asyncio.sleep(0)
        if name == "child":
            sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
            child = await asyncio.create_subprocess_exec(*sleeps, start_new_session=True)
            part = Path(f"{rest}.part")
            part.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
            part.rename(rest)

    async def _raw(self, session_id: str, update: dict[str, Any]) -> None:
        params = {"sessionId": session_id, "update": update}
        sys.stdout.write(
            json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n"
        )
        sys.stdout.flush()

    async def _tell(self, session_id: str, update: Any) -> None:
        await self.client.session_update(session_id=session_id, update=update)


if "--banner" in FLAGS:
    print("\x1b[1mtiny agent\x1b[0m, ready", flush=True)
if "--flood" in FLAGS:
    sys.stderr.write("x" * 1_000_000 + "\nthe end of the flood\n")
    sys.stderr.flush()
asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
