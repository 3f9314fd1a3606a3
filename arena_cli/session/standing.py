"""Which agents run their program where the workspace keeps keys and conversations."""

from __future__ import annotations

from arena_cli.adapters import registry
from arena_cli.session import store
from arena_cli.team.workspace import Workspace

DOTENV = ".env"


def exposed(workspace: Workspace) -> dict[str, list[str]]:
    """Return what lies in or below the `cwd` of each agent: `.env`, `sessions`; none is left out.

    Agents whose `cwd` the environment decides are passed over.
    """
    root = workspace.root.resolve()
    kept = [path for path in (root / DOTENV, store.sessions_of(root)) if path.exists()]
    exposed_to: dict[str, list[str]] = {}
    for agent_id, profile in workspace.profiles.items():
        shape = registry.settings_type(str(profile.adapter["type"]))
        cwd = profile.adapter.get("cwd", ".")
        if shape is None or "cwd" not in shape.model_fields or not isinstance(cwd, str):
            continue
        folder = (root / cwd).resolve()
        names = [path.name for path in kept if path.is_relative_to(folder)]
        if names:
            exposed_to[agent_id] = names
    return exposed_to
