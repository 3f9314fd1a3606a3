"""The messages that steps refer to, and the reactions of people to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from arena_cli.engine.inbox import ControlRequest
from arena_cli.errors import UsageError
from arena_cli.protocol import Message
from arena_cli.scenarios.model import Step
from arena_cli.session.outgoing import USER, Outgoing
from arena_cli.session.session import Session
from arena_cli.transcript import reader
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util.text import escape_line

_ID = re.compile(r"m\d+")
_TYPES = frozenset({"message", "reply_finished"})


def find_last(messages: Iterable[Message | None], author: str) -> Message | None:
    """Return the first of these messages, the newest first, that the author wrote to the group."""
    return next(
        (
            message
            for message in messages
            if message is not None
            and (message.author_id, message.shown_to) == (author, [])
            and message.content
        ),
        None,
    )


def list_messages(listed: Iterable[Event]) -> list[Message]:
    """Return the messages of events, in order."""
    return [
        event.message
        for event in listed
        if isinstance(event, (MessageEvent, ReplyFinished)) and event.message
    ]


def find_answered(message: Message, messages: Sequence[Message]) -> str | None:
    """Return the author of the message that one answers; None if it is not the author's last."""
    earlier = [other for other in reversed(messages) if other.seq < message.seq]
    target = next((other for other in earlier if other.id == message.reply_to), None)
    if target is None or find_last(earlier, target.author_id) != target:
        return None
    return target.author_id


def resolve_reply(sent: Outgoing, session: Session) -> Outgoing:
    """Return the message with the id of the one that it answers. Raises UsageError."""
    if sent.reply_to is None or _ID.fullmatch(sent.reply_to):
        return sent
    return sent._replace(reply_to=_find_last_id(sent.reply_to, session))


def react(step: Step, session: Session) -> None:
    """Write the reaction of the step's person. Raises UsageError."""
    assert step.react is not None
    target = step.react.message or _find_last_id(step.react.agent, session)
    by = step.author or USER.id
    session.carry_out(ControlRequest(act="react", by=by, target=target, text=step.react.emoji))


def _find_last_id(author: str, session: Session) -> str:
    path = session.journal.log.path
    revisions = session.journal.fold.revisions or NO_REVISIONS
    messages = (
        event.message
        for event in reader.newest_first(path, path.stat().st_size, _TYPES)
        if isinstance(event, (MessageEvent, ReplyFinished)) and not revisions.is_skipped(event.seq)
    )
    found = find_last(messages, author)
    if found is None:
        raise UsageError(f"{escape_line(author)} has written no message to the group")
    return found.id
