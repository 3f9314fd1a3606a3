"""Read a flow file and those that it names, and check them: each error has its file and line."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.errors import Fault, FileFaults, UsageError, suggest_nearest
from arena_cli.flows import values
from arena_cli.flows.model import Branch, FlowFile, StepSpec
from arena_cli.flows.outcomes import FACTS
from arena_cli.util import files
from arena_cli.util.graphs import find_circle
from arena_cli.util.text import iter_texts, list_placeholders
from arena_cli.workspace import rule_files
from arena_cli.workspace.control import RuleSpec
from arena_cli.workspace.inputs import INPUT_NAME, fits_type, is_required, require_inputs
from arena_cli.workspace.models import AGENT_TOOL, AgentProfile, Team, normalize_id
from arena_cli.workspace.rule_files import RULES
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Document, Fragment
from arena_cli.yamlio.nodes import Loc

OUTPUTS: Mapping[str, frozenset[str]] = {
    "shell": frozenset({"code", "stdout", "stderr", "json"}),
    "container": frozenset({"code", "stdout", "stderr", "json"}),
    "http": frozenset({"status", "headers", "body"}),
    "sql": frozenset({"rows", "changed"}),
    "send": frozenset({"text", "replies", "end", "session"}),
}
"""The keys of the output of a kind, where they are known before it runs."""

_TRANSACTIONS = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "VACUUM"})
_INSTALL = "run pip install simpleeval"


@dataclass(frozen=True)
class FlowStep:
    """A step of a loaded flow.

    `needs` are the ids of steps in its own list that end before it begins, those that it refers to
    included. `definition` is the hash of its own keys, without those of steps in it. `flow` is the
    flow that it names.
    """

    spec: StepSpec
    needs: tuple[str, ...]
    definition: str
    blocks: tuple[tuple[FlowStep, ...], ...] = ()
    flow: Flow | None = None


@dataclass(frozen=True)
class Flow:
    """A flow that can run: its file as the user sees it, and its steps, each after its needs.

    `team` gets the messages of a `send` that names none; None: that of the workspace. `rules` are
    those on its steps.
    """

    file: FlowFile
    name: str
    steps: tuple[FlowStep, ...] = field(default=())
    team: Team | None = None
    rules: tuple[RuleSpec, ...] = ()

    def walk(self) -> Iterator[FlowStep]:
        """Yield all steps, with those of blocks and of other flows."""
        yield from _walk(self.steps)


def _walk(steps: Sequence[FlowStep]) -> Iterator[FlowStep]:
    for step in steps:
        yield step
        for block in step.blocks:
            yield from _walk(block)
        if step.flow is not None:
            yield from step.flow.walk()


def load(path: Path, workspace: Workspace, team: Team | None = None) -> Flow:
    """Return the flow in a file, whose messages go to `team` unless a step names another.

    Raises FileFaults with all errors in all its files.
    """
    if not path.is_file():
        raise UsageError(f"there is no flow file {path}")
    document = loader.load(path, _shown_name(path, workspace.root))
    return _build(document, path, workspace, team)


def load_text(text: str, name: str, workspace: Workspace, team: Team | None) -> Flow:
    """Return the flow in a text, which errors call `name`. Raises FileFaults."""
    return _build(loader.parse(text, name), workspace.root / name, workspace, team)


def _build(document: Document, path: Path, workspace: Workspace, team: Team | None) -> Flow:
    reading = _FlowReading(workspace, team)
    flow = reading.read(path, document, ())
    if reading.faults or flow is None:
        raise FileFaults(reading.faults)
    return replace(flow, rules=(*_list_team_rules(workspace, team), *flow.rules))


def add_rules(flow: Flow, profile: AgentProfile) -> Flow:
    """Return a flow that an agent runs, with the agent's rules on steps."""
    own = [rule for rule in profile.rules if rule.kind == "step"]
    return replace(flow, rules=(*flow.rules, *own))


def _list_team_rules(workspace: Workspace, team: Team | None) -> list[RuleSpec]:
    """Return the rules on steps of the team to which a flow's messages go."""
    has_members = any(agent.profile.member for agent in workspace.loaded.values())
    if team is None and workspace.file.team is None and not has_members:
        return []  # there is no team
    team = team or workspace.team(workspace.file.team)
    return [rule for rule in team.config.rules if rule.kind == "step"]


def load_for_step(path: Path, inputs: Mapping[str, Any], workspace: Workspace, team: Team) -> Flow:
    """Return the flow that a step of a scenario runs with these inputs. Raises UsageError."""
    if not workspace.anywhere and not files.is_inside(path, workspace.root):
        raise UsageError(f"`{path}` is not in the workspace", files.OUTSIDE_HINT)
    flow = load(path, workspace, team)
    require_inputs("the flow", flow.file.inputs, inputs)
    return flow


def complete_inputs(flow: Flow, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a flow; those without a value are null. Raises UsageError."""
    specs = flow.file.inputs
    return {**dict.fromkeys(specs), **require_inputs("the flow", specs, inputs)}


def _shown_name(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return str(path)


class _VisibleNames(NamedTuple):
    """The names that a step may use: steps by id, `inputs`, and `item`, `index`, `round`."""

    steps: Mapping[str, StepSpec]
    inputs: Mapping[str, Any]
    names: frozenset[str] = frozenset()


class _FlowReading:
    """The flow files that are read, and what is wrong with them."""

    def __init__(self, workspace: Workspace, team: Team | None) -> None:
        self.faults: list[Fault] = []
        self.team = team
        self.workspace = workspace
        self.is_available = values.is_available()
        self._flows: dict[Path, Flow | None] = {}

    def read_file(self, path: Path, callers: Sequence[Path]) -> Flow | None:
        """Return the flow in a file, None if it has an error."""
        resolved = path.resolve()
        if resolved in self._flows:
            return self._flows[resolved]
        document = loader.load(path, _shown_name(path, self.workspace.root))
        return self.read(path, document, callers)

    def read(self, path: Path, document: Document, callers: Sequence[Path]) -> Flow | None:
        """Return the flow in a document, None if it has an error."""
        resolved = path.resolve()
        file, faults = loader.validate(document, FlowFile)
        self.faults += faults
        if file is None:
            self._flows[resolved] = None
            return None
        before = len(self.faults)
        checking = _FileChecks(self, document, file, (*callers, resolved))
        steps = checking.check()
        rules = self._read_rules(file, document)
        is_valid = len(self.faults) == before
        flow = Flow(file, document.name, steps, self.team, rules) if is_valid else None
        self._flows[resolved] = flow
        return flow

    def _read_rules(self, file: FlowFile, document: Document) -> tuple[RuleSpec, ...]:
        """Return the rules of a file with those of the files that it names; add all errors."""
        workspace = self.workspace
        rules, faults = rule_files.resolve_rules(
            file.rules,
            Fragment(document, ()),
            workspace.root,
            anywhere=workspace.anywhere,
            agents=workspace.loaded,
        )
        for index, rule in enumerate(file.rules):
            if rule.file is None and rule.kind != "step":
                hint = "write `on: step`; rules on replies belong to a team"
                problem = f"a rule of a flow looks at steps, not at `{rule.kind}`"
                faults.append(document.fault((RULES, index), problem, hint))
        self.faults += faults
        return tuple(rule for rule in rules if rule.kind == "step")


@dataclass
class _FileChecks:
    """The checks of one file; `ids` are those of its steps, with their lines."""

    reading: _FlowReading
    document: Document
    file: FlowFile
    callers: Sequence[Path]
    ids: dict[str, int] = field(default_factory=dict)

    def check(self) -> tuple[FlowStep, ...]:
        """Return the steps; add all errors to those of the reading."""
        for name, spec in self.file.inputs.items():
            if not INPUT_NAME.fullmatch(name):
                self._add(("inputs", name), "is no name", "use letters, digits and `_`")
            if spec.default is not None and not fits_type(spec, spec.default):
                self._add(("inputs", name, "default"), f"must be of the type {spec.type}")
        if self.file.reflect is not None:
            self._check_agent(self.file.reflect.agent, ("reflect", "agent"), None)
        scope = _VisibleNames({}, self.file.inputs)
        steps, _ = self._check_list(self.file.steps, ("steps",), scope)
        return steps

    def _add(self, loc: Loc, problem: str, hint: str = "") -> None:
        self.reading.faults.append(self.document.fault(loc, problem, hint))

    def _check_list(
        self, specs: Sequence[StepSpec], loc: Loc, scope: _VisibleNames
    ) -> tuple[tuple[FlowStep, ...], set[str]]:
        """Return the steps of a list in an order that fits, and the outer steps they refer to."""
        for index, spec in enumerate(specs):
            line = self.document.line((*loc, index))
            if spec.id in self.ids:
                problem = f"there is another step `{spec.id}`, in line {self.ids[spec.id]}"
                self._add((*loc, index, "id"), problem, "ids are unique in a file")
            self.ids.setdefault(spec.id, line)
        own = {spec.id: spec for spec in specs}
        inner = scope._replace(steps={**scope.steps, **own})
        steps: dict[str, FlowStep] = {}
        places: dict[str, int] = {}
        outer: set[str] = set()
        for index, spec in enumerate(specs):
            step, referred = self._check_step(spec, (*loc, index), inner, own)
            steps.setdefault(spec.id, step)
            places.setdefault(spec.id, index)
            outer |= referred - own.keys()
        return self._sort(steps, places, loc), outer

    def _check_step(
        self, spec: StepSpec, loc: Loc, scope: _VisibleNames, own: Mapping[str, StepSpec]
    ) -> tuple[FlowStep, set[str]]:
        referred = self._check_needs(spec, loc, own)
        referred |= self._check_texts(spec, loc, scope)
        self._check_kind(spec, loc)
        names = {"each": {"item", "index"}, "repeat": {"round"}}.get(spec.kind, set())
        inside = scope._replace(
            steps={key: value for key, value in scope.steps.items() if key != spec.id},
            names=scope.names | names,
        )
        blocks = []
        for place, block in spec.list_blocks():
            steps, outer = self._check_list(block, (*loc, *place), inside)
            blocks.append(steps)
            referred |= outer
        if spec.repeat is not None:
            body = {step.id: step for step in spec.steps}
            ends = inside._replace(steps={**inside.steps, **body})
            place = (*loc, "repeat", "until")
            referred |= self._check_expression(spec.repeat.until, place, ends) - body.keys()
        referred |= self._check_branches(spec.choose or (), (*loc, "choose"), inside)
        flow = self._read_flow(spec, loc) if spec.flow is not None else None
        if spec.id in referred:
            self._add(loc, f"the step `{spec.id}` refers to itself")
        needs = tuple(key for key in own if key in referred and key != spec.id)
        return FlowStep(spec, needs, self._hash(loc), tuple(blocks), flow), referred

    def _check_branches(
        self, branches: Sequence[Branch], loc: Loc, scope: _VisibleNames
    ) -> set[str]:
        """Check the conditions of the branches of a choice; return the steps they refer to."""
        referred: set[str] = set()
        for index, branch in enumerate(branches):
            if branch.when is not None:
                referred |= self._check_expression(branch.when, (*loc, index, "when"), scope)
            elif index + 1 < len(branches):
                self._add((*loc, index), "a branch without `when` is the last one")
        return referred

    def _check_needs(self, spec: StepSpec, loc: Loc, own: Mapping[str, StepSpec]) -> set[str]:
        for index, need in enumerate(spec.needs):
            if need not in own:
                hint = suggest_nearest(need, [key for key in own if key != spec.id])
                problem = f"there is no step `{need}` in this list of steps"
                self._add((*loc, "needs", index), problem, hint)
        return {need for need in spec.needs if need in own}

    def _check_texts(self, spec: StepSpec, loc: Loc, scope: _VisibleNames) -> set[str]:
        """Check the placeholders and expressions of a step's own keys; return its references."""
        referred: set[str] = set()
        data = _own_keys(Fragment(self.document, loc).data)
        for key, value in data.items():
            for place, text in iter_texts(value, (*loc, key)):
                if key in ("when", "choose") or place[-1] == "until":
                    continue  # an expression
                for name in values.list_references(text):
                    referred |= self._check_reference(name, place, scope)
                if key == "sql" and (place[-1] == "statement" or place[-2] == "run"):
                    self._check_statement(text, place)
        if spec.when is not None:
            referred |= self._check_expression(spec.when, (*loc, "when"), scope)
        is_filled = isinstance(spec.each, str) and list(values.list_references(spec.each))
        if spec.each is not None and not is_filled and not isinstance(spec.each, list):
            self._add((*loc, "each"), "must be a list, or a placeholder of one")
        return referred

    def _check_statement(self, text: str, place: Loc) -> None:
        if list(values.list_references(text)):
            problem = "a statement has no placeholders: a value could change what it does"
            self._add(place, problem, "write `:name` in the statement, and `values: {name: ...}`")
        word = text.split(maxsplit=1)[0].rstrip(";").upper() if text.split() else ""
        if word in _TRANSACTIONS:
            problem = f"`{word}` ends the transaction of the step"
            self._add(place, problem, "all statements of a step are in one transaction")

    def _check_reference(self, name: str, place: Loc, scope: _VisibleNames) -> set[str]:
        reference = values.parse_reference(name)
        if reference is None:
            roots = ", ".join(sorted(values.ROOTS))
            problem = f"`${{{name}}}` refers to nothing"
            hint = f"begin with {roots} or env:; a literal `${{` is `$${{`"
            self._add(place, problem, hint)
            return set()
        return self._check_path(reference.keys, place, scope)

    def _check_path(self, keys: Sequence[str | int], place: Loc, scope: _VisibleNames) -> set[str]:
        """Check that a path names a value that will be there; return the step that it names."""
        root, second, third, fourth, *_ = (*map(str, keys), "", "", "", "")
        if root == "steps" and second in scope.steps:
            self._check_fact(scope.steps[second], third, fourth, place)
            return {second}
        if root == "steps":
            hint = suggest_nearest(second, scope.steps)
            if second in self.ids:
                hint = "it is within another step: refer to the output of that one"
            self._add(place, f"there is no step `{second}` here", hint)
        elif root == "inputs" and second and second not in scope.inputs:
            hint = suggest_nearest(second, scope.inputs) if scope.inputs else "it has no inputs"
            self._add(place, f"there is no input `{second}`", hint)
        elif root in ("item", "index", "round") and root not in scope.names:
            block = "a `repeat`" if root == "round" else "an `each`"
            self._add(place, f"there is a `{root}` only within {block}")
        return set()

    def _check_fact(self, spec: StepSpec, fact: str, key: str, place: Loc) -> None:
        """Check that a step has the fact to which a path refers, and its output the key."""
        if fact and fact not in FACTS:
            hint = suggest_nearest(fact, sorted(FACTS))
            self._add(place, f"a step has no `{fact}`", hint)
        known = OUTPUTS.get(spec.kind)
        if fact == "output" and key and known is not None and key not in known:
            hint = suggest_nearest(key, sorted(known))
            self._add(place, f"the output of `{spec.id}` ({spec.kind}) has no `{key}`", hint)

    def _check_expression(self, text: str, place: Loc, scope: _VisibleNames) -> set[str]:
        if not self.reading.is_available:
            self._add(place, "expressions need the package simpleeval", _INSTALL)
            return set()
        if "${" in text:
            self._add(place, "an expression has no `${...}`", "write the path without them")
            return set()
        try:
            tree = values.parse_expression(text)
        except ValueError as error:
            self._add(place, str(error))
            return set()
        for name in values.list_unknown_calls(tree):
            self._add(place, f"expressions have no function `{name}`")
        return self._check_names(tree, place, scope)

    def _check_names(self, tree: ast.AST, place: Loc, scope: _VisibleNames) -> set[str]:
        referred: set[str] = set()
        for keys in values.list_paths(tree):
            name = str(keys[0])
            if name in values.ROOTS and (len(keys) > 1 or name not in ("round", "steps")):
                referred |= self._check_path(keys, place, scope)
            elif name == "round" and name in scope.names:
                continue
            elif not values.is_function(name) and name not in ("true", "false", "null"):
                hint = suggest_nearest(name, sorted(values.ROOTS))
                self._add(place, f"there is no value `{name}`", hint)
        return referred

    def _check_kind(self, spec: StepSpec, loc: Loc) -> None:
        if spec.agent is not None:
            self._check_agent(spec.agent, (*loc, "agent"), spec)
        if spec.send is not None:
            self._check_team(spec, loc)
        if spec.sql is not None and spec.sql.database is not None:
            self._check_inside(spec.sql.database, (*loc, "sql", "database"))
        if spec.cwd is not None:
            self._check_inside(spec.cwd, (*loc, "cwd"))

    def _check_inside(self, name: str, place: Loc) -> bool:
        """Check that a path is in the workspace; one with placeholders is when it is filled."""
        workspace = self.reading.workspace
        is_open = workspace.anywhere or list_placeholders(name)
        if is_open or files.is_inside(workspace.root / name, workspace.root):
            return True
        self._add(place, f"`{name}` is not in the workspace", files.OUTSIDE_HINT)
        return False

    def _check_agent(self, agent: str, place: Loc, spec: StepSpec | None) -> None:
        profiles = self.reading.workspace.profiles
        profile = profiles.get(normalize_id(agent))
        if profile is None:
            self._add(place, f"there is no agent `{agent}`", suggest_nearest(agent, profiles))
            return
        if spec is None:
            return
        self._check_inputs(spec, place[:-1], profile.inputs, f"the agent {agent}")
        if spec.message is None and not profile.query and not profile.inputs:
            self._add(place, f"{agent} has no `query`", "write what to tell it in `message`")

    def _check_inputs(self, spec: StepSpec, loc: Loc, specs: Mapping[str, Any], owner: str) -> None:
        for name in spec.inputs:
            if name not in specs:
                hint = suggest_nearest(name, specs) if specs else "it has no inputs"
                self._add((*loc, "inputs", name), f"{owner} has no input `{name}`", hint)
        missing = [key for key, value in specs.items() if is_required(value)]
        missing = [key for key in missing if key not in spec.inputs]
        if missing:
            self._add(loc, f"{owner} needs inputs: {', '.join(missing)}")

    def _check_team(self, spec: StepSpec, loc: Loc) -> None:
        try:
            team = find_team(self.reading.workspace, spec, self.reading.team)
        except UsageError as error:
            place = (*loc, "team") if spec.team else (*loc, "send")
            self._add(place, error.what, error.mend)
            return
        for index, agent in enumerate(spec.to):
            if team.member(normalize_id(agent)) is None:
                hint = suggest_nearest(agent, [member.id for member in team.members])
                self._add((*loc, "to", index), f"the team has no member `{agent}`", hint)

    def _read_flow(self, spec: StepSpec, loc: Loc) -> Flow | None:
        name, place = str(spec.flow), (*loc, "flow")
        root = self.reading.workspace.root
        path = root / name
        if not self._check_inside(name, place):
            return None
        if not path.is_file():
            self._add(place, f"there is no file {name}", "paths start from the workspace")
        elif path.resolve() in self.callers:
            shown = [_shown_name(caller, root) for caller in (*self.callers, path.resolve())]
            self._add(place, f"the flows call each other in a circle: {' → '.join(shown)}")
        else:
            flow = self.reading.read_file(path, self.callers)
            if flow is not None:
                self._check_inputs(spec, loc, flow.file.inputs, f"the flow {name}")
            return flow
        return None

    def _sort(
        self, steps: Mapping[str, FlowStep], places: Mapping[str, int], loc: Loc
    ) -> tuple[FlowStep, ...]:
        """Return the steps, each after those that it needs; report a circle."""
        ordered: dict[str, FlowStep] = {}
        waiting = dict(steps)
        while ready := [k for k, step in waiting.items() if set(step.needs) <= ordered.keys()]:
            ordered.update((key, waiting.pop(key)) for key in ready)
        if waiting:
            circle = find_circle({key: step.needs for key, step in waiting.items()})
            place = (*loc, places[circle[0]])
            self._add(place, f"the steps need each other in a circle: {' → '.join(circle)}")
        return tuple(ordered.values())

    def _hash(self, loc: Loc) -> str:
        data = _own_keys(Fragment(self.document, loc).data)
        text = json.dumps(data, sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _own_keys(data: Any) -> dict[str, Any]:
    """Return the keys of a step as written, without those that hold other steps."""
    return {
        key: [{"when": branch.get("when")} for branch in value] if key == "choose" else value
        for key, value in dict(data).items()
        if key not in ("steps", "group") and not str(key).startswith("x-")
    }


def find_team(workspace: Workspace, spec: StepSpec, team: Team | None) -> Team:
    """Return the team of a `send`, by default `team`. Raises UsageError."""
    if spec.team is None and team is not None:
        return team
    return workspace.team(spec.team or workspace.file.team)


def find_agent_team(workspace: Workspace, agent: str) -> Team:
    """Return the team of an agent by itself. Raises UsageError."""
    return workspace.team(f"{AGENT_TOOL}{normalize_id(agent)}")
