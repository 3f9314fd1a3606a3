"""What the agents of a session do now, and for what the session waits: `arena status`.

Everything is read from the transcript, the session's lock and its notes; nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.session import shelves, store
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.control_events import Request, SessionControl
from arena_cli.transcript.conversation import Chain, Conversation, Reply, Turn, read_conversation
from arena_cli.transcript.revisions import list_visible
from arena_cli.workspace.models import Team

AgentActivity = Literal["idle", "running", "waiting", "paused", "done", "error", "terminated"]
SessionActivity = Literal["running", "paused", "cut short", "idle"]


class AgentStatus(NamedTuple):
    """The state of an agent: `since` when (UTC, ISO 8601), `detail` on what."""

    agent: str
    state: AgentActivity
    since: str = ""
    detail: str = ""


class DecisionCounts(NamedTuple):
    """The decisions of an agent that rules or a supervisor looked at; `rate` from 0 to 1."""

    agent: str
    decisions: int
    rejected: int

    @property
    def rate(self) -> float:
        """The share of rejected decisions."""
        return round(self.rejected / self.decisions, 4) if self.decisions else 0.0


class SessionStatus(NamedTuple):
    """The state of a session; `detail` says for what a paused one waits.

    `notes` are the ids of its notes that wait for a person's approval.
    """

    session: str
    state: SessionActivity
    chain: int
    detail: str
    agents: Sequence[AgentStatus]
    requests: Sequence[Request]
    notes: Sequence[str]
    decisions: Sequence[DecisionCounts]

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
            "decisions": [{**counts._asdict(), "rate": counts.rate} for counts in self.decisions],
        }


_OF_A_REQUEST = {"request", "agent", "action", "detail", "options", "expires", "ts"}


def read_status(workspace: Path, stored: Stored, team: Team) -> SessionStatus:
    """Return the state of a session and of the agents of its team."""
    events = queries.last_chain(stored.transcript).events
    conversation = read_conversation(list_visible(events))
    fold = reader.load_fold(
        stored.transcript,
        on_message=lambda _: None,
        weigh=lambda _: 0,
        budget=0,
        keep=False,
    )
    control = fold.control or SessionControl()
    chain = fold.open
    is_held = store.is_held(stored.folder)
    waiting, _ = shelves.list_notes(shelves.open_shelf(workspace, stored))
    return SessionStatus(
        stored.name,
        _read_activity(chain, is_held=is_held),
        fold.chain,
        chain.control.pause.detail if chain and chain.control and chain.control.pause else "",
        [_read_agent(member.id, conversation, control, is_held=is_held) for member in team.members],
        chain.control.pending if chain and chain.control else [],
        [note.id for note in waiting if note.status == "pending_user"],
        [DecisionCounts(agent, *counts) for agent, counts in sorted(control.decisions.items())],
    )


def is_open(stored: Stored) -> bool:
    """Return True if a session has an open chain, or if a process writes to it."""
    end = queries.summarize_session(stored.transcript)["end"]
    return end in ("open", "paused") or store.is_held(stored.folder)


def _read_activity(chain: Chain | None, *, is_held: bool) -> SessionActivity:
    if chain is None:
        return "running" if is_held else "idle"
    if chain.control and chain.control.pause:
        return "paused"
    return "running" if is_held else "cut short"


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
                detail = f"request {request.asked.request}: {request.asked.action}"
                return AgentStatus(agent, "waiting", request.asked.ts, detail)
    turn, reply = _find_last_reply(agent, chain)
    if turn is None or reply is None:
        return AgentStatus(agent, "idle")
    return _read_reply(reply, chain, turn, is_held=is_held)


def _read_reply(reply: Reply, chain: Chain, turn: Turn, *, is_held: bool) -> AgentStatus:
    agent = reply.agent
    if reply.is_running and reply.started is not None:
        if not is_held:
            return AgentStatus(agent, "idle", reply.started.ts, "cut short")
        return _read_running(reply, chain, turn)
    end = reply.ends[-1]
    if end.status in ("error", "timeout"):
        return AgentStatus(agent, "error", end.ts, end.error or end.status)
    return AgentStatus(agent, "done", end.ts, f"turn {turn.started.turn}: {end.status}")


def _find_last_reply(agent: str, chain: Chain) -> tuple[Turn | None, Reply | None]:
    for turn in reversed(chain.turns):
        if agent in turn.replies:
            return turn, turn.replies[agent]
    return None, None


def _read_running(reply: Reply, chain: Chain, turn: Turn) -> AgentStatus:
    """Return the state of a running reply, by the last status that its agent reported."""
    assert reply.started is not None
    since, detail = reply.started.ts, f"turn {turn.started.turn}"
    event = chain.find_status(reply)
    if event is None:
        return AgentStatus(reply.agent, "running", since, detail)
    if event.status == "waiting":
        return AgentStatus(reply.agent, "waiting", event.ts, event.detail)
    activity = ": ".join(filter(None, (event.status, event.detail)))
    return AgentStatus(reply.agent, "running", since, f"{detail}, {activity}")
