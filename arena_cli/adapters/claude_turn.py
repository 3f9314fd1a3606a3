"""Read the turns of Claude Code: its text, its uses of tools, its session, tokens and cost."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.adapters import http, permission_requests, pricing
from arena_cli.adapters.anthropic.response import read_tokens
from arena_cli.adapters.coding_agents import ToolUses, describe_tool_use
from arena_cli.adapters.permission_requests import Change
from arena_cli.adapters.pricing import Pricing, read_cost, read_count
from arena_cli.adapters.process import diagnosis
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.protocol import (
    AgentOutput,
    AgentSession,
    Emit,
    Permission,
    PermissionRequest,
    SessionId,
    StatusEvent,
    TextDelta,
    Usage,
)
from arena_cli.util.text import clean_text, clean_value, cut_text

_CLAUDE_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Spending(NamedTuple):
    """The dollars and tokens that a session has used so far, as the program counts them."""

    cost_usd: float
    tokens: int


class ClaudeSession(NamedTuple):
    """A session of Claude Code; `spending` is None if it is not known.

    `usage` of a result is that of its turn alone; `total_cost_usd` and `modelUsage` are those of
    the session, or, in older versions, of the process. So the sums are kept with the session's id,
    for the next call to compute the difference, even in another arena process.
    """

    id: str
    spending: Spending | None

    @classmethod
    def begin(cls) -> ClaudeSession:
        """Return a new session without any usage."""
        return cls(str(uuid.uuid4()), Spending(0, 0))

    @classmethod
    def load(cls, session: AgentSession | None) -> ClaudeSession | None:
        """Return the session of an earlier call; None if it is none of Claude Code's."""
        if session is None or not _CLAUDE_SESSION_ID.fullmatch(session.id):
            return None
        try:
            spending = Spending(float(session.state["usd"]), int(session.state["tokens"]))
        except (KeyError, TypeError, ValueError):
            spending = None
        return cls(session.id, spending)

    def dump(self) -> SessionId:
        """Return the session for the next call to load."""
        spent = self.spending
        state = {"usd": round(spent.cost_usd, 10), "tokens": spent.tokens} if spent else {}
        return SessionId(self.id, state)


def read_turn_usage(
    result: dict[str, Any],
    earlier: Spending | None,
    own_results: Sequence[dict[str, Any]] = (),
    rates: Pricing | None = None,
) -> Usage:
    """Return the tokens and the cost of a turn; `earlier` is the session's spending before it.

    `own_results` are the results of turns that the program ran by itself since then; they count
    too. `rates` are the prices of the model in `arena.yaml`. They apply if the program knows no
    price: it then reports a cost of 0, or that it guesses.
    """
    usage = Usage.total([read_tokens(each) for each in (*own_results, result)])
    cost = read_cost(result.get("total_cost_usd"))
    if cost is None or 0 <= cost < math.inf:
        cost = _turn_cost(usage, read_spending(result), earlier)
        if not cost and _count_tokens(usage):
            cost = pricing.cost_usd(usage, model="", pricing=rates) if rates else None
    return usage.model_copy(update={"cost_usd": cost})


def read_spending(result: dict[str, Any]) -> Spending | None:
    """Return the session's spending with this turn; None if the program knows no price."""
    cost = read_cost(result.get("total_cost_usd"))
    models = [dict_or_empty(model) for model in dict_or_empty(result.get("modelUsage")).values()]
    if cost is None or not 0 <= cost < math.inf:
        return None
    if any(model.get("costBasis") == "unknown" for model in models):
        return None
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    return Spending(cost, sum(read_count(model.get(name)) for model in models for name in names))


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _turn_cost(usage: Usage, current: Spending | None, earlier: Spending | None) -> float | None:
    """Return the cost of a turn, None if unknown.

    If the session's sum is lower than before, the program has restarted its count.
    """
    if current is None:
        return None
    if current.tokens < _count_tokens(usage) + (earlier.tokens if earlier else 1):
        return current.cost_usd
    return max(0.0, round(current.cost_usd - earlier.cost_usd, 10)) if earlier else None


def _count_tokens(usage: Usage) -> int:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return usage.input_tokens + usage.output_tokens + cached


EDITING_TOOLS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})

_NO_SUCH_TOOL = "No such tool available"


class ClaudeToolUses(ToolUses):
    """Report the uses of tools in one turn, and those that were refused; paths from `folder`."""

    def __init__(self, emit: Emit, folder: Path) -> None:
        super().__init__(emit)
        self._folder = folder

    def read_block(self, block: dict[str, Any]) -> None:
        """Report a use that begins, by its `tool_use` block."""
        use = describe_tool_use(block.get("name"), block.get("input"), self._folder)
        self.begin(block.get("id"), use)

    def read_results(self, event: dict[str, Any]) -> None:
        """Report the uses that were refused, by the `user` object that tells the agent so."""
        metas = map(dict_or_empty, list_or_empty(event.get("tool_result_meta")))
        decisions = {str(meta.get("id")): meta.get("permission_decision") for meta in metas}
        blocks = list_or_empty(dict_or_empty(event.get("message")).get("content"))
        for block in map(dict_or_empty, blocks):
            use_id = block.get("tool_use_id")
            if dict_or_empty(decisions.get(str(use_id))).get("decision") == "reject":
                self.refuse(use_id, "permission_mode")
            elif block.get("is_error") and _NO_SUCH_TOOL in str(block.get("content")):
                self.refuse(use_id, "not enabled")

    def read_denials(self, result: dict[str, Any]) -> None:
        """Report the uses that only the `result` lists as refused, as older versions do."""
        for denial in map(dict_or_empty, list_or_empty(result.get("permission_denials"))):
            use_id, arguments = denial.get("tool_use_id"), denial.get("tool_input")
            use = describe_tool_use(denial.get("tool_name"), arguments, self._folder)
            self.refuse(use_id, "permission_mode", use)

    def decide(self, use_id: Any, name: Any, arguments: Any, permission: Permission) -> None:
        """Report a use that is denied by a decision; one that a person decides later is none."""
        if permission.verdict == "asked":
            self.postpone(use_id)
        elif permission.verdict == "denied":
            use = describe_tool_use(name, arguments, self._folder)
            self.refuse(use_id, permission_requests.REFUSED_BY, use)


_CALLS = {"WebFetch": "url", "WebSearch": "query"}
_READS = {"Read": "file_path", "Glob": "path", "Grep": "path", "LS": "path"}
_ACTIONS = {
    "Bash": permission_requests.EXECUTE,
    **dict.fromkeys(EDITING_TOOLS, permission_requests.MODIFY),
    **dict.fromkeys(_CALLS, permission_requests.CALL),
    **dict.fromkeys(_READS, permission_requests.READ),
}


def describe_claude_act(tool: str, arguments: dict[str, Any], folder: Path) -> PermissionRequest:
    """Return what Claude Code wants to do with one of its tools."""
    if tool == "Bash" and isinstance(arguments.get("command"), str):
        return permission_requests.describe_command(tool, arguments["command"], arguments, folder)
    path = arguments.get("file_path") or arguments.get("notebook_path")
    if tool in EDITING_TOOLS and isinstance(path, str):
        changes = [_describe_change(path, arguments, folder)]
        return permission_requests.describe_edit(tool, [], changes, arguments, folder)
    target, place = arguments.get(_CALLS.get(tool, "")), arguments.get(_READS.get(tool, ""))
    if isinstance(target, str):
        return permission_requests.describe_call(tool, target, arguments)
    if isinstance(place, str):
        return permission_requests.describe_reading(tool, [place], arguments, folder)
    return permission_requests.describe_other(
        tool, arguments, _ACTIONS.get(tool, permission_requests.OTHER)
    )


def _describe_change(path: str, arguments: dict[str, Any], folder: Path) -> Change:
    """Return the change of a whole file if it can be read, else of the part that is replaced."""
    before = permission_requests.read_before(path, folder) or ""
    content, source = arguments.get("content"), arguments.get("new_source")
    if isinstance(content, str):
        return Change(path, before, content)
    if isinstance(source, str):
        return Change(path, "", source)
    edits = [dict_or_empty(edit) for edit in list_or_empty(arguments.get("edits"))] or [arguments]
    olds, news = ([str(edit.get(f"{key}_string", "")) for edit in edits] for key in ("old", "new"))
    after = before
    for edit, old, new in zip(edits, olds, news, strict=True):
        if not old or old not in after:
            return Change(path, "\n".join(olds), "\n".join(news))
        after = after.replace(old, new, -1 if edit.get("replace_all") else 1)
    return Change(path, before, after)


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
        """Record that the message was sent, to a new process if `is_new`."""
        if is_new:
            self._reset()
        self.is_own_turn = self._is_running

    def observe(self, event: dict[str, Any]) -> None:
        """Update the turns by an object that Claude Code wrote."""
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
    """Return the uuids of the messages that caused an event, if it names any."""
    several = event.get("user_message_uuids")
    message_ids = several if isinstance(several, list) else []
    return [each for each in (*message_ids, event.get("user_message_uuid")) if each]


LOST_SESSION = "No conversation found"
LOGIN_HINT = "run `claude` once to log in, or pass a key on: env: {ANTHROPIC_API_KEY: inherit}"

_MAX_SHOWN_CHARACTERS = 600

_UNREACHED = ("connection", "timed out", "network", "dns")


class SessionLostError(Exception):
    """The session to resume is gone."""


class ClaudeTurn:
    """Read the objects of one turn as they come, and emit the text and status in them.

    The shapes are those of `--output-format stream-json` captured from 2.1.197 and 2.1.332.
    `is_error` marks a turn that failed; `subtype` is `success` for most failures too. `has_begun`:
    the model has answered something. `folder` is where the program runs; `rates` are the prices of
    its model in `arena.yaml`.
    """

    def __init__(
        self,
        request: http.HttpRequest,
        emit: Emit,
        tracker: TurnTracker,
        folder: Path,
        rates: Pricing | None = None,
    ) -> None:
        self._request = request
        self._emit = emit
        self._tracker = tracker
        self._folder = folder
        self._was_asked = False
        self._tools = ClaudeToolUses(emit, folder)
        self._rates = rates
        self._thinking: list[str] = []
        self._message_id: Any = None
        self._texts: list[str] = []
        self._own_results: list[dict[str, Any]] = []
        self._resets_at: float | None = None
        self.has_begun = False
        self._is_generating = False

    def is_end(self, event: dict[str, Any]) -> bool:
        """Return True if an object is the result of this turn, and not of one in between."""
        if event.get("type") != "result":
            return False
        is_answer = self._tracker.is_answer(event)
        self._tracker.observe(event)
        if not is_answer:
            self._own_results.append(event)
            self._thinking, self._texts, self._message_id = [], [], None
        return is_answer

    def read_event(self, event: dict[str, Any]) -> None:
        """Read one object that is not the last. Text of subagents is not part of the reply."""
        self._tracker.observe(event)
        kind = event.get("type")
        self.has_begun = self.has_begun or kind in ("assistant", "stream_event")
        is_main = event.get("parent_tool_use_id") is None
        if kind == "rate_limit_event":
            info = dict_or_empty(event.get("rate_limit_info"))
            if info.get("status") == "rejected" and isinstance(info.get("resetsAt"), (int, float)):
                self._resets_at = info["resetsAt"]
        elif kind == "stream_event" and is_main and not self._tracker.is_own_turn:
            self._read_delta(dict_or_empty(dict_or_empty(event.get("event")).get("delta")))
        elif kind == "assistant" and not self._tracker.is_own_turn:
            self._read_message(dict_or_empty(event.get("message")), is_main)
        elif kind == "user":
            self._tools.read_results(event)

    async def answer_request(self, event: dict[str, Any]) -> str | None:
        """Return the line that answers a request of the program; None if the object is none.

        It asks by `can_use_tool` whether it may use a tool (`--permission-prompt-tool stdio`).
        """
        if event.get("type") != "control_request":
            return None
        request = dict_or_empty(event.get("request"))
        response: dict[str, Any] = {"request_id": event.get("request_id")}
        if request.get("subtype") == "can_use_tool":
            decision = await self._decide(request)
            response |= {"subtype": "success", "response": decision}
        else:
            response |= {"subtype": "error", "error": "arena does not answer this request"}
        return json.dumps({"type": "control_response", "response": response})

    async def _decide(self, request: dict[str, Any]) -> dict[str, Any]:
        name, arguments = str(request.get("tool_name")), dict_or_empty(request.get("input"))
        act = describe_claude_act(name, arguments, self._folder)
        permission = await self._emit.permit(act)
        self._tools.decide(request.get("tool_use_id"), name, arguments, permission)
        self._was_asked = self._was_asked or permission.verdict == "asked"
        if permission.verdict == "allowed":
            return {"behavior": "allow", "updatedInput": arguments}
        return {"behavior": "deny", "message": permission_requests.explain(permission)}

    def read_result(self, result: dict[str, Any], earlier: Spending | None) -> AgentOutput:
        """Return the reply; `earlier` is the session's spending before this turn.

        Raises AgentError if there is none, SessionLostError if the session to resume is gone.
        """
        result, has_replaced = clean_value(result)
        self._tools.read_denials(result)
        usage = read_turn_usage(result, earlier, self._own_results, self._rates)
        if usage.input_tokens or usage.output_tokens:
            self._emit(usage)
        if result.get("is_error") or not isinstance(result.get("result"), str):
            raise self._failure(result)
        metadata: dict[str, Any] = {"raw": result}
        if self._own_results:
            metadata["unasked_results"] = len(self._own_results)
        if self._thinking:
            metadata["thinking"] = clean_text("\n\n".join(self._thinking))[0]
        if has_replaced:
            metadata["replaced_bytes"] = True
        content = clean_text("".join(self._texts))[0]
        if result["result"] not in content:
            content = result["result"]
        if self._was_asked and not content.strip():
            content = permission_requests.WAITS_TEXT
        return AgentOutput(content=content, usage=usage, metadata=metadata)

    def _read_delta(self, delta: dict[str, Any]) -> None:
        text = delta.get("text")
        if delta.get("type") == "text_delta" and isinstance(text, str):
            if not self._is_generating:
                self._is_generating = True
                self._emit(StatusEvent(status="generating"))
            self._emit(TextDelta(text))

    def _read_message(self, message: dict[str, Any], is_main: bool) -> None:
        """Read a message, or the next part of one: a message may come in several events.

        The last message's texts are the reply; `result` has only one of them in some versions.
        """
        if is_main and (message.get("id") is None or message.get("id") != self._message_id):
            self._message_id, self._texts = message.get("id"), []
        for block in map(dict_or_empty, list_or_empty(message.get("content"))):
            kind = block.get("type")
            if kind == "thinking" and block.get("thinking"):
                self._thinking.append(str(block["thinking"]))
            elif kind == "tool_use":
                self._is_generating = False
                self._tools.read_block(block)
            if is_main and kind == "text":
                self._texts.append(str(block.get("text", "")))
            elif is_main and "tool" in str(kind):
                self._texts = []  # text before a tool's call is no part of the reply

    def _failure(self, result: dict[str, Any]) -> AgentError | SessionLostError:
        raw_errors = result.get("errors")
        errors = [str(error) for error in raw_errors] if isinstance(raw_errors, list) else []
        message = str(result.get("result") or " | ".join(errors) or result.get("subtype", ""))
        if any(LOST_SESSION in error for error in errors):
            return SessionLostError(message)
        status = result.get("api_error_status")
        if status is None and http.is_too_long(0, message):
            status = 400
        if isinstance(status, int) and not isinstance(status, bool):
            headers = {}
            if self._resets_at is not None:
                headers["retry-after"] = f"{max(0.0, self._resets_at - time.time()):.0f}"
            error = http.status_failure(self._request, status, headers, message)
            if status == 404:
                error.mend = "see `model` in its profile"
        else:
            error_type, summary, hint = _explain_failure(result, message)
            is_max_turns = result.get("subtype") == "error_max_turns"
            error = error_type(
                self._request.agent_id,
                summary,
                asked=self._request.url,
                came=cut_text(" ".join(message.split()), _MAX_SHOWN_CHARACTERS),
                mend=hint,
                again=not (diagnosis.is_cut_off(message) or is_max_turns),
            )
        error.metadata["raw"] = result
        return error


def _explain_failure(result: dict[str, Any], message: str) -> tuple[type[AgentError], str, str]:
    """Return the class of the error, what happened and a hint, if no HTTP status is reported."""
    subtype, folded = result.get("subtype"), message.casefold()
    status = diagnosis.find_status(message)
    error_type: type[AgentError] = AgentProtocolError
    summary, hint = "Claude Code failed", "run `claude` by hand to see more"
    if result.get("stop_reason") == "refusal":
        error_type, summary = AgentRefused, "the model refused to answer this"
        hint = "rephrase the message, or ask another agent"
    elif subtype == "error_max_turns":
        summary = "it reached its limit of turns before it answered"
        hint = "raise --max-turns in `args`, or give it fewer tools"
    elif subtype == "error_max_budget_usd":
        error_type, summary = AgentRefused, "its budget is spent"
        hint = "raise --max-budget-usd in `args`"
    elif diagnosis.is_cut_off(message):
        summary = "its answer was cut off at the length limit"
        hint = (
            "raise it with env: {CLAUDE_CODE_MAX_OUTPUT_TOKENS: ...}, or ask for a shorter answer"
        )
    elif status == HTTPStatus.UNAUTHORIZED:
        error_type, summary, hint = AgentRefused, "Claude Code is not logged in", LOGIN_HINT
    elif status == HTTPStatus.PAYMENT_REQUIRED:
        error_type, summary = AgentRefused, "its provider reports that no credit is left"
        hint = "top up the account that its key belongs to"
    elif status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        error_type, summary = AgentOverloaded, "its provider is overloaded, or limits requests"
        hint = "try again later"
    elif status or any(words in folded for words in _UNREACHED):
        error_type, summary = AgentUnavailable, "Claude Code could not reach its provider"
        hint = "check the network, and ANTHROPIC_BASE_URL if `env` sets it"
    return error_type, summary, hint
