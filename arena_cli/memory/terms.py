"""What a title or a sentence is about: its significant words.

Words of scripts with spaces by a crude stem, others by each two characters that stand together.
Words that tell how it stands (blocked, done, missing, 尚未, 完成), not what it is, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from arena_cli.memory import words
from arena_cli.team import letters

_ENDING = re.compile(r"(?:ments?|ations?|ions?|ings?|ers?|ed|es|s|e)\Z")
_SHORTEST_STEM = 3

_STATE = (
    r"\b(?:block|blocked|blocker|blocking|blocks|stuck|wait|waiting|waits|missing|lack|lacks|"
    r"lacking|absent|unavailable|available|pending|open|problem|problems|issue|issues|fail|fails|"
    r"failed|failing|failure|solve|solved|resolve|resolved|done|finish|finished|complete|"
    r"completed|still|yet|need|needs|needed|must|should|shall|ready|start|started|next|step|todo|"
    r"task|tasks|use|used|using|never|without|cannot|currently|now|today|tomorrow|say|says|said|"
    r"one|two|new|make|made|want|decision|decided|decide|requirement|required|action)\b|"
    r"还没有?|没有|尚未|仍未|仍然?|仍旧|未能|已经|已被|等待|正在|无法|没法|不能|阻塞|卡住|卡在|缺少|缺失|解决|"
    r"完成|需要|必须|应当|不得|禁止|下一步|问题|目前|现在|今天|明天|马上|开始|继续|暂停|进行|决定|采用|使用|"
    r"选用|不再|不要|不是|才能|之前|以后|之后|然后|以及|[被把将与和让请先再也都就到]"
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@cache
def _state() -> re.Pattern[str]:
    return re.compile(_STATE)


@lru_cache(maxsize=4096)
def of(text: str) -> frozenset[str]:
    """The significant words of a text, folded."""
    plain = _state().sub(" ", letters.fold(text))
    return frozenset(_stem(word) for word in words.of_question(plain) if _tells(word))


def _tells(word: str) -> bool:
    return len(word) > 1 or not word.isascii()


def _stem(word: str) -> str:
    if not word.isascii() or not word.isalpha():
        return word
    stem = _ENDING.sub("", word)
    return stem if len(stem) >= _SHORTEST_STEM else word


def numbers(text: str) -> frozenset[str]:
    """The numbers in a text, in digits."""
    return frozenset(_NUMBER.findall(letters.fold(text)))


def shared(wanted: frozenset[str], there: Iterable[str]) -> float:
    """How much of what is wanted is there, from 0 to 1; 0 where only one of several is."""
    if not wanted:
        return 0.0
    common = len(wanted.intersection(there))
    return common / len(wanted) if common >= min(2, len(wanted)) else 0.0


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """How much two have in common, from 0 to 1 (Dice)."""
    both = len(one) + len(other)
    return 2 * len(one & other) / both if both else 0.0
