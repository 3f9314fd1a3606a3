"""Find which statements a later one corrects: another value for the same thing, or an end to it.

Values are numbers with their unit, dates, times, names and codes. A later statement displaces an
earlier one if it has another value of the same kind and is about the same thing: the more clearly
its words announce a change ("instead of", "moved to", 改为, 不再), the less else it must share.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from arena_cli.notes.text import of_question

Value = tuple[str, str]
"""The kind of a value, and the value, folded."""

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_HAN = "[〇零一二两三四五六七八九十百千万亿]"
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNITS = "公里|小时|分钟|毫秒|千克|公斤|[台条个位次件人天年月周秒度米块份家款版层页升吨号]"
_FEW = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty"
_WEEKDAY = r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期|礼拜)[一二三四五六日天]"
_PATTERNS = {
    "code": (
        r"https?://\S+|`[^`]+`|\b\d+(?:\.\d+){2,}\b"
        r"|(?<![\w@.-])(?=[\w./\\@+-]*[a-z])(?:[\w+-]+@)?[\w-]+(?:[./\\_-][\w-]+)+(?<=[^\W_])"
    ),
    "date": (
        rf"\b{_DAY}(?: of)? {_MONTH}\b|\b(?:end of )?{_MONTH} {_DAY}\b|\bend of {_MONTH}\b"
        r"|\b\d{4}-\d\d-\d\d\b|\bthe \d{1,2}(?:st|nd|rd|th)\b"
        rf"|\d+ ?月(?: ?\d+ ?[日号]|[初中底上下]旬?)|\d{{1,2}} ?号(?!\w)|{_WEEKDAY}"
    ),
    "time": (
        r"\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b\d{1,2}:\d\d\b"
        r"|(?:\d{1,2}|[一二两三四五六七八九十零]{1,3}) ?点"
    ),
    "money": (
        rf"[€$£¥] ?{_NUMBER}|{_NUMBER} ?(?:k\b)? ?(?:€|\$|£|euros?\b|pounds?\b|dollars?\b|usd\b"
        r"|eur\b|万?元|万?欧元|万?美元|块钱|万(?!个|人|条|次))"
    ),
    "share": rf"{_NUMBER} ?(?:%|percent\b)|百分之{_HAN}+|万分之{_HAN}+|{_HAN}成",
    "count": rf"{_NUMBER} ?(?:{_UNITS})|(?!一[个条次份件块下天]){_HAN}+(?:{_UNITS})"
    rf"|\b(?:{_NUMBER}|{_FEW}) [a-z]+",
    "number": rf"(?<![\w.]){_NUMBER}\+?(?![\w])",
    "name": r"(?<![\w./@\\-])[A-Z][A-Za-z0-9_]*[#+]*(?:[ -][A-Z][A-Za-z0-9]+)*",
}
_VALUES = {
    kind: re.compile(pattern, 0 if kind == "name" else re.IGNORECASE)
    for kind, pattern in _PATTERNS.items()
}
# What is chosen, in Chinese, which writes names as it writes all else.
_CHOICE = re.compile(
    r"(?:选的?是|选了|用的是|采用|选用|打算用|就用|[改换]用|[改换]成了?|[改换]为|换了)"
    r"\s*([^，。；、！？\s]{1,12})"
)
_START = re.compile(r"(?:^|[.!?:;,]\s)[\s\"'(*-]*$")
_EVERY_DAY = frozenset(
    """
    i i'm i'll i'd i've ok okay the this that it we you they he she then there if in on at but and
    or so no yes oh and for from what when where who why how please thanks good great hi hello hey
    dear also both our my your as not all let let's one next now
    """.split()  # noqa: SIM905 - as many literals are harder to read
)
# Words that say little about what a statement is about.
_VAGUE = frozenset(
    """
    one two get gets got go goes going make makes made know need needs want wants use used uses like
    look looks looked think said say says tell told thing things way time times well good bit lot
    sure right per whole everything something nothing anyone back take takes took put come comes
    came give gives gave see let still really much many even
    """.split()  # noqa: SIM905 - as many literals are harder to read
)

_ENDED = (
    r"\bno longer\b|\bnot\b[^.]{0,40}\bany ?more\b|\bcancel\w*|\bdropped\b|\bscrapped\b"
    r"|\binstead of\b|\bnot going to\b|\brather than\b"
    r"|不再|不用了|不要了|取消|放弃|作废|而不是"
)
_END = re.compile(_ENDED, re.IGNORECASE)
_CHANGE = re.compile(
    rf"{_ENDED}|\binstead\b|\band not\b|\bafter all\b|\bscratch that\b|\bcorrection\b|\bturns out\b"
    r"|\b(?:changed|moved|switched|migrated|replac\w+|swapped|renamed|corrected|revised"
    r"|updated|raised|lowered|cut|reduced|increased|extended|shortened|postponed|delayed"
    r"|brought forward|rescheduled|slipped|takes? over|took over|taking over)\b"
    r"|\b(?:put|push(?:ed)?) (?:off|back)\b"
    r"|\b(?:from|as of) now on\b|\bwon't\b"
    r"|改[为成到用由叫]|换[成了到为]|[替取]代|接[手替]|推[迟后]|提前|顺延|延[期后到长]|不[买做用要]|调[整到高低了]|更[正新改]"
    r"|不是.{1,20}了|[涨降减加][到成了]|从.{0,6}起|[之以今]后的|[去来做]不了|另外定|变[成更]",
    re.IGNORECASE,
)

# Words that announce a change only right before a value: "now 30 euros", but not "for now, ...".
_NOW = re.compile(
    rf"(?:\b(?:now|new|actually)\b|现在|以后|之后|目前)[^,，.。]{{0,16}}?(?:\d|{_HAN}|[A-Z])"
)

# What a sentence is about, if things of a kind are numbered: "Node 5 listens on ...", "3 号仓库".
_NUMBERED = re.compile(
    r"\W*(?:\w+: )?(?:the |our )?([a-z]{2,} #?\d+)\b(?! ?[%:])|\W*(第 ?\d+|\d+ ?号(?=\w))",
    re.IGNORECASE,
)

# A sentence that begins with such a word is about what the sentence before it is about.
_REFERS = re.compile(
    r"\W*(?:(?:so|and|but|well|ok|okay|then) )?(?:they|it|that|this|those|these|he|she)\b"
    r"|\W*(?:所以|那|但是?|不过|而且)?[，,]?(?:[它他她]们?|这[个样家些]?|那[个样家些])",
    re.IGNORECASE,
)

# A word in more statements than this share says little about what one is about.
_COMMON = 0.08
_COMMON_AT_LEAST = 6
_SAME_THING = 0.6
MOST_STATEMENTS = 2_000


class Statement(NamedTuple):
    """A statement: its place in the conversation, its values, what it is about.

    `changes` is True if its words announce a change, `ends` if they end something, `follows` if it
    continues a message; `before` are the values of the sentence before it, then. `number` is which
    of several numbered things it is about. `words` are those of both sentences if it changes
    something: a name in lower case or at the beginning is no value, but mentions one.
    """

    order: int
    values: frozenset[Value]
    subjects: frozenset[str]
    changes: bool = False
    ends: bool = False
    follows: bool = False
    before: frozenset[Value] = frozenset()
    number: str = ""
    words: frozenset[str] = frozenset()

    def mentions(self, other: Statement) -> bool:
        """Return True if it has a value of the other statement, or a name of it in its words."""
        return bool(self.values & other.values) or any(
            kind == "name" and value in self.words for kind, value in other.values
        )


@lru_cache(maxsize=4_096)
def find_values(text: str) -> tuple[frozenset[Value], str]:
    """Return the values in a text, and the text without them."""
    values: set[Value] = {("choice", match[1]) for match in _CHOICE.finditer(text)}
    rest = text
    for kind, pattern in _VALUES.items():
        for match in pattern.finditer(rest):
            folded = " ".join(match.group().casefold().split())
            if kind == "name":
                folded = "" if _is_plain(match, rest) else _without_first(folded)
            if folded:
                values.add((_kind(kind, folded), folded.replace(" ", "")))
        if kind != "name":
            rest = pattern.sub(lambda match: " " * len(match.group()), rest)
    return frozenset(values), rest


def _is_plain(match: re.Match[str], text: str) -> bool:
    """Return True if a capitalised word may be one only because it begins a sentence."""
    word = match.group()
    if word.casefold() in _EVERY_DAY:
        return True
    is_first = _START.search(text, 0, match.start()) is not None or match.start() == 0
    return is_first and word[1:].islower() and " " not in word


def _without_first(folded: str) -> str:
    """Return a name without a first word that is none: "Also Stripe" is about Stripe."""
    first, _, others = folded.partition(" ")
    return others if first in _EVERY_DAY else folded


def _kind(kind: str, folded: str) -> str:
    """Return the kind of a value; counts of different things are of different kinds."""
    if kind != "count":
        return kind
    unit = folded.rsplit(maxsplit=1)[-1] if folded[-1:].isascii() else folded[-1]
    return f"count {unit.rstrip('s')}"


def changes(text: str) -> bool:
    """Return True if the words of a text announce a change."""
    return _CHANGE.search(text) is not None or _NOW.search(text) is not None


def refers(text: str) -> bool:
    """Return True if a sentence states a value of what the sentence before it names."""
    return _REFERS.match(text) is not None and any(
        kind != "name" for kind, _ in find_values(text)[0]
    )


def read_statement(text: str, order: int, before: str = "") -> Statement:
    """Return a sentence as a statement; `before` is the sentence before it in its message."""
    return Statement(order, *_parse_statement(text, before)[1:])


@lru_cache(maxsize=4_096)
def _parse_statement(text: str, before: str) -> Statement:
    """Return a sentence as a statement without its place: each summary reads the same ones."""
    numbered = _NUMBERED.match(text)
    values, rest = find_values(text[numbered.end() :] if numbered else text)
    is_change = changes(text)
    values_before, rest_before = find_values(before)
    about = f"{rest_before} {rest}" if is_change and before else rest
    names = {name for kind, name in values if kind == "name"}
    return Statement(
        0,
        values,
        frozenset(of_question(_CHANGE.sub(" ", about))) - names - _VAGUE,
        is_change,
        _END.search(text) is not None,
        bool(before),
        values_before,
        (numbered[1] or numbered[2]).casefold() if numbered else "",
        frozenset(re.findall(r"\w+", f"{before} {text}".casefold()) if is_change else ()),
    )


class Found(NamedTuple):
    """The places of statements that a later one corrects (`displaced`), or may correct (`related`).

    Each has the place of the last such statement.
    """

    displaced: dict[int, int]
    related: dict[int, int]


def find_corrections(
    statements: Sequence[Statement], correcting: Sequence[Statement] = ()
) -> Found:
    """Return which of the statements later ones correct; they are in the order of the talk.

    Those that come after them (`correcting`) only correct others, and share one place.
    """
    everything = (*statements, *correcting)[-MOST_STATEMENTS:]
    correctable = everything[: max(len(everything) - len(correcting), 0)]
    counts = Counter(chain.from_iterable([statement.subjects for statement in everything]))
    most = max(_COMMON_AT_LEAST, int(len(everything) * _COMMON))
    known = _EarlierStatements(frozenset(word for word, count in counts.items() if count > most))
    for statement in correctable:
        known.correct(statement)
        known.add(statement)
    after = max((statement.order for statement in correctable), default=0) + 1
    for statement in dict.fromkeys(correcting[-MOST_STATEMENTS:]):
        known.correct(statement._replace(order=after))
    return known.found


class _EarlierStatements:
    """The statements so far, by what they are about and by their values.

    Words that are `common` say little about what a statement is about.
    """

    def __init__(self, common: frozenset[str]) -> None:
        self.found = Found({}, {})
        self._common = common
        self._statements: list[Statement] = []
        self._by_subject: defaultdict[str, list[int]] = defaultdict(list)
        self._by_value: defaultdict[Value, list[int]] = defaultdict(list)

    def add(self, statement: Statement) -> None:
        """Add a statement."""
        number = len(self._statements)
        self._statements.append(statement)
        for word in statement.subjects - self._common:
            self._by_subject[word].append(number)
        for value in statement.values:
            self._by_value[value].append(number)

    def correct(self, later: Statement) -> None:
        """Note which of the statements a later one corrects, or may correct."""
        if not (later.ends or later.values):
            return
        for number, shared in self._count_shared(later).items():
            earlier = self._statements[number]
            # Statements with other numbers are about other things.
            if later.number and earlier.number not in ("", later.number):
                continue
            if _displaces(later, earlier, shared):
                self.found.displaced[earlier.order] = later.order
            elif _may_displace(later, earlier, shared):
                self.found.related[earlier.order] = later.order

    def _count_shared(self, later: Statement) -> dict[int, int]:
        """Count for each earlier statement what it is about that the later one is about, too."""
        shared: dict[int, int] = {}
        for word in later.subjects - self._common:
            for number in self._by_subject.get(word, ()):
                shared[number] = shared.get(number, 0) + 1
        if later.changes:
            for value in later.values.union(("name", word) for word in later.words):
                for number in self._by_value.get(value, ()):
                    shared.setdefault(number, 0)
        return shared


def _displaces(later: Statement, earlier: Statement, shared: int) -> bool:
    """Return True if the later statement corrects the earlier one."""
    mentions = later.mentions(earlier)
    if later.ends and (mentions or shared >= 2):
        return True
    different = _differing_kinds(later, earlier)
    if not different or (later.follows and earlier.order == later.order - 1 and not mentions):
        return False
    if later.changes:
        # Two names in statements with a word in common are no contradiction yet.
        is_named = different == {"name"} and not earlier.values & later.before
        return mentions or shared >= (2 if is_named else 1)
    return _are_same(later.subjects, earlier.subjects, shared)


def _are_same(subjects: frozenset[str], others: frozenset[str], shared: int) -> bool:
    """Return True if neither statement is about something that the other one is not."""
    fewest, most = sorted((subjects, others), key=len)
    if fewest == most:
        return shared >= 1
    return fewest <= most and shared >= 2 and shared >= len(fewest) * _SAME_THING


def _may_displace(later: Statement, earlier: Statement, shared: int) -> bool:
    """Return True if the later statement may say something else about the same thing."""
    if later.changes and (shared >= 2 or (shared >= 1 and later.mentions(earlier))):
        return True
    return shared >= 1 and bool(_differing_kinds(later, earlier) - {"name"})


def _differing_kinds(later: Statement, earlier: Statement) -> set[str]:
    """Return the kinds of values of which the later statement has another one."""
    kinds = {kind for kind, _ in earlier.values}
    return kinds.intersection(kind for kind, _ in later.values - earlier.values)
