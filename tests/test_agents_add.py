"""`arena agents add`: the profile that is written, the team that is joined, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import base, errors, kinds, scaffold, workspace
from product import presets_PRESETS as PRESETS
from product import yamlio_loader as loader
from program import SPEAK, Program

ANSWERS = ["--adapter", "scripted", "--set", "replies=[ok]"]
TEAM = """\
team: crew   # the default one
members:
  - dev  # writes it
  - {agent: ops, role: 值班}
# nobody else
config: {default_responders: [dev]}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A workspace whose default team has two agents, and comments."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "heard: ${message}"}, name="开发")
    made.agent("ops", {"say": "on call"})
    made.file("agents/teams/crew.yaml", TEAM)
    made.file("arena.yaml", "team: crew\n")
    return made


def files(program: Program) -> dict[str, bytes]:
    """All that lies in the folder."""
    found = [path for path in program.folder.rglob("*") if path.is_file()]
    return {path.relative_to(program.folder).as_posix(): path.read_bytes() for path in found}


def refused(program: Program, *args: str) -> str:
    """What is said on stderr to an `add` that writes nothing."""
    before = files(program)
    done = program.run("agents", "add", *args)
    assert (done.code, done.stdout) == (2, "")
    assert files(program) == before
    return done.normal(done.stderr)


def test_a_folder_with_nothing_in_it_becomes_a_workspace_in_which_it_answers(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    done = program.run("agents", "add", "bot", *ANSWERS, "--name", "助手", "--role", "你是助手。")
    done.check(
        stdout="""\
agents/bot.yaml
  agent_id: bot
  name: 助手
  role_prompt: 你是助手。
  adapter:
    type: scripted
    replies: [ok]

ok     bot

  arena agents test bot
  arena send "@bot hello"
""",
        stderr="ROOT is now a workspace: there was none in it or above it\n",
    )
    program.run("agents", "test", "bot").check(stdout=None)
    told = program.run("send", "-s", "s", "@bot hello").check().stdout
    assert "\n  ok\n" in told
    assert program.finished() == [("bot", "success")]


def test_a_new_workspace_has_the_language_of_the_locale(tmp_path: Path) -> None:
    program = Program(tmp_path, env={"ARENA_LANG": "", "LANG": "zh_CN.UTF-8"})
    words = ("agents", "add", "bot", "--adapter", "cli", "--", *SPEAK, "read", "args")
    added = program.run(*words)
    assert (added.code, added.stdout.splitlines()[:2]) == (0, ["arena.yaml", "  language: zh"])
    program.run("send", "-s", "s", "@bot 你好").check(stdout=None)
    assert program.finished() == [("bot", "success")]
    program.env = {}
    program.run(*words[:2], "second", *words[3:]).check(stdout=None)
    assert (tmp_path / "arena.yaml").read_text("utf-8") == "language: zh\n"


def test_a_program_is_what_stands_after_two_dashes(program: Program) -> None:
    words = [*SPEAK, "read", "args", "--model", "-x", "two words"]
    program.run("agents", "add", "bot", "--adapter", "cli", "--", *words).check(stdout=None)
    assert json.loads(program.run("agents", "--json").stdout)[0]["adapter"]["command"] == words
    told = program.run("send", "@bot hi").check().stdout
    assert '["--model", "-x", "two words"]' in told


def test_it_joins_the_default_team_whose_file_keeps_its_comments(program: Program) -> None:
    done = program.run("agents", "add", "新人", *ANSWERS).check(stdout=None)
    assert "agents/teams/crew.yaml: 新人 is a member\n" in done.stdout
    text = (program.folder / "agents/teams/crew.yaml").read_text(encoding="utf-8")
    assert text == TEAM.replace("值班}\n", "值班}\n  - 新人\n")
    program.run("send", "-q", "-s", "s", "@新人 在吗").check()
    assert program.finished() == [("新人", "success")]


def test_it_joins_the_team_that_is_named_and_says_how_to_call_it(program: Program) -> None:
    program.file("agents/teams/night.yaml", "team: night\nmembers: [ops]\n")
    done = program.run("agents", "add", "bot", "-t", "night", *ANSWERS).check(stdout=None)
    assert done.stdout.endswith('\n  arena send --team night "@bot hello"\n')
    assert files(program)["agents/teams/night.yaml"] == b"team: night\nmembers: [ops, bot]\n"
    assert files(program)["agents/teams/crew.yaml"] == TEAM.encode()
    program.run("send", "-q", "-s", "s", "--team", "night", "@bot hello").check()
    assert program.finished() == [("bot", "success")]


def test_a_team_that_cannot_be_added_to_stays_as_it_is(program: Program) -> None:
    crew = "team: crew\nx-all: &all [dev, ops]\nmembers: *all\n"
    program.file("agents/teams/crew.yaml", crew)
    said = refused(program, "bot", "--team", "crew", *ANSWERS)
    assert "agents/teams/crew.yaml: its `members` cannot be edited" in said
    program.run("agents", "add", "bot", *ANSWERS).check(
        stdout=None,
        stderr="agents/teams/crew.yaml cannot be edited automatically: add bot to its "
        "`members` by hand, so that it can be called\n",
    )
    assert files(program)["agents/teams/crew.yaml"] == crew.encode()


def test_what_its_kind_fills_from_the_environment_is_written_and_what_is_missing_is_told(
    program: Program,
) -> None:
    done = program.run("agents", "add", "bot", "--adapter", "anthropic", "--model", "m-1")
    done.check(stdout=None)
    written = loader.parse(files(program)["agents/bot.yaml"].decode(), "")
    key = "${env:ANTHROPIC_API_KEY}"
    assert written.data["adapter"] == {"type": "anthropic", "model": "m-1", "api_key": key}
    assert "\nNOT OK bot · adapter.api_key: ANTHROPIC_API_KEY is not set; set " in done.stdout
    program.env["ANTHROPIC_API_KEY"] = "not-a-real-key"
    assert "ok     bot\n" in program.run("agents", "check").check().stdout


@pytest.mark.parametrize("key", ["${env:GATEWAY_KEY}", "abcdefgh1234"])
def test_a_key_that_is_given_is_the_one_that_is_written(program: Program, key: str) -> None:
    """Another would be sent to whoever is at the address that was given with it."""
    given = ["--model", "m", "--set", f"api_key={key}", "--set", "base_url=https://a.example"]
    for kind in ("anthropic", "openai"):
        assert program.run("agents", "add", kind, "--adapter", kind, *given).code == 0
        written = loader.parse(files(program)[f"agents/{kind}.yaml"].decode(), "")
        assert written.data["adapter"]["api_key"] == key


def test_what_the_workspace_gives_all_of_a_kind_is_not_taken_back(program: Program) -> None:
    program.env["ANTHROPIC_API_KEY"] = "not-a-real-key"
    program.file(
        "arena.yaml",
        "team: crew\n"
        "defaults:\n"
        "  anthropic: {api_key: '${env:GATEWAY_KEY}'}\n"
        "  claude_code: {env: {ANTHROPIC_AUTH_TOKEN: inherit}}\n",
    )
    for kind, options in (("anthropic", ["--model", "m"]), ("claude_code", [])):
        program.run("agents", "add", f"b-{kind}", "--adapter", kind, *options).check(stdout=None)
        written = loader.parse(files(program)[f"agents/b-{kind}.yaml"].decode(), "").data
        assert not {"api_key", "env"} & {*written["adapter"]}


@pytest.mark.parametrize("given", ["x", ""])
def test_wrong_defaults_of_its_kind_are_told_by_their_place(program: Program, given: str) -> None:
    program.env["ANTHROPIC_API_KEY"] = "not-a-real-key"
    program.file("arena.yaml", f"team: crew\ndefaults:\n  claude_code: {given}\n")
    said = refused(program, "bot", "--adapter", "claude_code")
    assert said.startswith("arena: arena.yaml:3: defaults.claude_code")


def test_a_key_that_is_given_as_it_is_is_not_shown(program: Program) -> None:
    given = ["--adapter", "cli", "--set", "env.BOT_TOKEN=abcdefgh1234", "--", "bot"]
    done = program.run("agents", "add", "bot", *given).check(
        stdout=None,
        stderr="agents/bot.yaml contains a secret that everyone who reads the file can see; "
        "write `${env:NAME}` instead, which is filled from the environment or from "
        ".env\n",
    )
    assert "BOT_TOKEN: [hidden]" in done.stdout
    assert "abcdefgh1234" not in done.stdout
    assert b"abcdefgh1234" in files(program)["agents/bot.yaml"]


def test_a_role_prompt_is_shown_as_it_is(program: Program) -> None:
    role = "Look for\nkey: value\nadapter:\n  token: abcdefgh1234"
    done = program.run("agents", "add", "bot", *ANSWERS, "--role", role).check(stdout=None)
    assert "    key: value\n    adapter:\n      token: abcdefgh1234\n" in done.stdout


def test_a_variable_that_is_handed_on_is_no_secret(program: Program) -> None:
    given = ["--adapter", "cli", "--set", "env.BOT_TOKEN=inherit", "--", "bot"]
    done = program.run("agents", "add", "bot", *given).check(stdout=None)
    assert "BOT_TOKEN: inherit\n" in done.stdout


def test_a_key_that_is_there_is_handed_on_to_claude_code_where_it_has_no_login(
    program: Program,
) -> None:
    program.run("agents", "add", "one", "--adapter", "claude_code").check(stdout=None)
    program.env["ANTHROPIC_API_KEY"] = "not-a-real-key"
    program.run("agents", "add", "two", "--adapter", "claude_code").check(stdout=None)
    for name, variable in (("own", "OTHER=1"), ("key", "ANTHROPIC_AUTH_TOKEN=inherit")):
        options = ["--adapter", "claude_code", "--set", f"env.{variable}"]
        program.run("agents", "add", name, *options).check(stdout=None)
    program.file(".claude/.credentials.json", '{"claudeAiOauth": {"accessToken": "x"}}')
    program.run("agents", "add", "in", "--adapter", "claude_code").check(stdout=None)
    given = {
        name: loader.parse(files(program)[f"agents/{name}.yaml"].decode(), "").data["adapter"]
        for name in ("one", "two", "own", "key", "in")
    }
    assert given["one"] == {"type": "claude_code", "cwd": "work/one"}
    assert given["in"] == {"type": "claude_code", "cwd": "work/in"}
    assert given["two"]["env"] == {"ANTHROPIC_API_KEY": "inherit"}
    assert given["own"]["env"] == {"ANTHROPIC_API_KEY": "inherit", "OTHER": "1"}
    assert given["key"]["env"] == {"ANTHROPIC_AUTH_TOKEN": "inherit"}


def test_settings_are_dotted_and_yaml(program: Program) -> None:
    settings_ = ["max_output_mb=2.5", "where={type: result}", "env.PORT=8080", "env.EMPTY="]
    options = [word for one in settings_ for word in ("--set", one)]
    more = ["--set", "output=json", "--set", 'args=["1", no]']
    program.run("agents", "add", "bot", "--adapter", "cli", *options, *more, "--", "x").check(
        stdout=None
    )
    written = loader.parse(files(program)["agents/bot.yaml"].decode(), "").data["adapter"]
    assert written == {
        "type": "cli",
        "command": ["x"],
        "max_output_mb": 2.5,
        "where": {"type": "result"},
        "env": {"PORT": "8080", "EMPTY": ""},
        "output": "json",
        "args": ["1", "no"],
        "cwd": "work/bot",
    }


def test_the_editor_is_told_the_schema_where_there_is_one(program: Program) -> None:
    program.run("agents", "add", "one", *ANSWERS).check(stdout=None)
    program.file("schemas/agent.json", "{}")
    program.run("agents", "add", "two", *ANSWERS).check(stdout=None)
    first = b"# yaml-language-server: $schema=../schemas/agent.json\n"
    assert not files(program)["agents/one.yaml"].startswith(b"#")
    assert files(program)["agents/two.yaml"].startswith(first)


@pytest.mark.parametrize("name", ["dev", "DEV"])
def test_no_file_is_overwritten(program: Program, name: str) -> None:
    assert (
        refused(program, name, *ANSWERS) == "arena: agents/dev.yaml already exists\n"
        "  nothing was written; choose another id, or edit that file\n"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["../x", *ANSWERS], "arena: `../x` is not a valid id: it cannot hold `/`\n"),
        (["a b", *ANSWERS], "arena: `a b` is not a valid id: it cannot hold a space\n"),
        (["user", *ANSWERS], 'agents/user.yaml (not written): agent_id: "user", a name of user,'),
        (["x", *ANSWERS, "--name", "开发"], 'name: "开发" is a name of both dev and x\n'),
        (["x", *ANSWERS, "--name", "@x"], "name: write the name without `@`"),
        (["x", *ANSWERS, "--team", "crwe"], "no team `crwe`\n  did you mean `crew`?\n"),
        (["x", "--adapter", "pyton"], "kind of adapter `pyton`\n  did you mean `python`?\n"),
        (["x", "--adapter", "cli"], "command: is missing\n  give `-- COMMAND` at the end\n"),
        (["x", "--adapter", "python"], "target: is missing\n  give `--set target=VALUE`\n"),
        (["x", "--adapter", "acp"], "preset\n  give `--preset PRESET`, or `-- COMMAND` at the end"),
        (["x", "--adapter", "anthropic"], "model: is missing\n  give `--model MODEL`\n"),
        (["x", *ANSWERS, "--model", "m"], "adapter.model: unknown key\n"),
        (["x", *ANSWERS, "--set", "strct=true"], "strct: unknown key\n  did you mean `strict`?"),
        (["x", *ANSWERS, "--set", "strict=maybe"], "must be true or false, not the text `maybe`"),
        (["x", *ANSWERS, "--set", "strict"], "--set strict: there is no value\n"),
        (["x", *ANSWERS, "--set", "strict=@a"], "--set strict: a value that starts with @ must"),
        (["x", *ANSWERS, "--set", "replies=[a]"], "--set replies: given twice\n"),
        (["x", *ANSWERS, "--set", "type=cli"], "--set type: given twice\n"),
        (["x", *ANSWERS, "--set", "replies.a=1"], "--set replies.a: `replies` already has a value"),
        (
            ["x", "--adapter", "cli", "--set", "cwd=..", "--set", "cwd.a=1", "--", "b"],
            "`cwd` already has",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    program: Program, args: list[str], said: str
) -> None:
    assert said in refused(program, *args)


def test_faults_of_other_files_are_told_and_nothing_is_written(program: Program) -> None:
    program.file("agents/ops.yaml", "agent_id: ops\nnmae: x\nadapter: {type: cli, command: [x]}\n")
    assert "agents/ops.yaml:2: nmae: unknown key\n" in refused(program, "bot", *ANSWERS)


def test_a_workspace_that_is_named_must_be_one(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "empty").mkdir()
    done = program.run("-w", "empty", "agents", "add", "bot", *ANSWERS)
    assert done.code == 2
    assert "is not a workspace" in done.stderr
    assert files(program) == {}


def test_the_file_of_the_team_is_put_in_its_place_whole(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when the team is written leaves both files as they were."""
    before = files(program)
    data = scaffold.build_profile("bot", {"type": "scripted", "replies": ["ok"]})
    new = scaffold.check_newcomer(program.folder, data, None, kinds=base.KINDS)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(errors.UsageError, match="No space left"):
        scaffold.write_new_agent(new)
    assert files(program) == before


def test_every_kind_and_preset_is_named_in_its_help(program: Program) -> None:
    words = program.run("agents", "add", "--help").check(stdout=None).stdout
    names = [*base.list_kinds(), *PRESETS, *kinds.PRESETS]
    assert {*names} <= {*re.findall(r"\w+", words)}


def test_kinds_are_offered_at_tab(program: Program) -> None:
    words = ("arena", "agents", "add", "x", "--adapter", "")
    program.env |= {"COMP_WORDS": " ".join(words), "COMP_CWORD": "5"}
    program.env["_ARENA_COMPLETE"] = "complete_bash"
    assert program.run().stdout.split() == base.list_kinds()


TRICKY = ["no", "~", "", "1e3", "0o7", "1:30", "2026-11-28", "@x", "`ls`", "a: b", "a #b", "- a"]
TRICKY += [
    "<<",
    "=",
    "a\nb\n",
    " a\n  b",
    "\n a\n\n",
    "\x85",
    "\u2028",
    "“a”，b",
    "x &y",
    "C:\\new",
]
scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(TRICKY),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
)
values = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.text("abc_", min_size=1), below, max_size=3),
    ),
    max_leaves=8,
)


@given(values)
def test_what_is_written_is_read_back_as_it_was(value: Any) -> None:
    data = {"agent_id": "bot", "adapter": {"type": "cli", "value": value}}
    read = loader.parse(loader.dump_yaml(data), "")
    assert read.faults == ()
    assert read.data == data
    assert repr(read.data) == repr(data)


@given(name=st.text(max_size=30), role=st.text(max_size=200), model=st.text(max_size=30))
def test_any_name_and_role_is_refused_or_loads_again(
    tmp_path_factory: pytest.TempPathFactory, name: str, role: str, model: str
) -> None:
    folder = tmp_path_factory.mktemp("one")
    adapter = {"type": "cli", "command": ["x", model]}
    data = scaffold.build_profile("机器人", adapter, name=name, role_prompt=role)
    try:
        new = scaffold.check_newcomer(folder, data, None, kinds=base.KINDS)
    except errors.UsageError:
        assert name.startswith(("@", "＠")) or name.casefold() in {"all", "user", "everyone"}
        return
    scaffold.write_new_agent(new)
    (loaded,) = workspace.load_workspace(folder, kinds=base.KINDS).loaded.values()
    said = (loaded.profile.name, loaded.role_prompt, loaded.profile.adapter["command"])
    assert said == (data.get("name", ""), data.get("role_prompt", ""), ["x", model])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("members: [a, b]  # two\n", "members: [a, b, 'no']  # two\n"),
        ("members: [\n  a,\n  b,  # last\n]\n", "members: [\n  a,\n  b, 'no',  # last\n]\n"),
        ("members:\n- a\n- b", "members:\n- a\n- b\n- 'no'\n"),
        ("\ufeffmembers:\r\n  - a # x\r\n", "\ufeffmembers:\r\n  - a # x\r\n  - 'no'\r\n"),
        (
            "members:\n  - agent: a\n    role: r\n\n# end\n",
            "members:\n  - agent: a\n    role: r\n  - 'no'\n\n# end\n",
        ),
        (
            "members:\n  - agent: a\n    role: |\n      r\n      s\nx-a: 1\n",
            "members:\n  - agent: a\n    role: |\n      r\n      s\n  - 'no'\nx-a: 1\n",
        ),
        (
            "members:\n  - agent: a\n    role:\n",
            "members:\n  - agent: a\n    role:\n  - 'no'\n",
        ),
    ],
)
def test_members_are_added_in_whatever_way_they_are_written(before: str, after: str) -> None:
    assert scaffold.add_member(before, "no") == after
    read, was = loader.parse(after, "").data, loader.parse(before, "").data
    assert read == {**was, "members": [*was["members"], "no"]}


@pytest.mark.parametrize("text", ["members: []\n", "members: &m [a]\nx-m: *m\n", "a: [", "- a\n"])
def test_what_cannot_be_added_to_with_certainty_is_left_alone(text: str) -> None:
    assert scaffold.add_member(text, "b") is None
