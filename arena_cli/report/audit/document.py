"""A session's record as one JSON document, written as it is read: an entry a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from arena_cli.ground import text
from arena_cli.report.audit.record import Record

VERSION = 1


def written(record: Record) -> Iterator[str]:
    """The document, piece by piece. Texts stand in it exactly as they were said."""
    facts = {"version": VERSION, **record.facts()}
    yield "{" + "".join(f"{_json(name)}: {_json(value)},\n" for name, value in facts.items())
    yield '"entries": ['
    mark = "\n"
    for entry in record.entries():
        yield mark + _json(entry)
        mark = ",\n"
    yield "\n]"
    if record.audit:
        yield f',\n"agents": {_json(record.totals.agents())}'
        yield f',\n"total": {_json(record.totals.total())}'
    yield f',\n"unreadable_lines": {record.unreadable}' + "}\n"


def _json(value: Any) -> str:
    return text.shown_json(json.dumps(value, ensure_ascii=False))
