"""Find contradictions between claims: a negation, an amount or another choice. Pure.

It is read by words alone, so it finds only what is plain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from arena_cli.notes import text as text_module
from arena_cli.notes.model import Note
from arena_cli.notes.text import significant_words
from arena_cli.workspace import visible_text

ABOUT_THE_SAME = 0.7
"""How much two titles have in common that contradict each other, numbers and negations apart."""

_SAME_TOPIC = 0.6
_MOST_ALIKE = 200  # notes that share a word; one that more have in common tells nothing

_NOT = (
    r"\b(?:not|never|no|without|cannot|forbid\w*|prohibit\w*|ban(?:s|ned)?)\b|n't\b|"
    r"不(?!但|仅|同|过|断|错|少于|超过)|禁止|严禁|没有|无需|无须|勿|未"
)
_NUMBER = r"\d+(?:[.,]\d+)*"
_AMOUNT = (
    rf"(?P<before>(?<![\w.]){_NUMBER})\s*(?:%|percent|[ckmgt]b\b|m?s\b|(?:milli)?seconds?|"
    rf"minutes?|hours?|"
    r"days?|weeks?|months?|years?|times|users?|people|requests?|rows?|items?|characters?|dollars?|"
    r"euros?|[天秒周年月元条次人个位名倍万亿字行页台份]|分钟|小时|毫秒|星期|美元)|"
    rf"(?:after|within|least|most|than|exceed|over|under|below|above|every|=|<|>|≤|≥|超过|少于|"
    rf"不到|至少|"
    rf"最多|大于|小于|[$€¥£])\s*(?P<after>{_NUMBER})"
)
_CHOSEN = (
    r"(?P<before>.*?)(?:\b(?:us(?:e|es|ing)|adopts?|choos(?:e|es)|chose|chosen|picks?|picked|"
    r"go(?:es|ing)? with|(?:switch|move|migrate)(?:es|s)? to|(?:live|stored?|kept|saved)s? in)\s+"
    r"(?:the\s+)?|(?:采用|使用|选用|改用|选定为?|选择了?|(?:确)?定为|存入|存到|存储在|用)\s*)"
    r"(?P<option>[a-z][\w.+#-]*(?:\s[\d.]+)?|[一-鿿]{2,8}?(?=作为|做|来|记录|管理|实现|存|"
    r"[，。,.\s]|\Z))"
    r"(?P<after>.*)\Z"
)
_NOT_CHOSEN = r"\b(?:instead of|rather than|in place of|over)\s+\S+|(?:而不是|代替|替换|不用)\s*\S+"


class Contrast(NamedTuple):
    """A contradiction of two claims: its type, and the value that each of them states."""

    type: Literal["negation", "number", "option"]
    first: str = ""
    second: str = ""


class Contradiction(NamedTuple):
    """Two notes that contradict each other."""

    earlier: Note
    later: Note
    difference: Contrast


def find_contradictions(notes: Iterable[Note]) -> Iterator[Contradiction]:
    """Yield the pairs of notes that contradict each other, by the time of the later one."""
    ordered = sorted(notes, key=lambda note: (note.created, note.id))
    claims = [Claim.of(note.title) for note in ordered]
    for earlier, later in _pairs_about_the_same(claims):
        difference = find_difference(claims[earlier], claims[later])
        if difference is not None:
            yield Contradiction(ordered[earlier], ordered[later], difference)


class _Choice(NamedTuple):
    """A choice, and the significant words of its subject."""

    option: str
    topic: frozenset[str]


class Claim(NamedTuple):
    """The claim in a text; `about` are its significant words without numbers."""

    about: frozenset[str]
    denies: bool
    numbers: frozenset[str]
    amounts: tuple[str, ...]
    choice: _Choice | None

    @classmethod
    def of(cls, text: str) -> Claim:
        """Return the claim in a title or a sentence."""
        return cls(
            frozenset(word for word in significant_words(text) if not word[0].isdigit()),
            denies(text),
            text_module.numbers(text),
            _amounts(text),
            _choice(text),
        )


def find_difference(first: Claim, second: Claim) -> Contrast | None:
    """Return how two claims contradict each other; None if they do not."""
    if text_module.likeness(first.about, second.about) >= ABOUT_THE_SAME:
        if first.denies != second.denies and first.numbers == second.numbers:
            return Contrast("negation")
        ours, theirs = first.amounts, second.amounts
        # Another `step 2` is another thing; another `2 seconds` is not.
        same_things = first.numbers - {*ours} == second.numbers - {*theirs}
        if ours and theirs and ours != theirs and same_things:
            return Contrast("number", ", ".join(ours), ", ".join(theirs))
    chosen, otherwise = first.choice, second.choice
    if not chosen or not otherwise or first.denies or second.denies:
        return None
    is_same = visible_text.fold_text(chosen.option) == visible_text.fold_text(otherwise.option)
    if is_same or text_module.likeness(chosen.topic, otherwise.topic) < _SAME_TOPIC:
        return None
    return Contrast("option", chosen.option, otherwise.option)


def _pairs_about_the_same(claims: Sequence[Claim]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the pairs that share a word."""
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        near: set[int] = set()
        for word in claim.about:
            if len(holding[word]) < _MOST_ALIKE:
                near.update(holding[word])
            holding[word].append(index)
        for other in sorted(near):
            yield other, index


def denies(title: str) -> bool:
    """Return True if a title contains a negation or a prohibition."""
    return _compiled(_NOT).search(title.replace("’", "'")) is not None


def _amounts(title: str) -> tuple[str, ...]:
    """Return the amounts in a title, in order: numbers with a unit, or after `at least` etc."""
    matches = _compiled(_AMOUNT).finditer(visible_text.fold_text(title))
    return tuple(match["before"] or match["after"] for match in matches)


def _choice(title: str) -> _Choice | None:
    """Return the choice in a title; None if it states none, or none for a subject."""
    plain = _compiled(_NOT_CHOSEN).sub(" ", title)
    match = _compiled(_CHOSEN).match(plain)
    if match is None:
        return None
    topic = significant_words(f"{match['before']} {match['after']}")
    return _Choice(match["option"].rstrip("."), topic) if topic else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)
