"""The turn rules, through a session: who is called when, who sees what, how a chain ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from product import AgentInput, AgentOutput, AgentOverloaded
from support import WORKED_MESSAGE, Puppets, Talk, member, puppet, team, worked_team


def contents(shown: AgentInput) -> list[tuple[str, str]]:
    return [(message.author_id, message.content) for message in shown.messages]


def test_the_worked_example(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    finished = talk.send(WORKED_MESSAGE)

    assert talk.turns() == [(["architect", "compliance"], ["developer"]), (["tester"], [])]
    passed_over = talk.of("candidates")[0].passed_over
    assert {name: why.model_dump(exclude_none=True) for name, why in passed_over.items()} == {
        "tester": {"relevance": 0.4, "threshold": 0.8}
    }
    assert talk.of("turn_started")[1].mentioned_by == {"tester": ["compliance", "developer"]}
    assert talk.of("turn_finished")[0].next == ["tester"]
    assert (finished.end, finished.replies, finished.turns) == ("quiet", 4, 2)


def test_phase_a_sees_the_history_only_and_phase_b_sees_phase_a(tmp_path: Path) -> None:
    puppets = Puppets({name: lambda shown: f"{shown.agent_id} speaks" for name in "abc"})
    people = team(puppet("a"), puppet("b"), puppet("c"), selection="ask")
    Talk(tmp_path, people, adapter_type=puppets).send("@a @b go")

    (shown_a,), (shown_b,), (shown_c,) = (puppets.inputs[name] for name in "abc")
    assert contents(shown_a) == contents(shown_b) == [("user", "@a @b go")]
    assert contents(shown_c)[1:] == [("a", "a speaks"), ("b", "b speaks")]
    assert (shown_a.invocation, shown_c.invocation) == ("must_reply", "may_reply")
    assert shown_c.trigger == [message.id for message in shown_c.messages]
    assert shown_a.mentioned_by == ["user"]
    assert shown_c.mentioned_by == []


@pytest.mark.parametrize("slow", ["a", "b", "c"])
def test_order_of_arrival_changes_nothing(tmp_path: Path, slow: str) -> None:
    async def answer(shown: AgentInput) -> str:
        for _ in range(20 if shown.agent_id == slow else 0):
            await asyncio.sleep(0)
        return f"{shown.agent_id} says @d"

    puppets = Puppets(dict.fromkeys("abc", answer) | {"d": lambda _: "done"})
    people = team(*(puppet(name) for name in "abcd"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=puppets)
    talk.send("@b @a @c go")

    order = [message.author_id for message in puppets.inputs["d"][0].messages]
    assert order == ["user", "b", "a", "c"]
    assert puppets.inputs["d"][0].mentioned_by == ["b", "a", "c"]
    assert [one.agent for one in talk.of("reply_finished")][2] == slow


def test_the_same_words_give_the_same_hash_whatever_the_session(tmp_path: Path) -> None:
    first, second = Talk(tmp_path, worked_team(), "one"), Talk(tmp_path, worked_team(), "two")
    first.send(WORKED_MESSAGE)
    second.send(WORKED_MESSAGE)

    def hashes(talk: Talk) -> list[str]:
        return [event.input_hash for event in talk.of("reply_started")]

    assert hashes(first) == hashes(second)
    assert len(set(hashes(first))) == 4


def test_two_runs_with_the_same_clock_are_equal_byte_for_byte(tmp_path: Path) -> None:
    one, two = Talk(tmp_path / "1", worked_team()), Talk(tmp_path / "2", worked_team())
    one.send(WORKED_MESSAGE)
    two.send(WORKED_MESSAGE)
    assert one.transcript.read_bytes() == two.transcript.read_bytes()


def test_default_responders_answer_where_nobody_is_named(tmp_path: Path) -> None:
    people = team(
        member("a", [{"say": "a"}]), member("b", [{"say": "b"}]), default_responders=["b"]
    )
    talk = Talk(tmp_path, people)
    talk.send("hello")
    talk.send("@nobody hello")
    assert [must for must, _ in talk.turns()] == [["b"], ["b"]]
    assert talk.of("message")[1].unresolved == ["nobody"]


def test_a_team_of_one_must_answer(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", ["hi"])))
    assert talk.send("hello").end == "quiet"


def test_nobody_is_called_where_nobody_must_and_nobody_is_near(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", ["hi"]), member("b", ["hi"])))
    finished = talk.send("hello")
    assert (finished.end, finished.replies) == ("no_reply", 0)
    assert talk.of("reply_started") == []


def test_a_message_for_a_human_alone_calls_no_default_responder(tmp_path: Path) -> None:
    people = team(
        member("a", ["hi"]), member("b", ["hi"]), humans=["maya"], default_responders=["a"]
    )
    talk = Talk(tmp_path, people)
    assert talk.send("@maya look").end == "no_reply"
    assert talk.last("message").message.mentions == ["maya"]


def test_to_stands_before_the_mentions_of_the_text(tmp_path: Path) -> None:
    people = team(*(member(name, [name]) for name in "abc"), selection="none")
    talk = Talk(tmp_path, people)
    talk.send("@a hello", to=["c"])
    assert talk.turns()[0][0] == ["c", "a"]


def test_too_many_are_deferred_and_never_lost(tmp_path: Path) -> None:
    names = "abcde"
    puppets = Puppets({name: lambda shown: f"{shown.agent_id}." for name in names})
    people = team(*(puppet(name) for name in names), max_responders=2, selection="ask")
    talk = Talk(tmp_path, people, adapter_type=puppets)
    assert talk.send("@all go").end == "quiet"

    assert talk.turns() == [(["a", "b"], []), (["c", "d"], []), (["e"], [])]
    assert [event.deferred for event in talk.of("turn_started")] == [["c", "d", "e"], ["e"], []]
    (last,) = puppets.inputs["e"]
    triggers = [message.content for message in last.triggers()]
    assert triggers == ["@all go", "c.", "d."]
    assert last.mentioned_by == ["user"]


def test_mentions_add_up_over_a_deferral(tmp_path: Path) -> None:
    people = team(
        member("a", ["@c please"]), member("b", ["b"]), member("c", ["c"]), max_responders=1
    )
    talk = Talk(tmp_path, people)
    talk.send("@a @c go")
    assert talk.turns() == [(["a"], []), (["c"], [])]
    assert talk.of("turn_started")[1].mentioned_by == {"c": ["user", "a"]}


def test_relevance_places_and_thresholds(tmp_path: Path) -> None:
    people = team(
        member("a", ["parse, cache, disk"]),
        member("far", ["x"], response={"keywords": ["network"]}),
        member("two", ["x"], response={"keywords": ["parse", "cache"]}),
        member("three", ["x"], response={"keywords": ["parse", "cache", "disk"]}),
        member("never", ["x"], response={"keywords": ["parse", "cache"], "auto_respond": False}),
        max_responders=2,
    )
    talk = Talk(tmp_path, people)
    talk.send("@a go")
    candidates = talk.of("candidates")[0]
    assert candidates.asked == ["three"]
    assert {
        name: why.model_dump(exclude_none=True) for name, why in candidates.passed_over.items()
    } == {
        "two": {"relevance": 0.64, "reason": "no place left"},
        "far": {"relevance": 0.0, "threshold": 0.6},
    }


def test_ask_asks_everyone_and_none_nobody(tmp_path: Path) -> None:
    members = [member("a", [{"say": "a"}]), member("b", [{"decline": True}])]
    asked = Talk(tmp_path, team(*members, selection="ask"), "one")
    asked.send("@a go")
    assert (asked.turns(), asked.outcomes()) == (
        [(["a"], ["b"])],
        [("a", "success"), ("b", "declined")],
    )
    silent = Talk(tmp_path, team(*members, selection="none"), "two")
    silent.send("@a go")
    assert silent.turns() == [(["a"], [])]


def test_one_who_was_called_in_the_turn_is_not_called_again_by_it(tmp_path: Path) -> None:
    members = [member("a", [{"say": "@b hm"}]), member("b", [{"say": "@a hm"}])]
    talk = Talk(tmp_path, team(*members))
    assert talk.send("@a @b go").end == "quiet"
    again = Talk(tmp_path, team(*members, re_invoke_already_replied=True, chain_depth_limit=2), "x")
    assert again.send("@a @b go").end == "chain_limit"
    assert [must for must, _ in again.turns()] == [["b", "a"]] * 0 + [
        ["a", "b"],
        ["b", "a"],
        ["a", "b"],
    ]


def test_one_who_declined_may_be_called_by_the_same_turn(tmp_path: Path) -> None:
    people = team(
        member("a", [{"say": "@b you?"}]),
        member("b", ["<pass/>", "yes"]),
        selection="ask",
    )
    talk = Talk(tmp_path, people)
    talk.send("@a @b go")
    assert talk.outcomes() == [("a", "success"), ("b", "declined"), ("b", "success")]


def test_c10_a_loop_ends_at_the_limit_and_says_who_was_due(tmp_path: Path) -> None:
    people = team(member("a", [{"say": "@b your turn"}]), member("b", [{"say": "@a your turn"}]))
    talk = Talk(tmp_path, people)
    finished = talk.send("@a go")
    assert (finished.end, finished.turns, finished.replies) == ("chain_limit", 6, 6)
    assert talk.last("turn_finished").next == ["a"]
    notice = talk.last("message").message
    assert (notice.author_type, notice.kind) == ("system", "system")
    assert "Still due: a" in notice.content


def test_the_limit_is_told_in_the_workspace_language(tmp_path: Path) -> None:
    people = team(member("a", [{"say": "@b"}]), member("b", ["x"]), chain_depth_limit=0)
    talk = Talk(tmp_path, people, language="zh")
    talk.send("@a go")
    assert "仍待回复：b" in talk.last("message").message.content


def test_c09_a_mention_of_oneself_opens_no_turn(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("echo", ["You said: @echo hello"])))
    finished = talk.send("@echo hello")
    assert (finished.end, finished.turns) == ("quiet", 1)


def test_c15_all_from_an_agent_calls_nobody_unless_the_team_says_so(tmp_path: Path) -> None:
    members = [member("a", [{"say": "@all wake up"}]), member("b", ["b"]), member("c", ["c"])]
    talk = Talk(tmp_path, team(*members, selection="none"), "one")
    talk.send("@a go")
    reply = talk.of("reply_finished")[0]
    assert reply.next_mentions == []
    assert set(reply.refused) == {"b", "c"}
    open_team = team(*members, selection="none", agents_may_mention_all=True)
    talk = Talk(tmp_path, open_team, "two")
    talk.send("@a go")
    assert talk.turns()[1][0] == ["b", "c"]


def test_all_takes_nothing_from_one_who_is_named_beside_it(tmp_path: Path) -> None:
    members = [member("a", ["@all and above all @c"]), member("b", ["b"]), member("c", ["c"])]
    talk = Talk(tmp_path, team(*members, selection="none"))
    talk.send("@a go")
    assert talk.of("reply_finished")[0].next_mentions == ["c"]
    assert set(talk.of("reply_finished")[0].refused) == {"b"}


def test_may_mention_narrows_whom_an_agent_may_call(tmp_path: Path) -> None:
    people = team(
        member("a", ["@b and @c"], may_mention=["c"]), member("b", ["b"]), member("c", ["c"]),
        selection="none",
    )  # fmt: skip
    talk = Talk(tmp_path, people)
    talk.send("@a go")
    reply = talk.of("reply_finished")[0]
    assert (reply.next_mentions, list(reply.refused)) == (["c"], ["b"])
    assert reply.message.mentions == ["b", "c"]


def test_next_mentions_of_an_output_call_by_the_same_rules(tmp_path: Path) -> None:
    output = AgentOutput(content="done", next_mentions=["b", "@A", "user", "ghost"])
    puppets = Puppets({"a": lambda _: output, "b": lambda _: "b"})
    people = team(puppet("a"), puppet("b"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=puppets)
    finished = talk.send("@a go")
    reply = talk.of("reply_finished")[0]
    assert (reply.next_mentions, reply.unresolved) == (["b"], ["ghost"])
    assert (finished.end, finished.awaits) == ("awaiting_human", ["user"])


@pytest.mark.parametrize(
    ("said", "author", "awaits"),
    [("@user ok?", None, ["user"]), ("@user ok?", "maya", ["maya"]), ("@用户 好吗", None, ["user"]),
     ("@Lee ok?", "maya", ["Lee"])],
)  # fmt: skip
def test_a_chain_that_names_a_human_waits_for_that_one(
    tmp_path: Path, said: str, author: str | None, awaits: list[str]
) -> None:
    talk = Talk(tmp_path, team(member("a", [said]), humans=["maya", "Lee"]))
    finished = talk.send("@a go", author=author)
    assert (finished.end, finished.awaits) == ("awaiting_human", awaits)


def test_all_who_declined_is_no_reply(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("a", ["<pass/>"])))
    assert talk.send("@a go").end == "no_reply"


def test_a_failure_ends_the_chain_as_failed_only_if_nobody_replied(tmp_path: Path) -> None:
    members = [member("a", [{"fail": "error"}]), member("b", [{"say": "b"}])]
    alone = Talk(tmp_path, team(*members, selection="none"), "one")
    assert alone.send("@a go").end == "failed"
    both = Talk(tmp_path, team(*members, selection="none"), "two")
    assert both.send("@a @b go").end == "quiet"


def test_abort_lets_the_phase_finish_and_opens_nothing_later(tmp_path: Path) -> None:
    people = team(
        member("a", [{"fail": "error"}], on_failure="abort"),
        member("b", ["@c over to you"]),
        member("c", ["c"]),
        selection="ask",
    )
    talk = Talk(tmp_path, people)
    finished = talk.send("@a @b go")
    assert (finished.end, finished.turns) == ("failed", 1)
    assert talk.outcomes() == [("a", "error"), ("b", "success")]
    assert talk.of("candidates") == []
    assert talk.last("turn_finished").next == ["c"]


def test_retry_tries_again_and_counts_calls(tmp_path: Path) -> None:
    replies = [{"when": {"call": 1}, "fail": "overloaded"}, {"say": "at last"}]
    people = team(member("a", replies, on_failure="retry", retries=1))
    talk = Talk(tmp_path, people)
    assert talk.send("@a go").end == "quiet"
    assert [event.attempt for event in talk.of("reply_started")] == [1, 2]
    assert talk.last("reply_finished").attempts == 2
    talk.send("@a again")
    assert talk.outcomes()[-1] == ("a", "success")


def test_retries_come_to_an_end(tmp_path: Path) -> None:
    people = team(member("a", [{"fail": "error"}], on_failure="retry", retries=2))
    talk = Talk(tmp_path, people)
    assert talk.send("@a go").end == "failed"
    assert talk.last("reply_finished").attempts == 3


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    people = team(member("a", [{"fail": "refused"}], on_failure="retry", retries=2))
    talk = Talk(tmp_path, people)
    talk.send("@a go")
    assert talk.last("reply_finished").attempts == 1


def test_a_late_agent_is_ended_and_the_others_go_on(tmp_path: Path) -> None:
    async def never(_: AgentInput) -> str:
        await asyncio.Event().wait()
        return "never"

    puppets = Puppets({"a": never, "b": lambda _: "b"})
    people = team(puppet("a", timeout_s=0.05), puppet("b"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=puppets)
    finished = talk.send("@a @b go")
    assert talk.outcomes() == [("a", "timeout"), ("b", "success")]
    assert (finished.end, puppets.ended) == ("quiet", ["a"])
    error = next(event.error for event in talk.of("reply_finished") if event.agent == "a")
    assert "0.05 s" in error


def test_a_limit_is_told_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda _: timeout(0))

    async def never(_: AgentInput) -> str:
        await asyncio.Event().wait()
        return "never"

    people = team(puppet("a", timeout_s=1200), selection="none")
    talk = Talk(tmp_path, people, adapter_type=Puppets({"a": never}))
    talk.send("@a go")
    assert "no answer within 1200 s" in talk.last("reply_finished").error


def test_an_attempt_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async def slow_at_first(shown: AgentInput) -> str:
        if shown.call == 1:
            await asyncio.Event().wait()
        return "at last"

    puppets = Puppets({"a": slow_at_first})
    people = team(puppet("a", on_failure="retry"), attempt_timeout_s=0.05)
    talk = Talk(tmp_path, people, adapter_type=puppets)
    assert talk.send("@a go").end == "quiet"
    assert talk.last("reply_finished").attempts == 2
    assert puppets.ended == ["a"]
    assert [shown.deadline_s for shown in puppets.inputs["a"]] == [0.05, 0.05]


@pytest.mark.parametrize(("asked", "attempts"), [(0.01, 2), (86_400, 1), (50, 1)])
def test_retry_after_is_kept_to_unless_it_is_too_long(
    tmp_path: Path, asked: float, attempts: int
) -> None:
    """86,400 s is over the cap; 50 s is not, but over the time that the reply has."""

    def busy_at_first(shown: AgentInput) -> str:
        if shown.call == 1:
            raise AgentOverloaded("a", f"busy, {asked:g} s", retry_after=asked)
        return "at last"

    people = team(puppet("a", on_failure="retry", timeout_s=30))
    talk = Talk(tmp_path, people, adapter_type=Puppets({"a": busy_at_first}))
    talk.send("@a go")
    assert talk.last("reply_finished").attempts == attempts


def test_only_successes_are_shown_and_call(tmp_path: Path) -> None:
    puppets = Puppets(
        {
            "a": lambda _: AgentOutput(content="@b hidden", should_respond=False),
            "b": lambda _: "b",
            "c": lambda _: "c",
        }
    )
    people = team(puppet("a"), puppet("b"), puppet("c"), selection="none")
    talk = Talk(tmp_path, people, adapter_type=puppets)
    talk.send("@a @c go")
    talk.send("@b and now?")
    assert talk.turns() == [(["a", "c"], []), (["b"], [])]
    assert [author for author, _ in contents(puppets.inputs["b"][0])] == ["user", "c", "user"]
    assert talk.of("reply_finished")[0].message is None


@pytest.mark.parametrize("word", ["false", "No", 0, False, "否"])
def test_c16_a_no_by_any_word_of_the_table_declines(tmp_path: Path, word: object) -> None:
    output = AgentOutput.model_validate({"content": "x", "should_respond": word})
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=Puppets({"a": lambda _: output}))
    talk.send("@a go")
    assert talk.outcomes() == [("a", "declined")]


@pytest.mark.parametrize("word", [None, "maybe", [], 2])
def test_c16_what_is_no_decision_declines_for_may_and_fails_for_must(
    tmp_path: Path, word: object
) -> None:
    output = AgentOutput.model_validate({"content": "x", "should_respond": word})
    puppets = Puppets({"a": lambda _: output, "b": lambda _: "b"})
    people = team(puppet("a"), puppet("b"), selection="ask")
    must = Talk(tmp_path, people, "must", adapter_type=puppets)
    must.send("@a go")
    assert must.outcomes()[0] == ("a", "error")
    may = Talk(tmp_path, people, "may", adapter_type=puppets)
    may.send("@b go")
    assert may.outcomes() == [("b", "success"), ("a", "declined")]


def test_an_empty_answer_is_an_error_not_silence(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=Puppets({"a": lambda _: "  \n"}))
    assert talk.send("@a go").end == "failed"
    assert talk.outcomes() == [("a", "error")]


def test_c12_a_foreign_name_in_front_changes_no_author(tmp_path: Path) -> None:
    people = team(
        member("scientist", ["Critic: @engineer please redo this"]),
        member("critic", ["x"]),
        member("engineer", ["done"]),
        selection="none",
    )
    talk = Talk(tmp_path, people)
    talk.send("@scientist go")
    reply = talk.of("reply_finished")[0]
    assert (reply.agent, reply.message.author_id) == ("scientist", "scientist")
    assert talk.turns()[1][0] == ["engineer"]


def test_usage_adds_up_over_chain_and_session(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    talk = Talk(tmp_path, team(member("a", [{"say": "x", "usage": usage}])))
    talk.send("@a go")
    finished = talk.send("@a go")
    assert (finished.usage.input_tokens, finished.usage.cost_usd) == (10, 0.25)
    assert (finished.session_usage.output_tokens, finished.session_usage.cost_usd) == (10, 0.5)


def test_status_updates_are_written_before_the_reply_ends(tmp_path: Path) -> None:
    updates = [{"status": "calling_tool", "detail": "grep", "progress": 0.5}]
    talk = Talk(tmp_path, team(member("a", [{"say": "x", "status_updates": updates}])))
    talk.send("@a go")
    kinds = [event.type for event in talk.events]
    assert kinds.index("status") < kinds.index("reply_finished")
    assert talk.last("status").detail == "grep"


def test_scripted_entries_are_used_up_across_processes(tmp_path: Path) -> None:
    people = team(member("a", ["first", "second", {"say": "ever after"}]))
    said = []
    for _ in range(4):
        talk = Talk(tmp_path, people)
        talk.send("@a go")
        said.append(talk.last("reply_finished").message.content)
    assert said == ["first", "second", "ever after", "ever after"]


def test_only_named_agents_take_part_where_one_is_named(tmp_path: Path) -> None:
    """`selection: relevance_if_unnamed`: relevance counts only where no agent is named."""
    heard = {"keywords": ["tests"]}
    members = (
        member("dev", [{"say": "done"}]),
        member("tester", [{"say": "they pass"}], response={**heard, "threshold": 0.4}),
    )
    config = {"selection": "relevance_if_unnamed", "default_responders": ["dev"]}
    talk = Talk(tmp_path, team(*members, **config))
    talk.send("please run the tests")
    assert [agent for agent, _ in talk.outcomes()] == ["dev", "tester"]
    talk.send("@dev please run the tests")
    assert [agent for agent, _ in talk.outcomes()][2:] == ["dev"]
