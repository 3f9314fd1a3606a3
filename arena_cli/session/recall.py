"""What an agent was shown at one of its calls, made again from the transcript."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from arena_cli.context import window
from arena_cli.context.history import History
from arena_cli.engine import planning
from arena_cli.engine.planning import Planned
from arena_cli.engine.recalling import Recollection
from arena_cli.engine.scene import Scene
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line
from arena_cli.session import remembering
from arena_cli.session.session import Place
from arena_cli.session.store import Stored
from arena_cli.team.model import Member, Team
from arena_cli.transcript import loading, passage, read
from arena_cli.transcript.events import ReplyStarted
from arena_cli.transcript.fold import Fold


class Recalled(NamedTuple):
    """A call as the files of now would have it; `same`: the agent was shown just that."""

    planned: Planned
    same: bool


def recall(
    stored: Stored,
    agent: str,
    turn: int | None,
    *,
    place: Place,
    team_of: Callable[[str | None], Team],
) -> Recalled:
    """The last attempt at that agent's call in a turn, else at its last call.

    `team_of` gives a team by its name. Raises UsageError where there was no such call, or where
    the agent or the team is gone.
    """
    started = _call(stored.transcript, agent, turn)
    session = passage.session_before(stored.transcript, started.seq)
    team = team_of(session.team if session else None)
    member = team.member(agent)
    if member is None:
        raise UsageError(
            f"{shown_line(agent)} is no longer in the team: what it was shown cannot be made again",
            "`arena show --json` still tells all that was said.",
        )
    with contextlib.closing(remembering.of(place, stored.folder, team)) as recollection:
        recollection.only(started.notes)  # many were written since
        scene = _scene(stored, started, member, team, recollection)
        scene = scene._replace(windows=remembering.windows(place, [member]))
        return _recalled(stored, started, scene)


def _recalled(stored: Stored, started: ReplyStarted, scene: Scene) -> Recalled:
    if scene.fold.open is None or not scene.fold.open.turns:
        raise UsageError(
            f"turn {started.turn} cannot be read", f"`arena doctor {stored.name}` tells more."
        )
    agent, phase, chain = started.agent, started.phase, scene.fold.open
    planned = planning.plan(agent, phase, chain, scene)
    if started.attempt > 1 and planned.input_hash != started.input_hash:
        # An attempt before may have been shown more than its model takes.
        most = round(started.input_tokens / scene.limits(agent).factor)
        planned = planning.plan(agent, phase, chain, scene, most=most)
    # The attempts that failed before count as calls.
    shown = planned.input.model_copy(update={"call": planned.input.call + planned.failed})
    return Recalled(replace(planned, input=shown), planned.input_hash == started.input_hash)


def _scene(
    stored: Stored, started: ReplyStarted, member: Member, team: Team, recollection: Recollection
) -> Scene:
    """The session as it was at that call, the notes that it was shown as they are now.

    It is made from the newest end: of what came before the chain only the messages that the agent
    may have been shown, and its calls, which are all calls less those since.
    """
    transcript = stored.transcript
    since = passage.from_chain_of(transcript, started.seq).events
    budget = member.profile.context.window_tokens
    history = History(budget)
    fold = Fold(history.append)
    if since:
        before = passage.offset_after(transcript, since[0].seq - 1)
        for message in loading.newest_messages(transcript, before, window.weigh, budget):
            history.append(message)
    whole = loading.fold_of(
        transcript, on_message=lambda _: None, weigh=lambda _: 1, budget=0, keep=False
    )
    later = Fold()
    for event in since:
        later.apply(event)
    if since and (whole.summary or whole.fits or whole.counts.record()):
        before_chain = _fold_before(transcript, since[0].seq)
        fold.summary, fold.fits = before_chain.summary, before_chain.fits
        fold.counts = before_chain.counts
    fold.calls[member.id] = whole.calls.get(member.id, 0) - later.calls.get(member.id, 0)
    for event in since:
        if event.seq <= started.seq:
            fold.apply(event)
    return Scene(stored.name, team, fold, history, recollection)


def _fold_before(transcript: Path, seq: int) -> Fold:
    """The session before that event, read from its beginning."""
    fold = Fold()
    for line in read.lines(transcript):
        for event in line.events:
            if event.seq >= seq:
                return fold
            fold.apply(event)
    return fold


def _call(transcript: Path, agent: str, turn: int | None) -> ReplyStarted:
    """The last `reply_started` of an agent, or its last in a turn."""
    called: dict[str, None] = {}
    for started in read.newest_first(transcript, read.tail(transcript)[1], {"reply_started"}):
        if not isinstance(started, ReplyStarted):
            continue
        if turn is not None and started.turn < turn:
            break
        if turn in (None, started.turn):
            if started.agent == agent:
                return started
            called[started.agent] = None
    where = "this session" if turn is None else f"turn {turn}"
    names = ", ".join(shown_line(name) for name in reversed(called))
    mend = f"called were: {names}" if called else "nobody was"
    raise UsageError(f"{shown_line(agent)} was not called in {where}", mend)
