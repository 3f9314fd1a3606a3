"""`snapshot: true`: what a reply was, and how it differs now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from checking import faults, stage_in, text_of
from product import (
    CheckContext,
    CheckResult,
    DiskRefused,
    Expect,
    Snapshots,
    evaluate,
    path_of,
    read_conversation,
)
from program import Program
from stage import Stage

SNAPSHOT = {"replies": {"dev": [{"snapshot": True}]}}
HERE = Path("scenarios/one.yaml")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_in(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def kept(stage: Stage) -> str:
    return path_of(stage.folder / HERE).read_text(encoding="utf-8")


def judged(
    stage: Stage,
    *replies: Any,
    expect: Any = SNAPSHOT,
    case: str | None = None,
    cases: Sequence[str] = ("eu", "us"),
    update: bool = False,
    whole: bool = True,
) -> list[CheckResult]:
    """What comes of snapshots of these replies of `dev`, one a step, each judged by itself."""
    (told,) = stage.play_all(text_of(replies, {}, sends=len(replies)), detail=True)
    snapshots = Snapshots(stage.folder / HERE, case, cases=cases if case else [None], update=update)
    results: list[CheckResult] = []
    for step in told.steps:
        one = CheckContext(stage.folder, read_conversation(step.events))
        one.step = step.number
        one.snapshots = snapshots
        shape = Expect.model_validate(expect)
        results += evaluate.checked(shape, one, lambda _: (str(HERE), 1), ("expect",))
    snapshots.save(is_whole=whole)
    return results


def statuses(results: Sequence[CheckResult]) -> list[str]:
    return [result.status for result in results]


def test_what_is_not_there_yet_fails_and_says_what_writes_it(stage: Stage) -> None:
    (result,) = judged(stage, "好的\n第二行")
    assert result.status == "failed"
    assert result.expected == "the reply equals its snapshot"
    assert "no snapshot yet (`arena run --update one` writes it)" in result.actual
    assert not path_of(stage.folder / HERE).exists()


def test_update_takes_it_over_and_the_file_reads_as_lines(stage: Stage) -> None:
    assert statuses(judged(stage, "好的\n第二行", "ok", update=True)) == ["passed", "passed"]
    assert (
        kept(stage) == "{\n"
        '  "version": 1,\n'
        '  "snapshots": [\n'
        "    {\n"
        '      "case": null,\n'
        '      "step": 1,\n'
        '      "agent": "dev",\n'
        '      "reply": 1,\n'
        '      "text": [\n'
        '        "好的",\n'
        '        "第二行"\n'
        "      ]\n"
        "    },\n"
        "    {\n"
        '      "case": null,\n'
        '      "step": 2,\n'
        '      "agent": "dev",\n'
        '      "reply": 1,\n'
        '      "text": [\n'
        '        "ok"\n'
        "      ]\n"
        "    }\n"
        "  ]\n"
        "}\n"
    )
    assert path_of(stage.folder / HERE) == stage.folder / "scenarios/recordings/one.snapshots.json"
    assert statuses(judged(stage, "好的\n第二行", "ok")) == ["passed", "passed"]
    assert statuses(judged(stage, "好的\n第二行", "OK")) == ["passed", "failed"]
    ignoring = {"replies": {"dev": [{"snapshot": True, "ignore_case": True}]}}
    assert statuses(judged(stage, "好的\n第二行", "ＯＫ", expect=ignoring)) == ["passed", "passed"]


def test_a_difference_is_told_line_by_line(stage: Stage) -> None:
    before = "\n".join(["intro", "1. login", "2. audit", "3. roles", "4. logs", "5. end", "bye"])
    after = before.replace("2. audit", "2. export").replace("5. end\n", "")
    judged(stage, before, update=True)
    (result,) = judged(stage, after)
    assert result.expected.splitlines() == [
        "…",
        "  1. login",
        "- 2. audit",
        "  3. roles",
        "  4. logs",
        "- 5. end",
        "  bye",
    ]
    assert result.actual.splitlines() == [
        "…",
        "  1. login",
        "+ 2. export",
        "  3. roles",
        "  4. logs",
        "",
        "  bye",
        "(dev in turn 1: it differs; `arena run --update one` writes it)",
    ]


def test_what_differs_only_in_blanks_can_be_seen(stage: Stage) -> None:
    judged(stage, "a\tb \nｗｉｄｅ", update=True)
    (result,) = judged(stage, "a b\nwide\nmore")
    assert result.expected.splitlines() == [r'- "a\tb "', "  ｗｉｄｅ"]
    assert result.actual.splitlines()[:3] == ['+ "a b"', "  wide", "+ more"]


def test_line_ends_of_windows_make_no_difference(stage: Stage) -> None:
    judged(stage, "a\r\nb", update=True)
    assert '"a",\n' in kept(stage)
    assert statuses(judged(stage, "a\nb")) == ["passed"]
    path = path_of(stage.folder / HERE)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert statuses(judged(stage, "a\r\nb")) == ["passed"]


def test_a_long_line_is_told_around_what_differs_and_a_long_text_is_cut(stage: Stage) -> None:
    judged(stage, "a" * 900 + " red " + "b" * 900, update=True)
    (result,) = judged(stage, "a" * 900 + " green " + "b" * 900)
    assert " red b" in result.expected
    assert " green b" in result.actual
    assert len(result.expected) < 200
    judged(stage, "\n".join(f"old {n}" for n in range(500)), update=True)
    (result,) = judged(stage, "\n".join(f"new {n}" for n in range(500)))
    assert result.expected.endswith("\n… 460 more lines")
    assert len(result.actual.splitlines()) == 42


def test_only_what_changed_is_written_and_what_nobody_asked_for_goes(stage: Stage) -> None:
    judged(stage, "one", "two", case="eu", update=True)
    judged(stage, "uno", case="us", update=True)
    written = path_of(stage.folder / HERE).stat()
    judged(stage, "one", "two", case="eu", update=True)
    assert path_of(stage.folder / HERE).stat().st_ino == written.st_ino
    judged(stage, "one", case="eu", update=True, whole=False)  # cut short: its second step may stay
    assert path_of(stage.folder / HERE).stat().st_ino == written.st_ino
    judged(stage, "One", case="eu", update=True)
    entries = json.loads(kept(stage))["snapshots"]
    assert [(one["case"], one["text"]) for one in entries] == [("eu", ["One"]), ("us", ["uno"])]
    for case in ("eu", "us"):
        judged(stage, "x", expect={"turns": 1}, case=case, update=True)
    assert not path_of(stage.folder / HERE).exists()


def test_those_of_a_case_that_is_gone_go_too(stage: Stage) -> None:
    judged(stage, "one", case="eu", update=True)
    judged(stage, "uno", case="us", update=True)
    judged(stage, "one", case="eu", cases=["eu"], update=True, whole=False)
    assert '"us"' in kept(stage)
    judged(stage, "one", case="eu", cases=["eu"], update=True)
    assert '"us"' not in kept(stage)
    judged(stage, "one", update=True)
    assert '"eu"' not in kept(stage)


def test_without_update_nothing_is_written(stage: Stage) -> None:
    judged(stage, "one", update=True)
    before = kept(stage)
    assert statuses(judged(stage, "two")) == ["failed"]
    assert kept(stage) == before


def test_every_reply_has_its_own(stage: Stage) -> None:
    expect = {
        "replies": {"*": {"all": [{"snapshot": True}]}, "dev": {"last": [{"snapshot": True}]}}
    }
    (told,) = stage.play_all(text_of(["a", "b"], {}, sends=2), detail=True)
    whole = CheckContext(
        stage.folder, read_conversation(event for step in told.steps for event in step.events)
    )
    whole.snapshots = Snapshots(stage.folder / HERE, None, cases=[None], update=True)
    evaluate.checked(Expect.model_validate(expect), whole, lambda _: ("x", 1), ("expect",))
    whole.snapshots.save(is_whole=True)
    entries = json.loads(kept(stage))["snapshots"]
    assert [(one["step"], one["reply"], one["text"]) for one in entries] == [
        (None, 1, ["a"]),
        (None, 2, ["b"]),
    ]


def test_what_cannot_be_read_or_written_is_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DiskRefused, match="No space left"):
        judged(stage, "one", update=True)
    folder = stage.folder / "scenarios/recordings"
    assert list(folder.iterdir()) == []
    (folder / "one.snapshots.json").mkdir()
    assert statuses(judged(stage, "one", update=True, whole=False)) == ["error"]


@pytest.mark.parametrize(
    "expect",
    [
        {"system": [{"snapshot": True}]},
        {"timeline": [{"agent": "dev", "snapshot": True}]},
        {"replies": {"dev": {"any": [{"snapshot": True}]}}},
        {"replies": {"dev": [{"not": {"snapshot": True}}]}},
        {"replies": {"dev": [{"any_of": [{"contains": "a", "snapshot": True}]}]}},
        {"structured": {"diff": [{"snapshot": True}]}},
        {"attachments": [{"name": "a", "snapshot": True}]},
    ],
)
def test_where_it_cannot_stand_it_says_where_it_can(stage: Stage, expect: Any) -> None:
    (fault,) = faults(stage, **expect)
    assert fault.endswith("snapshot: a snapshot is not allowed here")


def test_it_is_true_or_not_there(stage: Stage) -> None:
    (fault,) = faults(stage, {"snapshot": False})
    assert "snapshot: must be" in fault


GOOD = '{"case": null, "step": 1, "agent": "dev", "reply": 1, "text": ["x"]}'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{\n  "version": 1,\n  "snap', ":3: not JSON: "),
        ('{\n<<<<<<< HEAD\n"version": 1', ":2: not JSON: "),
        ("[]", ": holds no snapshots"),
        ('{"version": 2, "snapshots": []}', ": is of version 2; this arena reads 1"),
        (
            '{"version": 1, "snapshots": [5]}',
            ": snapshots[0] is not a snapshot: it needs case, step",
        ),
        (
            '{"version": 1, "snapshots": [{}]}',
            ": snapshots[0] is not a snapshot: it needs case, step",
        ),
        (f'{{"version": 1, "snapshots": [{GOOD}, {GOOD}]}}', ": snapshots[1] appears twice"),
        (
            f'{{"version": 1, "snapshots": [{GOOD.replace("1,", "[],")}]}}',
            ": snapshots[0] is not a snapshot",
        ),
    ],
)
def test_a_file_that_was_cut_or_edited_is_told_before_anything_runs(
    stage: Stage, content: str, what: str
) -> None:
    path = path_of(stage.folder / "scenarios/s0.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    (fault,) = faults(stage, {"snapshot": True}, {"snapshot": True, "level": "warn"})
    assert f"scenarios/recordings/s0.snapshots.json{what}" in fault


def test_how_to_write_it_can_be_typed_as_it_is(program: Program) -> None:
    program.agent("dev")
    for path, named in (
        ("scenarios/计划 one.yaml", '"计划 one"'),
        ("more/two.yaml", "more/two.yaml"),
    ):
        program.file(path, text_of(["hi"], SNAPSHOT))
        assert f"`arena run --update {named}` writes it" in program.run("run", path).stdout
        program.file(f"{Path(path).parent}/recordings/{Path(path).stem}.snapshots.json", "[]")
        assert f"write it again: arena run --update {named}\n" in program.run("run", path).stderr


def test_those_that_nobody_asks_for_must_be_readable_too(program: Program) -> None:
    program.agent("dev")
    program.file("scenarios/one.yaml", text_of(["hi"], {"turns": 1}))
    program.file("scenarios/recordings/one.snapshots.json", "{")
    assert program.run("run", "one").code == 0
    done = program.run("run", "one", "--update")
    assert done.code == 3
    assert "recordings/one.snapshots.json:1: not JSON" in done.stdout


def test_the_program_writes_and_compares_them(program: Program) -> None:
    program.agent("dev")
    program.file("scenarios/one.yaml", text_of(["first\nsecond"], SNAPSHOT))
    assert program.run("run", "one").code == 1
    assert program.run("run", "one", "--update").code == 0
    assert program.run("run", "one").code == 0
    program.file("scenarios/one.yaml", text_of(["first\nanother"], SNAPSHOT))
    done = program.run("run", "one")
    assert done.code == 1
    assert "- second" in done.stdout
    assert "+ another" in done.stdout
    assert "it differs; `arena run --update one` writes it)" in done.stdout
    assert program.run("run", "one", "--update").code == 0
    assert program.run("run", "one").code == 0
