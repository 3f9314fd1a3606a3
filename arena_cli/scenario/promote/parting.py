"""Where a session that is played again parts from what it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.scenario.expect import conversation
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.scenario.promote.taken import Piece
from arena_cli.scenario.result import ScenarioResult

Matter = Literal["must", "asked", "mentions", "turns", "end"]


class Parting(NamedTuple):
    """The first thing that is not as it was: in which step, and turn of its chain, both from 1.

    `matter` is what differs: who must reply, who was asked, whom `agent` mentions, how many turns
    there are, how the chain ends. What came of a call is the session's own.
    """

    step: int
    turn: int
    matter: Matter
    agent: str | None
    before: str
    after: str


def found(pieces: Sequence[Piece], result: ScenarioResult, root: Path) -> Parting | None:
    """The first one, in the first step that has one; None where all is as it was."""
    for number, (piece, step) in enumerate(zip(pieces, result.steps, strict=True), 1):
        if not piece.is_chain or step.status == "not_run":
            continue
        before, after = (conversation.of(one, root) for one in (piece.events, step.events))
        for parting in _partings(number, before, after):
            return parting
    return None


def _partings(step: int, before: Conversation, after: Conversation) -> Iterator[Parting]:
    for then, now in zip(before.turns, after.turns, strict=False):

        def parting(matter: Matter, was: Any, now: Any, agent: str | None = None) -> Parting:
            texts = [", ".join(one) if isinstance(one, list) else str(one) for one in (was, now)]
            return Parting(step, then.number, matter, agent, *texts)  # noqa: B023  # used at once

        if then.must != now.must:
            yield parting("must", then.must, now.must)
        if then.asked != now.asked:
            yield parting("asked", then.asked, now.asked)
        for one, other in zip(then.calls(), now.calls(), strict=False):
            if one.message and other.message and one.message.mentions != other.message.mentions:
                yield parting("mentions", one.message.mentions, other.message.mentions, one.agent)
    last = max(1, min(len(before.turns), len(after.turns)))
    if len(before.turns) != len(after.turns):
        counts = (str(len(before.turns)), str(len(after.turns)))
        yield Parting(step, last, "turns", None, *counts)
    if before.end != after.end:
        yield Parting(step, last, "end", None, before.end, after.end)
