"""Exchanges: agents ask each other directly, beside the turns and seen by nobody else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from product import AgentInput, AgentOutput, ControlRequest, Inbox, Timeline, canonicalize, events
from program import Program
from stage import Stage, broken
from support import Puppets, Talk, member, puppet, team
from tools import TWICE, FakeTool, asks, offer, scripted

PRIVATE = "SECRET-4711"


def block(agent: str = "rev", text: str = f"Is {PRIVATE} ok?", options: str = "wait=30") -> str:
    """A block by which an agent asks another one."""
    return f"```ask @{agent} {options}\n{text}\n```".replace(" \n", "\n")


def notes(shown: AgentInput) -> list[str]:
    """What arena tells an agent about its exchanges."""
    return [message.content for message in shown.messages if message.author_id == "exchange"]


def asker(first: str, last: str = "Done.") -> Callable[[AgentInput], str]:
    """An agent that answers `first`, and `last` once it is told what came of it."""

    def answer(shown: AgentInput) -> str:
        if shown.turn_id == "aside":
            return "<done/>"
        return last if any(message.id == "again" for message in shown.messages) else first

    return answer


def talk_of(
    folder: Path, answers: Mapping[str, Any], *, config: Mapping[str, Any] | None = None, **of: Any
) -> tuple[Talk, Puppets]:
    """A team of puppets; `of` are further keys of their profiles."""
    puppets = Puppets(
        {
            name: said if callable(said) else (lambda shown, said=said: said)
            for name, said in answers.items()
        }
    )
    members = [puppet(name, **of.get(name, {})) for name in answers]
    rules = {"selection": "none", **(config or {})}
    return Talk(folder, team(*members, **rules), adapter_type=puppets), puppets


def is_aside(shown: AgentInput) -> bool:
    """True for a call beside the turns."""
    return shown.turn_id == "aside"


def insisting(more: str, options: str) -> Callable[[AgentInput], str]:
    """An agent that asks, and always has more to say."""
    return lambda shown: more if is_aside(shown) else block(options=options)


async def begun(talk: Talk, count: int) -> None:
    """Wait until so many exchanges have begun."""
    await until(lambda: len(talk.of("exchange_started")) >= count)


async def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.001)


def form_of(talk: Talk) -> list[dict[str, Any]]:
    """The canonical form of a session."""
    return canonicalize(event for event in map(events.parse, talk.records()) if event)


def ends(talk: Talk) -> list[tuple[str, int, bool]]:
    """(end, answers, announced) of every exchange."""
    return [(event.end, event.turns, event.announced) for event in talk.of("exchange_finished")]


def private(talk: Talk) -> list[tuple[str, str]]:
    """(author, text) of every message of an exchange."""
    return [
        (event.message.author_id, event.message.content)
        for event in talk.of("message")
        if event.exchange and event.message.shown_to
    ]


def reply_of(talk: Talk, agent: str) -> str:
    """The text of the last reply of an agent."""
    texts = [event.message.content for event in talk.of("reply_finished") if event.agent == agent]
    return str(texts[-1])


def reviewer(shown: AgentInput) -> str:
    """An agent that answers, discusses, and announces."""
    last = notes(shown)[-1]
    if "announces its result" in last:
        return "We agreed to rename it."
    return "Rename it." if "Turn: 1 " in last else "<done/>"


def test_a_text_agent_waits_for_the_answer_and_goes_on_with_it(tmp_path: Path) -> None:
    talk, puppets = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer})
    talk.send("@dev go")
    first, second, third = puppets.inputs["dev"]
    assert (first.turn_id, second.turn_id, third.turn_id) == ("t1", "t1", "aside")
    assert notes(second)[0] == "Exchange 1.b1, about what you asked @rev:\nRename it."
    assert private(talk) == [("dev", f"Is {PRIVATE} ok?"), ("rev", "Rename it.")]
    assert ends(talk) == [("done", 1, True)]
    assert reply_of(talk, "dev") == "Done."
    started = talk.last("exchange_started")
    assert (started.requester, started.target, started.mode) == ("dev", "rev", "wait")
    announced = next(event for event in talk.of("message") if event.is_announcement)
    assert (announced.message.author_id, announced.message.shown_to) == ("rev", [])
    assert talk.outcomes() == [("dev", "success")]


def test_each_is_told_its_role_the_turn_and_the_limit(tmp_path: Path) -> None:
    talk, puppets = talk_of(
        tmp_path,
        {
            "dev": insisting("More?", ""),
            "rev": reviewer,
        },
        config={"exchange": {"max_turns": 2}},
    )
    talk.send("@dev go")
    asked = puppets.inputs["rev"][0]
    assert "@dev (requester) asks @rev (target)" in notes(asked)[-1]
    assert "Your role: target. Turn: 1 / 3." in notes(asked)[-1]
    assert asked.mentioned_by == ["dev"]
    assert [message.content for message in asked.triggers()] == [
        f"Is {PRIVATE} ok?",
        notes(asked)[-1],
    ]
    assert "Your role: requester. Turn: 2 / 3." in notes(puppets.inputs["dev"][-1])[-1]
    announcing = notes(puppets.inputs["rev"][-1])[-1]
    for part in ("> Is SECRET-4711 ok?", "> Rename it.", "> More?", "not technical"):
        assert part in announcing
    assert ends(talk) == [("done", 2, True)]


def test_they_take_turns_up_to_the_limit(tmp_path: Path) -> None:
    count = iter(range(100))
    talk, _ = talk_of(
        tmp_path,
        {
            "dev": lambda shown: insisting(f"d{next(count)}" if is_aside(shown) else "", "")(shown),
            "rev": lambda _: f"r{next(count)}",
        },
        config={"exchange": {"max_turns": 3, "announce": False}},
    )
    talk.send("@dev go")
    assert [text for _, text in private(talk)][1:] == ["r0", "d1", "r2", "d3"]
    assert ends(talk) == [("limit", 4, False)]


@pytest.mark.parametrize(("turns", "answers"), [("turns=0", 1), ("turns=1", 2), ("turns=9", 3)])
def test_the_one_that_asks_may_want_fewer_turns(tmp_path: Path, turns: str, answers: int) -> None:
    talk, _ = talk_of(
        tmp_path,
        {
            "dev": insisting("x", turns),
            "rev": "y",
        },
        config={"exchange": {"max_turns": 2, "announce": False}},
    )
    talk.send("@dev go")
    assert ends(talk) == [("limit", answers, False)]


def test_the_exchange_that_is_not_waited_for_comes_after_the_reply(tmp_path: Path) -> None:
    first = f"I go on.\n\n{block(options='')}\n\nBye."
    talk, puppets = talk_of(tmp_path, {"dev": asker(first), "rev": reviewer})
    talk.send("@dev go")
    assert reply_of(talk, "dev") == "I go on.\n\nBye."
    types = [event.type for event in talk.events]
    assert types.index("reply_finished") < types.index("agent_ended")
    assert types.index("exchange_finished") < types.index("turn_finished")
    assert talk.last("exchange_started").mode == "notify"
    assert [shown.turn_id for shown in puppets.inputs["dev"]] == ["t1", "aside"]


def test_a_reply_of_nothing_but_a_question_says_nothing_to_the_group(tmp_path: Path) -> None:
    talk, _ = talk_of(tmp_path, {"dev": asker(block(options="")), "rev": reviewer})
    talk.send("@dev go")
    assert talk.outcomes() == [("dev", "declined")]
    assert ends(talk) == [("done", 1, True)]
    assert talk.last("chain_finished").end == "quiet"


def test_the_mentions_of_the_announcement_count(tmp_path: Path) -> None:
    def announcing(shown: AgentInput) -> str:
        return "@ops please rename it." if "announces" in notes(shown)[-1] else "Rename it."

    talk, puppets = talk_of(
        tmp_path,
        {"dev": asker(block()), "rev": announcing, "ops": "I will."},
        config={"exchange": {"max_turns": 0}},
    )
    talk.send("@dev go")
    assert talk.turns() == [(["dev"], []), (["ops"], [])]
    assert talk.of("turn_started")[1].mentioned_by == {"ops": ["rev"]}
    seen = [message.content for message in puppets.inputs["ops"][0].triggers()]
    assert seen == ["Done.", "@ops please rename it."]


def test_others_are_shown_the_same_with_and_without_an_exchange(tmp_path: Path) -> None:
    """Byte for byte: the hashes of all inputs of third agents, also after the session reopens."""
    hashes, texts = [], []
    for name, first in (("with", block()), ("without", "Done.")):
        talk, puppets = talk_of(
            tmp_path / name,
            {"dev": asker(first), "rev": reviewer, "ops": "Fine. @qa look", "qa": "Looks good."},
            config={"exchange": {"announce": False}, "auto_summary_interval": 4},
        )
        (tmp_path / name).mkdir()
        for text in ("@dev @ops go", "@dev @ops again", "@ops and again", "@qa and you?"):
            talk.send(text)
        third = [*puppets.inputs["ops"], *puppets.inputs["qa"]]
        hashes.append([shown.input_hash for shown in third])
        texts.append([message.content for shown in third for message in shown.messages])
        assert not any(PRIVATE in (shown.memory_context or "") for shown in third)
    assert hashes[0] == hashes[1]
    assert texts[0] == texts[1]
    assert PRIVATE not in "".join(texts[0])


def test_the_two_are_shown_their_messages_later(tmp_path: Path) -> None:
    talk, puppets = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer, "ops": "hm"})
    talk.send("@dev go")
    puppets.answers["dev"] = puppets.answers["rev"] = lambda _: "ok"
    talk.send("@dev @rev @ops well?")
    for agent, role in (("dev", "assistant"), ("rev", "user")):
        shown = {message.content: message.role for message in puppets.inputs[agent][-1].messages}
        assert shown[f"Is {PRIVATE} ok?"] == role
    assert PRIVATE not in puppets.inputs["ops"][-1].model_dump_json()


def test_no_note_and_no_summary_is_made_of_what_is_private(tmp_path: Path) -> None:
    decided = f"We decided to use {PRIVATE} for everything from now on."
    talk, _ = talk_of(
        tmp_path,
        {"dev": asker(block(text=decided)), "rev": f"Decision: we will use {PRIVATE}."},
        config={"exchange": {"announce": False}, "auto_summary_interval": 2},
    )
    for text in ("@dev go", "@dev more", "@dev more still"):
        talk.send(text)
    told = [event.model_dump_json() for event in (*talk.of("note"), *talk.of("compacted"))]
    assert len(talk.of("compacted")) > 0
    assert PRIVATE not in "".join(told)


@pytest.mark.parametrize(
    ("asked", "of", "reason"),
    [
        ("dev", {}, "an agent cannot ask itself"),
        ("user", {}, "user is a person: mention it in your reply; you may ask: rev, ops"),
        ("nobody", {}, "nobody is not in your team; you may ask: rev, ops"),
        ("rev", {"may_ask": ["ops"]}, "you may not ask rev (may_ask)"),
        ("rev", {"may_mention": []}, "you may not ask rev (may_ask)"),
    ],
)
def test_questions_that_are_refused(
    tmp_path: Path, asked: str, of: dict[str, Any], reason: str
) -> None:
    talk, puppets = talk_of(
        tmp_path, {"dev": asker(block(asked)), "rev": reviewer, "ops": "x"}, dev=of
    )
    talk.send("@dev go")
    assert (talk.last("exchange_finished").end, talk.last("exchange_finished").reason) == (
        "refused",
        reason,
    )
    assert f"nobody was asked: {reason}" in notes(puppets.inputs["dev"][1])[0]
    assert puppets.inputs["rev"] == []
    assert private(talk) == []
    assert talk.outcomes() == [("dev", "success")]


def test_a_chinese_team_is_told_in_chinese(tmp_path: Path) -> None:
    talk, puppets = talk_of(tmp_path, {"dev": asker(block("dev")), "rev": "x"})
    talk.language = "zh"
    talk.send("@dev go")
    assert notes(puppets.inputs["dev"][1])[0] == (
        "交流 1.b1，关于你对 @dev 的提问：\n没有提问：智能体不能向自己提问"
    )


def test_may_ask_takes_the_place_of_may_mention(tmp_path: Path) -> None:
    of = {"may_mention": [], "may_ask": ["rev"]}
    talk, _ = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer}, dev=of)
    talk.send("@dev go")
    assert ends(talk) == [("done", 1, True)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("wait=soon", "wait is a number of seconds"),
        ("wait=-1", "wait is 0 to 3600 seconds"),
        ("wait=9999", "wait is 0 to 3600 seconds"),
        ("turns=some", "turns a whole number"),
        ("until=noon", "`until=noon` is no option"),
        ("now", "`now` is no option"),
        ("wait=1 wait=2", "`wait=2` is no option"),
        ("priority=urgent", "priority is normal or high"),
    ],
)
def test_a_block_with_wrong_options_asks_nobody(tmp_path: Path, options: str, problem: str) -> None:
    """People see why, as for every exchange that is refused."""
    talk, puppets = talk_of(tmp_path, {"dev": asker(block(options=options)), "rev": reviewer})
    talk.send("@dev go")
    assert problem in notes(puppets.inputs["dev"][1])[0]
    assert ends(talk) == [("refused", 0, False)]
    assert problem in talk.of("exchange_finished")[0].reason
    assert len(puppets.inputs["rev"]) == 0
    assert reply_of(talk, "dev") == "Done."


def test_an_agent_that_asks_without_end_is_called_again_five_times(tmp_path: Path) -> None:
    again = f"x\n{block(options='wait=bad')}"
    talk, puppets = talk_of(tmp_path, {"dev": again, "rev": "y"})
    talk.send("@dev go")
    assert len(puppets.inputs["dev"]) == 6
    assert reply_of(talk, "dev") == "x"


def test_a_ring_of_three_is_refused(tmp_path: Path) -> None:
    """In one phase each waits for the next: the last question would wait for itself."""

    async def late(shown: AgentInput) -> str:
        if shown.turn_id == "aside":
            return "answer"
        if any(message.id == "again" for message in shown.messages):
            return f"Done: {notes(shown)[0]}"
        await begun(talk, {"a": 0, "b": 1, "c": 2}[shown.agent_id])
        return block({"a": "b", "b": "c", "c": "a"}[shown.agent_id])

    talk, _ = talk_of(
        tmp_path,
        {"a": late, "b": late, "c": late},
        config={"exchange": {"max_turns": 0, "announce": False}},
    )
    talk.send("@a @b @c go")
    refused = [event for event in talk.of("exchange_finished") if event.end == "refused"]
    assert [(event.requester, event.target) for event in refused] == [("c", "a")]
    assert refused[0].reason == "a waits for you already: it would be a ring"
    assert "answer" in reply_of(talk, "a")
    assert "answer" in reply_of(talk, "b")


def test_an_agent_that_is_asked_may_ask_another_one_and_that_one_nobody(tmp_path: Path) -> None:
    def on(to: str) -> Callable[[AgentInput], str]:
        def answer(shown: AgentInput) -> str:
            again = [note for note in notes(shown) if note.startswith("Exchange")]
            return f"{shown.agent_id}: {again[-1].splitlines()[1]}" if again else block(to)

        return answer

    talk, puppets = talk_of(
        tmp_path,
        {"a": asker(block("b")), "b": on("c"), "c": on("d"), "d": "never"},
        config={"exchange": {"max_turns": 0, "announce": False}},
    )
    talk.send("@a go")
    assert [(event.requester, event.target) for event in talk.of("exchange_started")] == [
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
    ]
    refusal = "nobody was asked: you are asked by an agent that is asked itself"
    assert refusal in notes(puppets.inputs["a"][1])[0]
    assert puppets.inputs["d"] == []
    assert sorted(end for end, _, _ in ends(talk)) == ["limit", "limit", "refused"]


def test_an_exchange_within_another_one_is_not_announced(tmp_path: Path) -> None:
    def middle(shown: AgentInput) -> str:
        if any(note.startswith("Exchange") for note in notes(shown)):
            return "C says so."
        return reviewer(shown) if "announces" in notes(shown)[-1] else block("c")

    talk, _ = talk_of(
        tmp_path,
        {"a": asker(block("b")), "b": middle, "c": reviewer},
        config={"exchange": {"max_turns": 0}},
    )
    talk.send("@a go")
    announced = {event.target: event.announced for event in talk.of("exchange_finished")}
    assert announced == {"b": True, "c": False}


def test_an_agent_at_work_is_asked_when_it_has_finished(tmp_path: Path) -> None:
    order: list[str] = []

    async def busy(shown: AgentInput) -> str:
        if shown.turn_id == "aside":
            order.append("asked")
            return f"answer to {shown.mentioned_by[0]}"
        await begun(talk, 2)
        order.append("replied")
        return "My own reply."

    talk, _ = talk_of(
        tmp_path,
        {"a": asker(block()), "rev": busy, "b": asker(block())},
        config={"exchange": {"max_turns": 0, "announce": False}},
    )
    talk.send("@a @rev @b go")
    assert order == ["replied", "asked", "asked"]
    assert talk.outcomes() == [("a", "success"), ("rev", "success"), ("b", "success")]


def test_the_time_is_over_and_the_work_on_the_answer_goes_on(tmp_path: Path) -> None:
    """The asker is told so; both are shown the late answer afterwards, and it is announced."""
    over = asyncio.Event()

    async def slow(shown: AgentInput) -> str:
        await over.wait()
        return reviewer(shown)

    def dev(shown: AgentInput) -> str:
        if not is_aside(shown) and any(message.id == "again" for message in shown.messages):
            over.set()
        return asker(block(options="wait=0.05"))(shown)

    talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": slow})
    talk.send("@dev go")
    assert notes(puppets.inputs["dev"][1])[0] == (
        "Exchange 1.b1, about what you asked @rev:\nrev did not answer in 0.05 s; "
        "exchange 1.b1 goes on: you will see the answer when you are called next."
    )
    assert (ends(talk), puppets.ended) == ([("done", 1, True)], [])
    late = talk.last("exchange_timed_out")
    assert (late.exchange, late.requester, late.target, late.wait_s) == ("1.b1", "dev", "rev", 0.05)
    assert talk.outcomes() == [("dev", "success")]
    talk.send("@dev well?")
    assert "Rename it." in [message.content for message in puppets.inputs["dev"][-1].messages]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_came_later_is_shown_at_the_next_call_of_the_reply(
    tmp_path: Path, *, is_killed: bool
) -> None:
    over = asyncio.Event()

    async def slow(shown: AgentInput) -> str:
        await over.wait()
        return reviewer(shown)

    async def dev(shown: AgentInput) -> str:
        if is_aside(shown):
            return "<done/>"
        told = notes(shown)
        if not told:
            return block(options="wait=0.01")
        if len(told) == 2:
            over.set()
            await until(lambda: talk.of("agent_ended"))
            return block("dev")  # it is refused, and the agent called again
        return "Done."

    talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": slow})
    talk.send("@dev go")
    if is_killed:  # after it has waited
        lines = talk.transcript.read_bytes().splitlines(keepends=True)
        count = 1 + next(n for n, line in enumerate(lines) if b"exchange_timed_out" in line)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        over = asyncio.Event()
        talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": slow})
        talk.events += [event for event in map(events.parse, talk.records()) if event]
        talk.resume()
    last = notes(puppets.inputs["dev"][2])
    assert "about what you asked @dev:\nnobody was asked" in last[2]
    assert last[3] == "Exchange 1.b1, about what you asked @rev:\nRename it."


@pytest.mark.parametrize("wait", [0, 0.01])
def test_an_agent_fetches_an_answer_later(tmp_path: Path, wait: float) -> None:
    """By number, also of an exchange that it did not wait for; at once in a later turn."""
    over = asyncio.Event()

    async def slow(shown: AgentInput) -> str:
        await over.wait()
        return reviewer(shown)

    def acting(shown: AgentInput) -> AgentOutput | str:
        if is_aside(shown):
            return "<done/>"
        if len(shown.steps) == 2:
            over.set()
        ask = {"agent": "rev", "message": "ok?", "wait_s": wait}
        return scripted(
            asks(("ask_agent", ask)),
            asks(("wait_for_agent", {"exchange": "1.1", "timeout_s": 0.01})),
            asks(("wait_for_agent", {"exchange": "1.1", "timeout_s": 30})),
            asks(("merge_results", {"exchanges": ["1.1"]})),
            "Done.",
        )(shown)

    tools = ["ask_agent", "wait_for_agent", "merge_results"]
    talk, puppets = talk_of(
        tmp_path, {"dev": acting, "rev": slow}, dev={"tools": tools, "run": {"max_turns": 9}}
    )
    talk.send("@dev go")
    asked, in_vain, fetched, merged = [event.result for event in talk.of("tool_finished")]
    late = "rev did not answer in 0.01 s; exchange 1.1 goes on: wait_for_agent gets the answer."
    assert asked == (
        late if wait else "accepted: exchange 1.1 with rev takes place after your reply"
    )
    assert (in_vain, fetched) == (late, "Rename it.")
    assert merged == "Exchange 1.1:\n@dev:\n> ok?\n@rev:\n> Rename it."
    assert len(talk.of("exchange_timed_out")) == (1 if wait else 0)
    assert ends(talk) == [("done", 1, True)]
    puppets.answers["dev"] = scripted(
        asks(("wait_for_agent", {"exchange": "1.1"}), ("wait_for_agent", {"exchange": "7.1"})),
        "Done.",
    )
    talk.send("@dev again")
    later = [(event.status, event.result) for event in talk.of("tool_finished")[-2:]]
    assert sorted(later) == [("error", "you began no exchange 7.1"), ("ok", "Rename it.")]


def test_within_an_exchange_its_other_agent_is_asked_in_the_answer(tmp_path: Path) -> None:
    """A scripted agent that always asks began exchanges within exchanges with the same agent."""
    program = Program(tmp_path)
    program.agent("rev", {"say": "rename it"})
    program.agent(
        "dev", {"ask": {"agent": "rev", "message": "ok?", "wait_s": 9}, "say": "${result}"}
    )
    program.team(exchange={"max_turns": 2})
    shown = program.run("send", "@dev go").check().stdout
    (refused,) = [line for line in shown.splitlines() if "refused" in line]
    assert refused.endswith(": you talk with rev already: ask it in your answer")
    assert "exchange 1.b1 has ended: limit, 3 answers, announced" in shown


def test_the_reason_of_an_end_is_one_line(tmp_path: Path) -> None:
    r"""The error of a scripted agent has several, which were shown with `\\n` between them."""
    program = Program(tmp_path)
    program.agent("rev", {"when": {"contains": "nothing"}, "say": "never"})
    program.agent("dev", {"ask": {"agent": "rev", "message": "ok?", "wait_s": 9}, "say": "Done."})
    shown = program.run("send", "@dev go").check().stdout
    (end,) = [line for line in shown.splitlines() if "has ended: error" in line]
    assert "add under `replies:` - {when: " in end
    assert "\\n" not in end


def test_a_replay_repeats_a_wait_that_was_in_vain(tmp_path: Path) -> None:
    """In a replay, the answer is there at once: the recording says that it came too late."""
    program = Program(tmp_path)
    slow = "import sys, time; sys.stdin.read(); time.sleep(1); print('It is fine.')"
    program.agent("rev", adapter={"type": "cli", "command": [sys.executable, "-c", slow]})
    asks_rev = {"ask": {"agent": "rev", "message": "ok?", "wait_s": 0.05}, "say": "Rev: ${result}"}
    program.agent("dev", {"when": {"mentioned_by": "rev"}, "say": "<done/>"}, asks_rev)
    program.scenario(
        "scenario: Late\nsteps:\n"
        "  - send: '@dev go'\n"
        "    expect:\n"
        "      exchanges: [{timed_out: true, end: done, announced: true}]\n"
        "      replies: {dev: {last: [{contains: goes on}]}}\n",
        "late",
    )
    recorded = program.run("run", "--record")
    assert recorded.code == 0, recorded.stdout
    replayed = program.run("run", "--replay", "--json")
    assert replayed.code == 0, replayed.stdout
    assert json.loads(replayed.stdout)["drift"] == []


def test_a_chain_that_is_cancelled_ends_the_work_that_nobody_waits_for(tmp_path: Path) -> None:
    async def rev(_: AgentInput) -> str:
        await asyncio.sleep(600)
        return "never"

    stop = stopping(lambda: talk, ControlRequest(act="cancel", by="maya"), waits=True)

    async def dev(shown: AgentInput) -> str:
        again = any(message.id == "again" for message in shown.messages)
        return str(await stop(shown)) if again else block(options="wait=0.01")

    talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": rev})
    assert talk.send("@dev go").end == "cancelled"
    assert (ends(talk), puppets.ended) == ([("error", 0, False)], ["dev", "rev"])
    assert talk.events[-1].type == "chain_finished"


def test_an_agent_that_still_answers_is_called_for_its_reply_afterwards(tmp_path: Path) -> None:
    """In phase B, it is due while it answers a question that nobody waits for: one at a time."""
    busy = 0

    async def rev(shown: AgentInput) -> str:
        nonlocal busy
        busy += 1
        assert busy == 1
        await until(lambda: talk.of("reply_finished"))
        await asyncio.sleep(0.05)
        busy -= 1
        return reviewer(shown) if is_aside(shown) else "My reply."

    rev_keys = {"response": {"keywords": ["go"], "threshold": 0.1}}
    talk, _ = talk_of(
        tmp_path,
        {"dev": asker(block(options="wait=0.01")), "rev": rev},
        config={"selection": "relevance"},
        rev=rev_keys,
    )
    talk.send("@dev go")
    assert ("rev", "success") in talk.outcomes()
    assert ends(talk) == [("done", 1, True)]
    assert len(talk.of("exchange_timed_out")) == 1


def test_an_urgent_question_is_answered_between_the_calls_of_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent at work answers it after its running call, is reminded of it, and goes on."""
    talk, puppets = urgent_talk(tmp_path, monkeypatch, "wait=30 turns=0 priority=high")
    talk.send("@dev @rev go")
    answered = place_of(talk, "agent_ended", within="b1.s1")
    assert answered < place_of(talk, "reply_finished", agent="rev")
    assert reply_of(talk, "dev") == "Done."
    assert reply_of(talk, "rev") == "My work is done."
    asked, answer = (event.message.content for event in talk.of("message") if event.exchange)
    assert (asked, answer) == ("Stop?", "No, I go on.")
    before, after = (shown for shown in puppets.inputs["rev"] if not is_aside(shown))
    assert before.steps == []
    assert after.steps[-1].results[0].text == "worked"
    assert after.steps[-1].notice == (
        "While you worked, @dev asked you:\n> Stop?\nYou answered:\n> No, I go on."
    )
    assert talk.last("exchange_started").priority == "high"


@pytest.mark.parametrize("options", ["wait=30 turns=0", "turns=0", "turns=0 priority=high"])
def test_questions_to_an_agent_at_work_by_their_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    """A question that is not waited for is urgent, too; all others wait for the reply's end."""
    talk, _ = urgent_talk(tmp_path, monkeypatch, options)
    talk.send("@dev @rev go")
    is_between = place_of(talk, "agent_ended", within="b1.s1") < place_of(
        talk, "reply_finished", agent="rev"
    )
    assert is_between == ("priority" in options)
    assert ends(talk) == [("limit", 1, False)]


def at_work(shown: AgentInput) -> AgentOutput | str:
    """Work with a tool, and answer a question meanwhile."""
    if is_aside(shown):
        return "No, I go on."
    return scripted(asks((TWICE, {"n": 1})), "My work is done.")(shown)


def test_an_urgent_question_is_answered_before_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(_: Mapping[str, Any]) -> str:
        await begun(talk, 2)
        await asyncio.sleep(0.05)
        return "worked"

    async def first(shown: AgentInput) -> str:
        await until(lambda: talk.of("tool_requested"))
        return asker(block(text="Later?"))(shown)

    async def second(shown: AgentInput) -> str:
        await begun(talk, 1)
        return asker(block(text="Stop?", options="wait=30 priority=high"))(shown)

    offer(monkeypatch, FakeTool(TWICE, work))
    config = {"exchange": {"max_turns": 0, "announce": False}}
    answers = {"dev": first, "ops": second, "rev": at_work}
    talk, _ = talk_of(tmp_path, answers, config=config, rev={"tools": [TWICE]})
    talk.send("@dev @ops @rev go")
    replied = place_of(talk, "reply_finished", agent="rev")
    asked = [event.requester for event in talk.of("exchange_finished")]
    answered = [place_of(talk, "agent_ended", reply=reply) for reply in (2, 1)]
    assert answered[0] < replied < answered[1]
    assert sorted(asked) == ["dev", "ops"]


def test_an_agent_does_not_wait_for_one_that_waits_for_it(tmp_path: Path) -> None:
    async def dev(shown: AgentInput) -> AgentOutput | str:
        if is_aside(shown):
            return "<done/>"
        if len(shown.steps) == 1:
            await begun(talk, 2)
            await until(lambda: len([event for event in talk.of("message") if event.exchange]) > 1)
        return scripted(
            asks(("ask_agent", {"agent": "rev", "message": "ok?"})),
            asks(("wait_for_agent", {"exchange": "1.1", "timeout_s": 1})),
            "Done.",
        )(shown)

    async def rev(shown: AgentInput) -> str:
        if is_aside(shown):
            return reviewer(shown)
        await begun(talk, 1)
        return asker(block("dev"))(shown)

    tools = ["ask_agent", "wait_for_agent"]
    talk, _ = talk_of(tmp_path, {"dev": dev, "rev": rev}, dev={"tools": tools})
    talk.send("@dev @rev go")
    (_, fetched) = talk.of("tool_finished")
    assert (fetched.status, fetched.result) == (
        "error",
        "rev waits for you already: it would be a ring",
    )


def test_an_exchange_of_a_turn_that_was_stopped_has_no_answer(tmp_path: Path) -> None:
    stop = stopping(lambda: talk, ControlRequest(act="cancel", by="maya"), waits=True)

    async def dev(shown: AgentInput) -> AgentOutput | str:
        if shown.steps:
            return str(await stop(shown))
        return scripted(asks(("ask_agent", {"agent": "rev", "message": "ok?"})), "Done.")(shown)

    tools = ["ask_agent", "wait_for_agent"]
    talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": "Fine."}, dev={"tools": tools})
    assert talk.send("@dev go").end == "cancelled"
    puppets.answers["dev"] = scripted(asks(("wait_for_agent", {"exchange": "1.1"})), "Done.")
    talk.send("@dev again")
    fetched = talk.of("tool_finished")[-1]
    assert (fetched.status, fetched.result) == (
        "error",
        "rev has not answered: the turn was stopped.",
    )


def test_an_agent_that_nobody_waits_for_is_not_called_when_the_chain_stops(
    tmp_path: Path,
) -> None:
    stop = stopping(lambda: talk, ControlRequest(act="pause", by="maya"), waits=False)

    async def rev(shown: AgentInput) -> str:
        if is_aside(shown):
            return reviewer(shown)
        await until(lambda: any(event.agent == "dev" for event in talk.of("reply_finished")))
        return str(await stop(shown))

    dev = asker(block(options="wait=0.01"))
    talk, puppets = talk_of(tmp_path, {"dev": dev, "rev": rev})
    assert talk.send("@dev @rev go").type == "chain_paused"
    assert (len(puppets.inputs["rev"]), ends(talk)) == (1, [])
    assert talk.resume() is not None
    assert ends(talk) == [("done", 1, True)]


def place_of(talk: Talk, kind: str, **of: Any) -> int:
    """The place of an event in the session, by its fields."""
    found = next(one for one in talk.of(kind) if of.items() <= one.model_dump().items())
    return talk.events.index(found)


def urgent_talk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> tuple[Talk, Puppets]:
    """A team in which dev asks rev something while a tool of rev runs."""

    async def work(_: Mapping[str, Any]) -> str:
        await begun(talk, 1)
        await asyncio.sleep(0.05)
        return "worked"

    async def dev(shown: AgentInput) -> str:
        await until(lambda: talk.of("tool_requested"))
        return asker(block(text="Stop?", options=options))(shown)

    offer(monkeypatch, FakeTool(TWICE, work))
    config = {"exchange": {"max_turns": 0, "announce": False}}
    answers = {"dev": dev, "rev": at_work}
    talk, puppets = talk_of(folder, answers, config=config, rev={"tools": [TWICE]})
    return talk, puppets


def test_an_urgent_question_goes_on_after_a_kill_at_any_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: str) -> Talk:
        (tmp_path / name).mkdir()
        return urgent_talk(tmp_path / name, monkeypatch, "wait=30 turns=0 priority=high")[0]

    check_every_cut(make, "@dev @rev go")


def test_a_wait_that_is_over_goes_on_after_a_kill_at_any_event(tmp_path: Path) -> None:
    def make(name: str) -> Talk:
        (tmp_path / name).mkdir()

        async def rev(shown: AgentInput) -> str:
            await until(lambda: talk.of("reply_finished"))
            return reviewer(shown)

        dev = asker(block(options="wait=0.01"))
        talk, _ = talk_of(tmp_path / name, {"dev": dev, "rev": rev, "ops": "Fine."})
        return talk

    check_every_cut(make, "@dev go")


def without_usage(talk: Talk) -> list[dict[str, Any]]:
    """The canonical form of a session, without what its calls used."""
    left_out = ("usage", "session_usage", "input_tokens", "input_hash")
    return [
        {name: value for name, value in record.items() if name not in left_out}
        for record in form_of(talk)
    ]


def check_every_cut(make: Callable[[str], Talk], content: str) -> None:
    """Cut a session short after each event: resumed, it has the same canonical form.

    Only its usage may differ: a call that is made again is shown the conversation as it is then.
    """
    whole = make("whole")
    whole.send(content)
    expected = without_usage(whole)
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    for count in range(2, len(lines)):
        cut = make(f"cut{count}")
        cut.transcript.parent.mkdir(parents=True)
        cut.transcript.write_bytes(b"".join(lines[:count]))
        cut.events += [event for event in map(events.parse, cut.records()) if event]
        cut.resume()
        assert without_usage(cut) == expected, (count, json.loads(lines[count - 1])["type"])


def test_an_agent_that_fails_ends_the_exchange(tmp_path: Path) -> None:
    def failing(_: AgentInput) -> str:
        raise ValueError("broken")

    talk, puppets = talk_of(
        tmp_path, {"dev": asker(block()), "rev": failing}, config={"on_failure": "skip"}
    )
    talk.send("@dev go")
    assert ends(talk) == [("error", 0, False)]
    assert "rev could not answer" in notes(puppets.inputs["dev"][1])[0]


def test_the_same_key_gives_the_earlier_result_and_asks_nobody(tmp_path: Path) -> None:
    asked = block(options="wait=30 key=k1")
    talk, puppets = talk_of(tmp_path, {"dev": asker(asked), "ops": asker(asked), "rev": reviewer})
    talk.send("@dev go")
    before = len(puppets.inputs["rev"])
    talk.send("@dev again")
    assert len(puppets.inputs["rev"]) == before
    assert len(talk.of("exchange_started")) == 1
    assert notes(puppets.inputs["dev"][-1])[0].endswith("\nRename it.")
    talk.send("@ops you too")  # what was told to another agent stays private
    assert len(talk.of("exchange_started")) == 2


def test_an_announcement_that_breaks_a_rule_is_not_said(tmp_path: Path) -> None:
    rule = {"id": "calm", "forbid": {"contains": "We agreed"}}
    config = {"rules": [rule], "exchange": {"max_turns": 0}}
    talk, _ = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer}, config=config)
    talk.send("@dev go")
    assert ends(talk) == [("limit", 1, False)]
    assert [event.allowed for event in talk.of("decision") if event.by == "rev"] == [False]
    assert not any(event.is_announcement for event in talk.of("message"))


def test_an_announcement_calls_only_those_that_its_agent_may_mention(tmp_path: Path) -> None:
    def announcing(shown: AgentInput) -> str:
        return "@ops and @qa look." if "announces" in notes(shown)[-1] else "Rename it."

    talk, puppets = talk_of(
        tmp_path,
        {"dev": asker(block()), "rev": announcing, "ops": "x", "qa": "y"},
        config={"exchange": {"max_turns": 0}},
        rev={"may_mention": ["qa"]},
    )
    talk.send("@dev go")
    assert (len(puppets.inputs["ops"]), len(puppets.inputs["qa"])) == (0, 1)


def test_an_agent_that_a_person_paused_is_not_asked(tmp_path: Path) -> None:
    talk, puppets = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer})
    with talk.open() as session:
        session.carry_out(ControlRequest(act="agent_state", agent="rev", state="paused"))
    talk.send("@dev go")
    end = talk.last("exchange_finished")
    assert (end.end, end.reason) == ("refused", "rev is paused")
    assert puppets.inputs["rev"] == []


def test_a_key_of_a_question_that_a_rewind_skips_asks_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("rev", "It is fine.", "<done/>", "It is wrong.", "<done/>")
    replies = ["```ask @rev wait=60 turns=0 key=k1\nok?\n```", "Rev: ${result}"]
    program.agent("dev", adapter={"type": "scripted", "replies": replies * 2})
    assert program.run("send", "-s", "s", "@dev go").code == 0
    program.run("rewind", "s", "--at", "1").check()
    assert "Rev: " in program.run("send", "-s", "s", "@dev go").stdout
    started = [event for event in program.records() if event["type"] == "exchange_started"]
    assert len(started) == 2


def test_an_agent_with_tools_asks_by_a_tool(tmp_path: Path) -> None:
    ask = {"agent": "@rev", "message": f"Is {PRIVATE} ok?", "wait_s": 30, "max_turns": 0}

    def acting(shown: AgentInput) -> AgentOutput:
        return scripted(asks(("ask_agent", ask)), "Done.")(shown)

    talk, puppets = talk_of(
        tmp_path, {"dev": acting, "rev": reviewer}, dev={"tools": ["ask_agent"]}
    )
    talk.send("@dev go")
    assert [spec.name for spec in puppets.inputs["dev"][0].tools] == ["ask_agent"]
    done = talk.last("tool_finished")
    assert (done.tool, done.status, done.result) == ("ask_agent", "ok", "Rename it.")
    assert talk.last("exchange_started").exchange == "1.1"
    assert ends(talk) == [("limit", 1, True)]


def test_a_tool_call_that_does_not_wait_goes_on_at_once(tmp_path: Path) -> None:
    ask = {"agent": "rev", "message": "later"}
    talk, _ = talk_of(
        tmp_path,
        {"dev": scripted(asks(("ask_agent", ask)), "Done."), "rev": "<done/>"},
        dev={"tools": ["ask_agent"]},
    )
    talk.send("@dev go")
    assert talk.last("tool_finished").result == (
        "accepted: exchange 1.1 with rev takes place after your reply"
    )
    assert ends(talk) == [("done", 0, False)]


def test_an_agent_that_is_asked_uses_its_own_tools(tmp_path: Path) -> None:
    talk, puppets = talk_of(
        tmp_path,
        {
            "dev": asker(block(options="wait=30 turns=0")),
            "rev": scripted(asks(("list_members", {})), "ok"),
        },
        config={"exchange": {"announce": False}},
        rev={"tools": ["list_members"]},
    )
    talk.send("@dev go")
    done = talk.last("tool_finished")
    assert (done.agent, done.call, done.status) == ("rev", "b1.s1.1", "ok")
    assert private(talk)[-1] == ("rev", "ok")
    assert len(puppets.inputs["rev"]) == 2


@pytest.mark.parametrize("steps", [False, True])
def test_calls_after_the_reply_are_shown_with_the_exchange(tmp_path: Path, *, steps: bool) -> None:
    talk, _ = talk_of(
        tmp_path,
        {
            "dev": asker(block(options="turns=0")),
            "rev": scripted(
                asks(("list_members", {})), "ok", asks(("list_members", {})), "We agreed."
            ),
        },
        rev={"tools": ["list_members"]},
    )
    talk.send("@dev go")
    assert [done.call for done in talk.of("tool_finished")] == ["b1.s1.1", "b1.say.1"]
    timeline = Timeline(has_steps=steps)
    lines = [shown.text for event in talk.events for shown in timeline.drawn(event)]
    calls = [number for number, text in enumerate(lines) if "list_members(" in text]
    headings = [number for number, text in enumerate(lines) if "exchange 1.b1" in text]
    assert len(calls) == 2
    _, _, answer, announcement, end = headings
    assert answer < calls[0] < announcement < calls[1] < end
    assert lines[calls[0]].startswith("  │ ")


def test_its_cost_counts_to_the_chain(tmp_path: Path) -> None:
    talk, _ = talk_of(tmp_path, {"dev": asker(block()), "rev": reviewer})
    done = talk.send("@dev go")
    asides = [event.usage for event in talk.of("agent_ended")]
    own = talk.last("reply_finished").usage
    assert len(asides) == 3
    total = own.input_tokens + sum(usage.input_tokens for usage in asides)
    assert done.usage.input_tokens == total


def test_a_budget_that_is_used_up_ends_the_exchange(tmp_path: Path) -> None:
    talk, _ = talk_of(
        tmp_path,
        {"dev": asker(block()), "rev": reviewer},
        config={
            "budget": {"tokens": {"chain": 7_000}, "agents": {"rev": {"tokens": {"chain": 10}}}}
        },
    )
    talk.send("@dev go")
    assert ends(talk)[0][0] == "error"
    assert "budget" in talk.last("exchange_finished").reason
    assert talk.outcomes() == [("dev", "success")]


@pytest.mark.parametrize("options", ["wait=30", ""])
def test_it_goes_on_after_a_kill_at_any_event(tmp_path: Path, options: str) -> None:
    """The canonical form is that of an undisturbed session; no answer is asked for again."""
    answers = {
        "dev": asker(block(options=options), "Done."),
        "rev": reviewer,
        "ops": "Fine.",
    }
    whole, _ = talk_of(tmp_path / "whole", answers)
    (tmp_path / "whole").mkdir()
    whole.send("@dev @ops go")
    expected = form_of(whole)
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    for count in range(2, len(lines)):
        folder = tmp_path / f"cut{count}"
        folder.mkdir()
        cut, puppets = talk_of(folder, answers)
        cut.transcript.parent.mkdir(parents=True)
        cut.transcript.write_bytes(b"".join(lines[:count]))
        cut.resume()
        assert form_of(cut) == expected, count
        ended = {json.loads(line).get("within") for line in lines[:count]}
        asked = [shown for shown in puppets.inputs["rev"] if "Turn: 1 " in notes(shown)[-1]]
        assert not ("b1.s1" in ended and asked), count


def ask_at_once(folder: Path, first: str) -> list[dict[str, Any]]:
    """The canonical form of a session in which two ask the same agent, `first` before the other."""

    async def one(shown: AgentInput) -> str:
        if shown.agent_id != first and not is_aside(shown):
            await begun(talk, 1)
        return asker(block("rev", f"I am {shown.agent_id}"))(shown)

    folder.mkdir()
    talk, _ = talk_of(folder, {"a": one, "b": one, "rev": reviewer})
    talk.send("@a @b go")
    return form_of(talk)


def stopping(talk: Callable[[], Talk], request: ControlRequest, *, waits: bool) -> Any:
    """An agent during whose call a person asks for something."""

    async def answer(_: AgentInput) -> str:
        inbox = Inbox(talk().transcript.parent)
        path = inbox.put(request)
        while True:
            if not waits and inbox.read_answer(path) is not None:
                return "My answer."
            await asyncio.sleep(0.01)

    return answer


def test_a_person_stops_the_agent_that_is_asked(tmp_path: Path) -> None:
    stop = ControlRequest(act="cancel", agent="rev", by="maya")
    rev = stopping(lambda: talk, stop, waits=True)
    talk, puppets = talk_of(tmp_path, {"dev": asker(block(options="wait=600")), "rev": rev})
    talk.send("@dev go")
    assert ends(talk) == [("error", 0, False)]
    assert "rev was stopped by a person" in notes(puppets.inputs["dev"][1])[0]
    assert talk.outcomes() == [("dev", "success")]


@pytest.mark.parametrize("options", ["wait=600", ""])
def test_a_person_cancels_the_chain_during_an_exchange(tmp_path: Path, options: str) -> None:
    stop = ControlRequest(act="cancel", by="maya")
    rev = stopping(lambda: talk, stop, waits=True)
    talk, _ = talk_of(tmp_path, {"dev": asker(block(options=options)), "rev": rev})
    assert talk.send("@dev go").end == "cancelled"
    assert ends(talk) == [("error", 0, False)]


def test_a_pause_holds_the_exchange_until_the_chain_is_resumed(tmp_path: Path) -> None:
    rev = stopping(lambda: talk, ControlRequest(act="pause", by="maya"), waits=False)
    talk, puppets = talk_of(tmp_path, {"dev": asker(block(options="")), "rev": rev})
    assert talk.send("@dev go").type == "chain_paused"
    assert (private(talk)[-1], ends(talk)) == (("rev", "My answer."), [])
    puppets.answers["rev"] = reviewer
    done = talk.resume()
    assert done is not None
    assert done.end == "quiet"
    assert ends(talk) == [("done", 1, True)]


def test_the_lane_of_exchanges_is_not_that_of_replies(tmp_path: Path) -> None:
    """With one place in each, the reply that waits does not stand in the way of its answer."""
    program = Program(tmp_path)
    program.file("arena.yaml", "lanes: {main: 1, nested: 1}\n")
    program.agent("rev", {"say": "It is fine."})
    asks_rev = {"ask": {"agent": "rev", "message": "ok?", "wait_s": 60}, "say": "Rev: ${result}"}
    program.agent("dev", {"when": {"mentioned_by": "rev"}, "say": "<done/>"}, asks_rev)
    done = program.run("send", "@dev go")
    assert done.code == 0, done.stderr
    assert "Rev: It is fine." in done.stdout


@pytest.mark.parametrize(
    ("rows", "field", "expected"),
    [
        ("[]", "exchanges", "no exchange"),
        (
            "[{end: limit, announced: false, turns: {max: 3}, target: rev}]",
            "exchanges[0]",
            "target rev · turns at most 3 · end limit · not announced",
        ),
    ],
)
def test_a_scenario_tells_what_it_expected_in_the_order_of_the_reference(
    tmp_path: Path, rows: str, field: str, expected: str
) -> None:
    asks_rev = {"ask": {"agent": "rev", "message": "ok?", "wait_s": 60}, "say": "Rev: ${result}"}
    stage = Stage(tmp_path).agent("rev", {"say": "It is fine."})
    stage.agent("dev", {"when": {"mentioned_by": "rev"}, "say": "<done/>"}, asks_rev).team()
    result = stage.play(
        f'scenario: x\nsteps:\n  - send: "@dev go"\n    expect: {{exchanges: {rows}}}\n'
    )
    actual = "requester dev · target rev · mode wait · turns 1 · end done · announced"
    assert [(check.field, check.expected, check.actual) for check in broken(result)] == [
        (field, expected, actual)
    ]


def test_parallel_questions_have_one_canonical_form(tmp_path: Path) -> None:
    assert ask_at_once(tmp_path / "a", "a") == ask_at_once(tmp_path / "b", "b")


def test_a_session_without_exchanges_imports_nothing_of_them(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hi"})
    imported = program.list_imported("send", "-s", "s", "@dev go")
    assert program.finished() == [("dev", "success")]
    assert [name for name in imported if "exchange" in name] == []


def test_people_see_it_in_the_timeline_the_page_and_exports(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("rev", "It is fine.", "We agreed.")
    asks_rev = {"ask": {"agent": "rev", "message": "ok?", "wait_s": 60}, "say": "Rev: ${result}"}
    program.agent("dev", {"when": {"mentioned_by": "rev"}, "say": "<done/>"}, asks_rev)
    shown = program.run("send", "-s", "s", "@dev go").stdout
    for text in (
        "┌ exchange 1.b1: dev asks rev and waits",
        "│   It is fine.",
        "rev · announces exchange 1.b1",
        "└ exchange 1.b1 has ended: done, 1 answer, announced",
    ):
        assert text in shown
    exported = json.loads(program.run("export", "s", "--format", "json").stdout)["entries"]
    private = [entry for entry in exported if "exchange" in entry]
    assert [(entry["author_id"], entry["to"]) for entry in private] == [
        ("dev", ["rev"]),
        ("rev", ["dev"]),
        ("rev", []),
    ]
    page = tmp_path / "page.html"
    assert program.run("show", "s", "--html", str(page)).code == 0
    assert page.read_text("utf-8").count("is-private") >= 2


def test_scripted_agents_ask(tmp_path: Path) -> None:
    dev = {"ask": {"agent": "rev", "message": "ok?", "wait_s": 30}, "say": "It says: ${result}"}
    talk = Talk(
        tmp_path,
        team(
            member("dev", [{**dev, "when": {"contains": "go"}}, {"say": "<done/>"}]),
            member("rev", ["yes", "We talked."]),
            selection="none",
        ),
    )
    talk.send("@dev go")
    assert reply_of(talk, "dev") == "It says: yes"
    assert ends(talk) == [("done", 1, True)]
