"""Review a team's notes: solved, stale, double, or at odds with each other. Pure.

- *approval*: a note says that it is approved and is not, or was changed since. It is only reported.
- *solved*: a message later than the blocker says that it is solved
  (`compliance.says_solved`). A conclusion is proposed, and that the blocker be archived.
- *stale*: a next action that was not touched for more than 30 days, to be archived.
- *duplicate*: two notes of one kind whose titles say the same; the approved one stays, else the
  earlier. What counts is every word that tells something, in its order, the numbers and a negation.
- *contradiction*: two decisions or requirements about the same thing that differ in a negation, in
  a number, or in what was chosen. It is only reported: people say which one holds.

Looked at are living notes only: not archived, not superseded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Literal, NamedTuple

from arena_cli.notes import compliance, extraction, lifecycle, staging
from arena_cli.notes import text as text_module
from arena_cli.notes.model import PINNING_KINDS, Note
from arena_cli.notes.text import significant_words
from arena_cli.protocol import Message, parse_seq
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
        odds = _at_odds(earlier, later)
        if odds is not None:
            yield odds


class _Choice(NamedTuple):
    """A choice, and the significant words of its subject."""

    option: str
    topic: frozenset[str]


class _Claim(NamedTuple):
    """The claim in a note's title; `about` are its significant words without numbers."""

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
            frozenset(word for word in significant_words(title) if not word[0].isdigit()),
            denies(title),
            text_module.numbers(title),
            _amounts(title),
            _choice(title),
        )


def _pairs_about_the_same(claims: Sequence[_Claim]) -> Iterator[tuple[_Claim, _Claim]]:
    """The pairs that share a word, the earlier one first."""
    ordered = sorted(claims, key=lambda claim: (claim.note.created, claim.note.id))
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for index, claim in enumerate(ordered):
        near: set[int] = set()
        for word in claim.about:
            if len(holding[word]) < _MOST_ALIKE:
                near.update(holding[word])
            holding[word].append(index)
        for other in sorted(near):
            yield ordered[other], claim


def _at_odds(first: _Claim, second: _Claim) -> Odds | None:
    if text_module.likeness(first.about, second.about) >= ABOUT_THE_SAME:
        if first.denies != second.denies and first.numbers == second.numbers:
            return Odds(first.note, second.note, "negation")
        ours, theirs = first.amounts, second.amounts
        # Another `step 2` is another thing; another `2 seconds` is not.
        same_things = first.numbers - {*ours} == second.numbers - {*theirs}
        if ours and theirs and ours != theirs and same_things:
            return Odds(first.note, second.note, "number", ", ".join(ours), ", ".join(theirs))
    chosen, otherwise = first.choice, second.choice
    if not chosen or not otherwise or first.denies or second.denies:
        return None
    is_same = visible_text.fold_text(chosen.option) == visible_text.fold_text(otherwise.option)
    if is_same or text_module.likeness(chosen.topic, otherwise.topic) < _SAME_TOPIC:
        return None
    return Odds(first.note, second.note, "option", chosen.option, otherwise.option)


def denies(title: str) -> bool:
    """Return True if a title says that something is not so, or may not be."""
    return _compiled(_NOT).search(title.replace("’", "'")) is not None


def _amounts(title: str) -> tuple[str, ...]:
    """The numbers that say how much, in order: those with a unit, or after `at least` and such."""
    matches = _compiled(_AMOUNT).finditer(visible_text.fold_text(title))
    return tuple(match["before"] or match["after"] for match in matches)


def _choice(title: str) -> _Choice | None:
    """Return the choice in a title; None where it states none, or not for what."""
    plain = _compiled(_NOT_CHOSEN).sub(" ", title)
    match = _compiled(_CHOSEN).match(plain)
    if match is None:
        return None
    topic = significant_words(f"{match['before']} {match['after']}")
    return _Choice(match["option"].rstrip("."), topic) if topic else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


STALE_AFTER = timedelta(days=30)

_MOST_SLIPS = 2  # words that two titles may write differently and still say the same

_DECIDED = re.compile(
    r"\A\s*(?:(?:we|the team|it)(?:'ve| have| has| was| is)? (?:decided|agreed)"
    r"(?: that| to| on)?\b|"
    r"(?:我们|团队|大家|会议)?(?:最终|已经?|一致)?(?:决定|商定|约定|同意))",
    re.IGNORECASE,
)

_WHY = {
    "en": {
        "changed": staging.CHANGED,
        "untold": staging.UNTOLD,
        "solved": "{message} says that it is solved: {said}",
        "stale": "unchanged for {days} days",
        "duplicate": "says the same as {other}",
        "negation": "one denies what the other says",
        "number": "they differ in a number ({ours} and {theirs})",
        "option": "another choice for the same thing ({ours} and {theirs})",
    },
    "zh": {
        "changed": "批准之后被改动过",
        "untold": "写着已批准，但没有批准的记录",
        "solved": "{message} 说已经解决：{said}",
        "stale": "{days} 天没有改动",
        "duplicate": "与 {other} 说的相同",
        "negation": "一个否定了另一个",
        "number": "数字不同（{ours} 与 {theirs}）",
        "option": "对同一件事选择不同（{ours} 与 {theirs}）",
    },
}


class NoteFinding(NamedTuple):
    """Something about a note that somebody should look at, and why.

    `other` is the note that a duplicate gives way to, or that contradicts it. `message` and
    `conclusion` are where and how a blocker is called solved.
    """

    what: Literal["approval", "solved", "stale", "duplicate", "contradiction"]
    note: Note
    reason: str
    other: Note | None = None
    message: str = ""
    conclusion: str = ""

    @property
    def can_be_applied(self) -> bool:
        """True if arena can apply it by itself."""
        return self.what not in ("approval", "contradiction")


def inspect(
    notes: Iterable[Note],
    messages: Iterable[Message],
    now: datetime,
    *,
    seen: Mapping[str, int] | None = None,
    language: str = "en",
) -> list[NoteFinding]:
    """Everything that is found, by kind of finding, then in the order of the notes.

    `messages` are those of the notes' session, in order; `seen` is the seq of the last message
    that each note, by its id, was taken from. A note of which one thing is found that can be
    applied is not looked at for another.
    """
    reason = _WHY.get(language, _WHY["en"])
    living = [note for note in notes if note.is_living]
    claims = [
        NoteFinding("approval", note, _claim(note, reason)) for note in living if note.approval
    ]
    findings = [*_solved(living, messages, seen or {}, reason), *_stale(living, now, reason)]
    done = {finding.note.id for finding in findings}
    remaining = [note for note in living if note.id not in done]
    findings += _duplicates(remaining, reason)
    done = {finding.note.id for finding in findings}
    findings += _contradictions([note for note in remaining if note.id not in done], reason)
    return [*claims, *findings]


def _claim(note: Note, reason: Mapping[str, str]) -> str:
    return reason["changed"] if note.approval == staging.CHANGED else reason["untold"]


def _solved(
    notes: Sequence[Note],
    messages: Iterable[Message],
    seen: Mapping[str, int],
    reason: Mapping[str, str],
) -> Iterator[NoteFinding]:
    blockers = [note for note in notes if note.kind == "blocker"]
    solved: dict[str, NoteFinding] = {}
    for message in messages if blockers else ():
        later = [note for note in blockers if _is_later(message, note, seen)]
        for note, sentence in compliance.says_solved(later, message.content):
            solved.setdefault(
                note.id,
                NoteFinding(
                    "solved",
                    note,
                    reason["solved"].format(message=message.id, said=extraction.title_of(sentence)),
                    message=message.id,
                    conclusion=extraction.title_of(sentence),
                ),
            )
    yield from (solved[note.id] for note in blockers if note.id in solved)


def _is_later(message: Message, note: Note, seen: Mapping[str, int]) -> bool:
    """Return True if a message came after the last message of the blocker."""
    told_seq = seen.get(note.id) or parse_seq(note.source or "")
    if told_seq:
        return message.seq > told_seq
    written, received = _time(note.created), _time(message.timestamp)
    return written is not None and received is not None and received > written


def _stale(
    notes: Sequence[Note], now: datetime, reason: Mapping[str, str]
) -> Iterator[NoteFinding]:
    for note in notes:
        touched = _time(note.updated) or _time(note.created)
        if note.kind == "next_action" and touched and now - touched > STALE_AFTER:
            yield NoteFinding("stale", note, reason["stale"].format(days=(now - touched).days))


def _time(text: str) -> datetime | None:
    """A time as a note has it, in UTC where it says no zone; None where it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _duplicates(notes: Sequence[Note], reasons: Mapping[str, str]) -> list[NoteFinding]:
    """Each note that says what another one said; that one stays, and is the same for all."""
    by_note: dict[str, NoteFinding] = {}
    alike: defaultdict[tuple[str, int, frozenset[str]], list[_Titled]] = defaultdict(list)
    by_words: dict[tuple[str, bool, tuple[str, ...]], Note] = {}
    for note in sorted(notes, key=lambda note: (note.status != "approved", note.created, note.id)):
        titled = _Titled.of(note)
        near = alike[note.kind, len(titled.words), text_module.numbers(note.title)]
        telling = (note.kind, denies(note.title), _telling(note.title))
        same = by_words.get(telling) if telling[2] else None
        same = same or next(
            (candidate.note for candidate in near if _says_the_same(candidate, titled)), None
        )
        if same is None:
            by_words[telling] = note
            near.append(titled)
        else:
            reason = reasons["duplicate"].format(other=same.id)
            by_note[note.id] = NoteFinding("duplicate", note, reason, same)
    return [by_note[note.id] for note in notes if note.id in by_note]


def _telling(title: str) -> tuple[str, ...]:
    """The words that tell something, in order; not that it was decided."""
    return tuple(text_module.of_question(_DECIDED.sub("", title)))


class _Titled(NamedTuple):
    """A note, the words of its title, and each of them once."""

    note: Note
    words: tuple[str, ...]
    each: frozenset[str]

    @classmethod
    def of(cls, note: Note) -> _Titled:
        words = lifecycle.words(note.title)
        return cls(note, words, frozenset(words))


def _says_the_same(first: _Titled, second: _Titled) -> bool:
    if len(first.each & second.each) < len(first.each) - _MOST_SLIPS:
        return False
    return lifecycle.match_titles(first.note.title, second.note.title)


def _contradictions(notes: Sequence[Note], reasons: Mapping[str, str]) -> Iterator[NoteFinding]:
    for odds in among(notes):
        reason = reasons[odds.what].format(ours=odds.ours, theirs=odds.theirs)
        yield NoteFinding("contradiction", odds.later, reason, odds.earlier)
