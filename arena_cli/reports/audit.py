"""Turn a session's events into the entries of its audit, and write them in every format.

An entry has `entry` (its kind), the `seq` and `time` of its event, and the fields of its kind. A
`message` holds a text. A `call` is one reply, regardless of its end: the agent, its input, its
notes, its cost, and the text of the answer. `session`, `note`, `context_usage`, `compacted`,
`deviation`, `extracted` and `chain_finished` have the fields of their events. Only open calls are
kept in memory, so a session may have any length.

Field names are those of the JSON in every format and language. In markdown, texts of agents and
people are put in fences that none of their lines can close; all other data of theirs is put on one
line, with markup escaped.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.context import tokens
from arena_cli.protocol import Message, Usage
from arena_cli.reports.approvals import describe_approval
from arena_cli.reports.lines import Words
from arena_cli.reports.usage import TOKENS, Totals
from arena_cli.transcript.conversation import Chain, follow
from arena_cli.transcript.events import (
    FREE_KINDS,
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    SideEvent,
)
from arena_cli.util.text import cut_text, escape_json, escape_line, escape_text

Entry = dict[str, Any]

CALL = "call"
MESSAGE = "message"
UNFINISHED = "unfinished"

_APART = {"seq", "ts", "type", "metadata", "usage", "session_usage"}


def conversation(events: Iterable[Event]) -> Iterator[Entry]:
    """Yield a `message` for each message of people and the system, and each answer of an agent."""
    for event in events:
        if isinstance(event, MessageEvent):
            yield _message(event, event.message, planted=event.planted)
        elif isinstance(event, ReplyFinished) and event.message and event.status == "success":
            yield _message(event, event.message, turn=event.turn)


def audit(events: Iterable[Event]) -> Iterator[Entry]:
    """Yield every message and every call, in the order in which they ended, and the other entries.

    A call that is still running, or was cut off by a crash, is yielded as `unfinished` when its
    chain ends, else at the end.
    """
    last: Chain | None = None
    for event, chain in follow(events):
        if last and chain is not last:
            yield from _unfinished(last)
        yield from _entries(event, chain)
        last = None if chain is None or chain.finished else chain
    if last:
        yield from _unfinished(last)


def _entries(event: Event, chain: Chain | None) -> Iterator[Entry]:
    match event:
        case SessionEvent():
            name = event.model_dump(mode="json", include={"team", "members"})
            yield {**_event_entry("session", event), **name}
        case MessageEvent():
            yield _message(event, event.message, planted=event.planted)
        case ReplyFinished():
            yield _call(event, chain)
        case ChainFinished():
            yield from _unfinished(chain)
            yield _event_entry(event.type, event)
        case SideEvent():
            yield _event_entry(event.type, event)
        case _:
            pass


def _unfinished(chain: Chain | None) -> Iterator[Entry]:
    """Yield the calls of a chain's last turn that have no end."""
    for reply in chain.turns[-1].replies.values() if chain and chain.turns else ():
        if chain and reply.started and reply.is_running:
            yield {
                **_event_entry(CALL, reply.started),
                **_asked(reply.started, chain),
                "status": UNFINISHED,
                **_usage(None, free=reply.adapter in FREE_KINDS),
            }


def _call(done: ReplyFinished, chain: Chain | None) -> Entry:
    turn = chain.turns[-1] if chain and chain.turns else None
    reply = turn.replies.get(done.agent) if turn else None
    started = reply.started if reply else None
    entry = _event_entry(CALL, done)
    if started is None or chain is None:  # its line cannot be read
        entry |= {name: getattr(done, name) for name in ("turn", "phase", "reply", "agent")}
    else:
        entry |= _asked(started, chain)
    entry |= {
        "status": done.status,
        "attempts": done.attempts,
        **_usage(done.usage, free=started is not None and started.adapter in FREE_KINDS),
        "latency_ms": done.latency_ms,
        "error": done.error,
    }
    content = _content(done.message, done.next_mentions) if done.message is not None else {}
    partial = done.metadata.get("partial")
    optional = {
        "refused": list(map(str, done.refused_actions)),
        "allowed": done.metadata.get("allowed"),
        **content,
        "partial": partial if isinstance(partial, str) else "",
    }
    entry |= {name: value for name, value in optional.items() if value or name in content}
    return entry


def _asked(started: ReplyStarted, chain: Chain) -> Entry:
    """Return the fields of a call's input."""
    agent, turn = started.agent, chain.turns[-1].started
    entry: Entry = {"chain": turn.chain}
    for name in ("turn", "phase", "reply", "agent", "adapter", "invocation"):
        entry[name] = getattr(started, name)
    entry["attempts"] = started.attempt
    entry["input_hash"] = started.input_hash
    entry["input_tokens_estimated"] = started.input_tokens
    entry["trigger"] = chain.trigger_for(agent, started.phase)
    mentioners = turn.mentioned_by.get(agent, []) if started.phase == "A" else []
    entry["mentioned_by"] = list(mentioners)
    entry["notes_shown"] = list(started.notes)
    return entry


def _event_entry(kind: str, event: Event) -> Entry:
    """Return the entry of an event; for an event other than a reply it has all fields."""
    entry: Entry = {"entry": kind, "seq": event.seq, "time": event.ts}
    if isinstance(event, (SideEvent, ChainFinished)):
        entry |= event.model_dump(mode="json", exclude=_APART)
    if isinstance(event, SideEvent) and "usage" in type(event).model_fields:
        call = event.agent_call
        if call is None and event.is_acting:
            return entry  # its cost is counted elsewhere: by its reply, or by the agent's own end
        entry |= _usage(call.usage if call else None, free=call is None or call.is_free)
    return entry


def _message(
    event: Event, message: Message, *, turn: int | None = None, planted: bool = False
) -> Entry:
    entry = _event_entry(MESSAGE, event)
    if isinstance(event, MessageEvent) and event.chain is not None:
        entry["chain"] = event.chain
    if turn is not None:
        entry["turn"] = turn
    author = ("author_id", "author_name", "author_type", "kind")
    entry |= {name: getattr(message, name) for name in author}
    if planted:
        entry["planted"] = True
    others = [agent for agent in message.shown_to if agent != message.author_id]
    if isinstance(event, MessageEvent) and event.exchange:
        entry["exchange"] = event.exchange
        return entry | _content(message, others or message.mentions)
    return entry | _content(message, message.mentions)


def _content(message: Message, to: Sequence[str]) -> Entry:
    entry: Entry = {"message_id": message.id, "to": list(to)}
    for name in ("thread", "reply_to", "quoted", "reactions"):
        if value := getattr(message, name):
            entry[name] = value
    entry["text"] = message.content
    entry["text_sha256"] = hashlib.sha256(message.content.encode("utf-8", "replace")).hexdigest()
    entry["attachments"] = [
        item.model_dump(mode="json", exclude={"data"}) for item in message.attachments
    ]
    if message.structured:
        entry["structured"] = [item.model_dump(mode="json") for item in message.structured]
    return entry


def _usage(usage: Usage | None, *, free: bool) -> Entry:
    """Return the token counts and the cost; None if unknown, 0 for a `free` call without a cost."""
    if usage is None and not free:
        return {**dict.fromkeys(TOKENS), "tokens_estimated": None, "cost_usd": None}
    used = usage or Usage()
    cost = 0.0 if free and used.cost_usd is None else used.cost_usd
    counts = {name: getattr(used, name) for name in TOKENS}
    return {**counts, "tokens_estimated": used.estimated, "cost_usd": cost}


@dataclass
class AuditRecord:
    """The record of a session: its name, its current members, and its events, read once.

    With `audit` it has every call, not only the conversation, and `approvals`, which come first:
    the requests of agents with their decisions (`reports.approvals`). `totals` and `unreadable`,
    the number of unreadable lines of the transcript, are known once all entries have passed.
    """

    session: str
    opening: SessionEvent | None
    events: Iterable[Event]
    audit: bool = False
    approvals: Sequence[dict[str, Any]] = ()
    totals: Totals = field(default_factory=Totals)
    unreadable: int = 0

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the record, in order."""
        if not self.audit:
            yield from conversation(self.events)
            return
        yield from self.totals.passing(audit(self.events))

    def facts(self) -> dict[str, Any]:
        """Return the facts of the session: its id, its team, and its members."""
        opening = self.opening
        members = opening.members if opening else ()
        fields: dict[str, Any] = {
            "session": self.session,
            "team": opening.team if opening else None,
            "members": [member.model_dump(mode="json") for member in members],
            "audit": self.audit,
        }
        if opening and opening.scenario is not None:
            fields["scenario"] = opening.scenario
        return fields


VERSION = 1


def write_json(record: AuditRecord) -> Iterator[str]:
    """Yield the JSON document, piece by piece; texts are kept unchanged."""
    facts = {"version": VERSION, **record.facts()}
    if record.audit:
        facts["approvals"] = list(record.approvals)
    yield "{" + "".join(f"{_json(name)}: {_json(value)},\n" for name, value in facts.items())
    yield '"entries": ['
    mark = "\n"
    for entry in record.entries():
        yield mark + _json(entry)
        mark = ",\n"
    yield "\n]"
    if record.audit:
        yield f',\n"agents": {_json(record.totals.agents())}'
        yield f',\n"total": {_json(record.totals.total())}'
    yield f',\n"unreadable_lines": {record.unreadable}' + "}\n"


def write_json_list(records: Iterable[AuditRecord]) -> Iterator[str]:
    """Yield one document with the documents of several sessions, piece by piece."""
    yield f'{{"version": {VERSION},\n"sessions": ['
    mark = "\n"
    for record in records:
        yield mark
        yield from write_json(record)
        mark = ","
    yield "]}\n"


def _json(value: Any) -> str:
    return escape_json(json.dumps(value, ensure_ascii=False))


BOM = "\ufeff"
ENGLISH = Words()
UNKNOWN = "unknown"

_SAID = ("seq", "time", "turn", "message_id", "author_id", "author_name", "author_type", "kind")
_CONTENT = ("to", "reply_to", "quoted", "reactions", "text", "attachments", "structured")
_CALL = (
    *("entry", "seq", "time", "chain", "turn", "phase", "reply", "message_id"),
    *("author_id", "author_name", "author_type", "kind", "agent", "adapter"),
    *("invocation", "mentioned_by", "trigger", "notes_shown", "status", "attempts"),
    *("input_hash", "input_tokens_estimated", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "tokens_estimated", "cost_usd"),
    *("latency_ms", "error", "refused", "allowed", "text_sha256"),
)

CONVERSATION = (*_SAID, "planted", *_CONTENT)
AUDIT = (*_CALL, "planted", *_CONTENT, "partial", "detail")

# Excel takes the full-width forms for the others in some locales.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_table(record: AuditRecord) -> Iterator[str]:
    """Yield the table, row by row."""
    columns = AUDIT if record.audit else CONVERSATION
    rows = (_row(entry, columns) for entry in _all_entries(record))
    return _written_rows(columns, rows)


def write_tables(records: Iterable[AuditRecord], *, audit: bool) -> Iterator[str]:
    """Yield one table of several sessions, row by row; its first column names the session."""
    columns = AUDIT if audit else CONVERSATION
    rows = (
        [_cell("session", record.session), *_row(entry, columns)]
        for record in records
        for entry in _all_entries(record)
    )
    return _written_rows(("session", *columns), rows)


def _all_entries(record: AuditRecord) -> Iterator[Entry]:
    """Yield the approvals as entries, then the entries of the record."""
    for approval in record.approvals:
        yield {"entry": "approval", **approval, "time": approval.get("decided", approval["since"])}
    yield from record.entries()


def _written_rows(
    columns: tuple[str, ...], rows: Iterable[list[str | int | float]]
) -> Iterator[str]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    yield BOM + buffer.getvalue()
    for row in rows:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(row)
        yield buffer.getvalue()


def _row(entry: Entry, columns: tuple[str, ...]) -> list[str | int | float]:
    """Return the cells of an entry; fields without a column of their own go to `detail` as JSON."""
    row = dict(entry)
    if entry["entry"] == CALL and entry["cost_usd"] is None:
        row["cost_usd"] = UNKNOWN
    own_columns = {*columns} - {"detail"}
    others = {name: value for name, value in entry.items() if value and name not in own_columns}
    if entry["entry"] != MESSAGE and others:
        row["detail"] = others
    return [_cell(name, row.get(name)) for name in columns]


def _cell(name: str, value: Any) -> str | int | float:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return value
    return defused(escape_text(_flat(name, value)))


def _flat(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name == "attachments":
        return "\n".join(f"{item['path']} sha256:{item['sha256']}" for item in value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def defused(cell: str) -> str:
    """Return the cell so that no spreadsheet reads it as a formula, even after leading blanks."""
    is_formula = cell.lstrip().startswith(_FORMULA) or cell.startswith(("\t", "\r", "\n"))
    return f"'{cell}" if is_formula else cell


_MARKUP = re.compile(r"[\\`*\[\]<>&|~#$]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9])")
_RUN = re.compile(r"`+")
_BLOCKS = ("text", "partial", "error", "summary", "reason", "rolled_back", "structured")
_HEAD = frozenset({"entry", "seq", "time"})
_OF_CALLS = frozenset(
    {"author_id", "author_name", "author_type", "chain", "kind", "text_sha256", "to", "turn"}
)
_LEAST = 3


def write_markdown(record: AuditRecord, say: Words = ENGLISH) -> Iterator[str]:
    """Yield the record as markdown, piece by piece; its headings are in the language of `say`."""
    yield from _facts(record, say)
    for entry in record.entries():
        yield _entry(entry, say) if record.audit else _said(entry, say)
    yield _totals(record, say)


def write_newest(record: AuditRecord, most_bytes: int, most_tokens: int) -> str:
    """Return the newest whole entries within that many bytes and tokens.

    A line has the number of omitted entries.

    Tokens are estimated. A text that is longer than about a quarter of the limit is cut, and marked
    as cut.
    """

    def share(text: str) -> float:
        return max(len(text.encode()) / most_bytes, tokens.estimate(text) / most_tokens)

    most_text = min(most_bytes // 4, most_tokens)  # four times its characters
    pieces: deque[tuple[str, float]] = deque()
    size = 0.0
    left_out = 0
    for entry in record.entries():
        text = _entry(entry, ENGLISH, most_text)
        pieces.append((text, share(text)))
        size += pieces[-1][1]
        while size > 1:
            size -= pieces.popleft()[1]
            left_out += 1
    ends = _totals(record, ENGLISH)
    starts = "".join(_facts(record, ENGLISH))
    around = share(f"{starts}{_left_out(left_out + len(pieces))}{ends}")
    while pieces and size + around > 1:
        size -= pieces.popleft()[1]
        left_out += 1
    return f"{starts}{_left_out(left_out)}{''.join([text for text, _ in pieces])}{ends}"


def _left_out(count: int) -> str:
    text = (
        f"Left out for its size: the {count} oldest entries of this record. The sums at its end are"
        " those of the whole session.\n\n"
    )
    return text if count else ""


def _facts(record: AuditRecord, say: Words) -> Iterator[str]:
    facts = record.facts()
    title = "Audit of session {name}" if record.audit else "Conversation of session {name}"
    yield f"# {say(title, name=_plain(record.session))}\n\n"
    lines = [f"- team: {_plain(facts['team'] or say('every agent'))}"]
    for member in facts["members"]:
        role = f", {_plain(member['role'])}" if member["role"] else ""
        lines.append(f"- member: {_plain(member['id'])} ({_plain(member['name'])}{role})")
    if "scenario" in facts:
        lines.append(f"- scenario: {_plain(facts['scenario'])}")
    yield "\n".join(lines) + "\n\n"
    if record.approvals:
        approvals = [describe_approval(approval, _plain, say) for approval in record.approvals]
        yield f"## {say('Approvals')}\n\n" + "".join(f"- {line}\n" for line in approvals) + "\n"


def _said(entry: Entry, say: Words) -> str:
    """Return a message of a conversation, with its author, recipients, time and text."""
    name, author_id = entry["author_name"], entry["author_id"]
    author = _plain(name if name == author_id else f"{name} ({author_id})")
    if entry["to"]:
        author = say("{who} to {whom}", who=author, whom=say(", ").join(map(_plain, entry["to"])))
    bare = {key: value for key, value in entry.items() if key not in _OF_CALLS}
    return _draw_entry(f"{author} · {_plain(entry['time'])}", bare)


def _entry(entry: Entry, say: Words, most_text: int | None = None) -> str:
    return _draw_entry(_heading(entry, say), entry, most_text)


def _draw_entry(heading: str, entry: Entry, most_text: int | None = None) -> str:
    lines = [f"## {heading}", ""]
    for name, value in entry.items():
        if name in _HEAD or name in _BLOCKS:
            continue
        lines += [f"- {name}: {text}" for text in _values(name, value, entry)]
    for name in _BLOCKS:
        if entry.get(name):
            lines += ["", f"{name}:", *_fenced(_text(entry[name]), most_text)]
    return "\n".join(lines) + "\n\n"


def _heading(entry: Entry, say: Words) -> str:
    kind = entry["entry"]
    facts = [say.enum(kind)]
    if kind == MESSAGE:
        facts.append(_plain(entry["author_name"]))
    elif kind == CALL:
        turn = say("turn {turn} {phase}", turn=entry["turn"], phase=entry["phase"])
        facts += [_plain(entry["agent"]), turn, say.enum(entry["status"])]
    facts += [_plain(entry["time"]), say("event {seq}", seq=entry["seq"])]
    return " · ".join(facts)


def _values(name: str, value: Any, entry: Entry) -> Iterator[str]:
    """Yield a field's value as it is written in a line; nothing if it is empty."""
    is_figure = name == "cost_usd" or (entry["entry"] == CALL and name.endswith("_tokens"))
    if is_figure:
        yield _figure(name, value)
    elif name == "attachments":
        yield from map(_attachment, value)
    elif name == "members":
        yield ", ".join(_plain(member["id"]) for member in value) or "none"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif value not in (None, "", {}, []):
        items = value if isinstance(value, list) else [value]
        texts = (
            json.dumps(item, ensure_ascii=False) if isinstance(item, (dict, list)) else str(item)
            for item in items
        )
        yield ", ".join(map(_plain, texts))


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.10f}".rstrip("0").rstrip(".") if name == "cost_usd" else str(value)


def _attachment(attachment: Mapping[str, Any]) -> str:
    size = f"{attachment['size']} bytes, sha256 {attachment['sha256']}"
    return f"{_plain(attachment['name'])}, {_plain(attachment['path'] or 'gone')}, {size}"


def _totals(record: AuditRecord, say: Words) -> str:
    if not record.audit and not record.unreadable:
        return ""
    lines = [f"## {say('Sums')}", ""]
    if record.audit:
        sums = {**record.totals.agents(), "all": record.totals.total()}
        for agent, figures in sums.items():
            cost = UNKNOWN if figures["cost_usd"] is None else f"{figures['cost_usd']:g}"
            facts = [f"{name} {figures[name]}" for name in figures if name != "cost_usd"]
            lines.append(f"- {_plain(agent)}: {', '.join([*facts, f'cost_usd {cost}'])}")
    if record.unreadable:
        lines.append(f"- unreadable_lines: {record.unreadable}")
    return "\n".join(lines) + "\n"


def _fenced(content: str, most: int | None) -> Iterable[str]:
    notice = []
    lines = escape_text(content)
    if most is not None and len(lines.encode("utf-8", "replace")) > most:
        length = len(lines)
        lines = cut_text(lines, most // 4)  # a character takes at most four bytes
        notice = [f"(cut: the first {len(lines)} of {length} characters)"]
    longest = max((len(run) for run in _RUN.findall(lines)), default=0)
    fence = "`" * max(_LEAST, longest + 1)
    return [f"{fence}text", lines, fence, *notice]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _plain(text: str) -> str:
    """Return a text as one line with its markup escaped."""
    return _MARKUP.sub(r"\\\g<0>", escape_line(text))
