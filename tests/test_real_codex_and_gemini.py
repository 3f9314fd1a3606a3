"""The real `codex` and `gemini`, where they are on PATH, against llmock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_programs
import llmock_server
import pytest
from adapter_setups import Heard, an_input, cancelled, until
from product import (
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    CodexAdapter,
    GeminiAdapter,
    ProgramAdapter,
)

pytestmark = pytest.mark.real_program

Make = Callable[[], ProgramAdapter]
SECRET = "what-only-the-file-says"


@pytest.fixture
def codex(tmp_path: Path) -> Make:
    environ = {**agent_programs.real("codex", tmp_path / "home"), "OPENAI_API_KEY": "k"}
    skill = tmp_path / "home/.codex/skills/mine/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nname: mine\ndescription: d\n---\n{SECRET}\n", encoding="utf-8")
    url = llmock_server.fresh().base_url("openai")
    return lambda: _codex(tmp_path, environ, url)


def _codex(folder: Path, environ: dict[str, str], url: str) -> ProgramAdapter:
    keys = {"name": "mock", "base_url": url, "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    provider = {
        **{f"model_providers.mock.{key}": value for key, value in keys.items()},
        "model_providers.mock.request_max_retries": 0,
        "model_providers.mock.stream_max_retries": 0,
        "model_provider": "mock",
    }
    args = [
        word for key, value in provider.items() for word in ("-c", f"{key}={json.dumps(value)}")
    ]
    return agent_programs.an_adapter(
        CodexAdapter, folder, environ, model="gpt-5", args=args, env={"OPENAI_API_KEY": "inherit"}
    )


@pytest.fixture
def gemini(tmp_path: Path) -> Make:
    environ = {**agent_programs.real("gemini", tmp_path / "home"), "GEMINI_API_KEY": "k"}
    settings = tmp_path / "home/.gemini/settings.json"
    settings.parent.mkdir(parents=True)
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    settings.write_text(json.dumps(auth), encoding="utf-8")
    (tmp_path / "notes.txt").write_text(SECRET, encoding="utf-8")
    environ["GOOGLE_GEMINI_BASE_URL"] = llmock_server.fresh().base_url("gemini")
    return lambda: agent_programs.an_adapter(
        GeminiAdapter,
        tmp_path,
        environ,
        model="gemini-2.5-flash",
        env={"GEMINI_API_KEY": "inherit", "GOOGLE_GEMINI_BASE_URL": "inherit"},
    )


@pytest.fixture(params=["codex", "gemini"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.getfixturevalue(request.param)
    return made


def call(
    adapter: ProgramAdapter, input: AgentInput | None = None, heard: Heard | None = None
) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), heard or Heard()))


def said(body: Any) -> list[str]:
    """The texts of the user's and the model's messages in a request."""
    turns = body.get("contents") or body["input"]
    parts = [part for turn in turns for part in turn.get("parts") or turn.get("content", [])]
    return [part["text"] for part in parts if "text" in part]


def as_written(text: str) -> str:
    """A text of a request without what arena writes so that it is no path and no skill."""
    return text.strip().replace("\\@", "@").replace("＄", "$")


def test_it_answers_where_its_session_is_gone_and_goes_on_in_its_own(make: Make) -> None:
    """The second text that it is asked has what it may take for a command, a path or a skill."""
    asked = "/memory show, ask @notes.txt, @developer, $mine, a@b.c"
    api = llmock_server.fresh().reply("the first answer").reply("the second answer")
    heard = Heard()
    gone = AgentSession(id="01a21fc1-b87f-73a1-997c-723fcba64050", upto_seq=2)
    first = call(make(), an_input("first question", own_session=gone), heard)
    assert first.content == heard.text == "the first answer"
    assert said(api.last_request.body)[-1] == "You are a bot.\n\nfirst question"
    assert first.usage
    assert first.usage.input_tokens > 0
    assert heard.session_id not in (None, gone.id)
    session = heard.own_session()
    second = call(make(), an_input(asked, own_session=session))
    assert second.content == "the second answer"
    assert len(api.requests) == 2
    texts = said(api.last_request.body)
    assert "You are a bot.\n\nfirst question" in texts
    assert texts[-2] == "the first answer"
    assert as_written(texts[-1]) == asked
    assert SECRET not in json.dumps(api.last_request.body)
    assert second.usage
    assert 0 < second.usage.input_tokens < 1.5 * first.usage.input_tokens


@pytest.mark.parametrize(
    "text", ["/memory show, ask @notes.txt, @developer, $mine, a@b.c", "--help"]
)
def test_nothing_in_the_first_prompt_is_a_command_a_path_or_a_skill(
    make: Make, text: str, request: pytest.FixtureRequest
) -> None:
    agent_programs.skip_if_slow(request.node.callspec.params["make"])
    api = llmock_server.fresh().reply("the answer")
    got = call(make(), an_input(text, role_prompt=""))
    assert got.content == "the answer"
    (request,) = api.requests
    assert as_written(said(request.body)[-1]) == text
    assert SECRET not in json.dumps(request.body)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AgentRefused), (404, AgentRefused), (429, AgentOverloaded), (503, AgentOverloaded)],
)
def test_a_failure_has_its_class_and_no_second_try(
    make: Make, status: int, error: type[AgentError], request: pytest.FixtureRequest
) -> None:
    if status != 429:
        agent_programs.skip_if_slow(request.node.callspec.params["make"])
    api = llmock_server.fresh().fail(status, times=None)
    with pytest.raises(error) as caught:
        call(make())
    assert "\n" not in str(caught.value)
    assert len(api.requests) == 1


def test_nothing_is_left_of_a_call_that_is_cut_off(make: Make) -> None:
    llmock_server.fresh().delay(600)
    started = agent_programs.Started()

    async def cut_off() -> None:
        task = asyncio.create_task(make().invoke(an_input(), Heard()))
        await until(lambda: len(started.pids()) > 1)
        await cancelled(task)

    asyncio.run(cut_off())
    assert started.pids() == []


def test_nobody_listens(tmp_path: Path) -> None:
    environ = {**agent_programs.real("codex", tmp_path / "home"), "OPENAI_API_KEY": "k"}
    with pytest.raises(AgentUnavailable, match="waiting for network"):
        call(_codex(tmp_path, environ, "http://127.0.0.1:9/v1"))
