"""A summary without a model: sentences of the messages, put into sections by their wording.

What tells most comes first: numbers, names, rare words. Among what tells as much it is LexRank
(Erkan and Radev, 2004): sentences rank by how they hang together, which the library networkx knows.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from arena_cli.context import compacting, summaries, tokens, wording
from arena_cli.context.compacting import SECTION_OF, Fact
from arena_cli.context.summaries import GOAL, SECTIONS, Sections
from arena_cli.ground import text as texts
from arena_cli.ground.protocol import ShownMessage
from arena_cli.memory import rules, sentences, words
from arena_cli.memory.note import Kind

BY = "extractive (networkx LexRank)"

MOST_SENTENCES = 300
"""So many are compared with each other, those that say most and the newest."""

# Each sentence hangs together with so many others at most, those that are most like it.
_MOST_LIKE = 8
# How much of a sentence's rank its neighbours have; it is PageRank's usual factor.
_DAMPING = 0.85

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
    """A sentence that may go into a section; `order` counts in the order in which they stand.

    `is_sure` says that its wording tells the section outright.
    """

    section: str
    text: str
    order: int
    told: int = 0
    is_sure: bool = True

    @property
    def rank(self) -> int:
        """What is taken first, where there is no room for all."""
        return _RANKS.get(self.section, 2) if self.is_sure else 2


def summary(
    messages: Sequence[ShownMessage],
    earlier: Mapping[str, Sequence[str]],
    facts: Iterable[Fact],
    most: int,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
    asked_now: str = "",
) -> Sections:
    """The sections of a summary of about `most` tokens; those of an `earlier` one are taken up.

    `facts`, and what is `asked_now`, are in it however long they are. `patterns` as in
    `memory.rules`.
    """
    goal = list(earlier.get(GOAL) or _goal(messages))
    kept = compacting.completed(compacting.opened({GOAL: goal}, asked_now), facts)
    known = [_key(item) for items in kept.values() for item in items]
    candidates: dict[str, _Candidate] = {}
    for one in [*_earlier(earlier), *_said(messages, patterns)]:
        key = _key(one.text)
        if not any(there in key or key in there for there in known):
            candidates.setdefault(key, one)
    left = most - sum(_cost(item) for items in kept.values() for item in items)
    every = list(candidates.values())
    chosen = []
    for one in every if sum(_cost(one.text) for one in every) <= left else _best_first(every):
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
    for piece, _ in _pieces(content):
        said = summaries.harmless(piece)
        if begun and len(begun) + len(said) > _LONGEST_GOAL:
            break
        begun = f"{begun} {_cut(said, _LONGEST)}".strip()
    return begun


def _earlier(earlier: Mapping[str, Sequence[str]]) -> Iterator[_Candidate]:
    items = [(name, item) for name in earlier if name != GOAL for item in earlier[name]]
    for order, (name, item) in enumerate(items, -len(items)):
        yield _Candidate(name, item, order, wording.told(_bare(item)))


def _said(
    messages: Sequence[ShownMessage], patterns: Mapping[Kind, Sequence[str]] | None
) -> Iterator[_Candidate]:
    """What the messages say, each sentence once; nothing else is done with what is repeated."""
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
            said = summaries.harmless(piece)
            if not said or len(words.of_question(said)) < _FEWEST_WORDS:
                continue
            told, text = wording.told(said), _by(message, _cut(said, _LONGEST))
            section = next((noted[title] for title in noted if title in piece), "")
            if not section and message.author_type == "human" and wording.prefers(said):
                section = "user_preferences"
            if section:
                yield _Candidate(section, text, order, told)
            else:
                yield _Candidate(wording.section(said), text, order, told, is_sure=False)


def _pieces(content: str) -> Iterator[tuple[str, bool]]:
    """The sentences, and whether each heads what follows."""
    for one in sentences.split(content):
        # A number may end a sentence, too.
        for piece in _AFTER_NUMBER.split(one.text):
            yield piece, one.heading or piece.rstrip().endswith((":", "："))


def _without(content: str, pieces: Iterable[str]) -> str:
    """A text without these sentences of it, which go in its order."""
    kept, at = [], 0
    for piece in pieces:
        found = content.find(piece, at)
        if found >= 0:
            kept.append(content[at:found])
            at = found + len(piece)
    return "".join([*kept, content[at:]])


def _noted(text: str, patterns: Mapping[Kind, Sequence[str]] | None) -> Mapping[str, str]:
    """What of a text is worth a note, and in which section that belongs."""
    drafts = rules.drafts_of(text, by="", source=None, patterns=patterns)
    return {
        draft.body or draft.title: SECTION_OF.get(draft.kind, "important_facts") for draft in drafts
    }


def _best_first(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """By section, and within it by how much a sentence tells, and by its rank."""
    most = sorted(candidates, key=lambda one: (one.rank, -one.order))[:MOST_SENTENCES]
    terms = [frozenset(words.of_question(_bare(one.text))) for one in most]
    worn, ranks = _worn(terms), _ranks(terms)
    best = sorted(range(len(most)), key=lambda at: (-ranks[at], at))
    placed = [
        (most[at].rank, (1 + place / len(most)) * worn[at] / (1 + most[at].told), place)
        for place, at in enumerate(best)
    ]
    return [most[best[place]] for *_, place in sorted(placed)]


def _worn(said: Sequence[frozenset[str]]) -> list[float]:
    """In how many of the sentences a word of each stands, in the mean.

    What is said in other words again and again tells less than what is said once.
    """
    counts = Counter(term for terms in said for term in terms)
    return [sum(counts[term] for term in terms) / max(len(terms), 1) for terms in said]


def _ranks(said: Sequence[frozenset[str]]) -> list[float]:
    """How much each sentence, given by its words, hangs together with the others, by LexRank."""
    import networkx  # noqa: PLC0415 - 0.1 s to load, for what happens seldom

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(said)))
    for at, like in enumerate(_alike(said)):
        whole = sum(like.values())
        graph.add_weighted_edges_from((at, other, much / whole) for other, much in like.items())
    # Where what leaves each node sums up to one this is PageRank, for which networkx wants scipy.
    ranks = networkx.katz_centrality(
        graph, _DAMPING, max_iter=1_000, tol=1e-3, normalized=False, weight="weight"
    )
    return [round(ranks[at], 6) for at in range(len(said))]


def _alike(said: Sequence[frozenset[str]]) -> Iterator[Mapping[int, float]]:
    """Of each sentence those that are most like it, with the cosine of their words."""
    holding: dict[str, list[int]] = {}
    for at, terms in enumerate(said):
        for term in terms:
            holding.setdefault(term, []).append(at)
    for at, terms in enumerate(said):
        shared = Counter(chain.from_iterable(holding[term] for term in terms))
        del shared[at]
        likeness = {
            other: count / math.sqrt(len(terms) * len(said[other]))
            for other, count in shared.items()
        }
        yield dict(heapq.nsmallest(_MOST_LIKE, likeness.items(), key=lambda one: (-one[1], one[0])))


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
