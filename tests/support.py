"""What tests of the engine share: a team of agents, a clock that counts, a session in a folder."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from product import (
    AgentInput,
    AgentOutput,
    AgentProfile,
    ChainFinished,
    Emit,
    Event,
    Health,
    Human,
    Member,
    ModelFacts,
    Session,
    SessionConfig,
    Settings,
    Setup,
    Team,
    TeamConfig,
    base,
)
from product import outgoing_outgoing as outgoing

WORKED_MESSAGE = "@架构师 @合规 请帮我拆解这个需求：做一个用户管理系统，需要符合 GDPR"


@dataclass
class CountingClock:
    """Every look at the wall clock is a second later; ids count too."""

    seconds: int = 0
    tokens: int = 0

    def now(self) -> datetime:
        self.seconds += 1
        return datetime(2026, 11, 28, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        return 0.0

    def token(self, digits: int) -> str:
        self.tokens += 1
        return f"{self.tokens:0{digits}x}"


def member(agent_id: str, replies: Sequence[Any] = (), **profile: Any) -> Member:
    """A scripted member; `profile` are further keys of its file."""
    profile.setdefault("adapter", {"type": "scripted", "replies": list(replies)})
    shape = AgentProfile.model_validate({"agent_id": agent_id, **profile})
    return Member(profile=shape, name=shape.name or agent_id)


def team(*members: Member, humans: Sequence[str] = (), **config: Any) -> Team:
    """A team with these rules."""
    return Team(
        name="test",
        members=members,
        humans=tuple(Human(id=name, name=name) for name in humans),
        config=TeamConfig.model_validate(config),
    )


def worked_team() -> Team:
    """Return the Chinese team of the worked example in docs/concepts/turn-rules.md."""
    return team(
        member(
            "architect",
            ["需求拆解如下：1. 用户认证 2. 权限管理 3. 数据加密 @全栈开发 请按此方案实现"],
            name="架构师",
            response={"keywords": ["架构", "拆解"]},
        ),
        member(
            "compliance",
            ["GDPR 要求：用户同意、数据可删除 @测试工程师 请准备测试用例"],
            name="合规",
            response={"keywords": ["合规", "GDPR"]},
        ),
        member(
            "developer",
            ["收到，先做认证模块 @测试工程师 完成后请做冒烟测试"],
            name="全栈开发",
            response={"keywords": ["认证", "方案", "实现"]},
        ),
        member(
            "tester",
            ["好的，准备三组用例"],
            name="测试工程师",
            response={"keywords": ["测试"], "threshold": 0.8},
        ),
    )


@dataclass
class Talk:
    """A session of a team in a folder, told message by message."""

    workspace: Path
    team: Team
    name: str | None = "talk"
    environ: Mapping[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], None] = lambda _: None
    clock: Any = field(default_factory=CountingClock)
    redact: Sequence[str] = ()
    language: Any = "en"
    adapter_type: Any = base.adapter_type
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    ask_person: Any = None

    @property
    def transcript(self) -> Path:
        return self.workspace / "sessions" / str(self.name) / "transcript.jsonl"

    def open(self) -> Session:
        def heard(event: Event) -> None:
            self.events.append(event)
            self.on_event(event)

        place = SessionConfig(
            workspace=self.workspace,
            durability="flush",
            environ=self.environ,
            clock=self.clock,
            wait_s=0,
            redact=self.redact,
            language=self.language,
            adapter_type=self.adapter_type,
            models=self.models,
            ask_person=self.ask_person,
        )
        return Session(place, self.name, self.team, on_event=heard)

    def send(self, content: str, **sent: Any) -> ChainFinished:
        message = outgoing(self.team, content, **sent)
        with self.open() as session:
            return asyncio.run(session.last(session.send(message)))

    def resume(self) -> ChainFinished | None:
        with self.open() as session:
            return asyncio.run(session.last(session.resume()))

    def of(self, kind: str) -> list[Any]:
        """The events of a type, in order."""
        return [event for event in self.events if event.type == kind]

    def last(self, kind: str) -> Any:
        return self.of(kind)[-1]

    def turns(self) -> list[tuple[list[str], list[str]]]:
        """(must, asked) of every turn."""
        asked = {event.turn: event.asked for event in self.of("candidates")}
        return [(event.must, asked.get(event.turn, [])) for event in self.of("turn_started")]

    def outcomes(self) -> list[tuple[str, str]]:
        """(agent, status) of every reply, by reply number."""
        finished = sorted(self.of("reply_finished"), key=lambda event: event.reply)
        return [(event.agent, event.status) for event in finished]

    def records(self) -> list[dict[str, Any]]:
        """The transcript's lines, decoded."""
        text = self.transcript.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


class PuppetSettings(Settings):
    model: str = ""


class Puppets:
    """Agents that are functions: `Puppets({"a": answer})`, where `answer(input)` may be async.

    `inputs` keeps what each was shown; hand it to a `Talk` as `adapter_type`.
    """

    def __init__(self, answers: Mapping[str, Callable[[AgentInput], Any]]) -> None:
        self.answers = answers
        self.inputs: dict[str, list[AgentInput]] = {name: [] for name in answers}
        self.ended: list[str] = []

    def __call__(self, kind: str) -> type[Any]:
        puppets = self

        class Puppet:
            settings_type = PuppetSettings

            def __init__(self, setup: Setup) -> None:
                self.agent_id = setup.agent_id

            async def start(self) -> None: ...

            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                puppets.inputs[self.agent_id].append(input)
                try:
                    said = puppets.answers[self.agent_id](input)
                    if inspect.isawaitable(said):
                        said = await said
                except asyncio.CancelledError:
                    puppets.ended.append(self.agent_id)
                    raise
                return said if isinstance(said, AgentOutput) else AgentOutput(content=said)

            async def health(self) -> Health:
                return Health(True)

            async def stop(self) -> None: ...

        return Puppet


def puppet(agent_id: str, **profile: Any) -> Member:
    """A member whose answers a `Puppets` gives."""
    return member(agent_id, **{"adapter": {"type": "puppet"}, **profile})


def canonical(transcript: Path) -> list[dict[str, Any]]:
    """The canonical form of a transcript: what stays the same however often it was cut short."""
    records = [json.loads(line) for line in transcript.read_bytes().splitlines()]
    started = {one["reply"]: one["attempt"] for one in records if one["type"] == "reply_started"}
    kept = []
    for one in records:
        dropped = one["type"] in ("recovered", "resumed", "status")
        cancelled = one.get("status") == "cancelled"
        repeated = one["type"] == "reply_started" and one["attempt"] != started[one["reply"]]
        if not (dropped or cancelled or repeated):
            kept.append(one)
    ordered = sorted(enumerate(kept), key=lambda pair: (_place(pair[1], kept[: pair[0]]), pair[0]))
    text = [_without_what_varies(one) for _, one in ordered]
    ids: dict[str, str] = {}
    for one in text:
        message = one.get("message")
        if isinstance(message, dict):
            ids[message["id"]] = f"m{len(ids) + 1}"
    return json.loads(_renamed(json.dumps(text), ids))


def _place(one: dict[str, Any], before: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """Events of a phase sort by (start or finish, reply); everything else stays where it is."""
    fixed = [other for other in before if not other["type"].startswith("reply_")]
    if one["type"] == "reply_started":
        return (2 * len(fixed) + 1, 0, one["reply"])
    if one["type"] == "reply_finished":
        return (2 * len(fixed) + 1, 1, one["reply"])
    return (2 * len(fixed) + 2, 0, 0)


def _without_what_varies(value: Any) -> Any:
    varies = {
        "seq",
        "ts",
        "timestamp",
        "attempt",
        "attempts",
        "latency_ms",
        "agent_session",
        "metadata",
        "path",
    }
    if isinstance(value, dict):
        return {key: _without_what_varies(one) for key, one in value.items() if key not in varies}
    if isinstance(value, list):
        return [_without_what_varies(one) for one in value]
    return value


def _renamed(text: str, ids: Mapping[str, str]) -> str:
    return re.sub(r'"(m\d+)"', lambda match: f'"{ids.get(match[1], match[1])}"', text)
