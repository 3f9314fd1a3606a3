"""Model conversations for comparison: entries without their positions, and their differences.

An entry is a chain, a message that opened none, a change of the team, or a judge's call. Numbers of
chains, turns and replies, and ids of messages, are left out of it or replaced by their referents,
so an additional chain at the beginning does not change the later ones. Sums that can be computed
again are left out too. Empty values are omitted, as in a recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import computed_field

from arena_cli.protocol import (
    Derived,
    Position,
    Shape,
    Usage,
    Volatile,
)
from arena_cli.scenarios.recording import file
from arena_cli.scenarios.recording.model import CaseRecord, Recording
from arena_cli.transcript import compare
from arena_cli.transcript.compare import EMPTY, Changed, FieldReader, drop_empty, list_changes
from arena_cli.transcript.conversation import Chain, Conversation, Reply, Turn, read_conversation
from arena_cli.transcript.events import Event, MessageEvent, SessionEvent, SideEvent

Kind = Literal["chain", "message", "settings", "judge"]
Fields = dict[str, Any]
Calls = Mapping[int, Sequence[Mapping[str, Any]]]

_OF_CALL = ("agent", "type")
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
        """Return the content: `opening`, `messages`, `turns`, `end` of a chain, else its fields."""
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

    def add(self, kind: Kind, key: str, content: Fields) -> None:
        """Add an entry; `key` matches it to the other side."""
        chain = self.chains if kind == "chain" else None
        text = json.dumps(content, ensure_ascii=False)
        self.entries.append(Entry(kind, f"{kind}\n{key}", chain, text))


def of_session(events: Iterable[Event]) -> ComparedConversation:
    """Return a session from its events, from its beginning."""
    return _compared_of(read_conversation(compare.ordered(events)))


def of_recording(recording: Recording) -> list[ComparedConversation]:
    """Return its conversations, those of each case in the order in which they began.

    Raises ValueError, KeyError, TypeError or AttributeError for a line that no recording has.
    """
    return [conversation for case in recording.cases.values() for conversation in of_case(case)]


def of_case(case: CaseRecord) -> Iterator[ComparedConversation]:
    """Yield the conversations of a case. Raises as `of_recording`."""
    sides: dict[str | None, _RecordedSide] = {}
    current: str | None = None
    step: int | None = 0
    for line in case.lines:
        if line["type"] == "step":
            step, current = line["step"], line["session"]
        else:
            sides.setdefault(current, _RecordedSide()).add(line, step)
    for session, side in sides.items():
        compared = _compared_of(side.conversation, case.id, session, side)
        for agent, line in case.agents.items():
            fields = {name: value for name, value in line.items() if name not in _OF_CALL}
            compared.settings.update(_flat(f"agents[{agent}]", fields))
        yield compared


class _RecordedSide:
    """A session of a recording: its conversation, and the data that only recordings have.

    `calls` are the lines of each reply's calls, `judged` those of judges, each with the number of
    items of the conversation before it.
    """

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.calls: dict[int, list[Mapping[str, Any]]] = {}
        self.judged: list[tuple[int, Fields]] = []

    def add(self, line: Mapping[str, Any], step: int | None) -> None:
        """Add a line; `step` is the one that it belongs to."""
        if line["type"] == "reply_started":
            self.calls.setdefault(line["reply"], []).append(line)
        elif line["type"] == "judge":
            output = line.get("output") or {}
            fields = {
                "agent": line["agent"],
                "step": step,
                **_pick_fields(line, ("input_hash", "failure")),
                **_pick_fields(output, ("content", "structured")),
            }
            self.judged.append((len(self.conversation.items), fields))
        event = file.restore(line)
        if event is not None:
            self.conversation.apply(event)


def _compared_of(
    conversation: Conversation,
    case: str | None = None,
    session: str | None = None,
    recorded: _RecordedSide | None = None,
) -> ComparedConversation:
    compared = ComparedConversation(case, session)
    calls = recorded.calls if recorded else {}
    left_out = (Volatile, Position, Derived) if recorded else (Volatile, Position)
    between = FieldReader(left_out)
    settings: Fields | None = None
    for number, item in enumerate((*conversation.items, None)):
        for before, fields in recorded.judged if recorded else ():
            if before == number:
                compared.add("judge", fields["agent"], fields)
        match item:
            case Chain():
                content = _ChainReader(calls, left_out).chain(item)
                compared.chains += 1
                compared.add("chain", _key_of(content["opening"]), content)
            case SessionEvent():
                _add_settings(settings, _settings_fields(item), compared)
                settings = _settings_fields(item)
            case MessageEvent():
                fields = between.message_event(item)
                compared.add("message", _key_of(fields), fields)
            case SideEvent():
                key = f"{item.type}\n{getattr(item, 'note', '') or getattr(item, 'task', '')}"
                compared.add("message", key, {"memory": {item.type: between.event(item)}})
            case _:
                pass
    _add_sums(conversation, calls, compared)
    return compared


def _add_sums(conversation: Conversation, calls: Calls, compared: ComparedConversation) -> None:
    """Add the size of a conversation, its usage, and the kinds of its agents."""
    turns = list(conversation.turns)
    replies = [reply for turn in turns for reply in turn.replies.values()]
    compared.turns = len(turns)
    ends = [done for turn in turns for done in turn.ends()]
    compared.replies = sum(done.status == "success" for done in ends)
    usages = [usage for reply in replies if (usage := _usage_of(reply, calls))]
    compared.usage = Usage.total(usages) if usages else None
    kinds: dict[str, dict[str, None]] = {}
    for reply in replies:
        if reply.adapter:
            kinds.setdefault(reply.agent, {})[reply.adapter] = None
    for agent, names in kinds.items():
        compared.settings.setdefault(f"agents[{agent}].adapter.type", ", ".join(names))


def _key_of(message: Fields) -> str:
    return f"{message.get('author_id')}\n{message.get('content', '')}"


def _add_settings(earlier: Fields | None, fields: Fields, compared: ComparedConversation) -> None:
    """Add the initial settings of a session, or those that a change of its team changes."""
    if earlier is None:
        compared.settings.update(fields)
        return
    changes = list_changes(earlier, fields)
    compared.add("settings", "", {change.field: [change.a, change.b] for change in changes})


def _settings_fields(event: SessionEvent) -> Fields:
    fields: Fields = {
        "team": event.team,
        "members": [member.id for member in event.members],
        **_flat("config", event.config),
    }
    for member in event.members:
        fields.update(_flat(f"members[{member.id}]", {"name": member.name, "role": member.role}))
    return drop_empty(fields)


class _ChainReader(FieldReader):
    """Reads a chain; `calls` are the recorded calls of replies, by their numbers."""

    def __init__(self, calls: Calls, left_out: tuple[type, ...]) -> None:
        super().__init__(left_out)
        self._calls = calls

    def chain(self, chain: Chain) -> Fields:
        """Return its `opening`, `messages`, `turns` and `end`."""
        opening = self._named(chain.opening, "opening") if chain.first else {}
        others = [
            event
            for event in chain.events
            if isinstance(event, MessageEvent) and event is not chain.first
        ]
        messages = [self._named(event, f"message {n}") for n, event in enumerate(others, 1)]
        turns = [self._turn(turn) for turn in chain.turns]
        end = self.event(chain.finished) if chain.finished else {}
        if not turns:
            end |= self._memory(event for event in chain.events if isinstance(event, SideEvent))
        return {"opening": opening, "messages": messages, "turns": turns, "end": end}

    def _named(self, event: MessageEvent, name: str) -> Fields:
        fields = self.message_event(event)
        self.names[event.message.id] = name
        return fields

    def _memory(self, events: Iterable[SideEvent]) -> Fields:
        memory = [{event.type: self.event(event)} for event in events]
        return {"memory": memory} if memory else {}

    def _turn(self, turn: Turn) -> Fields:
        number = turn.number
        fields: Fields = {"turn": number}
        for event in (turn.started, turn.candidates, turn.finished):
            fields |= self.event(event) if event else {}
        replies = {agent: self._reply(reply, number) for agent, reply in turn.replies.items()}
        return {**fields, "replies": replies, **self._memory(turn.side_events)}

    def _reply(self, reply: Reply, turn: int) -> Fields:
        fields = self.event(reply.started) if reply.started else {}
        for line in self._calls.get(reply.number, ()):
            if line.get("attempt"):  # the one that counts follows
                fields.setdefault("earlier_attempts", []).append(_outcome(line))
                continue
            fields |= _pick_fields(line, ("failure",))
            agent_input = line.get("input") or {}
            picked = _pick_fields(agent_input, OF_INPUT)
            fields |= {f"input.{name}": value for name, value in picked.items()}
            if agent_input.get("messages"):
                fields["input.messages"] = sum(map(_count, agent_input["messages"]))
        for done in reply.ends[-1:]:
            fields |= self.event(done)
            if done.message:
                fields |= self.message(done.message)
                self.names[done.message.id] = f"{reply.agent}, turn {turn}"
        usage = _usage_of(reply, self._calls)
        if usage is not None:
            fields["usage"] = usage.model_dump(mode="json")
        fields.pop("agent", None)
        return fields


def _outcome(line: Mapping[str, Any]) -> Mapping[str, Any]:
    return line.get("failure") or line.get("output") or {}


def _usage_of(reply: Reply, calls: Calls) -> Usage | None:
    """Return the usage of a reply, by its end, else by the recorded result."""
    if reply.ends and reply.ends[-1].usage is not None:
        return reply.ends[-1].usage
    for line in calls.get(reply.number, ()):
        if "usage" in _outcome(line) and not line.get("attempt"):
            return Usage.model_validate(_outcome(line)["usage"])
    return None


def _pick_fields(values: Mapping[str, Any], names: Iterable[str]) -> Fields:
    """Return the values that are present and not empty."""
    return {name: values[name] for name in names if values.get(name) not in EMPTY}


def _flat(path: str, value: Any) -> Fields:
    """Return every value in nested data by its path."""
    if not isinstance(value, Mapping):
        return {path: value} if value not in EMPTY else {}
    fields: Fields = {}
    for name, item in value.items():
        fields.update(_flat(f"{path}.{name}", item))
    return fields


def _count(item: Any) -> int:
    """Count the messages that an item of a recorded input covers (`m3-m7`)."""
    if isinstance(item, str) and "-" in item:
        first, last = item.split("-")
        return int(last[1:]) - int(first[1:]) + 1
    return 1


Side = Literal["a", "b"]


class ReplyDiff(Shape):
    """An agent's reply in a turn. `only`: the other side has none.

    `shown_otherwise`: its input differs, though all earlier messages are the same.
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
    """The differences of a chain, or of an event between chains.

    `a` and `b` number the chains of each side from 1. `opening` is the opening message, from A if A
    has it; `fields` are those of the opening message and of the end.
    """

    kind: Kind
    a: int | None = None
    b: int | None = None
    only: Side | None = None
    opening: str = ""
    fields: list[Changed] = []
    turns: list[TurnDiff] = []


class Parted(Shape):
    """The first place where a chain took another course; `turn` None: only its end differs."""

    a: int
    b: int
    turn: int | None
    fields: list[Changed]


class ConversationSize(Shape):
    """The size of a conversation."""

    chains: int
    turns: int
    replies: int
    usage: Usage | None


class ConversationDiff(Shape):
    """The differences of two sessions. `case` and `session` are those of a recording."""

    case: str | None = None
    session: str | None = None
    only: Side | None = None
    a: ConversationSize | None = None
    b: ConversationSize | None = None
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
