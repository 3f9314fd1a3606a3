"""List, find, add, check and test agents: `arena agents`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli import errors
from arena_cli.adapters import base, pricing
from arena_cli.adapters.base import Health
from arena_cli.adapters.http import without_login
from arena_cli.adapters.process.run import ProgramSettings
from arena_cli.cli import agent_run, command_line, common, options, trust
from arena_cli.context import tokens
from arena_cli.context.window import sizes
from arena_cli.errors import FileFaults, UsageError
from arena_cli.reports import lines
from arena_cli.reports.lines import INDENT
from arena_cli.scenarios import select
from arena_cli.session import one_shot, store
from arena_cli.util import language
from arena_cli.util.redaction import is_secret_key
from arena_cli.util.text import cut_text, display_width, escape_line
from arena_cli.workspace import agents as profiles
from arena_cli.workspace import relevance, scaffold, workspace
from arena_cli.workspace.agents import read_dotenv
from arena_cli.workspace.workspace import Workspace

if TYPE_CHECKING:
    from arena_cli.adapters.pricing import Known
    from arena_cli.reports.lines import Words
    from arena_cli.session.one_shot import ServerCheck
    from arena_cli.workspace.models import AgentProfile
    from arena_cli.workspace.relevance import KeywordMatch
    from arena_cli.workspace.scaffold import Newcomer


NewId = Annotated[
    str, typer.Argument(metavar="ID", help="Name the agent by this id; mention it as @ID.")
]
Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND",
        help="Run this program with its arguments, after `--`, for the kinds cli and acp.",
    ),
]
Kind = Annotated[
    str,
    options.adapter_option(
        "--adapter",
        metavar="KIND",
        help="Use this kind of adapter: anthropic, openai, claude_code, codex, gemini, "
        "cursor, opencode, pi, acp, cli, python or scripted.",
        autocompletion=command_line.complete_kinds,
    ),
]
Model = Annotated[str | None, options.adapter_option("--model", help="Use this model.")]
Preset = Annotated[
    str | None,
    options.adapter_option(
        "--preset",
        help="Use this known server (openai: ollama, vllm, llamacpp, lmstudio, deepseek, "
        "qwen, openrouter) or program (acp: claude, codex, gemini, cursor, opencode).",
    ),
]
Name = Annotated[
    str, options.profile_option("--name", help="Show this name; it can be mentioned like the id.")
]
Role = Annotated[str, options.profile_option("--role", metavar="TEXT", help="Set the role prompt.")]
Setting = Annotated[
    list[str] | None,
    options.adapter_option(
        "--set",
        metavar="KEY=VALUE",
        help="Set another key of the adapter, with dots for nested keys; the value is "
        "YAML; repeatable.",
    ),
]
Cwd = Annotated[
    str | None,
    options.adapter_option(
        "--cwd",
        metavar="DIR",
        help="Run its program in this folder, relative to the workspace; by default "
        "`work/ID`, created when needed.",
    ),
]
NewTeam = Annotated[
    str | None,
    options.team_option(
        help="Add it to this team; by default the team of arena.yaml.", rich_help_panel="Profile"
    ),
]
OneAgent = Annotated[
    str, options.agent_argument(metavar="AGENT", help="Call this agent, by id or name.")
]
Connect = Annotated[
    bool,
    typer.Option(
        "--connect", help="Fill in variables and contact servers; requires a trusted workspace."
    ),
]

agents_app = command_line.App(
    help="List, find, add, check or test agents.",
)


@agents_app.callback(invoke_without_command=True)
def agents(context: typer.Context, as_json: options.ListAsJson = False) -> None:
    """List the agents of the workspace."""
    if context.invoked_subcommand is not None:
        return
    loaded = common.load_workspace(context)
    profiles = loaded.profiles.values()
    if as_json:
        common.print_json([profile.model_dump() for profile in profiles])
        return
    if not profiles:
        common.warn(
            "no agents yet; `arena agents add` adds one, `arena init` creates four "
            "that work offline"
        )
    for profile in profiles:
        common.print_line(_line_of(profile))


def _line_of(profile: AgentProfile, *columns: str) -> str:
    say = lines.user_words()
    facts = [
        f"{profile.avatar} {profile.name or profile.agent_id}".strip(),
        f"@{profile.agent_id}",
        str(profile.adapter["type"]),
        ", ".join(profile.skills),
        "" if profile.member else say("not a member"),
        *columns,
    ]
    return " · ".join(escape_line(fact) for fact in facts if fact)


@agents_app.command("find")
def find(
    context: typer.Context,
    keywords: Annotated[
        list[str],
        typer.Argument(
            metavar="KEYWORD", help="Search for this skill, keyword, name or word of a role prompt."
        ),
    ],
    as_json: options.ListAsJson = False,
) -> None:
    """Find agents by skill, keyword, name or role prompt, best first. Exits 1 if none matches."""
    matches = relevance.find_agents(common.load_workspace(context).loaded.values(), keywords)
    if as_json:
        common.print_json(
            [
                {
                    **agent_match.profile.model_dump(),
                    "matches": [match._asdict() for match in agent_match.matches],
                }
                for agent_match in matches
            ]
        )
    say = lines.user_words()
    for agent_match in matches if not as_json else ():
        words = say(", ").join(_describe_match(match, say) for match in agent_match.matches)
        common.print_line(_line_of(agent_match.profile, say("found: {words}", words=words)))
    if not matches:
        common.warn("no agent matches; `arena agents` lists all of them with their skills")
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _describe_match(match: KeywordMatch, say: Words) -> str:
    if match.place == "role_prompt":
        return say("{word} in its role prompt", word=match.keyword)
    return f"{say(match.place)} {match.text}"


@agents_app.command("check")
def check(
    context: typer.Context, connect: Connect = False, as_json: options.ListAsJson = False
) -> None:
    """Check every file of the workspace and whether each agent could be called now.

    Without --connect it starts and contacts nothing. With it, each MCP server is started once, and
    its tools are listed.
    """
    outside = context.obj.allow_outside
    files = select.everything(common.find_root(context), anywhere=outside)
    loaded, (scenarios, broken) = common.load_scenarios(context, files)
    if broken:
        raise FileFaults([fault for one in broken for fault in one.faults])
    for warning in loaded.warnings:
        common.warn(f"warning: {warning}")
    common.warn_of_faults(fault for one in scenarios for fault in one.warnings)
    _tell_folders(loaded)
    _warn_of_unnamed(loaded)
    if connect:
        trust.require_agents(loaded)
    if as_json:
        sound = _print_checks(loaded, connect=connect)
    else:
        sound = print_health(loaded, connect=connect)
        offers = _check_servers(loaded, connect=connect)
        _print_servers(offers)
        sound = sound and all(check.health.ok for checks in offers.values() for check in checks)
        _tell_models(loaded)
    _tell_windows(loaded)
    if not sound:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _tell_folders(loaded: Workspace) -> None:
    """Print a warning per agent whose program runs where keys or sessions are."""
    for agent_id, names in store.list_exposed(loaded).items():
        agent = escape_line(agent_id)
        common.warn(
            f"warning: {agent}: its program can read {' and '.join(names)} of the workspace from"
            f" its `cwd`\n  give it a folder of its own: `cwd: work/{agent}`"
        )


def _tell_models(loaded: Workspace) -> None:
    """Print a line per agent behind an API with the known facts of its model and their sources."""
    for agent_id, profile in loaded.profiles.items():
        model_facts = pricing.find_model_facts(profile.adapter, loaded.file.models)
        if model_facts is None:
            continue
        agent, model = escape_line(agent_id), escape_line(model_facts.model)
        say = lines.user_words()
        facts = (agent, say("model {model}", model=model), _told_of(model_facts, profile, say))
        common.print_line(f"       {' · '.join(facts)}")
        window_tokens = profile.context.window_tokens
        if model_facts.window_tokens is not None and window_tokens > model_facts.window_tokens:
            common.warn(
                f"warning: {agent}: its `context.window_tokens` is {window_tokens}, "
                f"more than the {model_facts.window_tokens} tokens that "
                f"{model} accepts, according to {model_facts.window_from}"
            )


def _tell_windows(loaded: Workspace) -> None:
    """Print a warning per agent whose role leaves no room for messages."""
    for agent_id, agent in loaded.loaded.items():
        facts = pricing.find_model_facts(agent.profile.adapter, loaded.file.models)
        takes, reserved = sizes(agent.profile.context, facts.window_tokens if facts else None)
        room = takes - reserved
        role = tokens.estimate(agent.role_prompt)
        if role >= room:
            common.warn(
                f"warning: {escape_line(agent_id)}: its `role_prompt` takes "
                f"~{role} tokens and its window has room for {room}, so it is shown "
                "only the newest messages\n  shorten it, or raise "
                "`context.window_tokens`"
            )


def _told_of(facts: Known, profile: AgentProfile, say: Words) -> str:
    """Describe the window that arena uses, the smaller of two, and the source of the price."""
    window_tokens, source = profile.context.window_tokens, "context.window_tokens"
    if facts.window_tokens is None:
        source = say("assumed, from its profile")
    elif facts.window_tokens < window_tokens:
        window_tokens, source = facts.window_tokens, say(facts.window_from)
    window = say("window {count} tokens ({source})", count=window_tokens, source=source)
    price = say("price unknown")
    if facts.price_from:
        price = say("price from {source}", source=say(facts.price_from))
    is_all = facts.window_from and facts.price_from
    return f"{window} · {price}" + ("" if is_all else say(" (set `models` in arena.yaml)"))


def _print_checks(loaded: Workspace, *, connect: bool) -> bool:
    """Print the health of all agents and their MCP servers as JSON; return True if all are."""
    offers = _check_servers(loaded, connect=connect)
    checks = [
        {"agent": agent, **health._asdict(), "mcp": _dump_servers(offers.get(agent, []))}
        for agent, health in _find_health(loaded, connect=connect).items()
    ]
    common.print_json(checks)
    return all(check["ok"] and all(server["ok"] for server in check["mcp"]) for check in checks)


def _find_health(loaded: Workspace, *agents: str, connect: bool) -> dict[str, Health]:
    config = common.make_config(loaded, wait_s=0, connects=connect)
    profiles = [loaded.profiles[agent] for agent in agents or loaded.profiles]
    health: dict[str, Health] = common.run(one_shot.check_health(config, profiles), hint="")
    return health


def print_health(loaded: Workspace, *agents: str, connect: bool) -> bool:
    """Print a line per agent, of all or of these; return True if all of them can be called.

    To `connect`, the workspace must be trusted.
    """
    sound = True
    say = lines.user_words()
    for agent, health in _find_health(loaded, *agents, connect=connect).items():
        sound = sound and health.ok
        state = say("ok") if health.ok else say("NOT OK")
        problem = language.translate_message(health.detail.removeprefix(f"{agent}: "))
        detail = f" · {escape_line(problem)}" if problem else ""
        state += " " * (6 - display_width(state))
        common.print_line(f"{state} {escape_line(agent)}{detail}{_powers(loaded, agent)}")
    return sound


def _powers(loaded: Workspace, agent: str) -> str:
    """Return what an agent may do, as far as its kind can say it."""
    adapter = loaded.profiles[agent].adapter
    shape = base.settings_type(str(adapter["type"]))
    text = language.translate_message(shape.describe_powers(adapter)) if shape else ""
    return f" · {escape_line(text)}" if text else ""


_HANDED_OVER = frozenset({"claude_code", "codex", "gemini", "opencode", "acp"})
"""The kinds whose programs get all servers of the profile, and call them themselves."""

_LONGEST_DESCRIPTION = 60


def _warn_of_unnamed(loaded: Workspace) -> None:
    """Print a warning per server of which an agent may call no tool."""
    for agent_id, profile in loaded.profiles.items():
        if not profile.mcp or profile.adapter["type"] in _HANDED_OVER:
            continue
        for name in one_shot.list_unnamed_servers(profile):
            common.warn(
                f"warning: {escape_line(agent_id)}: its `tools` name no tool of the MCP server "
                f"{name}, so it sees none\n  add `{name}.*` to `tools`, for all of them"
            )


def _check_servers(loaded: Workspace, *, connect: bool) -> dict[str, list[ServerCheck]]:
    """Start each server of the workspace's agents once; return what they offer, by agent.

    Without `connect`, none is started.
    """
    profiles = [profile for profile in loaded.profiles.values() if profile.mcp]
    if not connect or not profiles:
        return {}
    config = common.make_config(loaded, wait_s=0, connects=True)
    checked: dict[str, list[ServerCheck]] = common.run(
        one_shot.check_servers(config, profiles), hint=""
    )
    return checked


def _print_servers(servers: dict[str, list[ServerCheck]]) -> None:
    """Print a line per server, and one per tool that it offers."""
    say = lines.user_words()
    for agent, checks in servers.items():
        for check in checks:
            state = say("ok") if check.health.ok else say("NOT OK")
            state += " " * (6 - display_width(state))
            name = f"{escape_line(agent)} · mcp {check.server}"
            detail = language.translate_message(check.health.detail)
            if check.health.ok:
                detail = say("{count} tools", count=len(check.tools))
            common.print_line(f"{state} {name} · {escape_line(detail)}")
            if check.wrote:
                text = say("it writes text to stdout, which is skipped: {text}", text=check.wrote)
                common.print_line(f"       {escape_line(text)}")
            for tool in check.tools:
                common.print_line(f"       {_describe_tool(tool, say)}")


def _describe_tool(tool: Any, say: Words) -> str:
    facts = [
        tool.spec.name,
        say("only reads") if tool.spec.read_only else "",
        "" if tool.is_named else say("not in its `tools`"),
        tool.spec.problem,
        cut_text(" ".join(tool.spec.description.split()), _LONGEST_DESCRIPTION),
    ]
    return " · ".join(escape_line(fact) for fact in facts if fact)


def _dump_servers(checks: list[ServerCheck]) -> list[dict[str, Any]]:
    """Return the checks of an agent's servers, as JSON."""
    return [
        {
            "server": check.server,
            "ok": check.health.ok,
            "detail": check.health.detail,
            "tools": [{**tool.spec.model_dump(), "named": tool.is_named} for tool in check.tools],
        }
        for check in checks
    ]


@agents_app.command("add")
def add(
    context: typer.Context,
    agent_id: NewId,
    kind: Kind,
    command: Command = None,
    model: Model = None,
    preset: Preset = None,
    name: Name = "",
    role: Role = "",
    cwd: Cwd = None,
    settings: Setting = None,
    team: NewTeam = None,
) -> None:
    """Write the profile of a new agent, and report what it still needs. Overwrites nothing.

    \b
    arena agents add reviewer --adapter claude_code --set 'tools=[Read, Grep]' --cwd ../shop
    arena agents add local --adapter openai --preset ollama --model qwen3
    arena agents add clerk --adapter cli -- python3 bots/clerk.py
    """
    adapter: dict[str, object] = {"type": kind}
    command = _split_command(command)
    given = {"preset": preset, "model": model, "command": command, "cwd": cwd}
    adapter |= {key: value for key, value in given.items() if value}
    for key, value in scaffold.parse_settings(settings or ()).items():
        if key in adapter:
            raise UsageError(f"--set {key}: given twice", "give it once")
        adapter[key] = value
    user_language = lines.user_words().language
    root, is_new = _root_for_another(context)
    shape = base.settings_type(kind)
    environ = {**read_dotenv(root), **os.environ}
    suggested = shape.suggested(environ) if shape else {}
    if preset or "base_url" in adapter:
        suggested = {key: suggested[key] for key in suggested if key not in _SERVER_KEYS}
    data = scaffold.build_profile(agent_id, adapter, name=name, role_prompt=role)
    anywhere = context.obj.allow_outside
    new = scaffold.check_newcomer(
        root, data, team, kinds=base.KINDS, suggested=suggested, anywhere=anywhere
    )
    scaffold.write_new_agent(new)
    if is_new:
        common.warn(f"{root} is now a workspace: there was none in it or above it")
        if user_language != "en":
            common.print_line("arena.yaml")
            common.print_line(f"{INDENT}{scaffold.write_language(root, user_language)}")
    may_connect = trust.add_written(new.workspace, new.agent_id, new.written)
    _tell_added(new, connect=may_connect)


_SERVER_KEYS = ("base_url", "api_key")


def _split_command(command: list[str] | None) -> list[str] | None:
    """Return the words of a command that was given as one text, as in "python3 bot.py"."""
    if not command or len(command) > 1 or " " not in command[0] or Path(command[0]).exists():
        return command
    try:
        words = shlex.split(command[0], posix=os.name == "posix")
    except ValueError as error:
        raise UsageError(
            f"the command {command[0]} cannot be split into words: {error}",
            "write its words separately: -- python3 bot.py",
        ) from error
    common.warn(f"the command is split into words: {escape_line(shlex.join(words))}")
    return words


def _describe_key(new: Newcomer) -> str:
    """Return where the key of a new agent goes, "" if its profile names none."""
    say = lines.user_words()
    adapter = new.workspace.profiles[new.agent_id].adapter
    environ = {**read_dotenv(new.workspace.root), **os.environ}
    env = adapter.get("env")
    inherited = [str(name) for name in env] if isinstance(env, dict) else []
    address = next((name for name in inherited if name.endswith("_BASE_URL")), "")
    keys = ", ".join(name for name in inherited if is_secret_key(name))
    if keys:
        program = str(adapter["type"])
        shape = base.settings_type(program)
        if shape is not None and issubclass(shape, ProgramSettings):
            program = shape.command_line(adapter)[0]
        server = without_login(environ.get(address, "")) if address else say("its provider")
        text = "{keys} goes to the program {program}, and from there to {server}"
        return say(text, keys=keys, program=program, server=server)
    variables = profiles.list_variables({"api_key": adapter.get("api_key", "")})
    if variables and adapter.get("base_url"):
        server = without_login(str(adapter["base_url"]))
        return say("{keys} goes to {server}", keys=", ".join(sorted(variables)), server=server)
    return ""


def _root_for_another(context: typer.Context) -> tuple[Path, bool]:
    """Return the workspace, or else the current folder; True means that the folder is new.

    The current folder is only used if no workspace was named and none was found.
    """
    options: common.Options = context.obj
    try:
        return common.find_root(context), False
    except UsageError:
        if options.workspace or os.environ.get(workspace.WORKSPACE_VARIABLE):
            raise
        return common.current_folder(), True


def _tell_added(new: Newcomer, *, connect: bool) -> None:
    """Print the files that were written, what is missing, and how to send a message."""
    say = lines.user_words()
    common.print_line(escape_line(new.path))
    common.print_lines(agent_run.indent_text(new.shown.rstrip()))
    if new.team_file:
        place = escape_line(new.team_file[0])
        common.print_line(say("{place}: {agent} is a member", place=place, agent=new.agent_id))
    common.print_line("")
    print_health(new.workspace, new.agent_id, connect=connect)
    if goes_to := _describe_key(new):
        common.print_line(f"       {escape_line(goes_to)}")
    if new.shown != new.text:
        common.warn(
            f"{escape_line(new.path)} contains a secret that everyone who reads the "
            "file can see; write `${env:NAME}` instead, which is filled from the "
            "environment or from .env"
        )
    if new.by_hand:
        common.warn(
            f"{escape_line(new.by_hand)} cannot be edited automatically: add "
            f"{new.agent_id} to its `members` by hand, so that it can be called"
        )
    for warning in new.warnings:
        common.warn(f"warning: {warning}")
    common.print_line("")
    common.print_line(f"  arena agents test {new.agent_id}")
    team_option = f" --team {new.team}" if new.team not in (None, new.workspace.file.team) else ""
    hello = say("hello")
    common.print_line(f'  arena send{team_option} "@{new.agent_id} {hello}"')


@agents_app.command("test")
def try_out(
    context: typer.Context, agent_id: OneAgent, as_json: options.DocumentAsJson = False
) -> None:
    """Make one small real call of an agent, without a session; show what was sent and received.

    Exits 3 if it failed.
    """
    loaded = common.load_workspace(context)
    member = agent_run.find_member(loaded, agent_id)
    trust.require_agents(loaded, member.id)
    config = common.make_config(loaded, wait_s=0, connects=True)
    limit = member.profile.timeout_s or agent_run.limit_s(loaded)
    if sys.stderr.isatty():
        common.warn(f"asking {member.id}, for up to {limit:g} s")
    trial = common.run(one_shot.call_once(config, member, limit), hint="")
    if as_json:
        common.print_json(agent_run.make_trial_document(member, trial))
    common.print_lines(agent_run.draw_trial(member, trial) if not as_json else ())
    if not trial.works:
        raise typer.Exit(errors.EXIT_FAILED)


@agents_app.command("run")
def run(
    context: typer.Context,
    agent_id: OneAgent,
    inputs: agent_run.GivenInputs = None,
    message: agent_run.GivenMessage = None,
    session: agent_run.SessionName = None,
    as_json: options.DocumentAsJson = False,
    quiet: options.NoProgress = False,
) -> None:
    """Call one agent by itself, in a session of its own, and print its output.

    Its message is the `query` of its profile, filled with the inputs; without one, --message or
    standard input. Exits 3 if it does not reach its goal, 4 if it waits for an approval.
    """
    loaded = common.load_workspace(context)
    call = agent_run.AgentRun(loaded, agent_run.find_member(loaded, agent_id), session)
    call.run(inputs or [], message, as_json=as_json, quiet=quiet)
