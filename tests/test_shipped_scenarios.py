"""The scenarios of the repository: each passes, and each fails where what it guards is changed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from product import RecordingStore, Runner, ScenarioResult
from product import expect_model as model_module
from product import scenarios_model as model
from program import Program
from pydantic import BaseModel
from stage import Stage, broken, printed

ROOT = Path(__file__).parents[1]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A copy of the workspace that the repository is."""
    for part in ("agents", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "arena.yaml", tmp_path)
    return tmp_path


def played(folder: Path, name: str) -> dict[str | None, ScenarioResult]:
    """What came of a scenario file, by case; replayed where it has a recording."""
    stage = Stage(folder)
    told: list[ScenarioResult] = []
    scenarios = stage.load_files(folder / "scenarios" / f"{name}.yaml")
    shelf = RecordingStore(scenarios, None, in_ci=True)
    asyncio.run(Runner(scenarios, stage.place(), told.append, shelf=shelf).run())
    return {one.case: one for one in told}


def test_all_of_them_pass_and_leave_no_session(shipped: Path) -> None:
    done = Program(shipped, env={"CI": "true"}).run("run", "--jobs", "4", "--json")
    assert done.stderr == ""
    assert done.code == 0, done.stdout
    told = json.loads(done.stdout)
    assert {one["file"] for one in told["scenarios"]} == {
        path.relative_to(ROOT).as_posix() for path in SCENARIOS
    }
    others = {(one["case"], one["status"]) for one in told["scenarios"]} - {(None, "passed")}
    assert others == {
        ("refund", "passed"),
        ("money back", "passed"),
        ("not a refund", "xfailed"),
        ("tried again", "passed"),
        ("taken over", "passed"),
        ("taken over after a refusal", "passed"),
        ("told to wait", "skipped"),
        ("heeded", "passed"),
        ("solved first", "passed"),
        ("ignored", "passed"),
    }
    assert told["warned"] == 0
    assert list((shipped / "sessions").glob("[!.]*")) == []


class Change(NamedTuple):
    """What is changed in a file, and which expectation of the scenario tells it."""

    scenario: str
    file: str
    old: str
    new: str
    field: str
    case: str | None = None


OWN = ""  # the scenario's own file
AUDITOR = "agents/auditor.yaml"
FLOW = "scenarios/fixtures/nightly-report.yaml"
SHOP = "scenarios/fixtures/shop_server.py"

CHANGES = [
    Change(
        "announcement-with-reactions",
        OWN,
        "data: {reaction: ❓}",
        "data: {reaction: 👍}",
        "reactions[1]",
    ),
    Change(
        "announcement-with-reactions", OWN, "@dev @comms 维护", "@dev @oncall 维护", "unread.oncall"
    ),
    Change("blocked-task", OWN, "action: block,", "action: fail,", "tasks.t1.status"),
    Change("blocked-task", OWN, "needs: [t1]", "needs: []", "replied"),
    Change("blocked-task", OWN, "They are in vault 3", "Look for them", "shown.dev[0].contains"),
    Change("blocked-task", OWN, "thread: t1", "kind: chat", "shown.comms[0].not"),
    Change("tasks-in-order", OWN, "priority: 5", "priority: -5", "tasks.t3.status"),
    Change("tasks-in-order", OWN, "needs: [t2, t4]", "needs: [t2]", "shown.comms[0].contains"),
    Change("tasks-in-order", OWN, "max_tasks: 2", "max_tasks: 1", "must"),
    Change("key-used-twice", OWN, "key: alert-4711", "key: alert-4710", "replies_count"),
    Change("gdpr-breakdown", "agents/tester.yaml", "threshold: 0.8", "threshold: 0.3", "asked"),
    Change(
        "nobody-named",
        "agents/teams/software_dev.yaml",
        "default_responders: [architect]",
        "default_responders: [developer]",
        "must",
    ),
    Change(
        "review-handoff",
        "agents/teams/review.yaml",
        "selection: none",
        "selection: ask",
        "timeline_exact[1]",
    ),
    Change("review-handoff", OWN, "@release you can", "release can", "timeline_exact[3]"),
    Change("review-handoff", OWN, "merged as 9f3c1ab", "merged", "save.commit"),
    Change(
        "review-handoff",
        OWN,
        "\n        - when: {contains: approved}",
        "\n"
        '        - when: {contains: withdrawn}\n          say: "Dropped."\n'
        "        - when: {contains: approved}",
        "profiles.release.adapter.replies[0]",
    ),
    Change("review-handoff", OWN, "type: diff, data", "type: code_block, data", "structured[0]"),
    Change(
        "incident-silent-oncall",
        "agents/dev.yaml",
        "keywords: [rollback",
        "keywords: [checkout, pool, rollback",
        "passed_over.dev",
    ),
    Change("incident-silent-oncall", OWN, "{fail: timeout}", "Here.", "outcome.oncall"),
    Change("incident-silent-oncall", OWN, "@maya please confirm it", "then send it", "awaits"),
    Change(
        "incident-silent-oncall",
        OWN,
        "Rolled back to 811",
        "Rolled back, password: hunter2",
        "replies.*.all[0].not",
    ),
    Change("brainstorm", OWN, "max_responders: 2", "max_responders: 3", "must"),
    Change("brainstorm", OWN, "Idea: a sample", "A sample", "replies.*.all[2].starts_with"),
    Change(
        "human-handover",
        "agents/refunds.yaml",
        "threshold: 0.4",
        "threshold: 0.5",
        "asked",
        "refund",
    ),
    Change(
        "human-handover", OWN, "@maya please approve", "It is on its way", "awaits", "money back"
    ),
    Change("injected-peer", OWN, "may_mention: [editor]", "skills: []", "must"),
    Change(
        "injected-peer",
        OWN,
        "profiles:\n",
        "config: {agents_may_mention_all: true}\nprofiles:\n",
        "silent[0]",
    ),
    Change(
        "structured-json", OWN, "content: '{", "content: 'Here it is: {", "replies.planner[0].regex"
    ),
    Change("structured-json", OWN, "cost_usd: 0.004", "cost_usd: 0.04", "cost_usd"),
    Change(
        "structured-json", OWN, "title: login, done", "title: log in, done", "structured.task_list"
    ),
    Change("endless-loop", OWN, "chain_depth_limit: 3", "chain_depth_limit: 4", "must"),
    Change("budget-pause", OWN, "chain: 6000", "chain: 60000", "replied"),
    Change("budget-pause", OWN, "output_tokens: 1600", "output_tokens: 9600", "spent.tokens"),
    Change("budget-degrade", OWN, "[no_may_reply, concise]", "[concise]", "asked"),
    Change("endless-loop", "arena.yaml", "language: zh", "language: en", "system"),
    Change(
        "bilingual-team",
        OWN,
        "Yes, with a test build on",
        "可以，先给测试版，",
        "replies.dev[0].not",
    ),
    Change(
        "bilingual-team",
        OWN,
        "say: 来得及，周四晚上先给测试版。",
        "say: Yes they can.",
        "replies.translator.last[0].language",
    ),
    Change(
        "house-rules",
        OWN,
        "contains: leverage}",
        "contains: synergy}",
        "replies.writer[0].not_contains",
    ),
    Change("house-rules", OWN, "[reviewer]}\n", "[reviewer, ops]}\n", "replied"),
    Change("steered-rollback", OWN, "@dev only eu-west, please", "only eu-west, please", "must"),
    Change("steered-rollback", OWN, "    pause: true\n    after: {agent: dev}\n", "", "replied"),
    Change("release-approval", OWN, "deploy: ask", "deploy: allow", "paused"),
    Change("release-approval", OWN, '["make test *"]', "[]", "replied"),
    Change("storage-choice", OWN, "就用 PostgreSQL。@全栈开发", "就用 PostgreSQL。", "replied"),
    Change(
        "storage-choice", OWN, "action: storage, detail", "action: store, detail", "approvals[0]"
    ),
    Change("supervised-release", OWN, '"order": "sequence",', "", "supervised[0]"),
    Change("supervised-release", OWN, "on_failure: replan", "replans: 0", "supervised[2]"),
    Change("flaky-agent", OWN, "retries: 1", "retries: 0", "outcome.writer", "tried again"),
    Change("flaky-agent", OWN, "selection: ask", "selection: none", "asked", "taken over"),
    Change(
        "second-session",
        OWN,
        "called (\\w+-\\d+)",
        "called (\\w+)-\\d+",
        "replies.archivist[0].regex",
    ),
    Change("programs", OWN, "selection: none}", "chain_depth_limit: 3}", "timeline_exact[4]"),
    Change(
        "small-model",
        OWN,
        'send: "@namer @counter and',
        'send: "@namer and',
        "must",
    ),
    Change("red-build", OWN, "min: 0.8", "min: 0.95", "replies.dev[1].similar"),
    Change(
        "red-build",
        "scenarios/fixtures/finding.schema.json",
        '"test_login", ',
        "",
        "replies.dev[0].json",
    ),
    Change(
        "red-build",
        "scenarios/fixtures/checks.py",
        "test in log",
        "test not in log",
        "replies.dev[2].python",
    ),
    Change("old-decision", OWN, "决定：报表只导出", "报表也许只导出", "notes[0]"),
    Change("old-decision", OWN, "interval: 30", "interval: 90", "compactions"),
    Change(
        "old-decision",
        "scenarios/notes/pit-csv-乱码.md",
        "开头写 BOM",
        "",
        "shown.developer[1].contains",
    ),
    Change(
        "old-decision", OWN, "  selection: none", "  memory: {shown: 0}", "shown_notes.developer"
    ),
    Change("old-decision", OWN, "kind: task\n", "kind: issue\n", "notes.exactly[0]"),
    Change(
        "blocked-release",
        OWN,
        "still waits for its credentials, so it stays behind a flag",
        "is deployed tonight, whatever its credentials",
        "deviations",
        "heeded",
    ),
    Change(
        "blocked-release",
        "scenarios/notes/blocker-payment-credentials.md",
        "status: approved",
        "status: archived",
        "shown_notes.dev",
        "heeded",
    ),
    Change(
        "blocked-release",
        "scenarios/notes/next_action-rotate-keys.md",
        "owner: release",
        "owner: maya",
        "deviations[1]",
        "ignored",
    ),
    Change("retrospective", OWN, "kind: solution", "kind: pit", "notes.solution"),
    Change("retrospective", OWN, "interval: 4", "interval: 40", "compactions"),
    Change(
        "retrospective", OWN, 'of ten minutes."\n  dev', 'of an hour."\n  dev', "notes.decision"
    ),
    Change("fix-a-test", OWN, "new: (1 - discount / 100)}", "new: (1 - discount / 10)}", "tool[2]"),
    Change("fix-a-test", OWN, "modify_file: allow", "modify_file: deny", "tool[1]"),
    Change(
        "fix-a-test",
        "scenarios/fixtures/app/test_prices.py",
        "(10,): 72.0",
        "(10,): 71.0",
        "replies.fixer[0].contains",
    ),
    Change("research-report", OWN, "quote: Invoices", "quotes: Invoices", "ended.librarian"),
    Change("research-report", "agents/librarian.yaml", "[answer, findings]", "[answer]", "tool[2]"),
    Change("broken-server", OWN, "{error:", "{returns:", "tool[0]"),
    Change("ask-a-colleague", OWN, "risk: a wrong percentage", "risk: a typo", "tool[0]"),
    Change("ask-a-colleague", AUDITOR, "file: {type: string", "file: {type: number", "tool[1]"),
    Change("review-exchange", OWN, "may_ask: [reviewer]", "may_ask: [release]", "exchanges[0]"),
    Change("review-exchange", OWN, "cutting. @release", "cutting.", "must"),
    Change(
        "announcement-with-reactions", OWN, "{agent: comms, e", "{agent: dev, e", "reactions[0]"
    ),
    Change("late-answer", OWN, "wait_s: 0.05", "wait_s: 60", "exchanges[0]"),
    Change("late-answer", OWN, "I fail over to db-3.", "<done/>", "shown.comms.all[1].contains"),
    Change("layered-feature", OWN, '"confidence": 0.85', '"confidence": 0.4', "plan.mode"),
    Change("layered-feature", OWN, '"id": "cases",', '"id": "cases", "needs": ["code"],', "must"),
    Change("replan", OWN, "replans: 1\n", "replans: 0\n", "plan.mode"),
    Change("parallel-survey", OWN, '"mode": "parallel"', '"mode": "layered"', "plan.mode"),
    Change("parallel-survey", OWN, "fallback_agent: architect, ", "", "must"),
    Change("nightly-report", FLOW, "total > 20", "total > 2", "flow.shops[1].alarm.status"),
    Change("nightly-report", SHOP, '"price": 40', '"price": 41', "flow.totals.output"),
    Change(
        "nightly-report",
        FLOW,
        "step_kinds: [python, http",
        "step_kinds: [python",
        "flow.orders.status",
    ),
    Change("dying-server", OWN, "max_turns: 6", "max_turns: 2", "ended.librarian"),
    Change("greeting", OWN, "min_confidence: 0.8", "min_confidence: 0.99", "must"),
    Change("greeting", OWN, "enabled: true", "enabled: false", "outcome.dev"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: f"{one.scenario}-{one.field}")
def test_each_fails_where_what_it_guards_is_changed(change: Change, shipped: Path) -> None:
    path = shipped / (change.file or f"scenarios/{change.scenario}.yaml")
    text = path.read_text(encoding="utf-8")
    assert change.old in text
    path.write_text(text.replace(change.old, change.new, 1), encoding="utf-8")
    told = played(shipped, change.scenario)[change.case]
    assert told.status in ("failed", "error"), printed(told)
    assert change.field in [check.field for check in broken(told)], printed(told)


def test_every_scenario_has_such_a_change() -> None:
    assert {change.scenario for change in CHANGES} == {path.stem for path in SCENARIOS}


def keys_in(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from keys_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from keys_in(value)


def test_every_key_of_the_format_stands_in_one_of_them() -> None:
    found = [
        one
        for module in (model, model_module, model_module)
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, BaseModel)
        and one.__module__ == module.__name__
    ]
    known = {info.alias or name for one in found for name, info in one.model_fields.items()}
    files = (ROOT / "scenarios").rglob("*.yaml")
    used = {key for path in files for key in keys_in(yaml.safe_load(path.read_text("utf-8")))}
    assert known - used == set()
