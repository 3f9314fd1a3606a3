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


def untouched(start: str, folder: Path) -> str:
    """A text that begins with this and has all that a program may take for something else."""
    return f"{start} and @notes.txt @{folder}/notes.txt {{file:notes.txt}} !ls $HOME `ls`"


def test_it_answers_where_its_session_is_gone_and_goes_on_in_its_own(
    make: Make, tmp_path: Path
) -> None:
    """The texts that it is asked are no commands, options or paths; the second answer is long."""
    (tmp_path / "notes.txt").write_text(SECRET, encoding="utf-8")
    asked = [untouched(start, tmp_path) for start in ("/help", "--help")]
    words = " ".join(f"word{number}" for number in range(2500))
    api = llmock_server.fresh().reply("the first answer").reply(words)
    gone = AgentSession(id="ses_01a21fc1b87f73a1997c723fcb", upto_seq=2)
    heard = Heard()
    first_input = an_input(asked[0], role_prompt="{env:HOME} 你是谁", own_session=gone)
    first = call(make(), first_input, heard)
    assert first.content == heard.text == "the first answer"
    assert first.usage
    assert first.usage.input_tokens > 0
    assert first.usage.cost_usd
    assert heard.notes["lost_session"] == gone.id
    assert heard.session_id not in (None, gone.id)
    assert len(api.requests) == 1, "no other call of a model, as for a title"
    assert not api.last_request.body.get("tools")
    assert system(api.last_request.body).startswith("{env:HOME} 你是谁")
    assert said(api.last_request.body) == asked[:1]
    assert SECRET not in json.dumps(api.last_request.body)

    session = heard.own_session()
    second = call(make(), an_input(asked[1], own_session=session), heard)
    assert second.content == words
    assert said(api.last_request.body) == [asked[0], "the first answer", asked[1]]
    assert SECRET not in json.dumps(api.last_request.body)
    assert second.usage
    assert 0 < second.usage.input_tokens < 2 * first.usage.input_tokens


def test_a_path_with_which_the_chat_begins_is_not_read(
    make: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    agent_programs.skip_if_slow(request.node.callspec.params["make"])
    (tmp_path / "notes.txt").write_text(SECRET, encoding="utf-8")
    asked = untouched("@notes.txt", tmp_path)
    api = llmock_server.fresh().reply("read")
    call(make(), an_input(asked))
    assert said(api.last_request.body) == [asked]
    assert SECRET not in json.dumps(api.last_request.body)


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
