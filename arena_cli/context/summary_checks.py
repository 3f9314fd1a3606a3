"""Check summaries that agents write: form, length, grounding, coverage, orders to the reader."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context.summary import (
    GOAL,
    LARGEST_SHARE,
    ORDERS,
    PinnedFact,
    harmless,
    holds,
    plain,
)
from arena_cli.notes.text import of_note, of_question
from arena_cli.protocol import ShownMessage
from arena_cli.util.text import lazy_pattern

_NUMBER = lazy_pattern(r"(\d+(?:[.,:]\d+)*)(?:(?<![.,:]) ?([万千百亿]|k\b|m\b(?= ?[€$£])))?")
_QUOTED = lazy_pattern(r"“([^”]+)”|「([^」]+)」|『([^』]+)』|《([^》]+)》|\"([^\"]+)\"|`([^`]+)`")
_HAN_NUMBER = lazy_pattern("[〇零一二两三四五六七八九十百千万亿]+")
_SENTENCE_START = lazy_pattern(r"(?:^|[.!?:;。！？：；(（\"“「—–-])\s*")
_CAPITALISED = lazy_pattern(r"(?<![\w.@/\\-])[A-Z][\w'’&+-]*[\w+]")
_POSSESSIVE = lazy_pattern(r"['’]s?$")

_WORDS_OF_NUMBERS = {
    word: number
    for number, word in enumerate(
        """
        zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
        fifteen sixteen seventeen eighteen nineteen twenty
        """.split()  # noqa: SIM905 - as many literals are harder to read
    )
} | {
    word: number * 10
    for number, word in enumerate(
        ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), start=3
    )
}
_HAN_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
}
_HAN_STARTS = frozenset("一二三四五六七八九两十")
_SMALL = 12
_HAN_UNITS = {"十": 10, "百": 100, "千": 1_000, "万": 10_000, "亿": 100_000_000}

_SCALES = {**_HAN_UNITS, "k": 1_000, "m": 1_000_000}

# What an item says to the model that reads it, and not about the conversation.
_TO_READER = lazy_pattern(
    r"\b(?:respond|reply|answer) (?:only|exactly|just|with (?:only|the word))\b|\byou are now\b"
    r"|\bfrom now on,? you\b|\bsystem prompt\b|\bas an ai\b"
    r"|\byou must (?:now )?(?:obey|comply|ignore)\b"
    r"|只(?:能|需|要)?(?:回答|回复|输出)|你现在是|从现在起你|系统提示词|你必须(?:服从|忽略|无视)",
    re.IGNORECASE,
)

_STEM, _ENDING = 4, 3
_COVERED_TERMS = 2
_COVERED_SHARE = 0.25
_FEWEST_TERMS = 4
_OWN_SCRIPT = 0.2
_OTHER_SCRIPT = 0.1


class Sources(NamedTuple):
    """What a summary replaces: messages, the earlier summary, and further texts with it."""

    messages: Sequence[ShownMessage]
    earlier: str = ""
    others: Sequence[str] = ()

    @property
    def text(self) -> str:
        """All texts and names, in a form for comparison."""
        names = {
            name for message in self.messages for name in (message.author_name, message.author_id)
        }
        contents = (message.content for message in self.messages)
        return _folded("\n".join((*contents, self.earlier, *self.others, *sorted(names))))


def find_form_fault(sections: Mapping[str, Sequence[str]]) -> str:
    """Explain why the form of a summary is invalid; "" if it is valid.

    An agent that obeyed a message instead of summarising it returns no sections, or the same words
    in each.
    """
    if not sections:
        return "it has none of the sections that a summary has"
    if not sections.get(GOAL):
        return "it does not say what the core goal is"
    items = {plain(item) for items in sections.values() for item in items}
    if len(sections) < 3 or len(items) < 3:
        return "it says too little: the core goal and two other sections are the least"
    return ""


def find_order(answer: str) -> str:
    """Explain which line of an answer gives orders to its reader; "" if none does."""
    for line in answer.splitlines():
        if ORDERS.search(line) or _TO_READER.search(line):
            return f"it gives orders to its reader: {' '.join(line.split())[:80]}"
    return ""


def find_length_fault(message_tokens: int, earlier: int, summary: int, shown_tokens: int) -> str:
    """Explain why a summary is too long for the messages that it replaces; "" if it is not.

    All arguments are tokens. `message_tokens` are those of the new messages and of the earlier
    summary, `earlier` those of the latter. A summary of more than `shown_tokens` has no room.
    """
    if summary >= message_tokens:
        return f"it is no smaller than what it replaces: {summary} tokens for {message_tokens}"
    if summary > earlier + (message_tokens - earlier) * LARGEST_SHARE:
        return f"it is hardly smaller than what it replaces: {summary} tokens for {message_tokens}"
    if summary > shown_tokens:
        return (
            f"it is too long to be shown: {summary} tokens where there is room for {shown_tokens}"
        )
    return ""


def find_invention(sections: Mapping[str, Sequence[str]], source: str) -> str:
    """Explain which number, quotation or name of a summary is not in its source; "" if none.

    `source` is `Sources.text`. A number counts in digits and in words.
    """
    numbers = _numbers(source, is_source=True)
    for item in (item for items in sections.values() for item in items):
        folded = _folded(item)
        for number in sorted(_numbers(folded) - numbers):
            return f"it states a number that nothing in the messages states: {number}"
        for groups in _QUOTED.findall(item):
            quoted = _folded("".join(groups))
            if quoted.strip() and quoted.strip(" .,。，") not in source:
                return f"it quotes what nobody said: {''.join(groups)[:80]}"
        for name in _names(item):
            if not _has_name(_folded(name), source):
                return f"it has a name that nothing in the messages has: {name}"
    return ""


def find_other_script(sections: Mapping[str, Sequence[str]], source: str) -> str:
    """Explain that a summary is in another script than its source; "" if it is not."""
    text = "\n".join(item for items in sections.values() for item in items)
    own, written = _scripts(source), _scripts(text)
    if not own or not written:
        return ""
    main, share = own.most_common(1)[0]
    other, other_share = written.most_common(1)[0]
    is_lost = (
        share / own.total() >= 1 - _OWN_SCRIPT and written[main] < _OWN_SCRIPT * written.total()
    )
    if is_lost or (other_share and own[other] < _OTHER_SCRIPT * own.total()):
        return "it is in another language than the conversation"
    return ""


def find_gap(
    sections: Mapping[str, Sequence[str]],
    messages: Sequence[ShownMessage],
    decisions: Sequence[PinnedFact],
    decisions_covered: float,
    messages_covered: float,
    earlier: str = "",
) -> str:
    """Explain why a summary covers too little; "" if it covers enough.

    One missing decision is never a reason: it is added. A message is covered if the summary has a
    quarter of its significant words, and at least two; short messages do not count. As many of the
    items of the `earlier` summary have to be covered, which else would be lost.
    """
    words = frozenset(of_note("\n".join(item for items in sections.values() for item in items)))
    missing = [fact.title for fact in decisions if not holds(words, harmless(fact.title))]
    if len(missing) > max(1, round(len(decisions) * (1 - decisions_covered))):
        count = len(decisions) - len(missing)
        return f"it covers {count} of {len(decisions)} decisions; missing: {missing[0]}"
    items = [line[2:] for line in earlier.splitlines() if line.startswith("- ")]
    texts = {
        "messages": [message.content for message in messages],
        "items of the earlier summary": items,
    }
    for name, contents in texts.items():
        covered, count = _count_covered(words, contents)
        if covered < max(min(count, 1), int(count * messages_covered)) and messages_covered:
            return f"it covers {covered} of {count} {name}"
    return ""


def _count_covered(words: frozenset[str], texts: Iterable[str]) -> tuple[int, int]:
    """Return how many of the texts these words cover, and how many texts are long enough."""
    terms = [of_question(text) for text in texts]
    long_enough = [some for some in terms if len(some) >= _FEWEST_TERMS]
    covered = sum(
        len(words.intersection(some)) >= max(_COVERED_TERMS, len(some) * _COVERED_SHARE)
        for some in long_enough
    )
    return covered, len(long_enough)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _numbers(folded: str, *, is_source: bool = False) -> frozenset[str]:
    """Return the numbers of a folded text in digits, without separators of thousands.

    Small numbers in words count in a source only: "one of them" states no number.
    """
    words = {
        str(number)
        for word in re.findall("[a-z]+", folded)
        if (number := _WORDS_OF_NUMBERS.get(word)) and (is_source or number > _SMALL)
    }
    han = {
        str(_han_number(run))
        for run in _HAN_NUMBER.findall(folded)
        if is_source or (run[0] in _HAN_STARTS and not _HAN_UNITS.keys().isdisjoint(run))
    }
    return frozenset(words | han).union(_in_digits(folded, is_source=is_source))


def _in_digits(folded: str, *, is_source: bool) -> Iterator[str]:
    """Yield the numbers in digits, multiplied by a scale after them; a source has them in both."""
    for number, scale in _NUMBER.findall(folded):
        is_scaled = bool(scale) and ":" not in number and number.count(".") < 2
        if is_scaled:
            yield f"{float(number.replace(',', '')) * _SCALES[scale]:.0f}"
        if is_source or not is_scaled:
            yield _plain_number(number)


def _plain_number(number: str) -> str:
    groups = number.split(",")
    is_grouped = len(groups) > 1 and all(len(group) == 3 for group in groups[1:])
    plain_number = "".join(groups) if is_grouped else number
    return plain_number.lstrip("0") or "0"


def _han_number(run: str) -> int:
    """Return the value of a number in Chinese characters."""
    if not any(char in _HAN_UNITS for char in run):
        return int("".join(str(_HAN_DIGITS[char]) for char in run))
    total = section = digit = 0
    for char in run:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char]
        elif _HAN_UNITS[char] >= _HAN_UNITS["万"]:
            total = (total + section + digit or 1) * _HAN_UNITS[char]
            section = digit = 0
        else:
            section += (digit or 1) * _HAN_UNITS[char]
            digit = 0
    return total + section + digit


def _has_name(name: str, source: str) -> bool:
    """Return True if a folded name, or a form of it with another ending, is in the source."""
    stem = name[: max(_STEM, len(name) - _ENDING)]
    return stem in source


def _names(item: str) -> list[str]:
    """Return the capitalised words that do not begin a sentence."""
    starts = {match.end() for match in _SENTENCE_START.finditer(item)}
    return [
        _POSSESSIVE.sub("", match.group())
        for match in _CAPITALISED.finditer(item)
        if match.start() not in starts or not match.group()[1:].islower()
    ]


def _scripts(text: str) -> Counter[str]:
    """Count the words of a text by script; each Han character or kana is one."""
    counts: Counter[str] = Counter()
    for run in re.findall(r"[^\W\d_]+", text):
        script = _script(run[0])
        counts[script] += len(run) if script in ("CJK", "HIRAGANA", "KATAKANA") else 1
    return counts


@lru_cache(maxsize=4_096)
def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]
