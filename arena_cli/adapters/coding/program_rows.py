"""The table of agent programs: a row each, as `program_table` explains it."""

from __future__ import annotations

import re

from arena_cli.adapters.coding.program_table import SYSTEM_FILE, ProgramKind, Reads, UsageAt
from arena_cli.team import mentions

# Codex takes `$name` for one of its skills, wherever it stands and whatever stands before it, and
# `[@name](plugin://...)` for a plugin; no escape is known to it, so the sign is written full-width.
_SKILL = re.compile(r"\$(?=[\w:-])|(?<=\[)@(?=[^\]\n]*\]\()")


def _without_skills(prompt: str) -> str:
    return _SKILL.sub(lambda found: "＄" if found[0] == "$" else "＠", prompt)


CODEX = ProgramKind(
    name="Codex",
    program="codex",
    install="npm install -g @openai/codex",
    login="`codex login`, or a key in CODEX_API_KEY",
    keys=("CODEX_API_KEY",),
    logins=(".codex/auth.json",),
    begin=(
        *("exec", "--json", "--skip-git-repo-check"),
        *("-c", "sandbox_mode=read-only"),
        *("-c", "analytics.enabled=false"),
        *("-c", "check_for_update_on_startup=false"),
    ),
    resume=("resume", "{id}"),
    end=("-",),
    escape=_without_skills,
    reads=(
        Reads({"type": "thread.started"}, session="thread_id"),
        Reads({"type": "item.completed", "item.type": "agent_message"}, text="item.text"),
        Reads(
            {"type": "item.started", "item.type": "command_execution"},
            doing=("calling_tool", "item.command"),
        ),
        Reads(
            {"type": "turn.completed"},
            usage=UsageAt(
                input="usage.input_tokens",
                output="usage.output_tokens",
                cache_read="usage.cached_input_tokens",
                cache_write="usage.cache_write_input_tokens",
                input_has_cached=True,
            ),
            last=True,
        ),
        Reads({"type": "error"}, trouble="message"),
        Reads({"type": "turn.failed"}, failure="error.message", last=True),
    ),
    adds_up=True,
    lost=r"no rollout found for thread id",
    retries=r"waiting for network",
    says={
        r"waiting for network": 502,
        r"experiencing high demand": 503,
        r"usage limit": 429,
        r"context window": 400,
    },
)


# Gemini reads files, and calls its own subagents, by an `@` that has no backslash before it.
_AT = re.compile(r"(?<!\\)@")
_ESCAPED_AT = re.compile(r"\\@")


def _without_paths(prompt: str) -> str:
    prompt = _AT.sub(r"\\@", prompt)
    return f"\n{prompt}" if prompt.startswith("/") else prompt


def _with_mentions(answer: str) -> str:
    """An answer that took over the backslash before a name, without it; code stays as it is."""
    hidden = mentions.hidden_spans(answer) if "\\@" in answer else []

    def written(found: re.Match[str]) -> str:
        in_code = any(start <= found.start() < end for start, end in hidden)
        return found[0] if in_code else "@"

    return _ESCAPED_AT.sub(written, answer)


GEMINI = ProgramKind(
    name="Gemini CLI",
    program="gemini",
    install="npm install -g @google/gemini-cli",
    login="`gemini` in a terminal, or a key in GEMINI_API_KEY",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    logins=(".gemini/oauth_creds.json",),
    environ={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    begin=("--output-format", "stream-json"),
    options=(("--approval-mode", "plan"),),
    new=("--session-id", "{id}"),
    resume=("--resume", "{id}"),
    escape=_without_paths,
    unescape=_with_mentions,
    reads=(
        Reads({"type": "init"}, session="session_id"),
        Reads({"type": "message", "role": "assistant"}, delta="content"),
        Reads({"type": "tool_use"}, doing=("calling_tool", "tool_name"), anew=True),
        Reads({"type": "error"}, trouble="message"),
        Reads(
            {"type": "result"},
            usage=UsageAt(
                input="stats.input_tokens",
                output="stats.output_tokens",
                cache_read="stats.cached",
                total="stats.total_tokens",
                input_has_cached=True,
            ),
            last=True,
        ),
        Reads({"type": "result", "status": "error"}, failure="error.message"),
    ),
    lost=r"Error resuming session",
    retries=r"Attempt \d+ failed(?: with status (\d+))?.*Retrying",
    says={r"fetch failed": 502, r"ModelNotFoundError": 404},
    exits={41: 401},
)


_CUT = "its answer was cut off at its limit of output tokens"
_ENDED_EARLY = "what its model was saying ended before it was whole"

# What opencode takes for a fault that passes, and tries again without a word on stdout.
_PASSING = (
    r"rate.?limit|too many requests|overloaded|unavailable|exhausted|at capacity|try again"
    r"|(?:server|internal|network|connection|connect|socket|fetch)\b.{0,40}"
    r"(?:error|failed|closed|refused|lost|reset|unable)|terminated|timed? ?out"
)

OPENCODE = ProgramKind(
    name="opencode",
    program="opencode",
    install="npm install -g opencode-ai",
    login="`opencode auth login`, or its provider's key, as in env: {OPENAI_API_KEY: inherit}",
    logins=(".local/share/opencode/auth.json", ".config/opencode/opencode.json"),
    environ={
        "OPENCODE_CONFIG_CONTENT": (
            '{"agent": {"arena": {"mode": "primary", "prompt": "{file:{file}}"}}}'
        ),
        "OPENCODE_PERMISSION": '{"*": "deny"}',
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    },
    # Without a title it would call its model once more to find one.
    begin=("run", "--format", "json", "--print-logs", "--log-level", "ERROR", "--agent", "arena"),
    new=("--title", "arena"),
    resume=("--session", "{id}"),
    only_stdout=True,
    reads=(
        Reads({"type": "step_start"}, session="sessionID"),
        Reads({"type": "text"}, delta="part.text"),
        Reads({"type": "tool_use"}, doing=("calling_tool", "part.tool")),
        Reads(
            {"type": "step_finish"},
            usage=UsageAt(
                input="part.tokens.input",
                output="part.tokens.output",
                cache_read="part.tokens.cache.read",
                cache_write="part.tokens.cache.write",
                cost="part.cost",
                total="part.tokens.total",
            ),
        ),
        Reads({"type": "step_finish", "part.reason": "tool-calls"}, anew=True),
        Reads({"type": "step_finish", "part.reason": "stop"}, last=True),
        Reads({"type": "step_finish", "part.reason": "length"}, because=_CUT, ends=True),
        Reads(
            {"type": "step_finish", "part.reason": "content-filter"},
            because="the provider's filter held its answer back",
            ends=True,
        ),
        # It would ask its model again, and again, for as long as that happens.
        Reads({"type": "step_finish", "part.reason": "unknown"}, because=_ENDED_EARLY, ends=True),
        Reads({"type": "error"}, failure="error.data.message", status="error.data.statusCode"),
    ),
    lost=r"Session not found",
    retries=(
        rf'level=ERROR .*?(?:"stream error" .*small=false .*?"\w+: (?=(?i:[^"]*(?:{_PASSING})))'
        r'|error="ProviderModelNotFoundError: )(?P<said>[^"]+)'
    ),
    says={
        r"Model not found": 404,
        r"(?i)context (?:length|window)|prompt is too long": 400,
        r"(?i)rate.?limit|too many requests|quota": 429,
        r"(?i)overloaded|at capacity": 503,
        r"(?i)cannot connect|connection|socket|fetch failed|network|terminated|timed? ?out": 502,
        r"(?i)server error|internal error|unavailable": 500,
    },
)

PI = ProgramKind(
    name="pi",
    program="pi",
    install="npm install -g @mariozechner/pi-coding-agent",
    login="`/login` in `pi`, or its provider's key, as in env: {OPENAI_API_KEY: inherit}",
    logins=(".pi/agent/auth.json", ".pi/agent/models.json"),
    environ={"PI_OFFLINE": "1"},
    begin=("--print", "--mode", "json"),
    options=(
        ("--no-tools",),
        ("--no-context-files",),
        ("--no-skills",),
        ("--no-prompt-templates",),
        ("--no-themes",),
    ),
    resume=("--session", "{id}"),
    system=("--system-prompt", SYSTEM_FILE),
    only_stdout=True,
    reads=(
        Reads({"type": "session"}, session="id"),
        Reads(
            {"type": "message_update", "assistantMessageEvent.type": "text_delta"},
            delta="assistantMessageEvent.delta",
        ),
        Reads({"type": "tool_execution_start"}, doing=("calling_tool", "toolName")),
        Reads(
            {"type": "message_end", "message.role": "assistant"},
            text="message.content",
            usage=UsageAt(
                input="message.usage.input",
                output="message.usage.output",
                cache_read="message.usage.cacheRead",
                cache_write="message.usage.cacheWrite",
                cost="message.usage.cost.total",
            ),
        ),
        Reads({"type": "message_end", "message.stopReason": "toolUse"}, anew=True),
        Reads({"type": "message_end", "message.stopReason": "length"}, because=_CUT, ends=True),
        # It would wait and try again by itself, and end with exit code 0 whatever came of it.
        Reads(
            {"type": "message_end", "message.stopReason": "error"},
            failure="message.errorMessage",
            ends=True,
        ),
        Reads(
            {"type": "message_end", "message.stopReason": "aborted"},
            failure="message.errorMessage",
            ends=True,
        ),
        Reads({"type": "agent_end"}, last=True),
    ),
    lost=r"No session found matching|Session found in different project",
    says={
        r"No API key found|Authentication failed": 401,
        r"Unknown provider|No models available|Model \S+ not found": 404,
        r"(?i)context (?:length|window)|prompt is too long": 400,
        r"(?i)^(?:terminated|fetch failed|connection error|socket)|ended before message_stop": 502,
    },
)

CURSOR = ProgramKind(
    name="Cursor",
    program="cursor-agent",
    install="curl https://cursor.com/install -fsS | bash",
    login="`cursor-agent login`, or a key in CURSOR_API_KEY",
    keys=("CURSOR_API_KEY",),
    logins=(".config/cursor/auth.json", ".cursor/cli-config.json"),
    begin=("--print", "--output-format", "stream-json"),
    options=(("--mode", "ask"), ("--trust",)),
    resume=("--resume", "{id}"),
    only_stdout=True,
    reads=(
        Reads({"type": "system", "subtype": "init"}, session="session_id"),
        Reads({"type": "assistant"}, part="message.content"),
        Reads({"type": "tool_call", "subtype": "started"}, doing=("calling_tool", ""), anew=True),
        Reads(
            {"type": "result"},
            usage=UsageAt(
                input="usage.inputTokens",
                output="usage.outputTokens",
                cache_read="usage.cacheReadTokens",
                cache_write="usage.cacheWriteTokens",
            ),
            last=True,
        ),
        Reads({"type": "result", "is_error": True}, failure="result"),
    ),
    lost=r"(?i)(?:chat|session|conversation)\b.{0,80}\b(?:not found|does not exist)",
    says={
        r"(?i)authentication required|not logged in|log ?in first|invalid api key": 401,
        r"(?i)workspace trust": 403,
        r"(?i)cannot use this model|unknown model|invalid model": 404,
        r"(?i)usage limit|rate limit|too many requests": 429,
    },
)
