"""Some of `acp_agent.py`, made with the other side of the protocol's SDK.

    sdk_acp_agent.py LOG [FLAG...] [STEP...]

Its log, the flags `--load`, `--resume` and `--close`, and its steps are those of `acp_agent.py`.
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


def log(**what: Any) -> None:
    with LOG.open("a", encoding="utf-8") as file:
        file.write(json.dumps(what, ensure_ascii=False) + "\n")


class Agent:
    def __init__(self) -> None:
        self.client: Any = None
        self.prompts = 0
        self.sessions = 0
        self.cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, **asked: Any) -> schema.InitializeResponse:
        fs = asked["client_capabilities"].fs
        log(initialize={"reads": fs.read_text_file, "writes": fs.write_text_file})
        resume = schema.SessionResumeCapabilities() if "--resume" in FLAGS else None
        close = schema.SessionCloseCapabilities() if "--close" in FLAGS else None
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                load_session="--load" in FLAGS,
                session_capabilities=schema.SessionCapabilities(resume=resume, close=close),
            ),
            agent_info=schema.Implementation(name="tiny", version="1"),
        )

    async def new_session(self, cwd: str, **meta: Any) -> schema.NewSessionResponse:
        self.sessions += 1
        log(new={"cwd": cwd, "system": meta.get("systemPrompt")})
        return schema.NewSessionResponse(session_id=f"s-{os.getpid()}-{self.sessions}")

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        log(load=session_id)
        await self._tell(session_id, acp.update_agent_message_text("an answer of the past"))
        return schema.LoadSessionResponse()

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        log(resume=session_id)
        return schema.ResumeSessionResponse()

    async def close_session(self, session_id: str, **_: Any) -> None:
        log(close=session_id)

    async def cancel(self, session_id: str, **_: Any) -> None:
        log(cancel=session_id)
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        self.prompts += 1
        log(prompt=[block.text for block in prompt], session=session_id)
        answer: dict[str, Any] = {"stop_reason": "end_turn"}
        for step in STEPS[min(self.prompts, len(STEPS)) - 1]:
            try:
                answer.update(await self._do(session_id, step) or {})
            except acp.RequestError as error:
                if step.startswith("error:"):
                    raise
                log(refused=str(error))
        return schema.PromptResponse.model_construct(**answer)

    async def _do(self, session_id: str, step: str) -> dict[str, Any] | None:
        """One step; what it returns goes into the answer to the prompt."""
        word, _, rest = step.partition(":")
        name, _, message_id = word.partition("@")
        ids = {"session_id": session_id}
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
        elif name == "plan":
            states = ["completed"] * int(rest) + ["pending"] * (4 - int(rest))
            entries = [acp.plan_entry("step", status=state) for state in states]
            await self._tell(session_id, acp.update_plan(entries))
        elif name == "cost":
            cost = schema.Cost(amount=float(rest), currency="USD")
            used = {"session_update": "usage_update", "used": 1, "size": 2, "cost": cost}
            await self._tell(session_id, schema.UsageUpdate(**used))
        elif name == "usage":
            numbers = [int(part) for part in rest.split(",")]
            fields = ("input_tokens", "output_tokens", "cached_read_tokens", "thought_tokens")
            used = dict(zip(fields, numbers, strict=True))
            return {"usage": schema.Usage(total_tokens=sum(numbers), **used)}
        elif name == "quota":
            tokens = dict(zip(("input_tokens", "output_tokens"), rest.split(","), strict=True))
            count = {key: int(value) for key, value in tokens.items()}
            return {"field_meta": {"quota": {"token_count": count}}}
        elif name == "ask":
            kind, _, path = rest.partition(":")
            options = [
                schema.PermissionOption(option_id=f"o-{kind}", name=kind, kind=kind)
                for kind in ("allow_always", "allow_once", "reject_always", "reject_once")
            ]
            await self._tell(session_id, acp.start_tool_call("t", f"{kind} {path}", kind=kind))
            places = [schema.ToolCallLocation(path=path)] if path else None
            tool = schema.ToolCallUpdate(tool_call_id="t", locations=places)
            came = await self.client.request_permission(**ids, tool_call=tool, options=options)
            log(answer=came.outcome.option_id)
        elif name == "read":
            path, _, lines = rest.partition("#")
            some = {"line": int(lines), "limit": 1} if lines else {}
            log(answer=(await self.client.read_text_file(**ids, path=path, **some)).content)
        elif name == "write":
            await self.client.write_text_file(**ids, path=rest, content="written\n")
            log(answer="written")
        elif name == "terminal":
            await self.client.create_terminal(**ids, command="sh")
        elif name == "elicit":
            mode = schema.ElicitationFormSessionMode(
                **ids, requested_schema=schema.ElicitationSchema(type="object")
            )
            await self.client.create_elicitation(message="which?", mode=mode)
        elif name == "error":
            code, _, text = rest.partition(":")
            raise acp.RequestError(int(code), text)
        elif name == "wait":
            await self.cancelled.wait()
        return None

    async def _tell(self, session_id: str, update: Any) -> None:
        await self.client.session_update(session_id=session_id, update=update)


asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
