"""The tool by which an agent runs a flow: one that it writes, or a file of the workspace.

The flow runs in a session of its own, whose first event names the call. So a call that was cut
short finds what it has done, and continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from arena_cli.adapters.base import FlowHost
from arena_cli.engine.plan import Room
from arena_cli.errors import ArenaError, UsageError
from arena_cli.flows import contacts, loader, step_rules
from arena_cli.flows.calls import AgentCalls, describe_run
from arena_cli.flows.loader import Flow, FlowStep
from arena_cli.flows.model import LEAF_KINDS
from arena_cli.flows.outcomes import FlowCaller, FlowResult, StepLog, read_log
from arena_cli.flows.runner import FlowRun
from arena_cli.protocol import RUN_FLOW, PermissionRequest, ToolSpec
from arena_cli.session import session, store
from arena_cli.session.session import Session
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript import reader
from arena_cli.transcript.acting_events import ActingEvent, ToolFinished, ToolRequested
from arena_cli.transcript.events import MessageEvent
from arena_cli.transcript.flow_events import FlowStarted
from arena_cli.util import files
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member, Team
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio.loader import dump_yaml

FILE = "flow.yaml"
"""The file with the flow that an agent wrote, in the flow's session."""

_WRITTEN = "the flow"
_LONGEST_NAME = 64

_SPEC = ToolSpec(
    name=RUN_FLOW,
    description="Run a flow: steps that need not ask you in between, independent ones side by "
    "side. Give `flow`, or `file` for a flow file of the workspace. A flow is "
    '{"flow": title, "inputs": {NAME: {}}, "steps": [...]}. A step has an `id` and one of '
    "`shell: [program, argument...]`, `http: {method, url, headers, body, expect}`, "
    "`sql: {database, run: [statement or {statement, values}]}`, `python: FILE.py:FUNCTION` with "
    "`inputs`, `agent: ID` with `message`, `send: TEXT` with `to: [ids]`, `container: {image, "
    "command}` or `{image, code}` (Python), `group: [steps]`, `each: LIST` with `steps` "
    "(`${item}`), `repeat: {until, max}` with `steps`, `choose: [{when, steps}]`, "
    "`flow: FILE`. Optional: `needs: [ids]`, `when` (an expression), "
    "`on_failure: retry|skip|abort`, `retries`, `timeout_s`. Values: `${steps.ID.output...}`, "
    "`${inputs.NAME}`. You are told how each step ended.",
    input_schema={
        "type": "object",
        "properties": {
            "flow": {"type": "object"},
            "file": {"type": "string", "description": "a path from the workspace"},
            "inputs": {"type": "object"},
        },
        "oneOf": [{"required": ["flow"]}, {"required": ["file"]}],
        "additionalProperties": False,
    },
)


class FlowSource:
    """The tool `run_flow` of a session's agents."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._running: set[tuple[int, str]] = set()

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:  # noqa: ARG002
        """Return the tool for that agent."""
        return [RunFlow(self._room, member, self._running)]

    async def stop(self) -> None:
        """End nothing: a flow ends with its call."""


class RunFlow:
    """The tool `run_flow` of one agent; it is idempotent because it continues.

    `running` are the calls of all agents that run now, by reply and number.
    """

    idempotent = True
    spec = _SPEC

    def __init__(self, room: Room, member: Member, running: set[tuple[int, str]]) -> None:
        self._room = room
        self._member = member
        self._running = running
        self._approved: dict[str, str] = {}  # the digest of the flow files, by the arguments

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        """Return the flow as people approve it; None if this call has begun it already.

        Raises ToolFailed if it is no valid flow.
        """
        flow, given = self._load(arguments)
        digests = dict(_list_digests(flow, self._room.workspace))
        digest = self._approved[_encode(arguments)] = _hash(digests)
        if self._is_begun(arguments, digest):
            return None
        shown = arguments.get("file") or flow.file.flow
        steps = dict(_describe_steps(flow.steps, ""))
        act: dict[str, Any] = {**arguments, "inputs": given, "steps": steps}
        if digests:
            act["sha256"] = digests
        detail = shown if "file" in arguments else f"{shown} ({len(steps)} steps)"
        return PermissionRequest(action=RUN_FLOW, detail=detail, tool=RUN_FLOW, arguments=act)

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Run the flow to its end; return its steps, their ends, and their outputs, cut."""
        place = (scope.reply, scope.call)
        name, log = self._find_session(*place)
        digest = _hash(dict(_list_digests(self._load(arguments)[0], self._room.workspace)))
        if self._approved.get(_encode(arguments), digest) != digest:
            raise ToolFailed("a file of the flow was changed since it was approved; call it again")
        caller = self._find_caller(*place)._replace(digest=digest)
        self._running.add(place)
        try:
            return await self._run(arguments, name, caller, log)
        except ArenaError as error:
            raise ToolFailed(str(error)) from error
        finally:
            self._running.discard(place)

    async def _run(
        self, arguments: Mapping[str, Any], name: str, caller: FlowCaller, log: StepLog | None
    ) -> ToolOutput:
        host, room = self._host(), self._room
        # Its sessions take places in another lane: the agent that waits for it holds one.
        config = replace(room.config, flows=None, lane="nested", ask_person=None, on_delta=None)
        with Session(config, name, Team(None, ())) as opened:
            host.on_session(name)
            flow, given = self._load(arguments, opened.folder)
            if log is not None and log.status in ("success", "failed"):
                return _make_output(flow, log.make_result([s.spec.id for s in flow.steps]), name)
            profiles = contacts.list_profiles(flow, host.workspace)
            calls = AgentCalls(
                host.workspace,
                config,
                team=room.scene.team,
                listen=lambda session_name, _: host.on_session(session_name),
                middlewares=lambda _: host.middlewares,
            )
            run = FlowRun(
                flow,
                opened.journal,
                config,
                calls,
                session=name,
                redactor=session.make_redactor(config, profiles, contacts.list_settings(flow)),
                earlier=log,
                caller=caller,
            )
            return _make_output(flow, await opened.last(run.run(given)), name)

    def _host(self) -> FlowHost:
        host = self._room.config.flows
        if host is None:
            raise ToolFailed("a flow that an agent runs cannot run another one; use its steps")
        return host

    def _load(
        self, arguments: Mapping[str, Any], folder: Path | None = None
    ) -> tuple[Flow, dict[str, Any]]:
        """Return the flow of a call with its inputs; one that is written is kept in `folder`.

        Raises ToolFailed.
        """
        workspace: Workspace = self._host().workspace
        team = self._room.scene.team
        try:
            if "file" in arguments:
                path = workspace.root / str(arguments["file"])
                if not files.is_inside(path, workspace.root):
                    raise ToolFailed(f"`{arguments['file']}` is not in the workspace")
                flow = loader.load(path, workspace, team)
            elif folder is None:
                flow = loader.load_text(dump_yaml(arguments["flow"]), _WRITTEN, workspace, team)
            else:
                path = folder / FILE
                if not path.is_file():
                    path.write_text(dump_yaml(arguments["flow"]), encoding="utf-8")
                flow = loader.load(path, workspace, team)
        except (ArenaError, OSError, ValueError) as error:
            raise ToolFailed(str(error)) from error
        try:
            given = loader.complete_inputs(flow, arguments.get("inputs", {}))
        except UsageError as error:
            raise ToolFailed(error.what) from error
        return loader.add_rules(flow, self._member.profile), given

    # The session of a call.

    def _find_caller(self, reply: int, call: str) -> FlowCaller:
        """Return what tells a call from those of all other sessions that had the same name."""
        stamps = [
            event.ts
            for event in self._list_events(reply)
            if isinstance(event, ToolRequested) and event.call == call
        ]
        key = " ".join([self._room.scene.session_id, str(reply), call, *stamps[-1:]])
        return FlowCaller(self._member.id, key, self._room.scene.team.name or "")

    def _list_events(self, reply: int) -> list[ActingEvent]:
        chain = self._room.scene.fold.open
        turn = chain.turns[-1] if chain and chain.turns else None
        return [
            event
            for event in (turn.side_events if turn else ())
            if isinstance(event, ActingEvent) and reply in (0, event.reply)
        ]

    def _is_begun(self, arguments: Mapping[str, Any], digest: str) -> bool:
        """Return True if a call was cut short after the same flow had begun, with these files."""
        events = self._list_events(0)
        ended = {(e.reply, e.call) for e in events if isinstance(e, ToolFinished)}
        return any(
            (log := self._find_session(event.reply, event.call)[1]) is not None
            and log.caller is not None
            and log.caller.digest == digest
            for event in events
            if isinstance(event, ToolRequested)
            and (event.tool, event.agent) == (RUN_FLOW, self._member.id)
            and event.arguments == arguments
            and (event.reply, event.call) not in ended | self._running
        )

    def _find_session(self, reply: int, call: str) -> tuple[str, StepLog | None]:
        """Return the name of the session of a call, and what it holds of the flow."""
        folder = store.sessions_folder(self._room.workspace)
        caller = self._find_caller(reply, call)
        for count in itertools.count(1):
            ending = f".flow-{reply}-{call.replace('.', '-')}{f'-{count}' if count > 1 else ''}"
            name = f"{self._room.scene.session_id[: _LONGEST_NAME - len(ending)]}{ending}"
            path = folder / name / store.TRANSCRIPT
            if not path.is_file():
                break
            events = [event for line in reader.read_lines(path) for event in line.events]
            log = read_log(events)
            is_unused = not any(isinstance(event, (FlowStarted, MessageEvent)) for event in events)
            is_same = log is not None and log.caller is not None and log.caller.key == caller.key
            if is_unused or is_same:
                return name, log
        return name, None


def _describe_steps(steps: tuple[FlowStep, ...], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the steps that do work, each with what it does, as it is written."""
    for step in steps:
        name = f"{prefix}{step.spec.id}"
        if step.spec.kind in LEAF_KINDS:
            work = step_rules.find_work(step.spec)
            yield name, step_rules.describe_work(step.spec.kind, work)
        for block in step.blocks:
            yield from _describe_steps(block, f"{name}.")
        if step.flow is not None:
            yield from _describe_steps(step.flow.steps, f"{name}.")


def _list_digests(flow: Flow, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the flow files of a flow with their SHA-256: another content is another act."""
    for inner in contacts.list_flows(flow):
        with contextlib.suppress(OSError):
            yield inner.name, hashlib.sha256((root / inner.name).read_bytes()).hexdigest()


def _hash(digests: Mapping[str, str]) -> str:
    """Return one digest for all files of a flow, "" if it has none."""
    return hashlib.sha256(_encode(digests).encode()).hexdigest() if digests else ""


def _encode(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)


def _make_output(flow: Flow, result: FlowResult, name: str) -> ToolOutput:
    text = describe_run(flow, result)
    if result.status == "paused":
        waits = ", ".join(result.waits)
        text += f"\n\nIt waits for a person (session {waits}); `arena resume {name}` continues it."
    return ToolOutput(f"session {name}\n{text}", is_error=result.status != "success")
