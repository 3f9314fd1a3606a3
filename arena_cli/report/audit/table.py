"""A session's record as CSV (RFC 4180), one row an entry, for spreadsheets.

It begins with a byte order mark: without one, Excel reads UTF-8 as the code page of its locale, and
Chinese comes out as rubbish; other programs pass it over. A cell that a spreadsheet would take for
a formula gets a `'` before it (OWASP, "CSV Injection"): agents write these texts.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from arena_cli.ground import text
from arena_cli.report.audit.entries import CALL, Entry
from arena_cli.report.audit.record import Record

BOM = "\ufeff"
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
    "text_sha256",
)

CONVERSATION = (*_SAID, "planted", *_CONTENT)
AUDIT = (*_CALL, "planted", *_CONTENT, "partial", "detail")

# Excel takes the full-width forms for the others in some locales.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def written(record: Record) -> Iterator[str]:
    """The table, row by row."""
    columns = AUDIT if record.audit else CONVERSATION
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    yield BOM + buffer.getvalue()
    for entry in record.entries():
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(_row(entry, columns))
        yield buffer.getvalue()


def _row(entry: Entry, columns: tuple[str, ...]) -> list[str | int | float]:
    """The cells of an entry; what has no column of its own stands in `detail` as JSON."""
    told = dict(entry)
    if entry["entry"] == CALL and entry["cost_usd"] is None:
        told["cost_usd"] = UNKNOWN
    rest = {name: value for name, value in entry.items() if name not in columns and value}
    if entry["entry"] != "message" and rest:
        told["detail"] = rest
    return [_cell(name, told.get(name)) for name in columns]


def _cell(name: str, value: Any) -> str | int | float:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return value
    return defused(text.shown(_flat(name, value)))


def _flat(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name == "attachments":
        return "\n".join(f"{part['path']} sha256:{part['sha256']}" for part in value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def defused(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula, blanks before it or not."""
    is_formula = cell.lstrip().startswith(_FORMULA) or cell.startswith(("\t", "\r", "\n"))
    return f"'{cell}" if is_formula else cell
