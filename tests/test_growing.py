"""Text that is shown while it grows holds no part of a secret, wherever it was cut."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    MOST_HELD,
    REDACTED,
    TAIL_LENGTH,
    AgentInput,
    AgentOutput,
    AgentOverloaded,
    Emit,
    GrowingText,
    Health,
    Redactor,
    Session,
    SessionConfig,
    Settings,
    Setup,
    TextDelta,
)
from product import outgoing_outgoing as outgoing
from support import member, team
from test_redact import BODY, KEYS, LETTERS

SECRETS = ["hunter22 and more", "22 hunter", "密钥-secret!", "two\nlines of it", "aaaaaaaab"]
BEGINS = "-----BEGIN " + "PRIVATE KEY-----\n"
ENDS = "-----END " + "PRIVATE KEY-----\n"
PIECES = [
    *KEYS,
    *SECRETS,
    *(secret[:5] for secret in SECRETS),
    *(secret[3:] for secret in SECRETS),
    *(key[: len(key) // 2] for key in KEYS),
    BEGINS,
    ENDS,
    BODY,
    "-----BEGIN CERTIFICATE-----\n",
    "Authorization: Bearer " + LETTERS,
    "earer ",
    "a" * 12,
    REDACTED,
    REDACTED[:5],
    "12-34",
    "中文，",
    " ",
    "\n",
    "@ops look: ",
]

whole = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=10).map("".join)


def told(redactor: Redactor, text: str, sizes: list[int]) -> str:
    """All that is told of a text that comes in pieces of these sizes, over and over."""
    growing = GrowingText(redactor)
    at, said = 0, ""
    while at < len(text):
        size = sizes[at % len(sizes)]
        said += growing.feed(text[at : at + size])
        at += size
        assert growing.tail == said[-TAIL_LENGTH:]
    return said


@settings(deadline=None, max_examples=400)
@given(whole, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_what_was_told_is_the_beginning_of_the_redacted_text(text: str, sizes: list[int]) -> None:
    redactor = Redactor(SECRETS)
    assert redactor.text(text).startswith(told(redactor, text, sizes))


@settings(deadline=None, max_examples=200)
@given(whole, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_patterns_are_kept_to_line_by_line(text: str, sizes: list[int]) -> None:
    redactor = Redactor(SECRETS, [r"(?i)\d\d-\d\d", r"(?<=look: )\S+", "[a-f中]{3,}"])
    said = told(redactor, text, sizes)
    assert redactor.text(text).startswith(said)
    assert said == "" or said.endswith(("\n", REDACTED))


@pytest.mark.parametrize(
    "pattern",
    [r"a\sb", "a[^x]b", "^a", "a$", "(?s)a.b", "a\nb", r"a\W", r"\Aa", re.compile(".", re.DOTALL)],
)
def test_with_a_pattern_over_lines_nothing_is_told(pattern: str) -> None:
    assert told(Redactor((), [pattern]), "one two\n" * 50, [7]) == ""


def test_prose_is_told_word_by_word_and_chinese_at_once() -> None:
    growing = GrowingText(Redactor(["hunter22"]))
    assert [growing.feed(piece) for piece in ("a wo", "rd is", " 需求拆", "解")] == [
        "a ",
        "word ",
        "is 需求拆",
        "解",
    ]
    assert growing.feed("，hunter") == "，"
    assert growing.feed("22 it was") == f"{REDACTED} it "


def test_what_never_ends_is_not_held_for_ever() -> None:
    growing = GrowingText(Redactor(["hunter22"]))
    assert growing.feed("see: " + "x" * (MOST_HELD + 1)) == "see: "
    assert growing.feed(" and so on ") == ""
    assert growing.tail == "see: "


def test_a_long_text_is_read_once() -> None:
    reads = 0

    class Counting(Redactor):
        def text(self, text: str) -> str:
            nonlocal reads
            reads += len(text)
            return super().text(text)

    growing = GrowingText(Counting(["hunter22"]))
    size = 500_000
    for _ in range(size // 100):
        growing.feed("ten chars " * 10)
    assert size - 100 <= reads <= size
    assert len(growing.tail) == TAIL_LENGTH


def test_with_a_pattern_of_one_line_whole_lines_are_told() -> None:
    redactor = Redactor((), [r"\d\d-\d\d"])
    assert told(redactor, "a 12-34\nb 12", [1]) == f"a {REDACTED}\n"


def test_a_session_tells_the_text_so_far_redacted(tmp_path: Path) -> None:
    secret = "hunter22-is-it"
    environ = {"BOT_KEY": secret}

    class Keyed(Settings):
        api_key: str

    class Talker:
        settings_type = Keyed

        def __init__(self, setup: Setup) -> None:
            self.calls = 0

        async def start(self) -> None: ...

        async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
            self.calls += 1
            for piece in ("the key is hun", "ter22-is", "-it, 请", "看 now"):
                emit(TextDelta(piece))
            if self.calls == 1:
                raise AgentOverloaded("bot", "busy", retry_after=0)
            return AgentOutput(content="done")

        async def health(self) -> Health:
            return Health(True)

        async def stop(self) -> None: ...

    told: list[tuple[str, str]] = []
    key = {"type": "talker", "api_key": "${env:BOT_KEY}"}
    members = team(member("bot", adapter=key), on_failure="retry")
    place = SessionConfig(
        workspace=tmp_path, durability="flush", environ=environ, adapter_type=lambda _: Talker
    )
    with Session(place, "s", members, on_text=lambda *said: told.append(said)) as session:
        asyncio.run(session.send(outgoing(members, "@bot go")))
    once = [
        ("bot", text)
        for text in ("the key is ", f"the key is {REDACTED}, 请", f"the key is {REDACTED}, 请看 ")
    ]
    assert told == [*once, *once]
    assert secret not in (session.folder / "transcript.jsonl").read_text(encoding="utf-8")
