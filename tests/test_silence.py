"""Markers of silence and placeholders for an empty answer, as other programs print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from product import SILENCE
from program import Program
from support import Talk, member, team


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        *SILENCE,
        *("no_reply", "NO_REPLY.", " **NO_REPLY**\n", "（no reply）", "(No Reply)", "【silent】"),
    ],
)
def test_a_marker_alone_is_silence(tmp_path: Path, content: str) -> None:
    talk = Talk(tmp_path, team(member("a", [content])))
    assert talk.send("@a hello").end == "no_reply"
    (reply,) = talk.of("reply_finished")
    assert (reply.status, reply.message) == ("declined", None)
    assert reply.metadata["silence"] in content


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ("It is done.\n\nNO_REPLY", "It is done."),
        ("It is done. NO_REPLY", "It is done."),
        ("做完了。[SILENT]\n", "做完了。"),
        ("It is done\n_(no reply)_", "It is done"),
        ("It is done.\n(no content)", "It is done."),
    ],
)
def test_a_marker_after_an_answer_is_cut_off(tmp_path: Path, content: str, left: str) -> None:
    talk = Talk(tmp_path, team(member("a", [content])))
    talk.send("@a hello")
    (reply,) = talk.of("reply_finished")
    assert reply.status == "success"
    assert reply.message is not None
    assert reply.message.content == left
    assert reply.metadata["silence"]


@pytest.mark.parametrize(
    "content",
    [
        "An agent that has nothing to say answers NO_REPLY",
        "`NO_REPLY`",
        "```\nNO_REPLY\n```",
        "> NO_REPLY",
        "NO_REPLY is the marker",
        "the file is\n(empty)",
    ],
)
def test_a_marker_within_an_answer_stays(tmp_path: Path, content: str) -> None:
    talk = Talk(tmp_path, team(member("a", [content])))
    talk.send("@a hello")
    (reply,) = talk.of("reply_finished")
    assert reply.message is not None
    assert reply.message.content == content
    assert "silence" not in reply.metadata


@pytest.mark.parametrize("content", ["(no content)", "[No response]", "No response requested."])
def test_a_placeholder_alone_is_a_failure(tmp_path: Path, content: str) -> None:
    talk = Talk(tmp_path, team(member("a", [content])))
    assert talk.send("@a hello").end == "failed"
    (reply,) = talk.of("reply_finished")
    assert reply.status == "error"
    assert f"only the placeholder {content}" in str(reply.error)


def test_a_team_names_its_own_markers(tmp_path: Path) -> None:
    people = team(
        member("a", ["无可奉告"]),
        member("b", ["NO_REPLY"]),
        member("c", ["(no response)"]),
        silence=["无可奉告", "(no response)"],
    )
    talk = Talk(tmp_path, people)
    talk.send("@a @b @c hello")
    statuses = {reply.agent: reply.status for reply in talk.of("reply_finished")}
    assert statuses == {"a": "declined", "b": "success", "c": "declined"}


def test_a_recorded_marker_is_read_again_by_the_rules_of_today(program: Program) -> None:
    program.file("agents/a.yaml", "agent_id: a\nadapter: {type: scripted, replies: [NO_REPLY]}\n")
    scenario = 'scenario: quiet\nsteps: [{send: "@a hello", expect: {outcome: {a: declined}}}]\n'
    program.file("scenarios/quiet.yaml", scenario)
    assert program.run("run", "--record").code == 0
    assert program.run("run", "--replay").code == 0
    program.file("scenarios/quiet.yaml", scenario + "config: {silence: [SILENT]}\n")
    assert "actual:   success" in program.run("run", "--replay").stdout


def test_the_timeline_and_an_empty_marker(program: Program) -> None:
    program.file("agents/a.yaml", "agent_id: a\nadapter: {type: scripted, replies: [NO_REPLY]}\n")
    assert "its marker of silence: NO_REPLY" in program.run("send", "@a hello").stdout
    program.file("agents/teams/t.yaml", "team: t\nmembers: [a]\nconfig: {silence: ['']}\n")
    told = program.run("agents", "check").stderr
    assert "agents/teams/t.yaml:3: config.silence[0]" in told
