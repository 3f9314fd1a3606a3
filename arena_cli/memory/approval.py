"""An approval holds for the text that was approved, and only where the trail has it.

A file may say `status: approved` by anybody's hand. What counts is the event of the approval, and
the hash of the text that it keeps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from arena_cli.memory.note import Note

CHANGED = "changed since it was approved"
UNTOLD = "says approved, but no approval is recorded"

Approvals = Mapping[str, str]
"""Hashes of the approved texts, by note; empty where an older arena kept none."""


class Followed(NamedTuple):
    """What a trail says up to byte `end`; `check` is a hash of the bytes before it."""

    end: int = 0
    check: str = ""
    approved: Approvals = MappingProxyType({})


NOTHING = Followed()


def sha256(note: Note) -> str:
    """Return the hash of what an agent is shown of a note, line ends and bookkeeping apart."""
    body = note.body.replace("\r\n", "\n").strip()
    text = json.dumps([note.kind, note.title, note.owner, body], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def judge(note: Note, approvals: Approvals, sha: str = "") -> Note:
    """Return the note with the status that counts; `sha` is its hash, if that is known."""
    if note.status != "approved":
        return note
    approved = approvals.get(note.id)
    if approved is None:
        return note.model_copy(update={"status": "draft", "approval": UNTOLD})
    if approved and approved != (sha or sha256(note)):
        return note.model_copy(update={"status": "pending_user", "approval": CHANGED})
    return note


def after(approvals: dict[str, str], note: str, act: str, sha: str) -> None:
    """Follow one event of the trail."""
    if act == "approved":
        approvals[note] = sha
    elif act in ("added", "submitted", "rejected", "archived", "superseded"):
        approvals.pop(note, None)
