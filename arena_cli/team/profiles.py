"""Load profiles: merge them with those they extend, check them with their adapter's keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from arena_cli.ground import bounds, nearest, regularfiles
from arena_cli.ground.errors import Fault
from arena_cli.team import environ, ids
from arena_cli.team.model import AgentProfile
from arena_cli.yamlio import loader, schema_errors
from arena_cli.yamlio.document import Part, find_holder

IDENTITY = frozenset({"agent_id", "name", "aliases", "member", "extends"})


class Kinds(NamedTuple):
    """The kinds of adapters.

    `settings_type` returns the shape of a kind's keys, None for an unknown kind; `list_kinds` all
    kinds; `implied` returns the keys that follow from those of a kind's adapter.
    """

    settings_type: Callable[[str], type[BaseModel] | None]
    list_kinds: Callable[[], Sequence[str]]
    implied: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda _kind, _settings: {}


@dataclass(frozen=True)
class Source:
    """A profile before it is checked: its keys, and the files they come from, the nearest first.

    It is not whole if the profile it extends does not exist.
    """

    data: Mapping[str, Any]
    fragments: tuple[Part, ...]
    is_whole: bool = True

    def fault(self, loc: tuple[str | int, ...], problem: str, hint: str = "") -> Fault:
        """Return a fault of the nearest file that holds the value at `loc`."""
        return find_holder(self.fragments, loc).fault(loc, problem, hint)


class Loaded(NamedTuple):
    """A checked profile, the text of its role prompt, and its source."""

    profile: AgentProfile
    role_prompt: str
    source: Source


def sources(files: Mapping[str, Part]) -> tuple[dict[str, Source], list[Fault]]:
    """Return every profile of `files` (by file stem) merged with those it extends."""
    resolved: dict[str, Source] = {}
    faults: list[Fault] = []

    def source(agent_id: str, path: tuple[str, ...]) -> Source:
        if agent_id in resolved:
            return resolved[agent_id]
        fragment = files[agent_id]
        profile = Source(fragment.data if isinstance(fragment.data, dict) else {}, (fragment,))
        base_id = profile.data.get("extends")
        if isinstance(base_id, str):
            base_id = ids.normal(base_id)
            if base_id in (*path, agent_id):
                circle = " -> ".join((*path, agent_id, base_id))
                problem, hint = f"profiles extend each other: {circle}", "take this line out"
                faults.append(profile.fault(("extends",), problem, hint))
                profile = replace(profile, is_whole=False)
            elif base_id not in files:
                problem = f"there is no agent `{base_id}`"
                hint = nearest.hint(base_id, _bases(agent_id, files)) or "take this line out"
                faults.append(profile.fault(("extends",), problem, hint))
                profile = replace(profile, is_whole=False)
            else:
                profile = extended(profile, source(base_id, (*path, agent_id)))
        resolved[agent_id] = profile
        return profile

    for agent_id in files:
        source(agent_id, ())
    return {agent_id: resolved[agent_id] for agent_id in files}, faults


def _bases(agent_id: str, files: Mapping[str, Part]) -> list[str]:
    """Return the profiles that one may extend: none that extends it, nor itself."""

    def extends(agent: str) -> str:
        data = files[agent].data if agent in files else None
        base = data.get("extends") if isinstance(data, dict) else None
        return ids.normal(base) if isinstance(base, str) else ""

    bases = []
    for candidate in files:
        chain = [candidate]
        while (base := extends(chain[-1])) and base not in chain:
            chain.append(base)
        if agent_id not in chain:
            bases.append(candidate)
    return bases


def extended(profile: Source, base: Source) -> Source:
    """Return `own` over `base`, without the base's identity."""
    inherited = {key: value for key, value in base.data.items() if key not in IDENTITY}
    return merged(profile, Source(inherited, base.fragments, base.is_whole))


def merged(over: Source, base: Source) -> Source:
    """Return `over` deep-merged over `base`: lists and a new adapter type replace."""
    is_whole = over.is_whole and base.is_whole
    return Source(_merge(base.data, over.data), over.fragments + base.fragments, is_whole)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict) and not _replaces(key, below, value):
            result[key] = _merge(below, value)
        else:
            result[key] = value
    return result


def _replaces(key: str, below: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key == "adapter" and "type" in value and value["type"] != below.get("type")


def load(
    agent_id: str, source: Source, *, root: Path, kinds: Kinds, defaults: Part, anywhere: bool
) -> tuple[Loaded | None, list[Fault]]:
    """Check one profile, which must have `agent_id`.

    `defaults` holds the keys that every adapter of a kind gets, by kind. Files that it names are in
    the workspace, unless `anywhere`.
    """
    document = source.fragments[0].document
    if document.data is None and document.faults:
        return None, list(document.faults)
    adapter, faults = _adapter(source, kinds, defaults)
    faults += document.faults
    data = {**source.data, **({} if adapter is None else {"adapter": adapter})}
    if isinstance(data.get("agent_id"), str):
        data["agent_id"] = ids.normal(data["agent_id"])
        faults += _id_faults(agent_id, data["agent_id"], source)
    profile, shape_faults = loader.validate_merged(data, AgentProfile, source.fragments)
    faults += shape_faults
    text, prompt_faults = _role_prompt(data.get("role_prompt"), source, root, anywhere=anywhere)
    faults += prompt_faults
    if profile is None or faults or not source.is_whole:
        return None, faults
    return Loaded(profile, text, source), []


def _id_faults(expected: str, agent_id: str, source: Source) -> list[Fault]:
    problem = ids.fault(agent_id)
    if problem:
        return [source.fault(("agent_id",), problem, ids.RULE)]
    if agent_id != expected:
        hint = f"write `agent_id: {expected}`, or rename the file to `{agent_id}.yaml`"
        return [source.fault(("agent_id",), f"`{agent_id}` is not the file's name", hint)]
    return []


def _adapter(
    source: Source, kinds: Kinds, defaults: Part
) -> tuple[dict[str, Any] | None, list[Fault]]:
    """Return the adapter's keys over its kind's defaults; None if the shape reports the error."""
    adapter = source.data.get("adapter")
    if isinstance(adapter, str):
        return {}, [_adapter_as_text(adapter, source, kinds)]
    if not source.is_whole and (adapter is None or isinstance(adapter, dict)):
        return {}, []  # the rest of it stands in what is not there
    return _of_kind(adapter, source, kinds, defaults) if isinstance(adapter, dict) else (None, [])


def _of_kind(
    adapter: dict[str, Any], source: Source, kinds: Kinds, defaults: Part
) -> tuple[dict[str, Any] | None, list[Fault]]:
    kind = adapter.get("type")
    loc = ("adapter", "type")
    if not isinstance(kind, str):
        problem = "is missing" if "type" not in adapter else "must be a text"
        return None, [source.fault(loc, problem, f"known: {', '.join(kinds.list_kinds())}")]
    shape = kinds.settings_type(kind)
    if shape is None:
        hint = nearest.hint(kind, kinds.list_kinds())
        return None, [source.fault(loc, f"unknown kind of adapter `{kind}`", hint)]
    fragments = [
        Part(fragment.document, (*fragment.loc, "adapter")) for fragment in source.fragments
    ]
    fragments = [fragment for fragment in fragments if fragment.document.holds(fragment.loc)]
    if defaults.holds((kind,)):
        below = Part(defaults.document, (*defaults.loc, kind))
        if not isinstance(below.data, dict):
            return None, [below.fault((), "must be a mapping of keys")]
        adapter = _merge(below.data, adapter)
        fragments.append(below)
    adapter = {**kinds.implied(kind, adapter), **adapter}
    if any(fragment.document.has_free_keys for fragment in fragments):
        adapter = schema_errors.drop_free_keys(adapter, shape)
    _, faults = loader.validate_merged(adapter, shape, fragments, is_pending=environ.is_open)
    return adapter, faults


def _adapter_as_text(adapter: str, source: Source, kinds: Kinds) -> Fault:
    """`adapter: scripted`."""
    loc = ("adapter",)
    fragment = find_holder(source.fragments, loc)
    problem = f"must be a mapping of keys, not the text `{adapter[:40]}`"
    hint = f"write `adapter: {{type: ...}}`; known: {', '.join(kinds.list_kinds())}"
    if adapter in kinds.list_kinds():
        mapping = f"{{type: {adapter}}}"
        hint = fragment.document.hint_with((*fragment.loc, *loc), mapping) or f"write {mapping}"
    return source.fault(loc, problem, hint)


def _role_prompt(
    value: Any, source: Source, root: Path, *, anywhere: bool
) -> tuple[str, list[Fault]]:
    """Return the text of `role_prompt`, read from its file if it names one."""
    if isinstance(value, str):
        return value, []
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return "", []
    name = value["file"]
    loc = ("role_prompt", "file")
    path = root / name
    is_path = not {"\\", "\0"} & {*name}
    if not is_path or not (anywhere or bounds.is_inside(path, root)):
        hint = "name a file in the workspace, with `/` between folders"
        hint = bounds.HINT if is_path else hint
        return "", [source.fault(loc, f"`{name}` is not in the workspace", hint)]
    try:
        return regularfiles.read(path).decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return "", [source.fault(loc, f"`{name}` is not UTF-8", "save the file as UTF-8")]
    except OSError as error:
        return "", [source.fault(loc, f"`{name}` cannot be read: {error.strerror or error}")]


def reference_faults(loaded: Mapping[str, Loaded], broken: Collection[str] = ()) -> list[Fault]:
    """Return the faults of profiles that name an agent that neither is loaded nor `broken`."""
    faults = []
    for agent in loaded.values():
        for index, name in enumerate(agent.profile.may_mention or ()):
            if ids.normal(name) not in loaded and ids.normal(name) not in broken:
                faults.append(_unknown_agent(agent.source, ("may_mention", index), name, loaded))
    return faults


def _unknown_agent(
    source: Source, loc: tuple[str | int, ...], name: str, agent_ids: Iterable[str]
) -> Fault:
    return source.fault(loc, f"there is no agent `{name}`", nearest.hint(name, agent_ids))
