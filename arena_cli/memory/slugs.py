"""What a note's file is called, in any script, on every platform."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from arena_cli.ground import filenames
from arena_cli.ground import text as texts

MOST_BYTES = 120  # of UTF-8: 40 Chinese characters; leaves room for the kind and a number

NOTHING = "note"


def of(title: str) -> str:
    """The title as part of a file name: letters, digits and marks, with `-` between words."""
    normal = unicodedata.normalize("NFC", unicodedata.normalize("NFC", title).lower())
    kept = "".join(map(_kept, normal))
    words = [word for word in kept.split("-") if word]
    slug = "-".join(words)
    short = slug.encode("utf-8")[:MOST_BYTES].decode("utf-8", "ignore")
    slug = texts.cut(slug, len(short)).strip("-") or NOTHING
    return f"{NOTHING}-{slug}" if filenames.is_device(slug) else slug


def folded(name: str) -> str:
    """Equal for names that some file system takes for one."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def all_folded(names: Sequence[str]) -> list[str]:
    """Each of the names folded; as one text they fold ten times as fast as one by one."""
    return folded("\0".join(names)).split("\0") if names else []  # no name of a file holds a NUL


def _kept(char: str) -> str:
    if char == "_" or unicodedata.category(char)[0] in "LNM":
        return char
    # What joins letters, or cannot be seen, is left out; all else parts words.
    return "" if unicodedata.category(char) in ("Cf", "Cs", "Cc") and not char.isspace() else "-"
