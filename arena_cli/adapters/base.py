"""Define the protocol of every kind of agent: `start`, `invoke`, `health`, `stop`.

Deadline, retry, redaction and transcript are handled once, outside (`runtime`, `arena_cli.engine`).
`SessionConfig` holds the settings of a session; an adapter gets those it needs in its `Setup`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

from pydantic import BaseModel, ConfigDict

from arena_cli.chat import Render, RenderChat
from arena_cli.errors import Fault, UsageError
from arena_cli.protocol import AgentInput, AgentOutput, Emit
from arena_cli.util.clock import Clock, SystemClock
from arena_cli.workspace.agents import AdapterKinds
from arena_cli.workspace.models import (
    AgentProfile,
    Durability,
    LaneName,
    Lanes,
    Language,
    Member,
    ModelFacts,
    WorkspaceMemory,
)
from arena_cli.yamlio.nodes import Loc

ToolWay = Literal["loop", "mcp", ""]
"""How an agent is given tools: in arena's loop, by MCP servers that its program calls, or not."""


class Endpoint(NamedTuple):
    """A program, server or function that an agent is called through.

    `name` is a command line, an address without its path, `file.py:function`, or the kind's name.
    `variables` are passed to it in addition to those in its settings; `*` is the whole environment.
    """

    type: Literal["program", "host", "function", "kind", "agent", "setting"]
    name: str
    variables: tuple[str, ...] = ()


class Settings(BaseModel):
    """The keys under a profile's `adapter:`; each kind has its own. Unknown keys are errors.

    `fallback` are the keys of adapters that are tried in order if this one is unavailable or
    overloaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    sources: ClassVar[Mapping[str, str]] = {}
    """Where the values of the kind's variables are to be had, for those that are not set."""

    server_variables: ClassVar[tuple[str, str]] = ("", "")
    """The variables of the environment that name its server and hold that server's key."""

    looks_only: ClassVar[bool] = False
    """Whether `health` opens no connection and starts nothing while `Setup.connects` is False."""

    type: str
    fallback: list[dict[str, Any]] = []

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:
        """Return the endpoints that an agent with these keys (not filled) would contact.

        A kind without a method of its own is one endpoint, with the whole environment.
        """
        return [Endpoint("kind", str(keys.get("type")), ("*",))]

    @classmethod
    def is_template(cls, loc: Loc) -> bool:  # noqa: ARG003 - for kinds that have templates
        """Return True if the adapter itself fills the text at `loc` (under `adapter:`) again.

        There, a `$${` is left for the adapter, and in every text all placeholders except
        `${env:NAME}`.
        """
        return False

    @classmethod
    def implied(cls, keys: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003 - for some kinds
        """Return default values of keys that follow from the keys of a profile.

        The defaults of `arena.yaml` take precedence over them. They are filled from the environment
        like all keys.
        """
        return {}

    @classmethod
    def describe_powers(cls, keys: Mapping[str, Any]) -> str:  # noqa: ARG003 - for some kinds
        """Return what an agent with these keys, not filled, may do; "" if the kind cannot say."""
        return ""

    @classmethod
    def takes_tools(cls, keys: Mapping[str, Any]) -> ToolWay:  # noqa: ARG003 - for some kinds
        """Return how an agent with these keys, not filled, is given tools."""
        return "loop"

    @classmethod
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return keys for a new profile (`arena agents add`) that the environment gives reason for.

        A server of `server_variables` comes with its key; a login in its address stays there.
        """
        address, key = cls.server_variables
        url = environ.get(address, "")
        if not url or not environ.get(key):
            return {}
        base_url = f"${{env:{address}}}" if "@" in url else url
        return {"base_url": base_url, "api_key": f"${{env:{key}}}"}


class HandedServer(NamedTuple):
    """An MCP server as it is handed to a program: a `command`, or a `url`, all texts filled.

    `cwd` is absolute. `tools` are patterns of the names of the tools that may be called.
    `is_own`: it is arena's, which itself asks people for approval.
    """

    name: str
    command: Sequence[str] = ()
    env: Mapping[str, str] = MappingProxyType({})
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = MappingProxyType({})
    timeout_s: float = 60
    tools: Sequence[str] = ("*",)
    is_own: bool = False


@dataclass(frozen=True)
class Setup:
    """The context of an adapter, passed to its constructor.

    `settings` are filled (`${env:...}` replaced). `workspace` is the base of relative paths.
    `scratch` is a folder of the session for files that a call needs. `records` is a folder of the
    workspace for the records of running programs (`process.cleanup`). `render` turns an input into
    (system text, prompt text), `chat` into turns. `used` returns the scripted entries that this
    agent's earlier replies in the session used up. `environ` is the process environment, which
    overrides `.env`. `models` are the entries of `arena.yaml` for models, by name. If `connects` is
    False, `health` only looks at files, and placeholders of the environment are not filled.
    `servers` are the MCP servers that its program calls (`mcp_servers`).
    """

    agent_id: str
    settings: Any
    workspace: Path
    scratch: Path
    records: Path
    render: Render
    chat: RenderChat
    used: Callable[[], frozenset[int]] = frozenset
    environ: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    connects: bool = True
    servers: Sequence[HandedServer] = ()


class Health(NamedTuple):
    """The result of a check whether the agent can be called; `detail` is what is missing."""

    ok: bool
    detail: str = ""


class Adapter(Protocol):
    """An agent in a session. `invoke` raises only AgentError and CancelledError.

    A kind that has nothing to prepare or to end between calls leaves out `start` or `stop`.

    If `invoke` is cancelled, it ends the work itself (process tree, request) before it returns.
    """

    settings_type: ClassVar[type[Settings]]

    def __init__(self, setup: Setup) -> None: ...

    async def start(self) -> None:
        """Prepare for the first call; `stop` follows in any case."""
        return

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Answer a call; `emit` reports status, text and notes before the answer."""
        ...

    async def health(self) -> Health:
        """Check within seconds that the agent could be called; start and call nothing."""
        ...

    async def stop(self) -> None:
        """End within seconds all that runs between calls; no call follows."""
        return


GROUP = "arena.adapters"  # entry points: a kind's name -> "module:Class"

_BUILT_IN = {
    "scripted": "arena_cli.adapters.scripted:ScriptedAdapter",
    "cli": "arena_cli.adapters.command:CliAdapter",
    "python": "arena_cli.adapters.python:PythonAdapter",
    "anthropic": "arena_cli.adapters.anthropic.adapter:AnthropicAdapter",
    "openai": "arena_cli.adapters.openai.adapter:OpenAIAdapter",
    "claude_code": "arena_cli.adapters.claude_code:ClaudeCodeAdapter",
    "codex": "arena_cli.adapters.coding_clis.kinds:CodexAdapter",
    "gemini": "arena_cli.adapters.coding_clis.kinds:GeminiAdapter",
    "cursor": "arena_cli.adapters.coding_clis.kinds:CursorAdapter",
    "opencode": "arena_cli.adapters.coding_clis.kinds:OpencodeAdapter",
    "pi": "arena_cli.adapters.coding_clis.kinds:PiAdapter",
    "acp": "arena_cli.adapters.acp.adapter:AcpAdapter",
}


def adapter_type(kind: str) -> type[Adapter]:
    """Return the adapter class of a kind.

    Raises UsageError if there is no such kind, or if it cannot be imported.
    """
    found = _find_type(kind)
    if found is None:
        raise UsageError(f"unknown kind of adapter `{kind}`", f"known: {', '.join(list_kinds())}")
    return found


def settings_type(kind: str) -> type[Settings] | None:
    """Return the settings class of a kind, or None if there is no such kind."""
    found = _find_type(kind)
    return None if found is None else found.settings_type


def find_tool_way(profile: AgentProfile) -> ToolWay:
    """Return how an agent is given tools; a kind that is not known has arena's loop."""
    shape = settings_type(str(profile.adapter["type"]))
    return "loop" if shape is None else shape.takes_tools(profile.adapter)


def implied(kind: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the default values that follow from the given keys (`Settings.implied`)."""
    shape = settings_type(kind)
    return {} if shape is None else shape.implied(keys)


def list_kinds() -> list[str]:
    """Return all kinds, the built-in ones first."""
    return [*_BUILT_IN, *sorted(set(_entry_points()) - set(_BUILT_IN))]


def _find_type(kind: str) -> type[Adapter] | None:
    if kind in _BUILT_IN:
        module, _, name = _BUILT_IN[kind].partition(":")
        return cast("type[Adapter]", getattr(import_module(module), name))
    entry_point = _entry_points().get(kind)
    if entry_point is None:
        return None
    try:
        return cast("type[Adapter]", entry_point.load())
    except (ImportError, AttributeError) as error:
        problem = f"the kind of adapter `{kind}` cannot be imported: {error}"
        raise UsageError(
            problem, f"it comes from {entry_point.value}; reinstall that package"
        ) from error


def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # only for kinds from elsewhere

    return {point.name: point for point in entry_points(group=GROUP)}


KINDS = AdapterKinds(settings_type=settings_type, list_kinds=list_kinds, implied=implied)


@dataclass(frozen=True)
class FlowHost:
    """Where flows run that agents start: the workspace, and how their agents are called.

    Calls pass through `middlewares`; `on_session` is called with the name of each session.
    """

    workspace: Any
    middlewares: Sequence[Any] = ()
    on_session: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class SessionConfig:
    """The settings of a run's sessions: the workspace, how to write, which agents to call.

    `profiles` are all agents of the workspace; their secrets are redacted in every session.
    `models` are the settings of models in `arena.yaml`, by name. `summarizer`, `extractor` and
    `memory_judge` are the agents that `memory` names. `lanes` bound the replies of all processes
    that run at once. Without `shared_notes` the notes of the workspace are neither read nor
    written. Unless it `connects`, no agent and no embedding server is called. It `takes_requests`
    if people may pause, steer or decide from another process. `ask_person` asks for approval at a
    terminal (`engine.approvals.AskPerson`). `find_agent` returns any agent of the workspace by its
    id. `flows` is where agents run flows, None if they cannot. Replies take a place in `lane`.
    `find_tools` returns the scripted tools that take the place of those of an entry of `tools`,
    `place_workdir` the folder in which agents work instead of their `workdir`. `on_delta` is called
    with an agent's id and each piece of its text, redacted, as it grows, `on_problem` for notes
    that cannot be read, and for other problems of the memory, `on_progress` with the number of
    notes that were read, and of all of them, if that takes long.
    """

    workspace: Path
    durability: Durability = "fsync"
    language: Language = "en"
    redact: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    profiles: Sequence[AgentProfile] = ()
    clock: Clock = field(default_factory=SystemClock)
    wait_s: float = 600.0
    adapter_type: Callable[[str], type[Adapter]] = adapter_type
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    memory: WorkspaceMemory = field(default_factory=WorkspaceMemory)
    lanes: Lanes = field(default_factory=Lanes)
    summarizer: Member | None = None
    extractor: Member | None = None
    memory_judge: Member | None = None
    shared_notes: bool = True
    connects: bool = True
    takes_requests: bool = True
    ask_person: Callable[[Any], Awaitable[Any]] | None = None
    find_agent: Callable[[str], Member | None] = lambda _: None
    flows: FlowHost | None = None
    lane: LaneName = "main"
    find_tools: Callable[[Any], Sequence[Any]] = lambda _: ()
    place_workdir: Callable[[Path], Path] = lambda folder: folder
    on_delta: Callable[[str, str], None] | None = None
    on_problem: Callable[[Fault], None] = lambda _: None
    on_progress: Callable[[int, int], None] = lambda _, __: None

    @property
    def memory_agents(self) -> list[Member]:
        """The agents that work for the team's memory."""
        agents = (self.summarizer, self.extractor, self.memory_judge)
        return [agent for agent in agents if agent is not None]


_ALWAYS_GIVEN = frozenset({"PATH", "HOME", "USER", "LANG", "TMPDIR", "TERM"})
_GIVEN_ON_WINDOWS = frozenset(
    {"SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP"}
)
_GIVEN_BEGINNINGS = ("LC_", "SSL_CERT_", "XDG_")


def is_always_given(name: str) -> bool:
    """Return True if every program gets the variable, with any profile."""
    if name.upper().endswith("_PROXY"):
        return True
    if sys.platform == "win32":
        name = name.upper()
        if name in _GIVEN_ON_WINDOWS:
            return True
    return name in _ALWAYS_GIVEN or name.startswith(_GIVEN_BEGINNINGS)
