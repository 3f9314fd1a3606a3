"""Define the protocol of every kind of agent: `start`, `invoke`, `health`, `stop`.

Deadline, retry, redaction and transcript are handled once, outside (`runtime`, `arena_cli.engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

from pydantic import BaseModel, ConfigDict

from arena_cli.errors import UsageError
from arena_cli.protocol import AgentInput, AgentOutput, Emit, Render, RenderChat
from arena_cli.workspace.agents import AdapterKinds
from arena_cli.workspace.models import ModelFacts
from arena_cli.yamlio.nodes import Loc


class Endpoint(NamedTuple):
    """A program, server or function that an agent is called through.

    `name` is a command line, an address without its path, `file.py:function`, or the kind's name.
    `variables` go there beside those that its settings name; `*` is the whole environment.
    """

    type: Literal["program", "host", "function", "kind", "agent", "setting"]
    name: str
    variables: tuple[str, ...] = ()


class Settings(BaseModel):
    """The keys under a profile's `adapter:`; every kind has its own. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    sources: ClassVar[Mapping[str, str]] = {}
    """Where the values of the kind's variables are to be had, for those that are not set."""

    server_variables: ClassVar[tuple[str, str]] = ("", "")
    """The variables of the environment that name its server and hold that server's key."""

    looks_only: ClassVar[bool] = False
    """Whether `health` opens no connection and starts nothing while `Setup.connects` is False."""

    not_built: ClassVar[frozenset[str]] = frozenset({"fallback"})

    type: str

    @classmethod
    def endpoints(cls, given: Mapping[str, Any]) -> list[Endpoint]:
        """Return what an agent with these keys, not filled, starts or asks.

        A kind that does not say is one by itself, with the whole environment.
        """
        return [Endpoint("kind", str(given.get("type")), ("*",))]

    @classmethod
    def is_template(cls, loc: Loc) -> bool:  # noqa: ARG003 - for kinds that have templates
        """Return True if the adapter itself fills the text at `loc` (under `adapter:`) again.

        A `$${` is left to it there, as are placeholders other than `${env:NAME}` everywhere.
        """
        return False

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003 - for some kinds
        """The keys that follow from the `given` ones where a profile leaves them out.

        They stand under `arena.yaml`'s defaults, and are filled from the environment like all.
        """
        return {}

    @classmethod
    def describe_powers(cls, keys: Mapping[str, Any]) -> str:  # noqa: ARG003 - for some kinds
        """Return what an agent with these keys, not filled, may do; "" if the kind cannot say."""
        return ""

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


@dataclass(frozen=True)
class Setup:
    """The context of an adapter, given when it is made.

    `settings` are filled (`${env:...}` replaced); `workspace` is the folder that relative paths
    start from; `scratch` is a folder of the session for files that a call needs; `records` one of
    the workspace for the records of running programs (`process.cleanup`); `render` turns an input
    into (system text, prompt text), `chat` into turns; `used` holds the scripted entries that this
    agent's earlier replies of the session used up; `environ` is the process environment with
    `.env` below; `models` is what `arena.yaml` knows of models, by name. Unless it `connects`,
    `health` only looks at files, and settings that the environment fills are not filled.
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


class Health(NamedTuple):
    """The result of a check: can the agent be called now? `detail` says what is missing."""

    ok: bool
    detail: str = ""


class Adapter(Protocol):
    """An agent in a session. `invoke` raises only `AgentError` and CancelledError.

    When `invoke` is cancelled it ends the work for real (process tree, request) before it returns.
    """

    settings_type: ClassVar[type[Settings]]

    def __init__(self, setup: Setup) -> None: ...

    async def start(self) -> None:
        """Get ready, before the first call; `stop` follows in any case."""
        ...

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Answer a call. `emit` takes what is known before the answer: status, text, notes."""
        ...

    async def health(self) -> Health:
        """Check within seconds that it could be called; start and call nothing."""
        ...

    async def stop(self) -> None:
        """End within seconds whatever runs between calls; no call follows."""
        ...


GROUP = "arena.adapters"  # entry points: a kind's name -> "module:Class"

_BUILT_IN = {
    "scripted": "arena_cli.adapters.scripted:ScriptedAdapter",
    "cli": "arena_cli.adapters.command:CliAdapter",
    "python": "arena_cli.adapters.python:PythonAdapter",
    "anthropic": "arena_cli.adapters.anthropic:AnthropicAdapter",
    "openai": "arena_cli.adapters.openai.adapter:OpenAIAdapter",
    "claude_code": "arena_cli.adapters.claude_code:ClaudeCodeAdapter",
    "codex": "arena_cli.adapters.coding_clis.adapter:CodexAdapter",
    "gemini": "arena_cli.adapters.coding_clis.adapter:GeminiAdapter",
    "cursor": "arena_cli.adapters.coding_clis.adapter:CursorAdapter",
    "opencode": "arena_cli.adapters.coding_clis.adapter:OpencodeAdapter",
    "pi": "arena_cli.adapters.coding_clis.adapter:PiAdapter",
    "acp": "arena_cli.adapters.acp.adapter:AcpAdapter",
}


def adapter_type(kind: str) -> type[Adapter]:
    """The class of a kind; raises UsageError where there is none, or it cannot be imported."""
    found = _find_type(kind)
    if found is None:
        raise UsageError(f"unknown kind of adapter `{kind}`", f"known: {', '.join(list_kinds())}")
    return found


def settings_type(kind: str) -> type[Settings] | None:
    """The shape of a kind's keys, or None where there is no such kind."""
    found = _find_type(kind)
    return None if found is None else found.settings_type


def implied(kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys that follow from the given ones of a kind (`Settings.implied`)."""
    shape = settings_type(kind)
    return {} if shape is None else shape.implied(given)


def list_kinds() -> list[str]:
    """All kinds, the built-in ones first."""
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
