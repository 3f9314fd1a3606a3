"""Cases C29 to C33 and C38, with real programs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import Heard, an_input, cancelled, pids_in, runs, speaker, until
from product import AgentInput, AgentOutput, AgentProtocolError, AgentUnavailable, CliAdapter, run

RESULT = '{"type":"result","content":"done"}'
WHERE = {"type": "result"}


def answer(adapter: CliAdapter, input: AgentInput | None = None) -> AgentOutput:
    return asyncio.run(adapter.invoke(input or an_input(), Heard()))


@pytest.fixture
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.2)


@pytest.mark.usefixtures("_short_grace")
@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize("end", ["\\n", ""])
def test_c29_result_then_silence_is_a_success_with_a_note(
    tmp_path: Path, output: str, end: str
) -> None:
    pids = tmp_path / "pids"
    adapter = speaker(
        tmp_path, "spawn", str(pids), "say", RESULT + end, "sleep", output=output, where=WHERE
    )

    async def call() -> AgentOutput:
        got = await adapter.invoke(an_input(), Heard())
        assert not any(runs(pid) for pid in await pids_in(pids))
        return got

    got = asyncio.run(call())
    assert got.content == "done"
    assert got.metadata["ended_after_result"] is True


@pytest.mark.usefixtures("_short_grace")
def test_c29_without_where_a_whole_answer_is_enough(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "say", '{"content":\\n "done"}', "sleep", output="json"))
    assert got.content == "done"
    assert got.metadata["ended_after_result"] is True


def test_c29_plain_text_runs_until_it_is_cut_off_and_what_came_was_told(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    heard = Heard()

    async def call() -> None:
        adapter = speaker(tmp_path, "spawn", str(pids), "say", "half of \\e[1mit", "sleep")
        task = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: heard.text == "half of it")
        await cancelled(task)
        assert not any(runs(pid) for pid in await pids_in(pids))

    asyncio.run(call())


def test_c29_an_unfinished_result_is_kept_as_partial_when_cut_off(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    heard = Heard()

    async def call() -> None:
        adapter = speaker(
            tmp_path, "say", '{"type":"res', "err", "hm", "pids", str(pids), "sleep", output="json"
        )
        task = asyncio.create_task(adapter.invoke(an_input(), heard))
        await pids_in(pids)
        await asyncio.sleep(0.1)
        await cancelled(task)

    asyncio.run(call())
    assert heard.notes == {"partial": '{"type":"res', "stderr": "hm"}
    assert heard.deltas == []


def test_c31_a_long_prompt_goes_through_stdin(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "read", "size"), an_input("x" * 200_000, role_prompt="r"))
    assert got.content == str(200_000 + len("r\n\n"))


@pytest.mark.parametrize("prompt", ["stdin", "file"])
def test_c31_a_long_role_prompt(tmp_path: Path, prompt: str) -> None:
    steps = ["read", "size"] if prompt == "stdin" else ["file", "{prompt_file}"]
    got = answer(
        speaker(tmp_path, *steps, prompt=prompt), an_input("hi", role_prompt="r" * 200_000)
    )
    assert got.content == ("200004" if prompt == "stdin" else "r" * 200_000 + "\n\nhi")


def test_c31_a_long_argument_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match="200014 bytes") as caught:
        answer(speaker(tmp_path, "args", prompt="argument"), an_input("x" * 199_998))
    assert "prompt: stdin" in caught.value.mend


@pytest.mark.parametrize("text", ["-----", "/help", "--version", "@file"])
def test_c31_text_is_never_an_option(tmp_path: Path, text: str) -> None:
    adapter = speaker(tmp_path, "args", prompt="argument")
    assert json.loads(answer(adapter, an_input(text, role_prompt="")).content) == [f" {text}"]
    adapter = speaker(tmp_path, "read", "tell")
    assert answer(adapter, an_input(text, role_prompt="")).content == text


def test_c31_a_full_stderr_before_stdin_is_read(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "fill", "1000000", "read", "size"), an_input("x" * 300_000))
    assert got.content == str(300_000 + len("You are a bot.\n\n"))
    assert set(got.metadata["stderr"]) == {"e"}
    assert len(got.metadata["stderr"]) <= 8192


def test_c31_a_program_that_reads_nothing(tmp_path: Path) -> None:
    assert answer(speaker(tmp_path, "say", "hi"), an_input("x" * 1_000_000)).content == "hi"


@pytest.mark.parametrize("size", [70_000, 20_000_000])
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_c32_long_lines(tmp_path: Path, size: int, output: str) -> None:
    got = answer(speaker(tmp_path, "long", str(size), output=output, where=WHERE))
    assert got.content == "x" * size


@pytest.mark.parametrize("output", ["text", "json"])
def test_c32_above_the_limit_is_an_error_that_says_so(tmp_path: Path, output: str) -> None:
    adapter = speaker(tmp_path, "long", "2000000", "sleep", output=output, max_output_mb=1.5)
    with pytest.raises(AgentProtocolError, match=r"more than 1.5 MB") as caught:
        answer(adapter)
    assert "max_output_mb" in caught.value.mend


SHAPES = {
    "title": f"\\e]0;title\x07{RESULT}",
    "banner": f"Loading [plugins] {{fast}} ...\\n* ready\\n{RESULT}\\n",
    "array": f'[{{"type":"start"}},{RESULT},{{"type":"end"}}]',
    "array over lines": f'[\\n  {{\\n    "type": "start"\\n  }},\\n  {RESULT}\\n]\\n',
    "a line each": f'{{"type":"start"}}\\n{RESULT}\\n{{"type":"end"}}\\n',
    "over lines": '{\\n  "type": "result",\\n  "content": "done"\\n}\\n',
    "colours": f"\\e[32m{RESULT}\\e[0m\\n",
    "line ends of Windows": f'{{"type":"start"}}\r\\n{RESULT}\r\\n',
    "fence": f"Here it is:\\n```json\\n{RESULT}\\n```\\n",
    "behind text": f"result: {RESULT}\\n",
}


@pytest.mark.parametrize("stream", ["say", "err"])
@pytest.mark.parametrize("shape", SHAPES)
def test_c33_the_last_result_in_every_shape(tmp_path: Path, shape: str, stream: str) -> None:
    text = SHAPES[shape].replace("\\e", "\x1b") if stream == "err" else SHAPES[shape]
    keys: dict[str, Any] = {"output": "json", "where": WHERE, "answer": "content"}
    assert answer(speaker(tmp_path, stream, text, **keys)).content == "done"


def test_c33_the_banner_is_kept_in_the_log(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "say", SHAPES["banner"], output="json", where=WHERE))
    assert got.metadata["log"] == "Loading [plugins] {fast} ...\n* ready"


def test_c38_a_bad_byte_is_replaced_once_and_flagged(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "raw", "61ff62"))
    assert got.content == "a\ufffdb"
    assert got.metadata["replaced_bytes"] is True
    got = answer(speaker(tmp_path, "raw", "61efbfbd62"))
    assert got.content == "a\ufffdb"
    assert "replaced_bytes" not in got.metadata


def test_c38_half_a_pair_in_json_is_replaced_everywhere(tmp_path: Path) -> None:
    said = r'{"content":"a\ud83db","metadata":{"k":["\ud83d"]},"extra":"\ud83d\ude00"}'
    got = answer(speaker(tmp_path, "say", said, output="json"))
    assert got.content == "a\ufffdb"
    assert got.metadata["k"] == ["\ufffd"]
    assert got.metadata["extra"] == "😀"
    assert got.metadata["replaced_bytes"] is True
    got.model_dump_json().encode("utf-8")


def test_c38_an_emoji_that_was_cut(tmp_path: Path) -> None:
    got = answer(speaker(tmp_path, "raw", "61f09f98"))
    assert got.content == "a\ufffd"
    assert got.metadata["replaced_bytes"] is True
