"""Approvals: `arena approvals` lists the requests; `approve`, `reject` and `choose` decide one.

At a terminal, a command that runs a chain asks a person on stderr (`ask`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from arena_cli.adapters.process.cleanup import MARK_VARIABLE
from arena_cli.cli import common, control, options
from arena_cli.engine.approvals import ApprovalQuestion, PersonAnswer
from arena_cli.errors import UsageError
from arena_cli.reports.approvals import read_requests
from arena_cli.reports.lines import INDENT, Words, user_words
from arena_cli.session import store
from arena_cli.transcript.state import Fold
from arena_cli.util.clock import SystemClock, format_timestamp
from arena_cli.util.text import escape_line, escape_text

OneSession = Annotated[
    str | None,
    options.session_argument(help="List the requests of this session; by default of all."),
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
    as_json: options.AsJson = False,
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
        common.print_lines(_draw(record, say))
    if not records:
        common.print_line(say("no request" if all_requests else "no open request"))


def approve(
    context: typer.Context,
    session: options.TheSession,
    request: TheRequest,
    because: Because = "",
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Allow an agent what it asks for, once; `arena resume` then calls it."""
    _decide(context, session, request, wait, by, decision="approved", text=because)


def reject(
    context: typer.Context,
    session: options.TheSession,
    request: TheRequest,
    because: Because = "",
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Refuse an agent what it asks for; `arena resume` then calls it."""
    _decide(context, session, request, wait, by, decision="rejected", text=because)


def choose(
    context: typer.Context,
    session: options.TheSession,
    request: TheRequest,
    option: Annotated[str, typer.Argument(help="Choose this option, or the one of that number.")],
    because: Because = "",
    by: options.ActBy = None,
    wait: options.ProcessWait = 60,
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
    name = escape_line(record["session"])
    first, *act = _draw_request(record, record["agent"], say)
    yield f"{name} · {first}"
    yield from act
    is_open = record["status"] == "open"
    facts = [say("since {time}", time=record["since"])]
    if is_open:
        facts.append(say("expires {time}", time=record["expires"]))
    elif "by" in record:
        decided = say("{decision} by {who}", decision=say.enum(record["status"]), who=record["by"])
        facts.append(escape_line(f"{decided} {record['decided']}"))
        facts += [escape_line(record["because"])] if record["because"] else []
        facts += [say("done")] if record["used"] else []
    else:
        facts.append(say.enum(record["status"]))
    yield INDENT + " · ".join(facts)
    if is_open:
        is_choice = bool(record["options"])
        commands = list_commands(record["session"], record["request"], is_choice=is_choice)
        yield from (f"{INDENT}{command}" for command in commands)


def _draw_request(asked: Mapping[str, Any], who: str, say: Words) -> Iterator[str]:
    """Yield who asks, for what, and the whole command, arguments, diff and options."""
    text = "request {request}: {who} asks for {action}"
    if asked["options"]:
        text = "request {request}: {who} asks to choose"
    action = escape_line(asked["action"])
    yield say(text, request=asked["request"], who=escape_line(who), action=action)
    yield from draw_act(asked, say)
    for number, option in enumerate(asked["options"], 1):
        yield f"{INDENT * 2}{number}. {escape_line(option)}"


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


if sys.platform != "win32":
    import termios

_ANSWERS = {
    **dict.fromkeys(("y", "yes", "是"), PersonAnswer("approved")),
    **dict.fromkeys(("n", "no", "否"), PersonAnswer("rejected")),
    **dict.fromkeys(("a", "always"), PersonAnswer("approved", always=True)),
}
_EXPLAIN = ("e", "explain", "?")
_MOST_READ = 4096


async def ask(question: ApprovalQuestion) -> PersonAnswer | None:
    """Ask until there is an answer; return None at the end of the input: it is decided later."""
    say = user_words()
    prompt = say("Allow it? y(es), n(o), a(lways in this session), e(xplain): ")
    if question.asked.options:
        prompt = say("Choose a number, or n(o), e(xplain): ")
    if sys.platform != "win32":  # what was typed before the question is no answer to it
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    for line in _draw_request(dict(question.asked), question.name, say):
        common.warn(line)
    while True:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = await _read_line()
        word = line.strip().casefold()
        if not line:
            common.warn("")
            return None
        if word in _EXPLAIN:
            for text in _explain(question, say):
                common.warn(text)
        elif answer := _read_answer(word, question):
            return answer


def _read_answer(word: str, question: ApprovalQuestion) -> PersonAnswer | None:
    options = question.asked.options
    if not options:
        return _ANSWERS.get(word)
    if word.isdecimal() and 0 < int(word) <= len(options):
        return PersonAnswer("approved", options[int(word) - 1])
    answer = _ANSWERS.get(word)
    return answer if answer and answer.decision == "rejected" else None


def _explain(question: ApprovalQuestion, say: Words) -> Iterator[str]:
    """Yield the arguments of the act, and what the agent said."""
    yield from draw_arguments(question.asked.arguments, say)
    who = escape_line(question.name)
    if question.text.strip():
        yield say("{who} said:", who=who)
        yield from draw_text(question.text)
    else:
        yield say("{who} said nothing so far", who=who)
    yield say("A yes allows exactly this, once.")


async def _read_line() -> str:
    """Read a line, while other tasks run; return "" at the end of the input."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def receive(text: str) -> None:
        if not line.done():
            line.set_result(text)

    if sys.platform == "win32":
        # Nothing but a thread waits for a console; it ends with the program.
        def wait() -> None:
            loop.call_soon_threadsafe(receive, sys.stdin.readline())

        threading.Thread(target=wait, daemon=True).start()
        return await line

    descriptor = sys.stdin.fileno()

    def read() -> None:
        try:
            receive(os.read(descriptor, _MOST_READ).decode(errors="replace"))
        except OSError:  # the terminal is gone
            receive("")

    loop.add_reader(descriptor, read)
    try:
        return await line
    finally:
        loop.remove_reader(descriptor)
