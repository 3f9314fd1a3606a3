"""`judge`: an agent says whether a rubric holds. It was asked before anything is checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from arena_cli.context import render
from arena_cli.ground.protocol import ShownMessage
from arena_cli.scenario.expect import verdicts
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Call, Subject
from arena_cli.scenario.expect.verdicts import JudgeError, Question
from arena_cli.team import ids
from arena_cli.team.model import FileShape

Over = Literal["reply", "step", "scenario"]

KIND = "judge"
"""The field of `CheckKeys` that is this check."""


def _point(text: str) -> str:
    if not text.strip():
        raise ValueError("the rubric is empty; write what must hold, in words")
    return text


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _spelled_out(value: Any) -> Any:
    return {"rubric": value} if isinstance(value, str) else value


class JudgeCheck(FileShape):
    """What a judge says of a text: all of `rubric` must hold, by most of `votes`.

    `agent` judges, else the workspace's `defaults.judge`. It is shown each text that is checked,
    or all replies of the step, or of the scenario so far (`over`).
    """

    rubric: Annotated[
        list[Annotated[str, AfterValidator(_point)]],
        BeforeValidator(_listed, json_schema_input_type=str | list[str]),
        Field(min_length=1),
    ]
    agent: Annotated[str, AfterValidator(ids.normal)] = ""
    votes: int = Field(default=1, ge=1)
    over: Over = "reply"


Judged = Annotated[
    JudgeCheck, BeforeValidator(_spelled_out, json_schema_input_type=str | JudgeCheck)
]


def judge(subject: Subject, given: JudgeCheck, **_: bool) -> Verdict:
    """What most of the judge's votes say. Raises JudgeError where they say nothing."""
    question = _question(subject, given)
    expected = asks(given)
    answered = subject.told.verdicts.get(question)
    if answered is None:
        raise JudgeError(given.agent, expected, "it was not asked")
    holds = verdicts.outcome(answered.votes)
    actual = verdicts.told(answered.votes, holds)
    if holds is None:
        raise JudgeError(answered.judge, expected, actual)
    return Verdict(holds, expected, actual)


def asks(given: JudgeCheck, **_: bool) -> str:
    """The rubric, as what is expected."""
    points = [" ".join(point.split()) for point in given.rubric]
    if len(points) > 1:
        points = [f"{number}. {point}" for number, point in enumerate(points, 1)]
    return f"judged to hold: {'; '.join(points)}"


def _question(subject: Subject, given: JudgeCheck) -> Question:
    return Question(given.agent, tuple(given.rubric), _matter(subject, given.over), given.votes)


def _matter(subject: Subject, over: Over) -> str:
    """What is judged, framed so that nobody in it can end the frame or speak as another."""
    told = subject.told
    if over == "reply":
        return _said(subject.call, subject.text, subject.part)
    if over == "scenario" and told.whole is not None:
        told = told.whole
    return _all_said(told.replies())


def _all_said(replies: Iterable[Call]) -> str:
    return "\n\n".join(_said(reply, reply.text) for reply in replies) or render.NOBODY


def _said(call: Call | None, text: str, part: tuple[str | int, ...] = ()) -> str:
    """A text and its author. Where its file lies is left out: that differs from run to run."""
    message = call.message if call else None
    return render.frame(
        ShownMessage(
            id="",
            author_id=message.author_id if message else "system",
            author_name=message.author_name if message else "system",
            author_type=message.author_type if message else "system",
            content=text,
            kind="file" if part[:1] == ("attachment",) else "chat",
            timestamp="",
            role="user",
        )
    )
