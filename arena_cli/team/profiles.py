"""Profiles: merged with what they extend, checked together with their adapter's keys."""

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
    """The kinds of adapters there are.

    `settings_type` gives the shape of a kind's keys, None for an unknown kind; `known` lists the
    kinds; `implied` gives the keys that follow from those of a kind's adapter.
    """

    settings_type: Callable[[str], type[BaseModel] | None]
    known: Callable[[], Sequence[str]]
    implied: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda _kind, _given: {}


@dataclass(frozen=True)
class Source:
    """A profile before it is checked: its keys, and the files they come from, the nearest first.

    It is not whole where what it extends is not there.
    """

    data: Mapping[str, Any]
    parts: tuple[Part, ...]
    is_whole: bool = True

    def fault(self, loc: tuple[str | int, ...], what: str, mend: str = "") -> Fault:
        """A fault of the nearest file that holds what is at `loc`."""
        return find_holder(self.parts, loc).fault(loc, what, mend)


class Loaded(NamedTuple):
    """A checked profile, the text of its role prompt, and where it comes from."""

    profile: AgentProfile
    role_prompt: str
    source: Source


def sources(files: Mapping[str, Part]) -> tuple[dict[str, Source], list[Fault]]:
    """Every profile of `files` (by file stem) merged with what it extends."""
    done: dict[str, Source] = {}
    faults: list[Fault] = []

    def source(agent_id: str, path: tuple[str, ...]) -> Source:
        if agent_id in done:
            return done[agent_id]
        part = files[agent_id]
        own = Source(part.data if isinstance(part.data, dict) else {}, (part,))
        base_id = own.data.get("extends")
        if isinstance(base_id, str):
            base_id = ids.normal(base_id)
            if base_id in (*path, agent_id):
                circle = " -> ".join((*path, agent_id, base_id))
                what, mend = f"profiles extend each other: {circle}", "take this line out"
                faults.append(own.fault(("extends",), what, mend))
                own = replace(own, is_whole=False)
            elif base_id not in files:
                what = f"there is no agent `{base_id}`"
                mend = nearest.hint(base_id, _bases(agent_id, files)) or "take this line out"
                faults.append(own.fault(("extends",), what, mend))
                own = replace(own, is_whole=False)
            else:
                own = extended(own, source(base_id, (*path, agent_id)))
        done[agent_id] = own
        return own

    for agent_id in files:
        source(agent_id, ())
    return {agent_id: done[agent_id] for agent_id in files}, faults


def _bases(agent_id: str, files: Mapping[str, Part]) -> list[str]:
    """The profiles that one may extend: no other that extends it, nor itself."""

    def extends(other: str) -> str:
        data = files[other].data if other in files else None
        base = data.get("extends") if isinstance(data, dict) else None
        return ids.normal(base) if isinstance(base, str) else ""

    found = []
    for other in files:
        chain = [other]
        while (base := extends(chain[-1])) and base not in chain:
            chain.append(base)
        if agent_id not in chain:
            found.append(other)
    return found


def extended(own: Source, base: Source) -> Source:
    """`own` over `base`, without the base's identity."""
    inherited = {key: value for key, value in base.data.items() if key not in IDENTITY}
    return merged(own, Source(inherited, base.parts, base.is_whole))


def merged(over: Source, base: Source) -> Source:
    """`over` deep-merged over `base`: lists replace, a new adapter type replaces the adapter."""
    is_whole = over.is_whole and base.is_whole
    return Source(_merge(base.data, over.data), over.parts + base.parts, is_whole)


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
    """Checks one profile, which must carry `agent_id`.

    `defaults` holds the keys that every adapter of a kind gets, by kind. Files that it names lie in
    the workspace, unless `anywhere`.
    """
    document = source.parts[0].document
    if document.data is None and document.faults:
        return None, list(document.faults)
    adapter, faults = _adapter(source, kinds, defaults)
    faults += document.faults
    data = {**source.data, **({} if adapter is None else {"adapter": adapter})}
    if isinstance(data.get("agent_id"), str):
        data["agent_id"] = ids.normal(data["agent_id"])
        faults += _id_faults(agent_id, data["agent_id"], source)
    profile, shape_faults = loader.validate_merged(data, AgentProfile, source.parts)
    faults += shape_faults
    text, prompt_faults = _role_prompt(data.get("role_prompt"), source, root, anywhere=anywhere)
    faults += prompt_faults
    if profile is None or faults or not source.is_whole:
        return None, faults
    return Loaded(profile, text, source), []


def _id_faults(expected: str, agent_id: str, source: Source) -> list[Fault]:
    wrong = ids.fault(agent_id)
    if wrong:
        return [source.fault(("agent_id",), wrong, ids.RULE)]
    if agent_id != expected:
        mend = f"write `agent_id: {expected}`, or rename the file to `{agent_id}.yaml`"
        return [source.fault(("agent_id",), f"`{agent_id}` is not the file's name", mend)]
    return []


def _adapter(
    source: Source, kinds: Kinds, defaults: Part
) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The adapter's keys with its kind's defaults below them; None where the shape will tell."""
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
        what = "is missing" if "type" not in adapter else "must be a text"
        return None, [source.fault(loc, what, f"known: {', '.join(kinds.known())}")]
    shape = kinds.settings_type(kind)
    if shape is None:
        mend = nearest.hint(kind, kinds.known())
        return None, [source.fault(loc, f"unknown kind of adapter `{kind}`", mend)]
    parts = [Part(part.document, (*part.loc, "adapter")) for part in source.parts]
    parts = [part for part in parts if part.document.holds(part.loc)]
    if defaults.holds((kind,)):
        below = Part(defaults.document, (*defaults.loc, kind))
        if not isinstance(below.data, dict):
            return None, [below.fault((), "must be a mapping of keys")]
        adapter = _merge(below.data, adapter)
        parts.append(below)
    adapter = {**kinds.implied(kind, adapter), **adapter}
    if any(part.document.has_free_keys for part in parts):
        adapter = schema_errors.drop_free_keys(adapter, shape)
    _, faults = loader.validate_merged(adapter, shape, parts, is_pending=environ.is_open)
    return adapter, faults


def _adapter_as_text(adapter: str, source: Source, kinds: Kinds) -> Fault:
    """`adapter: scripted`."""
    loc = ("adapter",)
    part = find_holder(source.parts, loc)
    what = f"must be a mapping of keys, not the text `{adapter[:40]}`"
    mend = f"write `adapter: {{type: ...}}`; known: {', '.join(kinds.known())}"
    if adapter in kinds.known():
        written = f"{{type: {adapter}}}"
        mend = part.document.hint_with((*part.loc, *loc), written) or f"write {written}"
    return source.fault(loc, what, mend)


def _role_prompt(
    value: Any, source: Source, root: Path, *, anywhere: bool
) -> tuple[str, list[Fault]]:
    """The text of `role_prompt`, read from its file where it names one."""
    if isinstance(value, str):
        return value, []
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return "", []
    name = value["file"]
    loc = ("role_prompt", "file")
    path = root / name
    is_path = not {"\\", "\0"} & {*name}
    if not is_path or not (anywhere or bounds.is_inside(path, root)):
        mend = "name a file in the workspace, with `/` between folders"
        mend = bounds.HINT if is_path else mend
        return "", [source.fault(loc, f"`{name}` is not in the workspace", mend)]
    try:
        return regularfiles.read(path).decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return "", [source.fault(loc, f"`{name}` is not UTF-8", "save the file as UTF-8")]
    except OSError as error:
        return "", [source.fault(loc, f"`{name}` cannot be read: {error.strerror or error}")]


def reference_faults(loaded: Mapping[str, Loaded], broken: Collection[str] = ()) -> list[Fault]:
    """What the profiles say of each other that does not hold; `broken` ones are there too."""
    faults = []
    for one in loaded.values():
        for index, name in enumerate(one.profile.may_mention or ()):
            if ids.normal(name) not in loaded and ids.normal(name) not in broken:
                faults.append(_unknown_agent(one.source, ("may_mention", index), name, loaded))
    return faults


def _unknown_agent(
    source: Source, loc: tuple[str | int, ...], name: str, known: Iterable[str]
) -> Fault:
    return source.fault(loc, f"there is no agent `{name}`", nearest.hint(name, known))
