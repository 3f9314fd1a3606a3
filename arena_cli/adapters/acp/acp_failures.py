"""What an agent of the Agent Client Protocol says went wrong, as an agent's failure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from arena_cli.ground import text as texts
from arena_cli.ground.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)

AUTH_REQUIRED = -32000  # agentclientprotocol.com/protocol/schema, ErrorCode
_SHOWN = 300

_STATUS = re.compile(
    r"(?:error|status|code|rejected|http)\W{0,4}(?:code\W{0,4})?([45]\d\d)\b", re.IGNORECASE
)
_CUT_OFF = re.compile(r"output token (?:maximum|limit)", re.IGNORECASE)
# Words of agents that name no status.
_SAYS = {
    re.compile(r"experiencing high demand|overloaded", re.IGNORECASE): 503,
    re.compile(r"usage limit|rate limit|quota", re.IGNORECASE): 429,
}
# `errorKind` of claude-agent-acp.
_KINDS = {
    "authentication_failed": 401,
    "oauth_org_not_allowed": 403,
    "billing_error": 402,
    "rate_limit": 429,
    "overloaded": 529,
    "invalid_request": 400,
    "model_not_found": 404,
    "server_error": 500,
}


class Said(NamedTuple):
    """An error as it came: a code of JSON-RPC (some agents put an HTTP status there), its text."""

    code: object
    message: str
    data: object = None

    @property
    def text(self) -> str:
        """Its words in one line."""
        details = self.data.get("details") if isinstance(self.data, dict) else None
        said = self.message
        with_message = re.fullmatch(r"\s*\{.*\}\s*", said, re.DOTALL)
        if with_message:
            said = _message_in(said)
        if isinstance(details, str) and details not in said:
            said = f"{said}: {details}"
        return texts.cut(" ".join(said.split()), _SHOWN)


@dataclass(frozen=True)
class Asked:
    """What was asked: of which agent, by which command and method; how one logs in there."""

    agent_id: str
    command: str
    log_in: str
    method: str = ""


def failure(asked: Asked, said: Said, metadata: Mapping[str, Any]) -> AgentError:
    """An error that the agent answered with."""
    if _CUT_OFF.search(said.text):
        mend = "raise that limit in the agent's own settings, or ask for less"
        return _error(AgentProtocolError, asked, "its answer was cut off", said, mend, metadata)
    status = _status(said)
    if said.code == AUTH_REQUIRED or status in (401, 403):
        return _error(
            AgentRefused,
            asked,
            "it is not logged in, or its key is wrong",
            said,
            asked.log_in,
            metadata,
        )
    if status in (429, 503, 529):
        what = "asked too often" if status == 429 else "it is overloaded"
        mend = "try again later, or set `on_failure: retry`"
        return _error(AgentOverloaded, asked, what, said, mend, metadata)
    if status is not None and status >= 500:
        return _error(
            AgentUnavailable, asked, "its provider failed", said, "try again later", metadata
        )
    if status is not None:
        mend = "see its model, its account and its own settings"
        return _error(AgentRefused, asked, "its provider refused the request", said, mend, metadata)
    return _error(AgentProtocolError, asked, "it answered with an error", said, "", metadata)


def _error(
    kind: type[AgentError],
    asked: Asked,
    what: str,
    said: Said,
    mend: str,
    metadata: Mapping[str, Any],
) -> AgentError:
    raw = {"code": said.code, "message": said.message, "data": said.data}
    return kind(
        asked.agent_id,
        what,
        asked=f"{asked.command} ({asked.method})",
        came=said.text,
        mend=mend,
        metadata={"raw": raw, **metadata},
    )


def _status(said: Said) -> int | None:
    """The HTTP status that it amounts to, where it tells one."""
    kind = said.data.get("errorKind") if isinstance(said.data, dict) else None
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    if isinstance(said.code, int) and 400 <= said.code < 600:
        return said.code
    if found := _STATUS.search(said.text):
        return int(found[1])
    return next((status for words, status in _SAYS.items() if words.search(said.text)), None)


def _message_in(text: str) -> str:
    """The message of an error that is a provider's JSON."""
    try:
        error = json.loads(text)
        message = error.get("error", error).get("message")
    except (ValueError, RecursionError, AttributeError):
        return text
    return message if isinstance(message, str) else text
