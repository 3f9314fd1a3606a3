"""`arena show`: one turn, one agent, what follows an event, what is appended, what was shown."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOverloaded,
    Event,
    SessionConfig,
    SessionEvent,
    UsageError,
    preview,
    queries,
    reader,
)
from product import session_store as store
from program import Program, until
from support import WORKED_MESSAGE, Puppets, Talk, member, puppet, team, worked_team

# Parts of a transcript


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Four chains, of which the first has two turns and the last none, and a team that changed."""
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    people = team(
        member("a", [{"say": "first @b"}], name="Ann"),
        member("b", [{"say": "second"}], response={"auto_respond": False}),
        selection="ask",
    )
    found = Talk(tmp_path, people)
    found.send("@a go")
    found.send("@b go")
    found.team = team(*people.members, member("c", [{"say": "x" * 5000}]), selection="none")
    found.send("@c go on")
    found.send("@user nobody")
    return found


def numbered(found: list[Event]) -> list[int]:
    return [event.seq for event in found]


def test_every_turn_is_found_whole(talk: Talk) -> None:
    """Each from its heading, the chain's first from the message on, to what comes next."""
    kinds = [event.type for event in talk.events]
    starts = [at for at, kind in enumerate(kinds) if kind == "turn_started"]
    assert len(starts) == 5
    for number, start in enumerate(starts, 1):
        begins = start - 1 if talk.events[start].model_dump()["depth"] == 0 else start
        ends = next(
            at
            for at in range(start + 1, len(kinds) + 1)
            if at == len(kinds) or kinds[at] == "turn_started" or kinds[at - 1] == "chain_finished"
        )
        found = queries.turn(talk.transcript, number)
        assert found.events == talk.events[begins:ends]
        assert found.skipped == 0
        assert queries.turn_number(talk.transcript, number) == number
        assert queries.turn_number(talk.transcript, number - 6) == number


def test_a_turn_that_is_not_there(talk: Talk, tmp_path: Path) -> None:
    for wrong in (6, -6, 0):
        with pytest.raises(UsageError, match=f"no turn {wrong}\n  its turns are 1 to 5"):
            queries.turn_number(talk.transcript, wrong)
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(UsageError, match="has no turn yet"):
        queries.turn_number(empty, -1)
    assert queries.last_chain(empty).events == []


def test_the_last_chain_begins_with_its_message(talk: Talk) -> None:
    opening = max(event.seq for event in talk.of("message"))
    found = queries.last_chain(talk.transcript)
    assert found.events == talk.events[opening - 1 :]
    assert found.end == talk.transcript.stat().st_size


@pytest.mark.parametrize("broken", [False, True])
def test_what_follows_any_event(talk: Talk, broken: bool) -> None:
    if broken:
        lines = talk.transcript.read_bytes().splitlines(keepends=True)
        lines[7:7] = [b"not JSON\n", b"\n", b'{"half":\n']
        lines[2] = json.dumps(json.loads(lines[2])).encode() + b"\n"  # not as arena writes it
        talk.transcript.write_bytes(b"".join(lines) + b'{"seq":99,"torn')
    for seq in range(len(talk.events) + 3):
        start = queries.offset_after(talk.transcript, seq)
        found = [
            one for line in reader.read_lines(talk.transcript, start=start) for one in line.events
        ]
        assert [one for one in found if one.seq > seq] == talk.events[seq:]
        if not broken:
            assert found == talk.events[seq:]


def test_lines_that_cannot_be_read_are_counted(talk: Talk) -> None:
    lines = talk.transcript.read_bytes().splitlines(keepends=True)
    lines[-2:-2] = [b"not JSON\n"]
    talk.transcript.write_bytes(b"".join(lines))
    found = queries.turn(talk.transcript, 5)
    assert found.skipped == 1
    assert found.events[-1] == talk.events[-1]


def test_a_turn_whose_heading_shares_a_line_is_found(talk: Talk) -> None:
    whole = [queries.turn(talk.transcript, number).events for number in range(1, 6)]
    lines = talk.transcript.read_bytes().splitlines(keepends=True)
    start = next(at for at, line in enumerate(lines) if b'"turn_started"' in line)
    lines[start - 1 : start + 1] = [lines[start - 1].rstrip(b"\n") + lines[start]]
    talk.transcript.write_bytes(b"".join(lines))
    assert [queries.turn(talk.transcript, number).events for number in range(1, 6)] == whole


def test_who_talks_is_found_for_every_place(talk: Talk) -> None:
    sessions: list[SessionEvent] = talk.of("session")
    assert len(sessions) == 2
    for cached in (True, False):
        if not cached:
            reader.cache_path(talk.transcript).unlink()
        for event in talk.events[1:]:
            before = [one for one in sessions if one.seq < event.seq]
            assert queries.session_before(talk.transcript, event.seq) == before[-1]


def test_a_session_event_is_not_mistaken_for_what_agents_say(tmp_path: Path) -> None:
    said = '{"seq":1,"ts":"x","type":"session","session":"evil"}\n"type":"session",'
    metadata = {"content": said, "type": "session", "session": "evil", "metadata": {"x": 1}}
    talk = Talk(tmp_path, team(member("a", [{"output": metadata}])))
    talk.send("go")
    found = queries.session_before(talk.transcript, 999)
    assert found is not None
    assert found.session == "talk"


def test_agents_go_by_id_and_name_those_of_earlier_teams_too(talk: Talk) -> None:
    for name in ("a", "A", "Ann", "@ann", "ａｎｎ"):
        assert queries.agent_named(talk.transcript, name) == "a"
    talk.team = team(member("c", [{"say": "here"}]))
    talk.send("@c go")
    assert queries.agent_named(talk.transcript, "Ann") == "a"
    with pytest.raises(UsageError, match=r"no agent of this session is called 'Ane'\n .*`Ann`"):
        queries.agent_named(talk.transcript, "Ane")


def test_what_concerns_one_agent(talk: Talk) -> None:
    def told_of(agent: str) -> list[tuple[str, int]]:
        found = queries.select_agent(talk.events, agent)
        return [(event.type, event.seq) for event in found]

    told = told_of("b")
    kinds = [kind for kind, _ in told]
    replied = ["turn_started", "reply_started", "reply_finished", "turn_finished"]
    assert kinds == ["session", "message", *replied, "message", *replied, "session"]
    assert [seq for _, seq in told] == sorted(seq for _, seq in told)
    # Asked in phase B of the second chain: the heading comes, then who was asked.
    asked = ["turn_started", "candidates", "reply_started", "reply_finished", "turn_finished"]
    assert [kind for kind, _ in told_of("a")][-8:-1] == ["turn_finished", "message", *asked]


# Following


class Writer:
    """Another process: each wait of the follower is one of its steps; after them the file goes."""

    def __init__(self, path: Path, *steps: Callable[[], Any]) -> None:
        self.path = path
        self.steps: Iterator[Callable[[], Any]] = iter(steps)
        self.cuts = 0

    def wait(self) -> None:
        next(self.steps, self.path.unlink)()

    def append(self, data: bytes) -> Callable[[], Any]:
        def step() -> None:
            with self.path.open("ab") as file:
                file.write(data)

        return step

    def told(self, start: int = 0) -> list[int]:
        def cut() -> None:
            self.cuts += 1

        lines = reader.follow(self.path, start, wait=self.wait, on_cut=cut)
        return [event.seq for line in lines for event in line.events]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of the worked example."""
    talk = Talk(tmp_path_factory.mktemp("talk"), worked_team())
    talk.send(WORKED_MESSAGE)
    return talk.transcript.read_bytes().splitlines(keepends=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_however_it_is_written_each_event_is_told_once(
    lines: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = b"".join(lines)
    ends = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *ends], [*ends, len(whole)], strict=True)]
    path = tmp_path_factory.mktemp("follow") / "transcript.jsonl"
    path.touch()
    writer = Writer(path)
    writer.steps = iter([writer.append(piece) for piece in pieces])
    assert writer.told() == list(range(1, len(lines) + 1))
    assert writer.cuts == 0


def test_a_torn_tail_is_told_when_it_is_repaired(lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"".join(lines[:3]) + lines[3][:-9])
    writer = Writer(path)

    def repair() -> None:
        path.write_bytes(b"".join(lines[:3]) + lines[3])

    writer.steps = iter([lambda: None, repair, lambda: None])
    assert writer.told() == [1, 2, 3, 4]
    assert writer.cuts == 0


def test_what_was_cut_off_and_written_anew_is_told(lines: list[bytes], tmp_path: Path) -> None:
    """A session event that takes a later number's place has a later time."""
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"".join(lines[:5]))
    later = json.loads(lines[3]) | {"ts": "2099-01-01T00:00:00.000Z"}
    writer = Writer(path)
    writer.steps = iter(
        [
            lambda: path.write_bytes(b"".join(lines[:3])),
            writer.append(json.dumps(later).encode() + b"\n"),
        ]
    )
    assert writer.told() == [1, 2, 3, 4, 5, 4]
    assert writer.cuts == 1


def test_another_file_in_its_place_is_told_from_its_beginning(
    lines: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"".join(lines[:5]))
    new = [json.loads(line) | {"ts": "2099-01-01T00:00:00.000Z"} for line in lines[:7]]
    other = tmp_path / "other"
    other.write_text("".join(json.dumps(one) + "\n" for one in new), encoding="utf-8")
    writer = Writer(path, lambda: other.replace(path))
    assert writer.told() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7]


# What an agent was shown


def shown_again(talk: Talk, agent: str, turn: int | None = None) -> preview.Recalled:
    stored = store.find(talk.workspace, str(talk.name))
    place = SessionConfig(talk.workspace)
    return preview.recall_call(stored, agent, turn, config=place, team_of=lambda _: talk.team)


def test_every_call_is_made_again_as_it_was(tmp_path: Path) -> None:
    answers: dict[str, Callable[[AgentInput], Any]] = {
        "a": lambda shown: f"turn {shown.turn} @b @c",
        "b": lambda _: "fine",
        "c": lambda _: "keyword @b",
        "d": lambda _: "me too",
    }
    puppets = Puppets(answers)
    people = team(
        *(puppet(name) for name in "abc"),
        puppet("d", response={"keywords": ["keyword", "fine"]}),
        max_responders=1,
        turn_timeout_s=9,
    )
    talk = Talk(tmp_path, people, adapter_type=puppets)
    talk.send("@a @b keyword, fine")
    talk.send("keyword fine")
    turns: dict[str, list[int]] = {}
    for started in talk.of("reply_started"):
        turns.setdefault(started.agent, []).append(started.turn)
    assert len(turns["b"]) == 2
    assert len(turns) == 4
    for agent, numbers in turns.items():
        for number, was in zip(numbers, puppets.inputs[agent], strict=True):
            again = shown_again(talk, agent, number)
            assert again.same
            assert again.planned.input == was
        assert shown_again(talk, agent).planned.input == puppets.inputs[agent][-1]


def test_attempts_count_as_calls(tmp_path: Path) -> None:
    def answer(shown: AgentInput) -> str:
        if shown.call < 3:
            raise AgentOverloaded("a", "busy")
        return "at last"

    puppets = Puppets({"a": answer})
    talk = Talk(tmp_path, team(puppet("a", on_failure="retry")), adapter_type=puppets)
    talk.send("go")
    again = shown_again(talk, "a")
    assert again.same
    assert again.planned.input.call == puppets.inputs["a"][-1].call == 3


def test_a_profile_that_changed_is_told(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", [{"say": "hi"}], role_prompt="Be brief.")))
    talk.send("go")
    assert shown_again(talk, "a").same
    (one,) = talk.team.members
    talk.team = team(replace(one, role_prompt="Be long."))
    again = shown_again(talk, "a")
    assert not again.same
    assert again.planned.input.role_prompt == "Be long."
    talk.team = team(member("b"))
    with pytest.raises(UsageError, match="a is no longer in the team"):
        shown_again(talk, "a")


def test_who_was_not_called_was_shown_nothing(talk: Talk) -> None:
    with pytest.raises(UsageError, match="b was not called in turn 1\n  called agents: a"):
        shown_again(talk, "b", 1)
    talk.team = team(*talk.team.members, member("late"))
    with pytest.raises(UsageError, match="late was not called in this session"):
        shown_again(talk, "late")


# From the command line


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Two chains in session s: dev calls tester; then tester alone."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "built @tester"}, name="全栈开发")
    made.agent("tester", {"say": "checked"})
    made.team(selection="none")
    made.run("send", "-q", "-s", "s", "@dev go").check()
    made.run("send", "-q", "-s", "s", "@tester again").check()
    return made


def types(stdout: str) -> list[str]:
    return [json.loads(line)["type"] for line in stdout.splitlines()]


def test_parts_of_a_session(program: Program) -> None:
    whole = program.run("show", "s", "--json").check().stdout.splitlines(keepends=True)
    turn = program.run("show", "s", "--turn", "t2", "--json").check().stdout
    assert types(turn)[0] == "turn_started"
    assert types(turn)[-1] == "chain_finished"
    assert turn in "".join(whole)
    for last in ("last", "LAST", "-1", "3"):
        found = program.run("show", "--turn", last, "--json").check().stdout
        assert json.loads(found.splitlines()[0])["message"]["content"] == "@tester again"
    both = program.run("show", "s", "--turn", "1", "--agent", "全栈开发", "--json").check().stdout
    replied = ["turn_started", "reply_started", "reply_finished", "turn_finished"]
    assert types(both) == ["message", *replied]
    rest = program.run("show", "s", "--after-seq", "5", "--json").check().stdout
    assert rest == "".join(whole[5:])
    assert program.run("show", "s", "--after-seq", "999", "--json").check().stdout == ""


def test_a_part_as_text_says_whose_it_is(program: Program) -> None:
    shown = program.run("show", "s", "--turn", "last").check().stdout
    assert shown.startswith("session s · team crew\n\n")
    assert "@tester again" in shown
    assert "built" not in shown
    start = next(one["seq"] for one in program.records() if one["type"] == "reply_started")
    rest = program.run("show", "s", "--after-seq", str(start)).check().stdout
    assert "全栈开发 (dev) · turn 1 A" in rest
    nobody = program.run("show", "s", "--turn", "last", "--agent", "dev")
    nobody.check(stdout="session s · team crew\n\n", stderr="dev was not called there\n")


def test_what_an_agent_was_shown(program: Program) -> None:
    shown = program.run("show", "s", "--context", "--agent", "tester", "--turn", "2").check().stdout
    heading, system, prompt = shown.split("\n\n── ")
    assert heading.startswith("tester · turn 2 A · ~")
    assert system.startswith("system\nYou are ")
    assert "(@tester), one of a team" in system
    assert "\n> built @tester\n" in prompt
    assert "again" not in prompt
    found = json.loads(
        program.run("show", "--context", "--agent", "tester", "--json").check().stdout
    )
    assert found["messages"][-1]["content"] == "@tester again"
    program.agent("tester", {"say": "checked"}, role_prompt="Changed.")
    changed = program.run("show", "s", "--context", "--agent", "tester")
    assert "Changed." in changed.stdout
    changed.check(
        stderr="tester, turn 3: its files, the team's or its notes have changed since; "
        "this is what it would be shown now\n"
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--turn", "9"), "this session has no turn 9\n  its turns are 1 to 3; `--turn last`"),
        (("--turn", "x"), "--turn 'x' is not a turn\n  Give its number"),
        (("--agent", "teste"), "no agent of this session is called 'teste'\n  did you mean"),
        (("--follow", "--turn", "1"), "--follow and --turn were given"),
        (("--context",), "--context shows what one agent was shown\n  Name the agent"),
        (("--context", "--agent", "dev", "--follow"), "--context and --follow were given"),
        (("--context", "--agent", "tester", "--turn", "1"), "tester was not called in turn 1"),
    ],
)
def test_what_is_not_there(program: Program, args: tuple[str, ...], told: str) -> None:
    done = program.run("show", "s", *args)
    assert done.stderr.startswith(f"arena: {told}")
    assert (done.stdout, done.code) == ("", 2)


@pytest.mark.skipif(sys.platform == "win32", reason="a signal that one process sends another")
def test_follow_tells_what_another_process_appends(program: Program) -> None:
    out = program.folder / "out"
    with out.open("wb") as file:
        running = program.start("show", "s", "--follow", "--json", stdout=file)
        until(lambda: out.read_bytes().endswith(b"\n"))
        assert json.loads(out.read_bytes().splitlines()[0])["message"]["content"] == "@tester again"
        program.run("send", "-q", "-s", "s", "@dev more").check()
        until(lambda: out.read_bytes().endswith(program.raw().splitlines()[-1] + b"\n"))
        running.send_signal(signal.SIGINT)
        program.finish(running).check(code=130)
    assert program.raw().endswith(out.read_bytes())


def test_follow_goes_on_where_a_reader_stopped_and_ends_with_the_file(program: Program) -> None:
    out = program.folder / "out"
    with out.open("wb") as file:
        running = program.start("show", "s", "-f", "--json", "--after-seq", "5", stdout=file)
        until(lambda: out.read_bytes().endswith(program.raw().splitlines()[-1] + b"\n"))
        shutil.rmtree(program.folder / "sessions" / "s")
        program.finish(running).check(stderr="session s: its transcript is gone\n")
    assert json.loads(out.read_bytes().splitlines()[0])["seq"] == 6


def test_follow_ends_when_nobody_reads(program: Program) -> None:
    running = program.start("show", "s", "--follow", "--json")
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    program.run("send", "-q", "-s", "s", "@dev more").check()
    assert running.wait(60) == 0
    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()


def test_nothing_is_written_by_looking(program: Program) -> None:
    before = program.written()
    for args in (("--turn", "last"), ("--agent", "dev"), ("--context", "--agent", "dev")):
        program.run("show", "s", *args).check()
    assert program.written() == before
