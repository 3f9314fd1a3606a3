"""The sessions that agents keep for themselves: record one, and tell if it still fits the input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from arena_cli.protocol import AgentInput, AgentSession, SessionId
from arena_cli.workspace.models import Member


def record(
    session_id: SessionId, input: AgentInput, digests: Sequence[str], member: Member
) -> dict[str, Any]:
    """Return the agent's own session as recorded in `reply_finished.agent_session`."""
    seqs = [message.seq for message in input.messages] or [0]
    first, last = min(seqs), max(seqs)
    state = {"state": dict(session_id.state)} if session_id.state else {}
    return {
        "id": str(session_id),
        **state,
        "upto_seq": last,
        "from_seq": first,
        "head": _head(input, member),
        "shown": _hash_shown(input, digests, first, last),
    }


def find_usable(
    recorded: Mapping[str, Any] | None, input: AgentInput, digests: Sequence[str], member: Member
) -> AgentSession | None:
    """Return the recorded session if its content matches the agent's current input.

    Messages that have left the agent's window since then cannot be compared; they are assumed to
    match.
    """
    if not recorded:
        return None
    try:
        session = AgentSession.model_validate(recorded)
        first = int(recorded["from_seq"])
    except (KeyError, TypeError, ValueError):
        return None
    if recorded.get("head") != _head(input, member):
        return None
    is_comparable = any(message.seq == first for message in input.messages)
    if is_comparable and recorded.get("shown") != _hash_shown(
        input, digests, first, session.upto_seq
    ):
        return None
    return session


def _head(input: AgentInput, member: Member) -> str:
    members = [info.model_dump() for info in input.members]
    head = [dict(member.profile.adapter), input.role_prompt, members]
    return _hash(
        [*head, [turn.model_dump() for turn in input.examples]] if input.examples else head
    )


def _hash_shown(input: AgentInput, digests: Sequence[str], first: int, last: int) -> str:
    pairs = zip(input.messages, digests, strict=True)
    return _hash([digest for message, digest in pairs if first <= message.seq <= last])


def _hash(value: Any) -> str:
    """Return the SHA-256 of the value as JSON, in hexadecimal."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
