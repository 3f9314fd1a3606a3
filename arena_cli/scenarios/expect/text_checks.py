"""Check one text: small pure functions that return whether it holds, and why.

Text, wanted texts and patterns are compared in NFKC, so that full-width and decomposed forms of
one character are one.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from arena_cli.scenarios.expect.context import CheckContext, Subject
from arena_cli.util import process_signals
from arena_cli.util.text import cut_text
from arena_cli.util.user_pattern import PatternTimeout, UserPattern
from arena_cli.workspace import visible_text
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape

# An escape, or a character outside ASCII: what NFKC makes of it must not become an operator.
_PIECE = re.compile(r"\\.|[^\x00-\x7f]", re.DOTALL)


# What is no condition: escapes and sets of characters, which may have such marks in them.
_CHARACTERS = re.compile(r"\\[^AbBZz]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_BOUND = re.compile(r"[\^$]|\\[AbBZz]")

_WORDS = (
    "Answer the question briefly.",
    "请帮我拆解这个需求。",
    "On 2026-01-31 at 12:00, 3 of 7 (43 %)!",
)


def matches_empty(pattern: str) -> bool:
    """Return whether a pattern matches the empty text."""
    return compiled(pattern).search("") is not None


def holds_of_every_text(pattern: str) -> bool:
    """Return whether a pattern certainly matches every text: nothing, at its beginning."""
    conditions = _CHARACTERS.sub("", pattern)
    is_bound = _LOOK_AROUND.search(conditions) or _BOUND.search(conditions)
    return not is_bound and matches_empty(pattern)


def looks_around(pattern: str) -> bool:
    """Return True if a pattern has conditions on the text around the match, as `(?!...)`."""
    return _LOOK_AROUND.search(_CHARACTERS.sub("", pattern)) is not None


def count_swallowed(pattern: str) -> tuple[int, int]:
    """Return of how many ordinary sentences a pattern leaves nothing, and their number."""
    matcher = compiled(pattern)
    return sum(not matcher.sub(lambda _: "", words).strip() for words in _WORDS), len(_WORDS)


def form(text: str, ignore_case: bool = False) -> str:
    """Return the form in which texts are compared: NFKC, case-folded with `ignore_case`."""
    folded = unicodedata.normalize("NFKC", text)
    return unicodedata.normalize("NFKC", folded.casefold()) if ignore_case else folded


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False) -> UserPattern:
    """Compile the pattern in NFKC, with a full-width `（` as a literal. Raises `re.error`."""

    def literal(piece: re.Match[str]) -> str:
        written = piece[0]
        if written.isascii():
            return written
        plain = form(written.removeprefix("\\"))
        return "".join(re.escape(c) if c.isascii() else c for c in plain)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[[` may mean something in a later Python
        flags = re.IGNORECASE if ignore_case else 0
        return UserPattern(form(_PIECE.sub(literal, pattern)), flags)


EXTRA = process_signals.describe_install("language")

# By ISO 15924 and Unicode: the scripts in which one language alone of those here is written.
_BY_SCRIPT = {
    "HANGUL": "ko",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "GREEK": "el",
    "HEBREW": "he",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "TAMIL": "ta",
    "TELUGU": "te",
}
_OWN_SCRIPT = frozenset({"zh", "ja", *_BY_SCRIPT.values()})
_CODE = re.compile(r"[a-z]{2}")
_SPANS = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|[@＠][\w-]+", re.DOTALL)
_OTHER = ""


def is_code(code: str) -> bool:
    """Return True if it looks like a code of ISO 639-1."""
    return _CODE.fullmatch(code) is not None


def is_in(text: str, code: str) -> tuple[bool, str]:
    """Return True if most of a text is in that language, and the language found, in words.

    Code, links and mentions do not count. A Han letter counts as a word, and a text with a kana for
    every ten Han letters or fewer is Japanese. Raises LookupError if the library is needed and
    missing.
    """
    prose = _SPANS.sub(" ", unicodedata.normalize("NFKC", text))
    counts = Counter(_units(prose))
    kana = counts.pop("kana", 0)
    if kana and kana * 10 >= counts["zh"]:
        counts["ja"] = kana + counts.pop("zh", 0)
    if not counts:
        return False, "no words"
    language = max(counts, key=lambda key: counts[key])
    if language or code in _OWN_SCRIPT:
        return language == code, language or "a language of another script"
    language = _by_library(prose)
    return language == code, language


def _units(prose: str) -> Iterator[str]:
    """Yield the language of each letter of a script without spaces, and of each other word."""
    for word in re.findall(r"[^\W\d_]+", prose):
        is_new_unit = True
        for letter in word:
            script = _script(letter)
            if script:
                is_new_unit = False
                yield script
        if is_new_unit:
            yield _OTHER


def _script(letter: str) -> str:
    if letter.isascii():
        return ""
    name = unicodedata.name(letter, "")
    if name.startswith(("CJK ", "IDEOGRAPHIC")):
        return "zh"
    if name.startswith(("HIRAGANA", "KATAKANA")):
        return "kana"
    return _BY_SCRIPT.get(name.partition(" ")[0], "")


def _by_library(prose: str) -> str:
    try:
        import py3langid  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise LookupError(f"to detect this language, install the extra: {EXTRA}") from error
    return str(py3langid.classify(prose)[0])


EXCERPT = 160  # characters of a text that a verdict shows
REASON = 2000  # characters of a reason that somebody else gives


class NoVerdict(Exception):
    """A check that neither holds nor fails; the message has the reason.

    `expected` is its expectation, in words.
    """

    def __init__(self, expected: str, reason: str) -> None:
        super().__init__(reason)
        self.expected = expected


class Verdict(NamedTuple):
    """The result of an expectation: whether it holds, the expected and the actual value, in words.

    `at` is the place of the failed part, below the expectation's own, if it has parts.
    """

    holds: bool
    expected: str
    actual: str
    at: Loc = ()


class Check(NamedTuple):
    """An expectation, with its place below `expect`; `warns`: it does not fail."""

    loc: Loc
    judge: Callable[[CheckContext], Verdict]
    warns: bool = False


def contains(text: str, texts: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """Check that the text contains every wanted text."""
    seen = form(text, ignore_case)
    missing = [needle for needle in texts if form(needle, ignore_case) not in seen]
    expected = f"contains {_join_quoted(texts)}{case(ignore_case)}"
    if missing:
        return Verdict(False, expected, f"no {_join_quoted(missing, 'or')} in {excerpt(text)}")
    return Verdict(True, expected, _around(text, seen, form(texts[0], ignore_case)))


def not_contains(text: str, unwanted: Sequence[str], *, ignore_case: bool = False) -> Verdict:
    """Check that the text contains none of the unwanted texts."""
    seen = form(text, ignore_case)
    expected = f"does not contain {_join_quoted(unwanted, 'or')}{case(ignore_case)}"
    for needle in unwanted:
        if form(needle, ignore_case) in seen:
            context = _around(text, seen, form(needle, ignore_case))
            return Verdict(False, expected, f"{quoted(needle)} in {context}")
    return Verdict(True, expected, excerpt(text))


def regex(text: str, pattern: str, *, ignore_case: bool = False) -> Verdict:
    """Check that the pattern matches somewhere in the text (Python's `re.search`)."""
    expected = f"matches /{pattern}/{case(ignore_case)}"
    try:
        match = compiled(pattern, ignore_case=ignore_case).search(form(text))
    except PatternTimeout as error:
        raise NoVerdict(expected, str(error)) from error
    if match is None:
        return Verdict(False, expected, f"no match in {excerpt(text)}")
    return Verdict(True, expected, f"matched {excerpt(match.group())}")


def equals(text: str, expected_text: str, *, ignore_case: bool = False) -> Verdict:
    """Check that both texts are equal, ignoring surrounding whitespace."""
    holds = form(text, ignore_case).strip() == form(expected_text, ignore_case).strip()
    return Verdict(holds, f"is {excerpt(expected_text)}{case(ignore_case)}", excerpt(text))


def starts_with(text: str, prefix: str, *, ignore_case: bool = False) -> Verdict:
    """Check that the text begins with the prefix."""
    holds = form(text, ignore_case).startswith(form(prefix, ignore_case))
    return Verdict(holds, f"starts with {quoted(prefix)}{case(ignore_case)}", excerpt(text))


def max_words(text: str, most: int, **_: bool) -> Verdict:
    """Check that the text has at most `most` words.

    A letter of a script without spaces counts as a word.
    """
    count = len(words(text))
    return Verdict(count <= most, f"at most {most} words", f"{count} words: {excerpt(text)}")


def words(text: str, *, ignore_case: bool = False) -> list[str]:
    """Return the words of a text, in order; a letter of a script without spaces is one."""
    return _word().findall(form(text, ignore_case))


@cache
def _word() -> re.Pattern[str]:
    spaced = rf"{visible_text.SPACED_WORD}+"
    return re.compile(rf"[{visible_text.UNSPACED}]|{spaced}(?:['’-]{spaced})*")


def max_chars(text: str, most: int, **_: bool) -> Verdict:
    """Check that the text has at most `most` characters (code points, in NFKC)."""
    chars = len(form(text))
    return Verdict(
        chars <= most, f"at most {most} characters", f"{chars} characters: {excerpt(text)}"
    )


def in_language(text: str, code: str, **_: bool) -> Verdict:
    """Check that most of the text is in that language.

    Raises NoVerdict if the language cannot be detected here.
    """
    expected = f"is in language {code}"
    try:
        holds, language = is_in(text, code)
    except LookupError as error:
        raise NoVerdict(expected, str(error)) from error
    return Verdict(holds, expected, f"{language}: {excerpt(text)}")


def excerpt(text: str) -> str:
    """Return the beginning of a text, in quotes."""
    return quoted(shortened(text))


def shortened(text: str, most: int = EXCERPT) -> str:
    """Return the beginning of a text, with a final `…` if it was cut."""
    beginning = cut_text(text, most)
    return beginning if len(beginning) == len(text) else beginning + "…"


def quoted(text: str) -> str:
    r"""Return a text in double quotes, with line ends written as `\n`."""
    return json.dumps(text, ensure_ascii=False)


def _around(text: str, seen: str, needle: str) -> str:
    """Return the text in quotes; of a long one, the excerpt of `seen` around `needle`."""
    start = max(seen.index(needle) - EXCERPT // 4, 0)
    if len(text) <= EXCERPT or start == 0:
        return excerpt(text)
    return f'"…{excerpt(seen[start:])[1:]}'


def _join_quoted(texts: Sequence[str], joined: str = "and") -> str:
    return f" {joined} ".join(quoted(item) for item in texts)


def case(ignore_case: bool) -> str:
    """Describe that a check ignores case."""
    return " (upper and lower case alike)" if ignore_case else ""


Measure = Literal["words", "characters", "any_order", "part"]

_STEPS = 10_000  # of a figure: what is told is what is compared


class Similar(FileShape):
    """A text that is similar to `to`: at least `min`, where 1 is equal.

    `measure` selects what is compared: words in their order, characters, words in any order, or the
    most similar part of the text. A letter of a script without spaces is a word.
    """

    to: str
    min: float = Field(gt=0, le=1)
    measure: Measure = "words"

    @model_validator(mode="after")
    def _can_be_measured(self) -> Similar:
        if not self.to.strip():
            raise ValueError("`to` is empty; write the text to compare with")
        if self.measure != "characters" and not words(self.to):
            raise ValueError("`to` has no words; measure it by `measure: characters`")
        return self


def judge(subject: Subject, similar: Similar, *, ignore_case: bool = False) -> Verdict:
    """Check that the similarity is at least `min`."""
    figure = _figure(subject.text, similar, ignore_case)
    actual = f"{figure:g} by {similar.measure}: {excerpt(subject.text)}"
    return Verdict(figure >= similar.min, asks(similar, ignore_case=ignore_case), actual)


def asks(similar: Similar, *, ignore_case: bool = False) -> str:
    """Describe the text to compare with, and the similarity that is required."""
    near = f"similar to {excerpt(similar.to)}, at least {similar.min:g} by {similar.measure}"
    return f"{near}{case(ignore_case)}"


def _figure(text: str, similar: Similar, ignore_case: bool) -> float:
    """Return the Indel similarity from 0 to 1: twice the common part by both lengths."""
    from rapidfuzz import fuzz  # noqa: PLC0415 - few scenarios measure

    actual: Sequence[str]
    expected: Sequence[str]
    if similar.measure == "characters":
        actual, expected = (form(item, ignore_case).strip() for item in (text, similar.to))
    else:
        actual, expected = (words(item, ignore_case=ignore_case) for item in (text, similar.to))
    if similar.measure == "any_order":
        actual, expected = sorted(actual), sorted(expected)
    # Of two texts the shorter one is looked for in the longer: a short answer is no part of it.
    compare = fuzz.ratio
    if similar.measure == "part" and len(actual) > len(expected):
        compare = fuzz.partial_ratio
    # Rounded down, lest a word in a thousand be nothing; the tiny part is that of binary fractions.
    figure: float = compare(actual, expected) / 100
    return math.floor(figure * _STEPS + 1e-6) / _STEPS
