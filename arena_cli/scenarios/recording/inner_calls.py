"""Record and replay what tools and steps of flows gave, and find those that differ in a replay.

A call of a tool, or a step of a flow, gets the first unused record of its key (the scenario's step,
and the agent and the tool, or the name of the step) that asks for the same; else the next unused
one, which is drift; if none is left, it is a miss. A replay carries out no step of a flow: no
program, no request, no agent. Whether a step runs (`when`, rules, blocks) is decided again.

A replay also calls scripted tools, and agents that are called as tools, and compares what they
give. It calls the tools that change files in the copy of a folder that a scenario works in, so that
later calls find the changes; the model is shown what the recording has. Arena's own tools do not
pass here: a replay calls them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from arena_cli.adapters.runtime import ToolAnswer, ToolNext, ToolRequest
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import Attachment, ToolResult, ToolSpec, Usage
from arena_cli.scenarios.recording.model import (
    CaseRecord,
    RecordedStep,
    RecordedTool,
    dump_attachment,
    encode_data,
)
from arena_cli.scenarios.result import FLOW_STEP, TOOL, Drift
from arena_cli.transcript.events import Event
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.models import Member

WORK, ARGUMENTS, ANSWER = "work", "arguments", "answer"
REFLECTED = "reflected"

_AGENT = "agent:"
_CHANGE_FILES = frozenset({"write_file", "edit_file", "delete_file"})
_ENDS = ("step_finished", REFLECTED)
_LONGEST_CUT_S = 5.0

_Record = TypeVar("_Record", RecordedTool, RecordedStep)


def _take_record(
    unused: list[_Record], key: tuple[Any, ...], is_same: Callable[[_Record], bool]
) -> _Record | None:
    """Remove and return the first record of a key that is the same, else the first of the key."""
    records = [record for record in unused if record[: len(key)] == key]
    match = next(filter(is_same, records), next(iter(records), None))
    if match is not None:
        unused.remove(match)
    return match


@dataclass
class TapedTool:
    """A call of a tool that was made, and what it gave.

    `record` is the record that answered it, None if the tool was called or there was none.
    """

    session: str | None
    step: int | None
    request: ToolRequest
    answer: ToolAnswer | None = None
    record: RecordedTool | None = None
    is_missing: bool = False

    @property
    def agent(self) -> str:
        """The agent that called it."""
        return self.request.member.id

    @property
    def drifted(self) -> bool:
        """True if it was answered from a record of other arguments."""
        return self.record is not None and self.record.arguments != self.request.arguments

    @property
    def answers_otherwise(self) -> bool:
        """True if it was called in a replay, and gave something else than in the recording."""
        if self.record is None or self.answer is None or self.drifted:
            return False
        return show_answer(self.answer) != show_answer(read_answer(self.record))


class TapedTools:
    """The calls of tools of one scenario as it is played.

    `specs` are the tools of each agent by name, as its model was first shown them.
    """

    def __init__(self, recorded: CaseRecord | None, scripted: Collection[str] = ()) -> None:
        self.calls: list[TapedTool] = []
        self.specs: dict[str, dict[str, Any]] = {}
        self._recorded = recorded
        self._scripted = scripted
        self._unused = list(recorded.tools) if recorded else []
        self._by_number: dict[tuple[str | None, int, str], TapedTool] = {}

    def keep_specs(self, agent: str, tools: Sequence[ToolSpec], redactor: Redactor) -> None:
        """Keep the tools that an agent is shown."""
        specs = self.specs.setdefault(agent, {})
        for tool in tools:
            if tool.name not in specs:
                specs[tool.name] = dump_spec(tool, redactor)

    def name_specs(
        self, agent: str, tools: Sequence[ToolSpec], redactor: Redactor
    ) -> list[str | dict[str, Any]]:
        """Return the tools by their names; one that is not as it was first is written out."""
        first_specs = self.specs.get(agent, {})
        dumped = [dump_spec(tool, redactor) for tool in tools]
        return [spec["name"] if first_specs.get(spec["name"]) == spec else spec for spec in dumped]

    def list_offered(self, member: Member) -> list[ToolSpec]:
        """Return the tools of MCP servers that the agent had when it was recorded."""
        specs = self._recorded.specs(member.id) if self._recorded else ()
        servers = tuple(f"{server}." for server in member.profile.mcp)
        return [ToolSpec.model_validate(s) for s in specs if s["name"].startswith(servers)]

    def open(self, request: ToolRequest, session: str | None, step: int | None) -> TapedTool:
        """Begin a call, and select its record at once, so that the order of calls decides."""
        call = TapedTool(session, step, request)
        key = (step, call.agent, request.tool)
        call.record = _take_record(
            self._unused, key, lambda record: record.arguments == request.arguments
        )
        self._by_number[session, request.reply, request.call] = call
        self.calls.append(call)
        return call

    async def answer(
        self, call: TapedTool, call_next: ToolNext, *, may_call: Callable[[], bool], mend: str
    ) -> ToolAnswer:
        """Answer a call from its record, else by the tool itself.

        Raises AgentUnavailable for a miss, and what the tool raises.
        """
        request = call.request
        if call.record is not None and not self._runs_always(request.tool):
            if request.tool in _CHANGE_FILES:
                with contextlib.suppress(Exception):  # the recorded result counts
                    await call_next(request)
            call.answer = read_answer(call.record)
            return call.answer
        if not (self._runs_always(request.tool) or may_call()):
            call.is_missing = True
            scope = "over the whole scenario" if call.step is None else f"in step {call.step}"
            problem = f"its recording has no result of {request.tool} left {scope}"
            raise AgentUnavailable(call.agent, problem, mend=mend, again=False)
        call.answer = await call_next(request)
        return call.answer

    def _runs_always(self, tool: str) -> bool:
        if tool.startswith(_AGENT):  # a session that was promoted has no calls of the colleague
            called = tool.removeprefix(_AGENT)
            return self._recorded is None or called in self._recorded.called()
        return tool in self._scripted

    def find_answer(self, session: str | None, event: Event) -> dict[str, Any]:
        """Return what a recording keeps of a call, in addition to the event of its end."""
        if event.type != "tool_finished":
            return {}
        end: Any = event
        call = self._by_number.get((session, end.reply, end.call))
        if call is None:
            return {}
        fields: dict[str, Any] = {}
        if call.answer is not None:
            result = call.answer.result
            if result.text != end.result:
                fields["text"] = result.text
            if result.attachments:
                fields["attachments"] = [dump_attachment(file) for file in result.attachments]
        return {ANSWER: fields}


def dump_spec(tool: ToolSpec, redactor: Redactor) -> dict[str, Any]:
    """Return a tool as a recording keeps it."""
    return dict(redactor.value(tool.model_dump(mode="json")))


def read_answer(record: RecordedTool) -> ToolAnswer:
    """Return what a tool gave, as it was recorded."""
    line, fields = record.line, record.line[ANSWER]
    result = ToolResult(
        status=line["status"],
        text=fields.get("text", line["result"]),
        attachments=[
            Attachment.model_validate(encode_data(file)) for file in fields.get("attachments", ())
        ],
    )
    usage = Usage.model_validate(line["usage"]) if "usage" in line else None
    return ToolAnswer(result, line.get("diff", ""), usage)


def show_answer(answer: ToolAnswer) -> str:
    """Return what a tool gave as a text; a failure begins with its status."""
    result = answer.result
    return result.text if result.status == "ok" else f"{result.status}: {result.text}"


def list_changed_specs(
    recorded: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """Yield each tool that an agent has otherwise: its field, and its two descriptions.

    If only their order differs, that is all names.
    """
    old, new = ({spec["name"]: spec for spec in specs} for specs in (recorded, current))
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    for name in changed:
        yield f"{TOOL}{name}", _show_spec(old.get(name)), _show_spec(new.get(name))
    if not changed:
        yield "tools", ", ".join(old), ", ".join(new)


def _show_spec(spec: Mapping[str, Any] | None) -> str:
    if spec is None:
        return ""
    details = {key: value for key, value in spec.items() if key not in ("name", "description")}
    return f"{spec.get('description', '')}\n{json.dumps(details, ensure_ascii=False, indent=2)}"


def list_tool_drift(tools: TapedTools) -> Iterator[tuple[Drift, bool]]:
    """Yield the calls of tools that differ, once for each tool, and whether each is a cause.

    Arguments follow from what the model answered; another answer has no other cause.
    """
    seen: set[tuple[str, str]] = set()
    for call in tools.calls:
        for kind, drift in _compare(call):
            if (kind, call.request.tool) not in seen:
                seen.add((kind, call.request.tool))
                yield drift, kind == ANSWER


def _compare(call: TapedTool) -> Iterator[tuple[str, Drift]]:
    tool = f"{TOOL}{call.request.tool}"
    if call.is_missing:
        yield "miss", Drift(kind="miss", agent=call.agent, field=tool, step=call.step, calls=1)
    elif call.record is not None and call.drifted:
        texts = [
            json.dumps(arguments, ensure_ascii=False, sort_keys=True)
            for arguments in (call.record.arguments, call.request.arguments)
        ]
        field = f"{tool} {ARGUMENTS}"
        yield ARGUMENTS, _input(call, field, *texts)
    elif call.record is not None and call.answer is not None and call.answers_otherwise:
        texts = [show_answer(read_answer(call.record)), show_answer(call.answer)]
        yield ANSWER, _input(call, f"{tool} {ANSWER}", *texts)


def _input(call: TapedTool, field: str, recorded: str, current: str) -> Drift:
    return Drift(
        kind="input",
        agent=call.agent,
        field=field,
        before=recorded,
        after=current,
        step=call.step,
        calls=1,
    )


class NoRecord(Exception):
    """A step of a replay has no recorded result."""


@dataclass
class TapedStep:
    """A step of a flow that was carried out: what it did, and the record that answered it."""

    step: int | None
    name: str
    work: Mapping[str, Any]
    record: RecordedStep | None = None
    is_missing: bool = False
    answer: Any = None


class TapedSteps:
    """The steps of the flows of one scenario as it is played; `unused` are records of others."""

    def __init__(self, recorded: CaseRecord | None) -> None:
        self.calls: list[TapedStep] = []
        self.unused = list(recorded.flow_steps) if recorded else []
        self._last: dict[str, TapedStep] = {}
        self._ended: dict[tuple[str | None, int], TapedStep] = {}

    def begin(self) -> None:
        """Begin another flow."""
        self._last.clear()

    def hear(self, session: str | None, event: Event) -> None:
        """Note which attempt an event ends, so that its record has what the step did."""
        if event.type in _ENDS:
            call = self._last.pop(getattr(event, "step", REFLECTED), None)
            if call is not None:
                self._ended[session, event.seq] = call

    async def answer(
        self,
        name: str,
        step: int | None,
        work: Mapping[str, Any],
        carry_out: Callable[[], Awaitable[Any]],
        *,
        may_call: Callable[[], bool],
    ) -> RecordedStep | Any:
        """Return the record of a step, else what it gives if it is carried out now.

        Raises NoRecord, and what the work raises.
        """
        call = TapedStep(step, name, work)
        call.record = _take_record(self.unused, (step, name), lambda record: record.work == work)
        self.calls.append(call)
        self._last[name] = call
        if call.record is not None:
            if call.record.line.get("status") == "cancelled":
                await asyncio.sleep(_LONGEST_CUT_S)  # another step failed meanwhile
            return call.record
        if not may_call():
            call.is_missing = True
            raise NoRecord
        call.answer = await carry_out()
        return call.answer

    def find_work(self, session: str | None, event: Event) -> dict[str, Any]:
        """Return what a recording keeps of a step, in addition to the event of its end."""
        call = self._ended.get((session, event.seq))
        if call is None:
            return {}
        fields: dict[str, Any] = {WORK: call.work}
        if event.type == REFLECTED:
            record = call.record
            fields[ANSWER] = call.answer if record is None else record.line.get(ANSWER)
        return fields


def order_lines(events: list[Event]) -> list[Event]:
    """Return the events of a step of a scenario with those of each step of its flow together.

    Steps run side by side: their order differs from run to run. Later attempts are left out: a
    replay has the last one only.
    """
    events = [
        event
        for event in events
        if event.type != "step_started" or getattr(event, "attempt", 1) == 1
    ]
    places = [index for index, event in enumerate(events) if find_step(event) is not None]
    by_step = sorted((events[index] for index in places), key=lambda event: find_step(event) or "")
    ordered = list(events)
    for index, event in zip(places, by_step, strict=True):
        ordered[index] = event
    return ordered


def find_step(event: Event) -> str | None:
    """Return the step of a flow that an event is about; None if it is about none."""
    step = getattr(event, "step", None)
    return step if isinstance(step, str) and step else None


def list_step_drift(
    steps: TapedSteps, was_played: Callable[[int | None], bool]
) -> Iterator[tuple[Drift, bool]]:
    """Yield the steps that differ, each with whether it is a cause.

    What a step does may follow from outputs; so only the first one that differs is a cause.
    """
    is_cause = True
    for call in steps.calls:
        field = f"{FLOW_STEP}{call.name}"
        if call.is_missing:
            yield Drift(kind="miss", field=field, step=call.step, calls=1), is_cause
            is_cause = False
        elif call.record is not None and call.record.work != call.work:
            before, after = (
                json.dumps(work, ensure_ascii=False, indent=2)
                for work in (call.record.work, call.work)
            )
            drift = Drift(
                kind="input", field=field, before=before, after=after, step=call.step, calls=1
            )
            yield drift, is_cause
            is_cause = False
    for record in steps.unused:
        if was_played(record.step) and record.line.get("status") != "cancelled":
            field = f"{FLOW_STEP}{record.name}"
            yield Drift(kind="left_over", field=field, step=record.step, calls=1), is_cause
