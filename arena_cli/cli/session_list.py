"""List, archive, restore, rename and delete sessions: `arena sessions`.

Other commands read archived sessions, and archive old ones, only if there are any.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_cli import errors
from arena_cli.cli import command_line, common, options, trust
from arena_cli.errors import UsageError
from arena_cli.reports.lines import user_words
from arena_cli.session import end_of_life, store
from arena_cli.session.end_of_life import ArchiveDamaged
from arena_cli.util.clock import SystemClock
from arena_cli.util.text import escape_line, shorten_text

if TYPE_CHECKING:
    from arena_cli.adapters.base import SessionConfig
    from arena_cli.reports.lines import Words
    from arena_cli.session.store import Stored

sessions_app = command_line.App(
    help="List, archive, restore, rename or delete sessions.",
)

OneSession = Annotated[
    str, options.session_argument(metavar="SESSION", help="Rename this session.")
]
SomeArchive = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Restore this session.",
        autocompletion=command_line.complete_archived,
    ),
]
SomeSessions = Annotated[
    list[str], options.session_argument(metavar="SESSION", help="Use these sessions.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@sessions_app.callback(invoke_without_command=True)
def sessions(
    context: typer.Context,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="List at most N sessions."),
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="List the archived sessions instead.")
    ] = False,
    running: Annotated[
        bool, typer.Option("--running", help="List only sessions that a process runs now.")
    ] = False,
    as_json: options.ListAsJson = False,
) -> None:
    """List the sessions, the most recently written first; or archive, rename or delete one.

    Each line has the team, the state, the local time of the last event, and the first message,
    or the name of a flow.
    """
    if context.invoked_subcommand is not None:
        return
    root = common.find_root(context)
    if archived and running:
        raise UsageError("--archived and --running were given", "Give one of them.")
    is_listed = (lambda session: store.is_held(session.folder)) if running else None
    rows = _archived_rows(root, limit) if archived else store.summaries(root, limit, is_listed)
    if as_json:
        common.print_json(rows)
        return
    problem = 'no sessions yet; start one: arena send "hello"'
    if archived:
        problem = "no session is archived; archive one: arena sessions archive SESSION"
    elif running:
        problem = "no session is running"
    if not rows:
        common.warn(problem)
    say, now = user_words(), SystemClock().now()
    for row in rows:
        common.print_line(" · ".join(escape_line(str(fact)) for fact in _facts(row, now, say)))


def _archived_rows(root: Path, limit: int | None) -> list[dict[str, str | None]]:
    """Return a row for each archived session; warn of damaged archives."""
    rows: list[dict[str, str | None]] = []
    for archived in end_of_life.list_archived(root)[:limit]:
        try:
            rows.append({"session": archived.name, **end_of_life.read_summary(archived.path)})
        except ArchiveDamaged as error:
            common.warn(str(error))
    return rows


def _facts(row: dict[str, str | None], now: datetime, say: Words) -> list[str | None]:
    if row["end"] is None:  # packed by another program
        return [row["session"]]
    changed = _local_time(row["changed"] or "", now, say)
    first = [shorten_text(" ".join(row["first"].split()), _FIRST)] if row["first"] else []
    return [
        row["session"],
        row["team"] or say("every agent"),
        say.enum(row["end"]),
        changed,
        *first,
    ]


_FIRST = 60  # characters of the first message in the list of sessions
_AGES = ((86_400, "{count} d ago"), (3_600, "{count} h ago"), (60, "{count} min ago"))


def _local_time(timestamp: str, now: datetime, say: Words) -> str:
    """Return a time in the zone of the reader, with its age."""
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        return timestamp
    seconds = (now - time).total_seconds()
    count, text = next(
        ((int(seconds // unit), text) for unit, text in _AGES if seconds >= unit),
        (max(0, int(seconds)), "{count} s ago"),
    )
    return f"{time.astimezone():%Y-%m-%d %H:%M} ({say(text, count=count)})"


@sessions_app.command("archive")
def archive_sessions(
    context: typer.Context,
    session: SomeSessions,
    wait: options.BusyWait = 0,
) -> None:
    """Replace sessions by zip files; `show`, `export` and `usage` still read them."""
    config, say = _config(context, wait), user_words()
    for name in session:
        path = end_of_life.archive_session(config, name, _warn_busy(name, wait))
        place = escape_line(path.relative_to(config.workspace).as_posix())
        common.print_line(say("archived {name}: {path}", name=escape_line(name), path=place))


@sessions_app.command("restore")
def restore(context: typer.Context, session: SomeArchive) -> None:
    """Restore an archived session, to continue it."""
    name = end_of_life.restore_session(_config(context, 0), session)
    say = user_words()
    common.print_line(say("restored {name}", name=escape_line(name)))


@sessions_app.command("rename")
def rename(
    context: typer.Context,
    session: OneSession,
    new_name: Annotated[str, typer.Argument(metavar="NAME", help="Give it this name.")],
    wait: options.BusyWait = 0,
) -> None:
    """Rename a session, also in the notes that name it."""
    config = _config(context, wait)
    name = end_of_life.rename_session(config, session, new_name, _warn_busy(session, wait))
    old, new = escape_line(session), escape_line(name)
    common.print_line(user_words()("renamed {old} to {new}", old=old, new=new))


@sessions_app.command("delete")
def delete(
    context: typer.Context, session: SomeSessions, yes: Yes = False, wait: options.BusyWait = 0
) -> None:
    """Delete sessions with their notes and attachments, or archived sessions."""
    config, say = _config(context, wait), user_words()
    for name in session:
        if store.find_archive(config.workspace, store.checked(name)) is None:
            store.find(config.workspace, name)
    names = escape_line(", ".join(session))
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"nothing was deleted: deleting {names} needs a confirmation", "Add --yes."
        )
    question = say("Delete {names} for good?", names=names)
    if not yes and not trust.agrees(question):
        raise typer.Exit(errors.EXIT_USAGE)
    for name in session:
        end_of_life.delete_session(config, name, _warn_busy(name, wait))
        common.print_line(say("deleted {name}", name=escape_line(name)))


def _config(context: typer.Context, wait: float) -> SessionConfig:
    return common.make_config(common.load_workspace(context), wait_s=wait)


def _warn_busy(name: str, wait: float) -> Callable[[], None]:
    return lambda: common.warn(f"session {name} is busy; waiting up to {wait:g} s")


def read_archived(context: typer.Context, root: Path, only: Path | None) -> Iterator[Stored]:
    """Yield the archived sessions, or `only` that of an archive, from temporary files.

    An archive of a session that exists is left out. The files are removed when the command ends.
    """
    folder = context.with_resource(tempfile.TemporaryDirectory(prefix="arena-"))
    for archived in end_of_life.list_archived(root):
        if only in (None, archived.path):
            yield end_of_life.read_archived(archived, Path(folder))


def archive_old_sessions(config: SessionConfig, days: int | None, kept: Collection[str]) -> None:
    """Archive the sessions that have not changed for `days`, and report it in one line."""
    retired = end_of_life.archive_old(config, days, kept)
    say = user_words()
    if retired.names:
        names = say(", ").join(map(escape_line, retired.names))
        text = say("archived, unchanged for {days} days: {names}", days=days, names=names)
        common.print_error(text)
    for problem in retired.problems:
        common.warn(f"warning: {problem}")
