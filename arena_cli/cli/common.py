"""Provide the common parts of commands: the workspace, messages, interrupts, lines of output."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import dataclasses
import json
import locale
import logging
import os
import signal
import sys
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from arena_cli import errors
from arena_cli.adapters import base
from arena_cli.adapters.base import FlowHost, SessionConfig
from arena_cli.cli import streams
from arena_cli.cli.command_line import Command
from arena_cli.errors import ArenaError, Fault, FileFaults, UsageError
from arena_cli.session import session as session_module
from arena_cli.session import store
from arena_cli.transcript import queries
from arena_cli.util import files, language, process_signals
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_json, escape_line, lazy_pattern
from arena_cli.workspace import agents
from arena_cli.workspace.workspace import find_workspace
from arena_cli.workspace.workspace import load_workspace as workspace_load_workspace
from arena_cli.yamlio import loader

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from arena_cli.scenarios.loader import Sorted
    from arena_cli.scenarios.select import Selected
    from arena_cli.session.store import Stored
    from arena_cli.transcript.reader import Problem
    from arena_cli.workspace.models import Member, Team
    from arena_cli.workspace.workspace import Workspace


@dataclass
class Options:
    """The options that every command takes.

    `has_left`: whether a killed arena left processes running; None until that is known.
    """

    workspace: Path | None = None
    debug: bool = False
    allow_outside: bool = False
    pager: bool = True
    has_left: bool | None = None


# These call agents; before they do, what a killed arena left running is ended.
_CALLING = frozenset({"send", "resume", "run", "promote", "test", "mcp"})


def find_root(context: typer.Context) -> Path:
    """Return the workspace's folder. Raises UsageError if there is none.

    A command that calls no agent reports once the processes that a killed arena left running there.
    """
    options: Options = context.obj
    root = use_root(options)
    if options.has_left is None and context.info_name not in _CALLING:
        options.has_left = _warn_of_left(root)
    return root


def use_root(options: Options) -> Path:
    """Return the workspace's folder; messages are in its language from now on.

    Raises UsageError without one.
    """
    root = find_workspace(current_folder(), options.workspace, os.environ)
    language.use_workspace(root)
    return root


def _warn_of_left(root: Path) -> bool:
    """Warn of the processes that a killed arena left running; return True if there are any."""
    strays = store.find_strays(root)
    for stray in strays:
        agent = f" of agent {escape_line(stray.agent)}" if stray.agent else ""
        program = f" ({escape_line(stray.program)})" if stray.program else ""
        warn(f"still running after its arena was killed: process {stray.pid}{program}{agent}")
    if strays:
        pids = [str(stray.pid) for stray in strays]
        by_hand = f"kill -9 {' '.join(pids)}"
        if sys.platform == "win32":
            by_hand = f"taskkill /F {' '.join(f'/PID {pid}' for pid in pids)}"
        warn(
            "  The next `arena send`, `resume` or `run` here ends them; to end them now: "
            f"`{by_hand}`"
        )
    return bool(strays)


def current_folder() -> Path:
    """Return the current folder. Raises UsageError if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        name = os.environ.get("PWD")
        raise UsageError(
            f"the current folder was removed{f': {escape_line(name)}' if name else ''}",
            "`cd` to an existing folder, even if this one was created again, and run "
            "the command again",
        ) from error


def load_workspace(context: typer.Context) -> Workspace:
    """Load the workspace. Raises FileFaults with all errors in all files."""
    return _load(find_root(context), context.obj)


def _load(root: Path, options: Options) -> Workspace:
    return workspace_load_workspace(root, kinds=base.KINDS, anywhere=options.allow_outside)


def make_redactor(options: Options) -> Redactor:
    """Return the workspace's redactor; for an invalid workspace, that of the environment."""
    try:
        return session_module.make_redactor(
            make_config(_load(use_root(options), options), wait_s=0)
        )
    except Exception:  # noqa: BLE001 - it is called where something has failed already
        return Redactor(agents.collect_secret_variables(os.environ))


def read_avatars(context: typer.Context) -> dict[str, str]:
    """Return the avatars of the agents by id; empty if the workspace cannot be loaded."""
    try:
        profiles = load_workspace(context).profiles
    except ArenaError:
        return {}
    return {agent_id: profile.avatar for agent_id, profile in profiles.items()}


def load_scenarios(context: typer.Context, selected: Selected) -> tuple[Workspace, Sorted]:
    """Load the workspace; return it, its scenarios in these files, and the invalid files.

    Raises FileFaults with all errors in all files if the workspace itself is invalid.
    """
    from arena_cli.scenarios import loader

    try:
        loaded = load_workspace(context)
    except FileFaults as error:
        faults = loader.shape_faults(
            selected, find_root(context), anywhere=context.obj.allow_outside
        )
        raise FileFaults([*error.faults, *faults]) from error
    return loaded, loader.sort(selected, loaded)


def warn_of_faults(faults: Iterable[Fault]) -> None:
    """Print each warning about files on stderr, once."""
    for fault in dict.fromkeys(faults):
        print_error(f"{language.translate_message('warning')}: {translate_fault(fault)}")


def translate_fault(fault: Fault) -> Fault:
    """Return an error of a file in the user's language; the quoted line stays as it is."""
    file, what, mend = map(language.translate_message, (fault.file, fault.what, fault.mend))
    return dataclasses.replace(fault, file=file, what=what, mend=mend)


def describe_error(error: ArenaError) -> str:
    """Return the message of an error, and its hint, in the user's language."""
    if isinstance(error, FileFaults):
        return "\n".join(str(translate_fault(fault)) for fault in error.faults)
    if language.current_language() == "en":
        return str(error)
    return "\n  ".join(filter(None, map(language.translate_message, (error.what, error.mend))))


def find_session(
    context: typer.Context, session: str | None, *, or_archived: bool = False
) -> Stored:
    """Return the session of that name, by default the last one. Raises UsageError.

    With `or_archived` it may be archived; its transcript is then a temporary file.
    """
    root = find_root(context)
    if session is None:
        return store.last(root)
    path = store.find_archive(root, store.checked(session)) if or_archived else None
    archived = next(iter(read_archived(context, path)), None) if path else None
    return archived or store.find(root, session)


def find_existing(root: Path, session: str | None) -> Stored | None:
    """Return the session of that name, None if it is new. Raises UsageError for an invalid name."""
    if session is None:
        return None
    folder = store.existing(store.sessions_folder(root), store.checked(session))
    has_events = folder is not None and (folder / store.TRANSCRIPT).is_file()
    return store.find(root, session) if has_events else None


def check_prices(loaded: Workspace, team: Team, agents: Iterable[Member]) -> None:
    """Check that the price of each of these agents is known if a budget needs it."""
    if limits := team.config.budget:
        budget = import_module("arena_cli.engine.budget")
        budget.check_prices(limits, agents, loaded.file.models)


def read_archived(context: typer.Context, only: Path | None = None) -> Iterable[Stored]:
    """Return the archived sessions, or `only` that of an archive, from temporary files."""
    root = find_root(context)
    if not store.archive_folder(root).is_dir():
        return ()
    session_list = import_module("arena_cli.cli.session_list")
    stored_sessions: Iterable[Stored] = session_list.read_archived(context, root, only)
    return stored_sessions


def archive_old_sessions(
    loaded: Workspace, config: SessionConfig, kept: Collection[str] = ()
) -> None:
    """Archive the sessions that are older than `retention` allows, and report it in one line."""
    days = loaded.file.retention.archive_after_days
    if days is not None or store.archive_folder(loaded.root).is_dir():
        session_list = import_module("arena_cli.cli.session_list")
        session_list.archive_old_sessions(config, days, kept)


def find_team(loaded: Workspace, stored: Stored | None, name: str | None = None) -> Team:
    """Return the team of that name, else the session's, else the workspace's, else every agent."""
    opening = queries.read_session_event(stored.transcript) if stored and name is None else None
    return loaded.team(opening.team if opening else name or loaded.file.team)


def make_config(loaded: Workspace, *, wait_s: float, connects: bool = False) -> SessionConfig:
    """Return the configuration with which sessions of that workspace are read and written.

    Unless it `connects`, it is for commands that only read; `trust` decides about all others.
    """
    return SessionConfig(
        workspace=loaded.root,
        durability=loaded.file.durability or "fsync",
        language=loaded.file.language,
        redact=loaded.file.redact,
        environ={**agents.read_dotenv(loaded.root), **os.environ},
        profiles=tuple(loaded.profiles.values()),
        wait_s=wait_s,
        models=loaded.file.models,
        memory=loaded.file.memory,
        lanes=loaded.file.lanes,
        summarizer=loaded.summarizer,
        extractor=loaded.extractor,
        memory_judge=loaded.memory_judge,
        connects=connects,
        find_agent=loaded.find_agent,
        flows=FlowHost(loaded),
        on_problem=lambda problem: warn(str(problem)),
        on_progress=report_indexing,
    )


def report_indexing(done: int, total: int) -> None:
    """Report on stderr that reading the notes takes long."""
    warn(f"arena: reading notes into the index: {done:,} of {total:,}")


def warn(text: str) -> None:
    """Print a message on stderr, in the user's language; continue if stderr cannot be written."""
    print_error(language.translate_message(text))


def print_error(text: str) -> None:
    """Print a text on stderr as it is; continue if stderr cannot be written."""
    try:
        print(streams.wrap(text, sys.stderr), file=sys.stderr, flush=True)
    except OSError:
        streams.drop(sys.stderr)


def print_line(text: str, *, is_data: bool = False) -> None:
    """Print a line on stdout, wrapped on a terminal unless it is data to be copied.

    Raises DiskRefused; a closed pipe is not an error.
    """
    output = streams.Stdout()
    output.write(f"{text if is_data else streams.wrap(text, sys.stdout)}\n")
    output.check()


def print_lines(texts: Iterable[str]) -> None:
    """Print lines on stdout one by one; see `print_line`."""
    for text in texts:
        print_line(text)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; see `print_line`."""
    streams.speak_utf8()
    print_line(escape_json(json.dumps(value, ensure_ascii=False, indent=2)), is_data=True)


def warn_of_problems(transcript: Path, problems: Iterable[Problem]) -> None:
    """Print a line on stderr for each line of a transcript that was skipped."""
    for problem in problems:
        warn(f"{transcript}:{problem.line}: {problem.what}")


_MENTION = lazy_pattern(r"[@＠]\S+")

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# Of all wrong uses typer names only this one's children, and not the base of all its errors.
WrongUse = cast("type[Exception]", typer.BadParameter.__base__)
CommandLineError = cast("type[Exception]", WrongUse.__base__)


class MessageCommand(Command):
    """A command that takes a message; its errors explain how to quote one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the special cases of this command."""
        try:
            return super().parse_args(ctx, args)
        except WrongUse as error:
            wrong: Any = error
            hint = _hint(wrong)
            if hint:
                wrong.message += f"\n  {hint}"
            raise


def _hint(wrong: Any) -> str:
    if type(wrong) is WrongUse:  # too many arguments
        return 'Quote a message of several words: arena send "hello there"'
    if not getattr(wrong, "possibilities", True):  # an option that is like no other
        return 'Put `--` before a message that begins with `-`: arena send -- "- hello"'
    return ""


def read_message(argument: str | None, file: Path | None) -> str:
    """Return the text to send: the argument, a file, or stdin if it is a pipe or `-`."""
    if argument is not None and file is not None:
        raise UsageError("a MESSAGE and --file were given", "Give one of them.")
    if file is not None:
        return _read(file)
    if argument is not None and argument != "-":
        if any("\udc80" <= character <= "\udcff" for character in argument):
            raise _undecodable(argument.encode("utf-8", "surrogateescape"), "MESSAGE", ["utf-8"])
        return argument
    if argument is None and sys.stdin.isatty():
        raise UsageError("there is no message", 'Write one: `arena send "hello"`.')
    return _read(None)


def _read(file: Path | None) -> str:
    """Return the text of a file, or of stdin, without its last line end."""
    name = file or "stdin"
    try:
        data = files.read_input(file) if file else sys.stdin.buffer.read()
    except OSError as error:
        label = "this file" if file else "it"
        raise UsageError(f"{name}: cannot read {label}: {error.strerror or error}") from error
    text = decoded(data, str(name))
    if file is None:
        _check_replaced(text)
    return text.removesuffix("\n").removesuffix("\r")


def decoded(data: bytes, name: str) -> str:
    """Decode a message: by its byte order mark, as UTF-8, else by the locale.

    Raises UsageError with the line in `name` and the likely encoding.
    """
    marked = [encoding for bom, encoding in _BOMS.items() if data.startswith(bom)]
    is_plain = marked or b"\0" not in data[:4]
    encodings = marked or ["utf-8", locale.getencoding()]
    for encoding in encodings if is_plain else ():
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding)
    raise _undecodable(data, name, encodings)


def _undecodable(data: bytes, name: str, encodings: Iterable[str]) -> UsageError:
    names = list(dict.fromkeys(codec.upper().removesuffix("-SIG") for codec in encodings))
    line = 1
    try:
        data.decode(names[0])
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    is_marked = any(data.startswith(bom) for bom in _BOMS)
    likely = "" if is_marked else loader.guess_encoding(data)[0]
    problem = f"{name}:{line}: the message is not {' or '.join(names)}"
    if likely in ("", *names):
        return UsageError(problem, "Write the message as UTF-8.")
    source = name if name not in ("stdin", "MESSAGE") else "FILE"
    return UsageError(
        f"{problem}; it looks like {likely}",
        f"Write it as UTF-8, or convert it: `iconv -f {likely} -t UTF-8 {source} | arena send -`.",
    )


def _check_replaced(text: str) -> None:
    """Raise UsageError if a message from a pipe has `?` for all its characters.

    Windows PowerShell replaces those that its encoding lacks, and ends the text with CRLF.
    """
    words = _MENTION.sub("", text)
    is_replaced = "???" in words and not any(character.isalnum() for character in words)
    if is_replaced and text.endswith("\r\n"):
        raise UsageError(
            "stdin: the message consists of `?`: the shell replaced its characters",
            "In PowerShell, run `$OutputEncoding = [Text.Encoding]::UTF8` first, or use --file.",
        )


T = TypeVar("T")


class Interrupted(BaseException):
    """The user, or the system, requested arena to stop."""

    exit_code = errors.EXIT_INTERRUPTED


def install() -> None:
    """Install signal handlers that raise Interrupted while no event loop runs."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - given by signal
        raise Interrupted("interrupted")

    process_signals.set_handlers(stop)
    previous = sys.unraisablehook

    def exit_if_interrupted(unraisable: UnraisableHookArgs) -> None:
        """Exit if the signal arrived in code that cannot raise: Python would drop the exception."""
        if not issubclass(unraisable.exc_type, Interrupted):
            previous(unraisable)
            return
        with contextlib.suppress(OSError):
            print("arena: interrupted", file=sys.stderr, flush=True)
        os._exit(errors.EXIT_INTERRUPTED)

    sys.unraisablehook = exit_if_interrupted


def run(work: Coroutine[Any, Any, T], *, hint: str) -> T:
    """Run a coroutine; a signal cancels it, so that it can write its state.

    `hint` is how to continue. A second signal stops the event loop, and with it the writing. A
    third one ends code that never returns to the loop, such as a third-party adapter. Raises
    Interrupted.
    """
    caught = _Signals()
    previous = process_signals.set_handlers(caught.stop)
    try:
        return asyncio.run(caught.cancel(work))
    except asyncio.CancelledError:
        if caught.count == 0:
            raise
    except RuntimeError:  # that the loop was stopped
        if caught.count < 2:
            raise
        # What was left in the middle complains when it is collected.
        sys.unraisablehook = lambda _: None
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    raise Interrupted(f"interrupted\n  {hint}" if hint else "interrupted")


_WAKE_S = 0.5


class _Signals:
    """The signals received while a loop runs; `count` is their number.

    The first cancels the work, the second stops the loop. The third raises KeyboardInterrupt in the
    code that is running; no code of arena catches it as an error. The end of a terminal may be
    signalled twice, by the system and by the shell, so it never counts as a second signal.
    """

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Future[Any] | None = None

    async def cancel(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine until it ends or the first signal cancels it."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        self._task = task
        if self.count:  # it came before the loop ran
            task.cancel()
        self._wake(self._loop)
        return await task

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the loop regularly: Python handles a signal only while its main thread runs.

        A signal that arrives just before the loop begins to wait does not end the wait.
        """
        loop.call_later(_WAKE_S, self._wake, loop)

    def stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - given by signal
        """Handle a signal."""
        if self.count and number in process_signals.HANGUPS:
            return
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt
        if self.count == 2:
            # The threads that wait for programs complain that the loop is gone.
            logging.getLogger("asyncio").disabled = True
        if self._loop is None or self._task is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed: all is done
            act = self._task.cancel if self.count == 1 else self._loop.stop
            self._loop.call_soon_threadsafe(act)
