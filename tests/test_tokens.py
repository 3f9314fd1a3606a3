"""The estimate of tokens against what tokenizers count (tests/data/token_counts.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import tokens

DATA = Path(__file__).parent / "data" / "token_counts.json"
TEXTS: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["texts"]
AIMED_AT = ("o200k", "qwen3.5", "deepseek-v4")

of_each_text = pytest.mark.parametrize("one", TEXTS, ids=[one["class"] for one in TEXTS])


@of_each_text
def test_an_estimate_is_within_a_tenth_of_what_tokenizers_of_today_count(
    one: dict[str, Any],
) -> None:
    mean = sum(one["counts"][name][-1] for name in AIMED_AT) / len(AIMED_AT)
    assert tokens.estimate(one["text"]) == pytest.approx(mean, rel=0.1)


def test_so_is_that_of_all_of_them_together() -> None:
    mean = sum(one["counts"][name][-1] for one in TEXTS for name in AIMED_AT) / len(AIMED_AT)
    assert tokens.estimate("".join(one["text"] for one in TEXTS)) == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    ("text", "estimate"),
    [
        ("", 0),
        ("a", 1),
        (" ", 1),
        ("hello world", 2),
        ("用户认证", 3),
        ("😀", 3),
        ("2026-11-28", 8),
        ("STOP ALL WORK NOW", 4),
        ("\ud83d", 1),
        ("x" * 8_000, 1_151),
        (" " * 8_000, 80),
        ("=" * 8_000, 80),
        ("汉" * 8_000, 4_161),
    ],
)
def test_single_texts(text: str, estimate: int) -> None:
    assert tokens.estimate(text) == estimate


@settings(deadline=None)
@given(st.text(), st.text())
def test_the_estimate_of_two_texts_is_near_that_of_both(first: str, second: str) -> None:
    apart = tokens.estimate(first) + tokens.estimate(second)
    assert apart - 5 <= tokens.estimate(first + second) <= apart + 5


@settings(deadline=None)
@given(st.text(min_size=1))
def test_no_text_is_free_and_none_costs_more_than_its_bytes_could(text: str) -> None:
    most = 4 * len(text.encode("utf-8", "surrogatepass")) + 1
    assert 1 <= tokens.estimate(text) <= most
