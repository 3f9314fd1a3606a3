"""Record a flow that is run by itself into a file, and replay it from there.

The file is that of a scenario with one step, which runs the flow.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arena_cli.errors import FileFaults, UsageError
from arena_cli.flows.loader import Flow
from arena_cli.flows.runner import FlowRun
from arena_cli.scenarios.flow_steps import StepAnswers
from arena_cli.scenarios.recording import file, flow_calls
from arena_cli.scenarios.recording.recorder import Tape
from arena_cli.scenarios.result import Drift
from arena_cli.transcript.events import Event
from arena_cli.util.redaction import Redactor
from arena_cli.workspace.workspace import Workspace

_STEP = 1


class FlowRecording:
    """The recording of a flow in a file; unless it `replays`, the flow runs, and is recorded."""

    def __init__(self, path: Path, flow: Flow, *, replays: bool) -> None:
        """Read the recording that is replayed. Raises FileFaults or UsageError."""
        self.replays = replays
        self._path = path
        self._flow = flow
        mend = f"record it: `arena flow run {flow.name} --record {path}`"
        recorded = None
        if replays:
            if not file.is_there(path):
                raise UsageError(f"there is no recording {path}", mend)
            try:
                recorded = file.read(path, str(path)).cases.get(None)
            except FileFaults as error:
                faults = [replace(fault, mend=mend) for fault in error.faults]
                raise FileFaults(faults) from error
            if recorded is None:
                raise UsageError(f"{path} is no recording of a flow", mend)
        else:
            file.check_writable(path, str(path))
        self._tape = Tape(recorded, live=not replays, mend=mend)
        self._tape.begin(_STEP)

    def attach(self, run: FlowRun, workspace: Workspace, redactor: Redactor) -> None:
        """Let the recording answer the steps of a run, or keep what they give."""
        run.answer_by(StepAnswers(workspace, self._flow, self._tape, redactor).answer)

    def hear(self, event: Event) -> None:
        """Keep an event of the run."""
        self._tape.hear(None, event)

    def write(self) -> None:
        """Write the recording. Raises DiskRefused."""
        lines = file.lines(self._tape, None, [])
        file.write(self._path, file.encode_recording(self._flow.file.flow, [lines]))

    def list_drift(self) -> list[Drift]:
        """Return the steps that differ from the recording, once the run is over."""
        self._tape.finished = True
        pairs = flow_calls.list_drift(self._tape.flow_steps, self._tape.was_played)
        return [drift.model_copy(update={"step": None}) for drift, _ in pairs]
