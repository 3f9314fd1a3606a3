"""What an agent of the Agent Client Protocol says went wrong, as an agent's failure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from arena_cli.adapters.api import http
from arena_cli.adapters.api.http import Asked
from arena_cli.ground import text as texts
from arena_cli.ground.errors import AgentError, AgentProtocolError, AgentRefused

AUTH_REQUIRED = -32000  # agentclientprotocol.com/protocol/schema, ErrorCode
_SHOWN = 300

_STATUS = re.compile(
    r"(?:error|status|code|rejected|http)\W{0,4}(?:code\W{0,4})?([45]\d\d)\b", re.IGNORECASE
)
_CUT_OFF = re.compile(r"output token (?:maximum|limit)", re.IGNORECASE)
# Words of agents that name no status.
_SAYS = {
    r"(?i)experiencing high demand|overloaded": 503,
    r"(?i)usage limit|rate limit|quota": 429,
}


class Said(NamedTuple):
    """An error as it came: a code of JSON-RPC (some agents put an HTTP status there), its text."""

    code: object
    message: str
    data: object = None

    @property
    def text(self) -> str:
        """Its words in one line; of a provider's JSON, its message."""
        details = self.data.get("details") if isinstance(self.data, dict) else None
        said = http.said_in(self.message)
        if isinstance(details, str) and details not in said:
            said = f"{said}: {details}"
        return texts.cut(" ".join(said.split()), _SHOWN)


def failure(asked: Asked, said: Said, says: Mapping[str, int]) -> AgentError:
    """An error that the agent answered with; `says` are words that amount to an HTTP status."""
    status = _status(said, says)
    kind: type[AgentError] = AgentProtocolError
    what, mend = "it answered with an error", ""
    if _CUT_OFF.search(said.text):
        what = "its answer was cut off"
        mend = "raise that limit in the agent's own settings, or ask for less"
    elif said.code == AUTH_REQUIRED:
        kind, what, mend = AgentRefused, "it is not logged in", asked.key
    elif status is not None:
        error = http.status_failure(asked, status, {}, said.text)
        if status == 404:
            error.mend = "see `model` in its profile"
        return error
    return kind(asked.agent_id, what, asked=asked.url, came=said.text, mend=mend)


def _status(said: Said, says: Mapping[str, int]) -> int | None:
    """The HTTP status that it amounts to, where it tells one."""
    if isinstance(said.code, int) and 400 <= said.code < 600:
        return said.code
    whole = f"{said.text} {json.dumps(said.data)}"
    for words, status in says.items():
        if re.search(words, whole):
            return status
    if found := _STATUS.search(said.text):
        return int(found[1])
    if http.is_too_long(0, said.text):
        return 400
    return next((status for words, status in _SAYS.items() if re.search(words, said.text)), None)
