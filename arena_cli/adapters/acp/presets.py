"""List the ACP agents that arena knows by name: how each is started and configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arena_cli.adapters.coding_clis.kinds import escape_codex_skills
from arena_cli.adapters.coding_clis.parsers import OpencodeParser


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True)
class AcpPreset:
    """The settings of one known agent; without a name, of any other agent.

    `command` starts it; `install` and `log_in` explain to the user how to get it and how to log in.
    `environ` are variables that it always gets, `careful` those that it also gets unless everything
    is allowed: so that it asks before it changes something. `careful_mode` is the mode of its
    session for the same purpose. `model` are the arguments before a model's name; without any, the
    protocol names the model. `takes_files` is False for one that fails when a file is reported
    missing; it then reads files itself. `escape` is applied to a prompt, so that nothing in it is a
    command.

    Places in `_meta`: `system_at` is where it takes the system text of a new session (else that
    precedes the first prompt), `usage_at` where an answer tells its tokens, if not where the
    protocol has them, `failed` what an update of the session says when its prompt failed, though
    the prompt's answer does not. `says` are words of its errors that amount to an HTTP status.
    `retries` matches a line of stderr by which it will retry by itself for long; its group
    `message` is what failed.
    """

    command: tuple[str, ...] = ()
    install: str = ""
    log_in: str = "log in with its own program, or pass a key on in `env`"
    environ: Mapping[str, str] = field(default_factory=dict)
    careful: Mapping[str, str] = field(default_factory=dict)
    careful_mode: str = ""
    model: tuple[str, ...] = ()
    takes_files: bool = True
    escape: Callable[[str], str] = _as_it_is
    system_at: tuple[str, ...] = ()
    usage_at: str = ""
    failed: tuple[str, str] = ("", "")
    says: Mapping[str, int] = field(default_factory=dict)
    retries: str = ""


PRESETS = {
    "claude": AcpPreset(
        command=("claude-agent-acp",),
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        log_in="run `claude` once and log in, or pass a key on: env: {ANTHROPIC_API_KEY: inherit}",
        # Retries are arena's; what runs on in the background would answer at a time of its own.
        environ={
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        },
        careful_mode="default",
        system_at=("systemPrompt", "append"),
        says={
            r'"errorKind": "authentication_failed': 401,
            r'"errorKind": "billing_error': 402,
            r'"errorKind": "oauth_org_not_allowed': 403,
            r'"errorKind": "model_not_found': 404,
            r'"errorKind": "invalid_request': 400,
            r'"errorKind": "rate_limit': 429,
            r'"errorKind": "server_error': 500,
            r'"errorKind": "overloaded': 529,
        },
    ),
    "codex": AcpPreset(
        command=("codex-acp",),
        install="npm install -g @agentclientprotocol/codex-acp",
        log_in="run `codex login`",
        careful_mode="read-only",
        escape=escape_codex_skills,
        failed=("codex.threadStatus.type", "systemError"),
    ),
    "gemini": AcpPreset(
        command=("gemini", "--acp"),
        install="npm install -g @google/gemini-cli",
        log_in="run `gemini` once and log in, or pass a key on: env: {GEMINI_API_KEY: inherit}",
        environ={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
        careful_mode="default",
        model=("-m",),
        takes_files=False,
        usage_at="quota.token_count",
    ),
    "cursor": AcpPreset(
        command=("cursor-agent", "acp"),
        install="curl https://cursor.com/install -fsS | bash",
        log_in="run `cursor-agent login`, or pass a key on: env: {CURSOR_API_KEY: inherit}",
    ),
    "opencode": AcpPreset(
        command=("opencode", "acp", "--print-logs", "--log-level", "ERROR"),
        install="npm install -g opencode-ai",
        log_in="run `opencode auth login`",
        careful={
            "OPENCODE_PERMISSION": (
                '{"edit": "ask", "bash": "ask", "webfetch": "ask", "external_directory": "ask"}'
            )
        },
        retries=OpencodeParser.retries,
    ),
}
