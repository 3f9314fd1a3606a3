"""Notes that an agent writes itself: a fenced block in its reply, or a structured part.

    ```note
    kind: decision
    title: Sessions live in PostgreSQL
    tags: storage, auth

    Redis would lose them at a restart.
    ```

It is always a draft: nobody approves what they wrote themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena_cli.ground import nearest, protocol, tasklists
from arena_cli.ground import text as texts
from arena_cli.ground.protocol import StructuredContent
from arena_cli.memory import plain
from arena_cli.memory.note import KINDS, Draft
from arena_cli.team import visible

MOST = 8
"""So many notes at most from one message."""

LONGEST_BODY = 65_536

HOW = """\
To have something remembered, put a block into your message: a line ```note, then `kind:` (decision,
requirement, task, issue, conclusion, blocker, next_action, reference, pit) and `title:`, perhaps
`tags:` and `owner:` (an id), a blank line, the text, and a line ``` at its end.
"""
"""What an agent is told, so that it can."""

_KEYS = ("kind", "title", "tags", "importance", "owner")
_IGNORED = ("status", "id", "source", "created", "updated", "by")
_BLOCK = re.compile(r"(?P<run>`{3,}|~{3,})[ \t]*note[ \t]*\r?\n", re.IGNORECASE)
_CLOSING = re.compile(r"[ \t]*(?P<run>`{3,}|~{3,})[ \t]*\r?\n?\Z")
_BEFORE = re.compile(r"[ \t]*(?:(?:[-+*]|[0-9]{1,9}[.)])[ \t]+)*\Z")
_ENTRY = re.compile(r"[ \t]*(?P<key>\w+)[ \t]*[:：][ \t]*(?P<value>.*)\Z")
_ITEM = re.compile(r"[ \t]*-[ \t]+(?P<value>.+)\Z")
_BETWEEN = re.compile(r"[,，、;；]")

_OWNERS = ("owner", "assignee", "assigned_to", "who", "agent")
_DROPPED = frozenset({"cancelled", "canceled", "取消", "已取消"})


class Written(NamedTuple):
    """The notes of one message, and for each that is none, why."""

    drafts: list[Draft]
    problems: list[str]


class _Wrong(ValueError):
    """What is wrong with one note, as it is told."""


def drafts_of(
    content: str, structured: Sequence[StructuredContent], *, by: str, source: str | None
) -> Written:
    """The notes that an agent wrote into a message, at most `MOST`."""
    drafts: list[Draft] = []
    problems: list[str] = []
    known: set[tuple[str, str]] = set()
    for fields in (*_blocks(content), *_parts(structured)):
        found = draft_of(fields, by=by, source=source)
        problems += found.problems
        new = [one for one in found.drafts if (one.kind, one.title) not in known]
        if new and len(drafts) == MOST:
            problems.append(f"more than {MOST} notes in one message: the rest was left out")
            break
        known.update((one.kind, one.title) for one in new)
        drafts += new
    return Written(drafts, problems)


def draft_of(fields: Mapping[str, Any], *, by: str, source: str | None) -> Written:
    """The note that these fields are, or none; and what is wrong with it."""
    try:
        draft, told = _draft(fields, by, source)
    except _Wrong as wrong:
        return Written([], [str(wrong)])
    return Written([draft], told)


def _blocks(content: str) -> Iterator[Mapping[str, Any]]:
    """What stands in each block `note`; one within another block or a quote is none."""
    if "note" not in content.lower():
        return
    for start, end in visible.hidden_spans(content):
        opening = _BLOCK.match(content, start, end)
        before = content[content.rfind("\n", 0, start) + 1 : start]
        if not opening or not _BEFORE.match(before):
            continue
        inner = content[opening.end() : end]
        lines = inner.splitlines()
        last = _CLOSING.match(lines[-1]) if lines else None
        if last and last["run"].startswith(opening["run"]):
            lines.pop()
        indent = len(before.expandtabs())
        yield _read([_dedented(line, indent) for line in lines])


def _dedented(line: str, indent: int) -> str:
    blanks = len(line) - len(line.lstrip(" "))
    return line[min(blanks, indent) :]


def _read(lines: list[str]) -> dict[str, Any]:
    """The keys at the beginning, and the text after them as `body`.

    Values are taken as they stand: a title may hold a colon, as YAML has none of.
    """
    fields: dict[str, Any] = {}
    key = ""
    place = 0
    while place < len(lines) and (not lines[place].strip() or lines[place].strip() == "---"):
        place += 1
    for line in lines[place:]:
        entry, item = _ENTRY.match(line), _ITEM.match(line)
        name = entry["key"].casefold() if entry else ""
        if entry and name in (*_KEYS, *_IGNORED):
            key = name
            fields.setdefault(key, _unquoted(entry["value"]))
        elif item and key == "tags":
            fields["tags"] = f"{fields['tags']}, {_unquoted(item['value'])}"
        else:
            break
        place += 1
    rest = lines[place:]
    while rest and (not rest[0].strip() or rest[0].strip() == "---"):
        rest.pop(0)
    fields["body"] = "\n".join(rest).rstrip()
    return fields


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
    return value[1:-1] if quoted else value


def _parts(structured: Sequence[StructuredContent]) -> Iterator[Mapping[str, Any]]:
    for part in structured:
        if part.type == "note":
            yield from (_fields(one) for one in _listed(part.data))
        elif part.type == "task_list":
            yield from _tasks(part.data, 0)


def _listed(data: Any) -> list[Any]:
    return data if isinstance(data, list) else [data]


def _fields(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        return {"title": "", "body": ""}
    body = next((data[key] for key in ("body", "text", "content") if data.get(key)), "")
    return {**data, "body": body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)}


def _tasks(data: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The open tasks of a list, those below one after it; what is no task is left alone."""
    if isinstance(data, dict):
        data = next((data[key] for key in tasklists.LISTS if isinstance(data.get(key), list)), None)
    for task in data if isinstance(data, list) and depth <= tasklists.DEEPEST else ():
        fields = task if isinstance(task, dict) else {"title": task}
        titled = next(
            (fields[key] for key in tasklists.TITLES if isinstance(fields.get(key), str)), ""
        )
        if not titled.strip() or _is_done(fields):
            continue
        owner = next((fields[key] for key in _OWNERS if isinstance(fields.get(key), str)), "")
        yield {"kind": "task", "title": titled, "owner": owner}
        for key in tasklists.LISTS:
            yield from _tasks(fields.get(key), depth + 1)


def _is_done(task: Mapping[str, Any]) -> bool:
    for key in tasklists.STATES:
        value = task.get(key)
        if isinstance(value, str) and value.strip().casefold() in tasklists.DONE | _DROPPED:
            return True
        if key in task and protocol.decision(value):
            return True
    return False


def _draft(fields: Mapping[str, Any], by: str, source: str | None) -> tuple[Draft, list[str]]:
    """The note, and what was cut off or left out of it. Raises _Wrong."""
    told: list[str] = []
    title = " ".join(str(fields.get("title") or "").split())
    if not title:
        raise _Wrong("a note has no title: write `title: ...` in its first lines")
    shown = texts.shown_line(texts.cut(title, 60))
    kind = str(fields.get("kind") or "").strip().casefold().replace(" ", "_").replace("-", "_")
    if kind not in KINDS:
        said = texts.shown_line(texts.cut(kind, 40))
        what = f"has the unknown kind `{said}`" if kind else "has no kind"
        raise _Wrong(f"the note {shown!r} {what}: {nearest.hint(kind, KINDS)}")
    if len(title) > plain.LONGEST_TITLE:
        title = texts.cut(title, plain.LONGEST_TITLE)
        told.append(f"the title of the note {shown!r} was cut at {plain.LONGEST_TITLE} characters")
    body = str(fields.get("body") or "")
    if len(body.encode("utf-8")) > LONGEST_BODY:
        body = body.encode("utf-8")[:LONGEST_BODY].decode("utf-8", "ignore")
        told.append(f"the text of the note {shown!r} was cut at {LONGEST_BODY} bytes")
    importance = _importance(fields.get("importance"))
    if importance is None:
        told.append(f"the importance of the note {shown!r} is no number from 0 to 1; 0.5 was taken")
    return (
        Draft(
            kind=kind,
            title=title,
            body=body,
            by=by,
            source=source,
            importance=0.5 if importance is None else importance,
            tags=_tags(fields.get("tags")),
            owner=" ".join(str(fields.get("owner") or "").split()).lstrip("@＠"),
        ),
        told,
    )


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
    found = (_unquoted(str(one)) for one in value) if isinstance(value, list) else ()
    return tuple(dict.fromkeys(one for one in found if one))
