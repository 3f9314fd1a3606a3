"""Define the program: its commands, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import typer

from arena_cli import __version__, errors
from arena_cli.cli import command_line, common, streams
from arena_cli.cli.common import Interrupted, Options
from arena_cli.cli.options import NoPager
from arena_cli.errors import ArenaError, DiskRefused
from arena_cli.util import language, process_signals

# Each module with its commands: functions, or groups (`task_app`), which may have a class of their
# own (`SendCommand`); below, the commands under their headings.
_MODULES = {
    "workspace": ("init", "teams", "schema"),
    "send": ("send", "resume"),
    "dry_run": ("plan",),
    "detached": ("wait",),
    "control": (
        *("pause", "cancel", "steer", "terminate", "checkpoint", "checkpoints", "fork", "rewind"),
        *("edit", "reassign", "react", "read", "unread"),
    ),
    "status": ("status",),
    "approvals": ("approvals", "approve", "reject", "choose"),
    "tasks": ("task", "tasks", "work"),
    "run": ("run",),
    "flow": ("flow",),
    "promote": ("promote",),
    "sessions": ("show", "doctor", "path"),
    "context": ("context", "usage"),
    "diff": ("diff",),
    "export": ("export",),
    "session_list": ("sessions",),
    "trust": ("trust",),
    "knowledge": ("knowledge",),
    "agents": ("agents",),
    "mcp": ("mcp",),
}
_SECTIONS = {
    "Set up": ("init", "agents", "teams", "trust", "doctor"),
    "Converse": (
        *("send", "plan", "flow", "resume", "wait", "react", "read", "unread"),
        *("show", "sessions", "export", "usage"),
    ),
    "Work": ("task", "tasks", "work"),
    "Control": (
        *("status", "approvals", "approve", "reject", "choose"),
        *("pause", "cancel", "steer", "terminate"),
        *("checkpoint", "checkpoints", "fork", "rewind", "edit", "reassign"),
    ),
    "Test": ("run", "promote", "diff"),
    "Remember": ("knowledge", "context"),
    "Connect": ("mcp",),
    "Files": ("schema", "path"),
}


class _ImportedCommands(MutableMapping[str, Any]):
    """The commands by name; each is imported only when it is looked up, to keep the start fast.

    Click documents the pattern: "Lazily Loading Subcommands".
    """

    def __init__(self) -> None:
        self._places = {name: module for module, names in _MODULES.items() for name in names}

    def __getitem__(self, name: str) -> Any:
        module = importlib.import_module(f"arena_cli.cli.{self._places[name]}")
        command = getattr(module, f"{name}_app", None)
        if command is None:
            command = command_line.App()
            own_class = getattr(module, f"{name.capitalize()}Command", command_line.Command)
            command.command(name, cls=own_class)(getattr(module, name))
        loaded = typer.main.get_command(command)
        loaded.name = name
        return loaded

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are listed in _MODULES")

    def __delitem__(self, name: str) -> None:
        del self._places[name]


# Names that users of other programs try first, and the commands that do it.
_MEANT = {
    "list": "`arena sessions`, `arena agents` or `arena teams`",
    "ls": "`arena sessions`, `arena agents` or `arena teams`",
    "logs": "`arena show`",
    "log": "`arena show`",
    "history": "`arena show`",
    "new": "`arena init` for a workspace, `arena send MESSAGE` for a session",
    "create": "`arena init` for a workspace, `arena agents add ID` for an agent",
    "start": "`arena send MESSAGE`",
    "chat": "`arena send MESSAGE`",
    "test": "`arena run`",
    "completion": "`arena --install-completion`",
}


class Commands(command_line.Group):
    """The group of all commands."""

    sections = _SECTIONS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments; `help COMMAND` is that command with --help."""
        if args[0] == "help":
            args = [*args[1:], "--help"]
            if len(args) == 1:
                common.print_line(ctx.get_help())
                raise typer.Exit
        elif args[0] in _MEANT:
            ctx.fail(f"No such command '{args[0]}'\nuse {_MEANT[args[0]]}")
        return super().resolve_command(ctx, args)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _ImportedCommands()


app = typer.Typer(
    name="arena",
    cls=Commands,
    help="Run a team of your AI agents in one conversation.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        common.print_line(f"arena {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            help="Use this workspace (a folder with arena.yaml or agents/); by default "
            "ARENA_WORKSPACE, else the nearest one from here upwards.",
        ),
    ] = None,
    allow_outside: Annotated[
        bool,
        typer.Option(
            "--allow-outside",
            envvar="ARENA_ALLOW_OUTSIDE",
            show_envvar=False,
            help="Read files outside the workspace that its files or links refer to; "
            "ARENA_ALLOW_OUTSIDE=1 does the same.",
        ),
    ] = False,
    no_pager: NoPager = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that every command takes."""
    asked = context.ensure_object(Options)
    asked.workspace, asked.debug, asked.allow_outside = workspace, debug, allow_outside
    asked.pager = not no_pager


def run() -> None:
    """Run the command line and exit: with 0 on success, else see docs/reference/exit-codes.md."""
    # A short program with many small records that stay: a full look at them, again and again, is
    # a tenth of the time of a long run.
    gc.set_threshold(50_000, 20, 20)
    streams.prepare()
    language.use_workspace(None)
    options = Options()
    try:
        common.install()
        try:
            # Also as `python -m arena_cli` it is called arena: completion goes by this name.
            code = app(prog_name="arena", obj=options, standalone_mode=False)
            sys.exit(code if isinstance(code, int) else 0)
        except Exception as error:  # noqa: BLE001 - a fault of arena is told in one line too
            if options.debug:
                trace = "".join(traceback.format_exception(error))
                common.warn(common.make_redactor(options).text_or_nothing(trace).rstrip("\n"))
            sys.exit(_report_error(error, options))
    except Interrupted as interrupted:
        process_signals.exit_at_once()
        common.warn(f"arena: {interrupted}")
        sys.exit(interrupted.exit_code)


def _report_error(error: Exception, options: Options) -> int:
    """Report an error on stderr; return its exit code."""
    if isinstance(error, common.CommandLineError):
        return _report_wrong_use(error, options)
    if isinstance(error, ArenaError):
        common.print_error(f"arena: {common.describe_error(error)}")
        return error.exit_code
    if isinstance(error, typer.Abort):
        common.warn("arena: aborted")
        return errors.EXIT_NOT_HELD
    if isinstance(error, OSError):
        # What stdout refused it refuses again, now, or at exit after the last word.
        refused = _refused_by_stdout()
        place = f"{error.filename}: " if error.filename else ""
        if error.errno == errno.ENOSPC and not place:  # a file that is written has its name
            place = "stdout: could not write: "
        common.warn(f"arena: {refused or f'{place}{error.strerror or error}'}")
        return errors.EXIT_REFUSED
    problem = common.make_redactor(options).text_or_nothing(f"{type(error).__name__}: {error}")
    common.warn(f"arena: internal error: {problem}")
    common.warn("  Run it again with --debug before the command to see the traceback.")
    return errors.EXIT_FAILED


def _report_wrong_use(error: Any, options: Options) -> int:
    """Report a command line that typer refuses, in the user's language; return its exit code."""
    with contextlib.suppress(ArenaError):
        common.use_root(options)
    common.warn(command_line.explain_wrong_use(error))
    return int(error.exit_code)


def _refused_by_stdout() -> DiskRefused | None:
    """Return the error of a stdout that refuses its buffered text, or None."""
    out = streams.Stdout()
    out.write("")
    try:
        out.check()
    except DiskRefused as error:
        return error
    return None
