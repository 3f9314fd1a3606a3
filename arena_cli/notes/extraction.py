"""Extract notes from a message by its wording (docs/concepts/memory.md).

The notes depend only on the text. A sentence counts if it says explicitly, in English or Chinese,
that something was decided, is required, is to be done, or is wrong. Only visible text is read.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import dropwhile
from typing import Any, NamedTuple

from arena_cli import errors, protocol
from arena_cli.notes import model, phrases
from arena_cli.notes.model import KINDS, Draft, Kind
from arena_cli.notes.text import (
    Sentence,
    blank_quotations,
    fold_case,
    introduces_speech,
    is_asserted,
    is_joke,
    split,
)
from arena_cli.protocol import StructuredContent
from arena_cli.util import task_lists
from arena_cli.util.text import cut_text, escape_line, lazy_pattern
from arena_cli.util.user_pattern import PatternTimeout, UserPattern
from arena_cli.workspace import mentions, visible_text
from arena_cli.workspace.mentions import Roster

MOST = 8
"""So many notes at most from one message."""

LONGEST_TITLE = 80

_SHORTEST = 4
_MOST_ITEMS = 8
_AROUND = " \t\u3000*_\"“”'。.!！;；,，、:："


class _NotedSentence(NamedTuple):
    kind: Kind
    words: str
    sentence: Sentence


# A sentence that begins with whom it is said to.
_CALLS = lazy_pattern(r"\A(?:[@＠][^\s@＠]{1,32} )+")


def extract_by_rules(
    text: str,
    *,
    by: str,
    source: str | None,
    patterns: Mapping[Kind, Sequence[str]] | None = None,
    roster: Roster | None = None,
) -> list[Draft]:
    """Return the notes that the rules find in a message's text, in order, each once.

    `patterns` are regular expressions by kind, case-insensitive, that are searched in each sentence
    in addition to arena's own; an empty list disables arena's own of that kind. With a `roster`,
    the first agent that the sentence of a task names is its owner. A pattern that takes too long
    once is skipped from then on (`slow_patterns`).
    """
    own_patterns = patterns or {}
    theirs = [
        (kind, _compiled(expression))
        for kind, expressions in own_patterns.items()
        for expression in expressions
    ]
    cued = {
        kind for kind in phrases.cued_kinds(text) if kind not in own_patterns or own_patterns[kind]
    }
    if not theirs and not cued:
        return []
    drafts: dict[tuple[str, str], Draft] = {}
    for statement in _find_statements(text, cued, theirs):
        draft = _draft_statement(statement, by, source, roster)
        if len(draft.title) >= _SHORTEST:
            drafts.setdefault((draft.kind, draft.title.casefold()), draft)
        if len(drafts) == MOST:
            break
    return list(drafts.values())


def _draft_statement(
    statement: _NotedSentence, by: str, source: str | None, roster: Roster | None
) -> Draft:
    sentence, title = statement.sentence.text.strip(), title_of(statement.words)
    return Draft(
        kind=statement.kind,
        title=title,
        body=sentence if title.endswith("…") else "",
        by=by,
        source=source,
        owner=_owner(sentence, roster) if statement.kind in ("task", "next_action") else "",
    )


def slow_patterns(patterns: Mapping[Kind, Sequence[str]]) -> list[PatternTimeout]:
    """Return the errors of the patterns that are skipped because they took too long."""
    compiled = (
        _compiled(expression) for expressions in patterns.values() for expression in expressions
    )
    return [pattern.failed for pattern in compiled if pattern.failed is not None]


def title_of(saying: str) -> str:
    """Return a sentence as a title: one line, without surrounding signs, cut between words."""
    line = _CALLS.sub("", " ".join(saying.replace("**", "").split())).strip(_AROUND)
    if len(line) <= LONGEST_TITLE:
        return line
    space = line.rfind(" ", 0, LONGEST_TITLE)
    # A script without spaces has its last one far back; there any character will do.
    is_near = space > LONGEST_TITLE // 2
    cut = line[:space] if is_near else cut_text(line, LONGEST_TITLE - 1)
    return cut.rstrip(_AROUND) + "…"


def _find_statements(
    text: str, kinds: set[Kind], theirs: Sequence[tuple[Kind, UserPattern]]
) -> Iterator[_NotedSentence]:
    sentences = list(split(text))
    heading = _Heading()
    is_speech = False
    for index, sentence in enumerate(sentences):
        if is_speech and (sentence.goes_on or sentences[index - 1].shown.rstrip()[-1:] in ":："):
            continue
        is_speech = introduces_speech(sentence.shown)
        heading_kind = heading.kind_below(sentence)
        kind, words = None, ""
        if not (heading_kind and sentence.item):
            kind, words = _kind_of(sentence, kinds, theirs, is_only=len(sentences) == 1)
        if kind and not words:
            heading = _Heading(kind)
            continue
        if kind is None:
            kind, words = heading_kind, sentence.text
        if kind and not _is_joke(*sentences[index : index + 2]):
            yield _NotedSentence(kind, words, sentence)


def _is_joke(sentence: Sentence, following: Sentence | None = None) -> bool:
    """Return True if a sentence, or what follows it on its line, says that it is a joke."""
    after = following.shown if following is not None and following.goes_on else ""
    return is_joke(sentence.shown) or is_joke(after)


class _Heading:
    """A marker without a text, and how much of what is below it belongs to it.

    That is the items of the list below it, or else the first sentence.
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self._kind = kind
        self._items = 0
        self._is_at_start = True

    def kind_below(self, sentence: Sentence) -> Kind | None:
        """Return the kind that a sentence has because of its place, and move on."""
        kind, is_first = self._kind, self._is_at_start
        self._is_at_start = False
        if kind is None:
            return None
        if sentence.item:
            self._items += 1
        elif self._items or not is_first:
            self._kind = kind if sentence.goes_on or is_first else None
            return None
        is_content = not (
            sentence.asks
            or sentence.box is True
            or sentence.heading
            or phrases.empty().match(sentence.shown.strip())
        )
        return kind if is_content and self._items <= _MOST_ITEMS else None


def _kind_of(
    sentence: Sentence,
    kinds: set[Kind],
    theirs: Sequence[tuple[Kind, UserPattern]],
    *,
    is_only: bool,
) -> tuple[Kind | None, str]:
    """Return the kind of note in a sentence, and its words; no words if it heads a list.

    `kinds` are those that a phrase in the message may have; `is_only`: it is the whole message.
    """
    if (own_kind := _match_patterns(sentence, theirs)) is not None:
        return own_kind, sentence.text
    if sentence.box is not None:
        return ("task", sentence.text) if sentence.box is False and "task" in kinds else (None, "")
    visible = f"{sentence.shown.rstrip(_AROUND)}:" if sentence.heading else sentence.shown
    visible = fold_case(blank_quotations(visible.replace("’", "'")))
    cued = kinds if is_only else phrases.cued_kinds(visible) & kinds
    marked = phrases.match_marker(visible, cued) if cued and not sentence.asks else None
    if marked and marked.kind in kinds:
        return _marked(marked, sentence, visible)
    introduced = phrases.introduced_kind(visible) if cued else None
    return (introduced, "") if introduced in kinds else _said(sentence, visible, cued)


def _match_patterns(sentence: Sentence, theirs: Sequence[tuple[Kind, UserPattern]]) -> Kind | None:
    """Return the kind of the first of the team's own patterns that matches; None without one."""
    for kind, pattern in theirs:
        with contextlib.suppress(PatternTimeout):
            if pattern.failed is None and pattern.search(sentence.shown):
                return kind
    return None


def _marked(marked: phrases.Marked, sentence: Sentence, visible: str) -> tuple[Kind | None, str]:
    words = visible[marked.start :].strip()
    if not words.strip(_AROUND):
        return marked.kind, ""
    if phrases.empty().match(words):
        return None, ""
    return marked.kind, sentence.text[marked.start :]


def _said(sentence: Sentence, visible: str, cued: Collection[Kind]) -> tuple[Kind | None, str]:
    """Return the kind of a phrase that the sentence asserts, and the words of the sentence."""
    # A question asserts nothing, but `can you ... by Friday?` to a member is a task.
    kinds = [kind for kind in phrases.SAID_KINDS if kind in cued]
    if kinds and sentence.asks:
        kinds = ["task"] if "task" in kinds and "@" in visible else []
    for kind in kinds:
        match = phrases.find_saying(visible, kind)
        if match is None:
            continue
        end = match.start() if kind == "task" else match.end()
        if is_asserted(visible, end, may_depend=kind == "requirement"):
            return kind, sentence.text
    return None, ""


def _owner(sentence: str, roster: Roster | None) -> str:
    if roster is None:
        return ""
    mentioned = mentions.parse_mentions(sentence, roster, author="", opener="").ids
    return next((name for name in mentioned if name in roster.member_ids), "")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> UserPattern:
    return UserPattern(pattern, re.IGNORECASE)


LONGEST_BODY = 65_536

HOW = """\
To have something remembered, put a block into your message: a line ```note, then `kind:` (decision,
requirement, task, issue, conclusion, blocker, next_action, reference, pit) and `title:`, perhaps
`tags:` and `owner:` (an id), a blank line, the text, and a line ``` at its end.
"""
"""What an agent is told, so that it can."""

_KEYS = ("kind", "title", "tags", "aliases", "importance", "owner")
_IGNORED = ("status", "id", "source", "created", "updated", "by")
_BLOCK = r"(?P<run>`{3,}|~{3,})[ \t]*note[ \t]*\r?\n"
_CLOSING = lazy_pattern(r"[ \t]*(?P<run>`{3,}|~{3,})[ \t]*\r?\n?\Z")
_BEFORE = lazy_pattern(r"[ \t]*(?:(?:[-+*]|[0-9]{1,9}[.)])[ \t]+)*\Z")
_ENTRY = lazy_pattern(r"[ \t]*(?P<key>\w+)[ \t]*[:：][ \t]*(?P<value>.*)\Z")
_ITEM = lazy_pattern(r"[ \t]*-[ \t]+(?P<value>.+)\Z")
_BETWEEN = lazy_pattern(r"[,，、;；]")

_OWNERS = ("owner", "assignee", "assigned_to", "who", "agent")
_DROPPED = frozenset({"cancelled", "canceled", "取消", "已取消"})


class ExtractedDrafts(NamedTuple):
    """The notes of one message, and the problems of those that are invalid."""

    drafts: list[Draft]
    problems: list[str]


def extract_from_blocks(
    content: str, structured: Sequence[StructuredContent], *, by: str, source: str | None
) -> ExtractedDrafts:
    """Return the notes that an agent wrote into a message, at most `MOST`."""
    notes = (*_blocks(content), *_parts(structured))
    return collect((draft_of(fields, by=by, source=source) for fields in notes), MOST, "message")


def collect(extracted: Iterable[ExtractedDrafts], most: int, place: str) -> ExtractedDrafts:
    """Return the notes of one message or answer together, each once, and all problems."""
    drafts: dict[tuple[str, str], Draft] = {}
    problems: list[str] = []
    for notes in extracted:
        problems += notes.problems
        for draft in notes.drafts:
            if len(drafts) == most and (draft.kind, draft.title) not in drafts:
                problems.append(f"more than {most} notes in one {place}: the rest was left out")
                return ExtractedDrafts(list(drafts.values()), problems)
            drafts.setdefault((draft.kind, draft.title), draft)
    return ExtractedDrafts(list(drafts.values()), problems)


def _blocks(content: str) -> Iterator[Mapping[str, Any]]:
    """Yield the data of each `note` block, except those within another block or a quote."""
    if "note" not in content.lower():
        return
    for start, end in visible_text.find_hidden_spans(content):
        opening = _block().match(content, start, end)
        line_start = content[content.rfind("\n", 0, start) + 1 : start]
        if not opening or not _BEFORE.match(line_start):
            continue
        inner = content[opening.end() : end]
        lines = inner.splitlines()
        last = _CLOSING.match(lines[-1]) if lines else None
        if last and last["run"].startswith(opening["run"]):
            lines.pop()
        indent = len(line_start.expandtabs())
        yield _read([_dedented(line, indent) for line in lines])


@cache
def _block() -> re.Pattern[str]:
    return re.compile(_BLOCK, re.IGNORECASE)  # so it takes milliseconds to compile


def _dedented(line: str, indent: int) -> str:
    blanks = len(line) - len(line.lstrip(" "))
    return line[min(blanks, indent) :]


def _read(lines: list[str]) -> dict[str, Any]:
    """Return the keys at the beginning, and the text after them as `body`.

    Values are taken literally: unlike in YAML, a title may contain a colon.
    """
    fields: dict[str, Any] = {}
    key = ""
    remaining = deque(dropwhile(_is_gap, lines))
    while remaining:
        entry, item = _ENTRY.match(remaining[0]), _ITEM.match(remaining[0])
        name = entry["key"].casefold() if entry else ""
        if entry and name in (*_KEYS, *_IGNORED):
            key = name
            fields.setdefault(key, _unquoted(entry["value"]))
        elif item and key == "tags":
            fields["tags"] = f"{fields['tags']}, {_unquoted(item['value'])}"
        else:
            break
        remaining.popleft()
    fields["body"] = "\n".join(dropwhile(_is_gap, remaining)).rstrip()
    return fields


def _is_gap(line: str) -> bool:
    return line.strip() in ("", "---")


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
    return value[1:-1] if quoted else value


def _parts(structured: Sequence[StructuredContent]) -> Iterator[Mapping[str, Any]]:
    for content in structured:
        if content.type == "note":
            records = content.data if isinstance(content.data, list) else [content.data]
            yield from map(read_fields, records)
        elif content.type == "task_list":
            yield from _tasks(content.data, 0)


def read_fields(data: Any) -> Mapping[str, Any]:
    """Return the fields of a note as an agent gave them, with a text as its body."""
    if not isinstance(data, dict):
        return {"title": "", "body": ""}
    body = next((data[key] for key in ("body", "text", "content") if data.get(key)), "")
    return {**data, "body": body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)}


def _tasks(data: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the open tasks of a list, each followed by its subtasks; skip other entries."""
    if isinstance(data, dict):
        data = next(
            (data[key] for key in task_lists.TASK_LIST_KEYS if isinstance(data.get(key), list)),
            None,
        )
    for task in data if isinstance(data, list) and depth <= task_lists.TASK_MAX_DEPTH else ():
        fields = task if isinstance(task, dict) else {"title": task}
        title = _first_text(fields, task_lists.TASK_TITLE_KEYS)
        if not title.strip() or _is_done(fields):
            continue
        yield {"kind": "task", "title": title, "owner": _first_text(fields, _OWNERS)}
        for key in task_lists.TASK_LIST_KEYS:
            yield from _tasks(fields.get(key), depth + 1)


def _first_text(fields: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((fields[key] for key in keys if isinstance(fields.get(key), str)), "")


def _is_done(task: Mapping[str, Any]) -> bool:
    states = [task[key] for key in task_lists.TASK_STATE_KEYS if key in task]
    words = {state.strip().casefold() for state in states if isinstance(state, str)}
    is_over = not words.isdisjoint(task_lists.TASK_DONE_WORDS | _DROPPED)
    return is_over or any(map(protocol.parse_decision, states))


def draft_of(fields: Mapping[str, Any], *, by: str, source: str | None) -> ExtractedDrafts:
    """Return the note with these fields, if they are valid, and the problems in them."""
    problems: list[str] = []
    title = " ".join(str(fields.get("title") or "").split())
    if not title:
        return ExtractedDrafts([], ["a note has no title: write `title: ...` in its first lines"])
    title_label = escape_line(cut_text(title, 60))
    kind = str(fields.get("kind") or "").strip().casefold().replace(" ", "_").replace("-", "_")
    if kind not in KINDS:
        kind_label = escape_line(cut_text(kind, 40))
        problem = f"has the unknown kind `{kind_label}`" if kind else "has no kind"
        hint = errors.suggest_nearest(kind, KINDS)
        return ExtractedDrafts([], [f"the note {title_label!r} {problem}: {hint}"])
    if len(title) > model.LONGEST_TITLE:
        title = cut_text(title, model.LONGEST_TITLE)
        problems.append(
            f"the title of the note {title_label!r} was cut at {model.LONGEST_TITLE} characters"
        )
    body = str(fields.get("body") or "")
    if len(body.encode("utf-8")) > LONGEST_BODY:
        body = body.encode("utf-8")[:LONGEST_BODY].decode("utf-8", "ignore")
        problems.append(f"the text of the note {title_label!r} was cut at {LONGEST_BODY} bytes")
    importance = _importance(fields.get("importance"))
    if importance is None:
        problems.append(
            f"the importance of the note {title_label!r} is no number from 0 to 1; 0.5 was taken"
        )
    draft = Draft(
        kind=kind,
        title=title,
        body=body,
        by=by,
        source=source,
        importance=0.5 if importance is None else importance,
        tags=_tags(fields.get("tags")),
        aliases=tuple(model.aliases(_tags(fields.get("aliases")))),
        owner=" ".join(str(fields.get("owner") or "").split()).lstrip("@＠"),
    )
    return ExtractedDrafts([draft], problems)


def _importance(value: object) -> float | None:
    if value is None or value == "":
        return 0.5
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = _BETWEEN.split(value.strip().removeprefix("[").removesuffix("]"))
    tags = (_unquoted(str(tag)) for tag in value) if isinstance(value, list) else ()
    return tuple(dict.fromkeys(tag for tag in tags if tag))
