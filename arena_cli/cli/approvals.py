"""Approvals: `arena approvals` lists the requests; `approve`, `reject` and `choose` decide one."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from arena_cli.adapters.process.cleanup import MARK_VARIABLE
from arena_cli.cli import command_line, common, control
from arena_cli.cli.control import By, TheSession, Wait
from arena_cli.errors import UsageError
from arena_cli.reports.approvals import read_requests
from arena_cli.reports.lines import INDENT, Words, user_words
from arena_cli.session import store
from arena_cli.transcript.state import Fold
from arena_cli.util.clock import SystemClock, format_timestamp
from arena_cli.util.text import escape_line, escape_text

OneSession = Annotated[
    str | None,
    typer.Argument(
        help="List the requests of this session; by default of all.",
        autocompletion=command_line.complete_sessions,
    ),
]
TheRequest = Annotated[
    str, typer.Argument(metavar="REQUEST", help="Decide this request, such as `3`.")
]
Because = Annotated[
    str, typer.Option("--because", metavar="WHY", help="Give the agent this reason.")
]
Decided = Annotated[bool, typer.Option("--all", help="List the decided requests, too.")]


def approvals(
    context: typer.Context,
    session: OneSession = None,
    all_requests: Decided = False,
    as_json: common.AsJson = False,
) -> None:
    """List the open requests of agents for approval, or for a choice."""
    root = common.find_root(context)
    stored = [common.find_session(context, session)] if session else store.stored(root)
    now = format_timestamp(SystemClock().now())
    records = [
        {"session": asking.name, **record}
        for asking in stored
        for record in read_requests(asking.transcript, now)
        if all_requests or record["status"] == "open"
    ]
    if as_json:
        common.print_json(records)
        return
    say = user_words()
    for record in records:
        for line in _draw(record, say):
            common.print_line(line)
    if not records:
        common.print_line(say("no request" if all_requests else "no open request"))


def approve(
    context: typer.Context,
    session: TheSession,
    request: TheRequest,
    because: Because = "",
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Allow an agent what it asks for, once; `arena resume` then calls it."""
    _decide(context, session, request, wait, by, decision="approved", text=because)


def reject(
    context: typer.Context,
    session: TheSession,
    request: TheRequest,
    because: Because = "",
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Refuse an agent what it asks for; `arena resume` then calls it."""
    _decide(context, session, request, wait, by, decision="rejected", text=because)


def choose(
    context: typer.Context,
    session: TheSession,
    request: TheRequest,
    option: Annotated[str, typer.Argument(help="Choose this option, or the one of that number.")],
    because: Because = "",
    by: By = None,
    wait: Wait = 60,
) -> None:
    """Choose one of the options that an agent gives; `arena resume` then calls it."""
    if not option:
        raise UsageError("the option is empty", "`arena approvals` lists the options.")
    _decide(context, session, request, wait, by, decision="approved", text=because, option=option)


def _decide(
    context: typer.Context, session: str, request: str, wait: float, by: str | None, **fields: str
) -> None:
    number = _read_number(request)
    if MARK_VARIABLE in os.environ:
        raise UsageError(
            "an agent cannot decide: this program was started by arena",
            "A person decides, in a terminal of their own.",
        )
    control.send_request(context, session, wait, by, act="decide", request=number, **fields)


def _read_number(request: str) -> int:
    """Return the number of a request, `3` or `r3`. Raises UsageError."""
    digits = request.removeprefix("r")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise UsageError(
            f"{escape_line(request)!r} is no request",
            "Give its number; `arena approvals` lists the open ones.",
        )
    return int(digits)


def _draw(record: dict[str, Any], say: Words) -> Iterator[str]:
    """Yield the lines of a request; all its texts are an agent's."""
    text = "{session} · request {request}: {who} asks for {action}"
    if record["options"]:
        text = "{session} · request {request}: {who} asks to choose"
    yield say(
        text,
        session=escape_line(record["session"]),
        request=record["request"],
        who=escape_line(record["agent"]),
        action=escape_line(record["action"]),
    )
    yield from draw_act(record, say)
    for number, option in enumerate(record["options"], 1):
        yield f"{INDENT * 2}{number}. {escape_line(option)}"
    facts = [say("since {time}", time=record["since"])]
    if record["status"] == "open":
        facts.append(say("expires {time}", time=record["expires"]))
    elif "by" in record:
        decided = say("{decision} by {who}", decision=say.enum(record["status"]), who=record["by"])
        facts.append(escape_line(f"{decided} {record['decided']}"))
        facts += [escape_line(record["because"])] if record["because"] else []
        facts += [say("done")] if record["used"] else []
    else:
        facts.append(say.enum(record["status"]))
    yield INDENT + " · ".join(facts)
    if record["status"] == "open":
        yield from (
            f"{INDENT}{hint}"
            for hint in list_commands(
                record["session"], record["request"], is_choice=bool(record["options"])
            )
        )


def draw_text(text: str) -> Iterator[str]:
    """Yield an agent's text line by line, marked so that none of it looks like arena's."""
    for line in escape_text(text).rstrip("\n").split("\n") if text else ():
        yield f"{INDENT}| {line}"


def draw_act(asked: Mapping[str, Any], say: Words) -> Iterator[str]:
    """Yield an act: its detail, its arguments and its diff; all are an agent's texts.

    A diff that an adapter made of the arguments shows them all; one in a message may not.
    """
    yield from draw_text(asked["detail"])
    if asked["in_message"] or not asked["diff"]:
        yield from draw_arguments(asked["arguments"], say)
    yield from draw_text(asked["diff"])


def draw_arguments(arguments: Mapping[str, Any], say: Words) -> Iterator[str]:
    """Yield the arguments of an act as JSON; nothing if its detail is all there is."""
    if arguments:
        yield INDENT + say("arguments:")
        yield from draw_text(json.dumps(arguments, ensure_ascii=False, indent=1))


def list_commands(session: str, request: int, *, is_choice: bool) -> list[str]:
    """Return the commands that decide a request."""
    target = f"{escape_line(shlex.quote(session))} {request}"
    if is_choice:
        return [f"arena choose {target} OPTION"]
    return [f"arena approve {target}", f"arena reject {target} --because WHY"]


def report_pause(name: str, fold: Fold, *, is_new: bool = True) -> None:
    """Report on stderr the commands with which a paused session continues.

    Unless the pause `is_new`, nothing else was printed of it: the requests are reported, too.
    """
    state = fold.open.control if fold.open else None
    say = user_words()
    for request in state.pending if state else ():
        asked = request.asked
        if not is_new:
            text = "request {request} of {agent} waits: {action}: {detail}"
            values = {"agent": asked.agent, "action": asked.action, "detail": asked.detail}
            escaped = {key: escape_line(value) for key, value in values.items()}
            common.warn(say(text, request=asked.request, **escaped))
        for command in list_commands(name, asked.request, is_choice=bool(asked.options)):
            common.warn(f"{INDENT}{command}")
    resume = f"arena resume {escape_line(shlex.quote(name))}"
    if state and state.pause and state.pause.reason == "budget":
        resume += " --budget +1usd" if "$" in state.pause.detail else " --budget +10000tokens"
    text = "`{command}` continues the chain"
    if state and state.pending:
        text = "then `{command}` continues the chain"
    common.warn(say(text, command=resume))
