"""Read a title or a sentence as a claim: its words and values in order, and what it denies. Pure.

Words of grammar and modality are left out, a denial is a property of the claim, and a value is one
word with a normal form: `60 minutes` and `1 hour` are equal, as are `60 s` and
`1 分钟`. Lists serve those that compare the terms of claims, in any order: *relations* bind a
subject to its value (`expire`, `负责`), *fillers* say nothing of a subject, *kinds* (`service`) say
little.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from arena_cli.notes import synonyms
from arena_cli.notes import text as text_module
from arena_cli.util.text import lazy_pattern
from arena_cli.workspace import visible_text

_DENIALS = (
    r"\b(?:not|never|no(?: longer)?(?!-)|without|nothing|cannot|forbid\w*|"
    r"forbidden|prohibit\w*|ban(?:s|ned)?|disabled?|disallow\w*|"
    r"(?:drop|remove|stop)s? (?:the )?support(?:ing)?(?: of| for)?|"
    r"out of(?= scope)|optional|(?:remov|retir|discontinu|abandon|exclud)(?:es?|ed)|"
    r"(?:drop|shut)s?|free|(?:suspend|halt|omitt)ed|paused|frozen|left out|"
    r"(?<=is )off|(?<=are )off|off(?= by default))\b|n't\b|免费|下线|移除|去掉|废弃|不再|不(?!但|"
    r"仅|同|过|断|错|[少多低高早晚]于|超过)|禁止|严禁|没有|无需|无须|勿|未|停用|关闭|禁用|放弃|停止|取消|暂停|冻结|中止"
)
_AFFIRMATIONS = (
    r"\b(?:allow(?:s|ed)?|enabled?|in(?= scope)|required?|requires|keeps?|kept|retain(?:s|ed)?|"
    r"mandatory|obligatory|compulsory|"
    r"(?:moves?|moved|switch|switches|migrates?|goes|stays?|changes?)(?= (?:to|on|with|"
    r"from)\b)|(?<=is )on(?= (?:in|by|for)\b)|(?<=are )on(?= (?:in|by|for)\b))\b|保留|收费|允许|"
    r"可以|启用|开启|打开|必须|需要|不得不|已经?|应当?|应该|[使采选](?=用)|照[常旧]|每个?|"
    r"[须要能可得将把被都均的了再里]|所有|一律|统一|强制|必填|必选|(?<![由给])我们|决定|进行"
)
_REJECTED = re.compile(
    r"(?:\b(?:instead of|rather than|in place of|replac(?:es|ing))\s+|[,，;；]\s*not\s+|而不是|"
    r"而非|代替|替换|[,，]\s*不(?:再)?[用放存走选]|不(?:再)?用|(?<=\S)不[在是])\s*(?:on |in |with |"
    r"the )*(?P<words>[^,，。;；]+?)(?=\s+(?:for|as|to|in|on|from|any)\b|[,，。;；了]|\Z)",
    re.IGNORECASE,
)
# Forms that are equal: a limit, a change to another thing.
_EQUALS = (
    (
        r"\b(?:(?:is|are) )?(?:limited to|capped at|restricted to|at most|up to|"
        r"no(?:t)? (?:more|less|fewer|later|longer) than|not exceed)\b",
        " ",
    ),
    (r"\bno more(?= \w+ than\b)|\bthan\b", " "),
    (r"\b(?:is |are )?(?:deleted|removed|purged|erased) after\b", "expire after"),
    (r"(?<=[天周月年时])后(?:自动|即)?(?:删除|清除|清理)", "过期"),
    (r"\b(front|back)[ -]end\b", r"\1end"),
    (r"\btimed?s? out\b", "timeout"),
    (r"[换改]成|切换?到|迁移?到|改到|改[用为在]", "用"),
    (r"改由|交[给由]", "由"),
)
_CHANGES = re.compile(r"\b(?:mov|switch|migrat|chang)\w*\b", re.IGNORECASE)
_LEFT = re.compile(
    r"\bfrom\s+(?:the )?(?P<words>(?!\d|(?:mon|tue|wed|thu|fri|sat|sun))\S+(?: \S+)?)(?=\s+to\b)",
    re.IGNORECASE,
)


def _list(text: str) -> list[str]:
    return text.split()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARTICLES = _words("the a an any all every each our their its your my only")
# A thing has one value after such a word; the first of each line names the sort.
_CUES = {
    cue: sort
    for sort, cues in (
        ("be", "is are as 是 为 设为 定为"),
        ("by", "by via through with over use uses using used adopt adopts choose chose"),
        ("by", "用 走 使用 采用"),
        ("who", "由"),
        ("in", "in on at inside into 在 到 放 存 定在"),
        ("to", "to 发"),
        ("from", "from 属"),
    )
    for cue in cues.split()
}
_GRAMMAR = (_CUES.keys() - _words("走 放 存 发 属")) | _words(
    "a an the all every each any per of for and or that this these those it its be been we i "
    "our you your will shall must should may can could has have had having need needs do does done "
    "let now just only also always there my their your decided decide agreed built so coded "
    "wrote happen happens happened written based implemented"
)
_FILLERS = _words(
    "pick picked select selected fix fixed raise raised lower lowered increase increased "
    "reduce reduced extend extended shorten shortened postpone postponed delay delayed bring "
    "brought reach reaches place held located placed lies cost costs amounts stands comes "
    "part included become becomes turn turned turns hit hits stop stops average overall "
    "approximately currently main capped limited restricted granted give gives given provide "
    "provides provided offer offers hand handed ask asked go goes went set sets make makes "
    "made take takes taken get gets run runs ran put work works occur occurs move moves "
    "moved switch switches migrate changed change changes limit limits cap max maximum min "
    "minimum most least more less fewer enough currently today exactly about around roughly "
    "still again already yet then later total out up planned scheduled expected contain "
    "contains include includes date time length size number count amount value rate level "
    "period duration allows permit permits and or 走 不 即 才 只 仅 都 个 和 与 对 内 后 上 "
    "会 就 也 并 设 定 做 选 选定 选用 选择 统一 需 应 最大 最多 最少 至少 最长 最短 上限 "
    "下限 超过 少于 多于 低于 高于 达到 即可 才能 目前 现在 暂时 时间 时长 长度 大小 数量 "
    "期限 时限 调 调整 提高 降低 推迟 提前 追加 上调 下调 增加 减少 缩短 延长 放宽 提升 降到 "
    "加到 缩到 升到 放进 纳入 加入 包含 包括 归入 每次 每个 享受 享 有 给 提供 达 进 延期 "
    "延后 顺延 安排 计划 预计 总共 大约 左右 以内 之内 单个"
)
_KINDS = _words(
    "service services system systems tool tools framework library module modules job jobs "
    "entry entries item items user users 服务 系统 框架 模块 用户 任务"
)
_RELATIONS = {
    word: line.split()[0]
    for line in (
        "keep storage store stored stores save saved hold holds held live lives last lasts expire "
        "expires valid remain remains timeout 保存 留存 存储 存放 有效期 有效 过期 失效 超时 留 存 "
        "放",
        "own owns owned lead leads maintain maintains responsible charge belongs 负责 牵头 归",
        "begin begins start starts launches 开始 启动",
        "build builds developed develop 开发 实现 编写 写",
        "send sends sent deliver delivered mailed 发送 发",
        "answer answers answered reply replies respond responds 回复 响应 答复",
        "load loaded read come comes fetched 读取",
        "support supports supported 支持",
        "pay pays paid 支付给",
    )
    for word in line.split()
}
_NUMBER_WORDS = dict(
    zip(
        _list(
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy "
            "eighty ninety hundred"
        ),
        map(str, (*range(1, 21), *range(30, 101, 10))),
        strict=True,
    )
)
_NUMBER_WORD = rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b"
_DIGITS = {char: number for number, char in enumerate("零一二三四五六七八九")} | {"两": 2}
_CHINESE_NUMBER = re.compile(
    r"半(?=个?[天年月小分])|(?<=第)[一二三四五六七八九十]|"
    r"[一二两三四五六七八九十百]+(?=个?[天秒周年月元条次人个位名倍份台页期小分毫星版点日号万亿])"
)
_MONTHS = "january february march april may june july august september october november december"
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_HAN = visible_text.UNSPACED
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _MONTHS.split())
_SECONDS = (
    (r"milliseconds?|ms|毫秒", 0.001),
    (r"seconds?|secs?|s|秒钟?", 1.0),
    (r"minutes?|mins?|分钟", 60.0),
    (r"hours?|hrs?|h|个?小时|hour", 3600.0),
    (r"days?|nights?|[天晚日]|dai|night", 86_400.0),
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
_UNITS = {
    written: unit
    for unit, all_written in (
        ("charact", "位 字符 个字符"),
        ("people", "人 名 users person"),
        ("%", "percent"),
        ("times", "次"),
        ("euro", "€"),
        ("dollar", "$"),
        ("元", "¥"),
    )
    for written in all_written.split()
}
# Words that hold a character that alone is a cue, a relation or a filler.
_COMPOUNDS = _words(
    "用户 应用 用例 通用 会话 会议 会员 上线 上传 上海 线上 缓存 内存 内容 内网 发布 发票 "
    "发货 发版 发起 后端 后台 在线 在场 定时 定价 锁定 设计 设备 回调 调用 调度 调试 走查 "
    "归档 写入 存档 库存 放假 选项 操作 应用 需求 就绪 为主 到期 到账 试用 站会 例会 开会 "
    "服务器 由于 个人 与会 对象 对账 属性 主要 名称"
)
_TOKEN = lazy_pattern(
    "|".join(
        sorted(
            (
                word
                for word in (
                    *_FILLERS,
                    *_KINDS,
                    *_RELATIONS,
                    *_CUES,
                    *_COMPOUNDS,
                    *synonyms.list_chinese(),
                )
                if word > "\u2e80" < word[1:]
            ),
            key=len,
            reverse=True,
        )
    )
    + rf"|(?:[^\W\d_{_HAN}](?:(?:[^\W{_HAN}]|[.+#'-])*(?:[^\W{_HAN}]|[+#]))?)|[{_HAN}]|"
    r"[,，。;；:：()（）]",
    re.IGNORECASE,
)
_NUMBERS = _words("amount duration date clock monthday")
_PERIODS = _words("weekday month frequency")
_OWNERS = _words("leads owns maintains responsible")


class Word(NamedTuple):
    """A word of a claim: its stem, as it was written, and what its place says of it.

    `start` is its place in the text. `cue` is the sort of the word before its phrase after which a
    thing has one value, such as `use`, `in` or `是`; with `follows_cue`, it is the first of that.
    `sort` is that of a value (`amount %`), `relation`, `filler`, `kind`, or empty.
    """

    stem: str
    shown: str
    follows_cue: bool
    sort: str = ""
    start: int = 0
    cue: str = ""

    @property
    def is_number(self) -> bool:
        """True if it is an amount, a date, or how many times something happens."""
        has_digit = self.sort == "frequency" and any(char.isdigit() for char in self.shown)
        return has_digit or self.sort.partition(" ")[0] in _NUMBERS

    @property
    def is_period(self) -> bool:
        """True if it is a day of the week, a month, or how often something happens."""
        return self.sort in _PERIODS and not self.is_number

    @property
    def is_value(self) -> bool:
        """True if it is an amount, a date, a day, how often, or a name."""
        return self.sort not in ("", "relation", "filler", "kind")

    @property
    def concept(self) -> str:
        """The word that stands for it in both languages, if there is one."""
        word = visible_text.fold_text(self.shown)
        return synonyms.find_common(word)

    @property
    def is_name(self) -> bool:
        """True if it is a word of a name: `MySQL`, and any Latin word in a Chinese text."""
        return self.sort == "name"


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
        """The words that stand for those in it in both languages."""
        return frozenset(word.concept for word in self.words if word.concept)

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
            rejected |= {word.stem for word in _read_words(match["words"])}
        plain = expression.sub(" ", plain)
    return Claim(tuple(_read_words(plain)), denies(plain), rejected)


def denies(text: str) -> bool:
    """Return True if a text negates or forbids something; two denials cancel each other."""
    return len(_compiled(_DENIALS).findall(text.replace("’", "'"))) % 2 == 1


def find_subject(text: str) -> str:
    """Return the words of a title that are neither values, relations nor fillers."""
    words = read_claim(text).words
    subject = ""
    for index, word in enumerate(words):
        if word.sort in ("", "kind") or (word.is_name and not word.cue and index == 0):
            space = " " if subject and word.shown.isascii() else ""
            subject += space + word.shown
    return subject


def is_unspaced(text: str) -> bool:
    """Return True if a text is in a script without spaces, such as Chinese."""
    return _compiled(f"[{_HAN}]").search(text) is not None


def _drop_denials(text: str) -> str:
    """Return the text with spaces for the words that deny or affirm."""
    for pattern in (_DENIALS, _AFFIRMATIONS):
        text = _compiled(pattern).sub(lambda match: " " * len(match[0]), text)
    return text


def _read_words(text: str) -> list[Word]:
    text = _CHINESE_NUMBER.sub(lambda match: str(_to_number(match[0])), text)
    text = _compiled(_NUMBER_WORD).sub(lambda match: _NUMBER_WORDS[match[0].lower()], text)
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
        self._amount: float | None = None  # that is the last word but for names, without unit

    def read_gap(self, start: int, end: int) -> None:
        """Read the words between two values."""
        for match in _TOKEN.finditer(_drop_denials(self._text[start:end])):
            self._read_token(match[0], start + match.start())

    def read_value(self, match: re.Match[str]) -> None:
        """Read a value; a number after a word, as in `step 2`, belongs to that."""
        sort, text = match.lastgroup or "", match[0]
        if sort == "per":
            self._read_per(match)
            return
        if sort == "amount" and self._names_previous(match):
            last = self.words[-1]
            shown = f"{last.shown} {text}"
            sort = last.sort.replace("kind", "")
            self.words[-1] = last._replace(stem=last.stem + text, shown=shown, sort=sort)
        else:
            sort, key = _read_value(sort, match)
            shown = text[match.start("count") - match.start() :] if sort == "duration" else text
            self._add(f"{sort}:{key}", shown, match.start(), sort)
            self._amount = float(key) if sort.startswith("amount") else None
        self._end, self._before = match.end(), text

    def _read_per(self, match: re.Match[str]) -> None:
        """Read `per minute`, which makes a rate of an amount, or `an hour`, an amount itself."""
        seconds = _to_seconds(match[0].removeprefix("/").split()[-1])
        last = self.words[-1] if self.words else None
        if last and last.sort.startswith("amount") and match.start() - self._end <= 1:
            rate = float(last.stem.rpartition(":")[2]) / seconds
            sort = f"{last.sort}/"
            shown = f"{last.shown} {match[0].strip()}"
            self.words[-1] = last._replace(stem=f"{sort}:{rate:.6g}", shown=shown, sort=sort)
        elif match[0][0] in "aA":
            self._add(f"duration:{_round_months(seconds)}", match[0], match.start(), "duration")
        self._amount, self._end = None, match.end()

    def _read_token(self, shown: str, start: int) -> None:
        token = visible_text.fold_text(shown)
        if token in _ARTICLES:
            return
        is_cue = token in _CUES
        if token in _GRAMMAR or not shown[0].isalnum():
            self._cue = _CUES.get(token, "")
        else:
            is_first = not self._is_unspaced and not self._text[:start].strip()
            sort = _find_sort(shown, token, is_name=self._is_unspaced, is_first=is_first)
            is_unit = not sort and shown.isascii() and start - self._end <= 1
            if self._amount is not None and is_unit:
                self._count(shown, token)
            else:
                self._add(_stem(token, sort), shown, start, sort)
            if is_cue or sort == "relation":
                self._cue = _CUES.get(token, "")
            if len(self.words) == 2 and token in _OWNERS:
                # One leads; another would be a change.
                self.words[0] = self.words[0]._replace(follows_cue=True)
            self._end = start + len(shown)
        self._before = token

    def _add(self, stem: str, shown: str, start: int, sort: str) -> None:
        follows = self._before in _CUES
        self.words.append(Word(stem, shown, follows, sort, start, self._cue))
        self._amount = self._amount if sort == "name" else None

    def _count(self, shown: str, token: str) -> None:
        """Make a word the unit of the amount before it."""
        place = max(index for index, word in enumerate(self.words) if not word.is_name)
        amount, unit = self.words.pop(place), _UNITS.get(token, text_module.stem(token))
        sort = f"amount {unit}"
        stem, shown = f"{sort}:{self._amount:g}", f"{amount.shown} {shown}"
        self.words.append(amount._replace(stem=stem, shown=shown, sort=sort))
        self._amount = None

    def _names_previous(self, match: re.Match[str]) -> bool:
        """Return True if a number tells things apart, and is no amount."""
        last = self.words[-1] if self.words else None
        is_near = match.start() - self._end <= 1 and not (
            match["of"] or match["sign"] or match["scale"]
        )
        if not is_near or not last or (last.is_value and not last.is_name):
            return False
        if last.sort in ("relation", "filler"):
            return False
        following = re.match(r"\s+([a-z]+s)\b", self._text[match.end() :])
        is_counted = following and following[1] not in _GRAMMAR | _FILLERS | _RELATIONS.keys()
        is_named = last.is_name or (last.follows_cue and last.cue != "be") or len(self.words) == 1
        return is_named or not is_counted


def _find_sort(shown: str, token: str, *, is_name: bool, is_first: bool) -> str:
    """Return the sort of a word; with `is_name`, each Latin word is a name."""
    if token in _RELATIONS:
        return "relation"
    if token in _FILLERS | _KINDS:
        return "kind" if token in _KINDS else "filler"
    has_sign = any(char.isupper() or char.isdigit() for char in shown[1:])
    is_name = is_name or has_sign or shown[0].isupper()
    return "name" if shown.isascii() and is_name and not is_first else ""


def _stem(token: str, sort: str) -> str:
    """Return the form in which two words are equal."""
    return _RELATIONS[token] if sort == "relation" else text_module.stem(token.removesuffix("'s"))


def _read_value(kind: str, match: re.Match[str]) -> tuple[str, str]:
    """Return the sort of a value and its normal form."""
    if kind == "amount":
        return _read_amount(match)
    if kind == "duration":
        return kind, _round_months(float(match["count"]) * _to_seconds(match["unit"]))
    if kind == "forever":
        return "duration", "inf"
    return kind, _normalise(kind, match[0].lower())


def _normalise(kind: str, text: str) -> str:
    """Return the normal form of a date, a time, a day or how often."""
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
    if kind in ("date", "month"):
        name = _compiled(_MONTH).search(text)
        month = _find_month(name[0]) if name else numbers[-2:][0]
        return f"{month:g}-{numbers[-1]:g}" if kind == "date" else f"{month:g}"
    if kind == "weekday":
        chinese = "一二三四五六日".find(text[-1].replace("天", "日"))
        return _DAYS[chinese] if chinese >= 0 else text.removesuffix("s")
    if kind == "clock":
        is_late = re.search(r"p\.?m", text) or text[:2] in ("下午", "晚上")
        hour = numbers[0] + 12 * bool(is_late and numbers[0] < 12)
        return f"{hour * 60 + (30 if text.endswith('半') else (numbers[1:] or [0])[0]):g}"
    if kind == "frequency":
        return f"{_to_interval(text, numbers):.4g}"
    return f"{(numbers or [1])[0]:g}"


def _find_month(name: str) -> int:
    return [month[:3] for month in _MONTHS.split()].index(name[:3]) + 1


def _read_amount(match: re.Match[str]) -> tuple[str, str]:
    unit = (match["of"] or match["sign"] or "").lower()
    try:
        number = float(re.sub(r",(?=\d{3})", "", match["number"]).replace(",", "."))
    except ValueError:  # a version
        return "version", match["number"]
    number *= _SCALES.get((match["scale"] or "").lower(), 1)
    if unit.endswith(("b", "hz")):
        prefix, unit = unit[0], unit.lstrip("kmgt").lstrip("i")
        number *= {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}.get(prefix, 1)
    return f"amount {_UNITS.get(unit, unit)}".rstrip(), f"{number:.12g}"


def _to_interval(text: str, numbers: Sequence[float]) -> float:
    """Return the seconds from one time to the next: `twice a week`, `每 2 天`, `hourly`."""
    period = re.sub(r"(?:限|最多|至多|不超过)?\s*\d+\s*次$|ly$", "", text)
    unit = re.search(rf"(?:{_UNIT}|月)$", period)
    seconds = _to_seconds(unit[0] if unit else "month")
    if text.startswith("twice"):
        return seconds / 2
    if text.startswith(("every", "each", "每")) and not text.endswith("次"):
        return seconds * (numbers or [1])[0]
    return seconds / (numbers or [1])[-1]


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
