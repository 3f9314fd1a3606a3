"""Read the output of the coding programs: bytes in; the reply, its usage and errors out.

`CodingParser` has the common parts; each subclass reads the JSON objects of one program in
`read_event`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from arena_cli.adapters import http
from arena_cli.adapters.coding_agents import ToolUses, describe_codex_item, describe_tool_use
from arena_cli.adapters.pricing import read_cost
from arena_cli.adapters.process import diagnosis
from arena_cli.adapters.process.output import (
    MISSING,
    JsonObjects,
    NotAnAnswerError,
    Source,
    Tail,
    TextStream,
    get_at_path,
)
from arena_cli.protocol import CallNote, Emit, StatusEvent, TextDelta, Usage
from arena_cli.util.text import clean_value, cut_text
from arena_cli.workspace import visible_text

_MB = 1_000_000
_MAX_OUTPUT_MB = 256  # some programs repeat the text so far with every piece of it
_MAX_DETAIL_CHARACTERS = 200
_MAX_COUNT = 1e15  # a greater number is no number of tokens

_STATUS = re.compile(r"(?i)\b(?:status|code)\W{1,8}(?:code\W{1,4})?([45]\d\d)\b|^\W*([45]\d\d)\b")
# Lines of stderr that tell a user nothing.
_CUT_OFF = "its answer was cut off at the limit of output tokens"


class ReportedFailure(NamedTuple):
    """The program's error message instead of a reply, and the HTTP status for it."""

    message: str
    status: int | None = None


class CodingParser:
    """Collect a program's reply and emit it as it comes.

    reads_stderr: JSON objects count on stderr, too. lost_session: matches the message that the
    session to resume is gone. retries: matches a message that the program will retry by itself for
    long; it is ended then, and a group named `message` is what failed, another group the HTTP
    status. statuses, exit_statuses: the HTTP status that a message (pattern) or an exit code
    amounts to. refusals: matches the error of a tool that the program did not allow, `powers_key`
    being what allows tools in a profile.
    """

    reads_stderr: ClassVar[bool] = False
    lost_session: ClassVar[str]
    retries: ClassVar[str] = ""
    statuses: ClassVar[Mapping[str, int]] = {}
    exit_statuses: ClassVar[Mapping[int, int]] = {}
    refusals: ClassVar[str]
    powers_key: ClassVar[str]

    def __init__(self, emit: Emit, folder: Path | None = None) -> None:
        self._folder = folder
        self._tools = ToolUses(emit)
        self.session_id = ""
        self.usage: Usage | None = None
        self._emit = emit
        self._failure: ReportedFailure | None = None
        self._trouble = ""
        self._raw: dict[str, Any] = {}
        self._has_end = False
        self._has_recovered = False
        self._has_tools = False
        self._text = ""
        self._pieces: list[str] = []
        self._text_before_tool = ""
        self._has_emitted_text = False
        self._size = 0
        self._stderr = Tail()
        self._stderr_line = ""
        self._streams = {"stdout": TextStream(), "stderr": TextStream()}
        self._objects = {"stdout": JsonObjects(self._read_object)}
        if self.reads_stderr:
            self._objects["stderr"] = JsonObjects(self._read_object)

    def read_event(self, event: dict[str, Any]) -> None:
        """Read one JSON object of the program."""
        raise NotImplementedError

    def feed(self, source: Source, data: bytes) -> None:
        """Read bytes. Raises NotAnAnswerError if waiting for more is pointless."""
        self._size += len(data)
        if self._size > _MAX_OUTPUT_MB * _MB:
            raise NotAnAnswerError(f"wrote more than {_MAX_OUTPUT_MB} MB")
        self._read(source, self._streams[source].feed(data))

    def finish(self) -> None:
        """Read the last line, which has no line end."""
        self._read("stdout", self._streams["stdout"].finish())
        self._objects["stdout"].finish()
        self._read("stderr", self._streams["stderr"].finish())
        if self.reads_stderr:
            self._objects["stderr"].finish()

    def has_result(self) -> bool:
        """Return True if the program's last object was read."""
        return self._has_end

    def cut_off(self) -> None:
        """Emit the notes of a call that was cancelled."""
        self._emit(CallNote(self.notes()))

    def reply(self) -> str:
        """Return the reply, after `finish`. Raises NotAnAnswerError if there is none."""
        if not self._has_end:
            raise NotAnAnswerError("ended before its answer was complete")
        content = self.partial() or self._text_before_tool
        if not content.strip():
            raise NotAnAnswerError("answered nothing")
        return content

    def failure(self, exit_code: int | None) -> ReportedFailure | None:
        """Return why there is no reply; `exit_code` is None if the program was ended."""
        is_whole = self._has_recovered and self._has_end  # the exit code is the earlier error's
        if self._failure is None and (is_whole or not exit_code):
            return None
        message, status = self._failure or ReportedFailure(self._trouble)
        stderr = self._stderr.text
        status = status or self._find_status(message) or self._find_status(stderr)
        status = status or self.exit_statuses.get(exit_code or 0)
        message = message or diagnosis.list_last_lines(stderr)
        return ReportedFailure(message, status or diagnosis.find_status(message))

    def is_session_lost(self, exit_code: int | None) -> bool:
        """Return True if the program cannot resume its session.

        It reported that the session is gone, or it failed at once for no reason of its provider.
        """
        message = self._failure.message if self._failure else ""
        if re.search(self.lost_session, f"{message}\n{self._stderr.text}"):
            return True
        if self.partial() or self._text_before_tool or self.usage or self._has_tools:
            return False
        failure = self.failure(exit_code)
        if failure is None:
            return exit_code == 0 and not self._has_end
        if diagnosis.is_cut_off(failure.message):
            return False
        is_too_long = http.is_too_long(failure.status or 0, failure.message)
        return failure.status in (None, HTTPStatus.BAD_REQUEST) and not is_too_long

    def last_words(self) -> str:
        """Return the last lines of stderr, in which programs name their error."""
        return diagnosis.list_last_lines(self._stderr.text)

    def notes(self, *, is_partial: bool = False) -> dict[str, Any]:
        """Return the program's output other than the reply; of a partial reply, also that."""
        notes = {
            "log": self._objects["stdout"].log.text,
            "stderr": self._stderr.text,
            "trouble": self._trouble,
            "replaced_bytes": any(stream.replaced for stream in self._streams.values()),
            "raw": self._raw,
            "partial": self.partial() if is_partial else "",
        }
        return {name: note for name, note in notes.items() if note}

    def partial(self) -> str:
        """Return the reply as far as it was received."""
        return self._text or "".join(self._pieces)

    # For `read_event` of the subclasses:

    def set_session_id(self, session_id: Any) -> None:
        self.session_id = _text(session_id) or self.session_id

    def add_piece(self, value: Any) -> None:
        """Append the next piece of the reply."""
        if piece := _text(value):
            self._recover()
            self._pieces.append(piece)
            self._emit_text(piece)

    def set_text(self, value: Any) -> None:
        """Set the whole reply; it replaces an earlier one."""
        if text := _text(value):
            self._recover()
            if not self._pieces:
                self._emit_text(f"\n\n{text}" if self._has_emitted_text else text)
            self._text = text
            self._pieces.clear()

    def start_over(self) -> None:
        """Set aside the text before a tool call: it is the reply only if no text follows."""
        self._text_before_tool = self.partial() or self._text_before_tool
        self._text = ""
        self._pieces.clear()

    def add_usage(
        self,
        counts: Any,
        input: str,
        output: str,
        cache_read: str,
        cache_write: str,
        total: str = "",
        *,
        cost: Any = None,
        input_includes_cache: bool = False,
    ) -> None:
        """Add the tokens under these names in `counts`, and the cost in US$.

        If there is a `total`, the output is the total minus the input, so that it includes
        reasoning.
        """
        names = (input, output, cache_read, cache_write, total)
        numbers = [_count(get_at_path(counts, name)) if name else None for name in names]
        if numbers[0] is None and numbers[1] is None:
            return
        fresh, generated, read, write, all_tokens = (number or 0 for number in numbers)
        if input_includes_cache:
            fresh = max(0, fresh - read - write)
        if numbers[4] is not None:
            generated = max(0, all_tokens - fresh - read - write)
        usage = Usage(
            input_tokens=int(fresh),
            output_tokens=int(generated),
            cache_read_tokens=int(read),
            cache_write_tokens=int(write),
            cost_usd=read_cost(cost),
        )
        self.usage = usage if self.usage is None else Usage.total([self.usage, usage])

    def report_tool(self, name: Any, arguments: Any, use_id: Any) -> None:
        """Emit that a tool is called."""
        self._has_tools = True
        self._tools.begin(use_id, describe_tool_use(name, arguments, self._folder))

    def refuse_tool(self, use_id: Any, error: Any) -> None:
        """Emit that the use of a tool was refused, if its error says so."""
        if re.search(self.refusals, json.dumps(error, ensure_ascii=False, default=str)):
            self._tools.refuse(use_id, self.powers_key)

    def report_trouble(self, value: Any) -> None:
        """Keep and emit a message about an error that the program tries to recover from."""
        if message := diagnosis.simplify_message(_text(value)):
            self._trouble = message
            detail = cut_text(message, _MAX_DETAIL_CHARACTERS)
            self._emit(StatusEvent(status="waiting", detail=detail))
            self._stop_retries(message)

    def fail(
        self, event: dict[str, Any], message: Any, status: Any = None, *, ends: bool = False
    ) -> None:
        """Record why there is no reply, unless the message is MISSING.

        `ends`: end the program, which would continue by itself.
        """
        self._raw = event
        if message is not MISSING:
            plain, code = (
                diagnosis.simplify_message(_text(message) or json.dumps(message)),
                int(_count(status) or 0),
            )
            code = code if code >= HTTPStatus.BAD_REQUEST else 0  # some report 200 for a lost link
            is_shown = not code or str(code) in plain
            self._failure = ReportedFailure(plain if is_shown else f"{code} {plain}", code or None)
        if ends:
            raise NotAnAnswerError("was stopped before it could retry")

    def end(self, event: dict[str, Any]) -> None:
        """Record that this is the last object of interest."""
        self._raw = event
        self._has_end = True

    def _read(self, source: Source, text: str) -> None:
        if source in self._objects:
            self._objects[source].feed(text)
        if source == "stderr":
            self._stderr.add(text)
            *lines, self._stderr_line = (self._stderr_line + text).split("\n")
            for line in lines:
                self._stop_retries(line)

    def _stop_retries(self, message: str) -> None:
        """Fail if the program reports that it will retry by itself."""
        match = re.search(self.retries, message) if self.retries else None
        if match:
            status = next((group for group in match.groups() if group and group.isdecimal()), None)
            message = match.groupdict().get("message") or message
            self._failure = ReportedFailure(
                diagnosis.simplify_message(message), int(status) if status else None
            )
            raise NotAnAnswerError("would keep retrying")

    def _read_object(self, value: dict[str, Any]) -> bool:
        self.read_event(clean_value(value)[0])
        return False  # nothing is to be kept by JsonObjects

    def _recover(self) -> None:
        """Read text after a failure as that of a program that got over it and answers again."""
        if self._failure is not None and not self._has_end:
            self._trouble, self._failure = self._failure.message, None
            self._has_recovered = True
            self._text = ""
            self._pieces.clear()

    def _emit_text(self, text: str) -> None:
        self._has_emitted_text = True
        self._emit(TextDelta(text))

    def _find_status(self, text: str) -> int | None:
        for pattern, status in self.statuses.items():
            if re.search(pattern, text):
                return status
        match = _STATUS.search(text)
        return int(match[1] or match[2]) if match else None


class CodexParser(CodingParser):
    """Read `codex exec --json`; its usage is that of the whole session."""

    reads_stderr = True
    lost_session = r"no rollout found for thread id"
    retries = r"waiting for network"
    refusals = r'Read-only file system|Operation not permitted|rejected by user|"declined"\]'
    powers_key = "sandbox_mode"
    statuses: ClassVar[Mapping[str, int]] = {
        r"waiting for network": 502,
        r"experiencing high demand": 503,
        r"usage limit": 429,
        r"context window": 400,
    }

    def read_event(self, event: dict[str, Any]) -> None:
        kind, item_kind = event.get("type"), get_at_path(event, "item.type")
        if kind == "thread.started":
            self.set_session_id(event.get("thread_id"))
        elif kind == "item.completed" and item_kind == "agent_message":
            self.set_text(get_at_path(event, "item.text"))
        elif kind in ("item.started", "item.completed") and isinstance(item_kind, str):
            item = event["item"]
            if use := describe_codex_item(item, self._folder):
                self._tools.begin(item.get("id"), use)
            if item.get("status") in ("failed", "declined"):
                self.refuse_tool(item.get("id"), [item.get("aggregated_output"), item["status"]])
        elif kind == "turn.completed":
            names = ("input_tokens", "output_tokens")
            cache_names = ("cached_input_tokens", "cache_write_input_tokens")
            self.add_usage(event.get("usage"), *names, *cache_names, input_includes_cache=True)
            self.end(event)
        elif kind == "error":
            self.report_trouble(event.get("message"))
        elif kind == "turn.failed":
            self.fail(event, get_at_path(event, "error.message"))
            self.end(event)


class GeminiParser(CodingParser):
    """Read `gemini --output-format stream-json`."""

    reads_stderr = True
    lost_session = r"Error resuming session"
    retries = r"Attempt \d+ failed(?: with status (\d+))?.*Retrying"
    statuses: ClassVar[Mapping[str, int]] = {r"fetch failed": 502, r"ModelNotFoundError": 404}
    exit_statuses: ClassVar[Mapping[int, int]] = {41: 401}
    refusals = r"tool_not_registered|execution_denied|policy_violation|(?i:access denied|by policy)"
    powers_key = "--approval-mode"

    def read_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "init":
            self.set_session_id(event.get("session_id"))
        elif kind == "message" and event.get("role") == "assistant":
            self.add_piece(event.get("content"))
        elif kind == "tool_use":
            self.start_over()
            arguments = event.get("parameters")
            self.report_tool(event.get("tool_name"), arguments, event.get("tool_id"))
        elif kind == "tool_result" and event.get("status") == "error":
            self.refuse_tool(event.get("tool_id"), event.get("error"))
        elif kind == "error":
            self.report_trouble(event.get("message"))
        elif kind == "result":
            names = ("input_tokens", "output_tokens", "cached", "", "total_tokens")
            self.add_usage(event.get("stats"), *names, input_includes_cache=True)
            self.end(event)
            if event.get("status") == "error":
                self.fail(event, get_at_path(event, "error.message"))

    def reply(self) -> str:
        """Return the reply without the backslashes that the model copied from the prompt.

        `GeminiAdapter.escape_prompt` writes them before each `@`. Code stays as it is.
        """
        reply = super().reply()
        code_spans = visible_text.find_hidden_spans(reply) if "\\@" in reply else []

        def unescape(match: re.Match[str]) -> str:
            in_code = any(start <= match.start() < end for start, end in code_spans)
            return match[0] if in_code else "@"

        return re.sub(r"\\@", unescape, reply)


# Errors after which opencode retries without a word on stdout.
_OPENCODE_RETRIED = (
    r"rate.?limit|too many requests|overloaded|unavailable|exhausted|at capacity|try again"
    r"|(?:server|internal|network|connection|connect|socket|fetch)\b.{0,40}"
    r"(?:error|failed|closed|refused|lost|reset|unable)|terminated|timed? ?out"
)


class OpencodeParser(CodingParser):
    """Read `opencode run --format json --print-logs`."""

    lost_session = r"Session not found"
    refusals = r"unavailable tool|rule which prevents|rejected permission"
    powers_key = "OPENCODE_PERMISSION"
    retries = (
        r'level=ERROR .*?(?:"stream error" .*small=false .*?'
        rf'"\w+: (?=(?i:[^"]*(?:{_OPENCODE_RETRIED})))'
        r'|error="ProviderModelNotFoundError: )(?P<message>[^"]+)'
    )
    statuses: ClassVar[Mapping[str, int]] = {
        r"(?i)context (?:length|window)|prompt is too long": 400,
        r"(?i)cannot connect|connection|socket|network|timed? ?out": 502,
    }
    # Finish reasons after which opencode would ask its model again by itself.
    _failed_reasons: ClassVar[Mapping[str, str]] = {
        "length": _CUT_OFF,
        "content-filter": "the provider's filter blocked its answer",
        "unknown": "its model's answer ended before it was complete",
    }

    def read_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "step_start":
            self.set_session_id(event.get("sessionID"))
        elif kind == "text":
            self.add_piece(get_at_path(event, "part.text"))
        elif kind == "tool_use":
            self._read_tool(event)
        elif kind == "step_finish":
            self._finish_step(event)
        elif kind == "error":
            self.fail(
                event,
                get_at_path(event, "error.data.message"),
                get_at_path(event, "error.data.statusCode"),
            )

    def _read_tool(self, event: dict[str, Any]) -> None:
        """Read the use of a tool, which comes when it is over."""
        tool, arguments = get_at_path(event, "part.tool"), get_at_path(event, "part.state.input")
        error, use_id = get_at_path(event, "part.state.error"), get_at_path(event, "part.callID")
        if tool == "invalid":  # stands for a tool that it does not have
            tool, error = get_at_path(arguments, "tool"), get_at_path(arguments, "error")
        self.report_tool(tool, arguments, use_id)
        if isinstance(error, str):
            self.refuse_tool(use_id, error)

    def _finish_step(self, event: dict[str, Any]) -> None:
        names = ("input", "output", "cache.read", "cache.write", "total")
        self.add_usage(
            get_at_path(event, "part.tokens"), *names, cost=get_at_path(event, "part.cost")
        )
        reason = get_at_path(event, "part.reason")
        if reason == "tool-calls":
            self.start_over()
        elif reason == "stop":
            self.end(event)
        elif isinstance(reason, str) and reason in self._failed_reasons:
            self.fail(event, self._failed_reasons[reason], ends=True)


class PiParser(CodingParser):
    """Read `pi --print --mode json`."""

    lost_session = r"No session found matching|Session found in different project"
    refusals = r"Tool \S+ not found|blocked"
    powers_key = "--tools"
    statuses: ClassVar[Mapping[str, int]] = {
        r"No API key found|Authentication failed": 401,
        r"Unknown provider|No models available|Model \S+ not found": 404,
        r"(?i)context (?:length|window)|prompt is too long": 400,
        r"(?i)^(?:terminated|socket)|ended before message_stop": 502,
    }

    def read_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "session":
            self.set_session_id(event.get("id"))
        elif kind == "message_update":
            if get_at_path(event, "assistantMessageEvent.type") == "text_delta":
                self.add_piece(get_at_path(event, "assistantMessageEvent.delta"))
        elif kind == "tool_execution_start":
            self.report_tool(event.get("toolName"), event.get("args"), event.get("toolCallId"))
        elif kind == "tool_execution_end" and event.get("isError") is True:
            self.refuse_tool(event.get("toolCallId"), event.get("result"))
        elif kind == "message_end":
            self._finish_message(event)
        elif kind == "agent_end":
            self.end(event)

    def _finish_message(self, event: dict[str, Any]) -> None:
        if get_at_path(event, "message.role") == "assistant":
            self.set_text(get_at_path(event, "message.content"))
            names = ("input", "output", "cacheRead", "cacheWrite")
            usage, cost = (
                get_at_path(event, "message.usage"),
                get_at_path(event, "message.usage.cost.total"),
            )
            self.add_usage(usage, *names, cost=cost)
        reason = get_at_path(event, "message.stopReason")
        if reason == "toolUse":
            self.start_over()
        elif reason == "length":
            self.fail(event, _CUT_OFF, ends=True)
        elif reason in ("error", "aborted"):
            # pi would wait and retry by itself, and end with exit code 0 in any case.
            self.fail(event, get_at_path(event, "message.errorMessage"), ends=True)


class CursorParser(CodingParser):
    """Read `cursor-agent --print --output-format stream-json`."""

    refusals = r'"(?:rejected|permissionDenied)"'
    powers_key = "--mode"
    lost_session = r"(?i)(?:chat|session|conversation)\b.{0,80}\b(?:not found|does not exist)"
    statuses: ClassVar[Mapping[str, int]] = {
        r"(?i)authentication required|not logged in|log ?in first|invalid api key": 401,
        r"(?i)workspace trust": 403,
        r"(?i)cannot use this model|unknown model|invalid model": 404,
        r"(?i)usage limit|rate limit|too many requests": 429,
    }

    def read_event(self, event: dict[str, Any]) -> None:
        kind, subtype = event.get("type"), event.get("subtype")
        if kind == "system" and subtype == "init":
            self.set_session_id(event.get("session_id"))
        elif kind == "assistant":
            text = _text(get_at_path(event, "message.content"))
            if text != self.partial():  # the last message may repeat the others as one
                self.add_piece(text)
        elif kind == "tool_call" and subtype == "started":
            self.start_over()
            self._read_call(event)
        elif kind == "tool_call" and subtype == "completed":
            calls = event.get("tool_call")
            for call in calls.values() if isinstance(calls, dict) else ():
                self.refuse_tool(event.get("call_id"), get_at_path(call, "result"))
        elif kind == "result":
            names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
            self.add_usage(event.get("usage"), *names)
            self.end(event)
            if event.get("is_error") is True:
                self.fail(event, get_at_path(event, "result"))

    def _read_call(self, event: dict[str, Any]) -> None:
        """Report a tool, which is named by a key such as `readToolCall`."""
        calls = event.get("tool_call")
        for key, call in calls.items() if isinstance(calls, dict) else ():
            name = str(key).removesuffix("ToolCall")
            self.report_tool(name, get_at_path(call, "args"), event.get("call_id"))


def _text(value: Any) -> str:
    """Return a text, or the joined texts of a list of content blocks; "" for anything else."""
    if isinstance(value, list):
        blocks = [block.get("text") for block in value if isinstance(block, dict)]
        return "".join(text for text in blocks if isinstance(text, str))
    return value if isinstance(value, str) else ""


def _count(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value < _MAX_COUNT else None
