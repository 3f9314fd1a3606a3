"""Run, check and draw flows: `arena flow`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli import errors
from arena_cli.cli import agent_run, command_line, common, options, trust
from arena_cli.errors import SessionBusy, UsageError
from arena_cli.flows import contacts, drawing, loader
from arena_cli.flows.calls import AgentCalls
from arena_cli.flows.outcomes import FlowResult, StepLog, read_log
from arena_cli.flows.runner import FlowRun
from arena_cli.reports.lines import user_words
from arena_cli.session import session as sessions
from arena_cli.session import store, trust_store
from arena_cli.session.session import Session
from arena_cli.transcript import reader
from arena_cli.transcript.flow_events import FlowStarted, StepFinished
from arena_cli.util import language
from arena_cli.util.text import escape_line, shorten_text
from arena_cli.workspace import inputs as flow_inputs
from arena_cli.workspace.models import Team

if TYPE_CHECKING:
    from arena_cli.flows.loader import Flow
    from arena_cli.scenarios.flow_steps import FlowRecording
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event
    from arena_cli.workspace.workspace import Workspace

flow_app = command_line.App(
    help="Run, check or draw a flow: steps that you wrote down, as a graph.",
)

FlowPath = Annotated[Path, typer.Argument(metavar="FILE", help="Use the flow in this YAML file.")]
GivenInputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="Set an input of the flow; @FILE as the value reads a file, lists are JSON; "
        "repeatable.",
    ),
]
SessionName = Annotated[
    str | None,
    options.session_option(help="Keep the steps in this session; by default in a new one."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue the flow of --session: what has ended is not done again."
    ),
]
Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Keep what each step gave in this file."),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="FILE",
        help="Answer each step from this recording; carry out none, and call no agent.",
    ),
]

_SHOWN = 100


@flow_app.command("run")
def run_flow(
    context: typer.Context,
    file: FlowPath,
    inputs: GivenInputs = None,
    session: SessionName = None,
    resume: Resume = False,
    record: Record = None,
    replay: Replay = None,
    as_json: options.AsJson = False,
    quiet: options.NoProgress = False,
) -> None:
    """Run a flow; print how each step ended.

    Steps that do not need each other run side by side. If the flow is interrupted or fails,
    `--resume` continues it. A replay exits with 1 if a step differs from its recording.
    """
    loaded = common.load_workspace(context)
    flow = loader.load(file, loaded)
    if resume and (session is None or inputs):
        raise UsageError(
            "--resume continues the flow of a session, with its inputs",
            "Give --session, and no --input.",
        )
    recording = _open_recording(flow, record, replay, resume=resume)
    earlier = _read_earlier(loaded, session)
    if resume:
        values = _find_resumed(earlier, flow, str(session))
    else:
        if earlier is not None and earlier.status != "success":
            raise UsageError(
                f"the flow {earlier.file} in session {escape_line(str(session))} has not succeeded",
                "Continue it with --resume, or use another session.",
            )
        values = _read_inputs(flow, inputs or ())
    run = _Run(loaded, flow, is_shown=not quiet, recording=recording)
    name, result = run.run(session, values, earlier if resume else None)
    drifts = _report_drift(recording) if recording is not None and recording.replays else 0
    _report(result, flow, name, as_json=as_json)
    if drifts:
        raise typer.Exit(errors.EXIT_NOT_HELD)


@flow_app.command("check")
def check_flow(context: typer.Context, file: FlowPath) -> None:
    """Check a flow file, and the flows that it names; run nothing."""
    flow = loader.load(file, common.load_workspace(context))
    count = sum(1 for _ in flow.walk())
    text = "{file} is valid: {count} steps"
    common.print_line(user_words()(text, file=escape_line(flow.name), count=count))


@flow_app.command("draw")
def draw_flow(
    context: typer.Context,
    file: FlowPath,
    as_html: Annotated[
        bool, typer.Option("--html", help="Print an HTML page that needs no network.")
    ] = False,
) -> None:
    """Print a flow as a Mermaid flowchart."""
    flow = loader.load(file, common.load_workspace(context))
    text = drawing.draw_page(flow) if as_html else drawing.draw_mermaid(flow)
    common.print_line(text, is_data=True)


def _open_recording(
    flow: Flow, record: Path | None, replay: Path | None, *, resume: bool
) -> FlowRecording | None:
    """Return the recording that a run makes or replays; None without one. Raises UsageError."""
    path = record or replay
    if path is None:
        return None
    if record is not None and replay is not None:
        raise UsageError("--record and --replay were given", "Give one of them.")
    if resume:
        raise UsageError("--resume continues a flow, which has no recording of its own")
    recordings = import_module("arena_cli.scenarios.flow_steps")
    recording: FlowRecording = recordings.FlowRecording(path, flow, replays=replay is not None)
    return recording


def _report_drift(recording: FlowRecording) -> int:
    """Print the steps that differ from a recording; return their number."""
    drifts = recording.list_drift()
    if drifts:
        describe = import_module("arena_cli.reports.drift").describe_drift
        for drift in drifts:
            common.print_error(f"arena: {describe(drift, user_words())}")
    return len(drifts)


def _read_earlier(loaded: Workspace, session: str | None) -> StepLog | None:
    """Return the last flow in a session, None if it has none."""
    stored = common.find_existing(loaded.root, session)
    if stored is None:
        return None
    if store.is_held(stored.folder):
        raise SessionBusy(
            f"session {escape_line(str(session))} is busy: another arena is writing to it\n"
            "  Nothing was written. Try again later."
        )
    return read_log(event for line in reader.read_lines(stored.transcript) for event in line.events)


def resume_flow(loaded: Workspace, stored: Stored, *, as_json: bool, quiet: bool) -> bool:
    """Continue the flow of a session; return False if it has none that has not succeeded."""
    log = _read_earlier(loaded, stored.name)
    if log is None or log.status == "success":
        return False
    caller = log.caller
    team = loaded.team(caller.team) if caller and caller.team else None
    flow = loader.load(loaded.root / log.file, loaded, team)
    if caller is not None and caller.agent in loaded.profiles:
        flow = loader.add_rules(flow, loaded.profiles[caller.agent])
    values = _find_resumed(log, flow, stored.name)
    name, result = _Run(loaded, flow, is_shown=not (quiet or as_json)).run(stored.name, values, log)
    _report(result, flow, name, as_json=as_json)
    return True


def _find_resumed(earlier: StepLog | None, flow: Flow, session: str) -> dict[str, Any]:
    """Return the inputs of the flow that continues. Raises UsageError."""
    name = escape_line(session)
    if earlier is None:
        raise UsageError(f"there is no flow in session {name}", "Run it without --resume.")
    if earlier.file != flow.name:
        raise UsageError(f"the flow in session {name} is {earlier.file}, not {flow.name}")
    return dict(flow_inputs.require_inputs("the flow", flow.file.inputs, earlier.inputs))


def _read_inputs(flow: Flow, given: Sequence[str]) -> dict[str, Any]:
    specs = flow.file.inputs
    if given and not specs:
        raise UsageError(f"{flow.name} has no inputs", "Leave out --input.")
    read, unreadable = agent_run.read_inputs(given, specs)
    return dict(flow_inputs.require_inputs("the flow", specs, read, unreadable))


class _Run:
    """A run of a flow from the command line."""

    def __init__(
        self,
        loaded: Workspace,
        flow: Flow,
        *,
        is_shown: bool,
        recording: FlowRecording | None = None,
    ) -> None:
        self._recording = recording
        self._loaded = loaded
        self._flow = flow
        self._is_shown = is_shown

    def run(
        self, session: str | None, values: dict[str, Any], earlier: StepLog | None
    ) -> tuple[str, FlowResult]:
        """Run the flow in a session; return its name, and how the flow ended."""
        loaded, flow = self._loaded, self._flow
        profiles = contacts.list_profiles(flow, loaded)
        if self._recording is not None and self._recording.replays:
            functions = contacts.list_rule_functions(flow)
            trust.require(loaded, lambda _: trust_store.find_contacts((), functions=functions))
            config = common.make_config(loaded, wait_s=0)
        else:
            own = contacts.find_contacts(flow)
            trust.require(loaded, lambda _: own)
            config = trust.live_place(loaded, profiles, wait_s=0)
        common.archive_old_sessions(loaded, config, [session] if session else ())
        team = Team(None, ())
        with Session(config, session, team, on_event=self._hear) as opened:
            common.warn_of_problems(opened.folder / store.TRANSCRIPT, opened.problems)
            redactor = sessions.make_redactor(config, profiles, contacts.list_settings(flow))
            run = FlowRun(
                flow,
                opened.journal,
                config,
                AgentCalls(loaded, config),
                session=opened.name,
                redactor=redactor,
                earlier=earlier,
                caller=earlier.caller if earlier else None,
            )
            recording = self._recording
            if recording is not None:
                recording.attach(run, loaded, redactor)
            hint = f"`arena flow run {flow.name} --session {opened.name} --resume` continues."
            result = common.run(opened.last(run.run(values)), hint=hint)
            if recording is not None and not recording.replays and result.status != "paused":
                recording.write()
            return opened.name, result

    def _hear(self, event: Event) -> None:
        """Print the progress on stderr, and record it."""
        if self._recording is not None:
            self._recording.hear(event)
        if not self._is_shown:
            return
        if isinstance(event, FlowStarted):
            common.warn(f"flow: {escape_line(event.flow)}")
        elif isinstance(event, StepFinished):
            problem = f": {shorten_text(event.error, 4 * _SHOWN)}" if event.error else ""
            line = f"{event.step} {event.status} ({event.ms / 1000:.1f} s){problem}"
            common.print_error(f"  {escape_line(line)}")


def _report(result: FlowResult, flow: Flow, session: str, *, as_json: bool) -> None:
    """Print how a flow ended, and exit by it."""
    if as_json:
        steps = {key: outcome.facts for key, outcome in result.outcomes.items()}
        document = {
            "flow": flow.file.flow,
            "session": session,
            "status": result.status,
            "steps": steps,
            "failed": dict(result.errors),
            "waits": list(result.waits),
        }
        common.print_json(document)
    else:
        for step in flow.steps:
            outcome = result.outcomes.get(step.spec.id)
            if outcome is not None and outcome.status != "failed":
                output = "" if outcome.output is None else outcome.output
                text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
                shown = shorten_text(" ".join(text.split()), _SHOWN)
                line = f"{step.spec.id}: {outcome.status} {shown}".rstrip()
                common.print_line(escape_line(line), is_data=True)
    codes = {"failed": errors.EXIT_FAILED, "paused": errors.EXIT_PAUSED}
    if result.status not in codes:
        return
    for key, problem in result.errors.items() if result.status == "failed" else ():
        common.warn(f"arena: {escape_line(key)}: {escape_line(problem)}")
    for name in result.waits if result.status == "paused" else ():
        common.warn(f"arena: session {name} waits for a person: `arena approvals {name}`")
    again = f"`arena flow run {flow.name} --session {session} --resume`"
    common.warn(f"  {language.translate_message('to continue')}: {again}")
    raise typer.Exit(codes[result.status])
