"""Compare two conversations: their canonical forms, fields of events, and sequences.

The canonical form of a session is equal for two runs with the same results. It leaves out all that
differs from run to run: events and fields that are marked as volatile, replies that were cancelled,
and every attempt of a reply but its last. Within a phase replies follow in order of call,
beginnings before ends (but not in a sequence), and side events about them after these. Messages are
numbered `m1`, `m2`, ... in the resulting order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo

from arena_cli.protocol import (
    Attachment,
    Derived,
    Message,
    MessageRef,
    Position,
    Shape,
    Usage,
    Volatile,
)
from arena_cli.transcript import log
from arena_cli.transcript.events import (
    Event,
    MessageEvent,
    ReplyFinished,
    ReplyStarted,
    SideEvent,
    TurnStarted,
    find_type,
    list_fields,
    parse,
)
from arena_cli.transcript.revisions import list_visible

EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values that count as no value: recordings leave them out."""

T = TypeVar("T")


class Changed(Shape):
    """A field that differs, and its value on both sides; None means no value."""

    field: str
    a: Any
    b: Any


def list_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Changed]:
    """Return the fields that differ, in the order of both."""
    return [
        Changed(field=name, a=a.get(name), b=b.get(name))
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    ]


def first_change(a: Sequence[T], b: Sequence[T]) -> tuple[T | None, T | None] | None:
    """Return the first items that differ; None for a missing item, or if all are equal."""
    for index in range(max(len(a), len(b))):
        pair = (a[index] if index < len(a) else None, b[index] if index < len(b) else None)
        if pair[0] != pair[1]:
            return pair
    return None


class FieldReader:
    """Reads the fields of events that are compared: not those with markers in `left_out`.

    `names` has a name for each known message, by its id.
    """

    def __init__(self, left_out: tuple[type, ...]) -> None:
        self._left_out = left_out
        self.names: dict[str, str] = {}

    def event(self, shape: Shape) -> dict[str, Any]:
        """Return the fields of an event, or of a message, without its text and empty values."""
        left_out = {*list_fields(type(shape), *self._left_out), "type", "attachments"}
        if isinstance(getattr(shape, "message", None), Message):
            left_out.add("message")
        fields = shape.model_dump(mode="json", exclude=left_out)
        for name in list_fields(type(shape), MessageRef) & fields.keys():
            value = fields[name]
            if isinstance(value, list):
                fields[name] = [self.names.get(message, "before") for message in value]
            elif value:
                fields[name] = self.names.get(value, "before")
        return drop_empty(fields)

    def message_event(self, event: MessageEvent) -> dict[str, Any]:
        """Return the fields of an event and of the message that it carries."""
        return self.message(event.message) | self.event(event)

    def message(self, message: Message) -> dict[str, Any]:
        """Return the fields of a message."""
        fields = self.event(message)
        fields.pop("id")
        if message.attachments:
            fields["attachments"] = [_attachment(attachment) for attachment in message.attachments]
        return fields


def _attachment(attachment: Attachment) -> dict[str, Any]:
    """Return the fields of an attachment that a transcript keeps; recordings hold its content."""
    fields = attachment.model_dump(mode="json", include={"type", "name", "size", "sha256"})
    if attachment.sha256 is None:
        content = log.decode_content(attachment)
        fields.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return drop_empty(fields)


def drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in EMPTY}


def canonicalize(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the events of one session, from its beginning, as JSON records in canonical order."""
    ids: dict[str, str] = {}
    return [canonicalize_event(event, ids) for event in ordered(events)]


def ordered(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events that count, in canonical order; each phase is held until it is over.

    What a rewind skips does not count, and messages are as agents are shown them now.
    """
    events = list_visible(events)
    phase = _OpenPhase(events)
    is_sequence = False
    for event in events:
        if phase.take(event) or event.volatile:
            continue
        yield from phase.release(is_sequence=is_sequence)
        if isinstance(event, TurnStarted):
            is_sequence = event.order == "sequence"
        yield event
    yield from phase.release(is_sequence=is_sequence)


class _OpenPhase:
    """The events about the replies of a phase, until it is over."""

    def __init__(self, events: Iterable[Event]) -> None:
        # An open phase may have been left and gone back to, with something else in between.
        self._last = {event.reply: event for event in events if isinstance(event, ReplyStarted)}
        self._started: dict[int, ReplyStarted] = {}
        self._finished: dict[int, ReplyFinished] = {}
        self._about_replies: list[SideEvent | MessageEvent] = []

    def take(self, event: Event) -> bool:
        """Hold an event about a reply; return False for others."""
        if isinstance(event, ReplyStarted):
            if self._last[event.reply] is event:
                self._started[event.reply] = event
        elif isinstance(event, ReplyFinished):
            if event.status == "cancelled":
                self._started.pop(event.reply, None)
            else:
                self._finished[event.reply] = event
        elif (isinstance(event, SideEvent) and getattr(event, "reply", None) is not None) or (
            isinstance(event, MessageEvent) and event.exchange
        ):
            self._about_replies.append(event)
        else:
            return False
        return True

    def release(self, *, is_sequence: bool) -> Iterator[Event]:
        """Yield the events in canonical order, and hold none of them any more."""
        if is_sequence:  # an agent is shown the reply before its own, so that has to come first
            yield from self._release_phase_a()
        for phase in ("A", "B"):
            started, finished = self._started, self._finished
            yield from (
                started[reply] for reply in sorted(started) if started[reply].phase == phase
            )
            yield from (
                finished[reply] for reply in sorted(finished) if finished[reply].phase == phase
            )
        yield from sorted(_drop_repeated(self._about_replies), key=_order_of)
        self._started.clear()
        self._finished.clear()
        self._about_replies.clear()

    def _release_phase_a(self) -> Iterator[Event]:
        """Yield the replies of phase A, the start and the end of each together."""
        for reply in sorted(self._started.keys() | self._finished.keys()):
            started, finished = self._started.get(reply), self._finished.get(reply)
            if started is not None and started.phase == "A":
                yield self._started.pop(reply)
            if finished is not None and finished.phase == "A":
                yield self._finished.pop(reply)


def _drop_repeated(
    events: Sequence[SideEvent | MessageEvent],
) -> Iterator[SideEvent | MessageEvent]:
    """Yield the events without those that were written again later."""
    last = {_place_in_reply(event): event for event in events if event.is_repeated}
    for event in events:
        if not event.is_repeated or last[_place_in_reply(event)] is event:
            yield event


def _place_in_reply(event: SideEvent | MessageEvent) -> tuple[int, str]:
    return getattr(event, "reply", 0), event.order_in_reply


def _order_of(event: SideEvent | MessageEvent) -> tuple[int, str, str]:
    """Return the key that sorts events about replies: by reply, its calls, then by content."""
    left_out = {"seq", "ts", *list_fields(type(event), Position)}
    content = event.model_dump_json(exclude=left_out)
    return getattr(event, "reply", 0), event.order_in_reply, content


def canonicalize_event(event: Event, ids: dict[str, str]) -> dict[str, Any]:
    """Return an event as a canonical record; `ids` maps ids of the transcript to new ones."""
    form = _form(type(event))
    fields = event.model_dump(mode="json", exclude=form.volatile)
    message = fields.get("message") if form.has_message else None
    if message:
        ids[message["id"]] = f"m{len(ids) + 1}"
        for name in _MESSAGE_REFS:
            message[name] = ids.get(message[name], message[name])
    for name in form.refs & fields.keys():
        fields[name] = replace_ids(fields[name], ids)
    return fields


def replace_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return the id of a message, or a list of them, as `ids` has them."""
    if isinstance(value, list):
        return [ids.get(name, name) for name in value]
    return ids.get(value, value)


class _Form(NamedTuple):
    """The canonical form of a kind of event.

    `volatile` is what pydantic leaves out of it, `refs` the fields with ids of messages.
    """

    volatile: dict[str, Any]
    refs: frozenset[str]
    has_message: bool


_MESSAGE_REFS = list_fields(Message, MessageRef)


@cache
def _form(shape: type[Event]) -> _Form:
    has_message = _nested_shape(shape.model_fields.get("message")) is Message
    return _Form(_list_volatile(shape), list_fields(shape, MessageRef), has_message)


def _list_volatile(shape: type[Shape]) -> dict[str, Any]:
    """Return the volatile fields of a shape and of nested ones, as `model_dump` excludes them."""
    excluded: dict[str, Any] = dict.fromkeys(list_fields(shape, Volatile), True)
    for name, field in shape.model_fields.items():
        nested = _nested_shape(field)
        below = _list_volatile(nested) if nested and name not in excluded else {}
        if below:
            excluded[name] = {"__all__": below} if get_origin(field.annotation) is list else below
    return excluded


def _nested_shape(field: FieldInfo | None) -> type[Shape] | None:
    """Return the shape that a field holds, or that the items of its list are."""
    annotation = field.annotation if field else None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Shape):
            return candidate
    return None


def restore(record: Mapping[str, Any]) -> Event | None:
    """Return the event of a canonical or recorded line, which lacks volatile and derived fields.

    Such fields have their default, else an empty value. Returns None for a type that this version
    does not know. Raises ValueError if a field is wrong, or if another one is missing.
    """
    shape = find_type(str(record.get("type")))
    if shape is None:
        return None
    completed = {**_list_blanks(shape), **record}
    if isinstance(completed.get("message"), dict):
        completed["message"] = {"timestamp": "", **completed["message"]}
    return parse(completed)


@cache
def _list_blanks(shape: type[Event]) -> dict[str, Any]:
    """Return an empty value for each required field that is volatile or derived."""
    empty: dict[Any, Any] = {int: 0, float: 0.0, str: "", Usage: {}}
    fields = shape.model_fields
    names = list_fields(shape, Volatile, Derived)
    return {name: empty[fields[name].annotation] for name in names if fields[name].is_required()}
