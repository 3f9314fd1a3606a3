"""Detect replies that ignore the notes that their agent was shown. Pure, and asks no model.

It is read by words alone, so it reports only what is plain, and is silent where it may be wrong:

- A note *concerns* a text if two or more, and at least 40 %, of the significant words of its title
  (`notes.text`) are in the visible part of the text; the one word of a title that has just one.
- A *blocker* that concerns the reply is ignored (`replan_required`) if a sentence of the reply that
  holds a word of its title says that the work goes ahead (will, deploy, start, 上线, 开始, ...),
  and the reply does not refer to it by its id or title, and no sentence with a word of its title,
  nor one next to such a sentence, says that something is blocked, waited for or unresolved, or that
  it is solved. A question, or that something will *not* be done, is no going ahead.
- A *next action*, of this agent or of no agent, that concerns the new messages is ignored
  (`warning`) if the reply holds less than a quarter of its words, not its id or title, and does not
  begin by accepting (on it, will do, 收到, 好的). It is not where the new messages say that it was
  done.
- A *conclusion* is contradicted (`warning`) if a part of a sentence says otherwise about the same
  subject: a negation, another amount or another choice (`notes.contradictions`). It is not where
  the new messages say so too, the reply names the conclusion, or the sentence asks or supposes.
- Each has a severity: `high` for a blocker, `medium` for a next action, `low` for a conclusion.
- Other kinds are never ignored, nor is a note that is archived or superseded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from arena_cli.notes import assertion, contradictions
from arena_cli.notes.claims import Claim, read_claim
from arena_cli.notes.model import Note
from arena_cli.notes.text import Sentence, shared, significant_words, split
from arena_cli.util.text import cut_text
from arena_cli.workspace import visible_text

BEARS = 0.4
TAKEN_UP = 0.25

_SHORTEST_NAME = 4

_OPEN = (
    r"\b(?:block(?:ed|er|ers|ing|s)?|stuck|wait(?:ing|s)?|until|once|as soon as|unresolved|pending|"
    r"on hold|hold off|postpone[ds]?|delay(?:ed|s)?|missing|not yet|unavailable|depend(?:s|ent|"
    r"ing)|"
    r"(?:not|n't|without) (?:have|has|had|got|received|access|ready|available)|cannot|can't|"
    r"can not|"
    r"unable|yet to|still (?:no|not|need|open)|need(?:s)? to be (?:solved|resolved|fixed)|"
    r"before we|"
    r"workaround|work around|instead|mock(?:s|ed)?|stub(?:s|bed)?)\b|"
    r"阻塞|卡[住在点]|等待|[在先还再]等|等[^，。,]{1,20}(?:后|再|才|到|好|完)|"
    r"待[^，。,]{0,12}(?:后|再)|尚未|还没|"
    r"未解决|没解决|暂停|暂缓|搁置|推迟|延后|延期|无法|没法|不能|依赖|缺少|缺失|没有?(?:拿到|"
    r"收到|到位|就绪)|悬而未决|绕过|先用|模拟"
)
_SOLVED = (
    r"\b(?:solved|resolved|fixed|unblocked|no longer|(?:has|have|had|were|was|are|is|been)(?: now)?"
    r"(?: been)? (?:received|granted|cleared|delivered|provided|approved|signed|restored|"
    r"available)|"
    r"arrived|(?:we|i)(?: now)? (?:got|have|received)|done|finished|completed|works? again|"
    r"is back)\b|"
    r"(?:已经?|都|全部|终于|刚刚?)[^，。,]{0,8}(?:解决|修复|就绪|到位|拿到|收到|下发|解除|恢复|"
    r"完成|签署|签字|批准|通过|提供|做完|跑完|搞定)|"
    r"(?:解决|修复|拿到|收到|解除|恢复|到位|完成|做完|搞定|通过)了|不再(?:阻塞|卡)"
)
_NOT_SOLVED = (
    r"\b(?:not|n't|never|yet to be|un)\s*(?:yet |been |fully |really )*(?:solved|resolved|fixed|"
    r"unblocked|received|done|finished|completed|arrived|granted|delivered|available)\b|"
    r"\b(?:once|when|until|after|if|as soon as|will be|to be|must be|should be|can be|unless|"
    r"before|"
    r"need(?:s)? to be|hope(?:fully)?)\b|"
    r"没有?(?:完全)?(?:解决|修复|完成|拿到|收到)|未(?:能)?(?:解决|修复|完成|拿到|收到|到位)|"
    r"尚未|还没|如果|等|待|一旦|"
    r"希望|争取|尽快|之前|才能|是否|怎么|如何"
)
_GOES_AHEAD = (
    r"\b(?:will|'ll|going to|start(?:ed|ing|s)?|begin(?:ning|s)?|began|implement(?:ed|ing|s)?|"
    r"deploy(?:ed|ing|s)?|ship(?:ped|ping|s)?|releas(?:ed|e|ing|es)|finish(?:ed|ing)?|"
    r"complet(?:ed|e|ing)|merg(?:ed|e|ing)|proceed(?:ed|ing|s)?|go(?:es|ing)? ahead|buil[dt]|"
    r"building|"
    r"launch(?:ed|ing|es)?|integrat(?:ed|e|ing)|continu(?:e|ed|ing)|roll(?:ed|ing)? out|"
    r"connect(?:ed|ing)?|migrat(?:ed|e|ing)|switch(?:ed|ing)?|writ(?:ing|ten)|wrote|added|adding|"
    r"created|creating|run(?:ning)?|ran|done|went live|go(?:es|ing)? live|let's|enabl(?:ed|e|"
    r"ing))\b|"
    r"开始|完成|上线|部署|发布|实现|继续|推进|接入|对接|马上|立即|这就|已经|现在就|着手|合并|"
    r"启动|将|联调|"
    r"迁移|切换|提交|编写|写好|做好|搞定|开发|测试|执行|搭建|调用"
)
_HOLDS_BACK = (
    r"\b(?:not|won't|don't|didn't|haven't|hasn't|isn't|aren't|never|no)\b|n't\b|\b(?:if|would|"
    r"could|"
    r"should|might|may)\b|不(?:会|能|要|再|可|应|宜|上线|部署|发布|做|开始)|别|没有?|未|如果|"
    r"若|建议|是否|暂"
)
_ACCEPTS = (
    r"\A\W*(?:on it|will do|got it|sure|understood|ok(?:ay)?,? (?:i'll|will|on it)|i'll (?:do|"
    r"take)|"
    r"doing (?:it|that) now|收到|好的|明白|没问题|马上|这就|我来|立刻|了解)"
)

# A negation that denies a problem, or nothing.
_DENIES_A_PROBLEM = (
    r"\b(?:no|not|never|without|n't)\s+(?:\w+\s+){0,2}(?:longer|only|problems?|issues?|trouble|"
    r"missing|block\w*|doubts?|questions?|fail\w*|errors?)\b|"
    r"不再|不缺|没有?(?:什么|任何)?(?:问题|阻塞|疑问|异议|错误)|不(?:但|仅|光|只)"
)
_CLAUSE = re.compile(
    r"[,，;；:：—–]\s*|\s+(?:but|so|because|although|while|then)\s+|但是?|所以|因为"
)

_SAID = {
    "en": {
        "blocker": "goes ahead ({said}) and says nothing of the blocker",
        "conclusion": "says otherwise ({said})",
        "next_action": "does not take up what was to be done next, though the new messages ask it",
    },
    "zh": {
        "blocker": "照常推进（{said}），没有提到这个阻塞",
        "conclusion": "说法相反（{said}）",
        "next_action": "新消息涉及这项后续行动，回复没有接手",
    },
}


class IgnoredNote(NamedTuple):
    """A note that a reply ignored or contradicted, the level of that, and the reason."""

    note: Note
    level: Literal["replan_required", "warning"]
    reason: str


def ignored(
    reply: str, new: str, notes: Sequence[Note], agent: str, *, language: str = "en"
) -> list[IgnoredNote]:
    """Return the notes that a reply ignored, in the order in which they were shown.

    `new` is the text of the messages that it answers; `notes` are the notes that its agent was
    shown.
    """
    living = [note for note in notes if note.is_living]
    texts = _SAID.get(language, _SAID["en"])
    result: list[IgnoredNote] = []
    if not living:
        return result
    answer, new_text = _FoldedText(reply), _FoldedText(new)
    for note in living:
        if note.kind == "blocker":
            ahead = _goes_ahead_over(note, answer)
            if ahead is not None:
                reason = texts["blocker"].format(said=_quote(ahead.text))
                result.append(IgnoredNote(note, "replan_required", reason))
        elif note.kind == "conclusion":
            clause = _contradiction(note, answer)
            if clause is not None and _contradiction(note, new_text) is None:
                reason = texts["conclusion"].format(said=_quote(clause))
                result.append(IgnoredNote(note, "warning", reason))
        elif _is_left(note, new_text, answer, agent):
            result.append(IgnoredNote(note, "warning", texts["next_action"]))
    return result


class _FoldedText:
    """A text prepared for comparison with notes: its sentences, with their significant words."""

    def __init__(self, text: str) -> None:
        self.sentences = list(split(text))
        self.words = [significant_words(sentence.shown) for sentence in self.sentences]
        self.all_words = frozenset[str]().union(*self.words)
        self.folded = visible_text.fold_text(" ".join(sentence.text for sentence in self.sentences))

    def with_any(self, words_wanted: frozenset[str]) -> list[int]:
        """Return the indexes of the sentences that contain one of these words."""
        return [index for index, words in enumerate(self.words) if words & words_wanted]


def _goes_ahead_over(note: Note, reply: _FoldedText) -> Sentence | None:
    """Return the sentence that goes ahead despite the blocker, if there is one."""
    if not _bears(note, reply) or _names(note, reply.folded):
        return None
    about = reply.with_any(significant_words(note.title))
    near = {place for sentence in about for place in (sentence - 1, sentence, sentence + 1)}
    looked_at = [sentence for place, sentence in enumerate(reply.sentences) if place in near]
    if any(_finds(_OPEN, sentence) or _finds(_SOLVED, sentence) for sentence in looked_at):
        return None
    for place in about:
        sentence = reply.sentences[place]
        if (
            not sentence.asks
            and _finds(_GOES_AHEAD, sentence)
            and not _finds(_HOLDS_BACK, sentence)
        ):
            return sentence
    return None


def _quote(text: str) -> str:
    return cut_text(" ".join(text.split()), 60)


def _contradiction(note: Note, text: _FoldedText) -> str | None:
    """Return the part of a sentence that contradicts the conclusion, if there is one."""
    claim = read_claim(note.title)
    if not claim.words or _names(note, text.folded):
        return None
    for sentence in text.sentences:
        if sentence.asks or assertion.is_supposed(sentence.shown):
            continue
        for clause in dict.fromkeys([sentence.shown, *_CLAUSE.split(sentence.shown)]):
            if _contradicts(clause.replace("’", "'"), claim):
                return clause
    return None


def _contradicts(clause: str, claim: Claim) -> bool:
    difference = contradictions.find_difference(claim, read_claim(clause), within=True)
    if difference is None:
        return False
    if difference.type != "negation":
        return True
    return not _compiled(_DENIES_A_PROBLEM).search(clause)


def says_solved(notes: Sequence[Note], text: str) -> Iterator[tuple[Note, str]]:
    """Yield the notes that a text declares solved, each with the sentence that does so."""
    if not notes or not _compiled(_SOLVED).search(text):
        return
    folded = _FoldedText(text)
    for note in notes:
        sentence = _solved(note, folded)
        if sentence is not None:
            yield note, sentence


def _solved(note: Note, text: _FoldedText) -> str | None:
    words = significant_words(note.title)
    for sentence, held in zip(text.sentences, text.words, strict=True):
        bears = shared(words, held) >= BEARS or _names(note, visible_text.fold_text(sentence.text))
        if (
            bears
            and not sentence.asks
            and _finds(_SOLVED, sentence)
            and not _finds(_NOT_SOLVED, sentence)
        ):
            return sentence.text.strip()
    return None


def _is_left(note: Note, new: _FoldedText, reply: _FoldedText, agent: str) -> bool:
    """Return True if the new messages ask the agent for a next action that its reply ignores."""
    if note.kind != "next_action" or not _is_for(note, agent) or not _bears(note, new):
        return False
    return _solved(note, new) is None and not _takes_up(note, reply)


def _takes_up(note: Note, reply: _FoldedText) -> bool:
    words = significant_words(note.title)
    common = len(words & reply.all_words) / len(words) if words else 0.0
    accepts = bool(reply.sentences) and _finds(_ACCEPTS, reply.sentences[0])
    return accepts or common >= TAKEN_UP or _names(note, reply.folded)


def _bears(note: Note, text: _FoldedText) -> bool:
    return shared(significant_words(note.title), text.all_words) >= BEARS


def _names(note: Note, folded: str) -> bool:
    """Return True if a folded text names the note by its id or its title."""
    names = (visible_text.fold_text(note.id), visible_text.fold_text(note.title).strip(" .。!！"))
    return any(len(name) >= _SHORTEST_NAME and name in folded for name in names)


def _is_for(note: Note, agent: str) -> bool:
    return not note.owner or visible_text.fold_text(note.owner) == visible_text.fold_text(agent)


def _finds(pattern: str, sentence: Sentence) -> bool:
    return _compiled(pattern).search(sentence.shown.replace("’", "'")) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
