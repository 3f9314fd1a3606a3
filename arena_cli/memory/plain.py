"""Texts of anybody, made fit to stand in a note."""

from __future__ import annotations

import unicodedata

from arena_cli.ground import text as texts

LONGEST_TITLE = 200  # characters


def line(text: str) -> str:
    """One line of a front matter: valid, without controls, single spaces."""
    kept = (
        " " if char.isspace() or unicodedata.category(char) == "Cc" else char
        for char in texts.clean(text)[0]
    )
    return " ".join("".join(kept).split())


def short(title: str) -> str:
    """A title that is not too long for a list."""
    if len(title) <= LONGEST_TITLE:
        return title
    return texts.cut(title, LONGEST_TITLE - 1).rstrip() + "…"


def valid(text: str) -> str:
    """A text that can be written, with `\\n` as its line ends."""
    return texts.clean(text)[0].replace("\r\n", "\n").replace("\r", "\n")
