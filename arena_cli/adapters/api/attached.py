"""What is attached to a message, read so that an agent can be sent it."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground.protocol import Attachment

# What is larger is told of by name only: providers refuse it, and it would fill any window
# (Anthropic takes requests of up to 32 MB, images of up to 5 MB:
# https://docs.anthropic.com/en/api/overview#request-size-limits).
MOST_BYTES = 5_000_000

# A longer text would fill a window of 32,000 tokens alone.
MOST_TEXT_BYTES = 100_000

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Attached(NamedTuple):
    """A file's name, its content, and what it is by its first bytes, else by its name.

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
        data = path.read_bytes()
    except OSError:
        return None
    found = Attached(part.name, _media_type(part.name, data), data)
    is_long = found.media_type == "text/plain" and len(data) > MOST_TEXT_BYTES
    return None if is_long else found


def _media_type(name: str, data: bytes) -> str:
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return mimetypes.guess_type(name)[0] or "application/octet-stream"
    return "text/plain"
