"""What an answer of OpenAI's protocol means: whether it is one, and which failure it is if not."""

from __future__ import annotations

import json
from typing import Any

from arena_cli.adapters.api import http
from arena_cli.adapters.api.http import Asked
from arena_cli.adapters.api.openai_answer import Answer, NoAnswerError, ServerSaidError
from arena_cli.ground import text as texts
from arena_cli.ground.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)

_SHOWN = 300
_CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})


def check(asked: Asked, answer: Answer, body: dict[str, Any], notes: dict[str, Any]) -> None:
    """Raises AgentError where the answer is no whole one.

    `body` is the request; `notes` are kept with the failure, in `partial` what was said.
    """
    reason = answer.finish_reason
    if answer.refusal:
        what = f"the model refused: {texts.cut(' '.join(''.join(answer.refusal).split()), _SHOWN)}"
        raise _error(AgentRefused, asked, what, "", "", notes)
    if reason == "content_filter":
        what = "its provider's filter stopped the answer"
        raise _error(AgentRefused, asked, what, _came(reason), "ask for something else", notes)
    if is_cut(answer):
        raise _truncated(asked, answer, body, notes)
    if reason == "insufficient_system_resource":  # DeepSeek's word for it
        what = "its provider ran out of room in the middle of the answer"
        raise _error(AgentOverloaded, asked, what, _came(reason), "try again later", notes)
    if reason == "error":
        what = "its provider failed in the middle of the answer"
        raise _error(AgentUnavailable, asked, what, _came(reason), "try again later", notes)
    if reason is None and answer.body is None:
        what = "the stream ended before the answer did"
        came = "no finish_reason" if answer.head else "no part of an answer"
        raise _error(AgentProtocolError, asked, what, came, "try again", notes)
    if answer.tools and "partial" not in notes:
        what = (
            f"it called {', '.join(answer.tools)}, a tool that it was not given, and said nothing"
        )
        mend = "tell it in its role_prompt to answer in text"
        raise _error(AgentProtocolError, asked, what, _came(reason), mend, notes)


def is_cut(answer: Answer) -> bool:
    """Whether the answer came to the limit of its length."""
    return answer.finish_reason in _CUT


def _truncated(
    asked: Asked, answer: Answer, body: dict[str, Any], notes: dict[str, Any]
) -> AgentError:
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    written = answer.reported.get("completion_tokens")
    what = "its answer was cut off at the limit of its length"
    if "partial" not in notes:
        what = "the limit of its length was reached before its answer began: it was still thinking"
    mend = "raise `context.max_output_tokens` in its profile"
    if isinstance(written, int) and isinstance(limit, int) and written < limit:
        mend = (
            f"it wrote {written} of {limit} tokens, so its context is full: lower"
            " `context.window_tokens` in its profile, or give the server a longer context"
        )
    return _error(
        AgentProtocolError,
        asked,
        f"{what} ({limit} tokens)",
        _came(answer.finish_reason),
        mend,
        notes,
    )


def server_failure(asked: Asked, error: ServerSaidError, notes: dict[str, Any]) -> AgentError:
    """What the server's own error means; after some text of an answer it is not tried again."""
    said = http.said_in(error.body)
    metadata: dict[str, Any] = {"raw": error.body}
    if error.status == 402 or '"insufficient_quota"' in error.body:
        what = "its provider says that there is no credit left"
        mend = "top up the account that its key belongs to"
        failure = _error(AgentRefused, asked, what, said, mend, metadata)
    elif error.status:
        failure = http.status_failure(asked, error.status, error.headers, error.body)
    else:
        what = "its server answered with an error"
        failure = _error(AgentUnavailable, asked, what, said, "try again later", metadata)
    failure.metadata.update({key: notes[key] for key in notes if key != "raw"})
    failure.again = "partial" not in notes
    return failure


def no_answer(asked: Asked, error: NoAnswerError, notes: dict[str, Any]) -> AgentError:
    """What came was no answer at all."""
    if error.came.lstrip()[:1] == "<":
        return http.status_failure(asked, 200, {}, error.came)
    metadata = notes or ({"raw": error.came} if error.came else {})
    came = texts.cut(" ".join(error.came.split()), _SHOWN)
    return _error(AgentProtocolError, asked, error.what, came, "see `base_url`", metadata)


def model_names(body: str) -> set[str] | None:
    """The models that a server lists at `/models`; None where it cannot be read."""
    try:
        listed = json.loads(body)["data"]
        return {str(model["id"]) for model in listed or []}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _came(reason: str | None) -> str:
    return f"finish_reason {reason}"


def _error(
    kind: type[AgentError],
    asked: Asked,
    what: str,
    came: str,
    mend: str,
    metadata: dict[str, Any],
) -> AgentError:
    return kind(asked.agent_id, what, asked=asked.url, came=came, mend=mend, metadata=metadata)
