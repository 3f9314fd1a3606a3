"""Find contradictions between claims: a denial, another amount, or another choice. Pure.

A title or a sentence is read as a claim: its words in order, what it denies and rules out. Words of
grammar and modality are left out, a denial is a property of the claim, numbers are digits with
their unit, and times are seconds, so that `60 minutes` and `1 hour` are equal.

It compares words alone, in English and Chinese, so it finds only what is plain: two claims that are
equal word by word but for

- a denial, or an opposite such as `enabled` and `disabled`;
- one amount, date or period;
- one value, where a thing has a single one: after `use`, `in`, `by`, `is`, `用`, `是`, ...;
- or of which one rules out what the other says (`X instead of Y`, `不用 Y`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from arena_cli.notes import text as text_module
from arena_cli.notes.model import Note
from arena_cli.workspace import visible_text

_DENIALS = (
    r"\b(?:not|never|no|without|nothing|cannot|forbid\w*|forbidden|prohibit\w*|ban(?:s|ned)?|"
    r"disabled?|disallow\w*|(?:drop|remove|stop)s? (?:the )?support(?:ing)?(?: of| for)?|"
    r"out of(?= scope)|optional|(?:remov|retir|discontinu|abandon)(?:es?|ed)|(?:drop|shut)s?|free|"
    r"(?<=is )off|(?<=are )off|off(?= by default))\b|n't\b|免费|下线|移除|去掉|废弃|不再|不(?!但|"
    r"仅|同|过|断|错|少于|超过)|禁止|严禁|没有|无需|无须|勿|未|停用|关闭|禁用|放弃|停止|取消"
)
_AFFIRMATIONS = (
    r"\b(?:allow(?:s|ed)?|enabled?|in(?= scope)|required?|requires|keeps?|kept|retain(?:s|ed)?|"
    r"paid|(?:moves?|moved|switch|switches|migrates?|goes|stays?|changes?)(?= (?:to|on|with|"
    r"from)\b)|(?<=is )on(?= (?:in|by|for)\b)|(?<=are )on(?= (?:in|by|for)\b))\b|保留|收费|允许|"
    r"可以|启用|开启|打开|必须|需要|不得不|已经?|应当?|应该|[使采选](?=用)|照[常旧]|每个?|"
    r"[须要能可得将把被都均的了再里]|所有|一律|统一|我们|决定|进行"
)
_REJECTED = re.compile(
    r"(?:\b(?:instead of|rather than|in place of|replac(?:es|ing))\s+|[,，;；]\s*not\s+|而不是|"
    r"而非|代替|替换|[,，]\s*不(?:再)?用|不(?:再)?用|(?<=\S)不[在是])\s*(?:on |in |with |"
    r"the )*(?P<words>[^,，。;；]+?)(?=\s+(?:for|as|to|in|on|from|any)\b|[,，。;；了]|\Z)",
    re.IGNORECASE,
)


# Forms that are equal: a frequency, one of a unit, a limit, a change to another thing.
_EQUALS = (
    (r"\b(?:every|each) day\b|每[天日](?!期)", " daily "),
    (r"\b(?:every|each) week\b|每个?(?:周|星期)(?![一二三四五六日天\d])", " weekly "),
    (r"\b(?:every|each) month\b|每个?月(?![初底末\d])", " monthly "),
    (r"\b(?:every|each) hour\b|每个?小时", " hourly "),
    (r"\ban?(?= (?:second|minute|hour|day|week|month|year)\b)", "1"),
    (r"\b(?:(?:is|are) )?(?:limited to|capped at|restricted to|at most|no more than|up to)\b", " "),
    (r"\bno more(?= \w+ than\b)|\bthan\b", " "),
    (r"[换改]成|切换?到|迁移?到|改到|改[用为由]", "用"),
)
_CHANGES = re.compile(r"\b(?:mov|switch|migrat|chang)\w*\b", re.IGNORECASE)
_LEFT = re.compile(
    r"\bfrom\s+(?:the )?(?P<words>(?!\d|(?:mon|tue|wed|thu|fri|sat|sun))\S+(?: \S+)?)(?=\s+to\b)",
    re.IGNORECASE,
)


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_ARTICLES = ("the", "a", "an", "any")
_CUES = frozenset(
    _list(
        "by through via in on with to is are from at as into use uses used using adopt adopts "
        "choose chose 用 走 是 为 到 在 由 放 存 发 属"
    )
)
_GRAMMAR = _CUES - frozenset("走放存发属") | frozenset(
    _list(
        "a an the all every each any per of for and or that this these those it its be been we i "
        "our you will shall must should may can could has have had having need needs do does done "
        "let now just only also always there my your their decided decide agreed built so coded "
        "wrote happen happens written based implemented"
    )
)
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate(
        _list(
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen sixteen seventeen eighteen nineteen twenty"
        ),
        1,
    )
} | {
    word: str(number * 10)
    for number, word in enumerate(
        _list("thirty forty fifty sixty seventy eighty ninety hundred"), 3
    )
}
_NUMBER_WORD = rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b"
_DIGITS = {char: number for number, char in enumerate("零一二三四五六七八九")} | {"两": 2}
_CHINESE_NUMBER = re.compile(
    r"半(?=个?[天年月小分])|(?<=[周第])[一二三四五六七八九十]|(?<=星期|礼拜)[一二三四五六]|"
    r"[一二两三四五六七八九十百]+(?=个?[天秒周年月元条次人个位名倍份台页期小分毫星版万亿])"
)
_SECONDS = (
    (r"milliseconds?|ms|毫秒", 0.001),
    (r"seconds?|secs?|s|秒钟?", 1.0),
    (r"minutes?|mins?|分钟", 60.0),
    (r"hours?|hrs?|h|个?小时", 3600.0),
    (r"days?|天", 86_400.0),
    (r"weeks?|个?星期", 604_800.0),
)
_TOKEN = re.compile(
    r"(?<![a-z\d.])(?P<number>\d+(?:\.\d+)?)\s*(?:"
    + "|".join(f"(?P<u{index}>{unit})" for index, (unit, _) in enumerate(_SECONDS))
    + rf")(?![a-z])|\d+(?:[.,]\d+)*|[^\W\d_{visible_text.UNSPACED}][\w.+#-]*[\w+#]|"
    rf"[^\W_{visible_text.UNSPACED}]|[{visible_text.UNSPACED}]",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"(?:%|percent|[kmgt]i?b|users?|people|requests?|rows?|items?|times|reviewers?|characters?|"
    r"dollars?|euros?|years?|months?|jan\w*|feb\w*|mar\w*|apr\w*|may|june?|july?|aug\w*|sep\w*|"
    r"oct\w*|nov\w*|dec\w*|[周年月元条次人个位名倍份台页期号日点万亿])"
)
_DATE_UNITS = frozenset("周月日号")
_DAYS = ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")
_OWNERS = frozenset(_list("leads owns maintains responsible"))
_PERIODS = frozenset(
    (
        *(f"{day}day{ending}" for day in _DAYS for ending in ("", "s")),
        *_list("january february march april may june july august september october november"),
        *_list("december hourly daily nightly weekly monthly quarterly yearly"),
    )
)


class Word(NamedTuple):
    """A word of a claim: its stem, as it was written, and what its place says of it.

    `is_unit`: it belongs to an amount or a date. `follows_cue`: a word such as `use`, `in` or `是`
    comes before it, after which a thing has one value.
    """

    stem: str
    shown: str
    follows_cue: bool
    is_unit: bool = False

    @property
    def is_number(self) -> bool:
        """True if it is an amount, or a part of a date."""
        return self.stem[0].isdigit()

    @property
    def is_period(self) -> bool:
        """True if it is a day of the week, a month, or how often something happens."""
        return self.stem in _PERIODS


class Claim(NamedTuple):
    """The words that a text states, without those of grammar; `rejected` are what it rules out."""

    words: tuple[Word, ...]
    denies: bool
    rejected: frozenset[str]

    @property
    def periods(self) -> frozenset[str]:
        """The days, months and frequencies in it: a small difference between them is no typo."""
        return frozenset(word.stem for word in self.words if word.is_period)

    @property
    def stems(self) -> tuple[str, ...]:
        """The stems of the words, in order."""
        return tuple(word.stem for word in self.words)


@lru_cache(maxsize=4096)
def read_claim(text: str) -> Claim:
    """Return the claim in a title or a sentence."""
    composed = visible_text.compose_text(text).replace("’", "'")
    for pattern, common in _EQUALS:
        composed = _compiled(pattern).sub(common, composed)
    patterns = (_REJECTED, _LEFT) if _CHANGES.search(composed) else (_REJECTED,)
    rejected: frozenset[str] = frozenset()
    plain = composed
    for expression in patterns:
        for match in expression.finditer(plain):
            rejected |= {word.stem for word in _words(match["words"])}
        plain = expression.sub(" ", plain)
    return Claim(tuple(_words(plain)), denies(plain), rejected)


def denies(text: str) -> bool:
    """Return True if a text negates or forbids something; two denials cancel each other."""
    return len(_compiled(_DENIALS).findall(text.replace("’", "'"))) % 2 == 1


def _words(text: str) -> list[Word]:
    matches = list(_TOKEN.finditer(_write_numbers(_drop_denials(text))))
    folded = [visible_text.fold_text(match[0]) for match in matches] + [""]
    words: list[Word] = []
    before = ""
    for index, match in enumerate(matches):
        token = folded[index]
        if words and token.isdigit() and _names_previous(before, folded[index + 1]):
            words[-1] = Word(
                words[-1].stem + token, f"{words[-1].shown} {token}", words[-1].follows_cue
            )
        elif token not in _GRAMMAR or (token == "may" and before in _CUES):
            is_unit = token in _DATE_UNITS or (
                before[:1].isdigit() and _UNIT.fullmatch(token) is not None
            )
            words.append(Word(_stem(match, token), match[0], before in _CUES, is_unit))
        if len(words) == 2 and token in _OWNERS:
            words[0] = words[0]._replace(follows_cue=True)  # one leads; another would be a change
        before = before if token in _ARTICLES else token
    return words


def _drop_denials(text: str) -> str:
    """Return the text without the words that deny or affirm."""
    for pattern in (_DENIALS, _AFFIRMATIONS):
        text = _compiled(pattern).sub(" ", text)
    return text


def _write_numbers(text: str) -> str:
    """Return the text with digits for numbers in words."""
    text = _CHINESE_NUMBER.sub(lambda match: str(_to_number(match[0])), text)
    return _compiled(_NUMBER_WORD).sub(lambda match: _NUMBER_WORDS[match[0].lower()], text)


def _stem(match: re.Match[str], token: str) -> str:
    """Return the form in which two words are equal: a time in seconds, or the word's stem."""
    for index, (_, factor) in enumerate(_SECONDS):
        if match[f"u{index}"] is not None:
            return f"{float(match['number']) * factor:.10g}s"
    return token if token in _PERIODS else text_module.stem(token)


def _names_previous(before: str, following: str) -> bool:
    """Return True if a number tells things apart, as in `step 2`, and is no amount."""
    is_amount = _UNIT.fullmatch(following) or _UNIT.fullmatch(before) or before in _GRAMMAR | _CUES
    return not (is_amount or before[:1].isdigit())


def _to_number(digits: str) -> float:
    """Return the value of a Chinese number below a thousand; 半 is a half."""
    if digits == "半":
        return 0.5
    total = current = 0
    for digit in digits:
        if digit in "十百":
            total += (current or 1) * (10 if digit == "十" else 100)
            current = 0
        else:
            current = _DIGITS[digit]
    return total + current


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_SAME_TOPIC = 0.6
_MOST_ALIKE = 200  # notes that share a word; one that more have in common tells nothing
_LONGEST_VALUE = 5
_MOST_EXTRAS = 2
_NAME_PREFIXES = "小老阿"  # 小王 and 小李 are two people


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
    claims = [read_claim(note.title) for note in ordered]
    for earlier, later in _pairs_about_the_same(claims):
        difference = find_difference(claims[earlier], claims[later])
        if difference is not None:
            yield Contradiction(ordered[earlier], ordered[later], difference)


def find_difference(first: Claim, second: Claim, *, within: bool = False) -> Contrast | None:
    """Return how two claims contradict each other; None if they do not.

    With `within`, the second may have further words before and after those of the first.
    """
    ruled_out = _ruled_out(first, second) or _ruled_out(second, first)
    if ruled_out is not None:
        return ruled_out
    segments = _different_segments(first.words, second.words, within)
    if _count_topics(first.words) <= sum(_count_topics(ours) for ours, _ in segments):
        return None
    if first.denies != second.denies:
        lacks_words = within and any(ours for ours, _ in segments)
        return Contrast("negation") if _are_extras(segments) and not lacks_words else None
    if len(segments) != 1 or not all(segments[0]):
        return None
    return _contrast(*segments[0])


def _different_segments(
    ours: Sequence[Word], theirs: Sequence[Word], within: bool
) -> list[tuple[Sequence[Word], Sequence[Word]]]:
    """Return the words that differ, in order, as those of the first and of the second."""
    matcher = SequenceMatcher(
        None, [word.stem for word in ours], [word.stem for word in theirs], autojunk=False
    )
    segments = []
    for tag, start, end, start_2, end_2 in matcher.get_opcodes():
        is_outside = within and tag == "insert" and (start == 0 or start == len(ours))
        if tag != "equal" and not is_outside:
            has_prefix = start > 0 < start_2 and ours[start - 1].stem in _NAME_PREFIXES
            segments.append((ours[start - has_prefix : end], theirs[start_2 - has_prefix : end_2]))
    return segments


def _are_extras(segments: Sequence[tuple[Sequence[Word], Sequence[Word]]]) -> bool:
    """Return True if one side has only a few words more, and no number."""
    extras = [word for segment in segments for side in segment for word in side]
    is_one_sided = not any(all(segment) for segment in segments)
    return (
        is_one_sided
        and len(extras) <= _MOST_EXTRAS
        and not any(any(char.isdigit() for char in word.stem) for word in extras)
    )


def _contrast(ours: Sequence[Word], theirs: Sequence[Word]) -> Contrast | None:
    """Return the contrast of the words in which two claims differ; None if both may hold."""
    shown = (_show(ours), _show(theirs))
    have_numbers = [any(word.is_number for word in side) for side in (ours, theirs)]
    if all(have_numbers):
        are_amounts = any(side[0].is_number or side[0].is_period for side in (ours, theirs))
        return Contrast("number", *shown) if are_amounts else None
    are_periods = all(word.is_period for word in (*ours, *theirs))
    are_values = not any(have_numbers) and _is_value(ours) and _is_value(theirs)
    return Contrast("option", *shown) if are_periods or are_values else None


def _is_value(words: Sequence[Word]) -> bool:
    """Return True if the words name one thing after a cue, and no state such as `hashed`."""
    first, *others = words
    # A cue within the words begins another part: the claims differ in more than one.
    return (
        first.follows_cue
        and len(words) <= _LONGEST_VALUE
        and not (len(words) == 1 and first.shown.endswith(("ed", "ing")))
        and not any(word.follows_cue for word in others)
    )


def _show(words: Sequence[Word]) -> str:
    separator = "" if any(word.shown >= "\u2e80" for word in words) else " "
    return separator.join(word.shown for word in words)


def _ruled_out(first: Claim, second: Claim) -> Contrast | None:
    """Return the contrast if the second rules out what the first says of the same subject."""
    stems = set(first.stems)
    if not second.rejected or not second.rejected <= stems or first.denies:
        return None
    topic, other_topic = stems - second.rejected, set(second.stems)
    shared = len(topic & other_topic)
    if topic and shared < _SAME_TOPIC * min(len(topic), len(other_topic)) and len(other_topic) > 1:
        return None
    options = [word for word in second.words if word.stem not in stems]
    rejected = [word for word in first.words if word.stem in second.rejected]
    return Contrast("option", _show(rejected), _show(options))


def _pairs_about_the_same(claims: Sequence[Claim]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the pairs that share two words, or the only one that a claim has."""
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        near: defaultdict[int, int] = defaultdict(int)
        for stem in {*claim.stems, *claim.rejected}:
            if len(holding[stem]) < _MOST_ALIKE:
                for other in holding[stem]:
                    near[other] += 1
            holding[stem].append(index)
        for other in sorted(near):
            if near[other] * 2 >= min(
                _count_topics(claim.words), _count_topics(claims[other].words)
            ):
                yield other, index


def _count_topics(words: Sequence[Word]) -> int:
    """Return how many words are not amounts, units, days or months."""
    return sum(not (word.is_number or word.is_period or word.is_unit) for word in words)
