"""Keep what the expectations of a scenario need while it is played: inputs, and texts of notes."""

from __future__ import annotations

from pathlib import Path

from arena_cli.adapters.runtime import Answer, CallNext, CallRequest, Middleware
from arena_cli.context import render
from arena_cli.engine import side_calls
from arena_cli.errors import ArenaError
from arena_cli.scenarios import lint
from arena_cli.scenarios.expect.model import Expect, Noted, NoteRow
from arena_cli.scenarios.model import ScenarioFile
from arena_cli.session.session import own_notes
from arena_cli.transcript.events import NoteEvent
from arena_cli.util.language import Language


class Watching:
    """Keeps, while a scenario is played, the data that its expectations need.

    `inputs` and `noted` as in `CheckContext`; inputs are in the language of the workspace.
    """

    def __init__(self, file: ScenarioFile, workspace: Path, language: Language = "en") -> None:
        expected = [expect for _, expect in lint.expects(file)]
        self._of_inputs = any("shown" in expect.model_fields_set for expect in expected)
        self._of_notes = any(map(_looks_at_notes, expected))
        self._workspace = workspace
        self._language = language
        self.inputs: dict[str, str] = {}
        self.noted: dict[NoteEvent, str] = {}

    def middlewares(self) -> list[Middleware]:
        """Return the middlewares that keep the inputs of calls, if any expectation needs them."""
        return [self] if self._of_inputs else []

    async def invoke(self, request: CallRequest, call_next: CallNext) -> Answer:
        """Keep the input of a call, and pass it on; calls for the team's memory belong to no step.

        An agent that continues its own session was shown the rest there.
        """
        if request.input.turn_id != side_calls.ASIDE:
            prompt = "\n\n".join(render.render(request.input.afresh(), self._language))
            self.inputs[request.input.input_hash] = request.redactor.text(prompt)
        return await call_next(request)

    def hear(self, event: NoteEvent, session: Path) -> None:
        """Keep the text of a note after an event of the session in that folder."""
        if not self._of_notes or not event.note:
            return
        try:
            note = own_notes(session, self._workspace).read(event.note)
        except ArenaError:
            return  # somebody took it away; its title is known
        self.noted[event] = f"{note.title}\n\n{note.body}"


def _looks_at_notes(expect: Expect) -> bool:
    rows = expect.notes.exactly if isinstance(expect.notes, Noted) else expect.notes
    return any(isinstance(row, NoteRow) and row.kinds for row in rows)
