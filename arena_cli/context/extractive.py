"""A summary without a model: sentences of the messages, put into sections by their wording.

Which of them matter is told by SumBasic (Nenkova and Vanderwende, 2005) as the library sumy has
it: what is spoken of often comes first, and not twice. It needs no data beyond the package.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.context import compacting, summaries, tokens
from arena_cli.context.compacting import SECTION_OF, Fact
from arena_cli.context.summaries import GOAL, SECTIONS, Sections
from arena_cli.ground import text as texts
from arena_cli.ground.protocol import ShownMessage
from arena_cli.memory import rules, sentences, words
from arena_cli.memory.note import Kind

BY = "extractive (sumy SumBasic)"

MOST_SENTENCES = 400
"""So many are compared with each other, those that say most and the newest: it takes their square
in time."""

_LONGEST = 300
_LONGEST_GOAL = 120
_FEWEST_WORDS = 3
_MOST_TOLD = 4

_PREFERS = re.compile(
    r"\b(?:i|we)(?:'d| would)? (?:much )?(?:prefer|like|rather|want|hate|love)\b|\bmy preference\b"
    r"|\b(?:don't|do not|never) (?:like|want|use)\b|我们?更?(?:不?喜欢|偏好|希望|不?想|习惯)|偏好",
    re.IGNORECASE,
)
# A number, a path, an address, a name in capitals or with a capital within, what stands in quotes.
_TELLS = re.compile(
    r"\d[\d.,:]*|https?:|[\w.-]+[/\\][\w./\\-]+|\b[A-Z][A-Z0-9_-]+\b|\b\w+[a-z][A-Z]\w*|`[^`]+`|[“「《\"][^”」》\"]+[”」》\"]"
)
# Chinese writes its names as it writes all else: what is said of them tells that it is a fact.
_STATES = re.compile(
    r"位于|[放存设建装]在|部署[在于]|来自|属于|归.{1,8}(?:管|所有)|只有|仅有|负责|名叫|叫做|默认|地址|版本|端口"
    r"|密码|账号|截止|每[天周月年次]|改[为成名]|换成|依赖|基于|等于|[^，。]{1,12}[是为](?:由|用|以)"
)
# Who speaks of himself, or of how he sees it, seldom tells what others must know later.
_CHATS = re.compile(
    r"\b(?:i|me|my|we|us|let's|thanks?|maybe|perhaps|honest|fine|well)\b|我|咱|谢谢|也许|大概|觉得|说实话",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？][”」』\"'）)]*$|[吗呢][。.]?$|^请|^麻烦"
    r"|^(?:[\w ]{0,20}, )?(?:please|can|could|would|will) (?:you )?\b",
    re.IGNORECASE,
)
_AFTER_NUMBER = re.compile(r"(?<=\d)\.\s+(?=[^\W\d_])")
_AUTHOR = re.compile(r" \([^()]*\)$")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")

# What is taken first, where there is no room for all.
_RANKS = {
    "key_decisions": 0,
    "pending_tasks": 1,
    "next_steps": 1,
    "unresolved_issues": 1,
    "user_preferences": 1,
    "important_facts": 2,
    "context_clues": 2,
}


class _Candidate(NamedTuple):
    """A sentence that may go into a section; `order` counts in the order in which they stand."""

    section: str
    text: str
    order: int
    told: int = 0


def summary(
    messages: Sequence[ShownMessage],
    earlier: Mapping[str, Sequence[str]],
    facts: Iterable[Fact],
    most: int,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
) -> Sections:
    """The sections of a summary of about `most` tokens; those of an `earlier` one are taken up.

    `facts` are in it however long they are. `patterns` as in `memory.rules`.
    """
    goal = list(earlier.get(GOAL) or _goal(messages))
    kept: Sections = compacting.completed({GOAL: goal} if goal else {}, facts)
    known = [_key(item) for items in kept.values() for item in items]
    candidates: dict[str, _Candidate] = {}
    for one in [*_earlier(earlier), *_said(messages, patterns)]:
        key = _key(one.text)
        if not any(there in key for there in known):
            candidates.setdefault(key, one)
    left = most - sum(_cost(item) for items in kept.values() for item in items)
    chosen = []
    for one in _best_first(list(candidates.values())):
        cost = _cost(one.text)
        if cost <= left:
            left -= cost
            chosen.append(one)
    for one in sorted(chosen, key=lambda one: one.order):
        kept.setdefault(one.section, []).append(one.text)
    return {name: kept[name] for name in SECTIONS if kept.get(name)}


def _goal(messages: Sequence[ShownMessage]) -> list[str]:
    """What the first human asked for."""
    for message in messages:
        said = summaries.harmless(message.content) if message.author_type == "human" else ""
        if said:
            return [_by(message, _beginning(message.content) or _cut(said, _LONGEST))]
    return []


def _beginning(content: str) -> str:
    """The first sentences of a text, as many as are short together, but one at least."""
    begun = ""
    for piece in _pieces(content):
        said = summaries.harmless(piece)
        if begun and len(begun) + len(said) > _LONGEST_GOAL:
            break
        begun = f"{begun} {_cut(said, _LONGEST)}".strip()
    return begun


def _earlier(earlier: Mapping[str, Sequence[str]]) -> Iterator[_Candidate]:
    items = [(name, item) for name in earlier if name != GOAL for item in earlier[name]]
    for order, (name, item) in enumerate(items, -len(items)):
        yield _Candidate(name, item, order, _told(_bare(item)))


def _said(
    messages: Sequence[ShownMessage], patterns: Mapping[Kind, Sequence[str]] | None
) -> Iterator[_Candidate]:
    order = 0
    for message in messages:
        if message.author_type == "system":
            continue
        noted = {
            draft.body or draft.title: SECTION_OF.get(draft.kind, "important_facts")
            for draft in rules.drafts_of(message.content, by="", source=None, patterns=patterns)
        }
        for piece in _pieces(message.content):
            said = summaries.harmless(piece)
            if not said or len(words.of_question(said)) < _FEWEST_WORDS:
                continue
            told = _told(said)
            section = next((noted[title] for title in noted if title in piece), "")
            if not section and message.author_type == "human" and _PREFERS.search(said):
                section = "user_preferences"
            elif not section:
                section = "important_facts" if told and not _ASKS.search(said) else "context_clues"
            yield _Candidate(section, _by(message, _cut(said, _LONGEST)), order, told)
            order += 1


def _pieces(content: str) -> Iterator[str]:
    for one in sentences.split(content):
        # A number may end a sentence, too.
        yield from _AFTER_NUMBER.split(one.text)


def _told(said: str) -> int:
    """How much a sentence tells: its numbers, names, paths and quotes, counted."""
    found = sum(len(pattern.findall(said)) for pattern in (_TELLS, _NAME, _STATES))
    return max(0, min(_MOST_TOLD, found) - len(_CHATS.findall(said)))


def _best_first(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """By section, and within it by what the library says, and by how much a sentence tells."""
    most = sorted(candidates, key=lambda one: (_RANKS[one.section], -one.order))[:MOST_SENTENCES]
    places = _places([one.text for one in most])
    worn = _worn([one.text for one in most])
    placed = [
        (_RANKS[one.section], math.sqrt(place + 1) * worn[at] / (1 + one.told), place, one)
        for at, (one, place) in enumerate(zip(most, places, strict=True))
    ]
    return [one for *_, one in sorted(placed)]


def _worn(said: Sequence[str]) -> list[float]:
    """In how many of the sentences a word of each stands, in the mean.

    What is said in other words again and again tells less than what is said once.
    """
    terms = [set(words.of_question(_bare(one))) for one in said]
    counts = Counter(term for one in terms for term in one)
    return [sum(counts[term] for term in one) / max(len(one), 1) for one in terms]


def _places(said: Sequence[str]) -> list[int]:
    """The place of each sentence in the library's order, the best first."""
    # It takes a third of a second to load, for what happens seldom.
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence  # noqa: PLC0415
    from sumy.summarizers.sum_basic import SumBasicSummarizer  # noqa: PLC0415

    numbers: dict[str, int] = {}

    def take(ranked: Sequence[Any]) -> Sequence[Any]:
        numbers.update((str(one.sentence), place) for place, one in enumerate(ranked))
        return ranked

    document = ObjectDocumentModel([Paragraph([Sentence(one, _Words()) for one in said])])
    SumBasicSummarizer()(document, take)
    return [numbers[one] for one in said]


class _Words:
    """What the library asks for the words of a sentence: words of any script."""

    def to_words(self, sentence: str) -> tuple[str, ...]:
        """The words that say something, without the author's name."""
        return tuple(words.of_question(_bare(sentence)))


def _by(message: ShownMessage, said: str) -> str:
    """What was said, and by whom; the name stands behind it, where it looks like no role."""
    name = summaries.harmless(message.author_name or message.author_id)
    return f"{said} ({name})" if name else said


def _bare(item: str) -> str:
    """An item without its author."""
    return _AUTHOR.sub("", item)


def _cut(said: str, longest: int) -> str:
    return said if len(said) <= longest else texts.cut(said, longest - 1) + "…"


def _cost(item: str) -> int:
    return tokens.estimate(item) + 2


def _key(item: str) -> str:
    return f" {' '.join(words.of_note(_bare(item)))} "
