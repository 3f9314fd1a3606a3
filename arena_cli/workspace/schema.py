"""Build the JSON Schemas of the files under `agents/`, of `arena.yaml`, and of scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from arena_cli.workspace.models import AgentProfile, TeamConfig, TeamFile, WorkspaceFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


_FROM_ENVIRONMENT = {"type": "string", "pattern": r"\$\{env:"}


def build_schema(
    model: type[BaseModel], title: str, *, instead: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema of a shape; every closed mapping in it also accepts `x-...` keys.

    `instead` is the schema of the alternative to any value.
    """
    schema = model.model_json_schema()
    _open_to_free_keys(schema)
    if instead:
        for shape in (schema, *schema.get("$defs", {}).values()):
            for key, value in shape.get("properties", {}).items():
                if value.get("type") != "string" or "enum" in value or "const" in value:
                    shape["properties"][key] = {"anyOf": [value, dict(instead)]}
    return {"$schema": DIALECT, **schema, "title": title}


def build_agent_schema(kinds: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Return the schema of `agents/<agent_id>.yaml`, whose adapter is one of `kinds`."""
    schema = build_schema(AgentProfile, "arena agent")
    adapter: dict[str, Any] = {
        "description": "How the agent is called; the other keys depend on the type.",
        "type": "object",
        "properties": {"type": {"enum": list(kinds)}},
        "allOf": [],
    }
    for kind, settings in kinds.items():
        reference = _add(schema, settings, f"Adapter_{kind}", from_environment=True)
        of_kind = {"properties": {"type": {"const": kind}}, "required": ["type"]}
        adapter["allOf"].append({"if": of_kind, "then": reference})
    schema["properties"]["adapter"] = adapter
    schema["required"].remove("adapter")
    schema["anyOf"] = [{"required": ["adapter"]}, {"required": ["extends"]}]
    return schema


def build_team_schema() -> dict[str, Any]:
    """Return the schema of `agents/teams/<team>.yaml`."""
    schema = build_schema(TeamFile, "arena team")
    schema["properties"]["config"] = _add(schema, TeamConfig, "TeamConfig")
    return schema


def build_workspace_schema() -> dict[str, Any]:
    """Return the schema of `arena.yaml`."""
    schema = build_schema(WorkspaceFile, "arena workspace")
    schema["properties"]["defaults"] = {
        "description": "Rules of every team (`config`), and keys of every adapter of a kind.",
        "type": "object",
        "properties": {"config": _add(schema, TeamConfig, "TeamConfig")},
        "additionalProperties": {"type": "object"},
    }
    return schema


def _add(
    schema: dict[str, Any], model: type[BaseModel], name: str, *, from_environment: bool = False
) -> dict[str, str]:
    """Add a shape to the schema's definitions and return the reference to it.

    Its keys may also come from a base or from defaults, so none is required here.
    """
    definitions = schema.setdefault("$defs", {})
    added = model.model_json_schema(ref_template=f"#/$defs/{name}_{{model}}")
    for inner, definition in added.pop("$defs", {}).items():
        definitions[f"{name}_{inner}"] = definition
        _open_to_free_keys(definition)
    added.pop("required", None)
    _open_to_free_keys(added)
    if from_environment:
        for key, value in added["properties"].items():
            if value.get("type") in ("integer", "number", "boolean"):
                added["properties"][key] = {"anyOf": [value, _FROM_ENVIRONMENT]}
    definitions[name] = added
    return {"$ref": f"#/$defs/{name}"}


def _open_to_free_keys(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _open_to_free_keys(item)
    elif isinstance(schema, dict):
        for value in list(schema.values()):
            _open_to_free_keys(value)
        if schema.get("additionalProperties") is False:
            schema["patternProperties"] = {"^x-": {}}
