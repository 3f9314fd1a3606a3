"""The JSON Schemas accept what loads, and refuse what does not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types
from product import (
    TemplateLanguage,
    base,
    build_agent_schema,
    build_team_schema,
    build_workspace_schema,
    scaffold,
)
from product import yamlio_loader as loader


@cache
def schemas() -> dict[str, dict[str, Any]]:
    kinds = {kind: base.adapter_type(kind).settings_type for kind in base.list_kinds()}
    return {
        "agent": build_agent_schema(kinds),
        "team": build_team_schema(),
        "workspace": build_workspace_schema(),
    }


def accepts(name: str, text: str) -> bool:
    document = loader.parse(text, "f.yaml")
    assert document.faults == ()
    return bool(Draft202012Validator(schemas()[name]).is_valid(document.data))


@pytest.mark.parametrize("name", ["agent", "team", "workspace"])
def test_they_are_schemas_with_titles_and_descriptions(name: str) -> None:
    found = schemas()[name]
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["title"] == f"arena {name}"
    assert found["description"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_file_of_the_template_is_accepted(language: TemplateLanguage) -> None:
    checked = 0
    for path, content in scaffold.render_template({}, "software", language).items():
        if not path.endswith(".yaml") or path.startswith("scenarios/"):
            continue
        name = "workspace" if path == "arena.yaml" else "team" if "/teams/" in path else "agent"
        assert accepts(name, content.decode())
        checked += 1
    assert checked == 7


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("agent_id: a\nadapter: {type: scripted, replies: [x, {say: y}]}\n", True),
        ("agent_id: a\nadapter: {type: cli, command: [x], x-why: 1}\nx-note: {}\n", True),
        ("agent_id: a\nadapter: {type: cli, command: [x], max_output_mb: '${env:MB}'}\n", True),
        ("agent_id: a\nextends: b\n", True),
        ("agent_id: a\nrole_prompt: {file: a.md, x-y: 1}\nadapter: {type: python}\n", True),
        ("agent_id: a\n", False),
        ("agent_id: a\nextends: b\nnmae: x\n", False),
        ("agent_id: a\nextends: b\nrole_prompt: {fil: a.md}\n", False),
        ("agent_id: a\nextends: b\nresponse: {threshold: 2}\n", False),
        ("agent_id: 1\nextends: b\n", False),
        ("agent_id: a\nadapter: {type: cli, comand: [x]}\n", False),
        ("agent_id: a\nadapter: {type: cli, command: x}\n", False),
        ("agent_id: a\nadapter: {type: cli, command: [x], max_output_mb: many}\n", False),
        ("agent_id: a\nadapter: {type: scripted, replies: [{sya: y}]}\n", False),
        ("agent_id: a\nadapter: {type: openia}\n", False),
    ],
)
def test_agents(text: str, right: bool) -> None:
    assert accepts("agent", text) == right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("team: t\nmembers: [a, {agent: b, role: r}]\nconfig: {selection: ask, x-y: 1}\n", True),
        ("team: t\nmembers: [a]\nconfig: {selection: askk}\n", False),
        ("team: t\nmembers: [a]\nconfig: {max_respondres: 2}\n", False),
        ("team: t\nmembers: [{agnet: b}]\n", False),
        ("team: t\n", False),
    ],
)
def test_teams(text: str, right: bool) -> None:
    assert accepts("team", text) == right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("team: t\ndefaults: {config: {retries: 1}, cli: {cwd: x}}\n", True),
        ("durability: fsynk\n", False),
        ("defaults: {config: {retires: 1}}\n", False),
        ("teams: t\n", False),
    ],
)
def test_workspaces(text: str, right: bool) -> None:
    assert accepts("workspace", text) == right
