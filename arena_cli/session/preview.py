"""What `arena send` would do with a message, with nobody called and nothing written.

The session's fold is made as a send makes it, and the same rules and plans are asked. What phase A
would answer is not known, so that whoever may reply is judged by the message alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from arena_cli.context import history as histories
from arena_cli.context import window
from arena_cli.engine import milestones, planning, rules
from arena_cli.engine.recalling import Recollection
from arena_cli.engine.scene import Scene
from arena_cli.ground.clock import timestamp
from arena_cli.ground.protocol import Message
from arena_cli.session import lock, outgoing, remembering, session, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Place
from arena_cli.team import mentions, relevance
from arena_cli.team.model import Member, Team
from arena_cli.transcript import attachments, loading
from arena_cli.transcript.events import Phase
from arena_cli.transcript.fold import ChainState, Fold
from arena_cli.transcript.log import Stamp

# No session is called so: names begin with no dot.
NEW = ".new"


class Asked(NamedTuple):
    """An agent that would be called: with how many of the `of` messages, and tokens in all."""

    agent: str
    name: str
    mentioned_by: list[str]
    messages: int
    of: int
    input_tokens: int


class Judged(NamedTuple):
    """One who may reply, judged by the message alone; `asked` None: passed over, for `reason`.

    `hits` are the words that were found, as they stand in the profile; `below` its threshold.
    """

    agent: str
    name: str
    relevance: float
    threshold: float
    hits: list[str]
    asked: Asked | None
    below: bool
    reason: str


class Preview(NamedTuple):
    """What would be sent, and who would be asked in turn 1.

    `session` is None for a new one without a name; of a `busy` one, to which somebody writes now,
    it is told what would be if that stopped here. `interrupts` is the chain that would be closed as
    interrupted, `deferred` whoever must answer in the next turn.
    """

    session: str | None
    is_new: bool
    busy: bool
    team: str | None
    interrupts: int | None
    message: Message
    unresolved: list[str]
    redacted: bool
    selection: str
    must: list[Asked]
    deferred: list[str]
    others: list[Judged]


def of(place: Place, name: str | None, team: Team, sent: Outgoing) -> Preview:
    """What a send of that message to that session would do; None is a new session."""
    folder = store.sessions_of(place.workspace) / (name or NEW)
    with contextlib.closing(remembering.of(place, folder, team)) as recollection:
        return _of(place, name, folder, recollection, team, sent)


def _of(
    place: Place,
    name: str | None,
    folder: Path,
    recollection: Recollection,
    team: Team,
    sent: Outgoing,
) -> Preview:
    is_new = name is None or not (folder / store.TRANSCRIPT).is_file()
    busy = name is not None and lock.is_held(folder)
    scene = scene_of(place, folder, team, recollection, is_new=is_new)
    cut_short = None if busy else scene.fold.open
    clean = outgoing.redacted(
        sent, session.redactor_of(place, [one.profile for one in team.members])
    )
    chain = _opened(scene, clean, folder, place)
    step = rules.next_step(chain, team)
    assert isinstance(step, rules.StartTurn)
    scene.fold.apply(milestones.turn_started(step, chain, scene.fold, _stamp(scene.fold, place)))
    return Preview(
        session=name,
        is_new=is_new,
        busy=busy,
        team=team.name,
        interrupts=cut_short.number if cut_short else None,
        message=chain.opening.message,
        unresolved=chain.opening.unresolved,
        redacted=(clean.content, clean.attachments) != (sent.content, sent.attachments),
        selection=team.config.selection,
        must=[_asked(agent, "A", chain, scene) for agent in step.must],
        deferred=list(step.deferred),
        others=_judged(chain, scene),
    )


def scene_of(
    place: Place, folder: Path, team: Team, recollection: Recollection, *, is_new: bool
) -> Scene:
    """The session of that folder as it is; of a new one nothing is read."""
    history = window.history_of(team)
    windows = remembering.windows(place, team.members)
    if is_new:
        return Scene(folder.name, team, Fold(history.append), history, recollection, windows)
    fold = loading.fold_of(
        folder / store.TRANSCRIPT,
        on_message=history.append,
        weigh=window.weigh,
        budget=window.budget_of(team),
        least=histories.KEPT_AT_LEAST,
        keep=False,
    )
    return Scene(folder.name, team, fold, history, recollection, windows)


def _opened(scene: Scene, sent: Outgoing, folder: Path, place: Place) -> ChainState:
    """The chain that the message opens, after the one that was cut short, if there is one."""
    fold = scene.fold
    if fold.open:
        ended = milestones.chain_finished(fold.open, "interrupted", (), fold, _stamp(fold, place))
        fold.apply(ended)
    fold.apply(
        outgoing.event(
            sent,
            _stamp(fold, place),
            chain=fold.chain + 1,
            roster=mentions.roster_of(scene.team),
            keep=lambda parts, message_id: attachments.planned(
                parts, message_id, session=folder, workspace=place.workspace
            ),
        )
    )
    assert fold.open is not None
    return fold.open


def _stamp(fold: Fold, place: Place) -> Stamp:
    return Stamp(fold.seq + 1, timestamp(place.clock.now()))


def _judged(chain: ChainState, scene: Scene) -> list[Judged]:
    """Everyone who need not reply, the most relevant first."""
    team, turn = scene.team, chain.turns[-1]
    roster = mentions.roster_of(team)
    asked, passed_over = rules.choose(turn, chain, team, roster)
    haystack = relevance.Haystack(rules.new_texts(turn, chain), roster)
    named = {*turn.started.must, *turn.started.deferred}
    judged = []
    for member in team.members:
        if member.id in named:
            continue
        is_asked = member.id in asked
        over = passed_over.get(member.id)
        judged.append(
            Judged(
                agent=member.id,
                name=member.name,
                relevance=relevance.score(haystack, member),
                threshold=member.profile.response.threshold,
                hits=relevance.hits(haystack, member),
                asked=_asked(member.id, "B", chain, scene) if is_asked else None,
                below=over is not None and over.threshold is not None,
                reason="" if is_asked else (over and over.reason) or _why_not(member, team),
            )
        )
    order = {agent: place for place, agent in enumerate(asked)}
    return sorted(judged, key=lambda one: (order.get(one.agent, len(order)), -one.relevance))


def _why_not(member: Member, team: Team) -> str:
    """Why a member that had a place is not asked."""
    if team.config.selection == "none":
        return "the team's selection is none"
    if not member.profile.response.auto_respond:
        return "it answers only when it is named (auto_respond: false)"
    return "below its threshold"


def _asked(agent: str, phase: Phase, chain: ChainState, scene: Scene) -> Asked:
    planned = planning.plan(agent, phase, chain, scene)
    return Asked(
        agent=agent,
        name=planned.member.name if planned.member else agent,
        mentioned_by=planned.input.mentioned_by,
        messages=len(planned.input.messages),
        of=scene.fold.messages,
        input_tokens=planned.input_tokens,
    )
