"""A program's own session: its id, and what was used in it so far.

Some programs tell only what their whole session has used. Then that sum is kept with the id, for
the next call to tell the difference.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from arena_cli.ground.protocol import AgentSession, SessionId, Usage

_ID = re.compile(r"\w[\w.:-]{0,199}")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class ProgramSession(NamedTuple):
    """Its id, and what was used in it so far, where that is known."""

    id: str
    used: Usage | None = None

    def since(self, whole: Usage) -> Usage | None:
        """What was used since, of what was used as a whole; None where that is not known."""
        if self.used is None:
            return None
        counts = {name: getattr(whole, name) - getattr(self.used, name) for name in _COUNTS}
        return Usage(**counts) if min(counts.values()) >= 0 else None


def of(kept: AgentSession | None) -> ProgramSession | None:
    """What `told` told of an earlier call; None where its id could be an option of a program."""
    if kept is None or not _ID.fullmatch(kept.id):
        return None
    counts = {name: kept.state.get(name) for name in _COUNTS}
    if not all(isinstance(count, int) for count in counts.values()):
        return ProgramSession(kept.id)
    return ProgramSession(kept.id, Usage.model_validate(counts))


def told(session: ProgramSession) -> SessionId | None:
    """The session as the next call is to know it; None where it has no id that could be kept."""
    if not _ID.fullmatch(session.id):
        return None
    used = session.used
    return SessionId(session.id, {name: getattr(used, name) for name in _COUNTS} if used else {})
