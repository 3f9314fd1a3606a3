"""List what a workspace would start or contact, and remember which of it this user trusts.

The list is computed from the loaded profiles and `arena.yaml` alone: no placeholder is filled from
the environment, nothing is started or contacted. The trust is a small file for each workspace,
outside of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.adapters import base
from arena_cli.adapters.base import Endpoint
from arena_cli.errors import DiskRefused, UsageError
from arena_cli.util import files
from arena_cli.util.redaction import Redactor, is_secret_key
from arena_cli.util.text import fill_template
from arena_cli.workspace.agents import list_adapters, list_variables
from arena_cli.workspace.models import AgentProfile, Embedding

if TYPE_CHECKING:
    from arena_cli.workspace.acting import McpServer

EMBEDDING = "memory.embedding"
EVERYTHING = "*"
"""The whole environment, in the place of a variable's name."""

# What says where an agent is called; the values of other keys are no addresses.
_PLACES = frozenset({"base_url", "program", "target", "cwd"})

Trusted = Mapping[str, Iterable[str]]
"""The variables that may go to each contact, by its key."""


class Contact(NamedTuple):
    """A program, server or function, the variables passed to it, and the agents that use it."""

    endpoint: Endpoint
    variables: frozenset[str]
    agents: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key of the trust in it: each command line or host is a contact of its own."""
        return f"{self.endpoint.type} {self.endpoint.name}"


def find_contacts(
    profiles: Iterable[AgentProfile],
    embedding: Embedding | None = None,
    *,
    functions: Iterable[str] = (),
    rules: Iterable[str] = (),
    dotenv: Mapping[str, str] | None = None,
) -> list[Contact]:
    """Return all that these agents, the embedding server and functions of checks would contact.

    `rules` are functions of a team's rules. `dotenv` are the variables of the workspace's `.env`;
    like its other files they can change a target.
    """
    dotenv = dotenv or {}
    by_key: dict[str, Contact] = {}
    for profile in profiles:
        _add_contacts_of(profile, by_key, dotenv)
    address = embedding.base_url if embedding is not None else None
    if address or dotenv:
        from arena_cli.adapters import http  # noqa: PLC0415 - most workspaces have neither
    if address and embedding is not None:
        variables = list_variables({"api_key": embedding.api_key})
        _add_contact(by_key, http.endpoint(address), variables, EMBEDDING)
    for user, targets in (("checks", functions), ("rules", rules)):
        for target in targets:
            _add_function(by_key, target, user)
    if any(contact.endpoint.type in ("program", "kind") for contact in by_key.values()):
        for name in filter(base.is_always_given, dotenv):  # such as a proxy
            value = dotenv[name]
            setting = f".env: {name}={http.without_login(value)}"
            _add_contact(by_key, Endpoint("setting", setting), (), "every program")
    return list(by_key.values())


def _add_contacts_of(
    profile: AgentProfile, by_key: dict[str, Contact], dotenv: Mapping[str, str]
) -> None:
    """Add what an agent, its fallbacks, its rules and its tools would contact."""
    for adapter in list_adapters(profile.adapter):
        variables = list_variables(adapter)
        endpoints = _name_endpoints(str(adapter["type"]), adapter, dotenv)
        if variables and not endpoints:
            endpoints = [Endpoint("agent", profile.agent_id)]
        for endpoint in endpoints:
            _add_contact(by_key, endpoint, {*variables, *endpoint.variables}, profile.agent_id)
    for server in profile.mcp.values():
        variables = list_variables(server.model_dump())
        for endpoint in _server_endpoints(server, dotenv):
            _add_contact(by_key, endpoint, {*variables, *endpoint.variables}, profile.agent_id)
    functions = [name for rule in profile.rules for name in rule.functions]
    if profile.acts:
        tool_entries = import_module("arena_cli.workspace.tool_entries")
        functions += tool_entries.list_functions(profile)
        if commands := tool_entries.describe_commands(profile):
            _add_contact(by_key, Endpoint("program", commands), (), profile.agent_id)
        if flows := tool_entries.describe_flows(profile):
            _add_contact(by_key, Endpoint("program", flows), (EVERYTHING,), profile.agent_id)
    for target in functions:
        _add_function(by_key, target, profile.agent_id)


def merge_contacts(*lists: Iterable[Contact]) -> list[Contact]:
    """Return the contacts of all lists, each once."""
    by_key: dict[str, Contact] = {}
    for contact in itertools.chain(*lists):
        for agent in contact.agents:
            _add_contact(by_key, contact.endpoint, contact.variables, agent)
    return list(by_key.values())


def list_untrusted(contacts: Iterable[Contact], trusted: Trusted) -> list[Contact]:
    """Return the contacts that are not trusted, or not with all of their variables."""
    return [
        contact
        for contact in contacts
        if contact.key not in trusted or not contact.variables <= set(trusted[contact.key])
    ]


def _name_endpoints(
    kind: str, settings: Mapping[str, Any], dotenv: Mapping[str, str]
) -> list[Endpoint]:
    """Return the endpoints of settings of a kind, as far as they are known, without secrets."""
    shape = base.settings_type(kind)
    keys = {
        key: _filled(value, dotenv)
        if key in _PLACES
        else [_filled(value[0], dotenv), *value[1:]]
        if key == "command" and isinstance(value, list) and value
        else value
        for key, value in settings.items()
    }
    endpoints = shape.endpoints(keys) if shape else []
    plain = Redactor((), ())
    return [endpoint._replace(name=plain.text(endpoint.name)) for endpoint in endpoints]


def _server_endpoints(server: McpServer, dotenv: Mapping[str, str]) -> list[Endpoint]:
    """Return the program or the host of an MCP server."""
    if server.url:
        http = import_module("arena_cli.adapters.http")  # most agents have no server
        endpoint: Endpoint = http.endpoint(_filled(server.url, dotenv))
        return [endpoint]
    return _name_endpoints(
        "cli", {"command": server.command, "env": server.env, "cwd": server.cwd or ""}, dotenv
    )


def _filled(value: object, dotenv: Mapping[str, str]) -> object:
    """Return a text with the variables of `.env` filled in, except those for secrets."""
    if not isinstance(value, str):
        return value
    known = {f"env:{name}": text for name, text in dotenv.items() if not is_secret_key(name)}
    return fill_template(value, known.get)


def _add_function(by_key: dict[str, Contact], target: str, user: str) -> None:
    """Add a Python function, which is passed every variable."""
    _add_contact(by_key, Endpoint("function", target), {EVERYTHING}, user)


def _add_contact(
    by_key: dict[str, Contact], endpoint: Endpoint, variables: Iterable[str], agent: str
) -> None:
    new = Contact(endpoint._replace(variables=()), frozenset(variables), (agent,))
    known = by_key.get(new.key)
    if known is not None:
        agents = tuple(dict.fromkeys((*known.agents, agent)))
        new = Contact(known.endpoint, known.variables | new.variables, agents)
    by_key[new.key] = new


CONFIG_HOME = "ARENA_CONFIG_HOME"

_FOLDER = "trust"


class TrustRecord(NamedTuple):
    """A trusted workspace: its folder, and the variables that may go to each contact, by key."""

    workspace: str
    contacts: dict[str, list[str]]


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the user's folder for arena's settings; it may not exist. Raises UsageError."""
    folder = environ.get(CONFIG_HOME)
    if folder:
        return Path(folder).absolute()
    base = environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "arena"
    try:
        return Path.home() / ".config" / "arena"
    except RuntimeError as error:
        message = "there is no home folder to keep the trust in"
        raise UsageError(message, f"set HOME, or {CONFIG_HOME}") from error


def load(workspace: Path, environ: Mapping[str, str]) -> TrustRecord:
    """Return the trust record of a workspace; empty if the user never trusted it.

    A file that cannot be read is an error (UsageError), so that nothing is trusted by accident.
    """
    folder = _normal(workspace)
    path = _path(folder, environ)
    try:
        record = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return TrustRecord(folder, {})
    # Another folder's file under this name is no consent to this one.
    return record if record.workspace == folder else TrustRecord(folder, {})


def add(workspace: Path, contacts: Iterable[Contact], environ: Mapping[str, str]) -> None:
    """Trust a workspace with these contacts, in addition to the known ones.

    Raises UsageError if the file is broken, DiskRefused if it cannot be written.
    """
    record = load(workspace, environ)
    merged = {key: set(names) for key, names in record.contacts.items()}
    for contact in contacts:
        merged.setdefault(contact.key, set()).update(contact.variables)
    data = {
        "version": 1,
        "workspace": record.workspace,
        "contacts": {key: sorted(names) for key, names in sorted(merged.items())},
    }
    path = _path(record.workspace, environ)
    text = json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = text.encode("utf-8", "surrogatepass")
        files.replace_file(path, content, is_own=True, sync=True)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise DiskRefused(
            message, f"free disk space or fix the permissions there, or set {CONFIG_HOME}"
        ) from error


def revoke(workspace: Path, environ: Mapping[str, str]) -> bool:
    """Revoke the trust in a workspace; return whether it was trusted. Raises DiskRefused."""
    path = _path(_normal(workspace), environ)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DiskRefused(f"{path} cannot be removed: {error.strerror or error}") from error
    return True


def everything(environ: Mapping[str, str]) -> list[TrustRecord]:
    """Return every trusted workspace, by folder. Raises UsageError for a broken file."""
    records = []
    for path in sorted((config_home(environ) / _FOLDER).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            records.append(_read(path))
    return sorted(records)


def _normal(workspace: Path) -> str:
    return os.path.normcase(workspace.resolve())


def _path(folder: str, environ: Mapping[str, str]) -> Path:
    name = hashlib.sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return config_home(environ) / _FOLDER / f"{name}.json"


def _read(path: Path) -> TrustRecord:
    """Return the record in a file. Raises FileNotFoundError, and UsageError if it is invalid."""
    try:
        data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        contacts = {
            str(key): [str(name) for name in data["contacts"][key]] for key in data["contacts"]
        }
        return TrustRecord(str(data["workspace"]), contacts)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a record of arena"
        message = f"{path} cannot be read: {reason}"
        raise UsageError(message, "remove it, then run `arena trust` in the workspace") from error
