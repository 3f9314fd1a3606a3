"""Requests of people to a session that another process may be running: `sessions/<s>/control/`.

Each request is a file there. The process that holds the session's lock carries it out, within a
second if it runs a chain, and answers with a second file; a command that finds the session free
takes the lock and does it itself. Both files are gone when the answer was read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from pydantic import ValidationError

from arena_cli.errors import ArenaError, UsageError
from arena_cli.protocol import Shape
from arena_cli.util import files
from arena_cli.util.text import escape_line

FOLDER = "control"
_CLAIMED = ".claimed"
_DONE = ".done"
_REQUEST = ".json"
_MOST = 1e12
_MOST_TRIES = 100
_KEPT_S = 3_600.0
"""Answers that no command has read by then are removed."""

Act = Literal[
    "pause",
    "cancel",
    "steer",
    "agent_state",
    "decide",
    "raise_budget",
    "checkpoint",
    "edit",
    "reassign",
    "react",
    "read",
    "task",
    "tool_list",
    "tool_call",
]


class ControlRequest(Shape):
    """A person's request: `by` is the person, the other fields depend on the `act`.

    `target` is the id of a message, a note or a task. `action` is what is done to the task; with
    `add`, `arguments` are its facts, as `engine.task_changes.TaskDraft`.
    """

    act: Act
    by: str = "user"
    agent: str = ""
    text: str = ""
    target: str = ""
    now: bool = False
    request: int = 0
    decision: Literal["approved", "rejected"] = "rejected"
    option: str = ""
    state: Literal["running", "paused", "terminated"] = "running"
    tokens: int = 0
    usd: float = 0.0
    tool: str = ""
    action: str = ""
    arguments: dict[str, Any] = {}


_ALLOWANCE = re.compile(r"\+(\d+(?:\.\d+)?)\s*(usd|tokens)", re.IGNORECASE)


def read_allowance(texts: Iterable[str]) -> ControlRequest:
    """Return the request that raises a budget by these texts (`+2usd`, `+10000tokens`).

    Raises UsageError if one has another form.
    """
    amounts = {"usd": 0.0, "tokens": 0.0}
    for text in texts:
        match = _ALLOWANCE.fullmatch(text.replace(",", "").replace("_", "").strip())
        amount = float(match[1]) if match else 0.0
        unit = match[2].lower() if match else ""
        if not 0 < amount <= _MOST or (unit == "tokens" and amount % 1):
            raise UsageError(
                f"--budget: `{escape_line(text)}` is no amount",
                "Write +2usd, +0.5usd or +10000tokens.",
            )
        amounts[unit] += amount
    return ControlRequest(act="raise_budget", tokens=int(amounts["tokens"]), usd=amounts["usd"])


class Outcome(Shape):
    """The answer to a request: what was done, or the error (`fix` says what to do)."""

    text: str
    fix: str = ""
    is_error: bool = False

    def check(self) -> str:
        """Return the text. Raises UsageError if the request failed."""
        if self.is_error:
            raise UsageError(self.text, self.fix)
        return self.text

    @classmethod
    def of_error(cls, error: ArenaError) -> Outcome:
        """Return the outcome of a request that an error ended."""
        return cls(text=error.what, fix=error.mend, is_error=True)


class Waiting(NamedTuple):
    """A request that waits, and the file that holds it; None if the file is not valid."""

    path: Path
    request: ControlRequest | None


class Inbox:
    """The requests to one session, by its folder; calls of tools have a `folder` for each agent."""

    def __init__(self, session: Path, folder: str = FOLDER) -> None:
        self._folder = session / folder

    @classmethod
    def of_calls(cls, session: Path, agent: str) -> Inbox:
        """Return the calls of tools by an agent, which the process with its reply carries out."""
        return cls(session, f"calls-{agent}")

    def put(self, request: ControlRequest) -> Path:
        """Write a request; return its file. Raises OSError."""
        workspace = self._folder.parents[2]
        path = self._folder / f"{time.time_ns():020}-{uuid4().hex[:8]}{_REQUEST}"
        for _ in range(_MOST_TRIES):
            files.make_own_folder(self._folder, below=workspace)
            with contextlib.suppress(FileNotFoundError):  # who took the last request removed it
                _write(path, request)
                return path
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._folder))

    def take(self) -> list[Waiting]:
        """Return the requests that wait, the first come first."""
        waiting = []
        for path in self._list():
            if path.suffix == _REQUEST:
                waiting.append(Waiting(path, _read(path)))
            elif path.suffix == _DONE:
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _KEPT_S:
                        path.unlink()
        self._tidy()
        return waiting

    def claim(self, path: Path) -> Path:
        """Mark a request as begun; return its file from now on, which its command may remove."""
        claimed = path.with_suffix(_CLAIMED)
        with contextlib.suppress(OSError):
            path.replace(claimed)
        return claimed

    def answer(self, path: Path, outcome: Outcome) -> None:
        """Answer a request. A disk that refuses the answer only lets its command wait."""
        with contextlib.suppress(OSError):
            _write(path.with_suffix(_DONE), outcome)
            path.unlink(missing_ok=True)

    def read_answer(self, path: Path) -> Outcome | None:
        """Return the answer to a request, once; None if there is none yet."""
        done = path.with_suffix(_DONE)
        try:
            outcome = Outcome.model_validate_json(done.read_bytes())
        except (FileNotFoundError, PermissionError):
            return None
        except (OSError, ValidationError) as error:
            outcome = Outcome(text=f"the answer cannot be read: {error}", is_error=True)
        with contextlib.suppress(OSError):
            done.unlink()
        self._tidy()
        return outcome

    def withdraw(self, path: Path) -> bool:
        """Remove a request; return False if it was carried out."""
        for file in (path, path.with_suffix(_CLAIMED)):
            with contextlib.suppress(OSError):
                file.unlink()
                self._tidy()
                return True
        return False

    def _list(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError:
            return []

    def _tidy(self) -> None:
        with contextlib.suppress(OSError):  # another request is there
            self._folder.rmdir()


def _write(path: Path, content: Shape) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(content.model_dump_json(), encoding="utf-8")
    temporary.replace(path)


def _read(path: Path) -> ControlRequest | None:
    try:
        return ControlRequest.model_validate_json(files.read_regular(path))
    except (OSError, ValidationError):
        return None
