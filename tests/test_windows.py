"""The window of an agent's model, as far as it is known, bounds what the agent is shown."""

from __future__ import annotations

from pathlib import Path

from product import ModelFacts, SessionConfig, session
from support import Puppets, Talk, puppet, team


def test_what_arena_yaml_says_of_a_model_bounds_its_agents(tmp_path: Path) -> None:
    one = puppet("dev", adapter={"type": "openai", "model": "house-model"})
    other = puppet("ops", adapter={"type": "openai", "model": "unheard-of"})
    known = {"house-model": ModelFacts(window_tokens=1_200)}
    place = SessionConfig(tmp_path, models=known)
    assert session.windows(place, [one, other]) == {"dev": 1_200}


def test_an_agent_is_shown_no_more_than_its_model_takes(tmp_path: Path) -> None:
    puppets = Puppets({"dev": lambda _: "word " * 150})
    profile = {"adapter": {"type": "openai", "model": "house-model"}}
    context = {"window_tokens": 32_000, "reserved_output_tokens": 0}
    dev = puppet("dev", context=context, **profile)
    talk = Talk(tmp_path, team(dev, selection="none"), adapter_type=puppets)
    talk.models = {"house-model": ModelFacts(window_tokens=1_200)}
    for number in range(12):
        talk.send(f"@dev part {number}")
    assert talk.of("context_usage")[0].budget == 1_200
    assert all(event.input_tokens <= 1_200 for event in talk.of("reply_started"))
