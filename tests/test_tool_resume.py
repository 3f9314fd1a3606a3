"""An agent with tools that is killed at any event continues with what it has done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import canonicalize, reader
from support import Puppets, Talk, puppet, team
from tools import ONCE, TWICE, FakeTool, asks, offer, scripted

OUTPUT = {"name": "report", "schema": {"type": "integer"}}
CUT_SHORT = "arena was interrupted while this tool ran"

ANSWERS = {
    "dev": scripted(
        asks((TWICE, {"n": 1}), (TWICE, {"n": 2}), ("nope", {}), text="I look."),
        asks(("agent:ops", {"task": "check it"}), (TWICE, {"n": 3})),
        asks(("complete_task", {"report": "x"}), (TWICE, {"n": 4})),
        asks(("complete_task", {"report": 1}), ("complete_task", {"report": 2})),
    ),
    "ops": scripted(asks((TWICE, {"n": 5})), asks((TWICE, {"n": 6}), (TWICE, {"n": 7})), "Good."),
}


def talk_of(folder: Path) -> Talk:
    members = team(
        puppet("dev", tools=[TWICE, ONCE, "agent:ops"], output=OUTPUT),
        puppet("ops", tools=[TWICE]),
        selection="none",
    )
    return Talk(folder, members, adapter_type=Puppets(ANSWERS))


def offer_both(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeTool, FakeTool]:
    once = FakeTool(ONCE, lambda arguments: f"noted {arguments.get('n')}", idempotent=False)
    twice = FakeTool(TWICE, lambda arguments: f"found {arguments.get('n')}")
    offer(monkeypatch, once, twice)
    return once, twice


def canonical(talk: Talk) -> list[dict[str, Any]]:
    lines = reader.read_lines(talk.transcript)
    return canonicalize(event for line in lines for event in line.events)


def cuts(whole: Talk) -> list[bytes]:
    """The transcript as a kill after each event of the chain would have left it."""
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    opened = next(at for at, line in enumerate(lines) if b'"chain":1' in line)
    return [b"".join(lines[:count]) for count in range(opened + 1, len(lines))]


def continued(folder: Path, kept: bytes, make: Callable[[Path], Talk]) -> Talk:
    talk = make(folder)
    talk.transcript.parent.mkdir(parents=True)
    talk.transcript.write_bytes(kept)
    talk.resume()
    return talk


def test_killed_after_any_event_it_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_both(monkeypatch)
    whole = talk_of(tmp_path / "whole")
    whole.send("@dev go")
    assert whole.last("agent_ended").output == 1
    assert whole.last("reply_finished").message.content == "1"
    expected = canonical(whole)
    kinds = [record["type"] for record in expected]
    assert kinds.count("tool_requested") == kinds.count("tool_finished") == 12
    for number, kept in enumerate(cuts(whole)):
        talk = continued(tmp_path / str(number), kept, talk_of)
        assert canonical(talk) == expected, number


def test_no_call_that_has_a_result_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, twice = offer_both(monkeypatch)
    whole = talk_of(tmp_path / "whole")
    whole.send("@dev go")
    for number, kept in enumerate(cuts(whole)):
        done = [json.loads(line) for line in kept.splitlines()]
        ended = {event["call"] for event in done if event["type"] == "tool_finished"}
        twice.made.clear()
        talk = continued(tmp_path / str(number), kept, talk_of)
        requested = [event for event in whole.of("tool_requested") if event.tool == TWICE]
        missing = [event.arguments for event in requested if event.call not in ended]
        by_number = sorted(missing, key=lambda arguments: arguments["n"])
        assert sorted(twice.made, key=lambda arguments: arguments["n"]) == by_number, number
        assert not ended & {event.call for event in talk.of("tool_finished")}


def test_a_call_with_an_effect_is_never_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, _ = offer_both(monkeypatch)
    answers = scripted(
        asks((ONCE, {"n": 1}), (ONCE, {"n": 2}), (TWICE, {"n": 3})),
        asks((ONCE, {"n": 4})),
        "Done.",
    )

    def make(folder: Path) -> Talk:
        members = team(puppet("dev", tools=[TWICE, ONCE]))
        return Talk(folder, members, adapter_type=Puppets({"dev": answers}))

    whole = make(tmp_path / "whole")
    whole.send("@dev go")
    cut_short = 0
    for number, kept in enumerate(cuts(whole)):
        if b'"reply_finished"' in kept:
            break
        events = [json.loads(line) for line in kept.splitlines()]
        requested = [event["call"] for event in events if event["type"] == "tool_requested"]
        ended = {event["call"] for event in events if event["type"] == "tool_finished"}
        # Of a turn whose calls were not all written, none was made.
        begun = {call for call in requested if call == "4" or {"1", "2", "3"} <= {*requested}}
        once.made.clear()
        talk = continued(tmp_path / str(number), kept, make)
        assert talk.last("reply_finished").message.content == "Done.", number
        unknown = [
            event.call
            for event in talk.of("tool_finished")
            if event.tool == ONCE and event.result.startswith(CUT_SHORT)
        ]
        assert unknown == [call for call in ("1", "2", "4") if call in begun - ended], number
        assert [arguments["n"] for arguments in once.made] == [
            int(call) for call in ("1", "2", "4") if call not in begun
        ]
        cut_short += len(unknown)
    assert cut_short > 2


def test_killed_twice_within_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_both(monkeypatch)
    whole = talk_of(tmp_path / "whole")
    whole.send("@dev go")
    expected = canonical(whole)
    for first, kept in list(enumerate(cuts(whole)))[::4]:
        talk = continued(tmp_path / str(first), kept, talk_of)
        for second, again in list(enumerate(cuts(talk)))[first + 1 :: 5]:
            twice = continued(tmp_path / f"{first}-{second}", again, talk_of)
            assert canonical(twice) == expected, (first, second)
