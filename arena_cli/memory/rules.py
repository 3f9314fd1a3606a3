"""What a message says that is worth a note, found by its wording (docs/memory.md).

It is a function of the text: a sentence counts that says outright, in English or Chinese, that
something was decided, is required, is to be done, or is wrong. Looked at is visible text only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.ground import text as texts
from arena_cli.ground.userpattern import PatternTimeout, UserPattern
from arena_cli.memory import phrases, sentences
from arena_cli.memory.note import KINDS, Draft, Kind
from arena_cli.memory.sentences import Sentence
from arena_cli.team import mentions
from arena_cli.team.roster import Roster

MOST = 8
"""So many notes at most from one message."""

LONGEST_TITLE = 80

_SHORTEST = 4
_MOST_ITEMS = 8
_AROUND = " \t\u3000*_\"“”'。.!！;；,，、:："


class _Found(NamedTuple):
    kind: Kind
    said: str
    sentence: Sentence


# A sentence that begins with whom it is said to.
_CALLS = re.compile(r"\A(?:[@＠][^\s@＠]{1,32} )+")


def drafts_of(
    text: str,
    *,
    by: str,
    source: str | None,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
    roster: Roster | None = None,
) -> list[Draft]:
    """The notes that a message's text is worth, in its order, each once.

    `patterns` are regular expressions by kind, without regard to case, that are looked for in each
    sentence beside arena's own; an empty list switches arena's own of that kind off. With the
    names of a team the first agent that a task's sentence names is its owner. A pattern that takes
    too long once is skipped from then on (`slow_patterns`).
    """
    given = patterns or {}
    own = {kind for kind in KINDS if kind not in given or given[kind]}
    theirs = [(kind, _compiled(one)) for kind, some in given.items() for one in some]
    found: dict[tuple[str, str], Draft] = {}
    if not theirs and not phrases.may_hold(text):
        return []
    for one in _found(text, own, theirs):
        title = title_of(one.said)
        key = (one.kind, title.casefold())
        if len(title) < _SHORTEST or key in found:
            continue
        whole = one.sentence.text.strip()
        found[key] = Draft(
            kind=one.kind,
            title=title,
            body=whole if title.endswith("…") else "",
            by=by,
            source=source,
            owner=_owner(whole, roster) if one.kind in ("task", "next_action") else "",
        )
        if len(found) == MOST:
            break
    return list(found.values())


def slow_patterns(patterns: Mapping[Kind, Sequence[str]]) -> list[PatternTimeout]:
    """Return why some of the patterns are looked for no more."""
    compiled = (_compiled(one) for some in patterns.values() for one in some)
    return [pattern.failed for pattern in compiled if pattern.failed is not None]


def title_of(said: str) -> str:
    """A sentence as a title: in one line, without what stands around it, cut between words."""
    line = _CALLS.sub("", " ".join(said.replace("**", "").split())).strip(_AROUND)
    if len(line) <= LONGEST_TITLE:
        return line
    space = line.rfind(" ", 0, LONGEST_TITLE)
    # A script without spaces has its last one far back; there any character will do.
    is_near = space > LONGEST_TITLE // 2
    cut = line[:space] if is_near else texts.cut(line, LONGEST_TITLE - 1)
    return cut.rstrip(_AROUND) + "…"


def _found(
    text: str, own: set[Kind], theirs: Sequence[tuple[Kind, UserPattern]]
) -> Iterator[_Found]:
    heading: Kind | None = None
    items = 0
    for one in sentences.split(text):
        if heading and one.item and items < _MOST_ITEMS:
            items += 1
            if not one.asks and one.box is not True and not phrases.empty().match(one.shown):
                yield _Found(heading, one.text, one)
                continue
        elif heading and not one.item:
            heading = heading if one.goes_on else None
        kind, said = _kind_of(one, own, theirs)
        if kind and said:
            yield _Found(kind, said, one)
        elif kind:
            heading, items = kind, 0


def _kind_of(
    one: Sentence, own: set[Kind], theirs: Sequence[tuple[Kind, UserPattern]]
) -> tuple[Kind | None, str]:
    """What a sentence holds, and the words that say it; none where it heads a list."""
    for kind, pattern in theirs:
        with contextlib.suppress(PatternTimeout):
            if pattern.failed is None and pattern.search(one.shown):
                return kind, one.text
    if one.asks:
        return None, ""
    if one.box is not None:
        return ("task", one.text) if one.box is False and "task" in own else (None, "")
    shown = f"{one.shown.rstrip(_AROUND)}:" if one.heading else one.shown
    for kind, marker in phrases.markers(shown):
        marked = marker.match(shown) if kind in own else None
        if marked and not marked["said"]:
            return kind, ""
        if marked:
            says_nothing = phrases.empty().match(marked["said"])
            return (None, "") if says_nothing else (kind, one.text[marked.start("said") :])
    return _said(one, own)


def _said(one: Sentence, own: set[Kind]) -> tuple[Kind | None, str]:
    for kind, says, unless in phrases.sayings(one.shown):
        found = says.search(one.shown) if kind in own else None
        if not found or unless.search(one.shown):
            continue
        if not phrases.supposed().search(one.shown, 0, found.end()):
            return kind, one.text
    return None, ""


def _owner(sentence: str, roster: Roster | None) -> str:
    if roster is None:
        return ""
    named = mentions.parse(sentence, roster, author="", opener="").ids
    return next((one for one in named if one in roster.member_ids), "")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> UserPattern:
    return UserPattern(pattern, re.IGNORECASE)
