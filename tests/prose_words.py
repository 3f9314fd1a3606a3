"""Phrases that the prose of arena avoids, and the words to use instead.

The tests use this table for the documentation; it serves docstrings and messages as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A regular expression, matched between word boundaries and without regard to case: the words to
# use instead. A space in it matches any white space, so that a phrase may span two lines.
BANNED = {
    "anew|afresh": "again",
    "at odds": "contradict, differ",
    "bears? on": "is relevant to",
    "besides?": "next to, in addition to",
    "(?:comes?|came|coming) of": "result",
    "(?:everybody|everyone)": "every agent, all agents",
    "faults?|faulty": "error, invalid",
    "(?:go|goes|went|gone|going) on": "continue",
    "heed(?:s|ed|ing)?": "follow, ignore",
    "(?:is|are|was|were|be|been) told": "report, show, receive",
    "lets? go of": "release",
    "mend(?:s|ed|ing)?": "fix, correct",
    "no good": "invalid",
    "nobody|no one": "no agent, no person",
    "of itself": "automatically",
    "save (?:for|in|that|where)": "except",
    "so many": "the number of, N",
    "stands? (?:for|there|in|under|apart|behind|before|at|of)": "mean, is",
    "stood": "was",
    "(?:take|takes|took|taken|taking)(?: (?:it|that|them|this))? over": "accept",
    "(?:tell|tells|told|telling) (?:of|how|what|that|which|who|why)": "report, explain",
    "thereby|therein|thereof|hereby": "so, in it",
    "thrice|whilst|amongst|upon": "three times, while, among, on",
    "what (?:stands?|came|comes|is left|it was)": "name the thing: the content, the result",
    "whatever|whichever way": "any, regardless of",
    "whoever|whomever": "the agent that, each agent",
    "(?:work|works|worked) out": "compute",
}

_PATTERNS = [
    (re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.IGNORECASE), replacement)
    for pattern, replacement in BANNED.items()
]


@dataclass(frozen=True)
class BannedPhrase:
    """A banned phrase in a text, with its line from 1 and the words to use instead."""

    line: int
    phrase: str
    replacement: str


def find_banned_phrases(text: str) -> Iterator[BannedPhrase]:
    """Yield each banned phrase in the text, sorted by line."""
    phrases = [
        BannedPhrase(
            text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), replacement
        )
        for pattern, replacement in _PATTERNS
        for match in pattern.finditer(text)
    ]
    yield from sorted(phrases, key=lambda phrase: phrase.line)
