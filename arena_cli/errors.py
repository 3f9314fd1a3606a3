"""Define the hierarchy of errors. Only `arena_cli.cli` turns them into text and an exit code.

ArenaError
├── UsageError            2   wrong use, reported before anything ran
│   └── FileFaults        2   every error in every file that was read, each with file:line
├── SessionBusy           5   another process holds the session
├── DiskRefused           5   a write did not reach the file; its former content is intact
└── AgentError            -   one call of one agent failed; the engine makes it a reply's status
    ├── AgentTimeout          no answer within the limit
    ├── AgentRefused          the agent, or its provider, refused the call
    ├── AgentOverloaded       try again later (after `retry_after` seconds, if set)
    ├── AgentUnavailable      it could not be started or reached
    ├── AgentProtocolError    its answer does not follow the protocol
    └── AgentBrokeRule        its answer breaks a rule of the team
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena_cli.util import text

EXIT_NOT_HELD = 1
"""An expectation failed, a fault was found, nobody was found."""

EXIT_USAGE = 2
"""Wrong use or a wrong file, before anything ran."""

EXIT_FAILED = 3
"""A chain, an agent or a check failed; or arena itself."""

EXIT_PAUSED = 4
"""The chain is paused: it waits for a person."""

EXIT_REFUSED = 5
"""The session is busy, or the disk refused a write."""

EXIT_TIMEOUT = 124
"""`arena wait`: the chain is not over."""

EXIT_INTERRUPTED = 130
"""Ctrl-C or SIGTERM."""


class ArenaError(Exception):
    """An error that is reported to the user in one message, without a traceback.

    `problem` describes the error; the second argument is the hint, which says how to fix it.
    """

    exit_code = EXIT_NOT_HELD

    def __init__(self, problem: str, mend: str = "") -> None:
        super().__init__(f"{problem}\n  {mend}" if mend else problem)
        self.what = problem
        self.mend = mend


class UsageError(ArenaError):
    """Wrong use or a wrong file."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True, order=True)
class Fault:
    """An error at a position in a file.

    `file` is the path as shown to the user. `line` counts from 1; 0 means the file as a whole.
    `field` is the dotted path of the key (`response.threshold`). The hint says how to fix the
    error. `source` is the line as it may be shown, without secrets; `column` is the position in it,
    from 0, if known.
    """

    file: str
    line: int
    field: str
    what: str
    mend: str = ""
    source: str = dataclasses.field(default="", compare=False)
    column: int | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.line else self.file
        field = f" {self.field}:" if self.field else ""
        below = text.quote_line(self.source, self.column) if self.source.strip() else []
        below += self.mend.splitlines()
        lines = [f"{location}:{field} {self.what}", *(f"  {line}" for line in below)]
        return text.escape_text("\n".join(text.escape_line(line) for line in lines))


class FileFaults(UsageError):
    """All errors in all files that were read, sorted by file and line."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class SessionBusy(ArenaError):
    """Another process holds the session's lock; nothing was written."""

    exit_code = EXIT_REFUSED


class DiskRefused(ArenaError):
    """The operating system refused a write; the transcript ends with its last whole line."""

    exit_code = EXIT_REFUSED


class AgentError(ArenaError):
    """A failed call of an agent.

    `agent_id` is the agent and `what` the problem. `asked` is the request (a command line, a URL);
    `came` is the response instead of an answer (an exit code, the last lines of stderr). The hint
    says how to fix the error. `metadata` is kept with the reply (raw output, within a limit).
    `again` is False if the call must not be retried, regardless of the team's `on_failure`.
    """

    kind = "error"

    def __init__(
        self,
        agent_id: str,
        problem: str,
        *,
        asked: str = "",
        came: str = "",
        mend: str = "",
        metadata: Mapping[str, Any] | None = None,
        again: bool = True,
    ) -> None:
        super().__init__(problem, mend)
        self.agent_id = agent_id
        self.asked = asked
        self.came = came
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.again = again

    def __str__(self) -> str:
        pieces = [f"{self.agent_id}: {self.what}"]
        if self.asked:
            pieces.append(f"asked: {self.asked}")
        if self.came:
            pieces.append(f"came: {self.came}")
        if self.mend:
            pieces.append(self.mend)
        return "; ".join(pieces)


class AgentTimeout(AgentError):
    """No answer within the limit; the work was ended."""

    kind = "timeout"


class AgentRefused(AgentError):
    """The agent, or its provider, refuses to answer this; a retry does not help.

    `overflow`: the input exceeds its model's context window; with a shorter input it may answer.
    """

    kind = "refused"
    overflow = False


class AgentOverloaded(AgentError):
    """Busy or rate-limited. `retry_after` is in seconds, None if unknown."""

    kind = "overloaded"

    def __init__(
        self,
        agent_id: str,
        problem: str,
        *,
        retry_after: float | None = None,
        asked: str = "",
        came: str = "",
        mend: str = "",
        metadata: Mapping[str, Any] | None = None,
        again: bool = True,
    ) -> None:
        super().__init__(
            agent_id, problem, asked=asked, came=came, mend=mend, metadata=metadata, again=again
        )
        self.retry_after = retry_after


class AgentUnavailable(AgentError):
    """The agent could not be started or reached."""

    kind = "unavailable"


class AgentProtocolError(AgentError):
    """The agent's answer does not follow the protocol."""

    kind = "protocol"


class AgentUnfinished(AgentError):
    """The agent reached a limit of its turns, or stopped, before it handed in its output."""

    kind = "unfinished"


class AgentBrokeRule(AgentError):
    """The agent's answer breaks a rule of the team.

    `text` is the refused answer; empty if the agent could not correct it.
    """

    kind = "rule"
    text = ""


_LONG = 4


def find_nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the known word that `word` was most likely meant to be, None if none is near."""
    import difflib  # noqa: PLC0415 - used only on the way to an error

    by_folded = {known_word.casefold(): known_word for known_word in candidates}
    cutoff = 0.6 if len(word) < _LONG else 0.7  # two letters that changed places, in each
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def suggest_nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the hint for an unknown word: the nearest known one, or the list of all."""
    words = list(candidates)
    near = find_nearest(word, words)
    if near is not None:
        return f"did you mean `{near}`?"
    return f"known: {', '.join(words)}" if words else ""
