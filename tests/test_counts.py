"""What providers count corrects the estimates: learned from events, and never from a cut prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import ChainFinished, Counts, ReplyFinished, ReplyStarted, Usage, reader, tokens
from program import Program
from small_model import SmallModel, small_model_fixture  # noqa: F401 - a fixture

TEXTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "token_counts.json").read_text(encoding="utf-8")
)["texts"]
FAR = {"korean", "thai"}  # SmolLM2 makes more than three times as many tokens of these


class Told:
    """Counts, told of one agent's replies as the engine writes them."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.reply = 0

    def start(self, estimate: float, agent: str = "dev") -> None:
        """A reply starts whose input is estimated so, without the correction."""
        self.reply += 1
        started = {
            "seq": self.reply,
            "ts": "",
            "reply": self.reply,
            "turn": 1,
            "phase": "A",
            "agent": agent,
            "adapter": "openai",
            "invocation": "must_reply",
            "attempt": 1,
            "input_hash": "",
            "input_tokens": round(estimate * self.counts.factor(agent)),
        }
        self.counts.apply(ReplyStarted.model_validate(started))

    def hear(self, estimate: float, counted: int, agent: str = "dev", **changes: Any) -> float:
        """A reply starts and ends; the factor afterwards."""
        self.start(estimate, agent)
        fields: dict[str, Any] = {
            "seq": self.reply,
            "ts": "",
            "reply": self.reply,
            "turn": 1,
            "phase": "A",
            "agent": agent,
            "status": "success",
            "usage": Usage(input_tokens=counted),
            "metadata": {"model": "m", "input_counted": True},
            **changes,
        }
        self.counts.apply(ReplyFinished.model_validate(fields))
        return self.counts.factor(agent)


@pytest.mark.parametrize("one", TEXTS, ids=[one["class"] for one in TEXTS])
def test_two_counts_bring_it_within_a_tenth_of_a_small_models(one: dict[str, Any]) -> None:
    told = Told()
    third = len(one["text"]) // 3
    shown = [one["text"][:third], one["text"][: 2 * third], one["text"]]
    *before, last = one["counts"]["smollm2"]
    for text, counted in zip(shown, before, strict=False):
        told.hear(tokens.estimate(text), counted)
    corrected = tokens.estimate(shown[-1]) * told.counts.factor("dev")
    if one["class"] in FAR:
        assert corrected < last
    else:
        assert corrected == pytest.approx(last, rel=0.1)


def test_nothing_is_known_before_a_count_came() -> None:
    counts = Counts()
    assert (counts.factor("dev"), counts.cut_suspected("dev"), counts.record()) == (1.0, None, {})


def test_what_the_cache_gave_and_took_was_counted_too() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=900, cache_write_tokens=500)
    assert Told().hear(1000, 0, usage=usage) == 1.5


def test_a_correction_is_not_corrected_again() -> None:
    told = Told()
    assert [told.hear(1000 + 50 * n, 1500 + 75 * n) for n in range(4)] == [1.5] * 4


def test_later_and_longer_inputs_weigh_more() -> None:
    told = Told()
    assert told.hear(200, 400) == 2.0  # what a provider adds to each call
    assert told.hear(1000, 1200) == round((200 + 1200) / (100 + 1000), 3)
    assert told.hear(10_000, 10_200) == round((700 + 10_200) / (550 + 10_000), 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"usage": None},
        {"usage": Usage(input_tokens=2000, estimated=True)},
        {"attempts": 2},
        {"status": "error"},
        {"metadata": {"model": "m"}},
        {"usage": Usage()},
    ],
)
def test_what_was_not_counted_once_teaches_nothing(changes: dict[str, Any]) -> None:
    assert Told().hear(1000, 2000, **changes) == 1.0


def test_who_declines_was_counted_too() -> None:
    assert Told().hear(1000, 2000, status="declined") == 2.0


def test_agents_are_corrected_apart_and_another_model_begins_anew() -> None:
    told = Told()
    told.hear(1000, 2000)
    assert told.hear(1000, 800, agent="tester") == 0.8
    assert told.counts.factor("dev") == 2.0
    other = {"model": "other", "input_counted": True}
    assert told.hear(1000, 1100, metadata=other) == 1.1


# Prompts that were cut


def test_a_server_that_cuts_prompts_teaches_nothing_and_is_told() -> None:
    told = Told()
    for size in (500, 1000, 1500, 1900):
        told.hear(size, round(size * 1.05))
    known = told.counts.factor("dev")
    for size in (2500, 3500, 6000, 6000):
        assert told.hear(size, 2040) == known
        assert told.counts.cut_suspected("dev") == 2040
    told.hear(1800, 1890)
    assert told.counts.cut_suspected("dev") is None


@pytest.mark.parametrize("window", [2048, 4096, 8192, 32768])
def test_a_first_count_that_just_fills_a_window_is_told(window: int) -> None:
    told = Told()
    assert told.hear(window * 1.4, window - 20) == 1.0
    assert told.counts.cut_suspected("dev") == window - 20


def test_a_count_of_what_was_not_in_the_cache_teaches_nothing() -> None:
    told = Told()
    told.hear(1000, 1100)
    assert told.hear(1050, 60) == 1.1
    assert told.hear(1040, 700) == 1.1
    assert told.counts.cut_suspected("dev") == 700


def test_an_input_that_became_shorter_is_no_cut() -> None:
    told = Told()
    told.hear(3000, 3300)
    assert told.hear(1000, 1150) == round((1650 + 1150) / (1500 + 1000), 3)
    assert told.counts.cut_suspected("dev") is None


def test_what_no_tokenizer_makes_teaches_nothing() -> None:
    told = Told()
    assert told.hear(300, 3000) == 1.0  # a prompt of the provider's own
    assert told.hear(300, 1500) == 3.0  # as far as a correction goes
    assert told.counts.cut_suspected("dev") is None
    assert Told().hear(300, 40) == 1.0


# The state


def test_it_is_kept_and_known_again() -> None:
    told = Told()
    told.hear(1000, 1300)
    told.hear(2500, 2048)
    again = Counts()
    again.restore(json.loads(json.dumps(told.counts.record())))
    assert again.record() == told.counts.record()
    assert (again.factor("dev"), again.cut_suspected("dev")) == (1.3, 2048)


@pytest.mark.parametrize("record", [{"dev": []}, {"dev": ["m", "x", 1, 1, 1, None]}, {"dev": 7}])
def test_a_record_of_another_shape_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Counts().restore(record)


def test_what_never_ended_is_forgotten_with_its_chain() -> None:
    told = Told()
    told.start(1000)
    ended = {"chain": 1, "end": "interrupted", "turns": 1, "replies": 0}
    usage = {"usage": Usage(), "session_usage": Usage()}
    told.counts.apply(ChainFinished.model_validate({"seq": 9, "ts": "", **ended, **usage}))
    before = told.counts.record()
    told.reply -= 1
    finished = {"reply": told.reply + 1, "usage": Usage(input_tokens=5), "status": "success"}
    metadata = {"model": "m", "input_counted": True}
    fields = {"seq": 9, "ts": "", "turn": 1, "phase": "A", "agent": "dev", "metadata": metadata}
    told.counts.apply(ReplyFinished.model_validate({**fields, **finished}))
    assert told.counts.record() == before == {}


# For real


def test_a_small_model_teaches_what_it_counts(tmp_path: Path, small_model: SmallModel) -> None:
    program = Program(tmp_path)
    adapter = {"type": "openai", "model": small_model.name, "base_url": small_model.openai}
    program.agent("dev", adapter=adapter)
    for text in ("我们先讨论登录页面的需求", "数据保留的规则和权限", "再看一下日志", "好的"):
        assert program.run("send", "--session", "s", text * 6).code == 0
    counts = Counts()
    estimated, counted = [], []
    for line in reader.read_lines(program.transcript()):
        for event in line.events:
            if isinstance(event, ReplyStarted):
                estimated.append(event.input_tokens)
            if isinstance(event, ReplyFinished) and event.usage:
                assert event.metadata["model"] == small_model.name
                counted.append(event.usage.input_tokens + event.usage.cache_read_tokens)
            counts.apply(event)
    assert len(counted) == 4
    assert counts.factor("dev") > 1.2  # SmolLM2 makes two to three times as many of Chinese
    assert estimated[-1] == pytest.approx(counted[-1], rel=0.1)
