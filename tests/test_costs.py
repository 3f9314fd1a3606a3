"""A cost that no call can have is not taken, whoever gives it, and the user is told."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from product import MOST_COST_USD, AgentOutput, Usage, claude_turn, lines, timeline
from support import Puppets, Talk, member, puppet, team

BAD = [math.nan, math.inf, -math.inf, -0.5, 1e300, MOST_COST_USD * 1.01]

FREE = Usage(output_tokens=4, cost_usd=0)


def told(talk: Talk, language: Any = "en") -> str:
    """The timeline of a session."""
    drawing = timeline.Timeline(lines.Words(language))
    return "\n".join(line.text for event in talk.events for line in drawing.drawn(event))


@pytest.mark.parametrize("cost", BAD)
def test_a_cost_beyond_reason_is_not_taken_and_told(tmp_path: Path, cost: float) -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    answers = {
        "made": lambda _: AgentOutput(content="a", usage=Usage(output_tokens=4, cost_usd=cost)),
        "copied": lambda _: AgentOutput(
            content="b", usage=usage.model_copy(update={"cost_usd": cost})
        ),
        "summed": lambda _: AgentOutput(
            content="c", usage=Usage.total([FREE, Usage(cost_usd=cost)])
        ),
    }
    talk = Talk(tmp_path, team(*map(puppet, answers)), adapter_type=Puppets(answers))
    talk.send("@all hello @made @copied @summed")
    replies = talk.of("reply_finished")
    assert {one.agent for one in replies} == set(answers)
    for reply in replies:
        assert reply.status == "success"
        assert reply.usage.cost_usd is None
        assert reply.usage.output_tokens == 4
        assert reply.metadata["cost_not_taken"] == f"{cost:g}"
    assert talk.last("chain_finished").usage.cost_usd is None
    assert f"cost not counted: {cost:g} USD" in told(talk)
    assert f"未计入：{cost:g} 美元" in told(talk, "zh")


@pytest.mark.parametrize("cost", ["NaN", "Infinity", "-1", "1e999", "1e300", "123456"])
def test_so_is_one_in_the_json_of_a_program(tmp_path: Path, cost: str) -> None:
    answer = f'{{"content": "done", "usage": {{"output_tokens": 7, "cost_usd": {cost}}}}}'
    (tmp_path / "say.py").write_text(f"print({answer!r})", encoding="utf-8")
    command = [sys.executable, "say.py"]
    adapter = {"type": "cli", "command": command, "output": "json"}
    talk = Talk(tmp_path, team(member("robot", adapter=adapter)))
    talk.send("@robot hello")
    reply = talk.last("reply_finished")
    assert (reply.status, reply.usage.output_tokens, reply.usage.cost_usd) == ("success", 7, None)
    assert reply.metadata["cost_not_taken"] == f"{float(cost):g}"


def test_a_cost_that_can_be_is_taken(tmp_path: Path) -> None:
    answers = {"a": lambda _: AgentOutput(content="a", usage=Usage(cost_usd=MOST_COST_USD))}
    talk = Talk(tmp_path, team(puppet("a")), adapter_type=Puppets(answers))
    talk.send("hello @a")
    reply = talk.last("reply_finished")
    assert reply.usage.cost_usd == MOST_COST_USD
    assert "cost_not_taken" not in reply.metadata
    # What many calls cost together has no bound.
    many = Usage.total([Usage(cost_usd=MOST_COST_USD)] * 3)
    assert many.cost_usd == 3 * MOST_COST_USD


@pytest.mark.parametrize("cost", ["NaN", "-1", "1e400", "1" * 400])
def test_a_session_of_claude_code_with_such_a_cost(cost: str) -> None:
    result = json.loads(f'{{"total_cost_usd": {cost}, "usage": {{"output_tokens": 7}}}}')
    assert claude_turn.read_spending(result) is None
    usage, refused = claude_turn.read_turn_usage(result, None).of_one_call()
    assert (usage.output_tokens, usage.cost_usd) == (7, None)
    assert refused is not None
