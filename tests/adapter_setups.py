"""What the adapters' tests share: setups, inputs, the tiny programs, and waiting for something."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from product import (
    AgentInput,
    AgentReport,
    AgentSession,
    CallNote,
    CliAdapter,
    CliSettings,
    Permission,
    PermissionRequest,
    RefusedAction,
    SessionId,
    Setup,
    ShownMessage,
    StatusEvent,
    TextDelta,
    Usage,
)
from product import context_render as render

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 60.0


class Heard:
    """What an adapter told, and asked: `decide` answers what the agent may do, by default no."""

    def __init__(self, decide: Callable[[PermissionRequest], Permission] | None = None) -> None:
        self.decide = decide or (lambda _: Permission("denied", "nobody decides here"))
        self.requests: list[PermissionRequest] = []
        self.deltas: list[str] = []
        self.notes: dict[str, Any] = {}
        self.statuses: list[StatusEvent] = []
        self.session_id: SessionId | None = None
        self.usage: Usage | None = None
        self.refused: list[RefusedAction] = []

    def __call__(self, item: AgentReport, /) -> None:
        if isinstance(item, TextDelta):
            self.deltas.append(item)
        elif isinstance(item, CallNote):
            self.notes.update(item)
        elif isinstance(item, SessionId):
            self.session_id = item
        elif isinstance(item, Usage):
            self.usage = item
        elif isinstance(item, RefusedAction):
            self.refused.append(item)
        else:
            self.statuses.append(item)

    async def permit(self, request: PermissionRequest, /) -> Permission:
        self.requests.append(request)
        return self.decide(request)

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    def own_session(self, upto_seq: int = 2) -> AgentSession:
        """The session that was told, as the engine gives it back."""
        assert self.session_id is not None
        return AgentSession(
            id=str(self.session_id), upto_seq=upto_seq, state=dict(self.session_id.state)
        )


def an_input(text: str = "你好", **changes: Any) -> AgentInput:
    message = ShownMessage(
        id="m2",
        author_id="user",
        author_name="user",
        author_type="human",
        content=text,
        timestamp="2026-11-28T09:30:00.125Z",
        role="user",
    )
    fields: dict[str, Any] = {
        "session_id": "s",
        "turn_id": "c1t1",
        "turn": 1,
        "call": 1,
        "trigger": ["m2"],
        "agent_id": "bot",
        "role_prompt": "You are a bot.",
        "invocation": "must_reply",
        "messages": [message],
    }
    return AgentInput(**{**fields, **changes})


def rendered(input: AgentInput) -> tuple[str, str]:
    return input.role_prompt, input.messages[-1].content


def a_setup(folder: Path, settings: Any, **changes: Any) -> Setup:
    fields: dict[str, Any] = {
        "agent_id": "bot",
        "settings": settings,
        "workspace": folder,
        "scratch": folder / "scratch",
        "records": folder / "processes",
        "render": rendered,
        "chat": render.chat,
        "environ": dict(os.environ),
    }
    return Setup(**{**fields, **changes})


def speaker(folder: Path, *steps: str, **keys: Any) -> CliAdapter:
    """An adapter whose program takes these steps (`programs/speak.py`)."""
    command = [sys.executable, str(PROGRAMS / "speak.py"), *steps]
    settings = CliSettings.model_validate({"type": "cli", "command": command, **keys})
    return CliAdapter(a_setup(folder, settings))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; fails loudly when it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nothing tells of what other processes do
            await asyncio.sleep(0.01)


async def pids_in(path: Path) -> list[int]:
    """The process ids that a program wrote to a file, once it has."""
    await until(path.exists)
    return [int(word) for word in path.read_text(encoding="utf-8").split()]


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
