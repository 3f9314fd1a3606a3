"""Serve a function of the user as a tool, in a process of its own: JSON lines in, and out.

A line is `{"describe": true}`, answered by `{"name", "description", "schema"}`, or
`{"arguments": {...}}`, answered by `{"text": ...}` (null for nothing), with `"typed": true` by
`{"value": ...}`. Errors are as those of `arena_cli.adapters.python_worker`.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from pydantic_core import to_jsonable_python

from arena_cli.adapters import python_worker
from arena_cli.tools.signature import ArgumentsError, Signature, to_text

_signatures: dict[Callable[..., Any], Signature] = {}


def answer(function: Callable[..., Any], line: bytes) -> Any:
    """Return the output for a line; see the module."""
    request = json.loads(line)
    signature = _read(function)
    if request.get("describe"):
        name = getattr(function, "__name__", "")
        return {"name": name, "description": signature.summary, "schema": signature.schema()}
    try:
        value = signature.call(request["arguments"])
    except ArgumentsError as error:
        raise python_worker.ReturnedError(str(error)) from error
    is_typed = bool(request.get("typed"))
    return _wait(value, is_typed) if inspect.isawaitable(value) else _finish(value, is_typed)


def _read(function: Callable[..., Any]) -> Signature:
    if function not in _signatures:
        try:
            _signatures[function] = Signature(function)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            problem = f"no schema can be made of its signature: {reason}"
            raise python_worker.ReturnedError(problem) from error
    return _signatures[function]


async def _wait(value: Any, is_typed: bool) -> dict[str, Any]:
    return _finish(await value, is_typed)


def _finish(value: Any, is_typed: bool) -> dict[str, Any]:
    try:
        if is_typed:
            return {"value": to_jsonable_python(value)}
        return {"text": to_text(value)}
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"the function returned a value that JSON cannot represent: {error}"
        raise python_worker.ReturnedError(problem) from error


if __name__ == "__main__":
    python_worker.serve(sys.argv[1], answer)
