"""The real `opencode` and `pi`, where they are on PATH, against llmock."""

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
    OpencodeAdapter,
    PiAdapter,
    ProgramAdapter,
)

pytestmark = pytest.mark.real_program

Make = Callable[..., ProgramAdapter]
SECRET = "what-only-the-file-says"
COST = {"input": 3, "output": 15, "cacheRead": 0, "cacheWrite": 0}


@pytest.fixture
def opencode(tmp_path: Path) -> Make:
    environ = agent_programs.real("opencode", tmp_path / "home")
    options = {"baseURL": llmock_server.fresh().base_url("openai"), "apiKey": "k"}
    models = {"m": {"name": "M", "cost": {"input": 3, "output": 15}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    config = tmp_path / "opencode-config.json"
    config.write_text(json.dumps({"provider": {"mock": provider}}), encoding="utf-8")
    env = {"OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    command = tmp_path / ".opencode" / "command" / "help.md"
    command.parent.mkdir(parents=True)
    command.write_text(SECRET, encoding="utf-8")

    def make(model: str = "mock/m") -> ProgramAdapter:
        return agent_programs.an_adapter(OpencodeAdapter, tmp_path, environ, model=model, env=env)

    return make


@pytest.fixture
def pi(tmp_path: Path) -> Make:
    environ = agent_programs.real("pi", tmp_path / "home")
    provider = {
        "baseUrl": llmock_server.fresh().base_url("anthropic"),
        "api": "anthropic-messages",
        "apiKey": "k",
        "models": [{"id": "m", "cost": COST}],
    }
    folder = tmp_path / "pi"
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "help.md").write_text(SECRET, encoding="utf-8")
    models = json.dumps({"providers": {"mock": provider}})
    (folder / "models.json").write_text(models, encoding="utf-8")

    def make(model: str = "mock/m") -> ProgramAdapter:
        env = {"PI_CODING_AGENT_DIR": str(folder)}
        return agent_programs.an_adapter(PiAdapter, tmp_path, environ, model=model, env=env)

    return make


@pytest.fixture(params=["opencode", "pi"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.getfixturevalue(request.param)
    return made


def call(
    adapter: ProgramAdapter, input: AgentInput | None = None, heard: Heard | None = None
) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), heard or Heard()))


def text(content: Any) -> str:
    """The text of a message of either protocol."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content)


def said(body: dict[str, Any]) -> list[str]:
    """The texts of the user's and the model's messages in a request."""
    return [text(one["content"]) for one in body["messages"] if one["role"] != "system"]


def system(body: dict[str, Any]) -> str:
    in_messages = [text(one["content"]) for one in body["messages"] if one["role"] == "system"]
    return text(body["system"]) if "system" in body else in_messages[0]


def test_it_answers_and_goes_on_in_its_own_session(make: Make) -> None:
    api = llmock_server.fresh().reply("the first answer").reply("the second answer")
    heard = Heard()
    first = call(make(), an_input("first question", role_prompt="{env:HOME} 你是谁"), heard)
    assert first.content == heard.text == "the first answer"
    assert first.usage
    assert first.usage.input_tokens > 0
    assert first.usage.cost_usd
    assert heard.session_id
    assert len(api.requests) == 1, "no other call of a model, as for a title"
    assert not api.last_request.body.get("tools")
    assert system(api.last_request.body).startswith("{env:HOME} 你是谁")
    assert said(api.last_request.body) == ["first question"]

    session = heard.own_session()
    second = call(make(), an_input("second question", own_session=session), heard)
    assert second.content == "the second answer"
    assert said(api.last_request.body) == [
        "first question",
        "the first answer",
        "second question",
    ]
    assert second.usage
    assert 0 < second.usage.input_tokens < 2 * first.usage.input_tokens


@pytest.mark.parametrize("start", ["/help", "--help", "@notes.txt"])
def test_nothing_in_the_chat_is_a_path_a_command_or_an_option(
    make: Make, start: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if start != "/help":
        agent_programs.skip_if_slow(request.node.callspec.params["make"])
    (tmp_path / "notes.txt").write_text(SECRET, encoding="utf-8")
    asked = f"{start} and @notes.txt @{tmp_path}/notes.txt {{file:notes.txt}} !ls $HOME `ls`"
    api = llmock_server.fresh().reply("read")
    call(make(), an_input(asked))
    assert said(api.last_request.body) == [asked]
    assert SECRET not in json.dumps(api.last_request.body)


def test_a_session_that_is_gone_is_begun_afresh(make: Make) -> None:
    llmock_server.fresh().reply("the answer")
    gone = AgentSession(id="ses_01a21fc1b87f73a1997c723fcb", upto_seq=2)
    heard = Heard()
    assert call(make(), an_input(own_session=gone), heard).content == "the answer"
    assert heard.notes["lost_session"] == gone.id
    assert heard.session_id not in (None, gone.id)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AgentRefused), (429, AgentOverloaded), (500, AgentUnavailable)],
)
def test_a_failure_is_told_at_once(
    make: Make, status: int, error: type[AgentError], request: pytest.FixtureRequest
) -> None:
    if status != 429:
        agent_programs.skip_if_slow(request.node.callspec.params["make"])
    api = llmock_server.fresh().fail(status, times=None)
    with pytest.raises(AgentError) as caught:
        call(make())
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert len(api.requests) <= 3, "pi's library tries twice more, pi itself and opencode do not"


def test_what_was_cut_is_no_answer_and_is_not_asked_for_again(opencode: Make) -> None:
    api = llmock_server.fresh().truncate(after_chunks=3, times=None)
    with pytest.raises(AgentError, match="ended before it was complete") as caught:
        call(opencode())
    assert caught.value.metadata["partial"]
    assert len(api.requests) <= 3


def test_pi_says_that_an_answer_was_cut(pi: Make) -> None:
    llmock_server.fresh().truncate(after_chunks=4, times=None)
    with pytest.raises(AgentUnavailable, match="ended before message_stop"):
        call(pi())


def test_a_model_that_there_is_not(opencode: Make) -> None:
    llmock_server.fresh()
    with pytest.raises(AgentRefused, match="Model not found: mock/none") as caught:
        call(opencode("mock/none"))
    assert "correct `model`" in str(caught.value)


def test_a_long_answer_of_pi(pi: Make) -> None:
    words = " ".join(f"word{number}" for number in range(2500))
    llmock_server.fresh().reply(words)
    assert call(pi()).content == words


def test_nothing_is_left_of_a_call_that_was_cancelled(make: Make, tmp_path: Path) -> None:
    llmock_server.fresh().delay(600)
    started = agent_programs.Started()

    async def cut_off() -> None:
        task = asyncio.create_task(make().invoke(an_input(), Heard()))
        await until(lambda: bool(started.pids()))
        await cancelled(task)

    asyncio.run(cut_off())
    assert started.pids() == []
    assert list((tmp_path / "scratch").iterdir()) == []
