"""Workspaces: found, read, checked; teams put together; variables filled."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from product import (
    AdapterKinds,
    AgentUnavailable,
    FileFaults,
    Fragment,
    TeamChanges,
    UsageError,
    Workspace,
    adapter_type,
    agents,
    list_kinds,
    models,
    settings_type,
    workspace,
)
from product import yamlio_loader as loader
from program import Program
from pydantic import BaseModel, ConfigDict


class EchoSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    say: str = ""
    port: int = 1
    headers: dict[str, str] = {}


class OtherSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    model: str


_SETTINGS: dict[str, type[BaseModel]] = {"echo": EchoSettings, "other": OtherSettings}
KINDS = AdapterKinds(_SETTINGS.get, lambda: list(_SETTINGS))


def made(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def agent(agent_id: str, more: str = "") -> str:
    adapter = "" if "adapter:" in more or "extends:" in more else "adapter: {type: echo}\n"
    return f"agent_id: {agent_id}\n{adapter}{more}"


def loaded(root: Path, files: Mapping[str, str]) -> Workspace:
    return workspace.load_workspace(made(root, files), kinds=KINDS)


def faults(root: Path, files: Mapping[str, str]) -> list[str]:
    """What is told, without the lines that are quoted."""
    with pytest.raises(FileFaults) as raised:
        loaded(root, files)
    return [str(replace(fault, source="")) for fault in raised.value.faults]


def test_find_goes_upwards_and_takes_what_is_named(tmp_path: Path) -> None:
    made(tmp_path, {"a/arena.yaml": "", "b/agents/x.yaml": "", "a/deep/er/file": ""})
    start = tmp_path / "a" / "deep" / "er"
    assert workspace.find_workspace(start, None, {}) == (tmp_path / "a").resolve()
    assert (
        workspace.find_workspace(tmp_path / "b" / "agents", None, {}) == (tmp_path / "b").resolve()
    )
    variable = {"ARENA_WORKSPACE": str(tmp_path / "b")}
    assert workspace.find_workspace(start, None, variable) == (tmp_path / "b").resolve()
    assert workspace.find_workspace(start, Path("../.."), variable) == (tmp_path / "a").resolve()


def test_find_says_what_to_do_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="arena init"):
        workspace.find_workspace(tmp_path, None, {})
    with pytest.raises(UsageError, match=r"--workspace: .*is not a folder\n  run `arena init "):
        workspace.find_workspace(tmp_path, tmp_path / "none", {})
    with pytest.raises(UsageError, match="ARENA_WORKSPACE: "):
        workspace.find_workspace(tmp_path, None, {"ARENA_WORKSPACE": str(tmp_path)})


def test_without_a_team_file_all_members_are_the_team(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {
            "agents/b.yaml": agent("b", "name: 乙\n"),
            "agents/a.yaml": agent("a"),
            "agents/judge.yaml": agent("judge", "member: false\n"),
            "agents/.hidden.yaml": "not: read",
        },
    )
    team = space.team()
    assert (team.name, [(one.id, one.name) for one in team.members]) == (
        None,
        [("a", "a"), ("b", "乙")],
    )
    assert list(space.profiles) == ["a", "b", "judge"]


def test_a_team_file_gives_members_roles_humans_and_rules(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {
            "arena.yaml": "team: t\ndefaults: {config: {max_responders: 3, turn_timeout_s: 9}}\n",
            "agents/a.yaml": agent("a", "role_prompt: {file: prompts/a.md}\n"),
            "agents/b.yaml": agent("b", "member: false\n"),
            "prompts/a.md": "\ufeff你是甲\n",
            "agents/teams/t.yaml": "team: t\n"
            "description: d\n"
            "members: [b, {agent: a, role: lead, name: 甲}]\n"
            "humans: [{id: maya, name: Maya}]\n"
            "config: {max_responders: 4, default_responders: [a]}\n",
        },
    )
    team = space.team("t")
    assert [(one.id, one.name, one.role, one.role_prompt) for one in team.members] == [
        ("b", "b", "", ""),
        ("a", "甲", "lead", "你是甲\n"),
    ]
    assert (team.description, team.humans[0].id) == ("d", "maya")
    assert (team.config.max_responders, team.config.turn_timeout_s) == (4, 9)
    scenario = loader.parse("config: {max_responders: 5, selection: ask}\n", "s.yaml")
    line = Fragment(loader.wrap_data({"selection": "none"}, "command line"))
    over = space.team("t", TeamChanges([Fragment(scenario, ("config",)), line], humans=[]))
    assert (over.config.max_responders, over.config.selection, over.humans) == (5, "none", ())
    assert over.config.turn_timeout_s == 9


def test_wrong_overrides_are_told_where_they_stand(tmp_path: Path) -> None:
    space = loaded(tmp_path, {"agents/a.yaml": agent("a"), "agents/b.yaml": agent("b")})
    scenario = loader.parse("\nconfig:\n  default_responders: [bb]\n", "s.yaml")
    with pytest.raises(FileFaults, match=r"s.yaml:3: config.default_responders\[0\]: .*[^$]*`b`"):
        space.team(None, TeamChanges([Fragment(scenario, ("config",))]))
    line = Fragment(loader.wrap_data({"selection": "nobody"}, "command line"))
    with pytest.raises(FileFaults, match="command line: selection: must be one of"):
        space.team(None, TeamChanges([line]))


def test_unknown_team_and_no_agents(tmp_path: Path) -> None:
    space = loaded(tmp_path, {"arena.yaml": ""})
    with pytest.raises(UsageError, match="no agents"):
        space.team()
    with pytest.raises(UsageError, match="there is no team `x`"):
        space.team("x")


def test_a_team_of_named_agents(tmp_path: Path) -> None:
    space = loaded(tmp_path, {"agents/a.yaml": agent("a"), "agents/b.yaml": agent("b")})
    scenario = loader.parse("agents: [b, c]\n", "s.yaml")
    part = Fragment(scenario, ("agents",))
    assert [one.id for one in space.team_of(["b"], part).members] == ["b"]
    with pytest.raises(FileFaults, match=r"s.yaml:1: agents\[1\]: there is no agent `c`"):
        space.team_of(["b", "c"], part)
    with pytest.raises(FileFaults, match="needs a member"):
        space.team_of([], part)


def test_every_fault_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        {
            "arena.yaml": "team: tt\n"
            "redact: ['(']\n"
            "durabilty: fsync\n"
            "defaults: {judge: {}, clii: {}, anthropic: {}, config: {lanes: {}}}\n",
            "agents/a.yaml": agent("b") + "nmae: x\n",
            "agents/c.yaml": "message: @alice hi\n",
            "agents/teams/t.yaml": "team: t\nmembers: [a, cc]\nconfig: {supervisor: {}}\n",
        },
    )
    places = [line.split("\n")[0].split(": ")[:2] for line in told]
    assert [tuple(place) for place in places] == [
        ("agents/a.yaml:1", "agent_id"),
        ("agents/a.yaml:3", "nmae"),
        ("agents/c.yaml:1", "a value that starts with @ must be quoted"),
        ("agents/teams/t.yaml:2", "members[1]"),
        ("agents/teams/t.yaml:3", "config.supervisor"),
        ("arena.yaml:2", "redact[0]"),
        ("arena.yaml:3", "durabilty"),
        ("arena.yaml:4", "defaults.anthropic"),
        ("arena.yaml:4", "defaults.clii"),
        ("arena.yaml:4", "defaults.config.lanes"),
        ("arena.yaml:4", "defaults.judge"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("team: tt\n", "arena.yaml:1: team: there is no team `tt`\n  did you mean `t`?"),
        ("redact: [a, '(']\n", "arena.yaml:1: redact[1]: is not a regular expression"),
        ("defaults: {judge: {}}\n", "arena.yaml:1: defaults.judge: must be the id of an agent"),
        ("defaults: {ecko: {}}\n", "defaults.ecko: unknown key\n  did you mean `echo`?"),
        (
            "defaults: {config: {learning: {}}}\n",
            "defaults.config.learning: is not implemented yet",
        ),
        ("defaults: {echo: {port: x}}\n", "defaults.echo.port: must be a whole number"),
        ("defaults: {echo: 3}\n", "defaults.echo: must be a mapping"),
    ],
)
def test_faults_of_the_workspace_file(tmp_path: Path, text: str, told: str) -> None:
    files = {
        "arena.yaml": text,
        "agents/a.yaml": agent("a"),
        "agents/teams/t.yaml": "team: t\nmembers: [a]\n",
    }
    assert any(told in line for line in faults(tmp_path, files))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("adapter: {type: ecko}\n", "2: adapter.type: unknown kind of adapter `ecko`\n  did you"),
        ("adapter: {say: x}\n", "2: adapter.type: is missing"),
        ("adapter: {type: other, modle: x}\n", "2: adapter.modle: unknown key\n  did you mean `mo"),
        ("adapter: {type: other}\n", "2: adapter.model: is missing"),
        ("adapter: {type: echo, port: 'x'}\n", "2: adapter.port: must be a whole number"),
        ("may_mention: [b, a]\n", "3: may_mention[0]: there is no agent `b`"),
        ("extends: aa\n", "2: extends: there is no agent `aa`\n  remove this line"),
        ("extends: a\n", "2: extends: profiles extend each other: a -> a\n  remove this"),
        ("role_prompt: {file: none.md}\n", "3: role_prompt.file: `none.md` cannot be read"),
        ("role_prompt: {file: ../x.md}\n", "3: role_prompt.file: `../x.md` is not in the work"),
        ("role_prompt: {file: bad.md}\n", "3: role_prompt.file: `bad.md` is not UTF-8"),
        ("role_prompt: {file: link.md}\n", "3: role_prompt.file: `link.md` is not in the work"),
        ("aliases: [x, all]\n", '3: aliases[1]: "all", a name of a, is reserved\n  `@all` calls'),
        ("name: user\n", '3: name: "user", a name of a, is reserved\n  `@user` calls the human'),
        (
            "adapter: other\n",
            "2: adapter: must be a mapping of keys, not the text `other`\n  write: a",
        ),
        (
            "adapter: my-bot\n",
            "2: adapter: must be a mapping of keys, not the text `my-bot`\n  write `",
        ),
        ("name: '@foo'\n", "3: name: write the name without `@`"),
        ("aliases: [x, '＠foo']\n", "3: aliases[1]: write the name without `@`"),
        ("timeout_s: 0\n", "3: timeout_s: must be more than 0, not 0"),
    ],
)
def test_faults_of_a_profile(tmp_path: Path, more: str, told: str) -> None:
    root = made(tmp_path / "root", {"agents/a.yaml": agent("a", more), "x": ""})
    (tmp_path / "x.md").write_text("outside", encoding="utf-8")
    (root / "bad.md").write_bytes("中文".encode("gbk"))
    if "link" in more:
        if sys.platform == "win32":
            pytest.skip("links need a right there")
        (root / "link.md").symlink_to(tmp_path / "x.md")
    assert any(told in line for line in faults(root, {}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("team: x\nmembers: [a]\n", "1: team: `x` is not the file's name"),
        ("team: t\nmembers: []\n", "2: members: a team needs a member"),
        ("team: t\nmembers: [a, b]\n", "2: members[1]: there is no agent `b`"),
        ("team: t\nmembers:\n- a\n- {agent: a}\n", "4: members[1]: `a` appears twice"),
        (
            "team: t\nmembers: [a]\nconfig:\n  default_responders: [judge]\n",
            "4: config.default_responders[0]: `judge` is not a member of this team",
        ),
        ("team: t\nmembers: [a]\nhumans: [{id: m}, {id: M}]\n", "3: humans: `M` appears twice"),
        ("team: t\nmembers: [a]\nhumans: [{id: 'm x'}]\n", "3: humans: `m x` cannot hold a space"),
        ("team: t\nmembers: [{agent: a, name: judge}, judge]\n", "2: members[0].name: "),
    ],
)
def test_faults_of_a_team_file(tmp_path: Path, text: str, told: str) -> None:
    files = {
        "agents/a.yaml": agent("a"),
        "agents/judge.yaml": agent("judge", "member: false\n"),
        "agents/teams/t.yaml": text,
    }
    (line,) = faults(tmp_path, files)
    assert line.startswith(f"agents/teams/t.yaml:{told}")


def test_faults_of_file_names(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        {
            "agents/a.yaml": agent("a"),
            "agents/b.yml": agent("b"),
            "agents/c c.yaml": agent("c c"),
        },
    )
    assert told[0].startswith("agents/b.yml: only .yaml files are read\n  rename it to b.yaml")
    assert told[1].startswith("agents/c c.yaml:1: agent_id: cannot hold a space")


def test_file_names_that_differ_in_case_only(tmp_path: Path) -> None:
    made(tmp_path, {"agents/Dev.yaml": agent("Dev"), "agents/dev.yaml": agent("dev")})
    if len(list((tmp_path / "agents").iterdir())) == 1:
        pytest.skip("this file system has no such names")
    assert "agents/dev.yaml: has the same name as agents/Dev.yaml" in faults(tmp_path, {})[0]


def test_a_decomposed_file_name_is_the_composed_id(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {
            "agents/zoe\u0308.yaml": agent("zo\u00eb"),
            "agents/teams/t.yaml": "team: t\nmembers: [zoe\u0308]\n",
        },
    )
    assert [one.id for one in space.team("t").members] == ["zo\u00eb"]


@pytest.mark.parametrize("name", ["a", "架构师", "gpt-4.1", "Zoë", "👩‍🔬", "a_b", "می‌خواهم", "7"])
def test_ids_of_any_script(name: str) -> None:
    assert models.find_id_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        *("", "a b", "a/b", "a\\b", "a@b", "＠a", "-a", ".a", "a.", "con", "NUL.x", "a:b", "a*"),
        *("a\n", "x" * 65, "a,b", "`a`", "a\u202eb", "\u3000", "（a）"),
    ],
)
def test_what_is_no_id(name: str) -> None:
    assert models.find_id_problem(name) != ""


def test_extends_merges_all_but_the_identity(tmp_path: Path) -> None:
    base = agent(
        "base",
        "name: Base\n"
        "aliases: [b]\n"
        "member: false\n"
        "skills: [x, y]\n"
        "retries: 1\n"
        "response: {threshold: 0.9, keywords: [k]}\n"
        "adapter: {type: echo, say: hi, headers: {a: '1'}}\n",
    )
    middle = agent("middle", "extends: base\nskills: [z]\nadapter: {headers: {b: '2'}}\n")
    top = agent("top", "extends: middle\nresponse: {threshold: 0.1}\n")
    other = agent("other", "extends: base\nadapter: {type: other, model: m}\n")
    space = loaded(
        tmp_path,
        {
            "agents/base.yaml": base,
            "agents/middle.yaml": middle,
            "agents/top.yaml": top,
            "agents/other.yaml": other,
        },
    )
    found = space.profiles["top"]
    assert (found.name, found.aliases, found.member) == ("", [], True)
    assert (found.skills, found.retries) == (["z"], 1)
    assert (found.response.threshold, found.response.keywords) == (0.1, ["k"])
    assert found.adapter == {"type": "echo", "say": "hi", "headers": {"a": "1", "b": "2"}}
    assert space.profiles["other"].adapter == {"type": "other", "model": "m"}


def test_a_fault_in_an_extended_profile_is_told_in_its_own_file(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        {
            "agents/a.yaml": agent("a", "retries: -1\n"),
            "agents/b.yaml": agent("b", "extends: a\nadapter: {type: other}\n"),
        },
    )
    assert told == [
        "agents/a.yaml:3: retries: must be at least 0, not -1",
        "agents/b.yaml:3: adapter.model: is missing\n  add a line `model: ...`",
    ]


def test_adapters_of_a_kind_get_the_workspaces_defaults(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {
            "arena.yaml": "defaults: {other: {model: m1}, echo: {x-note: 1, headers: {a: '1'}}}\n",
            "agents/a.yaml": agent("a", "adapter: {type: other}\n"),
            "agents/b.yaml": agent("b", "adapter: {type: echo, headers: {x-b: '2'}}\n"),
            "agents/c.yaml": agent("c", "adapter: {type: other, model: m2}\n"),
        },
    )
    assert [one.adapter for one in space.profiles.values()] == [
        {"type": "other", "model": "m1"},
        {"type": "echo", "headers": {"a": "1", "x-b": "2"}},
        {"type": "other", "model": "m2"},
    ]


def test_profiles_of_a_scenario_are_merged_over(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {
            "agents/a.yaml": agent("a", "skills: [x, y]\nname: 甲\n"),
            "agents/teams/t.yaml": "team: t\nmembers: [a]\n",
        },
    )
    text = (
        "profiles:\n"
        "  a: {skills: [z], adapter: {type: other, model: m}}\n"
        "  b: {extends: a, name: 乙}\n"
        "  c: {adapter: {type: echo}}\n"
    )
    document = loader.parse(text, "s.yaml")
    over = space.with_profiles(document.data["profiles"], [Fragment(document, ("profiles",))])
    assert [one.id for one in over.team().members] == ["a", "b", "c"]
    (member,) = over.team("t").members
    assert (member.name, member.profile.skills) == ("甲", ["z"])
    assert member.profile.adapter == {"type": "other", "model": "m"}
    assert over.profiles["b"].skills == ["x", "y"]
    assert space.profiles["a"].skills == ["x", "y"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("{skills: x}", "s.yaml:2: profiles.a.skills: must be a list"),
        ("{agent_id: b}", "s.yaml:2: profiles.a.agent_id: `b` is not"),
        ("{extends: a}", "s.yaml:2: profiles.a.extends: `a` already exists"),
        ("{adapter: {type: other}}", "s.yaml:2: profiles.a.adapter.model: is missing"),
        ("3", "s.yaml:2: profiles.a: must be a mapping"),
        ("{adapter: {prot: 3}}", "s.yaml:2: profiles.a.adapter.prot: unknown key\n"),
    ],
)
def test_faults_of_a_scenarios_profiles(tmp_path: Path, keys: str, told: str) -> None:
    space = loaded(tmp_path, {"agents/a.yaml": agent("a")})
    document = loader.parse(f"profiles:\n  a: {keys}\n", "s.yaml")
    with pytest.raises(FileFaults) as raised:
        space.with_profiles(document.data["profiles"], [Fragment(document, ("profiles",))])
    assert str(raised.value).startswith(told)


def test_names_that_are_easily_mistaken_are_warnings(tmp_path: Path) -> None:
    space = loaded(
        tmp_path,
        {"agents/chief.yaml": agent("chief"), "agents/chief-ops.yaml": agent("chief-ops")}
        | {"agents/teams/t.yaml": "team: t\nmembers: [chief, chief-ops]\n"},
    )
    assert [line.partition(":")[0] for line in space.warnings] == ["agents/teams/t.yaml", "agents"]


def test_what_the_environment_decides_is_checked_when_it_is_filled(tmp_path: Path) -> None:
    text = agent("a", "adapter: {type: echo, port: '${env:PORT}', say: '${env:A}'}\n")
    space = loaded(tmp_path, {"agents/a.yaml": text})
    assert space.profiles["a"].adapter["port"] == "${env:PORT}"
    wrong = agent("a", "adapter: {type: echo, port: '$${env:PORT}', sya: '${env:A}'}\n")
    told = [line.split("\n")[0] for line in faults(tmp_path, {"agents/a.yaml": wrong})]
    assert told == [
        "agents/a.yaml:2: adapter.port: must be a whole number, not the text `$${env:PORT}`",
        "agents/a.yaml:2: adapter.sya: unknown key",
    ]


def test_fill_replaces_variables_and_names_the_secrets() -> None:
    adapter = {
        "type": "cli",
        "command": ["p", "--t=${env:MY_TOKEN}", "${env:HOST}:${env:PORT}", "$${env:X} $${y}"],
        "api_key": "${env:SHORT}",
        "headers": {"x-auth": "Bearer ${env:AUTH}"},
        "env": {"A": "${env:LONG_ONE}", "B": "inherit"},
        "n": 3,
    }
    variables = {
        "MY_TOKEN": "tttttttt",
        "HOST": "example.org",
        "PORT": "80",
        "SHORT": "seven77",
        "AUTH": "aaaaaaaa",
        "LONG_ONE": "llllllll",
    }
    filled, secrets = agents.fill_settings(adapter, variables, agent_id="a")
    assert filled == {
        "type": "cli",
        "command": ["p", "--t=tttttttt", "example.org:80", "${env:X} ${y}"],
        "api_key": "seven77",
        "headers": {"x-auth": "Bearer aaaaaaaa"},
        "env": {"A": "llllllll", "B": "inherit"},
        "n": 3,
    }
    assert secrets == {"tttttttt", "aaaaaaaa", "llllllll", "example.org"}


def test_fill_leaves_the_fields_of_scripted_texts_alone() -> None:
    adapter = {
        "type": "scripted",
        "replies": [
            "$${a} ${message} ${env:V}",
            {"say": "$${env:V}", "structured": [{"type": "diff", "data": "$${a}"}]},
        ],
    }
    filled, _ = agents.fill_settings(
        adapter,
        {"V": "${message}"},
        agent_id="a",
        is_template=adapter_type("scripted").settings_type.is_template,
    )
    assert filled["replies"] == [
        "$${a} ${message} $${message}",
        {"say": "$${env:V}", "structured": [{"type": "diff", "data": "${a}"}]},
    ]


LATER = "learning"
ACTING = "lane"
LEADING = "lanes max_reflections workdir"


@pytest.mark.parametrize(
    ("path", "text", "keys"),
    [
        ("agents/a.yaml", "agent_id: a\nadapter: {type: scripted}\n", f"{LATER} {ACTING}"),
        ("agents/teams/t.yaml", "team: t\nmembers: [b]\nconfig:\n  ", f"{LATER} {LEADING}"),
        ("agents/teams/t.yaml", "team: t\nmembers:\n  - agent: b\n    ", f"{LATER} {ACTING}"),
        ("arena.yaml", "language: en\n", f"{LATER} limits"),
        (
            "agents/teams/t.yaml",
            "team: t\nmembers: [b]\nconfig:\n  memory:\n    ",
            "limit_per_type expiration_days",
        ),
    ],
)
def test_a_key_that_is_not_built_says_so(tmp_path: Path, path: str, text: str, keys: str) -> None:
    indent = text.rpartition("\n")[2]
    program = Program(tmp_path)
    program.agent("b", {"say": "ok"})
    program.file(
        path,
        text + "".join(f"{indent if i else ''}{k}: {{x: 1}}\n" for i, k in enumerate(keys.split())),
    )
    done = program.run("agents", "check")
    assert done.code == 2
    unbuilt = re.findall(r"(\w+): is not implemented yet\n", done.stderr)
    assert sorted(unbuilt) == sorted(keys.split())
    assert "unknown key" not in done.stderr


@pytest.mark.parametrize("key", f"{LATER} {LEADING}".split())
def test_a_key_of_a_team_that_is_not_built_and_misplaced_says_both(
    tmp_path: Path, key: str
) -> None:
    program = Program(tmp_path)
    program.agent("b", {"say": "ok"})
    program.file("agents/teams/t.yaml", f"team: t\nmembers: [b]\n{key}: {{x: 1}}\n")
    done = program.run("agents", "check")
    assert f"agents/teams/t.yaml:3: {key}: unknown key\n" in done.stderr
    assert f"`{key}` belongs under `config`, and is not implemented yet; remove it" in done.stderr


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            "{refused: abrot}",
            "on_failure.refused: must be one of skip, retry, abort, replan, not `abrot`",
        ),
        ("{timeuot: skip}", "on_failure.timeuot: unknown key"),
        ("abrot", "on_failure: must be one of skip, retry, abort, replan, not `abrot`"),
        ("[skip]", "on_failure: must be "),
        ("3", "on_failure: must be "),
    ],
)
def test_a_wrong_on_failure_is_an_error_with_its_line(
    tmp_path: Path, value: str, problem: str
) -> None:
    program = Program(tmp_path)
    program.file(
        "agents/b.yaml",
        f"agent_id: b\nadapter: {{type: scripted, replies: []}}\non_failure: {value}\n",
    )
    program.file("agents/teams/t.yaml", f"team: t\nmembers: [b]\nconfig:\n  on_failure: {value}\n")
    done = program.run("agents", "check")
    assert done.code == 2
    assert f"agents/b.yaml:3: {problem}" in done.stderr
    assert f"agents/teams/t.yaml:4: config.{problem}" in done.stderr


@pytest.mark.parametrize(
    ("adapter", "faults"),
    [
        ("type: openai, model: '${MODEL}'", ["model: `${MODEL}`: `${env:MODEL}`"]),
        (
            "type: openai, model: m, base_url: 'http://${HOST}/v1', api_key: '${MY_KEY}'",
            ["api_key: `${MY_KEY}`: `${env:MY_KEY}`", "base_url: `${HOST}`: `${env:HOST}`"],
        ),
        (
            "type: openai, model: 'org/${MODEL:-small}'",
            ["model: `${MODEL:-small}`: `${env:MODEL}`"],
        ),
        (
            "type: cli, command: [p, '--key=${KEY}'], env: {A: '${B}'}",
            ["command[1]: `${KEY}`: `${env:KEY}`", "env.A: `${B}`: `${env:B}`"],
        ),
        ("type: cli, command: [sh, -c, 'echo ${HOME}'], env: {A: '$${B}'}", []),
        ("type: scripted, replies: ['${message} $${name}']", []),
        ("type: openai, model: '${env:MODEL}'", []),
    ],
)
def test_a_variable_without_env_is_an_error_with_the_fix(
    tmp_path: Path, adapter: str, faults: list[str]
) -> None:
    program = Program(tmp_path)
    program.file("agents/e.yaml", f"agent_id: e\nadapter: {{{adapter}}}\n")
    done = program.run("agents", "check")
    found = re.findall(
        r"agents/e.yaml:2: adapter.(\S+: `\$\{.+?\}`) is not filled in: it has no `env:`\n"
        r".*\n.*\n  write (`\$\{env:\w+\}`); a literal `\$\{` is `\$\$\{`",
        done.stderr,
    )
    assert sorted(": ".join(fault) for fault in found) == faults
    assert (done.code == 2) == bool(faults)


def test_an_embedding_key_without_env_is_an_error_with_the_fix(tmp_path: Path) -> None:
    program = Program(tmp_path)
    embedding = "{base_url: 'http://127.0.0.1:9/v1', model: m, api_key: '${KEY}'}"
    program.file("arena.yaml", f"memory: {{embedding: {embedding}}}\n")
    done = program.run("agents", "check")
    assert done.code == 2
    assert "`${KEY}` is not filled in" in done.stderr
    assert "write `${env:KEY}`" in done.stderr


@pytest.mark.parametrize("text", ["${env:NONE}", "${env:}", "${env:A B}"])
def test_fill_says_which_variable_is_missing(text: str) -> None:
    with pytest.raises(AgentUnavailable, match=r"adapter\.env\.K") as raised:
        agents.fill_settings({"type": "cli", "env": {"K": text}}, {"A B": "x"}, agent_id="dev")
    assert raised.value.agent_id == "dev"
    assert raised.value.mend


def test_dotenv_in_every_form(tmp_path: Path) -> None:
    text = (
        "\ufeff# top\r\nA=1\r\nexport B = 'x y' # why\r\n\r\n"
        'C="q\\"q # no comment"\nD=a b # c\nE=\nF=$A\n名=值\n'
    )
    (tmp_path / ".env").write_bytes(text.encode())
    assert agents.read_dotenv(tmp_path) == {
        "A": "1",
        "B": "x y",
        "C": 'q"q # no comment',
        "D": "a b",
        "E": "",
        "F": "$A",
        "名": "值",
    }
    assert agents.read_dotenv(tmp_path / "none") == {}


def test_dotenv_faults_have_lines_and_show_no_value(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\n\nKEY hunter2\nB='hunter2\nC\n", encoding="utf-8")
    with pytest.raises(FileFaults) as raised:
        agents.read_dotenv(tmp_path)
    assert [(fault.file, fault.line) for fault in raised.value.faults] == [
        (".env", 3),
        (".env", 4),
        (".env", 5),
    ]
    assert "hunter2" not in str(raised.value)
    (tmp_path / ".env").write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(FileFaults, match=r"\.env:2: is not UTF-8"):
        agents.read_dotenv(tmp_path)


def test_the_registry_imports_a_kind_when_it_is_used() -> None:
    assert list_kinds()[:3] == ["scripted", "cli", "python"]
    assert settings_type("scripted") is adapter_type("scripted").settings_type
    assert settings_type("none") is None
    with pytest.raises(UsageError, match="unknown kind of adapter `none`"):
        adapter_type("none")


def test_a_new_kind_is_one_class_and_one_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(
        tmp_path,
        {
            "arena_echo.py": "class Echo:\n    settings_type = dict\n",
            "arena_echo-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: arena-echo\n",
            "arena_echo-1.dist-info/entry_points.txt": (
                "[arena.adapters]\necho = arena_echo:Echo\nbroken = arena_echo:None_\n"
            ),
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert adapter_type("echo").__name__ == "Echo"
    assert {"echo", "broken"} < set(list_kinds())
    with pytest.raises(UsageError, match="`broken` cannot be imported"):
        settings_type("broken")


def test_a_name_of_two_is_told_where_it_stands_and_where_the_other_does(tmp_path: Path) -> None:
    files = {
        "agents/a.yaml": agent("a", "name: Na\n"),
        "agents/b.yaml": agent("b", "aliases: [x, a]\n"),
        "agents/all.yaml": agent("all"),
        "agents/z.yaml": agent("z", "member: false\naliases:\n- y\n- na\n"),
        "agents/teams/t.yaml": "team: t\nmembers: [a, {agent: z, name: NA}]\nhumans: [{id: NA}]\n",
    }
    assert faults(tmp_path, files) == [
        'agents/all.yaml:1: agent_id: "all", a name of all, is reserved\n'
        "  `@all` calls every agent; write another id, and rename the file",
        'agents/b.yaml:3: aliases[1]: "a" is a name of both a and b\n'
        "  write another name; this one is the id at agents/a.yaml:1",
        'agents/teams/t.yaml:2: members[1].name: "NA" is a name of both a and z\n'
        "  write another name here or at agents/a.yaml:3",
        'agents/teams/t.yaml:3: humans[0].id: "NA" is a name of both a and NA\n'
        "  write another name here or at agents/a.yaml:3",
        'agents/z.yaml:6: aliases[1]: "na" is a name of both a and z\n'
        "  write another name here or at agents/a.yaml:3",
    ]


def test_what_extends_nothing_is_told_once_and_not_to_extend_itself(tmp_path: Path) -> None:
    files = {
        "agents/base.yaml": agent("base"),
        "agents/z.yaml": agent("z", "extends: zz\nmay_mention: [y]\n"),
        "agents/z2.yaml": agent("z2", "extends: z\n"),
        "agents/y.yaml": agent("y", "extends: y\nskills: x\n"),
        "agents/teams/t.yaml": "team: t\nmembers: [z, z2, y, base]\n",
    }
    assert faults(tmp_path, files) == [
        "agents/y.yaml:2: extends: profiles extend each other: y -> y\n  remove this line",
        "agents/y.yaml:3: skills: must be a list, not the text `x`\n  write: skills: [x]",
        "agents/z.yaml:2: extends: there is no agent `zz`\n  known: base, y, z2",
    ]
