"""Write the files of a new workspace: a small team that works offline, and two scenarios."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml

from arena_cli.errors import Fault, FileFaults, UsageError
from arena_cli.util import files
from arena_cli.util.files import create_file, read_regular, remove_leftovers
from arena_cli.util.redaction import is_secret_key, mask_text
from arena_cli.util.text import clean_text, clean_value, escape_line
from arena_cli.workspace import agents, models
from arena_cli.workspace.agents import AdapterKinds
from arena_cli.workspace.models import AgentProfile
from arena_cli.workspace.workspace import (
    AGENTS_FOLDER,
    WORK_FOLDER,
    YAML_SUFFIX,
    Workspace,
    load_workspace,
)
from arena_cli.yamlio import loader, nodes

TemplateName = Literal["software", "incident", "discussion", "investigate", "build"]

SCHEMAS_FOLDER = "schemas"

TemplateLanguage = Literal["en", "zh"]

TEMPLATES: dict[TemplateName, str] = {
    "software": "a software team: architect, compliance, developer, tester",
    "incident": "incident response: triage, on-call, developer, communications, scribe",
    "discussion": "two agents that discuss a proposal until they agree",
    "investigate": "a lead, and an investigator that reads a folder of code with tools",
    "build": "a planner, and eight agents that build what it plans",
}
"""The templates, each with its description."""

FIRST_MESSAGES: dict[tuple[TemplateName, TemplateLanguage], str] = {
    ("software", "en"): "@architect please break this down: a web shop under the GDPR",
    ("software", "zh"): "@架构师 请拆解这个需求：做一个网店，需要符合 GDPR",
    ("incident", "en"): "checkout returns 500, customers cannot place orders",
    ("incident", "zh"): "结账返回 500，客户无法下单",
    ("discussion", "en"): "should each team get a coding agent?",
    ("discussion", "zh"): "每个团队都应该配一个编程智能体吗？",
    ("investigate", "en"): "why do members get too much discount?",
    ("investigate", "zh"): "为什么会员的折扣太多？",
    ("build", "en"): "build a small greeting service with tests",
    ("build", "zh"): "做一个带测试的小型问候服务",
}

FIRST_RUNS: dict[tuple[TemplateName, TemplateLanguage], str] = {
    ("investigate", "en"): 'investigator --input objective="why is the discount wrong?"',
    ("investigate", "zh"): 'investigator --input objective="为什么折扣不对？"',
}
"""The arguments of `arena agents run` for templates with an agent that is called by itself."""

_RENAMED = {"gitignore": ".gitignore"}
_OPTIONAL = frozenset({".gitignore"})  # one that is there already stays as it is


def render_template(
    schemas: Mapping[str, Mapping[str, Any]],
    name: TemplateName = "software",
    language: TemplateLanguage = "en",
) -> dict[str, bytes]:
    """Return every file of a new workspace by its path (`agents/architect.yaml`).

    `schemas` are the JSON Schemas that the YAML files name for the editor: `agent`, `team`,
    `scenario` and `workspace`.
    """
    folder = resources.files("arena_cli.workspace") / "template" / name / language
    contents = dict(_read_contents(folder, ""))
    for kind, schema in schemas.items():
        text = json.dumps(schema, ensure_ascii=False, indent=2) + "\n"
        contents[f"{SCHEMAS_FOLDER}/{kind}.json"] = text.encode()
    return contents


def _read_contents(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = prefix + _RENAMED.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _read_contents(entry, f"{path}/")
        else:
            yield path, entry.read_bytes()


def write_workspace(
    target: Path,
    schemas: Mapping[str, Mapping[str, Any]],
    name: TemplateName = "software",
    language: TemplateLanguage = "en",
) -> list[Path]:
    """Write a new workspace into `target`, and return the paths that were written.

    Raise UsageError, with nothing written, if one of its files exists already, or if the folder
    cannot be written.
    """
    contents = {
        target / path: (path, data)
        for path, data in render_template(schemas, name, language).items()
    }
    unchanged = _list_unchanged(contents)
    blocking = [contents[path][0] for path in contents if _exists(path) and path not in unchanged]
    if blocking:
        problem = f"{target} has these files already: {', '.join(blocking)}"
        raise UsageError(problem, "nothing was written; choose another folder, or move them away")
    written = [path for path in contents if path not in unchanged]
    for path in written:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            create_file(path, contents[path][1])
        except OSError as error:
            problem = f"{path} cannot be written: {error.strerror or error}"
            raise UsageError(problem, "fix the permissions, or choose another folder") from error
    return written


def _list_unchanged(contents: Mapping[Path, tuple[str, bytes]]) -> set[Path]:
    """Return the existing files to keep: optional ones, and those of an `init` that was killed.

    The files of such an `init` are complete, and others are missing.
    """
    existing = [path for path in contents if _exists(path)]
    same = [path for path in existing if path.is_file() and path.read_bytes() == contents[path][1]]
    for path in same:
        remove_leftovers(path.parent, path.name)
    optional = {path for path in existing if contents[path][0] in _OPTIONAL}
    return optional | set(same if len(existing) < len(contents) else ())


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


_BYTE_ORDER_MARK = "\ufeff"  # of the order of bytes


def add_member(text: str, agent_id: str) -> str | None:
    """Return the text of a team file with one more member at the end of `members`.

    None if the list is written in a way that cannot be extended with certainty.
    """
    if text.startswith(_BYTE_ORDER_MARK):
        added = add_member(text.removeprefix(_BYTE_ORDER_MARK), agent_id)
        return None if added is None else _BYTE_ORDER_MARK + added
    old = loader.parse(text, "")
    try:
        members = _find_members(nodes.compose(text))
    except yaml.YAMLError:
        return None
    if old.faults or members is None or not members.value:
        return None
    word = loader.dump_yaml([agent_id]).strip()[1:-1]  # of `[id]`
    added = (
        _add_in_brackets(text, members, word)
        if members.flow_style
        else _add_below(text, members, word)
    )
    new = loader.parse(added, "")
    expected = {**old.data, "members": [*old.data["members"], agent_id]}
    return added if not new.faults and _is_same(new.data, expected) else None


def _find_members(root: yaml.Node | None) -> yaml.SequenceNode | None:
    for key, _, value in nodes.iter_children(root) if isinstance(root, yaml.MappingNode) else ():
        if key == "members" and isinstance(value, yaml.SequenceNode):
            return value
    return None


def _add_in_brackets(text: str, members: yaml.SequenceNode, word: str) -> str:
    end = members.value[-1].end_mark.index
    return f"{text[:end]}, {word}{text[end:]}"


def _add_below(text: str, members: yaml.SequenceNode, word: str) -> str:
    """Add it after the last line of the last member, where comments may follow."""
    last: Any = members.value[-1]
    while last.value and not isinstance(last, yaml.ScalarNode) and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    dash = " " * members.start_mark.column + f"- {word}"
    line_end = "\r\n" if "\r\n" in text else "\n"
    is_block = isinstance(last, yaml.ScalarNode) and last.style in ("|", ">")
    end = text.find("\n", last.end_mark.index - is_block)
    if end < 0:
        return f"{text}{line_end}{dash}{line_end}"
    return f"{text[: end + 1]}{dash}{line_end}{text[end + 1 :]}"


def _is_same(left_value: Any, right_value: Any) -> bool:
    """Return True if two values are the same, with their types and the order of keys."""
    return repr(left_value) == repr(right_value)


_SCHEMA_LINE = f"# yaml-language-server: $schema=../{SCHEMAS_FOLDER}/agent.json\n"
_UNWRITTEN = " (not written)"
_GIVE = {
    "adapter.command": "give `-- COMMAND` at the end",
    "adapter.model": "give `--model MODEL`",
    "adapter.preset": "give `--preset PRESET`",
}
_ONE_OF = "set either command or preset"  # of `acp`


@dataclass(frozen=True)
class Newcomer:
    """A new agent that fits into its workspace, not written yet.

    `path` and `text` are its profile's; `workspace` is the workspace with it. `team` is the team
    whose file gets it as a member, `team_file` that file's path and new text; if it must be added
    by hand, `by_hand` is the file's path. `warnings` are its names that are easily confused with
    others.
    """

    agent_id: str
    path: str
    text: str
    workspace: Workspace
    team: str | None = None
    team_file: tuple[str, str] | None = None
    by_hand: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def written(self) -> AgentProfile:
        """Its profile without the keys that `arena.yaml` adds to all of its kind."""
        profile = self.workspace.profiles[self.agent_id]
        adapter = loader.parse(self.text, self.path).data["adapter"]
        implied = self.workspace.kinds.implied(str(adapter["type"]), adapter)
        return profile.model_copy(update={"adapter": {**implied, **adapter}})

    @property
    def shown(self) -> str:
        """Its text without the secrets of its adapter."""
        head, key, adapter = self.text.partition("\nadapter:\n")
        return head + key + mask_text(adapter)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return the keys of `KEY=VALUE` texts: dotted if they are nested, values as in YAML.

    A variable (`env.NAME`) is kept as text. Raise UsageError.
    """
    settings_tree: dict[str, Any] = {}
    for setting in settings:
        key, is_set, value = setting.partition("=")
        loc = key.split(".")
        if not is_set or not all(loc):
            raise UsageError(f"--set {key}: there is no value", "write --set KEY=VALUE")
        below = settings_tree
        for step in loc[:-1]:
            below = below.setdefault(step, {})
            if not isinstance(below, dict):
                raise UsageError(f"--set {key}: `{step}` already has a value")
        if loc[-1] in below:
            raise UsageError(f"--set {key}: given twice", "give it once")
        below[loc[-1]] = (
            value if loc[0] == "env" and len(loc) > 1 else _parse_value(key, loc[-1], value)
        )
    return settings_tree


def _parse_value(key: str, last: str, text: str) -> Any:
    text, _ = clean_text(text)
    if not text or "\n" in text:
        return text
    document = loader.parse(f"{last}: {text}", f"--set {key}")
    if document.faults or not isinstance(document.data, dict) or [*document.data] != [last]:
        raise FileFaults([replace(fault, line=0, field="") for fault in document.faults])
    return document.data[last]


def build_profile(agent_id: str, adapter: Mapping[str, Any], **keys: str) -> dict[str, Any]:
    """Return the contents of its file; empty `keys` are left out."""
    adapter, _ = clean_value(adapter)
    given_keys = {key: clean_text(value)[0] for key, value in keys.items() if value}
    return {"agent_id": models.normalize_id(agent_id), **given_keys, "adapter": adapter}


def check_newcomer(
    root: Path,
    data: Mapping[str, Any],
    team: str | None,
    *,
    kinds: AdapterKinds,
    suggested: Mapping[str, Any] = MappingProxyType({}),
    anywhere: bool = False,
) -> Newcomer:
    """Return the new agent as it would be in that team, else in the team of `arena.yaml`.

    `suggested` are keys of its adapter that the environment suggests, `anywhere` as in
    `load_workspace`. Raise UsageError, or FileFaults with all errors in it and in the other files.
    """
    agent_id = str(data["agent_id"])
    problem = models.find_id_problem(agent_id)
    if problem:
        raise UsageError(
            f"`{escape_line(agent_id)}` is not a valid id: it {problem}", models.ID_RULE
        )
    old = load_workspace(root, kinds=kinds, anywhere=anywhere)
    adapter = _complete_adapter(data["adapter"], old, suggested)
    data = {**data, "adapter": _give_own_folder(adapter, agent_id, old)}
    path = f"{AGENTS_FOLDER}/{agent_id}{YAML_SUFFIX}"
    joined = old.team(team).name if team else _default_team(old)
    is_outside = _is_outside(agent_id, joined, old)
    if not is_outside:
        _check_is_new(root, agent_id)
    unsaved = {path: loader.wrap_data(dict(data), path)}
    team_file = None
    by_hand = ""
    if joined is not None:
        by_hand = old.drafts[joined].fragment.document.name
        text = add_member(_read_text(root / by_hand), agent_id)
        if text is not None:
            team_file, by_hand = (by_hand, text), ""
            unsaved[team_file[0]] = loader.parse(text, team_file[0])
    try:
        new = load_workspace(root, kinds=kinds, unsaved=unsaved, anywhere=anywhere)
    except FileFaults as error:
        raise FileFaults([_explain_with_option(fault, path) for fault in error.faults]) from error
    if team and by_hand:
        refusal = f"{by_hand}: its `members` cannot be edited automatically"
        raise UsageError(refusal, f"put {agent_id} there by hand, after adding it without --team")
    written = _render_profile(root, data, path)
    if is_outside and not _is_written(root / path, written):
        _check_is_new(root, agent_id)
    warnings = tuple(warning for warning in new.warnings if warning not in old.warnings)
    return Newcomer(agent_id, path, written, new, joined, team_file, by_hand, warnings)


def _is_outside(agent_id: str, team: str | None, old: Workspace) -> bool:
    """Return True if its team does not name a profile: a killed `agents add` may have left it."""
    if team is None or agent_id not in old.profiles:
        return False
    return agent_id not in (member.id for member in old.team(team).members)


def _check_is_new(root: Path, agent_id: str) -> None:
    folder = root / AGENTS_FOLDER
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    file_name = f"{agent_id}{YAML_SUFFIX}".casefold()
    for name in names:
        if models.normalize_id(name).casefold() == file_name:
            problem = f"{AGENTS_FOLDER}/{name} already exists"
            raise UsageError(problem, "nothing was written; choose another id, or edit that file")


def _complete_adapter(
    adapter: Mapping[str, Any], old: Workspace, suggested: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys of an adapter with further ones that it needs.

    These are the suggested ones, and, so that the file shows which variables it needs, those that
    its kind implies and the environment fills. No given key is replaced, nor a default of
    `arena.yaml`; nor is a second secret added.
    """
    kind = str(adapter["type"])
    defaults = _as_mapping(old.file.defaults.get(kind))
    settings = {**defaults, **adapter}
    additions = {key: value for key, value in suggested.items() if key not in settings}
    env = adapter.get("env", {})
    handed_on = (*_as_mapping(defaults.get("env")), *_as_mapping(env))
    if "env" in suggested and env == _as_mapping(env) and not any(map(is_secret_key, handed_on)):
        additions["env"] = {**suggested["env"], **env}
    implied = old.kinds.implied(kind, settings)
    additions |= {
        key: value
        for key, value in implied.items()
        if key not in settings and agents.is_variable(value)
    }
    return {**adapter, **additions}


def _give_own_folder(adapter: dict[str, Any], agent_id: str, old: Workspace) -> dict[str, Any]:
    """Return a program's keys with a `cwd` of its own, unless it is given one.

    In the workspace it could read `.env`, the profiles and all sessions. Files of the workspace
    among the program's arguments are named relative to that folder.
    """
    kind = str(adapter["type"])
    shape = old.kinds.settings_type(kind)
    fields = getattr(shape, "model_fields", {})
    if "cwd" not in fields or "cwd" in {**_as_mapping(old.file.defaults.get(kind)), **adapter}:
        return adapter
    folder = f"{WORK_FOLDER}/{agent_id}"
    command = adapter.get("command")
    if isinstance(command, list):
        words = [_relocate_argument(word, folder, old.root) for word in command[1:]]
        adapter = {**adapter, "command": [*command[:1], *words]}
    return {**adapter, "cwd": folder}


def _relocate_argument(word: Any, folder: str, root: Path) -> Any:
    """Return an argument that names a file of the workspace as it is named from `folder`."""
    if not isinstance(word, str) or not word or word.startswith("-") or Path(word).is_absolute():
        return word
    try:
        is_there = (root / word).exists()
    except (OSError, ValueError):
        return word
    return (
        "/".join([".."] * (folder.count("/") + 1) + [Path(word).as_posix()]) if is_there else word
    )


def _as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one; the file check reports others."""
    return value if isinstance(value, dict) else {}


def _default_team(old: Workspace) -> str | None:
    name = old.file.team
    return None if name is None else models.normalize_id(name)


def _read_text(path: Path) -> str:
    return read_regular(path).decode("utf-8")


def _explain_with_option(fault: Fault, path: str) -> Fault:
    """Return the error for a file that is not written yet, with the option that fixes it."""
    if fault.file != path:
        return fault
    hint = fault.mend
    if fault.what == "is missing":
        key = fault.field.removeprefix("adapter.")
        hint = _GIVE.get(fault.field, f"give `--set {key}=VALUE`")
    elif fault.what == _ONE_OF:
        hint = "give `--preset PRESET`, or `-- COMMAND` at the end"
    return replace(fault, file=path + _UNWRITTEN, mend=hint)


def _render_profile(root: Path, data: Mapping[str, Any], path: str) -> str:
    text = loader.dump_yaml(dict(data))
    read = loader.parse(text, path)
    if read.faults:
        raise FileFaults([replace(fault, file=path + _UNWRITTEN) for fault in read.faults])
    has_schema = (root / SCHEMAS_FOLDER / "agent.json").is_file()
    return (_SCHEMA_LINE if has_schema else "") + text


def write_new_agent(new: Newcomer) -> None:
    """Write its profile, then the team's file; both or none. Raise UsageError."""
    root = new.workspace.root
    profile_path = root / new.path
    with _report_refusals(profile_path):
        profile_path.parent.mkdir(parents=True, exist_ok=True)
        is_left = new.team_file is not None and _is_written(profile_path, new.text)
        if is_left:
            remove_leftovers(profile_path.parent, profile_path.name)
        else:
            create_file(profile_path, new.text.encode("utf-8"))
    if new.team_file is None:
        return
    try:
        with _report_refusals(root / new.team_file[0]):
            path = (root / new.team_file[0]).resolve()
            files.replace_file(path, new.team_file[1].encode("utf-8"), is_own=True)
            remove_leftovers(path.parent, path.name)
    except UsageError:
        if not is_left:
            profile_path.unlink(missing_ok=True)
        raise


def write_language(root: Path, language: TemplateLanguage) -> str:
    """Write an `arena.yaml` with the language of a new workspace; return its line."""
    line = f"language: {language}"
    with _report_refusals(root / "arena.yaml"):
        create_file(root / "arena.yaml", f"{line}\n".encode())
    return line


def _is_written(path: Path, text: str) -> bool:
    """Return True if an `agents add` that was killed has written the profile already."""
    return path.is_file() and path.read_bytes() == text.encode("utf-8")


@contextlib.contextmanager
def _report_refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(
            problem, "nothing was added; fix the permissions, or free disk space"
        ) from error
