"""Replies to a message and reactions to it: of agents, in their answers, and of people.

A message that answers one that its author names quotes it, and keeps the reactions to it. Neither
calls any agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from arena_cli.engine.inbox import ControlRequest
from arena_cli.engine.plan import Planned, Room
from arena_cli.errors import UsageError
from arena_cli.protocol import AgentOutput, Message, StructuredContent
from arena_cli.transcript import queries
from arena_cli.transcript.conversation import quote_message
from arena_cli.transcript.events import MessageEvent
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util.text import escape_line

REACTIONS = ("👍", "👎", "✅", "❓", "🎉")
_PLAIN = str.maketrans("", "", "\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
"""Removes the signs that only change how an emoji is drawn."""


class Reference(NamedTuple):
    """What an agent's message refers to, as fields of `Message`."""

    reply_to: str | None
    quoted: str
    reactions: list[str]
    structured: list[StructuredContent]
    metadata: dict[str, Any]


def read_reference(planned: Planned, room: Room, output: AgentOutput) -> Reference:
    """Return the message that an answer refers to, and its reactions.

    Without the name of a message, it is the one that the reply answers.
    """
    reactions, others, name = _read_reactions(output)
    message = _find_message(name, planned.agent, room) if name else None
    metadata: dict[str, Any] = {"reactions": others} if others else {}
    if name and message is None:
        metadata["reply_to"] = name
    if message is None and reactions and planned.reply_to:
        message = _find_message(planned.reply_to, planned.agent, room)
    return Reference(
        message.id if message else planned.reply_to,
        quote_message(message) if message else "",
        reactions if message else [],
        [part for part in output.structured if part.type != "reaction"],
        metadata,
    )


def _read_reactions(output: AgentOutput) -> tuple[list[str], list[str], str | None]:
    """Return the reactions of an answer, its other emojis, and the name of the message, if any."""
    names, emojis = [output.reply_to], dict[str, None]()
    for part in output.structured:
        if part.type == "reaction":
            data = part.data if isinstance(part.data, dict) else {"reaction": part.data}
            emojis[_read_emoji(data)] = None
            names.append(str(data.get("message") or data.get("to") or ""))
    reactions = [emoji for emoji in emojis if emoji in REACTIONS]
    others = [emoji for emoji in emojis if emoji and emoji not in REACTIONS]
    return reactions, others, next(filter(None, names), None)


def _read_emoji(data: dict[str, Any]) -> str:
    emoji = data.get("reaction") or data.get("emoji") or ""
    return str(emoji).strip().translate(_PLAIN)


def _find_message(name: str, agent: str, room: Room) -> Message | None:
    """Return the message of that id, or the last one of that author, if the agent may see it."""
    name = name.strip().removeprefix("@")
    history = room.scene.history
    message: Message | None = history.message(name)
    if message is None:
        authors = (shown for shown in reversed(history.after()) if shown.author_id == name)
        message = next((shown for shown in authors if shown.content), None)
    if message is None or (message.shown_to and agent not in message.shown_to):
        return None
    return message


def react(request: ControlRequest, room: Room) -> str:
    """Write a person's reaction to a message. Raises UsageError or DiskRefused."""
    emoji = request.text.strip().translate(_PLAIN)
    if emoji not in REACTIONS:
        raise UsageError(
            f"{escape_line(emoji)!r} is no reaction", f"Use one of {' '.join(REACTIONS)}."
        )
    message = find_target(request.target, room)
    _check_new(message, emoji, request.by, room)
    stamp = room.journal.stamp()
    humans = {human.id: human.name for human in room.scene.team.humans}
    reaction = Message(
        id=stamp.message_id,
        author_id=request.by,
        author_name=humans.get(request.by) or request.by,
        author_type="human",
        content="",
        reply_to=message.id,
        quoted=quote_message(message),
        reactions=[emoji],
        shown_to=message.shown_to if message.thread else [],
        thread=message.thread,
        timestamp=stamp.ts,
    )
    room.journal.write(MessageEvent, stamp=stamp, message=reaction)
    return f"{request.by} reacted to {message.id} with {emoji}"


def find_target(name: str, room: Room) -> Message:
    """Return the message of that id, as agents are shown it now. Raises UsageError."""
    revisions = room.scene.fold.revisions or NO_REVISIONS
    message = queries.message(room.journal.log.path, name)
    if message is None or revisions.is_skipped(message.seq):
        raise UsageError(
            f"session {escape_line(room.scene.session_id)} has no message {escape_line(name)}",
            "`arena show SESSION --json` has the ids of messages.",
        )
    return revisions.correct_message(message)


def _check_new(message: Message, emoji: str, by: str, room: Room) -> None:
    """Raise UsageError if that person reacted so already."""
    path, revisions = room.journal.log.path, room.scene.fold.revisions
    for event in queries.list_newest(path, {"message"}, revisions):
        if event.seq <= message.seq:
            return
        if isinstance(event, MessageEvent) and _is_same(event.message, message.id, emoji, by):
            raise UsageError(f"{message.id} has {emoji} of {by} already")


def _is_same(reaction: Message, target: str, emoji: str, by: str) -> bool:
    return (reaction.reply_to, reaction.author_id) == (target, by) and emoji in reaction.reactions
