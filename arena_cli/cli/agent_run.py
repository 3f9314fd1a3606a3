"""Call one agent by itself: `arena agents run` prints its output, `arena agents test` the call."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from arena_cli import errors
from arena_cli.cli import common, options, send, trust
from arena_cli.errors import UsageError
from arena_cli.reports import lines
from arena_cli.reports.lines import INDENT
from arena_cli.session import outgoing, store
from arena_cli.session.one_shot import Trial
from arena_cli.session.session import Session
from arena_cli.transcript import queries
from arena_cli.transcript.events import ReplyFinished
from arena_cli.util import files, language
from arena_cli.util.text import escape_line, escape_text, shorten_text
from arena_cli.workspace import inputs as agent_inputs
from arena_cli.workspace import mentions, models
from arena_cli.workspace.models import AGENT_TOOL, Member, TeamConfig

if TYPE_CHECKING:
    from arena_cli.protocol import Usage
    from arena_cli.transcript.control_events import ChainPaused
    from arena_cli.transcript.events import ChainFinished, Event
    from arena_cli.workspace.workspace import Workspace

GivenInputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="Set an input of the agent; @FILE as the value reads a file, lists are JSON; "
        "repeatable.",
    ),
]
GivenMessage = Annotated[
    str | None,
    typer.Option(
        "--message",
        "-m",
        metavar="TEXT",
        help="Send this in place of the `query` of its profile; `-` reads standard input.",
    ),
]
SessionName = Annotated[
    str | None, options.session_option(help="Continue this session of the agent, or create it.")
]

_LONGEST_ARGUMENTS = 100
_MODES = {"success": "goal", "timeout": "timeout", "cancelled": "aborted"}


class RunOutcome(NamedTuple):
    """How a call ended: its output, its text, and why it did not reach its goal (`error`)."""

    output: Any
    text: str
    mode: str
    turns: int
    usage: Usage | None
    error: str

    def document(self, agent: str, session: str) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "agent": agent,
            "mode": self.mode,
            "output": self.output,
            "turns": self.turns,
            "usage": self.usage.model_dump() if self.usage else None,
            "session": session,
            "error": self.error or None,
        }


class AgentRun:
    """A call of one agent, as a team of its own, in a session."""

    def __init__(self, loaded: Workspace, member: Member, session: str | None) -> None:
        self._loaded = loaded
        self._member = member
        self._session = session
        self._finished: ReplyFinished | None = None
        self._ended: Any = None
        self._is_shown = True

    def run(
        self, assignments: Sequence[str], message: str | None, *, as_json: bool, quiet: bool
    ) -> None:
        """Call the agent, print its output, and exit by the way it ended."""
        loaded, member = self._loaded, self._member
        self._is_shown = not quiet
        specs = member.profile.inputs
        read, unreadable = read_inputs(assignments, specs)
        values = agent_inputs.require_inputs(member.id, specs, read, unreadable)
        content = self._make_message(message, values)
        team = loaded.team(f"{AGENT_TOOL}{member.id}")
        self._check_session(team.name)
        sent = outgoing.outgoing(team, content, to=[member.id])
        sent = sent._replace(inputs=dict(values))
        common.check_prices(loaded, team, team.agents)
        config = trust.live_place(loaded, [member.profile], wait_s=0)
        common.archive_old_sessions(loaded, config, [self._session] if self._session else ())
        with Session(config, self._session, team, on_event=self._hear) as opened:
            common.warn_of_problems(opened.folder / store.TRANSCRIPT, opened.problems)
            name = opened.name
            chain = opened.last(opened.send(sent))
            last = common.run(chain, hint=f"`arena resume {name}` continues.")
        result = self._make_result(last)
        if as_json:
            common.print_json(result.document(member.id, name))
        elif result.mode == "goal":
            common.print_line(escape_text(result.text), is_data=True)
        if last.type == "chain_paused" or result.mode == "goal":
            send.exit_by(last, name, opened.journal.fold)
            return
        problem = language.translate_message(result.error)
        problem = escape_line(problem).removeprefix(f"{escape_line(member.id)}: ")
        common.warn(f"{escape_line(member.id)}: {result.mode}: {problem}")
        common.warn(f"`arena show {name}` shows each step")
        raise typer.Exit(errors.EXIT_FAILED)

    def _make_message(self, message: str | None, values: Mapping[str, Any]) -> str:
        query = self._member.profile.query
        is_bare = message is None and sys.stdin.isatty()
        if message is None and (query or (is_bare and values)):
            return agent_inputs.make_query(self._member, values)
        if is_bare:
            raise UsageError("there is no message", 'Write one: `--message "..."`.')
        content = common.read_message(message, None)
        if not content.strip() and values:
            return agent_inputs.make_query(self._member, values)
        return content

    def _check_session(self, team: str | None) -> None:
        """Check that a session that exists is one of this agent by itself. Raises UsageError."""
        stored = common.find_existing(self._loaded.root, self._session)
        if stored is None:
            return
        opening = queries.read_session_event(stored.transcript)
        if opening is not None and opening.team != team:
            name = escape_line(str(self._session))
            raise UsageError(
                f"session {name} is not one of {self._member.id} by itself",
                "Name another one, or leave out --session.",
            )

    def _make_result(self, last: ChainFinished | ChainPaused) -> RunOutcome:
        reply, ended = self._finished, self._ended
        assert reply is not None
        text = reply.message.content if reply.message else ""
        output, turns = text or None, reply.attempts
        mode, error = _MODES.get(reply.status, "error"), reply.error or ""
        if ended is not None:
            mode, turns = ended.mode, ended.turns
            output = output if ended.output is None else ended.output
        if reply.status == "declined":
            mode, error = "error", "it declined"
        if last.type == "chain_paused":
            mode = "paused"
        elif mode != "goal":
            error = error or f"it was ended by {reply.cancelled_by or 'a signal'}"
        return RunOutcome(output, text, mode, turns, reply.usage, error)

    def _hear(self, event: Event) -> None:
        """Keep how the call ends, and print its progress on stderr."""
        if isinstance(event, ReplyFinished):
            self._finished = event
        elif event.type == "reply_started":
            self._ended = None
        elif event.type == "agent_ended" and not getattr(event, "within", ""):
            self._ended = event
        if self._is_shown and (line := describe_progress(event)):
            common.print_error(line)


def describe_progress(event: Any) -> str:
    """Return the line of an event for a person who waits, "" for events without one."""
    if event.type == "tool_requested":
        arguments = json.dumps(event.arguments, ensure_ascii=False) if event.arguments else ""
        excerpt = shorten_text(arguments, _LONGEST_ARGUMENTS)
        tool = shorten_text(event.tool, _LONGEST_ARGUMENTS)
        return escape_line(f"{_indent(event.call)}{event.call} {tool} {excerpt}".rstrip())
    if event.type == "tool_finished":
        problem = event.result.partition("\n")[0] if event.status != "ok" else ""
        excerpt = f": {shorten_text(problem, _LONGEST_ARGUMENTS)}" if problem else ""
        return escape_line(f"{_indent(event.call)}{event.call} {event.status}{excerpt}")
    return ""


def _indent(call: str) -> str:
    return "  " * call.count(".")


def read_inputs(
    assignments: Sequence[str], specs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the inputs of the command line, and the problems of those that cannot be read."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for item in assignments:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals:
            problems[name] = f"--input {escape_line(item)}: write NAME=VALUE"
        elif name in values or name in problems:
            problems[name] = f"--input {escape_line(name)}: given twice"
        elif name not in specs:
            values[name] = text  # reported with all that is missing
        else:
            try:
                values[name] = agent_inputs.read_input(name, specs[name], _read_value(name, text))
            except UsageError as error:
                problems[name] = str(error)
    return values, problems


def _read_value(name: str, text: str) -> str:
    """Return a value, which `@FILE` reads from a file; `@@` is a literal `@`."""
    if text.startswith("@@") or not text.startswith("@"):
        return text.removeprefix("@") if text.startswith("@@") else text
    path = Path(text[1:])
    try:
        data = files.read_input(path)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(f"--input {name}: cannot read {path}: {problem}") from error
    return common.decoded(data, str(path)).removesuffix("\n")


def make_trial_document(member: Member, trial: Trial) -> dict[str, Any]:
    """Return the call as a JSON document."""
    reply = trial.finished
    return {
        "agent": member.id,
        "adapter": member.profile.adapter["type"],
        "ok": trial.works,
        "status": reply.status,
        "latency_ms": reply.latency_ms,
        "usage": reply.usage.model_dump() if reply.usage else None,
        "sent": {"system": trial.system, "prompt": trial.prompt},
        "content": reply.message.content if reply.message else None,
        "error": reply.error,
        "metadata": reply.metadata,
    }


def draw_trial(member: Member, trial: Trial) -> Iterator[str]:
    """Yield the call as text: the input, the answer, then status, time, tokens and cost."""
    say, reply = lines.user_words(), trial.finished
    reply_text = reply.message.content if reply.message else str(reply.metadata.get("partial", ""))
    sections = [
        (say("sent: system"), trial.system),
        (say("sent: prompt"), trial.prompt),
        (say("came"), reply_text),
    ]
    for title, text in sections:
        if text.strip():
            yield f"── {title}"
            yield from indent_text(text.rstrip())
    state = say("ok") if trial.works else say("NOT OK")
    seconds = say("{seconds} s", seconds=f"{reply.latency_ms / 1000:.1f}")
    columns = [f"{state} {escape_line(member.id)}", seconds]
    if reply.usage:
        columns.append(lines.tokens(reply.usage))
    if reply.status == "declined":
        columns.append(say("it declined, which is a valid answer"))
    yield f"── {' · '.join(columns)}"
    if reply.error:
        yield from indent_text(
            language.translate_message(reply.error.removeprefix(f"{member.id}: "))
        )


def indent_text(text: str) -> Iterator[str]:
    """Yield the lines of an untrusted text, escaped and indented."""
    for line in escape_text(text).split("\n"):
        yield f"{INDENT}{line}".rstrip()


def find_member(loaded: Workspace, called: str) -> Member:
    """Return the agent with that id, name or alias, with or without `@`; the first of several.

    Raises UsageError.
    """
    members = [
        Member(loaded_agent, loaded_agent.name or loaded_agent.agent_id)
        for loaded_agent in loaded.profiles.values()
    ]
    target = mentions.Roster(members).whole(called.removeprefix("@").removeprefix("＠"))
    loaded_agent = loaded.loaded.get(
        target.id if isinstance(target, mentions.Somebody) else models.normalize_id(called)
    )
    if loaded_agent is None:
        names = dict.fromkeys(name for member in members for name in (member.id, member.name))
        hint = errors.suggest_nearest(called, names) or "`arena agents add` adds one"
        raise UsageError(f"there is no agent `{escape_line(called)}`", hint)
    profile = loaded_agent.profile
    return Member(profile, profile.name or profile.agent_id, role_prompt=loaded_agent.role_prompt)


def limit_s(loaded: Workspace) -> float:
    """Return the time limit of a reply in seconds, from the workspace's default team."""
    is_team = loaded.file.team or any(profile.member for profile in loaded.profiles.values())
    config = loaded.team(loaded.file.team).config if is_team else TeamConfig()
    return config.turn_timeout_s
