"""Sessions that agents keep for themselves: what is written of one, and when it is used again.

What is written names how far the agent was shown the conversation there (`upto_seq`), and what of
it: a hash (`head`) over its adapter's settings, its role prompt and the team, and one (`shown`)
over the messages from `from_seq` on. If any of that is no longer as it was, it begins afresh.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from arena_cli.ground.protocol import AgentInput, AgentSession, SessionId
from arena_cli.team.model import Member


def record(
    session_id: SessionId, input: AgentInput, digests: Sequence[str], member: Member
) -> dict[str, Any]:
    """What is kept of the session in which a call was made (`reply_finished.agent_session`)."""
    seqs = [message.seq for message in input.messages] or [0]
    first, last = min(seqs), max(seqs)
    state = {"state": dict(session_id.state)} if session_id.state else {}
    return {
        "id": str(session_id),
        **state,
        "upto_seq": last,
        "from_seq": first,
        "head": _head(input, member),
        "shown": _shown(input, digests, first, last),
    }


def usable(
    kept: Mapping[str, Any] | None, input: AgentInput, digests: Sequence[str], member: Member
) -> AgentSession | None:
    """The kept session, if it holds what the agent would be shown now up to there.

    Messages that have left the agent's window since cannot be compared, and are taken as they were.
    """
    if not kept:
        return None
    try:
        own = AgentSession.model_validate(kept)
        first = int(kept["from_seq"])
    except (KeyError, TypeError, ValueError):
        return None
    if kept.get("head") != _head(input, member):
        return None
    is_comparable = any(message.seq == first for message in input.messages)
    if is_comparable and kept.get("shown") != _shown(input, digests, first, own.upto_seq):
        return None
    return own


def _head(input: AgentInput, member: Member) -> str:
    members = [info.model_dump() for info in input.members]
    return _hash([dict(member.profile.adapter), input.role_prompt, members])


def _shown(input: AgentInput, digests: Sequence[str], first: int, last: int) -> str:
    pairs = zip(input.messages, digests, strict=True)
    return _hash([digest for message, digest in pairs if first <= message.seq <= last])


def _hash(value: Any) -> str:
    """SHA-256 over the value as JSON, in hexadecimal."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
