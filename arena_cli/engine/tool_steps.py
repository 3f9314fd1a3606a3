"""The steps of an agent that acts: those that fit its next turn, reminders, and its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.context import hashing, tokens, window
from arena_cli.engine.plan import Planned, Room
from arena_cli.protocol import AgentInput, ToolCall, ToolSpec, ToolStep
from arena_cli.transcript.acting_events import (
    ActingEvent,
    AgentEnded,
    EndMode,
    ToolRequested,
    order_call,
)
from arena_cli.transcript.events import ReplyStatus
from arena_cli.workspace.models import Member

_FULL = 0.8
_SQUEEZED = 0.5
_SHORT_TOKENS = 100
_REMOVED = "(This result was removed to save room. Call the tool again if you need it.)"


@dataclass
class Acting:
    """The state of a reply with tools: its steps, its counts, its output.

    `ends_at` is the end of its time, as the clock has it, without what people took to decide.
    `closing` is why its last turn came; `output` is what was handed in, in a tuple. `is_short`: it
    ended with a text in place of the output that it has.
    """

    ends_at: float
    steps: list[ToolStep] = field(default_factory=list)
    calls: int = 0
    turns: int = 0
    invalid: int = 0
    last_call: str = ""
    repeated: int = 0
    closing: EndMode | None = None
    output: tuple[Any] | None = None
    squeezed: bool = False
    is_short: bool = False


def fit_steps(
    agent_input: AgentInput,
    specs: Sequence[ToolSpec],
    steps: Sequence[ToolStep],
    member: Member,
    room: Room,
    *,
    is_squeezed: bool,
) -> list[ToolStep]:
    """Return the steps, with the oldest long results removed where the window is too full."""
    windows = room.scene.windows
    size, reserved = window.sizes(member.profile.context, windows.get(member.id))
    most = (size - reserved) * (_SQUEEZED if is_squeezed else _FULL)
    texts = [agent_input.role_prompt, agent_input.memory_context or ""]
    texts += [message.content for message in agent_input.messages]
    texts += [json.dumps(spec.input_schema) + spec.description for spec in specs]
    used = sum(map(tokens.estimate, texts)) + sum(map(_estimate_step, steps))
    fitting = list(steps)
    for index, step in enumerate(steps[:-1]):
        if used <= most:
            break
        results = list(step.results)
        for position, result in enumerate(step.results):
            size = tokens.estimate(result.text)
            if used > most and (size > _SHORT_TOKENS or result.attachments):
                used -= size
                short = {"text": _REMOVED, "attachments": []}
                results[position] = result.model_copy(update=short)
        fitting[index] = step.model_copy(update={"results": results})
    return fitting


def add_tools(
    agent_input: AgentInput, specs: Sequence[ToolSpec], steps: list[ToolStep]
) -> AgentInput:
    """Return the input of a turn of the model, with its tools and steps; its hash has the tools."""
    update = {"tools": list(specs), "steps": steps}
    changed = agent_input.model_copy(update=update)
    return changed.model_copy(update={"input_hash": hashing.input_digest(changed)})


def remind(steps: list[ToolStep], reminder: str) -> list[ToolStep]:
    """Return the steps with a reminder after the last one."""
    if not reminder:
        return steps
    last = steps[-1] if steps else ToolStep()
    notice = f"{last.notice}\n\n{reminder}".strip()
    return [*steps[:-1], last.model_copy(update={"notice": notice})]


def _estimate_step(step: ToolStep) -> int:
    texts = [step.text, step.notice, *(result.text for result in step.results)]
    texts += [json.dumps(tool_call.arguments, ensure_ascii=False) for tool_call in step.calls]
    return sum(map(tokens.estimate, texts))


def group_requests(events: Sequence[ActingEvent], within: str) -> dict[int, list[ToolRequested]]:
    """Return the calls of an agent by turn of its model; of a turn written twice, the last."""
    steps: dict[int, list[ToolRequested]] = {}
    for event in events:
        if isinstance(event, ToolRequested) and event.call.rpartition(".")[0] == within:
            earlier = steps.setdefault(event.step, [])
            order = order_call(event.call)
            earlier[:] = [request for request in earlier if order_call(request.call) < order]
            earlier.append(event)
    return steps


def restore_call(request: ToolRequested) -> ToolCall:
    """Return a call as the model asked for it."""
    return ToolCall(
        id=request.native or f"call_{request.call}",
        tool=request.tool,
        arguments=request.arguments,
        problem=request.problem,
    )


def write_end(planned: Planned, status: ReplyStatus, by: str, room: Room) -> None:
    """Write how the reply of an agent that acts has ended, unless it will be continued."""
    acting = planned.acting
    if acting is None or (status == "cancelled" and not by):
        return
    mode: EndMode = acting.closing or "error"
    if status == "cancelled":
        mode = "aborted"
    elif status in ("success", "declined"):
        mode = "error_no_complete_task" if acting.is_short else "goal"
    output = acting.output[0] if acting.output else None
    room.journal.write(
        AgentEnded,
        reply=planned.reply,
        agent=planned.agent,
        mode=mode,
        turns=acting.turns,
        output=output,
    )
