"""Work for the team's memory at the end of a turn: deviations, notes, summaries.

It runs before `turn_finished` is written, in order of call, so that two runs write the same. It is
idempotent: a repetition after a crash does nothing more. `NoteWriter` writes the event and the
files of an act, both or neither; `notes.staging` defines their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena_cli.context import render, window
from arena_cli.engine import compaction, side_calls
from arena_cli.engine.plan import Room
from arena_cli.engine.recall import Recollection
from arena_cli.errors import ArenaError, DiskRefused, Fault
from arena_cli.notes import agent_extraction, extraction, lifecycle, staging
from arena_cli.notes.model import RULES, Draft, Kind, Note
from arena_cli.notes.staging import NoteChange, Staged, StagedFile
from arena_cli.notes.store import Folder
from arena_cli.protocol import Message, ShownMessage, parse_seq
from arena_cli.transcript import reader
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import (
    Deviation,
    Extracted,
    HeedJudged,
    NoteAct,
    NoteEvent,
    ReplyFinished,
)
from arena_cli.transcript.log import Log
from arena_cli.workspace.models import Member

if TYPE_CHECKING:
    from arena_cli.notes.compliance import IgnoredNote

# The rest of the extracting agent's window is for the question itself and the notes it names.
_QUESTION_SHARE = 0.6

_CUT_MEND = (
    "set it to the server's context size, or raise that size (num_ctx of Ollama, "
    "--ctx-size of llama.cpp)"
)

_HEEDED_KINDS: tuple[Kind, ...] = ("blocker", "conclusion", "next_action")


async def after_turn(room: Room) -> None:
    """Check the turn's replies for deviations, take notes from it, and summarise if needed."""
    recollection, chain = room.scene.recollection, room.scene.fold.open
    if recollection is None or chain is None or not chain.turns:
        return
    recollection.follow(is_edited=False)  # the next call looks for edits
    _tell_cuts(room, recollection, chain)
    await _tell_deviations(room, recollection, chain)
    await _take_notes(room, recollection, chain)
    await compaction.after_turn(room)
    every = room.scene.team.config.memory.extract_every
    fold = room.scene.fold
    if room.extractor and every and fold.messages - fold.extracted >= every:
        await _extract(room, recollection)


async def before_end(room: Room) -> None:
    """Ask the extracting agent at the end of a chain, unless it is asked every N messages."""
    recollection, every = room.scene.recollection, room.scene.team.config.memory.extract_every
    if recollection and room.extractor and not every:
        await _extract(room, recollection)


def _tell_cuts(room: Room, recollection: Recollection, chain: Chain) -> None:
    """Report agents whose server seems to read less than it is sent."""
    for agent in chain.turns[-1].called:
        if room.scene.fold.counts.cut_suspected(agent) is not None:
            problem = (
                "its server counted far fewer tokens than arena sent: it may truncate the prompt"
            )
            field = "context.window_tokens"
            recollection.tell(Fault(f"agents/{agent}.yaml", 0, field, problem, _CUT_MEND))


async def _tell_deviations(room: Room, recollection: Recollection, chain: Chain) -> None:
    """Write the deviations: the notes that agents were shown and whose replies ignore them."""
    index = recollection.index()
    if index is None:
        return
    turn = chain.turns[-1]
    reported = {(event.reply, event.note) for event in turn.deviations}
    judged = {event.reply for event in turn.side_events if isinstance(event, HeedJudged)}
    living = index.own(room.scene.session_id, _HEEDED_KINDS)
    for done in turn.successes() if living else ():
        shown = frozenset(turn.replies[done.agent].notes)
        notes = [
            note
            for note in living
            if note.id in shown or (note.source and _was_source_shown(note, done, room))
        ]
        if notes and done.reply not in judged:
            await _check_reply(done, notes, chain, reported, room)


async def _check_reply(
    done: ReplyFinished,
    notes: Sequence[Note],
    chain: Chain,
    reported: Container[tuple[int, str]],
    room: Room,
) -> None:
    """Write the deviations of a reply from the notes that its agent was shown."""
    reply_text = done.message.content if done.message else ""
    shown = chain.trigger_for(done.agent, done.phase)
    new = "\n".join(chain.messages[name].content for name in shown)
    ignored_notes, event = await _find_ignored(reply_text, new, notes, done.agent, room)
    for ignored in ignored_notes:
        if (done.reply, ignored.note.id) not in reported:
            _tell_deviation(ignored, done, room)
    if event:
        room.journal.write(HeedJudged, reply=done.reply, notes=len(notes), **event)


async def _find_ignored(
    reply: str, new: str, notes: Sequence[Note], agent: str, room: Room
) -> tuple[Sequence[IgnoredNote], dict[str, Any]]:
    """Return the notes that a reply ignores, and the fields of the event if the judge was asked.

    The rules decide if the team has no judge, or if its answer is not valid.
    """
    from arena_cli.notes import compliance  # noqa: PLC0415 - most have no notes

    judge, fields = room.memory_judge, {}
    if judge is not None and room.scene.team.config.memory.heed == "judge":
        answer = await side_calls.ask(
            judge, compliance.write_heed_question(reply, new, notes), room
        )
        judgement = compliance.read_judgement(
            answer.text, reply, new, notes, language=room.language
        )
        error = answer.error or judgement.problem
        fields = {
            "by": judge.id,
            "usage": answer.usage,
            "error": error or None,
            "metadata": answer.metadata,
        }
        if not error:
            return judgement.ignored, fields
    return compliance.ignored(reply, new, notes, agent, language=room.language), fields


def _was_source_shown(note: Note, done: ReplyFinished, room: Room) -> bool:
    """Return True if the agent was shown the note's source message."""
    source = room.scene.history.message(note.source or "")
    if note.is_shared or source is None or source.seq > room.scene.fold.noted:
        return False
    return room.scene.team.member(done.agent) is not None and room.scene.reaches(done.agent, source)


def _tell_deviation(ignored: IgnoredNote, done: ReplyFinished, room: Room) -> None:
    room.journal.write(
        Deviation,
        reply=done.reply,
        agent=done.agent,
        note=ignored.note.id,
        kind=ignored.note.kind,
        level=ignored.level,
        reason=ignored.reason,
        sentence=ignored.sentence,
    )


async def _take_notes(room: Room, recollection: Recollection, chain: Chain) -> None:
    """Take notes from the turn: those that agents wrote, and those that the rules extract."""
    settings = recollection.rules
    for message in _unnoted(room, chain):
        if message.author_type == "system":
            continue
        by_agent = message.author_type == "agent"
        drafts: list[Draft] = []
        if by_agent:
            written = extraction.extract_from_blocks(
                message.content, message.structured, by=message.author_id, source=message.id
            )
            allowed, refusals = await _check_notes(written.drafts, message, room, chain)
            drafts += allowed
            if problems := [*written.problems, *refusals]:
                _tell_refused("; ".join(problems), message, room)
        if room.extractor is None:
            drafts += _propose([message], room, recollection)
        _make_notes(drafts, room, recollection)
    for error in extraction.slow_patterns(settings.patterns):
        team = room.scene.team.name
        file = "arena.yaml" if team is None else f"agents/teams/{team}.yaml"
        problem = f"{error.what}; it is skipped from now on"
        recollection.tell(Fault(file, 0, "config.memory.patterns", problem, error.mend))


async def _check_notes(
    drafts: Sequence[Draft], message: Message, room: Room, chain: Chain
) -> tuple[Sequence[Draft], list[str]]:
    """Return the notes of a reply that the team's rules allow, and why the others are refused."""
    control = room.control.current
    if control is None or not drafts:
        return drafts, []
    agent = message.author_id
    replies = {done.message.id: done.reply for done in chain.turns[-1].successes() if done.message}
    reply = replies.get(message.id, 0)
    reasons = await control.check_notes(drafts, agent, reply)
    allowed = [draft for draft, reason in zip(drafts, reasons, strict=True) if not reason]
    return allowed, [
        f"{draft.title}: {reason}" for draft, reason in zip(drafts, reasons, strict=True) if reason
    ]


def _propose(
    messages: Iterable[Message | ShownMessage], room: Room, recollection: Recollection
) -> list[Draft]:
    """Return the notes that the rules find in messages; none if the team switched them off."""
    settings = recollection.rules
    return [
        draft
        for message in messages
        if settings.rules and message.author_type != "system"
        for draft in extraction.extract_by_rules(
            message.content,
            by=RULES,
            source=message.id,
            patterns=settings.patterns,
            roster=room.roster,
        )
    ]


def _unnoted(room: Room, chain: Chain) -> Iterator[Message]:
    """Yield the messages since the last turn, in the order in which agents are shown them."""
    history, fold = room.scene.history, room.scene.fold
    messages = history.after(fold.noted)
    yield from messages
    message_ids = {message.id for message in messages}
    for done in chain.turns[-1].successes():
        message = done.message
        if message is not None and message.id not in message_ids and not message.shown_to:
            yield message
    for name in chain.held:
        if not chain.messages[name].shown_to:
            yield chain.messages[name]


def add_notes(drafts: Sequence[Draft], room: Room) -> list[str]:
    """Make notes of what an agent wrote during its reply; return their ids, old or new."""
    recollection = room.scene.recollection
    if recollection is None:
        return []
    before = room.scene.fold.seq
    _make_notes(drafts, room, recollection)
    chain = room.scene.fold.open
    events = chain.turns[-1].side_events if chain and chain.turns else ()
    return [event.note for event in events if isinstance(event, NoteEvent) and event.seq > before]


def _make_notes(drafts: Sequence[Draft], room: Room, recollection: Recollection) -> int:
    """Make notes of the drafts; return their number. A draft that cannot be written is reported."""
    if not drafts:
        return 0
    own_folder, *shared_folders = recollection.folders
    count = 0
    desk = _TurnNotes(room, own_folder)
    for draft in drafts:
        desk.draft = draft
        noted = _list_noted(room)
        try:
            result = lifecycle.take_note(
                draft,
                recollection.alike(draft),
                own_folder,
                session=room.scene.session_id,
                now=room.clock.now(),
                shared=shared_folders[0] if shared_folders else None,
                language=room.language,
                noted=noted,
                carry=desk.carry,
            )
        except ArenaError as error:
            if error is desk.refusal:
                raise
            problem = f"a note is left out: {error.what}"
            recollection.tell(Fault(own_folder.shown(own_folder.path), 0, "", problem, error.mend))
            continue
        if result.act is not None:
            recollection.wrote(result.note)
            count += not desk.was_told
        elif (result.note.id, draft.source) not in noted:  # a file by somebody's hand
            act = _act(result.note, "added", draft)
            room.journal.write(NoteEvent, **act)
            count += 1
    for folder in recollection.folders:
        folder.settle()
    return count


class _TurnNotes:
    """A writer of the notes of a turn, made from `draft`, with their events.

    `was_told`: the event already existed, for a file that was lost. `refusal` is the error of the
    transcript, if it could not be written.
    """

    def __init__(self, room: Room, folder: Folder) -> None:
        self.draft: Draft | None = None
        self.refusal: DiskRefused | None = None
        self.was_told = False
        self._room = room
        self._log = room.journal.log
        write = partial(room.journal.write_all, NoteEvent)
        self._desk = NoteWriter(self._log, write, sync=folder.sync, is_strict=False)

    def carry(self, folder: Folder, act: NoteAct, changes: Sequence[NoteChange]) -> None:
        """Write a note with its event; only the files if the event exists already."""
        assert self.draft is not None
        self.was_told = (changes[0].note.id, self.draft.source) in _list_noted(self._room)
        if self.was_told:  # a power cut may lose a file whose event it spares
            for change in changes:
                folder.put(change)
            return
        seq = self._log.seq
        try:
            self._desk.carry_out(folder, changes, [_act(changes[0].note, act, self.draft)])
        except DiskRefused as error:
            self.refusal = error if self._log.seq == seq else None
            raise


def _list_noted(room: Room) -> set[tuple[str, str]]:
    """Return the notes of the open turn: the id of each, with the id of its source message."""
    assert room.scene.fold.open is not None
    return {
        (event.note, event.message)
        for event in room.scene.fold.open.turns[-1].side_events
        if isinstance(event, NoteEvent) and event.message
    }


def _act(note: Note, act: NoteAct, draft: Draft) -> dict[str, Any]:
    return {
        "note": note.id,
        "act": act,
        "by": draft.by,
        "kind": note.kind,
        "title": note.title,
        "status": note.status,
        "message": draft.source,
    }


def _tell_refused(problem: str, message: Message, room: Room) -> None:
    if ("", message.id) in _list_noted(room):
        return
    room.journal.write(
        NoteEvent,
        note="",
        act="refused",
        by=message.author_id,
        kind="",
        title="",
        status="",
        message=message.id,
        reason=problem,
    )


async def _extract(room: Room, recollection: Recollection) -> None:
    """Ask the extracting agent about the messages since its last call."""
    extractor = room.extractor
    assert extractor is not None
    pending = room.scene.history.after(parse_seq(room.scene.fold.extracted_upto))
    if not pending:
        return
    messages = _choose_fitting(pending, room, extractor)
    texts = [(message.id, render.frame(message)) for message in messages]
    index = recollection.index()
    notes = index.notes(session=room.scene.session_id) if index else ()
    living_notes = [note for note in notes if note.is_living]
    proposals = _propose(messages, room, recollection)
    question = agent_extraction.question(texts, living_notes, proposals)
    answer = await side_calls.ask(extractor, question, room)
    contents = {message.id: message.content for message in messages}
    extracted = agent_extraction.read_extraction(answer.text, contents, by=extractor.id)
    error = answer.error or "; ".join(extracted.problems)
    # Where the agent decided nothing, the rules decide.
    undecided = pending[: len(pending) - len(messages)]
    _make_notes(_propose(undecided, room, recollection), room, recollection)
    if error and not extracted.drafts:
        _make_notes(proposals, room, recollection)
    count = _make_notes(extracted.drafts, room, recollection)
    upto = max(messages, key=lambda message: message.seq).id
    room.journal.write(
        Extracted,
        by=extractor.id,
        upto=upto,
        notes=count,
        usage=answer.usage,
        error=error or None,
        metadata=answer.metadata,
    )


def _choose_fitting(
    messages: Sequence[ShownMessage], room: Room, extractor: Member
) -> Sequence[ShownMessage]:
    """Return the newest messages that fit into the extracting agent's window, at least one."""
    head = window.Head.of(room.scene.team, extractor, room.scene.windows.get(extractor.id))
    tokens_left = (head.room - head.tokens) * _QUESTION_SHARE
    count = 0
    for message in reversed(messages):
        tokens_left -= room.scene.history.weight_of(message)
        if tokens_left < 0 and count:
            break
        count += 1
    return messages[len(messages) - count :]


Append = Callable[[Sequence[Mapping[str, Any]], Callable[[], None]], list[NoteEvent]]
"""Appends events of these fields in order, calls a function, and then reports the events."""


class NoteWriter:
    """A writer of acts on notes, with the trail that `log` writes.

    `is_strict`: each act is on disk before the next begins, if the trail is synced at all.
    Otherwise the caller has the folders settle, and an incomplete act is repeated after a crash.
    """

    def __init__(self, log: Log, append: Append, *, sync: bool, is_strict: bool) -> None:
        self._log = log
        self._append = append
        self._sync = sync and is_strict
        self._path = staging.path_of(log.path)

    def carry_out(
        self, folder: Folder, changes: Sequence[NoteChange], acts: Sequence[Mapping[str, Any]]
    ) -> list[NoteEvent]:
        """Write the events of these acts, then the files. Raises DiskRefused.

        `acts` are the fields of events without their stamps.
        """
        if is_act_unfinished(self._log.path):  # the disk refused a file, or this is its second try
            finish_acts(self._log, self._append, [folder], is_held=True)
        files = [folder.staged(change) for change in changes]
        seq = self._log.seq
        try:
            staged = Staged(seq=seq + 1, acts=[dict(act) for act in acts], files=files)
            staging.write(self._path, staged, sync=self._sync)
        except OSError as error:
            self._drop()
            raise _refused(self._path, error) from error

        def write_files() -> None:
            if self._sync:
                self._log.sync()
            for change in changes:
                folder.put(change)
            if self._sync:
                folder.settle()
            self._drop()

        try:
            return self._append(acts, write_files)
        except DiskRefused:
            if self._log.seq == seq:  # nothing happened
                self._drop()
            raise

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def is_act_unfinished(trail: Path) -> bool:
    """Return True if an act has begun and not ended, or is being carried out now."""
    return staging.path_of(trail).is_file()


def finish_acts(
    log: Log, append: Append, folders: Iterable[Folder], *, is_held: bool = False
) -> bool:
    """Complete an act that another process began; return True if there was one.

    The caller must hold the lock of the trail; `is_held`: it holds the lock of the folders too.
    Raises SessionBusy, UsageError or DiskRefused.
    """
    path = staging.path_of(log.path)
    try:
        if not path.is_file():
            return False
        staged = staging.read(path)
        if staged is not None and staged.acts:
            written = _count_written(log.path, staged)
            if written:
                append(staged.acts[written:], lambda: None)
                _finish_files(staged.files, folders, is_held=is_held)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(path, error) from error
    return True


def _count_written(trail: Path, staged: Staged) -> int:
    """Return the number of staged events that are in the trail."""
    count = 0
    for event in _since(trail, staged.seq):
        if count == len(staged.acts):
            break
        act = staged.acts[count]
        if {name: getattr(event, name, None) for name in act} != act:
            break
        count += 1
    return count


def _since(trail: Path, seq: int) -> list[NoteEvent]:
    """Return the events about notes in the trail, from that number on."""
    note_events: list[NoteEvent] = []
    for raw in reader.backwards(trail, trail.stat().st_size):
        events = reader.parse_events(raw)
        note_events += [
            event for event in events if isinstance(event, NoteEvent) and event.seq >= seq
        ]
        if any(event.seq <= seq for event in events):
            break
    return sorted(note_events, key=lambda event: event.seq)


def _finish_files(files: Sequence[StagedFile], folders: Iterable[Folder], *, is_held: bool) -> None:
    for folder in folders:
        folder_files = [file for file in files if file.shared is folder.shared]
        if folder_files:
            folder.finish(folder_files, is_held=is_held)


def _refused(path: Path, error: OSError) -> DiskRefused:
    return DiskRefused(
        f"{path}: could not write: {error.strerror or error}",
        "Free disk space, or fix the permissions there.",
    )
