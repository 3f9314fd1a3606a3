"""Summarise without a model: quote the sentences of the messages that say most.

Sentences are sorted into sections by their wording, and quoted whole with author and message id.
Decisions and corrections come first, then sentences with many values (numbers, dates, names) for
their length. What a later sentence corrects is left out; questions, greetings and jokes come last.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from arena_cli.context import corrections, tokens
from arena_cli.context.corrections import Found, Statement
from arena_cli.context.summary import (
    GOAL,
    SECTION_OF,
    SECTIONS,
    PinnedFact,
    Replaced,
    Sections,
    completed,
    fitting_facts,
    harmless,
    opened,
    states_replaced,
    without_message_ids,
)
from arena_cli.notes import extraction
from arena_cli.notes.model import Kind
from arena_cli.notes.text import of_note, of_question, split
from arena_cli.protocol import ShownMessage
from arena_cli.util.text import cut_text

BY = "extractive (arena)"

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
# Words that state how something is, has to be, or is done.
_STATES = re.compile(
    r"\b(?:is|are|has|have|must|only|every|each|never|always|by|owns?|costs?|pays?|holds?|keeps?|kept"
    r"|lives?|runs?|uses?|goes|takes?|comes?|brings?|capp\w+|max|up to|go live|called|named"
    r"|until|per|minimum|maximum|limit|at least|at most"
    r"|because|responsible|contact|deadline|belongs?|writes?|wants?|needs?|can only)\b"
    r"|位于|[放存设建装]在|部署[在于]|来自|属于|归.{1,8}(?:管|所有)|[只仅][有能在]|负责|名叫|叫做?|默认|地址|版本|端口"
    r"|密码|账号|截止|每[天周月年次个]|依赖|基于|等于|[是为](?:由|用|以)|必须|至少|最多|上限|不能|保[存留]|定[在于为]"
    r"|一共|总共|大概|之[前后]|的是|交给|换[了成]|排[到在]|限|承诺|答应|推荐|用"
    r"|[^现还正]在[^\W\d_]{1,6}[室楼区库柜处馆院店路厅仓门]|以[内上下]|要求|可以|[由找让].{1,6}[写管做看查测负]",
    re.IGNORECASE,
)
# Who speaks of himself, or of how he sees it, seldom says what others must know later.
_CHATS = re.compile(
    r"\b(?:i|me|my|us|let's|maybe|perhaps|honest(?:ly)?|fine|well|sorry|btw|guess|feel|hope|love|sounds?|wow|oh"
    r"|had|happened|today|yesterday|this morning|last night|on average|median|so far"
    r"|ouch|nice|great|good|cool|agreed|noted|exactly|right|sure|seriously|funny|cute|poor)\b"
    r"|我(?!们)|今[天日]|昨[天晚]|已[记写同]|谢谢|也许|觉得|说实话|收到|好的|明白|辛苦|放心|佩服|加油|同意|没事",
    re.IGNORECASE,
)
_JOKES = re.compile(
    r"^(?:morning|afternoon|evening)\b|[:;]-?[)D(P]|[😀-🙏🤣🥲👍❤]"
    r"|\b(?:lol|rofl|haha\w*|hehe\w*|ha|hi|hello|hey|bye|cheers|thanks|thank you"
    r"|good (?:morning|afternoon|evening|night)|see you|have a (?:nice|good)|congrat\w*)\b"
    r"|哈哈|嘿嘿|呵呵|笑死|大家好|早上好|下午好|晚上好|你好|再见|明天见|拜拜|早安|晚安",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？][”」』\"'）)]*(?:\s*\S{0,3})?$|[吗呢][。.]?$"
    r"|^(?:why|who|what|how|where|when) (?:is|are|was|were|do|does|did|can|could|should|would)\b",
    re.IGNORECASE,
)
# A request is no fact either, unless it says what changes.
_REQUESTS = re.compile(
    r"^请|^麻烦|^(?:[\w ]{0,20}, )?(?:please|can|could|would|will) (?:you )?\b", re.IGNORECASE
)

# Who says what is to be done.
_AIMS = re.compile(
    r"\b(?:please|we (?:need|want|have to|must|should|are going to)|let's|build|write|make|plan"
    r"|i(?:'d| would)? (?:need|want|like)|create|set up|help|goal|today|project)\b"
    r"|请|帮|要|做|搭建|目标|今天|项目|需求",
    re.IGNORECASE,
)

MOST_SENTENCES = 2_000
"""The largest number of sentences that are looked at, the newest."""

_LONGEST = 500
_LONGEST_GOAL = 120
_LONGEST_PAIR = 160
_FEWEST_WORDS = 2
_MOST_VALUES = 4

_ABBREVIATION = re.compile(r"(?:^|\W)(?:mr|mrs|ms|dr|st|prof|vs|approx)\.\s*$", re.IGNORECASE)
_AFTER_NUMBER = re.compile(r"(?<=\d)\.\s+(?=[^\W\d_])")
_AUTHOR = re.compile(r" \([^()]*\)$")

_OF_SECTION = {
    "key_decisions": 3.0,
    "pending_tasks": 1.0,
    "next_steps": 1.0,
    "unresolved_issues": 1.5,
    "user_preferences": 1.0,
}
_OF_CORRECTION = 4.0
_OF_CHANGE = 2.0
_OF_WORN = 1.5
_OF_STATE = 1.0
_POWER = 0.4
_OF_EARLIER = 0.5


# An earlier summary stays if this share of the new one is left for new sentences; otherwise it is
# chosen from again, and this share is left free, so that the next ones only add to it.
_LEAST_NEW = 0.1
_FREE = 0.15


class _Candidate(NamedTuple):
    """A candidate sentence for a section; `order` is its position in the conversation.

    `score` is what it says, in values. `is_sure` is True if its wording clearly belongs to the
    section. `before` is the sentence before it in its message.
    """

    section: str
    text: str
    order: int
    score: float = 0.0
    is_sure: bool = True
    before: str = ""

    @property
    def key(self) -> str:
        """Its words, for comparison with those of others."""
        return _comparable(self.text)

    @property
    def cost(self) -> int:
        """Its tokens in a summary."""
        return _measure_cost(self.text)


@lru_cache(maxsize=4_096)
def _comparable(item: str) -> str:
    return f" {' '.join(of_note(_bare(item)))} "


@lru_cache(maxsize=4_096)
def _measure_cost(item: str) -> int:
    return tokens.estimate(without_message_ids(item)) + 2


def summarize(
    messages: Sequence[ShownMessage],
    earlier: Mapping[str, Sequence[str]],
    facts: Iterable[PinnedFact],
    most: int,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
    asked_now: str = "",
    *,
    replaced: Sequence[Replaced] = (),
    later: Sequence[ShownMessage] = (),
) -> Sections:
    """Return the sections of a summary of about `most` tokens, with those of an `earlier` one.

    As many of `facts` are included as fit into half of it, and `asked_now` regardless of its
    length. `patterns` are those of `memory.patterns`. What is `replaced` is left out, and so is
    what these or the `later` messages correct.
    """
    goal = list(earlier.get(GOAL) or _goal(messages))
    candidates = [*_earlier(earlier), *_said(messages, patterns)][-MOST_SENTENCES:]
    found = _find_corrections(candidates, later)
    kept_facts = _undisplaced(facts, candidates, found.displaced)
    sections = completed(opened({GOAL: goal}, asked_now), fitting_facts(kept_facts, most))
    current = [
        candidate
        for candidate in _unique(candidates, sections)
        if candidate.order not in found.displaced
        and not states_replaced(_bare(candidate.text), replaced)
    ]
    left = most - sum(tokens.estimate(item) + 2 for items in sections.values() for item in items)
    kept = [candidate for candidate in current if candidate.order < 0]
    if left - sum(candidate.cost for candidate in kept) < most * _LEAST_NEW:
        kept, left = [], left - int(most * _FREE)
    chosen = _choose(current, left, found, kept)
    for candidate in sorted(chosen, key=lambda candidate: candidate.order):
        sections.setdefault(candidate.section, []).append(candidate.text)
    return {name: sections[name] for name in SECTIONS if sections.get(name)}


def _find_corrections(candidates: Sequence[_Candidate], later: Sequence[ShownMessage]) -> Found:
    """Return which candidates later sentences correct."""
    statements = [_statement(candidate) for candidate in candidates]
    read = [_read_statements(message.content) for message in later]
    return corrections.find_corrections(statements, list(chain.from_iterable(read)))


@lru_cache(maxsize=256)
def _read_statements(content: str) -> Sequence[Statement]:
    """Return the statements of a text, without their places: each summary reads the newest ones."""
    statements = []
    before = ""
    for piece, _ in _pieces(content):
        if not is_chatter(piece):
            statements.append(corrections.read_statement(piece, 0, before))
        before = piece
    return tuple(statements)


def _statement(candidate: _Candidate) -> Statement:
    bare = _bare(candidate.text)
    if is_chatter(bare):
        return Statement(candidate.order, frozenset(), frozenset())
    return corrections.read_statement(bare, candidate.order, candidate.before)


def find_corrected(
    titles: Iterable[str], messages: Sequence[ShownMessage], later: Sequence[ShownMessage]
) -> list[str]:
    """Return the titles of notes that a later statement corrects.

    A title that none of the messages contains was said before them.
    """
    said = list(_said(messages, None))
    keys = [candidate.key for candidate in said]
    titles = list(dict.fromkeys(titles))
    older = [title for title in titles if not any(_comparable(title) in key for key in keys)]
    before = (_Candidate("", title, order) for order, title in enumerate(older, -len(older)))
    candidates = [*before, *said]
    displaced = _find_corrections(candidates, later).displaced
    gone = [candidate.key for candidate in candidates if candidate.order in displaced]
    return [title for title in titles if any(_comparable(title) in key for key in gone)]


def _undisplaced(
    facts: Iterable[PinnedFact], candidates: Sequence[_Candidate], displaced: Mapping[int, int]
) -> list[PinnedFact]:
    gone = [candidate.key for candidate in candidates if candidate.order in displaced]
    return [
        fact for fact in facts if not any(_Candidate("", fact.title, 0).key in key for key in gone)
    ]


def _unique(candidates: Iterable[_Candidate], sections: Sections) -> list[_Candidate]:
    """Return the candidates that repeat neither each other nor what is in the sections."""
    held = [_Candidate("", item, 0).key for items in sections.values() for item in items]
    unique: dict[str, _Candidate] = {}
    for candidate in candidates:
        key = candidate.key
        if not any(key in other or (other in key and _is_telling(other)) for other in held):
            unique.setdefault(key, candidate)
    return list(unique.values())


def _is_telling(key: str) -> bool:
    return len(key.split()) > _FEWEST_WORDS


def _choose(
    candidates: Sequence[_Candidate], most: int, found: Found, kept: Sequence[_Candidate]
) -> list[_Candidate]:
    """Return the candidates that say most for their length, within `most` tokens.

    Those of an earlier summary that are `kept` come first.
    """
    worn = _worn(candidates)
    correcting = frozenset(found.displaced.values())
    by_order = {candidate.order: candidate for candidate in candidates}
    worth = [
        _worth(candidate, correcting) / (1 + _OF_WORN * math.log(worn[index]))
        for index, candidate in enumerate(candidates)
    ]
    chosen: dict[int, _Candidate] = {}
    is_full = False  # then no question fills the rest
    first = frozenset(candidate.order for candidate in kept)
    for index in sorted(
        range(len(candidates)),
        key=lambda index: (
            candidates[index].order not in first, -worth[index], -candidates[index].order,
        ),
    ):  # fmt: skip
        # What may be out of date comes with the later statement about it, or not at all.
        related = [candidates[index]]
        while following := by_order.get(found.related.get(related[-1].order, 0)):
            related.append(following)
        for candidate in reversed(related):
            if candidate.order in chosen:
                continue
            if candidate.cost > most or (is_full and candidate.score < 0):
                is_full = True
                break
            most -= candidate.cost
            chosen[candidate.order] = candidate
    return list(chosen.values())


def _worn(candidates: Sequence[_Candidate]) -> list[float]:
    """Return for each candidate the mean number of candidates that contain one of its words.

    A statement that is repeated in other words has less information than one that is made once.
    """
    terms = [_list_terms(candidate.text) for candidate in candidates]
    counts = Counter(chain.from_iterable(terms))
    return [sum(map(counts.__getitem__, words)) / max(len(words), 1) or 1.0 for words in terms]


@lru_cache(maxsize=4_096)
def _list_terms(item: str) -> frozenset[str]:
    return frozenset(of_question(_bare(item)))


def _worth(candidate: _Candidate, correcting: frozenset[int]) -> float:
    score = candidate.score + (_OF_CORRECTION if candidate.order in correcting else 0.0)
    if candidate.is_sure and score > 0:
        score += _OF_SECTION.get(candidate.section, 0.0)
    return score / float(candidate.cost**_POWER)


def _goal(messages: Sequence[ShownMessage]) -> list[str]:
    """Return the sentences in which a human stated the goal, else the first ones of a human."""
    first: list[str] = []
    for message in messages:
        content = harmless(message.content) if message.author_type == "human" else ""
        goal = _beginning(message.content) if content else ""
        if goal and _AIMS.search(goal):
            return [_by(message, goal)]
        if content and not first:
            first = [_by(message, goal or _cut(content, _LONGEST))]
    return first


def _beginning(content: str) -> str:
    """Return the first sentences of a text: as many as are short together, at least one."""
    begun = ""
    for piece, _ in _pieces(content):
        sentence = harmless(piece)
        if _JOKES.search(sentence):
            continue
        if begun and len(begun) + len(sentence) > _LONGEST_GOAL:
            break
        begun = f"{begun} {_cut(sentence, _LONGEST)}".strip()
    return begun


def _earlier(earlier: Mapping[str, Sequence[str]]) -> Iterator[_Candidate]:
    items = [(name, item) for name in earlier if name != GOAL for item in earlier[name]]
    for order, (name, item) in enumerate(items, -len(items)):
        yield _Candidate(name, item, order, *_judge_earlier(name, item))


@lru_cache(maxsize=4_096)
def _judge_earlier(section: str, item: str) -> tuple[float, bool]:
    """Return the score of an item of an earlier summary, and whether its section is clear.

    The section of a quoted sentence is judged again: it may have been guessed.
    """
    bare = _bare(item)
    is_sure = bare == item or section in _noted(bare, None).values() or prefers(bare)
    return score_sentence(bare) + _OF_EARLIER, is_sure


def _said(
    messages: Sequence[ShownMessage], patterns: Mapping[Kind, Sequence[str]] | None
) -> Iterator[_Candidate]:
    """Yield the sentences of the messages, each once."""
    seen: Counter[str] = Counter()
    order = 0
    for message in messages:
        if message.author_type == "system":
            continue
        new, repeated = _new_pieces(message.content, seen)
        noted = _noted(_without(message.content, repeated), patterns) if new else {}
        for piece, before in zip(new, ["", *new], strict=False):
            order += 1
            sentence = harmless(piece)
            if len(of_question(sentence)) >= _FEWEST_WORDS and not is_idle(sentence):
                section = next((noted[title] for title in noted if title in piece), "")
                yield _candidate(message, sentence, section, order)._replace(before=before)


def _new_pieces(content: str, seen: Counter[str]) -> tuple[list[str], list[str]]:
    """Return the sentences of a text that were not seen yet, and those that were."""
    new, repeated = [], []
    for piece, heads in _pieces(content):
        if not seen[piece]:
            new.append(piece)
        elif not heads:
            repeated.append(piece)
        seen[piece] += 1
    return new, repeated


def _candidate(message: ShownMessage, sentence: str, section: str, order: int) -> _Candidate:
    text = _by(message, _cut(sentence, _LONGEST))
    score = score_sentence(sentence)
    if not section and message.author_type == "human" and prefers(sentence):
        section = "user_preferences"
    if section:
        return _Candidate(section, text, order, score)
    return _Candidate(guess_section(sentence), text, order, score, is_sure=False)


@lru_cache(maxsize=4_096)
def score_sentence(sentence: str) -> float:
    """Return how much a sentence says: its values and statements, less its chatter."""
    values, rest = corrections.find_values(sentence)
    chats = len(_CHATS.findall(sentence))
    score = (
        min(_MOST_VALUES, len(values))
        + _OF_STATE * min(2, len(_STATES.findall(rest)))
        - 0.5 * chats
    )
    if is_chatter(sentence):
        return min(0.0, score - _MOST_VALUES)
    change = _OF_CHANGE if values and corrections.changes(sentence) else 0.0
    return max(0.1, score + change)


@lru_cache(maxsize=4_096)
def is_chatter(sentence: str) -> bool:
    """Return True for questions, greetings and jokes."""
    if _ASKS.search(sentence) or is_idle(sentence):
        return True
    return _REQUESTS.search(sentence) is not None and not corrections.changes(sentence)


def is_idle(sentence: str) -> bool:
    """Return True for greetings and jokes without a figure or a code."""
    if not _JOKES.search(sentence):
        return False
    return all(kind == "name" for kind, _ in corrections.find_values(sentence)[0])


def prefers(sentence: str) -> bool:
    """Return True if the sentence states a preference of its author."""
    return _PREFERS.search(sentence) is not None


def guess_section(sentence: str) -> str:
    """Return the section of a summary that the wording of a sentence suggests."""
    if is_chatter(sentence):
        return "context_clues"
    sounds = (name for name, pattern in _SOUNDS.items() if pattern.search(sentence))
    has_values = bool(corrections.find_values(sentence)[0])
    return next(sounds, "important_facts" if has_values else "context_clues")


@lru_cache(maxsize=128)
def _pieces(content: str) -> Sequence[tuple[str, bool]]:
    """Return the sentences, and whether each is a heading of the next ones.

    Cached: a message is first among the later ones of a summary, then among its own.
    """
    pieces: list[tuple[str, bool]] = []
    for piece, heads in _iter_pieces(content):
        before, headed = pieces[-1] if pieces else ("", True)
        if not headed and corrections.refers(piece) and len(before) + len(piece) <= _LONGEST_PAIR:
            pieces[-1] = (f"{before.rstrip()} {piece}", heads)
        else:
            pieces.append((piece, heads))
    return tuple(pieces)


def _iter_pieces(content: str) -> Iterator[tuple[str, bool]]:
    begun = ""
    for sentence in split(content):
        if _ABBREVIATION.search(sentence.text):
            begun += f"{sentence.text.rstrip()} "
            continue
        # A number may end a sentence, too.
        for piece in _AFTER_NUMBER.split(begun + sentence.text):
            yield piece, sentence.heading or piece.rstrip().endswith((":", "："))
        begun = ""
    if begun:
        yield begun.rstrip(), False


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


def _by(message: ShownMessage, sentence: str) -> str:
    """Return a sentence with its author, unless the name looks like a role, and its message id."""
    name = harmless(message.author_name or message.author_id)
    return f"{sentence} ({name}, {message.id})" if name else f"{sentence} ({message.id})"


@lru_cache(maxsize=4_096)
def _bare(item: str) -> str:
    """Return an item without its author."""
    return _AUTHOR.sub("", item)


def _cut(sentence: str, longest: int) -> str:
    return sentence if len(sentence) <= longest else cut_text(sentence, longest - 1) + "…"
