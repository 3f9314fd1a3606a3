"""Ask the judges of a scenario before its checks are evaluated."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import Middleware
from arena_cli.protocol import Usage
from arena_cli.scenarios.expect import evaluate, text_checks
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.judge_checks import MATTER, RUBRIC, Answered, JudgeQuestion, Vote
from arena_cli.scenarios.expect.model import Expect
from arena_cli.scenarios.model import Scenario
from arena_cli.session.one_shot import Aside
from arena_cli.workspace.models import Member

PASS = frozenset({"pass", "passed", "passes", "true", "yes", "holds", "是", "通过", "符合"})
FAIL = frozenset({"fail", "failed", "fails", "false", "no", "否", "不通过", "不符合"})

# An object at the beginning of a line or behind another one, after nothing or words: within a
# string of a broken one there would be a quote before it.
_NEXT = re.compile(r'[^{}"\r\n]*+\{(?=\s*+["}])')
_FIRST = re.compile(f"^{_NEXT.pattern}", re.MULTILINE)
_BLANK = re.compile(r"\s*+(?:[`~]{3,}+\w*+\s*+)?")  # or the beginning of a fence
_WORD = re.compile(r"\w")

_ANSWER = """\
Answer with exactly one JSON object and nothing else:
{"verdict": "pass" or "fail", "reason": "one sentence, in the language of the rubric"}
"pass" means that all points of the rubric hold."""


def message(question: JudgeQuestion) -> str:
    """Return the message to a judge: the rubric, the matter, and how to answer.

    Every line of the matter begins with `> `, and the rubric, which may hold saved texts, is
    numbered and indented: no line of either can look like one of arena's own.
    """
    points = [
        f"{number}. " + "\n   ".join(point.strip().splitlines())
        for number, point in enumerate(question.rubric, 1)
    ]
    return "\n\n".join([RUBRIC, "\n".join(points), MATTER, question.matter, _ANSWER])


def read(answer: str) -> Vote:
    """Read the verdict in a judge's answer: the JSON object that it is or holds.

    Verdicts are read by a table (`PASS`, `FAIL`), ignoring case. An unknown or missing verdict, or
    several that differ, is no verdict; neither is broken JSON, nor JSON between words, which the
    judge may only quote.
    """
    try:
        verdicts = list(_verdicts(answer))
    except (ValueError, RecursionError):
        return _none("its answer is broken JSON", answer)
    if not verdicts:
        return _none("its answer has none", answer)
    votes = [_vote(record["verdict"], record.get("reason")) for _, record, _ in verdicts]
    if None in {vote.holds for vote in votes}:
        return _none("it is neither pass nor fail", answer)
    if len({vote.holds for vote in votes}) > 1:
        return _none("there are several that differ", answer)
    start, end = verdicts[0][0], verdicts[-1][-1]
    if not _BLANK.fullmatch(answer, 0, start) and _WORD.search(answer, end):
        return _none("it may be a quotation: words stand before and behind it", answer)
    return votes[-1]


def _verdicts(answer: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Yield the objects with a verdict, their keys case-folded, each with its start and end.

    Raises ValueError, RecursionError.
    """
    end = 0
    while opening := _NEXT.match(answer, end) or _FIRST.search(answer, end):
        start = opening.end() - 1
        record, end = _DECODER.raw_decode(answer, start)
        if "verdict" in record:
            yield start, record, end


def _folded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    folded: dict[str, Any] = {}
    for key, value in pairs:
        if folded.setdefault(key.strip().casefold(), value) != value:
            raise ValueError(f"{key} appears twice")
    return folded


def _vote(verdict: object, reason: object) -> Vote:
    word = text_checks.form(str(verdict), ignore_case=True).strip()
    holds = True if word in PASS else False if word in FAIL else None
    return Vote(holds, " ".join(reason.split()) if isinstance(reason, str) else "")


def _none(reason: str, answer: str) -> Vote:
    return Vote(None, f"{reason}: {text_checks.excerpt(answer.strip())}")


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_folded)


class Judges:
    """The judges of one scenario while it is played; `usage` is their usage so far.

    `aside` calls them, with these `middlewares`; it is stopped after the last step.
    """

    def __init__(
        self,
        scenario: Scenario,
        config: SessionConfig,
        *,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.usage: Usage | None = None
        self._judges = scenario.judges
        self.aside = Aside(config, scenario.team.config, middlewares=middlewares)

    async def heard(
        self,
        expect: Expect,
        conversation: CheckContext,
        whole_conversation: Callable[[], CheckContext],
    ) -> CheckContext:
        """Return the conversation with answers to all questions of `expect` to judges.

        `whole_conversation` returns that of all steps so far. Raises DiskRefused.
        """
        if not self._judges:
            return conversation
        answers: dict[Hashable, Answered] = {}
        conversation = replace(conversation, whole=whole_conversation(), verdicts=answers)
        # An answer may decide what else is looked at, such as the next row of a timeline.
        while pending := evaluate.questions(expect, conversation):
            answers |= await self._answers(pending)
        return conversation

    async def _answers(self, questions: Sequence[JudgeQuestion]) -> dict[Hashable, Answered]:
        """Collect all votes on all questions; the calls run concurrently, started in order."""
        calls = [
            self._vote(self._judges[question.judge], message(question))
            for question in questions
            for _ in range(question.votes)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        votes = iter([_vote_of(outcome) for outcome in outcomes])
        return {
            question: Answered(
                self._judges[question.judge].id, [next(votes) for _ in range(question.votes)]
            )
            for question in questions
        }

    async def _vote(self, member: Member, message: str) -> Vote:
        done = (await self.aside.ask(member, message)).finished
        if done.usage is not None:
            self.usage = Usage.total([*([self.usage] if self.usage else []), done.usage])
        if done.status == "success" and done.message is not None:
            return read(done.message.content)
        if done.status == "declined":
            return Vote(None, "it declined to judge")
        reason = done.error or done.status
        return Vote(None, "; ".join(line.strip() for line in reason.splitlines() if line.strip()))


def _vote_of(outcome: Vote | BaseException) -> Vote:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
