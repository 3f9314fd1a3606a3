"""Compare what an agent was shown with what it is shown now, apart from what cannot matter.

Both sides lose what `ignore` matches, and the white space at the end of a role prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from arena_cli.ground.protocol import AgentInput, Attachment
from arena_cli.ground.redact import Redactor
from arena_cli.scenario.recording import answers
from arena_cli.scenario.recording.ignoring import Ignoring
from arena_cli.transcript import attachments

FIELDS = (
    "role_prompt",
    "members",
    "memory_context",
    "prefer_concise",
    "max_output_tokens",
    "mentioned_by",
    "turn",
)
MESSAGES = "messages"

_DEFAULTS = {name: AgentInput.model_fields[name].default for name in FIELDS}
_TEXTS = ("role_prompt", "memory_context")


def normalize_input(input: AgentInput, ignoring: Ignoring, redactor: Redactor) -> dict[str, Any]:
    """Return the fields of an input as they are compared."""
    fields = ignoring.input(input).model_dump(mode="json")
    fields["role_prompt"] = redactor.text(fields["role_prompt"])
    return normalize(fields, ignoring)


def normalize(fields: Mapping[str, Any], ignoring: Ignoring) -> dict[str, Any]:
    """Return the fields of a recorded input (`CaseRecord.shown`) as they are compared."""
    normal = {name: fields.get(name, _DEFAULTS[name]) for name in FIELDS}
    for name in _TEXTS:
        if normal[name] is not None:
            normal[name] = ignoring.text(normal[name])
    normal["role_prompt"] = normal["role_prompt"].rstrip()
    normal[MESSAGES] = fields[MESSAGES]
    return normal


def is_same(before: Mapping[str, Any], after: Mapping[str, Any], ignoring: Ignoring) -> bool:
    """Return whether two normalized inputs show an agent the same."""
    if any(before[name] != after[name] for name in FIELDS):
        return False
    was, now = before[MESSAGES], after[MESSAGES]
    return len(was) == len(now) and all(
        _is_same_message(*pair, ignoring) for pair in zip(was, now, strict=True)
    )


def _is_same_message(
    before: Mapping[str, Any], after: Mapping[str, Any], ignoring: Ignoring
) -> bool:
    if any(before.get(name) != after.get(name) for name in ("author_id", "author_type")):
        return False
    if "mentions" not in before:  # it is no message of the session: nothing else is recorded of it
        after = {name: after.get(name) for name in before}
    return message_text(before, ignoring) == message_text(after, ignoring)


def message_text(message: Mapping[str, Any], ignoring: Ignoring) -> str:
    """Return a message as a text: its author, its content, and what goes with it."""
    author = message.get("author_name") or message.get("author_id", "")
    kind = message.get("kind", "chat")
    parts = [f"{author}: " if kind == "chat" else f"{author} ({kind}): "]
    parts.append(ignoring.text(str(message.get("content", ""))))
    if message.get("mentions"):
        parts.append(f"\n→ {', '.join(message['mentions'])}")
    parts += [f"\n[{_attachment_text(part)}]" for part in message.get("attachments") or ()]
    parts += [
        f"\n[{part['type']}: {json.dumps(part['data'], ensure_ascii=False)}]"
        for part in message.get("structured") or ()
    ]
    return "".join(parts)


def _attachment_text(part: Mapping[str, Any]) -> str:
    """Return an attachment by its size and hash, whether or not its content is recorded."""
    record = part
    if "size" not in part:
        with_data = Attachment.model_validate(answers.with_data(part))
        content = attachments.content_of(with_data)
        record = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return f"{part['type']}: {part['name']}, {record['size']} bytes, sha256 {record['sha256']}"
