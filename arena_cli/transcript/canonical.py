"""The canonical form of a session: what two of them have in common when the same came of both.

Left out is what differs from run to run: `recovered`, `resumed`, `status`; times, `seq`, `attempt`,
`attempts`, `latency_ms`, `agent_session`, `metadata`, attachments' `path`; replies that were
cancelled, and every attempt of a reply but its last. Within a phase replies stand in order of call,
begun before finished, and deviations after them; messages are numbered `m1`, `m2`, ... in the order
that comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from arena_cli.transcript.events import (
    Deviation,
    Event,
    Recovered,
    ReplyFinished,
    ReplyStarted,
    Resumed,
    StatusReported,
)

_LEFT_OUT = (Recovered, Resumed, StatusReported)
_VARIES = frozenset({"seq", "ts", "attempt", "attempts", "latency_ms", "agent_session", "metadata"})
_VARIES_IN_MESSAGE = frozenset({"timestamp", "metadata"})
_MESSAGE_IDS = ("message", "upto")  # fields of events that name one


def canonicalize(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events of one session, from its beginning, as plain JSON records in canonical order."""
    ids: dict[str, str] = {}
    return [canonicalize_event(event, ids) for event in ordered(events)]


def ordered(events: Iterable[Event]) -> Iterator[Event]:
    """The events that count, in canonical order; each phase is held until it is over."""
    events = list(events)
    # An open phase may have been left and gone back to, with something else in between.
    last = {event.reply: event for event in events if isinstance(event, ReplyStarted)}
    started: dict[int, ReplyStarted] = {}
    finished: dict[int, ReplyFinished] = {}
    unheeded: list[Deviation] = []
    for event in events:
        if isinstance(event, ReplyStarted):
            if last[event.reply] is event:
                started[event.reply] = event
        elif isinstance(event, ReplyFinished):
            if event.status == "cancelled":
                started.pop(event.reply, None)
            else:
                finished[event.reply] = event
        elif isinstance(event, Deviation):
            unheeded.append(event)
        elif not isinstance(event, _LEFT_OUT):
            if started or finished or unheeded:
                yield from _phase(started, finished, unheeded)
            yield event
    yield from _phase(started, finished, unheeded)


def _phase(
    started: dict[int, ReplyStarted], finished: dict[int, ReplyFinished], unheeded: list[Deviation]
) -> Iterator[Event]:
    for phase in ("A", "B"):
        yield from (started[number] for number in sorted(started) if started[number].phase == phase)
        yield from (
            finished[number] for number in sorted(finished) if finished[number].phase == phase
        )
    yield from sorted(unheeded, key=lambda event: (event.reply, event.note))
    started.clear()
    finished.clear()
    unheeded.clear()


def canonicalize_event(event: Event, ids: dict[str, str]) -> dict[str, Any]:
    """Return an event as a canonical record; `ids` maps ids of the transcript to new ones."""
    fields = event.model_dump(mode="json", exclude=set(_VARIES))
    message = fields.get("message")
    if isinstance(message, dict):
        ids[message["id"]] = f"m{len(ids) + 1}"
        fields["message"] = _message(message, ids)
    if "trigger" in fields:
        fields["trigger"] = [ids.get(name, name) for name in fields["trigger"]]
    for name in _MESSAGE_IDS:
        if isinstance(fields.get(name), str):
            fields[name] = ids.get(fields[name], fields[name])
    return fields


def _message(message: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    fields = {key: value for key, value in message.items() if key not in _VARIES_IN_MESSAGE}
    fields["id"] = ids[fields["id"]]
    fields["reply_to"] = ids.get(fields["reply_to"], fields["reply_to"])
    fields["attachments"] = [
        {key: value for key, value in attachment.items() if key != "path"}
        for attachment in fields["attachments"]
    ]
    return fields
