"""Recordings as files: `recordings/<stem>.jsonl` in the folder of the scenario's file.

Each line is a JSON object. The first has the scenario's title, the last has the checksum of all
lines before (SHA-256 of their texts, without line ends, joined by newlines), which detects a file
that was cut, merged or edited by hand. Between them are the cases.

The lines of a case are its `case` line, one `agent` line for each member and judge (`settings`),
and for each step a `step` line, then the step's events in canonical form. Every `reply_started`
also has `input` (the agent's input) and `output` or `failure` (`recorder`); an attempt that another
one followed has its number. Data that can be derived from these is left out: estimates of tokens,
sums, errors as text, and the fields of a reply's message that its output holds. A judge's call is a
`judge` line. A call of an agent that works for the team's memory, or that is called as a tool, is a
`memory` line, before the event that reports its result; one of a supervisor is a `supervise` line.
The end of a call of a tool has an `answer`: what it gave, as far as the event does not have it.
That of a step of a flow has its `work`: what it did.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

import jsonlines
from pydantic import ValidationError

from arena_cli.adapters.runtime import Heard
from arena_cli.errors import DiskRefused, Fault, FileFaults, UsageError
from arena_cli.protocol import Derived, ShownMessage, Volatile
from arena_cli.scenarios import select
from arena_cli.scenarios.recording import inner_calls, model, recorder, settings
from arena_cli.scenarios.recording.inner_calls import ANSWER
from arena_cli.scenarios.recording.model import (
    ASIDE,
    TOOLS,
    CallKey,
    CaseRecord,
    Recorded,
    RecordedStep,
    RecordedTool,
    Recording,
)
from arena_cli.scenarios.recording.recorder import MEMORY, SUPERVISE, Stretch, Tape, TapedCall
from arena_cli.transcript import compare
from arena_cli.transcript.events import EVENT_TYPES, Event, MessageEvent, ReplyStarted, list_fields
from arena_cli.util import files
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.models import Member
from arena_cli.yamlio.schema_errors import explain_first

FOLDER = "recordings"
SUFFIX = ".jsonl"
LOCK = ".recordings.lock"
VERSION = 1

_HEAD = "recording"
_END = "end"
_CONFLICT = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def path_of(scenario: Path) -> Path:
    """Return the path of the recording of a scenario's file."""
    return scenario.parent / FOLDER / f"{scenario.stem}{SUFFIX}"


def encode_recording(scenario: str, cases: Iterable[Sequence[Mapping[str, Any]]]) -> bytes:
    """Return the content of a recording's file: a scenario's title, and the lines of its cases."""
    head = {"type": _HEAD, "version": VERSION, "scenario": scenario}
    texts = [_encode(line) for line in (head, *(line for lines in cases for line in lines))]
    texts.append(_encode({"type": _END, "sha256": _checksum(texts)}))
    return "".join(f"{text}\n" for text in texts).encode()


def lock(workspace: Path) -> AbstractContextManager[None]:
    """Hold the lock for changing the recordings or the snapshots of a workspace.

    Raises OSError.
    """
    return files.lock_file(workspace / "sessions" / LOCK)


def write(path: Path, content: bytes, *, sync: bool = False) -> bool:
    """Write the content atomically; return True if it changed. Raises DiskRefused.

    With `sync` it is flushed to the disk.
    """
    try:
        if path.is_file() and files.read_regular(path) == content:
            return False
        files.replace_file_synced(path, content, sync=sync)
        files.remove_leftovers(path.parent, path.suffix)
    except OSError as error:
        raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error
    return True


def content_of(path: Path) -> bytes | None:
    """Return its bytes; None if it cannot be read."""
    try:
        return files.read_regular(path)
    except OSError:
        return None


def check_writable(path: Path, label: str) -> None:
    """Check that the file can be written, before any agent is called. Raises UsageError."""
    is_new = not path.parent.exists()
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        path.parent.mkdir(exist_ok=True)
        beside = files.temporary_path(path)
        files.write_part(beside, b"")
        beside.unlink()
        if is_new:
            path.parent.rmdir()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{label}: this recording could not be written: {reason}") from error


def is_there(path: Path) -> bool:
    """Return True if there is a recording, readable or not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read(path: Path, label: str, *, strict: bool = True) -> Recording:
    """Return a recording; `label` is its path as shown to the user.

    Raises FileFaults if the file is no recording, or was truncated, edited or made by a later
    arena, and UsageError if it cannot be read. Without `strict`, an edited one is read as it is.
    """
    try:
        text = files.read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{label}: cannot read this file: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFaults([_fault(label, 1, "is not UTF-8")]) from error
    # A record ends at a line feed only; git may have put a carriage return before it.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return _RecordingReader(label, strict=strict).read(lines)


def lines_of(case: CaseRecord) -> list[dict[str, Any]]:
    """Return the lines of a case as they were in the file."""
    records = [case_line(case.id, case.workspace), *case.agents.values()]
    for line in case.lines:
        reduced = dict(line)
        if line["type"] == "reply_finished" and line["message"]:
            message = line["message"]
            reduced["message"] = {k: v for k, v in message.items() if k not in IN_OUTPUT}
        records.append(reduced)
    return records


def _checksum(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _fault(label: str, line: int, problem: str) -> Fault:
    return Fault(label, line, "", problem, f"record it again: `arena run --record {_name(label)}`")


def _name(label: str) -> str:
    """Return the name of a recording's scenario for `arena run`."""
    path = PurePosixPath(label)
    return select.run_name((path.parent.parent / f"{path.stem}{select.SUFFIX}").as_posix())


def _check(record: Mapping[str, Any]) -> None:
    """Check an edited line. Raises ValueError, KeyError or TypeError if a part of it is invalid."""
    shape = EVENT_TYPES.get(record["type"])
    for name, field in shape.model_fields.items() if shape else ():
        is_left_out = name in list_fields(shape, Volatile, Derived) or field.exclude_if
        if name not in record and not is_left_out:
            raise ValueError(f"`{name}` is missing")
    restore(record)
    if "input" not in record:
        return  # it is no call: its `output` is that of a step of a flow, or of an agent's end
    heard = Heard(Redactor(), lambda _: None)
    for key in ("output", "failure"):
        recorder.list_permits(record.get(key, {}))
    if "output" in record:
        recorder.answered(record["output"], heard)
    if "failure" in record:
        recorder.failed(record["failure"], "", heard)


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return explain_first(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


class _RecordingReader:
    """Reads one file, line by line."""

    def __init__(self, label: str, *, strict: bool) -> None:
        self._shown = label
        self._strict = strict
        self._is_edited = False
        self._step: int | None = 0
        self._session: str | None = None
        self._said: dict[str, Mapping[str, Any]] = {}
        self._asked: dict[tuple[Any, ...], Mapping[str, Any]] = {}

    def read(self, texts: list[str]) -> Recording:
        records = self._decode(texts)
        head = self._head(records)
        self._check_end(texts, records)
        cases: dict[str | None, CaseRecord] = {}
        case = CaseRecord(None)
        for number, record in enumerate(records[1:-1], start=2):
            try:
                if record["type"] == "case":
                    case = CaseRecord(record["case"], record.get("workspace"))
                    cases[case.id] = case
                    self._step, self._session = 0, None
                else:
                    self._take(record, number, case)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                problem = f"is not a line of a recording: {_why(error)}"
                raise self._wrong(number, problem) from error
        return Recording(str(head["scenario"]), cases, is_edited=self._is_edited)

    def _decode(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        for number, text in enumerate(texts, start=1):
            if text.startswith(_CONFLICT):
                raise self._wrong(number, "has a merge conflict")
        records: list[dict[str, Any]] = []
        try:
            for number, record in enumerate(jsonlines.Reader(texts).iter(), start=1):
                if not isinstance(record, dict) or not isinstance(record.get("type"), str):
                    raise self._wrong(number, "is not a line of a recording")
                records.append(record)
        except jsonlines.InvalidLineError as error:
            reason = error.__cause__ or error
            raise self._wrong(error.lineno, f"is not JSON: {reason}") from error
        return records

    def _head(self, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        if not records or records[0]["type"] != _HEAD or "scenario" not in records[0]:
            raise self._wrong(1, "is not a recording")
        version = records[0].get("version")
        if version != VERSION:
            problem = f"is a recording of version {version!r}; this arena reads version {VERSION}"
            raise self._wrong(1, problem)
        return records[0]

    def _check_end(self, texts: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        if records[-1]["type"] != _END:
            raise self._wrong(len(texts), "was cut: its last line is missing")
        self._is_edited = records[-1].get("sha256") != _checksum(texts[:-1])
        if self._strict and self._is_edited:
            fault = Fault(
                self._shown,
                len(texts),
                "",
                "does not match its checksum: it was merged, or edited by hand",
                f"record it again: `arena run --record {_name(self._shown)}`; or, if "
                f"it is right as it is: `arena run --update {_name(self._shown)}`",
            )
            raise FileFaults([fault])

    def _take(self, record: dict[str, Any], number: int, case: CaseRecord) -> None:
        kind = record["type"]
        if kind == "reply_finished" and record["message"]:
            self._complete_message(record)
        if self._is_edited:
            _check(record)
        if kind == "agent":
            case.agents[record["agent"]] = record
            return
        case.lines.append(record)
        if kind == "step":
            self._step, self._session = record["step"], record["session"]
        elif kind == "tool_requested":
            self._asked[record["reply"], record["call"]] = record
        elif kind == "tool_finished" and ANSWER in record:
            asked = self._asked[record["reply"], record["call"]]
            tool = (self._step, asked["agent"], asked["tool"], asked["arguments"], record)
            case.tools.append(RecordedTool(*tool))
        elif inner_calls.WORK in record and kind in ("step_finished", inner_calls.REFLECTED):
            name = str(record.get("step", inner_calls.REFLECTED))
            work = record[inner_calls.WORK]
            case.flow_steps.append(RecordedStep(self._step, name, work, record))
        elif kind in ASIDE:
            self._add_call(record, number, case)
        elif kind == "reply_started" and "input" in record:
            self._add_call(record, number, case)
            self._said[record["agent"]] = record.get("output", {})

    def _complete_message(self, record: dict[str, Any]) -> None:
        """Add the parts of a reply's message that are recorded as its output."""
        output = self._said.get(record["agent"], {})
        kept = {name: value for name, value in output.items() if name in IN_OUTPUT}
        blank = {"content": "", "structured": [], "attachments": []}
        record["message"] = {**blank, **record["message"], **kept}

    def _add_call(self, record: Mapping[str, Any], number: int, case: CaseRecord) -> None:
        outcome = {name: record[name] for name in ("output", "failure") if name in record}
        if len(outcome) != 1:
            raise ValueError("a call has one of `output` and `failure`")
        call = Recorded(
            number=len(case.calls),
            key=CallKey(self._step, record["agent"], record["invocation"]),
            session=self._session,
            input_hash=record["input_hash"],
            input=record["input"],
            came=outcome,
            turn=record["input"]["turn"],
            line=number,
            notes=record.get("notes", ()),
        )
        case.calls.append(call)

    def _wrong(self, number: int, problem: str) -> FileFaults:
        return FileFaults([_fault(self._shown, number, problem)])


JUDGE = "judge"
STEP = "step"
IN_OUTPUT = ("content", "structured", "attachments")

_INLINE = ("author_id", "author_name", "author_type", "content", "role")


def lines(tape: Tape, case: str | None, members: Sequence[Member]) -> list[dict[str, Any]]:
    """Return the lines of one case, as it was played by these members and its judges."""
    everyone = {member.id: member for member in members} | tape.members
    records = [case_line(case, tape.workspace)]
    for member in everyone.values():
        line = {**settings.record(member, tape.redactor), **_called_with(member, tape)}
        line[settings.ROLE_PROMPT] = tape.ignoring.text(line[settings.ROLE_PROMPT])
        if specs := tape.tools.specs.get(member.id):
            line[TOOLS] = [*specs.values()]
        records.append(line)
    ids: dict[str | None, dict[str, str]] = {}
    by_reply: dict[tuple[str | None, int | None], list[TapedCall]] = {}
    for call in tape.calls:
        by_reply.setdefault((call.session, call.reply), []).append(call)
    shown_ids = {message.id for call in tape.calls for message in call.input.messages}
    for stretch in tape.stretches:
        if stretch.step != 0 and (stretch.step or stretch.judged):
            records.append({"type": STEP, STEP: stretch.step, "session": stretch.session})
        records += _events(stretch, by_reply, ids.setdefault(stretch.session, {}), shown_ids, tape)
        records += [_aside(JUDGE, call, tape, {}) for call in stretch.judged]
    return records


def case_line(case: str | None, workspace: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the line that begins a case."""
    line: dict[str, Any] = {"type": "case", "case": case}
    return line if workspace is None else {**line, "workspace": workspace}


def _called_with(member: Member, tape: Tape) -> dict[str, Any]:
    first = tape.called_with.get(member.id)
    if first is None or tape.surroundings is None:
        return {}
    last = settings.record_called(member, tape.redactor, tape.surroundings)
    recorded = tape.recorded.agents.get(member.id, {}) if tape.recorded else {}
    return settings.mark_varying(first, last, recorded)


def _events(
    stretch: Stretch,
    by_reply: Mapping[tuple[str | None, int | None], list[TapedCall]],
    ids: dict[str, str],
    shown_ids: Container[str],
    tape: Tape,
) -> Iterator[dict[str, Any]]:
    """Yield the events of a step; of the planted past, only the messages that agents were shown."""
    for event in inner_calls.order_lines(list(compare.ordered(stretch.events))):
        yield from _memory_calls(stretch, event, tape, ids)
        line = record(event, ids)
        is_past = stretch.step == 0
        if is_past and isinstance(event, MessageEvent) and event.message.id not in shown_ids:
            continue
        if isinstance(event, ReplyStarted):
            calls = by_reply.get((stretch.session, event.reply), [])
            yield from _attempts(line, calls, ids, tape)
        else:
            line |= tape.tools.find_answer(stretch.session, event)
            yield line | tape.flow_steps.find_work(stretch.session, event)
    yield from _memory_calls(stretch, None, tape, ids)


def _memory_calls(
    stretch: Stretch, event: Event | None, tape: Tape, ids: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the calls that are no reply and that an event reports; for None, those of no event."""
    for call, memory_event in _order_asides(stretch):
        if memory_event is event:
            is_supervisor = call.key.invocation == SUPERVISE
            kind, known = (SUPERVISE, ids) if is_supervisor else (MEMORY, {})
            yield _aside(kind, call, tape, known)


def _order_asides(stretch: Stretch) -> Iterator[tuple[TapedCall, Event | None]]:
    """Yield the calls that are no reply, each with the event that reports it, in canonical order.

    Agents that are called as tools work side by side: their calls go by their inputs, and all
    belong to the first of their ends.
    """
    nested = [(call, event) for call, event in stretch.remembering if _is_nested(event)]
    if not nested:
        yield from stretch.remembering
        return
    first = next(filter(_is_nested, compare.ordered(stretch.events)), None)
    for call, _ in sorted(nested, key=lambda pair: (pair[0].key.agent, pair[0].input_hash)):
        yield call, first
    yield from (pair for pair in stretch.remembering if not _is_nested(pair[1]))


def _is_nested(event: Event | None) -> bool:
    """Return True for the end of an agent that was called as a tool."""
    return getattr(event, "type", "") == "agent_ended" and bool(getattr(event, "within", ""))


def _attempts(
    line: dict[str, Any], calls: Sequence[TapedCall], ids: dict[str, str], tape: Tape
) -> Iterator[dict[str, Any]]:
    """Yield the line of a reply for each call of the agent, with its input and answer."""
    for attempt, call in enumerate(calls, start=1):
        again = {"attempt": attempt} if attempt < len(calls) else {}
        shown = {"input": _input(call, ids, tape)}
        yield {**line, "input_hash": call.input_hash, **again, **shown} | call.came
    if not calls:  # it was no longer in the team
        yield line


def record(event: Event, ids: dict[str, str]) -> dict[str, Any]:
    """Return an event as a line of a recording; `ids` as in `canonical.canonicalize_event`."""
    line = compare.canonicalize_event(event, ids)
    for name in list_fields(type(event), Derived):
        line.pop(name, None)
    if event.type == "reply_finished" and line.get("message"):
        line["message"] = {
            key: value for key, value in line["message"].items() if key not in IN_OUTPUT
        }
    return line


def restore(line: Mapping[str, Any]) -> Event | None:
    """Return the event of a line of a recording, with its texts; None if the line is no event.

    Raises ValueError if a field is wrong or missing.
    """
    message = line.get("message")
    if isinstance(message, dict) and message.get("attachments"):
        attachments = [model.encode_data(item) for item in message["attachments"]]
        line = {**line, "message": {**message, "attachments": attachments}}
    return compare.restore(line)


def _aside(kind: str, call: TapedCall, tape: Tape, ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the line of a call that is no reply; `ids` as in `canonicalize_event`."""
    return {
        "type": kind,
        "agent": call.key.agent,
        "invocation": call.key.invocation,
        "input_hash": call.input_hash,
        "input": {
            **_input(call, ids, tape),
            "members": [member.model_dump(mode="json") for member in call.input.members],
        },
    } | call.came


def _input(call: TapedCall, ids: Mapping[str, str], tape: Tape) -> dict[str, Any]:
    """Return the fields particular to an input; its prompt and its members are in other lines."""
    shown = tape.ignoring.input(call.input)
    fields: dict[str, Any] = {"turn": shown.turn}
    if shown.mentioned_by:
        fields["mentioned_by"] = list(shown.mentioned_by)
    if shown.memory_context is not None:
        fields["memory_context"] = shown.memory_context
    if shown.prefer_concise:
        fields["prefer_concise"] = True
    if shown.brief:
        fields["brief"] = shown.brief
    if shown.supervision is not None:
        fields["supervision"] = shown.supervision.model_dump(mode="json")
    if shown.tools:
        fields[TOOLS] = tape.tools.name_specs(call.key.agent, shown.tools, tape.redactor)
    fields["max_output_tokens"] = shown.max_output_tokens
    fields["messages"] = _messages(shown.messages, ids)
    return fields


def _messages(messages: Sequence[ShownMessage], ids: Mapping[str, str]) -> list[Any]:
    """Return the session's messages as ids, the others written out."""
    items: list[Any] = []
    run_ids: list[str] = []
    for message in messages:
        if message.id in ids:
            run_ids.append(ids[message.id])
            continue
        items += model.ranges(run_ids)
        run_ids = []
        items.append({name: getattr(message, name) for name in _INLINE})
    return [*items, *model.ranges(run_ids)]
