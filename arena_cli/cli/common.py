"""What the commands share: finding the workspace, reading a message, printing events."""

from __future__ import annotations

import codecs
import json
import locale
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from arena_cli.cli import streams
from arena_cli.ground.errors import ArenaError, DiskRefused, FileFaults, UsageError

if TYPE_CHECKING:
    from arena_cli.report.spans import Line
    from arena_cli.report.terminal import Terminal, Ticker
    from arena_cli.report.words import Words
    from arena_cli.scenario.scenario import Scenario
    from arena_cli.scenario.select import Selected
    from arena_cli.session.session import Place
    from arena_cli.team.workspace import Workspace
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.fold import Fold
    from arena_cli.transcript.read import Problem

BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Options(NamedTuple):
    """The options that every command takes."""

    workspace: Path | None = None
    debug: bool = False


def root_of(context: typer.Context) -> Path:
    """The workspace's folder. Raises UsageError where there is none."""
    from arena_cli.team import workspace

    options: Options = context.obj
    return workspace.find(Path.cwd(), options.workspace, os.environ)


def workspace_of(context: typer.Context) -> Workspace:
    """The workspace, loaded. Raises FileFaults with every fault of every file."""
    from arena_cli.adapters import registry
    from arena_cli.team import workspace

    return workspace.load(root_of(context), kinds=registry.KINDS)


def avatars_of(context: typer.Context) -> dict[str, str]:
    """The faces of the agents, by id; none where the workspace cannot be loaded."""
    try:
        profiles = workspace_of(context).profiles
    except ArenaError:
        return {}
    return {agent_id: profile.avatar for agent_id, profile in profiles.items()}


def scenarios_of(context: typer.Context, selected: Selected) -> tuple[Workspace, list[Scenario]]:
    """The workspace and these scenarios. Raises FileFaults with every fault of every file."""
    from arena_cli.scenario import file

    try:
        loaded = workspace_of(context)
    except FileFaults as error:
        faults = file.shape_faults(selected, root_of(context))
        raise FileFaults([*error.faults, *faults]) from error
    return loaded, file.load(selected, loaded)


def place_of(loaded: Workspace, *, wait_s: float) -> Place:
    """Where and how sessions of that workspace are written."""
    from arena_cli.session.session import Place
    from arena_cli.team import environ

    return Place(
        workspace=loaded.root,
        durability=loaded.file.durability or "fsync",
        language=loaded.file.language,
        redact=loaded.file.redact,
        environ={**environ.read_dotenv(loaded.root), **os.environ},
        wait_s=wait_s,
    )


def warn(text: str) -> None:
    """A line on stderr; if nobody can be told, what is done goes on."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        streams.drop(sys.stderr)


def say(text: str) -> None:
    """A line on stdout. Raises DiskRefused; a reader that stopped reading is no error."""
    output = Output()
    output.write(f"{text}\n")
    output.check()


def say_json(value: Any) -> None:
    """A value as JSON on stdout; see `say`."""
    streams.speak_utf8()
    say(json.dumps(value, ensure_ascii=False, indent=2))


def warn_of(transcript: Path, problems: Iterable[Problem]) -> None:
    """A line on stderr for each line of a transcript that was skipped."""
    for problem in problems:
        warn(f"{transcript}:{problem.line}: {problem.what}")


class Output:
    """stdout that may go away: whoever reads it may stop, the chain goes on.

    `failed` keeps the error of a stdout that refused to take what was printed.
    """

    def __init__(self) -> None:
        self._open = True
        self.failed: OSError | None = None

    def write(self, text: str) -> None:
        """Print lines, `\\n` included, at once."""
        if not self._open:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self._open = False
            streams.drop(sys.stdout)
        except OSError as error:
            self._open = False
            self.failed = error
            streams.drop(sys.stdout)

    @property
    def is_read(self) -> bool:
        """Whether what is printed still reaches anybody."""
        return self._open

    def check(self) -> None:
        """Raise DiskRefused if stdout could not be written (a full disk behind `>`)."""
        if self.failed:
            raise DiskRefused(f"stdout: could not write: {self.failed.strerror or self.failed}")


class Printer:
    """Prints events as they come: as JSON lines, as a timeline, or not at all.

    A terminal gets the timeline in colour, and with `live`, until `close`, who is at work beneath
    it. `avatars` by agent id.
    """

    def __init__(
        self,
        output: Output,
        *,
        as_json: bool,
        quiet: bool = False,
        avatars: Mapping[str, str] | None = None,
        live: bool = False,
    ) -> None:
        from arena_cli.report import words
        from arena_cli.report.timeline import Timeline

        self._output = output
        self._as_json = as_json
        self._quiet = quiet
        say = words.here()
        self._timeline = Timeline(say, streams.encodable(avatars or {}, sys.stdout))
        self._began = False
        self._screen: Terminal | None = None
        self._ticker: Ticker | None = None
        if as_json:
            streams.speak_utf8()
        elif not quiet and streams.is_terminal(sys.stdout):
            self._open_screen(say, live=live)

    def _open_screen(self, say: Words, *, live: bool) -> None:
        from arena_cli.report.live import AtWork
        from arena_cli.report.terminal import Terminal, Ticker

        colour = not os.environ.get("NO_COLOR")
        at_work = AtWork(say, self._timeline.named) if live and colour else None
        self._screen = Terminal(self._output.write, sys.stdout, colour=colour, at_work=at_work)
        if at_work:
            self._ticker = Ticker(self._screen.tick)

    @property
    def on_text(self) -> Callable[[str, str], None] | None:
        """Takes an agent's id and the end of its text so far; None where nobody would see it."""
        return self._screen.text if self._screen and self._ticker else None

    def event(self, event: Event) -> None:
        """Print one event, which is on disk."""
        from arena_cli.transcript import events

        if self._as_json:
            self._output.write(events.line_of(event).decode("utf-8"))
        elif not self._quiet:
            self._began = True
            self.show(self._timeline.drawn(event), event)

    def goes_on(self, fold: Fold) -> None:
        """Say which session this is, unless its events just did."""
        if fold.session and not (self._began or self._as_json or self._quiet):
            turns = len(fold.open.turns) if fold.open else 0
            self.show(self._timeline.goes_on(fold.session, turns))

    def show(self, lines: Iterable[Line], event: Event | None = None) -> None:
        """Print lines; `event` is what they tell of, if it is new."""
        if self._screen:
            self._screen.show(lines, event)
        else:
            self._output.write("".join([f"{line.text}\n" for line in lines]))

    def close(self) -> None:
        """End the live display."""
        if self._ticker:
            self._ticker.stop()
            self._ticker = None
        if self._screen:
            self._screen.close()

    def __enter__(self) -> Printer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def message_from(message: str | None, file: Path | None) -> str:
    """The text to send: the argument, a file, or stdin where it is a pipe or `-`."""
    if message is not None and file is not None:
        raise UsageError("a MESSAGE and --file were given", "Give one of them.")
    if file is not None:
        try:
            return decoded(file.read_bytes()).removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise UsageError(f"{file}: cannot read this file: {error.strerror or error}") from error
    if message is not None and message != "-":
        return message
    if message is None and sys.stdin.isatty():
        raise UsageError("there is no message", 'Say something: `arena send "hello"`.')
    try:
        return decoded(sys.stdin.buffer.read()).removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UsageError(f"stdin: cannot read it: {error.strerror or error}") from error


def decoded(data: bytes) -> str:
    """Bytes from outside as text: by their byte order mark, as UTF-8, else by the locale."""
    for bom, encoding in BOMS.items():
        if data.startswith(bom):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode(locale.getencoding(), "replace")
