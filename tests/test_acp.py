"""The kind `acp`: an agent of the Agent Client Protocol, with and without the SDK's other side."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import agent_programs
import psutil
import pytest
from adapter_setups import (
    PATIENCE_S,
    PROGRAMS,
    Heard,
    a_setup,
    an_input,
    cancelled,
    pids_in,
    runs,
    until,
)
from product import (
    AcpAdapter,
    AcpSettings,
    AgentError,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentSession,
    AgentUnavailable,
    DiskRefused,
    HttpRequest,
    StatusEvent,
    client,
    turn,
)
from product import context_render as render
from product import kinds_PRESETS as PRESETS
from program import Program, gone, growing_limits
from pydantic import ValidationError

pytest.importorskip("acp", reason="the SDK of the Agent Client Protocol is not installed")

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_END_GRACE_S", PATIENCE_S)


def agent(folder: Path, *words: str, program: str = "acp_agent.py", **keys: Any) -> AcpAdapter:
    """An adapter whose agent takes these flags and steps (`programs/acp_agent.py`)."""
    command = [sys.executable, str(PROGRAMS / program), str(folder / "log.jsonl"), *words]
    (folder / "work").mkdir(exist_ok=True)
    settings = AcpSettings.model_validate(
        {"type": "acp", "command": command, "cwd": "work", **keys}
    )
    return AcpAdapter(a_setup(folder, settings, render=render.render))


def using(adapter: AcpAdapter, use: Callable[[AcpAdapter], Awaitable[T]]) -> T:
    """Use an adapter, stop it, and see that nothing of it is left."""

    async def run() -> T:
        await adapter.start()
        try:
            return await use(adapter)
        finally:
            async with asyncio.timeout(PATIENCE_S):
                await adapter.stop()

    started = agent_programs.Started()
    try:
        return asyncio.run(run())
    finally:
        assert started.pids() == []


def answer(adapter: AcpAdapter, heard: Heard | None = None, text: str = "你好") -> AgentOutput:
    return using(adapter, lambda one: one.invoke(an_input(text), heard or Heard()))


def failure(adapter: AcpAdapter, heard: Heard | None = None) -> AgentError:
    [error] = failures(adapter, 1, heard)
    return error


def failures(adapter: AcpAdapter, count: int, heard: Heard | None = None) -> list[AgentError]:
    """How so many calls of one agent failed."""

    async def calls(one: AcpAdapter) -> list[AgentError]:
        errors = []
        for _ in range(count):
            with pytest.raises(AgentError) as caught:
                await one.invoke(an_input(), heard or Heard())
            errors.append(caught.value)
        return errors

    return using(adapter, calls)


def log(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def logged(folder: Path, name: str) -> list[Any]:
    return [entry[name] for entry in log(folder) if name in entry]


def later(session_id: str) -> AgentInput:
    """A second call, for which the agent's own session holds the first message."""
    first = an_input().messages[0]
    own = first.model_copy(update={"id": "m4", "role": "assistant", "content": "earlier reply"})
    new = first.model_copy(update={"id": "m5", "content": "and now?"})
    return an_input(
        messages=[first, own, new],
        trigger=["m5"],
        call=2,
        own_session=AgentSession(id=session_id, upto_seq=2),
    )


def test_an_answer_as_it_comes(tmp_path: Path) -> None:
    heard = Heard()
    got = answer(agent(tmp_path, "think:hmm", "say:one ", "say:two", "usage:5,7,11,0"), heard)
    assert got.content == "one two"
    assert heard.deltas == ["one ", "two"]
    assert [one.status for one in heard.statuses] == ["analyzing", "generating"]
    assert got.metadata["thinking"] == "hmm"
    assert got.metadata["raw"]["answer"]["stopReason"] == "end_turn"
    assert got.usage is not None
    assert (got.usage.input_tokens, got.usage.output_tokens) == (5, 7)
    assert (got.usage.cache_read_tokens, got.usage.cost_usd) == (11, None)


def test_tokens_are_counted_as_agents_tell_them(tmp_path: Path) -> None:
    """Thoughts beside the output count as output; Gemini has a place of its own."""

    async def calls(adapter: AcpAdapter) -> list[Any]:
        return [(await adapter.invoke(an_input(), Heard())).usage for _ in range(3)]

    steps = ["say:x", "usage:5,7,11,3", "/", "say:x", "quota:21,4", "/", "say:x"]
    thought, gemini, none = using(agent(tmp_path, *steps, preset="gemini"), calls)
    assert thought.output_tokens == 10
    assert (gemini.input_tokens, gemini.output_tokens) == (21, 4)
    assert none is None


def test_what_it_does_is_told_once_each(tmp_path: Path) -> None:
    heard = Heard()
    steps = ("plan:1", "plan:1", "tool:read:Read 合同.md", "plan:2", "say:a", "think:b", "say:c")
    got = answer(agent(tmp_path, *steps), heard)
    told = [(one.status, one.detail, one.progress) for one in heard.statuses]
    assert told == [
        ("analyzing", "plan", 0.25),
        ("calling_tool", "Read 合同.md", None),
        ("analyzing", "plan", 0.5),
        ("generating", "", None),
        ("analyzing", "", None),
    ]
    tools = got.metadata["raw"]["tool_calls"]
    assert tools == [{"title": "Read 合同.md", "kind": "read", "status": "completed"}]


def tool_updates(*updates: dict[str, Any]) -> list[str]:
    """The steps of one tool call; the first update begins it."""
    kinds = ["tool_call", *["tool_call_update"] * (len(updates) - 1)]
    return [
        "raw:" + json.dumps({"sessionUpdate": kind, "toolCallId": "1", **update})
        for kind, update in zip(kinds, updates, strict=True)
    ]


@pytest.mark.parametrize(
    ("updates", "details"),
    [
        (
            [
                {"title": "Read File", "kind": "read", "status": "pending", "rawInput": {}},
                {"title": "Read a.txt", "rawInput": {"file_path": "a.txt"}},
                {"status": "completed"},
            ],
            ["Read a.txt"],
        ),
        (
            [{"title": "read", "kind": "read", "status": "pending"}, {"status": "failed"}],
            ["read"],
        ),
        (
            [
                {
                    "title": "a.txt: one => two",
                    "kind": "edit",
                    "status": "in_progress",
                    "locations": [{"path": "a.txt"}],
                },
                {"status": "completed"},
            ],
            ["edit a.txt: one => two"],
        ),
        (
            [{"title": "Makefile", "kind": "edit", "locations": [{"path": "Makefile"}]}],
            ["edit Makefile"],
        ),
        ([{"title": "./run.sh --all", "kind": "execute"}], ["execute ./run.sh --all"]),
        ([{"title": "sed -i s/a/b/ x", "kind": "execute"}], ["sed -i s/a/b/ x"]),
        ([{"title": "查找合同", "kind": "search"}], ["查找合同"]),
    ],
)
def test_a_use_of_a_tool_is_told_with_its_kind_and_path(
    tmp_path: Path, updates: list[dict[str, Any]], details: list[str]
) -> None:
    heard = Heard()
    answer(agent(tmp_path, *tool_updates(*updates), "say:x"), heard)
    assert [one.detail for one in heard.statuses if one.status == "calling_tool"] == details


@pytest.mark.parametrize(
    ("steps", "content", "earlier"),
    [
        (["say:I look.", "tool:read:x", "say:It is ", "say:4."], "It is 4.", "I look."),
        (["say@1:I look.", "tool:read:x", "say@2:It is ", "say@2:4."], "It is 4.", "I look."),
        (["say@1:It is", "say@2:It is 4."], "It is 4.", "It is"),  # another attempt
        (["say:Done already.", "tool:edit:x", "say: "], "Done already.", None),
    ],
)
def test_the_answer_is_the_last_that_it_says(
    tmp_path: Path, steps: list[str], content: str, earlier: str | None
) -> None:
    heard = Heard()
    got = answer(agent(tmp_path, *steps), heard)
    assert got.content == content
    assert got.metadata.get("earlier_text") == earlier
    assert heard.text.strip() == (f"{earlier}\n\n{content}" if earlier else content)


def test_remarks_of_its_program_are_no_part_of_a_numbered_answer(tmp_path: Path) -> None:
    got = answer(agent(tmp_path, "say:Warning: old.", "say@m1:Hello."))
    assert got.content == "Hello."
    assert got.metadata["remarks"] == "Warning: old."


def test_updates_of_kinds_that_nobody_knows_are_passed_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unknown = 'raw:{"sessionUpdate": "dance", "step": 1}'
    broken = 'raw:{"sessionUpdate": "agent_message_chunk", "content": 7}'
    surrogate = (
        'raw:{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\\ud83d!"}}'
    )
    got = answer(agent(tmp_path, unknown, broken, surrogate, "say:ok"))
    assert got.content == "\N{REPLACEMENT CHARACTER}!ok"
    assert capfd.readouterr().err == ""


def test_who_cannot_be_told_of_the_work_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(item: object) -> None:
        if isinstance(item, StatusEvent):
            raise DiskRefused("the disk is full")

    adapter = agent(tmp_path, "ask:read:a", "say:x")
    with pytest.raises(DiskRefused):
        using(adapter, lambda one: one.invoke(an_input(), full))
    assert capfd.readouterr().err == ""


def test_an_agent_that_says_nothing_answers_nothing(tmp_path: Path) -> None:
    assert answer(agent(tmp_path)).content == ""


def test_the_system_text_goes_first_and_nothing_said_stands_in_the_last_block(
    tmp_path: Path,
) -> None:
    answer(agent(tmp_path, "say:x"), text="/compact @README.md")
    [[text, last]] = logged(tmp_path, "prompt")
    assert text.startswith("You are (@bot), one of a team.\n\nYou are a bot.")
    assert "> /compact @README.md" in text
    assert "@" not in last
    assert not last.startswith("/")


def test_the_system_text_goes_by_meta_to_who_takes_it(tmp_path: Path) -> None:
    answer(agent(tmp_path, "say:x", preset="claude"))
    [made] = logged(tmp_path, "new")
    assert made["system"]["append"].startswith("You are (@bot)")
    [[text, _]] = logged(tmp_path, "prompt")
    assert text.startswith("The conversation so far:")


def test_the_sdks_other_side_hears_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most tests here have an agent without the SDK: it starts in a tenth of the time."""
    monkeypatch.setattr(client, "CANCEL_GRACE_S", PATIENCE_S)
    steps = """
    plan:1 think:hmm tool:read:a say:I say@1:look tool:edit:b say@2:one say@2:two
    usage:5,7,11,3 cost:0.1 /
    ask:read:a.txt ask:fetch: read:FOLDER/合同.txt read:FOLDER/合同.txt#2 read:FOLDER/none
    write:FOLDER/new.txt write:/etc/x terminal: elicit: say:x quota:21,4 cost:0.3 /
    error:-32603:Internal error / say:half wait:"""

    async def calls(adapter: AcpAdapter) -> list[Any]:
        results: list[Any] = []
        for asked in (later("s-earlier"), an_input()):
            heard = Heard()
            got = await adapter.invoke(asked, heard)
            results += [got, heard.deltas, heard.statuses, heard.refused, heard.notes]
        with pytest.raises(AgentError) as caught:
            await adapter.invoke(an_input(), Heard())
        heard = Heard()
        call = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until(lambda: heard.text == "half")
        await cancelled(call)
        return [*results, str(caught.value), heard.notes]

    def everything(program: str, how: str) -> list[str]:
        """All that came of the calls and all that the program was asked, without what varies."""
        folder = tmp_path / program / how
        (folder / "work").mkdir(parents=True)
        (folder / "work" / "合同.txt").write_text("一\n二\n", encoding="utf-8")
        words = [word.replace("FOLDER", str(folder / "work")) for word in steps.split()]
        adapter = agent(folder, how, "--close", *words, program=program, permissions="allow")
        results = repr([*using(adapter, calls), log(folder)]).replace(str(folder), "FOLDER")
        assert f"{how[2:]}'" in results
        assert "'cancel'" in results
        return re.sub(r"s-\d+-|_s=[\d.]+|" + re.escape(program), "", results).split(", ")

    for how in ("--load", "--resume"):
        assert everything("acp_agent.py", how) == everything("sdk_acp_agent.py", how)


def test_one_process_for_all_calls_and_only_what_is_new(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> list[str]:
        heard = Heard()
        first = await adapter.invoke(an_input(), heard)
        assert heard.session_id
        again = Heard()
        second = await adapter.invoke(later(heard.session_id), again)
        assert again.session_id == heard.session_id
        return [first.content, second.content]

    assert using(agent(tmp_path, "say:answer {n}"), calls) == ["answer 1", "answer 2"]
    _, [text, _] = logged(tmp_path, "prompt")
    assert "and now?" in text
    assert "你好" not in text
    assert "earlier reply" not in text
    assert "You are (@bot), one of a team." not in text
    assert len(logged(tmp_path, "initialize")) == len(logged(tmp_path, "new")) == 1


def test_without_a_session_to_go_on_in_a_new_one_is_opened(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> list[str | None]:
        heard = [Heard(), Heard()]
        for one in heard:
            await adapter.invoke(an_input(), one)
        return [one.session_id for one in heard]

    first, second = using(agent(tmp_path, "--close", "say:x"), calls)
    assert first != second
    assert logged(tmp_path, "close") == [first]
    assert len(logged(tmp_path, "initialize")) == 1


def test_calls_at_once_wait_for_each_other(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> list[str]:
        both = [adapter.invoke(an_input(), Heard()) for _ in range(2)]
        return sorted(one.content for one in await asyncio.gather(*both))

    assert using(agent(tmp_path, "say:{n}", "say:."), calls) == ["1.", "2."]


@pytest.mark.parametrize("how", ["load", "resume"])
def test_a_session_of_an_earlier_process_is_taken_up(tmp_path: Path, how: str) -> None:
    adapter = agent(tmp_path, "--load", *(["--resume"] if how == "resume" else []), "say:x")
    heard = Heard()
    got = using(adapter, lambda one: one.invoke(later("s-earlier"), heard))
    assert got.content == "x"
    assert heard.text == "x"
    assert heard.session_id == "s-earlier"
    assert logged(tmp_path, how) == ["s-earlier"]
    [[text, _]] = logged(tmp_path, "prompt")
    assert "你好" not in text


@pytest.mark.parametrize(
    "flags",
    [
        ["--resume", "--forgets"],
        ["--load", "--forgets"],
        [],
        ["--resume", "--dies"],
        ["--load", "--dies"],
    ],
)
def test_a_lost_session_is_made_anew_with_everything(tmp_path: Path, flags: list[str]) -> None:
    heard = Heard()
    adapter = agent(tmp_path, *flags, "say:x")
    got = using(adapter, lambda one: one.invoke(later("s-earlier"), heard))
    assert got.content == "x"
    assert heard.session_id
    assert heard.session_id != "s-earlier"
    assert heard.notes["lost_session"] == "s-earlier"
    [[text, _]] = logged(tmp_path, "prompt")
    assert text.startswith("You are (@bot), one of a team.")
    assert "你好" in text
    assert "and now?" in text


_REJECTED = "messages.3: tool_use ids were found without tool_result blocks"
_DEAD = {
    "an internal error": "error:-32603:Internal error",
    "an error that is explained": f"error:-32603:Internal error: {_REJECTED}",
    "a rejected history": f"error:-32603:API Error: 400 {_REJECTED}",
    "an empty refusal": "stop:refusal",
    "the end of the process": f"die:Error: {_REJECTED}",
}


@pytest.mark.parametrize("how", ["--load", "--resume"])
@pytest.mark.parametrize("step", _DEAD.values(), ids=_DEAD)
def test_a_prompt_that_fails_in_a_resumed_session_begins_afresh(
    tmp_path: Path, step: str, how: str
) -> None:
    heard = Heard()
    adapter = agent(tmp_path, how, f"lost:{step}", "say:x")
    got = using(adapter, lambda one: one.invoke(later("s-earlier"), heard))
    assert got.content == "x"
    assert heard.session_id
    assert heard.session_id != "s-earlier"
    assert heard.notes["lost_session"] == "s-earlier"
    assert heard.notes["lost_because"]
    [told] = [one.detail for one in heard.statuses if one.status == "waiting"]
    assert told.startswith("its session cannot be resumed, so it begins a new one: ")
    [_, [text, _]] = logged(tmp_path, "prompt")
    assert "你好" in text
    assert "and now?" in text


_NOT_DEAD = {
    "overload": ["lost:error:-32603:Internal error: API Error: 529 overloaded"],
    "no network": ["lost:die:Error: read ECONNRESET"],
    "a wrong key": ["lost:error:-32603:status 401 invalid api key"],
    "no login": ["lost:error:-32000:Authentication required"],
    "a length limit": ["lost:stop:max_tokens"],
    "too long": ["lost:error:-32603:prompt is too long: 200001 tokens > 200000 maximum"],
    "a refusal in words": ["say:I cannot help", "lost:stop:refusal"],
    "an error after a tool": ["tool:read:a.txt", "lost:error:-32603:Internal error"],
    "a death after an answer began": ["say:half an ans", "lost:die:"],
}


@pytest.mark.parametrize("steps", _NOT_DEAD.values(), ids=_NOT_DEAD)
def test_a_failure_with_a_cause_is_not_a_dead_session(tmp_path: Path, steps: list[str]) -> None:
    heard = Heard()
    adapter = agent(tmp_path, "--resume", *steps, "say:x")
    with pytest.raises(AgentError):
        using(adapter, lambda one: one.invoke(later("s-earlier"), heard))
    assert "lost_session" not in heard.notes
    assert len(logged(tmp_path, "prompt")) == 1


def test_a_dead_session_is_replaced_once(tmp_path: Path) -> None:
    heard = Heard()
    adapter = agent(tmp_path, "--resume", "error:-32603:Internal error")
    with pytest.raises(AgentError):
        using(adapter, lambda one: one.invoke(later("s-earlier"), heard))
    assert len(logged(tmp_path, "prompt")) == 2


def test_a_dead_agent_is_started_anew_and_goes_on(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> str:
        heard = Heard()
        await adapter.invoke(an_input(), heard)
        assert heard.session_id
        pid = int(heard.session_id.split("-")[1])
        psutil.Process(pid).kill()
        await until(lambda: not runs(pid))
        return (await adapter.invoke(later(heard.session_id), Heard())).content

    assert using(agent(tmp_path, "--resume", "say:{n}"), calls) == "1"
    assert len(logged(tmp_path, "initialize")) == 2
    assert len(logged(tmp_path, "resume")) == 1


def test_the_cost_of_a_call_is_what_the_sessions_cost_grew(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> list[Any]:
        heard, costs, asked = Heard(), [], an_input()
        for _ in range(4):
            got = await adapter.invoke(asked, heard)
            assert got.usage is not None
            costs.append(got.usage.cost_usd)
            asked = later(str(heard.session_id))
        return costs

    told = ("cost:0.1", "cost:0.3", "cost:NaN", "cost:0.7")
    steps = [word for cost in told for word in ("say:x", "usage:1,1,0,0", cost, "/")]
    assert using(agent(tmp_path, *steps[:-1]), calls) == [0.1, 0.2, None, None]
    taken_up = agent(tmp_path, "--load", *steps)
    got = using(taken_up, lambda one: one.invoke(later("s-earlier"), Heard()))
    assert got.usage is not None
    assert got.usage.cost_usd is None


_ASKED = {  # what is asked for leave: with which permissions it is given
    "read:a.txt": ("read", "allow"),
    "search:": ("read", "allow"),
    "read:/etc/passwd": ("allow",),
    "read:../log.jsonl": ("allow",),
    "edit:a.txt": ("allow",),
    "execute:": ("allow",),
    "fetch:": ("allow",),
    "other:": ("allow",),
    'search:{"pattern": "合同", "path": "."}': ("read", "allow"),
    'search:{"pattern": "/etc/*"}': ("allow",),
    'read:{"file": "/etc/passwd"}': ("allow",),
    'read:{"files": ["a.txt", {"name": "../log.jsonl"}]}': ("allow",),
    'read:{"path": "~/a.txt"}': ("allow",),
    'read:{"uri": "file:///etc/passwd"}': ("allow",),
    'read:{"command": "cat a.txt"}': ("allow",),
}


@pytest.mark.parametrize("permissions", ["deny", "read", "allow"])
def test_leave_is_given_by_policy(tmp_path: Path, permissions: str) -> None:
    steps = [f"ask:{asked}" for asked in _ASKED]
    heard = Heard()
    answer(agent(tmp_path, *steps, "say:x", permissions=permissions), heard)
    chosen = dict(zip(_ASKED, logged(tmp_path, "answer"), strict=True))
    assert chosen == {
        asked: "o-allow_once" if permissions in given else "o-reject_once"
        for asked, given in _ASKED.items()
    }
    refused = [asked for asked, how in chosen.items() if how == "o-reject_once"]
    titles = [action.tool for action in heard.refused]
    assert titles == [asked.replace(":", " ", 1).strip() for asked in refused]
    assert all(action.by == "permissions" for action in heard.refused)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of an agent with a file, beside a file that is not for it, with links to it."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    (work / "合同.txt").write_text("一\n二\n三\n", encoding="utf-8")
    try:
        (work / "link.txt").symlink_to(tmp_path / "secret.txt")
        (work / "up").symlink_to(tmp_path)
    except OSError:
        pytest.skip("links cannot be made here")
    return tmp_path


def test_files_of_its_folder_are_read(files: Path) -> None:
    path = files / "work" / "合同.txt"
    other = files / "work" / "other.txt"
    other.write_text("a\u2028b\nc\x0cd\n", encoding="utf-8", newline="")
    steps = [f"read:{path}", f"read:{path}#2", f"read:{other}#2"]
    answer(agent(files, *steps, "say:x", permissions="read"))
    assert logged(files, "answer") == ["一\n二\n三\n", "二\n", "c\x0cd\n"]
    assert logged(files, "initialize") == [{"reads": True, "writes": False}]


@pytest.mark.parametrize("what", ["read", "write"])
def test_no_way_leads_out_of_its_folder(files: Path, what: str) -> None:
    ways = ["secret.txt", "work/../secret.txt", "work/link.txt", "work/up/secret.txt"]
    steps = [f"{what}:{files / way}" for way in [*ways, "/etc/passwd"]]
    answer(agent(files, *steps, f"{what}:../secret.txt", "say:x", permissions="allow"))
    refused = logged(files, "refused")
    assert len(refused) == 6
    assert all("outside of the working folder" in said for said in refused)
    assert (files / "secret.txt").read_text(encoding="utf-8") == "secret"


@pytest.mark.parametrize("what", ["read", "write"])
@pytest.mark.parametrize("swapped", ["合同.txt", "."])
def test_a_link_that_comes_after_the_look_leads_nowhere(
    files: Path, monkeypatch: pytest.MonkeyPatch, what: str, swapped: str
) -> None:
    outside = files / "outside"
    outside.mkdir()
    (outside / "合同.txt").write_text("secret", encoding="utf-8")
    inside = files / "work" / "inside"
    inside.mkdir()
    path = inside / "合同.txt"
    path.write_text("text", encoding="utf-8")
    really_open = os.open

    def open_after_it_came(name: Any, *flags: Any, **more: Any) -> int:
        if name == str(path) and not (inside / swapped).is_symlink() and not inside.is_symlink():
            (inside / swapped).rename(files / "moved")
            (inside / swapped).symlink_to(outside / swapped)
        return really_open(name, *flags, **more)

    monkeypatch.setattr(os, "open", open_after_it_came)
    answer(agent(files, f"{what}:{path}", "say:x", permissions="allow"))
    assert logged(files, "answer") == []
    assert len(logged(files, "refused")) == 1
    assert (outside / "合同.txt").read_text(encoding="utf-8") == "secret"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
@pytest.mark.parametrize("what", ["read", "write"])
def test_what_is_no_file_is_not_waited_for(files: Path, what: str) -> None:
    os.mkfifo(files / "work" / "pipe")
    with (files / "work" / "long").open("wb") as file:
        file.truncate(10_000_001)
    odd = ["pipe", "."] if what == "write" else ["pipe", ".", "long"]
    steps = [f"{what}:{files / 'work' / name}" for name in odd]
    answer(agent(files, *steps, "say:x", permissions="allow"))
    assert logged(files, "answer") == []
    assert len(logged(files, "refused")) == len(odd)


def test_an_agent_may_read_only_so_much_for_one_answer(files: Path) -> None:
    path = files / "work" / "long.txt"
    path.write_bytes(b"x" * 10_000_000)
    answer(agent(files, *[f"read:{path}#2"] * 6, "say:x", permissions="read"))
    assert logged(files, "answer") == [""] * 5
    [refused] = logged(files, "refused")
    assert "50 MB for this answer" in refused


@pytest.mark.parametrize(
    ("permissions", "what"), [("deny", "read"), ("deny", "write"), ("read", "write")]
)
def test_files_are_refused_by_policy(files: Path, permissions: str, what: str) -> None:
    path = files / "work" / "合同.txt"
    answer(agent(files, f"{what}:{path}", "say:x", permissions=permissions))
    assert "may not" in logged(files, "refused")[0]
    assert path.read_text(encoding="utf-8") == "一\n二\n三\n"


def test_files_are_written_where_everything_is_allowed(files: Path) -> None:
    path = files / "work" / "new" / "a.txt"
    answer(agent(files, f"write:{path}", "say:x", permissions="allow"))
    assert path.read_text(encoding="utf-8") == "written\n"


def test_a_file_that_is_not_there_is_told_as_that(files: Path) -> None:
    answer(agent(files, f"read:{files / 'work' / 'none'}", "say:x", permissions="read"))
    assert logged(files, "refused") == ["Resource not found"]


def test_an_agent_that_gives_up_when_it_is_refused(tmp_path: Path) -> None:
    error = failure(agent(tmp_path, "ask:edit:a.txt"))
    assert type(error) is AgentProtocolError
    assert "permission was denied" in error.what
    assert "edit a.txt" in error.what
    assert "permissions" in error.mend


def test_nobody_is_asked_and_no_terminal_is_offered(tmp_path: Path) -> None:
    answer(agent(tmp_path, "elicit:", "terminal:", "say:x", permissions="allow"))
    assert logged(tmp_path, "refused") == ["Method not found"] * 2


_ENDS = {
    "refusal": (AgentRefused, "refuses to answer"),
    "max_tokens": (AgentProtocolError, "cut off"),
    "max_turn_requests": (AgentProtocolError, "stopped before it answered"),
    "cancelled": (AgentProtocolError, "did not request"),
    "bored": (AgentProtocolError, "stopReason"),
}


def test_an_end_that_is_no_answer(tmp_path: Path) -> None:
    heard = Heard()
    steps = [word for stop in _ENDS for word in ("say:half of it", f"stop:{stop}", "/")]
    errors = failures(agent(tmp_path, *steps[:-1]), len(_ENDS), heard)
    for (stop, (kind, says)), error in zip(_ENDS.items(), errors, strict=True):
        assert type(error) is kind
        assert says in error.what
        assert error.again == (stop not in ("max_tokens", "max_turn_requests"))
        if stop != "bored":
            assert error.metadata["raw"]["answer"]["stopReason"] == stop
    assert heard.text == "half of it" * len(_ENDS)


_ERRORS = [
    (-32000, "Authentication required", AgentRefused),
    (-32603, "Internal error: API Error: 401 Unauthorized", AgentRefused),
    (401, '{"error": {"code": 401, "message": "no key"}}', AgentRefused),
    (-32603, "API Error: Request rejected (429) · slow down", AgentOverloaded),
    (-32603, "We’re currently experiencing high demand", AgentOverloaded),
    (500, "oh", AgentUnavailable),
    (-32603, "model not found, status 404", AgentRefused),
    (-32603, "Internal error: API Error: 529 busy", AgentOverloaded),
    (-32603, "something else", AgentProtocolError),
    (-32603, "exceeded the 32000 output token maximum", AgentProtocolError),
]


def test_what_it_says_went_wrong(tmp_path: Path) -> None:
    steps = [word for code, text, _ in _ERRORS for word in (f"error:{code}:{text}", "/")]
    errors = failures(agent(tmp_path, *steps[:-1]), len(_ERRORS))
    for (_, text, kind), error in zip(_ERRORS, errors, strict=True):
        assert type(error) is kind
        assert error.asked.endswith("(session/prompt)")
        assert error.came
        assert "{" not in error.came
        assert error.metadata["raw"]["message"] == text
    assert len(logged(tmp_path, "initialize")) == 1


@pytest.mark.parametrize(
    ("kind", "text", "error_type"),
    [
        ("server_error", "Internal error: API Error: 529 Service overloaded", AgentOverloaded),
        ("server_error", "Internal error: API Error: 500 oh", AgentUnavailable),
        ("server_error", "Internal error", AgentUnavailable),
        ("billing_error", "API Error: 400 credit balance is too low", AgentRefused),
        ("rate_limit", "API Error: 500", AgentOverloaded),
    ],
)
def test_an_overload_is_told_from_other_errors_of_a_server(
    kind: str, text: str, error_type: type[AgentError]
) -> None:
    asked = HttpRequest("bot", "claude-agent-acp", "", "")
    said = turn.RemoteError(-32603, text, {"errorKind": kind})
    assert type(turn.failure(asked, said, PRESETS["claude"].says)) is error_type


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (
            'model_provider = "mine"',
            {"model_providers": {"mine": {"request_max_retries": 0, "stream_max_retries": 0}}},
        ),
        ('model_provider = "openai"', None),
        ("", None),
        ("model_provider = [", None),
    ],
)
def test_codex_leaves_retries_with_a_provider_of_ones_own_to_arena(
    tmp_path: Path, settings: str, config: dict[str, Any] | None
) -> None:
    (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
    env = {"CODEX_HOME": str(tmp_path)}
    variables = agent(tmp_path, preset="codex", env=env)._program().environ
    assert json.loads(variables.get("CODEX_CONFIG", "null")) == config
    env["CODEX_CONFIG"] = "{}"
    assert agent(tmp_path, preset="codex", env=env)._program().environ["CODEX_CONFIG"] == "{}"


def test_codex_gives_up_without_saying_so_in_its_answer(tmp_path: Path) -> None:
    meta = {"codex": {"threadStatus": {"type": "systemError"}}}
    update = json.dumps({"sessionUpdate": "session_info_update", "_meta": meta})
    steps = (f"raw:{update}", "say:last status: 429 Too Many Requests")
    error = failure(agent(tmp_path, *steps, preset="codex"))
    assert type(error) is AgentOverloaded
    assert "429" in error.came


def test_an_agent_that_wants_a_login_says_how(tmp_path: Path) -> None:
    error = failure(agent(tmp_path, "--login"))
    assert type(error) is AgentRefused
    assert error.asked.endswith("(session/new)")
    assert error.mend


def test_its_model_is_chosen(tmp_path: Path) -> None:
    answer(agent(tmp_path, "--models", "say:x", model="small"))
    answer(agent(tmp_path, "--models", "say:x", model="big"))
    assert logged(tmp_path, "option") == [{"which": "small"}]


@pytest.mark.parametrize(
    ("flags", "says"), [(["--models"], "no model huge"), ([], "does not support choosing")]
)
def test_a_model_that_cannot_be_chosen(tmp_path: Path, flags: list[str], says: str) -> None:
    error = failure(agent(tmp_path, *flags, "say:x", model="huge"))
    assert type(error) is AgentRefused
    assert says in error.what
    assert not flags or "big, small" in error.mend


@pytest.mark.parametrize(("permissions", "modes"), [("deny", ["read-only"]), ("allow", [])])
def test_a_known_agent_is_made_to_ask(tmp_path: Path, permissions: str, modes: list[str]) -> None:
    adapter = agent(tmp_path, "--modes", "say:x", preset="codex", permissions=permissions)
    answer(adapter, text="use $imagegen")
    assert logged(tmp_path, "mode") == modes
    assert "$imagegen" not in logged(tmp_path, "prompt")[0][0]


def test_what_is_no_message_is_kept_in_the_log(tmp_path: Path) -> None:
    got = answer(agent(tmp_path, "--banner", "--flood", "say:x"))
    assert got.content == "x"
    assert got.metadata["log"] == "tiny agent, ready"
    assert got.metadata["stderr"].endswith("the end of the flood")


def raw(folder: Path, **plan: Any) -> AcpAdapter:
    """An adapter whose agent answers so, by method (`programs/raw_acp_agent.py`)."""
    words = {"initialize": "initialize", "new": "session/new", "prompt": "session/prompt"}
    named = {words[word]: messages for word, messages in plan.items()}
    (folder / "plan.json").write_text(json.dumps(named), encoding="utf-8")
    command = [sys.executable, str(PROGRAMS / "raw_acp_agent.py"), str(folder / "plan.json")]
    settings = AcpSettings(type="acp", command=command, permissions="allow")
    return AcpAdapter(a_setup(folder, settings, render=render.render))


def says(text: str) -> dict[str, Any]:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": "s", "update": chunk}}


_END = {"id": "ID", "result": {"stopReason": "end_turn"}}


def test_what_comes_after_the_answer_is_no_part_of_it(tmp_path: Path) -> None:
    error = {"id": "ID", "error": {"code": 1, "message": "x"}}
    got = answer(raw(tmp_path, prompt=[says("all"), _END, says("late"), _END, error]))
    assert got.content == "all"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"initialize": [{"id": "ID", "result": None}]}, "protocol: must be a mapping"),
        ({"initialize": [{"id": "ID", "result": {"protocolVersion": "new"}}]}, "protocolVersion"),
        ({"new": [{"id": "ID"}]}, "protocol: must be a mapping"),
        ({"new": [{"id": "ID", "result": {"sessionId": 5}}]}, "protocol: sessionId: "),
        ({"prompt": [{"id": "ID", "result": []}]}, "protocol: must be a mapping"),
        ({"prompt": [{"id": "ID", "error": "boom"}]}, "answered with an error"),
        ({"prompt": [{"id": "ID", "error": {"code": [], "message": 5}}]}, "with an error"),
    ],
)
def test_an_answer_in_no_known_shape(tmp_path: Path, plan: dict[str, Any], said: str) -> None:
    error = failure(raw(tmp_path, **plan))
    assert type(error) is AgentProtocolError
    assert said in error.what


def test_an_answer_that_is_nested_too_deeply(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    error = failure(
        raw(tmp_path, prompt=[{"id": "ID", "result": {**_END["result"], "_meta": {"x": deep}}}])
    )
    assert type(error) is AgentProtocolError


def test_what_an_agent_can_is_nothing_where_it_says_it_wrongly(tmp_path: Path) -> None:
    for can in (7, {"sessionCapabilities": 7}):
        begin = [{"id": "ID", "result": {"protocolVersion": 1, "agentCapabilities": can}}]
        adapter = raw(tmp_path, initialize=begin, prompt=[says("x"), _END])
        got = using(adapter, lambda one: one.invoke(later("s-earlier"), Heard()))
        assert got.content == "x"


def test_what_an_agent_asks_wrongly_is_answered_as_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text", encoding="utf-8")
    read = {"sessionId": "s", "path": str(path)}
    asked: list[tuple[str, Any]] = [
        ("fs/read_text_file", {**read, "_meta": {"line": "x", "self": 1, "path": 5}}),
        ("fs/read_text_file", {**read, "line": "x"}),
        ("fs/read_text_file", None),
        ("session/request_permission", {"sessionId": "s"}),
        ("session/update", {}),
        ("no/such", {}),
        ("_no/such", {}),
    ]
    messages = [
        {"id": f"q{number}", "method": method, "params": params}
        for number, (method, params) in enumerate(asked)
    ]
    opened = {"id": "ID", "result": {"sessionId": "s"}}
    adapter = raw(tmp_path, new=[*messages, opened], prompt=[says("x"), _END])
    assert answer(adapter).content == "x"
    assert caplog.records == []


def test_more_output_than_an_answer_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(client, "MOST_OUTPUT_MB", 1)
    error = failure(raw(tmp_path, prompt=[says("x" * 10_000)] * 20 + [says("y" * 1_000)] * 900))
    assert type(error) is AgentProtocolError
    assert "more than 1 MB" in error.what


def test_an_agent_that_dies_while_it_answers(tmp_path: Path) -> None:
    heard = Heard()
    adapter = agent(tmp_path, "say:half", "die:out of memory")
    error = failure(adapter, heard)
    assert type(error) is AgentProtocolError
    assert error.what == "its program failed with exit code 3 before it answered session/prompt"
    assert error.came == "out of memory"
    assert heard.text == "half"


def test_a_program_that_is_no_such_agent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('hello, human')"]
    settings = AcpSettings(type="acp", command=command)
    error = failure(AcpAdapter(a_setup(tmp_path, settings)))
    assert type(error) is AgentProtocolError
    assert error.what == "its program ended before it answered initialize"
    assert error.came == "hello, human"
    assert "Agent Client Protocol" in error.mend


def test_another_version_of_the_protocol(tmp_path: Path) -> None:
    error = failure(agent(tmp_path, "--version=7", "say:x"))
    assert type(error) is AgentProtocolError
    assert "version 7" in error.what


@pytest.mark.parametrize("step", ["wait:", "hang:"])
def test_a_call_that_is_cut_off_ends_the_whole_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def cut_off(adapter: AcpAdapter) -> list[int]:
        call = asyncio.create_task(adapter.invoke(an_input(), heard))
        pids = await pids_in(folder / "pids")
        await cancelled(call)
        return [pid for pid in pids if runs(pid)]

    for grace_s in growing_limits():
        monkeypatch.setattr(client, "CANCEL_GRACE_S", grace_s)
        folder, heard = tmp_path / f"{grace_s:g}", Heard()
        folder.mkdir()
        adapter = agent(folder, "say:half", f"child:{folder / 'pids'}", step)
        assert using(adapter, cut_off) == []
        assert heard.text == "half"
        assert heard.notes["waited_for"] == "session/prompt"
        if cancels := logged(folder, "cancel"):
            assert len(cancels) == 1
            break


def test_an_agent_that_never_begins_is_cut_off(tmp_path: Path) -> None:
    heard = Heard()

    async def cut_off(adapter: AcpAdapter) -> None:
        call = asyncio.create_task(adapter.invoke(an_input(), heard))
        await until((tmp_path / "log.jsonl").exists)
        await cancelled(call)

    using(agent(tmp_path, "--silent"), cut_off)
    assert heard.notes["waited_for"] == "initialize"


def test_after_a_failure_the_next_call_works(tmp_path: Path) -> None:
    async def calls(adapter: AcpAdapter) -> list[str]:
        with pytest.raises(AgentProtocolError):
            await adapter.invoke(an_input(), Heard())
        with pytest.raises(AgentProtocolError):
            await adapter.invoke(an_input(), Heard())
        return [str(one["session"]).split("-")[1] for one in log(tmp_path) if "prompt" in one]

    first, second = using(agent(tmp_path, "die:x"), calls)
    assert first != second


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"command": ["no-such-agent"]}, "no program no-such-agent on PATH"),
        ({"preset": "cursor"}, "cursor.com/install"),
        ({"command": [sys.executable], "cwd": "nowhere"}, "no folder"),
    ],
)
def test_what_is_missing_is_told(tmp_path: Path, keys: dict[str, Any], says: str) -> None:
    settings = AcpSettings.model_validate({"type": "acp", **keys})
    adapter = AcpAdapter(a_setup(tmp_path, settings, environ={"PATH": ""}))
    health = using(adapter, lambda one: one.health())
    assert not health.ok
    assert says in health.detail
    assert type(failure(adapter)) is AgentUnavailable


@pytest.mark.parametrize(("words", "code"), [(["doctor"], 1), (["send", "@bot hello"], 3)])
def test_a_missing_library_is_told(tmp_path: Path, words: list[str], code: int) -> None:
    program = Program(tmp_path)
    program.agent("bot", adapter={"type": "acp", "command": [sys.executable]})
    # As if it were not installed, whoever imports it from wherever.
    without = "import runpy, sys; sys.modules['acp'] = None; "
    program_as_it_is = "runpy.run_module('arena_cli', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", without + program_as_it_is, *words],
        cwd=tmp_path,
        env=program.environment(),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == code
    assert "its protocol's library is missing" in done.stdout
    assert "pip install '.[acp]'" in done.stdout


@pytest.mark.parametrize("keys", [{}, {"preset": "nobody"}, {"command": []}])
def test_one_agent_is_named(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AcpSettings.model_validate({"type": "acp", **keys})


def test_a_team_goes_on_in_the_agents_session_from_command_to_command(tmp_path: Path) -> None:
    program = Program(tmp_path)
    command = [sys.executable, str(PROGRAMS / "acp_agent.py"), str(tmp_path / "log.jsonl")]
    steps = ["--resume", "tool:read:x", "say:here", "usage:3,4,0,0"]
    program.agent("bot", adapter={"type": "acp", "command": [*command, *steps]})
    assert program.run("agents", "check").stdout == (
        "ok     bot · may do nothing that it asks for\n"
    )
    for message in ("@bot hello", "@bot again"):
        done = program.run("send", "--session", "s", message)
        assert done.code == 0, done.stderr
        assert "bot · turn 1 A" in done.stdout
        assert "3 → 4 tokens" in done.stdout
    [session, again] = [one["session"] for one in log(tmp_path) if "prompt" in one]
    assert session == again
    assert logged(tmp_path, "resume") == [session]
    text, _ = logged(tmp_path, "prompt")[1]
    assert "> @bot again" in text
    assert "> @bot hello" not in text
    assert gone(int(session.split("-")[1]))
