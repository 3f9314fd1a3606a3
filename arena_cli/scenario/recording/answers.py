"""What came of one call of an agent, as it stands in a recording.

An `output` is the answer as it was read at the edge, redacted: `content`, and of `declined`,
`next_mentions` (names, as the agent gave them), `structured`, `attachments` (with their content),
`usage`, `scripted` (which entry of a script it was), `model` and `input_counted` (whether its
count is that of just what was shown) what there was. A `failure` is the class of
what was raised (`deadline` where the time ran out) with its words, `partial` text, and `usage`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.ground import errors
from arena_cli.ground.errors import AgentError, AgentOverloaded, AgentRefused
from arena_cli.ground.protocol import (
    AgentOutput,
    Attachment,
    StructuredContent,
    TextDelta,
    Usage,
)

DEADLINE = "deadline"

# What of a call's metadata the session goes by later.
_NOTED = ("scripted", "model", "input_counted")
_BYTES = "data_base64"
_WORDS = ("what", "came", "mend")
_FAILURES: dict[str, type[AgentError]] = {
    one.__name__: one
    for one in (
        errors.AgentTimeout,
        errors.AgentRefused,
        errors.AgentOverloaded,
        errors.AgentUnavailable,
        errors.AgentProtocolError,
    )
}


def output(answer: Answer, heard: Heard) -> dict[str, Any]:
    """An answer as a record."""
    said = answer.output
    told: dict[str, Any] = {"content": said.content}
    if answer.declined:
        told["declined"] = True
    if said.next_mentions:
        told["next_mentions"] = list(said.next_mentions)
    if said.structured:
        told["structured"] = [part.model_dump(mode="json") for part in said.structured]
    if said.attachments:
        told["attachments"] = [_attachment(part) for part in said.attachments]
    if said.usage is not None:
        told["usage"] = _usage(said.usage)
    return {**told, **_noted({**heard.notes, **said.metadata})}


def failure(error: AgentError | None, heard: Heard) -> dict[str, Any]:
    """A failed call as a record; None is one that had no time left.

    What the agent was asked is left out: it names folders and programs of this machine.
    """
    if error is None:
        told: dict[str, Any] = {"kind": DEADLINE}
    else:
        told = {"kind": type(error).__name__}
        told.update((name, text) for name in _WORDS if (text := getattr(error, name)))
        if not error.again:
            told["again"] = False
        if isinstance(error, AgentRefused) and error.overflow:
            told["overflow"] = True
        if isinstance(error, AgentOverloaded) and error.retry_after is not None:
            told["retry_after"] = error.retry_after
    partial = heard.metadata(failed=True).get("partial")
    if partial:
        told["partial"] = partial
    if heard.usage is not None:
        told["usage"] = _usage(heard.usage)
    return {**told, **_noted(heard.notes)}


def _noted(notes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: notes[key] for key in _NOTED if key in notes}


def _usage(usage: Usage) -> dict[str, Any]:
    return usage.model_dump(mode="json", exclude_defaults=True)


def _attachment(part: Attachment) -> dict[str, Any]:
    if isinstance(part.data, bytes):
        data = {_BYTES: base64.b64encode(part.data).decode("ascii")}
    else:
        data = {"data": part.data}
    return {"type": part.type, "name": part.name, **data}


def answered(record: Mapping[str, Any], heard: Heard) -> Answer:
    """The answer that stands in a record."""
    _tell(record, heard)
    told: dict[str, Any] = {"content": str(record["content"])}
    if "next_mentions" in record:
        told["next_mentions"] = [str(name) for name in record["next_mentions"]]
    if "structured" in record:
        told["structured"] = [StructuredContent.model_validate(one) for one in record["structured"]]
    if "attachments" in record:
        parts = map(with_data, record["attachments"])
        told["attachments"] = [Attachment.model_validate(part) for part in parts]
    if "usage" in record:
        told["usage"] = Usage.model_validate(record["usage"])
    # It was read when it was recorded: reading it again would cost more than all the rest.
    return Answer(AgentOutput.model_construct(**told), bool(record.get("declined")))


def failed(record: Mapping[str, Any], agent_id: str, heard: Heard) -> Exception:
    """What is raised for the failure that stands in a record."""
    _tell(record, heard)
    if "usage" in record:
        heard(Usage.model_validate(record["usage"]))
    if record["kind"] == DEADLINE:
        return TimeoutError()
    kind = _FAILURES.get(record["kind"], errors.AgentProtocolError)
    what, came, mend = (str(record.get(name, "")) for name in _WORDS)
    error = kind(agent_id, what, came=came, mend=mend, again=record.get("again", True))
    if isinstance(error, AgentOverloaded):
        error.retry_after = record.get("retry_after")
    if isinstance(error, AgentRefused):
        error.overflow = record.get("overflow") is True
    return error


def _tell(record: Mapping[str, Any], heard: Heard) -> None:
    heard.notes.update((key, record[key]) for key in _NOTED if key in record)
    if record.get("partial"):
        heard(TextDelta(record["partial"]))


def with_data(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """An attachment of a record as the agent gave it."""
    if _BYTES not in part:
        return part
    rest = {key: value for key, value in part.items() if key != _BYTES}
    return {**rest, "data": base64.b64decode(part[_BYTES])}
