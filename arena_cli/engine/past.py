"""Step into the past of a session: label a state, correct or mark a message, reassign a task.

These requests of people are carried out while a chain runs, too (`engine.control`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from arena_cli import errors
from arena_cli.engine import references
from arena_cli.engine.after_turn import NoteWriter
from arena_cli.engine.inbox import ControlRequest
from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Room
from arena_cli.errors import UsageError
from arena_cli.notes import markdown, model, staging
from arena_cli.notes.model import Note
from arena_cli.notes.staging import NoteChange
from arena_cli.protocol import Message
from arena_cli.transcript import queries
from arena_cli.transcript.control_events import Checkpoint, Edited, MarkedRead, SessionControl
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import NoteEvent, ReplyStarted
from arena_cli.util.clock import format_timestamp
from arena_cli.util.language import Texts
from arena_cli.util.text import clean_text, escape_line

EDIT_NOTICE = "edited"
"""The `notice` in the metadata of the system message about a correction."""

REASSIGN_NOTICE = "reassigned"
"""The `notice` in the metadata of the system message about a task."""

LONGEST_LABEL = 64
_QUOTED = 60  # characters of a message that is named by its beginning


def carry_out(request: ControlRequest, room: Room) -> str:
    """Carry out a request; return what was done. Raises UsageError or DiskRefused."""
    match request.act:
        case "checkpoint":
            return _add_checkpoint(request, room)
        case "edit":
            return _edit(request, room)
        case "reassign":
            return _reassign(request, room)
        case "react":
            return references.react(request, room)
        case "read":
            return _mark_read(request, room)
        case _:
            raise ValueError(f"no act of the past: {request.act}")


def is_within_turn(chain: Chain | None) -> bool:
    """Return True if the last turn of the open chain is not over."""
    return bool(chain and chain.turns and chain.turns[-1].finished is None)


def _add_checkpoint(request: ControlRequest, room: Room) -> str:
    fold, transcript = room.scene.fold, room.journal.log
    label = request.text.strip()
    problem = _find_label_fault(label)
    if problem:
        raise UsageError(
            f"label {escape_line(label)!r}: {problem}",
            f"Use up to {LONGEST_LABEL} printable characters that are not a number.",
        )
    known = (fold.control or SessionControl()).checkpoints.get(label)
    if known is not None:
        raise UsageError(
            f"checkpoint {escape_line(label)!r} exists already, at event {known}",
            "Choose another label; `arena checkpoints` lists them.",
        )
    at = fold.seq
    room.journal.write(Checkpoint, label=label, at=at, bytes=transcript.size, by=request.by)
    done = f"checkpoint {label} at event {at}"
    if is_within_turn(fold.open):
        assert fold.open is not None
        turn = fold.open.turns[-1].started.turn
        done += f", within turn {turn}: a fork or rewind goes back to before that turn"
    return done


def _find_label_fault(label: str) -> str:
    if not label:
        return "it is empty"
    if len(label) > LONGEST_LABEL:
        return f"it is longer than {LONGEST_LABEL} characters"
    if not label.isprintable():
        return "it contains a character that cannot be printed"
    return "it is a number, as events have" if label.isdecimal() else ""


def _mark_read(request: ControlRequest, room: Room) -> str:
    """Mark the messages up to one as read by an agent, or by all. Raises UsageError."""
    team = room.scene.team
    if request.agent:
        check_member(request.agent, room)
    message = references.find_target(request.target or _find_last(room), room)
    agents = [request.agent] if request.agent else [member.id for member in team.members]
    room.journal.write(MarkedRead, agents=agents, upto=message.id, by=request.by)
    return f"{', '.join(agents)}: read up to {message.id}"


def _find_last(room: Room) -> str:
    """Return the id of the last message. Raises UsageError if there is none."""
    messages = room.scene.history.after()
    if not messages:
        raise UsageError(f"session {escape_line(room.scene.session_id)} has no message yet")
    return messages[-1].id


def _find_editable(request: ControlRequest, room: Room) -> Message:
    """Return the message that a person wants to edit. Raises UsageError if it cannot be."""
    message = references.find_target(request.target, room)
    if message.author_type != "human":
        author = "the system" if message.author_type == "system" else escape_line(message.author_id)
        raise UsageError(
            f"{message.id} is a message of {author}: only messages of people can be edited",
            "Correct it by a message of your own: `arena steer` while the chain is open, else "
            "`arena send`.",
        )
    return message


def _edit(request: ControlRequest, room: Room) -> str:
    fold, journal = room.scene.fold, room.journal
    message = _find_editable(request, room)
    text = room.runtime.redactor.text(clean_text(request.text)[0])
    if not text.strip():
        raise UsageError("the new text is empty", "Write the corrected message.")
    if text == message.content:
        raise UsageError(f"{message.id} has that text already", "Write the corrected message.")
    readers = _list_readers(room, message.seq)
    journal.write(Edited, message=message.id, content=text, by=request.by)
    assert fold.revisions is not None
    room.scene.history.replace(fold.revisions.correct_message(message))
    left = _list_notes_from(message.id, room)
    notes = f"; notes made from the original stay: {', '.join(left)}" if left else ""
    if not readers:
        return f"{message.id} is corrected; no agent has read it yet{notes}"
    beginning = " ".join(message.content.split())
    if len(beginning) > _QUOTED:
        beginning = f"{beginning[:_QUOTED]}..."
    humans = {human.id: human.name for human in room.scene.team.humans}
    name = humans.get(request.by) or request.by
    content = Texts(room.language)(
        '{name} corrected the message {id}, which began "{beginning}". It now has the corrected '
        "text; the earlier one no longer holds.",
        name=name,
        id=message.id,
        beginning=beginning,
    )
    write_notice(
        room,
        content,
        {"notice": EDIT_NOTICE},
        reply_to=message.id,
        shown_to=message.shown_to if message.thread else [],
        thread=message.thread,
    )
    return f"{message.id} is corrected; told at their next call: {', '.join(readers)}{notes}"


def _list_notes_from(message: str, room: Room) -> list[str]:
    """Return the ids of the session's living notes that come from a message."""
    recollection = room.scene.recollection
    index = recollection.index() if recollection else None
    notes = index.own(room.scene.session_id) if index else []
    return [escape_line(note.id) for note in notes if note.source == message]


def _list_readers(room: Room, seq: int) -> list[str]:
    """Return the agents that were called since an event, in order; rewinds aside."""
    agents: dict[str, None] = {}
    path, revisions = room.journal.log.path, room.scene.fold.revisions
    for event in queries.list_newest(path, {"reply_started"}, revisions):
        if event.seq < seq:
            break
        if isinstance(event, ReplyStarted):
            agents[event.agent] = None
    return list(agents)[::-1]


def _reassign(request: ControlRequest, room: Room) -> str:
    agent = request.agent
    _check_assignee(agent, room)
    note = _find_task(request.target, room)
    title = escape_line(note.title)
    if note.owner == agent:
        raise UsageError(f"{title} is a task of {agent} already", "Name another agent.")
    recollection = room.scene.recollection
    assert recollection is not None
    folder = recollection.folders[0]
    time = format_timestamp(room.clock.now())
    write = partial(room.journal.write_all, NoteEvent)
    desk = NoteWriter(room.journal.log, write, sync=folder.sync, is_strict=True)

    def carry(changes: Sequence[NoteChange]) -> None:
        # The owner is a part of what was approved; the person approves it with the new one.
        acts = ("edited", "approved") if note.status == "approved" else ("edited",)
        changed = changes[0].note
        fields = [_act(changed, act, note.status, request.by) for act in acts]
        desk.carry_out(folder, changes, fields)

    changed = folder.edit(
        note.id, lambda _, text: markdown.changed(text, owner=agent, updated=time), carry
    )
    recollection.wrote(changed)
    if room.scene.fold.open is not None:
        content = Texts(room.language)(
            'The task "{title}" is now for {agent} (before: {before}).',
            title=note.title,
            agent=agent,
            before=note.owner or "-",
        )
        write_notice(room, content, {"notice": REASSIGN_NOTICE})
    return f"{title}: now for {agent}, before for {escape_line(note.owner) or 'no agent'}"


def _act(note: Note, act: str, status: str, by: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "note": note.id,
        "act": act,
        "by": by,
        "kind": note.kind,
        "title": note.title,
        "status": status,
        "reason": f"owner: {note.owner}" if act == "edited" else "",
    }
    if act == "approved":
        fields["sha256"] = staging.sha256(note)
    return fields


def check_member(agent: str, room: Room) -> None:
    """Raise UsageError if no member of the team has that id."""
    members = [member.id for member in room.scene.team.members]
    if agent not in members:
        raise UsageError(
            f"no member of this team has the id {escape_line(agent)!r}",
            errors.suggest_nearest(agent, members),
        )


def _check_assignee(agent: str, room: Room) -> None:
    check_member(agent, room)
    control = room.scene.fold.control
    if control and control.agents.get(agent) == "terminated":
        raise UsageError(f"{agent} is terminated in this session", "Name another agent.")


def _find_task(name: str, room: Room) -> Note:
    """Return the task of that id, or whose title begins so. Raises UsageError."""
    session = room.scene.session_id
    tasks = _list_tasks(room)
    folded = model.folded(name)
    exact = [note for note in tasks if note.id == name]
    begins = [note for note in tasks if folded and model.folded(note.title).startswith(folded)]
    matches = exact or begins
    living = [note for note in matches if note.is_living]
    if len(living) == 1:
        return living[0]
    listed = f"`arena knowledge list --session {escape_line(session)} --kind task` lists them."
    if living:
        ids = ", ".join(escape_line(note.id) for note in living)
        raise UsageError(f"{escape_line(name)} is ambiguous: {ids}", "Name one of them.")
    if matches:
        raise UsageError(f"the task {escape_line(matches[0].id)} is archived", listed)
    raise UsageError(f"session {escape_line(session)} has no task {escape_line(name)}", listed)


def _list_tasks(room: Room) -> Sequence[Note]:
    """Return the tasks of the session, also those that are archived."""
    recollection = room.scene.recollection
    index = recollection.index() if recollection else None
    return index.own(room.scene.session_id, ("task",), archived=True) if index else ()
