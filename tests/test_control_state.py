"""What people decided in a session: the first decision counts, and is known in later processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from product import Event, Fold, Message, MessageEvent, control_events, events, reader, revisions

TIME = "2026-11-28T00:00:00.000Z"


def event(shape: type[Event], seq: int, **fields: Any) -> Event:
    return shape.model_validate({"seq": seq, "ts": TIME, **fields})


def message(seq: int, *, opens_chain: bool = True) -> Event:
    content = Message(
        id=f"m{seq}",
        author_id="user",
        author_name="user",
        author_type="human",
        content="hi",
        timestamp=TIME,
    )
    return MessageEvent(seq=seq, ts=TIME, chain=1 if opens_chain else None, message=content)


def request(seq: int, number: int) -> Event:
    return event(
        control_events.ApprovalRequested,
        seq,
        request=number,
        reply=1,
        agent="dev",
        action="deploy",
        detail="to prod",
        digest="d",
        expires=TIME,
    )


def decision(seq: int, number: int, decided: str, **fields: Any) -> Event:
    values = {"request": number, "decision": decided, "agent": "dev", "digest": "d", "by": "maya"}
    return event(control_events.ApprovalDecided, seq, **values, **fields)


DECISIONS: Sequence[Event] = [
    request(2, 1),
    decision(3, 1, "approved", always=True),
    event(control_events.AgentStateChanged, 4, agent="qa", state="terminated", by="maya"),
    event(control_events.BudgetRaised, 5, by="maya", tokens=700, usd=0.5),
    event(control_events.Decision, 6, decision=1, kind="reply", by="qa", allowed=False, reply=9),
    event(control_events.BreakerChanged, 7, agent="dev", state="open", until=TIME, reason="r"),
    event(control_events.Checkpoint, 8, label="good", at=7, by="maya"),
]


def read(*lines: Event) -> Fold:
    """Return the state after these lines, as a reader of the transcript has it."""
    fold, changes = Fold(), revisions.collect_revisions(lines)
    for line in lines:
        fold.read(line, changes)
    return fold


@pytest.mark.parametrize(("first", "second"), [("approved", "rejected"), ("rejected", "approved")])
def test_the_first_decision_of_a_request_counts(first: str, second: str) -> None:
    fold = read(message(1), request(2, 1), decision(3, 1, first), decision(4, 1, second))
    assert fold.open is not None
    assert fold.open.control is not None
    decided = fold.open.control.requests[1]
    assert decided.decided is not None
    assert (decided.decided.decision, decided.is_granted) == (first, first == "approved")


def test_only_an_approval_for_the_session_outlives_its_act() -> None:
    def always(*decisions: Event) -> set[tuple[str, str]]:
        control = read(message(1), request(2, 1), *decisions).control
        return control.always if control else set()

    assert always(decision(3, 1, "approved", always=True)) == {("dev", "d")}
    assert always(decision(3, 1, "approved")) == set()
    assert always(decision(3, 1, "rejected", always=True)) == set()


def test_decisions_are_known_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    path = tmp_path / "transcript.jsonl"
    lines = [message(1, opens_chain=False), *DECISIONS]
    path.write_bytes(b"".join(map(events.encode_line, lines)))

    def load() -> Fold:
        return reader.load_fold(path, on_message=lambda _: None, weigh=lambda _: 1, budget=0)

    first = load()
    cached = Fold()
    assert reader.load(path, cached) == path.stat().st_size
    assert cached.control == first.control == read(*lines).control
    assert cached.control is not None
    assert cached.control == control_events.SessionControl(
        requests=1,
        agents={"qa": "terminated"},
        always={("dev", "d")},
        breakers={"dev": DECISIONS[5]},
        decisions={"qa": [1, 1]},
        raised_tokens=700,
        raised_usd=0.5,
        refused={9},
        checkpoints={"good": 7},
    )


def test_a_rewind_undoes_no_decision_of_people_but_grants() -> None:
    rewound = event(control_events.Rewound, 9, to=1, by="maya", last=8)
    control = read(message(1), *DECISIONS, rewound).control
    assert control == control_events.SessionControl(
        requests=1,  # the next request has a number of its own
        agents={"qa": "terminated"},
        decisions={"qa": [1, 1]},
        raised_tokens=700,
        raised_usd=0.5,
        refused={9},
        checkpoints={"good": 7},
    )
