"""Make a scenario and its recording from a session, and play it once.

The scenario expects the routing and the ends that the session had. Its recording has the session's
answers, and the input that today's files give each agent. If these files call other agents, the
scenario fails at once and reports what changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.adapters.base import SessionConfig, find_tool_way
from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import window
from arena_cli.engine import answers, plan
from arena_cli.engine.plan import Planned, Scene
from arena_cli.errors import AgentError, AgentProtocolError, AgentTimeout, UsageError
from arena_cli.protocol import (
    AgentOutput,
    Attachment,
    CallNote,
    Message,
    Permission,
    PermissionRequest,
    StructuredContent,
    TextDelta,
)
from arena_cli.scenarios import given, loader, promoted_control, promoted_tools, select
from arena_cli.scenarios.message_steps import find_answered, list_messages
from arena_cli.scenarios.promoted_file import (
    Piece,
    SessionPart,
    Writer,
    WrittenFiles,
    select_part,
)
from arena_cli.scenarios.recording import file, recorder
from arena_cli.scenarios.recording.model import CallKey
from arena_cli.scenarios.recording.recorder import FAILURE, OUTPUT, PERMITS, Tape, TapedCall
from arena_cli.scenarios.recording.store import RecordingStore
from arena_cli.scenarios.result import ScenarioResult
from arena_cli.scenarios.runner import Runner
from arena_cli.scenarios.select import Selected
from arena_cli.scenarios.variables import Reader
from arena_cli.session.outgoing import USER
from arena_cli.session.session import make_redactor
from arena_cli.session.store import Stored
from arena_cli.transcript.conversation import Chain, Conversation, read_conversation
from arena_cli.transcript.events import MessageEvent, ReplyFinished, ReplyStarted
from arena_cli.transcript.state import Fold
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line, make_safe_name
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Human, Team
from arena_cli.workspace.workspace import AGENTS_FOLDER, Workspace
from arena_cli.yamlio.loader import Fragment, wrap_data

Matter = Literal["must", "asked", "mentions", "turns", "end"]


class Parting(NamedTuple):
    """The first difference from the session: its step, and the turn of its chain, both from 1.

    `matter` names the difference: the agents that must reply, the agents asked, the mentions of
    `agent`, the number of turns, or the chain's end. The result of a call is the session's own.
    """

    step: int
    turn: int
    matter: Matter
    agent: str | None
    before: str
    after: str


def find_parting(pieces: Sequence[Piece], result: ScenarioResult) -> Parting | None:
    """Return the first difference, in the first step that has one; None if there is none."""
    for number, (piece, step) in enumerate(zip(pieces, result.steps, strict=True), 1):
        if not piece.chain or step.status == "not_run":
            continue
        later = read_conversation([*step.before, *step.events])
        for parting in _partings(number, piece, later):
            return parting
    return None


def _partings(step: int, piece: Piece, conversation: Conversation) -> Iterator[Parting]:
    turns = list(read_conversation(piece.upto).turns)
    later_turns = list(conversation.turns)
    for number, (then, turn) in enumerate(zip(turns, later_turns, strict=False), 1):
        if then.must != turn.must:
            yield Parting(step, number, "must", None, ", ".join(then.must), ", ".join(turn.must))
        if then.asked != turn.asked:
            yield Parting(step, number, "asked", None, ", ".join(then.asked), ", ".join(turn.asked))
        for done, later_done in zip(then.results(), turn.results(), strict=False):
            if done.message and later_done.message:
                before = ", ".join(done.message.mentions)
                after = ", ".join(later_done.message.mentions)
                if before != after:
                    yield Parting(step, number, "mentions", done.agent, before, after)
    last = max(1, min(len(turns), len(later_turns)))
    if len(turns) != len(later_turns):
        yield Parting(step, last, "turns", None, str(len(turns)), str(len(later_turns)))
    end, later_end = piece.end, _find_end(conversation)
    if end != later_end:
        yield Parting(step, last, "end", None, end, later_end)


def _find_end(conversation: Conversation) -> str:
    """Return the end of the last chain, or the reason why it waits."""
    chain = conversation.chains[-1] if conversation.chains else None
    if chain is None or chain.finished or chain.control is None or chain.control.pause is None:
        return chain.end if chain else ""
    return chain.control.pause.reason


_NOT_IN_A_NAME = re.compile(r"[\s!-,/:-@\[-^`{-~]+")
"""What a shell would take for something else, or want in quotes."""


@dataclass(frozen=True)
class Promoted:
    """The files that were made: their paths as shown, and the result of playing them once.

    `name` is the name for `arena run`. `parting` is the first difference from the session, None if
    there is none. `rules` are the team's rules that have changed: (name, old value, new value).
    """

    scenario: str
    recording: str
    name: str
    result: ScenarioResult
    parting: Parting | None
    rules: list[tuple[str, Any, Any]]


class Promotion:
    """The promotion of a session; all that it needs is checked before it writes a file.

    `path` is the file that the scenario is written to; `force` replaces an existing one. `notes`
    are remarks on unexpected properties of the scenario.
    """

    def __init__(
        self, stored: Stored, until: int | None, path: Path, workspace: Workspace, *, force: bool
    ) -> None:
        """Read the session. Raises UsageError if it cannot be promoted."""
        self._stored = stored
        self._workspace = workspace
        self._path = path
        self._taken = select_part(stored, until)
        playing, self._team = _who_plays(self._taken, workspace)
        _refuse_gone(self._taken, self._team, stored.name)
        writer = Writer(stored, self._taken, self._team, playing, path, workspace.root)
        self._written: WrittenFiles = writer.written()
        self.notes = [*self._taken.notes, *self._written.notes]
        self._refuse_taken(force=force)

    async def make(self, config: SessionConfig, *, sync: bool = False) -> Promoted:
        """Write the scenario and its recording, and play it once; `sync` flushes both to the disk.

        Raises UsageError before anything is written, DiskRefused, and FileFaults if today's files
        do not accept the scenario.
        """
        team, root = self._team, self._workspace.root
        redactor = make_redactor(config, [member.profile for member in team.members])
        taper = Taper(self._stored, self._taken, team, root, redactor)
        lines = taper.lines(self._written.pieces)
        recording = file.path_of(self._path)
        recorded = file.encode_recording(self._written.title, [lines])
        text = self._written.text.encode()
        contents = {**self._written.files, recording: recorded, self._path: text}
        self._refuse_secrets(contents, redactor)
        for path, content in contents.items():
            file.write(path, content, sync=sync)
        itself = frozenset({self._path})
        selected = Selected((self._path,), named=itself, chosen=itself)
        (scenario,) = loader.load(selected, self._workspace)
        scenario_results: list[ScenarioResult] = []
        # Names may be other ones by now, and agents are shown those.
        shelf = RecordingStore([scenario], "update", drift="ignore", sync=sync)
        runner = Runner(
            [scenario], config, scenario_results.append, keep="none", detail=True, shelf=shelf
        )
        await runner.run()
        if scenario_results[0].status != "passed":
            file.write(recording, recorded, sync=sync)
        reader = Reader(root)
        is_known = self._path in select.of_workspace(root) and self._path.stem[0] != "-"
        return Promoted(
            scenario=reader.shown(self._path),
            recording=reader.shown(recording),
            name=self._path.stem if is_known else reader.shown(self._path),
            result=scenario_results[0].model_copy(update={"mode": "replay"}),
            parting=find_parting(self._written.pieces, scenario_results[0]),
            rules=self._changed_rules(),
        )

    def _changed_rules(self) -> list[tuple[str, Any, Any]]:
        old_rules, new_rules = self._taken.session.config, self._team.config.model_dump(mode="json")
        return [
            (key, old_rules[key], new_rules[key])
            for key in new_rules
            if key in old_rules and old_rules[key] != new_rules[key]
        ]

    def _refuse_secrets(self, contents: Mapping[Path, bytes], redactor: Redactor) -> None:
        """Refuse a transcript that holds a value which became a secret after the session."""
        name = escape_line(self._stored.name)
        for path, content in contents.items():
            text = content.decode("utf-8", "ignore")
            if redactor.text(text) != text:
                label = Reader(self._workspace.root).shown(path)
                raise UsageError(
                    f"{label} would contain a secret: session {name} is older than "
                    "the setting that makes it one",
                    "remove it from the session, or promote a part without it: `--until SEQ`",
                )

    def _refuse_taken(self, *, force: bool) -> None:
        """Refuse to replace a file without `force`, and to use the name of another scenario."""
        root = self._workspace.root
        reader = Reader(root)
        is_known = self._path.is_relative_to(root / select.FOLDER)
        for existing in select.of_workspace(root) if is_known else ():
            if existing != self._path and _folded(existing) == _folded(self._path):
                raise UsageError(
                    f"{self._path.stem} is the name of {reader.shown(existing)} too",
                    "a scenario's recording is named after its file: `--to` gives another",
                )
        targets = [self._path, file.path_of(self._path), *self._written.files]
        present = [reader.shown(path) for path in targets if path.exists()]
        if present and not force:
            suffix = f" (and {len(present) - 1} more)" if len(present) > 1 else ""
            raise UsageError(
                f"{present[0]} already exists{suffix}",
                "overwrite it with `--force`, or write elsewhere with `--to FILE`",
            )


def path_for(stored: Stored, to: Path | None, root: Path, start: Path) -> Path:
    """Return the path of the scenario of a session. Raises UsageError."""
    if to is None:
        stem = _NOT_IN_A_NAME.sub("-", stored.name).strip("-.") or "session"
        return root.resolve() / select.FOLDER / make_safe_name(f"{stem}{select.SUFFIX}")
    if to.suffix != select.SUFFIX or not to.stem.strip("."):
        raise UsageError(
            f"--to {escape_line(str(to))}: a scenario's file ends in {select.SUFFIX}",
            f"such as {select.FOLDER}/{stored.name}{select.SUFFIX}",
        )
    path = (start / to).resolve()
    if path.is_relative_to(root.resolve() / AGENTS_FOLDER):
        raise UsageError(
            f"--to {escape_line(str(to))}: a file in {AGENTS_FOLDER}/ is an agent or a team",
            f"such as {select.FOLDER}/{path.name}",
        )
    return path


def _who_plays(selection: SessionPart, workspace: Workspace) -> tuple[dict[str, Any], Team]:
    """Return the keys of the scenario that define its team, and that team.

    A human that is no longer in the team is added. Raises UsageError if the team is gone.
    """
    session = selection.session
    keys: dict[str, Any] = {}
    if session.team is not None:
        keys = {"team": session.team}
        try:
            team = workspace.team(session.team)
        except UsageError as error:
            raise UsageError(f"the session's team is gone: {error.what}", error.mend) from error
    elif workspace.file.team is None:
        team = workspace.team(None)
    else:  # without a key it would be that one
        agents = [member.id for member in session.members]
        keys = {"agents": agents}
        fragment = Fragment(wrap_data(agents, selection.session.session))
        team = workspace.team_of(agents, fragment)
    humans = {human.id: human for human in team.humans}
    for human in _humans(selection):
        humans.setdefault(human.id, human)
    if len(humans) > len(team.humans):
        keys["humans"] = [human.model_dump(exclude_defaults=True) for human in humans.values()]
        team = replace(team, humans=tuple(humans.values()))
    return keys, team


def _humans(selection: SessionPart) -> Iterator[Human]:
    """Yield the humans that spoke, then those that were mentioned, whose names are not known."""
    for piece in selection.pieces:
        message = piece.opening.message
        if message.author_type == "human" and message.author_id != USER.id:
            yield Human(id=message.author_id, name=message.author_name)
    ids = {USER.id, *(member.id for member in selection.session.members)}
    for piece in selection.pieces:
        for event in piece.events:
            if isinstance(event, (MessageEvent, ReplyFinished)) and event.message:
                yield from (
                    Human(id=mention) for mention in event.message.mentions if mention not in ids
                )


def _refuse_gone(selection: SessionPart, team: Team, name: str) -> None:
    called = dict.fromkeys(agent for piece in selection.pieces for agent in piece.called())
    messages = (piece.opening.message for piece in selection.pieces if not piece.chain)
    called |= dict.fromkeys(
        message.author_id for message in messages if message.author_type == "agent"
    )
    gone = [escape_line(agent) for agent in called if team.member(agent) is None]
    if gone:
        raise UsageError(
            f"session {escape_line(name)} has agents that are no longer in the team: "
            f"{', '.join(gone)}",
            "bring them back, or promote a part of the session without them: `--until SEQ`",
        )
    agents = [escape_line(human.id) for human in team.humans if team.member(human.id)]
    if agents:
        raise UsageError(
            f"session {escape_line(name)} has humans that are agents of the team now: "
            f"{', '.join(agents)}",
            "give the agents other ids, or promote a part of the session without these humans: "
            "`--until SEQ`",
        )


def _folded(path: Path) -> str:
    return unicodedata.normalize("NFC", path.stem).casefold()


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
        tools = promoted_tools.read_reply(events, done.reply)
        member = self._team.agent(done.agent)
        if tools is None or member is None or find_tool_way(member.profile) != "loop":
            yield last
            return
        requests = [*tools.asked.values()]
        promoted_tools.keep_specs(member, requests, tape)
        promoted_tools.tape_tools(tools, member, last.key.step or 0, tape, self._attached)
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
    return [
        (
            PermissionRequest(
                action=asked.action,
                detail=asked.detail,
                arguments=asked.arguments,
                diff=asked.diff,
            ),
            Permission(verdict, ""),
        )
        for asked, verdict in promoted_control.list_permits(chain, reply)
    ]


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
