"""Give the files of an input's messages to a coding agent: as content, or else as paths."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from arena_cli.adapters import http
from arena_cli.protocol import NOT_SHOWN, AgentInput, CallNote, Emit


class AttachedFile(NamedTuple):
    """A file on the disk; `content` is None if it is too large to be sent, or gone."""

    name: str
    path: Path
    content: http.Attached | None

    @property
    def text(self) -> str | None:
        """Its text, None if it is no text or is empty."""
        return self.content.text or None if self.content else None

    @property
    def is_image(self) -> bool:
        """True if it is a kind of image that models are shown."""
        return self.content is not None and self.content.is_image

    @property
    def is_pdf(self) -> bool:
        """True if it is a PDF."""
        return self.content is not None and self.content.media_type == "application/pdf"

    @property
    def label(self) -> str:
        """The line before its content."""
        return f"The attached file {_quote(self.name)}:"


def list_new_files(input: AgentInput, workspace: Path) -> list[AttachedFile]:
    """Return the files of the messages that the agent is shown now.

    A path that leads out of the workspace, which arena never writes, is left out.
    """
    root = workspace.resolve()
    attachments = [item for message in input.unseen() for item in message.attachments if item.path]
    files = [(item, (root / str(item.path)).resolve()) for item in attachments]
    return [
        AttachedFile(item.name, path, http.read(item, workspace))
        for item, path in files
        if path.is_relative_to(root) and path.is_file()
    ]


def describe_paths(files: Iterable[AttachedFile], emit: Emit) -> str:
    """Return the paths of files that cannot be shown, for the prompt; report them to the reply."""
    hidden = list(files)
    if hidden:
        emit(CallNote({NOT_SHOWN: [file.name for file in hidden]}))
    return "".join(
        f"The attached file {_quote(file.name)} is not shown here. It is at {file.path}\n"
        for file in hidden
    )


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
