"""`--explain`: whom each `@` named and why not, and how near each member was, term by term."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    AgentProfile,
    Called,
    Candidates,
    Everybody,
    Haystack,
    Human,
    Member,
    MentionSpot,
    Naming,
    Opener,
    Others,
    ReplyFinished,
    Roster,
    ScenarioResult,
    Somebody,
    Words,
    explain,
    mentions,
    relevance,
    visible_text,
)
from stage import Stage


def member(agent_id: str, name: str = "", *aliases: str, **response: Any) -> Member:
    profile = AgentProfile.model_validate(
        {
            "agent_id": agent_id,
            "name": name,
            "aliases": list(aliases),
            "response": response,
            "adapter": {"type": "scripted"},
        }
    )
    return Member(profile, name=name or agent_id)


TEAM = [
    member("dev", "开发", "Node.js"),
    member("chief"),
    member("chief-ops"),
    member("jane", "a@b"),
]
ROSTER = Roster(TEAM, [Human(id="maya")])
SIGNS = ["@", "＠", " ", "\n", "`", "```\n", "~~~\n", "\n> ", "\\", "\u0301"]
NAMES = ["dev", "开发", "chief", "-ops", "x", "@dev", "@all", "@user", "@你", "好", "a@b"]
LINKS = ["http://", ".com", "www.", "/"]
PIECES = st.lists(st.sampled_from([*SIGNS, *NAMES, *LINKS]), max_size=24).map("".join)


def collected(
    spots: list[MentionSpot], author: str, opener: str
) -> tuple[tuple[str, ...], list[str]]:
    """Whom the spots that count name, as `parse` is documented to say it."""
    ids: dict[str, None] = {}
    unknown: dict[str, str] = {}
    for spot in spots:
        if spot.hidden is not None:
            continue
        match spot.target:
            case Everybody():
                ids.update(dict.fromkeys(ROSTER.member_ids))
            case Opener():
                ids[opener] = None
            case Somebody(id=one):
                ids[one] = None
            case None:
                unknown.setdefault(visible_text.fold_text(spot.written), spot.written)
    ids.pop(author, None)
    return tuple(ids), list(unknown.values())


@given(PIECES, st.sampled_from(["dev", "chief", "nobody"]))
def test_the_spots_that_count_are_the_mentions(text: str, author: str) -> None:
    found = mentions.parse_mentions(text, ROSTER, author=author, opener="maya")
    spots = mentions.find_mention_spots(text, ROSTER)
    assert (found.ids, list(found.unresolved)) == collected(spots, author, "maya")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("`@dev`", "code"),
        ("```\n@dev\n", "code"),
        ("~~~\n@dev", "code"),
        ("> @dev", "quote"),
        ("https://x.example/@dev", "address"),
        ("support@dev.example", "address"),
        ("@www.dev.example", "address"),
        ("a@dev", "word"),
        ("@dev", None),
        ("`@dev", None),
    ],
)
def test_why_an_at_does_not_count(text: str, why: str | None) -> None:
    (spot,) = mentions.find_mention_spots(text, ROSTER)
    assert spot.hidden == why


def test_an_at_without_a_name_is_no_spot() -> None:
    assert mentions.find_mention_spots("@ @, me@ ``@`` @!", ROSTER) == []


def test_a_hit_says_what_kind_of_word_it_is_and_where_it_stands() -> None:
    one = member("dev", "开发", keywords=["login", "认证"])
    hits = relevance.find_hits(Haystack(["login", "ask 开发", "@dev"], ROSTER), one)
    assert [(hit.word, hit.kind) for hit in hits] == [("login", "keyword"), ("开发", "name")]
    assert [hit.is_in(Haystack(["ask 开发"], ROSTER)) for hit in hits] == [False, True]
    assert not hits[1].is_in(Haystack(["@开发"], Roster([])))  # an `@` makes it no name


SCENARIO = """scenario: x
steps:
  - step: ask
    send: "@架构师 @合规 拆解 `@tester` x@dev.example @nobody @user"
"""


@pytest.fixture
def played(tmp_path: Path) -> ScenarioResult:
    stage = Stage(tmp_path)
    stage.agent("architect", {"say": "认证 方案 @全栈开发 @全栈开发 @合规"}, name="架构师")
    stage.agent("compliance", {"say": "GDPR 测试 @all"}, name="合规官", aliases=["合规"])
    keywords = {"keywords": ["认证", "方案", "数据"]}
    stage.agent("dev", {"say": "收到 @dev"}, name="全栈开发", response=keywords)
    stage.agent("shy", {"say": "x"}, response={"auto_respond": False})
    stage.agent("tester", {"say": "好"}, skills=["测试"], response={"threshold": 0.8})
    stage.team()
    (told,) = stage.play_all(SCENARIO, detail=True)
    assert told.status == "passed"
    return told


def told_of(played: ScenarioResult, kind: type[Any]) -> list[Any]:
    (step,) = played.steps
    return [one for one in explain.explain_step(step, played.team) if isinstance(one, kind)]


def test_each_at_of_a_message_is_told(played: ScenarioResult) -> None:
    first, architect, compliance, dev, *_ = told_of(played, Naming)
    assert [(one.written, one.ids, one.by, one.why) for one in first.names] == [
        ("架构师", ["architect"], "name", ""),
        ("合规", ["compliance"], "alias", ""),
        ("tester", [], "", "it is in code"),
        ("dev", [], "", "it is in an address"),
        ("nobody", [], "", "no member has this name"),
        ("user", [], "who opened the chain", "it is the author's own name"),
    ]
    assert [(one.written, one.count) for one in architect.names] == [("全栈开发", 2), ("合规", 1)]
    assert architect.calls == ["dev", "compliance"]
    assert compliance.refused == dict.fromkeys(
        ["architect", "dev", "shy", "tester"], "agents_may_mention_all is false"
    )
    assert [(one.ids, one.by) for one in compliance.names] == [
        (["architect", "dev", "shy", "tester"], "everyone")
    ]
    assert dev.names[0].why == "it is the author's own name"


def test_each_member_of_a_turn_is_judged_term_by_term(played: ScenarioResult) -> None:
    first, *_ = told_of(played, Others)
    opening, architect, compliance = first.searched
    assert [(one.agent, one.decision, one.why) for one in first.others] == [
        ("dev", "asked", ""),
        ("tester", "passed over", "below its threshold"),
        ("shy", "no candidate", "auto_respond: false"),
    ]
    dev, tester, shy = first.others
    assert [(one.word, one.kind, one.messages) for one in dev.found] == [
        ("认证", "keyword", [architect]),
        ("方案", "keyword", [architect]),
    ]
    assert [(one.word, one.kind, one.messages) for one in tester.found] == [
        ("测试", "skill", [compliance])
    ]
    assert (dev.relevance, tester.relevance, shy.relevance) == (0.64, 0.4, None)
    assert opening not in {
        name for one in first.others for found in one.found for name in found.messages
    }


def test_whom_only_next_mentions_name_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    says = {
        "say": "@b @Zed @all",
        "next_mentions": ["B", "@c", "d", "zed", "a", "maya", "@nob\x1b"],
    }
    stage.agent("a", says, may_mention=["b", "c", "e"])
    for name in "bcde":
        stage.agent(name, {"say": "ok"}, response={"auto_respond": False})
    stage.team(humans=["maya"])
    (told,) = stage.play_all("scenario: x\nsteps: [{send: '@a hi'}]", detail=True)
    reply = next(one for one in told_of(told, Naming) if one.author == "a")
    assert reply.calls == ["b", "c"]
    assert [(one.written, one.ids, one.by, one.why) for one in reply.added] == [
        ("", ["c"], "named in next_mentions", ""),
        ("", ["maya"], "named in next_mentions", ""),
        ("nob\x1b", [], "named in next_mentions", "no member has this name"),
    ]
    text = "\n".join(line.text for line in explain.draw_explanation(told, Words()))
    assert (
        "      → c (named in next_mentions)\n"
        "      → maya (named in next_mentions)\n"
        "      nob\\x1b → none: no member has this name (named in next_mentions)\n" in text
    )
    chinese = "\n".join(line.text for line in explain.draw_explanation(told, Words("zh")))
    assert "      → c (在 next_mentions 里点名)\n" in chinese


def test_a_call_that_the_text_does_not_make_needs_no_other_word(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.agent("a", {"say": "done", "next_mentions": ["c", "d"]}, may_mention=["c"])
    stage.agent("c", {"say": "ok"}).agent("d", {"say": "ok"}).team(selection="none")
    (told,) = stage.play_all("scenario: x\nsteps: [{send: '@a hi'}]", detail=True)
    text = "\n".join(line.text for line in explain.draw_explanation(told, Words()))
    assert (
        "a: done\n"
        "      → c (named in next_mentions)\n"
        "      → d (named in next_mentions)\n"
        "      so it calls: c\n"
        "      may not call d: not in may_mention\n" in text
    )


def test_who_had_to_reply_is_told_with_who_named_it(played: ScenarioResult) -> None:
    turns = told_of(played, Called)
    assert (turns[0].turn, turns[0].must) == (
        1,
        {"architect": ["user"], "compliance": ["user"]},
    )


def test_the_text_tells_the_same(played: ScenarioResult) -> None:
    text = "\n".join(line.text for line in explain.draw_explanation(played, Words()))
    assert "next_mentions" not in text
    for part in (
        "  why, in step 1: ask\n",
        "      @合规 → compliance (alias)\n",
        "      @tester → none: it is in code\n",
        "      @全栈开发 ×2 → dev (name)\n",
        "      may not call tester: agents_may_mention_all is false\n",
        "    turn 1 · must reply: architect (named by user), compliance (named by user)\n",
        "      dev: asked · 2 hits: 1 - 0.6^2 = 0.64 >= 0.6\n",
        "      tester: passed over · 1 hit: 1 - 0.6^1 = 0.4 < 0.8\n",
        "      shy: no candidate · auto_respond: false",
    ):
        assert part in f"{text}\n", text


def test_a_chinese_reader_gets_chinese_reasons(played: ScenarioResult) -> None:
    say = Words("zh")
    told = [*explain.HIDDEN.values(), explain.NOBODY, explain.OWN_NAME, "no place left", "keyword"]
    told += ["deferred to the next turn", "called in this chain already", "asked", "passed over"]
    assert [text for text in told if say(text) == text] == []
    text = "\n".join(line.text for line in explain.draw_explanation(played, say))
    assert "      @tester → 无人：在代码里\n" in text
    assert "      dev：被询问 · 2 处命中：1 - 0.6^2 = 0.64 >= 0.6\n" in text


def test_why_somebody_replies_whom_nobody_names(tmp_path: Path) -> None:
    one = Stage(tmp_path / "one").agent("dev", {"say": "ok"}).team()
    two = Stage(tmp_path / "two").agent("dev", {"say": "ok"}).agent("ops", {"say": "ok"})
    two.team(default_responders=["ops"], selection="none")
    for stage, why in ((one, "the only member"), (two, "default_responders")):
        (told,) = stage.play_all("scenario: x\nsteps: [{send: hi}]", detail=True)
        (turn,) = told_of(told, Called)
        assert turn.why == why
        (others,) = told_of(told, Others)
        assert [one.why for one in others.others] == ["selection: none"] * (
            len(told.team.members) - 1
        )


def test_places_and_deferrals_are_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for name in ("a1", "a2", "a3"):
        stage.agent(name, {"say": "ok"}, response={"keywords": ["deploy"], "threshold": 0.3})
    stage.team(max_responders=1)
    (told,) = stage.play_all("scenario: x\nsteps: [{send: '@a1 @a2 deploy'}]", detail=True)
    first, second = told_of(told, Called)
    assert (first.deferred, second.must) == (["a2"], {"a2": ["user"]})
    judged = {one.agent: one.why for one in told_of(told, Others)[0].others}
    assert judged == {"a3": "no place left", "a2": "deferred to the next turn"}
    judged = {one.agent: one.why for one in told_of(told, Others)[1].others}
    assert judged == {"a1": "called in this chain already", "a3": "below its threshold"}


def test_planted_messages_and_other_sessions_are_explained(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "ok @user"}).team(humans=["maya"])
    (told,) = stage.play_all(
        """scenario: x
steps:
  - say: {agent: dev, text: "`@maya` @maya"}
    session: other
  - send: "@dev hi"
    from: maya
    session: other
  - check: {turns: 1}
""",
        detail=True,
    )
    assert told.status == "passed"
    planted, sent, check = (explain.explain_step(step, told.team) for step in told.steps)
    assert isinstance(planted[0], Naming)
    assert planted[0].planted
    assert [one.ids for one in planted[0].names] == [[], ["maya"]]
    (reply,) = (one for one in sent if isinstance(one, Naming) and one.author == "dev")
    assert [one.ids for one in reply.names] == [["maya"]]  # who opened the chain
    assert check == []


def test_nothing_of_a_message_draws(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", {"say": "\x1b[2J @x\x1b @\x1b"}).team()
    (told,) = stage.play_all(
        "scenario: x\nsteps: [{send: '@dev hi', step: \"\\e[2J\"}]", detail=True
    )
    assert "\x1b" not in "".join(line.text for line in explain.draw_explanation(told, Words()))


WORDS = ["deploy", "认证", "dev", "ops", "@dev", "@ops", "@all", " ", "，", "`", "\n> "]


@given(
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join),
    st.sampled_from(["relevance", "ask", "none"]),
)
def test_it_agrees_with_what_the_engine_decided(
    tmp_path_factory: pytest.TempPathFactory, first: str, second: str, selection: str
) -> None:
    stage = Stage(tmp_path_factory.mktemp("w"))
    stage.agent("dev", {"say": f"x {first}"}, response={"keywords": ["deploy", "认证"]})
    stage.agent("ops", {"say": f"x {second}"}, response={"keywords": ["认证"], "threshold": 0.3})
    stage.agent("pm", {"say": "done"}, skills=["deploy"])
    stage.team(selection=selection, default_responders=["dev"], max_responders=2)
    (told,) = stage.play_all(f"scenario: x\nsteps: [{{send: {second + ' x'!r}}}]", detail=True)
    (step,) = told.steps
    explained = explain.explain_step(step, told.team)
    judged = [one for one in explained if isinstance(one, Others)]
    decided = [event for event in step.events if isinstance(event, Candidates)]
    for ours, event in zip(judged, decided, strict=True):
        assert [one.agent for one in ours.others if one.decision == "asked"] == event.asked
        over = {one.agent: one for one in ours.others if one.decision == "passed over"}
        assert {name: one.relevance for name, one in over.items()} == {
            name: one.relevance for name, one in event.passed_over.items()
        }
    said = {one.message: one for one in explained if isinstance(one, Naming)}
    for event in step.events:
        if isinstance(event, ReplyFinished) and event.message:
            named = dict.fromkeys(one for at in said[event.message.id].names for one in at.ids)
            assert list(named) == event.message.mentions
            assert said[event.message.id].added == []
