"""The known coding agents: programs that arena runs once for each call, and ACP agents by name."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from arena_cli.adapters import mcp_servers
from arena_cli.adapters.base import HandedServer
from arena_cli.adapters.coding_agents import AttachedFile
from arena_cli.adapters.coding_clis.adapter import ProgramAdapter, RunInput
from arena_cli.adapters.coding_clis.parsers import (
    CodexParser,
    CursorParser,
    GeminiParser,
    OpencodeParser,
    PiParser,
)

_CODEX_SKILL = re.compile(r"\$(?=[\w:-])|(?<=\[)@(?=[^\]\n]*\]\()")


def escape_codex_skills(prompt: str) -> str:
    """Return the prompt without characters that Codex takes for skills or plugins."""
    return _CODEX_SKILL.sub(lambda match: "＄" if match[0] == "$" else "＠", prompt)


_CODEX_PROVIDER = re.compile(r"^(?:--config=|-c=?)?model_provider\s*=\s*[\"']?([\w-]+)")
_CODEX_PROVIDERS = frozenset({"openai", "ollama", "lmstudio", "amazon-bedrock"})  # built in


_CODEX_RETRIES = ("request_max_retries", "stream_max_retries")


def find_codex_provider(environ: Mapping[str, str]) -> str:
    """Return the provider that Codex's own settings choose, "" if they choose none."""
    folder = environ.get("CODEX_HOME") or Path(environ.get("HOME") or ".") / ".codex"
    try:
        settings = tomllib.loads((Path(folder) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    name = settings.get("model_provider")
    return name if isinstance(name, str) and re.fullmatch(r"[\w-]+", name) else ""


def codex_retry_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that leaves retries to arena; only a custom provider takes it."""
    name = find_codex_provider(environ)
    if not name or name in _CODEX_PROVIDERS:
        return {}
    settings = {"model_providers": {name: dict.fromkeys(_CODEX_RETRIES, 0)}}
    return {"CODEX_CONFIG": json.dumps(settings)}


class CodexAdapter(ProgramAdapter):
    """OpenAI's Codex, `codex exec`."""

    parser = CodexParser
    name = "Codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    login = "`codex login`, or a key in CODEX_API_KEY"
    keys = ("CODEX_API_KEY",)
    addresses = ("OPENAI_BASE_URL",)
    login_files = (".codex/auth.json",)
    powers = "may read files; it runs commands in a read-only sandbox"
    powers_options = ("sandbox_mode", "--sandbox", "-s", "--full-auto")
    reports_session_usage = True
    takes_servers = True

    def arguments(self, run: RunInput) -> list[str]:
        images = [f"--image={file.path}" for file in run.files if self.takes_file(file)]
        return [
            *("exec", *(() if run.session_id else images), "--json", "--skip-git-repo-check"),
            *("-c", "sandbox_mode=read-only"),
            *("-c", "analytics.enabled=false"),
            *("-c", "check_for_update_on_startup=false"),
            *self._retry_options(),
            *mcp_servers.list_codex_options(self._setup.servers, self._setup.agent_id),
            *self._profile_arguments(),
            *(("resume", *images, run.session_id) if run.session_id else ()),
            "-",
        ]

    def takes_file(self, file: AttachedFile) -> bool:
        return file.is_image and "," not in str(file.path)  # a comma would separate two paths

    def system_environ(self, system_file: str) -> dict[str, str]:  # noqa: ARG002 - it takes none
        return mcp_servers.list_codex_variables(self._setup.servers)

    def escape_prompt(self, prompt: str) -> str:
        return escape_codex_skills(prompt)

    def _retry_options(self) -> list[str]:
        """Return the options that leave retries to arena; only a custom provider takes them."""
        named = (_CODEX_PROVIDER.search(word) for word in reversed(self._settings.args))
        match = next((match for match in named if match), None)
        name = match[1] if match else find_codex_provider(self._environ())
        if not name or name in _CODEX_PROVIDERS:
            return []
        keys = (f"model_providers.{name}.{key}=0" for key in _CODEX_RETRIES)
        return [word for key in keys for word in ("-c", key)]


_GEMINI_HOMES = ("GEMINI_CLI_HOME", "USERPROFILE" if sys.platform == "win32" else "HOME")


class GeminiAdapter(ProgramAdapter):
    """Google's Gemini CLI, without a terminal."""

    parser = GeminiParser
    name = "Gemini CLI"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    login = "`gemini` in a terminal, or a key in GEMINI_API_KEY"
    keys = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    addresses = ("GOOGLE_GEMINI_BASE_URL",)
    login_files = (".gemini/oauth_creds.json",)
    environ: ClassVar[Mapping[str, str]] = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
    powers = "may read files"
    powers_options = ("--approval-mode", "--yolo", "-y")
    takes_servers = True

    def arguments(self, run: RunInput) -> list[str]:
        return [
            *("--output-format", "stream-json"),
            *self._default("--approval-mode", "plan"),
            # It may read them there.
            *(
                f"--include-directories={folder}"
                for folder in {file.path.parent for file in run.files}
            ),
            *self._profile_arguments(),
            *(
                ("--resume", run.session_id)
                if run.session_id
                else ("--session-id", str(uuid.uuid4()))
            ),
        ]

    @contextlib.contextmanager
    def write_settings(self) -> Iterator[dict[str, str]]:
        setup = self._setup
        if not setup.servers:
            yield {}
            return
        environ = self._environ()
        name = next((name for name in _GEMINI_HOMES if environ.get(name)), "")
        home = Path(environ.get(name) or Path.home())
        servers = mcp_servers.describe_for_gemini(setup.servers, setup.agent_id)
        with mcp_servers.make_gemini_home(setup.scratch, home, servers) as folder:
            yield {_GEMINI_HOMES[0]: folder}

    def escape_prompt(self, prompt: str) -> str:
        """Put a backslash before each `@`, which names a file or a subagent without one."""
        prompt = re.sub(r"(?<!\\)@", r"\\@", prompt)
        return f"\n{prompt}" if prompt.startswith("/") else prompt


_OPENCODE_PERMISSION = "OPENCODE_PERMISSION"


class OpencodeAdapter(ProgramAdapter):
    """opencode, `opencode run`."""

    parser = OpencodeParser
    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    login = "`opencode auth login`, or its provider's key, as in env: {OPENAI_API_KEY: inherit}"
    login_files = (".local/share/opencode/auth.json", ".config/opencode/opencode.json")
    environ: ClassVar[Mapping[str, str]] = {
        _OPENCODE_PERMISSION: '{"*": "deny"}',
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    powers = "may use no tools"
    powers_options = (_OPENCODE_PERMISSION,)
    takes_system_file = True
    takes_servers = True

    def arguments(self, run: RunInput) -> list[str]:
        return [
            *("run", "--format", "json", "--print-logs", "--log-level", "ERROR"),
            *("--agent", "arena"),
            *self._profile_arguments(),
            # Without a title it would call its model once more to find one.
            *(("--session", run.session_id) if run.session_id else ("--title", "arena")),
            *(f"--file={file.path}" for file in run.files if self.takes_file(file)),
        ]

    def takes_file(self, file: AttachedFile) -> bool:
        return file.is_image or file.is_pdf or file.text is not None

    def system_environ(self, system_file: str) -> dict[str, str]:
        path = Path(system_file).as_posix()
        config: dict[str, Any] = {
            "agent": {"arena": {"mode": "primary", "prompt": f"{{file:{path}}}"}}
        }
        servers = self._setup.servers
        if not servers:
            return {"OPENCODE_CONFIG_CONTENT": json.dumps(config, ensure_ascii=False)}
        folder = self._setup.workspace / self._settings.cwd
        config["mcp"] = mcp_servers.describe_for_opencode(servers, folder)
        variables = {"OPENCODE_CONFIG_CONTENT": json.dumps(config, ensure_ascii=False)}
        if _OPENCODE_PERMISSION not in self._settings.env:
            allowed = {"*": "deny", **mcp_servers.list_opencode_permissions(servers)}
            variables[_OPENCODE_PERMISSION] = json.dumps(allowed)
        return variables


class PiAdapter(ProgramAdapter):
    """pi, `pi --print`."""

    parser = PiParser
    name = "pi"
    program = "pi"
    install = "npm install -g @mariozechner/pi-coding-agent"
    login = "`/login` in `pi`, or its provider's key, as in env: {OPENAI_API_KEY: inherit}"
    login_files = (".pi/agent/auth.json", ".pi/agent/models.json")
    environ: ClassVar[Mapping[str, str]] = {"PI_OFFLINE": "1"}
    powers = "may use no tools"
    powers_options = ("--tools",)
    takes_system_file = True

    def arguments(self, run: RunInput) -> list[str]:
        return [
            *("--print", "--mode", "json"),
            *self._default("--no-tools"),
            *self._default("--no-context-files"),
            *self._default("--no-skills"),
            *self._default("--no-prompt-templates"),
            *self._default("--no-themes"),
            *self._profile_arguments(),
            *(("--session", run.session_id) if run.session_id else ()),
            *("--system-prompt", run.system_file),
            *(f"@{file.path}" for file in run.files if self.takes_file(file)),
        ]

    def takes_file(self, file: AttachedFile) -> bool:
        return file.is_image or file.text is not None


class CursorAdapter(ProgramAdapter):
    """Cursor's agent in a terminal, `cursor-agent --print`."""

    parser = CursorParser
    name = "Cursor"
    program = "cursor-agent"
    install = "curl https://cursor.com/install -fsS | bash"
    login = "`cursor-agent login`, or a key in CURSOR_API_KEY"
    keys = ("CURSOR_API_KEY",)
    login_files = (".config/cursor/auth.json", ".cursor/cli-config.json")
    powers = "may read files"
    powers_options = ("--mode", "--force", "-f")

    def arguments(self, run: RunInput) -> list[str]:
        return [
            *("--print", "--output-format", "stream-json"),
            *self._default("--mode", "ask"),
            *self._default("--trust"),
            *self._profile_arguments(),
            *(("--resume", run.session_id) if run.session_id else ()),
        ]


def codex_servers_environ(
    servers: Sequence[HandedServer], agent_id: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables with MCP servers that a session waits for, as it does for no others."""
    config = json.loads(environ.get("CODEX_CONFIG") or "{}")
    described = mcp_servers.describe_for_codex(servers, agent_id)
    config["mcp_servers"] = {**config.get("mcp_servers", {}), **described}
    variables = mcp_servers.list_codex_variables(servers)
    return {**variables, "CODEX_CONFIG": json.dumps(config)}


ServersEnviron = Callable[[Sequence[HandedServer], str, Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True)
class AcpPreset:
    """The settings of one known agent; without a name, of any other agent.

    `command` starts it; `install` and `log_in` explain to the user how to get it and how to log in.
    `environ` are variables that it always gets, `retry_environ` returns those that leave retries to
    arena, by its other variables, `careful` those that it also gets unless everything is allowed:
    so that it asks before it changes something. `waits` are those with which it asks its model only
    when its MCP servers are there; `servers_environ` returns them for one that must get the servers
    themselves in that way, by its other variables. `careful_mode` is the mode of its session for
    the same purpose as `careful`. `model` are the arguments before a model's name; without any, the
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
    retry_environ: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {}
    careful: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    servers_environ: ServersEnviron | None = None
    careful_mode: str = ""
    model: tuple[str, ...] = ()
    takes_files: bool = True
    escape: Callable[[str], str] = str
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
        waits=mcp_servers.WAIT_FOR_SERVERS,
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
        retry_environ=codex_retry_environ,
        servers_environ=codex_servers_environ,
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
