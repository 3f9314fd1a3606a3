"""Diagnose errors of programs: scripts that the system cannot start, and words that name a cause.

The words are those of providers and of the libraries that programs call them with; they count where
a program names no HTTP status.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentUnavailable,
)
from arena_cli.util.text import cut_start, cut_text

_HEAD_BYTES = 512
_RUNNERS = {".js": "node", ".mjs": "node", ".rb": "ruby", ".sh": "sh"}
_INTERPRETER = re.compile(
    r"(?:python|py|node|ruby|perl|php|(?:ba|z|da)?sh)[\d.]*(?:\.exe)?", re.IGNORECASE
)


def suggest_runner(path: Path) -> str:
    """Return the program that probably runs a script, by the ending of its name."""
    return _RUNNERS.get(path.suffix.lower(), "python3")


def suggest_start(script: Path, key: str, folder: Path) -> str:
    """Return how to start a script that the system cannot start.

    `key` is the setting that names it, `folder` the one that it runs in.
    """
    runner = suggest_runner(script)
    if key == "program":
        return f"start it with a script of two lines: `#!/bin/sh` and `exec {runner} ...`"
    argument = Path(os.path.relpath(script, folder)).as_posix()
    return f"name the program that runs it: {key}: [{runner}, {argument}]"


def find_missing_script(command: Sequence[str], folder: Path) -> Path | None:
    """Return the script that an interpreter is to run in `folder`, if there is no such file."""
    program, script = Path(command[0]).name, "".join(command[1:2])
    if script.startswith("-") or not Path(script).suffix or not _INTERPRETER.fullmatch(program):
        return None
    path = Path(os.path.normpath(folder / script))  # `folder` may be created later
    return None if path.exists() else path


def find_script_problem(path: Path, *, name: str, key: str, folder: Path) -> tuple[str, str] | None:
    """Return why the system cannot start the file, and a hint; None if it looks sound.

    `name` is the file as its setting `key` has it, `folder` the one that it runs in. Windows starts
    programs by their ending.
    """
    head = _read_head(path) if os.name == "posix" else b""
    if b"\0" in head or not head:  # a binary
        return None
    first_line = head.partition(b"\n")[0]
    runner = suggest_runner(path)
    interpreter = os.fsdecode(first_line[2:].split()[0]) if first_line[2:].split() else ""
    problem = hint = ""
    if not first_line.startswith(b"#!"):
        problem = "is a script without a `#!` line, so the system cannot start it"
        hint = f"begin it with `#!/usr/bin/env {runner}`"
    elif first_line.endswith(b"\r"):
        problem = "has the line ends of Windows (CRLF), so the system cannot start it"
        hint = f"convert it (sed -i 's/\\r$//' {name})"
    elif interpreter and not Path(interpreter).exists():
        problem = f"names {interpreter} in its first line, which is missing"
        hint = "install that program"
    if not problem:
        return None
    return f"{path} {problem}", f"{hint}, or {suggest_start(path, key, folder)}"


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


_CUT_OFF = re.compile(
    r"output token (?:maximum|limit)|limit of output tokens|maximum output (?:tokens|length)"
    r"|(?:answer|response|output|completion) (?:was )?(?:cut off|truncated)"
    r"|finish.?reason\W{1,4}(?:length|max_tokens)",
    re.IGNORECASE,
)

_STATUSES = {
    401: r"invalid api key|incorrect api key|not logged in|/login\b|\bauthenticat|"
    r"no auth credentials|unauthorized",
    402: r"insufficient (?:credit|balance|funds|quota)|insufficient_quota|out of credits|"
    r"credit balance is too low|余额不足|欠费",
    404: r"model not found|unknown model|no such model|model \S+ (?:not found|does not exist)",
    429: r"rate.?limit|too many requests|throttl|\bquota\b|usage limit|limit reached|"
    r"hit your \S{0,12} ?limit|(?:daily|weekly|session|5-hour) limit|"
    r"限流|请求过于频繁|速率限制|额度(?:已|不足)",
    503: r"overloaded|at capacity|high demand|server is busy|temporarily unavailable|"
    r"service unavailable|服务繁忙|系统繁忙",
    502: r"ECONN(?:RESET|REFUSED|ABORTED)|ETIMEDOUT|EAI_AGAIN|ENOTFOUND|EPIPE|socket hang up|"
    r"(?:socket|connection|stream) (?:was |is )?"
    r"(?:error|failed|closed|reset|refused|aborted|lost|timed out)|connection error|"
    r"connection (?:aborted|broken)|cannot connect|unable to connect|failed to connect|"
    r"fetch failed|network (?:error|is unreachable|connection lost)|connect timeout|"
    r"(?:request|read) timed out",
    500: r"internal error|server error|\bunavailable\b",
}
_PATTERNS = {status: re.compile(words, re.IGNORECASE) for status, words in _STATUSES.items()}


_USAGE_HINT = re.compile(
    r"\s*(?:usage:|tip:|for more information|(?:try|run|see) .*(?:--help|-h\b|`?help`?)"
    r"|(?:options|commands|arguments|positionals):|-{1,2}\w[\w-]*[, ]|show help)",
    re.IGNORECASE,
)


def drop_usage_hints(lines: list[str]) -> list[str]:
    """Return the lines without hints on usage, which programs print around their error."""
    return [line for line in lines if not _USAGE_HINT.match(line)] or lines


def find_status(text: str) -> int | None:
    """Return the HTTP status that the words of an error amount to, None if they name no cause."""
    return next((status for status, words in _PATTERNS.items() if words.search(text)), None)


def find_error_type(text: str) -> type[AgentError]:
    """Return the class of an error by its words, AgentProtocolError if they name no cause."""
    status = 0 if is_cut_off(text) else find_status(text)
    if not status:
        return AgentProtocolError
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return AgentOverloaded
    is_refusal = status < HTTPStatus.INTERNAL_SERVER_ERROR
    return AgentRefused if is_refusal else AgentUnavailable


def is_cut_off(text: str) -> bool:
    """Return True if an error says that the answer reached the limit of its length.

    The same call would end at the same limit, so it is not made again.
    """
    return bool(_CUT_OFF.search(text))


MAX_MESSAGE_CHARACTERS = 400


def simplify_message(message: str) -> str:
    """Return a message in one line; of a provider's JSON error only its message."""
    start = message.find("{")
    try:
        value = json.JSONDecoder().raw_decode(message, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        value = None
    error = value.get("error", value) if isinstance(value, dict) else None
    inner = error.get("message") if isinstance(error, dict) else None
    if isinstance(error, dict) and isinstance(inner, str) and inner.strip():
        prefix = message[:start].strip()
        code = prefix if prefix.isdecimal() else error.get("code")
        message = f"{code} {inner}" if str(code).isdecimal() else inner
    return cut_text(" ".join(message.split()), MAX_MESSAGE_CHARACTERS)


_MAX_LINES = 5
_MAX_LINES_CHARACTERS = 600
_STACK = re.compile(r"\s+at .|\s*\d+: <unknown>|[\s{}\[\]]*$|Stack backtrace:|WARNING: proceeding")


def list_last_lines(text: str) -> str:
    """Return the last lines of a program's output as one line, without a stack trace."""
    lines = [line.strip() for line in text.splitlines() if not _STACK.match(line)]
    lines = drop_usage_hints([line for line in lines if line])
    return cut_start(" | ".join(lines[-_MAX_LINES:]), _MAX_LINES_CHARACTERS)
