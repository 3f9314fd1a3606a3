"""What happened that a transcript does not have: what agents were shown, and what notes said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arena_cli.adapters.runtime import Answer, Calls, Heard, Runtime
from arena_cli.context import render
from arena_cli.engine import asking
from arena_cli.ground.errors import ArenaError
from arena_cli.ground.protocol import AgentInput
from arena_cli.scenario.expect.shapes import Expect, Noted, NoteRow
from arena_cli.scenario.load import beside
from arena_cli.scenario.load.shapes import ScenarioFile
from arena_cli.session import remembering
from arena_cli.team.model import Member
from arena_cli.transcript.events import NoteEvent

Around = Callable[[Runtime], Calls]


class Watching:
    """Keeps, while a scenario is played, what its expectations look at.

    `inputs` and `noted` as in `Conversation`.
    """

    def __init__(self, file: ScenarioFile, workspace: Path) -> None:
        expected = [expect for _, expect in beside.expects(file)]
        self._of_inputs = any("shown" in expect.model_fields_set for expect in expected)
        self._of_notes = any(map(_looks_at_notes, expected))
        self._workspace = workspace
        self.inputs: dict[str, str] = {}
        self.noted: dict[NoteEvent, str] = {}

    def around(self, inner: Around) -> Around:
        """The same, watched."""
        if not self._of_inputs:
            return inner
        return lambda runtime: _Watched(inner(runtime), self.inputs)

    def hear(self, event: NoteEvent, session: Path) -> None:
        """Something was done to a note of the session in that folder."""
        if not self._of_notes or not event.note:
            return
        try:
            note = remembering.own_notes(session, self._workspace).read(event.note)
        except ArenaError:
            return  # somebody took it away; its title is known
        self.noted[event] = f"{note.title}\n\n{note.body}"


def _looks_at_notes(expect: Expect) -> bool:
    rows = expect.notes.exactly if isinstance(expect.notes, Noted) else expect.notes
    return any(isinstance(row, NoteRow) and row.kinds for row in rows)


class _Watched:
    """What agents are called through, and what they are shown kept.

    An agent that goes on in its own session was shown the rest there.
    """

    def __init__(self, calls: Calls, inputs: dict[str, str]) -> None:
        self.redactor = calls.redactor
        self._calls = calls
        self._inputs = inputs

    async def invoke(self, member: Member, input: AgentInput, heard: Heard) -> Answer:
        """One call of one agent; one that works for the team's memory is no call of a step."""
        if input.turn_id != asking.ASIDE:
            shown = "\n\n".join(render.render(input.afresh()))
            self._inputs[input.input_hash] = self.redactor.text(shown)
        return await self._calls.invoke(member, input, heard)

    async def stop(self) -> None:
        """End whatever still runs for the agents."""
        await self._calls.stop()
