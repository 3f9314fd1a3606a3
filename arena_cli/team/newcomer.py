"""Add an agent: check its profile by the workspace's own rules, then write it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arena_cli.ground import excerpt, regularfiles, wholefile
from arena_cli.ground import text as texts
from arena_cli.ground.errors import Fault, FileFaults, UsageError
from arena_cli.team import environ, files, ids, init, joining, workspace
from arena_cli.team.model import AgentProfile
from arena_cli.team.profiles import Kinds
from arena_cli.team.workspace import Workspace
from arena_cli.yamlio import dump, loader

_SCHEMA_LINE = f"# yaml-language-server: $schema=../{init.SCHEMAS}/agent.json\n"
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

    `path` and `text` are its profile's; `workspace` is as it will be. `team` is the team whose file
    gets it as a member, `team_file` that file's path and new text; if it has to be added by hand,
    `by_hand` is the file's path. `warnings` are names that it makes easily mistaken.
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
        """Its profile without what `arena.yaml` adds to all of its kind."""
        profile = self.workspace.profiles[self.agent_id]
        adapter = loader.parse(self.text, self.path).data["adapter"]
        implied = self.workspace.kinds.implied(str(adapter["type"]), adapter)
        return profile.model_copy(update={"adapter": {**implied, **adapter}})

    @property
    def shown(self) -> str:
        """Its text without the secrets of its adapter."""
        head, key, adapter = self.text.partition("\nadapter:\n")
        return head + key + excerpt.masked_text(adapter)


def settings_of(settings: Sequence[str]) -> dict[str, Any]:
    """Return the keys of `KEY=VALUE` texts: dotted if they are nested, values as in YAML.

    A variable (`env.NAME`) is the text as it is. Raise UsageError.
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
                raise UsageError(f"--set {key}: `{step}` has a value already")
        if loc[-1] in below:
            raise UsageError(f"--set {key}: it is given twice", "give it once")
        below[loc[-1]] = value if loc[0] == "env" and len(loc) > 1 else _value(key, loc[-1], value)
    return settings_tree


def _value(key: str, last: str, text: str) -> Any:
    text, _ = texts.clean(text)
    if not text or "\n" in text:
        return text
    document = loader.parse(f"{last}: {text}", f"--set {key}")
    if document.faults or not isinstance(document.data, dict) or [*document.data] != [last]:
        raise FileFaults([replace(fault, line=0, field="") for fault in document.faults])
    return document.data[last]


def profile(agent_id: str, adapter: Mapping[str, Any], **keys: str) -> dict[str, Any]:
    """Return the contents of its file; empty `keys` are left out."""
    adapter, _ = texts.clean_value(adapter)
    given_keys = {key: texts.clean(value)[0] for key, value in keys.items() if value}
    return {"agent_id": ids.normal(agent_id), **given_keys, "adapter": adapter}


def check(
    root: Path,
    data: Mapping[str, Any],
    team: str | None,
    *,
    kinds: Kinds,
    suggested: Mapping[str, Any] = MappingProxyType({}),
    anywhere: bool = False,
) -> Newcomer:
    """Return the new agent as it would be in that team, else in the team of `arena.yaml`.

    `suggested` are keys of its adapter for which the environment gives reason, `anywhere` as in
    `workspace.load`. Raise UsageError, or FileFaults with all that is wrong with it and with the
    other files.
    """
    agent_id = str(data["agent_id"])
    problem = ids.fault(agent_id)
    if problem:
        raise UsageError(f"`{texts.shown_line(agent_id)}` is no id: it {problem}", ids.RULE)
    old = workspace.load(root, kinds=kinds, anywhere=anywhere)
    adapter = _completed(data["adapter"], old, suggested)
    data = {**data, "adapter": _in_own_folder(adapter, agent_id, old)}
    path = f"{files.AGENTS}/{agent_id}{files.SUFFIX}"
    joined = old.team(team).name if team else _default_team(old)
    is_outside = _is_outside(agent_id, joined, old)
    if not is_outside:
        _check_is_new(root, agent_id)
    unsaved = {path: loader.from_data(dict(data), path)}
    team_file = None
    by_hand = ""
    if joined is not None:
        by_hand = old.drafts[joined].fragment.document.name
        text = joining.with_member(_text_of(root / by_hand), agent_id)
        if text is not None:
            team_file, by_hand = (by_hand, text), ""
            unsaved[team_file[0]] = loader.parse(text, team_file[0])
    try:
        new = workspace.load(root, kinds=kinds, unsaved=unsaved, anywhere=anywhere)
    except FileFaults as error:
        raise FileFaults([_as_asked(fault, path) for fault in error.faults]) from error
    if team and by_hand:
        refusal = f"{by_hand}: its `members` are written in a way that cannot be added to"
        raise UsageError(refusal, f"put {agent_id} there by hand, after adding it without --team")
    written = _written(root, data, path)
    if is_outside and not _has(root / path, written):
        _check_is_new(root, agent_id)
    warnings = tuple(warning for warning in new.warnings if warning not in old.warnings)
    return Newcomer(agent_id, path, written, new, joined, team_file, by_hand, warnings)


def _is_outside(agent_id: str, team: str | None, old: Workspace) -> bool:
    """Return True if its team does not name a profile: a killed `agents add` may have left it."""
    if team is None or agent_id not in old.profiles:
        return False
    return agent_id not in (member.id for member in old.team(team).members)


def _check_is_new(root: Path, agent_id: str) -> None:
    folder = root / files.AGENTS
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    file_name = f"{agent_id}{files.SUFFIX}".casefold()
    for name in names:
        if ids.normal(name).casefold() == file_name:
            problem = f"{files.AGENTS}/{name} is there already"
            raise UsageError(problem, "nothing was written; choose another id, or edit that file")


def _completed(
    adapter: Mapping[str, Any], old: Workspace, suggested: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys of an adapter with further ones that it needs.

    These are the suggested ones, and, so that the file shows which variables it needs, those that
    its kind implies and the environment fills. No given key is replaced, nor a default of
    `arena.yaml`; nor is a secret handed on next to another.
    """
    kind = str(adapter["type"])
    defaults = _mapping(old.file.defaults.get(kind))
    settings = {**defaults, **adapter}
    additions = {key: value for key, value in suggested.items() if key not in settings}
    env = adapter.get("env", {})
    handed_on = (*_mapping(defaults.get("env")), *_mapping(env))
    if "env" in suggested and env == _mapping(env) and not any(map(excerpt.is_secret, handed_on)):
        additions["env"] = {**suggested["env"], **env}
    implied = old.kinds.implied(kind, settings)
    additions |= {
        key: value
        for key, value in implied.items()
        if key not in settings and environ.is_open(value)
    }
    return {**adapter, **additions}


def _in_own_folder(adapter: dict[str, Any], agent_id: str, old: Workspace) -> dict[str, Any]:
    """Return a program's keys with a `cwd` of its own, unless it is given one.

    In the workspace it could read `.env`, the profiles and all sessions. Files of the workspace
    among the program's arguments are named from there.
    """
    kind = str(adapter["type"])
    shape = old.kinds.settings_type(kind)
    fields = getattr(shape, "model_fields", {})
    if "cwd" not in fields or "cwd" in {**_mapping(old.file.defaults.get(kind)), **adapter}:
        return adapter
    folder = f"{files.WORK}/{agent_id}"
    command = adapter.get("command")
    if isinstance(command, list):
        words = [_from_folder(word, folder, old.root) for word in command[1:]]
        adapter = {**adapter, "command": [*command[:1], *words]}
    return {**adapter, "cwd": folder}


def _from_folder(word: Any, folder: str, root: Path) -> Any:
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


def _mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one; the file check reports others."""
    return value if isinstance(value, dict) else {}


def _default_team(old: Workspace) -> str | None:
    name = old.file.team
    return None if name is None else ids.normal(name)


def _text_of(path: Path) -> str:
    return regularfiles.read(path).decode("utf-8")


def _as_asked(fault: Fault, path: str) -> Fault:
    """Return a fault of a file that is not written yet, with the option that fixes it."""
    if fault.file != path:
        return fault
    hint = fault.mend
    if fault.what == "is missing":
        key = fault.field.removeprefix("adapter.")
        hint = _GIVE.get(fault.field, f"give `--set {key}=VALUE`")
    elif fault.what == _ONE_OF:
        hint = "give `--preset PRESET`, or `-- COMMAND` at the end"
    return replace(fault, file=path + _UNWRITTEN, mend=hint)


def _written(root: Path, data: Mapping[str, Any], path: str) -> str:
    text = dump.dump_yaml(dict(data))
    read = loader.parse(text, path)
    if read.faults:
        raise FileFaults([replace(fault, file=path + _UNWRITTEN) for fault in read.faults])
    has_schema = (root / init.SCHEMAS / "agent.json").is_file()
    return (_SCHEMA_LINE if has_schema else "") + text


def write(new: Newcomer) -> None:
    """Write its profile, then the team's file; both or none. Raise UsageError."""
    root = new.workspace.root
    profile_path = root / new.path
    with _refusals(profile_path):
        profile_path.parent.mkdir(parents=True, exist_ok=True)
        is_left = new.team_file is not None and _has(profile_path, new.text)
        if is_left:
            wholefile.sweep(profile_path.parent, profile_path.name)
        else:
            wholefile.create(profile_path, new.text.encode("utf-8"))
    if new.team_file is None:
        return
    try:
        with _refusals(root / new.team_file[0]):
            _replace((root / new.team_file[0]).resolve(), new.team_file[1])
    except UsageError:
        if not is_left:
            profile_path.unlink(missing_ok=True)
        raise


def _has(path: Path, text: str) -> bool:
    """Return True if an `agents add` that was killed has written the profile already."""
    return path.is_file() and path.read_bytes() == text.encode("utf-8")


@contextlib.contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(problem, "nothing was added; mend the rights, or make room") from error


def _replace(path: Path, text: str) -> None:
    """Replace the text of a file, completely or not at all."""
    temporary = wholefile.beside(path)
    try:
        temporary.write_bytes(text.encode("utf-8"))
        shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    wholefile.sweep(path.parent, path.name)
