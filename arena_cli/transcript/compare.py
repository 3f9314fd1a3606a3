"""Compare parts of two conversations: fields of events by their markers, and sequences.

`arena diff`, the drift of a replay and the comparison of two runs use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from arena_cli.protocol import Attachment, Message, MessageRef, Shape
from arena_cli.transcript import log
from arena_cli.transcript.events import MessageEvent, list_fields

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
