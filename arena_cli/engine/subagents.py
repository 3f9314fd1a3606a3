"""Agents as tools: `agent:reviewer` runs a colleague in a loop of its own, within a call.

Its events are nested in the caller's reply, approvals are asked in the caller's name, and its cost
counts to the chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.engine import call, plan, side_calls
from arena_cli.engine.plan import Room
from arena_cli.engine.tool_loop import ToolLoop
from arena_cli.engine.tool_steps import Acting
from arena_cli.engine.toolbox import EngineTool, Toolbox
from arena_cli.errors import AgentError, AgentUnavailable
from arena_cli.protocol import AgentInput, ToolSpec, Usage
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript.acting_events import AgentEnded, EndMode
from arena_cli.util.text import fill_template
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.inputs import fill_role, make_input_schema, make_query
from arena_cli.workspace.models import AGENT_TOOL, Member

DEEPEST = 3
"""An agent that is called as a tool may call another one, down to this depth."""

_TASK = "task"
_TASK_SCHEMA = {
    "type": "object",
    "properties": {
        _TASK: {"type": "string", "description": "The complete task; it is told nothing else."}
    },
    "required": [_TASK],
}
_LONGEST_ROLE = 300


class ColleagueSource:
    """The agents that a session's agents may call as tools."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool for the agent that an entry names."""
        agent = str(entry).removeprefix(AGENT_TOOL).strip()
        colleague = self._room.config.find_agent(agent) or self._room.scene.team.agent(agent)
        return [SubAgent(self._room, colleague, member).make_tool()] if colleague else []


class SubAgent:
    """Answers the calls of a tool that is another agent.

    It is idempotent because it continues: what it did before a restart is in its events.
    """

    def __init__(self, room: Room, member: Member, caller: Member) -> None:
        self._room = room
        self._member = member
        self._caller = caller

    def make_tool(self) -> Tool:
        """Return the tool, as the caller's model is shown it."""
        inputs = self._member.profile.inputs
        spec = ToolSpec(
            name=f"{AGENT_TOOL}{self._member.id}",
            description=_describe(self._member),
            input_schema=make_input_schema(inputs) if inputs else _TASK_SCHEMA,
        )
        return EngineTool(spec, self.call, internal=False)

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Run the agent until it is done; return its output, or why there is none."""
        if scope.call.count(".") + 1 > DEEPEST:
            raise ToolFailed(f"agents may call each other {DEEPEST} deep at most; do it yourself")
        inputs = dict(arguments)
        member = fill_role(self._member, inputs) if self._member.profile.inputs else self._member
        text = make_query(member, inputs) if member.profile.inputs else str(inputs[_TASK])
        toolbox = await self._open_toolbox(member)
        heard = self._listen(scope)
        loop = SubLoop(member, self._room, scope.planned, heard, toolbox, within=scope.call)
        ends = [
            event
            for event in loop.list_written()
            if isinstance(event, AgentEnded) and event.within == scope.call
        ]
        if ends and ends[-1].mode != "aborted":
            return make_output(ends[-1])
        agent_input = side_calls.make_input(member, text, self._room, author=self._caller)
        with contextlib.ExitStack() as held:
            # Those that it calls itself run within its place: they must not wait for it.
            if self._room.draw_subagent_place is not None and "." not in scope.call:
                agent_place = held.enter_context(self._room.draw_subagent_place(member.id))
                await call.wait_for_place(agent_place, scope.planned, self._room)
            return make_output(await loop.run_to_end(agent_input))

    def _listen(self, scope: ToolScope) -> Heard:
        """Return the receiver of its reports: its caller shows its text as it grows."""
        on_text, on_delta = self._room.on_text, self._room.config.on_delta
        return Heard(
            self._room.runtime.redactor,
            scope.report,
            on_text=partial(on_text, scope.planned.agent) if on_text else None,
            on_delta=partial(on_delta, self._member.id) if on_delta else None,
        )

    async def _open_toolbox(self, member: Member) -> Toolbox:
        if not member.profile.acts:
            return Toolbox(())
        try:
            return await self._room.tools.get(self._room).open(member)
        except AgentUnavailable as error:
            raise ToolFailed(str(error)) from error


class SubLoop(ToolLoop):
    """The loop of an agent that is called as a tool; it writes its own end."""

    _acting: Acting
    _settled = 0
    _text = ""

    async def run_to_end(self, agent_input: AgentInput) -> AgentEnded:
        """Run the agent, and write how it ended. Raises CancelledError, DiskRefused."""
        acting = self._acting = Acting(0.0)
        answer: Answer | None = None
        problem = ""
        mode: EndMode = "error"
        self._text = "\n".join(message.content for message in agent_input.messages)
        limit = plan.limit_s(self._member, self._room.scene.team)
        if self._member.profile.acts:
            limit -= self._limits.grace_s
        acting.ends_at = self._room.clock.monotonic() + limit - self._planned.waited_s
        try:
            await self.restore(acting)
            self._reserve()
            answer = await self._run(agent_input)
            mode = "error" if answer.declined else "goal"
            problem = f"{self._member.id} declined" if answer.declined else ""
        except AgentError as error:
            problem, mode = str(error), acting.closing or "error"
        except call.OutOfBudget as error:
            problem = f"{self._member.id} is not called: {error}"
        except asyncio.CancelledError:
            self._end("aborted", "", answer)
            raise
        return self._end(mode, problem, answer)

    async def _run(self, agent_input: AgentInput) -> Answer:
        """Run the loop; a failure of the adapter is tried again as in a reply."""
        member, room, failed = self._member, self._room, 0
        while True:
            try:
                sent = call.count_failed(agent_input, failed, agent_input.deadline_s or 0)
                return await self.run(sent, self._acting)
            except AgentError as error:
                left = self._seconds_left(self._acting)
                wait = side_calls.find_wait(error, failed, member, room, left)
                if wait is None:
                    raise
                failed += 1
                self._heard.forget()
                await room.clock.sleep(wait)

    def _end(self, mode: EndMode, problem: str, answer: Answer | None) -> AgentEnded:
        usages = self._heard.list_usage()
        if answer is not None:
            usages = [*usages, answer.output.usage or self._estimate_turn(answer.output.content)]
        usage = Usage.total(usages) if usages else None
        self._settle(usages)
        notes = self._heard.metadata(failed=answer is None)
        notes |= answer.output.metadata if answer else {}
        if problem:
            notes["error"] = problem
        output: Any = None
        spec = self._member.profile.output
        if self._acting.output is not None and (spec is None or not spec.process):
            output = self._acting.output[0]
        elif answer is not None and not answer.declined:
            output = answer.output.content
        return self._room.journal.write(
            AgentEnded,
            reply=self._planned.reply,
            agent=self._member.id,
            mode=mode,
            turns=self._acting.turns,
            output=output,
            within=self._within,
            usage=usage,
            metadata={"adapter": str(self._member.profile.adapter["type"]), **notes},
        )

    # The budget: each turn of its model is a question of the chain.

    def _record_usage(self) -> None:
        """Count the turn before its calls."""
        self._settle(self._heard.list_usage())

    def _admit(self) -> None:
        """Check that the budget allows the next turn. Raises OutOfBudget."""
        self._reserve()

    def _reserve(self) -> None:
        budget = self._room.control.budget
        if budget is None:
            return
        results = [result.text for step in self._acting.steps for result in step.results]
        if excess := budget.admit_question(self._member, "\n".join([self._text, *results])):
            raise call.OutOfBudget(f"the budget is used up: {excess}")

    def _settle(self, usages: list[Usage]) -> None:
        """Replace what was reserved by what its last turns used."""
        budget = self._room.control.budget
        if budget is not None:
            new = usages[self._settled :]
            budget.settle_question(self._member, Usage.total(new) if new else None)
        self._settled = len(usages)


def _describe(member: Member) -> str:
    """Return the description of an agent for its callers."""
    role = fill_template(member.role_prompt, lambda name: f"<{name}>")
    about = role.strip().partition("\n\n")[0][:_LONGEST_ROLE]
    skills = f" Skills: {', '.join(member.profile.skills)}." if member.profile.skills else ""
    output = member.profile.output
    gives = f" It returns {output.description or output.name}." if output else ""
    return (
        f"Ask {member.name}, another agent, which works by itself.{skills}{gives} {about}".strip()
    )


def make_output(end: AgentEnded) -> ToolOutput:
    """Return the result of the tool for the end of the agent."""
    if end.mode != "goal":
        problem = str(end.metadata.get("error") or f"{end.agent} did not finish: {end.mode}")
        return ToolOutput(problem, usage=end.usage, is_error=True)
    is_text = isinstance(end.output, str)
    text = end.output if is_text else json.dumps(end.output, ensure_ascii=False, indent=2)
    return ToolOutput(text or "(It answered nothing.)", usage=end.usage)
