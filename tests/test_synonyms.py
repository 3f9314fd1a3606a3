"""Words of one meaning have one form in texts that are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import fold_synonyms


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("We altered tables", "we changed columns"),
        ("Shipping it", "releasing it"),
        ("we buy machines", "we purchased servers"),
        ("部署 certificate", "发布 SSL"),
        ("删除数据库", "delete database"),
        ("policies", "policies"),
    ],
)
def test_texts_of_one_meaning_are_folded_alike(first: str, second: str) -> None:
    words = [fold_synonyms(text).split() for text in (first, second)]
    assert words[0] == words[1]


@pytest.mark.parametrize("text", ["the weather is fine", "今天天气很好", "shipyard tables-turned"])
def test_other_words_stay(text: str) -> None:
    assert fold_synonyms(text) == text


@given(st.text(max_size=80))
def test_folding_any_text_twice_changes_nothing_more(text: str) -> None:
    folded = fold_synonyms(text)
    assert fold_synonyms(folded).split() == folded.split()
