"""Ask a person at the terminal whether an agent may do something, on stderr."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

from arena_cli.cli import common
from arena_cli.cli.approvals import draw_act, draw_arguments, draw_text
from arena_cli.engine.approvals import ApprovalQuestion, PersonAnswer
from arena_cli.reports.lines import INDENT, Words, user_words
from arena_cli.util.text import escape_line

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
    _discard_input()
    for line in _draw(question, say):
        common.warn(line)
    while True:
        sys.stderr.write(_prompt(question, say))
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


def _prompt(question: ApprovalQuestion, say: Words) -> str:
    if question.asked.options:
        return say("Choose a number, or n(o), e(xplain): ")
    return say("Allow it? y(es), n(o), a(lways in this session), e(xplain): ")


def _draw(question: ApprovalQuestion, say: Words) -> Iterator[str]:
    """Yield the question: who asks, for what, and the whole command, arguments and diff."""
    asked = question.asked
    text = "request {request}: {who} asks to choose" if asked.options else ""
    yield say(
        text or "request {request}: {who} asks for {action}",
        request=asked.request,
        who=escape_line(question.name),
        action=escape_line(asked.action),
    )
    yield from draw_act(dict(asked), say)
    for number, option in enumerate(asked.options, 1):
        yield f"{INDENT * 2}{number}. {escape_line(option)}"


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


def _discard_input() -> None:
    """Drop what was typed before the question: it is no answer to it."""
    if sys.platform != "win32":
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


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
