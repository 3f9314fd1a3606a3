"""The settings of exchanges, by which agents ask each other directly; few teams have any."""

from __future__ import annotations

from pydantic import Field

from arena_cli.workspace.file_shape import FileShape


class ExchangeRules(FileShape):
    """The rules of exchanges: `max_turns` further messages at most after the first answer.

    If they `announce`, the agent that was asked tells the group at the end.
    """

    max_turns: int = Field(default=5, ge=0, le=50)
    announce: bool = True
