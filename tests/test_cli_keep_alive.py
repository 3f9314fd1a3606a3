"""`cli` with `keep_alive`: one process for all calls of an agent in a session."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from adapter_setups import PROGRAMS, Heard, a_setup, an_input, cancelled, pids_in, runs
from product import AgentProtocolError, AgentUnavailable, CliAdapter, CliSettings
from program import Program, gone
from stage import Stage, printed

T = TypeVar("T")


def using(folder: Path, use: Callable[[CliAdapter], Awaitable[T]], **keys: Any) -> T:
    settings: dict[str, Any] = {
        "type": "cli",
        "command": [sys.executable, str(PROGRAMS / "json_bot.py")],
        "prompt": "json",
        "output": "jsonl",
        "where": {"type": "result"},
        "keep_alive": True,
        **keys,
    }
    adapter = CliAdapter(a_setup(folder, CliSettings.model_validate(settings)))

    async def run() -> T:
        try:
            return await use(adapter)
        finally:
            await adapter.stop()

    return asyncio.run(run())


async def ask(adapter: CliAdapter, text: str, heard: Heard | None = None) -> str:
    return (await adapter.invoke(an_input(text), heard or Heard())).content


def test_all_calls_go_to_one_process_which_ends_with_the_session(tmp_path: Path) -> None:
    heard = Heard()

    async def use(adapter: CliAdapter) -> list[str]:
        return [await ask(adapter, "who", heard), await ask(adapter, "who")]

    first, second = using(tmp_path, use)
    pid = first.split()[0]
    assert (first, second) == (f"{pid} 1", f"{pid} 2")
    assert not runs(int(pid))
    assert heard.notes == {"log": "a banner"}


def test_calls_at_the_same_time_are_answered_one_by_one(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> list[str]:
        return await asyncio.gather(*(ask(adapter, "who") for _ in range(5)))

    got = [answer.split() for answer in using(tmp_path, use)]
    assert len({pid for pid, _ in got}) == 1
    assert [int(count) for _, count in got] == [1, 2, 3, 4, 5]


def test_without_where_the_first_object_is_the_answer(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> str:
        return await ask(adapter, "who")

    assert using(tmp_path, use, where={}) == "not yet"


def test_the_answer_may_stand_within_the_object(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> str:
        return await ask(adapter, 'raw {"type": "result", "said": {"text": "here"}}')

    assert using(tmp_path, use, answer="said.text") == "here"


def test_an_object_that_is_no_answer_is_an_error_and_the_next_call_goes_on(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> str:
        with pytest.raises(AgentProtocolError, match="no `content`") as caught:
            await ask(adapter, 'raw {"type": "result", "text": "here"}')
        assert "json_bot.py" in caught.value.asked
        return await ask(adapter, "who")

    assert using(tmp_path, use).split()[1] == "2"


def test_one_that_ends_is_an_error_and_started_anew(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> tuple[str, str]:
        before = await ask(adapter, "who")
        with pytest.raises(AgentProtocolError, match="exit code 3") as caught:
            await ask(adapter, "exit 3")
        assert caught.value.came == "dying"
        return before, await ask(adapter, "who")

    before, after = using(tmp_path, use)
    assert before.split()[0] != after.split()[0]
    assert after.split()[1] == "1"


def test_a_call_that_is_cut_off_ends_the_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def use(adapter: CliAdapter) -> str:
        task = asyncio.create_task(adapter.invoke(an_input(f"hang {pids}"), Heard()))
        (pid,) = await pids_in(pids)
        await cancelled(task)
        assert not runs(pid)
        return await ask(adapter, "who")

    assert using(tmp_path, use).split()[1] == "1"


def test_half_a_pair_is_replaced_and_flagged(tmp_path: Path) -> None:
    heard = Heard()

    async def use(adapter: CliAdapter) -> str:
        return await ask(adapter, r'raw {"type":"result","content":"a\ud83db"}', heard)

    assert using(tmp_path, use) == "a\ufffdb"
    assert heard.notes["replaced_bytes"] is True


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    async def use(adapter: CliAdapter) -> str:
        return await ask(adapter, "who")

    with pytest.raises(AgentUnavailable, match="no program no-such-bot on PATH"):
        using(tmp_path, use, command=["no-such-bot"])


def test_the_whole_program_keeps_it_over_the_turns_of_a_chain(tmp_path: Path) -> None:
    program = Program(tmp_path)
    bot = {
        "type": "cli",
        "command": [sys.executable, str(PROGRAMS / "json_bot.py")],
        "prompt": "json",
        "output": "jsonl",
        "where": {"type": "result"},
        "keep_alive": True,
    }
    program.agent("bot", adapter=bot).agent("dev", "who @bot", "who @bot once more").team()
    done = program.run("send", "--session", "s", "@dev please")
    assert done.code == 0, done.stderr
    said = [
        one["message"]["content"].split()
        for one in program.records()
        if one["type"] == "reply_finished" and one["agent"] == "bot"
    ]
    (pid, first), (same_pid, second) = said
    assert (pid, first, second) == (same_pid, "1", "2")
    assert gone(int(pid))


def test_a_scenario_keeps_it_over_its_steps_and_ends_it_with_the_last(tmp_path: Path) -> None:
    bot = {
        "type": "cli",
        "command": [sys.executable, str(PROGRAMS / "json_bot.py")],
        "prompt": "json",
        "output": "jsonl",
        "where": {"type": "result"},
        "keep_alive": True,
    }
    stage = Stage(tmp_path).agent("bot", adapter=bot)
    stage.team()
    (result,) = stage.play_all(
        """
scenario: Two questions
steps:
  - send: "who"
    expect: {replied: [bot]}
    save: {said: {from: bot, regex: '(\\d+) 1'}}
  - send: "who"
    expect: {replies: {bot: [{regex: '^${saved.said} 2$'}]}}
""",
        keep="all",
    )
    assert result.status == "passed", printed(result)
    transcript = tmp_path / "sessions" / result.sessions[0] / "transcript.jsonl"
    events = [json.loads(line) for line in transcript.read_text(encoding="utf-8").splitlines()]
    said = [one["message"]["content"] for one in events if one["type"] == "reply_finished"]
    assert gone(int(said[0].split()[0]))
