"""Preview what `arena send` would do with a message, its plan, and what an agent would get now.

Nothing is written, and no agent is called but a planner (`arena plan`). The session's fold is built
as for a send, and the same rules and plans are used. The answers of phase A are not known, so
candidates are judged by the message alone.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli import errors
from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Calls, Runtime
from arena_cli.context import window
from arena_cli.context.history import KEPT_AT_LEAST, History, Memory
from arena_cli.context.window import Built, CallContext, build, sizes
from arena_cli.engine import loop, plan, rules
from arena_cli.engine.plan import Planned, Room, Scene
from arena_cli.engine.recall import Recollection
from arena_cli.errors import UsageError
from arena_cli.protocol import Message
from arena_cli.session import outgoing, session, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import make_redactor, open_recollection
from arena_cli.session.store import Stored
from arena_cli.transcript import log, queries, reader
from arena_cli.transcript.control_events import control_of
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Compacted, Phase, ReplyStarted
from arena_cli.transcript.log import Journal, NullLog
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.transcript.state import Fold
from arena_cli.util.clock import Clock
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Member, Team
from arena_cli.workspace.relevance import Haystack, find_hits, score_hits

# No session is called so: names begin with no dot.
NEW = ".new"


class PlannedCall(NamedTuple):
    """An agent that would be called, with the number of messages shown, of `of`, and the tokens."""

    agent: str
    name: str
    mentioned_by: list[str]
    messages: int
    of: int
    input_tokens: int


class Judged(NamedTuple):
    """A candidate judged by the message alone; `asked` is None if passed over, for `reason`.

    `hits` are the words found, as written in the profile; `threshold` is that of the profile.
    """

    agent: str
    name: str
    relevance: float
    threshold: float
    hits: list[str]
    asked: PlannedCall | None
    below: bool
    reason: str


class Preview(NamedTuple):
    """The message that would be sent, and the agents that would be asked in turn 1.

    `session` is None for a new one without a name. `busy`: another process writes to the session
    now; the preview assumes that it stops at this point. `interrupts` is the chain that would be
    closed as interrupted; `deferred` are the agents that must answer in the next turn. If a
    `supervisor` is asked first, it decides who replies, and no more is known; so does a
    `planner`.
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
    must: list[PlannedCall]
    deferred: list[str]
    others: list[Judged]
    supervisor: PlannedCall | None = None
    planner: PlannedCall | None = None


def preview_send(config: SessionConfig, name: str | None, team: Team, sent: Outgoing) -> Preview:
    """Return the preview of sending that message to that session; None is a new session."""
    folder = store.sessions_folder(config.workspace) / (name or NEW)
    with contextlib.closing(open_recollection(config, folder, team)) as recollection:
        return _preview(config, name, folder, recollection, team, sent)


def _preview(
    config: SessionConfig,
    name: str | None,
    folder: Path,
    recollection: Recollection,
    team: Team,
    sent: Outgoing,
) -> Preview:
    is_new = name is None or not (folder / store.TRANSCRIPT).is_file()
    busy = name is not None and store.is_held(folder)
    scene = make_scene(config, folder, team, recollection, is_new=is_new)
    cut_short = None if busy else scene.fold.open
    clean = outgoing.redacted(
        sent, make_redactor(config, [member.profile for member in team.members])
    )
    journal = Journal(NullLog(config.clock, seq=scene.fold.seq), scene.fold, lambda _: None)
    if clean.thread:
        tasks = import_module("arena_cli.session.task_messages")
        clean = tasks.resolve_thread(clean, scene.fold, folder / store.TRANSCRIPT, team)
    chain = _open_chain(scene, clean, folder, config, journal)
    step = rules.next_step(chain, team)
    assert isinstance(step, rules.StartTurn)
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
        **_plan_calls(step, chain, scene, journal),
    )


def _plan_calls(
    step: rules.StartTurn, chain: Chain, scene: Scene, journal: Journal
) -> dict[str, Any]:
    """Return the agents of a preview: those that are called first, and those that may reply."""
    nobody: dict[str, Any] = {"must": [], "deferred": [], "others": []}
    alone = _find_simple(chain, scene.team)
    if alone:
        step = replace(step, must=(alone,), deferred=())
    elif planner := _plan_planner(chain, scene):
        return {**nobody, "planner": planner}
    elif supervisor := _plan_supervisor(step, chain, scene):
        return {**nobody, "supervisor": supervisor}
    loop.start_turn(step, journal)
    return {
        "must": [_plan_call(agent, "A", chain, scene) for agent in step.must],
        "deferred": list(step.deferred),
        "others": [] if alone or chain.thread else _judged(chain, scene),
    }


def make_scene(
    config: SessionConfig, folder: Path, team: Team, recollection: Recollection, *, is_new: bool
) -> Scene:
    """Return the present session of that folder; for a new one nothing is read."""
    history = window.make_history(team)
    windows = session.windows(config, team.agents)
    known = (recollection, windows, config.language)
    if is_new:
        return Scene(folder.name, team, Fold(history.append), history, *known)
    fold = reader.load_fold(
        folder / store.TRANSCRIPT,
        on_message=history.append,
        weigh=window.weigh,
        budget=window.history_budget(team),
        least=KEPT_AT_LEAST,
        keep=False,
    )
    return Scene(folder.name, team, fold, history, *known)


def _open_chain(
    scene: Scene, sent: Outgoing, folder: Path, config: SessionConfig, journal: Journal
) -> Chain:
    """Return the chain that the message opens, after closing one that was interrupted."""
    if scene.fold.open:
        loop.finish_chain("interrupted", (), journal)
    outgoing.open_chain(
        sent,
        journal,
        roster=mentions.build_roster(scene.team),
        keep=partial(log.planned, session=folder, workspace=config.workspace),
    )
    assert scene.fold.open is not None
    return scene.fold.open


def _judged(chain: Chain, scene: Scene) -> list[Judged]:
    """Return all candidates that need not reply, the most relevant first."""
    team, turn = scene.team, chain.turns[-1]
    roster = mentions.build_roster(team)
    control = scene.fold.control
    chosen, passed_over = rules.choose_candidates(
        turn, chain, team, roster, control.unavailable if control else {}
    )
    haystack = Haystack(rules.new_texts(turn, chain), roster)
    required = {*turn.started.must, *turn.started.deferred}
    judged = []
    for member in team.members:
        if member.id in required:
            continue
        is_asked = member.id in chosen
        over = passed_over.get(member.id)
        hits = find_hits(haystack, member)
        judged.append(
            Judged(
                agent=member.id,
                name=member.name,
                relevance=score_hits(len(hits)),
                threshold=member.profile.response.threshold,
                hits=[hit.word for hit in hits],
                asked=_plan_call(member.id, "B", chain, scene) if is_asked else None,
                below=over is not None and over.threshold is not None,
                reason="" if is_asked else (over and over.reason) or _why_not(member, team),
            )
        )
    order = {agent: position for position, agent in enumerate(chosen)}
    return sorted(judged, key=lambda one: (order.get(one.agent, len(order)), -one.relevance))


def _why_not(member: Member, team: Team) -> str:
    """Explain why a member that had a place is not asked."""
    if team.config.selection == "none":
        return "the team's selection is none"
    if team.config.selection == "relevance_if_unnamed":
        return "other agents are named (selection: relevance_if_unnamed)"
    if not member.profile.response.auto_respond:
        return "it answers only when it is named (auto_respond: false)"
    return "below its threshold"


def _plan_call(agent: str, phase: Phase, chain: Chain, scene: Scene) -> PlannedCall:
    planned = plan.plan(agent, phase, chain, scene)
    shown = len(planned.input.messages)
    return PlannedCall(
        agent,
        planned.member.name if planned.member else agent,
        planned.input.mentioned_by,
        shown,
        max(scene.fold.messages, shown),
        planned.input_tokens,
    )


def _find_simple(chain: Chain, team: Team) -> str:
    """Return the agent that answers the message alone, by its intent; "" if there is none.

    No agent is asked for the intent: unless rules decide, the dry run shows the whole team.
    """
    intent, message = team.config.intent, chain.opening.message
    if intent is None or not intent.enabled or team.sorter is not None or chain.thread:
        return ""
    sorting = import_module("arena_cli.engine.intent")
    alone: str = sorting.find_simple(message, *sorting.sort_by_rules(message), team)
    return alone


def _plan_planner(chain: Chain, scene: Scene) -> PlannedCall | None:
    """Return the call of the planner if the chain is planned; notes and past work are left out."""
    team = scene.team
    if team.planner is None:
        return None
    planner = import_module("arena_cli.engine.planner")
    if not planner.is_plan_asked(chain, team):
        return None
    tokens = planner.estimate_prompt(chain.opening.message.content, team)
    return PlannedCall(team.planner.id, team.planner.name, [], 1, scene.fold.messages, tokens)


def _plan_supervisor(step: rules.StartTurn, chain: Chain, scene: Scene) -> PlannedCall | None:
    """Return the call of the supervisor if it is asked about the first turn."""
    team, control = scene.team, scene.fold.control
    is_free = team.config.mode == "mixed" and not rules.mentions_no_agent(chain, step.trigger)
    if team.supervisor is None or is_free or chain.thread:
        return None
    supervision = plan.describe_chain(
        chain,
        team,
        step.trigger,
        due=(*step.must, *step.deferred),
        unavailable=control.unavailable if control else {},
    )
    built = plan.plan_supervision(chain, scene, step.trigger, supervision)
    shown, of = len(built.input.messages), scene.fold.messages
    agent = team.supervisor
    return PlannedCall(agent.id, agent.name, [], shown, of, built.input_tokens)


class _PreviewLog(NullLog):
    """A log that writes nothing, of a session that may have a transcript at `path`."""

    def __init__(self, path: Path, clock: Clock, seq: int) -> None:
        super().__init__(clock, seq=seq)
        self.path = path


async def preview_plan(
    config: SessionConfig, name: str | None, team: Team, sent: Outgoing
) -> PlanMade:
    """Return the plan for a message to that session; None is a new one. No other agent is called.

    Raises DiskRefused, or UsageError if the planner may not be called.
    """
    folder = store.sessions_folder(config.workspace) / (name or NEW)
    is_new = name is None or not (folder / store.TRANSCRIPT).is_file()
    redactor = session.make_redactor(config, [member.profile for member in team.agents])
    with contextlib.ExitStack() as held:
        recollection = held.enter_context(
            contextlib.closing(session.open_recollection(config, folder, team))
        )
        scratch = held.enter_context(
            tempfile.TemporaryDirectory(prefix="arena-plan-", ignore_cleanup_errors=True)
        )
        scene = make_scene(config, folder, team, recollection, is_new=is_new)
        runtime = session.make_runtime(config, redactor, scratch=Path(scratch) / "scratch")
        room = _make_room(config, folder, scene, runtime)
        message = outgoing.redacted(sent._replace(plan=True), redactor)
        if scene.fold.open is not None:
            raise UsageError(
                f"session {scene.session_id} has an open chain",
                "`arena resume` continues it; plan for another session, or after its end.",
            )
        outgoing.open_chain(message, room.journal, roster=room.roster, keep=room.keep)
        try:
            return await _ask(room)
        finally:
            await runtime.stop()
            await room.tools.stop()
            await room.control.stop()


def _make_room(config: SessionConfig, folder: Path, scene: Scene, runtime: Runtime) -> Room:
    path = folder / store.TRANSCRIPT
    journal = Journal(
        _PreviewLog(path, config.clock, scene.fold.seq), scene.fold, on_event=lambda _: None
    )
    keep = partial(log.planned, session=folder, workspace=config.workspace)
    return session.make_room(config, scene, journal, Calls(runtime, ()), keep)


async def _ask(room: Room) -> PlanMade:
    """Ask the planner, once more if rules refuse its plan; return the plan."""
    chain = room.scene.fold.open
    assert chain is not None
    control = room.control.get(room)
    control.check()
    planner = control.find_planner()
    assert planner is not None
    planner.only_reads = True
    while True:
        plans: list[PlanMade] = control_of(chain).plans
        if plans and not plans[-1].refused:
            return plans[-1]
        step = planner.next_step(chain, control_of(chain))
        if not isinstance(step, rules.Prepare):
            detail = step.detail if isinstance(step, rules.Pause) else ""
            raise UsageError(f"the planner is not asked: {detail}", "Raise `budget` of its team.")
        await step.act()


class Recalled(NamedTuple):
    """A call as today's files would make it; `same`: the agent's input was exactly this."""

    planned: Planned
    same: bool


def recall_call(
    stored: Stored,
    agent: str,
    turn: int | None,
    *,
    config: SessionConfig,
    team_of: Callable[[str | None], Team],
) -> Recalled:
    """Return the last attempt at that agent's call in a turn, else at its last call.

    `team_of` returns a team by its name. Raises UsageError if there was no such call, or if the
    agent or the team is gone.
    """
    started = _reply_call(stored.transcript, agent, turn)
    opening = queries.session_before(stored.transcript, started.seq)
    team = team_of(opening.team if opening else None)
    member = team.member(agent)
    if member is None:
        raise UsageError(
            f"{escape_line(agent)} is no longer in the team: its input cannot be rebuilt",
            "`arena show --json` still shows the whole conversation.",
        )
    with contextlib.closing(open_recollection(config, stored.folder, team)) as recollection:
        recollection.only(started.notes)  # many were written since
        scene = _scene(stored, started, member, team, recollection)
        windows = session.windows(config, [member])
        scene = scene._replace(windows=windows, language=config.language)
        return _recalled(stored, started, scene)


def _recalled(stored: Stored, started: ReplyStarted, scene: Scene) -> Recalled:
    if scene.fold.open is None or not scene.fold.open.turns:
        raise UsageError(
            f"turn {started.turn} cannot be read", f"`arena doctor {stored.name}` explains why."
        )
    agent, phase, chain = started.agent, started.phase, scene.fold.open
    planned = plan.plan(agent, phase, chain, scene)
    if started.attempt > 1 and planned.input_hash != started.input_hash:
        # An attempt before may have been shown more than its model takes.
        most = round(started.input_tokens / scene.limits(agent).factor)
        planned = plan.plan(agent, phase, chain, scene, most=most)
    # The attempts that failed before count as calls.
    recalled_input = planned.input.model_copy(update={"call": planned.input.call + planned.failed})
    return Recalled(
        replace(planned, input=recalled_input), planned.input_hash == started.input_hash
    )


def _scene(
    stored: Stored, started: ReplyStarted, member: Member, team: Team, recollection: Recollection
) -> Scene:
    """Return the session as of that call, but with the present state of its notes.

    It is read from the newest end: before the chain, only the messages that the agent may have been
    shown, and its calls, which are all calls minus the later ones.
    """
    transcript = stored.transcript
    revisions = reader.read_revisions(transcript, before=started.seq)
    since = queries.read_from_chain(transcript, started.seq).events
    budget = member.profile.context.window_tokens
    history = History(budget)
    fold = Fold(history.append)
    if since:
        offset = queries.offset_after(transcript, since[0].seq - 1)
        for message in reader.newest_messages(
            transcript, offset, window.weigh, budget, revisions=revisions
        ):
            history.append(message)
    restored = store.load_state(transcript)
    later = Fold()
    for event in since:
        later.apply(event)
    fold.calls[member.id] = restored.calls.get(member.id, 0) - later.calls.get(member.id, 0)
    if since:
        _restore_rest(fold, restored, transcript, since[0].seq)
    for event in since:
        if event.seq <= started.seq:
            fold.read(event, revisions)
    return Scene(stored.name, team, fold, history, recollection)


def _restore_rest(fold: Fold, restored: Fold, transcript: Path, seq: int) -> None:
    """Restore the state before that event of which the whole session (`restored`) has anything."""
    has_tasks = restored.control is not None and restored.control.tasks
    has_memory = restored.summary or restored.fits or restored.counts.record()
    if not (has_memory or restored.revisions or has_tasks):
        return
    before = _fold_before(transcript, seq)
    fold.summary, fold.fits, fold.counts = before.summary, before.fits, before.counts
    if restored.revisions:  # the calls that a later rewind skips are not among them
        fold.calls, fold.revisions = before.calls, before.revisions
    if has_tasks:
        fold.control = before.control


def _fold_before(transcript: Path, seq: int) -> Fold:
    """Return the session before that event, read from its beginning."""
    fold = Fold()
    revisions = reader.read_revisions(transcript, before=seq)
    for line in reader.read_lines(transcript):
        for event in line.events:
            if event.seq >= seq:
                return fold
            fold.read(event, revisions)
    return fold


def _reply_call(transcript: Path, agent: str, turn: int | None) -> ReplyStarted:
    """Return the last `reply_started` of an agent, or its last in a turn."""
    called: dict[str, None] = {}
    for started in reader.newest_first(transcript, reader.tail(transcript)[1], {"reply_started"}):
        if not isinstance(started, ReplyStarted):
            continue
        if turn is not None and started.turn < turn:
            break
        if turn in (None, started.turn):
            if started.agent == agent:
                return started
            called[started.agent] = None
    scope = "this session" if turn is None else f"turn {turn}"
    names = ", ".join(escape_line(name) for name in reversed(called))
    mend = f"called agents: {names}" if called else "no agent was called"
    raise UsageError(f"{escape_line(agent)} was not called in {scope}", mend)


class Explained(NamedTuple):
    """An input as it would be now; `of` is the number of messages of the session.

    `window` is the number of tokens that the agent accepts, `reserved` those of it for the answer.
    `usage_ratio` is the fill level if all messages without a summary were shown. `factor` is the
    ratio of its model's counts to the estimates; it is not yet included in the tokens of the layers
    (`counted`).
    """

    member: Member
    built: Built
    memory: Memory
    head_tokens: int
    task_tokens: int
    pinned_tokens: int
    window: int
    reserved: int
    usage_ratio: float
    factor: float
    of: int
    summary: Compacted | None

    def counted(self, estimated: int) -> int:
        """Return an estimate as the agent's model is expected to count it, in tokens."""
        return round(estimated * self.factor)


def explain_context(config: SessionConfig, stored: Stored, team: Team, agent: str) -> Explained:
    """Return the agent's input if it were called for the last message of another author.

    Raises UsageError if the team has no such agent, or if there is no message yet.
    """
    member = team.member(agent)
    if member is None:
        ids = [one.id for one in team.members]
        raise UsageError(
            f"no member of this team has the id {escape_line(agent)!r}",
            errors.suggest_nearest(agent, ids),
        )
    with contextlib.closing(session.open_recollection(config, stored.folder, team)) as recollection:
        scene = make_scene(config, stored.folder, team, recollection, is_new=False)
        return _explained(stored, member, scene)


def _explained(stored: Stored, member: Member, scene: Scene) -> Explained:
    agent = member.id
    messages = scene.history.after()
    if not messages:
        raise UsageError(f"session {stored.name} has no message yet")
    fold, head, limits = scene.fold, scene.head(agent), scene.limits(agent)
    by_others = (message for message in reversed(messages) if message.author_id != agent)
    last = next(by_others, messages[-1])
    memory = scene.memory(last.content)
    call = CallContext(
        session_id=stored.name,
        turn_id=f"t{fold.turn + 1}",
        turn=1,
        call=fold.calls.get(agent, 0) + 1,
        trigger=[last.id],
        invocation="must_reply",
        brief=plan.describe_tasks(agent, scene),
    )
    built = build(head, scene.history, call, memory, limits)
    _, reserved = sizes(member.profile.context, scene.windows.get(agent))
    return Explained(
        member=member,
        built=built,
        memory=memory,
        head_tokens=head.tokens,
        task_tokens=call.tokens,
        pinned_tokens=sum(scene.history.weight_of(entry.message) for entry in built.chosen.pinned),
        window=scene.room(agent) + reserved,
        reserved=reserved,
        usage_ratio=window.sum_usage(head, scene.history, memory, built.chosen, limits.factor)
        / max(head.room, 1),
        factor=limits.factor,
        of=fold.messages,
        summary=fold.summary,
    )
