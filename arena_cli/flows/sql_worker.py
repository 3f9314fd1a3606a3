"""Carry out SQL statements in one transaction, in a process of its own.

stdin is one JSON object: `{"database": path}` or `{"dsn": text}`, with `run`: a list of
`[statement, values]`. stdout is one: `{"rows", "changed"}`, or `{"error", "code", "retryable"}`.
If the process is ended, the database rolls the transaction back.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

MOST_ROWS = 100_000
_WAIT_S = 30.0

Statement = Sequence[Any]


def main() -> None:
    """Answer the request on stdin."""
    request = json.loads(sys.stdin.buffer.read())
    answer = _run_sqlite(request) if "database" in request else _run_dsn(request)
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False, default=str).encode())


def _run_sqlite(request: Any) -> dict[str, Any]:
    connection = sqlite3.connect(request["database"], timeout=_WAIT_S, isolation_level=None)
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        rows: list[dict[str, Any]] = []
        changed = 0
        for statement, values in request["run"]:
            if isinstance(values, list):
                for row in values:
                    cursor.execute(statement, row)
                    changed += max(cursor.rowcount, 0)
                continue
            cursor.execute(statement, values or {})
            changed += max(cursor.rowcount, 0)
            if cursor.description:
                names = [column[0] for column in cursor.description]
                rows = _collect(dict(zip(names, row, strict=True)) for row in cursor)
        cursor.execute("COMMIT")
    except (sqlite3.Error, OverflowError, TooManyRows) as error:
        is_busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        return _refuse(error, retryable=is_busy)
    finally:
        connection.close()
    return {"rows": rows, "changed": changed}


def _run_dsn(request: Any) -> dict[str, Any]:
    try:
        library: Any = import_module("sqlalchemy")
    except ImportError:
        problem = "a `dsn` needs the package SQLAlchemy; run pip install 'arena-agents[sql]'"
        return _refuse(problem, "unavailable")
    rows: list[dict[str, Any]] = []
    changed = 0
    try:
        engine = library.create_engine(request["dsn"])
        with engine.begin() as connection:
            for statement, values in request["run"]:
                if isinstance(values, list) and not values:
                    continue
                result = connection.execute(library.text(statement), values or {})
                if result.returns_rows:
                    rows = _collect(dict(row) for row in result.mappings())
                else:
                    changed += max(result.rowcount, 0)
    except TooManyRows as error:
        return _refuse(error)
    except library.exc.SQLAlchemyError as error:
        return _refuse(getattr(error, "orig", None) or error, retryable=_is_lost(error))
    except ImportError as error:
        return _refuse(f"the driver of the database is not installed: {error}", "unavailable")
    return {"rows": rows, "changed": changed}


def _refuse(problem: object, code: str = "sql", *, retryable: bool = False) -> dict[str, Any]:
    return {"error": str(problem), "code": code, "retryable": retryable}


def _is_lost(error: Any) -> bool:
    """Return True if the connection failed, or was lost, rather than a statement."""
    return bool(getattr(error, "connection_invalidated", False)) or (
        type(error).__name__ == "OperationalError" and getattr(error, "statement", None) is None
    )


class TooManyRows(Exception):
    """A statement returns more rows than a step may hold."""


def _collect(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    collected: list[dict[str, Any]] = []
    for row in rows:
        if len(collected) == MOST_ROWS:
            raise TooManyRows(f"it returns more than {MOST_ROWS:,} rows")
        collected.append(row)
    return collected


if __name__ == "__main__":
    main()
