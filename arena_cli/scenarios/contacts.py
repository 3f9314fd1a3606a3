"""List what scenarios would start or contact: agents, judges, functions in checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from arena_cli.scenarios import lint
from arena_cli.scenarios.expect import model
from arena_cli.scenarios.model import Scenario
from arena_cli.session.trust_store import Contact, find_contacts, merge_contacts
from arena_cli.workspace.models import AgentProfile
from arena_cli.workspace.workspace import Workspace


def list_contacts(
    workspace: Workspace,
    live: Iterable[Scenario],
    checked: Iterable[Scenario],
    *,
    dotenv: Mapping[str, str],
) -> list[Contact]:
    """Return the contacts of `live` scenarios, and the functions in checks of `checked` ones."""
    live = list(live)
    functions = dict.fromkeys(target for scenario in checked for target in _functions(scenario))
    return merge_contacts(
        find_contacts((), functions=functions),
        # A scenario may have an agent of that id with another adapter.
        *(
            find_contacts(
                _profiles(scenario, workspace), workspace.file.memory.embedding, dotenv=dotenv
            )
            for scenario in live
        ),
    )


def _profiles(scenario: Scenario, workspace: Workspace) -> Iterator[AgentProfile]:
    """Yield the profiles of every agent that the scenario may call, with its changes."""
    for member in (*scenario.team.members, *scenario.judges.values()):
        yield member.profile
    for helper in workspace.memory_agents:
        played = scenario.as_played(helper)
        if played is not None:
            yield played.profile


def _functions(scenario: Scenario) -> Iterator[str]:
    for _, expect in lint.expects(scenario.file):
        for check in model.iter_checks(expect):
            if check.kind == "python":
                yield str(check.value)
