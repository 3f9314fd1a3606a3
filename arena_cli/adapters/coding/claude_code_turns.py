"""Which `result` of Claude Code answers the message that it was sent.

Claude Code also runs turns of its own, when a task in the background has ended for example, before
it reads a message or between two of them. Each ends with a `result`, too. Newer versions name in a
result the messages that it answers (`user_message_uuids`) and who caused it (`origin`); of older
ones only the order of the events is known: `task_notification`, `init`, ..., `result`.
"""

from __future__ import annotations

import uuid
from typing import Any

_HUMAN = "human"


class Turns:
    """The turns of one process. Everything that it writes is passed to `take`, in order."""

    def __init__(self) -> None:
        self._message = ""
        self._runs = False
        self._is_own = False
        self._is_notified = False
        self._was_notified_within = False

    @property
    def is_own(self) -> bool:
        """Whether the running turn is Claude Code's own, as far as is known yet."""
        return self._is_own

    def expect(self) -> str:
        """Return the uuid for the next message."""
        self._message = str(uuid.uuid4())
        return self._message

    def sent(self, is_new: bool) -> None:
        """Note that the message was sent, to a new process if `is_new`."""
        if is_new:
            self._runs = self._is_notified = self._was_notified_within = False
        self._is_own = self._runs

    def take(self, value: dict[str, Any]) -> None:
        """Follow the turns by an object that Claude Code wrote."""
        kind, subtype = value.get("type"), value.get("subtype")
        if value.get("parent_tool_use_id") is not None:
            return
        if kind == "result":
            self._runs = self._is_own = self._is_notified = self._was_notified_within = False
        elif kind == "system" and subtype == "task_notification":
            self._is_notified = self._is_notified or not self._runs
            self._was_notified_within = self._runs
        elif kind == "system" and subtype == "init" and not self._runs:
            self._runs, self._is_own, self._is_notified = True, self._is_notified, False
        elif self._message in _messages_of(value):
            self._is_own = False

    def is_answer(self, result: dict[str, Any]) -> bool:
        """Return whether this result, not yet taken, ends the turn of the message."""
        named = _messages_of(result)
        if named:
            return self._message in named
        origin = result.get("origin")
        kind = origin.get("kind") if isinstance(origin, dict) else None
        if kind == _HUMAN:
            return True
        if kind is not None and not self._was_notified_within:
            return False
        return not self._is_own and not self._is_notified


def _messages_of(value: dict[str, Any]) -> list[Any]:
    """Return the uuids of the messages that caused an event, where it names any."""
    named = value.get("user_message_uuids")
    several = named if isinstance(named, list) else []
    return [name for name in (*several, value.get("user_message_uuid")) if name]
