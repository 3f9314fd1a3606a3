"""Ask a team's planner about a message, and write nothing: `arena plan`."""

from __future__ import annotations

import contextlib
import tempfile
from functools import partial
from pathlib import Path

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Calls, Runtime
from arena_cli.engine import rules
from arena_cli.engine.plan import Room, Scene
from arena_cli.errors import UsageError
from arena_cli.session import outgoing, session, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.preview import NEW, make_scene
from arena_cli.transcript import log
from arena_cli.transcript.control_events import control_of
from arena_cli.transcript.log import Journal, NullLog
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.util.clock import Clock
from arena_cli.workspace.models import Team


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
