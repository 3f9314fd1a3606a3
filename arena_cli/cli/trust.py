"""Ask before an untrusted workspace starts anything, and keep the answer: `arena trust`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli.cli import common
from arena_cli.errors import DiskRefused, FileFaults, UsageError
from arena_cli.reports.lines import user_words
from arena_cli.session import trust_store
from arena_cli.session.trust_store import Contact, find_contacts, list_untrusted, merge_contacts
from arena_cli.util.text import escape_line
from arena_cli.workspace.agents import read_dotenv
from arena_cli.workspace.teams import add_subagents

if TYPE_CHECKING:
    from arena_cli.adapters.base import SessionConfig
    from arena_cli.scenarios.model import Scenario
    from arena_cli.workspace.models import AgentProfile
    from arena_cli.workspace.workspace import Workspace


VARIABLE = "ARENA_TRUST"

_VERBS = {
    "program": "start",
    "host": "contact",
    "function": "run",
    "kind": "run an agent of the kind",
    "agent": "fill in the texts of",
    "setting": "set for every program",
}

TheWorkspace = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="Trust this workspace; by default the current one."),
]
ListTrusted = Annotated[
    bool,
    typer.Option("--list", help="List trusted workspaces, or everything that DIR is trusted with."),
]
Revoke = Annotated[bool, typer.Option("--revoke", help="Stop trusting the workspace.")]


def trust(
    context: typer.Context,
    folder: TheWorkspace = None,
    list_trusted: ListTrusted = False,
    revoke: Revoke = False,
) -> None:
    """Trust a workspace to start its programs, contact its servers and use your variables.

    It prints all of them. Review a workspace that others wrote before you trust it.
    """
    if list_trusted and revoke:
        raise UsageError("--list and --revoke were given", "Give one of them.")
    if folder is not None:
        context.obj.workspace = folder
    if list_trusted:
        _list(folder)
    elif revoke:
        _revoke(context, folder)
    else:
        _trust(context)


def live_place(
    loaded: Workspace,
    profiles: Iterable[AgentProfile],
    *,
    wait_s: float,
) -> SessionConfig:
    """Return the configuration of a session that calls these agents, if the user trusts them.

    The agents that work for the team's memory, and its embedding server, are included. Raises
    UsageError if the workspace is not trusted.
    """
    helpers = [member.profile for member in loaded.memory_agents]
    embedding = loaded.file.memory.embedding
    everyone = add_subagents([*profiles, *helpers], loaded.loaded)
    rules = loaded.list_rule_functions()
    require(loaded, lambda env: find_contacts(everyone, embedding, rules=rules, dotenv=env))
    return common.make_config(loaded, wait_s=wait_s, connects=True)


def require_agents(loaded: Workspace, *agents: str) -> None:
    """Ask about these agents, or all of the workspace. Raises UsageError if not trusted."""
    named = [loaded.profiles[agent] for agent in agents or loaded.profiles]
    profiles = add_subagents(named, loaded.loaded)
    require(loaded, lambda env: find_contacts(profiles, dotenv=env))


def require_scenarios(
    loaded: Workspace, live: Iterable[Scenario], checked: Iterable[Scenario]
) -> None:
    """Ask about the agents of `live` scenarios and the functions in checks of `checked` ones."""
    from arena_cli.scenarios import participants

    require(loaded, lambda env: participants.list_contacts(loaded, live, checked, dotenv=env))


def require(loaded: Workspace, contacts_with: Callable[[Mapping[str, str]], list[Contact]]) -> None:
    """Ask whether the user trusts these contacts, unless that is known.

    `contacts_with` receives the variables of `.env`. If a contact is not trusted, the question is
    about the whole workspace, so that it is asked once. Raises UsageError if there is no terminal
    to ask on, or if the answer is no.
    """
    if is_given():
        return
    dotenv = read_dotenv(loaded.root)
    needed = contacts_with(dotenv)
    if not needed:
        return
    trusted = trust_store.load(loaded.root, os.environ).contacts
    if not list_untrusted(needed, trusted):
        return
    new = list_untrusted(merge_contacts(_of_agents(loaded, dotenv), needed), trusted)
    state = "trusted, but it would now also" if trusted else "not trusted yet; it would"
    message = f"the workspace {escape_line(str(loaded.root))} is {state}"
    message = "\n".join([message, *_lines(new)])
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = f"look at its files, then run `arena trust`; scripts set {VARIABLE}=1"
        raise UsageError(message, hint)
    common.warn(f"arena: {message}")
    if not agrees("Trust it?"):
        raise UsageError("the workspace is not trusted; nothing was started")
    _keep(loaded, new)


def add_written(loaded: Workspace, agent_id: str, written: AgentProfile) -> bool:
    """Trust an agent that the user just added; return True if it may be contacted.

    This trust does not include additions by the workspace's own files (`defaults`, `.env`).
    """
    if is_given():
        return True
    added = find_contacts([written])
    if added:
        _keep(loaded, added)
    needed = find_contacts([loaded.profiles[agent_id]], dotenv=read_dotenv(loaded.root))
    trusted = trust_store.load(loaded.root, os.environ).contacts if needed else {}
    return not list_untrusted(needed, trusted)


def is_given() -> bool:
    """Return True if the environment declares every workspace trusted."""
    return os.environ.get(VARIABLE, "").strip().casefold() not in ("", "0", "false", "no")


def _trust(context: typer.Context) -> None:
    from arena_cli.scenarios import loader, participants, select

    loaded = common.load_workspace(context)
    dotenv = read_dotenv(loaded.root)
    needed = _of_agents(loaded, dotenv)
    try:
        scenarios = loader.load(select.everything(loaded.root), loaded)
    except FileFaults as error:
        common.warn(f"warning: what the scenarios need is not trusted: {error}")
    else:
        theirs = participants.list_contacts(loaded, scenarios, scenarios, dotenv=dotenv)
        needed = merge_contacts(needed, theirs)
    needed = merge_contacts(needed, *_find_flow_contacts(loaded))
    root, say = escape_line(str(loaded.root)), user_words()
    if not needed:
        common.print_line(say("{root} starts and contacts nothing; it needs no trust", root=root))
        return
    trust_store.add(loaded.root, needed, os.environ)
    common.print_line(say("{root} is trusted; it may", root=root))
    common.print_lines(_lines(needed))


def _find_flow_contacts(loaded: Workspace) -> Iterator[list[Contact]]:
    """Yield what the flows in `flows/` would contact; warn of those that are invalid."""
    flows = import_module("arena_cli.flows.contacts")
    for path in sorted((loaded.root / "flows").rglob("*.yaml")):
        try:
            yield flows.find_file_contacts(path, loaded)
        except FileFaults as error:
            common.warn(f"warning: what this flow needs is not trusted: {error}")


def _keep(loaded: Workspace, contacts: list[Contact]) -> None:
    """Save the trust in these contacts; warn if it cannot be written."""
    try:
        trust_store.add(loaded.root, contacts, os.environ)
    except DiskRefused as error:
        common.warn(f"arena: cannot save the trust: {error}")


def _list(folder: Path | None) -> None:
    records = trust_store.everything(os.environ)
    if folder is not None:
        trusted = trust_store.load(folder, os.environ)
        records = [record for record in records if record.workspace == trusted.workspace]
    for record in records:
        common.print_line(escape_line(record.workspace))
        for key, names in record.contacts.items():
            kind, _, name = key.partition(" ")
            common.print_line(_line(kind, name, names, ()))
    if not records:
        common.warn("no workspace is trusted" if folder is None else "this folder is not trusted")


def _revoke(context: typer.Context, folder: Path | None) -> None:
    # A folder that is gone, or no workspace any more, can be named too.
    root = folder if folder is not None else common.find_root(context)
    was_trusted = trust_store.revoke(root, os.environ)
    text = "{root} is no longer trusted" if was_trusted else "{root} is not trusted"
    common.print_line(user_words()(text, root=escape_line(str(root.resolve()))))


def _of_agents(loaded: Workspace, dotenv: Mapping[str, str]) -> list[Contact]:
    """Return all contacts of the agents and the memory of the whole workspace."""
    embedding = loaded.file.memory.embedding
    rules = loaded.list_rule_functions()
    return find_contacts(loaded.profiles.values(), embedding, rules=rules, dotenv=dotenv)


def agrees(question: str) -> bool:
    """Ask on the terminal; return True only for yes."""
    sys.stderr.write(f"{user_words()(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _lines(contacts: Iterable[Contact]) -> Iterator[str]:
    for contact in contacts:
        yield _line(*contact.endpoint[:2], sorted(contact.variables), contact.agents)


def _line(kind: str, name: str, variables: Sequence[str], agents: Sequence[str]) -> str:
    """Return a contact in one line: its name, its variables, and its agents."""
    say = user_words()
    facts = [f"{say(_VERBS.get(kind, kind))} {name}"]
    if "*" in variables:
        facts.append(say("with every variable of the environment"))
    elif variables:
        facts.append(say("with {names}", names=say(", ").join(variables)))
    if agents:
        facts.append(say("for {names}", names=say(", ").join(agents)))
    return f"  {' · '.join(map(escape_line, facts))}"
