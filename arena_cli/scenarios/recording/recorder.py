"""Record or replay the calls of a scenario's agents, at the edge of their adapters.

The key of a call is step, agent and invocation (and the repeat, always the first so far); a call
for the team's memory has `memory` instead of an invocation. A call gets the first unused record of
its key whose input has the same hash, or an irrelevant difference (`is_same`); else the next unused
one of its key, which is drift; if none is left, it is a miss. A judge's call is a miss as soon as
its question differs, because a verdict applies to the judged text only. Routing is never read from
a recording. Steps are those of the scenario: a recording is renumbered to them first (`steps`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena_cli import errors
from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import hashing
from arena_cli.engine.side_calls import ASIDE
from arena_cli.errors import AgentError, AgentOverloaded, AgentRefused, AgentUnavailable
from arena_cli.protocol import (
    HANDED_IN,
    LATE,
    SERVED,
    AgentInput,
    AgentOutput,
    Attachment,
    PermissionRequest,
    RefusedAction,
    StructuredContent,
    TextDelta,
    ToolCall,
    Usage,
)
from arena_cli.scenarios.recording import settings
from arena_cli.scenarios.recording.inner_calls import TapedSteps, TapedTools
from arena_cli.scenarios.recording.model import (
    TOOLS,
    CallKey,
    CaseRecord,
    Recorded,
    dump_attachment,
    encode_data,
)
from arena_cli.scenarios.recording.settings import Surroundings
from arena_cli.transcript import log
from arena_cli.transcript.events import Event, ReplyStarted, SideEvent
from arena_cli.util.redaction import Redactor
from arena_cli.util.user_pattern import UserPattern
from arena_cli.workspace.agents import FALLBACK
from arena_cli.workspace.models import Member

DEADLINE = "deadline"

# What of a call's metadata the session goes by later.
_NOTED = ("scripted", "model", "input_counted", "prompt_cut", HANDED_IN, SERVED, FALLBACK, LATE)
_THINKING = "thinking"

_ANSWERED: dict[str, Callable[[Any], Any]] = {
    "next_mentions": lambda names: [str(name) for name in names],
    "structured": lambda items: [StructuredContent.model_validate(item) for item in items],
    "kind": str,
    "reply_to": str,
    "attachments": lambda items: [Attachment.model_validate(encode_data(item)) for item in items],
    "tool_calls": lambda calls: [ToolCall.model_validate(call) for call in calls],
    _THINKING: str,
    "usage": Usage.model_validate,
}
"""The fields of an answer, as a record has them, in order; and how each is read."""

_REFUSED = "refused_actions"
PERMITS = "permits"
_WORDS = ("what", "came", "mend")
_FAILURES: dict[str, type[AgentError]] = {
    one.__name__: one
    for one in (
        errors.AgentTimeout,
        AgentRefused,
        AgentOverloaded,
        AgentUnavailable,
        errors.AgentProtocolError,
    )
}


def output(answer: Answer, heard: Heard, *, thinking: bool = False) -> dict[str, Any]:
    """Return an answer as a record, with its `thinking`, if that is shown."""
    given = answer.output
    fields: dict[str, Any] = {"content": given.content}
    if answer.declined:
        fields["declined"] = True
    plain = {*_ANSWERED} - {"attachments", "structured"}
    dumped = given.model_dump(mode="json", include=plain, exclude_defaults=True)
    if given.structured:  # with `data`, also where it is null
        dumped["structured"] = [item.model_dump(mode="json") for item in given.structured]
    if given.attachments:  # the content may be bytes, which JSON has not
        dumped["attachments"] = [dump_attachment(item) for item in given.attachments]
    if thinking and _THINKING in given.metadata:
        dumped[_THINKING] = given.metadata[_THINKING]
    fields |= {name: dumped[name] for name in _ANSWERED if name in dumped}
    asked = {**_refused(heard), **_permits(heard)}
    return {**fields, **asked, **_noted({**heard.notes, **given.metadata})}


def name_answered(answer: Answer, input: AgentInput) -> Answer:
    """Return an answer that names the author of the message that it answers, not its id.

    In a replay, messages have other ids. One that is not the last of its author keeps its id.
    """
    written = {message.author_id: message.id for message in input.messages if message.content}
    for author, last in written.items():
        if last == answer.output.reply_to:
            output = answer.output.model_copy(update={"reply_to": author})
            return answer._replace(output=output)
    return answer


def failure(error: AgentError | None, heard: Heard) -> dict[str, Any]:
    """Return a failed call as a record; None means that the call had no time left.

    The agent's request is left out: it names folders and programs of this machine.
    """
    if error is None:
        fields: dict[str, Any] = {"kind": DEADLINE}
    else:
        fields = {"kind": type(error).__name__}
        fields.update((name, text) for name in _WORDS if (text := getattr(error, name)))
        if not error.again:
            fields["again"] = False
        if isinstance(error, AgentRefused) and error.overflow:
            fields["overflow"] = True
        if isinstance(error, AgentOverloaded) and error.retry_after is not None:
            fields["retry_after"] = error.retry_after
    partial = heard.metadata(failed=True).get("partial")
    if partial:
        fields["partial"] = partial
    if heard.usage is not None:
        fields["usage"] = _usage(heard.usage)
    return {**fields, **_refused(heard), **_permits(heard), **_noted(heard.notes)}


def _refused(heard: Heard) -> dict[str, Any]:
    actions = [action.model_dump(exclude_defaults=True) for action in heard.refused]
    return {_REFUSED: actions} if actions else {}


def _permits(heard: Heard) -> dict[str, Any]:
    """Return the requests for permission, each with its verdict."""
    permits = [
        {**request.model_dump(mode="json", exclude_defaults=True), "verdict": permission.verdict}
        for request, permission in heard.permits
    ]
    return {PERMITS: permits} if permits else {}


def list_permits(record: Mapping[str, Any]) -> list[tuple[PermissionRequest, str]]:
    """Return the requests for permission in a record, each with its verdict."""
    return [
        (PermissionRequest.model_validate(item), str(item["verdict"]))
        for item in record.get(PERMITS, ())
    ]


async def ask_again(record: Mapping[str, Any], agent_id: str, heard: Heard) -> None:
    """Ask for what the agent asked for in a record; what it answered depends on the decisions.

    Raises AgentUnavailable if one is another than in the record.
    """
    for request, recorded in list_permits(record):
        verdict = (await heard.permit(request)).verdict
        if verdict != recorded:
            raise AgentUnavailable(
                agent_id,
                f"its recording goes on from `{recorded}`, but now {request.action} is {verdict}",
                asked=request.detail,
                mend="correct `approvals`, or record it again with --record",
                again=False,
            )


def _noted(notes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: notes[key] for key in _NOTED if key in notes}


def _usage(usage: Usage) -> dict[str, Any]:
    return usage.model_dump(mode="json", exclude_defaults=True)


def answered(record: Mapping[str, Any], heard: Heard) -> Answer:
    """Return the answer that a record holds."""
    _tell(record, heard)
    fields = {name: read(record[name]) for name, read in _ANSWERED.items() if name in record}
    if _THINKING in fields:
        fields["metadata"] = {_THINKING: fields.pop(_THINKING)}
    fields["content"] = str(record["content"])
    # It was read when it was recorded: reading it again would cost more than all the rest.
    return Answer(AgentOutput.model_construct(**fields), bool(record.get("declined")))


def failed(record: Mapping[str, Any], agent_id: str, heard: Heard) -> Exception:
    """Return the exception for the failure in a record."""
    _tell(record, heard)
    if "usage" in record:
        heard(Usage.model_validate(record["usage"]))
    if record["kind"] == DEADLINE:
        return TimeoutError()
    kind = _FAILURES.get(record["kind"], errors.AgentProtocolError)
    problem, details, mend = (str(record.get(name, "")) for name in _WORDS)
    error = kind(agent_id, problem, came=details, mend=mend, again=record.get("again", True))
    if isinstance(error, AgentOverloaded):
        error.retry_after = record.get("retry_after")
    if isinstance(error, AgentRefused):
        error.overflow = record.get("overflow") is True
    return error


def _tell(record: Mapping[str, Any], heard: Heard) -> None:
    heard.notes.update((key, record[key]) for key in _NOTED if key in record)
    if record.get("partial"):
        heard(TextDelta(record["partial"]))
    for action in record.get(_REFUSED, ()):
        heard(RefusedAction.model_validate(action))


MARK = "[ignored]"


class Ignoring:
    """Removes the text that the patterns match."""

    def __init__(self, patterns: Sequence[UserPattern | str] = ()) -> None:
        self._patterns = [
            pattern if isinstance(pattern, UserPattern) else UserPattern(pattern, where="ignore")
            for pattern in patterns
        ]

    def text(self, text: str) -> str:
        """Return the text, with `[ignored]` for each match."""
        for pattern in self._patterns:
            text = pattern.sub(lambda match: MARK if match.group() else "", text)
        return text

    def hash_of(self, input: AgentInput) -> str:
        """Return the hash of an input without its variable parts."""
        if self._patterns or not input.input_hash:  # what works for the memory has none
            return hashing.input_digest(self.input(input))
        return input.input_hash

    def input(self, input: AgentInput) -> AgentInput:
        """Return the input without the variable parts of its prompt, memory and messages."""
        if not self._patterns:
            return input
        memory = input.memory_context
        return input.model_copy(
            update={
                "role_prompt": self.text(input.role_prompt),
                "memory_context": None if memory is None else self.text(memory),
                "brief": self.text(input.brief),
                "messages": [
                    message.model_copy(update={"content": self.text(message.content)})
                    for message in input.messages
                ],
            }
        )


FIELDS = (
    "role_prompt",
    "members",
    "memory_context",
    "prefer_concise",
    "max_output_tokens",
    "mentioned_by",
    "brief",
    "supervision",
    "turn",
    TOOLS,
)
MESSAGES = "messages"

_DEFAULTS = {name: AgentInput.model_fields[name].default for name in FIELDS}
_TEXTS = ("role_prompt", "memory_context", "brief")


def normalize_input(input: AgentInput, ignoring: Ignoring, redactor: Redactor) -> dict[str, Any]:
    """Return the fields of an input in the form used for comparison."""
    fields = ignoring.input(input).model_dump(mode="json")
    fields["role_prompt"] = redactor.text(fields["role_prompt"])
    if TOOLS in fields:
        fields[TOOLS] = redactor.value(fields[TOOLS])
    return normalize(fields, ignoring)


def normalize(fields: Mapping[str, Any], ignoring: Ignoring) -> dict[str, Any]:
    """Return the fields of a recorded input (`CaseRecord.shown`) in the same form."""
    normal = {name: fields.get(name, _DEFAULTS[name]) for name in FIELDS}
    for name in _TEXTS:
        if normal[name] is not None:
            normal[name] = ignoring.text(normal[name])
    normal["role_prompt"] = normal["role_prompt"].rstrip()
    normal[MESSAGES] = fields[MESSAGES]
    return normal


def is_same(recorded: Mapping[str, Any], current: Mapping[str, Any], ignoring: Ignoring) -> bool:
    """Return whether two normalized inputs show an agent the same."""
    if any(recorded[name] != current[name] for name in FIELDS):
        return False
    recorded_messages, current_messages = recorded[MESSAGES], current[MESSAGES]
    return len(recorded_messages) == len(current_messages) and all(
        _is_same_message(*pair, ignoring)
        for pair in zip(recorded_messages, current_messages, strict=True)
    )


def _is_same_message(
    recorded: Mapping[str, Any], current: Mapping[str, Any], ignoring: Ignoring
) -> bool:
    if any(recorded.get(name) != current.get(name) for name in ("author_id", "author_type")):
        return False
    if (
        "mentions" not in recorded
    ):  # it is no message of the session: nothing else is recorded of it
        current = {name: current.get(name) for name in recorded}
    return message_text(recorded, ignoring) == message_text(current, ignoring)


def message_text(message: Mapping[str, Any], ignoring: Ignoring) -> str:
    """Return a message as a text: its author, its content, and its attachments and data."""
    author = message.get("author_name") or message.get("author_id", "")
    kind = message.get("kind", "chat")
    pieces = [f"{author}: " if kind == "chat" else f"{author} ({kind}): "]
    pieces.append(ignoring.text(str(message.get("content", ""))))
    if message.get("mentions"):
        pieces.append(f"\n→ {', '.join(message['mentions'])}")
    pieces += [f"\n[{_attachment_text(item)}]" for item in message.get("attachments") or ()]
    pieces += [
        f"\n[{item['type']}: {json.dumps(item['data'], ensure_ascii=False)}]"
        for item in message.get("structured") or ()
    ]
    return "".join(pieces)


def _attachment_text(attachment: Mapping[str, Any]) -> str:
    """Return an attachment by its size and hash, whether or not its content is recorded."""
    record = attachment
    if "size" not in attachment:
        with_data = Attachment.model_validate(encode_data(attachment))
        content = log.decode_content(with_data)
        record = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    name = f"{attachment['type']}: {attachment['name']}"
    return f"{name}, {record['size']} bytes, sha256 {record['sha256']}"


OUTPUT = "output"
FAILURE = "failure"
MEMORY = "memory"
SUPERVISE = "supervise"


@dataclass
class TapedCall:
    """A call that was made, of an agent or of a judge, and its result.

    `notes` are the ids of those that a reply's agent was shown. `record` is the record that
    answered it, None if the agent was called or there was none. `is_same` is True if its input is
    that of the record, except for irrelevant differences (`is_same`).
    """

    key: CallKey
    session: str | None
    input: AgentInput
    input_hash: str
    is_judge: bool = False
    reply: int | None = None
    notes: Sequence[str] = ()
    record: Recorded | None = None
    is_same: bool = False
    came: dict[str, Any] = field(default_factory=dict)

    @property
    def drifted(self) -> bool:
        """True if it was answered from a record of another input."""
        return self.record is not None and not self.is_same

    @property
    def missed(self) -> bool:
        """True if no record could answer it."""
        return not self.came


class Stretch(NamedTuple):
    """A step in one session: from 1; 0 is the past before the steps, None the time after them.

    `remembering` are the calls for the team's memory and of its supervisor, each with the event
    that reports its result; None if there is none.
    """

    step: int | None
    session: str | None
    events: list[Event]
    judged: list[TapedCall]
    remembering: list[tuple[TapedCall, Event | None]]


class Tape:
    """The calls of one scenario as it is played.

    `redactor` is that of its sessions; `surroundings` are the data that its agents' settings refer
    to. `tools` are the calls of tools; `scripted` names the scripted ones. `workspace` is the
    result of `settings.record_workspace`, and `called_with` the data recorded of each agent at its
    first call. `finished` is set once all its steps were played.
    `recorded` is the case that is replayed; with `live`, an agent is called if there is no record.
    `recorded` with `live` calls agents only for missing records, and stops doing so after drift.
    """

    def __init__(
        self,
        recorded: CaseRecord | None = None,
        *,
        live: bool,
        ignore: Sequence[UserPattern | str] = (),
        mend: str = "",
        scripted: Collection[str] = (),
    ) -> None:
        self.recorded = recorded
        self.tools = TapedTools(recorded, scripted)
        self.flow_steps = TapedSteps(recorded)
        self.ignoring = Ignoring(ignore)
        self.calls: list[TapedCall] = []
        self.stretches: list[Stretch] = [Stretch(0, None, [], [], [])]
        self.members: dict[str, Member] = {}
        self.called_agents = False
        self.finished = False
        self._live = live
        self.mend = mend
        self.redactor = Redactor()
        self.surroundings: Surroundings | None = None
        self.workspace: Mapping[str, Any] | None = None
        self.called_with: dict[str, dict[str, dict[str, str]]] = {}
        self._unused = recorded.unused() if recorded else {}
        self._normal: dict[int, dict[str, Any]] = {}
        self._started: dict[tuple[str | None, str], ReplyStarted] = {}

    @property
    def replays(self) -> bool:
        """True if no agent is called."""
        return not self._live

    @property
    def adds(self) -> bool:
        """True if the run has calls or steps that are not in the recording, and may be kept."""
        return self.called_agents or bool(self._live and self.new_steps)

    @property
    def new_steps(self) -> set[int]:
        """The steps that were played, and are not in the recording."""
        played = {stretch.step for stretch in self.stretches if stretch.step}
        return played - self.recorded.steps() if self.recorded else played

    @property
    def left_over(self) -> list[Recorded]:
        """The unused records of steps that were played, in order.

        Records are left out if the judge was asked another question in their place.
        """
        replaced = {record.number for _, record in self.judged_otherwise}
        unused = [recorded for records in self._unused.values() for recorded in records]
        played = [recorded for recorded in unused if self.was_played(recorded.key.step)]
        return sorted(
            [recorded for recorded in played if recorded.number not in replaced],
            key=lambda one: one.number,
        )

    @property
    def judged_otherwise(self) -> list[tuple[TapedCall, Recorded]]:
        """The questions to judges without a record, each with the recorded one in its place."""
        unmatched = [call for call in self.calls if call.is_judge and call.record is None]
        remaining = {call.key: iter(self._unused.get(call.key, ())) for call in unmatched}
        pairs = ((call, next(remaining[call.key], None)) for call in unmatched)
        return [(call, record) for call, record in pairs if record is not None]

    def was_played(self, step: int | None) -> bool:
        """Return True if a step of the recording was played, or can no longer be played."""
        return self.finished or any(stretch.step == step for stretch in self.stretches)

    def begin(self, step: int | None, session: str | None = None) -> None:
        """Begin that step (from 1); None: the following events belong to the whole scenario."""
        self.stretches.append(Stretch(step, session, [], [], []))

    def hear(self, session: str | None, event: Event) -> None:
        """Record an event that a session of the scenario has written."""
        self.stretches[-1].events.append(event)
        self.flow_steps.hear(session, event)
        if isinstance(event, ReplyStarted):
            self._started[session, event.agent] = event
        elif isinstance(event, SideEvent) and event.agent_call:
            pending = self.stretches[-1].remembering
            pending[:] = [(call, call_event or event) for call, call_event in pending]

    def opened(
        self, member: Member, input: AgentInput, session: str | None, *, is_judge: bool
    ) -> TapedCall:
        """Begin a call and select its record at once, so that the order of calls decides."""
        stretch = self.stretches[-1]
        is_memory = input.turn_id == ASIDE
        is_aside = is_memory or input.invocation == SUPERVISE
        key = CallKey(stretch.step, member.id, MEMORY if is_memory else input.invocation)
        call = TapedCall(key, session, input, self.ignoring.hash_of(input), is_judge)
        if is_judge:
            stretch.judged.append(call)
        elif is_aside:
            stretch.remembering.append((call, None))
        elif started := self._started.get((session, member.id)):
            call.reply, call.notes = started.reply, started.notes
        call.record = self._take_record(call)
        if call.record is not None:
            call.came = call.record.came
        self.calls.append(call)
        if input.tools:
            self.tools.keep_specs(member.id, input.tools, self.redactor)
        if member.id not in self.members:
            self.members[member.id] = member
            if self.surroundings is not None:
                self.called_with[member.id] = settings.record_called(
                    member, self.redactor, self.surroundings
                )
        return call

    def _take_record(self, call: TapedCall) -> Recorded | None:
        """Return the record that answers a call, and note whether it has the same input."""
        records = self._unused.get(call.key, [])
        same = next(
            (index for index, record in enumerate(records) if record.input_hash == call.input_hash),
            None,
        )
        if same is None and records:
            same = self._find_same(call, records)
        call.is_same = same is not None
        if same is None and (call.is_judge or not records):
            return None
        return records.pop(same or 0)

    def _find_same(self, call: TapedCall, records: Sequence[Recorded]) -> int | None:
        """Return the first record whose input has only irrelevant differences."""
        current = normalize_input(call.input, self.ignoring, self.redactor)
        for index, record in enumerate(records):
            if is_same(self.normal_input(record), current, self.ignoring):
                return index
        return None

    def normal_input(self, record: Recorded) -> dict[str, Any]:
        """Return the recorded input in the form used for comparison."""
        assert self.recorded is not None
        if record.number not in self._normal:
            fields = self.recorded.shown(record)
            self._normal[record.number] = normalize(fields, self.ignoring)
        return self._normal[record.number]

    def may_call(self) -> bool:
        """Return True if an agent may be called if there is no record."""
        if self._live and self.recorded is not None and any(call.drifted for call in self.calls):
            return False
        return self._live

    def miss(self, key: CallKey) -> AgentError:
        """Return the exception of a call without a record."""
        scope = "over the whole scenario" if key.step is None else f"in step {key.step}"
        problem = f"its recording has no answer left {scope} ({key.invocation})"
        return AgentUnavailable(key.agent, problem, mend=self.mend, again=False)
