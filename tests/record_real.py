"""Records the scenarios that real agents play: `python tests/record_real.py`, in the repository.

    record_real.record(workspace)      the same in a copy of the workspace, for tests

The agents are real: a small local model (`small_model`), and the programs of `.ci/real` where they
are on PATH, with a home of their own. The model behind the programs is a script: llmock answers
each by its protocol, in the order of the conversation. What is missing is said, and what needs it
stays as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = ("small-model", "red-build")
PROGRAMS = "programs"
NAMES = (*SMALL, PROGRAMS)
NEEDED = ("claude", "codex", "gemini", "opencode", "pi", "claude-agent-acp")
KEY = "no-key-is-asked-for"

# What the model behind the programs says, in the order of the conversation: at which address, what.
SCRIPT = (
    ("*/messages", "Plan: keep the address in `next`. @coder please write it."),
    ("*/responses", "Written: the form now carries next=/cart. @checker please review."),
    ("*gemini*", "Looks right; refuse other hosts in it. @prober please test that."),
    (
        "*/chat/completions",
        "12 tests pass, one of them for other hosts. @writer please document it.",
    ),
    ("*/messages", "Documented under Login. @shipper it can go out."),
    ("*/messages", "Ready as 2.4. @maya may I release it?"),
    ("*/messages", "2.4 is released."),
    ("*/responses", "What is left to do: the same for the sign-up page."),
)


class Missing(Exception):
    """What has to be there, and is not."""


def record(workspace: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Record one of them in a workspace. Raises Missing."""
    with (_programs if name == PROGRAMS else _model)() as environ:
        return subprocess.run(
            [sys.executable, "-m", "arena_cli", "run", "--record", "--keep", "none", name],
            cwd=workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )


def _environment(home: Path, **more: str) -> dict[str, str]:
    """What a run is given: nothing of whoever runs it but how to find programs."""
    kept = ("PATH", "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "LOCALAPPDATA", "APPDATA")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    own = {"HOME": f"{home}", "USERPROFILE": f"{home}", "PYTHONPATH": f"{ROOT}", "ARENA_LANG": "en"}
    return {**found, **own, "LANG": "C.UTF-8", "ARENA_TRUST": "1", **more}


@contextmanager
def _model() -> Iterator[dict[str, str]]:
    """A model just started: what it has in its cache shows in the tokens that it counts."""
    import small_model

    missing = small_model.missing()
    if missing:
        raise Missing(f"the small model needs {' and '.join(missing)}")
    with tempfile.TemporaryDirectory() as home, small_model.running() as model:
        yield _environment(Path(home), SMALL_MODEL_URL=model.url)


@contextmanager
def _programs() -> Iterator[dict[str, str]]:
    """The programs' configuration in a home of its own, and their model."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        raise Missing(f"not on PATH: {', '.join(missing)} (`.ci/real FOLDER` installs them)")
    try:
        from llmock.pytest_plugin import LLMock
        from llmock.scenarios import Match, Reply
        from llmock.testing import LLMockServer
    except ImportError as error:
        raise Missing("llmock is not installed") from error
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, LLMockServer() as server:
        api = LLMock(server).tool_mode("off")
        api.add(*(Reply(text, match=Match(path=path)) for path, text in SCRIPT))
        home = Path(name)
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        _file(home / ".gemini" / "settings.json", auth)
        options = {"baseURL": api.base_url("openai"), "apiKey": KEY}
        here = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
        _file(home / "opencode.json", {"provider": {"here": here}})
        here = {
            "baseUrl": api.base_url("anthropic"),
            "api": "anthropic-messages",
            "apiKey": KEY,
            "models": [{"id": "m"}],
        }
        _file(home / "pi" / "models.json", {"providers": {"here": here}})
        yield _environment(
            home,
            ANTHROPIC_API_KEY=KEY,
            ANTHROPIC_BASE_URL=api.base_url("anthropic"),
            OPENAI_API_KEY=KEY,
            OPENAI_BASE_URL=api.base_url("openai"),
            GEMINI_API_KEY=KEY,
            GOOGLE_GEMINI_BASE_URL=api.base_url("gemini"),
            OPENCODE_CONFIG=f"{home / 'opencode.json'}",
            PI_CODING_AGENT_DIR=f"{home / 'pi'}",
        )


def _file(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def main() -> None:
    code = 0
    for name in NAMES:
        try:
            done = record(ROOT, name)
        except Missing as error:
            print(f"{name}: not recorded: {error}", file=sys.stderr)
            continue
        print(done.stdout, end="")
        code = code or done.returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
