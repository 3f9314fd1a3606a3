"""Check the rules of a team or an agent, and read the files of rules that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from arena_cli.errors import Fault, suggest_nearest
from arena_cli.workspace import control
from arena_cli.workspace.control import RulesFile, RuleSpec
from arena_cli.workspace.models import normalize_id
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment
from arena_cli.yamlio.nodes import Loc

RULES = "rules"

NOTHING: Mapping[str, str] = MappingProxyType({})


def resolve_rules(
    rules: Sequence[RuleSpec],
    fragment: Fragment,
    root: Path,
    *,
    anywhere: bool,
    taken: Mapping[str, str] = NOTHING,
    agents: Collection[str] | None = None,
) -> tuple[list[RuleSpec], list[Fault]]:
    """Return the rules below `rules` of a part with those of files in their places, and all errors.

    `taken` are the ids of other rules that hold too, and whose they are; `agents` are the ids of
    all agents, None if they are not known yet.
    """
    resolved: list[RuleSpec] = []
    faults: list[Fault] = []
    ids = dict(taken)
    for rule, place in _list_rules(rules, fragment, root, faults, anywhere=anywhere):
        faults += _find_faults(rule, place, root)
        faults += _find_unknown_agents(rule, place, agents) if agents is not None else ()
        if rule.key in ids:
            key = "id" if rule.id else ""
            hint = f"give it an `id` of its own; {ids[rule.key]} has the other one"
            problem = f"there are two rules `{rule.key}`"
            faults.append(place.fault((key,) if key else (), problem, hint))
        document = place.document
        ids.setdefault(rule.key, f"{document.name}:{document.line(place.loc)}")
        resolved.append(rule)
    return resolved, faults


def _list_rules(
    rules: Sequence[RuleSpec],
    fragment: Fragment,
    root: Path,
    faults: list[Fault],
    *,
    anywhere: bool,
) -> Iterator[tuple[RuleSpec, Fragment]]:
    """Yield each rule with its place; add the errors of reading files."""
    for index, rule in enumerate(rules):
        place = fragment.below(RULES, index)
        if rule.file is None:
            yield rule, place
            continue
        document, read_faults = loader.load_named(
            rule.file, root, partial(place.fault, ("file",)), anywhere=anywhere
        )
        faults += read_faults
        if document is None:
            continue
        inner, inner_faults = loader.validate(document, RulesFile)
        faults += inner_faults
        for number, inner_rule in enumerate(inner.rules if inner else ()):
            inner_place = Fragment(document, (RULES, number))
            if inner_rule.file is None:
                yield inner_rule, inner_place
            else:
                problem = "a file of rules names no other file"
                faults.append(inner_place.fault(("file",), problem))


def _find_faults(rule: RuleSpec, place: Fragment, root: Path) -> Iterator[Fault]:
    """Yield the errors of patterns, checks, files and functions of a rule."""
    checks = control.import_text_checks()
    for key in ("require", "forbid"):
        if getattr(rule, key) is not None:
            yield from checks.find_faults(place.below(key), root)
    if rule.when is not None:
        raw = rule.when.text_checks
        for problem, hint in checks.find_problems(raw, root) if raw else ():
            yield place.fault(("when",), problem, hint)
    if rule.checks is not None and rule.require is None:
        loc: Loc = (rule.built_in,)
        for problem, hint in checks.find_problems(rule.checks, root):
            yield place.fault(loc, problem, hint)
    for key in ("python", "correct"):
        target = getattr(rule, key)
        problem = checks.find_function_problem(target, root) if target is not None else None
        if problem is not None:
            yield place.fault((key,), *problem)


def _find_unknown_agents(
    rule: RuleSpec, place: Fragment, agents: Collection[str]
) -> Iterator[Fault]:
    """Yield the errors of names that no agent has."""
    when = rule.when
    named: list[tuple[Loc, Sequence[str]]] = [
        (("when", "agent"), (when.agent if when else None) or ()),
        (("when", "mentions"), (when.mentions if when else None) or ()),
    ]
    for agent, others in (rule.calls_only or {}).items():
        named.append((("calls_only",), (agent, *others)))
    for loc, names in named:
        for name in names:
            if normalize_id(name) not in agents:
                hint = suggest_nearest(name, agents)
                yield place.fault(loc, f"there is no agent `{name}`", hint)
