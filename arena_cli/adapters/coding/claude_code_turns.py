"""Find the `result` of Claude Code that answers the message it was sent."""

from __future__ import annotations

import uuid
from typing import Any


class TurnTracker:
    """Follow the turns of one process, to find the `result` that answers the message.

    Claude Code also runs turns of its own, when a task in the background has ended for example,
    before it reads a message or between two of them. Each ends with a `result`, too. Newer versions
    name in a result the messages that it answers (`user_message_uuids`) and its cause (`origin`);
    of older ones only the order of the events is known: `task_notification`, `init`, ..., `result`.

    `observe` must get all that the process writes, in order.
    is_own_turn: the running turn is Claude Code's own, as far as is known yet.
    """

    def __init__(self) -> None:
        self.is_own_turn = False
        self._message_id = ""
        self._is_running = False
        self._was_notified_before = False
        self._was_notified_within = False

    def expect(self) -> str:
        """Return the uuid for the next message."""
        self._message_id = str(uuid.uuid4())
        return self._message_id

    def mark_sent(self, is_new: bool) -> None:
        """Note that the message was sent, to a new process if `is_new`."""
        if is_new:
            self._reset()
        self.is_own_turn = self._is_running

    def observe(self, event: dict[str, Any]) -> None:
        """Follow the turns by an object that Claude Code wrote."""
        kind = (event.get("type"), event.get("subtype"))
        if event.get("parent_tool_use_id") is not None:
            return
        if kind[0] == "result":
            self._reset()
        elif kind == ("system", "task_notification"):
            self._was_notified_before = self._was_notified_before or not self._is_running
            self._was_notified_within = self._is_running
        elif kind == ("system", "init") and not self._is_running:
            self._is_running = True
            self.is_own_turn = self._was_notified_before
            self._was_notified_before = False
        elif self._message_id in _message_ids(event):
            self.is_own_turn = False

    def is_answer(self, result: dict[str, Any]) -> bool:
        """Return True if this result, not yet observed, ends the turn of the message."""
        message_ids = _message_ids(result)
        if message_ids:
            return self._message_id in message_ids
        origin = result.get("origin")
        cause = origin.get("kind") if isinstance(origin, dict) else None
        if cause == "human":
            return True
        if cause is not None and not self._was_notified_within:
            return False
        return not self.is_own_turn and not self._was_notified_before

    def _reset(self) -> None:
        self._is_running = self.is_own_turn = False
        self._was_notified_before = self._was_notified_within = False


def _message_ids(event: dict[str, Any]) -> list[Any]:
    """Return the uuids of the messages that caused an event, as far as it names any."""
    several = event.get("user_message_uuids")
    message_ids = several if isinstance(several, list) else []
    return [each for each in (*message_ids, event.get("user_message_uuid")) if each]
