"""Control sequences are taken out, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import AnsiStripper, strip_ansi

PIECES = st.lists(
    st.sampled_from(["\x1b", "[", "]", "0;t", "\x07", "\\", "31", "m", "\n", "\r", " ", "P", "好"]),
    max_size=12,
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\x1b[1;31mb\x1b[0mc", "abc"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\a\x1b_x\x1b\\b\x1b^y\x1b\\c", "abc"),
        ("\x1b(Ba\x1b7b\x1b=c", "abc"),
        ("â\x80\x98quoted\x9d", "â\x80\x98quoted\x9d"),
        ("\x1b]never closed\nnext", "\nnext"),
        ("a\r\nb\rc", "a\nb\rc"),
        ("[31m [x] \\", "[31m [x] \\"),
        ("a\x1b", "a"),
    ],
)
def test_strip(text: str, left: str) -> None:
    assert strip_ansi(text) == left


@settings(deadline=None)
@given(st.lists(PIECES, max_size=4))
def test_pieces_give_what_the_whole_gives(pieces: list[list[str]]) -> None:
    texts = ["".join(piece) for piece in pieces]
    stripper = AnsiStripper()
    got = "".join([*(stripper.feed(text) for text in texts), stripper.finish()])
    assert got == strip_ansi("".join(texts))
