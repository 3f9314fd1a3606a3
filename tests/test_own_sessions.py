"""Agents that keep a session of their own: when it is gone on with, and what they are sent then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from product import (
    WORTH_BYTES,
    AgentInput,
    AgentOutput,
    AgentUnavailable,
    Emit,
    Health,
    SessionId,
    Settings,
    Setup,
    cache_path,
)
from support import Talk, member, puppet, team


class KeeperSettings(Settings):
    model: str = ""


class Keepers:
    """Agents that keep a session each; `calls` is (agent, resumed id, prompt) of every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None, str]] = []
        self.states: list[dict[str, Any] | None] = []
        self.stopped: list[str] = []
        self.answers: dict[str, list[Any]] = {}

    def __call__(self, kind: str) -> type[Any]:
        keepers = self

        class Keeper:
            settings_type = KeeperSettings

            def __init__(self, setup: Setup) -> None:
                self.setup = setup

            async def start(self) -> None: ...

            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                own = input.own_session.id if input.own_session else None
                agent = self.setup.agent_id
                keepers.calls.append((agent, own, self.setup.render(input)[1]))
                keepers.states.append(input.own_session.state if input.own_session else None)
                number = len(keepers.calls)
                if self.setup.settings.model != "untold" or number == 1:
                    emit(SessionId(own or f"{agent}-{number}", {"used": number}))
                said = (keepers.answers.get(agent) or ["fine"]).pop(0)
                if isinstance(said, Exception):
                    raise said
                return said if isinstance(said, AgentOutput) else AgentOutput(content=said)

            async def health(self) -> Health:
                return Health(True)

            async def stop(self) -> None:
                keepers.stopped.append(self.setup.agent_id)

        return Keeper


def resumed(keepers: Keepers, agent: str = "a") -> list[str | None]:
    return [own for name, own, _ in keepers.calls if name == agent]


def a_talk(folder: Path, keepers: Keepers, **profile: Any) -> Talk:
    profile.setdefault("adapter", {"type": "keeper"})
    people = team(member("a", **profile), puppet("b"), selection="none")
    return Talk(folder, people, adapter_type=keepers)


def test_another_arena_process_goes_on_in_it_and_sends_only_what_it_has_not_seen(
    tmp_path: Path,
) -> None:
    keepers = Keepers()
    keepers.answers = {"a": ["apple", "avocado"], "b": ["banana"]}
    a_talk(tmp_path, keepers).send("@a @b first 一")
    talk = a_talk(tmp_path, keepers)
    talk.send("@a second 二")
    assert resumed(keepers) == [None, "a-1"]
    prompt = keepers.calls[-1][2]
    assert "> banana" in prompt
    assert "> @a second 二" in prompt
    assert "first 一" not in prompt
    assert "apple" not in prompt
    assert "What the others said since:" in prompt
    assert "New is the last message." in prompt
    kept = talk.last("reply_finished").agent_session
    newest = talk.last("message").message
    assert (kept["id"], kept["upto_seq"]) == ("a-1", newest.seq)
    assert keepers.states[-1] == {"used": 1}
    assert kept["state"] == {"used": 3}


def test_what_is_written_of_the_input_is_the_whole_of_it(tmp_path: Path) -> None:
    keeping, plain = Keepers(), Keepers()
    one, two = a_talk(tmp_path / "1", keeping), a_talk(tmp_path / "2", plain)
    for talk in (one, two):
        talk.send("@a first")
        talk.send("@a second")
    first, second = (
        [(e.input_hash, e.input_tokens) for e in talk.of("reply_started")] for talk in (one, two)
    )
    assert first == second
    assert resumed(keeping) == [None, "a-1"]


def test_a_decline_keeps_it(tmp_path: Path) -> None:
    keepers = Keepers()
    keepers.answers = {"a": [AgentOutput(should_respond=False), "fine"]}
    talk = a_talk(tmp_path, keepers)
    talk.send("@a first")
    talk.send("@a second")
    assert resumed(keepers) == [None, "a-1"]


def test_a_call_that_failed_ends_it(tmp_path: Path) -> None:
    keepers = Keepers()
    keepers.answers = {"a": ["fine", AgentUnavailable("a", "broken"), "fine"]}
    talk = a_talk(tmp_path, keepers)
    for text in ("@a first", "@a second", "@a third"):
        talk.send(text)
    assert resumed(keepers) == [None, "a-1", None]
    assert "first" in keepers.calls[-1][2]


def test_another_attempt_begins_afresh(tmp_path: Path) -> None:
    keepers = Keepers()
    keepers.answers = {"a": ["fine", AgentUnavailable("a", "broken"), "fine"]}
    talk = a_talk(tmp_path, keepers, on_failure="retry", retries=1)
    talk.send("@a first")
    talk.send("@a second")
    assert resumed(keepers) == [None, "a-1", None]
    assert talk.last("reply_finished").agent_session["id"] == "a-3"


def test_what_a_failed_attempt_told_is_no_session_of_the_next(tmp_path: Path) -> None:
    keepers = Keepers()
    keepers.answers = {"a": [AgentUnavailable("a", "broken"), "fine"]}
    adapter = {"type": "keeper", "model": "untold"}
    talk = a_talk(tmp_path, keepers, adapter=adapter, on_failure="retry", retries=1)
    talk.send("@a first")
    assert talk.last("reply_finished").status == "success"
    assert talk.last("reply_finished").agent_session is None


def test_an_error_that_says_so_is_not_tried_again(tmp_path: Path) -> None:
    keepers = Keepers()
    keepers.answers = {"a": [AgentUnavailable("a", "half an answer came", again=False), "fine"]}
    talk = a_talk(tmp_path, keepers, on_failure="retry", retries=3)
    assert talk.send("@a first").end == "failed"
    assert len(keepers.calls) == 1


def test_a_changed_role_team_or_adapter_begins_afresh(tmp_path: Path) -> None:
    keepers = Keepers()
    a_talk(tmp_path, keepers).send("@a first")
    a_talk(tmp_path, keepers, adapter={"type": "keeper", "model": "m"}).send("@a second")
    more = team(puppet("a"), puppet("b"), member("c"), selection="none")
    Talk(tmp_path, more, adapter_type=keepers).send("@a third")
    same = Talk(tmp_path, more, adapter_type=keepers)
    same.send("@a fourth")
    assert resumed(keepers) == [None, None, None, "a-3"]


def test_a_transcript_that_was_changed_by_hand_begins_afresh(tmp_path: Path) -> None:
    keepers = Keepers()
    talk = a_talk(tmp_path, keepers)
    talk.send("@a first")
    lines = talk.transcript.read_text(encoding="utf-8")
    talk.transcript.write_text(lines.replace("@a first", "@a worst"), encoding="utf-8")
    a_talk(tmp_path, keepers).send("@a second")
    assert resumed(keepers) == [None, None]


def test_a_window_that_moved_on_changes_nothing_that_was_seen(tmp_path: Path) -> None:
    keepers = Keepers()
    small = {"window_tokens": 900, "reserved_output_tokens": 100}
    talk = a_talk(tmp_path, keepers, context=small)
    for number in range(12):
        talk.send(f"@a message {number} " + "word " * 100)
    assert resumed(keepers) == [None] + ["a-1"] * 11


def test_the_cache_of_a_long_transcript_keeps_it(tmp_path: Path) -> None:
    keepers = Keepers()
    talk = a_talk(tmp_path, keepers)
    talk.send("@a first " + "x" * WORTH_BYTES)
    cache = json.loads(cache_path(talk.transcript).read_text(encoding="utf-8"))
    assert cache["agent_sessions"]["a"]["id"] == "a-1"
    a_talk(tmp_path, keepers).send("@a second")
    assert resumed(keepers) == [None, "a-1"]


def test_a_crash_in_the_middle_of_a_call_ends_it(tmp_path: Path) -> None:
    keepers = Keepers()
    talk = a_talk(tmp_path, keepers)
    talk.send("@a first")
    talk.send("@a second")
    lines = talk.transcript.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = max(at for at, line in enumerate(lines) if '"reply_started"' in line)
    talk.transcript.write_text("".join(lines[: cut + 1]), encoding="utf-8")
    a_talk(tmp_path, keepers).resume()
    assert resumed(keepers) == [None, "a-1", None]


def test_agents_are_stopped_when_the_session_is_done(tmp_path: Path) -> None:
    keepers = Keepers()
    a_talk(tmp_path, keepers).send("@a @b go")
    assert sorted(keepers.stopped) == ["a", "b"]
