"""Make the recording of a part of a session: its answers, and the inputs by today's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Answer, Heard, ToolAnswer, ToolRequest
from arena_cli.context import window
from arena_cli.engine import answers, plan
from arena_cli.engine.plan import Planned, Scene
from arena_cli.errors import AgentError, AgentProtocolError, AgentTimeout, UsageError
from arena_cli.protocol import (
    COMPLETE_TASK,
    AgentOutput,
    Attachment,
    CallNote,
    Message,
    Permission,
    PermissionRequest,
    StructuredContent,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from arena_cli.scenarios import given
from arena_cli.scenarios.control_steps import find_answered, list_messages
from arena_cli.scenarios.promoted_file import Piece, SessionPart
from arena_cli.scenarios.recording import file, recorder
from arena_cli.scenarios.recording.model import CallKey
from arena_cli.scenarios.recording.recorder import FAILURE, OUTPUT, PERMITS, Tape, TapedCall
from arena_cli.scenarios.tools import is_named
from arena_cli.session.store import Stored
from arena_cli.transcript.control_events import ApprovalRequested, ApprovalUsed
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished, ReplyStarted
from arena_cli.transcript.state import Fold
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Member, Team

if TYPE_CHECKING:
    from arena_cli.transcript.acting_events import ToolFinished, ToolRequested

_NO_CALL = "(an answer without calls)"


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
        return file.lines(tape, None, self._team.members)

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
                taped = self._call(event, planned[event.reply], step, opener, piece.chain)
                tape.calls += [*self._turns(event, taped, piece, tape)]

    def _turns(
        self, done: ReplyFinished, last: TapedCall, piece: Piece, tape: Tape
    ) -> Iterator[TapedCall]:
        """Yield the calls of a reply, those before its last answer too if it called tools."""
        events = piece.chain.events if piece.chain else ()
        tools = _read_tools(events, done.reply)
        member = self._team.agent(done.agent)
        if tools is None or member is None or find_tool_way(member.profile) != "loop":
            yield last
            return
        requests = [*tools.asked.values()]
        _keep_specs(member, requests, tape)
        self._tape_tools(tools, member, last.key.step or 0, tape)
        heard = Heard(self._redactor, lambda _: None)
        heard.notes |= _list_notes(done)
        for output in tools.list_turns():
            record = recorder.output(Answer(output, declined=False), heard, thinking=True)
            yield replace(last, came={OUTPUT: record})
        if not tools.has_handed_in:
            # What its tools needed approval for is asked when they are called.
            records = {
                key: {name: value for name, value in record.items() if name != PERMITS}
                for key, record in last.came.items()
            }
            yield replace(last, came=records)

    def _tape_tools(self, tools: ReplyTools, member: Member, step: int, tape: Tape) -> None:
        """Add the results of a reply's tools to a tape; a call that was not allowed has none."""
        for number, end in tools.ends.items():
            requested = tools.asked.get(number)
            if requested is None or end.status == "denied" or end.tool == COMPLETE_TASK:
                continue
            request = ToolRequest(member, end.reply, number, end.tool, requested.arguments)
            files = [self._attached(file, f"m{end.seq}", end.agent) for file in end.attachments]
            name = f"{end.tool.replace('.', '-').replace(':', '-')}-{number}.txt"
            full_texts = [file for file in files if file.name == name]
            text = str(full_texts[0].data) if full_texts else end.result
            attachments = [file for file in files if file not in full_texts]
            result = ToolResult(status=end.status, text=text, attachments=attachments)
            call = tape.tools.open(request, None, step)
            call.answer = ToolAnswer(result, end.diff, end.usage)

    def _call(
        self, done: ReplyFinished, planned: Planned, step: int, opener: str, chain: Chain | None
    ) -> TapedCall:
        heard = _heard(done, self._redactor)
        if chain is not None:
            heard.permits = _list_permits(chain, done.reply)
        if done.status in ("success", "declined"):
            output = self._output(done, opener, planned)
            answer = Answer(output, declined=done.status == "declined")
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

    def _output(self, done: ReplyFinished, opener: str, planned: Planned) -> AgentOutput:
        usage = None if done.usage is None or done.usage.estimated else done.usage
        message = done.message
        if message is None:
            return AgentOutput(usage=usage)
        return AgentOutput(
            content=message.content,
            next_mentions=list(dict.fromkeys(self._added(done, message, opener))),
            structured=[*message.structured, *_list_reactions(message)],
            kind=message.kind,
            reply_to=self._find_answered(message, planned),
            attachments=[
                self._attached(attachment, message.id, message.author_id)
                for attachment in message.attachments
            ],
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
            is_by_all = done.refused.get(agent) == answers.ALL_REFUSED
            if agent not in message.mentions:
                yield "@all" if is_by_all else agent
            elif agent in in_vain and not is_by_all:
                yield agent
        if set(mentioned.unresolved) <= set(done.unresolved):
            known_ids = {*mentioned.ids, *roster.member_ids}
            yield from (name for name in message.mentions if name not in known_ids)
            yield from (name for name in done.unresolved if name not in mentioned.unresolved)

    def _find_answered(self, message: Message, planned: Planned) -> str | None:
        """Return what an answer named as the message that it refers to; None if nothing."""
        if name := message.metadata.get("reply_to"):
            return str(name)
        if not message.quoted or message.reply_to == planned.reply_to:
            return None
        answered = find_answered(message, list_messages(self._taken.every))
        return answered or message.reply_to

    def _attached(self, attachment: Attachment, message_id: str, author: str) -> Attachment:
        with_data = given.with_content(attachment, message_id, (self._stored.folder, self._root))
        if with_data.data is None:
            raise UsageError(
                f"what {escape_line(author)} attached to {message_id} as "
                f"{escape_line(attachment.name)} is gone",
                f"it was at {escape_line(attachment.path or '')}, and is part of the recording",
            )
        return with_data


def _list_reactions(message: Message) -> list[StructuredContent]:
    """Return the reactions of an answer as its agent gave them, also those that are not known."""
    given = [*message.reactions, *message.metadata.get("reactions", ())]
    return [StructuredContent(type="reaction", data={"reaction": emoji}) for emoji in given]


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


def _list_permits(chain: Chain, reply: int) -> list[tuple[PermissionRequest, Permission]]:
    """Return the requests for permission that the agent made while it replied, with the answers."""
    permits: list[tuple[PermissionRequest, Permission]] = []
    for event in chain.events if chain.control else ():
        if not isinstance(event, (ApprovalRequested, ApprovalUsed)) or event.reply != reply:
            continue
        request = chain.control.requests.get(event.request) if chain.control else None
        if request is not None and not request.asked.in_message:
            names = ("action", "detail", "arguments", "diff")
            asked = PermissionRequest(**{name: getattr(request.asked, name) for name in names})
            is_used = isinstance(event, ApprovalUsed)
            permits.append((asked, Permission("allowed" if is_used else "asked", "")))
    return permits


def _list_notes(done: ReplyFinished) -> dict[str, int]:
    """Return the entry of the agent's script that answered, if it has one."""
    entry = done.metadata.get("scripted")
    return {"scripted": entry} if isinstance(entry, int) else {}


def _heard(done: ReplyFinished, redactor: Redactor) -> Heard:
    """Return the data that the agent reported in addition to its answer."""
    heard = Heard(redactor, lambda _: None)
    heard(CallNote(_list_notes(done)))
    if isinstance(done.metadata.get("partial"), str):
        heard(TextDelta(done.metadata["partial"]))
    if done.usage is not None and not done.usage.estimated:
        heard(done.usage)
    for action in done.refused_actions:
        heard(action)
    return heard


@dataclass
class ReplyTools:
    """The calls of tools in a reply: what was asked, how it ended, and the texts next to it.

    Those of agents that were called as tools are left out.
    """

    asked: dict[str, ToolRequested] = field(default_factory=dict)
    ends: dict[str, ToolFinished] = field(default_factory=dict)
    texts: dict[tuple[int, str], str] = field(default_factory=dict)
    has_handed_in: bool = False

    def list_turns(self) -> Iterator[AgentOutput]:
        """Yield the answers of the model that called tools, or that ended too early."""
        steps: dict[int, list[ToolRequested]] = {}
        for request in self.asked.values():
            steps.setdefault(request.step, []).append(request)
        for step in range(1, max(steps, default=0) + 1):
            calls = [
                ToolCall(
                    id=request.native,
                    tool=request.tool,
                    arguments=request.arguments,
                    problem=request.problem,
                )
                for request in steps.get(step, ())
            ]
            thinking = self.texts.get((step, "thinking"))
            yield AgentOutput(
                content=self.texts.get((step, "text"), "") if calls else _NO_CALL,
                tool_calls=calls,
                metadata={"thinking": thinking} if thinking else {},
            )


def _read_tools(events: Iterable[Event], reply: int) -> ReplyTools | None:
    """Return the calls of tools in a reply; None if it has none."""
    tools = ReplyTools()
    for event in events:
        fields: Any = event
        if getattr(event, "reply", None) != reply:
            continue
        if event.type == "tool_requested" and "." not in fields.call:
            tools.asked[fields.call] = cast("ToolRequested", event)
        elif event.type == "tool_finished" and "." not in fields.call:
            tools.ends[fields.call] = cast("ToolFinished", event)
            is_accepted = (fields.tool, fields.status) == (COMPLETE_TASK, "ok")
            tools.has_handed_in = tools.has_handed_in or is_accepted
        elif event.type == "thought" and not fields.within:
            tools.texts[fields.step, fields.kind] = fields.text
    return tools if tools.asked else None


def _keep_specs(member: Member, requests: Sequence[ToolRequested], tape: Tape) -> None:
    """Keep the names of an agent's tools: what its servers offered is in no transcript.

    An entry of `tools` that none of its calls matches has a tool of its own name.
    """
    needs_approval = {request.tool: bool(request.approval) for request in requests}
    specs = [
        ToolSpec(name=name, read_only=not approval) for name, approval in needs_approval.items()
    ]
    for entry in member.profile.tools:
        if isinstance(entry, str) and not any(is_named(name, entry) for name in needs_approval):
            specs.append(ToolSpec(name=entry.replace("*", "tool")))
    tape.tools.keep_specs(member.id, specs, tape.redactor)
