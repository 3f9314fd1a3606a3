"""An agent whose model takes less than it is shown: it is shown less, so often and no oftener."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from product import (
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    AgentRefused,
    Session,
    SessionConfig,
    Usage,
    Words,
    context_document,
    context_lines,
    preview,
    reader,
    tokens,
)
from product import context_render as render
from product import session_store as store
from support import Puppets, Talk, outgoing, puppet, team


def size_of(shown: AgentInput) -> int:
    return sum(map(tokens.estimate, render.render(shown)))


def overflowing(shown: AgentInput) -> AgentRefused:
    error = AgentRefused("dev", f"context length exceeded: {size_of(shown)}")
    error.overflow = True
    return error


def strict(most: int) -> Any:
    """An agent whose model takes so many tokens."""

    def answer(shown: AgentInput) -> str:
        if size_of(shown) > most:
            raise overflowing(shown)
        return "word " * 100

    return answer


def talk_of(folder: Path, most: int, **context: int) -> tuple[Talk, Puppets]:
    puppets = Puppets({"dev": strict(most)})
    settings = {"window_tokens": 8_000, "reserved_output_tokens": 0, **context}
    members = team(puppet("dev", context=settings), selection="none")
    return Talk(folder, members, adapter_type=puppets), puppets


def test_an_agent_is_shown_less_until_its_model_takes_it(tmp_path: Path) -> None:
    talk, puppets = talk_of(tmp_path, 1_500)
    for number in range(14):
        assert talk.send(f"@dev part {number}").end == "quiet"
    sizes = [size_of(shown) for shown in puppets.inputs["dev"]]
    assert max(sizes) > 1_500
    refused = [size for size in sizes if size > 1_500]
    assert len(refused) == 1
    finished = talk.of("reply_finished")
    assert all(one.status == "success" for one in finished)
    (shrunk,) = [one for one in finished if "fits_tokens" in one.metadata]
    assert shrunk.attempts == 2
    for shown in puppets.inputs["dev"]:
        assert shown.messages[-1].id == shown.trigger[-1]
    (turn,) = [one.turn for one in talk.of("reply_started") if one.attempt == 2]
    place, stored = SessionConfig(tmp_path), store.find(tmp_path, "talk")
    again = preview.recall_call(stored, "dev", turn, config=place, team_of=lambda _: talk.team)
    assert again.same


@pytest.mark.parametrize("cached_from", [0, reader.WORTH_BYTES])
def test_what_its_model_takes_is_known_to_the_next_process_and_room_is_made(
    tmp_path: Path, cached_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", cached_from)
    talk, puppets = talk_of(tmp_path, 1_500)
    for number in range(30):
        talk.send(f"@dev part {number}")
    assert talk.of("compacted")
    assert len([size for size in map(size_of, puppets.inputs["dev"]) if size > 1_500]) <= 2


def test_a_message_that_is_too_long_by_itself_ends_in_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    talk, puppets = talk_of(tmp_path, 1_500)
    talk.send("@dev hello")
    ended = talk.send("@dev " + "very long " * 3_000)
    assert ended.end == "failed"
    error = talk.last("reply_finished").error
    assert "context length exceeded" in error
    assert "window_tokens" in error
    assert len(puppets.inputs["dev"]) <= 5
    talk.send("@dev hello again")
    assert "hello again" in puppets.inputs["dev"][-1].messages[-1].content


def test_what_is_attached_is_told_where_it_may_be_what_is_too_much(tmp_path: Path) -> None:
    talk, _ = talk_of(tmp_path, 10)
    talk.send("@dev hello")
    assert "tokens and cannot" in talk.last("reply_finished").error
    file = tmp_path / "audit.md"
    file.write_text("x" * 90_000, encoding="utf-8")
    talk.send("@dev report", files=[file])
    assert "tokens, without the 1 attached file and cannot" in talk.last("reply_finished").error


def test_the_layers_add_up_where_a_model_counts_otherwise(tmp_path: Path) -> None:
    def answer(shown: AgentInput) -> AgentOutput:
        usage = Usage(input_tokens=2 * size_of(shown), output_tokens=9)
        return AgentOutput(content="ok", usage=usage, metadata={"input_counted": True})

    talk = Talk(tmp_path, team(puppet("dev")), adapter_type=Puppets({"dev": answer}))
    for number in range(3):
        talk.send(f"@dev part {number}")
    place, stored = SessionConfig(tmp_path), store.find(tmp_path, "talk")
    explained = preview.explain_context(place, stored, talk.team, "dev")
    assert explained.factor > 1.4
    told = "\n".join(context_lines(explained, Words("en")))
    (total,) = re.findall("would be shown ~([0-9,]+) of", told)
    layers = re.findall(r"^  (?!of them)[a-z].* · ~([0-9,]+) tokens · ", told, re.MULTILINE)
    assert len(layers) == 4
    document = context_document(explained)
    said = [f"{document[name]['tokens']:,}" for name in ("head", "messages")]
    assert said == [layers[0], layers[2]]
    whole, *parts = (int(number.replace(",", "")) for number in (total, *layers))
    assert abs(whole - sum(parts)) <= 2


def test_being_shown_too_much_uses_up_no_retry(tmp_path: Path) -> None:
    came: list[str] = []

    def answer(shown: AgentInput) -> str:
        came.append("asked")
        if len(came) == 2:
            raise overflowing(shown)
        if len(came) == 3:
            raise AgentOverloaded("dev", "busy")
        return "word " * 300

    puppets = Puppets({"dev": answer})
    context = {"window_tokens": 8_000, "reserved_output_tokens": 0}
    dev = puppet("dev", context=context, on_failure="retry", retries=1)
    talk = Talk(tmp_path, team(dev, selection="none"), adapter_type=puppets)
    talk.send("@dev " + "first " * 300)
    assert talk.send("@dev second").end == "quiet"
    assert talk.last("reply_finished").attempts == 3


@pytest.mark.parametrize(("counted", "is_told"), [(2_048, True), (None, False)])
def test_a_server_that_cuts_what_it_is_sent_is_told_of_and_teaches_nothing(
    tmp_path: Path, counted: int | None, is_told: bool
) -> None:
    def answer(shown: AgentInput) -> AgentOutput:
        usage = Usage(input_tokens=min(counted or 10**6, size_of(shown)), output_tokens=9)
        return AgentOutput(content="ok", usage=usage, metadata={"input_counted": True})

    told: list[str] = []
    puppets = Puppets({"dev": answer})
    members = team(puppet("dev"), selection="none")
    place = SessionConfig(
        tmp_path, adapter_type=puppets, on_problem=lambda fault: told.append(str(fault))
    )
    with Session(place, "talk", members) as session:
        for _ in range(3):
            sent = outgoing(members, "@dev " + "many different words to read " * 300)
            asyncio.run(session.send(sent))
        assert 0.8 < session.journal.fold.counts.factor("dev") < 1.2
    assert [
        one.startswith("agents/dev.yaml: context.window_tokens: its server") for one in told
    ] == ([True] if is_told else [])
