"""Model conversations for comparison: entries without their positions, and their differences.

An entry is a chain, a message that opened none, a change of the team, or a judge's call. Numbers of
chains, turns and replies, and ids of messages, are left out of it or replaced by what they mean, so
that a chain more at the beginning makes no later one another. Sums that can be made again are left
out too. What is empty is not there: a recording leaves it out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import computed_field

from arena_cli.protocol import Attachment, Shape, Usage
from arena_cli.scenarios.recording.model import CaseRecord, Recording
from arena_cli.transcript import canonical, log
from arena_cli.transcript.events import Event

Kind = Literal["chain", "message", "settings", "judge"]
Fields = dict[str, Any]

_EMPTY: tuple[Any, ...] = (None, "", [], {})
_TURN = ("must", "deferred", "mentioned_by")
_STARTED = ("phase", "invocation", "adapter", "input_hash", "input_tokens", "notes", "failure")
_FINISHED = ("error", "next_mentions", "refused", "unresolved")
_MESSAGE = ("content", "mentions", "structured", "kind")
_AUTHOR = ("author_id", "author_name", "author_type")
_ENDED = ("end", "awaits", "turns", "replies", "usage")
_REMEMBERED: Mapping[str, tuple[str, ...]] = {
    "note": ("note", "act", "by", "kind", "title", "status", "message", "reason"),
    "context_usage": ("agent", "level", "usage_ratio", "tokens", "budget"),
    "compacted": (
        *("by", "upto", "messages", "summary", "tokens_before", "tokens_after"),
        *("usage", "rolled_back"),
    ),
    "deviation": ("agent", "note", "kind", "level", "reason"),
    "extracted": ("by", "upto", "notes", "usage", "error"),
}
OF_INPUT = ("mentioned_by", "memory_context", "prefer_concise", "max_output_tokens")


class Entry(NamedTuple):
    """An entry of a conversation; `key` matches it to the other side, `chain` counts from 1.

    `text` is its content as JSON: few of many thousand are ever looked into.
    """

    kind: Kind
    key: str
    chain: int | None
    text: str

    def content(self) -> Fields:
        """Its content: of a chain `opening`, `messages`, `turns` and `end`, else its fields."""
        fields: Fields = json.loads(self.text)
        return fields


@dataclass
class ComparedConversation:
    """A session, or a session of a case of a recording.

    `settings` are those it began with, by the place of each (`config.max_responders`).
    """

    case: str | None = None
    session: str | None = None
    settings: Fields = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    chains: int = 0
    turns: int = 0
    replies: int = 0
    usage: Usage | None = None


class Builder:
    """Takes records in canonical order."""

    def __init__(self, case: str | None = None, session: str | None = None) -> None:
        self._told = ComparedConversation(case, session)
        self._known: Fields | None = None
        self._chain: Fields | None = None
        self._replies: dict[int, Fields] = {}
        self._turns: dict[int, Fields] = {}
        self._names: dict[str, str] = {}
        self._adapters: dict[str, dict[str, None]] = {}
        self._usages: list[Usage] = []

    def take(self, record: Mapping[str, Any]) -> None:
        """Add an event."""
        match record["type"]:
            case "session":
                self._session(record)
            case "message":
                self._message(record)
            case "turn_started":
                self._turn_started(record)
            case "reply_started":
                self._reply_started(record)
            case "reply_finished":
                self._reply_finished(record)
            case "candidates":
                turn = self._turn(record["turn"])
                turn.update(_pick_fields(record, ("asked", "passed_over")))
            case "turn_finished":
                self._turn(record["turn"]).update(
                    _pick_fields(record, ("called", "replied", "next"))
                )
            case "chain_finished":
                self._open()["end"] = _pick_fields(record, _ENDED)
                self._close()
            case kind if kind in _REMEMBERED:
                self._remembered(kind, record)
            case _:
                pass

    def judge(self, line: Mapping[str, Any], step: int | None) -> None:
        """A call of a judge, in a step or (None) over all of them."""
        output = line.get("output") or {}
        fields = {
            "agent": line["agent"],
            "step": step,
            **_pick_fields(line, ("input_hash", "failure")),
            **_pick_fields(output, ("content", "structured")),
        }
        self._close()
        self._add("judge", line["agent"], fields)

    def settings(self, path: str, values: Mapping[str, Any]) -> None:
        """Add settings of its beginning."""
        self._told.settings.update(_flat(path, values))

    def whole(self) -> ComparedConversation:
        """Return the conversation of all records."""
        self._close()
        self._sum_up()
        for agent, kinds in self._adapters.items():
            self._told.settings.setdefault(f"agents[{agent}].adapter.type", ", ".join(kinds))
        return self._told

    def _session(self, record: Mapping[str, Any]) -> None:
        members = record["members"]
        fields: Fields = {
            **_pick_fields(record, ("team",)),
            "members": [member["id"] for member in members],
            **_flat("config", record["config"]),
        }
        for member in members:
            fields.update(_flat(f"members[{member['id']}]", _pick_fields(member, ("name", "role"))))
        if self._known is None:
            self._told.settings.update(fields)
        else:
            keys = dict.fromkeys([*self._known, *fields])
            pairs = {key: [self._known.get(key), fields.get(key)] for key in keys}
            changed = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
            self._close()
            self._add("settings", "", changed)
        self._known = fields

    def _message(self, record: Mapping[str, Any]) -> None:
        message = record["message"]
        fields = {
            **_pick_fields(message, _AUTHOR),
            **self._said(message),
            **_pick_fields(record, ("unresolved", "planted")),
        }
        if record.get("chain") is not None:
            self._close()
            self._begin(fields)
            self._names[message["id"]] = "opening"
        elif self._chain is not None:
            self._chain["messages"].append(fields)
            self._names[message["id"]] = f"message {len(self._chain['messages'])}"
        else:
            self._add("message", f"{fields.get('author_id')}\n{fields.get('content', '')}", fields)

    def _turn_started(self, record: Mapping[str, Any]) -> None:
        turn = self._turn(record["turn"], record["depth"] + 1)
        turn.update(_pick_fields(record, _TURN))
        turn["trigger"] = [self._name(message) for message in record["trigger"]]

    def _reply_started(self, record: Mapping[str, Any]) -> None:
        self._adapters.setdefault(record["agent"], {})[record["adapter"]] = None
        outcome = record.get("failure") or record.get("output") or {}
        reply = self._reply(record)
        if record.get("attempt"):  # the one that counts follows
            reply.setdefault("earlier_attempts", []).append(outcome)
            return
        reply.update(_pick_fields(record, _STARTED))
        if "usage" in outcome:
            self._use(reply, outcome["usage"])
        agent_input = record.get("input") or {}
        reply.update(
            {f"input.{name}": value for name, value in _pick_fields(agent_input, OF_INPUT).items()}
        )
        if agent_input.get("messages"):
            reply["input.messages"] = sum(map(_count, agent_input["messages"]))

    def _reply_finished(self, record: Mapping[str, Any]) -> None:
        reply = self._reply(record)
        reply.update(_pick_fields(record, ("phase", "status")))
        message = record.get("message")
        if message:
            reply.update({**self._said(message), **_pick_fields(message, _AUTHOR)})
            turn = self._turn(record["turn"])
            self._names[message["id"]] = f"{record['agent']}, turn {turn['turn']}"
        reply.update(_pick_fields(record, _FINISHED))
        if record.get("usage"):
            self._use(reply, record["usage"])
        self._told.replies += record["status"] == "success"

    def _remembered(self, kind: str, record: Mapping[str, Any]) -> None:
        """Add work for the memory to the turn or chain at whose end it was done."""
        fields = _pick_fields(record, _REMEMBERED[kind])
        fields.update(
            (key, self._name(fields[key])) for key in ("message", "upto") if key in fields
        )
        if self._chain is None:
            self._add("message", f"{kind}\n{fields.get('note', '')}", {"memory": {kind: fields}})
            return
        turns = self._chain["turns"]
        target = turns[-1] if turns else self._chain["end"]
        target.setdefault("memory", []).append({kind: fields})

    def _said(self, message: Mapping[str, Any]) -> Fields:
        fields = _pick_fields(message, _MESSAGE)
        if message.get("attachments"):
            fields["attachments"] = [
                _attachment(attachment) for attachment in message["attachments"]
            ]
        if message.get("reply_to"):
            fields["reply_to"] = self._name(message["reply_to"])
        return fields

    def _name(self, message: str) -> str:
        """Return the name of a message among those of its chain."""
        return self._names.get(message, "before")

    def _use(self, reply: Fields, usage: Mapping[str, Any]) -> None:
        used = Usage.model_validate(usage)
        reply["usage"] = used.model_dump(mode="json")
        self._usages.append(used)
        if len(self._usages) > 256:
            self._sum_up()

    def _sum_up(self) -> None:
        usages = [self._told.usage, *self._usages] if self._told.usage else self._usages
        self._told.usage = Usage.total(usages) if usages else None
        self._usages = []

    def _open(self) -> Fields:
        """The open chain; where a file begins within one, the rest of it."""
        return self._chain if self._chain is not None else self._begin({})

    def _begin(self, opening: Fields) -> Fields:
        self._told.chains += 1
        chain = self._chain = {"opening": opening, "messages": [], "turns": [], "end": {}}
        return chain

    def _turn(self, number: int, of_chain: int | None = None) -> Fields:
        turn = self._turns.get(number)
        if turn is None:
            chain = self._open()
            turn = self._turns[number] = {
                "turn": of_chain or len(chain["turns"]) + 1,
                "replies": {},
            }
            chain["turns"].append(turn)
            self._told.turns += 1
        return turn

    def _reply(self, record: Mapping[str, Any]) -> Fields:
        reply = self._replies.get(record["reply"])
        if reply is None:
            replies = self._turn(record["turn"])["replies"]
            reply = self._replies[record["reply"]] = replies.setdefault(record["agent"], {})
        return reply

    def _close(self) -> None:
        chain, self._chain = self._chain, None
        if chain is None:
            return
        opening = chain["opening"]
        self._add("chain", f"{opening.get('author_id')}\n{opening.get('content', '')}", chain)
        self._turns.clear()
        self._replies.clear()
        self._names.clear()

    def _add(self, kind: Kind, key: str, content: Fields) -> None:
        chain = self._told.chains if kind == "chain" else None
        text = json.dumps(content, ensure_ascii=False)
        self._told.entries.append(Entry(kind, f"{kind}\n{key}", chain, text))


def _pick_fields(values: Mapping[str, Any], names: Iterable[str]) -> Fields:
    """Return the values that are present and not empty."""
    return {name: values[name] for name in names if values.get(name) not in _EMPTY}


def _flat(path: str, value: Any) -> Fields:
    """Every value in nested data by its place."""
    if not isinstance(value, Mapping):
        return {path: value} if value not in _EMPTY else {}
    fields: Fields = {}
    for name, item in value.items():
        fields.update(_flat(f"{path}.{name}", item))
    return fields


def _attachment(attachment: Mapping[str, Any]) -> Fields:
    """Return the fields that a transcript keeps of an attachment; recordings hold its content."""
    fields = _pick_fields(attachment, ("type", "name", "size", "sha256"))
    if "sha256" not in fields:
        data = attachment.get("data")
        if "data_base64" in attachment:
            data = base64.b64decode(attachment["data_base64"])
        content = log.decode_content(
            Attachment(type=attachment["type"], name=attachment["name"], data=data)
        )
        fields.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return fields


def _count(item: Any) -> int:
    """Count the messages that a part of a recorded input stands for (`m3-m7`)."""
    if isinstance(item, str) and "-" in item:
        first, last = item.split("-")
        return int(last[1:]) - int(first[1:]) + 1
    return 1


Side = Literal["a", "b"]


class Changed(Shape):
    """A field that differs, and what stands in it on both sides; None: nothing."""

    field: str
    a: Any
    b: Any


class ReplyDiff(Shape):
    """An agent's reply in a turn. `only`: the other side has none.

    `shown_otherwise`: it was shown something else, though all that was said before is the same.
    """

    agent: str
    only: Side | None = None
    shown_otherwise: bool = False
    fields: list[Changed] = []


class TurnDiff(Shape):
    """A turn, counted from 1 in its chain."""

    turn: int
    only: Side | None = None
    fields: list[Changed] = []
    replies: list[ReplyDiff] = []


class EntryDiff(Shape):
    """A chain, or what stands between chains. `a` and `b` number the chains of each side from 1.

    `opening` is what opened it, as A has it if it has it; `fields` are those of the opening
    message and of the end.
    """

    kind: Kind
    a: int | None = None
    b: int | None = None
    only: Side | None = None
    opening: str = ""
    fields: list[Changed] = []
    turns: list[TurnDiff] = []


class Parted(Shape):
    """The first place where a chain went another way; `turn` None: only its end did."""

    a: int
    b: int
    turn: int | None
    fields: list[Changed]


class Told(Shape):
    """The size of a conversation."""

    chains: int
    turns: int
    replies: int
    usage: Usage | None


class ConversationDiff(Shape):
    """A session beside another. `case` and `session` are those of a recording."""

    case: str | None = None
    session: str | None = None
    only: Side | None = None
    a: Told | None = None
    b: Told | None = None
    settings: list[Changed] = []
    parted: Parted | None = None
    entries: list[EntryDiff] = []

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not (self.only or self.settings or self.entries)


class Compared(Shape):
    """One side of a comparison: its name, as given, and its kind."""

    name: str
    kind: Literal["session", "recording", "result"]


class Difference(Shape):
    """Two sessions or recordings."""

    version: int = 1
    a: Compared
    b: Compared
    conversations: list[ConversationDiff]

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
    @property
    def same(self) -> bool:
        return all(conversation.same for conversation in self.conversations)


def of_session(events: Iterable[Event]) -> ComparedConversation:
    """A session from its events, from its beginning."""
    builder, ids = Builder(), dict[str, str]()
    for event in canonical.ordered(events):
        builder.take(canonical.canonicalize_event(event, ids))
    return builder.whole()


def of_recording(recording: Recording) -> list[ComparedConversation]:
    """Its conversations, those of each case in the order in which they began."""
    return [conversation for case in recording.cases.values() for conversation in _of_case(case)]


def _of_case(case: CaseRecord) -> Iterator[ComparedConversation]:
    builders: dict[str | None, Builder] = {}
    current: str | None = None
    step: int | None = 0
    for line in case.lines:
        if line["type"] == "step":
            step, current = line["step"], line["session"]
            continue
        builder = builders.get(current)
        if builder is None:
            builder = builders[current] = Builder(case.id, current)
        if line["type"] == "judge":
            builder.judge(line, step)
        else:
            builder.take(line)
    for builder in builders.values():
        for agent, line in case.agents.items():
            builder.settings(
                f"agents[{agent}]",
                {name: value for name, value in line.items() if name not in ("type", "agent")},
            )
        yield builder.whole()
