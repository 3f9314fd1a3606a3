"""Split the visible part of a text into sentences and words, for notes.

Fenced code, code spans, quoted lines and addresses contain no sentence (`workspace.visible_text`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from arena_cli.notes import assertion
from arena_cli.util.text import lazy_pattern
from arena_cli.workspace import visible_text
from arena_cli.workspace.visible_text import blank_hidden

if TYPE_CHECKING:
    import sqlite3


LONGEST_TEXT = 65_536
"""So many characters of a text are looked at: nobody writes more of them by hand."""

LONGEST = 400
"""So many characters of a sentence are looked at."""

_LINE = lazy_pattern(r"[^\r\n]+")
_END = lazy_pattern(
    r"(?=[。！？!?；;.\s])(?:"  # what each begins with: so a search takes a third of the time
    r"[。！？!?；;]+[”’」』）)\"'*_]*\s*|(?<![0-9.])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)\.[*_]*\s+|"
    r"(?<=\w[0-9])\.[*_]*\s+(?=(?-i:[A-Z@＠\u3400-\u9fff]))|"  # a number of a list has one digit
    r"\s+(?=[@＠]\S{1,40}\s*(?:请|麻烦|please\b)))",  # to somebody else now
    re.IGNORECASE,
)
_WRAPPED = lazy_pattern(r"(?<=[^\s.!?:;。！？：；])[ \t]*\r?\n[ \t]*(?=[a-z])")
_LEAD = lazy_pattern(
    r"[\s*_#•·]*(?:(?:[-+*•–—]|[0-9]{1,3}[.)、]|（[0-9一二三四五六七八九十]+）)\s+)?"
)
_BULLET = lazy_pattern(r"[0-9一-十•](?![*_])|[-+*•–—]\s")
_HEADING = lazy_pattern(r"[ \t]{0,3}#{1,6}[ \t]|\s*\*\*[^*\r\n]+\*\*\s*\Z")
_OPEN_BOX = lazy_pattern(r"\[ \]\s+")
_DONE_BOX = lazy_pattern(r"\[[xX]\]\s+")
_QUESTION = lazy_pattern(r"[?？][”’」』）)\"'*_\s]*\Z|[吗呢么][。.!！~…*_\s]*\Z")


class Sentence(NamedTuple):
    """A sentence: `text` as written, `shown` the same with invisible parts blanked.

    Both have the same length. `item`: it begins a list item; `box` is the state of the item's
    checkbox, None without one. `heading`: it is a line of its own that heads the next ones.
    `goes_on`: it is on the same line as the one before, or on a line that is indented below it.
    """

    text: str
    shown: str
    item: bool = False
    box: bool | None = None
    heading: bool = False
    goes_on: bool = False

    @property
    def asks(self) -> bool:
        """True if it is a question."""
        return _QUESTION.search(self.shown) is not None


def split(text: str) -> Iterator[Sentence]:
    """Yield the sentences in order, except empty ones.

    A line begins a new sentence, unless it begins with a lower-case letter.
    """
    text = text[:LONGEST_TEXT]
    visible = blank_hidden(text)
    if "\n" in visible:
        spans = [match.span() for match in _WRAPPED.finditer(visible)]
        visible, text = _blank_line_ends(visible, spans), _blank_line_ends(text, spans)
    for line in _LINE.finditer(visible):
        if not assertion.is_code(line[0]):
            yield from _of_line(text, visible, line.start(), line.end())


def _blank_line_ends(text: str, spans: Sequence[tuple[int, int]]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        pieces += (text[done:start], " " * (end - start))
        done = end
    return "".join((*pieces, text[done:]))


def _of_line(text: str, visible: str, start: int, end: int) -> Iterator[Sentence]:
    lead = _LEAD.match(visible, start, end)
    first = lead.end() if lead else start
    heading = _HEADING.match(visible, start, end) is not None
    item = bool(lead and _BULLET.search(lead[0])) and not heading
    box: bool | None = None
    for pattern, done in ((_OPEN_BOX, False), (_DONE_BOX, True)) if item else ():
        match = pattern.match(visible, first, end)
        if match:
            first, box = match.end(), done
    goes_on = visible[start:first][:1].isspace() and not item
    while first < end:
        stop = _END.search(visible, first, end)
        last = min(stop.end() if stop else end, first + LONGEST)
        if visible[first:last].strip():
            yield Sentence(text[first:last], visible[first:last], item, box, heading, goes_on)
        first, item, box, goes_on = (stop.end() if stop else end), False, None, True


LONGEST_QUESTION = 20_000
"""Characters of a text that notes are found for; the rest is not looked at."""

# Words that stand in every text, and tell nothing of what it is about.
_ENGLISH = frozenset(
    """
    a about after again all also am an and any are as at be because been before being between both
    but by can cannot could d did do does doing done don down during each few for from further get
    had has have having he her here hers him his how i if in into is it its itself just let ll m me
    more most must my no nor not now of off on once only or other our out over own please re s same
    shall she should so some such t than that the their them then there these they this those
    through to too under until up us ve very was we were what when where whether which while who
    whom whose why will with would you your
    """.split()  # noqa: SIM905 - 140 literals are harder to read
)
_CHINESE = (
    "为什么|什么|怎么样|怎么|怎样|如何|哪些|哪个|哪里|哪种|哪儿|多少|多久|是否|是不是|还是|有没有|能不能|"
    "我们|咱们|你们|他们|它们|这个|那个|这些|那些|这里|那里|一下|一个|请问|可以|应该|"
    "因为|所以|但是|如果|以及|或者|并且|[的了是吗呢吧啊么]"
)


# Korean syllables that are words of their own, and tell nothing of what a text is about.
_KOREAN = frozenset("것수더안못그이저및등때중곳나내너네제뭐왜또좀잘다한두할될된")


@cache
def _runs() -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(f"([{visible_text.ATTACHING}]+)|[^\\W_{visible_text.ATTACHING}]+")


@cache
def _empty() -> re.Pattern[str]:
    return re.compile(_CHINESE)


def of_note(text: str) -> list[str]:
    """Return the words of a note's text, in order, each as often as it occurs.

    Text without spaces between words, and Korean, whose words have endings, is cut into characters
    and pairs of them. A Korean noun of one syllable is also a word, with any particle.
    """
    terms: list[str] = []
    for run in _runs().finditer(visible_text.fold_text(text)):
        word = run.group()
        if run[1]:
            pairs = ["".join(pair) for pair in itertools.pairwise(word)]
            noun = _korean_noun(word)
            terms += [*word, *pairs, *([noun] if noun and noun not in pairs else ())]
        elif word not in _ENGLISH:
            terms.append(word)
    return terms


def of_question(text: str) -> list[str]:
    """Return the search words of a question, each once, in order.

    Stop words are left out, including Chinese question words, and so are single characters of a
    script without spaces, unless the question has no others.
    """
    folded = visible_text.fold_text(text)
    return _pairs(_empty().sub(" ", folded)) or _pairs(folded) or list(dict.fromkeys(of_note(text)))


def _korean_noun(word: str) -> str:
    """Return a form that a Korean noun of one syllable has with any particle; "" for others."""
    return "" if word[:1] in _KOREAN else visible_text.topic_form(word)


def _pairs(folded: str) -> list[str]:
    pairs: dict[str, None] = {}
    for run in _runs().finditer(folded):
        word = run.group()
        if run[1]:
            pairs.update(dict.fromkeys(map("".join, itertools.pairwise(word))))
            if noun := _korean_noun(word):
                pairs[noun] = None
        elif word not in _ENGLISH:
            pairs[word] = None
    return list(pairs)


def tag(text: str) -> str:
    """Return the normal form of a tag, for comparison."""
    return " ".join(visible_text.fold_text(text).split()).removeprefix("#")


class Stems:
    """The stems of English words, by SQLite's stemmer (Porter's).

    It uses a temporary table, which only its connection sees.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE VIRTUAL TABLE temp.stems USING fts5(w, tokenize='porter ascii')")
        connection.execute(
            "CREATE VIRTUAL TABLE temp.stem USING fts5vocab('temp', 'stems', 'instance')"
        )
        self._connection = connection
        self._known: dict[str, str] = {}

    def of(self, words: Iterable[str]) -> list[str]:
        """Return the stem of each word; a word that is not English is unchanged."""
        words = list(words)
        new = [word for word in set(words) - self._known.keys() if _may_have_astem(word)]
        if new:
            self._connection.execute("INSERT INTO stems VALUES (?)", (" ".join(new),))
            rows = self._connection.execute("SELECT term FROM stem ORDER BY offset")
            self._known.update(zip(new, (stem for (stem,) in rows), strict=True))
            self._connection.execute("DELETE FROM stems")
        return [self._known.get(word, word) for word in words]


def _may_have_astem(word: str) -> bool:
    return word.isascii() and word.isalpha()


_ENDING = lazy_pattern(r"(?:ments?|ages?|ations?|ions?|ings?|ers?|ed|es|s|e)\Z")
_SHORTEST_STEM = 3

_STATE = (
    r"\b(?:block|blocked|blocker|blocking|blocks|stuck|wait|waiting|waits|missing|lack|lacks|"
    r"lacking|absent|unavailable|available|pending|open|problem|problems|issue|issues|fail|fails|"
    r"failed|failing|failure|solve|solved|resolve|resolved|done|finish|finished|complete|"
    r"completed|still|yet|need|needs|needed|must|should|shall|ready|start|started|next|step|todo|"
    r"task|tasks|use|used|using|never|without|cannot|currently|now|today|tomorrow|say|says|said|"
    r"one|two|new|make|made|want|decision|decided|decide|requirement|required|action)\b|"
    r"还没有?|没有|尚未|仍未|仍然?|仍旧|未能|已经|已被|等待|正在|无法|没法|不能|阻塞|卡住|卡在|缺少|缺失|解决|"
    r"完成|需要|必须|应当|不得|禁止|下一步|问题|目前|现在|今天|明天|马上|开始|继续|暂停|进行|决定|采用|使用|"
    r"选用|不再|不要|不是|才能|之前|以后|之后|然后|以及|[被把将与和让请先再也都就到]"
)
_NUMBER = lazy_pattern(r"\d+(?:[.,]\d+)*")


@cache
def _state() -> re.Pattern[str]:
    return re.compile(_STATE)


@lru_cache(maxsize=4096)
def significant_words(text: str) -> frozenset[str]:
    """Return the significant words of a text, folded."""
    plain = _state().sub(" ", visible_text.fold_text(text))
    return frozenset(stem(word) for word in of_question(plain) if _tells(word))


def first_word(text: str) -> str:
    """Return the first significant word of a text; "" if it has none."""
    plain = _state().sub(" ", visible_text.fold_text(text))
    return next((stem(word) for word in of_question(plain) if _tells(word)), "")


def _tells(word: str) -> bool:
    return len(word) > 1 or not word.isascii()


def stem(word: str) -> str:
    """Return an English word without its ending; others unchanged."""
    if not word.isascii() or not word.isalpha():
        return word
    stem = _ENDING.sub("", word)
    return stem if len(stem) >= _SHORTEST_STEM else word


def numbers(text: str) -> frozenset[str]:
    """Return the numbers in a text, in digits."""
    return frozenset(_NUMBER.findall(visible_text.fold_text(text)))


def shared(words: frozenset[str], others: Iterable[str]) -> float:
    """Return the share of the words that the others contain; 0 for only one of several."""
    if not words:
        return 0.0
    common = len(words.intersection(others))
    return common / len(words) if common >= min(2, len(words)) else 0.0
