"""CPU time to build one agent's input, with histories of 100 to 100,000 messages.

    python benchmarks/context.py

Each history has a summary, pinned messages and notes, and fills the agent's window; it is built as
before each call of a conversation, whose newest message differs. Aims: under 1 ms each, and each
within 10 % of the shortest history's. Then the estimates of tokens (`tokens.py`): 1 MB in under
20 ms, each text within 10 % of what tokenizers count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import tokens as estimates

from arena_cli.context import window
from arena_cli.context.history import History, Memory, Pinned, RecalledNote, shown_to_others
from arena_cli.notes.model import Note
from arena_cli.protocol import Message
from arena_cli.workspace.models import AgentProfile, ContextSettings, Member, Team

LENGTHS = (100, 1_000, 10_000, 100_000)
CALLS = 200
_TEXT = "We look at part {} of the plan; 第 {} 部分的方案需要确认，请给出理由和取舍。" * 3


def message(number: int) -> Message:
    """The n-th message of a conversation of a human and two agents."""
    author = ("maya", "architect", "developer")[number % 3]
    return Message(
        id=f"m{number}",
        author_id=author,
        author_name=author.title(),
        author_type="human" if author == "maya" else "agent",
        content=_TEXT.format(*[number] * 6),
        timestamp="2026-11-28T09:30:00.000Z",
    )


def a_team() -> Team:
    """Two agents with windows that 80 messages fill."""
    context = ContextSettings(window_tokens=10_000)
    profiles = [
        AgentProfile(agent_id=agent, adapter={"type": "scripted"}, context=context)
        for agent in ("architect", "developer")
    ]
    return Team("crew", tuple(Member(profile, profile.agent_id.title()) for profile in profiles))


def a_memory(length: int) -> Memory:
    """A summary, five pinned messages, and twelve notes that were found."""

    def note(number: int, **more: object) -> Note:
        title = f"Decision {number}: keep the audit trail for {number} days"
        fields = {"id": f"decision-{number}", "file": f"{number}.md", "title": title, **more}
        return Note.model_validate({"kind": "decision", "body": "Because auditors ask.", **fields})

    pinned = [
        Pinned(shown_to_others(message(number)), note(number, source=f"m{number}"))
        for number in range(1, 6)
    ]
    notes = [RecalledNote(note(100 + number), "audit, trail") for number in range(12)]
    return Memory("The team builds a system. " * 60, length // 10, length // 10, pinned, notes)


def seconds(length: int, calls: int) -> list[float]:
    """What each of the calls took whose history has so many messages, and more at each."""
    team = a_team()
    head = window.make_head(team, "architect")
    history = History(window.history_budget(team))
    for number in range(1, length + 1):
        history.append(message(number))
    memory = a_memory(length)
    took = []
    for number in range(length + 1, length + calls + 1):
        history.append(message(number))
        call = window.CallContext("s", "t1", 1, 1, [f"m{number}"], "must_reply")
        began = time.process_time()
        window.build(head, history, call, memory)
        took.append(time.process_time() - began)
    return took


def main(lengths: Sequence[int], calls: int) -> None:
    """Print a line for each length."""
    base = 0.0
    print(f"{'messages':>10} {'median':>10} {'worst 5 %':>10} {'to the shortest':>16}")
    for length in lengths:
        took = sorted(seconds(length, calls))
        median = statistics.median(took)
        base = base or median
        worst = took[int(len(took) * 0.95)]
        shown = f"{median * 1e3:>7.3f} ms {worst * 1e3:>7.3f} ms"
        print(f"{length:>10,} {shown} {median / base:>16.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--calls", type=int, default=CALLS)
    asked = parser.parse_args()
    main(asked.lengths, asked.calls)
    print()
    estimates.times()
    estimates.errors()
