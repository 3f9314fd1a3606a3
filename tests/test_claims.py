"""What two titles state, word by word: contradictions and duplicates of notes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import Note, claims, contradictions


def difference(first: str, second: str) -> tuple[str, str, str] | None:
    contrast = contradictions.find_difference(claims.read_claim(first), claims.read_claim(second))
    return contrast and tuple(contrast)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Tokens expire after 60 minutes", "Tokens expire after 1 hour", None),
        ("Tokens expire after 60 minutes", "Tokens expire after two hours", "number"),
        ("日志保留 30 天", "日志保留三十天", None),
        ("日志保留 30 天", "日志保留一百天", "number"),
        ("Sync is enabled", "Sync is disabled", "negation"),
        ("允许匿名访问", "禁止匿名访问", "negation"),
        ("Support Safari 13", "Drop support for Safari 13", "negation"),
        ("Support Safari 13", "Drop support for Safari 12", None),
        ("Errors go to Sentry", "Errors go to Datadog, not Sentry", "option"),
        ("Use pnpm", "Use yarn instead of pnpm", "option"),
        ("Use Kafka for events", "Use Redis instead of Kafka for the cache", None),
        ("The app supports Chinese", "The app supports English", None),
        ("Passwords must be hashed", "Passwords must be rotated", None),
        ("Errors are logged", "Errors are counted", None),
        ("The beta starts in May", "The beta starts in June", "option"),
        ("Meetings are on Monday", "Meetings are on Friday", "option"),
        ("Step 1 uses Redis", "Step 2 uses Redis", None),
        ("Avatars are stored in S3", "Logs are stored on the local disk", None),
        ("The launch is on 14 March", "The launch is on 2 April", "number"),
        ("Staging uses two servers", "Production uses eight servers", None),
        ("每周二发布", "每周四复盘", None),
        ("日志保留 30 天", "日志保留半年", "number"),
        ("Guests can pay without a card", "Guests cannot pay without a card", "negation"),
        ("The search stays on Elastic", "The search moves to Typesense", "option"),
        ("The app is written in Flutter", "We move the app from Flutter to Kotlin", "option"),
        ("Opening hours are from 9 to 17", "Opening hours are from 9 to 17", None),
        ("Ines leads the redesign", "Paul leads the redesign", "option"),
        ("Ines leads the redesign", "Paul leads the migration", None),
        ("由小王负责支付", "由小李负责支付", "option"),
        ("报表每天生成", "报表每周生成", "option"),
        ("接口免费", "接口收费", "negation"),
        ("数据库用 MySQL", "数据库改用 Postgres", "option"),
    ],
)
def test_a_contradiction_is_one_difference_of_value(
    first: str, second: str, expected: str | None
) -> None:
    for contrast in (difference(first, second), difference(second, first)):
        assert (contrast and contrast[0]) == expected


def test_a_contrast_shows_the_words_as_they_were_written() -> None:
    assert difference("Errors go to Sentry", "Errors go to Datadog") == (
        "option",
        "Sentry",
        "Datadog",
    )
    assert difference("令牌 15 分钟过期", "令牌 1 小时过期") == ("number", "15 分钟", "1 小时")


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_a_claim_that_does_not_contradict_itself(first: str, second: str) -> None:
    assert difference(first, first) is None
    contrast, mirrored = difference(first, second), difference(second, first)
    assert (contrast and contrast[0]) == (mirrored and mirrored[0])


def test_thousands_of_notes_are_compared_in_time() -> None:
    notes: list[Any] = [
        Note(
            id=str(number),
            file="",
            kind="decision",
            title=f"Service {number} keeps table {number % 97} for {number % 13 + 1} days",
        )
        for number in range(1_500)
    ]
    start = time.process_time()
    assert len(list(contradictions.find_contradictions(notes))) == 0
    assert time.process_time() - start < 20
