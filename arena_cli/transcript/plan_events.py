"""The events of planned chains: what the planner decided, and what the work has left behind.

They are read when a transcript holds one: a session without plans never imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from arena_cli.protocol import Derived, Position, Shape, Usage, Volatile, omitted
from arena_cli.transcript.control_events import ControlEvent, control_of
from arena_cli.transcript.events import AgentCall

if TYPE_CHECKING:
    from arena_cli.transcript.conversation import Chain
    from arena_cli.transcript.state import Fold

PlanMode = Literal["single", "orchestrator", "parallel", "layered"]
"""One agent, a leader with specialists, side by side and then joined, layer after layer."""


class PlanStep(Shape):
    """A step: what an agent does, once the steps of `needs` are completed; `lane` is a note."""

    id: str
    agent: str
    task: str
    needs: list[str] = omitted([])
    lane: str = omitted("")


class PlanPhase(Shape):
    """Steps that begin when those of the phase before have ended."""

    name: str
    steps: list[PlanStep]


class PlanMade(ControlEvent):
    """A planner was asked, and its plan is carried out, unless it was `refused` by rules.

    `fallback` is the reason why one agent does the work instead, or empty. `replan` counts the
    plans before it in this chain that were given up: `failed` is why. `rules` are those that looked
    at it, `broken` those of them that refuse it. `ignored` are parts of the answer that cannot be
    used. `approval` says that a person decides first. `call` is the number of a call with tools,
    whose `agent_ended` counts.
    """

    type: Literal["planned"] = "planned"
    chain: Annotated[int, Position]
    agent: str
    mode: PlanMode
    reasoning: Annotated[str, Derived] = ""
    confidence: float = 0.0
    phases: list[PlanPhase] = []
    checkpoints: list[str] = omitted([])
    estimated_steps: int | None = omitted(None)
    estimated_duration: Annotated[str, Derived] = omitted("")
    risks: Annotated[list[str], Derived] = omitted([])
    ignored: Annotated[list[str], Derived] = omitted([])
    fallback: Annotated[str, Derived] = omitted("")
    replan: int = omitted(0)
    failed: Annotated[list[str], Derived] = omitted([])
    rules: list[str] = omitted([])
    broken: dict[str, str] = omitted({})
    refused: Annotated[str, Derived] = omitted("")
    approval: bool = omitted(False)
    call: str = omitted("")
    attempts: Annotated[int, Volatile] = 1
    usage: Annotated[Usage | None, Derived] = None
    metadata: Annotated[dict[str, Any], Volatile] = omitted({})

    @property
    def agent_call(self) -> AgentCall | None:
        """The call of the planner, unless it has an end of its own."""
        if self.call:
            return None
        return AgentCall(self.agent, self.usage, self.metadata, failed=bool(self.fallback))

    @property
    def steps(self) -> Iterator[tuple[PlanPhase, PlanStep]]:
        """Yield its steps in order, each with its phase."""
        for phase in self.phases:
            for step in phase.steps:
                yield phase, step

    @property
    def agents(self) -> list[str]:
        """The agents of its steps, each once, in order."""
        return list(dict.fromkeys(step.agent for _, step in self.steps))

    def change_chain(self, chain: Chain) -> None:
        """Keep the plan of the chain; a later one replaces it."""
        control_of(chain).plans.append(self)

    def change_fold(self, fold: Fold) -> None:
        """Count the calls of the planner."""
        fold.calls[self.agent] = fold.calls.get(self.agent, 0) + self.attempts


class Delivered(ControlEvent):
    """The planned work has ended; `folder` holds what it made: `files`, paths below it."""

    volatile: ClassVar[bool] = True

    type: Literal["delivered"] = "delivered"
    chain: Annotated[int, Position]
    folder: str
    files: list[str] = []

    def change_chain(self, chain: Chain) -> None:
        """Note the delivery of the chain."""
        control_of(chain).is_delivered = True
