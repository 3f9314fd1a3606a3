"""Relevance: what counts as a hit, and what the number is."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import AgentProfile, Haystack, Member, ResponseSettings, Roster, relevance


def list_hit_words(haystack: Haystack, member: Member) -> list[str]:
    return [hit.word for hit in relevance.find_hits(haystack, member)]


def member(
    agent_id: str = "agent-x",
    name: str = "",
    *,
    keywords: Iterable[str] = (),
    skills: Iterable[str] = (),
    aliases: Iterable[str] = (),
) -> Member:
    profile = AgentProfile(
        agent_id=agent_id,
        aliases=list(aliases),
        skills=list(skills),
        response=ResponseSettings(keywords=list(keywords)),
        adapter={"type": "scripted"},
    )
    return Member(profile, name=name or agent_id)


def hits(text: str, *keywords: str) -> list[str]:
    one = member(keywords=keywords)
    return list_hit_words(Haystack([text], Roster([one])), one)


TEAM = [
    member("architect", "架构师", keywords=["架构", "拆解"]),
    member("compliance", "合规", keywords=["合规", "GDPR"]),
    member("developer", "全栈开发", keywords=["认证", "方案", "实现"]),
    member("tester", "测试工程师", keywords=["测试"]),
]


def test_the_worked_example() -> None:
    phase_a = [
        "@架构师 @合规 请帮我拆解这个需求：做一个用户管理系统，需要符合 GDPR",
        "需求拆解如下：1. 用户认证 2. 权限管理 3. 数据加密 @全栈开发 请按此方案实现",
        "GDPR 要求：用户同意、数据可删除 @测试工程师 请准备测试用例",
    ]
    haystack = Haystack(phase_a, Roster(TEAM))
    assert list_hit_words(haystack, TEAM[2]) == ["认证", "方案", "实现"]
    assert relevance.score_relevance(haystack, TEAM[2]) == 0.784
    assert list_hit_words(haystack, TEAM[3]) == ["测试"]
    assert relevance.score_relevance(haystack, TEAM[3]) == 0.4


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("run the Test now", "test"),
        ("test", "TEST"),
        ("符合GDPR要求", "GDPR"),
        ("GDPR-compliant", "gdpr"),
        ("ＧＤＰＲ", "gdpr"),
        ("请准备测试用例", "测试"),
        ("ใช้ทดสอบระบบ", "ทดสอบ"),
        ("テストケース", "テスト"),
        ("we use C++, mostly", "c++"),
        ("C#语言", "C#"),
        ("with Node.js.", "node.js"),
        ("a user\n  story here", "user story"),
        ("the user story", "User  Story"),
        ("STRASSE", "straße"),
        ("cafe\u0301", "café"),
        ("用户story点", "story"),
        ("go 👩‍🔬!", "👩‍🔬"),
        ("👍🏽test", "test"),
        ("latest test", "test"),
        ("（API）", "api"),
        ("배포를 합니다", "배포"),
        ("롤백해야 합니다", "롤백"),
        ("GDPR을 준수", "gdpr"),
        ("API배포는", "배포"),
        ("배포v2", "배포"),
        ("사용자 관리를", "사용자 관리"),
        ("값이 다르다", "값"),
        ("키는 어디에", "키"),
        ("팀에서도 쓴다", "팀"),
        ("법", "법"),
        ("本番デプロイを確認", "デプロイ"),
        ("GDPRに準拠", "GDPR"),
        ("ต้องทดสอบก่อน", "ทดสอบ"),
    ],
)
def test_a_word_is_found(text: str, keyword: str) -> None:
    assert hits(text, keyword) == [keyword]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("the latest contest", "test"),
        ("tests", "test"),
        ("test_login", "test"),
        ("test2", "test"),
        ("cafe\u0301", "cafe"),
        ("हिन्दी", "ह"),
        ("users stories", "user story"),
        ("user `x` story", "user story"),
        ("user @agent-x story", "user story"),
        ("xnode.js", "node.js"),
        ("go 👩‍🔬!", "👩"),
        ("재배포를", "배포"),
        ("값비싼 장비", "값"),
        ("기본값이", "값"),
        ("팀장에게", "팀"),
        ("배포_id", "배포"),
        ("배", "배포"),
        ("น้ำ", "น"),
        ("anything", ""),
        ("anything", "  "),
    ],
)
def test_a_part_of_a_word_is_not(text: str, keyword: str) -> None:
    assert hits(text, keyword) == []


@pytest.mark.parametrize(
    "text", ["`test`", "```\ntest\n```", "> test", "https://a.example/test", "test@a.example"]
)
def test_hidden_text_is_not_searched(text: str) -> None:
    assert hits(text, "test") == []


def test_nothing_is_found_across_two_texts() -> None:
    one = member(keywords=["user story", "测试"])
    assert list_hit_words(Haystack(["user", "story", "测", "试"], Roster([one])), one) == []


def test_own_names_are_one_hit_together_and_count_without_at_only() -> None:
    one = member("tester", "测试工程师", aliases=["qa"])
    roster = Roster([one])
    assert list_hit_words(Haystack(["tester, qa, 测试工程师"], roster), one) == ["tester"]
    assert list_hit_words(Haystack(["ask QA"], roster), one) == ["qa"]
    assert list_hit_words(Haystack(["@tester @QA @测试工程师"], roster), one) == []
    assert list_hit_words(Haystack(["@tester-x @qa2 a@tester"], roster), one) == []


def test_a_keyword_in_an_unknown_name_counts() -> None:
    assert hits("@GDPR-team please", "GDPR") == ["GDPR"]


def test_one_word_is_one_hit_wherever_it_stands() -> None:
    one = member(
        "tester", keywords=["Test", "test", "tester"], skills=["TEST", "tester", "login form"]
    )
    found = list_hit_words(Haystack(["test the login form, tester, test"], Roster([one])), one)
    assert found == ["Test", "tester", "login form"]


WORDS = ["test", "GDPR", "测试", "认证", "user story", "C++", "ไทย", "👩‍🔬", "é", "node.js"]
TEXTS = st.lists(
    st.sampled_from([*WORDS, " ", "，", "\n\n", "`", "> ", "@", "-", "_", "x", "@all", "\u0301"]),
    max_size=20,
).map("".join)


@settings(deadline=None)
@given(st.sets(st.sampled_from(WORDS)), TEXTS)
def test_score_follows_from_the_number_of_hits(written: set[str], text: str) -> None:
    one = member(keywords=WORDS)
    haystack = Haystack(["，".join(sorted(written)), text], Roster([one]))
    found = list_hit_words(haystack, one)
    assert written <= set(found)
    assert len(set(found)) == len(found)
    assert relevance.score_relevance(haystack, one) == round(1 - 0.6 ** len(found), 4)
    assert 0 <= relevance.score_relevance(haystack, one) < 1


@settings(deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(WORDS))
def test_more_text_or_more_keywords_never_lower_it(text: str, more: str, word: str) -> None:
    one, wider = member(keywords=WORDS[:4]), member(keywords=[*WORDS[:4], word])
    roster = Roster([one])
    before = relevance.score_relevance(Haystack([text], roster), one)
    assert relevance.score_relevance(Haystack([text, more], roster), one) >= before
    assert relevance.score_relevance(Haystack([text], roster), wider) >= before


@settings(deadline=None)
@given(TEXTS)
def test_canonical_form_does_not_matter(text: str) -> None:
    one = member(keywords=WORDS)
    composed, decomposed = (
        list_hit_words(Haystack([unicodedata.normalize(form, text)], Roster([one])), one)
        for form in ("NFC", "NFD")
    )
    assert composed == decomposed
