"""Model a recording: the calls of each case, their inputs, and the refusal of all other calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Answer, CallNext, CallRequest
from arena_cli.errors import AgentUnavailable
from arena_cli.transcript.events import FREE_KINDS
from arena_cli.workspace.agents import list_adapters

ASIDE = ("judge", "memory")
"""The types of lines that are a call and no event."""


class CallKey(NamedTuple):
    """The key that matches calls: their step (from 1, None: of the whole scenario), agent and kind.

    `invocation` is `memory` for calls for the team's memory.
    """

    step: int | None
    agent: str
    invocation: str


class Recorded(NamedTuple):
    """A call of a case, with its `number` in order; `input` and `came` as written in its line.

    `notes` are the ids of those that the agent was shown. `came` has `output` or `failure`; `line`
    is the line of the file, from 1.
    """

    number: int
    key: CallKey
    session: str | None
    input_hash: str
    input: Mapping[str, Any]
    came: dict[str, Any]
    turn: int | None
    line: int
    notes: Sequence[str] = ()


@dataclass
class CaseRecord:
    """A case of a scenario, or the scenario that has none.

    `lines` are its records in order, without those of agents (see `file`), each with its texts: a
    reply's text is in its message. `calls` are those of agents, of judges, and of agents that work
    for the team's memory. `workspace` are the settings of the workspace and the scenario that
    affect the inputs of agents (`settings.record_workspace`); None if it has none yet.
    """

    id: str | None
    workspace: Mapping[str, Any] | None = None
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Recorded] = field(default_factory=list)

    def unused(self) -> dict[CallKey, list[Recorded]]:
        """Return all calls by key, in order."""
        by_key: dict[CallKey, list[Recorded]] = {}
        for call in self.calls:
            by_key.setdefault(call.key, []).append(call)
        return by_key

    def steps(self) -> set[int]:
        """Return the steps that were played."""
        return {line["step"] for line in self.lines if line["type"] == "step"}

    def called(self) -> set[str]:
        """Return the agents that were called."""
        return {call.key.agent for call in self.calls}

    def session(self, key: str | None) -> Iterator[dict[str, Any]]:
        """Yield the events of one session of the case, in canonical order."""
        current: str | None = None
        for line in self.lines:
            if line["type"] == "step":
                current = line["session"]
            elif current == key and line["type"] not in ASIDE:
                yield line

    def shown(self, call: Recorded) -> dict[str, Any]:
        """Return the whole input of a call: the fields of an AgentInput, messages in order."""
        messages: dict[str, dict[str, Any]] = {}
        members: Sequence[Any] = ()
        for line in self.session(call.session):
            if line["type"] == "session":
                members = line["members"]
            elif isinstance(line.get("message"), dict):
                messages[line["message"]["id"]] = line["message"]
        agent_input = {
            "agent_id": call.key.agent,
            "invocation": call.key.invocation,
            "role_prompt": self.agents.get(call.key.agent, {}).get("role_prompt", ""),
            "members": list(members),
            **call.input,
        }
        agent_input["messages"] = [
            message
            for item in call.input.get("messages", ())
            for message in _messages(item, messages)
        ]
        return agent_input


@dataclass
class Recording:
    """The recording of a scenario file: its title then, and its cases by id.

    `is_edited`: the file has been edited since arena wrote it.
    """

    scenario: str
    cases: dict[str | None, CaseRecord]
    is_edited: bool = False


def ranges(ids: Sequence[str]) -> list[str]:
    """Return `m1, m2, m3, m7` as `m1-m3, m7`."""
    groups: list[list[int]] = []
    for name in ids:
        number = int(name[1:])
        if groups and groups[-1][1] == number - 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return [f"m{first}" if first == last else f"m{first}-m{last}" for first, last in groups]


def _messages(item: Any, by_id: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of an item of `messages`: one written out, or a range of ids."""
    if isinstance(item, dict):
        yield item
        return
    first, _, last = item.partition("-")
    start = int(first[1:])
    for number in range(start, int((last or first)[1:]) + 1):
        yield by_id.get(f"m{number}", {"id": f"m{number}", "content": ""})


class LiveCallGuard:
    """Refuses every call of an agent that is not scripted, and keeps the refused agents."""

    def __init__(self, hint: str) -> None:
        self.refused: dict[str, None] = {}
        self._hint = hint

    @property
    def refusal(self) -> str | None:
        """The reason the scenario is an error; None if no live agent had to be called."""
        if not self.refused:
            return None
        agents = ", ".join(f"`{agent}`" for agent in self.refused)
        return f"it has no recording and calls {agents} live, while `CI` is set\n  {self._hint}"

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Pass on the call of a scripted agent. Raises AgentUnavailable for any other."""
        member = request.member
        kinds = {adapter.get("type") for adapter in list_adapters(member.profile.adapter)}
        if kinds <= FREE_KINDS:
            return await call_next(request)
        self.refused[member.id] = None
        problem = "it is not called: `CI` is set, and this scenario has no recording"
        raise AgentUnavailable(member.id, problem, mend=self._hint, again=False)
