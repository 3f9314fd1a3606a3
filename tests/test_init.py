"""A new workspace: what is written, what is refused, and that it works."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types
from product import (
    TemplateLanguage,
    TemplateName,
    UsageError,
    base,
    init,
    scaffold,
    schema,
    workspace,
)
from product import yamlio_loader as loader
from program import Program
from test_schema import schemas

NAMES: tuple[TemplateName, ...] = get_args(TemplateName)
LANGUAGES: tuple[TemplateLanguage, ...] = get_args(TemplateLanguage)
REPOSITORY = Path(__file__).parents[1]
SCHEMAS: dict[str, dict[str, Any]] = {"agent": {}, "team": {}, "scenario": {}, "workspace": {}}
FIRST_LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


def test_the_new_workspace_is_a_software_team(tmp_path: Path) -> None:
    target = tmp_path / "新 folder"
    written = scaffold.write_workspace(target, SCHEMAS, "software", "zh")
    assert all(path.is_file() for path in written)
    space = workspace.load_workspace(workspace.find_workspace(target, None, {}), kinds=base.KINDS)
    assert space.warnings == ()
    assert space.file.team == "software_dev"
    team = space.team(space.file.team)
    assert [(member.id, member.name) for member in team.members] == [
        ("architect", "架构师"),
        ("compliance", "合规"),
        ("developer", "全栈开发"),
        ("tester", "测试工程师"),
    ]
    assert team.config.default_responders == ["architect"]
    assert all(member.role_prompt for member in team.members)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_new_workspace_loads_without_fault_or_warning(
    tmp_path: Path, name: TemplateName, language: TemplateLanguage
) -> None:
    scaffold.write_workspace(tmp_path, SCHEMAS, name, language)
    space = workspace.load_workspace(tmp_path, kinds=base.KINDS)
    assert space.warnings == ()
    team = space.team(space.file.team)
    assert [member.id for member in team.members if not member.role_prompt] == []
    members = {agent for agent, profile in space.profiles.items() if profile.member}
    assert {member.id for member in team.members} == members


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_supervisor_of_the_software_team_leads_it(
    tmp_path: Path, language: TemplateLanguage
) -> None:
    program = Program(tmp_path)
    program.run("init", "--template", "software", "--language", language).check(stdout=None)
    team = tmp_path / "agents" / "teams" / "software_dev.yaml"
    team.write_text(
        team.read_text("utf-8").replace("  # mode:", "  mode:").replace("  # sup", "  sup")
    )
    sent = program.run("send", scaffold.FIRST_MESSAGES["software", language], "--json").check(
        stdout=None
    )
    events = [json.loads(row) for row in sent.stdout.splitlines()]
    decisions = [event for event in events if event["type"] == "supervised"]
    assert [event["should_reply"] for event in decisions] == [
        ["architect", "compliance"],
        ["developer", "tester"],
        [],
    ]
    assert not any(event["fallback"] for event in decisions)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_its_scenarios_pass_and_its_first_words_are_answered(
    tmp_path: Path, name: TemplateName, language: TemplateLanguage
) -> None:
    program = Program(tmp_path)
    options = ("--template", name, "--language", language)
    hints = program.run("init", *options).check().stdout.split("\n\n")[1]
    message = scaffold.FIRST_MESSAGES[name, language]
    run = scaffold.FIRST_RUNS.get((name, language))
    by_itself = f"  arena agents run {run}\n" if run else ""
    assert hints == f'  arena send "{message}"\n{by_itself}  arena run\n'
    assert program.run("agents", "check").check().stdout.count("ok ") >= 2
    result = json.loads(program.run("run", "--json").check().stdout)
    assert result["exit_code"] == 0
    assert program.sessions() == []
    program.run("send", "-q", "-s", "s", message)
    ends = ("reply_finished", "agent_ended")
    assert len({record["agent"] for record in program.records() if record["type"] in ends}) > 1


def test_the_on_call_of_an_incident_is_silent_and_the_commander_is_asked(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.run("init", "--template", "incident").check()
    program.run("send", "-q", "-s", "s", scaffold.FIRST_MESSAGES["incident", "en"]).check()
    assert ("oncall", "timeout") in program.finished()
    assert program.records()[-1]["end"] == "awaiting_human"
    program.run("send", "-q", "-s", "s", "--from", "maya", "mail jo@shop.example, @scribe").check()
    assert "jo@shop" not in program.written()


def test_a_template_that_is_not_there(tmp_path: Path) -> None:
    done = Program(tmp_path).run("init", "--template", "incidents")
    assert done.code == 2
    assert (
        "'incidents' is not one of 'software', 'incident', 'discussion', 'investigate', 'build'"
        in done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_the_templates_are_those_that_the_program_knows() -> None:
    folders = (REPOSITORY / "arena_cli" / "workspace" / "template").iterdir()
    assert {path.name for path in folders if path.is_dir()} == set(NAMES)
    for name in NAMES:
        paths = [set(scaffold.render_template({}, name, language)) for language in LANGUAGES]
        assert paths[0] == paths[1]
    offered = get_type_hints(init, include_extras=True)["template"]
    assert get_args(get_args(get_args(offered)[0])[0]) == NAMES == tuple(scaffold.TEMPLATES)


@pytest.mark.parametrize(
    ("env", "language", "name"),
    [
        ({"LC_ALL": "zh_CN.UTF-8", "ARENA_LANG": ""}, "zh", "架构师"),
        ({"LC_ALL": "en_US.UTF-8", "ARENA_LANG": ""}, "en", "Architect"),
        ({"LC_ALL": "en_US.UTF-8", "ARENA_LANG": "zh"}, "zh", "架构师"),
        ({"LC_ALL": "de_DE.UTF-8", "ARENA_LANG": ""}, "en", "Architect"),
    ],
)
def test_a_new_workspace_speaks_the_language_of_the_locale(
    tmp_path: Path, env: dict[str, str], language: str, name: str
) -> None:
    program = Program(tmp_path, env=env)
    program.run("init").check()
    assert f"language: {language} " in (tmp_path / "arena.yaml").read_text("utf-8")
    assert f"name: {name}\n" in (tmp_path / "agents" / "architect.yaml").read_text("utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
@pytest.mark.parametrize(
    ("keys", "team"),
    [(b"\n", "software_dev"), (b"x\n2\n", "incident"), (b"incident\n", "incident")],
)
def test_a_terminal_offers_the_templates(tmp_path: Path, keys: bytes, team: str) -> None:
    import pty

    program = Program(tmp_path)
    shown, terminal = pty.openpty()
    running = program.start("init", stdin=terminal, stderr=terminal)
    os.close(terminal)
    os.write(shown, keys)
    assert program.finish(running).code == 0
    offered = os.read(shown, 4096).decode()
    os.close(shown)
    assert "1  software: a software team" in offered
    assert "2  incident: incident response" in offered
    assert (tmp_path / "agents" / "teams" / f"{team}.yaml").is_file()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_file_names_a_schema_that_is_there(
    tmp_path: Path, name: TemplateName, language: TemplateLanguage
) -> None:
    for path in scaffold.write_workspace(tmp_path, SCHEMAS, name, language):
        if path.suffix == ".yaml":
            first = FIRST_LINE.match(path.read_text(encoding="utf-8"))
            assert first is not None
            assert (path.parent / first[1]).is_file()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_the_scenarios_are_yaml_without_fault(
    name: TemplateName, language: TemplateLanguage
) -> None:
    written = scaffold.render_template({}, name, language)
    paths = [path for path in written if path.startswith("scenarios/")]
    assert len(paths) == 2
    for path in paths:
        document = loader.parse(written[path].decode(), path)
        assert document.faults == ()
        assert Draft202012Validator(schema()).is_valid(document.data)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_investigator_names_files_and_lines(tmp_path: Path, language: TemplateLanguage) -> None:
    program = Program(tmp_path)
    program.run("init", "--template", "investigate", "--language", language).check()
    words = shlex.split(scaffold.FIRST_RUNS["investigate", language])
    done = program.run("agents", "run", *words, "--json", "-q", "-s", "s").check()
    findings = json.loads(done.stdout)["output"]["findings"]
    lines = [
        (tmp_path / "shop" / each["file"]).read_text("utf-8").splitlines()[each["line"] - 1]
        for each in findings
    ]
    assert ["(1 - DISCOUNT)" in line for line in lines] == [True, True]
    used = [record["tool"] for record in program.records() if record["type"] == "tool_requested"]
    assert used == ["find", "read_file", "read_file", "complete_task"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_no_catch_all_calls_anyone(name: TemplateName, language: TemplateLanguage) -> None:
    for path, content in scaffold.render_template({}, name, language).items():
        if path.startswith("agents/") and "/teams/" not in path:
            last = loader.parse(content.decode(), path).data["adapter"]["replies"][-1]
            other = {
                "agents/oncall.yaml": ["fail"],
                "agents/investigator.yaml": ["calls"],
                "agents/planner.yaml": ["calls", "say"],
            }
            assert list(last) == other.get(path, ["say"])
            assert "@" not in last.get("say", "")


@pytest.mark.parametrize("there", ["arena.yaml", "agents/tester.yaml", "schemas/agent.json"])
def test_nothing_is_written_where_a_file_is_there(tmp_path: Path, there: str) -> None:
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=re.escape(there)):
        scaffold.write_workspace(tmp_path, SCHEMAS)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / there).read_text(encoding="utf-8") == "mine"


def test_a_gitignore_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine", encoding="utf-8")
    scaffold.write_workspace(tmp_path, SCHEMAS)
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "mine"
    fresh = tmp_path / "fresh"
    scaffold.write_workspace(fresh, SCHEMAS)
    assert (fresh / ".gitignore").read_text(encoding="utf-8").split() == ["sessions/", ".env"]


def test_a_target_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be written"):
        scaffold.write_workspace(tmp_path / "file", SCHEMAS)


def test_the_repository_is_such_a_workspace() -> None:
    for path, content in scaffold.render_template({}, "software", "zh").items():
        if path != ".gitignore":
            assert (REPOSITORY / path).read_bytes() == content, path
    for name, found in {**schemas(), "scenario": schema()}.items():
        kept = json.loads(
            (REPOSITORY / scaffold.SCHEMAS_FOLDER / f"{name}.json").read_text("utf-8")
        )
        assert kept == json.loads(json.dumps(found)), f"arena schema {name} > schemas/{name}.json"
    workspace.load_workspace(REPOSITORY, kinds=base.KINDS)
