"""The scripted tools of a scenario, which take the place of tools of its agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.scenarios.model import ScriptedTool
from arena_cli.scenarios.tools import is_named
from arena_cli.tools.base import Tool, ToolOutput, ToolScope
from arena_cli.workspace.acting import InlineTool


class _AnsweringTool:
    """A tool that answers as its script says; it needs no approval."""

    idempotent = True

    def __init__(self, name: str, script: ScriptedTool, *, is_hasty: bool) -> None:
        schema = {"type": "object", "properties": {}, **script.schema_}
        description = script.description or "A scripted tool."
        self.spec = ToolSpec(name=name, description=description, input_schema=schema)
        self._script = script
        self._is_hasty = is_hasty
        self._calls = 0

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002 - as of `Tool`
        """Return None: it has no effect."""
        return None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002 - as of `Tool`
        """Return the next item of its answers, or its error."""
        script, number = self._script, self._calls
        self._calls += 1
        if script.delay_s and not self._is_hasty:
            await asyncio.sleep(script.delay_s)
        if script.error is not None:
            return ToolOutput(script.error, is_error=True)
        answer = script.returns
        if isinstance(answer, list):
            answer = answer[min(number, len(answer) - 1)]
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return ToolOutput(text)


class ScriptedToolset:
    """The scripted tools of a scenario as it is played; agents and sessions share them.

    If it `is_hasty`, they answer at once.
    """

    def __init__(self, scripts: Mapping[str, ScriptedTool], *, is_hasty: bool) -> None:
        self._tools: dict[str, Tool] = {
            name: _AnsweringTool(name, script, is_hasty=is_hasty)
            for name, script in scripts.items()
        }

    def find(self, entry: str | InlineTool) -> list[Tool]:
        """Return the tools that take the place of those of an entry of `tools`."""
        return [tool for name, tool in self._tools.items() if is_named(name, entry)]
