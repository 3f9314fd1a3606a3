"""Keep what is known of an MCP server that fails: its other output, a lost session."""

from __future__ import annotations

from dataclasses import dataclass, field

from arena_cli.adapters.process import diagnosis
from arena_cli.adapters.process.spawn import ByteTail, ProcessEvent, Tail
from arena_cli.util.text import clean_text, cut_text

_LONGEST_QUOTE = 300
_MOST_LINES = 3


class SessionLost(ConnectionError):
    """The server does not know its session any more, so it carried out nothing."""


@dataclass
class Written:
    """The end of its stderr, and of the lines on its stdout that are no messages."""

    stderr: ByteTail = field(default_factory=ByteTail)
    noise: Tail = field(default_factory=Tail)
    is_complete: bool = False

    def add(self, event: ProcessEvent) -> None:
        """Add the next bytes of stderr."""
        self.stderr.add(event.data)
        self.is_complete = self.is_complete or not event.data

    def quote(self) -> str:
        """Return the last lines of stderr; those of stdout if there are none."""
        return diagnosis.list_last_lines(self.stderr.text) or self.quote_noise()

    def quote_noise(self) -> str:
        """Return the first of the last lines on stdout that are no messages."""
        lines = [line for line in clean_text(self.noise.text)[0].splitlines() if line.strip()]
        return cut_text(" | ".join(lines[:_MOST_LINES]), _LONGEST_QUOTE)
