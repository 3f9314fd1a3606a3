"""Write and list the files of a workspace: `arena init`, `teams` and `schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from arena_cli.adapters import base
from arena_cli.cli import common
from arena_cli.cli.agents import ListAsJson
from arena_cli.scenarios import loader
from arena_cli.scenarios.result import build_result_schema
from arena_cli.util.text import escape_line
from arena_cli.workspace import scaffold
from arena_cli.workspace.schema import build_agent_schema, build_team_schema, build_workspace_schema


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder; created if it does not exist.")
    ] = Path(),
    template: Annotated[
        Literal["software", "incident", "discussion"],
        typer.Option(
            "--template",
            help="Choose the team: a software team in Chinese, incident triage in English, or "
            "a discussion of two agents in English.",
        ),
    ] = "software",
) -> None:
    """Create a small team that works offline, and two scenarios; overwrites nothing."""
    if not folder.is_absolute():
        common.current_folder()
    written = scaffold.write_workspace(folder, _schemas(), template)
    for path in written:
        common.print_line(path.as_posix())
    common.print_line("")
    if folder != Path():
        common.print_line(f'  cd "{folder}"')
    common.print_line(f'  arena send "{scaffold.FIRST_MESSAGES[template]}"')
    common.print_line("  arena run")


def teams(context: typer.Context, as_json: ListAsJson = False) -> None:
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
    if not found:
        common.warn("no team files; without one, every agent is in the team")
    for team in found:
        mark = " (default)" if team.name == loaded.file.team else ""
        members = ", ".join(member.id for member in team.members)
        facts = [f"{team.name}{mark}", members, team.description]
        common.print_line(" · ".join(escape_line(fact) for fact in facts if fact))


def schema(
    kind: Annotated[
        Literal["agent", "team", "scenario", "result"],
        typer.Argument(help="The kind of file; `result` is the output of `arena run --json`."),
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors and programs."""
    common.print_json(build_result_schema() if kind == "result" else _schemas()[kind])


def _schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of every kind of file."""
    kinds = {kind: base.settings_type(kind) for kind in base.list_kinds()}
    return {
        "agent": build_agent_schema({kind: shape for kind, shape in kinds.items() if shape}),
        "team": build_team_schema(),
        "scenario": loader.schema(),
        "workspace": build_workspace_schema(),
    }
