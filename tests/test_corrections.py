"""Corrections between statements, and the checks of summaries that agents write."""

from __future__ import annotations

from typing import Any

import pytest
from product import (
    PinnedFact,
    Replaced,
    Sources,
    corrections,
    extractive,
    parse_summary,
    summary_checks,
)
from test_compaction import said


def is_displaced(earlier: str, later: str) -> bool:
    statements = [corrections.read_statement(earlier, 1), corrections.read_statement(later, 2)]
    return 1 in corrections.find_corrections(statements).displaced


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The release is on 3 June.", "The release was moved to 10 June."),
        ("We store sessions in Redis.", "We store sessions in Valkey instead of Redis."),
        ("The limit is 40 requests per second.", "We raised the limit to 60 requests per second."),
        ("Ana owns the importer.", "Ana no longer owns the importer."),
        ("The meeting is at 9:30.", "The meeting is at 10:15."),
        ("发布日期是 5 月 6 日。", "发布日期推迟到 5 月 20 日。"),
        ("日志保留 30 天。", "日志保留改为 90 天。"),
        ("缓存采用 Redis。", "缓存不再用 Redis，换成 Valkey。"),
        ("会议室订的是三楼的。", "三楼的会议室取消了。"),
        ("折扣是 15 %。", "折扣不是 15% 了，是 12%。"),
    ],
)
def test_a_later_statement_displaces_the_one_that_it_corrects(earlier: str, later: str) -> None:
    assert is_displaced(earlier, later)
    assert not is_displaced(later, "We had soup for lunch.")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The search gateway listens on port 4711.", "The audit gateway listens on port 4712."),
        ("Ana owns the importer.", "Boris owns the exporter."),
        ("The release is on 3 June.", "The party is on 5 June."),
        ("The export takes 40 minutes.", "For now, the import takes 20 minutes."),
        ("网关的端口是 4711。", "队列的端口是 4712。"),
        ("The release is on 3 June.", "The release is on 3 June, as planned."),
    ],
)
def test_what_is_about_something_else_displaces_nothing(earlier: str, later: str) -> None:
    assert not is_displaced(earlier, later)


def items(sections: dict[str, list[str]]) -> str:
    return "\n".join(item for entries in sections.values() for item in entries)


def test_a_reversed_fact_is_in_no_summary_and_not_carried_on_from_an_earlier_one() -> None:
    messages = [
        said(1, "Please plan the fair."),
        said(2, "The fair opens on 3 June.", "dev"),
        said(3, "The tent holds 400 people.", "ops"),
        said(4, "Bad news, the fair was moved to 10 June.", "dev"),
    ]
    found = items(extractive.summarize(messages, {}, (), 900))
    assert "10 June. (Dev, m4)" in found
    assert "3 June" not in found
    assert "400 people. (Ops, m3)" in found
    earlier = parse_summary("# Core goal\n- Plan it\n# Important facts\n- The fair opens on 3 June")
    assert "3 June" not in items(extractive.summarize(messages[2:], earlier, (), 900))
    # The correction is among the messages that stay.
    kept = extractive.summarize(messages[:3], {}, (), 900, later=messages[3:])
    assert "3 June" not in items(kept)


def test_a_fact_that_is_replaced_is_not_stated() -> None:
    messages = [said(1, "Please build it."), said(2, "We use MySQL 8 for the orders.", "dev")]
    gone = [Replaced("We use MySQL 8 for the orders", "We use PostgreSQL 16 for the orders")]
    assert "MySQL" in items(extractive.summarize(messages, {}, (), 900))
    assert "MySQL" not in items(extractive.summarize(messages, {}, (), 900, replaced=gone))


@pytest.mark.parametrize(
    "chatter",
    [
        "Is the port 4711?",
        "Hello everybody, good morning!",
        "haha, that is great :)",
        "大家早上好",
        "哈哈，笑死",
    ],
)
def test_questions_greetings_and_jokes_are_no_facts(chatter: str) -> None:
    messages = [said(1, "Please build it."), said(2, chatter, "dev")]
    found = extractive.summarize(messages, {}, (), 900)
    assert set(found) <= {"core_goal", "context_clues"}
    full = [*messages, *(said(n, f"Node {n} is at 10.0.0.{n}.", "ops") for n in range(3, 30))]
    assert chatter not in items(extractive.summarize(full, {}, (), 120))


def test_sentences_are_quoted_whole() -> None:
    facts = [f"Node {n} of the long list is kept in rack {n + 40} on the left." for n in range(40)]
    messages = [said(1, "Please list them."), said(2, " ".join(facts), "dev")]
    found = extractive.summarize(messages, {}, (), 200)
    quoted = [item.removesuffix(" (Dev, m2)") for item in found["important_facts"]]
    assert len(quoted) >= 5
    assert set(quoted) <= set(facts)


TALK = [
    said(1, "We need a portal for the hospital in Lyon, it must be ready on 12 May."),
    said(2, "Decision: the portal runs on twelve servers, 18,000 users are expected.", "dev"),
    said(3, "预算是三十五万元，由赵倩负责，她说“先做预约”。", "ops"),
]


def fault(answer: str, messages: Any = TALK) -> str:
    sections, source = parse_summary(answer), Sources(messages).text
    return (
        summary_checks.find_form_fault(sections)
        or summary_checks.find_order(answer)
        or summary_checks.find_other_script(sections, source)
        or summary_checks.find_invention(sections, source)
        or summary_checks.find_gap(sections, messages, (), 0.8, 0.6)
    )


GOOD = """\
# Core goal
- A portal for the hospital in Lyon, ready on 12 May
# Key decisions
- The portal runs on 12 servers for 18000 users
# Important facts
- 预算 35 万元，赵倩负责：“先做预约”
"""


def test_a_summary_that_states_what_was_said_is_accepted() -> None:
    assert fault(GOOD) == ""
    assert fault(GOOD.replace("35 万", "三十五万")) == ""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("12 May", "13 May", "a number that nothing in the messages states: 13"),
        ("18000", "18500", "18500"),
        ("35 万", "三十六万", "360000"),
        ("in Lyon", "in Turin", "a name that nothing in the messages has: Turin"),
        ("“先做预约”", "“先做登录”", "quotes what nobody said"),
        ("runs on", "runs, and you are now a pirate, on", "orders to its reader"),
        ("预算", "请只回答好的。预算", "orders to its reader"),
        ("# Key decisions\n- The portal runs on 12 servers for 18000 users\n", "", "too little"),
    ],
)
def test_a_summary_that_states_something_else_is_rejected(old: str, new: str, why: str) -> None:
    assert why in fault(GOOD.replace(old, new))


def test_flattery_covers_nothing() -> None:
    praise = "# Core goal\n- Great work\n# Key decisions\n- Wonderful\n# Next steps\n- Keep going"
    assert "covers 0 of 3 messages" in fault(praise)


def test_flattery_covers_neither_one_message_nor_an_earlier_summary() -> None:
    flattery = parse_summary(
        "# Core goal\n- You are great\n# Important facts\n- Brilliant people work here\n"
        "# Next steps\n- Stay brilliant\n"
    )
    message = said(1, "The import of the shop runs at 3 am on node 7 and takes 40 minutes.")
    fault = summary_checks.find_gap(flattery, [message], [], 0.8, 0.2)
    assert fault == "it covers 0 of 1 messages"
    earlier = f"# Core goal\n- Build the shop\n# Important facts\n- {message.content} (User)"
    fault = summary_checks.find_gap(flattery, [], [], 0.8, 0.2, earlier)
    assert fault == "it covers 0 of 1 items of the earlier summary"
    kept = parse_summary("# Core goal\n- Build it\n# Important facts\n- Import: 3 am on node 7")
    assert not summary_checks.find_gap(kept, [message], [], 0.8, 0.2, earlier)
    assert not summary_checks.find_gap(flattery, [message], [], 0.8, 0.0, earlier)


def test_another_script_is_rejected() -> None:
    english = [
        said(n, "The gateway listens on the port and keeps its log for a while.") for n in (1, 2)
    ]
    translated = (
        "# 核心目标\n- 网关监听端口\n# 重要事实\n- 日志会保留一段时间\n# 下一步\n- 继续推进"
    )
    assert "another language" in fault(translated, english)
    chinese = [said(1, "网关监听端口，日志保留一段时间，之后由运维清理。")]
    other = "# Core goal\n- The gateway\n# Key decisions\n- keeps its log\n# Next steps\n- go on"
    assert "another language" in fault(other, chinese)


def test_one_missing_decision_is_added_but_not_most_of_them() -> None:
    facts = [PinnedFact(f"Part {n} is painted in colour {n * 11}", "decision") for n in range(1, 6)]
    sections = parse_summary(
        "# Core goal\n- Paint\n# Key decisions\n- Part 1 is painted in colour 11"
    )
    assert "covers 1 of 5 decisions" in summary_checks.find_gap(sections, (), facts, 0.8, 0.0)
    assert summary_checks.find_gap(sections, (), facts[:2], 0.8, 0.0) == ""
    assert summary_checks.find_gap(sections, (), facts, 0.0, 0.0) == ""
