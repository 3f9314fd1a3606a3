"""Cut short anywhere, a chain goes on to what it would have been, and calls nobody twice."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from product import AgentInput, Event, Team, reader
from product import outgoing_outgoing as outgoing
from support import (
    WORKED_MESSAGE,
    Puppets,
    Talk,
    canonical,
    member,
    puppet,
    team,
    worked_team,
)


def deferrals() -> Team:
    """Deferral, declining, `ask`, a retry that succeeds, a failure, and the depth limit."""
    flaky = [{"when": {"call": 1}, "fail": "error"}, {"say": "@a once more"}]
    return team(
        member("a", [{"say": "@b @d next"}], name="甲"),
        member("b", ["<pass/>", {"say": "@c and you"}]),
        member("c", flaky, on_failure="retry"),
        member("d", [{"fail": "timeout"}]),
        member("e", [{"decline": True}]),
        max_responders=2,
        selection="ask",
        chain_depth_limit=3,
    )


TEAMS: list[tuple[Callable[[], Team], str]] = [
    (worked_team, WORKED_MESSAGE),
    (deferrals, "@a @b @c go"),
]


def lines_of(talk: Talk) -> list[bytes]:
    return talk.transcript.read_bytes().splitlines(keepends=True)


def cut_at(whole: Talk, folder: Path, kept: bytes, make: Callable[[], Team]) -> Talk:
    """A session that was killed when its transcript held these bytes."""
    talk = Talk(folder, make())
    talk.transcript.parent.mkdir(parents=True)
    talk.transcript.write_bytes(kept)
    return talk


def check_goes_on(talk: Talk, whole: Talk, kept: bytes) -> None:
    finished_before = {
        record["reply"]
        for record in map(json.loads, kept.splitlines()[: kept.count(b"\n")])
        if record["type"] == "reply_finished"
    }
    talk.resume()
    assert canonical(talk.transcript) == canonical(whole.transcript)
    again = {event.reply for event in talk.of("reply_started")}
    assert not again & finished_before
    assert [record["seq"] for record in talk.records()] == list(range(1, len(talk.records()) + 1))


@pytest.mark.parametrize(("make", "message"), TEAMS, ids=["worked", "deferrals"])
def test_killed_after_any_event(tmp_path: Path, make: Callable[[], Team], message: str) -> None:
    whole = Talk(tmp_path / "whole", make())
    whole.send(message)
    lines = lines_of(whole)
    opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
    for count in range(opened + 1, len(lines)):
        kept = b"".join(lines[:count])
        talk = cut_at(whole, tmp_path / str(count), kept, make)
        check_goes_on(talk, whole, kept)


@pytest.mark.parametrize(("make", "message"), TEAMS, ids=["worked", "deferrals"])
def test_killed_inside_any_write(tmp_path: Path, make: Callable[[], Team], message: str) -> None:
    whole = Talk(tmp_path / "whole", make())
    whole.send(message)
    lines = lines_of(whole)
    opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
    for count in range(opened + 1, len(lines)):
        line = lines[count]
        for length in {1, len(line) // 2, len(line) - 2, len(line) - 1}:
            kept = b"".join(lines[:count]) + line[:length]
            folder = tmp_path / f"{count}-{length}"
            talk = cut_at(whole, folder, kept, make)
            check_goes_on(talk, whole, kept)
            torn = list(talk.transcript.parent.glob("transcript.torn-*"))
            assert [one.read_bytes() for one in torn] == (
                [] if length == len(line) - 1 else [line[:length]]
            )
            shutil.rmtree(folder)


@pytest.mark.parametrize("people", [2, 3])
def test_interrupted_before_any_reply_took_its_first_step(tmp_path: Path, people: int) -> None:
    agents = ["a", "b", "c"][:people]
    interrupted = False

    async def waits(_: AgentInput) -> str:
        if not interrupted:
            await asyncio.Event().wait()
        return "done"

    puppets = Puppets(dict.fromkeys(agents, waits))
    talk = Talk(tmp_path, team(*map(puppet, agents)), adapter_type=puppets)

    def interrupt(event: Event) -> None:
        if event.type == "reply_started":
            running = asyncio.current_task()
            assert running is not None
            running.cancel()

    talk.on_event = interrupt
    with pytest.raises(asyncio.CancelledError):
        talk.send(" ".join(f"@{agent}" for agent in agents))
    assert talk.outcomes() == [(agent, "cancelled") for agent in agents]
    interrupted, talk.on_event = True, lambda _: None
    assert talk.resume().end == "quiet"


def test_killed_twice(tmp_path: Path) -> None:
    whole = Talk(tmp_path / "whole", deferrals())
    whole.send("@a @b @c go")
    lines = lines_of(whole)
    for first in range(3, len(lines), 3):
        folder = tmp_path / str(first)
        talk = cut_at(whole, folder, b"".join(lines[:first]), deferrals)
        talk.resume()
        again = lines_of(talk)
        for second in range(first + 1, len(again), 4):
            twice = cut_at(whole, folder / str(second), b"".join(again[:second]), deferrals)
            twice.resume()
            assert canonical(twice.transcript) == canonical(whole.transcript)


def test_the_cache_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in a second chain: with the first chain's cache, and without."""
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    whole = Talk(tmp_path / "whole", deferrals())
    whole.send("@a @b @c go")
    first = whole.transcript.stat().st_size
    cache = reader.cache_path(whole.transcript).read_bytes()
    whole.send("@c @b again")
    lines = whole.transcript.read_bytes()[first:].splitlines(keepends=True)
    past = whole.transcript.read_bytes()[:first]
    for count in range(1, len(lines)):
        for cached in (True, False):
            kept = past + b"".join(lines[:count])
            talk = cut_at(whole, tmp_path / f"{count}{cached}", kept, deferrals)
            if cached:
                reader.cache_path(talk.transcript).write_bytes(cache)
            talk.resume()
            assert canonical(talk.transcript) == canonical(whole.transcript)


def test_nothing_to_resume(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    size = talk.transcript.stat().st_size
    assert talk.resume() is None
    assert talk.transcript.stat().st_size == size


def test_c40_cancelled_replies_are_called_again_finished_ones_never(tmp_path: Path) -> None:
    puppets = Puppets({"a": lambda _: "a is done", "b": lambda _: "b", "c": lambda _: "c"})
    people = team(puppet("a"), puppet("b"), puppet("c"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=puppets)

    async def interrupted() -> None:
        with talk.open() as session:
            running = asyncio.ensure_future(session.send(outgoing(people, "@a @b @c go")))
            while not talk.of("reply_finished"):  # noqa: ASYNC110 - a few rounds of the loop
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    async def waits(_: AgentInput) -> str:
        await asyncio.Event().wait()
        return "never"

    puppets.answers = {"a": lambda _: "a is done", "b": waits, "c": waits}
    asyncio.run(interrupted())
    assert talk.outcomes() == [("a", "success"), ("b", "cancelled"), ("c", "cancelled")]
    assert talk.of("chain_finished") == []

    puppets.answers = dict.fromkeys("abc", lambda shown: shown.agent_id)
    talk.events.clear()
    talk.resume()
    assert [(event.reply, event.attempt) for event in talk.of("reply_started")] == [(2, 2), (3, 2)]
    assert len(puppets.inputs["a"]) == 1
    assert [shown.call for shown in puppets.inputs["b"]] == [1, 1]
    assert talk.last("chain_finished").end == "quiet"


def test_a_cancelled_retry_keeps_what_that_attempt_told(tmp_path: Path) -> None:
    replies = [
        {"when": {"call": 1}, "say": "of the first attempt", "fail": "error"},
        {"say": "late", "delay_s": 600},
    ]
    people = team(member("a", replies, on_failure="retry"))
    talk = Talk(tmp_path, people)

    async def interrupted() -> None:
        with talk.open() as session:
            running = asyncio.ensure_future(session.send(outgoing(people, "@a go")))
            while len(talk.of("reply_started")) < 2:  # noqa: ASYNC110 - an event would be more
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(interrupted())
    cancelled = talk.last("reply_finished")
    assert (cancelled.status, cancelled.attempts) == ("cancelled", 2)
    assert cancelled.metadata == {"scripted": 1, "earlier_attempts": [{"scripted": 0}]}


def test_a_new_message_closes_the_open_chain_as_interrupted(tmp_path: Path) -> None:
    whole = Talk(tmp_path / "whole", worked_team())
    whole.send(WORKED_MESSAGE)
    kept = b"".join(lines_of(whole)[:8])
    talk = cut_at(whole, tmp_path / "cut", kept, worked_team)
    finished = talk.send("@测试工程师 你好")
    ends = [record["end"] for record in talk.records() if record["type"] == "chain_finished"]
    assert ends == ["interrupted", "quiet"]
    assert finished.chain == 2
    assert [event.agent for event in talk.of("reply_started")] == ["tester"]


def test_an_agent_that_is_gone_is_an_error(tmp_path: Path) -> None:
    whole = Talk(tmp_path / "whole", worked_team())
    whole.send(WORKED_MESSAGE)
    kept = b"".join(lines_of(whole)[:3])
    talk = cut_at(whole, tmp_path / "cut", kept, worked_team)
    talk.team = team(*[one for one in worked_team().members if one.id != "compliance"])
    talk.resume()
    assert ("compliance", "error") in talk.outcomes()
    error = next(event.error for event in talk.of("reply_finished") if event.status == "error")
    assert "no longer in the team" in error


def test_what_others_said_before_is_seen_after_a_resume(tmp_path: Path) -> None:
    puppets = Puppets({name: lambda shown: f"{shown.agent_id} @d" for name in "abc"})
    puppets.answers = {**puppets.answers, "d": lambda _: "done"}
    puppets.inputs["d"] = []
    people = team(*(puppet(name) for name in "abcd"), selection="none")
    whole = Talk(tmp_path / "whole", people, adapter_type=puppets)
    whole.send("@c @a @b go")
    seen = puppets.inputs["d"][-1]
    lines = lines_of(whole)
    last = next(at for at, line in enumerate(lines) if b'"agent":"d"' in line)
    talk = cut_at(whole, tmp_path / "cut", b"".join(lines[:last]), lambda: people)
    talk.adapter_type = puppets
    talk.resume()
    assert puppets.inputs["d"][-1].messages == seen.messages
    assert puppets.inputs["d"][-1].trigger == seen.trigger
