"""Make a recording of a session's own answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import window
from arena_cli.engine import call, plan
from arena_cli.engine.plan import Planned, Scene
from arena_cli.errors import AgentError, AgentProtocolError, AgentTimeout, UsageError
from arena_cli.protocol import AgentOutput, Attachment, CallNote, Message, TextDelta
from arena_cli.scenarios import given
from arena_cli.scenarios.promote.selection import Piece, SessionPart
from arena_cli.scenarios.recording import recorder, serialize
from arena_cli.scenarios.recording.model import CallKey
from arena_cli.scenarios.recording.recorder import FAILURE, OUTPUT, Tape, TapedCall
from arena_cli.session.store import Stored
from arena_cli.transcript.events import MessageEvent, ReplyFinished, ReplyStarted
from arena_cli.transcript.state import Fold
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Team


class Taper:
    """Makes the recording of a part of a session, for the team as it is now.

    The answers of agents are the session's; their inputs are made from it by today's files.
    """

    def __init__(
        self, stored: Stored, selection: SessionPart, team: Team, root: Path, redactor: Redactor
    ) -> None:
        self._stored = stored
        self._taken = selection
        self._root = root
        self._team = team
        self._redactor = redactor
        self._roster = mentions.build_roster(team)
        history = window.make_history(team)
        self._fold = Fold(history.append)
        self._scene = Scene(stored.name, team, self._fold, history)

    def lines(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """Return the lines of the recording's one case, with `pieces` as its steps.

        Raises UsageError if an attachment is gone.
        """
        selection = self._taken
        tape = Tape(live=False)
        tape.redactor = self._redactor
        current = {"team": self._team.name, "members": self._team.infos}
        config = self._team.config.model_dump()
        tape.hear(None, selection.session.model_copy(update={**current, "config": config}))
        for event in selection.before:
            self._fold.apply(event)
        for message in given.messages(selection.before):
            tape.hear(None, _planted(message))
        for number, piece in enumerate(pieces, 1):
            tape.begin(number)
            self._tape(piece, number, tape)
        tape.finished = True
        return serialize.lines(tape, None, self._team.members)

    def _tape(self, piece: Piece, step: int, tape: Tape) -> None:
        planned: dict[int, Planned] = {}
        opener = piece.opening.message.author_id
        for event in piece.events:
            chain = self._fold.open
            if isinstance(event, ReplyStarted) and event.reply not in planned and chain:
                planned[event.reply] = plan.plan(event.agent, event.phase, chain, self._scene)
            tape.hear(None, event)
            self._fold.apply(event)
            if isinstance(event, ReplyFinished) and event.status != "cancelled":
                tape.calls.append(self._call(event, planned[event.reply], step, opener))

    def _call(self, done: ReplyFinished, planned: Planned, step: int, opener: str) -> TapedCall:
        heard = _heard(done, self._redactor)
        if done.status in ("success", "declined"):
            answer = Answer(self._output(done, opener), declined=done.status == "declined")
            outcome = {OUTPUT: recorder.output(answer, heard)}
        else:
            outcome = {FAILURE: recorder.failure(_error(done), heard)}
        return TapedCall(
            key=CallKey(step, done.agent, planned.input.invocation),
            session=None,
            input=planned.input,
            input_hash=planned.input_hash,
            reply=done.reply,
            came=outcome,
        )

    def _output(self, done: ReplyFinished, opener: str) -> AgentOutput:
        usage = None if done.usage is None or done.usage.estimated else done.usage
        message = done.message
        if message is None:
            return AgentOutput(usage=usage)
        return AgentOutput(
            content=message.content,
            next_mentions=list(dict.fromkeys(self._added(done, message, opener))),
            structured=message.structured,
            attachments=[self._attached(attachment, message) for attachment in message.attachments],
            usage=usage,
        )

    def _added(self, done: ReplyFinished, message: Message, opener: str) -> Iterator[str]:
        """Yield the agents that the answer called by its `next_mentions`, not by its text.

        A transcript holds the result of both. An agent that the text names is among the message's
        `mentions`, and so is a human that only `next_mentions` named. An agent that the text names
        by `@all` alone, if `@all` calls none, was also named individually unless it was refused as
        `@all`. Names that no member has any more are left out.
        """
        roster, config = self._roster, self._taken.session.config
        mentioned = mentions.parse_mentions(
            message.content, roster, author=done.agent, opener=opener
        )
        in_vain = () if config.get("agents_may_mention_all") else mentioned.by_all_only
        for agent in (*done.next_mentions, *done.refused):
            is_by_all = done.refused.get(agent) == call.ALL_REFUSED
            if agent not in message.mentions:
                yield "@all" if is_by_all else agent
            elif agent in in_vain and not is_by_all:
                yield agent
        if set(mentioned.unresolved) <= set(done.unresolved):
            known_ids = {*mentioned.ids, *roster.member_ids}
            yield from (name for name in message.mentions if name not in known_ids)
            yield from (name for name in done.unresolved if name not in mentioned.unresolved)

    def _attached(self, attachment: Attachment, message: Message) -> Attachment:
        with_data = given.with_content(attachment, message.id, (self._stored.folder, self._root))
        if with_data.data is None:
            raise UsageError(
                f"what {escape_line(message.author_id)} attached to {message.id} as "
                f"{escape_line(attachment.name)} is gone",
                f"it was at {escape_line(attachment.path or '')}, and is part of the recording",
            )
        return with_data


def _planted(message: Message) -> MessageEvent:
    """Return a message of the past as the scenario plants it."""
    bare: dict[str, Any] = {"turn_id": None, "reply_to": None, "metadata": {}}
    return MessageEvent(
        seq=message.seq,
        ts=message.timestamp,
        message=message.model_copy(update=bare),
        planted=True,
    )


def _error(done: ReplyFinished) -> AgentError:
    """Return the exception of a failed call, as far as a transcript holds it; it is not retried.

    The request is left out: it names folders and programs of this machine.
    """
    kind = AgentTimeout if done.status == "timeout" else AgentProtocolError
    problem, _, details = (done.error or "").removeprefix(f"{done.agent}: ").partition("; asked: ")
    return kind(done.agent, problem, came=details.partition("; came: ")[2], again=False)


def _heard(done: ReplyFinished, redactor: Redactor) -> Heard:
    """Return the data that the agent reported in addition to its answer."""
    heard = Heard(redactor, lambda _: None)
    if isinstance(done.metadata.get("scripted"), int):
        heard(CallNote({"scripted": done.metadata["scripted"]}))
    if isinstance(done.metadata.get("partial"), str):
        heard(TextDelta(done.metadata["partial"]))
    if done.usage is not None and not done.usage.estimated:
        heard(done.usage)
    for action in done.refused_actions:
        heard(action)
    return heard
