"""Show what agents do now, what is used, and what waits for a person: `arena status`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli.cli import common, options
from arena_cli.reports.budgets import BudgetRow, budget_rows
from arena_cli.reports.columns import fit, pad, width_of
from arena_cli.reports.control_lines import describe_breaker, describe_pause
from arena_cli.reports.lines import INDENT, Words, clock, user_words
from arena_cli.session import status as session_status
from arena_cli.session import store
from arena_cli.session.status import (
    AgentStatus,
    DecisionCounts,
    LanePlace,
    LaneState,
    SessionStatus,
)
from arena_cli.transcript import reader
from arena_cli.transcript.spending import SpentByAgent, WorkspaceSpending
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.task_events import TaskBoard
    from arena_cli.workspace.models import Team

_WIDTH = 80
_NARROWEST_DETAIL = 24

OneSession = Annotated[
    str | None,
    options.session_argument(
        help="Show this session; by default all with an open chain, and the last one."
    ),
]


def status(
    context: typer.Context, session: OneSession = None, as_json: options.AsJson = False
) -> None:
    """Show the state of agents and sessions, and what waits for a person."""
    loaded = common.load_workspace(context)
    sessions: list[tuple[SessionStatus, list[BudgetRow]]] = []
    spending = WorkspaceSpending(store.sessions_folder(loaded.root), own="")
    for stored in _choose(context, session, loaded.root):
        team = common.find_team(loaded, stored)
        state = session_status.read_status(loaded.root, stored, team)
        sessions.append((state, _read_budget(stored, team, spending)))
    lane_states = session_status.list_lanes(loaded)
    shared = session_status.list_waiting_notes(loaded.root, None)
    if as_json:
        common.print_json(_make_document(sessions, lane_states, shared))
        return
    say = user_words()
    for state, budget in sessions:
        common.print_lines(_draw_session(state, budget, say))
    for lane in lane_states:
        common.print_lines(_draw_lane(lane, say))
    if shared:
        notes = say(", ").join(map(escape_line, shared))
        common.print_line(say("shared notes that wait for approval: {notes}", notes=notes))


def _choose(context: typer.Context, session: str | None, root: Path) -> list[Stored]:
    if session is not None:
        return [common.find_session(context, session)]
    sessions = store.stored(root)
    open_ones = [stored for stored in sessions if session_status.is_open(stored)]
    return open_ones or [store.last(root)]


def _read_budget(stored: Stored, team: Team, spending: WorkspaceSpending) -> list[BudgetRow]:
    """Return what is used of the team's budget now; no row if it has none.

    `spending` is that of all sessions; only what is new in their transcripts is read.
    """
    config = team.config.model_dump(mode="json", include={"budget"}, exclude_none=True)
    if not config.get("budget"):
        return []
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day = SpentByAgent()
    for session in spending.follow(midnight):
        day.add_all(session.of_day(f"{now:%Y-%m-%d}"))
    events = (event for line in reader.read_lines(stored.transcript) for event in line.events)
    return budget_rows(events, config, day=day)


def _make_document(
    sessions: Sequence[tuple[SessionStatus, list[BudgetRow]]],
    lane_states: Sequence[LaneState],
    shared: Sequence[str],
) -> dict[str, Any]:
    return {
        "sessions": [
            {**state.document(), "budget": [row.document() for row in budget]}
            for state, budget in sessions
        ],
        "lanes": [
            {
                "name": lane.name,
                "bound": lane.bound,
                "holders": [place._asdict() for place in lane.holders],
                "waiting": [place._asdict() for place in lane.waiting],
            }
            for lane in lane_states
        ],
        "shared_notes": list(shared),
    }


def _draw_session(state: SessionStatus, budget: Sequence[BudgetRow], say: Words) -> Iterator[str]:
    text = "session {session} · chain {chain} · {state}"
    if state.steps is not None:
        text = "session {session} · flow · {state}"
    name, word = escape_line(state.session), say.enum(state.state)
    heading = say(text, session=name, chain=state.chain, state=word)
    detail = f"{say(': ')}{describe_pause(state.detail, say)}" if state.detail else ""
    yield f"{heading}{detail}"
    if state.supervisor:
        text = "mode {mode}: {who} decides which agents reply"
        who = escape_line(state.supervisor)
        yield INDENT + say(text, mode=say.enum(state.mode), who=who)
    if state.plan:
        work_lines = import_module("arena_cli.reports.work_lines")
        yield work_lines.render_plan(state.plan, say, escape_line).text
    if state.steps is None:
        yield from _draw_agents(state.agents, say)
    elif state.steps:
        text = "steps that run: {steps}"
        if state.state != "running":
            text = "steps that were cut short: {steps}"
        yield INDENT + say(text, steps=say(", ").join(map(escape_line, state.steps)))
    for breaker in state.breakers:
        yield INDENT + describe_breaker(breaker, say, escape_line(breaker.agent))
    for request in state.requests:
        asked = request.asked
        text = "request {request} of {agent} waits: {action}: {detail}"
        values = {"agent": escape_line(asked.agent), "action": escape_line(asked.action)}
        detail = fit(escape_line(asked.detail), _WIDTH)
        yield INDENT + say(text, request=asked.request, **values, detail=detail)
    if state.tasks:
        yield from _draw_tasks(state.tasks, say)
    if state.notes:
        notes = say(", ").join(map(escape_line, state.notes))
        yield INDENT + say("notes that wait for approval: {notes}", notes=notes)
    for row in budget:
        yield INDENT + say("budget of the {row}", row=row.describe(say))
    yield from _draw_decisions(state, say)


def _draw_tasks(board: TaskBoard, say: Words) -> Iterator[str]:
    """Yield a line with the number of tasks by status, and one for each that an agent works on."""
    work_lines = import_module("arena_cli.reports.work_lines")
    counts = work_lines.describe_counts(work_lines.count_tasks(board), say)
    yield INDENT + say("tasks: {counts}", counts=counts)
    for task in board.tasks.values():
        if task.status == "running":
            text = "{agent} works on {task}: {title}"
            values = {"agent": escape_line(task.assigned_to), "task": escape_line(task.id)}
            title = fit(escape_line(task.title), _WIDTH)
            yield INDENT * 2 + say(text, **values, title=title)


def _draw_agents(agents: Sequence[AgentStatus], say: Words) -> Iterator[str]:
    """Yield a row for each agent; its detail is cut at the width of the terminal."""
    names = [escape_line(agent.agent) for agent in agents]
    states = [say.enum(agent.state) for agent in agents]
    times = [
        say("since {time}", time=clock(agent.since)) if agent.since else "" for agent in agents
    ]
    widths = [max(map(width_of, column), default=0) for column in (names, states, times)]
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    for agent, *cells in zip(agents, names, states, times, strict=True):
        padded = [pad(cell, room) for cell, room in zip(cells, widths, strict=True) if room]
        row = INDENT + INDENT.join(padded) + INDENT
        room = max(width - width_of(row), _NARROWEST_DETAIL)
        yield f"{row}{fit(_describe_activity(agent, say), room)}".rstrip()


def _describe_activity(agent: AgentStatus, say: Words) -> str:
    if agent.request:
        action = escape_line(agent.detail)
        return say("request {request}: {action}", request=agent.request, action=action)
    is_message = agent.state in ("error", "waiting")
    detail = "" if agent.detail == "success" else escape_line(agent.detail)
    if is_message:
        detail = say.message(detail)
    else:  # a word of what it does, and on what: `calling_tool: read_file`
        word, colon, rest = detail.partition(": ")
        detail = f"{say.enum(word)}{say(': ')}{rest}" if colon else say.enum(word)
    turn = say("turn {turn}", turn=agent.turn) if agent.turn else ""
    return say(": ").join(filter(None, (turn, detail)))


def _draw_decisions(state: SessionStatus, say: Words) -> Iterator[str]:
    def describe(text: str, counts: DecisionCounts) -> str:
        rate = f"{counts.rate * 100:.0f}"
        numbers = {"count": counts.decisions, "rejected": counts.rejected, "rate": rate}
        return say(text, agent=escape_line(counts.agent), **numbers)

    if state.decisions:
        yield INDENT + describe(
            "decisions: {count}, {rejected} rejected ({rate} %)", state.all_decisions
        )
    for counts in state.decisions:
        yield INDENT * 2 + describe("{agent}: {count}, {rejected} rejected ({rate} %)", counts)


def _draw_lane(lane: LaneState, say: Words) -> Iterator[str]:
    text = "lane {lane} · {count} of {bound} places taken"
    yield say(text, lane=lane.name, count=len(lane.holders), bound=lane.bound)
    text = "{agent} in session {session} since {time}"
    yield from (INDENT + _describe_place(text, place, say) for place in lane.holders)
    text = "waits: {agent} in session {session} since {time}"
    yield from (INDENT + _describe_place(text, place, say) for place in lane.waiting)


def _describe_place(text: str, place: LanePlace, say: Words) -> str:
    if not place.agent:
        return say("a place that is being taken")
    agent, session = escape_line(place.agent), escape_line(place.session)
    return say(text, agent=agent, session=session, time=clock(place.since))
