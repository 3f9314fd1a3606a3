"""The tools by which agents use arena itself: its notes, its history, its members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arena_cli.engine.plan import Room
from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools.base import Tool, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member


class ListMembers:
    """List the members of the team."""

    idempotent = True
    spec = ToolSpec(name="list_members", description="List the members of your team.")

    def __init__(self, room: Room) -> None:
        self._room = room

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002
        """Return None: it needs no approval."""
        return None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002
        """Return the ids, names and roles of the members."""
        infos = [info.model_dump() for info in self._room.scene.team.infos]
        return ToolOutput(json.dumps(infos, ensure_ascii=False))


class ToolSource:
    """Arena's own tools of a session."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:  # noqa: ARG002
        """Return the tool of that name."""
        return [ListMembers(self._room)] if entry == "list_members" else []

    async def stop(self) -> None:
        """End nothing: these tools start nothing."""
