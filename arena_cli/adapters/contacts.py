"""List what agents and an embedding server would start or contact, with their variables.

The list is computed from the loaded profiles and `arena.yaml` alone: no placeholder is filled from
the environment, nothing is started or contacted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from arena_cli.adapters import base
from arena_cli.adapters.base import Endpoint
from arena_cli.util import excerpt, templates
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.agents import list_variables
from arena_cli.workspace.models import AgentProfile, Embedding

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
    dotenv: Mapping[str, str] | None = None,
) -> list[Contact]:
    """Return all that these agents, the embedding server and functions of checks would contact.

    `dotenv` are the variables of the workspace's `.env`; like its other files they can change a
    target.
    """
    dotenv = dotenv or {}
    by_key: dict[str, Contact] = {}
    for profile in profiles:
        variables = list_variables(profile.adapter)
        for endpoint in _endpoints(profile, variables, dotenv):
            _add(by_key, endpoint, {*variables, *endpoint.variables}, profile.agent_id)
    if embedding is not None and embedding.base_url:
        from arena_cli.adapters import http  # noqa: PLC0415 - most workspaces have none

        variables = list_variables({"api_key": embedding.api_key})
        _add(by_key, http.endpoint(embedding.base_url), variables, EMBEDDING)
    for target in functions:
        _add(by_key, Endpoint("function", target), {EVERYTHING}, "checks")
    if dotenv and any(contact.endpoint.type in ("program", "kind") for contact in by_key.values()):
        for endpoint in _settings_of_programs(dotenv):
            _add(by_key, endpoint, (), "every program")
    return list(by_key.values())


def merged(*lists: Iterable[Contact]) -> list[Contact]:
    """Return the contacts of all lists, each once."""
    by_key: dict[str, Contact] = {}
    for contact in itertools.chain(*lists):
        for agent in contact.agents:
            _add(by_key, contact.endpoint, contact.variables, agent)
    return list(by_key.values())


def missing(contacts: Iterable[Contact], trusted: Trusted) -> list[Contact]:
    """Return the contacts that are not trusted, or not with all of their variables."""
    return [
        contact
        for contact in contacts
        if contact.key not in trusted or not contact.variables <= set(trusted[contact.key])
    ]


def _endpoints(profile: AgentProfile, named: set[str], dotenv: Mapping[str, str]) -> list[Endpoint]:
    kind = str(profile.adapter["type"])
    shape = base.settings_type(kind)
    keys = {
        key: _filled(value, dotenv)
        if key in _PLACES
        else [_filled(value[0], dotenv), *value[1:]]
        if key == "command" and isinstance(value, list) and value
        else value
        for key, value in profile.adapter.items()
    }
    endpoints = shape.endpoints(keys) if shape else []
    if not endpoints and named:
        endpoints = [Endpoint("agent", profile.agent_id)]
    plain = Redactor((), ())
    return [endpoint._replace(name=plain.text(endpoint.name)) for endpoint in endpoints]


def _settings_of_programs(dotenv: Mapping[str, str]) -> Iterator[Endpoint]:
    """Yield the variables of `.env` that every program gets, such as a proxy."""
    from arena_cli.adapters import http  # noqa: PLC0415 - most workspaces have none
    from arena_cli.adapters.process import run  # noqa: PLC0415 - likewise

    for name, value in dotenv.items():
        if run.is_always_given(name):
            yield Endpoint("setting", f".env: {name}={http.without_login(value)}")


def _filled(value: object, dotenv: Mapping[str, str]) -> object:
    """Return a text with the variables of `.env` filled in, except those for secrets."""
    if not isinstance(value, str):
        return value
    known = {
        f"env:{name}": text for name, text in dotenv.items() if not excerpt.is_secret_key(name)
    }
    return templates.fill_template(value, known.get)


def _add(
    by_key: dict[str, Contact], endpoint: Endpoint, variables: Iterable[str], agent: str
) -> None:
    new = Contact(endpoint._replace(variables=()), frozenset(variables), (agent,))
    known = by_key.get(new.key)
    if known is not None:
        agents = tuple(dict.fromkeys((*known.agents, agent)))
        new = Contact(known.endpoint, known.variables | new.variables, agents)
    by_key[new.key] = new
