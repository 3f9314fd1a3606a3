"""Scenarios with tasks: their steps, what they expect, recordings and replays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from product import FileFaults
from program import Program
from stage import Stage, broken, printed

ASKS = {
    "when": {"call": 1},
    "say": "Which vault?",
    "structured": [
        {
            "type": "task_list",
            "data": {"actions": [{"id": "t1", "action": "block", "text": "@maya which vault?"}]},
        }
    ],
}

STEPS = """\
scenario: keys
steps:
  - task: {add: {title: Rotate the keys, type: ops, priority: 5, assign: dev}}
    from: maya
  - task: {add: {title: Tell the customers, needs: [t1], assign: ops}}
"""

UNBLOCKED = (
    STEPS
    + """\
  - work: true
    from: maya
    expect:
      replied: [dev]
      tasks: {t1: blocked, t2: pending}
      end: awaiting_human
      awaits: [maya]
  - task: {unblock: {task: t1, because: vault 3}}
    from: maya
    expect: {tasks: {t1: pending}}
  - work: true
    from: maya
    expect:
      replied: [dev, ops]
      tasks: {t1: {status: completed, agent: dev}, t2: {status: completed, agent: ops}}
"""
)


@pytest.fixture
def stage(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", ASKS, "The keys are rotated.")
    made.agent("ops", "The customers know.")
    made.team(humans=["maya"], selection="none")
    return made


def test_people_change_tasks_in_every_way(stage: Stage) -> None:
    result = stage.play(
        STEPS
        + """\
  - task: {assign: {task: t2, agent: dev}}
    expect: {tasks: {t2: {status: pending, agent: dev}}}
  - task: {block: {task: t1, because: which vault}}
    from: maya
    expect: {tasks: {t1: blocked}, system: [{contains: which vault}]}
  - task: {unblock: t1}
  - task: {done: {task: t1, result: by hand}}
    expect: {tasks: {t1: {status: completed, attempts: 0}}}
  - task: {cancel: {task: t2, because: not now}}
  - check: {tasks: {t1: completed, t2: cancelled, t3: none}}
expect: {tasks: {t1: completed}, replies_count: 0}
"""
    )
    assert result.status == "passed", printed(result)


def test_work_that_waits_for_a_person_continues_its_own_chain(stage: Program) -> None:
    request = {"action": "deploy", "detail": "new keys"}
    stage.agent("dev", {"say": "The keys are live.", "asked": "I wait.", "request": request})
    result = stage.play(
        """\
scenario: keys
steps:
  - task: {add: {title: Rotate the keys, assign: dev}}
  - work: true
    expect: {paused: approval, approvals: [{agent: dev}]}
  - send: "@ops hello"
    session: other
  - approve: {agent: dev}
    expect: {end: quiet, tasks: {t1: completed}}
  - check: {replies: {dev: {last: [{contains: live}]}}, replies_count: 3}
"""
    )
    assert result.status == "passed", printed(result)


def test_a_wrong_expectation_shows_the_task_and_the_others(stage: Stage) -> None:
    result = stage.play(
        STEPS
        + """\
  - task: {block: {task: t1, because: which vault}}
    expect:
      tasks: {t1: completed, t2: {status: pending, agent: dev}, t9: pending}
"""
    )
    failed = {check.field: (check.expected, check.actual) for check in broken(result)}
    assert failed == {
        "tasks.t1": (
            "t1 completed",
            "t1 blocked · agent dev · attempts 0: which vault\n(others: t2 pending)",
        ),
        "tasks.t2.agent": (
            "t2 agent dev",
            "t2 pending · agent ops · attempts 0\n(others: t1 blocked)",
        ),
        "tasks.t9": ("t9 pending", "t9 none\n(others: t1 blocked, t2 pending)"),
    }


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("task: {}", "`task` needs one of add, assign, block, unblock, done, cancel"),
        ("task: {unblock: t1, cancel: t1}", "`task` needs one of"),
        ("task: {add: {title: ''}}", "title"),
        ("task: {unblock: 1}", "unblock"),
        ("task: {assign: {task: t1, agent: bob}}", "no member of this team has the id `bob`"),
        ("task: {add: {title: x, assign: bob}}", "no member of this team has the id `bob`"),
        ("work: {max_tasks: 0}", "max_tasks"),
        ("work: false", "work"),
        ("{work: true, attach: [x.png]}", "`attach` goes with `send` only, not with `work`"),
        ("{task: {unblock: t1}, steer: x}", "goes with a step that runs a chain"),
        ("{check: {tasks: {first: completed}}}", "tasks"),
        ("{check: {tasks: {t1: done}}}", "tasks"),
        ("{check: {tasks: {t1: {agent: bob}}}}", "no member of this team has the id `bob`"),
    ],
)
def test_a_wrong_step_is_an_error_on_load(stage: Stage, step: str, problem: str) -> None:
    with pytest.raises(FileFaults) as caught:
        stage.load(f"scenario: x\nsteps:\n  - send: hi\n  - {step}\n")
    assert problem in str(caught.value)


def test_a_change_that_the_session_refuses_is_an_error(stage: Stage) -> None:
    result = stage.play(STEPS + "  - task: {unblock: t2}\n")
    assert result.status == "error"
    assert "t2 is not blocked: it is pending" in printed(result)


def test_a_saved_text_becomes_a_task(stage: Stage) -> None:
    result = stage.play(
        """\
scenario: saved
steps:
  - send: "@dev which?"
    save: {question: {from: dev}}
  - task: {add: {title: "Answer: ${saved.question}", assign: ops}}
  - work: true
    expect: {tasks: {t1: completed}, system: [{contains: "Answer: Which vault?"}]}
"""
    )
    assert result.status == "passed", printed(result)


def test_a_blocked_task_is_unblocked_recorded_and_replayed(stage: Program) -> None:
    result = stage.play(UNBLOCKED)
    assert result.status == "passed", printed(result)
    path = stage.scenario(UNBLOCKED, "keys")
    stage.run("run", "keys", "--record").check(code=0, stdout=None)
    recording = path.parent / "recordings" / "keys.jsonl"
    lines = [json.loads(line) for line in recording.read_text("utf-8").splitlines()]
    actions = [line["action"] for line in lines if line["type"] == "task"]
    assert actions.count("start") == 3
    done = stage.run("run", "keys", "--replay")
    assert done.code == 0, done.stdout
    # Another order of the steps: those that stayed are found again.
    changed = UNBLOCKED.replace("title: Tell the customers", "title: Tell all customers")
    stage.scenario(changed, "keys")
    done = stage.run("run", "keys", "--replay")
    assert (done.code, "step 2: task has changed" in done.stdout) == (1, True), done.stdout


def test_work_without_tasks_is_an_error(stage: Stage) -> None:
    result = stage.play("scenario: x\nsteps:\n  - work: true\n    expect: {replies_count: 0}\n")
    assert result.status == "error"


def test_limits_of_work(stage: Stage) -> None:
    added = "".join(f"  - task: {{add: {{title: Task {n}, assign: ops}}}}\n" for n in range(3))
    stage.agent("ops", {"say": "Done."})
    result = stage.play(
        f"""\
scenario: x
steps:
{added}  - work: {{max_tasks: 1}}
    expect: {{tasks: {{t1: completed, t2: pending}}, end: chain_limit}}
  - work: {{tasks: [t3]}}
    expect: {{tasks: {{t1: completed, t2: pending, t3: completed}}, end: quiet}}
"""
    )
    assert result.status == "passed", printed(result)
