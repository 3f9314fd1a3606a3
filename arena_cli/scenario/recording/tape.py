"""Stands around the agents of a scenario, at the edge of their adapters, and records or replays
them.

The key of a call is step, agent and invocation (and the repeat, of which there is one so far); that
of an agent that works for the team's memory has `memory` instead of an invocation. A call gets the
first unused record of its key whose input has the same hash, or differs in nothing that matters
(`shown`); else the next unused one of its key, which is drift; where none is left it is a miss. A
judge's is a miss as soon as it is asked something else: a verdict is about what was judged. Routing
is never read from a recording. Steps are those of the scenario: a recording is numbered by them
before (`step_matching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena_cli.adapters.runtime import Answer, Calls, Heard, Runtime
from arena_cli.engine import asking
from arena_cli.ground.errors import AgentError, AgentUnavailable
from arena_cli.ground.protocol import AgentInput
from arena_cli.ground.redact import Redactor
from arena_cli.ground.userpattern import UserPattern
from arena_cli.scenario.recording import answers, settings, shown
from arena_cli.scenario.recording.ignoring import Ignoring
from arena_cli.scenario.recording.recorded import CaseRecord, Key, Recorded
from arena_cli.scenario.recording.settings import Surroundings
from arena_cli.team.model import Member
from arena_cli.transcript.events import Compacted, Event, Extracted, ReplyStarted

OUTPUT = "output"
FAILURE = "failure"
MEMORY = "memory"


@dataclass
class Call:
    """One call that was made: of a judge, or as which reply if as one, and what came of it.

    `notes` are the ids of those that a reply's agent was shown. `record` is what it was answered
    from, None where the agent was called or there was none. `is_same`: its input is that of the
    record, apart from what cannot matter (`shown`).
    """

    key: Key
    session: str | None
    input: AgentInput
    input_hash: str
    is_judge: bool = False
    reply: int | None = None
    notes: Sequence[str] = ()
    record: Recorded | None = None
    is_same: bool = False
    came: dict[str, Any] = field(default_factory=dict)

    @property
    def drifted(self) -> bool:
        """Whether it was answered from a record of another input."""
        return self.record is not None and not self.is_same

    @property
    def missed(self) -> bool:
        """Whether there was nothing to answer it from."""
        return not self.came


class Stretch(NamedTuple):
    """A step (from 1; 0 is what was there before, None what comes after all) in one session.

    `remembering` are the calls for the team's memory, each with the event that tells what came of
    it; None where none did.
    """

    step: int | None
    session: str | None
    events: list[Event]
    judged: list[Call]
    remembering: list[tuple[Call, Event | None]]


class Tape:
    """The calls of one scenario as it is played.

    `redactor` is that of its sessions; `surroundings` are what its agents' settings refer to, and
    `workspace` what `settings.record_workspace` gives of it, and `called_with` what was recorded of
    each agent at its first call. `finished` is set once all
    its steps were played. `recorded` is what is replayed, `live` whether an agent is called where
    nothing is: `recorded` with `live` calls only for what is missing, and no longer where something
    has drifted already.
    """

    def __init__(
        self,
        recorded: CaseRecord | None = None,
        *,
        live: bool,
        ignore: Sequence[UserPattern | str] = (),
        mend: str = "",
    ) -> None:
        self.recorded = recorded
        self.ignoring = Ignoring(ignore)
        self.calls: list[Call] = []
        self.stretches: list[Stretch] = [Stretch(0, None, [], [], [])]
        self.members: dict[str, Member] = {}
        self.called_agents = False
        self.finished = False
        self._live = live
        self._mend = mend
        self.redactor = Redactor()
        self.surroundings: Surroundings | None = None
        self.workspace: Mapping[str, Any] | None = None
        self.called_with: dict[str, dict[str, dict[str, str]]] = {}
        self._unused = recorded.unused() if recorded else {}
        self._normal: dict[int, dict[str, Any]] = {}
        self._started: dict[tuple[str | None, str], ReplyStarted] = {}

    @property
    def replays(self) -> bool:
        """Whether nobody is called."""
        return not self._live

    @property
    def adds(self) -> bool:
        """Whether something was played that is not in the recording, and may be kept."""
        return self.called_agents or bool(self._live and self.new_steps)

    @property
    def new_steps(self) -> set[int]:
        """The steps that were played, and are not in the recording."""
        played = {one.step for one in self.stretches if one.step}
        return played - self.recorded.steps() if self.recorded else played

    @property
    def left_over(self) -> list[Recorded]:
        """The records that no call was answered from, in order; of steps that were played.

        Those are left out in whose place a judge was asked something else.
        """
        replaced = {record.number for _, record in self.judged_otherwise}
        left = [one for records in self._unused.values() for one in records]
        played = [one for one in left if self.was_played(one.key.step)]
        return sorted(
            [one for one in played if one.number not in replaced], key=lambda one: one.number
        )

    @property
    def judged_otherwise(self) -> list[tuple[Call, Recorded]]:
        """What a judge was asked that has no record, each with what it was asked then instead."""
        asked = [call for call in self.calls if call.is_judge and call.record is None]
        left = {call.key: iter(self._unused.get(call.key, ())) for call in asked}
        pairs = ((call, next(left[call.key], None)) for call in asked)
        return [(call, record) for call, record in pairs if record is not None]

    def was_played(self, step: int | None) -> bool:
        """Whether a step of the recording was, or will not be any more."""
        return self.finished or any(stretch.step == step for stretch in self.stretches)

    def begin(self, step: int | None, session: str | None = None) -> None:
        """What comes from now on belongs to that step (from 1), None: to the whole scenario."""
        self.stretches.append(Stretch(step, session, [], [], []))

    def hear(self, session: str | None, event: Event) -> None:
        """An event of a session of the scenario was written."""
        self.stretches[-1].events.append(event)
        if isinstance(event, ReplyStarted):
            self._started[session, event.agent] = event
        elif isinstance(event, (Compacted, Extracted)):
            now = self.stretches[-1].remembering
            now[:] = [(call, told or event) for call, told in now]

    def around(self, session: str | None) -> Callable[[Runtime], Calls]:
        """What the agents of a session are called through."""

        def taped(runtime: Runtime) -> Calls:
            return _Taped(self, runtime, session, is_judge=False)

        return taped

    def around_judge(self, runtime: Runtime) -> Calls:
        """What a judge is called through."""
        return _Taped(self, runtime, None, is_judge=True)

    def opened(
        self, member: Member, input: AgentInput, session: str | None, *, is_judge: bool
    ) -> Call:
        """A call begins: its record is taken at once, so that the order of calls decides."""
        now = self.stretches[-1]
        is_aside = input.turn_id == asking.ASIDE
        key = Key(now.step, member.id, MEMORY if is_aside else input.invocation)
        call = Call(key, session, input, self.ignoring.hash_of(input), is_judge)
        if is_judge:
            now.judged.append(call)
        elif is_aside:
            now.remembering.append((call, None))
        elif started := self._started.get((session, member.id)):
            call.reply, call.notes = started.reply, started.notes
        call.record = self._take_record(call)
        if call.record is not None:
            call.came = call.record.came
        self.calls.append(call)
        if member.id not in self.members:
            self.members[member.id] = member
            if self.surroundings is not None:
                self.called_with[member.id] = settings.record_called(
                    member, self.redactor, self.surroundings
                )
        return call

    def _take_record(self, call: Call) -> Recorded | None:
        """Return the record that answers a call, and note whether it has the same input."""
        left = self._unused.get(call.key, [])
        same = next((at for at, one in enumerate(left) if one.input_hash == call.input_hash), None)
        if same is None and left:
            same = self._find_same(call, left)
        call.is_same = same is not None
        if same is None and (call.is_judge or not left):
            return None
        return left.pop(same or 0)

    def _find_same(self, call: Call, records: Sequence[Recorded]) -> int | None:
        """Return the first record whose input differs in nothing that matters."""
        after = shown.normalize_input(call.input, self.ignoring, self.redactor)
        for at, record in enumerate(records):
            if shown.is_same(self.normal_input(record), after, self.ignoring):
                return at
        return None

    def normal_input(self, record: Recorded) -> dict[str, Any]:
        """Return the recorded input as it is compared."""
        assert self.recorded is not None
        if record.number not in self._normal:
            fields = self.recorded.shown(record)
            self._normal[record.number] = shown.normalize(fields, self.ignoring)
        return self._normal[record.number]

    def may_call(self) -> bool:
        """Whether an agent may be called where nothing is recorded."""
        if self._live and self.recorded is not None and any(call.drifted for call in self.calls):
            return False
        return self._live

    def miss(self, key: Key) -> AgentError:
        """What a call without a record fails with."""
        where = "over the whole scenario" if key.step is None else f"in step {key.step}"
        what = f"its recording has no answer left for it {where} ({key.invocation})"
        return AgentUnavailable(key.agent, what, mend=self._mend, again=False)


class _Taped:
    """The runtime of one session, with the tape around it."""

    def __init__(
        self, tape: Tape, runtime: Runtime, session: str | None, *, is_judge: bool
    ) -> None:
        self.redactor = tape.redactor = runtime.redactor
        self._tape = tape
        self._runtime = runtime
        self._session = session
        self._is_judge = is_judge

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """One call: from its record, else of the agent itself, which is recorded."""
        tape = self._tape
        call = tape.opened(member, input, self._session, is_judge=self._is_judge)
        if OUTPUT in call.came:
            return answers.answered(call.came[OUTPUT], heard)
        if FAILURE in call.came:
            raise answers.failed(call.came[FAILURE], member.id, heard)
        if not tape.may_call():
            raise tape.miss(call.key)
        tape.called_agents = True
        try:
            answer = await self._runtime.invoke(member, input, heard)
        except AgentError as error:
            call.came = {FAILURE: answers.failure(error, heard)}
            raise
        except asyncio.CancelledError:  # its time ran out; nobody keeps what was interrupted
            call.came = {FAILURE: answers.failure(None, heard)}
            raise
        call.came = {OUTPUT: answers.output(answer, heard)}
        return answer

    async def stop(self) -> None:
        """End whatever still runs for the agents."""
        await self._runtime.stop()
