"""Find the messages that each agent has not read: those that it was not shown yet.

An agent has read all that came before its last call began; what no longer fits its window then is
in the summary. A person may mark messages as read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from arena_cli.protocol import Message
from arena_cli.transcript.events import Event, ReplyStarted, SessionEvent
from arena_cli.transcript.state import Fold

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import MarkedRead


def list_unread(events: Iterable[Event], agents: Sequence[str] = ()) -> dict[str, list[Message]]:
    """Return the unread messages of these agents, or of each member, in the order it sees them.

    `events` are those of a session that agents are shown. An agent's own messages, those of which
    it is not shown, and reactions do not count.
    """
    messages: list[Message] = []
    read: dict[str, int] = {}
    members: list[str] = []
    fold = Fold(messages.append)
    for event in events:
        if isinstance(event, SessionEvent):
            members = [member.id for member in event.members]
        elif isinstance(event, ReplyStarted):
            read[event.agent] = len(messages)
        elif event.type == "marked_read":
            marked = cast("MarkedRead", event)
            known = [message.id for message in messages]
            count = known.index(marked.upto) + 1 if marked.upto in known else 0
            read |= {agent: max(read.get(agent, 0), count) for agent in marked.agents}
        fold.apply(event)
    return {
        agent: [
            message for message in messages[read.get(agent, 0) :] if _counts_for(message, agent)
        ]
        for agent in agents or members
    }


def _counts_for(message: Message, agent: str) -> bool:
    is_own = message.author_type == "agent" and message.author_id == agent
    is_hidden = bool(message.shown_to) and agent not in message.shown_to
    is_reaction = bool(message.reactions) and not message.content
    return not (is_own or is_hidden or is_reaction)
