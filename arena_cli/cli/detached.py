"""Run a chain in a process of its own (`arena send --detach`), and wait for one (`arena wait`).

The process of the caller checks everything that it can, and starts `arena send --detached`, which
reads the message from stdin. As soon as the message is in the transcript, that process prints one
line, and releases the caller's streams. What it reported before, the caller's user has read.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from arena_cli import errors
from arena_cli.cli import common, options, send
from arena_cli.cli.common import Options
from arena_cli.cli.streams import Printer
from arena_cli.errors import UsageError
from arena_cli.session import store
from arena_cli.session.store import Stored
from arena_cli.transcript import queries, reader
from arena_cli.transcript.events import ChainFinished, Event, MessageEvent
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import ChainPaused


def start(options: Options, root: Path, session: str, content: str, words: Sequence[str]) -> int:
    """Send a message in a process of its own; return the number of the chain.

    `words` are further options of `arena send`. If it ends before the chain begins, it has reported
    why: exit as it did.
    """
    command = [sys.executable, "-m", "arena_cli", "--workspace", str(root)]
    command += ["--debug"] if options.debug else []
    command += ["--allow-outside"] if options.allow_outside else []
    command += ["send", "-", "--session", session, "--detached", *words]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **_own_session()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(OSError), process.stdin:  # it has ended
            process.stdin.write(content.encode("utf-8"))
        line = process.stdout.readline()
    except BaseException:
        process.terminate()
        raise
    process.stdout.close()
    if not line.strip():
        raise typer.Exit(process.wait())
    begun: dict[str, Any] = json.loads(line)
    process.returncode = 0  # it goes on without this one
    return int(begun["chain"])


def _own_session() -> dict[str, Any]:
    """Return the arguments of a process that outlives the terminal of its caller."""
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        return {"creationflags": flags}
    return {"start_new_session": True}


class StartReporter(Printer):
    """The printer of a detached process: it reports to the caller that the chain has begun.

    Then it releases the caller's streams.
    """

    def __init__(self, session: str) -> None:
        super().__init__(as_json=False, quiet=True)
        self._session = session
        self._has_begun = False

    def event(self, event: Event) -> None:
        """Report the first event if it opens a chain, or opened it for the same key."""
        if self._has_begun or not isinstance(event, MessageEvent) or event.chain is None:
            return
        self._has_begun = True
        print(json.dumps({"session": self._session, "chain": event.chain}), flush=True)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        os.close(nothing)


TheSession = Annotated[str, options.session_argument(help="Wait for this session.")]
OneChain = Annotated[
    int | None,
    typer.Option("--chain", metavar="N", min=1, help="Wait for this chain; by default the last."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="Exit with 124 if it takes longer than this."
    ),
]
EventsAsJson = Annotated[
    bool, typer.Option("--json", help="Print events as they happen, one JSON object per line.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only problems.")]


def wait(
    context: typer.Context,
    session: TheSession,
    chain: OneChain = None,
    timeout: Timeout = 30,
    as_json: EventsAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print a chain that another process runs, up to its end; exit as `arena send` would.

    If it is not over in time, the chain continues.
    """
    if as_json and quiet:
        raise UsageError("--json and --quiet were given", "Give one of them.")
    stored = common.find_session(context, session)
    number = _find_chain(stored, chain)
    printer = Printer(as_json=as_json, quiet=quiet, avatars=common.read_avatars(context))
    with contextlib.closing(printer):
        end = _follow(stored, number, timeout, printer)
    printer.out.check()
    name = escape_line(stored.name)
    if end is None and store.is_held(stored.folder):
        common.warn(f"session {name}: chain {number} is not over after {timeout:g} s; it continues")
        raise typer.Exit(errors.EXIT_TIMEOUT)
    if end is None:
        common.warn(
            f"session {name}: chain {number} was cut short; `arena resume {name}` continues"
        )
        raise typer.Exit(errors.EXIT_INTERRUPTED)
    send.exit_by(end, stored.name, store.load_state(stored.transcript))


def _find_chain(stored: Stored, number: int | None) -> int:
    """Return the number of an existing chain, by default the last. Raises UsageError."""
    newest = queries.last_chain_number(stored.transcript)
    name = escape_line(stored.name)
    if not newest:
        raise UsageError(
            f"session {name} has no chain yet", "`arena send --session NAME` starts one."
        )
    if number is None or number <= newest:
        return number or newest
    chains = "its only chain is 1" if newest == 1 else f"its chains are 1 to {newest}"
    raise UsageError(f"session {name} has no chain {number}", chains)


class _Over(Exception):
    """There is nothing more to wait for."""


def _follow(
    stored: Stored, number: int, timeout: float, printer: Printer
) -> ChainFinished | ChainPaused | None:
    """Print the events of a chain; return its end or its pause, None if none came."""
    ends_at = time.monotonic() + timeout
    pause: ChainPaused | None = None
    was_held = True

    def look() -> None:
        nonlocal was_held
        held = store.is_held(stored.folder)
        if pause is not None or time.monotonic() >= ends_at or not (held or was_held):
            raise _Over
        was_held = held
        time.sleep(min(reader.POLL_S, max(0.0, ends_at - time.monotonic())))

    opening = queries.find_opening(stored.transcript, number)
    team = queries.session_before(stored.transcript, opening) if opening else None
    if team is not None and printer.is_shown:
        printer.event(team)  # a timeline has the names and colours of the agents from it
    with contextlib.suppress(_Over):
        for event in _read(stored, number, look):
            printer.event(event)
            if isinstance(event, ChainFinished):
                return event
            if event.type == "chain_paused":
                pause = cast("ChainPaused", event)
            elif event.type == "resumed":
                pause = None
    return pause


def _read(stored: Stored, number: int, look: Any) -> Iterator[Event]:
    """Yield the events of a chain from its opening on; call `look` when all were yielded."""
    opening = queries.find_opening(stored.transcript, number)
    if not opening:
        name = escape_line(stored.name)
        raise UsageError(
            f"session {name}: the message that opened chain {number} cannot be read",
            f"`arena doctor {name}` shows which lines cannot be read.",
        )
    first = queries.offset_after(stored.transcript, opening - 1)
    for line in reader.follow(stored.transcript, first, wait=look, on_cut=lambda: None):
        for event in line.events:
            is_next = isinstance(event, MessageEvent) and (event.chain or number) > number
            if is_next:
                return
            if event.seq >= opening:
                yield event
