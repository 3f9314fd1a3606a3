"""Split the visible part of a text into sentences and words, and decide what a sentence asserts.

Fenced code, code spans, quoted lines and addresses contain no sentence (`workspace.visible_text`).

A sentence asserts what holds now, in the speaker's own name. What others say or do, quotations,
jokes, code, suppositions, proposals and the past that is over assert nothing, in English and in
Chinese. A missed note is better than a wrong one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

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
        if not is_code(line[0]):
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


_QUOTED = lazy_pattern(r"[\"“「『][^\"“”「」『』\r\n]{2,300}[\"”」』]")

# Each an English and a Chinese pattern; the second is not searched in ASCII text.
_OTHERS = (
    # Reports: the verb, and a subject that is not the speaker.
    r"\b(?:(?<!\bi )(?<!\bwe )(?:says?|said|claim(?:s|ed)|told|mention(?:s|ed)|argue[sd]?|"
    r"insist(?:s|ed)|writes?|wrote|(?:states?|reports?) that|reported|wants|wanted|thinks?|thought|"
    r"believes?|feels|asks?|asked|asking|confirm(?:s|ed)|announce[sd]|promised|asserts|reads|"
    r"describes?|explains?)|according to|i (?:heard|read|saw|recall|remember)|rumou?r|apparently|"
    r"allegedly|i (?:do not|don't) (?:think|believe|know|remember)|"
    # Other people and places.
    r"they|their|theirs|he|she|his|her|(?:at|in) my (?:last|previous|old|former)|my (?:last|"
    r"previous|old|former)|(?:other|another) (?:team|company|project)s?|competitors?|in (?:most|"
    r"many|some|other) \w+|most (?:companies|teams|people)|usually|(?:the|an?|this|"
    r"that) (?:article|book|novel|film|movie|podcast|interview)|as the saying goes)\b",
    r"报错信息|错误信息|提示语|日志里|听说|据说|传言|(?:供应商|厂商|第三方|文档|"
    r"规范)[^，。,]{0,6}(?:要求|规定)|好像|据[^，。,]{1,10}[说称]|"
    r"(?<![我咱按再就来别没么是])(?<!我们)(?<!咱们)(?<!可以)(?<!也就)(?<!或者)(?<!应该)(?<!必须)说(?!明|服|法)|声称|宣布|认为|觉得|表示(?!层)|提到|写着|写的是|写道|问(?!题)|(?<!其)他们?|她们?|(?<![被等])对方|对面|人家|别人|别的|其他(?:团队|公司|组)|竞品|甲方|乙方|友商|内部(?!网)|上家|上一家|前公司|老东家|大多数|很多(?:公司|团队|国家)|文章|小说|电影|书里|书上|采访|隔壁|[某那](?:家|个?(?:公司|团队))|(?<!我们)公司(?:要求|规定|禁止|决定)|我记得",
)
_OVER = (
    r"\b(?:back (?:then|in|when)|used to|at (?:the|that) time|in those days|(?:years?|"
    r"months?) ago|last (?:year|month|spring|summer|autumn|fall|winter|quarter)|(?:19|"
    r"20)\d\d,? (?:we|i|the team)|originally|initially|at first|formerly|previously|in the past|"
    r"earlier this year|(?:had|nearly|almost) (?:decided|agreed|chosen)|(?:old|former) (?:policy|"
    r"rule|requirement|process)|no longer (?:true|valid|needed|required|applies)|(?:that|it|"
    r"which) is gone|nobody cares)\b",
    r"差点|几乎|当时|当年|当初|那时|曾经?(?!经)|去年|前年|上个?月|"
    r"上个?季度|[几多两\d]年前|(?:\A|[，,。；\s]|我们|团队|大家)(?:之前|先前|此前|早先|起初|最初|"
    r"一开始|过去)|原来|原先|原本|(?<![一二三四五六日天末底号点内月年期线布\d])以前|现在(?:不用|"
    r"取消|没了|不需要)|取消了|后来(?:换|改|取消)|已(?:经)?作废",
)
_SUPPOSED = (
    r"\b(?:unless|whether|suppos(?:e|ing)|assum(?:e|ing)|imagine|maybe|perhaps|might|could|would|"
    r"i'd|we'd|probably|possibly|hopefully|wish|in theory|hypothetically|pretend|i (?:think|guess|"
    r"suggest|propose|recommend|wonder|hope|feel|suppose)|suggest\w*|propos\w+|recommend\w*|"
    r"consider\w*|for example|e\.g\.|for instance|should we|(?:do|did|have|can|must) we|what if|"
    r"what about|how about|had we|were we)\b|"
    r"\A\W*(?:option|alternative|variant|scenario) \w{1,2}[ \t]*[:：)]",
    r"\A\W*(?:方案|选项)[ \t]*\w{1,2}[ \t]*[:：)]|直到|假装|假如|假设|倘若|假使|要是|万一|除非|"
    r"一旦|也许|或许|大概|恐怕|可能|建议|提议|推荐|考虑|不妨|不如|要不|例如|比如|譬如|想问|能不能|"
    r"能否|可否|是不是|有没有|谁能|谁会|为什么|怎么|想象|应该能|是否|我想(?!要)|如何|哪[个些种]",
)
_CONDITION = r"\b(?:if|in case)\b", r"如果|若(?!干)|的话"
_PERSONAL = (
    r"\b(?:if|in case) (?:we|i|you|they|he|she|it|that|this|the team|somebody|anybody)\b",
    r"(?:如果|若)(?:我|你|咱|他|她|大家|团队|这样|那样|真|当初|ci)|的话",
)
_JOKE = (
    r"\b(?:lol|rofl|lmao|ha(?:ha)+|hehe|j/?k|just kidding|kidding|joking|joke|april fools?)\b|"
    r"(?<!\S)(?:[:;]-?[dp]|;-?\)|xd|/s)(?!\S)|\b(?:coffee|pizza|beers?|lunch|pon(?:y|ies)|donuts?|"
    r"cookies|karaoke)\b",
    r"[😂🤣😜😝😛🤪😹🙃😆😏]|哈哈|呵呵|嘿嘿|开玩笑|玩笑|狗头|逗你|咖啡|奶茶|午饭|午餐|火锅|披萨|"
    r"零食|啤酒|吃饭|睡觉",
)
_SPEECH = (
    r"(?<=\w )(?<!\bi )(?<!\bwe )(?<!\bas )(?<!already )(?:says?|said|writes?|wrote|states?|"
    r"stated|reads?|claim(?:s|ed)?|"
    r"answer(?:s|ed)|repl(?:y|ies|ied)|quotes?|told (?:me|us))\b[^:：.!?]{0,20}[:：](?!//)",
    r"(?<![我所文先前])(?<!我们)(?<!刚才)(?<!\A)(?:说|写|写着|写道|表示|声称|讲|回复|答复|原文|"
    r"原话)(?:是|的是)?[:：]",
)
_CODE = (
    r"\s*(?://|/\*|\*/|<!--|#[ \t]*(?:TODO|FIXME|XXX|HACK|NOTE)\b|--[ \t]*(?:TODO|FIXME)\b)|"
    r"\s*[\w.\[\]'\"]+[ \t]*(?:=|\+=|:=)[ \t]*\S[^#\r\n]*(?:#|//)[ \t]|\s*(?:assert|return|def|"
    r"class|import|from|const|let|var|elif|while|for|if)\b[^\r\n]*(?:[ \t]#[ \t]|[ \t]//[ \t]|"
    r"[;{]\s*\Z)|[^\r\n]*(?:\)\s*;|[{}])\s*\Z|[-+]#|\s*(?:\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|"
    r"FATAL|TRACE)\b\]?:?[ \t]+\[?\d|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|[\w.$]*\w(?:Error|Exception|"
    r"Warning):[ \t]|Traceback \(|at [\w.$]+\(|File \"[^\"\r\n]+\", line \d)"
)

_CODE_SIGN = lazy_pattern(r"[/*<#;{}:(]|--")


def is_code(line: str) -> bool:
    """Return True if a line outside of a code block looks like code or a comment in code."""
    return _CODE_SIGN.search(line) is not None and _compiled(_CODE).match(line) is not None


def is_joke(sentence: str) -> bool:
    """Return True if a sentence has a sign that it is not meant."""
    return _matches(_JOKE, fold_case(sentence), len(sentence))


def introduces_speech(sentence: str) -> bool:
    """Return True if somebody else's words begin in a sentence: `the page says: ...`."""
    if ":" not in sentence and "：" not in sentence:
        return False
    return _matches(_SPEECH, fold_case(sentence), len(sentence))


def blank_quotations(sentence: str) -> str:
    """Return a sentence with blanks for what is within quotation marks; the length stays."""
    if not any(mark in sentence for mark in '"“「『'):
        return sentence
    return _QUOTED.sub(lambda match: " " * len(match[0]), sentence)


def is_supposed(sentence: str, end: int | None = None) -> bool:
    """Return True if the words up to `end` are a supposition, a proposal or a condition."""
    stop = len(sentence) if end is None else end
    folded = fold_case(sentence)
    return _matches(_SUPPOSED, folded, stop) or _matches(_CONDITION, folded, stop)


def is_asserted(sentence: str, end: int, *, may_depend: bool = False) -> bool:
    """Return True if what a sentence in lower case says up to `end` holds now, for the speaker.

    With `may_depend`, they may depend on a condition that no person has to meet: a rule does.
    """
    condition = _PERSONAL if may_depend else _CONDITION
    return not (
        _matches(_OVER, sentence, len(sentence))
        or _matches(_OTHERS, sentence, end)
        or _matches(_SUPPOSED, sentence, end)
        or _matches(condition, sentence, end)
    )


def fold_case(text: str) -> str:
    """Return a text in lower case and of the same length.

    Patterns without IGNORECASE are some times faster on it.
    """
    folded = text.lower()
    if len(folded) == len(text):
        return folded
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _matches(patterns: tuple[str, str], sentence: str, end: int) -> bool:
    """Return True if one of the English or Chinese patterns is in the sentence up to `end`."""
    english, chinese = patterns
    if _compiled(english).search(sentence, 0, end):
        return True
    return not sentence.isascii() and _compiled(chinese).search(sentence, 0, end) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


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
    return (
        _pairs(_compiled(_CHINESE).sub(" ", folded))
        or _pairs(folded)
        or list(dict.fromkeys(of_note(text)))
    )


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


@lru_cache(maxsize=4096)
def significant_words(text: str) -> frozenset[str]:
    """Return the significant words of a text, folded."""
    return frozenset(_significant_words(text))


def first_word(text: str) -> str:
    """Return the first significant word of a text; "" if it has none."""
    return next(_significant_words(text), "")


def _significant_words(text: str) -> Iterator[str]:
    plain = _compiled(_STATE).sub(" ", visible_text.fold_text(text))
    return (stem(word) for word in of_question(plain) if len(word) > 1 or not word.isascii())


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
