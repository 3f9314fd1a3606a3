"""A program that is kept alive between calls."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from adapter_setups import PATIENCE_S, PROGRAMS, cancelled, pids_in, runs, until
from product import AgentProtocolError, AgentUnavailable, KeptProgram, Program
from product import run as run_module

T = TypeVar("T")


class Bot:
    """`programs/line_bot.py`, spoken to in words."""

    def __init__(self, folder: Path, *args: str, max_output_mb: float = 32) -> None:
        argv = [sys.executable, str(PROGRAMS / "line_bot.py"), *args]
        self.program = Program(argv, folder, dict(os.environ), folder / "processes")
        self.kept = KeptProgram("bot", asked="line_bot", max_output_mb=max_output_mb)
        self.heard: list[dict[str, Any]] = []

    async def ask(self, line: str) -> dict[str, Any]:
        return await self.kept.exchange(
            self.program,
            line,
            is_end=lambda value: value.get("type") == "result",
            on_object=self.heard.append,
        )


def using(bot: Bot, use: Callable[[Bot], Awaitable[T]]) -> T:
    """Use a bot, and see that nothing of it is left, no process and no record of one."""

    async def run() -> T:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await use(bot)
        finally:
            await bot.kept.stop()

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        return asyncio.run(run())
    finally:
        after = psutil.Process().children(recursive=True)
        assert not [child for child in after if child.pid not in before]
        assert not list(bot.program.records.glob("*"))


def kill(pid: int) -> None:
    """End a process; the event loop stands still, so that the next call is what finds it out."""
    psutil.Process(pid).kill()
    limit = time.monotonic() + PATIENCE_S
    while runs(pid):
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_one_process_serves_all_calls(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> list[dict[str, Any]]:
        return [await bot.ask(f"echo {word}") for word in ("一", "二", "三")]

    answers = using(Bot(tmp_path), calls)
    assert [answer["text"] for answer in answers] == ["一", "二", "三"]
    assert [answer["lines"] for answer in answers] == [1, 2, 3]
    assert len({answer["pid"] for answer in answers}) == 1


def test_nothing_starts_before_the_first_call(tmp_path: Path) -> None:
    async def no_call(bot: Bot) -> bool:
        return bot.kept.is_running()

    assert using(Bot(tmp_path), no_call) is False


def test_calls_wait_for_each_other(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> list[dict[str, Any]]:
        return await asyncio.gather(*(bot.ask(f"echo {number}") for number in range(5)))

    answers = using(Bot(tmp_path), calls)
    assert [answer["text"] for answer in answers] == ["0", "1", "2", "3", "4"]


def test_what_comes_before_the_end_is_told_in_order(tmp_path: Path) -> None:
    bot = Bot(tmp_path)
    answer = using(bot, lambda bot: bot.ask("progress 3"))
    assert [value["step"] for value in bot.heard] == [0, 1, 2]
    assert answer["type"] == "result"


def test_what_is_no_json_is_kept_as_log_of_its_call(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> list[dict[str, Any]]:
        await bot.ask("say a banner { not json")
        first = bot.kept.notes()
        await bot.ask("echo again")
        return [first, bot.kept.notes()]

    assert using(Bot(tmp_path), calls) == [{"log": "a banner { not json"}, {}]


def test_control_sequences_before_an_object_are_taken_out(tmp_path: Path) -> None:
    bot = Bot(tmp_path)
    using(bot, lambda bot: bot.ask('say \\e]0;title\x07{"type":"progress"}'))
    assert bot.heard == [{"type": "progress"}]


def test_bytes_that_are_no_utf8_are_replaced_and_noted(tmp_path: Path) -> None:
    bot = Bot(tmp_path)
    raw = b'{"type":"progress","text":"a\xffb"}\n'.hex()
    using(bot, lambda bot: bot.ask(f"hex {raw}"))
    assert bot.heard == [{"type": "progress", "text": "a\ufffdb"}]
    assert bot.kept.notes() == {"replaced_bytes": True}


def test_c31_stderr_is_drained_and_its_end_kept(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> tuple[dict[str, Any], dict[str, Any]]:
        answer = await bot.ask("err 3000000")
        await until(lambda: "stderr" in bot.kept.notes())
        return answer, bot.kept.notes()

    answer, notes = using(Bot(tmp_path), calls)
    assert answer["type"] == "result"
    assert set(notes["stderr"]) == {"e"}
    assert len(notes["stderr"]) <= 8192


@pytest.mark.parametrize("size", [70_000, 20_000_000])
def test_c32_a_long_line_is_read(tmp_path: Path, size: int) -> None:
    answer = using(Bot(tmp_path), lambda bot: bot.ask(f"long {size}"))
    assert len(answer["text"]) == size


def test_c32_more_than_the_limit_is_an_error_and_ends_it(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> dict[str, Any]:
        with pytest.raises(AgentProtocolError, match=r"more than 0\.5 MB"):
            await bot.ask("fill 600000")
        return await bot.ask("echo anew")

    answer = using(Bot(tmp_path, max_output_mb=0.5), calls)
    assert (answer["text"], answer["lines"]) == ("anew", 1)


def test_the_limit_counts_each_call_alone(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> list[dict[str, Any]]:
        return [await bot.ask("long 300000") for _ in range(4)]

    assert len(using(Bot(tmp_path, max_output_mb=0.5), calls)) == 4


def test_a_program_that_dies_in_a_call_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> tuple[AgentProtocolError, dict[str, Any]]:
        with pytest.raises(AgentProtocolError) as caught:
            await bot.ask("exit 7")
        return caught.value, await bot.ask("echo anew")

    error, answer = using(Bot(tmp_path), calls)
    assert error.what == "its program failed with exit code 7 before it answered"
    assert (error.came, error.asked, error.agent_id) == ("dying", "line_bot", "bot")
    assert error.metadata == {"stderr": "dying"}
    assert answer["text"] == "anew"


def test_a_program_that_died_between_calls_is_started_anew(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> list[dict[str, Any]]:
        first = await bot.ask("echo 1")
        kill(first["pid"])
        second = await bot.ask("leave 2")
        await until(lambda: not bot.kept.is_running())
        return [first, second, await bot.ask("echo 3")]

    answers = using(Bot(tmp_path), calls)
    assert [answer["text"] for answer in answers] == ["1", "2", "3"]
    assert [answer["lines"] for answer in answers] == [1, 1, 1]


def test_a_last_answer_without_a_line_end_counts(tmp_path: Path) -> None:
    assert using(Bot(tmp_path), lambda bot: bot.ask("bare 完"))["text"] == "完"


def test_a_program_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with pytest.raises(AgentProtocolError, match="exit code 4") as caught:
        using(Bot(tmp_path, "silent"), lambda bot: bot.ask("echo"))
    assert caught.value.came == "cannot begin"
    assert caught.value.mend == "try the command in a shell"


def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    bot = Bot(tmp_path)
    bot.program = Program([str(tmp_path / "none")], tmp_path, {}, tmp_path / "processes")
    with pytest.raises(AgentUnavailable, match="could not be started"):
        using(bot, lambda bot: bot.ask("echo"))


def test_a_cancelled_call_ends_the_whole_tree_and_the_next_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "pids"

    async def calls(bot: Bot) -> dict[str, Any]:
        task = asyncio.create_task(bot.ask(f"hang {path}"))
        pids = await pids_in(path)
        await cancelled(task)
        assert len(pids) == 2
        assert not any(runs(pid) for pid in pids)
        return await bot.ask("echo anew")

    assert using(Bot(tmp_path), calls)["lines"] == 1


def test_stop_lets_it_end_in_peace(tmp_path: Path) -> None:
    async def calls(bot: Bot) -> int:
        pid: int = (await bot.ask("echo 1"))["pid"]
        await bot.kept.stop()
        assert not runs(pid)
        return pid

    using(Bot(tmp_path), calls)


def test_stop_reads_on_so_that_a_program_that_writes_much_can_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STOP_GRACE_S", PATIENCE_S / 2)
    saved = tmp_path / "saved"
    bot = Bot(tmp_path)
    source = (
        "import pathlib, sys\n"
        'for line in sys.stdin: print(\'{"type": "result"}\', flush=True)\n'
        "for number in range(200): print('x' * 100_000, flush=True)\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
    )
    argv = [sys.executable, "-c", source, str(saved)]
    bot.program = Program(argv, tmp_path, dict(os.environ), tmp_path / "processes")

    async def calls(bot: Bot) -> None:
        await bot.ask("echo 1")
        await bot.kept.stop()
        assert saved.exists()

    using(bot, calls)


def test_stop_ends_one_that_will_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "STOP_GRACE_S", 0.05)

    async def calls(bot: Bot) -> None:
        pid = (await bot.ask("echo 1"))["pid"]
        await bot.kept.stop()
        assert not runs(pid)

    using(Bot(tmp_path, "deaf"), calls)
