"""Decide if words in a sentence assert something: now, and in the speaker's own name. Pure.

What others say or do, quotations, jokes, code, suppositions, proposals and the past that is over
assert nothing, in English and in Chinese. A missed note is better than a wrong one.
"""

from __future__ import annotations

import re
from functools import cache

from arena_cli.util.text import lazy_pattern

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


@cache
def _code() -> re.Pattern[str]:
    return re.compile(_CODE)


def is_code(line: str) -> bool:
    """Return True if a line outside of a code block looks like code or a comment in code."""
    return _CODE_SIGN.search(line) is not None and _code().match(line) is not None


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
