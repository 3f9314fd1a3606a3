"""Write a session's record as markdown and as rows of a table.

Field names are those of the JSON, the same in every language. Texts of agents and people are put in
fences that none of their lines can close; all other data of theirs is put on one line, with markup
escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from arena_cli.context import tokens
from arena_cli.reports.audit import CALL, MESSAGE, AuditRecord, Entry
from arena_cli.reports.lines import Words
from arena_cli.util.text import cut_text, escape_line, escape_text

BOM = "\ufeff"
ENGLISH = Words()
UNKNOWN = "unknown"

_SAID = ("seq", "time", "turn", "message_id", "author_id", "author_name", "author_type", "kind")
_CONTENT = ("to", "reply_to", "text", "attachments", "structured")
_CALL = (
    "entry",
    "seq",
    "time",
    "chain",
    "turn",
    "phase",
    "reply",
    "message_id",
    "author_id",
    "author_name",
    "author_type",
    "kind",
    "agent",
    "adapter",
    "invocation",
    "mentioned_by",
    "trigger",
    "notes_shown",
    "status",
    "attempts",
    "input_hash",
    "input_tokens_estimated",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "tokens_estimated",
    "cost_usd",
    "latency_ms",
    "error",
    "refused",
    "text_sha256",
)

CONVERSATION = (*_SAID, "planted", *_CONTENT)
AUDIT = (*_CALL, "planted", *_CONTENT, "partial", "detail")

# Excel takes the full-width forms for the others in some locales.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def written_table(record: AuditRecord) -> Iterator[str]:
    """Yield the table, row by row."""
    columns = AUDIT if record.audit else CONVERSATION
    rows = (_row(entry, columns) for entry in record.entries())
    return _written_rows(columns, rows)


def written_tables(records: Iterable[AuditRecord], *, audit: bool) -> Iterator[str]:
    """Yield one table of several sessions, row by row; its first column names the session."""
    columns = AUDIT if audit else CONVERSATION
    rows = (
        [_cell("session", record.session), *_row(entry, columns)]
        for record in records
        for entry in record.entries()
    )
    return _written_rows(("session", *columns), rows)


def _written_rows(
    columns: tuple[str, ...], rows: Iterable[list[str | int | float]]
) -> Iterator[str]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    yield BOM + buffer.getvalue()
    for row in rows:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(row)
        yield buffer.getvalue()


def _row(entry: Entry, columns: tuple[str, ...]) -> list[str | int | float]:
    """Return the cells of an entry; fields without a column of their own go to `detail` as JSON."""
    row = dict(entry)
    if entry["entry"] == CALL and entry["cost_usd"] is None:
        row["cost_usd"] = UNKNOWN
    other_fields = {name: value for name, value in entry.items() if name not in columns and value}
    if entry["entry"] != "message" and other_fields:
        row["detail"] = other_fields
    return [_cell(name, row.get(name)) for name in columns]


def _cell(name: str, value: Any) -> str | int | float:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return value
    return defused(escape_text(_flat(name, value)))


def _flat(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name == "attachments":
        return "\n".join(
            f"{attachment['path']} sha256:{attachment['sha256']}" for attachment in value
        )
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def defused(cell: str) -> str:
    """Return the cell so that no spreadsheet reads it as a formula, even after leading blanks."""
    is_formula = cell.lstrip().startswith(_FORMULA) or cell.startswith(("\t", "\r", "\n"))
    return f"'{cell}" if is_formula else cell


_MARKUP = re.compile(r"[\\`*\[\]<>&|~#$]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9])")
_RUN = re.compile(r"`+")
_BLOCKS = ("text", "partial", "error", "summary", "reason", "rolled_back", "structured")
_HEAD = frozenset({"entry", "seq", "time"})
_OF_CALLS = frozenset(
    {"author_id", "author_name", "author_type", "chain", "kind", "text_sha256", "to", "turn"}
)
_LEAST = 3


def write_markdown(record: AuditRecord, say: Words = ENGLISH) -> Iterator[str]:
    """Yield the record as markdown, piece by piece; its headings are in the language of `say`."""
    yield from _facts(record, say)
    for entry in record.entries():
        yield _entry(entry, say) if record.audit else _said(entry, say)
    yield _totals(record, say)


def newest(record: AuditRecord, most_bytes: int, most_tokens: int) -> str:
    """Return the newest whole entries within that many bytes and tokens.

    A line has the number of omitted entries.

    Tokens are estimated. A text that is longer than about a quarter of the limit is cut, and marked
    as cut.
    """

    def share(text: str) -> float:
        return max(len(text.encode()) / most_bytes, tokens.estimate(text) / most_tokens)

    most_text = min(most_bytes // 4, most_tokens)  # four times its characters
    pieces: deque[tuple[str, float]] = deque()
    size = 0.0
    left_out = 0
    for entry in record.entries():
        text = _entry(entry, ENGLISH, most_text)
        pieces.append((text, share(text)))
        size += pieces[-1][1]
        while size > 1:
            size -= pieces.popleft()[1]
            left_out += 1
    ends = _totals(record, ENGLISH)
    starts = "".join(_facts(record, ENGLISH))
    around = share(f"{starts}{_left_out(left_out + len(pieces))}{ends}")
    while pieces and size + around > 1:
        size -= pieces.popleft()[1]
        left_out += 1
    return f"{starts}{_left_out(left_out)}{''.join([text for text, _ in pieces])}{ends}"


def _left_out(count: int) -> str:
    if not count:
        return ""
    return (
        f"Left out for its size: the {count} oldest entries of this record. The sums at its end are"
        " those of the whole session.\n\n"
    )


def _facts(record: AuditRecord, say: Words) -> Iterator[str]:
    facts = record.facts()
    title = "Audit of session {name}" if record.audit else "Conversation of session {name}"
    yield f"# {say(title, name=_plain(record.session))}\n\n"
    lines = [f"- team: {_plain(facts['team'] or say('every agent'))}"]
    for member in facts["members"]:
        role = f", {_plain(member['role'])}" if member["role"] else ""
        lines.append(f"- member: {_plain(member['id'])} ({_plain(member['name'])}{role})")
    if "scenario" in facts:
        lines.append(f"- scenario: {_plain(facts['scenario'])}")
    yield "\n".join(lines) + "\n\n"


def _said(entry: Entry, say: Words) -> str:
    """Return a message of a conversation, with its author, recipients, time and text."""
    name, author_id = entry["author_name"], entry["author_id"]
    author = _plain(name if name == author_id else f"{name} ({author_id})")
    if entry["to"]:
        author = say("{who} to {whom}", who=author, whom=say(", ").join(map(_plain, entry["to"])))
    bare = {key: value for key, value in entry.items() if key not in _OF_CALLS}
    return _draw_entry(f"{author} · {_plain(entry['time'])}", bare)


def _entry(entry: Entry, say: Words, most_text: int | None = None) -> str:
    return _draw_entry(_heading(entry, say), entry, most_text)


def _draw_entry(heading: str, entry: Entry, most_text: int | None = None) -> str:
    lines = [f"## {heading}", ""]
    for name, value in entry.items():
        if name in _HEAD or name in _BLOCKS:
            continue
        lines += [f"- {name}: {text}" for text in _values(name, value, entry)]
    for name in _BLOCKS:
        if entry.get(name):
            lines += ["", f"{name}:", *_fenced(_text(entry[name]), most_text)]
    return "\n".join(lines) + "\n\n"


def _heading(entry: Entry, say: Words) -> str:
    kind = entry["entry"]
    facts = [say.enum(kind)]
    if kind == MESSAGE:
        facts.append(_plain(entry["author_name"]))
    elif kind == CALL:
        turn = say("turn {turn} {phase}", turn=entry["turn"], phase=entry["phase"])
        facts += [_plain(entry["agent"]), turn, say.enum(entry["status"])]
    facts += [_plain(entry["time"]), say("event {seq}", seq=entry["seq"])]
    return " · ".join(facts)


def _values(name: str, value: Any, entry: Entry) -> Iterator[str]:
    """Yield a field's value as it is written in a line; nothing if it is empty."""
    is_figure = name == "cost_usd" or (entry["entry"] == CALL and name.endswith("_tokens"))
    if is_figure:
        yield _figure(name, value)
    elif name == "attachments":
        yield from map(_attachment, value)
    elif name == "members":
        yield ", ".join(_plain(member["id"]) for member in value) or "none"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif value not in (None, "", {}, []):
        items = value if isinstance(value, list) else [value]
        yield ", ".join(_plain(str(item)) for item in items)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.10f}".rstrip("0").rstrip(".") if name == "cost_usd" else str(value)


def _attachment(attachment: Mapping[str, Any]) -> str:
    size = f"{attachment['size']} bytes, sha256 {attachment['sha256']}"
    return f"{_plain(attachment['name'])}, {_plain(attachment['path'] or 'gone')}, {size}"


def _totals(record: AuditRecord, say: Words) -> str:
    if not record.audit and not record.unreadable:
        return ""
    lines = [f"## {say('Sums')}", ""]
    if record.audit:
        sums = {**record.totals.agents(), "all": record.totals.total()}
        for agent, figures in sums.items():
            cost = UNKNOWN if figures["cost_usd"] is None else f"{figures['cost_usd']:g}"
            facts = [f"{name} {figures[name]}" for name in figures if name != "cost_usd"]
            lines.append(f"- {_plain(agent)}: {', '.join([*facts, f'cost_usd {cost}'])}")
    if record.unreadable:
        lines.append(f"- unreadable_lines: {record.unreadable}")
    return "\n".join(lines) + "\n"


def _fenced(content: str, most: int | None) -> Iterable[str]:
    notice = []
    lines = escape_text(content)
    if most is not None and len(lines.encode("utf-8", "replace")) > most:
        length = len(lines)
        lines = cut_text(lines, most // 4)  # a character takes at most four bytes
        notice = [f"(cut: the first {len(lines)} of {length} characters)"]
    longest = max((len(run) for run in _RUN.findall(lines)), default=0)
    fence = "`" * max(_LEAST, longest + 1)
    return [f"{fence}text", lines, fence, *notice]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _plain(text: str) -> str:
    """Return a text as one line with its markup escaped."""
    return _MARKUP.sub(r"\\\g<0>", escape_line(text))
