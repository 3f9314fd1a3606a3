"""The hash of what an agent was shown: the same content, the same hash, in every session.

It is SHA-256 over the `AgentInput` as canonical JSON (fields at their default left out, keys
sorted, no spaces, UTF-8), in which each message is replaced by its own hash, made the same way.
Left out is what says where and when: `session_id, turn_id, trigger, call, deadline_s`, and of
messages `id, turn_id, reply_to, timestamp, metadata` and the attachments' `path`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from arena_cli.ground.protocol import (
    AgentInput,
    Attachment,
    Invocation,
    MemberInfo,
    Shape,
    ShownMessage,
)

_canonical = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
).encode

_MESSAGE_FIELDS = ("author_id", "author_name", "author_type", "content", "role")


def message_digest(message: ShownMessage) -> str:
    """The hash of one message as an agent is shown it, in hexadecimal."""
    fields = {name: _canonical(getattr(message, name)) for name in _MESSAGE_FIELDS}
    if message.mentions:
        fields["mentions"] = _canonical(message.mentions)
    if message.kind != "chat":
        fields["kind"] = _canonical(message.kind)
    if message.attachments:
        fields["attachments"] = _canonical([_attachment(part) for part in message.attachments])
    if message.structured:
        fields["structured"] = _canonical([_told(part) for part in message.structured])
    return _sha256(fields)


class HeadDigest:
    """What an agent's inputs have in common, made canonical once; `of` makes an input's hash."""

    def __init__(
        self,
        agent_id: str,
        role_prompt: str,
        members: Iterable[MemberInfo],
        max_output_tokens: int = AgentInput.model_fields["max_output_tokens"].default,
    ) -> None:
        common: dict[str, Any] = {"agent_id": agent_id, "role_prompt": role_prompt}
        if max_output_tokens != AgentInput.model_fields["max_output_tokens"].default:
            common["max_output_tokens"] = max_output_tokens
        self._common = {key: _canonical(value) for key, value in common.items()}
        team = tuple(members)
        if team:
            self._common["members"] = _canonical_members(team)

    def of(
        self,
        invocation: Invocation,
        turn: int,
        message_digests: Sequence[str],
        *,
        mentioned_by: Sequence[str] = (),
        memory_context: str | None = None,
        prefer_concise: bool = False,
    ) -> str:
        """The hash of one input, in hexadecimal."""
        fields = {**self._common, "invocation": _canonical(invocation), "turn": str(turn)}
        if memory_context is not None:
            fields["memory_context"] = _canonical(memory_context)
        if prefer_concise:
            fields["prefer_concise"] = "true"
        if mentioned_by:
            fields["mentioned_by"] = _canonical(list(mentioned_by))
        if message_digests:
            fields["messages"] = '["' + '","'.join(message_digests) + '"]'
        return _sha256(fields)


def input_digest(input: AgentInput) -> str:
    """The hash of one input by itself, in hexadecimal; that of its head is made anew."""
    head = HeadDigest(input.agent_id, input.role_prompt, input.members, input.max_output_tokens)
    digests = [message_digest(message) for message in input.messages]
    return head.of(
        input.invocation,
        input.turn,
        digests,
        mentioned_by=input.mentioned_by,
        memory_context=input.memory_context,
        prefer_concise=input.prefer_concise,
    )


@lru_cache(maxsize=64)
def _canonical_members(members: tuple[MemberInfo, ...]) -> str:
    return _canonical([_told(member) for member in members])


def _told(shape: Shape, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """The fields that are not at their default."""
    fields = type(shape).model_fields
    return {
        name: value
        for name, value in shape
        if name not in leave_out and (fields[name].is_required() or value != fields[name].default)
    }


def _attachment(attachment: Attachment) -> Mapping[str, Any]:
    return _told(attachment, leave_out=("path",))


def _sha256(fields: Mapping[str, str]) -> str:
    """The hash of an object whose values are canonical already."""
    text = "{" + ",".join([f'"{key}":{fields[key]}' for key in sorted(fields)]) + "}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
