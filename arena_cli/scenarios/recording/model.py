"""Model a recording: the calls of each case, their inputs, and the hashes of the agents' files.

The files of an agent are those in the workspace that its `command`, `args`, `program` and `target`
name, and those that its `watch` matches. A file that may hold a secret is left out, and so are
sessions and recordings.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Answer, CallNext, CallRequest
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import Attachment
from arena_cli.session import outgoing
from arena_cli.transcript.events import FREE_KINDS
from arena_cli.workspace.agents import list_adapters
from arena_cli.workspace.models import AgentProfile

ASIDE = ("judge", "memory", "supervise")
"""The types of lines that are a call and no event."""


TOOLS = "tools"
"""The key of an agent's tools: in its line with their schemas, in an input by their names."""


class CallKey(NamedTuple):
    """The key that matches calls: their step (from 1, None: of the whole scenario), agent and kind.

    `invocation` is `memory` for calls for the team's memory.
    """

    step: int | None
    agent: str
    invocation: str


class Recorded(NamedTuple):
    """A call of a case, with its `number` in order; `input` and `came` as written in its line.

    `notes` are the ids of those that the agent was shown. `came` has `output` or `failure`; `line`
    is the line of the file, from 1.
    """

    number: int
    key: CallKey
    session: str | None
    input_hash: str
    input: Mapping[str, Any]
    came: dict[str, Any]
    turn: int | None
    line: int
    notes: Sequence[str] = ()


class RecordedTool(NamedTuple):
    """A call of a tool of a case: its step, the agent, the tool, the arguments.

    `line` is the event of its end; its `answer` has what that lacks: the whole `text`, and the
    `attachments` with their data.
    """

    step: int | None
    agent: str
    tool: str
    arguments: Mapping[str, Any]
    line: Mapping[str, Any]


class RecordedStep(NamedTuple):
    """A step of a flow of a case: the scenario's step, its own name, and what it did.

    `line` is the event of its end, or of a reflection.
    """

    step: int | None
    name: str
    work: Mapping[str, Any]
    line: Mapping[str, Any]


@dataclass
class CaseRecord:
    """A case of a scenario, or the scenario that has none.

    `lines` are its records in order, without those of agents (see `file`), each with its texts: a
    reply's text is in its message. `calls` are those of agents, of judges, and of agents that work
    for the team's memory; `tools` are those of tools, `flow_steps` what
    steps of flows did. `workspace` are the settings of the workspace
    and the scenario that affect the inputs of agents (`settings.record_workspace`); None if it has
    none yet.
    """

    id: str | None
    workspace: Mapping[str, Any] | None = None
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Recorded] = field(default_factory=list)
    tools: list[RecordedTool] = field(default_factory=list)
    flow_steps: list[RecordedStep] = field(default_factory=list)

    def unused(self) -> dict[CallKey, list[Recorded]]:
        """Return all calls by key, in order."""
        by_key: dict[CallKey, list[Recorded]] = {}
        for call in self.calls:
            by_key.setdefault(call.key, []).append(call)
        return by_key

    def steps(self) -> set[int]:
        """Return the steps that were played."""
        return {line["step"] for line in self.lines if line["type"] == "step"}

    def specs(self, agent: str) -> Sequence[Mapping[str, Any]]:
        """Return the tools that an agent had, as its model was shown them."""
        specs: Sequence[Mapping[str, Any]] = self.agents.get(agent, {}).get(TOOLS, ())
        return specs

    def called(self) -> set[str]:
        """Return the agents that were called."""
        return {call.key.agent for call in self.calls}

    def session(self, key: str | None) -> Iterator[dict[str, Any]]:
        """Yield the events of one session of the case, in canonical order."""
        current: str | None = None
        for line in self.lines:
            if line["type"] == "step":
                current = line["session"]
            elif current == key and line["type"] not in ASIDE:
                yield line

    def shown(self, call: Recorded) -> dict[str, Any]:
        """Return the whole input of a call: the fields of an AgentInput, messages in order."""
        messages: dict[str, dict[str, Any]] = {}
        members: Sequence[Any] = ()
        for line in self.session(call.session):
            if line["type"] == "session":
                members = line["members"]
            elif isinstance(line.get("message"), dict):
                messages[line["message"]["id"]] = line["message"]
        agent_input = {
            "agent_id": call.key.agent,
            "invocation": call.key.invocation,
            "role_prompt": self.agents.get(call.key.agent, {}).get("role_prompt", ""),
            "members": list(members),
            **call.input,
        }
        specs = {spec["name"]: spec for spec in self.specs(call.key.agent)}
        agent_input[TOOLS] = [
            specs.get(item, {"name": item}) if isinstance(item, str) else item
            for item in call.input.get(TOOLS, ())
        ]
        agent_input["messages"] = [
            message
            for item in call.input.get("messages", ())
            for message in _messages(item, messages)
        ]
        return agent_input


@dataclass
class Recording:
    """The recording of a scenario file: its title then, and its cases by id.

    `is_edited`: the file has been edited since arena wrote it.
    """

    scenario: str
    cases: dict[str | None, CaseRecord]
    is_edited: bool = False


def ranges(ids: Sequence[str]) -> list[str]:
    """Return `m1, m2, m3, m7` as `m1-m3, m7`."""
    groups: list[list[int]] = []
    for name in ids:
        number = int(name[1:])
        if groups and groups[-1][1] == number - 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return [f"m{first}" if first == last else f"m{first}-m{last}" for first, last in groups]


def _messages(item: Any, by_id: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of an item of `messages`: one written out, or a range of ids."""
    if isinstance(item, dict):
        yield item
        return
    first, _, last = item.partition("-")
    start = int(first[1:])
    for number in range(start, int((last or first)[1:]) + 1):
        yield by_id.get(f"m{number}", {"id": f"m{number}", "content": ""})


class LiveCallGuard:
    """Refuses every call of an agent that is not scripted, and keeps the refused agents."""

    def __init__(self, hint: str) -> None:
        self.refused: dict[str, None] = {}
        self._hint = hint

    @property
    def refusal(self) -> str | None:
        """The reason the scenario is an error; None if no live agent had to be called."""
        if not self.refused:
            return None
        agents = ", ".join(f"`{agent}`" for agent in self.refused)
        return f"it has no recording and calls {agents} live, while `CI` is set\n  {self._hint}"

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Pass on the call of a scripted agent. Raises AgentUnavailable for any other."""
        member = request.member
        kinds = {adapter.get("type") for adapter in list_adapters(member.profile.adapter)}
        if kinds <= FREE_KINDS:
            return await call_next(request)
        self.refused[member.id] = None
        problem = "it is not called: `CI` is set, and this scenario has no recording"
        raise AgentUnavailable(member.id, problem, mend=self._hint, again=False)


_Matcher = Callable[[str], object]

MOST_BYTES = 8 * 1024 * 1024
"""Of a longer file only so much is hashed, with its size."""

MOST_FILES = 200
"""Where a glob matches more files, they get one hash together."""

_WRITTEN = (".log", ".pid", ".lock", ".sock", ".tmp", ".pyc")
_FOREIGN = frozenset(
    {".git", ".venv", "__pycache__", "node_modules", "recordings", "site-packages", "venv"}
)
_SESSIONS = "sessions"
_WILD = re.compile(r"[*?]")


_BYTES = "data_base64"


def dump_attachment(attachment: Attachment) -> dict[str, Any]:
    """Return an attachment that an agent or a tool gave as a record."""
    if isinstance(attachment.data, bytes):
        data = {_BYTES: base64.b64encode(attachment.data).decode("ascii")}
    else:
        data = {"data": attachment.data}
    return {"type": attachment.type, "name": attachment.name, **data}


def encode_data(attachment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an attachment of a record as it was given."""
    if _BYTES not in attachment:
        return attachment
    without_bytes = {key: value for key, value in attachment.items() if key != _BYTES}
    return {**without_bytes, "data": base64.b64decode(attachment[_BYTES])}


class Hashes(NamedTuple):
    """Hashes by path from the workspace: of files that the adapter names, and of watched ones."""

    files: dict[str, str]
    watched: dict[str, str]


def hash_files(profile: AgentProfile, root: Path) -> Hashes:
    """Return the hash of each file that an agent is made of."""
    root = root.resolve()
    excluded = [_matcher(pattern[1:]) for pattern in profile.watch if pattern.startswith("!")]
    relative = dict.fromkeys(
        _relative(path, root)
        for settings in (*list_adapters(profile.adapter), *_list_functions(profile))
        for path in _list_paths(settings, root)
    )
    hashes = {name: _hash(root / name) for name in relative if name is not None}
    watched: dict[str, str] = {}
    for pattern in profile.watch:
        watched |= _watched(pattern, root, excluded)
    return Hashes(
        {name: hashes[name] for name in sorted(hashes) if not _matches(excluded, name)},
        dict(sorted(watched.items())),
    )


def _list_functions(profile: AgentProfile) -> list[dict[str, str]]:
    """Return the functions of the user that an agent has as tools, each as a `target`."""
    if not profile.acts:
        return []
    entries = import_module("arena_cli.workspace.tool_entries")
    return [{"target": target} for target in entries.list_functions(profile)]


def _matches(matchers: Iterable[_Matcher], name: str) -> bool:
    return any(matches(name) for matches in matchers)


def _list_paths(adapter: Mapping[str, Any], root: Path) -> Iterator[Path]:
    """Yield what may be a file that the settings of an adapter name."""
    target = adapter.get("target")
    if isinstance(target, str):
        yield from _of_target(target.rpartition(":")[0], root)
    program = adapter.get("program")
    if isinstance(program, str):
        yield root / program
    folder = root / str(adapter.get("cwd") or ".")
    words = [*_texts(adapter.get("command")), *_texts(adapter.get("args"))]
    for index, word in enumerate(words):
        if index == 0 and PurePosixPath(word.replace("\\", "/")).name != word:
            yield root / word
        elif words[index - 1] == "-m" and index:
            yield from _of_module(word, folder)
        else:
            yield folder / word
            if word.startswith("-") and "=" in word:
                yield folder / word.partition("=")[2]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _of_target(target: str, root: Path) -> Iterator[Path]:
    if target.lower().endswith(".py") or "/" in target or "\\" in target:
        yield root / target
    else:
        yield from _of_module(target, root)


def _of_module(module: str, folder: Path) -> Iterator[Path]:
    base = folder.joinpath(*module.split("."))
    yield base.with_name(f"{base.name}.py")
    yield from (base / "__init__.py", base / "__main__.py")


def _watched(pattern: str, root: Path, excluded: Sequence[_Matcher]) -> dict[str, str]:
    if pattern.startswith("!"):
        return {}
    names = [name for name in _matching(pattern, root) if not _matches(excluded, name)]
    if len(names) <= MOST_FILES:
        return {name: _hash(root / name) for name in names}
    listing = "\n".join(f"{name} {_hash(root / name)}" for name in names)
    return {pattern: hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()}


def _matching(pattern: str, root: Path) -> Iterator[str]:
    """Yield the files that a glob matches, in order; a folder matches all files in it."""
    fixed = []
    for step in PurePosixPath(pattern).parts:
        if _WILD.search(step):
            break
        fixed.append(step)
    start = root.joinpath(*fixed)
    if start.is_file():
        name = _relative(start, root)
        yield from () if name is None else (name,)
        return
    matches = _matcher(pattern)
    for folder, folders, files in os.walk(start):
        is_root = Path(folder) == root
        folders[:] = sorted(
            name for name in folders if name not in _FOREIGN and not (is_root and name == _SESSIONS)
        )
        for file in sorted(files):
            name = _relative(Path(folder, file), root)
            if name is not None and matches(name):
                yield name


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> _Matcher:
    """Return a test for paths that match a glob: `**` is any folders, `*` no `/`."""
    steps = [
        ".*" if step == "**" else re.sub(r"\\\*", "[^/]*", re.escape(step)).replace(r"\?", "[^/]")
        for step in PurePosixPath(pattern).parts
    ]
    pattern_text = "/".join(steps).replace("/.*/", "/(?:.*/)?").removeprefix(".*/")
    begins = "(?:.*/)?" if steps[0] == ".*" and len(steps) > 1 else ""
    return re.compile(f"{begins}{pattern_text}(?:/.*)?", re.DOTALL).fullmatch


def _relative(path: Path, root: Path) -> str | None:
    """Return the path of a file from the workspace, None if it is not to be hashed."""
    try:
        if not path.is_file():
            return None
        resolved = path.resolve()
        if not resolved.is_relative_to(root):
            return None
        plain = Path(os.path.normpath(path))
    except (OSError, ValueError):
        return None
    names = [
        candidate.relative_to(root).as_posix()
        for candidate in (plain, resolved)
        if candidate.is_relative_to(root)
    ]
    return names[0] if all(map(_is_kept, names)) else None


def _is_kept(name: str) -> bool:
    path = PurePosixPath(name)
    if path.parts[0] == _SESSIONS or path.suffix.lower() in _WRITTEN:
        return False
    return _FOREIGN.isdisjoint(path.parts) and not outgoing.reason_of_name(path.name)


def _hash(path: Path) -> str:
    """Return the hash of a file, empty if it cannot be read."""
    try:
        stat = path.stat()
        return _hash_version(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=4096)
def _hash_version(path: Path, size: int, *_version: int) -> str:
    """Return the SHA-256 of a file; line ends of a text do not affect it."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES)
    digest = hashlib.sha256()
    if size > MOST_BYTES:
        digest.update(f"{size}\n".encode())
    digest.update(content if b"\0" in content else content.replace(b"\r\n", b"\n"))
    return digest.hexdigest()
