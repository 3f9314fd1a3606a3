"""What is wrong with the notes of a team: found by words, and put right where that is plain."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import Message, Note, NoteFinding, claims, lifecycle, review
from program import Program

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EARLY, LATE = "2026-02-20T00:00:00.000Z", "2026-02-25T00:00:00.000Z"


def note(kind: Any, title: str, created: str = EARLY, **fields: Any) -> Note:
    name = fields.pop("id", f"{kind}-{title.lower().replace(' ', '-')}")
    fields.setdefault("updated", created)
    return Note(id=name, file="f", title=title, kind=kind, created=created, **fields)


def found(*notes: Note, said: list[str] | None = None, **options: Any) -> list[NoteFinding]:
    messages = [
        Message(
            id=f"m{seq}",
            author_id="dev",
            author_name="Dev",
            author_type="agent",
            content=text,
            timestamp="2026-02-22T00:00:00.000Z",
        )
        for seq, text in enumerate(said or [], 10)
    ]
    return review.inspect(notes, messages, NOW, **options)


KEYS = note("blocker", "Payment API credentials are missing", source="m3")
KEYS_BY_ID = note("blocker", "Payment API credentials are missing", id="blocker-k7", source="m3")
KEYS_ZH = note("blocker", "支付接口密钥还没有下发", source="m3")


@pytest.mark.parametrize(
    ("blocker", "text"),
    [
        (KEYS, "Good news. The payment API credentials have arrived! Going on."),
        (KEYS, "We got the credentials for the payment API yesterday."),
        (KEYS, "- the missing payment API credentials: resolved"),
        (KEYS, "blocker-payment-api-credentials-are-missing is solved."),
        (KEYS_BY_ID, "blocker-k7 is solved."),
        (KEYS_ZH, "支付接口密钥已经拿到了。"),
        (KEYS_ZH, "好消息：支付接口的密钥问题解决了，可以联调。"),
        (KEYS_ZH, "支付接口密钥终于到位。"),
    ],
)
def test_a_blocker_that_a_later_message_calls_solved(blocker: Note, text: str) -> None:
    (finding,) = found(blocker, said=["hello", text])
    assert (finding.what, finding.note, finding.message) == ("solved", blocker, "m11")
    assert finding.conclusion
    assert finding.conclusion in text
    assert finding.reason == f"m11 says that it is solved: {finding.conclusion}"


@pytest.mark.parametrize(
    ("blocker", "text"),
    [
        (KEYS, "Have the payment API credentials arrived?"),
        (KEYS, "The payment API credentials are not resolved yet."),
        (KEYS, "Once the payment API credentials have arrived, we deploy."),
        (KEYS, "The search bug is fixed."),
        (KEYS, "The payment API is blocked."),
        (KEYS, "> The payment API credentials have arrived."),
        (KEYS, "`payment API credentials: resolved`"),
        (KEYS_ZH, "支付接口密钥已经拿到了吗？"),
        (KEYS_ZH, "支付接口密钥还没有拿到。"),
        (KEYS_ZH, "等支付接口密钥到位了再联调。"),
        (KEYS_ZH, "如果支付接口密钥问题解决了，就上线。"),
        (KEYS_ZH, "登录页面已经完成。"),
    ],
)
def test_a_blocker_of_which_nobody_says_that(blocker: Note, text: str) -> None:
    assert found(blocker, said=["hello", text]) == []


def test_only_what_came_later_solves_a_blocker() -> None:
    text = "The payment API credentials have arrived."
    assert found(KEYS.model_copy(update={"source": "m10"}), said=[text]) == []
    assert found(KEYS, said=[text], seen={KEYS.id: 10}) == []
    assert found(KEYS, said=[text], seen={KEYS.id: 9})
    by_hand = KEYS.model_copy(update={"source": None})
    assert found(by_hand, said=[text])
    assert found(by_hand.model_copy(update={"created": LATE}), said=[text]) == []
    assert found(by_hand.model_copy(update={"created": "once"}), said=[text]) == []


@pytest.mark.parametrize(
    ("updated", "is_stale"),
    [
        ("2026-01-29T23:59:00.000Z", True),
        ("2026-01-30T00:00:00.000Z", False),
        ("2026-01-20", True),
        ("2026-02-28T00:00:00+08:00", False),
        ("some day", False),
    ],
)
def test_a_next_action_that_nobody_touched_for_30_days(updated: str, is_stale: bool) -> None:
    action = note("next_action", "Run the load test", created="", updated=updated)
    assert [one.what for one in found(action)] == ["stale"] * is_stale
    assert found(note("task", "Run the load test", created=updated)) == []


def test_an_old_next_action_says_how_old() -> None:
    (finding,) = found(note("next_action", "Run it", created="2026-01-01T00:00:00Z"))
    assert finding.reason == "unchanged for 59 days"


SAME = [
    ("We use PostgreSQL for the storage", "Use PostgreSQL for storage"),
    ("Use PostgresSQL for storage", "Use PostgreSQL for storage"),
    ("会话存入数据库", "我们会话存入数据库。"),
    ("We decided that tokens expire after 15 minutes", "tokens expire after 15 minutes"),
    ("我们决定会话存入数据库", "会话存入数据库"),
]
NOT_SAME = [
    ("管理员登录须启用双因素认证", "管理员登录须停用双因素认证"),
    ("Export started", "Export finished"),
    ("备份保留 90 天", "备份保留 30 天"),
    ("Login must need a password", "Login must not need a password"),
    ("Move from Redis to Kafka", "Move from Kafka to Redis"),
]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [(*pair, True) for pair in SAME] + [(*pair, False) for pair in NOT_SAME],
)
def test_two_notes_of_one_kind_that_say_the_same(one: str, other: str, is_same: bool) -> None:
    later, earlier = note("progress", one, LATE), note("progress", other)
    findings = found(later, earlier)
    assert [(each.what, each.note, each.other) for each in findings] == (
        [("duplicate", later, earlier)] if is_same else []
    )
    assert found(later, note("issue", other)) == []


def test_of_many_that_say_the_same_one_stays_and_an_approved_one_before_others() -> None:
    notes = [
        note("pit", title, created, id=f"pit-{place}", status=status)
        for place, (title, created, status) in enumerate(
            [
                ("Use the pool", EARLY, "draft"),
                ("Use the pool", LATE, "approved"),
                ("use the pool!", LATE, "draft"),
                ("Use the pool", LATE, "archived"),
            ]
        )
    ]
    assert [(one.note.id, one.other and one.other.id) for one in found(*notes)] == [
        ("pit-0", "pit-1"),
        ("pit-2", "pit-1"),
    ]


AT_ODDS = [
    ("Use PostgreSQL for session storage", "Use MySQL for session storage"),
    ("Sessions live in PostgreSQL", "Sessions live in Redis"),
    ("我们决定采用 PostgreSQL 存储会话", "我们决定采用 MySQL 存储会话"),
    ("数据库使用 PostgreSQL", "数据库使用 MySQL"),
    ("技术选型确定为 Vue 3", "技术选型确定为 React"),
    ("Tokens expire after 15 minutes", "Tokens expire after 60 minutes"),
    ("备份必须保留 90 天", "备份必须保留 30 天"),
    ("Passwords must be stored in clear text", "Passwords must not be stored in clear text"),
    ("日志中不得出现身份证号", "日志中必须出现身份证号"),
    ("We will use Redis instead of Memcached for the cache", "We will use Memcached for the cache"),
]
NOT_AT_ODDS = [
    ("Use PostgreSQL for sessions", "Use Redis for the cache"),
    ("Passwords must be hashed", "Tokens must not be logged"),
    ("Step 1 exports users", "Step 2 imports users"),
    ("使用 Redis 做缓存", "使用 PostgreSQL 存储会话"),
    ("备份必须保留 90 天", "日志必须保留 30 天"),
    ("Use the cache", "Use the pool"),
    ("Service 1 stores its table in PostgreSQL", "Service 2 stores its table in PostgreSQL"),
    ("Step 1 takes 5 seconds", "Step 2 takes 9 seconds"),
]


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [(*pair, True) for pair in AT_ODDS] + [(*pair, False) for pair in NOT_AT_ODDS],
)
def test_decisions_and_requirements_that_contradict_each_other(
    one: str, other: str, are: bool
) -> None:
    later, earlier = note("requirement", one, LATE), note("decision", other)
    findings = found(later, earlier)
    assert [(each.what, each.note, each.other) for each in findings] == (
        [("contradiction", later, earlier)] if are else []
    )
    assert not any(each.can_be_applied for each in findings)
    assert found(note("progress", one), note("progress", other, LATE)) == []


def test_what_contradicts_says_in_what() -> None:
    reasons = [
        found(note("decision", one), note("decision", other, LATE))[0].reason
        for one, other in (AT_ODDS[0], AT_ODDS[5], AT_ODDS[7])
    ]
    assert reasons == [
        "another choice for the same thing (PostgreSQL and MySQL)",
        "they differ in a number (15 minutes and 60 minutes)",
        "one denies what the other says",
    ]
    decisions = [note("decision", title) for title in AT_ODDS[5]]
    assert found(*decisions, language="zh")[0].reason == "数字不同（15 minutes 与 60 minutes）"


def test_notes_that_no_longer_count_are_not_looked_at() -> None:
    archived = KEYS.model_copy(update={"status": "archived"})
    superseded = KEYS.model_copy(update={"superseded_by": "blocker-x"})
    said = ["The payment API credentials have arrived."]
    assert found(archived, superseded, said=said) == []


def test_many_notes_that_are_much_alike_are_all_told_apart() -> None:
    notes = [
        note("decision", f"Service {number} stores its tables in PostgreSQL", id=str(number))
        for number in range(1000)
    ]
    assert found(*notes) == []


BLOCKER = "blocker-the-payment-api-credentials-are-missing"
ACTION = "next_action-run-the-load-test"

TOLD = """\
session s:
  solved · {blocker} · the payment API credentials are missing · {solved}
    arena knowledge add --session s --kind conclusion --source {message} --text {converted}
    arena knowledge archive --session s {blocker} --reason '{solved}'
  stale · {action} · Run the load test · {stale}
    arena knowledge archive --session s {action} --reason '{stale}'
  duplicate · decision-b · We use PostgreSQL for the storage · says the same as decision-a
    arena knowledge archive --session s decision-b --reason 'says the same as decision-a'
  contradiction · decision-c · Use MySQL for storage · {a}: {odds}
    arena knowledge show --session s decision-a
to do it: arena knowledge inspect --session s --apply
"""

LEFT = """\
session s:
  contradiction · decision-c · Use MySQL for storage · {a}: {odds}
    arena knowledge show --session s decision-a
"""


def said(program: Program) -> dict[str, str]:
    """What stands in `TOLD` and `LEFT`, of that session."""
    answered = [one for one in program.records() if one["type"] == "reply_finished"]
    message = answered[-1]["message"]["id"]
    conclusion = "The payment API credentials have arrived"
    days = (datetime.now(UTC) - datetime(2025, 1, 1, tzinfo=UTC)).days
    return {
        "blocker": BLOCKER,
        "action": ACTION,
        "message": message,
        "conclusion": conclusion,
        "converted": f"'Solved blocker: the payment API credentials are missing' -- '{conclusion}'",
        "solved": f"{message} says that it is solved: {conclusion}",
        "stale": f"unchanged for {days} days",
        "a": "decision-a (Use PostgreSQL for storage)",
        "odds": "another choice for the same thing (PostgreSQL and MySQL)",
    }


def written(program: Program, name: str, title: str, **fields: Any) -> None:
    """Put a note of session `s` there by hand."""
    front = {"title": title, "kind": name.partition("-")[0], **fields}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    program.file(f"sessions/s/knowledge/{name}.md", f"---\n{lines}---\n")


@pytest.fixture
def team(tmp_path: Path) -> Program:
    """A session `s` with a note of which each thing can be found, and one that is sound."""
    program = Program(tmp_path)
    program.agent(
        "dev",
        "Blocker: the payment API credentials are missing.",
        "The payment API credentials have arrived.",
    ).team(humans=["alice"])
    for text in ("how is it?", "any news?"):
        assert program.run("send", "--session", "s", f"@dev {text}").code == 0
    written(program, ACTION, "Run the load test", updated="2025-01-01")
    written(program, "decision-a", "Use PostgreSQL for storage", created="2025-01-01")
    written(
        program,
        "decision-b",
        "We use PostgreSQL for the storage",
        created="2025-02-01",
        occurrences=3,
        related_sessions=["other"],
    )
    written(program, "decision-c", "Use MySQL for storage", created="2025-03-01")
    written(program, "pit-a", "Time zones")
    return program


def test_the_command_says_what_is_wrong_and_what_would_do_it(team: Program) -> None:
    before = team.raw()
    done = team.run("knowledge", "inspect", "--session", "s")
    done.check(stdout=TOLD.format(**said(team)))
    assert team.raw() == before


def test_what_it_proposes_is_done_each_act_with_its_reason(team: Program) -> None:
    before, words = len(team.records()), said(team)
    done = team.run("knowledge", "inspect", "-c", "--apply", "--by", "王芳")
    assert (done.code, done.stdout) == (0, LEFT.format(**words))
    conclusion = "conclusion-the-payment-api-credentials-have-arrived"
    events = team.records()[before:]
    assert [(one["act"], one["note"], one["by"], one["reason"]) for one in events] == [
        ("added", conclusion, "王芳", ""),
        ("archived", BLOCKER, "王芳", words["solved"]),
        ("archived", ACTION, "王芳", words["stale"]),
        ("superseded", "decision-b", "王芳", "says the same as decision-a"),
        ("seen", "decision-a", "王芳", "decision-b"),
    ]
    assert [line.split(" · ")[1:3] for line in done.stderr.splitlines()] == [
        [one["note"], one["act"]] for one in events
    ]
    again = team.run("knowledge", "inspect", "-c", "--apply")
    again.check(stdout=LEFT.format(**words))
    assert len(team.records()) == before + len(events)


def test_one_message_may_solve_two_and_what_was_cut_short_is_done_again(team: Program) -> None:
    again = "blocker-missing-credentials-of-the-payment-api"
    written(team, again, "Missing credentials of the payment API", source="m2")
    conclusion = ("--kind", "conclusion", "--source", said(team)["message"])
    add = ("knowledge", "add", "-s", "s", *conclusion, "--", said(team)["conclusion"])
    team.run(*add).check()  # as far as it came before it was killed
    assert team.run("knowledge", "inspect", "-s", "s", "--apply").code == 0
    found = json.loads(team.run("knowledge", "list", "-s", "s", "--json").stdout)
    status = {one["id"]: one["status"] for one in found}
    assert (status[BLOCKER], status[again]) == ("archived", "archived")
    assert [one["occurrences"] for one in found if one["kind"] == "conclusion"] == [1]
    told = [one["act"] for one in team.records() if one.get("kind") == "conclusion"]
    assert told == ["added", "edited", "edited"]
    (path,) = team.folder.glob("sessions/s/knowledge/conclusion-*.md")
    text = path.read_text(encoding="utf-8")
    assert text.count("Solved blocker: the payment API credentials are missing") == 1
    assert text.count("Solved blocker: Missing credentials of the payment API") == 1


@pytest.mark.parametrize("is_taken_by_rules", [False, True])
def test_a_conclusion_keeps_the_text_the_owner_and_the_tags_of_its_blocker(
    tmp_path: Path, is_taken_by_rules: bool
) -> None:
    program = Program(tmp_path)
    solved = "支付接口密钥已经拿到了。"
    program.agent("dev", f"结论：{solved}" if is_taken_by_rules else solved).team()
    blocker = "blocker-支付接口密钥还没有下发"
    body = "第一行：联系银行。\n\n第二行：工单 4711。"
    assert program.run("send", "--session", "s", "@dev 开始").code == 0
    front = 'title: 支付接口密钥还没有下发\nkind: blocker\ncreated: "2020-01-01T00:00:00Z"\n'
    program.file(
        f"sessions/s/knowledge/{blocker}.md",
        f"---\n{front}owner: 王芳\ntags: [支付, bank]\n---\n\n{body}\n",
    )
    assert program.run("knowledge", "inspect", "-c", "--apply").code == 0
    listed = json.loads(program.run("knowledge", "list", "-c", "--json").stdout)
    assert {note["status"] for note in listed if note["id"] == blocker} == {"archived"}
    (conclusion,) = [note for note in listed if note["kind"] == "conclusion"]
    assert (conclusion["owner"], conclusion["tags"]) == ("王芳", ["支付", "bank"])
    shown = json.loads(program.run("knowledge", "show", conclusion["id"], "-c", "--json").stdout)
    assert f"Solved blocker: 支付接口密钥还没有下发\n\n{body}" in shown["body"]


def test_an_approved_conclusion_keeps_its_own_text(team: Program) -> None:
    words = said(team)
    add = ("knowledge", "add", "-s", "s", "--kind", "conclusion", "--", words["conclusion"])
    team.run(*add).check()
    name = "conclusion-the-payment-api-credentials-have-arrived"
    team.run("knowledge", "approve", name, "-s", "s").check()
    assert team.run("knowledge", "inspect", "-s", "s", "--apply").code == 0
    shown = json.loads(team.run("knowledge", "show", name, "-s", "s", "--json").stdout)
    assert (shown["status"], shown["body"].strip()) == ("approved", "")
    assert "approval" not in shown


def test_a_blocker_that_is_told_of_again_is_open_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    missing = "Blocker: the payment API credentials are missing."
    program.agent("dev", missing, "The payment API credentials have arrived.", missing).team()
    for text in ("how is it?", "any news?", "and now?"):
        assert program.run("send", "--session", "s", f"@dev {text}").code == 0
    assert [one["act"] for one in program.records() if one["type"] == "note"] == ["added", "seen"]
    told = program.run("knowledge", "inspect", "--session", "s")
    told.check(stdout="session s: no problem found in 1 note\n")


def test_what_was_one_is_counted_with_the_other(team: Program) -> None:
    team.run("knowledge", "inspect", "-c", "--apply")
    listed = json.loads(team.run("knowledge", "list", "-c", "--json").stdout)
    notes = {one["id"]: one for one in listed}
    assert notes["decision-a"]["occurrences"] == 4
    assert notes["decision-a"]["related_sessions"] == ["other"]
    assert notes["decision-b"]["superseded_by"] == "decision-a"
    assert {name for name in notes if notes[name]["status"] == "archived"} == {
        BLOCKER,
        ACTION,
        "decision-b",
    }


def test_the_findings_as_json(team: Program) -> None:
    found = json.loads(team.run("knowledge", "inspect", "-c", "--json").stdout)
    assert [(one["what"], one["note"], one["other"], one["applied"]) for one in found] == [
        ("solved", BLOCKER, None, False),
        ("stale", ACTION, None, False),
        ("duplicate", "decision-b", "decision-a", False),
        ("contradiction", "decision-c", "decision-a", False),
    ]
    assert (found[0]["session"], found[0]["message"]) == ("s", said(team)["message"])
    after = json.loads(team.run("knowledge", "inspect", "-c", "--json", "--apply").stdout)
    assert [(one["what"], one["applied"]) for one in after] == [
        ("solved", True),
        ("stale", True),
        ("duplicate", True),
        ("contradiction", False),
    ]


def test_what_it_prints_can_be_run(team: Program) -> None:
    told = team.run("knowledge", "inspect", "-c").stdout.splitlines()
    commands = [shlex.split(line)[1:] for line in told if line.startswith("    arena ")]
    assert [team.run(*command).code for command in commands] == [0] * 5
    left = json.loads(team.run("knowledge", "inspect", "-c", "--json").stdout)
    assert [one["what"] for one in left] == ["contradiction"]


def test_nothing_found_is_said(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hello").team()
    program.run("send", "--session", "s", "@dev hi")
    program.run("knowledge", "inspect").check(
        stdout="session s: no problem found in 0 notes\nshared notes: no problem found in 0 notes\n"
    )
    program.run("knowledge", "inspect", "--shared", "--apply").check(
        stdout="shared notes: nothing left to do\n"
    )
    assert not (tmp_path / "sessions/knowledge").exists()
    written(program, "pit-a", "Time zones")
    program.run("knowledge", "inspect", "-c").check(
        stdout="session s: no problem found in 1 note\n"
    )
    program.env["ARENA_LANG"] = "zh"
    program.run("knowledge", "inspect", "-c").check(stdout="会话 s：1 条笔记，未发现问题\n")


def test_shared_notes_are_looked_through_too(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hello").team()
    for name, created in (("a", "2025-01-01"), ("b", "2025-02-01")):
        program.file(
            f"sessions/knowledge/pits/{name}.md",
            f"---\ntitle: Time zones are told twice\nkind: pit\ncreated: '{created}'\n---\n",
        )
    done = program.run("knowledge", "inspect", "--shared", "--apply")
    assert (done.code, done.stdout) == (0, "shared notes: nothing left to do\n")
    trail = (tmp_path / "sessions/knowledge/history.jsonl").read_text(encoding="utf-8")
    acts = [json.loads(line) for line in trail.splitlines()]
    assert [(one["act"], one["note"]) for one in acts] == [
        ("superseded", "pits/b"),
        ("seen", "pits/a"),
    ]


def test_a_note_that_cannot_be_read_is_told_and_the_others_are_looked_at(team: Program) -> None:
    team.file("sessions/s/knowledge/pit-b.md", "---\ntitle: [\n---\n")
    done = team.run("knowledge", "inspect", "-c")
    assert done.code == 0
    assert "sessions/s/knowledge/pit-b.md:" in done.stderr
    assert done.stdout == TOLD.format(**said(team))


def test_what_a_note_says_steers_no_terminal_and_no_shell(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hello").team()
    program.run("send", "--session", "s", "@dev hi")
    written(program, "blocker-x", "\x1b[31m$(touch pwned) `id` 'x'", created="2025-01-01")
    program.run("send", "--session", "s", "blocker-x is solved: \x1b[31m$(touch pwned) 'x' `id`")
    told = program.run("knowledge", "inspect", "-c").stdout
    assert "\x1b" not in told
    commands = [shlex.split(line)[1:] for line in told.splitlines() if line.startswith("    arena")]
    assert len(commands) == 2
    assert "$(touch pwned)" in commands[0][-1]
    assert [program.run(*command).code for command in commands] == [0, 0]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["decision", "task"]),
            st.lists(
                st.sampled_from(["use", "uses", "colour", "color", "queue", "queues", "3", "登录"]),
                min_size=1,
                max_size=6,
            ).map(" ".join),
        ),
        max_size=30,
    )
)
def test_duplicates_are_those_that_comparing_every_pair_finds(
    titles: list[tuple[Any, str]],
) -> None:
    notes = [
        note(kind, title, id=f"{kind}-{number:02}") for number, (kind, title) in enumerate(titles)
    ]
    originals: list[Note] = []
    repeated = []
    for one in notes:
        is_repeated = any(
            other.kind == one.kind
            and (
                lifecycle.match_titles(other.title, one.title)
                or (claims.read_claim(one.title).stems or None)
                == claims.read_claim(other.title).stems
            )
            for other in originals
        )
        (repeated if is_repeated else originals).append(one)
    findings = [finding for finding in found(*notes) if finding.can_be_applied]
    assert [finding.note.id for finding in findings] == [one.id for one in repeated]
