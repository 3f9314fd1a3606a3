"""Content that goes with a message, kept in `sessions/<session>/attachments/<message id>/`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from arena_cli.ground.errors import DiskRefused
from arena_cli.ground.protocol import Attachment

LONGEST_NAME = 100
DEVICE_NAMES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
)
FORBIDDEN = frozenset('/\\:*?"<>|')


def safe_name(name: str) -> str:
    """A file name that stays in its folder on every platform, as near to `name` as can be."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join("_" if c in FORBIDDEN or not c.isprintable() else c for c in last)
    stem = kept.strip(" .")[-LONGEST_NAME:]
    if not stem:
        return "attachment"
    return f"_{stem}" if stem.split(".")[0].casefold() in DEVICE_NAMES else stem


def store(
    attachments: Sequence[Attachment], message_id: str, *, session: Path, workspace: Path
) -> list[Attachment]:
    """Write the content of each into the session's folder and return what the transcript keeps.

    Names become safe and unique. Raises DiskRefused.
    """
    kept = planned(attachments, message_id, session=session, workspace=workspace)
    for attachment, record in zip(attachments, kept, strict=True):
        path = workspace / str(record.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_of(attachment))
        except OSError as error:
            raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error
    return kept


def planned(
    attachments: Sequence[Attachment], message_id: str, *, session: Path, workspace: Path
) -> list[Attachment]:
    """What the transcript will keep of each, with nothing written."""
    if not attachments:
        return []
    folder = (session / "attachments" / message_id).relative_to(workspace)
    taken: set[str] = set()
    kept = []
    for attachment in attachments:
        content = content_of(attachment)
        kept.append(
            Attachment(
                type=attachment.type,
                name=attachment.name,
                path=(folder / _unique(safe_name(attachment.name), taken)).as_posix(),
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    return kept


def content_of(attachment: Attachment) -> bytes:
    """The bytes of an attachment that carries its content: text, JSON, or base64 for an image."""
    data = attachment.data
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        return json.dumps(data, ensure_ascii=False, indent=2).encode("utf-8", "replace")
    if attachment.type == "image":
        import base64  # noqa: PLC0415 - few messages carry a picture

        with contextlib.suppress(ValueError):
            return base64.b64decode(data, validate=True)
    return data.encode("utf-8", "replace")


def _unique(name: str, taken: set[str]) -> str:
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    free = name
    count = 1
    while free.casefold() in taken:
        count += 1
        free = f"{stem}-{count}{dot}{ending}"
    taken.add(free.casefold())
    return free
