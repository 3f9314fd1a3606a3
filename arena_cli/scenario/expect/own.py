"""Checks of one's own, in Python: what they are shown, how they are called, what they may answer.

A check is called with the reply and the run, and answers True where it holds, else a text that says
why it does not, or False. Whatever else it does is an error: it raises, it answers something else,
it does not answer in time.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_cli.ground.protocol import Message, Usage
from arena_cli.scenario.expect import checks
from arena_cli.scenario.expect.checks import NoVerdict, Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.folders import Folders

LIMIT_S = 10.0  # for one check, with the import of its file


class OwnCheckError(NoVerdict):
    """A check of one's own gave no verdict; the message says where, and what happened."""


@dataclass(frozen=True)
class Reply:
    """A reply: its text, who said it, in which turn (from 1 through all that is covered).

    `mentions` are ids; `structured` is a tuple of (type, data), `attachments` of (name, path), the
    path a whole one. `usage` is None where nothing was told. Of a message of the system, `agent` is
    `system` and `turn` 0.
    """

    text: str
    agent: str
    turn: int
    mentions: tuple[str, ...] = ()
    structured: tuple[tuple[str, Any], ...] = ()
    attachments: tuple[tuple[str, Path], ...] = ()
    usage: Usage | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Said:
    """A message of anybody: `kind` is `human`, `agent` or `system`."""

    author: str
    kind: str
    text: str


@dataclass(frozen=True)
class Run:
    """What came of the step, or, in a `check` and over a whole scenario, of all steps so far.

    `replies` are in order of call, `messages` are all that was said, humans and system included.
    `end` is how the last chain ended, `awaits` the humans whom it waits for.
    """

    replies: tuple[Reply, ...]
    messages: tuple[Said, ...]
    turns: int
    end: str
    awaits: tuple[str, ...]
    workspace: Path


def verdict(
    subject: Subject, check: Callable[[Reply, Run], Any], expected: str, file: Path | None = None
) -> Verdict:
    """What a check says of a subject; `file` is where it stands. Raises OwnCheckError."""
    told = subject.told
    came = _came_of(lambda: check(_reply(subject), _run(told)))
    if came is None:
        raise OwnCheckError(expected, f"it did not return within {LIMIT_S:g} s")
    answer, error = came
    if error is not None:
        raise OwnCheckError(expected, _what_happened(error, file, told.folders)) from error
    if answer is True:
        return Verdict(True, expected, checks.excerpt(subject.text))
    if answer is False:
        return Verdict(False, expected, f"it says no: {checks.excerpt(subject.text)}")
    if isinstance(answer, str) and answer.strip():
        return Verdict(False, expected, checks.shortened(str(answer), checks.REASON))
    if isinstance(answer, Coroutine):
        answer.close()  # else Python warns of it some time later
    what = f"it returned {_in_words(answer)}; return True, or a text that says why not"
    raise OwnCheckError(expected, what)


def _came_of(ask: Callable[[], Any]) -> tuple[Any, BaseException | None] | None:
    """The answer, or what was raised; None if neither came within the limit.

    What is printed goes to stderr.
    """
    came: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            came.append((ask(), None))
        except BaseException as error:  # noqa: BLE001  # also sys.exit in the user's code
            came.append((None, error))

    worker = threading.Thread(target=work, daemon=True)  # one that never ends holds up no exit
    with contextlib.redirect_stdout(sys.stderr):
        worker.start()
        worker.join(LIMIT_S)
    return came[0] if came else None


def _in_words(answer: Any) -> str:
    """What was returned; of an object its kind: how it is written differs from run to run."""
    if isinstance(answer, str):
        return "an empty text"
    if answer is None or isinstance(answer, int | float):
        return checks.shortened(repr(answer))
    return f"a {type(answer).__name__}"


def _what_happened(error: BaseException, file: Path | None, folders: Folders) -> str:
    """What was raised, and where: the last line of `file`, else of whatever is not arena's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if (Path(frame.filename) == file if file else frame.filename != __file__)
    ]
    where = f"{folders.shown(Path(frames[-1].filename))}:{frames[-1].lineno}: " if frames else ""
    text = ""
    with contextlib.suppress(Exception):  # the user's `__str__` too may raise
        text = checks.shortened(str(error), checks.REASON)
    return f"{where}{type(error).__name__}{f': {text}' if text else ''}"


def _reply(subject: Subject) -> Reply:
    if subject.call is None:
        return Reply(subject.text, "system", 0)
    return _of_call(subject.call, subject.told, subject.text)


def _of_call(call: Call, told: Conversation, text: str) -> Reply:
    message = call.message
    assert message is not None  # only what was said is checked
    return Reply(
        text=text,
        agent=call.agent,
        turn=call.turn,
        mentions=tuple(message.mentions),
        structured=tuple((part.type, copy.deepcopy(part.data)) for part in message.structured),
        attachments=tuple(
            (part.name, told.workspace / (part.path or "")) for part in message.attachments
        ),
        usage=call.done.usage,
    )


def _run(told: Conversation) -> Run:
    return Run(
        replies=tuple(_of_call(call, told, call.text) for call in told.replies()),
        messages=tuple(_said(message) for message in told.messages()),
        turns=len(told.turns),
        end=told.end,
        awaits=tuple(told.awaits),
        workspace=told.workspace,
    )


def _said(message: Message) -> Said:
    return Said(message.author_id, message.author_type, message.content)
