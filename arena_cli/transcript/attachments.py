"""Content that goes with a message, kept in `sessions/<session>/attachments/<message id>/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from arena_cli.ground import filenames, ownfiles, wholefile
from arena_cli.ground.errors import DiskRefused
from arena_cli.ground.protocol import Attachment


def store(
    attachments: Sequence[Attachment],
    message_id: str,
    *,
    session: Path,
    workspace: Path,
    sync: bool = False,
) -> list[Attachment]:
    """Write the content of each into the session's folder and return what the transcript keeps.

    Names become safe and unique; with `sync` all of it is on the disk. Raises DiskRefused.
    """
    changed: list[Path] = []
    kept = planned(attachments, message_id, session=session, workspace=workspace)
    for attachment, record in zip(attachments, kept, strict=True):
        path = workspace / str(record.path)
        try:
            changed += [*ownfiles.make_folder(path.parent, below=workspace), path.parent]
            ownfiles.write(path, content_of(attachment), below=workspace, sync=sync)
            if sync and attachment is attachments[-1]:
                wholefile.sync_folders(changed)
        except OSError as error:
            what = f"{path}: could not write: {error.strerror or error}"
            raise DiskRefused(what, ownfiles.hint(error, "")) from error
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
                path=(folder / filenames.unique(filenames.safe(attachment.name), taken)).as_posix(),
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
    picture = attachment.picture()
    return data.encode("utf-8", "replace") if picture is None else picture
