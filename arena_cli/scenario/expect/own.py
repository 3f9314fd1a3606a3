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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_cli.ground.protocol import Message, Usage
from arena_cli.scenario.expect import checks
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Call, Conversation, Subject
from arena_cli.scenario.expect.folders import Folders

LIMIT_S = 10.0  # for one check, with the import of its file


class OwnCheckError(Exception):
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
    answer = _answer(lambda: check(_reply(subject), _run(told)), file, told.folders)
    if answer is True:
        return Verdict(True, expected, checks.excerpt(subject.text))
    if answer is False:
        return Verdict(False, expected, f"it says no: {checks.excerpt(subject.text)}")
    if isinstance(answer, str) and answer.strip():
        return Verdict(False, expected, answer)
    said = "an empty text" if isinstance(answer, str) else checks.shortened(repr(answer))
    raise OwnCheckError(f"it returned {said}; return True, or a text that says why not")


def _answer(ask: Callable[[], Any], file: Path | None, folders: Folders) -> Any:
    """What is answered within the limit; what is printed goes to stderr. Raises OwnCheckError."""
    answers: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001  # also sys.exit in the user's code
            errors.append(error)

    worker = threading.Thread(target=work, daemon=True)  # one that never ends holds up no exit
    with contextlib.redirect_stdout(sys.stderr):
        worker.start()
        worker.join(LIMIT_S)
    if errors:
        raise OwnCheckError(_what_happened(errors[0], file, folders)) from errors[0]
    if not answers:
        raise OwnCheckError(f"it did not return within {LIMIT_S:g} s")
    return answers[0]


def _what_happened(error: BaseException, file: Path | None, folders: Folders) -> str:
    if isinstance(error, OwnCheckError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if file is not None and Path(frame.filename) == file]
    frame = (own or frames)[-1]
    where = f"{folders.shown(Path(frame.filename))}:{frame.lineno}"
    text = str(error)
    return f"{where}: {type(error).__name__}{f': {text}' if text else ''}"


def _reply(subject: Subject) -> Reply:
    if subject.call is None:
        return Reply(subject.text, "system", 0)
    return _of_call(subject.call, subject.told, subject.text)


def _of_call(call: Call, told: Conversation, text: str) -> Reply:
    message = call.message
    return Reply(
        text=text,
        agent=call.agent,
        turn=call.turn,
        mentions=tuple(message.mentions) if message else (),
        structured=tuple((part.type, copy.deepcopy(part.data)) for part in message.structured)
        if message
        else (),
        attachments=tuple(
            (part.name, told.workspace / (part.path or ""))
            for part in (message.attachments if message else ())
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
