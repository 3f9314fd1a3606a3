"""The coding programs that arena runs once for each call, a class each."""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from arena_cli.adapters.coding_agents import AttachedFile
from arena_cli.adapters.coding_clis.adapter import (
    ProgramAdapter,
    RunInput,
)
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

    def arguments(self, run: RunInput) -> list[str]:
        images = [f"--image={file.path}" for file in run.files if self.takes_file(file)]
        return [
            *("exec", *(() if run.session_id else images), "--json", "--skip-git-repo-check"),
            *("-c", "sandbox_mode=read-only"),
            *("-c", "analytics.enabled=false"),
            *("-c", "check_for_update_on_startup=false"),
            *self._retry_options(),
            *self._profile_arguments(),
            *(("resume", *images, run.session_id) if run.session_id else ()),
            "-",
        ]

    def takes_file(self, file: AttachedFile) -> bool:
        return file.is_image and "," not in str(file.path)  # a comma would separate two paths

    def escape_prompt(self, prompt: str) -> str:
        return escape_codex_skills(prompt)

    def _retry_options(self) -> list[str]:
        """Return the options that leave retries to arena; only a custom provider takes them."""
        named = (_CODEX_PROVIDER.search(word) for word in reversed(self._settings.args))
        match = next((match for match in named if match), None)
        name = match[1] if match else self._configured_provider()
        if not name or name in _CODEX_PROVIDERS:
            return []
        keys = (f"model_providers.{name}.{key}_max_retries=0" for key in ("request", "stream"))
        return [word for key in keys for word in ("-c", key)]

    def _configured_provider(self) -> str:
        """Return the provider that Codex's own settings choose, "" if they choose none."""
        environ = self._environ()
        folder = environ.get("CODEX_HOME") or Path(environ.get("HOME") or ".") / ".codex"
        try:
            settings = tomllib.loads((Path(folder) / "config.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        name = settings.get("model_provider")
        return name if isinstance(name, str) and re.fullmatch(r"[\w-]+", name) else ""


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

    def escape_prompt(self, prompt: str) -> str:
        """Put a backslash before each `@`, which names a file or a subagent without one."""
        prompt = re.sub(r"(?<!\\)@", r"\\@", prompt)
        return f"\n{prompt}" if prompt.startswith("/") else prompt


class OpencodeAdapter(ProgramAdapter):
    """opencode, `opencode run`."""

    parser = OpencodeParser
    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    login = "`opencode auth login`, or its provider's key, as in env: {OPENAI_API_KEY: inherit}"
    login_files = (".local/share/opencode/auth.json", ".config/opencode/opencode.json")
    environ: ClassVar[Mapping[str, str]] = {
        "OPENCODE_PERMISSION": '{"*": "deny"}',
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    powers = "may use no tools"
    powers_options = ("OPENCODE_PERMISSION",)
    takes_system_file = True

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
        agent = f'{{"mode": "primary", "prompt": "{{file:{path}}}"}}'
        return {"OPENCODE_CONFIG_CONTENT": f'{{"agent": {{"arena": {agent}}}}}'}


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
