"""The kind `python`: functions in a process of their own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from adapter_setups import PATIENCE_S, PROGRAMS, Heard, a_setup, an_input, cancelled, pids_in, runs
from product import AgentOutput, AgentProtocolError, AgentUnavailable, PythonAdapter, PythonSettings
from product import run as run_module
from pydantic import ValidationError

T = TypeVar("T")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    shutil.copy(PROGRAMS / "team_bot.py", tmp_path / "agents" / "机器人.py")
    shutil.copy(PROGRAMS / "team_bot.py", tmp_path / "team_bot.py")
    return tmp_path


def using(workspace: Path, target: str, use: Callable[[PythonAdapter], Awaitable[T]]) -> T:
    """Use an adapter, and see that nothing of it is left."""
    if ":" not in target:
        target = f"agents/机器人.py:{target}"

    async def run() -> T:
        settings = PythonSettings(type="python", target=target)
        adapter = PythonAdapter(a_setup(workspace, settings))
        await adapter.start()
        try:
            return await use(adapter)
        finally:
            async with asyncio.timeout(PATIENCE_S):
                await adapter.stop()

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        return asyncio.run(run())
    finally:
        after = psutil.Process().children(recursive=True)
        assert not [child for child in after if child.pid not in before]


def answer(workspace: Path, target: str, text: str = "你好") -> AgentOutput:
    return using(workspace, target, lambda adapter: adapter.invoke(an_input(text), Heard()))


@pytest.mark.parametrize("target", ["echo", "team_bot:echo"])
def test_a_file_or_a_module(workspace: Path, target: str) -> None:
    got = answer(workspace, target)
    assert got.content == "bot: 你好"
    assert sorted(got.metadata["stderr"].splitlines()) == ["printed to stderr", "printed to stdout"]


def test_an_async_function_and_a_whole_output(workspace: Path) -> None:
    got = answer(workspace, "later")
    assert (got.content, got.next_mentions) == ("later", ["b"])


def test_async_calls_share_one_event_loop(workspace: Path) -> None:
    (workspace / "loops.py").write_text(
        "import asyncio\n"
        "loops = []\n"
        "async def f(input):\n"
        "    loops.append(asyncio.get_running_loop())\n"
        "    return str(len(set(loops)))\n",
        encoding="utf-8",
    )

    async def twice(adapter: PythonAdapter) -> list[str]:
        return [(await adapter.invoke(an_input(), Heard())).content for _ in range(2)]

    assert using(workspace, "loops.py:f", twice) == ["1", "1"]


def test_a_dict_is_read_as_an_output(workspace: Path) -> None:
    got = answer(workspace, "fields")
    assert got.content == "d"
    assert got.metadata["mood"] == "good"


def test_the_module_is_kept_between_calls_and_between_errors(workspace: Path) -> None:
    async def calls(adapter: PythonAdapter) -> list[str]:
        first = await adapter.invoke(an_input(), Heard())
        both = await asyncio.gather(*(adapter.invoke(an_input(), Heard()) for _ in range(2)))
        return [first.content, *(one.content for one in both)]

    assert using(workspace, "count", calls) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing", "returned nothing"),
        ("number", "returned int"),
        ("unwritable", "JSON cannot represent"),
        ("wrong_field", "content: must be a text"),
        ("leaves", "SystemExit: 3"),
    ],
)
def test_what_is_no_answer(workspace: Path, target: str, says: str) -> None:
    with pytest.raises(AgentProtocolError) as caught:
        answer(workspace, target)
    assert says in caught.value.what
    assert caught.value.agent_id == "bot"


def test_an_exception_is_told_with_its_place(workspace: Path) -> None:
    source = (workspace / "team_bot.py").read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(source, 1) if "raise ValueError" in text)
    with pytest.raises(AgentProtocolError) as caught:
        answer(workspace, "fails")
    path = workspace.resolve() / "agents" / "机器人.py"
    assert caught.value.what == f"ValueError: 太大了 ({path}:{line})"
    assert "Traceback" in caught.value.metadata["traceback"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("agents/none.py:f", "no file"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("no_such_function", "no function no_such_function"),
        ("seen", "no function seen"),
        ("broken.py:f", "broken.py:2"),
    ],
)
def test_a_function_that_cannot_be_loaded(workspace: Path, target: str, says: str) -> None:
    (workspace / "broken.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")
    with pytest.raises(AgentUnavailable) as caught:
        answer(workspace, target)
    assert says in caught.value.what
    assert caught.value.mend


def test_a_mended_file_works_at_the_next_call(workspace: Path) -> None:
    path = workspace / "bot.py"

    async def calls(adapter: PythonAdapter) -> str:
        with pytest.raises(AgentUnavailable):
            await adapter.invoke(an_input(), Heard())
        path.write_text("def f(input):\n    return 'mended'\n", encoding="utf-8")
        return (await adapter.invoke(an_input(), Heard())).content

    assert using(workspace, "bot.py:f", calls) == "mended"


def test_a_broken_process_is_said_and_the_next_call_has_another(workspace: Path) -> None:
    (workspace / "once.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "def f(input):\n"
        "    if not Path('been').exists():\n"
        "        Path('been').touch(); print('last words', flush=True); os._exit(7)\n"
        "    return 'alive'\n",
        encoding="utf-8",
    )

    async def calls(adapter: PythonAdapter) -> str:
        with pytest.raises(AgentProtocolError, match="exit code 7") as caught:
            await adapter.invoke(an_input(), Heard())
        assert caught.value.came == "last words"
        return (await adapter.invoke(an_input(), Heard())).content

    assert using(workspace, "once.py:f", calls) == "alive"


def test_an_endless_loop_is_ended_with_its_children(workspace: Path) -> None:
    path = workspace / "pids"

    async def call(adapter: PythonAdapter) -> None:
        task = asyncio.create_task(adapter.invoke(an_input(str(path)), Heard()))
        pids = await pids_in(path)
        await cancelled(task)
        assert len(pids) == 2
        assert not any(runs(pid) for pid in pids)

    using(workspace, "hangs", call)


def test_much_in_and_out_and_on_stderr(workspace: Path) -> None:
    got = answer(workspace, "big", "x" * 3_000_000)
    assert got.content == "x" * 3_000_000 + "3000000"
    assert len(got.metadata["stderr"]) == 8192


def test_nothing_that_is_printed_or_read_disturbs_the_answer(workspace: Path) -> None:
    got = answer(workspace, "raw_output")
    assert got.content == "read ''"
    assert sorted(got.metadata["stderr"].splitlines()) == ["from a child", "raw"]


def test_a_thread_that_prints_does_not_put_the_end_off(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STOP_GRACE_S", 0.1)
    assert answer(workspace, "leaves_a_thread").content == "answered"


def test_half_a_pair_is_replaced_and_flagged(workspace: Path) -> None:
    got = answer(workspace, "half_a_pair")
    assert got.content == "a\ufffdb"
    assert got.metadata["deep"] == ["\ufffd"]
    assert got.metadata["replaced_bytes"] is True


def test_files_beside_the_file_can_be_imported(workspace: Path) -> None:
    (workspace / "agents" / "cli.py").write_text("WORD = 'beside'\n", encoding="utf-8")
    (workspace / "agents" / "json.py").write_text(
        "import json\nimport cli\n\ndef f(input):\n    return cli.WORD + json.dumps([1])\n",
        encoding="utf-8",
    )
    (workspace / "agents" / "plain.py").write_text(
        "import cli\n\ndef f(input):\n    return cli.WORD\n", encoding="utf-8"
    )
    assert answer(workspace, "agents/plain.py:f").content == "beside"
    assert answer(workspace, "agents/json.py:f").content == "beside[1]"


@pytest.mark.parametrize(
    ("target", "ok", "says"),
    [
        ("agents/机器人.py:echo", True, ""),
        ("team_bot:later", True, ""),
        ("agents/机器人.py:PROGRAM", False, "no function PROGRAM"),
        ("agents/none.py:f", False, "no file"),
        ("no.such.module:f", False, "no module no.such.module"),
        ("arena_cli.util.text:escape_line", True, ""),
        ("broken.py:f", False, "cannot be read"),
        ("star.py:anything", True, ""),
        ("star.py:imported", True, ""),
    ],
)
def test_health_reads_and_runs_nothing(workspace: Path, target: str, ok: bool, says: str) -> None:
    (workspace / "broken.py").write_text("def f(:\n", encoding="utf-8")
    (workspace / "star.py").write_text(
        "from team_bot import *\nfrom team_bot import echo as imported\nraise SystemExit\n",
        encoding="utf-8",
    )
    health = using(workspace, target, lambda adapter: adapter.health())
    assert health.ok is ok
    assert says in health.detail


@pytest.mark.parametrize("target", ["agents/bot.py", "bot:", ":f", "bot:f()", ""])
def test_a_target_needs_both_halves(target: str) -> None:
    with pytest.raises(ValidationError, match="module:function"):
        PythonSettings(type="python", target=target)


def test_a_drive_letter_is_no_separator() -> None:
    assert PythonSettings(type="python", target="C:\\bots\\x.py:f").target == "C:\\bots\\x.py:f"
