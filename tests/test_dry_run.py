"""`arena send --dry-run`: it says what a send would do, and does nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fasteners import InterProcessLock
from hypothesis import given
from hypothesis import strategies as st
from product import Preview, SessionConfig, TurnStarted, preview, reader
from product import outgoing_outgoing as outgoing
from product import session_store as store
from program import Program
from support import WORKED_MESSAGE, Talk, member, team, worked_team


def previewed(talk: Talk, content: str, **sent: Any) -> Preview:
    place = SessionConfig(workspace=talk.workspace, clock=talk.clock, redact=talk.redact)
    there = (store.sessions_folder(talk.workspace) / str(talk.name)).is_dir()
    name = talk.name if there else None
    return preview.preview_send(place, name, talk.team, outgoing(talk.team, content, **sent))


def files(folder: Path) -> dict[str, bytes]:
    """All but the index of notes, which is derived of them."""
    kept = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite")
    return {str(path): path.read_bytes() for path in kept}


MESSAGES = [
    WORKED_MESSAGE,
    "认证 方案 GDPR 测试工程师",
    "@所有人 看一下",
    "@nobody hello",
    "@user 测试",
    "实现 方案 认证 架构 拆解 合规 GDPR 架构师",
    "hello",
]


@given(data=st.data())
def test_it_says_what_a_send_then_does(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whom phase A asks, with how many tokens; whom phase B asks, where no phase A changes it."""
    config = data.draw(
        st.fixed_dictionaries(
            {
                "selection": st.sampled_from(["relevance", "ask", "none"]),
                "max_responders": st.integers(1, 5),
                "default_responders": st.sampled_from([[], ["architect"]]),
            }
        )
    )
    talk = Talk(tmp_path_factory.mktemp("talk"), team(*worked_team().members, **config))
    for content in data.draw(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=4)):
        before = files(talk.workspace)
        found = previewed(talk, content)
        assert files(talk.workspace) == before

        talk.events.clear()
        talk.send(content)
        turn: TurnStarted = talk.of("turn_started")[0]
        assert [one.agent for one in found.must] == turn.must
        assert found.deferred == turn.deferred
        assert found.unresolved == talk.of("message")[0].unresolved
        tokens = {
            one.agent: one.input_tokens for one in talk.of("reply_started") if one.turn == turn.turn
        }
        assert {one.agent: one.input_tokens for one in found.must} == {
            agent: tokens[agent] for agent in turn.must
        }
        if not turn.must and talk.of("candidates"):
            chosen = talk.of("candidates")[0]
            asked = [one for one in found.others if one.asked]
            assert [one.agent for one in asked] == chosen.asked
            assert {one.agent: one.asked.input_tokens for one in asked if one.asked} == tokens
            for agent, why in chosen.passed_over.items():
                (one,) = [one for one in found.others if one.agent == agent]
                assert one.relevance == why.relevance
                assert one.below == (why.threshold is not None)
                assert why.reason in (None, one.reason)


def test_the_words_that_were_found_and_who_is_never_asked(tmp_path: Path) -> None:
    people = team(
        *worked_team().members,
        member("shy", response={"auto_respond": False, "keywords": ["认证"]}),
    )
    found = previewed(Talk(tmp_path, people), "认证 方案 测试 for the developer")
    assert [(one.agent, one.hits, one.relevance) for one in found.others] == [
        ("developer", ["认证", "方案", "developer"], 0.784),
        ("tester", ["测试"], 0.4),
        ("shy", ["认证"], 0.4),
        ("architect", [], 0.0),
        ("compliance", [], 0.0),
    ]
    reasons = {one.agent: one.reason for one in found.others}
    assert reasons["developer"] == ""
    assert reasons["tester"] == "below its threshold"
    assert reasons["shy"] == "it answers only when it is named (auto_respond: false)"


def test_a_long_session_gets_no_cache_either(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", [{"say": "word " * 20_000}])))
    talk.send("@a go")
    reader.cache_path(talk.transcript).unlink()
    before = files(tmp_path)
    assert previewed(talk, "@a go").must
    assert files(tmp_path) == before
    talk.send("@a go")
    assert reader.cache_path(talk.transcript).exists()


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    small = {"window_tokens": 600, "reserved_output_tokens": 100, "max_output_tokens": 100}
    people = team(member("a", [{"say": "word " * 60}], context=small), member("b"))
    talk = Talk(tmp_path, people)
    for _ in range(5):
        talk.send("@a go")
    (found,) = previewed(talk, "@a go").must
    assert found.of == 11
    assert found.messages < 6
    talk.send("@a go")
    assert talk.last("reply_started").input_tokens == found.input_tokens


def test_a_chain_that_was_cut_short_would_be_interrupted(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    lines = talk.transcript.read_bytes().splitlines(keepends=True)
    talk.transcript.write_bytes(b"".join(lines[:6]) + b'{"seq":7,"to')
    before = files(tmp_path)
    found = previewed(talk, "@tester 在吗")
    assert found.interrupts == 1
    assert files(tmp_path) == before
    (one,) = found.must
    talk.send("@tester 在吗")
    started = [event for event in talk.of("reply_started") if event.agent == "tester"]
    assert started[-1].input_tokens == one.input_tokens


# From the command line


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "built"}, name="全栈开发")
    made.agent("ops", {"say": "done"}, skills=["Kubernetes"], response={"threshold": 0.4})
    made.agent("tester", {"say": "checked"}, response={"keywords": ["测试"]})
    made.team(humans=["maya"], default_responders=["dev"])
    return made


def test_as_text(program: Program) -> None:
    done = program.run("send", "-n", "@dev kubernetes 测试 @bob sk-0123456789abcdef0123456789")
    done.check()
    assert (
        done.stdout.replace("~", "").translate(str.maketrans("", "", "0123456789"))
        == "dry run: no agent is called, nothing is written\n"
        "a new session · team crew\n"
        "\n"
        "user · redacted\n"
        "  @dev kubernetes 测试 @bob [redacted]\n"
        "  no member is called @bob\n"
        "\n"
        "must reply:\n"
        "  全栈开发 (dev) ·  of  message ·  tokens\n"
        "may reply, judged by this message alone (earlier replies may change it):\n"
        "  ops · asked · relevance . >= . · found: Kubernetes\n"
        "     of  message ·  tokens\n"
        "  tester · passed over · relevance . < . · found: 测试\n"
        "\n"
        " tokens in turn :  must,  may\n"
    )
    assert not (program.folder / "sessions").exists()


def test_a_chinese_reader_gets_it_in_chinese(program: Program) -> None:
    program.env["ARENA_LANG"] = "zh"
    program.agent("shy", {"say": "hm"}, response={"auto_respond": False})
    program.team(humans=["maya"], default_responders=["dev"])
    program.file("notes.txt", "attached")
    program.run("send", "-q", "-s", "s", "@dev").check()
    done = program.run("send", "-n", "-s", "s", "-a", "notes.txt", "@dev kubernetes 测试 @bob")
    done.check()
    assert (
        done.stdout.replace("~", "").translate(str.maketrans("", "", "0123456789"))
        == "试运行：不调用任何成员，不写入任何内容\n"
        "会话 s · 团队 crew\n"
        "\n"
        "user\n"
        "  @dev kubernetes 测试 @bob\n"
        "  [file（文件）: notes.txt,  字节]\n"
        "  没有名为 @bob 的成员\n"
        "\n"
        "必须回复：\n"
        "  全栈开发 (dev) ·  条消息中的  条 ·  tokens\n"
        "可以回复（只按这条消息判断；更早的回复可能改变结果）：\n"
        "  ops · 被询问 · 相关度 .，达到 . · 命中：Kubernetes\n"
        "     条消息中的  条 ·  tokens\n"
        "  tester · 未选中 · 相关度 .，低于 . · 命中：测试\n"
        "  shy · 未选中 · 相关度 ，低于 .，只有被点名才回复（auto_respond: false）\n"
        "\n"
        "第  轮约  个 token：必须回复的约 ，可以回复的约 \n"
    )
    done = program.run("send", "--dry-run", "@maya hm").check()
    assert "\n没有成员必须回复\n可以回复（只按这条消息判断）：\n" in done.stdout
    assert done.stdout.endswith("不会调用任何成员。要调用成员，请在消息中点名：@dev\n")


def test_where_nobody_would_be_asked(program: Program) -> None:
    done = program.run("send", "--dry-run", "@maya hm").check()
    assert "no agent must reply\n" in done.stdout
    assert done.stdout.endswith("To call an agent, mention it in the message: @dev\n")


def test_as_json_with_everything_that_can_be_sent(program: Program) -> None:
    program.real = True
    program.run("send", "-q", "-s", "s", "hello").check()
    program.file("notes.txt", "attached")
    before = files(program.folder)
    args = ("--json", "--from", "maya", "--to", "tester", "--attach", "notes.txt")
    with InterProcessLock(program.folder / "sessions" / "s" / "transcript.lock"):
        done = program.run("send", "-n", "-c", *args, given=b"from a pipe").check()
    found = json.loads(done.stdout)
    assert found["session"] == "s"
    assert found["new"] is False
    assert found["busy"] is True
    assert found["message"] == {
        "author": "maya",
        "content": "from a pipe",
        "mentions": ["tester"],
        "attachments": [{"type": "file", "name": "notes.txt", "size": 8}],
    }
    (must,) = found["must"]
    assert (must["agent"], must["mentioned_by"], must["messages"], must["of"]) == (
        "tester",
        ["maya"],
        3,
        3,
    )
    assert found["input_tokens"] == {"must": must["input_tokens"], "asked": 0}
    assert [one["agent"] for one in found["others"]] == ["dev", "ops"]
    assert files(program.folder) == before
    again = json.loads(program.run("send", "-n", "-c", "--json", "hello").check().stdout)
    assert again["busy"] is False
    named = json.loads(program.run("send", "-n", "-s", "t", "--json", "hello").check().stdout)
    assert (named["session"], named["new"]) == ("t", True)
    assert files(program.folder) == before


def test_a_chain_that_runs_is_not_one_that_was_cut_short(program: Program) -> None:
    program.real = True
    program.run("send", "-q", "-s", "s", "hello").check()
    whole = program.raw().splitlines(keepends=True)
    program.transcript().write_bytes(b"".join(whole[:4]))
    before = files(program.folder)
    lock = program.folder / "sessions" / "s" / "transcript.lock"
    busy = "it is busy: `arena send` would wait for another arena that writes to it\n"
    interrupted = "chain 1 was cut short and would be closed as interrupted\n"
    with InterProcessLock(lock):
        done = program.run("send", "-n", "-s", "s", "@ops more").check()
        assert f"session s · team crew\n{busy}\n" in done.stdout
        assert interrupted not in done.stdout
        program.env["ARENA_LANG"] = "zh"
        assert "会话正忙" in program.run("send", "-n", "-s", "s", "@ops more").check().stdout
        program.env["ARENA_LANG"] = "en"
    done = program.run("send", "-n", "-s", "s", "@ops more").check()
    assert interrupted in done.stdout
    assert busy not in done.stdout
    assert files(program.folder) == before
    lock.unlink()
    assert interrupted in program.run("send", "-n", "-s", "s", "@ops more").check().stdout
    assert not lock.exists()


def test_wrong_use_is_told_as_for_a_send(program: Program) -> None:
    done = program.run("send", "-n", "--to", "nobody", "hello")
    assert done.code == 2
    assert done.stderr.startswith("arena: no member of this team is called 'nobody'")
    assert program.run("send", "-n", "-q", "hello").check().stdout == ""
    shutil.rmtree(program.folder / "agents")
    assert program.run("send", "-n", "hello").code == 2
