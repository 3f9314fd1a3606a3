"""`init`, `agents`, `teams`, `schema`: the files of a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arena_cli.cli import common, interrupt
from arena_cli.ground import exits

if TYPE_CHECKING:
    from arena_cli.team.model import AgentProfile
    from arena_cli.team.search import Match
    from arena_cli.team.workspace import Workspace

ListAsJson = Annotated[bool, typer.Option("--json", help="Print one JSON list.")]

agents_app = typer.Typer(help="List, find or check the agents.", rich_markup_mode=None)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where; it is made if it is not there.")
    ] = Path(),
    template: Annotated[
        Literal["software", "incident"],
        typer.Option(
            "--template",
            help="Which team: a software team in Chinese, or incident triage in English.",
        ),
    ] = "software",
) -> None:
    """Write a small team that works offline, and two scenarios; nothing is overwritten."""
    from arena_cli.team import init as files

    if not folder.is_absolute():
        common.here()
    written = files.write(folder, _schemas(), template)
    for path in written:
        common.say(path.as_posix())
    common.say("")
    if folder != Path():
        common.say(f'  cd "{folder}"')
    common.say(f'  arena send "{files.FIRST_WORDS[template]}"')
    common.say("  arena run")


@agents_app.callback(invoke_without_command=True)
def agents(context: typer.Context, as_json: ListAsJson = False) -> None:
    """List the agents of the workspace."""
    if context.invoked_subcommand is not None:
        return
    loaded = common.workspace_of(context)
    profiles = loaded.profiles.values()
    if as_json:
        common.say_json([profile.model_dump() for profile in profiles])
        return
    if not profiles:
        common.warn("no agents yet; `arena init` writes four that work offline")
    for profile in profiles:
        common.say(_line_of(profile))


def _line_of(profile: AgentProfile, *more: str) -> str:
    from arena_cli.ground.text import shown_line

    facts = [
        f"{profile.avatar} {profile.name or profile.agent_id}".strip(),
        f"@{profile.agent_id}",
        str(profile.adapter["type"]),
        ", ".join(profile.skills),
        "" if profile.member else "not a member",
        *more,
    ]
    return " · ".join(shown_line(fact) for fact in facts if fact)


@agents_app.command("find")
def find(
    context: typer.Context,
    keywords: Annotated[
        list[str],
        typer.Argument(metavar="KEYWORD", help="What one of them should know or be called."),
    ],
    as_json: ListAsJson = False,
) -> None:
    """Find agents by skill, keyword, name or role prompt, best first. Exits 1 if there is none."""
    from arena_cli.team import search

    found = search.find(common.workspace_of(context).loaded.values(), keywords)
    if as_json:
        common.say_json(
            [
                {**one.profile.model_dump(), "matches": [match._asdict() for match in one.matches]}
                for one in found
            ]
        )
    for one in found if not as_json else ():
        common.say(_line_of(one.profile, f"found: {', '.join(map(_told, one.matches))}"))
    if not found:
        common.warn("no agent matches; `arena agents` lists all of them with their skills")
        raise typer.Exit(exits.NOT_HELD)


def _told(match: Match) -> str:
    if match.place == "role_prompt":
        return f"{match.keyword} in its role prompt"
    return f"{match.place} {match.text}"


@agents_app.command("check")
def check(context: typer.Context) -> None:
    """Check every file of the workspace and ask each agent whether it could be called now."""
    from arena_cli.scenario.load import select

    loaded, _ = common.scenarios_of(context, select.everything(common.root_of(context)))
    for warning in loaded.warnings:
        common.warn(f"warning: {warning}")
    if not print_health(loaded):
        raise typer.Exit(exits.NOT_HELD)


def print_health(loaded: Workspace) -> bool:
    """A line per agent; whether all of them could be called."""
    from arena_cli.ground.text import shown_line
    from arena_cli.session import health

    sound = True
    place = common.place_of(loaded, wait_s=0)
    asked = health.of(place, loaded.profiles.values())
    for agent, one in interrupt.run(asked, hint="").items():
        sound = sound and one.ok
        state = "ok" if one.ok else "NOT OK"
        detail = f" · {shown_line(one.detail)}" if one.detail else ""
        common.say(f"{state:6} {shown_line(agent)}{detail}")
    return sound


def teams(context: typer.Context, as_json: ListAsJson = False) -> None:
    """List the teams of the workspace."""
    from arena_cli.ground.text import shown_line

    loaded = common.workspace_of(context)
    found = [loaded.team(name) for name in loaded.teams]
    if as_json:
        common.say_json(
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
        common.say(" · ".join(shown_line(fact) for fact in facts if fact))


def schema(
    kind: Annotated[
        Literal["agent", "team", "scenario"], typer.Argument(help="Which kind of file.")
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    common.say_json(_schemas()[kind])


def _schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of every kind of file."""
    from arena_cli.adapters import registry
    from arena_cli.scenario.load import file as scenario_file
    from arena_cli.team import schema as schemas

    kinds = {kind: registry.settings_type(kind) for kind in registry.known()}
    return {
        "agent": schemas.agent({kind: shape for kind, shape in kinds.items() if shape}),
        "team": schemas.team(),
        "scenario": scenario_file.schema(),
        "workspace": schemas.workspace(),
    }
