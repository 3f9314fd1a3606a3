"""Open a session for writing: lock, repair, fold; then `send` or `resume` runs the turn loop."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from arena_cli.adapters import pricing
from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.process import cleanup
from arena_cli.adapters.runtime import Calls, Middleware, Runtime
from arena_cli.chat import Renderer
from arena_cli.context import history, render, window
from arena_cli.engine import after_turn, loop
from arena_cli.engine.loop import Engine
from arena_cli.engine.plan import ControlHolder, Keep, Room, Scene, ToolsHolder
from arena_cli.engine.recall import Recollection
from arena_cli.notes import staging
from arena_cli.notes.model import Note
from arena_cli.notes.store import Folder
from arena_cli.protocol import Attachment
from arena_cli.session import outgoing, store
from arena_cli.session.outgoing import Outgoing, Planted, PlantedSummary
from arena_cli.transcript import log, reader
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import (
    ChainFinished,
    Compacted,
    Event,
    MessageEvent,
    NoteEvent,
    Resumed,
    SessionEvent,
)
from arena_cli.transcript.log import Journal, Log
from arena_cli.transcript.reader import Problem
from arena_cli.transcript.state import Fold
from arena_cli.util.redaction import Redactor
from arena_cli.util.tickets import Ticket
from arena_cli.workspace import agents, mentions
from arena_cli.workspace.models import (
    AgentProfile,
    LaneName,
    Member,
    Team,
)

if TYPE_CHECKING:
    from arena_cli.adapters.python import UserFunction
    from arena_cli.engine.inbox import ControlRequest, Outcome
    from arena_cli.notes.index import Index
    from arena_cli.transcript.control_events import ChainPaused


KNOWLEDGE = "knowledge"


def own_notes(session: Path, workspace: Path) -> Folder:
    """Return the notes of a session, by its folder."""
    return Folder(session / KNOWLEDGE, workspace, shared=False)


def shared_notes(workspace: Path) -> Folder:
    """Return the notes of the workspace."""
    return Folder(store.sessions_folder(workspace) / KNOWLEDGE, workspace, shared=True)


def open_recollection(config: SessionConfig, session: Path, team: Team) -> Recollection:
    """Open a team's memory in a session, by its folder."""
    folders = [own_notes(session, config.workspace)]
    if config.shared_notes:
        folders.append(shared_notes(config.workspace))
    for folder in folders:
        folder.sync = config.durability == "fsync"

    return Recollection(
        session.name,
        session / store.TRANSCRIPT,
        folders,
        team.config.memory,
        partial(_make_index, config, folders),
        waits=config.memory.embedding is not None,
        on_problem=config.on_problem,
    )


def _make_index(config: SessionConfig, folders: list[Folder]) -> Index:
    from arena_cli.session import shelves  # noqa: PLC0415 - most sessions have no notes

    return shelves.open_index(
        folders,
        shelves.VectorSource(config.memory.embedding, config.environ, config.connects),
        is_stored=config.shared_notes,
        on_problem=config.on_problem,
        on_progress=config.on_progress,
    )


def windows(config: SessionConfig, members: Iterable[Member]) -> dict[str, int]:
    """Return the context window of each agent's model, in tokens, if it is known."""
    by_agent: dict[str, int] = {}
    for member in members:
        for adapter in agents.list_adapters(member.profile.adapter):
            tokens = pricing.window_of(adapter, config.models)
            if tokens is not None:  # what is shown must fit each of them
                by_agent[member.id] = min(tokens, by_agent.get(member.id, tokens))
    return by_agent


def smallest_room(config: SessionConfig, members: Iterable[Member]) -> int:
    """Return the smallest window of these agents minus its reserve for the answer, in tokens."""
    windows_of = windows(config, members := list(members))
    sizes = [window.sizes(member.profile.context, windows_of.get(member.id)) for member in members]
    return min(takes - reserved for takes, reserved in sizes)


T = TypeVar("T")


class Session(contextlib.AbstractContextManager["Session"]):
    """A conversation open for writing until `close`; `problems` are lines that were skipped.

    `on_event` is called with every event once it is written, `on_wait` with the name of a session
    that another process holds, `on_text` with an agent's id and the end of its text so far,
    redacted. Calls of agents pass through `middlewares`, from the first to the last.
    """

    def __init__(
        self,
        config: SessionConfig,
        name: str | None,
        team: Team,
        *,
        scenario: str | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
        on_text: Callable[[str, str], None] | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        """Open the session, or create it; for None, create one with an unused name.

        `scenario` is the title of the scenario that is played in a new one.

        Raises UsageError, SessionBusy or DiskRefused.
        """
        self.team = team
        self._scenario = scenario
        self.problems: list[Problem] = []
        self._config = config
        self.folder = store.make_session_folder(config.workspace, name, config.clock)
        self.name = self.folder.name
        with contextlib.ExitStack() as held:
            held.enter_context(
                store.hold(
                    self.folder,
                    f"session {self.name}",
                    wait_s=config.wait_s,
                    on_wait=lambda: on_wait(self.name),
                )
            )
            self._open(held, on_event, on_text, middlewares)
            self._held = held.pop_all()

    def _open(
        self,
        held: contextlib.ExitStack,
        on_event: Callable[[Event], None],
        on_text: Callable[[str, str], None] | None,
        middlewares: Sequence[Middleware],
    ) -> None:
        config, team = self._config, self.team
        self._roster = mentions.build_roster(team)
        self._redactor = make_redactor(config, [member.profile for member in team.agents])
        self._history = window.make_history(team)
        if os.path.lexists(records := store.process_records_folder(config.workspace)):
            cleanup.end_recorded(records)
        transcript = self.folder / store.TRANSCRIPT
        repair = log.repair(transcript, reader.last_seq(transcript) + 1)
        fold = self._load_fold(transcript)
        self._log = Log(transcript, clock=config.clock, durability=config.durability, seq=fold.seq)
        held.enter_context(contextlib.closing(self._log))
        self.journal = Journal(self._log, fold, on_event)
        self._runtime = Calls(self._make_runtime(fold), middlewares)
        self._recollection = recollection = open_recollection(config, self.folder, team)
        held.callback(recollection.close)
        windows = self._windows()
        history = self._history
        room = make_room(
            config,
            Scene(self.name, team, fold, history, recollection, windows, config.language),
            self.journal,
            self._runtime,
            self._keep,
            on_text=on_text,
            summarizer=config.summarizer,
            extractor=config.extractor,
            memory_judge=config.memory_judge,
            inbox=self.folder / store.CONTROL if config.takes_requests else None,
            draw_place=self._lane(config.lane),
            draw_subagent_place=self._lane("subagent"),
            draw_nested_place=None if config.lane == "nested" else self._lane("nested"),
            draw_planner_place=self._lane("planner"),
            ask_person=config.ask_person,
            sessions=self.folder.parent if config.connects else None,
        )
        self._control, self._tools = room.control, room.tools
        self._engine = Engine(room)
        self._tell_who_talks()
        self.journal.write_repair(repair)
        self._finish_acts(recollection)

    def _make_runtime(self, fold: Fold) -> Runtime:
        """Return the runtime that calls the agents of the session."""
        return make_runtime(
            self._config,
            self._redactor,
            scratch=self.folder / "scratch",
            session=self.name,
            used=lambda agent: frozenset(fold.scripted_used.get(agent, ())),
        )

    def _load_fold(self, transcript: Path) -> Fold:
        """Return the state of the session; its messages are added to the history."""
        return reader.load_fold(
            transcript,
            on_message=self._history.append,
            weigh=window.weigh,
            budget=window.history_budget(self.team),
            least=history.KEPT_AT_LEAST,
            on_problem=self.problems.append,
        )

    def _lane(self, lane: LaneName) -> Callable[[str], Ticket] | None:
        """Return how replies draw a place in a lane, if it has a bound.

        A replay calls no agent, so it takes no place.
        """
        if self._config.lanes.find_bound(lane) is None or not self._config.connects:
            return None
        return partial(store.draw_place, self._config, lane, self.name)

    def _finish_acts(self, recollection: Recollection) -> None:
        """Finish the changes of notes that a crash interrupted, in both folders."""
        append = partial(self.journal.write_all, NoteEvent)
        after_turn.finish_acts(self._log, append, recollection.folders)
        for folder in recollection.folders:
            if folder.shared and after_turn.is_act_unfinished(store.trail_path(folder)):
                from arena_cli.session import notes, shelves  # noqa: PLC0415 - after a crash

                notes.finish(self._config, shelves.open_shelf(self._config.workspace, None))

    @property
    def open_chain(self) -> Chain | None:
        """The chain that was interrupted, if there is one."""
        return self.journal.fold.open

    async def send(self, message: Outgoing) -> ChainFinished | ChainPaused:
        """Write a human's message and run its chain to the end, or until it pauses.

        A chain that was interrupted is closed as `interrupted` first. Raises DiskRefused, or
        UsageError if the team's rules cannot be applied.
        """
        self._engine.check()
        sent = outgoing.redacted(message, self._redactor)
        sent = outgoing.resolve_reply(sent, self.journal)
        if sent.thread:
            tasks = import_module("arena_cli.session.task_messages")
            sent = tasks.resolve_thread(sent, self.journal.fold, self._log.path, self.team)
        if self.journal.fold.open:
            loop.finish_chain("interrupted", (), self.journal)
        outgoing.open_chain(sent, self.journal, roster=self._roster, keep=self._keep)
        self._engine.start_chain()
        return await self._engine.run()

    async def work(
        self,
        *,
        by: str,
        tasks: Sequence[str] = (),
        max_tasks: int | None = None,
        minutes: float | None = None,
    ) -> ChainFinished | ChainPaused:
        """Let the agents work on tasks, on all or on these, until none is left that can continue.

        At most `max_tasks` are started, and none after that many minutes. Raises DiskRefused, or
        UsageError if a chain is open, or if there is nothing to do.
        """
        self._engine.check()
        messages = import_module("arena_cli.session.task_messages")
        message = messages.write_opening(
            self.journal,
            self.team,
            self._config,
            by=by,
            tasks=tasks,
            max_tasks=max_tasks,
            minutes=minutes,
        )
        outgoing.open_chain(message, self.journal, roster=self._roster, keep=self._keep)
        self._engine.start_chain()
        return await self._engine.run()

    def find_repeated(self, message: Outgoing) -> list[Event]:
        """Return the events of the chain that the message's key opened; none if it opened none.

        Raises UsageError if the key was used for another message.
        """
        if not message.key:
            return []
        sent = outgoing.redacted(message, self._redactor)
        return outgoing.find_repeated(sent, self.journal, roster=self._roster)

    def plant(self, planted: Planted) -> MessageEvent:
        """Write a message that calls no agent and opens no chain. Raises DiskRefused."""
        return outgoing.plant(
            planted,
            self.journal,
            redactor=self._redactor,
            roster=self._roster,
            keep=self._keep,
        )

    def plant_summary(self, planted: PlantedSummary, messages: Sequence[MessageEvent]) -> None:
        """Write a summary of all of `messages`, which were planted. Raises DiskRefused."""
        self.journal.write(
            Compacted,
            by=planted.by,
            upto=messages[-1].message.id,
            messages=len(messages),
            summary=self._redactor.text(planted.text),
            tokens_before=planted.tokens_before,
            tokens_after=planted.tokens_after,
            corrected=list(planted.corrected),
        )

    def plant_approval(self, note: Note) -> None:
        """Write the approval of a note that a scenario starts with, if its file says so.

        `on_event` is not called: it is no event of the scenario. Raises DiskRefused.
        """
        if note.status != "approved":
            return
        stamp = self._log.stamp()
        event = NoteEvent(
            seq=stamp.seq,
            ts=stamp.ts,
            note=unicodedata.normalize("NFC", note.id),
            act="approved",
            by=note.approved_by or outgoing.USER.id,
            kind=note.kind,
            title=note.title,
            status=note.status,
            sha256=staging.sha256(note),
        )
        self._log.append(event)
        self.journal.fold.apply(event)

    def list_waiting_notes(self) -> list[str]:
        """Return the ids of the session's notes that wait for a person's approval."""
        has_notes = (self.folder / KNOWLEDGE).is_dir()
        index = self._recollection.index() if has_notes else None
        notes = index.own(self.name) if index else ()
        return [note.id for note in notes if note.status == "pending_user"]

    def carry_out(self, request: ControlRequest) -> str:
        """Carry out a person's request while no chain runs; return what was done.

        Raises UsageError or DiskRefused.
        """
        return self._engine.carry_out(request)

    def change_task(
        self,
        action: str,
        task: str = "",
        *,
        by: str = "user",
        agent: str = "",
        text: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a task or change one while no chain runs; return what was done.

        `action` is add, assign, reassign, block, unblock, complete, fail or cancel. `facts` are
        those of a task that is added: title, description, type, priority, needs, assigned_to.
        Raises UsageError or DiskRefused.
        """
        inbox = import_module("arena_cli.engine.inbox")
        fields = {"action": action, "target": task, "by": by, "agent": agent, "text": text}
        request = inbox.ControlRequest(act="task", **fields, arguments=dict(facts or {}))
        return self.carry_out(request)

    async def serve_tool(self, member: Member, request: ControlRequest) -> Outcome:
        """Carry out a request for the tools of an agent while no chain runs; `stop` follows."""
        return await self._engine.serve_tool(member, request)

    def post(self, request: ControlRequest) -> None:
        """Carry out a person's request at the next safe point of the open chain.

        `send` or `resume` raises UsageError if it cannot be carried out then.
        """
        self._engine.post(request)

    def take_requests(self) -> None:
        """Carry out the requests that other processes left. Raises DiskRefused."""
        self._engine.take_requests()

    async def resume(self) -> ChainFinished | ChainPaused | None:
        """Continue the chain that was interrupted or paused; return None if there is none.

        A chain that waits for a decision stays as it is, unless a person at the terminal decides
        now. Raises DiskRefused, or UsageError if the team's rules cannot be applied.
        """
        self._engine.check()
        chain = self.journal.fold.open
        if chain is None:
            return None
        pause = self._engine.find_pause(chain)
        if pause is not None and not await self._engine.ask_again(chain, pause):
            return pause
        after_seq = self.journal.fold.seq
        self.journal.write(Resumed, chain=chain.number, after_seq=after_seq)
        return await self._engine.run()

    async def last(self, chain: Coroutine[Any, Any, T]) -> T:
        """Run a chain after which no other follows, and stop."""
        try:
            return await chain
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the processes that agents keep between calls; no agent is called after it."""
        await self._runtime.stop()
        await self._tools.stop()
        await self._control.stop()

    def close(self) -> None:
        """Release the session; call `stop` first if any agent was called."""
        with self._held:
            if self._log.is_whole:
                reader.save_fold(self._log.path, self.journal.fold, self._log.size)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _windows(self) -> dict[str, int]:
        return windows(self._config, [*self.team.agents, *self._config.memory_agents])

    def _tell_who_talks(self) -> None:
        members = self.team.infos
        config = self.team.config.model_dump()
        opening = self.journal.fold.session
        current = (self.name, self.team.name, members, config)
        if opening and (opening.session, opening.team, opening.members, opening.config) == current:
            return
        self.journal.write(
            SessionEvent,
            session=self.name,
            team=self.team.name,
            members=members,
            config=config,
            scenario=self._scenario,
        )

    def _keep(self, attachments: Sequence[Attachment], message_id: str) -> list[Attachment]:
        return log.store(
            attachments,
            message_id,
            session=self.folder,
            workspace=self._config.workspace,
            sync=self._config.durability == "fsync",
        )


def make_runtime(
    config: SessionConfig,
    redactor: Redactor,
    *,
    scratch: Path,
    used: Callable[[str], frozenset[int]] = lambda _: frozenset(),
    session: str = "",
) -> Runtime:
    """Make the runtime that calls agents; `used` returns the used entries of an agent's script.

    `session` is the name of the session, if it is one of the workspace.
    """
    return Runtime(
        config,
        scratch=scratch,
        records=store.process_records_folder(config.workspace),
        renderer=Renderer(
            partial(render.render, language=config.language),
            partial(render.chat, language=config.language),
        ),
        redactor=redactor,
        used=used,
        session=session,
    )


def make_room(
    config: SessionConfig,
    scene: Scene,
    journal: Journal,
    runtime: Calls,
    keep: Keep,
    **others: Any,
) -> Room:
    """Return the room of a session; `others` are its fields that have a default."""
    return Room(
        scene=scene,
        roster=mentions.build_roster(scene.team),
        journal=journal,
        runtime=runtime,
        clock=config.clock,
        keep=keep,
        language=config.language,
        control=ControlHolder(),
        workspace=config.workspace,
        make_function=partial(make_user_function, config),
        config=config,
        tools=ToolsHolder(),
        models=config.models,
        **others,
    )


def make_user_function(config: SessionConfig, target: str) -> UserFunction:
    """Return a function of the user's rules by its name."""
    function: UserFunction = import_module("arena_cli.adapters.python").UserFunction(
        target,
        config.workspace,
        config.environ,
        store.process_records_folder(config.workspace),
    )
    return function


def make_redactor(
    config: SessionConfig,
    profiles: Iterable[AgentProfile] = (),
    others: Iterable[dict[str, Any]] = (),
) -> Redactor:
    """Return the redactor for the secrets of all agents and servers of the workspace.

    `profiles` are further agents that the workspace may not know, `others` settings of anything
    else.
    """
    memory = [member.profile for member in config.memory_agents]
    everyone = {id(profile): profile for profile in (*config.profiles, *memory, *profiles)}
    settings = [
        adapter
        for profile in everyone.values()
        if profile.may_hold_secrets
        for adapter in agents.list_adapters(profile.adapter)
    ]
    settings += others
    settings += [server.model_dump() for p in everyone.values() for server in p.mcp.values()]
    if config.memory.embedding is not None:
        settings.append(config.memory.embedding.model_dump())
    secrets = agents.collect_proxy_passwords(config.environ)
    secrets = secrets.union(
        *(agents.collect_secrets(member, config.environ) for member in settings)
    )
    return Redactor(secrets, config.redact)
