"""The grammar of `${name}`, wherever something is filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import escape_template, fill_template, iter_texts, list_placeholders, map_texts

TEXTS = st.text(alphabet="a${}\n é")


@given(TEXTS)
def test_an_escaped_text_says_itself(text: str) -> None:
    assert fill_template(escape_template(text), lambda _: "wrong") == text


@given(TEXTS)
def test_a_text_of_which_nothing_is_known_stays_but_for_its_escapes(text: str) -> None:
    assert fill_template(text, lambda _: None, literal="$${") == text


@given(TEXTS)
def test_names_are_what_is_filled_in(text: str) -> None:
    asked: list[str] = []
    fill_template(text, asked.append)
    assert list_placeholders(text) == asked


@pytest.mark.parametrize(
    ("text", "names", "filled"),
    [
        ("a ${x} b ${y}", ["x", "y"], "a <x> b <y>"),
        ("$${x} ${x}", ["x"], "${x} <x>"),
        ("$$${x}", [], "$${x}"),
        ("${} ${a b}", ["", "a b"], "<> <a b>"),
        ("${a\n} ${ {x} $x", [], "${a\n} ${ {x} $x"),
    ],
)
def test_what_is_a_placeholder(text: str, names: list[str], filled: str) -> None:
    assert list_placeholders(text) == names
    assert fill_template(text, lambda name: f"<{name}>") == filled


def test_texts_are_found_and_changed_with_their_places() -> None:
    data = {"a": ["x", {"b": "y", "${k}": 3}], "c": None}
    assert list(iter_texts(data)) == [(("a", 0), "x"), (("a", 1, "b"), "y")]
    assert map_texts(data, lambda text, loc: (text, loc)) == {
        "a": [("x", ("a", 0)), {"b": ("y", ("a", 1, "b")), "${k}": 3}],
        "c": None,
    }
