"""Call a planner that has tools: its loop, which belongs to no reply, and what it may call.

Its events are numbered by the chain (`p2`, and `p2.r2` if it is called once more), so that it
continues after a crash. Where a person decides about one of its acts, the chain pauses, and the
planner is called again with the decision.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.engine import plan_texts
from arena_cli.engine.plan import Planned, Room
from arena_cli.engine.side_calls import AgentAnswer
from arena_cli.engine.subagents import SubLoop, make_output
from arena_cli.engine.tool_steps import Acting
from arena_cli.engine.toolbox import CompleteTask, Toolbox
from arena_cli.errors import AgentUnavailable
from arena_cli.protocol import RUN_FLOW, TASK_LIST, TASK_UPDATE, AgentInput
from arena_cli.tools.base import Tool
from arena_cli.transcript.acting_events import AgentEnded
from arena_cli.transcript.control_events import ApprovalDecided, ApprovalRequested
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.workspace.acting import OutputSpec, RunLimits
from arena_cli.workspace.models import Member
from arena_cli.workspace.tool_entries import EXCHANGE_TOOLS

READING = frozenset(
    {
        "search_notes",
        "search_history",
        "check_patterns",
        "estimate_complexity",
        "list_members",
        "read_attachment",
        "read_file",
        "list_files",
        "find",
    }
)
"""The tools of a planner that is asked without consequences (`arena plan`)."""

_OF_REPLIES = frozenset(
    {
        *EXCHANGE_TOOLS,
        TASK_LIST,
        TASK_UPDATE,
        RUN_FLOW,
        "push_goal",
        "pop_goal",
        "split_goal",
    }
)
"""Tools that belong to a turn, or do the work: a planner has none of them."""

_OUTPUT = OutputSpec(name="plan", description="the plan", schema=plan_texts.PLAN_SCHEMA)


class PlannerCall(NamedTuple):
    """A call of the planner: its number, and its end if it has ended without a plan yet."""

    name: str
    end: AgentEnded | None = None


def find_call(chain: Chain) -> PlannerCall:
    """Return the call of the planner that is to be made or continued in the open chain."""
    count, end = 1, None
    waiting: set[int] = set()
    is_decided = False
    for event in chain.events:
        name = _name_call(chain, count)
        match event:
            case AgentEnded(reply=0, within=within) if within == name and event.mode != "aborted":
                end = event
            case PlanMade(call=call) if call == name:
                count, end = count + 1, None
            case ApprovalRequested(reply=0, in_message=False) if event.action != plan_texts.PLAN:
                waiting.add(event.request)
            case ApprovalDecided(request=request) if request in waiting:
                waiting.discard(request)
                is_decided |= end is not None and event.decision != "expired"
                if is_decided and not waiting:
                    count, end, is_decided = count + 1, None, False
            case _:
                pass
    return PlannerCall(_name_call(chain, count), end)


def _name_call(chain: Chain, count: int) -> str:
    return f"p{chain.number}" if count == 1 else f"p{chain.number}.r{count}"


class PlannerLoop(SubLoop):
    """The loop of a planner; it may also write its plan as text."""

    def _is_done(self, answer: Answer, acting: Acting) -> bool:
        return plan_texts.holds_plan(answer.output.content) or super()._is_done(answer, acting)


def prepare(planner: Member, seconds: float | None) -> Member:
    """Return the planner with an output, and within its time limit, if it has one."""
    profile = planner.profile
    changed: dict[str, object] = {}
    if profile.output is None:
        changed["output"] = _OUTPUT
    if seconds is not None:
        limits = profile.run or RunLimits()
        grace_s = min(limits.grace_s, seconds / 2)
        changed["run"] = limits.model_copy(update={"grace_s": grace_s})
        changed["timeout_s"] = seconds - grace_s
    return replace(planner, profile=profile.model_copy(update=changed))


async def consult(
    planner: Member,
    agent_input: AgentInput,
    input_tokens: int,
    room: Room,
    *,
    only_reads: bool,
) -> AgentAnswer:
    """Call the planner until it is done. It raises only CancelledError and DiskRefused."""
    chain = room.scene.fold.open
    assert chain is not None
    name, end = find_call(chain)
    if end is None:
        try:
            toolbox = await _open_toolbox(planner, room, only_reads=only_reads)
        except AgentUnavailable as error:
            return AgentAnswer("", str(error), None, {}, 0)
        planned = Planned(
            agent=planner.id,
            member=planner,
            reply=0,
            turn=0,
            phase="A",
            input=agent_input,
            input_hash=agent_input.input_hash,
            input_tokens=input_tokens,
            digests=(),
            notes=(),
            opener=chain.opening.message.author_id,
            reply_to=None,
        )
        heard = Heard(room.runtime.redactor, lambda _: None)
        loop = PlannerLoop(planner, room, planned, heard, toolbox, within=name)
        end = await loop.run_to_end(agent_input)
    if end.mode != "goal":
        return AgentAnswer("", make_output(end).text, end.usage, {})
    text = end.output if isinstance(end.output, str) else json.dumps(end.output, ensure_ascii=False)
    return AgentAnswer(text, "", end.usage, {})


async def _open_toolbox(planner: Member, room: Room, *, only_reads: bool) -> Toolbox:
    """Return the tools of a planner. Raises AgentUnavailable.

    If it is a member, too, its replies have no plan to hand in: their tools stay as they are.
    """
    own = room.scene.team.planner
    box = await room.tools.get(room).open(own or planner)
    output = planner.profile.output
    tools: list[Tool] = [box.complete_task or CompleteTask(output)] if output else []
    for tool in box.tools:
        name = tool.spec.name
        is_given = name in READING if only_reads else name not in _OF_REPLIES
        if is_given and tool is not box.complete_task:
            tools.append(tool)
    return Toolbox(tools)
