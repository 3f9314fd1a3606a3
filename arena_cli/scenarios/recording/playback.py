"""Play one scenario with its recording: record, replay, compare."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.runtime import (
    Answer,
    CallNext,
    CallRequest,
    Middleware,
    SpecsNext,
    ToolAnswer,
    ToolNext,
    ToolRequest,
)
from arena_cli.errors import AgentError
from arena_cli.protocol import ToolSpec
from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording import drift, file, recorder, settings, store
from arena_cli.scenarios.recording.model import CaseRecord, LiveCallGuard
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.scenarios.recording.settings import Surroundings
from arena_cli.scenarios.recording.store import RecordingStore, WhatOfDrift
from arena_cli.scenarios.result import (
    DRIFTED,
    DRIFTED_AND_NEW,
    CheckResult,
    Drift,
    Mode,
    StepResult,
)
from arena_cli.session.session import make_redactor
from arena_cli.transcript.events import Event
from arena_cli.util.language import Language
from arena_cli.workspace.models import Member


class TapeMiddleware:
    """Answers the calls of a session, or of judges, from a tape, and records those it makes."""

    def __init__(self, tape: Tape, session: str | None, *, is_judge: bool = False) -> None:
        self._tape = tape
        self._session = session
        self._is_judge = is_judge

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Answer a call from its record, else call the agent itself and record it."""
        tape, member, heard = self._tape, request.member, request.heard
        call = tape.opened(member, request.input, self._session, is_judge=self._is_judge)
        for record in call.came.values():
            await recorder.ask_again(record, member.id, heard)
        if recorder.OUTPUT in call.came:
            return recorder.answered(call.came[recorder.OUTPUT], heard)
        if recorder.FAILURE in call.came:
            raise recorder.failed(call.came[recorder.FAILURE], member.id, heard)
        if not tape.may_call():
            raise tape.miss(call.key)
        tape.called_agents = True
        try:
            answer = await call_next(request)
        except AgentError as error:
            call.came = {recorder.FAILURE: recorder.failure(error, heard)}
            raise
        except asyncio.CancelledError:  # its time ran out; nobody keeps what was interrupted
            call.came = {recorder.FAILURE: recorder.failure(None, heard)}
            raise
        named = recorder.name_answered(answer, request.input)
        call.came = {recorder.OUTPUT: recorder.output(named, heard, thinking=member.profile.acts)}
        return answer

    async def call_tool(self, request: ToolRequest, call_next: ToolNext) -> ToolAnswer:
        """Answer a call of a tool from its record, else call the tool itself and record it."""
        tape = self._tape
        call = tape.tools.open(request, self._session, tape.stretches[-1].step)
        return await tape.tools.answer(call, call_next, may_call=tape.may_call, mend=tape.mend)

    async def list_tools(self, member: Member, list_next: SpecsNext) -> list[ToolSpec]:
        """Return the tools of MCP servers as they were recorded, else those that they offer."""
        tape = self._tape
        if (offered := tape.tools.list_offered(member)) or not tape.may_call():
            return offered
        return await list_next(member)


class Take:
    """A scenario being played, with or without a recorder around its agents.

    `recording` is the path of its recording as shown, None if there is none. `before` is the
    recorded case. `tape` is the recorder, None if there is none. `drift` are the differences from
    the recording that are known so far.
    """

    def __init__(
        self,
        scenario: Scenario,
        shelf: RecordingStore | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        self.recording: str | None = None
        self.before: CaseRecord | None = None
        self.drift: list[Drift] = []
        self._scenario = scenario
        self._mode: Mode = "live"
        self.tape: Tape | None = None
        self._guard: LiveCallGuard | None = None
        self._place: SessionConfig | None = None
        self._what_of_drift: WhatOfDrift = "fail"
        if shelf is None or scenario.skip is not None:
            return
        self._mode = shelf.mode_of(scenario)
        self._what_of_drift = shelf.drift
        if self._mode == "update" and shelf.drift == "fail":
            self._what_of_drift = "warn"
        if self._mode == "live":
            self._guard = shelf.guard_of(scenario)
        else:
            self.tape = shelf.tape_of(scenario)
            if self.tape is not None and config is not None:
                hashes = shelf.hashes if self.tape.replays else None
                self.tape.surroundings = Surroundings(scenario.root, config.environ, hashes)
                self._place = config
                everyone = (*scenario.team.agents, *scenario.judges.values())
                profiles = [member.profile for member in everyone]
                self.tape.redactor = make_redactor(config, profiles)
            self.recording = shelf.path_of(scenario)
            self.before = shelf.before(scenario)
            cases = shelf.drift_of_cases(scenario)
            self.drift = [] if self._what_of_drift == "ignore" else cases

    @property
    def mode(self) -> Mode:
        """The mode in which it is played: `record` if a call was missing."""
        return "record" if self.tape and self.tape.adds else self._mode

    @property
    def replays(self) -> bool:
        """True if no agent is called."""
        return self.tape is not None and self.tape.replays

    @property
    def fails(self) -> bool:
        """True if it fails by its drift."""
        return bool(self.drift) and self._what_of_drift == "fail"

    def middlewares(self, session: str | None, *, is_judge: bool = False) -> list[Middleware]:
        """Return the middlewares for the calls of a session, or for those of judges."""
        if self._guard:
            return self.guards
        return [TapeMiddleware(self.tape, session, is_judge=is_judge)] if self.tape else []

    @property
    def guards(self) -> list[Middleware]:
        """The middlewares for calls that no recording answers."""
        return [self._guard] if self._guard else []

    @property
    def refusal(self) -> str | None:
        """The reason it is an error: a live agent had to be called, and must not be."""
        return self._guard.refusal if self._guard else None

    def begin(self, step: int | None, session: str | None = None) -> None:
        """Begin that step, from 1; None: the following events belong to all steps."""
        if self.tape:
            self.tape.finished = step is None
            self.tape.begin(step, session)

    def hear(self, session: str | None, event: Event) -> None:
        """Record an event that a session has written."""
        if self.tape:
            self.tape.hear(session, event)

    def conclude(self) -> None:
        """Find the drift from its recording, once the scenario is over."""
        tape = self.tape
        if tape is None or tape.recorded is None or self._what_of_drift == "ignore":
            return
        self._record_workspace(tape)
        drifts = [
            difference.model_copy(update={"changed": settings.locate(difference, self._scenario)})
            for difference in drift.find_drift(tape, self._scenario.team.agents)
        ]
        if any(
            difference.kind == "miss" for difference in self.drift
        ):  # its case is new: all follows from that
            drifts = [difference.model_copy(update={"follows": True}) for difference in drifts]
        self.drift += drifts

    def frame_language(self, language: Language) -> Language:
        """Return the language of arena's own texts in inputs: that of a recording it replays."""
        tape = self.tape
        if tape is None or not tape.replays or tape.recorded is None:
            return language
        recorded = tape.recorded.workspace or {}
        return "zh" if recorded.get(settings.FRAME) == "zh" else "en"

    def _record_workspace(self, tape: Tape) -> None:
        if self._place is not None:
            tape.workspace = settings.record_workspace(
                [ignored.regex for ignored in self._scenario.file.ignore],
                self._place.models,
                self._place.memory,
                tape.redactor,
                self.frame_language(self._place.language),
            )

    def lines(self) -> list[dict[str, Any]] | None:
        """Return the lines of its recording as played now."""
        if self.tape is None:
            return None
        self._record_workspace(self.tape)
        case = self._scenario.case
        return file.lines(self.tape, case.id if case else None, self._scenario.team.agents)

    def unkept(
        self, steps: Sequence[StepResult], checks: Sequence[CheckResult], error: bool
    ) -> str:
        """Explain why its recording is not written; return "" if it is written or unchanged.

        A failure of an agent that was not expected, or a crashed check, is not worth recording.
        Drift is recorded only if it is accepted. A recording in which an agent did not fail is
        replaced only if the scenario passes with that failure.
        """
        tape = self.tape
        if tape is None or (self._mode == "replay" and not tape.adds):
            return "nothing was recorded"
        if _misses_answers(tape):
            return "there are calls without a recorded answer"
        recorded = tape.recorded.steps() if tape.recorded else ()
        if any(step.status == "not_run" and step.number in recorded for step in steps):
            return "recorded steps were not played"
        if self._mode == "replay" and self.drift:
            return DRIFTED_AND_NEW if tape.called_agents else DRIFTED
        return self._unkept_failure(steps, checks, error)

    def _unkept_failure(
        self, steps: Sequence[StepResult], checks: Sequence[CheckResult], error: bool
    ) -> str:
        if error or any(step.failures or step.error for step in steps):
            return "an agent or arena failed"
        if any(check.status == "error" for check in checks):
            return "a check failed to judge"
        return (
            "an agent failed, although its recording has an answer" if self.failed(checks) else ""
        )

    def failed(self, checks: Sequence[CheckResult]) -> list[str]:
        """Return the agents that failed, and did not fail in the recording that this would replace.

        An agent's reply may fail if all `checks` hold; a call for a team's memory may not.
        """
        if self.tape is None or self.before is None:
            return []
        holds = not any(check.status == "failed" for check in checks)
        failed = store.of_calls(self.tape.calls, but_replies=holds)
        return sorted(failed - store.of_case(self.before))


def _misses_answers(tape: Tape) -> bool:
    """Return True if a call was made whose answer is not recorded."""
    return (
        any(call.missed for call in tape.calls)
        or any(call.is_missing for call in tape.tools.calls)
        or any(call.is_missing for call in tape.flow_steps.calls)
    )
