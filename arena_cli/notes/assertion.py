"""Decide if words in a sentence assert something: now, and in the speaker's own name. Pure.

What others say or do, quotations, jokes, code, suppositions, proposals and the past that is over
assert nothing, in English and in Chinese. A missed note is better than a wrong one.
"""

from __future__ import annotations

import re
from functools import cache

_QUOTED = re.compile(r"[\"“「『][^\"“”「」『』\r\n]{2,300}[\"”」』]")

_OTHERS = (
    # Reports: the verb, and a subject that is not the speaker.
    r"(?<!\bi )(?<!\bwe )\b(?:says?|said|claim(?:s|ed)|told|mention(?:s|ed)|argue[sd]?|insist(?:s|"
    r"ed)|writes?|wrote|(?:states?|reports?) that|reported|wants|wanted|thinks?|thought|believes?|"
    r"feels|asks?|asked|asking|confirm(?:s|ed)|announce[sd]|promised|asserts|reads|describes?|"
    r"explains?)\b|\b(?:according to|i (?:heard|read|saw|recall|remember)|rumou?r|apparently|"
    r"allegedly|i (?:do not|don't) (?:think|believe|know|remember))\b|"
    # Other people and places.
    r"\b(?:they|their|theirs|he|she|his|her|(?:at|in) my (?:last|previous|old|former)|my (?:last|"
    r"previous|old|former)|(?:other|another) (?:team|company|project)s?|competitors?|in (?:most|"
    r"many|some|other) \w+|most (?:companies|teams|people)|usually|(?:the|an?|this|"
    r"that) (?:article|book|novel|film|movie|podcast|interview))\b|\bas the saying goes\b|"
    r"报错信息|错误信息|提示语|日志里|听说|据说|传言|(?:供应商|厂商|第三方|文档|规范)[^，。,"
    r"]{0,6}(?:要求|规定)|好像|据[^，。,]{1,10}[说称]|"
    r"(?<![我咱按再就来别没么是])(?<!我们)(?<!咱们)(?<!可以)(?<!也就)(?<!或者)(?<!应该)(?<!必须)"
    r"说(?!明|服|法)|声称|宣布|认为|觉得|表示(?!层)|提到|写着|写的是|写道|问(?!题)|(?<!其)他们?|"
    r"她们?|(?<![被等])对方|对面|人家|别人|别的|其他(?:团队|公司|组)|竞品|甲方|乙方|友商|"
    r"内部(?!网)|上家|上一家|前公司|老东家|大多数|很多(?:公司|团队|国家)|文章|小说|电影|书里|书上|"
    r"采访|(?<!我们)公司(?:要求|规定|禁止|决定)|我记得"
)
_OVER = (
    r"\b(?:back (?:then|in|when)|used to|at (?:the|that) time|in those days|(?:years?|"
    r"months?) ago|last (?:year|month|spring|summer|autumn|fall|winter|quarter)|(?:19|"
    r"20)\d\d,? (?:we|i|the team)|originally|initially|at first|formerly|previously|in the past|"
    r"earlier this year|(?:had|nearly|almost) (?:decided|agreed|chosen)|(?:old|former) (?:policy|"
    r"rule|requirement|process)|no longer (?:true|valid|needed|required|applies)|(?:that|it|"
    r"which) is gone|nobody cares)\b|差点|几乎|当时|当年|当初|那时|曾经?(?!经)|去年|前年|上个?月|"
    r"上个?季度|[几多两\d]年前|(?:\A|[，,。；\s]|我们|团队|大家)(?:之前|先前|此前|早先|起初|最初|"
    r"一开始|过去)|原来|原先|原本|(?<![一二三四五六日天末底号点内月年期线布\d])以前|现在(?:不用|"
    r"取消|没了|不需要)|取消了|后来(?:换|改|取消)|已(?:经)?作废"
)
_SUPPOSED = (
    r"\b(?:unless|whether|suppos(?:e|ing)|assum(?:e|ing)|imagine|maybe|perhaps|might|could|would|"
    r"i'd|we'd|probably|possibly|hopefully|wish|in theory|hypothetically|pretend|i (?:think|guess|"
    r"suggest|propose|recommend|wonder|hope|feel|suppose)|suggest\w*|propos\w+|recommend\w*|"
    r"consider\w*|for example|e\.g\.|for instance|should we|(?:do|did|have|can|must) we|what if|"
    r"what about|how about|had we|were we)\b|直到|假装|假如|假设|倘若|假使|要是|万一|除非|一旦|"
    r"也许|或许|大概|恐怕|可能|建议|提议|推荐|考虑|不妨|不如|要不|例如|比如|譬如|想问|能不能|能否|"
    r"可否|是不是|有没有|谁能|谁会|为什么|怎么|想象|应该能|是否|我想(?!要)|如何|哪[个些种]"
)
_CONDITION = r"\b(?:if|in case)\b|如果|若(?!干)|的话"
_PERSONAL = (
    r"\b(?:if|in case) (?:we|i|you|they|he|she|it|that|this|the team|somebody|anybody)\b|(?:如果|"
    r"若)(?:我|你|咱|他|她|大家|团队|这样|那样|真|当初|CI)|的话"
)
_JOKE = (
    r"[😂🤣😜😝😛🤪😹🙃😆😏]|\b(?:lol|rofl|lmao|ha(?:ha)+|hehe|j/?k|just kidding|kidding|joking|"
    r"joke|april fools?)\b|(?<!\S)(?:[:;]-?[DPp]|;-?\)|xD|/s)(?!\S)|哈哈|呵呵|嘿嘿|开玩笑|玩笑|"
    r"狗头|逗你|\b(?:coffee|pizza|beers?|lunch|pon(?:y|ies)|donuts?|cookies|karaoke)\b|咖啡|奶茶|"
    r"午饭|午餐|火锅|披萨|零食|啤酒|吃饭|睡觉"
)
_CODE = re.compile(
    r"\s*(?://|/\*|\*/|<!--|#[ \t]*(?:TODO|FIXME|XXX|HACK|NOTE)\b|--[ \t]*(?:TODO|FIXME)\b)|"
    r"\s*[\w.\[\]'\"]+[ \t]*(?:=|\+=|:=)[ \t]*\S[^#\r\n]*(?:#|//)[ \t]|\s*(?:assert|return|def|"
    r"class|import|from|const|let|var|elif|while|for|if)\b[^\r\n]*(?:[ \t]#[ \t]|[ \t]//[ \t]|"
    r"[;{]\s*\Z)|[^\r\n]*(?:\)\s*;|[{}])\s*\Z"
)

_CODE_SIGNS = ("//", "/*", "*/", "<!--", "#", "--", ";", "{", "}")


def is_code(line: str) -> bool:
    """Return True if a line outside of a code block looks like code or a comment in code."""
    return any(sign in line for sign in _CODE_SIGNS) and _CODE.match(line) is not None


def is_joke(sentence: str) -> bool:
    """Return True if a sentence has a sign that it is not meant."""
    return _compiled(_JOKE).search(sentence) is not None


def blank_quotations(sentence: str) -> str:
    """Return a sentence with blanks for what is within quotation marks; the length stays."""
    if not any(mark in sentence for mark in '"“「『'):
        return sentence
    return _QUOTED.sub(lambda match: " " * len(match[0]), sentence)


def is_supposed(sentence: str, end: int | None = None) -> bool:
    """Return True if the words up to `end` are a supposition, a proposal or a condition."""
    stop = len(sentence) if end is None else end
    return any(_compiled(pattern).search(sentence, 0, stop) for pattern in (_SUPPOSED, _CONDITION))


def is_asserted(sentence: str, end: int, *, may_depend: bool = False) -> bool:
    """Return True if what the words up to `end` say holds now, and for the speaker.

    With `may_depend`, they may depend on a condition that no person has to meet: a rule does.
    """
    if _compiled(_OVER).search(sentence) or _compiled(_OTHERS).search(sentence, 0, end):
        return False
    if _compiled(_SUPPOSED).search(sentence, 0, end):
        return False
    return not _compiled(_PERSONAL if may_depend else _CONDITION).search(sentence, 0, end)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
