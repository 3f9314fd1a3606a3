"""The words of a text as the index keeps them, of any script.

Scripts with spaces give words, English ones by their stems; Han, kana, Thai and the like give each
character and each two that stand together. So a Chinese word of two characters is found, which no
trigram finds.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from arena_cli.team import letters

if TYPE_CHECKING:
    import sqlite3

LONGEST_QUESTION = 20_000
"""Characters of a text that notes are found for; the rest is not looked at."""

# Words that stand in every text, and tell nothing of what it is about.
_ENGLISH = frozenset(
    """
    a about after again all also am an and any are as at be because been before being between both
    but by can cannot could d did do does doing done don down during each few for from further get
    had has have having he her here hers him his how i if in into is it its itself just let ll m me
    more most must my no nor not now of off on once only or other our out over own please re s same
    shall she should so some such t than that the their them then there these they this those
    through to too under until up us ve very was we were what when where whether which while who
    whom whose why will with would you your
    """.split()  # noqa: SIM905 - 140 literals are harder to read
)
_CHINESE = (
    "为什么|什么|怎么样|怎么|怎样|如何|哪些|哪个|哪里|哪种|哪儿|多少|多久|是否|是不是|还是|有没有|能不能|"
    "我们|咱们|你们|他们|它们|这个|那个|这些|那些|这里|那里|一下|一个|请问|可以|应该|"
    "因为|所以|但是|如果|以及|或者|并且|[的了是吗呢吧啊么]"
)


@cache
def _runs() -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(f"([{letters.UNSPACED}]+)|[^\\W_{letters.UNSPACED}]+")


@cache
def _empty() -> re.Pattern[str]:
    return re.compile(_CHINESE)


def of_note(text: str) -> list[str]:
    """The words of a note's text, in order, each as often as it stands there."""
    found: list[str] = []
    for run in _runs().finditer(letters.fold(text)):
        word = run.group()
        if run[1]:
            found += word
            found += map("".join, itertools.pairwise(word))
        elif word not in _ENGLISH:
            found.append(word)
    return found


def of_question(text: str) -> list[str]:
    """The words that a question asks for, each once, in order.

    Words that say nothing are left out; so are Chinese ones that are asked with, and single
    characters of a script without spaces, unless the question has no others.
    """
    folded = letters.fold(text)
    return _pairs(_empty().sub(" ", folded)) or _pairs(folded) or list(dict.fromkeys(of_note(text)))


def _pairs(folded: str) -> list[str]:
    found: dict[str, None] = {}
    for run in _runs().finditer(folded):
        word = run.group()
        if run[1]:
            found.update(dict.fromkeys(map("".join, itertools.pairwise(word))))
        elif word not in _ENGLISH:
            found[word] = None
    return list(found)


def tag(text: str) -> str:
    """The form in which two tags are the same."""
    return " ".join(letters.fold(text).split()).removeprefix("#")


class Stems:
    """The stems of English words, by the stemmer that SQLite carries (Porter's).

    It works in a temporary table of a connection, which nobody else sees.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE VIRTUAL TABLE temp.stems USING fts5(w, tokenize='porter ascii')")
        connection.execute(
            "CREATE VIRTUAL TABLE temp.stem USING fts5vocab('temp', 'stems', 'instance')"
        )
        self._connection = connection
        self._known: dict[str, str] = {}

    def of(self, words: Iterable[str]) -> list[str]:
        """The stem of each word; a word that is not English stays as it is."""
        words = list(words)
        new = [word for word in set(words) - self._known.keys() if _may_have_a_stem(word)]
        if new:
            self._connection.execute("INSERT INTO stems VALUES (?)", (" ".join(new),))
            rows = self._connection.execute("SELECT term FROM stem ORDER BY offset")
            self._known.update(zip(new, (stem for (stem,) in rows), strict=True))
            self._connection.execute("DELETE FROM stems")
        return [self._known.get(word, word) for word in words]


def _may_have_a_stem(word: str) -> bool:
    return word.isascii() and word.isalpha()
