"""A session open for writing: lock, repair, fold, then `send` or `resume` runs the turn loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from arena_cli.adapters import registry, strays
from arena_cli.adapters.base import Adapter
from arena_cli.adapters.runtime import Runtime
from arena_cli.context import render, window
from arena_cli.engine import loop
from arena_cli.engine.loop import Engine
from arena_cli.engine.reply import Room
from arena_cli.ground.clock import Clock, SystemClock
from arena_cli.ground.errors import UsageError
from arena_cli.ground.protocol import Attachment, MemberInfo, Message
from arena_cli.ground.redact import Redactor
from arena_cli.session import lock, names, outgoing, store
from arena_cli.session.outgoing import USER, Outgoing, Planted
from arena_cli.team import environ, mentions
from arena_cli.team.model import Durability, Language, Team
from arena_cli.transcript import attachments, index, log, opening, read
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    Resumed,
    SessionEvent,
)
from arena_cli.transcript.fold import ChainState
from arena_cli.transcript.journal import Journal
from arena_cli.transcript.log import Log
from arena_cli.transcript.read import Problem

PROCESSES = ".processes"


@dataclass(frozen=True)
class Place:
    """Where a session lives and how it is written; the same for every session of a run."""

    workspace: Path
    durability: Durability = "fsync"
    language: Language = "en"
    redact: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    wait_s: float = 600.0
    adapter_type: Callable[[str], type[Adapter]] = registry.adapter_type


class Session:
    """One conversation, held for writing until `close`; `problems` are lines that were skipped.

    `on_event` hears every event once it is written, `on_wait` the name of a session that another
    process holds, `on_text` an agent's id and the end of its text so far, redacted.
    """

    def __init__(
        self,
        place: Place,
        name: str | None,
        team: Team,
        *,
        scenario: str | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
        on_text: Callable[[str, str], None] | None = None,
    ) -> None:
        """Open the session, or make it; None is a new one, whose name nobody else has.

        `scenario` is the title of the scenario that is played in a new one.

        Raises UsageError, SessionBusy or DiskRefused.
        """
        self.team = team
        self._scenario = scenario
        self.problems: list[Problem] = []
        self._place = place
        self.folder = _made(place, name)
        self.name = self.folder.name
        self._lock = lock.acquire(
            self.folder, wait_s=place.wait_s, on_wait=lambda: on_wait(self.name)
        )
        try:
            self._open(on_event, on_text)
        except BaseException:
            self._lock.release()
            raise

    def _open(
        self,
        on_event: Callable[[Event], None],
        on_text: Callable[[str, str], None] | None,
    ) -> None:
        place, team = self._place, self.team
        self._roster = mentions.roster_of(team)
        self._redactor = redactor_of(place, team)
        budget = max((m.profile.context.window_tokens for m in team.members), default=0)
        self._history = window.History(budget)
        records = store.sessions_of(place.workspace) / PROCESSES
        strays.end_recorded(records)
        transcript = self.folder / store.TRANSCRIPT
        repair = log.repair(transcript, read.last_seq(transcript) + 1)
        fold = opening.fold_of(
            transcript,
            on_message=self._history.append,
            weigh=window.weigh,
            budget=budget,
            on_problem=self.problems.append,
        )
        self._log = Log(transcript, clock=place.clock, durability=place.durability, seq=fold.seq)
        self.journal = Journal(self._log, fold, on_event)
        self._runtime = Runtime(
            workspace=place.workspace,
            scratch=self.folder / "scratch",
            records=records,
            render=render.render,
            redactor=self._redactor,
            environ=place.environ,
            used=lambda agent: frozenset(fold.scripted_used.get(agent, ())),
            adapter_type=place.adapter_type,
        )
        self._room = Room(
            team=team,
            roster=self._roster,
            journal=self.journal,
            runtime=self._runtime,
            clock=place.clock,
            keep=self._keep,
            on_text=on_text,
        )
        self._engine = Engine(
            self._room, session_id=self.name, history=self._history, language=place.language
        )
        self._tell_who_talks()
        if repair:
            self.journal.write(lambda stamp: log.recovered(repair, stamp))

    @property
    def open_chain(self) -> ChainState | None:
        """The chain that was cut short, if there is one."""
        return self.journal.fold.open

    async def send(self, message: Outgoing) -> ChainFinished:
        """Write a human's message and run its chain to the end.

        A chain that was cut short is closed as `interrupted` first. Raises DiskRefused.
        """
        sent = outgoing.redacted(message, self._redactor)
        chain = self.journal.fold.open
        if chain:
            loop.finish_chain(self._room, chain, "interrupted", ())
        self.journal.write(
            lambda stamp: outgoing.event(
                sent,
                stamp,
                chain=self.journal.fold.chain + 1,
                roster=self._roster,
                keep=self._keep,
            )
        )
        return await self._run()

    def plant(self, planted: Planted) -> None:
        """Write a message that calls nobody and opens no chain. Raises DiskRefused."""
        content = self._redactor.text(planted.content)
        author = planted.author_id
        named = mentions.parse(content, self._roster, author=author, opener=USER.id)
        self.journal.write(
            lambda stamp: MessageEvent(
                seq=stamp.seq,
                ts=stamp.ts,
                message=Message(
                    id=stamp.message_id,
                    author_id=author,
                    author_name=planted.author_name,
                    author_type=planted.author_type,
                    content=content,
                    mentions=list(named.ids),
                    timestamp=stamp.ts,
                    kind="system" if planted.author_type == "system" else "chat",
                ),
                unresolved=list(named.unresolved),
                planted=True,
            )
        )

    async def resume(self) -> ChainFinished | None:
        """Go on with the chain that was cut short; None where there is none."""
        chain = self.journal.fold.open
        if chain is None:
            return None
        after = self.journal.fold.seq
        self.journal.write(
            lambda stamp: Resumed(seq=stamp.seq, ts=stamp.ts, chain=chain.number, after_seq=after)
        )
        return await self._run()

    async def _run(self) -> ChainFinished:
        try:
            return await self._engine.run()
        finally:
            await self._runtime.stop()

    def close(self) -> None:
        """Let go of the session."""
        with contextlib.closing(self._log):
            index.save(self._log.path, self.journal.fold, self._log.size)
        self._lock.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tell_who_talks(self) -> None:
        members = [
            MemberInfo(id=member.id, name=member.name, role=member.role)
            for member in self.team.members
        ]
        config = self.team.config.model_dump()
        known = self.journal.fold.session
        now = (self.name, self.team.name, members, config)
        if known and (known.session, known.team, known.members, known.config) == now:
            return
        self.journal.write(
            lambda stamp: SessionEvent(
                seq=stamp.seq,
                ts=stamp.ts,
                session=self.name,
                team=self.team.name,
                members=members,
                config=config,
                scenario=self._scenario,
            )
        )

    def _keep(self, parts: Sequence[Attachment], message_id: str) -> list[Attachment]:
        return attachments.store(
            parts, message_id, session=self.folder, workspace=self._place.workspace
        )


def _made(place: Place, name: str | None) -> Path:
    sessions = store.sessions_of(place.workspace)
    if name is not None:
        name = names.checked(name)
        folder = names.existing(sessions, name) or sessions / name
    try:
        if name is None:
            folder = _claimed(sessions, place.clock)
        else:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{sessions}: cannot make a folder here: {error.strerror or error}",
            "arena keeps transcripts there; mend the rights, or choose another --workspace.",
        ) from error
    return folder


def _claimed(sessions: Path, clock: Clock) -> Path:
    """A new folder that no other process has, even one that started in the same second."""
    while True:
        folder = sessions / names.automatic(clock)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except FileNotFoundError:
            sessions.mkdir(parents=True, exist_ok=True)
            continue
        return folder


def redactor_of(place: Place, team: Team) -> Redactor:
    """What takes out the secrets of these members and of the workspace."""
    secrets = (
        environ.secrets(member.profile.adapter, place.environ)
        for member in team.members
        if member.profile.asks_environment
    )
    return Redactor(set().union(*secrets), place.redact)
