"""What is attached to a message, read so that an agent can be sent it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import regularfiles
from arena_cli.ground.protocol import Attachment

# What is larger is told of by name only: a provider that refuses it would refuse every later call
# too (Anthropic takes images of up to 5 MiB, counted as base64, which is longer by a third).
MOST_BYTES = 3_900_000

# A longer text would fill a window of 32,000 tokens alone.
MOST_TEXT_BYTES = 100_000

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Attached(NamedTuple):
    """A file's name, its content, and what it is by its first bytes; a name may be wrong.

    `media_type` is `text/plain` for all that is UTF-8 text, `application/octet-stream` for what is
    neither that nor known.
    """

    name: str
    media_type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Whether it is of a kind of image that models are shown."""
        return self.media_type in {"image/png", "image/jpeg", "image/gif", "image/webp"}

    @property
    def text(self) -> str | None:
        """Its text, None where it is none."""
        return self.data.decode("utf-8") if self.media_type == "text/plain" else None


def read(part: Attachment, workspace: Path) -> Attached | None:
    """The file of an attachment in a transcript; None where it is gone, or too large to be sent.

    A path that leads out of the workspace, which arena never writes, is not followed.
    """
    if part.path is None:
        return None
    try:
        path = (workspace / part.path).resolve()
        if not path.is_relative_to(workspace.resolve()) or path.stat().st_size > MOST_BYTES:
            return None
        data = regularfiles.read(path)
    except OSError:
        return None
    found = Attached(part.name, _media_type(data), data)
    is_long = found.media_type == "text/plain" and len(data) > MOST_TEXT_BYTES
    return None if is_long else found


def not_shown(part: Attachment, found: Attached | None) -> str:
    """What an agent is told instead of a file that it cannot be sent."""
    why = "it is neither text in UTF-8 nor of a kind that you can be shown"
    if found is None:
        why = "it is gone, or too large"
    elif found.text is not None:
        why = "it is empty"
    return f"The file {json.dumps(part.name, ensure_ascii=False)} cannot be shown: {why}."


def _media_type(data: bytes) -> str:
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
