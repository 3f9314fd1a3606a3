"""Define the phrases that mark a sentence as a decision, a requirement, a task or a problem.

English and Chinese. A *marker* comes first in the sentence, with a colon (`Decision: ...`,
`决定：...`); a *saying* is a phrase within it (`we decided to ...`, `我们决定...`). Questions,
denials, suppositions and mere proposals do not count: a missed note is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from arena_cli.notes.model import Kind

_AT = r"[@＠][^\s,，:：。;；]{1,40}"

_DAY_EN = (
    r"(?:the\s+)?(?:end|eod|cob|tomorrow|tonight|today|noon|midnight|mon|tue|wed|thu|fri|sat|sun|"
    r"next|this|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|\d)"
)
_DUE_EN = rf"\b(?:by|before|until|no later than)\s+{_DAY_EN}"
_DUE_ZH = (
    r"(?:今天|今晚|今日|明天|明晚|明早|后天|[本下这]?(?:周|星期|礼拜)[一二三四五六日天末内]?|"
    r"[本下]?月[底末初]|"
    r"年[底末]|下班|[\d一二三四五六七八九十两]+\s*(?:号|日|点|天|小时|周|个月|"
    r"月))[^，。,]{0,4}?(?:前|内)"
)

_MARKERS: dict[Kind, str] = {
    "decision": (
        r"(?:final |key )?(?:decisions?(?: made)?|decided)|(?:最终|关键)?(?:决定|决策|决议)"
    ),
    "conclusion": r"conclusions?|(?:最终)?结论",
    "requirement": (
        r"(?:[\w-]{1,20} ){0,2}(?:requirements?|constraints?|acceptance criteri(?:a|on))|"
        r"[^\s，。,：:不没无啥哪什]{0,12}\s?(?:需求|要求)|(?:硬性)?约束(?:条件)?|验收(?:标准|条件)"
    ),
    "task": (
        r"to-?dos?|to do|action items?|action|tasks?|assigned to " + _AT + r"|"
        r"待办(?:事项)?|任务|行动项"
    ),
    "blocker": r"blockers?|blocked|阻塞(?:项|点|问题)?|卡点",
    "issue": (
        r"(?:known |open )?(?:problems?|issues?|bugs?|defects?|risks?)|"
        r"(?:已知|主要|遗留|现存)?(?:问题|缺陷|故障|风险)"
    ),
    "next_action": r"next (?:steps?|actions?)|下一步(?:行动|计划)?|后续(?:行动|步骤|动作|计划)",
}

_NO_PRONOUN = (
    r"(?:(?!(?:i|you|we|it|that|this|they|he|she|there|what|who|which|somebody|someone)\b)"
    r"[\w'/-]+\s+)"
)

_SAYINGS: list[tuple[Kind, str, str]] = [
    (
        "blocker",
        r"(?:\b(?:is|are|am|remains?|still)|'m|'re|'s)\s+(?:currently\s+|still\s+)?"
        r"(?:blocked|stuck)\s+(?:by|on|until|because|at)\b|"
        r"\b(?:cannot|can't|can not|unable to)\s+(?:proceed|continue|move on|go on|start)\b.*"
        r"\b(?:until|without|because|before|unless)\b|"
        r"(?:\b(?:is|are|am)|'m|'re|'s)\s+(?:still\s+)?waiting\s+(?:for|on)\s+"
        r"(?!(?:you|your|me|my)\b)|\bon hold (?:until|because)\b|"
        r"被[^，。,]{0,20}(?:阻塞|卡住)|卡[在住]|(?:无法|没法|不能)(?:继续|进行|推进|开展)",
        r"\bno longer\b|\bany ?more\b|\bnothing\b|\bnobody\b|\bnot (?:blocked|stuck|waiting)\b|n't "
        r"(?:blocked|stuck|waiting)|\bresolved\b|\bsolved\b|\bwas\b|\bwere\b|不再|不会|已解|"
        r"解决了|已经解|"
        r"有没有|没有被|没被|不卡|恢复",
    ),
    (
        "decision",
        r"\b(?:we|the (?:team|group|board|meeting))(?:'ve|'s| have| has)?"
        r"(?: (?:all|finally|now|jointly|just))? (?:decided|agreed|settled|opted|resolved|chosen|"
        r"chose|picked|voted)\b|\bit (?:was|is|has been) (?:decided|agreed)\b|"
        r"\blet(?:'|’)?s (?:go with|stick with|settle on|adopt)\b|"
        r"\bwe(?:'re| are) going (?:with|for)\b|\bthe (?:final )?decision (?:is|was) to\b|"
        r"\bwe(?:'ll| will) (?:adopt|go with|standardi[sz]e on|stick with|"
        r"(?:switch|move|migrate) (?:from|to|over))\b|"
        r"\bwe(?:'ll| will)(?: now)? use .*\b(?:instead of|rather than|in place of)\b|"
        r"(?:我们|团队|大家|项目组|小组|会议?上?|讨论后?|评审后?|最终|最后|一致|已经?|"
        r"现)[^，。,]{0,6}?"
        r"决定(?!权|于|性|因素|书|的|了?[吗没])|"
        r"(?:确定|选定|敲定|商定|决定)(?:采用|使用|选用|改用|用|为|由|以|不再)|"
        r"(?:我们|团队|大家|已经?|最终|最后)[^，。,]{0,4}?(?:选定|敲定|商定|确定使用|选择了)|"
        r"一致(?:同意|通过)|达成(?:了)?一致|(?:方案|事情?|选型)[^，。,]{0,4}(?:定了|通过|定为)|"
        r"就这么定",
        r"\bno decision\b|\b(?:not|never|n't)(?: \w+){0,2} (?:decid|agre|settl|chos|pick)|"
        r"\bundecided\b|"
        r"\byet to\b|\blast (?:year|month)\b|还没|还未|尚未|没有?(?:决定|定)|未(?:决定|定|"
        r"通过)|并未|是否|"
        r"要不要|怎么决定|谁决定|决定一下|来决定|再决定|(?:没有|未)达成|"
        r"(?:已有|现有|原有|原来|之前|先前|此前)的?(?:决定|决策)",
    ),
    (
        "task",
        rf"{_AT}[,:，：]?\s+(?:could you\s+|can you\s+)?please\b.*{_DUE_EN}|"
        rf"\bplease\b(?=.*{_AT}).*{_DUE_EN}|"
        rf"{_AT}\s+(?:will|is going to|is to)\s+(?:take care of|take over|handle|own|do|write|"
        rf"prepare|"
        r"build|implement|review|fix|set up|draft|deliver)\b|"
        rf"{_AT}\s+(?:is (?:responsible for|in charge of|assigned to)|owns)\b|"
        rf"\bI(?:'ll| will)\b.*{_DUE_EN}|"
        rf"(?:请|麻烦)\s*{_AT}.*?{_DUE_ZH}|{_AT}[\s,，:：]*(?:请|麻烦).*?{_DUE_ZH}|"
        rf"由\s*{_AT}\s*(?:来|去)?(?:负责|处理|完成|跟进|实现|编写|做)|"
        rf"(?:交给|分配给|指派给|分派给)\s*{_AT}|"
        rf"我(?:会|将|来|们会|们将)?\s*(?:在|争取)?{_DUE_ZH}[^。]*(?:完|交|发|给出|做好|准备好)",
        r"\bwill not\b|won't\b|不(?:会|能|要)(?!忘)|谁",
    ),
    (
        "requirement",
        rf"^\s*[*_\"“]*{_NO_PRONOUN}{{1,10}}(?:must|shall|has to|have to|needs? to|"
        r"(?:is|are) required to|may not|(?:is|are) (?:not allowed|forbidden|prohibited|"
        r"mandatory))\b|"
        r"\bwe must(?: not| never)? \w+|"
        r"(?<![不非])必须(?!说|承认|指出|的[。！!]?$)|务必|(?<!舍)不得(?!不|而知|了|已|人心)|"
        r"禁止|严禁|"
        r"不(?:允许|准)|需要?(?:支持|符合|满足|兼容|具备|保证|遵守|达到|通过)|"
        r"(?<![必无毋何胡])须(?!要?知|臾)",
        r"\bmust (?:be (?:joking|kidding|that|the|a|an|because|due|why)\b|have\b|say\b|admit\b)|"
        r"\bwe have to (?:talk|see|say)\b|\bif (?:possible|you like)\b|不是必须|并非必须|不必|"
        r"是否必须|"
        r"[我你他她它]必须(?:说|走)|可能|多久|多少|例如|比如|什么|什麼",
    ),
    (
        "issue",
        r"\b(?:found|discovered|noticed|hit|ran into|see|seeing|have)\s+(?:a|an|another|one)\s+"
        r"(?:[\w-]+\s+)?(?:bug|problem|issue|regression|defect|vulnerability)\b.{8,}|"
        r"\bthere(?: is|'s) (?:a|an|another) (?:[\w-]+ )?(?:bug|problem|issue|regression|defect) "
        r"(?:with|in)\b|"
        r"(?:发现|出现|存在)了?(?:一个|个|一些|严重)?(?:严重)?的?(?:问题|缺陷|漏洞|"
        r"[Bb][Uu][Gg])[:：，,].{3,}",
        r"\bfixed\b|\bsolved\b|\bresolved\b|\bno\b|\bnot\b|已?(?:解决|修复)|没有?发现|未发现",
    ),
    ("conclusion", r"^\s*in conclusion,|^综上(?:所述)?[，,]", r"(?!)"),
]

_SIGNS = ":：【["
"""Of which one stands in every marker, but for a heading."""

_HEADS = "#*"
"""Of which one stands in every heading."""

_BOX = "[ ]"

_MARKED_BY: dict[Kind, tuple[str, ...]] = {
    "decision": ("decision", "decided", "决定", "决策", "决议"),
    "conclusion": ("conclusion", "结论"),
    "requirement": ("requirement", "constraint", "criteri", "需求", "要求", "约束", "验收"),
    "task": ("todo", "to-do", "to do", "action", "task", "assigned", "待办", "任务", "行动"),
    "blocker": ("block", "阻塞", "卡点"),
    "issue": ("problem", "issue", "bug", "defect", "risk", "问题", "缺陷", "故障", "风险"),
    "next_action": ("next step", "next action", "下一步", "后续"),
}
"""In small letters, of which one stands in every marker of that kind."""

_ONE_OF: dict[Kind, tuple[str, ...]] = {
    "blocker": (
        *("block", "stuck", "waiting", "on hold", "cannot", "can't", "can not", "unable"),
        *("阻塞", "卡", "无法", "没法", "不能"),
    ),
    "decision": (
        *("decid", "decision", "agreed", "settle", "opted", "resolved", "chose", "picked", "voted"),
        *("let's", "let’s", "lets", "going with", "going for", "we'll", "we will"),
        *("定", "选择", "一致", "通过"),
    ),
    "task": (
        *("please", "i'll", "will", "is going to", "is to", "owns"),
        *("is responsible", "is in charge", "is assigned"),
        *("请", "麻烦", "由", "交给", "分配给", "指派给", "分派给", "我"),
    ),
    "requirement": (
        *("must", "shall", "has to", "have to", "need to", "needs to", "required to", "may not"),
        *("forbidden", "prohibited", "mandatory", "not allowed"),
        *("须", "务必", "不得", "禁", "不允许", "不准", "需"),
    ),
    "issue": (
        *("bug", "problem", "issue", "regression", "defect", "vulnerability"),
        *("发现", "出现", "存在"),
    ),
    "conclusion": ("in conclusion", "综上"),
}
"""In small letters, of which one stands in every sentence that a saying of that kind finds."""

_LONGEST_LOOK = 2_000  # characters

_SUPPOSED = (
    r"\b(?:if|unless|whether|suppose|assuming|maybe|perhaps|might|could|would|probably|possibly|"
    r"i (?:think|guess|suggest|propose|recommend|wonder)|suggest\w*|propos\w+|recommend\w*|"
    r"consider\w*|"
    r"for example|e\.g\.|for instance|should we|do we|did we|have we|what if)\b|"
    r"如果|假如|假设|倘若|要是|万一|除非|一旦|^若|[，,]若|也许|或许|可能|建议|提议|推荐|考虑|"
    r"不妨|例如|比如|"
    r"譬如|想问|要不要|能不能|是不是|有没有|谁能|为什么"
)

_EMPTY = (
    r"(?:tbd|tba|none|nothing|n/?a|no|unknown|pending|open|to be (?:decided|determined|"
    r"discussed)|-+|—+|"
    r"…|\.+|待定|待讨论|待确认|未定|暂无|无|没有|暂未确定|略)(?:\b|(?<=\W)|(?<=[^\x00-\x7f]))"
    r"(?:\s+(?:so far|yet|for now|at the moment))?[\s.。!！…]*\Z"
)


class Saying(NamedTuple):
    """A phrase of one kind; a sentence in which `unless` matches does not count."""

    kind: Kind
    says: re.Pattern[str]
    unless: re.Pattern[str]


def sayings(sentence: str) -> Iterator[Saying]:
    """Yield the patterns that a sentence may match, in the order in which they are tried.

    Compiling them takes some milliseconds, so a pattern is only compiled if it may match.
    """
    folded = sentence.lower()
    for kind, says, unless in _SAYINGS:
        if any(word in folded for word in _ONE_OF[kind]):
            yield Saying(kind, _compiled(says), _compiled(unless))


def may_hold(text: str) -> bool:
    """Return True if a pattern may match in a text; most messages contain none."""
    if _BOX in text:
        return True
    folded = text.lower()
    if any(sign in text for sign in (*_SIGNS, *_HEADS)) and any(_marked_in(folded)):
        return True
    near = [says for kind, says, _ in _SAYINGS if any(word in folded for word in _ONE_OF[kind])]
    # Some look on to a line's end from each place in it, so that a long line takes its square.
    return bool(near) and (
        len(text) > _LONGEST_LOOK or any(_anywhere(says).search(text) for says in near)
    )


@cache
def _anywhere(says: str) -> re.Pattern[str]:
    """Return a pattern that finds in a text every match of `says`, and perhaps more."""
    return _compiled(re.sub(r"(?<![\[\\])\^", r"(?:^|(?<=[\\s\\W]))", says))


def markers(sentence: str) -> Iterator[tuple[Kind, re.Pattern[str]]]:
    """Yield the patterns of markers; the group `said` is the text after the marker."""
    if any(sign in sentence for sign in _SIGNS):
        for kind in _marked_in(sentence.lower()):
            yield kind, _compiled(_marked(_MARKERS[kind]))


def without_marker(sentence: str) -> str:
    """Return a sentence without the word and colon that it begins with, such as `Conclusion:`."""
    for _, marker in markers(sentence):
        match = marker.match(sentence)
        if match and match["said"]:
            return sentence[match.start("said") :]
    return sentence


def _marked_in(folded: str) -> Iterator[Kind]:
    return (kind for kind, marks in _MARKED_BY.items() if any(word in folded for word in marks))


@cache
def _marked(words: str) -> str:
    lead = rf"\s*(?:{_AT}\s+)*[*_\"“]*"
    in_brackets = rf"[【\[]\s*(?:{words})\s*[】\]][*_]*\s*[:：]?"
    with_colon = rf"(?:{words})[*_\"”]*\s*(?:[:：][*_]*)(?!//)"
    return rf"{lead}(?:{in_brackets}|{with_colon})\s*(?P<said>.*)\Z"


def supposed() -> re.Pattern[str]:
    """Return the pattern that makes the following words a supposition, a proposal or a question."""
    return _compiled(_SUPPOSED)


def empty() -> re.Pattern[str]:
    """Return the pattern of a text after a marker that has no content yet."""
    return _compiled(_EMPTY)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
