"""The tasks of a session: what people do to them, and how reports show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import Program
from test_html import HOSTILE, read

LONG = "Tell every customer about the new keys, in a mail that the lawyers have read before"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", {"say": "done"}, skills=["python"])
    made.agent("tester", {"say": "done"}, name="测试")
    made.team(humans=["maya"], selection="none")
    return made


def tasks(program: Program, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        program.run("tasks", "s", "--json", *args).check().stdout
    )
    return found


def test_a_session_is_made_by_its_first_task(program: Program) -> None:
    options = ("-d", "All of them.\nAt night.", "--type", "ops", "--priority", "5", "-a", "测试")
    done = program.run("task", "add", "s", "Rotate the keys", *options, "--from", "maya")
    done.check(stdout="task t1 is added: Rotate the keys\n")
    (task,) = tasks(program)
    known = ("id", "status", "title", "type", "priority", "assigned_to", "by", "needs")
    assert {name: task[name] for name in known} == {
        "id": "t1",
        "status": "pending",
        "title": "Rotate the keys",
        "type": "ops",
        "priority": 5,
        "assigned_to": "tester",
        "by": "maya",
        "needs": [],
    }
    assert task["description"] == "All of them.\nAt night."
    assert [event["type"] for event in program.records()] == ["session", "task"]
    program.run("sessions").check()


def test_the_context_of_an_agent_has_its_tasks(program: Program) -> None:
    program.run("send", "-q", "-s", "s", "@dev hello").check()
    without = program.run("context", "s", "--agent", "dev").check().stdout
    assert "tasks" not in without
    program.run("task", "add", "s", "Rotate the keys", "-a", "dev").check()
    program.run("task", "add", "s", "Tell the users", "-a", "tester").check()
    shown = program.run("context", "s", "--agent", "dev").check().stdout
    assert " tokens · its open tasks, and the last that ended\n" in shown
    assert "- t1 (pending): Rotate the keys\n" in shown
    assert "Tell the users" not in shown
    told = json.loads(program.run("context", "s", "--agent", "dev", "--json").check().stdout)
    assert told["tasks"]["tokens"] > 0
    program.run("send", "-q", "-s", "s", "@dev hello").check()
    called = json.loads(
        program.run("show", "s", "--agent", "dev", "--context", "--json").check().stdout
    )
    assert called["brief"] == told["input"]["brief"]


def test_the_table_says_for_what_each_task_waits(program: Program) -> None:
    program.run("task", "add", "s", "Rotate the keys", "--priority", "5", "-a", "dev").check()
    program.run("task", "add", "s", LONG, "--needs", "t1").check()
    program.run("task", "add", "s", "Write it down", "--needs", "t1, t2").check()
    program.run("task", "block", "s", "t1", "--because", "maya: which vault?").check(
        stdout="task t1 is blocked\n"
    )
    program.run("tasks", "s").check(
        stdout=(
            "task  status   priority  agent  title\n"
            "t1    blocked  5         dev    Rotate the keys           waits: maya: which va…\n"
            "t2    pending  0         -      Tell every customer abo…  waits for t1 (blocked)\n"
            "t3    pending  0         -      Write it down             waits for t1 (blocked…\n"
        )
    )
    assert [task["id"] for task in tasks(program, "--status", "pending")] == ["t2", "t3"]
    assert [task["id"] for task in tasks(program, "--agent", "dev")] == ["t1"]
    assert tasks(program)[2]["waits_for"] == ["t1", "t2"]
    assert tasks(program, "--agent", "tester") == []
    program.run("tasks", "s", "--agent", "tester").check(stdout="no tasks\n")


def test_a_person_changes_a_task_in_every_way(program: Program) -> None:
    program.run("task", "add", "s", "Rotate the keys").check()
    program.run("task", "add", "s", "Clean up").check()
    steps = [
        (("assign", "t1", "dev"), "t1 is now for dev"),
        (("reassign", "t1", "测试"), "t1 is now for tester"),
        (("block", "t1", "--because", "which vault?"), "t1 is blocked"),
        (("unblock", "t1", "--because", "vault 3"), "t1 is pending again"),
        (("complete", "t1", "--result", "-"), "t1 is completed"),
        (("cancel", "t2", "--because", "nobody needs it", "--from", "maya"), "t2 is cancelled"),
    ]
    for (act, task, *rest), said in steps:
        done = program.run("task", act, "s", task, *rest, given=b"By hand.\nIn vault 3.")
        done.check(stdout=f"task {said}\n")
    first, second = tasks(program)
    assert (first["status"], first["result"]) == ("completed", "By hand.\nIn vault 3.")
    assert (second["status"], second["error"]) == ("cancelled", "nobody needs it")
    assert (first["assigned_to"], bool(first["ended"])) == ("tester", True)
    program.run("task", "show", "s", "t1").check(
        stdout=(
            "t1 · completed · Rotate the keys\n"
            "  agent: tester\n"
            "  added by: user\n"
            f"  added: {first['created'][:19].replace('T', ' ')}\n"
            f"  ended: {first['ended'][:19].replace('T', ' ')}\n"
            "  result:\n"
            "  | By hand.\n"
            "  | In vault 3.\n"
            "TIME  ▫ task t1 is for dev, by user\n"
            "TIME  ▫ task t1 is for tester now, by user\n"
            "TIME  ! task t1 is blocked by user: which vault?\n"
            "TIME  ▫ task t1 is unblocked by user: vault 3\n"
            "TIME  ✓ task t1 is completed by user\n"
            "    | By hand.\n"
            "    | In vault 3.\n"
        )
        .replace(first["created"][11:19], "TIME")
        .replace(first["ended"][11:19], "TIME")
    )


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("add", "s", "x", "--needs", "t9"), "it needs t9, which is no task"),
        (("add", "s", "x", "--assign", "bob"), "bob is no member of this team"),
        (("add", "s", "x", "--assign", "maya"), "maya is a person: tasks are for agents"),
        (("add", "s", " "), "the title is empty"),
        (("add", "s", "x" * 201), "the title has 201 characters, at most 200 are allowed"),
        (("add", "s", "x", "--from", "bob"), "bob"),
        (("add", "s", "x", "--team", "others"), "session s has the team crew"),
        (("add", "new", "x", "--needs", "t1"), "session new is new and has no task"),
        (("assign", "s", "t7", "dev"), "session s has no task t7"),
        (("assign", "s", "t2", "dev"), "t2 has ended: it is completed"),
        (("block", "s", "t1"), "what the task waits for"),
        (("unblock", "s", "t1"), "t1 is not blocked: it is pending"),
        (("show", "s", "7"), "session s has no task 7"),
        (("show", "none", "t1"), "there is no session 'none'"),
    ],
)
def test_a_wrong_change_is_refused_and_writes_nothing(
    program: Program, args: tuple[str, ...], problem: str
) -> None:
    program.run("task", "add", "s", "Rotate the keys").check()
    program.run("task", "add", "s", "Clean up").check()
    program.run("task", "done", "s", "t2").check()
    before = program.raw()
    done = program.run("task", *args)
    assert problem in done.stderr
    assert done.code == 2
    assert program.raw() == before
    assert not program.transcript("new").exists()


def test_a_status_that_no_task_has_is_an_error(program: Program) -> None:
    program.run("task", "add", "s", "Rotate the keys").check()
    done = program.run("tasks", "s", "--status", "blockd")
    assert (done.code, "did you mean `blocked`?" in done.stderr) == (2, True), done.stderr


def test_reports_show_tasks_as_text(program: Program) -> None:
    """A hostile title is text in the timeline, the page, the audit, the status and the table."""
    program.run("task", "add", "s", HOSTILE, "-d", HOSTILE, "-a", "dev").check()
    program.run("task", "add", "s", "Clean up", "--needs", "t1").check()
    program.run("task", "done", "s", "t1", "--result", HOSTILE).check()
    for args in (("show", "s"), ("tasks", "s"), ("task", "show", "s", "t1"), ("status", "s")):
        text = program.run(*args).check().stdout
        assert "\x1b" not in text, args
        assert "\u202e" not in text, args
    page = read(program.run("show", "s", "--html").check().stdout)
    cells = [cell.text for cell in page.all("td") if cell.text.startswith("t")]
    assert {"t1", "t2"} <= set(cells)
    entries = json.loads(program.run("export", "s", "--audit", "--format", "json").check().stdout)
    changes = [entry for entry in entries["entries"] if entry["entry"] == "task"]
    assert [change["action"] for change in changes] == ["add", "add", "complete"]


def test_the_timeline_says_once_what_a_message_reports(program: Program) -> None:
    program.run("task", "add", "s", "Rotate the keys", "--type", "ops", "--needs", "").check()
    program.run("task", "add", "s", "Clean up", "--needs", "t1", "-a", "测试").check()
    program.run("task", "assign", "s", "t1", "dev").check()
    program.run("task", "block", "s", "t1", "--because", "which vault?").check()
    text = program.run("show", "s").check().stdout
    assert "  ▫ task t1 by user: Rotate the keys · ops\n" in text
    assert "  ▫ task t2 by user: Clean up · needs t1 · for 测试\n" in text
    assert "  ▫ task t1 is for dev, by user\n" in text
    assert text.count("which vault?") == 1
    counts = program.run("status", "s").check().stdout
    assert "  tasks: 1 pending, 1 blocked\n" in counts
    (session,) = json.loads(program.run("status", "s", "--json").check().stdout)["sessions"]
    assert session["tasks"] == {"counts": {"blocked": 1, "pending": 1}, "running": []}


def test_sessions_that_differ_in_a_task_are_compared(program: Program) -> None:
    for name, reason in (("a", "which vault?"), ("b", "which key?")):
        program.run("task", "add", name, "Rotate the keys").check()
        program.run("task", "block", name, "t1", "--because", reason).check()
    done = program.run("diff", "a", "b")
    assert (done.code, "vault" in done.stdout, "only in" in done.stdout) == (1, True, False)
    assert program.run("diff", "a", "a").check().code == 0


def test_a_session_without_tasks_imports_nothing_of_them(program: Program) -> None:
    program.run("send", "-s", "s", "-q", "@dev hi").check()
    for args in (("show", "s"), ("send", "-s", "s", "-q", "@dev hi"), ("status", "s")):
        imported = program.list_imported(*args)
        own = [name for name in imported if name.startswith("arena_cli.") and "task" in name]
        assert set(own) <= {"arena_cli.util.task_lists", "arena_cli.scenarios.task_steps"}


def test_a_session_with_tasks_is_not_promoted(program: Program) -> None:
    program.run("send", "-s", "s", "-q", "@dev hi").check()
    upto = len(program.records())
    program.run("task", "add", "s", "Rotate the keys").check()
    program.run("send", "-s", "s", "-q", "@dev hi").check()
    done = program.run("promote", "s")
    assert done.code == 2
    assert f"session s has tasks from event {upto + 1} on, and is not promoted" in done.stderr
    assert not (program.folder / "scenarios").exists()
    program.run("promote", "s", "--until", str(upto)).check()


@pytest.mark.parametrize("way", ["tool", "block"])
def test_an_agent_adds_the_first_task_of_a_session(program: Program, way: str) -> None:
    """Its call was answered with "is added when your turn ends", and the task was lost."""
    call = {"tool": "task_update", "arguments": {"action": "add", "title": "写文档"}}
    block = 'I need help.\n```task_list\n{"tasks": [{"title": "写文档"}, {"titel": "x"}]}\n```'
    if way == "tool":
        program.agent("dev", {"calls": [call], "say": "Planned."}, tools=["task_update"])
    else:
        program.agent("dev", block)
    done = program.run("send", "--session", "s", "@dev go").check()
    assert "task t1 by dev: 写文档" in done.stdout
    assert ("Refused, of @dev:\n  - the title is empty" in done.stdout) == (way == "block")
    assert [(task["title"], task["by"]) for task in tasks(program)] == [("写文档", "dev")]


def test_a_task_is_made_of_a_note_once(program: Program) -> None:
    program.run("send", "-s", "s", "@dev hello")
    note = ("knowledge", "add", "Rotate the keys", "--kind", "task", "--text", "All of them.")
    program.run(*note, "-s", "s")
    done = program.run("task", "add", "s", "--from-note", "task-rotate-the-keys", "-a", "dev")
    done.check(stdout="task t1 is added: Rotate the keys\n")
    (task,) = tasks(program)
    assert (task["description"], task["note"]) == ("All of them.", "task-rotate-the-keys")
    again = program.run("task", "add", "s", "--from-note", "task-rotate-the-keys")
    assert again.code == 2
    assert "note task-rotate-the-keys is task t1 already: Rotate the keys" in again.stderr
    program.run("knowledge", "add", "Clean up", "--kind", "task", "-s", "s")
    program.run("knowledge", "approve", "task-clean-up", "-s", "s")
    program.run("task", "add", "s", "--from-note", "task-clean-up", "-d", "The disk.").check(
        stdout="task t2 is added: Clean up\n"
    )
    assert tasks(program)[1]["description"] == "The disk."
    assert "from the note: task-rotate-the-keys" in program.run("task", "show", "s", "t1").stdout


def test_only_a_note_that_is_a_task_becomes_one(program: Program) -> None:
    assert program.run("task", "add", "s", "--from-note", "nothing").code == 2
    assert not (program.folder / "sessions" / "s").exists()
    program.run("send", "-s", "s", "@dev hello")
    program.run("knowledge", "add", "We use Postgres", "--kind", "decision", "-s", "s")
    wrong = program.run("task", "add", "s", "--from-note", "decision-we-use-postgres")
    assert wrong.code == 2
    assert "of the kind decision, not task" in wrong.stderr
    for words in (["x", "--from-note", "y"], []):
        both = program.run("task", "add", "s", *words)
        assert both.code == 2
        assert "a task needs a title, or --from-note" in both.stderr


def test_a_refused_first_task_leaves_no_session(program: Program) -> None:
    for words in (["x", "-a", "nobody"], [" "], ["x" * 300], ["x", "--type", "y" * 300]):
        assert program.run("task", "add", "s", *words).code == 2
        assert not (program.folder / "sessions" / "s").exists()
    program.run("task", "add", "s", "first", "-a", "dev").check()
    assert program.run("task", "add", "s", "x", "-a", "nobody").code == 2
    assert len(tasks(program)) == 1


def test_a_refused_first_task_keeps_files_of_the_user(program: Program) -> None:
    note = program.folder / "sessions" / "s" / "knowledge" / "hand.md"
    note.parent.mkdir(parents=True)
    note.write_text("---\nkind: decision\ntitle: Written by hand\n---\nkeep me\n", "utf-8")
    refused = program.run("task", "add", "s", "x", "--assign", "bob")
    assert refused.code == 2
    assert "keep me" in note.read_text("utf-8")
