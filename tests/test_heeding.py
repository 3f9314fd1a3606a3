"""Whether replies heeded the notes that their agents were shown: by words, both ways."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from product import Note, compliance
from program import Program

KEYS = "Payment API credentials are missing"
KEYS_ZH = "支付接口密钥还没有下发"
SCAN = "Release is blocked by the failing security scan"
DB_ZH = "测试环境数据库无法连接"
LOAD = "Run the load test on staging"
LOAD_ZH = "在预发布环境跑压力测试"
LEGAL = "Ask legal about the retention period"

# title, reply, whether the blocker was ignored
BLOCKERS = [
    (KEYS, "I will deploy the payment API tonight.", True),
    (KEYS, "The payment API is integrated. I'm starting the rollout.", True),
    (KEYS, "Payment API: done, merging now.", False),  # it says that something of it is done
    (KEYS, "Implementing the payment API client next.", True),
    (KEYS, "I'm still waiting for the payment API credentials.", False),
    (KEYS, "The payment API is blocked, so I will write the docs first.", False),
    # Other words for what is blocked, and what only sounds alike.
    ("schema change needs approval from Ann", "I altered the table this morning.", True),
    ("Ann 还没批准索引变更", "我把表的索引改了。", True),
    ("Ann 还没批准索引变更", "我先加了缓存，索引等 Ann 批准。", False),
    ("no budget for new hardware", "I ordered two machines.", True),
    ("no budget for new hardware", "I tuned the old servers.", False),
    ("the client has not accepted the design", "I'm implementing the design now.", True),
    ("the client has not accepted the design", "I read the design once more.", False),
    ("pricing page must wait for legal", "The about page went online.", False),
    ("do not touch the invoices before Friday", "I change the invoices on Friday.", False),
    (KEYS, "Once the payment API keys arrive I will deploy.", False),
    (KEYS, "The credentials for the payment API have arrived. I will deploy it tonight.", False),
    (
        KEYS,
        "See blocker-payment-api-credentials-are-missing; I will deploy the payment API.",
        False,
    ),
    (KEYS, "Payment API credentials are missing, and I start with the rest.", False),
    (KEYS, "Who owns the payment API?", False),
    (KEYS, "Shall I deploy the payment API?", False),
    (KEYS, "I will not deploy the payment API today.", False),
    (KEYS, "The payment API docs look good to me.", False),
    (KEYS, "I will deploy the search page tonight.", False),
    (KEYS, "I will deploy the API of the search service tonight.", False),
    (KEYS, "```\ndeploy payment API\n```", False),
    (KEYS, "> I will deploy the payment API.\n\nI saw that.", False),
    (KEYS, "I will build the payment API against a mock.", False),
    (KEYS, "The payment API client will go live.\n\nThat is still blocked, by the way.", False),
    (KEYS, "I will deploy the payment API. The tester is waiting for lunch.", False),
    (
        KEYS,
        "I will deploy the payment API.\n\nOn another note: lunch.\n\nThe designer is stuck.",
        True,
    ),
    (SCAN, "I will release version 2 right now; security can look at the scan afterwards.", True),
    (SCAN, "The security scan passes now that the library is fixed, so I will release.", False),
    (SCAN, "Let's continue with the release, ignoring the security scan result.", True),
    (SCAN, "Version 2 is on hold: the security scan does not pass.", False),
    (KEYS_ZH, "支付接口今天就上线。", True),
    (KEYS_ZH, "我开始对接支付接口。", True),
    (KEYS_ZH, "支付接口密钥还没有下发，我先写文档。", False),
    (KEYS_ZH, "支付接口的密钥已经拿到了，今天上线。", False),
    (KEYS_ZH, "支付接口还在等密钥，先做别的。", False),
    (KEYS_ZH, "支付接口什么时候上线？", False),
    (KEYS_ZH, "支付接口今天不上线。", False),
    (KEYS_ZH, "我开始写登录页面。", False),
    (KEYS_ZH, "等密钥下发后再部署支付接口。", False),
    (DB_ZH, "我现在就在测试环境的数据库上执行迁移。", True),
    (DB_ZH, "测试环境数据库已经恢复了，我马上执行迁移。", False),
    (DB_ZH, "测试环境数据库仍然连不上，迁移推迟到明天。", False),
    (DB_ZH, "收到，先做认证模块", False),
]

# title, owner, new messages, reply, whether the next action was ignored
ACTIONS = [
    (LOAD, "", "What about the load test on staging?", "The logo should be blue.", True),
    (LOAD, "dev", "What about the load test on staging?", "The logo should be blue.", True),
    (LOAD, "DEV", "What about the load test on staging?", "The logo should be blue.", True),
    (LOAD, "ops", "What about the load test on staging?", "The logo should be blue.", False),
    (LOAD, "", "What about the load test on staging?", "I run the load test tonight.", False),
    (LOAD, "", "What about the load test on staging?", "Not now: staging is down.", False),
    (LOAD, "", "What about the load test on staging?", "Will do.", False),
    (LOAD, "", "What about the load test on staging?", "See next_action-x.", True),
    (LOAD, "", "Which colour is the logo?", "The logo should be blue.", False),
    (LOAD, "", "Load test on staging is finished. What now?", "The logo should be blue.", False),
    (LEGAL, "", "How long is the retention period, legally?", "I like dogs.", True),
    (LEGAL, "", "How long is the retention period, legally?", "I will ask legal today.", False),
    (LOAD_ZH, "", "预发布环境的压力测试怎么样了？", "标志应该是蓝色的。", True),
    (LOAD_ZH, "dev", "预发布环境的压力测试怎么样了？", "我今晚跑压力测试。", False),
    (LOAD_ZH, "", "预发布环境的压力测试怎么样了？", "收到，马上处理。", False),
    (LOAD_ZH, "", "预发布环境的压力测试已经完成了。", "标志应该是蓝色的。", False),
    (LOAD_ZH, "tester", "预发布环境的压力测试怎么样了？", "标志应该是蓝色的。", False),
    (LOAD_ZH, "", "标志是什么颜色？", "标志应该是蓝色的。", False),
]


def note(title: str, kind: Any = "blocker", **fields: Any) -> Note:
    name = f"{kind}-{title.lower().replace(' ', '-')}"
    return Note(id=name, file=f"sessions/s/knowledge/{name}.md", title=title, kind=kind, **fields)


@pytest.mark.parametrize(("title", "reply", "is_ignored"), BLOCKERS)
def test_a_blocker_is_ignored_where_the_work_goes_on_over_it(
    title: str, reply: str, is_ignored: bool
) -> None:
    found = compliance.ignored(reply, "How is it going?", [note(title)], "dev")
    assert [one.level for one in found] == ["replan_required"] * is_ignored


@pytest.mark.parametrize(("title", "owner", "new", "reply", "is_ignored"), ACTIONS)
def test_a_next_action_is_ignored_where_it_is_asked_and_not_taken_up(
    title: str, owner: str, new: str, reply: str, is_ignored: bool
) -> None:
    found = compliance.ignored(reply, new, [note(title, "next_action", owner=owner)], "dev")
    assert [one.level for one in found] == ["warning"] * is_ignored


def test_there_are_enough_of_both_kinds() -> None:
    outcomes = [case[-1] for case in (*BLOCKERS, *ACTIONS)]
    assert len(outcomes) >= 40
    assert min(outcomes.count(True), outcomes.count(False)) >= 15


@pytest.mark.parametrize("kind", ["decision", "task", "issue", "progress", "pit"])
def test_other_kinds_are_never_ignored(kind: str) -> None:
    assert (
        compliance.ignored("I will deploy the payment API.", KEYS, [note(KEYS, kind)], "dev") == []
    )


@pytest.mark.parametrize("fields", [{"status": "archived"}, {"superseded_by": "blocker-x"}])
def test_a_note_that_no_longer_counts_is_never_ignored(fields: dict[str, str]) -> None:
    shown = [note(KEYS, **fields)]
    assert compliance.ignored("I will deploy the payment API.", "", shown, "dev") == []


def test_it_says_which_sentence_goes_ahead_in_the_language_of_the_workspace() -> None:
    reply = "Good. I will deploy the payment API tonight."
    (english,) = compliance.ignored(reply, "", [note(KEYS)], "dev")
    (chinese,) = compliance.ignored(reply, "", [note(KEYS)], "dev", language="zh")
    assert english.reason == (
        "goes ahead (I will deploy the payment API tonight.) and says nothing of the blocker"
    )
    assert chinese.reason == (
        "照常推进（I will deploy the payment API tonight.），没有提到这个阻塞"
    )
    assert english.note.title == KEYS


def test_a_title_without_significant_words_bears_on_nothing() -> None:
    assert compliance.ignored("I will start it now.", "it", [note("It is blocked")], "dev") == []
    assert compliance.ignored("", "", [note(KEYS)], "dev") == []


def test_notes_are_told_in_the_order_in_which_they_were_shown() -> None:
    shown = [note(LOAD, "next_action"), note(KEYS)]
    found = compliance.ignored("I will deploy the payment API.", f"{LOAD}, please", shown, "dev")
    assert [one.note for one in found] == shown


def test_what_was_not_heeded_is_an_event_and_stands_in_the_timeline(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent(
        "dev",
        "Blocker: the payment API credentials are missing.",
        "I will deploy the payment API tonight.",
        "The payment API still waits for its credentials.",
        name="Dev",
    ).team()
    told = [program.run("send", "--session", "s", f"@dev {text}").stdout for text in "abc"]
    events = [one for one in program.records() if one["type"] == "deviation"]
    reason = "goes ahead (I will deploy the payment API tonight.) and says nothing of the blocker"
    blocker = "blocker-the-payment-api-credentials-are-missing"
    assert [
        {
            key: one[key]
            for key in (
                *("reply", "agent", "note", "kind", "level", "severity", "reason", "sentence"),
            )
        }
        for one in events
    ] == [
        {
            "reply": 2,
            "agent": "dev",
            "note": blocker,
            "kind": "blocker",
            "level": "replan_required",
            "severity": "high",
            "reason": reason,
            "sentence": "I will deploy the payment API tonight.",
        }
    ]
    line = f"  replan_required, high: Dev ignored {blocker}: {reason}\n"
    assert [text.count(line) for text in told] == [0, 1, 0]
    program.env["ARENA_LANG"] = "zh"
    chinese = program.run("show", "s").stdout
    assert (
        f"  replan_required（需要重新规划），high（高）：Dev 忽略了 {blocker}：{reason}\n"
        in chinese
    )


@pytest.mark.parametrize(
    "text",
    [
        "I will deploy the payment API. " * 2_300,
        "i deploy the payment api " * 2_800,
        "支付接口密钥已经部署完成，" * 5_400,
        "payment API, " * 5_400,
    ],
)
def test_a_line_of_70_000_characters_is_judged_in_time(text: str) -> None:
    shown = [note(KEYS), note(KEYS_ZH), note(ARRIVED, "conclusion"), note(LOAD, "next_action")]
    start = time.process_time()
    compliance.ignored(text, text, shown, "dev")
    list(compliance.says_solved(shown, text))
    assert time.process_time() - start < 10


def test_a_next_action_that_is_left_shows_the_sentence_that_asks_for_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", f"Next step: {LOAD}.", "The logo should be blue.").team()
    program.run("send", "--session", "s", "@dev go on")
    told = program.run("send", "--session", "s", "@dev Hi. How was the load test on staging?")
    (event,) = [event for event in program.records() if event["type"] == "deviation"]
    assert (event["severity"], event["sentence"]) == (
        "medium",
        "How was the load test on staging?",
    )
    assert "(How was the load test on staging?)\n" in told.stdout
    audit = program.run("export", "s", "--audit").stdout
    assert "How was the load test on staging?" in audit
    assert "medium" in audit


ARRIVED, EXPIRY, STORE = (
    "The payment API credentials have arrived",
    "Tokens expire after 15 minutes",
    "Use PostgreSQL for session storage",
)
CONCLUSIONS = [
    (ARRIVED, "", "The payment API credentials have not arrived, so I wait.", True),
    (ARRIVED, "", "Today is fine: the payment API credentials never arrived.", True),
    (ARRIVED, "", "The payment API credentials haven’t arrived.", True),
    (EXPIRY, "", "I coded it so that tokens expire after 60 minutes.", True),
    (STORE, "", "I will use MySQL for session storage.", True),
    ("支付接口密钥已经下发", "", "支付接口密钥没有下发，我先等。", True),
    ("令牌 15 分钟过期", "", "令牌 60 分钟过期。", True),
    (ARRIVED, "", "The payment API credentials have arrived, I deploy now.", False),
    (ARRIVED, "", "The payment API credentials are no longer missing.", False),
    (ARRIVED, "", "Have the payment API credentials not arrived?", False),
    (ARRIVED, "", "If the payment API credentials have not arrived, call the bank.", False),
    (ARRIVED, "", "Do not share the payment API credentials.", False),
    (ARRIVED, "", "> The payment API credentials have not arrived.", False),
    (ARRIVED, "The payment API credentials have not arrived!", "Right, they have not.", False),
    (
        ARRIVED,
        "The payment API credentials have not arrived after all.",
        "Noted: the payment API credentials have not arrived.",
        False,
    ),
    (EXPIRY, "", "Tokens expire after 15 minutes.", False),
    (EXPIRY, "", "Backups expire after 60 minutes.", False),
    (STORE, "", "I use PostgreSQL for session storage.", False),
    (STORE, "", "I use Redis for the cache.", False),
    ("支付接口密钥已经下发", "", "支付接口密钥不再缺失。", False),
    ("支付接口密钥已经下发", "", "支付接口密钥没有下发吗？", False),
]


@pytest.mark.parametrize(("title", "new", "reply", "is_contradicted"), CONCLUSIONS)
def test_a_conclusion_that_a_reply_contradicts(
    title: str, new: str, reply: str, is_contradicted: bool
) -> None:
    found = compliance.ignored(reply, new, [note(title, "conclusion")], "dev")
    assert [match.level for match in found] == ["warning"] * is_contradicted


def test_a_reply_that_names_the_conclusion_may_contradict_it() -> None:
    conclusion = note(ARRIVED, "conclusion")
    reply = f"{conclusion.id} is wrong: the payment API credentials have not arrived."
    assert compliance.ignored(reply, "", [conclusion], "dev") == []


def test_a_contradicted_conclusion_is_a_deviation_of_low_severity(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent(
        "dev",
        "Conclusion: the payment API credentials have arrived.",
        "The payment API credentials have not arrived, I wait.",
    ).team()
    told = [program.run("send", "--session", "s", f"@dev {text}").stdout for text in "ab"]
    (event,) = [event for event in program.records() if event["type"] == "deviation"]
    assert (event["kind"], event["level"], event["severity"]) == ("conclusion", "warning", "low")
    line = (
        "  warning, low: dev ignored conclusion-the-payment-api-credentials-have-arrived: "
        "says otherwise (The payment API credentials have not arrived"
    )
    assert [text.count(line) for text in told] == [0, 1]
