"""A session that is opened anew for each message, or was killed, goes on as one that stays open."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from product import AgentInput, Event, Fold, Session, Team, cache_path, reader
from product import context_render as render
from product import transcript_compare as compare
from support import Puppets, Talk, outgoing, puppet, team

SAID = (
    "Decision: we use PostgreSQL {n} for part {n}.",
    "Blocker: deploying the payment service {n} is blocked by the missing audit.",
    "I deploy the payment service now, part {n}.",
    "我们决定采用方案 {n}。",
    "Requirement: part {n} must be deletable.",
    "word " * 40,
    "go on with part {n}",
    "word " * 300,
)


def number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def answer(shown: AgentInput) -> str:
    """An answer that differs wherever what is shown differs."""
    seed = number_of("\n".join(render.render(shown)))
    return SAID[seed % 7].format(n=seed % 5) + (" @ops" if seed % 3 == 0 else "")


def puppets() -> Puppets:
    return Puppets({"dev": answer, "ops": answer})


def crew(wide: int, narrow: int, **config: Any) -> Team:
    return team(
        puppet("dev", context={"window_tokens": wide, "reserved_output_tokens": 0}),
        puppet("ops", context={"window_tokens": narrow, "reserved_output_tokens": 0}),
        selection="none",
        **config,
    )


def told(transcript: Path) -> list[dict[str, Any]]:
    return compare.canonicalize(
        event for line in reader.read_lines(transcript) for event in line.events
    )


async def send_all(session: Session, people: Team, sent: Sequence[str]) -> None:
    for text in sent:
        await session.send(outgoing(people, text))
    await session.stop()


def played(folder: Path, people: Team, sent: Sequence[str], mode: str) -> list[dict[str, Any]]:
    talk = Talk(folder, people, adapter_type=puppets())
    if mode == "open":
        with talk.open() as session:
            asyncio.run(send_all(session, people, sent))
        return told(talk.transcript)
    for text in sent:
        talk.send(text)
        if mode == "uncached":
            cache_path(talk.transcript).unlink()
    return told(talk.transcript)


BLOCKED = [("@dev ", SAID[1], n) for n in range(1, 5)]
LONG = [("", SAID[7], 1)] * 6
GOING_ON = [("@dev ", SAID[6], n) for n in range(1, 13)]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from(["@dev ", "@ops ", "@dev @ops ", ""]),
            st.sampled_from(SAID),
            st.integers(1, 4),
        ),
        min_size=4,
        max_size=24,
    ),
    wide=st.sampled_from([700, 1500, 3000]),
    every=st.sampled_from([None, 6, 20]),
)
# Blockers far back, told of when they are not heeded only by those who were shown them.
@example(sent=[*BLOCKED, *LONG, *GOING_ON], wide=1500, every=None)
# More is not summarised than any window shows.
@example(sent=[*[("", SAID[5], 1)] * 24, ("@dev ", SAID[6], 1)], wide=700, every=None)
def test_opened_anew_it_goes_on_the_same(
    sent: list[tuple[str, str, int]], wide: int, every: int | None
) -> None:
    texts = [name + text.format(n=number) for name, text, number in sent]
    people = crew(wide, 700, auto_summary_interval=every)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "WORTH_BYTES", 0)
        whole = played(Path(folder, "open"), people, texts, "open")
        assert played(Path(folder, "cached"), people, texts, "cached") == whole
        assert played(Path(folder, "uncached"), people, texts, "uncached") == whole


def notes(session: Path) -> dict[str, str]:
    """The session's notes by file, without times and numbers of messages."""
    varies = re.compile(r"^(created|updated|source):.*$", re.MULTILINE)
    files = sorted(session.glob("knowledge/*.md"))
    return {file.name: varies.sub("", file.read_text(encoding="utf-8")) for file in files}


def test_killed_after_any_event_it_remembers_the_same(tmp_path: Path) -> None:
    said = {
        "dev": "I deploy the payment service now.\n```note\nkind: pit\ntitle: Port 80\n```\n@ops",
        "ops": "Decision: we use PostgreSQL 16. " + "word " * 80,
    }
    agents = Puppets({"dev": lambda _: said["dev"], "ops": lambda _: said["ops"]})
    talk = Talk(tmp_path / "whole", crew(700, 700), adapter_type=agents)
    session = talk.transcript.parent
    talk.send("@ops Blocker: deploying the payment service is blocked by the missing audit.")
    talk.send(f"@ops {SAID[5]}")
    killed: list[Path] = []

    def copy(event: Event) -> None:
        if event.type not in ("session", "chain_finished"):
            killed.append(tmp_path / f"{len(killed)}-{event.type}")
            shutil.copytree(session, killed[-1] / "sessions" / session.name)

    talk.on_event = copy
    talk.send("@dev deploy the payment service. Requirement: every part must be deletable.")
    kinds = {one.name.partition("-")[2] for one in killed}
    assert kinds >= {"note", "deviation", "context_usage", "compacted"}
    for folder in killed:
        again = Talk(folder, talk.team, adapter_type=agents)
        again.resume()
        assert told(again.transcript) == told(talk.transcript), folder.name
        assert notes(again.transcript.parent) == notes(session), folder.name


@pytest.mark.parametrize(
    "broken",
    [
        {"format": reader.FORMAT - 1},
        {"calls": 1},
        {"counts": {"dev": [1]}},
        {"agent_sessions": 1},
        {"seq": float("inf")},
    ],
    ids=str,
)
def test_a_cache_that_is_broken_or_old_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    talk = Talk(tmp_path, crew(700, 700), adapter_type=puppets())
    for number in range(6):
        talk.send(f"@dev {SAID[7]} {number}")
    cache = cache_path(talk.transcript)
    known = Fold()
    assert reader.load(talk.transcript, known) > 0
    assert known.summary
    cache.write_text(json.dumps({**json.loads(cache.read_text(encoding="utf-8")), **broken}))
    fold, new = Fold(), Fold()
    assert reader.load(talk.transcript, fold) == 0
    state = [
        {**vars(one), "counts": one.counts.record(), "_on_message": None} for one in (fold, new)
    ]
    assert state[0] == state[1]
