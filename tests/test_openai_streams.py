"""What a stream is read with: any cut of what comes gives the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import Spoken, http

BYTES = (
    *(b"data: {}", b"data:", b"data", b": c", b"\n", b"\r", b"\r\n", b"\n\n", b" x", b"id: 1"),
    *("你🎉".encode(), b"\xef\xbb\xbf", b"data:a"),
)
PIECES = st.lists(st.sampled_from(BYTES), max_size=24).map(b"".join)


def cut(whole: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(whole) + 1) for place in at} | {0, len(whole)})
    return [whole[start:end] for start, end in itertools.pairwise(places)]


def events(pieces: list[bytes]) -> list[str]:
    reader = http.StreamReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@given(PIECES, st.lists(st.integers(0, 500), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(text: bytes, at: list[int]) -> None:
    assert events(cut(text, at)) == events([text])
    assert events([bytes([byte]) for byte in text]) == events([text])


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)))
def test_events_are_read_back(texts: list[str]) -> None:
    written = "".join(f"data: {text}\n\n" for text in texts)
    assert events([written.encode()]) == texts


SPOKEN = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<THINKING >", "</thinking>", "<", ">", "`", "```\n", "\n", "a b"]
    ),
    max_size=16,
).map("".join)


def spoken(pieces: list[str]) -> str:
    filter_ = Spoken()
    return "".join([filter_.feed(piece) for piece in pieces]) + filter_.finish()


@given(SPOKEN, st.integers(1, 9))
def test_what_is_shown_is_the_same_however_the_text_is_cut(text: str, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert spoken(pieces) == spoken([text])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a</think>b", "b"),
        (" <thinking>b</thinking>\n<think>c</think> d", " d"),
        ("a <thinking>b</thinking> c", "a <thinking>b</thinking> c"),
        ("<thin", "<thin"),
        ("<thing>", "<thing>"),
        ("<think>never", ""),
        ("use `<think>` so", "use `<think>` so"),
        ("```\n<think>x\n```", "```\n<think>x\n```"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
    ],
)
def test_thinking_is_not_shown(text: str, shown: str) -> None:
    assert spoken([text]) == spoken(list(text)) == shown
