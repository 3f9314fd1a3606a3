"""A summary's eight sections: their names, how they are written, and how an answer is read.

Whoever wrote it, what a summary says is data: it calls nobody, and speaks for nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arena_cli.team.model import Language

Sections = dict[str, list[str]]
"""What stands in each section, by the section's name in `SECTIONS`; empty ones are left out."""

SECTIONS: dict[str, tuple[str, str]] = {
    "core_goal": ("Core goal", "核心目标"),
    "key_decisions": ("Key decisions", "关键决定"),
    "important_facts": ("Important facts", "重要事实"),
    "pending_tasks": ("Pending tasks", "待办任务"),
    "user_preferences": ("User preferences", "用户偏好"),
    "context_clues": ("Context clues", "背景线索"),
    "unresolved_issues": ("Unresolved issues", "未解决的问题"),
    "next_steps": ("Next steps", "下一步"),
}
GOAL = "core_goal"

_ALIASES = {
    "core_goal": "goal goals coregoals objective overallgoal 目标 核心目的 总体目标",
    "key_decisions": "decision decisions keydecision 决定 决策 关键决策 重要决定 重要决策",
    "important_facts": "fact facts keyfacts importantfact 事实 关键事实 重要信息 关键信息",
    "pending_tasks": "task tasks todo todos pending opentasks 任务 待办 待办事项 未完成任务",
    "user_preferences": "preference preferences userpreference 偏好 用户喜好",
    "context_clues": "context clues contextclue background 背景 上下文 上下文线索 线索 背景信息",
    "unresolved_issues": "issue issues openissues openquestions unresolved unresolvedissue"
    " 问题 未解决问题 待解决问题 遗留问题 未决问题",
    "next_steps": "nextstep nextactions nextaction steps 后续步骤 下一步计划 下一步行动 后续计划",
}
_NAMES = {
    alias: section
    for section, titles in SECTIONS.items()
    for alias in (
        section.replace("_", ""),
        *("".join(title.casefold().split()) for title in titles),
        *_ALIASES[section].split(),
    )
}

_MARKS = re.compile(r"[\W\d_]+")
_LIST = re.compile(r"(?:[-*+•·]|\d{1,3}[.)、])\s*")
_HEADING = re.compile(
    r"\s*(#{1,6}\s*|\*{2}|(?:[-*+•]\s+)\*{2}|\d{1,2}[.)、]\s*|[一二三四五六七八][、.]\s*)?"
)
_FENCE = re.compile(r"```(?:json)?\s*(?=\{)", re.IGNORECASE)
_NOTHING = frozenset({"none", "na", "nil", "nothing", "null", "无", "没有", "暂无", "不适用"})

_CALL = re.compile(r"(?<![A-Za-z0-9])[@＠](?=\S)")
_TAG = re.compile(
    r"</?\s*(?:messages?|system|user|assistant|human|agent|tool|instructions?)\b[^<>]{0,80}>"
    r"|<\|[^<>|]{0,40}\|>|\[/?INST\]",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^(?:(?:system|assistant|developer|user|human|系统)\s*[:：]\s*)+", re.IGNORECASE
)
# What a message says to whoever reads it as a machine does, not to the team.
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|earlier|all)\b.{0,30}"
    r"\b(?:instructions?|prompts?|rules|messages)\b"
    r"|(?:忽略|无视|忘记|忘掉|不要理会).{0,12}(?:之前|以上|上面|先前|所有|全部).{0,12}(?:指令|指示|提示|规则|要求|消息)",
    re.IGNORECASE,
)


def read(answer: str) -> Sections:
    """The sections of an answer in markdown or JSON, each item made harmless; none where it has
    no such headings."""
    found = _of_json(answer)
    if found is None:
        found = _of_markdown(answer)
    sections: Sections = {}
    for name, item in found:
        text = harmless(item)
        kept = sections.setdefault(name, [])
        if text and plain(text) not in _NOTHING and text not in kept:
            kept.append(text)
    return {name: sections[name] for name in SECTIONS if sections.get(name)}


def written(sections: Mapping[str, Sequence[str]], language: Language) -> str:
    """The text of a summary; `read` gives the same sections again."""
    column = 1 if language == "zh" else 0
    parts = []
    for name, titles in SECTIONS.items():
        items = sections.get(name)
        if items:
            parts.append("\n".join([f"# {titles[column]}", *(f"- {item}" for item in items)]))
    return "\n".join(parts)


def harmless(text: str) -> str:
    """One item in one line: it calls nobody, ends no message, gives no orders to its reader."""
    line = " ".join(text.split())
    # What is taken out may leave together what was apart.
    while (less := _once_harmless(line)) != line:
        line = less
    return "" if _ORDERS.search(line) else line


def _once_harmless(line: str) -> str:
    line = _ROLE.sub("", _CALL.sub("", _TAG.sub(" ", line)).strip())
    return " ".join(line.split()).lstrip("#-*>• ")


def _of_json(answer: str) -> list[tuple[str, str]] | None:
    fenced = _FENCE.search(answer)
    text = answer[fenced.end() :].rpartition("```")[0] if fenced else answer.strip()
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if len(data) == 1 and isinstance(inner := next(iter(data.values())), dict):
        data = inner  # {"summary": {...}}
    return [
        (name, item)
        for key, value in data.items()
        if (name := _NAMES.get(plain(str(key))))
        for item in _items(value)
    ]


def _items(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (_LIST.sub("", line.strip(), count=1) for line in value.splitlines())
    elif isinstance(value, list):
        for one in value:
            yield from _items(one)
    elif value is not None:
        yield json.dumps(value, ensure_ascii=False)


def _of_markdown(answer: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    section = ""
    for line in answer.splitlines():
        name, rest = _heading(line)
        if name:
            section = name
            line = rest  # noqa: PLW2901 - what stands on the heading's own line
        text = line.strip()
        if not section or not text:
            continue
        marker = _LIST.match(text)
        if marker or not line.startswith((" ", "\t")) or not found or found[-1][0] != section:
            found.append((section, text[marker.end() :] if marker else text))
        else:
            found[-1] = (section, f"{found[-1][1]} {text}")
    return found


def _heading(line: str) -> tuple[str, str]:
    """The section that a line begins, and what else stands on it; none for any other line."""
    lead = _HEADING.match(line)
    marked = bool(lead and lead[1])
    if not marked and _LIST.match(line.strip()):
        return "", ""
    text = line[lead.end() :] if lead else line
    head, colon, rest = _parted(text)
    name = _NAMES.get(plain(head))
    if name is None or not (marked or colon or not rest):
        return "", ""
    return name, rest.strip(" *")


def _parted(text: str) -> tuple[str, str, str]:
    at = min((place for mark in ":：" if (place := text.find(mark)) >= 0), default=-1)
    return (text, "", "") if at < 0 else (text[:at], text[at], text[at + 1 :])


def plain(text: str) -> str:
    """A text by its letters alone, to be compared with another."""
    return _MARKS.sub("", text).casefold()
