"""What programs print when they fail: the error line, retries of their own, the wrong protocol."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import PROGRAMS, Heard, a_setup, an_input
from agent_programs import Played, sample
from product import (
    AcpAdapter,
    AcpSettings,
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    CodexAdapter,
)
from product import adapter as acp_adapter
from product import context_render as render
from program import Program

_STREAM_ERROR = (
    'timestamp=2026-11-28T09:09:27Z level=ERROR run=9 message="stream error" providerID=mock '
    'modelID=m1 small=false agent=build error.error="AI_APICallError: 503 Service overloaded."'
)


def failure(folder: Path, command: list[str], **keys: Any) -> AgentError:
    settings = AcpSettings.model_validate({"type": "acp", "command": command, **keys})
    adapter = AcpAdapter(a_setup(folder, settings, render=render.render))

    async def call() -> AgentError:
        with pytest.raises(AgentError) as caught:
            await adapter.invoke(an_input(), Heard())
        await adapter.stop()
        return caught.value

    return asyncio.run(call())


def test_opencode_over_acp_is_ended_at_its_first_failed_try(tmp_path: Path) -> None:
    program = str(PROGRAMS / "acp_agent.py")
    steps = [f"err:{_STREAM_ERROR}", "sleep:600"]
    command = [sys.executable, program, str(tmp_path / "log"), *steps]
    error = failure(tmp_path, command, preset="opencode")
    assert type(error) is AgentOverloaded
    assert error.came == "503 503 Service overloaded."


@pytest.mark.parametrize("text", ["Welcome! What can I do for you?", ""])
def test_a_program_of_another_protocol_is_named_soon(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "SILENT_LIMIT_S" if not text else "TEXT_LIMIT_S"
    monkeypatch.setattr(acp_adapter, limit, 2.0)
    script = f"import time; print({text!r}, flush=True); time.sleep(600)"
    error = failure(tmp_path, [sys.executable, "-c", script])
    assert type(error) is AgentProtocolError
    assert error.what == "its program does not answer in the Agent Client Protocol"
    assert error.came == text
    assert "initialize" in error.asked


_HINTS = """\
error: unexpected argument '--modle' found

  tip: a similar argument exists: '--model'

Usage: agent exec [OPTIONS] [PROMPT]

For more information, try '--help'.
"""
_YARGS = """\
Error: Session not found
agent run [message..]

Options:
  -h, --help     show help
  -v, --version  show version number
"""


@pytest.mark.parametrize(
    ("text", "shown"), [(_HINTS, "unexpected argument"), (_YARGS, "Session not found")]
)
def test_the_error_is_shown_and_not_the_hint_on_usage(
    tmp_path: Path, text: str, shown: str
) -> None:
    program = Program(tmp_path)
    adapter = {"type": "cli", "command": [sys.executable, "-c", f"import sys; sys.exit({text!r})"]}
    program.agent("a", adapter=adapter)
    errors = [
        line["error"]
        for _ in [program.run("send", "-s", "s", "@a hello")]
        for line in program.records("s")
        if line["type"] == "reply_finished"
    ]
    assert f"came: {text.splitlines()[0]}" in errors[0]
    assert shown in errors[0]
    assert "--help" not in errors[0].partition("came: ")[2]


@pytest.mark.parametrize(
    ("args", "config", "name"),
    [
        (["-c", "model_provider=mine"], "", "mine"),
        (['--config=model_provider="mine"'], 'model_provider = "other"', "mine"),
        ([], 'model_provider = "other"', "other"),
        ([], 'model_provider = "openai"', ""),
        ([], "", ""),
        ([], "not [ toml", ""),
    ],
)
def test_codex_leaves_the_retries_of_a_custom_provider_to_arena(
    tmp_path: Path, args: list[str], config: str, name: str
) -> None:
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    codex = Played(tmp_path, "codex")
    codex.plan(sample("codex", "json"))
    adapter = codex.adapter(CodexAdapter, args=args, env={"CODEX_HOME": str(tmp_path)})
    asyncio.run(adapter.invoke(an_input(), Heard()))
    given = codex.calls()[0]["args"]
    expected = [f"model_providers.{name}.{key}_max_retries=0" for key in ("request", "stream")]
    assert [word for word in given if "max_retries" in word] == (expected if name else [])
