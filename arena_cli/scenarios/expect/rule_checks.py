"""Checks of scenarios on a text that is not said yet, for the rules of a team.

The engine, a lower layer, imports this module by name (`workspace.control.import_text_checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from arena_cli.adapters import python, python_worker
from arena_cli.errors import Fault
from arena_cli.scenarios.expect import check_kinds, json_checks
from arena_cli.scenarios.expect.context import CheckContext, Folders, Subject
from arena_cli.scenarios.expect.model import AS_JSON, CheckKeys, Checks, iter_checks
from arena_cli.scenarios.expect.text_checks import NoVerdict
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment
from arena_cli.yamlio.nodes import Loc

_NEEDS_RUN = {
    "judge": "no agent is called for a rule; use `python` of the rule",
    "python": "write `python` next to the rule's `id`",
    "snapshot": "a rule has no recorded text",
    "tool": "a rule with `on: tool` is checked before each call of a tool",
}


class CheckFailed(Exception):
    """A check gave no verdict; the message has the reason."""


TextCheck = Callable[[str], str]
"""Returns what is wrong with a text, or "" if nothing is. Raises CheckFailed."""


def build_check(raw: Mapping[str, Any], root: Path) -> TextCheck:
    """Return the check for valid keys of checks; files that they name are in the workspace."""
    checks = Checks.model_validate(raw)
    context = CheckContext(root)

    def check(text: str) -> str:
        try:
            verdict = check_kinds.all_of(Subject(text, context), checks)
        except NoVerdict as error:
            raise CheckFailed(str(error)) from error
        return "" if verdict.holds else f"expected: {verdict.expected}; got: {verdict.actual}"

    return check


def find_faults(fragment: Fragment, root: Path) -> list[Fault]:
    """Return the errors of the checks in a part of a file."""
    checks, faults = loader.validate_part(fragment, Checks)
    if checks is not None:
        faults = [fragment.fault(*problem) for problem in _find_problems(checks, root)]
    return faults


def find_problems(raw: Mapping[str, Any], root: Path) -> list[tuple[str, str]]:
    """Return the problems of checks that a built-in rule means, each with its hint."""
    fragment = Fragment(loader.wrap_data(raw, ""))
    return [(fault.what, fault.mend) for fault in find_faults(fragment, root)]


def _find_problems(checks: CheckKeys, root: Path) -> Iterator[tuple[Loc, str, str]]:
    for loc, kind, options in iter_checks(checks):
        if kind in _NEEDS_RUN:
            yield loc, "cannot be used in a rule", _NEEDS_RUN[kind]
        elif isinstance(options, tuple):
            yield loc, "a check of a package cannot be used in a rule", _NEEDS_RUN["judge"]
        elif kind == AS_JSON:
            for below, problem, hint in json_checks.wrong(options, Folders(root)):
                yield (*loc, *below), problem, hint


def find_function_problem(target: str, root: Path) -> tuple[str, str] | None:
    """Return why a function of the user cannot be called, with a hint; None if it seems to be fine.

    Its file is read, and not run.
    """
    where, name = python_worker.split(target)
    if not where or not name.isidentifier():
        return "must be module:function or file.py:function", ""
    health = python.look_up(target, root)
    return None if health.ok else (health.detail, "")
