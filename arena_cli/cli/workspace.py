"""Write and list the files of a workspace: `arena init`, `teams` and `schema`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arena_cli.adapters import base
from arena_cli.cli import common, options
from arena_cli.errors import UsageError
from arena_cli.reports import lines
from arena_cli.scenarios import loader
from arena_cli.scenarios.result import build_result_schema
from arena_cli.util.text import escape_line
from arena_cli.workspace import scaffold
from arena_cli.workspace.schema import build_agent_schema, build_team_schema, build_workspace_schema

if TYPE_CHECKING:
    from arena_cli.reports.lines import Words


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Write into this folder; create it if it does not exist."
        ),
    ] = Path(),
    template: Annotated[
        Literal["software", "incident", "discussion", "investigate", "build"] | None,
        typer.Option(
            "--template",
            metavar="NAME",
            help="Choose the team: `software` (the default), `incident` response, a "
            "`discussion` of two agents, `investigate`: an agent that reads code with tools, or "
            "`build`: a planner and a team that builds what it plans. In a terminal, arena asks.",
        ),
    ] = None,
    language: Annotated[
        Literal["en", "zh"] | None,
        typer.Option(
            "--language", help="Choose the language of the team; by default that of the locale."
        ),
    ] = None,
) -> None:
    """Create a small team that works offline, and two scenarios; overwrites nothing."""
    if not folder.is_absolute():
        common.current_folder()
    say = lines.user_words()
    template = template or _ask_template(say)
    language = language or say.language
    written = scaffold.write_workspace(folder, _schemas(), template, language)
    for path in written:
        common.print_line(path.as_posix())
    common.print_line("")
    if folder != Path():
        common.print_line(f'  cd "{folder}"')
    common.print_line(f'  arena send "{scaffold.FIRST_MESSAGES[template, language]}"')
    if (template, language) in scaffold.FIRST_RUNS:
        common.print_line(f"  arena agents run {scaffold.FIRST_RUNS[template, language]}")
    common.print_line("  arena run")


def _ask_template(say: Words) -> scaffold.TemplateName:
    """Ask for a template by number or name; the first one without a terminal."""
    names = list(scaffold.TEMPLATES)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return names[0]
    for number, (name, description) in enumerate(scaffold.TEMPLATES.items(), 1):
        common.warn(f"  {number}  {name}: {say(description)}")
    while True:
        common.warn(say("Which template? Press Enter for 1."))
        answer = sys.stdin.readline()
        choice = answer.strip().casefold()
        if not answer:
            raise UsageError("no template was chosen", "Give one: `arena init --template NAME`.")
        if not choice:
            return names[0]
        if choice in names:
            return names[names.index(choice)]
        if choice.isdecimal() and 1 <= int(choice) <= len(names):
            return names[int(choice) - 1]


def teams(context: typer.Context, as_json: options.ListAsJson = False) -> None:
    """List the teams of the workspace."""
    loaded = common.load_workspace(context)
    found = [loaded.team(name) for name in loaded.teams]
    if as_json:
        common.print_json(
            [
                {
                    "team": team.name,
                    "description": team.description,
                    "members": [member.id for member in team.members],
                    "humans": [human.model_dump() for human in team.humans],
                    "config": team.config.model_dump(),
                }
                for team in found
            ]
        )
        return
    say = lines.user_words()
    if not found:
        common.warn("no team files; without one, every agent is in the team")
    for team in found:
        mark = say(" (default)") if team.name == loaded.file.team else ""
        members = ", ".join(member.id for member in team.members)
        facts = [f"{team.name}{mark}", members, team.description]
        common.print_line(" · ".join(escape_line(fact) for fact in facts if fact))


def schema(
    kind: Annotated[
        Literal["agent", "team", "scenario", "workspace", "result"],
        typer.Argument(
            help="Choose the kind of file; `workspace` is `arena.yaml`, `result` the output of "
            "`arena run --json`."
        ),
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors and programs."""
    common.print_json(build_result_schema() if kind == "result" else _schemas()[kind])


def _schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of all kinds of files."""
    kinds = {kind: base.settings_type(kind) for kind in base.list_kinds()}
    return {
        "agent": build_agent_schema({kind: shape for kind, shape in kinds.items() if shape}),
        "team": build_team_schema(),
        "scenario": loader.schema(),
        "workspace": build_workspace_schema(),
    }
