"""Decisions and requirements that contradict each other, as far as words can tell. Pure.

Two titles about the same thing do that differ in a negation, in an amount, or in what was chosen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from arena_cli.memory import terms
from arena_cli.memory.note import PINNING_KINDS, Note
from arena_cli.team import letters

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


class Odds(NamedTuple):
    """Two notes that contradict each other in `what`, and what each of them says there."""

    earlier: Note
    later: Note
    what: Literal["negation", "number", "option"]
    ours: str = ""
    theirs: str = ""


def among(notes: Sequence[Note]) -> Iterator[Odds]:
    """The pairs that contradict each other, by the time of the later one."""
    claims = [_Claim.of(note) for note in notes if note.kind in PINNING_KINDS]
    for earlier, later in _pairs_about_the_same(claims):
        found = _at_odds(earlier, later)
        if found is not None:
            yield found


class _Choice(NamedTuple):
    """What is chosen, and the significant words of what it is chosen for."""

    option: str
    topic: frozenset[str]


class _Claim(NamedTuple):
    """What the title of a note claims; `about` are its significant words without numbers."""

    note: Note
    about: frozenset[str]
    denies: bool
    numbers: frozenset[str]
    amounts: tuple[str, ...]
    choice: _Choice | None

    @classmethod
    def of(cls, note: Note) -> _Claim:
        title = note.title
        return cls(
            note,
            frozenset(word for word in terms.of(title) if not word[0].isdigit()),
            denies(title),
            terms.numbers(title),
            _amounts(title),
            _choice(title),
        )


def _pairs_about_the_same(claims: Sequence[_Claim]) -> Iterator[tuple[_Claim, _Claim]]:
    """The pairs that share a word, the earlier one first."""
    ordered = sorted(claims, key=lambda claim: (claim.note.created, claim.note.id))
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for place, claim in enumerate(ordered):
        near: set[int] = set()
        for word in claim.about:
            if len(holding[word]) < _MOST_ALIKE:
                near.update(holding[word])
            holding[word].append(place)
        for other in sorted(near):
            yield ordered[other], claim


def _at_odds(one: _Claim, other: _Claim) -> Odds | None:
    if terms.likeness(one.about, other.about) >= ABOUT_THE_SAME:
        if one.denies != other.denies and one.numbers == other.numbers:
            return Odds(one.note, other.note, "negation")
        ours, theirs = one.amounts, other.amounts
        # Another `step 2` is another thing; another `2 seconds` is not.
        same_things = one.numbers - {*ours} == other.numbers - {*theirs}
        if ours and theirs and ours != theirs and same_things:
            return Odds(one.note, other.note, "number", ", ".join(ours), ", ".join(theirs))
    chosen, otherwise = one.choice, other.choice
    if not chosen or not otherwise or one.denies or other.denies:
        return None
    is_same = letters.fold(chosen.option) == letters.fold(otherwise.option)
    if is_same or terms.likeness(chosen.topic, otherwise.topic) < _SAME_TOPIC:
        return None
    return Odds(one.note, other.note, "option", chosen.option, otherwise.option)


def denies(title: str) -> bool:
    """Whether a title says that something is not so, or may not be."""
    return _compiled(_NOT).search(title.replace("’", "'")) is not None


def _amounts(title: str) -> tuple[str, ...]:
    """The numbers that say how much, in order: those with a unit, or after `at least` and such."""
    found = _compiled(_AMOUNT).finditer(letters.fold(title))
    return tuple(match["before"] or match["after"] for match in found)


def _choice(title: str) -> _Choice | None:
    """What a title says was chosen; None where it says nothing of the kind, or not for what."""
    plain = _compiled(_NOT_CHOSEN).sub(" ", title)
    found = _compiled(_CHOSEN).match(plain)
    if found is None:
        return None
    topic = terms.of(f"{found['before']} {found['after']}")
    return _Choice(found["option"].rstrip("."), topic) if topic else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)
