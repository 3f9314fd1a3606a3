"""Files that a scenario or a workspace names stay in the workspace, links resolved."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from product import (
    FileFaults,
    Scenario,
    UsageError,
    base,
    errors,
    files,
    models,
    parse,
    select,
    validate,
    workspace,
)
from product import scenarios_loader as loader
from program import Program
from stage import Stage

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")

SECRET = "root:x:0:0:root:/root:/bin/bash\naws_key = [AKIA\n"
SAID = {"id": "m2", "author_id": "user", "author_name": "user", "author_type": "human"}
TRANSCRIPT = [
    {"seq": 1, "ts": "", "type": "session", "session": "s", "team": None, "members": []},
    {"seq": 2, "ts": "", "type": "message", "message": {**SAID, "content": "x", "timestamp": ""}},
]

# A file outside, and what in a scenario names it as NAME.
NAMING = {
    "include": ("part.yaml", "tags: [x]\n", "include: NAME\nsteps: [{send: hi}]"),
    "attach": ("a.txt", "hello", "steps: [{send: hi, attach: [NAME]}]"),
    "send": ("a.txt", "hello", "steps: [{send: {file: NAME}}]"),
    "transcript": (
        "t.jsonl",
        "".join(f"{json.dumps(event)}\n" for event in TRANSCRIPT),
        "given: {transcript: NAME}\nsteps: [{send: hi}]",
    ),
    "notes": (
        "pit-x.md",
        "---\ntitle: X\nkind: pit\nstatus: draft\n---\nx\n",
        "given: {notes: [NAME]}\nsteps: [{send: hi}]",
    ),
    "schema": (
        "s.json",
        "{}",
        "steps: [{send: hi, expect: {replies: {dev: [{json: {schema: NAME}}]}}}]",
    ),
    "python": (
        "c.py",
        "def check(reply, run):\n    return True\n",
        "steps: [{send: hi, expect: {replies: {dev: [{python: 'NAME:check'}]}}}]",
    ),
    "role_prompt": (
        "p.md",
        "Be kind.",
        "profiles: {dev: {role_prompt: {file: NAME}}}\nsteps: [{send: hi}]",
    ),
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "outside").mkdir()
    return Stage(tmp_path / "work").agent("dev", "hello").team()


def loaded(
    stage: Stage, *wanted: str, start: Path | None = None, anywhere: bool = False
) -> list[Scenario]:
    root = stage.folder.resolve()
    selected = select.select(root, wanted, start or root)
    return loader.load(
        selected, workspace.load_workspace(root, kinds=base.KINDS, anywhere=anywhere)
    )


def outside(stage: Stage, name: str, content: str) -> Path:
    path = stage.folder.parent / "outside" / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("way", ["by path", "upwards", "by a link", "by a linked folder"])
@pytest.mark.parametrize("what", NAMING)
def test_what_a_scenario_names_outside_is_refused_unless_allowed(
    stage: Stage, what: str, way: str
) -> None:
    name, content, text = NAMING[what]
    target = outside(stage, name, content)
    folder = stage.folder
    if way == "by a link":
        (folder / name).symlink_to(target)
    elif way == "by a linked folder":
        (folder / "shared").symlink_to(target.parent)
    named = {
        "by path": str(target),
        "upwards": f"../outside/{name}",
        "by a link": name,
        "by a linked folder": f"shared/{name}",
    }[way]
    stage.scenario(f"scenario: x\n{text.replace('NAME', named)}\n")
    with pytest.raises(FileFaults) as wrong:
        loaded(stage)
    told = str(wrong.value)
    assert "lies outside the workspace" in told or "is not in the workspace" in told
    assert "--allow-outside" in told
    assert content.strip().splitlines()[0] not in told
    assert len(loaded(stage, anywhere=True)) == 1


@pytest.mark.parametrize("what", NAMING)
def test_what_lies_in_the_workspace_may_be_reached_by_links(stage: Stage, what: str) -> None:
    name, content, text = NAMING[what]
    (stage.folder / "real").mkdir()
    (stage.folder / "real" / name).write_text(content, encoding="utf-8")
    (stage.folder / "shared").symlink_to("real")
    stage.scenario(f"scenario: x\n{text.replace('NAME', f'shared/{name}')}\n")
    assert len(loaded(stage)) == 1


def test_a_file_inside_goes_before_one_of_that_name_outside(stage: Stage) -> None:
    (stage.folder.parent / "shared").mkdir()
    (stage.folder.parent / "shared" / "x.yaml").write_text("tags: [theirs]\n", encoding="utf-8")
    (stage.folder / "scenarios" / "auth").mkdir(parents=True)
    (stage.folder / "scenarios" / "shared").mkdir()
    (stage.folder / "scenarios" / "shared" / "x.yaml").write_text("tags: [ours]\n")
    text = "scenario: x\ninclude: ../shared/x.yaml\nsteps: [{send: hi}]\n"
    (stage.folder / "scenarios" / "auth" / "t.yaml").write_text(text)
    (one,) = loaded(stage)
    assert one.file.tags == ["ours"]


def test_an_agents_answer_names_no_file_outside(stage: Stage) -> None:
    target = outside(stage, "key.txt", SECRET)
    stage.agent("dev", str(target), "second").team()
    told = stage.play(
        "scenario: x\nsteps:\n- send: which file?\n  save: {f: {from: dev}}\n"
        "- send: hi\n  attach: ['${saved.f}']\n"
    )
    assert told.status == "error"
    assert "lies outside the workspace" in str(told.steps[1].error)


@pytest.mark.parametrize(
    "place", ["agents/evil.yaml", "agents/teams/evil.yaml", "arena.yaml", "agents"]
)
def test_a_link_in_the_workspace_shows_no_line_of_a_file_outside(stage: Stage, place: str) -> None:
    aim = outside(stage, "passwd", SECRET)
    link = stage.folder / place
    if place == "agents":
        aim = aim.parent
        outside(stage, "evil.yaml", SECRET)
        link.rename(stage.folder / "away")
    link.unlink(missing_ok=True)
    link.symlink_to(aim)
    for anywhere in (False, True):
        with pytest.raises(FileFaults) as wrong:
            workspace.load_workspace(stage.folder, kinds=base.KINDS, anywhere=anywhere)
        told = str(wrong.value)
        assert "root:" not in told
        assert "AKIA" not in told
        assert "aws_key" not in told
        assert ("leads out of the workspace" in told) is not anywhere


def test_a_scenario_file_that_is_a_link_to_outside_is_not_read_unless_allowed(
    stage: Stage,
) -> None:
    good = outside(stage, "good.yaml", "scenario: x\nsteps: [{send: hi}]\n")
    bad = outside(stage, "bad.yaml", SECRET)
    (stage.folder / "scenarios").mkdir()
    for name, aim in (("link", good), ("evil", bad)):
        (stage.folder / "scenarios" / f"{name}.yaml").symlink_to(aim)
    outcomes = {
        (): "/scenarios/evil.yaml leads out of the workspace",
        ("link", "evil"): "scenarios/evil.yaml: is a link that leads out of the workspace: ",
        (
            "scenarios/evil.yaml",
        ): "scenarios/evil.yaml: is a link that leads out of the workspace: ",
        ("bad",): "there is no scenario `bad`",
    }
    for wanted, message in outcomes.items():
        with pytest.raises((FileFaults, UsageError)) as wrong:
            loaded(stage, *wanted)
        told = str(wrong.value)
        assert message in told
        assert "root:" not in told
        assert "AKIA" not in told
    assert len(loaded(stage, "link", anywhere=True)) == 1
    with pytest.raises(FileFaults) as wrong:
        loaded(stage, "evil", anywhere=True)
    assert "AKIA" not in str(wrong.value)


def test_a_scenario_that_the_user_names_outside_is_theirs_to_choose(stage: Stage) -> None:
    outside(stage, "part.yaml", "tags: [x]\n")
    outside(stage, "a.txt", "hello")
    mine = outside(
        stage,
        "mine.yaml",
        "scenario: x\ninclude: part.yaml\nsteps: [{send: hi, attach: [a.txt]}]\n",
    )
    for wanted in (str(mine), "../outside/mine.yaml", "../outside"):
        assert len(loaded(stage, wanted)) == 1
    # It came with what lies in its folder, with nothing else.
    (stage.folder.parent / "key.txt").write_text(SECRET, encoding="utf-8")
    text = "scenario: y\nsteps: [{send: hi, attach: [../key.txt]}]\n"
    with pytest.raises(FileFaults, match="lies outside the workspace"):
        loaded(stage, str(outside(stage, "other.yaml", text)))
    # Faults in it show its lines, as those of any file of the user's.
    with pytest.raises(FileFaults, match="stepz"):
        loaded(stage, str(outside(stage, "other.yaml", "scenario: y\nstepz: []\n")))


def test_a_folder_outside_that_the_user_names_may_have_no_link_out_of_it(stage: Stage) -> None:
    (stage.folder.parent / "secret.yaml").write_text(SECRET, encoding="utf-8")
    (stage.folder.parent / "outside" / "x.yaml").symlink_to(stage.folder.parent / "secret.yaml")
    with pytest.raises(FileFaults) as wrong:
        loaded(stage, "../outside")
    assert "AKIA" not in str(wrong.value)


def test_what_is_read_from_outside_is_never_quoted() -> None:
    texts = [
        SECRET,
        "key: {AKIA: 1\n",
        "AKIA: @x\n",
        "agent_id: AKIA secret\nAKIA: 1\nretries: AKIA\n",
        "agent_id: AKIA\nresponse: {threshold: 'AKIA'}\nadapter: AKIA\n",
        "- AKIA\n",
        "AKIA",
        "a: 1\na: AKIA\n",
        "a: 'AKIA\n",
        "a: *AKIA\n",
        "a: !AKIA x\n",
        "AKIA\x07: 1\n",
    ]
    for text in texts:
        document = parse(text, "x.yaml", is_shown=False)
        _, faults = validate(document, models.WorkspaceFile)
        for fault in (*faults, document.fault(("AKIA",), "unknown key `AKIA`", "write: AKIA")):
            assert "AKIA" not in str(fault), text
            assert "root" not in str(fault), text


def test_the_program(tmp_path: Path) -> None:
    program = Program(tmp_path / "work")
    program.agent("dev", "hello")
    aim = tmp_path / "shared.yaml"
    (program.folder / "agents" / "dev.yaml").rename(aim)
    (program.folder / "agents" / "dev.yaml").symlink_to(aim)
    secret = tmp_path / "a.txt"
    secret.write_text("AKIA", encoding="utf-8")
    program.file("scenarios/x.yaml", f"scenario: x\nsteps: [{{send: hi, attach: [{secret}]}}]\n")
    done = program.run("run")
    assert done.code == errors.EXIT_USAGE
    assert "agents/dev.yaml: is a link that leads out of the workspace" in done.stderr
    assert program.run("send", "hi").code == errors.EXIT_USAGE
    assert program.run("run", "--allow-outside").code == 0
    assert program.run("--allow-outside", "send", "-q", "hi").code == 0
    program.env["ARENA_ALLOW_OUTSIDE"] = "1"
    assert program.run("agents", "check").code == 0
    assert program.run("send", "--dry-run", "hi").code == 0


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    def locate(name: str) -> Path | None:
        return files.locate_file(name, [tmp_path], root=tmp_path, scenario=None, anywhere=False)

    (tmp_path / "loop").symlink_to("loop")
    for name in ("../nothing", "x\0", "n" * 5000, ".", "loop"):
        assert locate(name) is None
        assert files.is_inside(tmp_path / name, tmp_path) is (name in (".", "n" * 5000))
