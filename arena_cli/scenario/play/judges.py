"""Asks the judges of a scenario, so that what they say is there when it is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from types import TracebackType

from arena_cli.adapters.runtime import Calls, Runtime
from arena_cli.ground.protocol import Usage
from arena_cli.scenario.expect import judge
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.scenario.expect.verdicts import Answered, Question, Vote
from arena_cli.scenario.load.scenario import Scenario
from arena_cli.scenario.play import ruling
from arena_cli.session import session
from arena_cli.session.aside import Aside
from arena_cli.session.session import Place
from arena_cli.team.model import Member


class Judges:
    """The judges of one scenario while it is played; `usage` is what they used so far.

    `around` as in `Aside`.
    """

    def __init__(
        self,
        scenario: Scenario,
        place: Place,
        *,
        around: Callable[[Runtime], Calls] = session.as_it_is,
    ) -> None:
        self.usage: Usage | None = None
        self._judges = scenario.judges
        self._aside = Aside(place, scenario.team.config, around=around)

    async def heard(
        self, expect: Expect, told: Conversation, whole: Callable[[], Conversation]
    ) -> Conversation:
        """The conversation with an answer to all that `expect` asks a judge about it.

        `whole` gives that of all steps so far. Raises DiskRefused.
        """
        if not self._judges:
            return told
        answers: dict[Hashable, Answered] = {}
        told = replace(told, whole=whole(), verdicts=answers)
        # An answer may decide what else is looked at, such as the next row of a timeline.
        while asked := judge.questions(expect, told):
            answers |= await self._answers(asked)
        return told

    @property
    def used(self) -> dict[str, set[int]]:
        """The entries (from 0) of scripted judges that were used up, by judge."""
        return self._aside.used

    async def __aenter__(self) -> Judges:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._aside.__aexit__(kind, error, trace)

    async def _answers(self, asked: Sequence[Question]) -> dict[Hashable, Answered]:
        """All votes on all questions, asked at once, begun in their order."""
        calls = [
            self._vote(self._judges[question.judge], ruling.message(question))
            for question in asked
            for _ in range(question.votes)
        ]
        came = await asyncio.gather(*calls, return_exceptions=True)
        votes = iter([_vote_of(one) for one in came])
        return {
            question: Answered(
                self._judges[question.judge].id, [next(votes) for _ in range(question.votes)]
            )
            for question in asked
        }

    async def _vote(self, member: Member, message: str) -> Vote:
        done = (await self._aside.ask(member, message)).finished
        if done.usage is not None:
            self.usage = Usage.total([*([self.usage] if self.usage else []), done.usage])
        if done.status == "success" and done.message is not None:
            return ruling.read(done.message.content)
        if done.status == "declined":
            return Vote(None, "it declined to judge")
        why = done.error or done.status
        return Vote(None, "; ".join(line.strip() for line in why.splitlines() if line.strip()))


def _vote_of(came: Vote | BaseException) -> Vote:
    if isinstance(came, BaseException):
        raise came
    return came
