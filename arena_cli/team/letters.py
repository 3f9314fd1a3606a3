"""Classify characters by script, and bring names and words into the form to compare them in."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum, auto
from functools import cache, lru_cache
from typing import Literal

_HAN = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
_THAI_AND_LAO = "\u0e00-\u0eff"
_KHMER_AND_MYANMAR = "\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"

UNSPACED = _HAN + _KANA + _THAI_AND_LAO + _KHMER_AND_MYANMAR
"""For a class of a regular expression: the scripts that put no spaces between words."""

SPACED_WORD = rf"[^\W{UNSPACED}]"
"""A regular expression for one letter or digit of the other scripts, or `_`."""

_JOINERS = re.compile("[\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_LATER_EMOJI = re.compile("[\U0001f000-\U0001faff]")
_TEXT_OR_EMOJI_STYLE = re.compile("[\ufe0e\ufe0f]")
_LONGEST_RUN_OF_MARKS = 30
_GRAPHEME_JOINER = "\u034f"


class Kind(Enum):
    """The kind of a character, by which words and names are found to end."""

    HAN = auto()
    UNSPACED = auto()
    """A letter or digit of another script without spaces between words."""
    SPACED = auto()
    """A letter or digit of a script with spaces between words."""
    EXTEND = auto()
    """What belongs to the character before it: marks, joiners, skin tones, tags."""
    EMOJI = auto()
    OTHER = auto()


@cache
def _one_of(ranges: str) -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(f"[{ranges}]")


@lru_cache(maxsize=8192)
def kind(char: str) -> Kind:
    """Return the kind of one character, by its Unicode category and block."""
    if char.isascii():
        return Kind.SPACED if char.isalnum() else Kind.OTHER
    category = unicodedata.category(char)
    if category[0] == "M" or _JOINERS.match(char):
        return Kind.EXTEND
    if category[0] in "LN":
        if _one_of(_HAN).match(char):
            return Kind.HAN
        return Kind.UNSPACED if _one_of(UNSPACED).match(char) else Kind.SPACED
    # Emoji that are newer than this Python's Unicode have no category yet.
    if category == "So" or _LATER_EMOJI.match(char):
        return Kind.EMOJI
    return Kind.OTHER


def is_letter_or_digit(char: str) -> bool:
    """Return True if it is a letter or a digit of any script."""
    return kind(char) in (Kind.HAN, Kind.UNSPACED, Kind.SPACED)


def kind_before(text: str, start: int, end: int) -> Kind:
    """Return the kind of the last character of `text[start:end]`, with all that extends it."""
    for index in range(end - 1, start - 1, -1):
        if text[index] in "\ufe0f\u20e3":
            return Kind.EMOJI
        if (last := kind(text[index])) is not Kind.EXTEND:
            return last
    return Kind.OTHER


@lru_cache(maxsize=8192)
def joins(char: str) -> bool:
    """Return True if a character may melt into the one before it when a text is normalised."""
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"


@lru_cache(maxsize=8192)
def _is_reordered(char: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0


def compose(text: str) -> str:
    """Return the text in NFC, in time linear in its length."""
    return _normalised("NFC", text)


def fold(text: str) -> str:
    """Return the form in which two names, or two words, are the same: NFKC and case-folded.

    The selectors of an emoji's style, U+FE0E and U+FE0F, are left out: keyboards set them or not.
    """
    if text.isascii():
        return text.lower()
    plain = _normalised("NFKC", _TEXT_OR_EMOJI_STYLE.sub("", text))
    return _normalised("NFKC", plain.casefold())


def _normalised(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return the text in a normal form.

    Normalising sorts every run of combining marks, at a cost that is the square of its length; so
    a run of more than 30 is broken, as the Stream-Safe Text Format does it (UAX 15, section 13).
    """
    if text.isascii() or unicodedata.is_normalized(form, text):
        return text
    marks = "".join(sorted(filter(_is_reordered, set(text))))
    if marks:
        mark = f"[{re.escape(marks)}]"
        text = re.sub(
            f"{mark}{{{_LONGEST_RUN_OF_MARKS}}}(?={mark})", rf"\g<0>{_GRAPHEME_JOINER}", text
        )
    return unicodedata.normalize(form, text)
