"""`arena diff`: what of two sessions, recordings or results differs, and how it is told."""

from __future__ import annotations

import copy
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    CaseRecord,
    Compared,
    ComparedConversation,
    Difference,
    Event,
    Team,
    Terminal,
    Words,
    canonicalize,
    columns,
    restore,
)
from product import diff_compare as compare
from product import diff_model as model
from product import diff_text as text
from product import session_outgoing as outgoing
from program import Program
from screen import Screen
from support import WORKED_MESSAGE, Talk, canonical, member, team, worked_team

SAY = Words()
A, B = Compared(name="a", kind="session"), Compared(name="b", kind="session")


def talked(folder: Path, crew: Team, *messages: str, name: str = "talk") -> list[Event]:
    """The events of a session in which a human said this."""
    talk = Talk(folder, crew, name=name)
    for message in messages or (WORKED_MESSAGE,):
        talk.send(message)
    return talk.events


def compared(a: Sequence[Event], b: Sequence[Event]) -> Difference:
    sides = [[model.of_session(events)] for events in (a, b)]
    return compare.between(A, B, *sides)


def told(difference: Difference, say: Words = SAY) -> str:
    return "\n".join(line.text for line in compare.draw_difference(difference, say))


def with_reply(agent: str, *replies: Any, **profile: Any) -> Team:
    """The team of the worked example, one of whom says something else."""
    crew = worked_team()
    members = [
        member(
            agent,
            replies,
            name=one.name,
            **{"response": one.profile.response.model_dump(), **profile},
        )
        if one.id == agent
        else one
        for one in crew.members
    ]
    return team(*members)


def between(before: str, after: str) -> list[str]:
    return [line.text for line in text.draw_text_diff(before, after, SAY, indent="")]


# texts


def test_a_changed_line_is_told_by_its_words_and_in_chinese_by_its_characters() -> None:
    assert between("p99 is 2.5 s now", "p99 is 0.4 s now") == ["~ p99 is {-2.5-}{+0.4+} s now"]
    assert between("收到，先做认证模块", "收到，先做登录模块") == [
        "~ 收到，先做{-认证-}{+登录+}模块"
    ]


def test_lines_around_a_change_are_shown_and_others_counted() -> None:
    rows = [f"row {number}" for number in range(8)]
    changed = [*rows[:4], "something new", *rows[5:]]
    assert between("\n".join(rows), "\n".join(changed)) == [
        "  (3 equal lines)",
        "  row 3",
        "- row 4",
        "+ something new",
        "  row 5",
        "  (2 equal lines)",
    ]


def test_a_changed_line_stands_beside_what_it_became_though_one_came_before_it() -> None:
    assert between("first one here\nsecond", "wholly other text\nfirst one there\nsecond") == [
        "+ wholly other text",
        "~ first one {-here-}{+there+}",
        "  second",
    ]


def test_what_looks_alike_is_told_by_its_code_points() -> None:
    assert between("caf\u00e9 au lait", "cafe\u0301 au lait") == [
        "~ {-caf\\xe9-}{+cafe\\u0301+} au lait"
    ]
    assert between("\u00e9", "e\u0301") == ["- \\xe9", "+ e\\u0301"]


def test_a_long_line_is_told_around_its_changes() -> None:
    (row,) = between(f"{'x' * 200} old {'y' * 200}", f"{'x' * 200} new {'y' * 200}")
    assert re.fullmatch(r"~ … x{20,} \{-old-\}\{\+new\+\} y{20,} …", row)
    assert len(row) < 80


def test_what_agents_said_steers_nothing() -> None:
    rows = between("a b c d e f ##", "a b c d e f ##[group] \x1b[2J")
    rows += between("", "::stop-commands::t\n\x1b]0;x\x07")
    for row in rows:
        assert "\x1b" not in row
        assert "##[" not in row
        assert not row.lstrip().startswith("::")


@given(
    st.text("ab 开发é\u0301👩‍🔬.12\n", max_size=40), st.text("ab 开发é\u0301👩‍🔬.12\n", max_size=40)
)
def test_a_change_has_both_texts_in_it(old: str, new: str) -> None:
    changes = text.changes_of(old, new)
    if changes is not None:
        assert "".join(change.same + change.old for change in changes) == old
        assert "".join(change.same + change.new for change in changes) == new
    assert bool(between(old, new)) == (old != new)


ITEMS = st.lists(st.sampled_from("abcd"), max_size=12)


@given(ITEMS, ITEMS)
def test_an_alignment_covers_both_sides_in_order(a: list[str], b: list[str]) -> None:
    blocks = text.blocks(a, b)
    assert [x for block in blocks for x in a[block.a1 : block.a2]] == a
    assert [x for block in blocks for x in b[block.b1 : block.b2]] == b
    for block in blocks:
        assert (a[block.a1 : block.a2] == b[block.b1 : block.b2]) == block.same
    pairs = list(text.pairs(a, b))
    assert [left for left, _ in pairs if left is not None] == list(range(len(a)))
    assert [right for _, right in pairs if right is not None] == list(range(len(b)))


def test_what_is_too_much_to_align_differs_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_PAIRS", 8)
    found = text.blocks("=abcd=", "=xbcy=")
    assert [(block.same, block.a1, block.a2) for block in found] == [
        (True, 0, 1),
        (False, 1, 5),
        (True, 5, 6),
    ]


# conversations


def test_the_same_conversation_is_the_same(tmp_path: Path) -> None:
    one = talked(tmp_path, worked_team(), name="one")
    other = talked(tmp_path, worked_team(), name="other")
    difference = compared(one, other)
    assert difference.same
    assert told(difference).endswith("no difference")
    paths = [tmp_path / "sessions" / name / "transcript.jsonl" for name in ("one", "other")]
    ours, theirs = (canonical(path) for path in paths)
    assert ours[1:] == theirs[1:]  # the first has the session's name


def test_another_answer_is_told_by_what_changed_in_it(tmp_path: Path) -> None:
    one = talked(tmp_path, worked_team(), name="one")
    other = talked(tmp_path, with_reply("tester", "好的，准备五组用例"), name="other")
    difference = compared(one, other)
    (conversation,) = difference.conversations
    assert conversation.parted is None
    (entry,) = conversation.entries
    (turn,) = entry.turns
    (reply,) = turn.replies
    assert (entry.a, entry.b, turn.turn, reply.agent) == (1, 1, 2, "tester")
    assert [(c.field, c.a, c.b) for c in reply.fields if c.field == "content"] == [
        ("content", "好的，准备三组用例", "好的，准备五组用例")
    ]
    assert "    ~ 好的，准备{-三-}{+五+}组用例" in told(difference).split("\n")


def test_where_the_chains_part(tmp_path: Path) -> None:
    one = talked(tmp_path, worked_team(), name="one")
    other = talked(tmp_path, with_reply("architect", "需求拆解如下 @测试工程师"), name="other")
    difference = compared(one, other)
    parted = difference.conversations[0].parted
    assert parted is not None
    assert (parted.a, parted.b, parted.turn) == (1, 1, 1)
    assert [(c.field, c.a, c.b) for c in parted.fields] == [
        ("asked", ["developer"], None),
        ("passed_over", ["tester"], ["developer", "tester"]),
    ]
    lines = told(difference).split("\n")
    start = lines.index("they diverge in chain 1, turn 1")
    assert lines[start + 1 : start + 4] == ["  asked", "    A developer", "    B nothing"]
    assert "  turn 1 · developer · only in A" in lines
    assert "    - 收到，先做认证模块 @测试工程师 完成后请做冒烟测试" in lines


def test_only_the_end_of_a_chain_may_differ(tmp_path: Path) -> None:
    one = talked(tmp_path, team(member("dev", ["done"])), name="one")
    other = talked(tmp_path, team(member("dev", ["done @user"])), name="other")
    difference = compared(one, other)
    parted = difference.conversations[0].parted
    assert parted is not None
    assert (parted.turn, parted.fields[0].a, parted.fields[0].b) == (
        None,
        "quiet",
        "awaiting_human",
    )
    assert "they diverge at the end of chain 1" in told(difference)


def test_a_chain_more_makes_no_later_one_another(tmp_path: Path) -> None:
    crew = team(member("dev", [{"say": "ok"}]))
    one = talked(tmp_path, crew, "first", "second", "third", name="one")
    other = talked(tmp_path, crew, "first", "between", "second", "third", name="other")
    entries = compared(one, other).conversations[0].entries
    said = [
        [c.field for turn in entry.turns for reply in turn.replies for c in reply.fields]
        for entry in entries
    ]
    assert [(entry.a, entry.b, entry.only) for entry in entries] == [
        (None, 2, "b"),
        (2, 3, None),
        (3, 4, None),
    ]
    # Whoever answers later is shown what was said between; nothing else.
    assert set(said[1] + said[2]) <= {"input_hash", "input_tokens", "usage"}
    assert "second" not in told(compared(one, other))


def test_a_message_that_was_reworded_stands_beside_what_it_was(tmp_path: Path) -> None:
    crew = team(member("dev", [{"say": "ok"}]))
    one = talked(tmp_path, crew, "first", "the second message", name="one")
    other = talked(tmp_path, crew, "first", "the other message", name="other")
    (entry,) = compared(one, other).conversations[0].entries
    assert (entry.a, entry.b, entry.only) == (2, 2, None)
    assert "  ~ the {-second-}{+other+} message" in told(compared(one, other)).split("\n")


SHORT = {"max_output_tokens": 77}


def test_an_agent_that_was_shown_something_else_first_is_told(tmp_path: Path) -> None:
    """Its settings are in no transcript; those who only hear of what came of it are not told."""
    said = "GDPR 要求：用户同意、数据可删除 @测试工程师 请准备测试用例"
    one = talked(tmp_path, worked_team(), name="one")
    other = talked(tmp_path, with_reply("compliance", said, context=SHORT), name="other")
    difference = compared(one, other)
    replies = [r for e in difference.conversations[0].entries for t in e.turns for r in t.replies]
    assert [(reply.agent, reply.shown_otherwise) for reply in replies] == [("compliance", True)]
    assert "its input differs, although all earlier messages are equal" in told(difference)
    changed = with_reply("compliance", said + "。", context=SHORT)
    third = talked(tmp_path, changed, name="third")
    replies = [
        reply
        for entry in compared(one, third).conversations[0].entries
        for turn in entry.turns
        for reply in turn.replies
        if reply.shown_otherwise
    ]
    assert [reply.agent for reply in replies] == ["compliance"]


def flagged(difference: Difference) -> list[str]:
    """Whoever was shown something else, though nothing said before differs."""
    entries = difference.conversations[0].entries
    replies = [reply for entry in entries for turn in entry.turns for reply in turn.replies]
    return [reply.agent for reply in replies if reply.shown_otherwise]


def test_a_turn_more_is_what_later_ones_hear(tmp_path: Path) -> None:
    qa = member("qa", [{"say": "fine"}])
    one = talked(tmp_path, team(member("dev", [{"say": "ok"}]), qa), "@dev x", "@dev y", name="one")
    dev = member("dev", [{"say": "ok", "next_mentions": ["qa"]}])
    other = talked(tmp_path, team(dev, qa), "@dev x", "@dev y", name="other")
    difference = compared(one, other)
    parted = difference.conversations[0].parted
    assert parted is not None
    assert (parted.a, parted.turn) == (1, 2)  # the first of two
    assert flagged(difference) == []


def test_a_message_between_chains_is_what_later_ones_hear(tmp_path: Path) -> None:
    crew = team(member("dev", [{"say": "ok"}]))
    sides = []
    for name, said in (("one", "hello"), ("other", "hallo")):
        talk = Talk(tmp_path, crew, name=name)
        with talk.open() as opened:
            opened.plant(outgoing.planted(crew, "user", said))
        talk.send("@dev x")
        sides.append(talk.events)
    difference = compared(*sides)
    assert [entry.kind for entry in difference.conversations[0].entries] == ["message", "chain"]
    assert flagged(difference) == []


def test_members_and_settings_that_differ(tmp_path: Path) -> None:
    one = talked(tmp_path, team(member("dev", ["ok"])), name="one")
    crew = team(member("dev", ["ok"], name="Dev"), member("qa"), max_responders=2)
    other = talked(tmp_path, crew, "@dev " + WORKED_MESSAGE, name="other")
    settings = compared(one, other).conversations[0].settings
    found = {changed.field: (changed.a, changed.b) for changed in settings}
    assert found["config.max_responders"] == (5, 2)
    assert found["members"] == (["dev"], ["dev", "qa"])
    assert found["members[dev].name"] == ("dev", "Dev")
    assert "members[qa].name" not in found


def test_statuses_differ_and_errors_are_told(tmp_path: Path) -> None:
    one = talked(
        tmp_path, team(member("dev", ["ok"]), member("qa", ["ok"])), "@dev @qa x", name="1"
    )
    other = talked(
        tmp_path,
        team(member("dev", ["ok"]), member("qa", [{"fail": "refused"}])),
        "@dev @qa x",
        name="2",
    )
    lines = told(compared(one, other)).split("\n")
    start = lines.index("  turn 1 · qa")
    assert lines[start + 1 : start + 4] == ["    status", "      A success", "      B error"]


def records(folder: Path) -> list[dict[str, Any]]:
    crew = with_reply(
        "tester",
        {
            "say": "好 @nobody",
            "structured": [{"type": "task_list", "data": ["a", "b"]}],
            "attachments": [{"type": "file", "name": "x.txt", "data": "hello"}],
        },
    )
    return canonicalize(talked(folder, crew, WORKED_MESSAGE, "@tester again"))


WHERE = {"chain", "turn", "reply", "depth", "type", "version", "session", "session_usage"}
"""What says where an event stands, or adds up what others say."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a record, but of those that say where it stands."""
    if isinstance(value, dict):
        for key, one in value.items():
            if not (path == () and key in WHERE) and (*path, key) not in LINKS:
                yield from leaves(one, (*path, key))
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from leaves(one, (*path, index))
    else:
        yield path


LINKS = {("message", "id"), ("message", "turn_id")}
SAID_TWICE = {("reply_finished", "agent"), ("reply_started", "phase")}
# A transcript has no content of an attachment; the tester's one has all the rest.
NOT_THERE = {("message", "attachments"), ("message", "attachments", 0, "data")}


def built(lines: Sequence[Mapping[str, Any]]) -> ComparedConversation:
    return model.of_session(event for line in lines if (event := restore(line)))


def recorded(lines: Sequence[Mapping[str, Any]]) -> ComparedConversation:
    (conversation,) = model.of_case(CaseRecord(None, lines=[dict(line) for line in lines]))
    return conversation


def test_whatever_differs_in_canonical_form_is_told(tmp_path: Path) -> None:
    """Each value of each event is changed by itself, and must be a difference that is printed."""
    lines = records(tmp_path)
    unchanged = built(lines)
    tried = 0
    for number, line in enumerate(lines):
        for path in leaves(line):
            if (line["type"], *path) in SAID_TWICE or path in NOT_THERE:
                continue
            changed = copy.deepcopy(line)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = other_than(path[-1], place[path[-1]])
            other = built([*lines[:number], changed, *lines[number + 1 :]])
            difference = compare.between(A, B, [unchanged], [other])
            assert not difference.same, (line["type"], path)
            assert len(told(difference).split("\n")) > 2
            tried += 1
    assert tried > 150


def test_a_team_that_becomes_what_it_was_changes_twice(tmp_path: Path) -> None:
    first = next(line for line in records(tmp_path) if line["type"] == "session")
    other = {**first, "config": {**first["config"], "max_responders": 1}}
    entries = recorded([first, other, first]).entries
    changes = [entry.content()["config.max_responders"] for entry in entries]
    before = first["config"]["max_responders"]
    assert changes == [[before, 1], [1, before]]


def test_what_only_a_recording_has_is_told(tmp_path: Path) -> None:
    lines = records(tmp_path)
    at = next(n for n, line in enumerate(lines) if line["type"] == "reply_started")
    call = {**lines[at], "input": {"messages": ["m1-m5", "m7"]}, "output": {"content": "x"}}
    overloaded = {**call, "attempt": 1, "failure": {"kind": "AgentOverloaded"}}
    del overloaded["output"]
    one = [*lines[:at], call, *lines[at + 1 :]]
    other = [*lines[:at], overloaded, {**call, "input": {"messages": ["m1"]}}, *lines[at + 1 :]]
    difference = compare.between(A, B, [recorded(one)], [recorded(other)])
    (reply,) = difference.conversations[0].entries[0].turns[0].replies
    assert {field.field: (field.a, field.b) for field in reply.fields} == {
        "input.messages": (6, 1),
        "earlier_attempts": (None, [{"kind": "AgentOverloaded"}]),
    }


OTHER_CHOICES = {
    "A": "B",
    "B": "A",
    "added": "seen",
    "agent": "system",
    "awaiting_human": "quiet",
    "chat": "task",
    "declined": "success",
    "file": "code",
    "human": "system",
    "may_reply": "must_reply",
    "must_reply": "may_reply",
    "quiet": "no_reply",
    "seen": "added",
    "success": "declined",
    "task_list": "note",
}
"""Another of the values that a field takes, where it does not take any."""


OF_OTHER_SHAPE = {
    "structured": [{"type": "note", "data": "x"}],
    "attachments": [{"type": "file", "name": "x", "data": "x"}],
    "members": [{"id": "x", "name": "x"}],
    "usage": {"input_tokens": 70},
    "threshold": 0.9,
    "mentioned_by": {"x": ["y"]},
    "refused": {"x": "y"},
    "passed_over": {"x": {"relevance": 0.25}},
}


def other_than(key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if key in OF_OTHER_SHAPE:
        return OF_OTHER_SHAPE[key]
    if isinstance(value, str) and value in OTHER_CHOICES:
        return OTHER_CHOICES[value]
    if isinstance(value, (int, float)) or key == "cost_usd":
        return (value or 0) + 7
    return [*value, "x"] if isinstance(value, list) else f"{value or ''}x"


def test_replies_that_are_gone_differ(tmp_path: Path) -> None:
    lines = records(tmp_path)
    for number, line in enumerate(lines):
        told = line["type"] in ("reply_finished", "chain_finished", "message") or line.get("asked")
        if told:
            other = built([*lines[:number], *lines[number + 1 :]])
            assert not compare.between(A, B, [built(lines)], [other]).same


class Stream(io.StringIO):
    """A terminal's stream, of which only the encoding counts."""

    encoding = "utf-8"  # type: ignore[assignment]  # in the base it is a property


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("colour", [True, False])
def test_in_a_terminal_every_row_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, colour: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    one = talked(tmp_path, worked_team(), name="one")
    other = talked(tmp_path, with_reply("architect", "请看 @测试工程师 " * 9), name="other")
    stream = Stream()
    screen = Screen(400)
    difference = compared(one, other)
    Terminal(screen.write, stream, colour=colour).show(
        compare.draw_difference(difference, Words("zh"))
    )
    rows = screen.text.split("\n")
    assert max(columns.width_of(row) for row in rows) <= width
    plain = "".join(told(difference, Words("zh")).split())
    assert "".join("".join(rows).split()) == plain
    assert bool(screen.styles) == colour


# the program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "Rolled back to 811. @qa check it"})
    made.agent("qa", {"say": "三组用例"})
    made.team()
    return made


SCENARIO = """\
scenario: A release
steps:
  - send: "@dev roll back"
    expect: {replied: [dev, qa]}
"""


def test_two_sessions(program: Program) -> None:
    program.run("send", "--session", "before", "@dev roll back")
    program.run("send", "--session", "same", "@dev roll back")
    program.agent("qa", {"say": "五组用例"})
    program.run("send", "--session", "after", "@dev roll back")
    program.run("diff", "before", "same").check(
        stdout="""\
A  session before · 1 chain · 2 turns · 2 replies · N tokens
B  session same · 1 chain · 2 turns · 2 replies · N tokens

no difference
"""
    )
    program.run("diff", "before", "sessions/after").check(
        code=1,
        stdout="""\
A  session before · 1 chain · 2 turns · 2 replies · N tokens
B  session sessions/after · 1 chain · 2 turns · 2 replies · N tokens

chain 1 · @dev roll back
  turn 2 · qa
    ~ {-三-}{+五+}组用例
""",
    )


def test_json_has_both_sides_whole(program: Program) -> None:
    program.run("send", "--session", "before", "@dev roll back")
    program.agent("qa", {"say": "五组用例\n\x1b[2J"})
    program.run("send", "--session", "after", "@dev roll back")
    done = program.run("diff", "--json", "before", "after").check(code=1)
    document = json.loads(done.out.decode())
    assert (document["version"], document["same"]) == (1, False)
    (conversation,) = document["conversations"]
    (reply,) = conversation["entries"][0]["turns"][0]["replies"]
    changed = {one["field"]: (one["a"], one["b"]) for one in reply["fields"]}
    assert changed["content"] == ("三组用例", "五组用例\n\x1b[2J")
    same = program.run("diff", "--json", "before", "before").check()
    assert json.loads(same.out)["same"] is True


def test_a_session_and_a_recording(program: Program) -> None:
    """What was really said beside what was recorded; neither tokens nor prompts are compared."""
    program.scenario(SCENARIO, "release")
    program.run("run", "--record", "release")
    program.run("send", "--session", "now", "@dev roll back")
    program.run("diff", "now", "release").check(
        stdout="""\
A  session now · 1 chain · 2 turns · 2 replies · N tokens
B  recording scenarios/recordings/release.jsonl · 1 chain · 2 turns · 2 replies

no difference
"""
    )
    program.agent("dev", {"say": "Rolled back to 811."})
    program.run("send", "--session", "later", "@dev roll back")
    done = program.run("diff", "scenarios/release.yaml", "later").check(code=1)
    assert "they diverge in chain 1, turn 2\n  must\n    A qa\n    B nothing\n" in done.stdout
    assert "    ~ Rolled back to 811.{- @qa check it-}\n" in done.stdout


def test_two_recordings_tell_whose_prompt_changed(program: Program) -> None:
    program.scenario(SCENARIO, "release")
    program.agent("dev", {"say": "Rolled back to 811. @qa check it"}, role_prompt="Be brief.")
    program.run("run", "--record", "release")
    recording = program.folder / "scenarios" / "recordings" / "release.jsonl"
    before = program.file("before.jsonl", recording.read_bytes())
    program.agent("dev", {"say": "Rolled back to 811. @qa check it"}, role_prompt="Be very brief.")
    program.run("run", "--record", "release")
    done = program.run("diff", str(before), "release").check(code=1)
    assert (
        "settings\n  agents[dev].role_prompt\n    A Be brief.\n    B Be very brief.\n"
        in done.stdout
    )
    assert "  turn 1 · dev\n    its input differs" in done.stdout
    assert "qa" not in done.stdout


JUDGED = """\
scenario: Judged
steps:
  - send: "@dev roll back"
    expect: {replies: {dev: [{judge: says what was done}]}}
"""


def verdict(reason: str) -> dict[str, Any]:
    return {"say": json.dumps({"verdict": "pass", "reason": reason})}


def test_a_judge_that_gave_another_reason_differs(program: Program) -> None:
    recording = program.folder / "scenarios" / "recordings" / "judged.jsonl"
    program.scenario(JUDGED, "judged")
    texts = []
    for reason in ("it is clear", "it is plain"):
        program.agent("judge", verdict(reason), member=False)
        program.file("arena.yaml", "team: crew\ndefaults: {judge: judge}\n")
        assert program.run("run", "--record", "judged").check().code == 0
        texts.append(recording.read_bytes())
    program.file("before.jsonl", texts[0])
    done = program.run("diff", "before.jsonl", "judged").check(code=1)
    assert "a judge's call" in done.stdout
    assert "it is {-clear-}{+plain+}" in done.stdout


CASES = """\
scenario: Places
cases: [{id: eu, vars: {where: 欧盟}}, {id: us, vars: {where: 美国}}]
vars: {where: ""}
steps:
  - send: "@qa ${vars.where}"
  - send: "@qa again"
    session: second
"""


def test_one_case_of_a_recording_is_named(program: Program) -> None:
    program.scenario(CASES, "places")
    program.run("run", "--record", "places")
    program.run("send", "--session", "now", "@qa 美国")
    program.run("diff", "places", "now").check(
        code=2,
        stderr="""\
arena: scenarios/recordings/places.jsonl contains 4 conversations, but a session is one
  name one: `places::eu::`, `places::eu::second`, `places::us::`, `places::us::second`
""",
    )
    assert program.run("diff", "places::us::", "now").code == 0
    assert program.run("diff", "places::eu::", "now").code == 1
    assert program.run("diff", "places", "places").code == 0
    done = program.run("diff", "places::eu", "places::us").check(code=1)
    assert "case eu\nA  1 chain · 1 turn · 1 reply · only in A\n" in done.stdout
    program.run("diff", "places::asia", "now").check(
        code=2,
        stderr="""\
arena: scenarios/recordings/places.jsonl has no asia
  name one: `places::eu::`, `places::eu::second`, `places::us::`, `places::us::second`
""",
    )
    program.run("diff", "now::eu", "now").check(
        code=2,
        stderr="arena: now is a session\n  the part after `::` names a case of a recording\n",
    )


def test_a_name_that_may_be_two_things(program: Program) -> None:
    program.scenario(SCENARIO, "release")
    program.run("run", "--record", "release")
    program.run("send", "--session", "release", "@dev roll back")
    program.run("diff", "release", "release").check(
        code=2,
        stderr="""\
arena: release may be a session or a recording
  name one: `sessions/release`, or `scenarios/recordings/release.jsonl`
""",
    )
    done = program.run("diff", "sessions/release", "scenarios/recordings/release.jsonl")
    assert done.code == 0
    assert program.run("diff", "sessions/release", "release::").code == 0  # no session has parts


def test_results(program: Program) -> None:
    program.scenario(SCENARIO, "release")
    program.scenario('scenario: Alone\nsteps: [{send: "@qa x", expect: {turns: 1}}]\n', "alone")
    program.file("a.json", program.run("run", "--json", "--live").out)
    again = program.file("again.json", program.run("run", "--json", "--live").out)
    program.run("diff", "a.json", str(again)).check()
    program.agent("dev", {"say": "Rolled back."})
    (program.folder / "scenarios" / "alone.yaml").unlink()
    program.file("b.json", program.run("run", "--json", "--live").out)
    done = program.run("diff", "a.json", "b.json").check(
        code=1,
        stdout="""\
A  result a.json · 2 passed · N tokens
B  result b.json · 1 failed · N tokens

Alone · scenarios/alone.yaml · only in A

A release · scenarios/release.yaml
  status
    A passed
    B failed
  step 1: status
    A passed
    B failed
  step 1: replied
    A passed
    B failed
      expected: dev, qa
      actual:   dev

also differ: usage (--json shows where)
""",
    )
    assert done.problems == b""
    document = json.loads(program.run("diff", "a.json", "b.json", "--json").out)
    fields = document["scenarios"][1]["fields"]
    assert [one for one in fields if one["field"] == "replied"] == [
        {
            "step": 1,
            "field": "replied",
            "a": {"status": "passed", "expected": "dev, qa", "actual": "dev, qa"},
            "b": {"status": "failed", "expected": "dev, qa", "actual": "dev"},
            "checked": True,
        }
    ]


def test_results_that_drifted(program: Program) -> None:
    program.scenario(SCENARIO + '  - {send: "@qa x", expect: {turns: 1}}\n', "release")
    program.run("run", "--record", "release")
    program.file("a.json", program.run("run", "--json", "--replay").out)
    program.agent("qa", {"say": "三组用例"}, response={"threshold": 0.2, "keywords": ["811"]})
    program.file("b.json", program.run("run", "--json", "--replay").out)
    done = program.run("diff", "a.json", "b.json").check(code=1)
    why = "qa: its recording has no answer left"
    head, _, rest = done.normal(done.stdout).partition(why)
    assert (
        head
        == """\
A  result a.json · 1 passed · N tokens
B  result b.json · 1 failed · N tokens

A release · scenarios/release.yaml
  status
    A passed
    B failed
  drift: settings: qa: response.threshold · only in B
    - 0.6
    + 0.2
  drift: settings: qa: response.keywords · only in B
    - []
    + ["811"]
  step 1: status
    A passed
    B error
  step 1: replied
    A passed
    B failed
      expected: dev, qa
      actual:   dev
  step 1: failures
    + qa, turn 1: error: """
    )
    assert (
        rest.partition("\n")[2]
        == """\
  step 2: status
    A passed
    B not_run

also differ: usage, drift (--json shows where)
"""
    )
    document = json.loads(program.run("diff", "a.json", "b.json", "--json").out)
    fields = [one["field"] for one in document["scenarios"][0]["fields"] if one["step"] == 2]
    assert fields == ["status", "end", "usage", "turns"]


def test_drift_that_follows_on_one_side_only_is_told(program: Program) -> None:
    program.scenario(SCENARIO, "release")
    result = json.loads(program.run("run", "--json", "--live").out)
    drift = {"kind": "routing", "field": "must", "before": "dev", "after": "qa", "step": 1}
    for name, follows in (("a.json", True), ("b.json", False)):
        result["scenarios"][0]["drift"] = [{**drift, "follows": follows}]
        program.file(name, json.dumps(result))
    done = program.run("diff", "a.json", "b.json").check(code=1)
    assert "  step 1: drift: routing: team: must\n" in done.stdout


def test_results_that_say_why_nothing_was_recorded(program: Program) -> None:
    program.scenario(SCENARIO, "release")
    program.file("a.json", program.run("run", "--json", "--record").out)
    result = json.loads((program.folder / "a.json").read_bytes())
    result["scenarios"][0]["unkept"] = "an agent or arena failed"
    program.file("b.json", json.dumps(result))
    done = program.run("diff", "a.json", "b.json").check(code=0)
    assert "  unkept\n    A nothing\n    B an agent or arena failed\n" in done.stdout


LIVE = """\
scenario: What a live agent says
steps:
  - send: "@dev roll it back"
    expect:
      replied: {include: [dev]}
      turns: {min: 1}
      outcome: {dev: success}
      tokens: {max: 5000}
      replies: {dev: [{contains: back}, {max_words: 20}]}
"""


def test_results_in_which_the_same_was_checked_are_the_same(program: Program) -> None:
    program.scenario(LIVE, "live")
    program.agent("dev", {"say": "It is back."})
    program.file("a.json", program.run("run", "--json", "--live").out)
    program.agent("dev", {"say": "Rolled back to 811, as you asked. @qa look"})
    program.agent("qa", {"say": "I looked."})
    program.file("b.json", program.run("run", "--json", "--record").out)
    done = program.run("diff", "a.json", "b.json").check()
    assert "  mode\n    A live\n    B record\n" in done.stdout
    assert "\nalso differ: usage, actual (--json shows where)\n" in done.stdout
    assert done.stdout.endswith("\n\nno difference in the checks\n")
    document = json.loads(program.run("diff", "a.json", "b.json", "--json").check().out)
    assert document["same"] is True
    assert not any(one["checked"] for one in document["scenarios"][0]["fields"])

    program.scenario(LIVE.replace("{min: 1}", "{max: 3}"), "live")
    program.file("c.json", program.run("run", "--json", "--live").out)
    done = program.run("diff", "b.json", "c.json").check(code=1)
    assert "  step 1: turns\n    A passed\n      expected: at least 1\n" in done.stdout
    assert "    B passed\n      expected: at most 3\n" in done.stdout


@pytest.mark.parametrize(
    ("files", "names", "problem"),
    [
        ({}, ("nope", "nope"), "there is no session, recording or file 'nope'"),
        ({}, ("", "x"), "there is no session, recording or file ''"),
        ({}, ("agents", "x"), "agents is a folder without a session"),
        (
            {"x.txt": "hello"},
            ("x.txt", "x.txt"),
            "x.txt: not a transcript, a recording or a result",
        ),
        ({"x.json": ""}, ("x.json", "x.json"), "x.json: not a transcript"),
        ({"x.json": "[" * 200_000}, ("x.json", "x.json"), "x.json: not a transcript"),
        (
            {"x.json": '{"version": 1, "scenarios": [{"file": 3}]}'},
            ("x.json", "x.json"),
            "x.json: not a result: scenarios.0.scenario",
        ),
        (
            {"x.json": '{"version": 2, "scenarios": []}'},
            ("x.json", "x.json"),
            "x.json: is a result of version 2; this arena reads version 1",
        ),
        (
            {"x.json": '{"version": 1, "scenarios": []}', "sessions/s/transcript.jsonl": ""},
            ("x.json", "s"),
            "x.json is a result, s a session\n  a result contains checks",
        ),
        (
            {"scenarios/new.yaml": SCENARIO},
            ("new", "new"),
            "scenarios/new.yaml has no recording: scenarios/recordings/new.jsonl\n"
            "  record it: `arena run --record new`",
        ),
        (
            {"x.jsonl": '{"type":"recording","version":1,"scenario":"x"}\n'},
            ("x.jsonl", "x.jsonl"),
            "x.jsonl:1: was cut: its last line is missing",
        ),
        (
            {
                "x.jsonl": '{"type":"recording","version":1,"scenario":"x"}\n'
                '{"type":"case","case":null}\n{"type":"session"}\n{"type":"end","sha256":""}\n'
            },
            ("x.jsonl", "x.jsonl"),
            "x.jsonl:3: is not a line of a recording: `team` is missing",
        ),
        ({}, ("x" * 5000, "x"), "there is no session, recording or file 'xxx"),
    ],
)
def test_what_cannot_be_compared(
    program: Program, files: dict[str, str], names: tuple[str, str], problem: str
) -> None:
    for path, content in files.items():
        program.file(path, content)
    done = program.run("diff", *names)
    assert done.code == 2
    assert done.stderr.startswith(f"arena: {problem}")
    assert done.out == b""


def test_the_nearest_name_is_offered(program: Program) -> None:
    program.run("send", "--session", "before", "@dev roll back")
    program.run("diff", "befor", "before").check(
        code=2,
        stderr="arena: there is no session, recording or file 'befor'\n  did you mean `before`?\n",
    )


def test_lines_that_cannot_be_read_are_told(program: Program) -> None:
    program.run("send", "--session", "s", "@dev roll back")
    program.file("broken.jsonl", program.raw("s").replace(b'{"seq":2', b"not JSON\n" + b'{"seq":2'))
    program.run("diff", "s", "broken.jsonl").check(code=0, stderr="broken.jsonl:2: not JSON\n")


def test_files_are_compared_outside_of_a_workspace(program: Program, tmp_path: Path) -> None:
    program.run("send", "--session", "s", "@dev roll back")
    elsewhere = Program(tmp_path / "elsewhere")
    elsewhere.file("one.jsonl", program.raw("s"))
    (tmp_path / "arena.yaml").unlink()
    (tmp_path / "agents").rename(tmp_path / "moved")
    assert elsewhere.run("diff", "one.jsonl", "one.jsonl").code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/stdin")
def test_a_pipe_is_read_once(program: Program) -> None:
    program.real = True
    program.run("send", "--session", "s", "@dev roll back")
    done = program.run("diff", "/dev/stdin", "s", given=program.raw("s"))
    assert done.code == 0
    assert "A  session /dev/stdin · 1 chain" in done.stdout


def test_a_dash_is_stdin(program: Program) -> None:
    program.run("send", "--session", "s", "@dev roll back")
    done = program.run("diff", "s", "-", given=program.raw("s"))
    assert done.code == 0
    assert "B  session - · 1 chain" in done.stdout
    done = program.run("diff", "-", "s")
    assert done.code == 2
    assert done.stderr.startswith("arena: -: not a transcript, a recording or a result\n")


def test_chinese(program: Program) -> None:
    program.run("send", "--session", "之前", "@dev roll back")
    program.agent("dev", {"say": "退回 811。"})
    program.run("send", "--session", "之后", "@dev roll back")
    program.env["ARENA_LANG"] = "zh"
    done = program.run("diff", "之前", "之后").check(code=1)
    assert done.stdout.startswith("A  会话 之前 · 1 条链 · 2 轮 · 2 条回复")
    assert "从第 1 条链第 2 轮起出现分歧\n" in done.stdout
