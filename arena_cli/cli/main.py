"""The program: its commands, and the one place where errors become text and an exit code."""

from __future__ import annotations

import gc
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from arena_cli import __version__
from arena_cli.cli import (
    agents,
    common,
    context,
    diff,
    export,
    interrupt,
    knowledge,
    look,
    pages,
    promote,
    scenarios,
    streams,
    talk,
    trust,
    usage,
    workspace,
)
from arena_cli.cli.common import Options
from arena_cli.cli.interrupt import Interrupted
from arena_cli.ground import exits, signals
from arena_cli.ground.errors import ArenaError, DiskRefused

app = typer.Typer(
    name="arena",
    help="A team of AI agents that already exist, in one conversation.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("init")(workspace.init)
app.command("send", cls=talk.Command)(talk.send)
app.command("resume")(talk.resume)
app.command("run", cls=scenarios.Command)(scenarios.run)
app.command("promote")(promote.promote)
app.command("show", cls=pages.Command)(look.show)
app.command("context")(context.context)
app.command("usage")(usage.usage)
app.command("diff")(diff.diff)
app.command("export")(export.export)
app.command("sessions")(look.sessions)
app.add_typer(knowledge.knowledge_app, name="knowledge")
app.add_typer(agents.agents_app, name="agents")
app.command("trust")(trust.trust)
app.command("teams")(workspace.teams)
app.command("doctor")(look.doctor)
app.command("schema")(workspace.schema)
app.command("path")(look.path)


def _version(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        common.say(f"arena {__version__}")
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
            help="The folder with arena.yaml or agents/; else ARENA_WORKSPACE says it, "
            "else it is found from here upwards.",
        ),
    ] = None,
    allow_outside: Annotated[
        bool,
        typer.Option(
            "--allow-outside",
            envvar="ARENA_ALLOW_OUTSIDE",
            show_envvar=False,
            help="Read files outside the workspace that its files, or links in it, name; else "
            "ARENA_ALLOW_OUTSIDE=1 says it.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in arena an error came from.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Options that every command takes."""
    asked = context.ensure_object(Options)
    asked.workspace, asked.debug, asked.allow_outside = workspace, debug, allow_outside


def run() -> None:
    """Run the command line and exit: 0 done, else as docs/exit-codes.md says."""
    # A short program with many small records that stay: a full look at them, again and again, is
    # a tenth of the time of a long run.
    gc.set_threshold(50_000, 20, 20)
    streams.prepare()
    asked = Options()
    try:
        interrupt.install()
        try:
            # Also as `python -m arena_cli` it is called arena: completion goes by this name.
            app(prog_name="arena", obj=asked)
        except Exception as error:  # noqa: BLE001 - a fault of arena is told in one line too
            if asked.debug:
                trace = "".join(traceback.format_exception(error))
                common.warn(common.redactor_of(asked).text_or_nothing(trace).rstrip("\n"))
            sys.exit(_told(error, asked))
    except Interrupted as interrupted:
        signals.exit_at_once()
        common.warn(f"arena: {interrupted}")
        sys.exit(interrupted.exit_code)


def _told(error: Exception, asked: Options) -> int:
    """Tell an error on stderr; the exit code that it makes."""
    if isinstance(error, ArenaError):
        common.warn(f"arena: {error}")
        return error.exit_code
    if isinstance(error, OSError):
        # What stdout refused it refuses again, now, or at exit after the last word.
        refused = _refused_by_stdout()
        place = f"{error.filename}: " if error.filename else ""
        common.warn(f"arena: {refused or f'{place}{error.strerror or error}'}")
        return exits.REFUSED
    what = common.redactor_of(asked).text_or_nothing(f"{type(error).__name__}: {error}")
    common.warn(f"arena: a fault of arena itself: {what}")
    common.warn("  Run it again with --debug before the command to see where.")
    return exits.FAILED


def _refused_by_stdout() -> DiskRefused | None:
    """The error of a stdout that does not take what waits to be written."""
    out = streams.Stdout()
    out.write("")
    try:
        out.check()
    except DiskRefused as error:
        return error
    return None
