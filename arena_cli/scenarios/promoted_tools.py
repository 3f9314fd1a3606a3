"""Rebuild the calls of a reply with tools from its events, for the recording of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from arena_cli.adapters.runtime import ToolAnswer, ToolRequest
from arena_cli.protocol import AgentOutput, Attachment, ToolCall, ToolResult, ToolSpec
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.scenarios.tool_names import COMPLETE_TASK, is_named
from arena_cli.transcript.events import Event
from arena_cli.workspace.models import Member

if TYPE_CHECKING:
    from arena_cli.transcript.acting_events import ToolFinished, ToolRequested

Attached = Callable[[Attachment, str, str], Attachment]
"""Return an attachment with its data, for the id of its message and its author."""

_NO_CALL = "(an answer without calls)"


@dataclass
class ReplyTools:
    """The calls of tools in a reply: what was asked, how it ended, and the texts next to it.

    Those of agents that were called as tools are left out.
    """

    asked: dict[str, ToolRequested] = field(default_factory=dict)
    ends: dict[str, ToolFinished] = field(default_factory=dict)
    texts: dict[tuple[int, str], str] = field(default_factory=dict)
    has_handed_in: bool = False

    def list_turns(self) -> Iterator[AgentOutput]:
        """Yield the answers of the model that called tools, or that ended too early."""
        steps: dict[int, list[ToolRequested]] = {}
        for request in self.asked.values():
            steps.setdefault(request.step, []).append(request)
        for step in range(1, max(steps, default=0) + 1):
            calls = [
                ToolCall(
                    id=request.native,
                    tool=request.tool,
                    arguments=request.arguments,
                    problem=request.problem,
                )
                for request in steps.get(step, ())
            ]
            thinking = self.texts.get((step, "thinking"))
            yield AgentOutput(
                content=self.texts.get((step, "text"), "") if calls else _NO_CALL,
                tool_calls=calls,
                metadata={"thinking": thinking} if thinking else {},
            )


def read_reply(events: Iterable[Event], reply: int) -> ReplyTools | None:
    """Return the calls of tools in a reply; None if it has none."""
    tools = ReplyTools()
    for event in events:
        fields: Any = event
        if getattr(event, "reply", None) != reply:
            continue
        if event.type == "tool_requested" and "." not in fields.call:
            tools.asked[fields.call] = cast("ToolRequested", event)
        elif event.type == "tool_finished" and "." not in fields.call:
            tools.ends[fields.call] = cast("ToolFinished", event)
            is_accepted = (fields.tool, fields.status) == (COMPLETE_TASK, "ok")
            tools.has_handed_in = tools.has_handed_in or is_accepted
        elif event.type == "thought" and not fields.within:
            tools.texts[fields.step, fields.kind] = fields.text
    return tools if tools.asked else None


def tape_tools(
    tools: ReplyTools, member: Member, step: int, tape: Tape, attached: Attached
) -> None:
    """Add the results of a reply's tools to a tape; a call that was not allowed has none."""
    for number, end in tools.ends.items():
        requested = tools.asked.get(number)
        if requested is None or end.status == "denied" or end.tool == COMPLETE_TASK:
            continue
        request = ToolRequest(member, end.reply, number, end.tool, requested.arguments)
        files = [attached(file, f"m{end.seq}", end.agent) for file in end.attachments]
        name = f"{end.tool.replace('.', '-').replace(':', '-')}-{number}.txt"
        full_texts = [file for file in files if file.name == name]
        text = str(full_texts[0].data) if full_texts else end.result
        attachments = [file for file in files if file not in full_texts]
        result = ToolResult(status=end.status, text=text, attachments=attachments)
        call = tape.tools.open(request, None, step)
        call.answer = ToolAnswer(result, end.diff, end.usage)


def keep_specs(member: Member, requests: Sequence[ToolRequested], tape: Tape) -> None:
    """Keep the names of an agent's tools: what its servers offered is in no transcript.

    An entry of `tools` that none of its calls matches has a tool of its own name.
    """
    needs_approval = {request.tool: bool(request.approval) for request in requests}
    specs = [
        ToolSpec(name=name, read_only=not approval) for name, approval in needs_approval.items()
    ]
    for entry in member.profile.tools:
        if isinstance(entry, str) and not any(is_named(name, entry) for name in needs_approval):
            specs.append(ToolSpec(name=entry.replace("*", "tool")))
    tape.tools.keep_specs(member.id, specs, tape.redactor)
