"""Send a message and run its chain to the end: `arena send` and `arena resume`.

With `--dry-run`, print which agents would be called, and call none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from arena_cli import errors
from arena_cli.adapters.base import SessionConfig
from arena_cli.cli import common, options, trust
from arena_cli.cli.streams import Printer
from arena_cli.errors import UsageError
from arena_cli.reports.lines import user_words
from arena_cli.session import outgoing, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Session, smallest_room
from arena_cli.transcript import reader
from arena_cli.transcript.events import ChainFinished
from arena_cli.util import files
from arena_cli.util.text import escape_line
from arena_cli.workspace import mentions
from arena_cli.workspace.models import Member, Team

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.control_events import ChainPaused
    from arena_cli.transcript.events import Event
    from arena_cli.transcript.state import Fold
    from arena_cli.workspace.models import AgentProfile
    from arena_cli.workspace.workspace import Workspace


_NAMED_NOTES = 5  # that wait for approval, in a message


class SendCommand(common.MessageCommand):
    """The command `arena send`, which accepts `--attach-audit` without a session."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the special cases of this command."""
        end = args.index("--") if "--" in args else len(args)
        options = [f"{arg}=" if arg == "--attach-audit" else arg for arg in args[:end]]
        return super().parse_args(ctx, [*options, *args[end:]])


def send(
    context: typer.Context,
    message: options.TheMessage = None,
    session: options.ToGoOnOrMake = None,
    go_on: options.GoOn = False,
    team: options.OneTeam = None,
    to: options.To = None,
    author: options.Author = None,
    file: options.FromFile = None,
    attach: options.Attach = None,
    attach_audit: options.AttachAudit = None,
    as_json: options.EventsAsJson = False,
    deltas: options.WithDeltas = False,
    quiet: options.Quiet = False,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    strict: options.Strict = False,
    reply_to: options.ReplyTo = None,
    kind: options.KindOfMessage = "chat",
    thread: options.Thread = None,
    plan: options.ToPlan = False,
    key: options.Key = None,
    detach: options.Detach = False,
    is_detached: options.IsDetached = False,
    wait: options.Wait = 600,
) -> None:
    """Send a message to the team and run the conversation until no agent is left to reply."""
    output = _one_output(as_json=as_json, quiet=quiet, deltas=deltas)
    attached = _list_attached(attach or [], file, force=force)
    loaded = common.load_workspace(context)
    stored = _stored(loaded, session, go_on, is_reported=is_detached)
    _refuse_reference_to_nothing(reply_to, thread, stored)
    _check_key(key, attach_audit, is_reported=bool(session or stored or detach))
    members = common.find_team(loaded, stored, team)
    content, read = common.read_message(message, file), files.read_input
    sent = outgoing.outgoing(
        members, content, author=author, to=to or (), files=attached, read=read, key=key
    )._replace(kind=kind, reply_to=reply_to, plan=plan, thread=thread or "")
    name = stored.name if stored else session
    _check_team(loaded, members, plan=plan)
    _report_unknown(loaded, members, sent, strict=strict, silent=as_json or quiet, skip=is_detached)
    audited = None if attach_audit is None else _audited(loaded, attach_audit, stored)
    if dry_run:
        if not quiet:
            _print_preview(loaded, name, members, sent, audited, as_json=as_json)
        return
    config = trust.live_place(loaded, _profiles(members), wait_s=wait)
    if detach:
        given = {"--team": team, "--from": author, "--key": key, "--attach-audit": attach_audit}
        given |= {"--kind": kind, "--reply-to": reply_to, "--thread": thread, "--wait": f"{wait}"}
        words = [*_list_words(sent, attached, given, force=force)]
        _detach(context, config, name, content, words, as_json=as_json, quiet=quiet)
        return
    common.archive_old_sessions(loaded, config, [name] if name else ())
    if is_detached:
        printer = import_module("arena_cli.cli.detached").StartReporter(name)
    else:
        config, printer = _with_printer(config, members, output)
    _run(config, name, members, sent, audited, printer)


def _list_attached(attached: list[Path], file: Path | None, *, force: bool) -> list[Path]:
    """Return the files to attach. Unless forced, raises UsageError if one looks like a secret."""
    if not force:
        outgoing.refuse_secret_files(attached, "--attach")
        outgoing.refuse_secret_files([file] if file else (), "--file")
    return attached


def _check_key(key: str | None, attach_audit: str | None, *, is_reported: bool) -> None:
    """Warn of a key without effect. Raises UsageError for one next to an audit.

    `is_reported`: the caller knows the name of the session, and can give it at the next call.
    """
    if key is not None and attach_audit is not None:
        problem = "--key and --attach-audit were given: an audit differs at each call"
        raise UsageError(problem, "Give one of them.")
    if key is not None and not is_reported:
        common.warn(
            "warning: --key: a new session has no earlier keys; to send the message once, give "
            "--session NAME at each call"
        )


def _refuse_reference_to_nothing(
    reply_to: str | None, thread: str | None, stored: Stored | None
) -> None:
    if thread == "":
        raise UsageError("--thread: no task is named", "Name one, such as t3.")
    problem = ""
    if reply_to is not None:
        problem = f"--reply-to {escape_line(reply_to)}: a new session has no message to answer"
    elif thread is not None:
        problem = f"--thread {escape_line(thread)}: a new session has no task"
    if problem and stored is None:
        raise UsageError(problem, "Continue one: `-c`, `--session NAME`.")


def _print_preview(
    loaded: Workspace,
    name: str | None,
    members: Team,
    sent: Outgoing,
    audited: Stored | None,
    *,
    as_json: bool,
) -> None:
    """Print which agents the message would call, and with what context."""
    config = common.make_config(loaded, wait_s=0)
    sent = _with_audit(config, members, sent, audited)
    preview = import_module("arena_cli.cli.dry_run")
    preview.print_preview(config, name, members, sent, as_json=as_json)


def _list_words(
    sent: Outgoing, attached: Sequence[Path], given: Mapping[str, str | None], *, force: bool
) -> Iterator[str]:
    """Yield the options of a command line that sends the same message."""
    if force:
        yield "--force"
    if sent.plan:
        yield "--plan"
    for agent in sent.to:
        yield from ("--to", agent)
    for path in attached:
        yield from ("--attach", str(path))
    yield from (f"{option}={value}" for option, value in given.items() if value is not None)


def _run(
    config: SessionConfig,
    name: str | None,
    members: Team,
    sent: Outgoing,
    audited: Stored | None,
    printer: Printer,
) -> None:
    """Send the message, and run its chain to the end, unless its key was used before."""
    with _opened(config, name, members, printer) as opened:
        printer.goes_on(opened.journal.fold)
        repeated = opened.find_repeated(sent)
        for event in repeated:  # of the chain that was run for the same key earlier
            printer.event(event)
        finished = _find_end(repeated, opened)
        if finished is None:
            if not repeated:
                if opened.open_chain:
                    common.warn(
                        f"session {opened.name}: the chain that was cut short is closed as "
                        "interrupted (`arena resume` would have continued it)"
                    )
                # Only now is it known that nobody else is writing there.
                sent = _with_audit(config, members, sent, audited)
            chain = opened.resume() if repeated else opened.send(sent)
            finished = common.run(opened.last(chain), hint=_resume_hint(opened.name))
        notes = opened.list_waiting_notes() if printer.is_shown else []
    report_notes(notes, opened.name)
    if finished is not None:
        exit_by(finished, opened.name, opened.journal.fold)


def _detach(
    context: typer.Context,
    config: SessionConfig,
    name: str | None,
    content: str,
    words: Sequence[str],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Send the message in a process of its own, and print where."""
    detached = import_module("arena_cli.cli.detached")
    root = config.workspace
    session = name or store.make_session_folder(root, None, config.clock).name
    chain = detached.start(context.obj, root, session, content, words)
    if as_json:
        common.print_json({"session": session, "chain": chain})
    elif not quiet:
        name = escape_line(session)
        text = "session {name} · chain {chain} · runs on; `arena wait {name}` prints it"
        common.print_line(user_words()(text, name=name, chain=chain))


def _find_end(events: Sequence[Event], opened: Session) -> ChainFinished | ChainPaused | None:
    """Return the end or the pause of an earlier chain; None if there is none, or none yet."""
    if not events:
        return None
    if isinstance(events[-1], ChainFinished):
        return events[-1]
    chain = opened.open_chain
    return chain.control.pause if chain and chain.control else None


def _check_team(loaded: Workspace, team: Team, *, plan: bool) -> None:
    """Check that there is a planner if it is asked for, and each price that a budget needs.

    Raises UsageError.
    """
    if plan:
        import_module("arena_cli.cli.dry_run").require_planner(team)
    common.check_prices(loaded, team, (*team.agents, *loaded.memory_agents))


def resume(
    context: typer.Context,
    session: options.LastSession = None,
    agent: options.OneAgent = None,
    budget: options.BudgetRaises = None,
    as_json: options.EventsAsJson = False,
    deltas: options.WithDeltas = False,
    quiet: options.Quiet = False,
    wait: options.Wait = 600,
) -> None:
    """Continue a conversation that was cut short or paused; replies are not called again.

    In the session of a flow, continue the flow: steps that have ended are not done again.

    With `--agent`, only let that agent, which was paused, take part again.
    """
    output = _one_output(as_json=as_json, quiet=quiet, deltas=deltas)
    if agent is not None:
        from arena_cli.cli import control

        control.resume_agent(context, session, agent, wait)
        return
    allowed = import_module("arena_cli.engine.inbox").read_allowance(budget) if budget else None
    loaded = common.load_workspace(context)
    stored = _stored(loaded, session, go_on=session is None, must_exist=True)
    assert stored is not None
    if reader.ends_with_flow(stored.transcript):
        if allowed is not None:
            hint = "Raise that of the session that waits; `arena sessions` lists it."
            raise UsageError(f"the flow in session {stored.name} has no budget", hint)
        _resume_flow(loaded, stored, as_json=as_json, quiet=quiet)
        return
    members = common.find_team(loaded, stored)
    config = trust.live_place(loaded, _profiles(members), wait_s=wait)
    common.archive_old_sessions(loaded, config, [stored.name])
    config, printer = _with_printer(config, members, output)
    with _opened(config, stored.name, members, printer) as opened:
        if opened.open_chain:
            printer.goes_on(opened.journal.fold)
        if allowed is not None:
            opened.carry_out(allowed)
        after_seq = opened.journal.fold.seq
        chain = opened.last(opened.resume())
        finished = common.run(chain, hint=_resume_hint(stored.name))
        notes = [] if as_json or quiet else opened.list_waiting_notes()
    if finished is None:
        _resume_flow(loaded, stored, as_json=as_json, quiet=quiet)
        return
    report_notes(notes, stored.name)
    exit_by(finished, stored.name, opened.journal.fold, after_seq=after_seq)


def _resume_flow(loaded: Workspace, stored: Stored, *, as_json: bool, quiet: bool) -> None:
    """Continue the flow of a session without a chain to continue, if there is one."""
    flows = import_module("arena_cli.cli.flow")
    if not flows.resume_flow(loaded, stored, as_json=as_json, quiet=quiet):
        common.warn(f"session {stored.name}: no chain was cut short, there is nothing to resume")


def _report_unknown(
    loaded: Workspace, team: Team, sent: Outgoing, *, strict: bool, silent: bool, skip: bool
) -> None:
    """Warn of mentions of no member: of other agents, and of near names if no timeline does.

    With `strict`, ask on a terminal, and raise UsageError elsewhere. To `skip` it is for a process
    whose caller did it.
    """
    names = [] if skip else outgoing.find_unknown_names(sent, team)
    problem = "no member of this team is called "
    for name in names:
        hint = _explain_outsider(loaded, team, name)
        if hint is None and (strict or silent):
            hint = _suggest_member(team, name)
        if hint is not None:
            common.warn(f"warning: {problem}@{escape_line(name)}: {escape_line(hint)}")
    if not names or not strict:
        return
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        listed = ", ".join(f"@{escape_line(name)}" for name in names)
        raise UsageError(f"{problem}{listed}", "Nothing was sent. Correct it, or omit --strict.")
    if not trust.agrees("Send the message anyway?"):
        raise typer.Exit(errors.EXIT_USAGE)


def _suggest_member(team: Team, name: str) -> str | None:
    known = (*(member.id for member in team.members), *(member.name for member in team.members))
    near = errors.find_nearest(name, known)
    return f"did you mean @{near}?" if near else None


def _explain_outsider(loaded: Workspace, team: Team, name: str) -> str | None:
    """Return what to do about an agent of the workspace that is no member, None for other names."""
    others = [
        Member(other.profile, other.profile.name)
        for agent_id, other in loaded.loaded.items()
        if team.member(agent_id) is None
    ]
    target = mentions.Roster(others).whole(name)
    if not isinstance(target, mentions.Somebody):
        return None
    if team.name is None:
        return f"agent {target.id} is no member: its profile says `member: false`"
    file = loaded.drafts[team.name].fragment.document.name
    return f"agent {target.id} is not in team {team.name}; add it to `members` in {file}"


def _profiles(members: Team) -> list[AgentProfile]:
    return [member.profile for member in members.agents]


class _Output(NamedTuple):
    """The options for what is printed."""

    as_json: bool
    quiet: bool
    deltas: bool


def _one_output(*, as_json: bool, quiet: bool, deltas: bool) -> _Output:
    """Return the options for what is printed. Raises UsageError if they exclude each other."""
    if as_json and quiet:
        raise UsageError("--json and --quiet were given", "Give one of them.")
    if deltas and not as_json:
        raise UsageError("--deltas was given without --json", "Give both, or none.")
    return _Output(as_json, quiet, deltas)


def _stored(
    loaded: Workspace,
    session: str | None,
    go_on: bool,
    *,
    must_exist: bool = False,
    is_reported: bool = False,
) -> Stored | None:
    """Return the session to continue; None for a new one.

    Unless it `is_reported`, warn that a new one has nearly the name of another.
    """
    if session is not None and go_on:
        raise UsageError("--session and --continue were given", "Give one of them.")
    if go_on:
        return store.last(loaded.root)
    if session is None:
        return None
    stored = store.find(loaded.root, session) if must_exist else None
    stored = stored or common.find_existing(loaded.root, session)
    if stored is not None:
        return stored
    near = None if is_reported else store.find_near(loaded.root, session)
    if near:
        common.warn(
            f"warning: session {escape_line(session)} is new; did you mean {escape_line(near)}?"
        )
    return None


def _audited(loaded: Workspace, name: str, stored: Stored | None) -> Stored:
    """Return the session whose audit is attached; an empty name means the continued one."""
    if name:
        return store.find(loaded.root, name)
    if stored is None:
        raise UsageError(
            "--attach-audit: a new session has nothing to report yet",
            "Continue one (`-c`, `--session NAME`), or name one: `--attach-audit=NAME`.",
        )
    return stored


def _with_audit(
    config: SessionConfig, team: Team, sent: Outgoing, audited: Stored | None
) -> Outgoing:
    """Attach an audit, if any, of at most half of the smallest window of the called agents.

    The other half is left for the conversation.
    """
    if audited is None:
        return sent
    from arena_cli.cli import export

    by = sent.author.id
    mentioned = mentions.parse_mentions(
        sent.content, mentions.build_roster(team), author=by, opener=by
    ).ids
    called = [member for member in team.members if member.id in {*sent.to, *mentioned}]
    room = smallest_room(config, called or team.members)
    attachment = export.attachment(audited, room // 2)
    return sent._replace(attachments=(*sent.attachments, attachment))


def _with_printer(
    config: SessionConfig, members: Team, output: _Output
) -> tuple[SessionConfig, Printer]:
    """Return a printer of events, and the settings by which it hears of pieces of texts too."""
    avatars = {member.id: member.profile.avatar for member in members.agents}
    printer = Printer(as_json=output.as_json, quiet=output.quiet, avatars=avatars, live=True)
    return (replace(config, on_delta=printer.delta) if output.deltas else config), printer


@contextlib.contextmanager
def _opened(
    config: SessionConfig, name: str | None, members: Team, printer: Printer
) -> Iterator[Session]:
    """Yield the session, open for writing; the printer prints its events, and is closed.

    Raises DiskRefused at the end if stdout could not be written.
    """
    config = replace(config, ask_person=_find_asker(printer))
    wait = f"{config.wait_s:g} s"
    with (
        contextlib.closing(printer),
        Session(
            config,
            name,
            members,
            on_event=printer.event,
            on_text=printer.on_text,
            on_wait=lambda name: common.warn(f"session {name} is busy; waiting up to {wait}"),
        ) as opened,
    ):
        common.warn_of_problems(opened.folder / store.TRANSCRIPT, opened.problems)
        yield opened
    printer.out.check()


def _resume_hint(name: str) -> str:
    return f"Every completed reply is kept; `arena resume {name}` continues."


Start = Callable[[Session], "Coroutine[Any, Any, ChainFinished | ChainPaused | None]"]
"""A function that starts a chain in a session; it returns None if there is nothing to run."""


def run_chain(
    loaded: Workspace,
    stored: Stored,
    members: Team,
    start: Start,
    *,
    as_json: bool,
    quiet: bool,
    wait_s: float,
) -> tuple[Session, ChainFinished | ChainPaused | None]:
    """Run a chain in a session and print it; return the session, closed, and the chain's end."""
    output = _one_output(as_json=as_json, quiet=quiet, deltas=False)
    config = trust.live_place(loaded, _profiles(members), wait_s=wait_s)
    common.archive_old_sessions(loaded, config, [stored.name])
    config, printer = _with_printer(config, members, output)
    with _opened(config, stored.name, members, printer) as opened:
        printer.goes_on(opened.journal.fold)
        end = common.run(opened.last(start(opened)), hint=_resume_hint(stored.name))
        notes = opened.list_waiting_notes() if printer.is_shown else []
    report_notes(notes, stored.name)
    return opened, end


def _find_asker(printer: Printer) -> Callable[[Any], Awaitable[Any]] | None:
    """Return the function that asks a person at the terminal; None if there is none to ask."""
    is_ci = os.environ.get("CI", "").casefold() not in {"", "0", "false"}
    if is_ci or not (printer.is_shown and sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask_person(question: Any) -> Any:
        with printer.hold():
            return await import_module("arena_cli.cli.approvals").ask(question)

    return ask_person


def report_notes(notes: Sequence[str], session: str) -> None:
    """Report on stderr the notes of a session that wait for a person's approval, if any do."""
    if notes:
        shown = ", ".join(map(escape_line, notes[:_NAMED_NOTES]))
        more = f", and {len(notes) - _NAMED_NOTES} more" if len(notes) > _NAMED_NOTES else ""
        common.warn(f"session {escape_line(session)}: notes that wait for approval: {shown}{more}")


def exit_by(
    last: ChainFinished | ChainPaused, name: str, fold: Fold, *, after_seq: int = 0
) -> None:
    """Exit with the code of a chain's end, or of its pause, with a hint how to continue.

    A pause up to `after_seq` is an earlier one: it was not printed now.
    """
    if last.type == "chain_paused":
        import_module("arena_cli.cli.approvals").report_pause(
            name, fold, is_new=last.seq > after_seq
        )
        raise typer.Exit(errors.EXIT_PAUSED)
    codes = {
        "failed": errors.EXIT_FAILED,
        "cancelled": errors.EXIT_INTERRUPTED,
        "interrupted": errors.EXIT_INTERRUPTED,  # of an earlier run
    }
    if last.end in codes:
        raise typer.Exit(codes[last.end])
