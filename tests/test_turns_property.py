"""What holds of every conversation, whoever is in it and whatever they say."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    AgentProtocolError,
    AgentTimeout,
    Message,
    Team,
    reader,
    window,
)
from support import Puppets, Talk, canonical, puppet, team

IDS = ("a", "b", "c", "d", "e")
WORDS = ("parse", "cache", "disk")

checked = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

said = st.one_of(
    st.lists(st.sampled_from([*(f"@{name}" for name in IDS), "@all", "@user", *WORDS])).map(
        lambda words: " ".join(["well", *words])
    ),
    st.sampled_from(["<pass/>", "!error", "!timeout"]),
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Team, str, dict[str, list[str]]]:
    """A team, a message, and what each agent says at its first, second, ... call."""
    ids = IDS[: draw(st.integers(1, len(IDS)))]
    members = []
    for name in ids:
        keywords = draw(st.lists(st.sampled_from(WORDS), unique=True))
        response = {"keywords": keywords, "auto_respond": draw(st.booleans()), "threshold": 0.4}
        on_failure = draw(st.sampled_from([None, "skip", "retry", "abort"]))
        members.append(puppet(name, response=response, on_failure=on_failure, retries=1))
    people = team(
        *members,
        selection=draw(st.sampled_from(["relevance", "ask", "none"])),
        max_responders=draw(st.integers(1, 3)),
        chain_depth_limit=draw(st.integers(0, 4)),
        re_invoke_already_replied=draw(st.booleans()),
        agents_may_mention_all=draw(st.booleans()),
        default_responders=draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)),
    )
    lines = {name: draw(st.lists(said, min_size=1, max_size=4)) for name in ids}
    return people, draw(said.filter(lambda text: text[0] not in "!<")), lines


def answers(lines: dict[str, list[str]], delays: dict[str, int]) -> Puppets:
    async def answer(shown: AgentInput) -> AgentOutput:
        for _ in range(delays.get(shown.agent_id, 0)):
            await asyncio.sleep(0)
        mine = lines[shown.agent_id]
        text = mine[(shown.call - 1) % len(mine)]
        if text == "!error":
            raise AgentProtocolError(shown.agent_id, "failed")
        if text == "!timeout":
            raise AgentTimeout(shown.agent_id, "late")
        return AgentOutput(content=text)

    return Puppets(dict.fromkeys(lines, answer))


@contextmanager
def told(
    conversation: tuple[Team, str, dict[str, list[str]]], **delays: int
) -> Iterator[tuple[Talk, Any]]:
    people, message, lines = conversation
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder), people, adapter_type=answers(lines, delays))
        yield talk, talk.send(message)


@checked
@given(conversations())
def test_limits_hold_and_nobody_is_lost(conversation: Any) -> None:
    people = conversation[0]
    with told(conversation) as (talk, finished):
        turns = talk.of("turn_started")
        ended = talk.of("turn_finished")
        assert len(turns) == len(ended) == finished.turns <= people.config.chain_depth_limit + 1
        for turn, (must, asked) in zip(turns, talk.turns(), strict=True):
            called = [*must, *asked]
            assert len(called) == len(set(called)) <= people.config.max_responders
            assert not set(called) & set(turn.deferred)
        for before, after in zip(ended, turns[1:], strict=False):
            assert [*after.must, *after.deferred] == before.next
        last = ended[-1].next
        if last:
            assert finished.end in {"chain_limit", "failed"}
        outcomes = [status for _, status in talk.outcomes()]
        assert finished.replies == outcomes.count("success")
        assert (finished.end == "no_reply") <= (set(outcomes) <= {"declined"})


@checked
@given(conversations())
def test_only_those_are_called_whom_somebody_called(conversation: Any) -> None:
    people = conversation[0]
    with told(conversation) as (talk, _):
        calls = {"user": talk.of("message")[0].message.mentions}
        replies = talk.of("reply_finished")
        for turn in talk.of("turn_started")[1:]:
            earlier = {one.agent for one in replies if one.turn < turn.turn}
            for agent in [*turn.must, *turn.deferred]:
                for name in turn.mentioned_by.get(agent, []):
                    assert name in earlier | set(calls)
                    assert name != agent
        for one in replies:
            assert one.agent not in one.next_mentions
            assert "user" not in one.next_mentions
            if one.status != "success":
                assert one.next_mentions == []
        for candidates in talk.of("candidates"):
            for agent in [*candidates.asked, *candidates.passed_over]:
                member = people.member(agent)
                assert member is not None
                assert member.profile.response.auto_respond


@checked
@given(conversations(), st.dictionaries(st.sampled_from(IDS), st.integers(0, 9)))
def test_the_order_of_arrival_changes_nothing(conversation: Any, delays: dict[str, int]) -> None:
    with told(conversation) as (one, _), told(conversation, **delays) as (two, _):
        assert canonical(one.transcript) == canonical(two.transcript)
        first = [(event.agent, event.input_hash) for event in one.of("reply_started")]
        second = [(event.agent, event.input_hash) for event in two.of("reply_started")]
        assert sorted(first) == sorted(second)


@checked
@given(conversations(), st.data())
def test_cut_short_anywhere_it_goes_on_to_the_same_end(conversation: Any, data: Any) -> None:
    people, _, lines = conversation
    with told(conversation) as (whole, _), tempfile.TemporaryDirectory() as folder:
        raw = whole.transcript.read_bytes()
        opened = raw.index(b"\n", raw.index(b'"chain":1')) + 1
        kept = raw[: data.draw(st.integers(opened, len(raw)))]
        talk = Talk(Path(folder), people, adapter_type=answers(lines, {}))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(kept)
        talk.resume()
        assert canonical(talk.transcript) == canonical(whole.transcript)


@checked
@given(conversations(), st.dictionaries(st.sampled_from(IDS), st.integers(0, 9)))
def test_old_messages_are_read_back_as_they_were_told(
    conversation: Any, delays: dict[str, int]
) -> None:
    """From the end of a transcript, with the cache, as from its beginning, without."""
    with told(conversation, **delays) as (talk, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "WORTH_BYTES", 0)
        seen: list[list[str]] = []
        for _ in range(2):
            messages: list[Message] = []
            reader.load_fold(
                talk.transcript, on_message=messages.append, weigh=window.weigh, budget=10**9
            )
            seen.append([message.id for message in messages])
        assert reader.cache_path(talk.transcript).exists()
        assert seen[0] == seen[1] != []
