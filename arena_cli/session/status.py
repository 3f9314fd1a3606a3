"""Read what the agents of a session do now, and for what it waits: `arena status`.

Everything is read from the transcript, the session's lock, its notes, and the lanes of the
workspace: the replies that hold a place in each, and those that wait. Nothing is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import ThreadError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from arena_cli.session import shelves, store
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.control_events import (
    BreakerChanged,
    ControlState,
    Request,
    SessionControl,
)
from arena_cli.transcript.conversation import Chain, Conversation, Reply, read_conversation
from arena_cli.transcript.revisions import list_visible
from arena_cli.util import tickets
from arena_cli.workspace.models import LaneName, Mode, Team
from arena_cli.workspace.workspace import Workspace

if TYPE_CHECKING:
    from arena_cli.transcript.plan_events import PlanMade
    from arena_cli.transcript.task_events import TaskBoard

LANE_NAMES: tuple[LaneName, ...] = get_args(LaneName)


class LanePlace(NamedTuple):
    """A reply with a place in a lane: its session and agent, its process, when it drew the place.

    Fields are empty while the place is being drawn.
    """

    session: str
    agent: str
    pid: int
    since: str


class LaneState(NamedTuple):
    """A lane with a bound: the replies that run, and those that wait in the order of their turn."""

    name: LaneName
    bound: int
    holders: tuple[LanePlace, ...]
    waiting: tuple[LanePlace, ...]


def list_lanes(workspace: Workspace) -> list[LaneState]:
    """Return the lanes that `arena.yaml` bounds; raise DiskRefused where they cannot be read.

    Places of processes that ended are removed.
    """
    states: list[LaneState] = []
    for name in LANE_NAMES:
        bound = workspace.file.lanes.find_bound(name)
        if bound is not None:
            places = _read_places(workspace, name)
            states.append(LaneState(name, bound, places[:bound], places[bound:]))
    return states


def _read_places(workspace: Workspace, name: LaneName) -> tuple[LanePlace, ...]:
    path = store.lane_path(workspace.root, name)
    try:
        return tuple(_parse_place(owner) for owner in tickets.list_owners(path))
    except FileNotFoundError:  # no reply drew a place yet
        return ()
    except (OSError, ThreadError) as error:
        raise tickets.refused(path.parent, error) from error


def _parse_place(owner: bytes) -> LanePlace:
    try:
        fields: dict[str, Any] = json.loads(owner)
        return LanePlace(
            str(fields["session"]), str(fields["agent"]), int(fields["pid"]), str(fields["since"])
        )
    except (ValueError, KeyError, TypeError):
        return LanePlace("", "", 0, "")


AgentActivity = Literal["idle", "running", "waiting", "paused", "done", "error", "terminated"]
SessionActivity = Literal["running", "paused", "cut short", "idle"]


class AgentStatus(NamedTuple):
    """The state of an agent: `since` when (UTC, ISO 8601), `detail` on what.

    `turn` is the turn of its last reply, `request` the one for which it waits; 0 if there is none.
    """

    agent: str
    state: AgentActivity
    since: str = ""
    detail: str = ""
    turn: int = 0
    request: int = 0


class DecisionCounts(NamedTuple):
    """The decisions of an agent that rules or a supervisor looked at; `rate` from 0 to 1."""

    agent: str
    decisions: int
    rejected: int

    @property
    def rate(self) -> float:
        """The share of rejected decisions."""
        return round(self.rejected / self.decisions, 4) if self.decisions else 0.0

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON; those of all agents name none."""
        counts = self._asdict() | {"rate": self.rate}
        return {name: value for name, value in counts.items() if value != ""}


class SessionStatus(NamedTuple):
    """The state of a session; `detail` says for what a paused one waits.

    `supervisor` is the agent that decides who replies, empty in the `mode` free. `breakers` are the
    circuit breakers that are not closed. `notes` are the ids of its notes that wait for a person's
    approval. `tasks` are those of the session, if it has any; `plan` is that of the open chain.
    `steps` are those that the flow of the session has begun and not ended, None without a flow.
    """

    session: str
    state: SessionActivity
    chain: int
    detail: str
    agents: Sequence[AgentStatus]
    requests: Sequence[Request]
    notes: Sequence[str]
    decisions: Sequence[DecisionCounts]
    mode: Mode = "free"
    supervisor: str = ""
    breakers: Sequence[BreakerChanged] = ()
    tasks: TaskBoard | None = None
    plan: PlanMade | None = None
    steps: Sequence[str] | None = None

    @property
    def all_decisions(self) -> DecisionCounts:
        """The decisions of all agents."""
        decisions = sum(counts.decisions for counts in self.decisions)
        rejected = sum(counts.rejected for counts in self.decisions)
        return DecisionCounts("", decisions, rejected)

    def document(self) -> dict[str, Any]:
        """Return the status as JSON."""
        return {
            "session": self.session,
            "state": self.state,
            "chain": self.chain,
            "detail": self.detail,
            "agents": [agent._asdict() for agent in self.agents],
            "requests": [
                request.asked.model_dump(include=_OF_A_REQUEST) for request in self.requests
            ],
            "notes": list(self.notes),
            "decisions": [counts.document() for counts in self.decisions],
            "all_decisions": self.all_decisions.document(),
            "mode": self.mode,
            "supervisor": self.supervisor or None,
            "breakers": [breaker.model_dump(include=_OF_A_BREAKER) for breaker in self.breakers],
            **({"tasks": _count_tasks(self.tasks)} if self.tasks else {}),
            "plan": self.plan.model_dump(mode="json", include=_OF_A_PLAN) if self.plan else None,
            **({"steps": list(self.steps)} if self.steps is not None else {}),
        }


def _count_tasks(board: TaskBoard) -> dict[str, Any]:
    """Return the number of tasks by status, and the running ones with their agents."""
    running = [task for task in board.tasks.values() if task.status == "running"]
    return {
        "counts": dict(Counter(task.status for task in board.tasks.values())),
        "running": [
            {"task": task.id, "agent": task.assigned_to, "title": task.title} for task in running
        ],
    }


_OF_A_BREAKER = {"agent", "state", "until", "reason", "ts"}
_OF_A_PLAN = {"agent", "mode", "confidence", "phases", "fallback", "replan", "ts"}
_OF_A_REQUEST = {"request", "agent", "action", "detail", "options", "expires", "ts"}


def read_status(workspace: Path, stored: Stored, team: Team) -> SessionStatus:
    """Return the state of a session and of the agents of its team."""
    events = queries.last_chain(stored.transcript).events
    conversation = read_conversation(list_visible(events))
    fold = store.load_state(stored.transcript)
    control = fold.control or SessionControl()
    chain = fold.open
    state = (chain.control if chain else None) or ControlState()
    is_held = store.is_held(stored.folder)
    is_flow = chain is None and reader.ends_with_flow(stored.transcript)
    return SessionStatus(
        stored.name,
        _read_activity(chain, stored.transcript, is_held=is_held, is_flow=is_flow),
        fold.chain,
        state.pause.detail if state.pause else "",
        [_read_agent(member.id, conversation, control, is_held=is_held) for member in team.members],
        state.pending,
        list_waiting_notes(workspace, stored),
        [DecisionCounts(agent, *counts) for agent, counts in sorted(control.decisions.items())],
        team.config.mode,
        (team.config.supervisor or "") if team.config.mode != "free" else "",
        [breaker for breaker in control.breakers.values() if breaker.state != "closed"],
        control.tasks,
        state.plans[-1] if state.plans else None,
        _list_steps(stored.transcript) if is_flow else None,
    )


def _list_steps(path: Path) -> list[str]:
    """Return the steps of the last flow of a transcript that have begun and not ended."""
    steps: dict[str, None] = {}
    for event in (event for line in reader.read_lines(path) for event in line.events):
        step = getattr(event, "step", "")
        if event.type == "flow_started":
            steps.clear()
        elif event.type == "step_started":
            steps[step] = None
        elif event.type == "step_finished":
            steps.pop(step, None)
    return list(steps)


def list_waiting_notes(workspace: Path, stored: Stored | None) -> list[str]:
    """Return the ids of the notes of a session, or of the shared ones, that wait for a person."""
    notes, _ = shelves.list_notes(shelves.open_shelf(workspace, stored))
    return [note.id for note in notes if note.status == "pending_user"]


def is_open(stored: Stored) -> bool:
    """Return True if a session has an open chain, or if a process writes to it."""
    end = queries.summarize_session(stored.transcript)["end"]
    return end in ("open", "paused") or store.is_held(stored.folder)


def _read_activity(
    chain: Chain | None, transcript: Path, *, is_held: bool, is_flow: bool
) -> SessionActivity:
    """Return what the open chain of a session does, or without one its flow."""
    if chain is not None and chain.control and chain.control.pause:
        return "paused"
    if is_held or chain is not None:
        return "running" if is_held else "cut short"
    end = queries.summarize_session(transcript)["end"] if is_flow else None
    ends: dict[str | None, SessionActivity] = {"open": "cut short", "paused": "paused"}
    return ends.get(end, "idle")


def _read_agent(
    agent: str, conversation: Conversation, control: SessionControl, *, is_held: bool
) -> AgentStatus:
    """Return the state of an agent: what a person set, else what its last reply does."""
    state = control.agents.get(agent, "running")
    if state != "running":
        return AgentStatus(agent, state)
    chain = conversation.chains[-1] if conversation.chains else None
    if chain is None:
        return AgentStatus(agent, "idle")
    if chain.control and not chain.finished:
        for request in chain.control.pending:
            if request.asked.agent == agent:
                asked = request.asked
                return AgentStatus(agent, "waiting", asked.ts, asked.action, request=asked.request)
    for turn in reversed(chain.turns):
        if agent in turn.replies:
            return _read_reply(turn.replies[agent], chain, turn.started.turn, is_held=is_held)
    return AgentStatus(agent, "idle")


def _read_reply(reply: Reply, chain: Chain, number: int, *, is_held: bool) -> AgentStatus:
    agent = reply.agent
    if reply.is_running and reply.started is not None:
        if not is_held:
            return AgentStatus(agent, "idle", reply.started.ts, "cut short", number)
        return _read_running(reply, chain, number)
    end = reply.ends[-1]
    if end.status in ("error", "timeout"):
        return AgentStatus(agent, "error", end.ts, end.error or end.status, number)
    return AgentStatus(agent, "done", end.ts, end.status, number)


def _read_running(reply: Reply, chain: Chain, turn: int) -> AgentStatus:
    """Return the state of a running reply: the tools that run, or the last status it reported."""
    assert reply.started is not None
    event = chain.find_status(reply)
    if acting := _read_acting(reply, chain, event.seq if event else 0, turn):
        return acting
    if event is None:
        return AgentStatus(reply.agent, "running", reply.started.ts, turn=turn)
    if event.status == "waiting":
        return AgentStatus(reply.agent, "waiting", event.ts, event.detail, turn)
    activity = ": ".join(filter(None, (event.status, event.detail)))
    return AgentStatus(reply.agent, "running", reply.started.ts, activity, turn)


def _read_acting(reply: Reply, chain: Chain, reported: int, turn: int) -> AgentStatus | None:
    """Return what a reply with tools does; None if the status it `reported` then is newer."""
    events: Sequence[Any] = chain.turns[-1].side_events if chain.turns else ()
    steps = [e for e in events if e.is_acting and getattr(e, "reply", 0) == reply.number]
    if not steps or reported > steps[-1].seq:
        return None
    tools: dict[str, str] = {}  # of the calls that run
    for event in steps:
        if event.type == "tool_requested":
            tools[event.call] = event.tool
        elif event.type == "tool_finished":
            tools.pop(event.call, None)
    detail = f"calling_tool: {', '.join(tools.values())}" if tools else "generating"
    return AgentStatus(reply.agent, "running", steps[-1].ts, detail, turn)
