"""Summarise without a model: sort sentences of the messages into sections by their wording.

Sentences with the most information (numbers, names, rare words) come first. Among equals, LexRank
decides (Erkan and Radev, 2004): it ranks sentences by their similarity to others.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from arena_cli.context import tokens
from arena_cli.context.summary import (
    GOAL,
    SECTION_OF,
    SECTIONS,
    PinnedFact,
    Sections,
    completed,
    harmless,
    opened,
)
from arena_cli.notes import extraction
from arena_cli.notes.model import Kind
from arena_cli.notes.text import of_note, of_question, split
from arena_cli.protocol import ShownMessage
from arena_cli.util.text import cut_text

_MOST_TOLD = 4

_PREFERS = re.compile(
    r"\b(?:i|we)(?:'d| would)? (?:much )?(?:prefer|like|rather|want|hate|love)\b|\bmy preference\b"
    r"|\b(?:don't|do not|never) (?:like|want|use)\b|我们?更?(?:不?喜欢|偏好|希望|不?想|习惯)|偏好",
    re.IGNORECASE,
)
_SOUNDS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "key_decisions": (
            r"\b(?:(?:i|we)(?:'ll| will)|let's|let us) (?:go with|stay with|use|take|pick)\b"
            r"|就用|改用|选用"
        ),
        "unresolved_issues": (
            r"\b(?:can't|cannot|couldn't|unable to|fails?|failing|broken|expired|blocks|unclear"
            r"|known (?:problem|issue|bug)|still (?:not|no|waiting|missing))\b"
            r"|\bnot\b.{0,30}\byet\b|过期|失败|报错|崩溃|跑不|起不来|无法|没法|还没|尚未|阻塞|卡在|已知问题|不清楚"
        ),
        "next_steps": r"^next\b|\bnext,? (?:i|we)\b|^(?:接下来|下一步)",
        "pending_tasks": (
            r"\b(?:i|we)(?:'ll| will| need to| have to|(?:'m| am|'re| are) going to)\b"
            r"|我来|我会|我去|需要.{1,12}(?:续|补|修|改|做|写)"
        ),
    }.items()
}
# A number, a path, an address, a name in capitals or with a capital within, what stands in quotes.
_TELLS = re.compile(
    r"\d[\d.,:]*|https?:|[\w.-]+[/\\][\w./\\-]+|\b[A-Z][A-Z0-9_-]+\b|\b\w+[a-z][A-Z]\w*|`[^`]+`|[“「《\"][^”」》\"]+[”」》\"]"
)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
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


def render_wording(sentence: str) -> int:
    """Count the numbers, names, paths and quotes of a sentence."""
    count = sum(len(pattern.findall(sentence)) for pattern in (_TELLS, _NAME, _STATES))
    return max(0, min(_MOST_TOLD, count) - len(_CHATS.findall(sentence)))


def prefers(sentence: str) -> bool:
    """Return True if the sentence states a preference of its author."""
    return _PREFERS.search(sentence) is not None


def render_section(sentence: str) -> str:
    """Return the section of a summary that the wording of a sentence suggests."""
    if _ASKS.search(sentence):
        return "context_clues"
    sounds = (name for name, pattern in _SOUNDS.items() if pattern.search(sentence))
    return next(sounds, "important_facts" if render_wording(sentence) else "context_clues")


BY = "extractive (LexRank)"

MOST_SENTENCES = 300
"""So many are compared with each other, those that say most and the newest."""

# Each sentence hangs together with so many others at most, those that are most like it.
_MOST_LIKE = 8
# How much of a sentence's rank its neighbours have; it is PageRank's usual factor.
_DAMPING = 0.85
_MOST_ROUNDS = 1_000
_TOLERANCE = 1e-3  # of a rank, on average

_LONGEST = 300
_LONGEST_GOAL = 120
_FEWEST_WORDS = 3

_AFTER_NUMBER = re.compile(r"(?<=\d)\.\s+(?=[^\W\d_])")
_AUTHOR = re.compile(r" \([^()]*\)$")

_RANKS = {
    "key_decisions": 0,
    "pending_tasks": 1,
    "next_steps": 1,
    "unresolved_issues": 1,
    "user_preferences": 1,
}


class _Candidate(NamedTuple):
    """A candidate sentence for a section; `order` is its position in the conversation.

    `is_sure` is True if its wording clearly belongs to the section.
    """

    section: str
    text: str
    order: int
    told: int = 0
    is_sure: bool = True

    @property
    def rank(self) -> int:
        """The priority of a candidate if there is no room for all; lower ones come first."""
        return _RANKS.get(self.section, 2) if self.is_sure else 2


def summarize(
    messages: Sequence[ShownMessage],
    earlier: Mapping[str, Sequence[str]],
    facts: Iterable[PinnedFact],
    most: int,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
    asked_now: str = "",
) -> Sections:
    """Return the sections of a summary of about `most` tokens, with those of an `earlier` one.

    `facts` and `asked_now` are included regardless of their length. `patterns` are those of
    `memory.patterns`.
    """
    goal = list(earlier.get(GOAL) or _goal(messages))
    sections = completed(opened({GOAL: goal}, asked_now), facts)
    keys = [_key(item) for items in sections.values() for item in items]
    candidates: dict[str, _Candidate] = {}
    for candidate in [*_earlier(earlier), *_said(messages, patterns)]:
        key = _key(candidate.text)
        if not any(held in key or key in held for held in keys):
            candidates.setdefault(key, candidate)
    tokens_left = most - sum(_cost(item) for items in sections.values() for item in items)
    every = list(candidates.values())
    chosen = []
    for candidate in (
        every
        if sum(_cost(candidate.text) for candidate in every) <= tokens_left
        else _best_first(every)
    ):
        cost = _cost(candidate.text)
        if cost <= tokens_left:
            tokens_left -= cost
            chosen.append(candidate)
    for candidate in sorted(chosen, key=lambda one: one.order):
        sections.setdefault(candidate.section, []).append(candidate.text)
    return {name: sections[name] for name in SECTIONS if sections.get(name)}


def _goal(messages: Sequence[ShownMessage]) -> list[str]:
    """Return the sentences in which the first human stated the goal."""
    for message in messages:
        content = harmless(message.content) if message.author_type == "human" else ""
        if content:
            return [_by(message, _beginning(message.content) or _cut(content, _LONGEST))]
    return []


def _beginning(content: str) -> str:
    """Return the first sentences of a text: as many as are short together, at least one."""
    begun = ""
    for piece, _ in _pieces(content):
        sentence = harmless(piece)
        if begun and len(begun) + len(sentence) > _LONGEST_GOAL:
            break
        begun = f"{begun} {_cut(sentence, _LONGEST)}".strip()
    return begun


def _earlier(earlier: Mapping[str, Sequence[str]]) -> Iterator[_Candidate]:
    items = [(name, item) for name in earlier if name != GOAL for item in earlier[name]]
    for order, (name, item) in enumerate(items, -len(items)):
        yield _Candidate(name, item, order, render_wording(_bare(item)))


def _said(
    messages: Sequence[ShownMessage], patterns: Mapping[Kind, Sequence[str]] | None
) -> Iterator[_Candidate]:
    """Yield the sentences of the messages, each once."""
    seen: set[str] = set()
    for message in messages:
        if message.author_type == "system":
            continue
        new, repeated, first = [], [], len(seen)
        for piece, heads in _pieces(message.content):
            if piece not in seen:
                new.append(piece)
            elif not heads:
                repeated.append(piece)
            seen.add(piece)
        noted = _noted(_without(message.content, repeated), patterns) if new else {}
        for order, piece in enumerate(new, first):
            sentence = harmless(piece)
            if not sentence or len(of_question(sentence)) < _FEWEST_WORDS:
                continue
            score, text = render_wording(sentence), _by(message, _cut(sentence, _LONGEST))
            section = next((noted[title] for title in noted if title in piece), "")
            if not section and message.author_type == "human" and prefers(sentence):
                section = "user_preferences"
            if section:
                yield _Candidate(section, text, order, score)
            else:
                yield _Candidate(render_section(sentence), text, order, score, is_sure=False)


def _pieces(content: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences, and whether each is a heading of the next ones."""
    for sentence in split(content):
        # A number may end a sentence, too.
        for piece in _AFTER_NUMBER.split(sentence.text):
            yield piece, sentence.heading or piece.rstrip().endswith((":", "："))


def _without(content: str, pieces: Iterable[str]) -> str:
    """Return a text without these sentences of it, given in its order."""
    remaining, offset = [], 0
    for piece in pieces:
        start = content.find(piece, offset)
        if start >= 0:
            remaining.append(content[offset:start])
            offset = start + len(piece)
    return "".join([*remaining, content[offset:]])


def _noted(text: str, patterns: Mapping[Kind, Sequence[str]] | None) -> Mapping[str, str]:
    """Return the sentences of a text that are worth a note, with the section of each."""
    drafts = extraction.extract_by_rules(text, by="", source=None, patterns=patterns)
    return {
        draft.body or draft.title: SECTION_OF.get(draft.kind, "important_facts") for draft in drafts
    }


def _best_first(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Sort by section, then by the information in a sentence and its rank."""
    most = sorted(candidates, key=lambda one: (one.rank, -one.order))[:MOST_SENTENCES]
    terms = [frozenset(of_question(_bare(candidate.text))) for candidate in most]
    worn, ranks = _worn(terms), _ranks(terms)
    best = sorted(range(len(most)), key=lambda at: (-ranks[at], at))
    placed = [
        (
            most[index].rank,
            (1 + position / len(most)) * worn[index] / (1 + most[index].told),
            position,
        )
        for position, index in enumerate(best)
    ]
    return [most[best[position]] for *_, position in sorted(placed)]


def _worn(sentences: Sequence[frozenset[str]]) -> list[float]:
    """Return for each sentence the mean number of sentences that contain one of its words.

    A statement that is repeated in other words has less information than one that is made once.
    """
    counts = Counter(term for terms in sentences for term in terms)
    return [sum(counts[term] for term in terms) / max(len(terms), 1) for terms in sentences]


def _ranks(sentences: Sequence[frozenset[str]]) -> list[float]:
    """Return the LexRank of each sentence, given by its words.

    The weights of a sentence's links sum to one, so plain power iteration computes PageRank here.
    """
    links: list[list[tuple[int, float]]] = []
    for likeness in _alike(sentences):
        total = sum(likeness.values())
        links.append([(index, share / total) for index, share in likeness.items()])
    ranks = [0.0] * len(links)
    for _ in range(_MOST_ROUNDS):
        previous, ranks = ranks, [0.0] * len(links)
        for rank, neighbours in zip(previous, links, strict=True):
            for index, weight in neighbours:
                ranks[index] += rank * weight
        ranks = [_DAMPING * rank + 1.0 for rank in ranks]
        change = sum(abs(new - old) for new, old in zip(ranks, previous, strict=True))
        if change < _TOLERANCE * len(links):
            break
    return [round(rank, 6) for rank in ranks]


def _alike(sentences: Sequence[frozenset[str]]) -> Iterator[Mapping[int, float]]:
    """Yield for each sentence its most similar sentences, with the cosine of their words."""
    holding: dict[str, list[int]] = {}
    for index, terms in enumerate(sentences):
        for term in terms:
            holding.setdefault(term, []).append(index)
    for index, terms in enumerate(sentences):
        shared = Counter(chain.from_iterable(holding[term] for term in terms))
        del shared[index]
        likeness = {
            neighbour: count / math.sqrt(len(terms) * len(sentences[neighbour]))
            for neighbour, count in shared.items()
        }
        yield dict(heapq.nsmallest(_MOST_LIKE, likeness.items(), key=_most_alike_first))


def _most_alike_first(neighbour: tuple[int, float]) -> tuple[float, int]:
    index, likeness = neighbour
    return -likeness, index


def _by(message: ShownMessage, sentence: str) -> str:
    """Return a sentence with its author's name appended, unless the name looks like a role."""
    name = harmless(message.author_name or message.author_id)
    return f"{sentence} ({name})" if name else sentence


def _bare(item: str) -> str:
    """Return an item without its author."""
    return _AUTHOR.sub("", item)


def _cut(sentence: str, longest: int) -> str:
    return sentence if len(sentence) <= longest else cut_text(sentence, longest - 1) + "…"


def _cost(item: str) -> int:
    return tokens.estimate(item) + 2


def _key(item: str) -> str:
    return f" {' '.join(of_note(_bare(item)))} "
