"""Estimate the tokens of a text from its characters.

The estimate aims at the mean of three current tokenizers: OpenAI's o200k, and those of Qwen 3.5 and
DeepSeek V4. The weights were fitted to their counts of prose, code and data in some twenty
languages; the texts and counts that tests compare with are in tests/data/token_counts.json. If the
model of an agent counts differently, its counts correct the estimate
(`transcript.state`).

Tokenizers first split where words, numbers, blanks and signs meet. The weights do the same, for
ASCII and around Han. Characters of other scripts have a weight each. Weights are hundredths of a
token.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

# Kinds of characters, as bits: what two neighbours differ by tells which kinds meet there.
_LOWER, _UPPER, _DIGIT, _SIGN, _BLANK, _LINE, _HAN, _OTHER = (1 << bit for bit in range(8))

# Which kind begins with a byte of UTF-8, from the first to the last.
_KIND = (
    (_SIGN, 0x00, 0x7F),
    (_LOWER, 0x61, 0x7A),
    (_UPPER, 0x41, 0x5A),
    (_DIGIT, 0x30, 0x39),
    (_BLANK, 0x20, 0x20),
    (_LINE, 0x09, 0x0D),  # a tab, too: it joins a line's end, as indentation does
    (_OTHER, 0xC2, 0xF4),
    (_LOWER, 0xC2, 0xCD),  # Latin letters with marks
    (_LOWER, 0xE1, 0xE1),  # Latin letters with two
    (_HAN, 0xE4, 0xE9),
)

# What it weighs that two kinds meet, whichever comes first, or that a text begins or ends with one.
_MEETING = (
    (_LOWER, 50),
    (_UPPER, 10),
    (_DIGIT, 40),
    (_SIGN, 40),
    (_HAN, 40),
    (_LOWER | _UPPER, 55),
    (_LOWER | _DIGIT, 90),
    (_LOWER | _SIGN, 75),
    (_LOWER | _BLANK, 50),
    (_LOWER | _LINE, 140),
    (_UPPER | _DIGIT, 190),
    (_UPPER | _SIGN, 75),
    (_UPPER | _BLANK, 10),
    (_UPPER | _LINE, 140),
    (_DIGIT | _SIGN, 87),
    (_DIGIT | _BLANK, 40),
    (_DIGIT | _LINE, 30),
    (_SIGN | _BLANK, 83),
    (_SIGN | _LINE, 30),
    (_BLANK | _LINE, 135),
    (_HAN | _LOWER, 137),
    (_HAN | _UPPER, 137),
    (_HAN | _DIGIT, 127),
    (_HAN | _SIGN, 137),
    (_HAN | _BLANK, 87),
    (_HAN | _LINE, 87),
    (_HAN | _OTHER, 87),
    (_OTHER | _LOWER, 50),
    (_OTHER | _UPPER, 50),
    (_OTHER | _DIGIT, 40),
    (_OTHER | _SIGN, 50),
)

# What a character weighs, by the byte that it begins with, beside what is said of it above.
_DIGIT_WEIGHT = 42
_CHARACTER = (
    (_DIGIT_WEIGHT, 0x30, 0x39),
    (100, 0xC2, 0xC3),  # Latin letters with marks
    (190, 0xC4, 0xC5),  # those of Polish, Czech and Turkish
    (40, 0xC6, 0xCD),  # and further ones
    (44, 0xCE, 0xCF),  # Greek
    (26, 0xD0, 0xD3),  # Cyrillic
    (43, 0xD4, 0xDF),  # Arabic, Armenian
    (52, 0xD7, 0xD7),  # Hebrew
    (52, 0xE0, 0xE0),  # the scripts of India
    (100, 0xE1, 0xE1),  # scripts of few
    (100, 0xE2, 0xE2),  # dashes, quotes, arrows and the like
    (37, 0xE3, 0xE3),  # kana, and the signs of Chinese and Japanese
    (52, 0xE4, 0xE9),  # Han
    (70, 0xEA, 0xEE),  # Hangul
    (10, 0xEF, 0xEF),  # wide signs
    (250, 0xF0, 0xF4),  # emoji, and rare Han
)

# Characters that weigh otherwise than their first byte says: (first bytes, weight).
_OTHERWISE = (
    (b"\xd1\x96", 250),  # Ukrainian's own letter: in these vocabularies its words are rarer
    (b"\xe0\xb8", -16),  # Thai
    (b"\xe0\xb9", -16),
    (b"\xe1\xba", -140),  # Vietnamese
    (b"\xe1\xbb", -140),
)

# What each eight letters of a word, each sixteen, and two capitals weigh more.
_EIGHT_LETTERS, _SIXTEEN_LETTERS, _TWO_CAPITALS = 30, 170, 45

# What each character weighs at least: no vocabulary has longer runs of one sign than some 80.
_LEAST = 1

_AT_ONCE = 256

_LONGEST_KEPT = 16_384


def _table(*runs: tuple[int, int, int]) -> bytes:
    table = bytearray(256)
    for value, first, last in runs:
        table[first : last + 1] = bytes([value]) * (last - first + 1)
    return bytes(table)


_KINDS = _table(*_KIND)
_MEETINGS = _table(*((weight, kinds, kinds) for kinds, weight in _MEETING))
_CHARACTERS = _table(*_CHARACTER)
_FOLLOWING = bytes(range(0x80, 0xC0))
_EIGHT, _SIXTEEN, _CAPITALS = bytes([_LOWER]) * 8, bytes([_LOWER]) * 16, bytes([_UPPER]) * 2


def estimate(text: str) -> int:
    """Return the estimated number of tokens of a text: 0 for an empty text, else at least 1.

    A megabyte takes some milliseconds: each step is one pass in C. Recent estimates of short texts
    are cached, since a summary is weighed for every call.
    """
    return _kept(text) if len(text) <= _LONGEST_KEPT else _estimated(text)


def _estimated(text: str) -> int:
    if not text:
        return 0
    if text.isascii():
        kinds = text.encode().translate(_KINDS)
        weight = _bordering(kinds) + _DIGIT_WEIGHT * kinds.count(_DIGIT)
    else:
        raw = text.encode("utf-8", "surrogatepass")
        first_bytes = raw.translate(None, _FOLLOWING)
        weight = _bordering(first_bytes.translate(_KINDS))
        weight += _sum(first_bytes.translate(_CHARACTERS))
        weight += sum(
            [extra * raw.count(begin) for begin, extra in _OTHERWISE if begin[0] in first_bytes]
        )
    return max(1, (max(weight, _LEAST * len(text)) + 50) // 100)


_kept = lru_cache(maxsize=512)(_estimated)


def _bordering(kinds: bytes) -> int:
    """Return the weight of borders between kinds, of long words and of capitalised words."""
    number = int.from_bytes(kinds, "little")
    met = (number ^ (number << 8)).to_bytes(len(kinds) + 1, "little")
    words = (
        _EIGHT_LETTERS * kinds.count(_EIGHT)
        + _SIXTEEN_LETTERS * kinds.count(_SIXTEEN)
        + _TWO_CAPITALS * kinds.count(_CAPITALS)
    )
    return _sum(met.translate(_MEETINGS)) + words


def _sum(weights: bytes) -> int:
    """Return the sum of bytes.

    It is computed in C as the lower half of Adler-32, which is the sum modulo 65,521 (RFC 1950).
    """
    if len(weights) <= _AT_ONCE:
        return zlib.adler32(weights, 0) & 0xFFFF
    starts = range(0, len(weights), _AT_ONCE)
    return sum([zlib.adler32(weights[start : start + _AT_ONCE], 0) & 0xFFFF for start in starts])
