"""Values of JSON: what stands at a path, in words, and whether two are one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from arena_cli.scenario.expect import checks, patterns

Steps = tuple[str | int, ...]

_STEP = re.compile(r"""\.?(?P<key>[^.\[\]'"]+)|\[(?P<index>\d+)\]|\[(["'])(?P<quoted>.+?)\3\]""")


def steps_of(path: str) -> Steps:
    """The keys and indexes of `items[0].file`; `["a.b"]` is a key with a dot.

    Raises ValueError.
    """
    if path.startswith("$"):
        raise ValueError("a path begins with a key or an index: write it without `$.`")
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None or (step[0].startswith(".") != bool(step["key"] and end)):
            raise ValueError(f"no path at `{path[end:]}`; write it like items[0].file")
        steps.append(int(step["index"]) if step["index"] else step["key"] or step["quoted"])
        end = step.end()
    return tuple(steps)


def at(value: Any, steps: Steps) -> tuple[bool, Any]:
    """Whether something stands there, and what; else why not, at the first place that fails."""
    for number, step in enumerate(steps):
        if isinstance(step, int) and isinstance(value, list):
            if step >= len(value):
                return False, _missing(steps, number, f"has {len(value)} items")
        elif isinstance(step, int):
            return False, _missing(steps, number, f"is no list: {shown(value)}")
        elif not isinstance(value, dict):
            return False, _missing(steps, number, f"is no object: {shown(value)}")
        elif step not in value:
            return False, _missing(steps, number, f"has {_keys(value)}")
        value = value[step]
    return True, value


def _missing(steps: Steps, number: int, why: str) -> str:
    parent = dotted(steps[:number]) or "the whole"
    return f"no {dotted(steps[: number + 1])}: {parent} {why}"


def _keys(value: Mapping[str, Any]) -> str:
    return checks.shortened(", ".join(value)) if value else "no keys"


def dotted(steps: Iterable[str | int]) -> str:
    """A path as it is written."""
    whole = ""
    for step in steps:
        if isinstance(step, int):
            whole += f"[{step}]"
        elif _STEP.fullmatch(step):
            whole += f".{step}" if whole else step
        else:
            whole += f"[{checks.quoted(step)}]"
    return whole


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    return checks.shortened(json.dumps(value, ensure_ascii=False))


def same(value: Any, wanted: Any, ignore_case: bool) -> bool:
    """As JSON has it: 1 and 1.0 are one number, true is none. Texts are compared in NFKC."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(
            same(value[key], wanted[key], ignore_case) for key in value
        )
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(
            same(one, other, ignore_case) for one, other in zip(value, wanted, strict=True)
        )
    if isinstance(value, str) and isinstance(wanted, str):
        return patterns.form(value, ignore_case) == patterns.form(wanted, ignore_case)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)
