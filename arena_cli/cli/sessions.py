"""Read sessions without a lock: `arena show`, `sessions`, `doctor` and `path`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from arena_cli import __version__, errors
from arena_cli.cli import agents, common, options, report_files, streams, trust
from arena_cli.cli.agents import Connect
from arena_cli.cli.command_line import Command
from arena_cli.cli.common import Interrupted
from arena_cli.cli.streams import Printer
from arena_cli.context import render as render_module
from arena_cli.errors import UsageError
from arena_cli.reports.html import render
from arena_cli.reports.lines import user_words
from arena_cli.session import preview, store
from arena_cli.session.doctor import examine
from arena_cli.transcript import queries, reader
from arena_cli.transcript.queries import Passage
from arena_cli.transcript.state import Fold
from arena_cli.util import clock, language
from arena_cli.util.text import escape_line, escape_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event


STDOUT = "-"


class ShowCommand(Command):
    """The command `arena show`, which accepts `--html` without a FILE."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the special cases of this command."""
        return super().parse_args(ctx, _filled_in(args))


def _filled_in(args: Sequence[str]) -> list[str]:
    """Return the arguments, with `-` inserted after an `--html` that only options follow."""
    filled: list[str] = []
    for index, arg in enumerate(args):
        following = args[index + 1 : index + 2]
        has_file = following and (following[0] == STDOUT or not following[0].startswith("-"))
        bare = arg == "--html" and not has_file and "--" not in filled
        filled.append(f"--html={STDOUT}" if bare else arg)
    return filled


def refuse_session(context: typer.Context, file: str) -> None:
    """Raise UsageError for `--html NAME` without a SESSION if NAME is the name of a session."""
    if any(session.name == file for session in store.stored(common.find_root(context))):
        raise UsageError(
            f"--html {file}: this is the name of a session, and --html expects a file",
            f"Put the session first: `arena show {file} --html`; or write the file as ./{file}",
        )


def write_page(
    context: typer.Context,
    stored: Stored,
    selection: ShownPart,
    file: str,
) -> None:
    """Write an HTML page with the chosen events of a session."""
    target = report_files.opened("--html", Path(file)) if file != STDOUT else None

    heading: list[Event] = []

    def goes_on(fold: Fold) -> None:
        if fold.session:
            heading.append(fold.session)

    chosen = list(ShownEvents(stored, selection, goes_on).choose())
    events = [*heading, *chosen]
    page = render.session_page(stored.name, events, common.read_avatars(context), user_words())
    if target:
        report_files.replace(target, page.encode("utf-8"))
        return
    streams.print_pieces([page])


OneTurn = Annotated[
    str | None,
    options.selection_option(
        "--turn", metavar="N", help="Print only this turn of the session: 7, t7, or `last` (-1)."
    ),
]
OneAgent = Annotated[
    str | None,
    options.agent_option(
        help="Print only the replies and calls of this agent, by id or name.",
        rich_help_panel="Selection",
    ),
]
AfterSeq = Annotated[
    int | None,
    options.selection_option(
        "--after-seq", metavar="N", min=0, help="Print only what follows event N."
    ),
]
AfterTime = Annotated[
    str | None,
    options.selection_option(
        "--after",
        metavar="TIME",
        help="Print only what was written at this time or later: 14:30, 2026-11-28, "
        "2026-11-28T14:30, or 2h (ago).",
    ),
]
BeforeTime = Annotated[
    str | None,
    options.selection_option(
        "--before", metavar="TIME", help="Print only what was written before this time."
    ),
]
Last = Annotated[
    int | None,
    options.selection_option(
        "--last",
        "-n",
        metavar="N",
        min=1,
        help="Print only the last N messages; with --agent, the last N replies of this agent.",
    ),
]
Follow = Annotated[
    bool,
    options.output_option(
        "--follow",
        "-f",
        help="Print new events as they are written, until Ctrl-C; begins with the last "
        "message's chain, or after --after-seq or --last.",
    ),
]
WithContext = Annotated[
    bool,
    options.output_option(
        "--context",
        help="Print the input of --agent at its last call, or in --turn: system text and "
        "prompt, rebuilt from the transcript.",
    ),
]
EventsOrInputAsJson = Annotated[
    bool,
    options.output_option(
        "--json",
        help="Print the events as in the transcript, one per line; with --context the input.",
    ),
]
AsPage = Annotated[
    str | None,
    options.output_option(
        "--html",
        metavar="[FILE]",
        help="Write one page of HTML to this file; without FILE, or for `-`, to stdout.",
    ),
]
WithSteps = Annotated[
    bool,
    options.output_option(
        "--steps", help="Print all steps of replies with tools: thoughts, calls and results."
    ),
]
ItsTranscript = Annotated[
    str | None,
    options.session_argument(
        help="Print the path of this session's transcript; by default of the workspace."
    ),
]
WholeSession = Annotated[
    str | None, options.session_argument(help="Check the whole transcript of this session.")
]


def show(
    context: typer.Context,
    session: options.LastSession = None,
    turn: OneTurn = None,
    agent: OneAgent = None,
    after_seq: AfterSeq = None,
    after: AfterTime = None,
    before: BeforeTime = None,
    last: Last = None,
    follow: Follow = False,
    shown_context: WithContext = False,
    steps: WithSteps = False,
    as_json: EventsOrInputAsJson = False,
    html: AsPage = None,
    no_pager: options.NoPager = False,
) -> None:
    """Print a session's timeline from its transcript."""
    _check_together(
        {
            "--context": shown_context,
            "--follow": follow,
            "--turn": turn is not None,
            "--after-seq": after_seq is not None,
            "--after": after is not None,
            "--before": before is not None,
            "--last": last is not None,
            "--agent": agent is not None,
            "--json": as_json,
            "--html": html is not None,
        }
    )
    if html is not None and session is None:
        refuse_session(context, html)
    turn_number = parse_turn(turn) if turn is not None else None
    stored = common.find_session(context, session, or_archived=not shown_context)
    agent_id = queries.agent_named(stored.transcript, agent) if agent is not None else None
    times = {"after": _parse_time(after), "before": _parse_time(before)}
    selection = ShownPart(turn_number, after_seq, last, agent_id, follow, **times)
    if html is not None:
        write_page(context, stored, selection, html)
    elif shown_context and agent_id:
        _show_context(context, stored, agent_id, turn_number, as_json=as_json)
    else:
        pages = context.obj.pager and not no_pager and not follow
        printer = Printer(
            as_json=as_json,
            avatars={} if as_json else common.read_avatars(context),
            pages=pages,
            is_skipped=reader.read_revisions(stored.transcript).is_skipped,
            has_steps=steps,
        )
        shown = ShownEvents(stored, selection, printer.goes_on)
        _print_events(printer, shown.choose(), selection)


def _parse_time(text: str | None) -> str:
    return "" if text is None else clock.parse_time(text, clock.SystemClock().now())


def _print_events(printer: Printer, events: Iterable[Event], selection: ShownPart) -> None:
    try:
        for event in filter_by_agent(events, selection.agent):
            printer.event(event)
            if not printer.out.is_read:
                break
        printer.finish()
    except Interrupted:
        if not selection.follow:
            raise
        raise typer.Exit(errors.EXIT_INTERRUPTED) from None  # the way to end it; nothing to explain
    finally:
        printer.close()
    printer.out.check()


def _check_together(options: Mapping[str, bool]) -> None:
    """Raise UsageError for options that exclude each other."""
    excluded = {
        "--context": ("--follow", "--after-seq", "--last", "--after", "--before"),
        "--follow": ("--turn", "--before"),
        "--turn": ("--after-seq", "--last", "--after", "--before"),
        "--after-seq": ("--after", "--last"),
        "--last": ("--after",),
        "--html": ("--json", "--follow", "--context", "--agent"),  # a page has its own filter
    }
    for first, others in excluded.items():
        for second in others:
            if options[first] and options[second]:
                raise UsageError(f"{first} and {second} were given", "Give one of them.")
    if options["--context"] and not options["--agent"]:
        raise UsageError(
            "--context shows what one agent was shown", "Name the agent: --context --agent ID."
        )


def _show_context(
    context: typer.Context, stored: Stored, agent: str, turn: int | None, *, as_json: bool
) -> None:
    """Print an agent's input: the system text and the prompt, or the input as JSON."""
    number = None if turn is None else queries.turn_number(stored.transcript, turn)
    loaded = common.load_workspace(context)
    config = common.make_config(loaded, wait_s=0)
    recalled = preview.recall_call(stored, agent, number, config=config, team_of=loaded.team)
    planned = recalled.planned
    if not recalled.same:
        common.warn(
            f"{escape_line(planned.agent)}, turn {planned.turn}: its files, the team's or its "
            "notes have changed since; this is what it would be shown now"
        )
    if as_json:
        common.print_json(planned.input.model_dump(mode="json"))
        return
    system, prompt = render_module.render(planned.input, loaded.file.language)
    say = user_words()
    call = say("turn {turn} {phase}", turn=planned.turn, phase=planned.phase)
    tokens = say("~{count} tokens", count=planned.input_tokens)
    common.print_line(f"{escape_line(planned.agent)} · {call} · {tokens}")
    for name, text in ((say("system"), system), (say("prompt"), prompt)):
        common.print_line(f"\n── {name}\n{escape_text(text.rstrip())}")


def path(
    context: typer.Context,
    session: ItsTranscript = None,
) -> None:
    """Print the workspace's folder, or the path of a session's transcript."""
    root = common.find_root(context)
    target = root if session is None else store.find(root, session).transcript
    common.print_line(str(target), is_data=True)


def doctor(
    context: typer.Context,
    session: WholeSession = None,
    connect: Connect = False,
) -> None:
    """Check the workspace and its agents, or every line of one session. Exits 1 on a problem.

    Without --connect it starts and contacts nothing.
    """
    if session is not None and connect:
        raise UsageError("--connect checks agents, not a session", "Leave one of them out.")
    sound = _check_session(context, session) if session else _check_workspace(context, connect)
    if not sound or context.obj.has_left:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _check_workspace(context: typer.Context, connect: bool) -> bool:
    import platform

    common.print_line(
        f"arena {__version__} · Python {platform.python_version()} · {platform.platform()}"
    )
    loaded = common.load_workspace(context)
    if connect:
        trust.require_agents(loaded)
    say = user_words()
    common.print_line(say("workspace {name}", name=loaded.root))
    common.print_line(say("sessions {count}", count=len(store.stored(loaded.root))))
    return agents.print_health(loaded, connect=connect)


def _check_session(context: typer.Context, session: str) -> bool:
    stored = common.find_session(context, session)
    examined = examine(stored.transcript, common.find_root(context))
    text = "{place}: {lines} lines, {events} events, {chains} chains, {replies} replies"
    counts = {name: getattr(examined, name) for name in ("lines", "events", "chains", "replies")}
    common.print_line(user_words()(text, place=stored.transcript, **counts))
    for remark in examined.notes:
        common.print_line(f"  {language.translate_message(remark)}")
    for problem in examined.problems:
        common.warn(problem)
    return not examined.problems


LAST = -1


def parse_turn(text: str) -> int:
    """Return the number of a turn: of `7` or `t7`, -1 for `last`. Raises UsageError."""
    word = text.strip().casefold()
    if word == "last":
        return LAST
    try:
        number = int(word.removeprefix("t"))
    except ValueError:
        number = 0
    if number == 0:
        raise UsageError(
            f"--turn {text!r} is not a turn", "Give its number, such as 7 or t7, or `last`."
        )
    return number


class ShownPart(NamedTuple):
    """The part of a session to be shown: a turn, or what follows an event, or the last messages.

    `after` and `before` are times as in events; the first belongs to the part.
    """

    turn: int | None = None
    after_seq: int | None = None
    last: int | None = None
    agent: str | None = None
    follow: bool = False
    after: str = ""
    before: str = ""


class ShownEvents:
    """The events of a session to be shown, in order.

    `heading` receives the state before them if the first event is not the transcript's own.
    """

    def __init__(self, stored: Stored, part: ShownPart, heading: Callable[[Fold], None]) -> None:
        self._stored = stored
        self._path = stored.transcript
        self._part = part
        self._heading = heading
        self._cut = False

    def choose(self) -> Iterator[Event]:
        """Yield the events; those of all agents."""
        before = self._part.before
        return (event for event in self._choose() if not before or event.ts < before)

    def _choose(self) -> Iterator[Event]:
        """Yield the events; those that came too late, too."""
        part = self._part
        if part.turn is not None:
            return self._turn(part.turn)
        seq = part.after_seq
        if part.last:
            seq = queries.seq_before_last(self._path, part.last, part.agent, part.before)
        if part.after:
            seq = queries.seq_before_time(self._path, part.after)
        if part.follow:
            return self._following(seq)
        return self._everything() if seq is None else self._after(seq)

    def _everything(self) -> Iterator[Event]:
        """Yield all readable events; report unreadable lines on stderr."""
        for line in reader.read_lines(self._path):
            common.warn_of_problems(self._path, [line.problem] if line.problem else [])
            yield from line.events

    def _turn(self, requested: int) -> Iterator[Event]:
        """Yield a turn's events, by its number or from the end."""
        number = queries.turn_number(self._path, requested)
        yield from self._passage(queries.turn(self._path, number))

    def _after(self, seq: int) -> Iterator[Event]:
        """Yield the events after an event."""
        for line in reader.read_lines(self._path, start=self._find_start(seq)):
            self._skipped(bool(line.problem))
            yield from (event for event in line.events if event.seq > seq)

    def _find_start(self, seq: int) -> int:
        offset = queries.offset_after(self._path, seq)
        if offset:
            self._heading(queries.fold_before(self._path, offset))
        return offset

    def _following(self, seq: int | None) -> Iterator[Event]:
        """Yield the events after an event, else the last chain; then all later ones."""
        if seq is None:
            passage = queries.last_chain(self._path)
            yield from self._passage(passage)
        start = passage.end if seq is None else self._find_start(seq)
        for line in reader.follow(self._path, start, wait=_wait, on_cut=self._tell_cut):
            self._skipped(bool(line.problem))
            for event in line.events:
                if self._cut or seq is None or event.seq > seq:
                    yield event
        common.warn(f"session {self._stored.name}: its transcript is gone")

    def _passage(self, passage: Passage) -> Iterable[Event]:
        self._skipped(passage.skipped)
        if passage.events and passage.events[0].seq > 1:
            fold = Fold()
            fold.session = queries.session_before(self._path, passage.events[0].seq)
            self._heading(fold)
        return passage.events

    def _skipped(self, count: int) -> None:
        if count:
            lines = "a line" if count == 1 else f"{count} lines"
            common.warn(
                f"session {self._stored.name}: {lines} could not be read; `arena "
                f"doctor {self._stored.name}` shows which"
            )

    def _tell_cut(self) -> None:
        self._cut = True
        common.warn(f"session {self._stored.name}: its transcript was cut; continuing")


def _wait() -> None:
    time.sleep(reader.POLL_S)


def filter_by_agent(events: Iterable[Event], agent: str | None) -> Iterator[Event]:
    """Yield the events, or those that concern one agent; warn if there are none."""
    if agent is None:
        yield from events
        return
    is_called = False
    for event in queries.select_agent(events, agent):
        is_called = is_called or event.type != "session"
        yield event
    if not is_called:
        common.warn(f"{agent} was not called there")
