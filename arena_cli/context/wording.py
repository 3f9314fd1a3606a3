"""What the wording of a sentence says of it: how much it tells, and where in a summary it belongs.

English and Chinese. It is a guess: what says outright what it is is found by `memory.rules`.
"""

from __future__ import annotations

import re

_MOST_TOLD = 4

_PREFERS = re.compile(
    r"\b(?:i|we)(?:'d| would)? (?:much )?(?:prefer|like|rather|want|hate|love)\b|\bmy preference\b"
    r"|\b(?:don't|do not|never) (?:like|want|use)\b|我们?更?(?:不?喜欢|偏好|希望|不?想|习惯)|偏好",
    re.IGNORECASE,
)
_SOUNDS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "key_decisions": (
            r"\b(?:(?:i|we)(?:'ll| will)|let's|let us) (?:go with|stay with|use|take|pick)\b"
            r"|就用|改用|选用"
        ),
        "unresolved_issues": (
            r"\b(?:can't|cannot|couldn't|unable to|fails?|failing|broken|expired|blocks|unclear"
            r"|known (?:problem|issue|bug)|still (?:not|no|waiting|missing))\b"
            r"|\bnot\b.{0,30}\byet\b|过期|失败|报错|崩溃|跑不|起不来|无法|没法|还没|尚未|阻塞|卡在|已知问题|不清楚"
        ),
        "next_steps": r"^next\b|\bnext,? (?:i|we)\b|^(?:接下来|下一步)",
        "pending_tasks": (
            r"\b(?:i|we)(?:'ll| will| need to| have to|(?:'m| am|'re| are) going to)\b"
            r"|我来|我会|我去|需要.{1,12}(?:续|补|修|改|做|写)"
        ),
    }.items()
}
# A number, a path, an address, a name in capitals or with a capital within, what stands in quotes.
_TELLS = re.compile(
    r"\d[\d.,:]*|https?:|[\w.-]+[/\\][\w./\\-]+|\b[A-Z][A-Z0-9_-]+\b|\b\w+[a-z][A-Z]\w*|`[^`]+`|[“「《\"][^”」》\"]+[”」》\"]"
)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
# Chinese writes its names as it writes all else: what is said of them tells that it is a fact.
_STATES = re.compile(
    r"位于|[放存设建装]在|部署[在于]|来自|属于|归.{1,8}(?:管|所有)|只有|仅有|负责|名叫|叫做|默认|地址|版本|端口"
    r"|密码|账号|截止|每[天周月年次]|改[为成名]|换成|依赖|基于|等于|[^，。]{1,12}[是为](?:由|用|以)"
)
# Who speaks of himself, or of how he sees it, seldom tells what others must know later.
_CHATS = re.compile(
    r"\b(?:i|me|my|we|us|let's|thanks?|maybe|perhaps|honest|fine|well)\b|我|咱|谢谢|也许|大概|觉得|说实话",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？][”」』\"'）)]*$|[吗呢][。.]?$|^请|^麻烦"
    r"|^(?:[\w ]{0,20}, )?(?:please|can|could|would|will) (?:you )?\b",
    re.IGNORECASE,
)


def told(said: str) -> int:
    """How much a sentence tells: its numbers, names, paths and quotes, counted."""
    found = sum(len(pattern.findall(said)) for pattern in (_TELLS, _NAME, _STATES))
    return max(0, min(_MOST_TOLD, found) - len(_CHATS.findall(said)))


def prefers(said: str) -> bool:
    """Whether somebody says what he likes."""
    return _PREFERS.search(said) is not None


def section(said: str) -> str:
    """The section of a summary that a sentence sounds like."""
    if _ASKS.search(said):
        return "context_clues"
    sounds = (name for name, pattern in _SOUNDS.items() if pattern.search(said))
    return next(sounds, "important_facts" if told(said) else "context_clues")
