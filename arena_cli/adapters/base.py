"""What every kind of agent is: `start`, `invoke`, `health`, `stop`.

Deadline, retry, redaction and transcript stand outside, once (`runtime`, `arena_cli.engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from arena_cli.ground.chat import Render, RenderChat
from arena_cli.ground.protocol import AgentInput, AgentOutput, Emit
from arena_cli.team.model import ModelFacts
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

    looks_only: ClassVar[bool] = False
    """Whether `health` opens no connection and starts nothing while `Setup.connects` is False."""

    type: str

    @classmethod
    def endpoints(cls, given: Mapping[str, Any]) -> list[Endpoint]:
        """Return what an agent with these keys, not filled, starts or asks.

        A kind that does not say is one by itself, with the whole environment.
        """
        return [Endpoint("kind", str(given.get("type")), ("*",))]

    @classmethod
    def is_template(cls, loc: Loc) -> bool:  # noqa: ARG003 - for kinds that have templates
        """Whether the adapter fills the text at `loc` (under `adapter:`) once more by itself.

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
    def suggested(cls, environ: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG003 - for some kinds
        """Keys for a new profile (`arena agents add`) that the environment gives reason for."""
        return {}


@dataclass(frozen=True)
class Setup:
    """What an adapter is given when it is made.

    `settings` are filled (`${env:...}` replaced); `workspace` is the folder that relative paths
    start from; `scratch` is a folder of the session for files that a call needs; `records` one of
    the workspace for the records of running programs (`strays`); `render` turns an input into
    (system text, prompt text), `chat` into turns; `used` tells which scripted entries this agent's
    earlier replies of the session used up; `environ` is the process environment with `.env` below;
    `models` is what `arena.yaml` knows of models, by name. Unless it `connects`, `health` only
    looks at files, and settings that the environment fills are not filled.
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
    """Whether an agent could be called now; `detail` says what is missing and how to get it."""

    ok: bool
    detail: str = ""


class Adapter(Protocol):
    """One agent of one session. `invoke` raises only `AgentError` and CancelledError.

    When `invoke` is cancelled it ends the work for real (process tree, request) before it returns.
    """

    settings_type: ClassVar[type[Settings]]

    def __init__(self, setup: Setup) -> None: ...

    async def start(self) -> None:
        """Get ready, before the first call; `stop` follows in any case."""
        ...

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """One call. `emit` takes what is known before the answer: status, text, notes."""
        ...

    async def health(self) -> Health:
        """Whether it could be called now, said within seconds; neither started nor called."""
        ...

    async def stop(self) -> None:
        """End within seconds whatever runs between calls; no call follows."""
        ...
