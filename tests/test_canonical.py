"""The canonical form of a session, against an independent one, whatever was said or cut short."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    Attachment,
    Event,
    StructuredContent,
    canonicalize,
    reader,
)
from product import session_outgoing as outgoing
from support import Puppets, Talk, canonical, puppet, team
from test_turns_property import IDS, answers, checked, conversations, said

AFTER = st.one_of(
    st.tuples(st.just("send"), said.filter(lambda text: text[0] not in "!<")),
    st.tuples(st.just("plant"), st.sampled_from(["m1", "m3 and m2", "@a hi"])),
    st.tuples(st.just("interrupt"), st.integers(2, 25)),
    st.tuples(st.just("kill"), st.floats(0, 1)),
    st.tuples(st.just("overtake"), st.floats(0, 1)),
)


def events_of(transcript: Path) -> list[Event]:
    return [event for line in reader.read_lines(transcript) for event in line.events]


def do(talk: Talk, what: str, how: Any) -> None:
    """Something happens to a session: somebody writes, or it is cut short and goes on."""
    if what == "send":
        talk.send(how)
    elif what == "plant":
        with talk.open() as session:
            session.plant(outgoing.planted(talk.team, talk.team.members[0].id, how))
    elif what == "interrupt":
        interrupt(talk, how)
        talk.resume()
    else:
        kill(talk, how)
        if what == "overtake" and b"cancelled" not in talk.transcript.read_bytes():
            talk.send("well")
        # Its rules were changed in between, which is told in the middle of a phase.
        config = talk.team.config.model_copy(update={"turn_timeout_s": how + 60})
        talk.team = replace(talk.team, config=config)
        talk.resume()


def kill(talk: Talk, at: float) -> None:
    """As if arena had been killed when so much of the transcript was written."""
    raw = talk.transcript.read_bytes()
    opened = raw.index(b"\n", raw.index(b'"chain":1')) + 1
    talk.transcript.write_bytes(raw[: opened + round(at * (len(raw) - opened))])


def interrupt(talk: Talk, after: int) -> None:
    """A message whose chain is cancelled at that event, if it has so many."""
    left = after

    def count(_: Event) -> None:
        nonlocal left
        left -= 1
        running = asyncio.current_task() if left == 0 else None
        if running is not None:
            running.cancel()

    talk.on_event = count
    with contextlib.suppress(asyncio.CancelledError):
        talk.send("@a @b @c go")
    talk.on_event = lambda _: None


@checked
@given(
    conversations(),
    st.lists(AFTER, max_size=5),
    st.dictionaries(st.sampled_from(IDS), st.integers(0, 9)),
)
def test_it_is_that_of_the_transcript_itself(
    conversation: Any, after: list[tuple[str, Any]], delays: dict[str, int]
) -> None:
    people, message, lines = conversation
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder), people, adapter_type=answers(lines, delays))
        talk.send(message)
        for what, how in after:
            do(talk, what, how)
        assert canonicalize(events_of(talk.transcript)) == canonical(talk.transcript)


def test_what_a_reply_carries_is_in_it_without_its_place(tmp_path: Path) -> None:
    def answer(shown: AgentInput) -> AgentOutput:
        return AgentOutput(
            content="m1 is a message, and this is a file",
            attachments=[Attachment(type="code", name="计划.md", data=shown.agent_id)],
            structured=[StructuredContent(type="task_list", data=["m1", {"path": 1}])],
            metadata={"noise": shown.session_id},
        )

    puppets = Puppets({"a": answer, "b": answer})
    talk = Talk(tmp_path, team(puppet("a"), puppet("b")), adapter_type=puppets)
    talk.send("@a @b go")
    found = canonicalize(events_of(talk.transcript))
    messages = [one["message"] for one in found if one["type"] == "reply_finished"]
    assert [one["id"] for one in messages] == ["m2", "m3"]
    assert [one["content"] for one in messages] == ["m1 is a message, and this is a file"] * 2
    assert messages[0]["structured"][0]["data"] == ["m1", {"path": 1}]
    assert [sorted(part) for one in messages for part in one["attachments"]] == [
        ["data", "name", "sha256", "size", "type"]
    ] * 2


def test_a_reply_that_was_cancelled_is_not_in_it(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=answers({"a": ["hi"]}, {"a": 9}))
    interrupt(talk, 4)
    assert [one["type"] for one in talk.records()][-2:] == ["reply_started", "reply_finished"]
    kinds = [one["type"] for one in canonicalize(events_of(talk.transcript))]
    assert kinds == ["session", "message", "turn_started"]
