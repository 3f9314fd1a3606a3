"""Ask the planner of a team how it would do some work, and do nothing: `arena plan`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from arena_cli import errors
from arena_cli.cli import common, options, trust
from arena_cli.cli.options import Author, FromFile, OneTeam
from arena_cli.errors import UsageError
from arena_cli.reports import work_lines
from arena_cli.reports.lines import user_words
from arena_cli.session import outgoing, plan_preview, store
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.workspace.models import Team

Message = Annotated[
    str | None, typer.Argument(help="Plan this message; `-` or none reads standard input.")
]
InSession = Annotated[
    str | None,
    options.session_option(
        help="Plan it as the next message of this session.", rich_help_panel="Conversation"
    ),
]
AsJson = Annotated[bool, options.output_option("--json", help="Print the plan as JSON.")]


def plan(
    context: typer.Context,
    message: Message = None,
    session: InSession = None,
    team: OneTeam = None,
    author: Author = None,
    file: FromFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask the planner of the team how it would do some work. No other agent is called.

    Nothing is written: `arena send --plan` plans again, and carries it out. Exit code 1: the
    answer is no plan that could be carried out.
    """
    loaded = common.load_workspace(context)
    stored = store.find(loaded.root, session) if session is not None else None
    members = common.find_team(loaded, stored, team)
    planner = require_planner(members)
    content = common.read_message(message, file)
    sent = outgoing.outgoing(members, content, author=author)
    if limits := members.config.budget:
        budget = import_module("arena_cli.engine.budget")
        budget.check_prices(limits, (*members.agents, *loaded.memory_agents), loaded.file.models)
    config = trust.live_place(loaded, [planner.profile], wait_s=0)
    work = plan_preview.preview_plan(config, stored.name if stored else None, members, sent)
    planned = common.run(work, hint="")
    if as_json:
        common.print_json(make_document(planned))
    else:
        _print_plan(planned, members)
    if planned.fallback:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def require_planner(team: Team) -> Any:
    """Return the planner of a team. Raises UsageError if it has none."""
    if team.planner is None:
        name = f"team {team.name}" if team.name else "the team of all agents"
        raise UsageError(f"{name} has no planner", "Name one: `planner: AGENT` in its config.")
    return team.planner


def make_document(planned: PlanMade) -> dict[str, Any]:
    """Return a plan as JSON."""
    left_out = {"seq", "ts", "type", "chain", "metadata", "attempts", "replan", "failed"}
    return planned.model_dump(mode="json", exclude=left_out)


def _print_plan(planned: PlanMade, team: Team) -> None:
    say = user_words()
    names = {member.id: member.name for member in team.agents}

    def name(agent: str) -> str:
        return names.get(agent, agent)

    for row in (
        work_lines.render_plan(planned, say, name),
        *work_lines.list_plan(planned, say, name),
    ):
        common.print_line(row.text)
