"""Keep what the next call needs to continue a coding program's own session."""

from __future__ import annotations

import re
from typing import NamedTuple

from arena_cli.protocol import AgentSession, SessionId, Usage

_SESSION_ID = re.compile(r"\w[\w.:-]{0,199}")  # none that could be an option of a program
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class ProgramSession(NamedTuple):
    """The program's own session, and its usage so far if the program reports only that sum."""

    id: str
    used: Usage | None = None

    @classmethod
    def load(cls, session: AgentSession | None) -> ProgramSession | None:
        """Return the session of an earlier call; None if there is none that can be resumed."""
        if session is None or not _SESSION_ID.fullmatch(session.id):
            return None
        counts = {name: session.state.get(name) for name in _COUNTS}
        is_known = all(isinstance(count, int) for count in counts.values())
        return cls(session.id, Usage.model_validate(counts) if is_known else None)

    def dump(self) -> SessionId | None:
        """Return the session for the next call to load; None if its id cannot be kept."""
        if not _SESSION_ID.fullmatch(self.id):
            return None
        return SessionId(
            self.id, {name: getattr(self.used, name) for name in _COUNTS} if self.used else {}
        )

    def usage_since(self, total: Usage) -> Usage | None:
        """Return the difference to the session's new `total`; None if that is not known."""
        if self.used is None:
            return None
        counts = {name: getattr(total, name) - getattr(self.used, name) for name in _COUNTS}
        return Usage(**counts) if min(counts.values()) >= 0 else None
