"""Record and compare the parts of an agent: its profile, its files, its environment.

The role prompt is the beginning of its inputs. All other parts are read only to report that they
have changed since the agent answered. Writing out a default, or reordering a list that is a set,
makes no difference.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from arena_cli.adapters import base
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording.model import Hashes, hash_files
from arena_cli.scenarios.result import TOOL, Drift
from arena_cli.util.language import Language
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import iter_texts, map_texts
from arena_cli.workspace import agents
from arena_cli.workspace.models import Member, ModelFacts, WorkspaceMemory, normalize_id
from arena_cli.yamlio.loader import Fragment, find_holder
from arena_cli.yamlio.nodes import Loc

AGENT = "agent"
ROLE_PROMPT = "role_prompt"
ADAPTER = "adapter"
FILE = "file "
FILES = ("files", "watched")

_RELEVANT = ("skills", "aliases", "response", "may_mention", "may_ask")
_WHERE_CALLED = (ADAPTER, "context", "timeout_s", "on_failure", "retries")
_SETS = frozenset({"skills", "aliases", "may_mention", "may_ask", "response.keywords"})
_RULES = {"timeout_s": "turn_timeout_s", "on_failure": "on_failure", "retries": "retries"}
"""The team's rule that is in force where a profile has no such key."""


_SCRIPTS = frozenset(
    {*(".bat", ".cmd", ".ps1", ".sh"), *(".cjs", ".js", ".mjs", ".ts"), ".lua", ".php", ".pl"}
    | {".py", ".rb"}
)
"""The endings of programs that a repository holds."""


class Surroundings(NamedTuple):
    """The workspace and the environment variables of a run.

    `hashes` are those of profiles, by their identity, if files cannot change meanwhile.
    """

    root: Path
    environ: Mapping[str, str]
    hashes: dict[int, Hashes] | None = None


def record(member: Member, redactor: Redactor) -> dict[str, Any]:
    """Return the line of an agent, without secrets."""
    profile = member.profile
    line: dict[str, Any] = {
        "type": AGENT,
        AGENT: member.id,
        ROLE_PROMPT: redactor.text(member.role_prompt),
    }
    line[ADAPTER] = redactor.value(dict(profile.adapter))
    for name in ("response", "context"):
        line[name] = dict(getattr(profile, name))
    names = ("skills", "aliases", "timeout_s", "on_failure", "retries", "may_mention", "may_ask")
    for name in (*names, "watch"):
        value = getattr(profile, name)
        if value not in (None, []):
            line[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return line


def record_called(
    member: Member, redactor: Redactor, surroundings: Surroundings
) -> dict[str, dict[str, str]]:
    """Return the data to record of an agent that is called, in addition to its line.

    `files` and `watched` are hashes of its files (`recording.model`); `filled` are the texts of its
    adapter that environment variables fill, by place.
    """
    profile = member.profile
    all_hashes = surroundings.hashes
    hashes = all_hashes.get(id(profile)) if all_hashes is not None else None
    if hashes is None:
        hashes = hash_files(profile, surroundings.root)
        if all_hashes is not None:
            all_hashes[id(profile)] = hashes
    filled: dict[str, str] = {}
    if profile.may_hold_secrets:
        filled = agents.collect_public_values(profile.adapter, surroundings.environ, redactor.text)
    return {"filled": filled, **hashes._asdict()}


FRAME = "frame"


def record_workspace(
    ignore: Sequence[str],
    models: Mapping[str, ModelFacts],
    memory: WorkspaceMemory,
    redactor: Redactor,
    frame: Language = "en",
) -> dict[str, Any]:
    """Return the settings of `arena.yaml`, and `ignore`, that affect the inputs of agents.

    `frame` is the language of arena's own texts in them; a recording without it is English.
    """
    embedding = memory.embedding
    fields = {
        "summarizer": memory.summarizer,
        "extractor": memory.extractor,
        "judge": memory.judge,
        "embedding": embedding
        and {name: getattr(embedding, name) for name in ("base_url", "model", "package")},
    }
    settings = {
        "ignore": list(ignore),
        "models": {name: model.model_dump(exclude_none=True) for name, model in models.items()},
        "memory": {name: value for name, value in fields.items() if value},
        FRAME: "" if frame == "en" else frame,
    }
    return dict(redactor.value({name: value for name, value in settings.items() if value}))


def mark_varying(
    first: Mapping[str, Mapping[str, str]],
    last: Mapping[str, Mapping[str, str]],
    recorded: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the results of `record_called` at the first call and at the end as keys of a line.

    A file that changed meanwhile is one that agents write. It has no hash, nor has one that had
    none in the recording.
    """
    keys: dict[str, Any] = {"filled": first["filled"]}
    for key in FILES:
        earlier, later = first[key], last[key]
        recorded_values = recorded.get(key, {})
        keys[key] = {
            name: later.get(name, "")
            if earlier.get(name) == later.get(name) and recorded_values.get(name) != ""
            else ""
            for name in sorted({*earlier, *later})
        }
    return {key: value for key, value in keys.items() if value}


def differences(
    recorded: Mapping[str, Any],
    current: Mapping[str, Any],
    rules: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    *,
    called: bool,
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two such lines: the place, and both values; None for no value.

    How an agent is called matters only if it is `called`. `rules` are the team's, then and now.
    """
    for name in _RELEVANT:
        yield from within(name, recorded.get(name), current.get(name))
    if not called:
        return
    for name in _WHERE_CALLED:
        old_value, new_value = recorded.get(name), current.get(name)
        if old_value == new_value:
            continue
        if name == ADAPTER:
            yield from _adapter_differences(recorded, current)
        elif name not in _RULES or _in_force(name, old_value, rules[0]) != _in_force(
            name, new_value, rules[1]
        ):
            yield from within(name, old_value, new_value)
    if recorded.get(ADAPTER) == current.get(ADAPTER):
        yield from _filled_differences(recorded, current)
    yield from _file_differences(recorded, current)


def _in_force(name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    return rules.get(_RULES[name]) if value is None else value


def within(path: str, recorded: Any, current: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the innermost differences of two values."""
    if recorded == current:
        return
    if path in _SETS and isinstance(recorded, list) and isinstance(current, list):
        yield from _set_differences(path, recorded, current)
        return
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in dict.fromkeys([*recorded, *current]):
            yield from within(f"{path}.{key}", recorded.get(key), current.get(key))
    elif isinstance(recorded, list) and isinstance(current, list) and len(recorded) == len(current):
        for index, (old_item, new_item) in enumerate(zip(recorded, current, strict=True)):
            yield from within(f"{path}[{index}]", old_item, new_item)
    else:
        yield path, recorded, current


def _set_differences(
    path: str, recorded: Sequence[Any], current: Sequence[Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the one entry of a set that changed, else both sets if they differ."""
    gone = [entry for entry in recorded if entry not in current]
    new = [entry for entry in current if entry not in recorded]
    if len(gone) == len(new) == 1:
        yield f"{path}[{recorded.index(gone[0])}]", gone[0], new[0]
    elif gone or new:
        yield path, recorded, current


def _adapter_differences(
    recorded: Mapping[str, Any], current: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of an adapter's settings, with defaults and variables filled in."""
    old, new = _with_filled(recorded, current), _with_filled(current, recorded)
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key) and not _means_same(key, old, new):
            yield from within(f"{ADAPTER}.{key}", old.get(key), new.get(key))


def _with_filled(line: Mapping[str, Any], other_line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the adapter's settings with the values of variables.

    The placeholder is kept if the other line has the same one, and its variable was not set.
    """
    own_texts, other_texts = (
        dict(iter_texts(settings_line.get(ADAPTER) or {})) for settings_line in (line, other_line)
    )
    unknown = {
        ".".join(map(str, loc)) for loc, text in own_texts.items() if other_texts.get(loc) == text
    } - {*other_line.get("filled", {})}
    filled = {path: text for path, text in line.get("filled", {}).items() if path not in unknown}

    def fill(text: str, loc: Loc) -> str:
        return str(filled.get(".".join(map(str, loc)), text))

    return dict(map_texts(line.get(ADAPTER) or {}, fill))


def _means_same(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a key means the same on both sides, one of which may omit it."""
    shape = base.settings_type(str(old.get("type"))) if old.get("type") == new.get("type") else None
    if shape is None or key not in shape.model_fields:
        return False
    try:
        checked = shape.model_validate(old), shape.model_validate(new)
        return bool(getattr(checked[0], key) == getattr(checked[1], key))
    except ValidationError:
        default = shape.model_fields[key].get_default(call_default_factory=True)
        return bool(old.get(key, default) == new.get(key, default))


def _filled_differences(
    recorded: Mapping[str, Any], current: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the texts whose variables have other values; an unset variable is unknown."""
    old_values, new_values = recorded.get("filled", {}), current.get("filled", {})
    for path in old_values:
        if path in new_values and old_values[path] != new_values[path]:
            yield f"{ADAPTER}.{path}", old_values[path], new_values[path]


def _file_differences(
    recorded: Mapping[str, Any], current: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the files that have changed.

    Of those that the adapter names, a missing script has changed. Any other may be built, or
    written by the agent, and is unknown if it is missing. A watched one always counts.
    """
    if "files" not in current:  # the agent is not called any more
        return
    old_files, new_files = recorded.get("files", {}), current["files"]
    is_same = recorded[ADAPTER] == current[ADAPTER]
    pairs = [
        (name, digest, new_files.get(name))
        for name, digest in old_files.items()
        if digest
        and (name in new_files or (is_same and PurePosixPath(name).suffix.lower() in _SCRIPTS))
    ]
    if recorded.get("watch") == current.get("watch"):
        old_watched, new_watched = recorded.get("watched", {}), current["watched"]
        names = sorted({*old_watched, *new_watched} - {*old_files})
        watched = ((name, old_watched.get(name), new_watched.get(name)) for name in names)
        pairs += [pair for pair in watched if pair[1] != ""]
    for name, old_digest, new_digest in pairs:
        if old_digest != new_digest:
            yield f"{FILE}{name}", _short(old_digest), _short(new_digest)


def _short(digest: str | None) -> str | None:
    return None if digest is None else f"sha256 {digest[:12]}"


def locate(drift: Drift, scenario: Scenario) -> str:
    """Return `file:line` of the setting, prompt or rubric that changed; empty if unknown.

    For a removed key, it is the nearest place that still exists.
    """
    field, agent = drift.field, drift.agent
    if field.startswith(FILE):
        return field.removeprefix(FILE)
    if field.startswith(TOOL):
        tool = field.removeprefix(TOOL).partition(" ")[0]
        scripted = tool in scenario.file.tools and drift.kind == "input"
        return "{}:{}".format(*scenario.place(("tools", tool))) if scripted else ""
    if field == "rubric":
        return _rubric(drift, scenario)
    if agent is not None:
        of_profile = drift.kind == "settings" or (drift.kind, field) == ("input", ROLE_PROMPT)
        return _profile(drift, agent, scenario) if of_profile else ""
    return _shared_setting(_loc(field), scenario) if drift.kind == "settings" else ""


def _shared_setting(loc: Loc, scenario: Scenario) -> str:
    """Return the place of a setting of the team, the scenario or the workspace."""
    match loc[0]:
        case "config":
            return _name_place(_rules(scenario), loc[1:])
        case "ignore":
            return _name_place(scenario.parts, loc)
        case "models" | "memory":
            return _name_place([Fragment(scenario.workspace.document)], loc)
    return ""


def _loc(field: str) -> Loc:
    """Return the place that a field names: `ignore[0]` and `adapter.args.1` too."""
    first, _, remainder = field.partition(".")
    if first == "models":  # a model's name may have dots
        name, _, key = remainder.rpartition(".")
        return (first, name, key)
    steps = re.split(r"[.\[]", field.replace("]", ""))
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _first_line(drift: Drift) -> int:
    """Return the number of the first line in which two texts differ."""
    both = zip(drift.before.splitlines(), drift.after.splitlines(), strict=False)
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
    return min(len([*equal]) + 1, max(drift.after.count("\n") + 1, 1))


def _profile(drift: Drift, agent: str, scenario: Scenario) -> str:
    loc = _loc(drift.field)
    loaded = scenario.profiles.get(agent)
    if loaded is None:
        return ""
    fragments = loaded.source.fragments
    prompt = loaded.source.data.get(ROLE_PROMPT)
    if loc == (ROLE_PROMPT,) and isinstance(prompt, dict):
        return f"{prompt.get('file', '')}:{_first_line(drift)}"
    if loc[0] == ADAPTER and len(loc) > 1:
        kind = str(loaded.profile.adapter.get("type"))
        common = Fragment(scenario.workspace.document, ("defaults", kind))
        below = [Fragment(fragment.document, (*fragment.loc, ADAPTER)) for fragment in fragments]
        held = [fragment for fragment in (*below, common) if fragment.holds(loc[1:2])]
        if held:
            return _name_place(held, loc[1:])
    return _name_place(fragments, loc)


def _rules(scenario: Scenario) -> list[Fragment]:
    """Return the parts that set rules of the team, the nearest first."""
    fragments = [
        Fragment(fragment.document, (*fragment.loc, "config")) for fragment in scenario.parts
    ]
    name = scenario.team.name
    draft = scenario.workspace.drafts.get(normalize_id(name)) if name else None
    shared = (
        draft.rules if draft else [Fragment(scenario.workspace.document, ("defaults", "config"))]
    )
    held = [fragment for fragment in (*fragments, *reversed(shared)) if fragment.holds(())]
    if held:
        return held
    return [draft.fragment] if draft else list(scenario.parts)


def _name_place(fragments: Sequence[Fragment], loc: Loc) -> str:
    """Return the place of the nearest part that holds `loc`, or as much of it as any does."""
    if not fragments:
        return ""
    holder = find_holder(fragments, loc)
    document = holder.document
    return f"{document.name}:{document.line((*holder.loc, *loc))}"


def _rubric(drift: Drift, scenario: Scenario) -> str:
    """Return the place of a judge's rubric that was not asked before."""
    old_text, new_text = (" ".join(text.split()) for text in (drift.before, drift.after))
    for loc, text in iter_texts(scenario.data):
        plain = " ".join(text.split())
        if {"judge", "rubric"} & {*loc} and plain in new_text and plain not in old_text:
            return "{}:{}".format(*scenario.place(loc))
    return ""
