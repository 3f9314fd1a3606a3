"""`arena show --html`: a session as one page, in a file or on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from arena_cli.cli import common, streams
from arena_cli.ground.errors import UsageError

if TYPE_CHECKING:
    from arena_cli.cli.showing import ShownEvents
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.fold import Fold

STDOUT = "-"


class Command(TyperCommand):
    """`arena show`, whose `--html` may stand without a FILE."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, as every command does."""
        return super().parse_args(ctx, _filled_in(args))


def _filled_in(args: Sequence[str]) -> list[str]:
    """The arguments, with stdout for an `--html` that nothing follows but options."""
    filled: list[str] = []
    for place, arg in enumerate(args):
        following = args[place + 1 : place + 2]
        has_file = following and (following[0] == STDOUT or not following[0].startswith("-"))
        bare = arg == "--html" and not has_file and "--" not in filled
        filled.append(f"--html={STDOUT}" if bare else arg)
    return filled


def refuse_session(context: typer.Context, file: str) -> None:
    """Raises UsageError for `--html NAME` without a SESSION, where NAME is that of one."""
    from arena_cli.session import store

    if any(one.name == file for one in store.stored(common.root_of(context))):
        raise UsageError(
            f"--html {file}: this is the name of a session, and would be that of the file",
            f"Put the session first: `arena show {file} --html`; or write the file as ./{file}",
        )


def show(
    context: typer.Context,
    stored: Stored,
    choose: Callable[[ShownEvents], Iterable[Event]],
    file: str,
) -> None:
    """Write the page of what is chosen of a session."""
    from arena_cli.cli import reports, showing
    from arena_cli.report import html, words

    target = reports.opened("--html", Path(file)) if file != STDOUT else None

    heading: list[Event] = []

    def goes_on(fold: Fold) -> None:
        if fold.session:
            heading.append(fold.session)

    told = list(choose(showing.ShownEvents(stored, goes_on)))
    events = [*heading, *told]
    page = html.session_page(stored.name, events, common.avatars_of(context), words.here())
    if target:
        reports.replace(target, page.encode("utf-8"))
        return
    streams.speak_utf8()
    out = streams.Stdout()
    out.write(page)
    out.check()
