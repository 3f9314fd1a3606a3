#!/usr/bin/env python3
"""Measure the readability of a Python package: size, words, names, imports, the cost of an event.

Usage: python .ci/measure.py PACKAGE_DIR [--limits]
With --limits, exit 1 if a figure is worse than the limits in LIMITS.
"""

from __future__ import annotations

import ast
import collections
import pathlib
import re
import sys

EMPTY_WORDS = set(
    "one found what told said part parts given known came made there left kept whole wanted asked shown named meant now was before after"
    " other others some rest more even own place at in_words why how where who them these those such like tried taken".split()
)
RELATIVE = re.compile(
    r"^(What|Whether|Who|Whom|How|Where|Which|Why|That|One|Those|Whatever|When) ", re.I
)
AIMS = {"files": 175, "lines": 45_000}
LIMITS = {
    "empty words %": 3.0,
    "relative docstrings %": 3.0,
    "class names with two meanings": 5,
    "imports inside functions": 15,
    "functions over 60 lines": 0,
    "files over 600 lines": 0,
    "files that name an event type, median": 4,
}


def measure(root: pathlib.Path) -> dict[str, float]:
    files = sorted(p for p in root.rglob("*.py") if "__pycache__" not in p.parts)
    lines = names = empty = docs = relative = inner = long_functions = long_files = 0
    classes: dict[str, set[str]] = collections.defaultdict(set)
    events: dict[str, set[str]] = collections.defaultdict(set)
    trees = {p: ast.parse(p.read_text(encoding="utf-8")) for p in files}
    event_names = set()
    for p, tree in trees.items():
        if p.as_posix().endswith("transcript/events.py"):
            event_names = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    for p, tree in trees.items():
        count = p.read_text(encoding="utf-8").count("\n")
        lines += count
        long_files += count > 600
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].add(str(p))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                long_functions += node.end_lineno - node.lineno + 1 > 60
                for child in ast.walk(node):
                    if isinstance(child, ast.ImportFrom) and (child.module or "").startswith(
                        root.name
                    ):
                        inner += 1
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node)
                if text:
                    docs += 1
                    relative += bool(RELATIVE.match(text))
            name = (
                node.id
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                else node.arg
                if isinstance(node, ast.arg)
                else None
            )
            if name and name not in ("self", "cls", "_"):
                names += 1
                empty += name.lstrip("_") in EMPTY_WORDS
            if isinstance(node, ast.Name) and node.id in event_names:
                events[node.id].add(str(p))
    return {
        "files": len(files),
        "lines": lines,
        "empty words %": round(100 * empty / max(names, 1), 1),
        "relative docstrings %": round(100 * relative / max(docs, 1), 1),
        "class names with two meanings": sum(len(where) > 1 for where in classes.values()),
        "imports inside functions": inner,
        "functions over 60 lines": long_functions,
        "files over 600 lines": long_files,
        "files that name an event type, median": sorted(len(v) for v in events.values())[
            len(events) // 2
        ]
        if events
        else 0,
    }


if __name__ == "__main__":
    figures = measure(pathlib.Path(sys.argv[1]))
    worse = False
    for key, value in figures.items():
        limit = LIMITS.get(key)
        bad = limit is not None and value > limit
        worse |= bad
        note = (
            f"   limit {limit}"
            if limit is not None
            else f"   aim {AIMS[key]}"
            if key in AIMS
            else ""
        )
        print(f"{key:42} {value:>8}{note}" + ("   OVER" if bad else ""))
    sys.exit(1 if worse and "--limits" in sys.argv else 0)
