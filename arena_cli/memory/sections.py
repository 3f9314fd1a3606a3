"""The sections that some kinds of notes have, as headings of markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping

from arena_cli.memory.note import Kind

_SECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "en": {
        "pit": ("Problem", "Root cause", "Solution", "Prevention"),
        "decision": ("Decision", "Context", "Consequences"),
        "solution": ("Solution", "Problem", "How it was checked"),
        "pattern": ("Pattern", "When to use it", "Example"),
        "blocker": ("Blocker", "What it blocks", "What would solve it"),
    },
    "zh": {
        "pit": ("问题", "根本原因", "解决办法", "如何预防"),
        "decision": ("决定", "背景", "影响"),
        "solution": ("解决办法", "问题", "如何验证"),
        "pattern": ("做法", "适用情形", "示例"),
        "blocker": ("阻碍", "受阻的工作", "解除条件"),
    },
}

_ADDED = {"en": "Added {date} by {who}", "zh": "{date} 由 {who} 补充"}
_HEADING = re.compile(r"^#{1,6}[ \t]", re.MULTILINE)


def of(kind: Kind, language: str = "en") -> tuple[str, ...]:
    """The headings of a note of that kind; most kinds have none."""
    return _SECTIONS.get(language, _SECTIONS["en"]).get(kind, ())


def body(kind: Kind, text: str, language: str = "en") -> str:
    """The text of a new note of that kind: in its first section, if it has no headings itself."""
    names = of(kind, language)
    text = text.strip("\n")
    if not names or _HEADING.search(text):
        return text
    first, *others = (f"## {name}" for name in names)
    return "\n\n".join([first, *([text] if text.strip() else []), *others])


def added(date: str, who: str, language: str = "en") -> str:
    """The heading under which more is added to a note that is there."""
    return _ADDED.get(language, _ADDED["en"]).format(date=date, who=who)
