"""Find the visible text of a message: only there a name with `@` is a mention.

Hidden are fenced code and code spans (CommonMark 0.31, sections 4.5 and 6.1), URLs, e-mail
addresses, and quoted lines (section 5.1: `>` with or without a space after it). Everything here
takes time linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from arena_cli.util.text import lazy_pattern

_HAN = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
_THAI_AND_LAO = "\u0e00-\u0eff"
_HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc"
_KHMER_AND_MYANMAR = "\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"

UNSPACED = _HAN + _KANA + _THAI_AND_LAO + _KHMER_AND_MYANMAR
"""For a class of a regular expression: the scripts that put no spaces between words."""

ATTACHING = UNSPACED + _HANGUL
"""The same, with Hangul: its words have spaces between them, but endings follow without one."""

SPACED_WORD = rf"[^\W{UNSPACED}]"
"""A regular expression for one letter or digit of the other scripts, or `_`."""

_JOINERS = lazy_pattern("[\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_LATER_EMOJI = lazy_pattern("[\U0001f000-\U0001faff]")
_TEXT_OR_EMOJI_STYLE = lazy_pattern("[\ufe0e\ufe0f]")
_LONGEST_RUN_OF_MARKS = 30
_GRAPHEME_JOINER = "\u034f"


class CharKind(Enum):
    """The kind of a character, by which words and names are found to end."""

    HAN = auto()
    UNSPACED = auto()
    """A letter or digit of another script without spaces between words."""
    SPACED = auto()
    """A letter or digit of a script with spaces between words."""
    EXTEND = auto()
    """What belongs to the character before it: marks, joiners, skin tones, tags."""
    EMOJI = auto()
    OTHER = auto()


@cache
def _compile_class(ranges: str) -> re.Pattern[str]:
    # Such a class takes some milliseconds to compile: not before it is needed.
    return re.compile(f"[{ranges}]")


@lru_cache(maxsize=8192)
def classify_char(char: str) -> CharKind:
    """Return the kind of one character, by its Unicode category and block."""
    if char.isascii():
        return CharKind.SPACED if char.isalnum() else CharKind.OTHER
    category = unicodedata.category(char)
    if category[0] == "M" or _JOINERS.match(char):
        return CharKind.EXTEND
    if category[0] in "LN":
        if _compile_class(_HAN).match(char):
            return CharKind.HAN
        return CharKind.UNSPACED if _compile_class(UNSPACED).match(char) else CharKind.SPACED
    # Emoji that are newer than this Python's Unicode have no category yet.
    if category == "So" or _LATER_EMOJI.match(char):
        return CharKind.EMOJI
    return CharKind.OTHER


def is_letter_or_digit(char: str) -> bool:
    """Return True if it is a letter or a digit of any script."""
    return classify_char(char) in (CharKind.HAN, CharKind.UNSPACED, CharKind.SPACED)


@lru_cache(maxsize=8192)
def is_hangul(char: str) -> bool:
    """Return True if it is a letter of Hangul, to which particles attach without a space."""
    return not char.isascii() and _compile_class(_HANGUL).match(char) is not None


# Titles and particles that follow a Korean noun without a space: 님께서는, 에게도, 입니다.
_PARTICLES = (
    "(?:님|씨|양|군|들)*(?:께서|에게서?|한테서?|에서?|까지|부터|이?랑|하고|으?로[서써]?|처럼|보다|이?라도|와|과|만)?"
    "(?:은|는|이|가|을|를|의|에|께|와|과|도|만|로|나|요|아|야|뿐|이?나|이?란|이?며|밖에|마저|조차|마다|대로|이?라고|"
    "이?라는|입니다|입니까|이에요|예요|이고|인데|인지|이다)?요?(?![\uac00-\ud7ff])"
)


@cache
def _particles() -> re.Pattern[str]:
    return re.compile(_PARTICLES)


def has_only_particles(text: str, index: int) -> bool:
    """Return True if the rest of the Korean word, from `index` on, is only particles, or empty."""
    return _particles().match(text, index) is not None


def topic_form(word: str) -> str:
    """Return a Korean noun of one syllable with its topic particle (은, 는); "" for other words.

    `word` may have any particle, so that the forms of a noun are equal: 값이, 값을 and 값 are 값은.
    """
    syllable = word[:1]
    if not "\uac00" <= syllable <= "\ud7a3" or not has_only_particles(word, 1):
        return ""
    ends_in_consonant = (ord(syllable) - 0xAC00) % 28
    return syllable + ("은" if ends_in_consonant else "는")


def classify_before(text: str, start: int, end: int) -> CharKind:
    """Return the kind of the last character of `text[start:end]`, with all that extends it."""
    for index in range(end - 1, start - 1, -1):
        if text[index] in "\ufe0f\u20e3":
            return CharKind.EMOJI
        if (last := classify_char(text[index])) is not CharKind.EXTEND:
            return last
    return CharKind.OTHER


@lru_cache(maxsize=8192)
def joins_previous(char: str) -> bool:
    """Return True if a character may melt into the one before it when a text is normalised."""
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"


@lru_cache(maxsize=8192)
def _is_reordered(char: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0


def compose_text(text: str) -> str:
    """Return the text in NFC, in time linear in its length."""
    return _normalize("NFC", text)


def fold_text(text: str) -> str:
    """Return the form in which two names, or two words, are the same: NFKC and case-folded.

    The selectors of an emoji's style, U+FE0E and U+FE0F, are left out: keyboards set them or not.
    """
    if text.isascii():
        return text.lower()
    plain = _normalize("NFKC", _TEXT_OR_EMOJI_STYLE.sub("", text))
    return _normalize("NFKC", plain.casefold())


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """Return the form in which two names are the same; white space in it is one space."""
    return " ".join(fold_text(name).split())


def _normalize(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return the text in a normal form.

    Normalising sorts every run of combining marks, at a cost that is the square of its length; so
    a run of more than 30 is broken, as the Stream-Safe Text Format does it (UAX 15, section 13).
    """
    if text.isascii() or unicodedata.is_normalized(form, text):
        return text
    marks = "".join(sorted(filter(_is_reordered, set(text))))
    if marks:
        mark = f"[{re.escape(marks)}]"
        text = re.sub(
            f"{mark}{{{_LONGEST_RUN_OF_MARKS}}}(?={mark})", rf"\g<0>{_GRAPHEME_JOINER}", text
        )
    return unicodedata.normalize(form, text)


TextSpan = tuple[int, int]
HiddenKind = Literal["code", "quote", "address"]

_LINE = lazy_pattern(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++\Z")
_BLANKS = lazy_pattern(r"[ \t]*+")
_LIST_MARKER = lazy_pattern(r"(?:[-+*]|[0-9]{1,9}[.)])(?=[ \t\r\n]|\Z)")
_FENCE = lazy_pattern(r"(?P<run>`{3,}+|~{3,}+)(?P<info>[^\r\n]*+)")
# Headings and rules: no code span goes on over them.
_BREAK = lazy_pattern(r"#{1,6}(?=[ \t\r\n]|\Z)|(?:[-*_=][ \t]*+)++(?=[\r\n]|\Z)")
_BACKTICKS = lazy_pattern(r"(?<!\\)(\\*+)(`++)")

_ENDS_NO_URL = "?!.,:;*_~'@"
_LINK_SIGNS = ("://", "www.", "WWW.", "@")
# These are looked for before a sign, and `\Z` is where the sign begins.
_SCHEME = lazy_pattern(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.\-]*+\Z")
_HOST_AND_PATH = lazy_pattern(
    r"(?<![A-Za-z0-9_.~%@/\-])(?:[A-Za-z0-9\-]++\.)+[A-Za-z]{2,}(?::[0-9]{1,5})?"
    r"(?:/[A-Za-z0-9._~%\-]++)*+/\Z"
)
_LONGEST_SCHEME = 32
_LONGEST_LOCAL_PART = 64  # RFC 5321, 4.5.3.1.1
_LONGEST_HOST_AND_PATH = 512


class _WordPatterns(NamedTuple):
    """Patterns with letters of all scripts in them.

    They take some milliseconds to compile, so they are compiled only when a text has a link.
    """

    url_text: re.Pattern[str]
    host_in_another_script: re.Pattern[str]
    local_part: re.Pattern[str]
    mail_domain: re.Pattern[str]


@cache
def _compile_patterns() -> _WordPatterns:
    word = rf"(?:{SPACED_WORD}|[\u0300-\u036f])"
    local = rf"(?:{word}|[.%+\-])"
    return _WordPatterns(
        url_text=re.compile(rf"(?:{word}|[-.~:/?#@!$&'*+,;=%])++"),
        host_in_another_script=re.compile(rf"[{UNSPACED}][\w.\-]*+"),
        local_part=re.compile(
            rf"(?<!{SPACED_WORD})(?<![\u0300-\u036f.%+\-])[._%+\-]*+(?=[^\W_]){local}++\Z"
        ),
        mail_domain=re.compile(rf"(?:(?:{word}|-)++\.)+(?![0-9]){word}(?:{word}|-)*+"),
    )


def find_hidden_spans(text: str) -> list[TextSpan]:
    """Return the spans that are not visible text, in order, as (start, end) of the text."""
    code_and_quotes: list[TextSpan] = []
    has_blocks = "`" in text or "~~~" in text or ">" in text
    for is_prose, start, end in _Blocks(text).parts() if has_blocks else ():
        if is_prose:
            code_and_quotes.extend(_find_code_spans(text, start, end))
        else:
            code_and_quotes.append((start, end))
    return sorted(code_and_quotes + list(_find_links(blank_spans(text, code_and_quotes, " "))))


def classify_hidden(text: str, span: TextSpan) -> HiddenKind:
    """Return the kind of a span of `find_hidden_spans`, which its first character shows."""
    first = text[span[0]]
    return "code" if first in "`~" else "quote" if first == ">" else "address"


def blank_hidden(text: str) -> str:
    """Return the text with a space for each hidden character; line ends and length stay."""
    return blank_spans(text, find_hidden_spans(text), " ")


def blank_spans(text: str, spans: Sequence[TextSpan], filler: str) -> str:
    """Return the text with one `filler` for each character in `spans` but the line ends."""
    if not spans:
        return text
    pieces = []
    done = 0
    for start, end in spans:
        pieces.append(text[done:start])
        pieces.append(re.sub(r"[^\r\n]", filler, text[start:end]))
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


@dataclass
class _Fence:
    start: int
    run: str
    indent: int

    def is_closed_by(self, line: str) -> bool:
        marks = line.strip(" \t\r\n")
        return (
            len(marks) >= len(self.run)
            and not marks.strip(self.run[0])
            and _count_columns(line[: line.index(marks)]) <= self.indent + 3
        )


@dataclass
class _Blocks:
    """Cuts the text into prose, in which code spans may be, and hidden blocks."""

    text: str
    _list_indents: list[int] = field(default_factory=list)
    _fence: _Fence | None = None
    _prose: int | None = None

    def parts(self) -> Iterator[tuple[bool, int, int]]:
        """Yield (is prose, start, end), in order; blank lines may be in none."""
        for line in _LINE.finditer(self.text):
            yield from self._line(line.start(), line.end())
        if self._fence is not None:
            yield False, self._fence.start, len(self.text)
        yield from self._end_of_prose(len(self.text))

    def _end_of_prose(self, end: int) -> Iterator[tuple[bool, int, int]]:
        if self._prose is not None:
            yield True, self._prose, end
        self._prose = None

    def _line(self, start: int, end: int) -> Iterator[tuple[bool, int, int]]:
        if self._fence is not None:
            if self._fence.is_closed_by(self.text[start:end]):
                yield False, self._fence.start, end
                self._fence = None
            return
        content, indent, is_item = self._content(start, end)
        if content == end or self.text[content] in "\r\n":
            yield from self._end_of_prose(start)
            return
        self._fence = self._open_fence(content, end) if indent <= 3 else None
        if self._fence is not None:
            yield from self._end_of_prose(start)
        elif indent <= 3 and self.text[content] == ">":
            yield from self._end_of_prose(start)
            yield False, content, end
        elif _BREAK.match(self.text, content, end):
            yield from self._end_of_prose(start)
            yield True, content, end
        else:
            if is_item:
                yield from self._end_of_prose(start)
            if self._prose is None:
                self._prose = content

    def _open_fence(self, content: int, end: int) -> _Fence | None:
        fence = _FENCE.match(self.text, content, end)
        if fence is None or (fence["run"][0] == "`" and "`" in fence["info"]):
            return None
        container = self._list_indents[-1] if self._list_indents else 0
        return _Fence(content, fence["run"], container)

    def _content(self, start: int, end: int) -> tuple[int, int, bool]:
        """Return the start of the line's text, its indent in its list items, True if one begins."""
        content, column = self._after_blanks(start, end, 0)
        if content == end or self.text[content] in "\r\n":
            return content, 0, False
        lists = self._list_indents
        while lists and column < lists[-1]:
            lists.pop()
        container = lists[-1] if lists else 0
        is_item = False
        while column - container <= 3:
            marker = _LIST_MARKER.match(self.text, content, end)
            if marker is None:
                break
            is_item = True
            after_marker = column + marker.end() - content
            content, column = self._after_blanks(marker.end(), end, after_marker)
            # An item that begins with code that is indented itself begins one column on.
            container = column if column - after_marker <= 4 else after_marker + 1
            lists.append(container)
        return content, column - container, is_item

    def _after_blanks(self, start: int, end: int, column: int) -> tuple[int, int]:
        match = _BLANKS.match(self.text, start, end)
        blanks = match[0] if match else ""
        return start + len(blanks), column + _count_columns(blanks)


def _count_columns(blanks: str) -> int:
    return len(blanks) + 3 * blanks.count("\t")


def _find_code_spans(text: str, start: int, end: int) -> Iterator[TextSpan]:
    """Yield the code spans of a paragraph: from a run of backticks to the next of that length."""
    matches = _BACKTICKS.finditer(text, start, end)
    runs = [(match.start(2), match.end(2), match[1]) for match in matches]
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(len(runs) - 1, -1, -1):
        by_length[runs[index][1] - runs[index][0]].append(index)
    index = 0
    while index < len(runs):
        opening, run_end, backslashes = runs[index]
        # A backslash before it makes the first backtick text; inside code it means nothing.
        opening += len(backslashes) % 2
        closings = by_length[run_end - opening]
        while closings and closings[-1] <= index:
            closings.pop()
        if closings:
            index = closings[-1]
            yield opening, runs[index][1]
        index += 1


def _find_links(text: str) -> Iterator[TextSpan]:
    """Yield URLs and e-mail addresses, in order."""
    position = 0
    # Each by itself: a search for all of them at once takes a hundred times as long.
    ahead = {sign: text.find(sign) for sign in _LINK_SIGNS}
    while True:
        for sign, index in ahead.items():
            if 0 <= index < position:
                ahead[sign] = text.find(sign, position)
        start, sign = min(
            ((index, sign) for sign, index in ahead.items() if index >= 0), default=(-1, "")
        )
        if start < 0:
            return
        link = _match_link(text, position, start, start + len(sign))
        if link:
            yield link
        position = link[1] if link else start + len(sign)


def _match_link(text: str, earliest: int, sign: int, sign_end: int) -> TextSpan | None:
    """Return the link that has its sign, `://`, `www.` or `@`, at `sign`."""
    preceding = text[sign - 1 : sign]
    if text[sign] == ":":
        start = _match_before(_SCHEME, text, earliest, sign, _LONGEST_SCHEME)
        host = _compile_patterns().host_in_another_script.match(text, sign_end)
        end = _find_url_end(text, sign_end, host.end() if host else sign_end)
    elif text[sign] != "@":
        start = None if preceding.isascii() and preceding.isalnum() else sign
        end = _find_url_end(text, sign_end, sign_end)
    elif preceding == "/":
        # Without a scheme it matters only where its `@` would be a mention: `a.example/@name`.
        start = _match_before(_HOST_AND_PATH, text, earliest, sign, _LONGEST_HOST_AND_PATH)
        return None if start is None else (start, _find_url_end(text, sign_end, sign_end))
    else:
        return _match_address(text, earliest, sign, sign_end)
    return (start, end) if start is not None and end > sign_end else None


def _match_address(text: str, earliest: int, sign: int, sign_end: int) -> TextSpan | None:
    """Return the e-mail address that has its `@` at `sign`."""
    if sign == earliest or text[sign - 1].isspace():
        return None
    patterns = _compile_patterns()
    start = _match_before(patterns.local_part, text, earliest, sign, _LONGEST_LOCAL_PART)
    domain = None if start is None else patterns.mail_domain.match(text, sign_end)
    return None if start is None or domain is None else (start, domain.end())


def _match_before(
    pattern: re.Pattern[str], text: str, earliest: int, end: int, longest: int
) -> int | None:
    match = pattern.search(text, max(earliest, end - longest), end)
    return match.start() if match else None


def _find_url_end(text: str, start: int, position: int) -> int:
    """Return the end of a URL that continues at `position`, at latest a bracket it did not open.

    The marks that end a sentence are not part of it; they are taken off down to `start` at most.
    """
    url_text = _compile_patterns().url_text
    open_brackets = 0
    while position < len(text):
        match = url_text.match(text, position)
        if match:
            position = match.end()
        elif text[position] in "([":
            open_brackets += 1
            position += 1
        elif text[position] in ")]" and open_brackets:
            open_brackets -= 1
            position += 1
        else:
            break
    return start + len(text[start:position].rstrip(_ENDS_NO_URL))
