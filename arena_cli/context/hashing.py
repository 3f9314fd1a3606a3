"""The hash of an input, and of one message as an agent is shown it (docs/reference/adapters.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from arena_cli.protocol import (
    AgentInput,
    Attachment,
    ExampleTurn,
    Invocation,
    MemberInfo,
    Shape,
    ShownMessage,
    Supervision,
    ToolSpec,
)

_canonical = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
).encode


def message_digest(message: ShownMessage) -> str:
    """Return the hash of one message as an agent is shown it, in hexadecimal."""
    return _sha256(_message_fields(message))


def message_digests(message: ShownMessage) -> tuple[str, str]:
    """Return the hashes of a message as other agents, and as its author, are shown it."""
    fields = _message_fields(message)
    return _sha256(fields), _sha256({**fields, "role": _canonical_name("assistant")})


def _message_fields(message: ShownMessage) -> dict[str, str]:
    """Return the fields of a message that are hashed, in canonical form."""
    fields = {
        "author_id": _canonical_name(message.author_id),
        "author_name": _canonical_name(message.author_name),
        "author_type": _canonical_name(message.author_type),
        "content": _canonical(message.content),
        "role": _canonical_name(message.role),
    }
    if message.mentions:
        fields["mentions"] = _canonical(message.mentions)
    if message.kind != "chat":
        fields["kind"] = _canonical(message.kind)
    if message.corrected_by:
        fields["corrected_by"] = _canonical(message.corrected_by)
    if message.thread:
        fields["thread"] = _canonical([message.thread, *message.shown_to])
    if message.quoted:
        fields["quoted"] = _canonical(message.quoted)
    if message.reactions:
        fields["reactions"] = _canonical(message.reactions)
    if message.attachments:
        fields["attachments"] = _canonical([_attachment(item) for item in message.attachments])
    if message.structured:
        fields["structured"] = _canonical([_shape_fields(item) for item in message.structured])
    return fields


class _Hash(Protocol):
    """A hash as hashlib makes it."""

    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> _Hash: ...
    def hexdigest(self) -> str: ...


class _HashedMessages(NamedTuple):
    """The hash of an input up to its last message, and what it is the hash of."""

    before: str
    message_digests: Sequence[str]
    hashed: _Hash


class HeadDigest:
    """The hash of the common part of an agent's inputs; `of` completes it for one input."""

    def __init__(
        self,
        agent_id: str,
        role_prompt: str,
        members: Iterable[MemberInfo],
        max_output_tokens: int = AgentInput.model_fields["max_output_tokens"].default,
        tools: Sequence[ToolSpec] = (),
        examples: Sequence[ExampleTurn] = (),
    ) -> None:
        common: dict[str, Any] = {"agent_id": agent_id, "role_prompt": role_prompt}
        if max_output_tokens != AgentInput.model_fields["max_output_tokens"].default:
            common["max_output_tokens"] = max_output_tokens
        self._common = {key: _canonical(value) for key, value in common.items()}
        team = tuple(members)
        if team:
            self._common["members"] = _canonical_members(team)
        if tools:
            self._common["tools"] = _canonical([_shape_fields(tool) for tool in tools])
        self._last = _HashedMessages("", [""], hashlib.sha256())
        if examples:
            self._common["examples"] = _canonical([_shape_fields(turn) for turn in examples])

    def of(
        self,
        invocation: Invocation,
        turn: int,
        message_digests: Sequence[str],
        *,
        mentioned_by: Sequence[str] = (),
        memory_context: str | None = None,
        prefer_concise: bool = False,
        brief: str = "",
        supervision: Supervision | None = None,
    ) -> str:
        """Return the hash of one input, in hexadecimal."""
        fields = {**self._common, "invocation": _canonical(invocation), "turn": str(turn)}
        if memory_context is not None:
            fields["memory_context"] = _canonical_memory(memory_context)
        if prefer_concise:
            fields["prefer_concise"] = "true"
        if brief:
            fields["brief"] = _canonical(brief)
        if supervision is not None:
            fields["supervision"] = _canonical(supervision.model_dump(mode="json"))
        if mentioned_by:
            fields["mentioned_by"] = _canonical(list(mentioned_by))
        if not message_digests:
            return _sha256(fields)
        before = _join_fields({key: fields[key] for key in fields if key < "messages"})
        after = _join_fields({key: fields[key] for key in fields if key > "messages"})
        hashed = self._hash_messages(f'{{{before},"messages":["', message_digests).copy()
        hashed.update(f'"],{after}}}'.encode("utf-8", "surrogatepass"))
        return hashed.hexdigest()

    def _hash_messages(self, before: str, message_digests: Sequence[str]) -> _Hash:
        """Return the hash of a text and the messages after it, continued from the last input.

        Most inputs are the one before and a few messages more.
        """
        last = self._last
        known = len(last.message_digests)
        if last.before == before and last.message_digests == message_digests[:known]:
            hashed, new = last.hashed.copy(), message_digests[known:]
            text = "".join([f'","{digest}' for digest in new])
        else:
            hashed, text = hashlib.sha256(), before + '","'.join(message_digests)
        hashed.update(text.encode("utf-8", "surrogatepass"))
        self._last = _HashedMessages(before, message_digests, hashed)
        return hashed


def input_digest(input: AgentInput) -> str:
    """Return the hash of one input, in hexadecimal, without a prepared `HeadDigest`."""
    head = HeadDigest(
        input.agent_id,
        input.role_prompt,
        input.members,
        input.max_output_tokens,
        input.tools,
        input.examples,
    )
    digests = [message_digest(message) for message in input.messages]
    return head.of(
        input.invocation,
        input.turn,
        digests,
        mentioned_by=input.mentioned_by,
        memory_context=input.memory_context,
        prefer_concise=input.prefer_concise,
        brief=input.brief,
        supervision=input.supervision,
    )


@lru_cache(maxsize=1_024)
def _canonical_name(name: str) -> str:
    return _canonical(name)


@lru_cache(maxsize=16)
def _canonical_memory(memory: str) -> str:
    """Return a text of the memory in canonical form; a long summary is the same in many calls."""
    return _canonical(memory)


@lru_cache(maxsize=64)
def _canonical_members(members: tuple[MemberInfo, ...]) -> str:
    return _canonical([_shape_fields(member) for member in members])


def _shape_fields(shape: Shape, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields that do not have their default value."""
    fields = type(shape).model_fields
    return {
        name: value
        for name, value in shape
        if name not in leave_out and (fields[name].is_required() or value != fields[name].default)
    }


def _attachment(attachment: Attachment) -> Mapping[str, Any]:
    return _shape_fields(attachment, leave_out=("path",))


def _sha256(fields: Mapping[str, str]) -> str:
    """Return the hash of an object whose values are already in canonical form."""
    text = f"{{{_join_fields(fields)}}}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _join_fields(fields: Mapping[str, str]) -> str:
    return ",".join([f'"{key}":{fields[key]}' for key in sorted(fields)])
