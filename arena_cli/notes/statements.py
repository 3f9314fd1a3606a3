"""Read a title or a sentence as a claim: the first of three steps to compare notes. Pure.

1. A claim (this module) is the words of a text in order, and whether the text denies something.
   Words of grammar and modality are left out. A value has a normal form: `60 minutes` and
   `1 hour` are equal, and so are `60 s` and `1 分钟`.
2. Two claims are compared word by word (`notes.contradictions`), or by their terms in any order
   (`notes.paraphrases`).
3. Where words are not enough, as between two languages, vectors decide (`notes.paraphrases`).

A word that is neither a value nor a name is a term of the subject, unless it is a *relation*, which
binds a subject to its value (`expire`, `负责`), or a *filler*, which says nothing of a subject.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from arena_cli.notes import synonyms
from arena_cli.notes import text as text_module
from arena_cli.util.text import lazy_pattern
from arena_cli.workspace import visible_text


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _join_patterns(text: str) -> str:
    return "|".join(text.split())


_HAN = visible_text.UNSPACED

# What denies and what affirms: regular expressions.
_DENYING = r"""
    not never cannot no(?:\slonger)?(?!-) without forbid\w* prohibit\w* ban(?:s|ned)?
    disabled? disallow\w* out\sof(?=\sscope) optional (?:remov|abandon|exclud|paus)(?:es?|ed)
    drops? free frozen (?<=is\s)off (?<=are\s)off
"""
_DENYING_ZH = """
    不(?!但|仅|同|过|断|错|[少多低高早晚]于|超过) 没有 无需 无须 勿 未 禁止 严禁 停用 关闭 禁用
    免费 下线 移除 去掉 废弃 放弃 停止 取消 暂停 冻结
"""
_AFFIRMING = r"""
    allow(?:s|ed)? enabled? in(?=\sscope) require[sd]? keeps? kept retain(?:s|ed)? mandatory
    (?:moves?|moved|switch|switches|goes|stays?|changes?)(?=\s(?:to|on|with|from)\b)
"""
_AFFIRMING_ZH = """
    保留 收费 允许 可以 启用 开启 打开 必须 需要 已经? 应当? [使采选](?=用) 照[常旧]
    每个? 所有 一律 统一 [须要能可得将把被都均的了再里] (?<![由给])我们 决定
"""
_DENIALS = rf"\b(?:{_join_patterns(_DENYING)})\b|n't\b|{_join_patterns(_DENYING_ZH)}"
_AFFIRMATIONS = rf"\b(?:{_join_patterns(_AFFIRMING)})\b|{_join_patterns(_AFFIRMING_ZH)}"
_REJECTED = (
    r"(?:\b(?:instead of|rather than|in place of|replac(?:es|ing))\s+|[,，;；]\s*not\s+|而不是|"
    r"而非|代替|替换|[,，]\s*不(?:再)?[用放存走选]|不(?:再)?用|(?<=\S)不[在是])\s*(?:on |in |with |"
    r"the )*(?P<words>[^,，。;；]+?)(?=\s+(?:for|as|to|in|on|from|any)\b|[,，。;；了]|\Z)",
    r"\bfrom\s+(?:the )?(?P<words>(?!\d|(?:mon|tue|wed|thu|fri|sat|sun))\S+(?: \S+)?)(?=\s+to\b)",
)
# Forms that are equal: a limit, a term, a change to another thing.
_EQUALS = (
    (
        r"\b(?:(?:is|are) )?(?:limited to|capped at|restricted to|at most|up to|"
        r"no(?:t)? (?:more|less|fewer|later|longer) than|not exceed)\b",
        " ",
    ),
    (r"\bno more(?= \w+ than\b)|\bthan\b", " "),
    (r"(?<=[天周月年时])后(?:自动|即)?(?:删除|清除|清理)", "过期"),
    (r"\b(front|back)[ -]end\b", r"\1end"),
    (r"[换改]成|切换?到|迁移?到|改到|改[用为在]", "用"),
    (r"改由|交[给由]", "由"),
)

# A thing has one value after such a word, a cue; the first of a group names its sort.
_CUES = synonyms.read_groups("""
    is are as 是 为 设为 定为; by via through with over use uses using used adopt choose chose 用
    使用 采用; 由; in on at inside into 在 到 放 存; to; from
""")
_ARTICLES = _split_words("the a an any all every each our their its your my only")
_GRAMMAR = _CUES.keys() | _split_words("""
    of for and or per that this it be been we i you will shall must should may can could has have
    need needs do does done decide decided agreed built written happen happens
""")
_FILLERS = _split_words("""
    reach reaches go goes set sets limit limits max maximum min minimum most least more less about
    不 即 只 仅 对 内 后 会 做 选 定 达 进 最大 最多 最少 至少 超过 少于 多于 低于 高于 达到 即可
    时间 时长 长度 期限 时限 推迟 提前 放宽
""")
_RELATIONS = synonyms.read_groups("""
    keep store stored stores storage save saved hold holds live lives last lasts expire expires
    valid 保存 存储 有效期 过期 失效 超时;
    own owns owned lead leads responsible charge belongs 负责;
    start starts begin begins launches 开始; build 开发 写; send sends sent mailed 发送;
    answer answers reply 回复 响应; come comes load; support supports supported 支持; pay paid
""")
_UNITS = synonyms.read_groups("""
    charact 位 字符 个字符; people 人 名 users person; % percent; times 次; euro €; dollar $; 元 ¥
""")

# Numbers and times.
_NUMBER_NAMES = """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred
"""
_NUMBER_WORDS = dict(zip(_NUMBER_NAMES.split(), (*range(1, 21), *range(30, 101, 10)), strict=True))
_NUMBER_WORD = rf"\b(?:{_join_patterns(_NUMBER_NAMES)})\b"
_DIGITS = {char: number for number, char in enumerate("零一二三四五六七八九")} | {"两": 2}
_CHINESE_NUMBER = re.compile(
    r"半(?=个?[天年月小分])|(?<=第)[一二三四五六七八九十]|"
    r"[一二两三四五六七八九十百]+(?=个?[天秒周年月元条次人个位名倍份台页期小分毫星版点日号万亿])"
)
_MONTHS = "january february march april may june july august september october november december"
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _MONTHS.split())
_SECONDS = (
    (r"milliseconds?|ms|毫秒", 0.001),
    (r"seconds?|secs?|s|秒钟?", 1.0),
    (r"minutes?|mins?|分钟", 60.0),
    (r"hours?|hrs?|h|个?小时", 3600.0),
    (r"days?|nights?|[天晚日]|dai", 86_400.0),
    (r"weeks?|个?星期|周(?![一二三四五六日天])", 604_800.0),
    (r"months?|个月", 2_628_000.0),
    (r"quarters?|个?季度", 7_884_000.0),
    (r"years?|年", 31_536_000.0),
)
_UNIT = "|".join(unit for unit, _ in _SECONDS)
_PERIOD = rf"(?:{_UNIT}|月)(?![a-z])"
_VALUE = lazy_pattern(
    rf"""(?<![a-z\d.])(?:
    (?P<date>\d{{4}}-\d\d-\d\d | \d{{1,2}}\s*月\s*\d{{1,2}}\s*[日号]
        | (?:{_MONTH})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?(?![\w:%])
        | \d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})\b)
    | (?P<clock>\d{{1,2}}:\d\d(?:\s*[ap]\.?m\b)? | \d{{1,2}}\s*(?:[ap]\.?m\b|o'clock)
        | (?:早上|上午|凌晨|中午|下午|晚上)?\s*\d{{1,2}}\s*点半?)
    | (?P<weekday>(?:{"|".join(_DAYS)})s?\b | 每?(?:周|星期|礼拜)[一二三四五六日天])
    | (?P<monthday>\d{{1,2}}(?:st|nd|rd|th)\b | 每月\s*\d{{1,2}}\s*[日号]
        | first(?:\ day)?\ of\ (?:the|each|every)\ month)
    | (?P<month>(?:{_MONTHS.replace(" may", "").replace(" ", "|")})\b
        | (?:(?<=in\ )|(?<=by\ )|(?<=until\ )|(?<=from\ )|(?<=to\ ))may\b
        | \d{{1,2}}\s*月(?![\d内]))
    | (?P<frequency>(?:once|twice|\d+\s*(?:times|次))\s+(?:an?|per|every|each)\s+{_PERIOD}
        | (?:every|each)\s+(?:\d+\s+)?{_PERIOD} | (?:dai|hour|night|week|month|quarter|year)ly\b
        | 每\s*(?:\d+\s*)?个?{_PERIOD}(?:(?:限|最多|至多|不超过)?\s*\d+\s*次)?(?!\d))
    | (?P<duration>(?:(?:after|within)\s+)?(?P<count>\d+(?:\.\d+)?)\s*-?(?P<unit>{_UNIT})(?![a-z]))
    | (?P<forever>forever\b|indefinitely\b|permanently\b|永久|永远)
    | (?P<per>(?:/|per\b|an?\b)\s*{_PERIOD})
    | (?P<amount>(?P<sign>[€$¥£])?(?P<number>\d+(?:[.,]\d+)*)
        (?:\s*(?P<scale>k(?![a-z])|thousand\b|million\b|[千万亿]))?
        (?:\s*(?P<of>%|percent\b|[kmgt]i?b\b|[km]?hz\b|个?字符|[元条次人个位名倍份台页张件]))?)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SCALES = {"k": 1e3, "thousand": 1e3, "千": 1e3, "万": 1e4, "million": 1e6, "亿": 1e8}
# A Chinese text is read by the words of the lists, else by characters; 小王 is a person.
_LISTED = {*_FILLERS, *_RELATIONS, *_CUES, *synonyms.list_chinese()}
_CHINESE = sorted((word for word in _LISTED if word > "\u2e80" < word[1:]), key=len, reverse=True)
_TOKEN = lazy_pattern(
    rf"{'|'.join(_CHINESE)}|[小老阿][{_HAN}]|"
    rf"[^\W\d_{_HAN}](?:(?:[^\W{_HAN}]|[.+#'-])*(?:[^\W{_HAN}]|[+#]))?|[{_HAN}]|"
    r"[,，。;；:：()（）]",
    re.IGNORECASE,
)
_NUMBERS = _split_words("amount duration date clock monthday")
_PERIODS = _split_words("weekday month frequency")


class Word(NamedTuple):
    """A word of a claim: its stem, and as it was written.

    `sort` is that of a value (`amount`), `name`, `relation`, `filler`, or empty for a term.
    A value has a normal form, and an amount a unit; that of a rate ends with `/`. `start` is the
    place in the text. `cue` is the sort of the cue before the phrase of the word, such as `use`,
    `in` or `是`; with `follows_cue`, the word is the first of the phrase.
    """

    stem: str
    shown: str
    sort: str = ""
    value: str = ""
    unit: str = ""
    start: int = 0
    cue: str = ""
    follows_cue: bool = False

    @property
    def is_number(self) -> bool:
        """True if it is an amount, a date, or how many times something happens."""
        has_digit = self.sort == "frequency" and any(char.isdigit() for char in self.shown)
        return has_digit or self.sort in _NUMBERS

    @property
    def is_period(self) -> bool:
        """True if it is a day of the week, a month, or how often something happens."""
        return self.sort in _PERIODS and not self.is_number

    @property
    def is_name(self) -> bool:
        """True if it is a word of a name: `MySQL`, and any Latin word in a Chinese text."""
        return self.sort == "name"

    @property
    def concept(self) -> str:
        """The common word of its group in both languages; empty if it has none."""
        return synonyms.find_common(visible_text.fold_text(self.shown))

    def with_value(self, sort: str, value: str, unit: str, shown: str) -> Word:
        """Return the word as a value, with its stem."""
        stem = f"{sort} {unit}:{value}"
        return self._replace(stem=stem, sort=sort, value=value, unit=unit, shown=shown)


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
    def concepts(self) -> frozenset[str]:
        """The concepts of its words."""
        return frozenset(word.concept for word in self.words if word.concept)

    @property
    def stems(self) -> tuple[str, ...]:
        """The stems of the words, in order."""
        return tuple(word.stem for word in self.words)


@lru_cache(maxsize=4096)
def read_claim(text: str) -> Claim:
    """Return the claim in a title or a sentence."""
    plain = visible_text.compose_text(text).replace("’", "'")
    for pattern, common in _EQUALS:
        plain = _compiled(pattern).sub(common, plain)
    rejected: frozenset[str] = frozenset()
    for pattern in _REJECTED:
        for match in _compiled(pattern).finditer(plain):
            rejected |= {word.stem for word in _read_words(match["words"])}
        plain = _compiled(pattern).sub(" ", plain)
    return Claim(tuple(_read_words(plain)), denies(plain), rejected)


def denies(text: str) -> bool:
    """Return True if a text negates or forbids something; two denials cancel each other."""
    return len(_compiled(_DENIALS).findall(text.replace("’", "'"))) % 2 == 1


def find_subject(text: str) -> str:
    """Return the words of a title that are neither values, names, relations nor fillers."""
    subject = ""
    for word in read_claim(text).words:
        if not word.sort:
            space = " " if subject and word.shown.isascii() else ""
            subject += space + word.shown
    return subject


def is_unspaced(text: str) -> bool:
    """Return True if a text is in a script without spaces, such as Chinese."""
    return _compiled(f"[{_HAN}]").search(text) is not None


def _read_words(text: str) -> list[Word]:
    text = _CHINESE_NUMBER.sub(lambda match: str(_to_number(match[0])), text)
    text = _compiled(_NUMBER_WORD).sub(lambda match: str(_NUMBER_WORDS[match[0].lower()]), text)
    reader = _Reader(text)
    end = 0
    for match in _VALUE.finditer(text):
        reader.read_gap(end, match.start())
        reader.read_value(match)
        end = match.end()
    reader.read_gap(end, len(text))
    return reader.words


class _Reader:
    """Collects the words of a text."""

    def __init__(self, text: str) -> None:
        self.words: list[Word] = []
        self._text = text
        self._is_unspaced = is_unspaced(text)
        self._before = ""  # the token before, without articles
        self._cue = ""
        self._end = 0  # of the last word

    def read_gap(self, start: int, end: int) -> None:
        """Read the words between two values, without those that deny or affirm."""
        gap = self._text[start:end]
        for pattern in (_DENIALS, _AFFIRMATIONS):
            gap = _compiled(pattern).sub(lambda match: " " * len(match[0]), gap)
        for match in _TOKEN.finditer(gap):
            token = visible_text.fold_text(match[0])
            if token in _GRAMMAR or not match[0][0].isalnum():
                self._cue = _CUES.get(token, "")
            elif token not in _ARTICLES:
                self._read_word(match[0], token, start + match.start())
            if token not in _ARTICLES:
                self._before = token

    def read_value(self, match: re.Match[str]) -> None:
        """Read a value; a number after a word, as in `step 2`, belongs to that."""
        sort, text = match.lastgroup or "", match[0]
        if sort == "per":
            self._read_rate(match)
        elif sort == "amount" and self._names_previous(match):
            last = self.words[-1]
            shown = f"{last.shown} {text}"
            self.words[-1] = last._replace(stem=last.stem + text, shown=shown)
        else:
            sort, value, unit = _read_value(sort, match)
            start = max(match.start(), match.start("count"))  # without `after`
            shown = self._text[start : match.end()]
            self._add(Word("", "").with_value(sort, value, unit, shown), start)
        self._end, self._before = match.end(), text

    def _read_rate(self, match: re.Match[str]) -> None:
        """Read `per minute`, which makes a rate of the amount before it."""
        last = self.words[-1] if self.words else None
        if last and last.sort == "amount" and match.start() - self._end <= 1:
            rate = float(last.value) / _to_seconds(match[0].removeprefix("/").split()[-1])
            shown = f"{last.shown} {match[0].strip()}"
            self.words[-1] = last.with_value("amount", f"{rate:.6g}", f"{last.unit}/", shown)

    def _read_word(self, shown: str, token: str, start: int) -> None:
        """Read a word; a term directly after a number is the unit of that."""
        sort = _find_sort(token) or ("name" if self._is_name(shown, start) else "")
        stem = _RELATIONS[token] if sort == "relation" else text_module.stem(token)
        if not sort and shown.isascii() and self._follows_amount(start):
            last = self.words[-1]
            shown_value = f"{last.shown} {shown}"
            unit = _UNITS.get(token, stem)
            self.words[-1] = last.with_value("amount", last.value, unit, shown_value)
        else:
            self._add(Word(stem, shown, sort), start)
        if sort == "relation":
            self._cue = ""
        if (len(self.words), sort, stem) == (2, "relation", "own"):
            # One owns a thing; another would be a change.
            self.words[0] = self.words[0]._replace(follows_cue=True)
        self._end = start + len(shown)

    def _is_name(self, shown: str, start: int) -> bool:
        """Return True for a Latin word in Chinese, and a capital or digit after the first word."""
        has_capital = any(char.isupper() or char.isdigit() for char in shown)
        is_name = self._is_unspaced or (has_capital and self._text[:start].strip() != "")
        return shown.isascii() and is_name

    def _follows_amount(self, start: int) -> bool:
        last = self.words[-1] if self.words else Word("", "")
        return start - self._end <= 1 and (last.sort, last.unit) == ("amount", "")

    def _add(self, word: Word, start: int) -> None:
        follows = self._before in _CUES
        self.words.append(word._replace(start=start, cue=self._cue, follows_cue=follows))

    def _names_previous(self, match: re.Match[str]) -> bool:
        """Return True if a number tells things apart, and is no amount."""
        is_near = match.start() - self._end <= 1
        if not self.words or not is_near or match["of"] or match["sign"] or match["scale"]:
            return False
        last = self.words[-1]
        if last.sort not in ("", "name"):
            return False
        following = re.match(r"\s+([a-z]+s)\b", self._text[match.end() :])
        is_counted = following is not None and following[1] not in _GRAMMAR
        return len(self.words) == 1 or not is_counted


def _find_sort(token: str) -> str:
    """Return the list that a word is in; empty for others."""
    if token in _RELATIONS:
        return "relation"
    return "filler" if token in _FILLERS else ""


def _read_value(sort: str, match: re.Match[str]) -> tuple[str, str, str]:
    """Return the sort of a value, its normal form, and the unit of an amount."""
    text = match[0].lower()
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
    if sort == "amount":
        return _read_amount(match)
    if sort == "duration":
        return sort, _round_months(float(match["count"]) * _to_seconds(match["unit"])), ""
    if sort == "forever":
        return "duration", "inf", ""
    if sort in _NORMALISERS:
        return sort, _NORMALISERS[sort](text, numbers), ""
    return sort, f"{(numbers or [1])[0]:g}", ""


def _read_month(text: str, numbers: list[float]) -> str:
    name = _compiled(_MONTH).search(text)
    if name is None:
        return f"{numbers[-2:][0]:g}"
    return str([month[:3] for month in _MONTHS.split()].index(name[0][:3]) + 1)


def _read_date(text: str, numbers: list[float]) -> str:
    return f"{_read_month(text, numbers)}-{numbers[-1]:g}"


def _read_weekday(text: str, _: list[float]) -> str:
    chinese = "一二三四五六日".find(text[-1].replace("天", "日"))
    return _DAYS[chinese] if chinese >= 0 else text.removesuffix("s")


def _read_clock(text: str, numbers: list[float]) -> str:
    is_late = re.search(r"p\.?m", text) or text[:2] in ("下午", "晚上")
    hour = numbers[0] + 12 * bool(is_late and numbers[0] < 12)
    return f"{hour * 60 + (30 if text.endswith('半') else (numbers[1:] or [0])[0]):g}"


def _read_frequency(text: str, numbers: list[float]) -> str:
    """Return the seconds from one time to the next: `twice a week`, `每 2 天`, `hourly`."""
    period = re.sub(r"(?:限|最多|至多|不超过)?\s*\d+\s*次$|ly$", "", text)
    unit = re.search(rf"(?:{_UNIT}|月)$", period)
    seconds = _to_seconds(unit[0] if unit else "month")
    count = 2.0 if text.startswith("twice") else (numbers or [1.0])[-1]
    is_interval = text.startswith(("every", "each", "每")) and not text.endswith("次")
    return f"{seconds * count if is_interval else seconds / count:.4g}"


_NORMALISERS = {
    "date": _read_date,
    "month": _read_month,
    "weekday": _read_weekday,
    "clock": _read_clock,
    "frequency": _read_frequency,
}


def _read_amount(match: re.Match[str]) -> tuple[str, str, str]:
    unit = (match["of"] or match["sign"] or "").lower()
    try:
        number = float(re.sub(r",(?=\d{3})", "", match["number"]).replace(",", "."))
    except ValueError:  # a version
        return "version", match["number"], ""
    number *= _SCALES.get((match["scale"] or "").lower(), 1)
    if unit.endswith(("b", "hz")):
        prefix, unit = unit[0], unit.lstrip("kmgt").lstrip("i")
        number *= {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}.get(prefix, 1)
    return "amount", f"{number:.12g}", _UNITS.get(unit, unit)


def _to_seconds(unit: str) -> float:
    for pattern, seconds in _SECONDS:
        if re.fullmatch(pattern, unit, re.IGNORECASE):
            return seconds
    return 2_628_000.0


def _round_months(seconds: float) -> str:
    """Return the seconds; in half months from one month on, for a month has 28 to 31 days."""
    months = round(2 * seconds / 2_628_000) / 2
    return f"{months * 2_628_000 if months >= 1 else seconds:.10g}"


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
