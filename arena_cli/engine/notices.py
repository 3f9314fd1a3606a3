"""Write messages of the system, which call no agent."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from arena_cli.engine.plan import Room
from arena_cli.protocol import Message
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import MessageEvent

_NONE: Mapping[str, Any] = MappingProxyType({})


def write_notice(
    room: Room,
    content: str,
    metadata: Mapping[str, Any] = _NONE,
    *,
    chain: Chain | None = None,
    **fields: Any,
) -> Message:
    """Write a message of the system, in the thread of that chain, if any. Raises DiskRefused.

    `fields` are further fields of the message.
    """
    stamp = room.journal.stamp()
    message = Message(
        id=stamp.message_id,
        author_id="system",
        author_name="system",
        author_type="system",
        content=content,
        timestamp=stamp.ts,
        metadata=dict(metadata),
        **{"kind": "system", **fields},
    )
    message = chain.put_in_thread(message) if chain else message
    room.journal.write(MessageEvent, stamp=stamp, message=message)
    return message
