"""Play one scenario, in sessions of its own."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from arena_cli.adapters.base import FlowHost, SessionConfig
from arena_cli.errors import ArenaError, DiskRefused, UsageError
from arena_cli.protocol import Usage
from arena_cli.scenarios.control_steps import (
    PlayedChain,
    PlayedStep,
    SteppingIn,
    Watching,
    continue_chain,
    find_cut_prompts,
    find_unused_replies,
    group_chains,
    react,
    resolve_reply,
    save_text,
)
from arena_cli.scenarios.expect import evaluate
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import Expect
from arena_cli.scenarios.expect.snapshots import NotSnapshots, Snapshots
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.scenarios.given import make_filler
from arena_cli.scenarios.judges import Judges
from arena_cli.scenarios.model import CONTINUING, RUNNING, Scenario, Sent, Step
from arena_cli.scenarios.recording.file import lock
from arena_cli.scenarios.recording.playback import Take
from arena_cli.scenarios.recording.store import RecordingStore
from arena_cli.scenarios.result import (
    WRONG,
    CheckResult,
    Failure,
    ScenarioResult,
    ScenarioStatus,
    StepResult,
    StepStatus,
)
from arena_cli.scenarios.task_steps import find_board, play_tasks
from arena_cli.scenarios.tools import WorkdirCopies, make_finder
from arena_cli.scenarios.variables import NotSaved
from arena_cli.session.outgoing import Outgoing, Planted
from arena_cli.session.session import Session, make_redactor, own_notes
from arena_cli.transcript.conversation import read_conversation
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    NoteEvent,
    SessionEvent,
)
from arena_cli.util.clock import HastyClock
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.yamlio.nodes import Loc

Keep = Literal["failed", "all", "none"]


def _as_played(config: SessionConfig, scenario: Scenario) -> SessionConfig:
    """Return the settings of sessions with the agents as a scenario has them."""
    find_agent = config.find_agent
    profiles = (profile.profile for profile in scenario.profiles.values())
    return replace(
        config,
        shared_notes=False,
        profiles=(*config.profiles, *profiles),
        find_agent=lambda agent: scenario.as_played(find_agent(agent)),
        summarizer=scenario.as_played(config.summarizer),
        extractor=scenario.as_played(config.extractor),
        memory_judge=scenario.as_played(config.memory_judge),
    )


class Playing:
    """Plays one scenario; `result` contains its progress, and that its recording was `written`.

    `keep` selects the sessions that are kept: those that did not pass, all, or none. With `detail`
    the result also has the events of a scenario that passed.
    """

    def __init__(
        self,
        scenario: Scenario,
        config: SessionConfig,
        keep: Keep = "failed",
        *,
        detail: bool = False,
        shelf: RecordingStore | None = None,
    ) -> None:
        self._scenario = scenario
        self._take = Take(scenario, shelf, config)
        if self._take.replays:
            config = replace(config, clock=HastyClock(config.clock), connects=False)
        config = self._place = replace(
            _as_played(config, scenario),
            find_tools=make_finder(scenario.file.tools, is_hasty=self._take.replays),
            place_workdir=self._place_workdir,
            flows=FlowHost(scenario.workspace, self._take.guards, self._add_flow_session),
        )
        self._redactor = make_redactor(config)
        language = self._take.frame_language(config.language)
        self._watching = Watching(scenario.file, config.workspace, language)
        self._keep = keep
        self._detail = detail
        self._sessions: dict[str | None, Session] = {}
        self._flow_sessions: set[str] = set()
        self._workdirs: WorkdirCopies | None = None
        self._chains: dict[str | None, PlayedChain] = {}
        self._stepping_in: SteppingIn | None = None
        self._steps: list[StepResult] = []
        self._saved: dict[str, str] = {}
        self._checks: list[CheckResult] = []
        self._rows = evaluate.Rows(scenario.file.expect)
        self._judges = Judges(
            scenario, config, middlewares=self._take.middlewares(None, is_judge=True)
        )
        case = scenario.case.id if scenario.case else None
        self._snapshots = Snapshots(
            scenario.path,
            case,
            cases=scenario.cases,
            update=shelf is not None and shelf.updates,
            sync=config.durability == "fsync",
        )
        self._turns = 0
        self._opening: SessionEvent | None = None
        self._error: str | None = None
        self._finished = False
        self.written = False
        self._began = config.clock.monotonic()
        self._seconds = 0.0

    async def run(self) -> None:
        """Play it to its end, or to the step that stops it.

        Raises UsageError if no session can be made.
        """
        if self._scenario.skip is not None:
            self._finished = True
            return
        try:
            async with AsyncExitStack() as opened:
                heard: dict[str | None, list[Event]] = {}
                opened.push_async_exit(self._judges.aside)
                self._session(None, opened, heard)
                await self._play(opened, heard)
        except ArenaError as error:
            if not self._sessions:
                raise
            # Nobody goes on with a scenario's session: it is played again.
            self._error = error.what if isinstance(error, DiskRefused) else str(error)
        finally:
            self._seconds = self._place.clock.monotonic() - self._began
        try:
            self._take.conclude()
        except PatternTimeout as error:
            self._error = self._error or str(error)
        if not any(step.error for step in self._steps):
            self._error = self._error or self._take.refusal
        self._finished = True
        self._save_snapshots()
        if self._keep == "none" or (self._keep == "failed" and self.status not in WRONG):
            self.discard()

    def _add_flow_session(self, name: str) -> None:
        self._flow_sessions.add(name)

    def discard(self) -> None:
        """Remove its sessions."""
        for session in self._sessions.values():
            _remove(session.folder)
            for name in self._flow_sessions:
                _remove(session.folder.with_name(name))
        self._sessions.clear()
        self._flow_sessions.clear()

    def recorded(self) -> list[dict[str, Any]] | None:
        """Return the lines of its recording as played now; None if they must not be kept."""
        return None if not self._finished or self._unkept else self._take.lines()

    @property
    def _unkept(self) -> str:
        return self._take.unkept(self._steps, self._all_checks, self._error is not None)

    @property
    def _unkept_agents(self) -> list[str]:
        """The agents whose failure keeps the earlier recording."""
        unnamed = {failure.agent for step in self._steps for failure in step.failures}
        return sorted({*self._take.failed(self._all_checks), *unnamed} if self._take.before else ())

    @property
    def _all_checks(self) -> list[CheckResult]:
        return [*(check for step in self._steps for check in step.checks), *self._checks]

    def refuse(self, reason: str) -> None:
        """Report that its recording could not be written."""
        self._error = reason

    def _save_snapshots(self) -> None:
        if self._take.mode == "record" and self._unkept:
            return  # they are those of the recording, which stays
        is_whole = self._error is None and all(step.status != "not_run" for step in self._steps)
        try:
            with lock(self._scenario.root) if self._snapshots.update else nullcontext():
                self._snapshots.save(is_whole=is_whole)
        except (DiskRefused, NotSnapshots, OSError) as error:
            self._error = str(error)

    @property
    def status(self) -> ScenarioStatus:
        """The status so far; a check on a chain with a failed agent does not count as failed."""
        if not self._finished:
            return "interrupted"
        if self._scenario.skip is not None:
            return "skipped"
        if self._take.fails:
            return "failed"
        statuses = self._statuses()
        if self._scenario.xfail is not None:
            if "error" in statuses:
                return "error"
            return "xfailed" if "failed" in statuses else "failed"
        return next((status for status in ("failed", "error") if status in statuses), "passed")

    def _statuses(self) -> set[str]:
        """Return the statuses of the steps and of the scenario's own checks."""
        statuses: set[str] = {step.status for step in self._steps}
        failures = [failure for step in self._steps for failure in step.failures]
        statuses.add(evaluate.status_of(self._checks, failures))
        return statuses | {"error"} if self._error else statuses

    def result(self) -> ScenarioResult:
        """Return the result so far."""
        status = self.status
        scenario = self._scenario
        names = {key: session.name for key, session in self._sessions.items()}
        # Nobody looks at the timeline of one that passed, and a long run has many.
        left_out: dict[str, Any] = (
            {"events": [], "before": []} if status == "passed" and not self._detail else {}
        )
        steps = [
            step.model_copy(update={"session_name": names.get(step.session), **left_out})
            for step in self._steps
        ]
        error = self._error
        if status == "failed" and scenario.xfail is not None and not self._take.fails:
            error = "it was expected to fail, but passed: remove its `xfail`"
        unkept = self._unkept if self._take.mode in ("record", "update") else ""
        return ScenarioResult(
            scenario=scenario.file.scenario,
            case=scenario.case.id if scenario.case else None,
            file=scenario.shown,
            tags=scenario.file.tags,
            status=status,
            reason=scenario.skip if scenario.skip is not None else scenario.xfail,
            seconds=round(self._seconds, 3),
            steps=steps,
            checks=self._checks,
            sessions=list(names.values()),
            error=error,
            mode=None if scenario.skip is not None else self._take.mode,
            recording=self._take.recording,
            written=self.written,
            unkept=unkept,
            unkept_agents=self._unkept_agents if unkept else [],
            drift=self._take.drift,
            drift_fails=self._take.fails,
            usage=_sum(step.usage for step in self._steps),
            judges_usage=self._judges.usage,
            place=functools.partial(scenario.place, ("scenario",)),
            team=scenario.team,
            opening=self._opening,
        )

    async def _play(self, opened: AsyncExitStack, heard: dict[str | None, list[Event]]) -> None:
        scenario = self._scenario
        first = self._session(None, opened, heard)
        self._opening = next((e for e in heard[None] if isinstance(e, SessionEvent)), None)
        past_keys = scenario.file.given
        for note in scenario.notes:
            note.put(own_notes(first.folder, self._place.workspace).path)
            first.plant_approval(note.note)
        message_events: list[MessageEvent] = []
        if past_keys.fill:
            for planted in make_filler(
                past_keys.fill.messages, past_keys.fill.seed, scenario.team, self._place.language
            ):
                message_events.append(first.plant(planted))
        filled = len(message_events)
        for entry in scenario.past:
            if isinstance(entry, Planted):
                message_events.append(first.plant(entry))
            else:
                first.plant_summary(entry, message_events[: filled + entry.messages])
        heard[None].clear()
        for index, step in enumerate(scenario.file.steps):
            self._take.begin(index + 1, step.session)
            session = self._session(step.session, opened, heard)
            events = heard[step.session]
            done = await self._step(index, session, events)
            events.clear()
            self._steps.append(done)
            if done.status != "passed" and step.on_fail == "stop":
                remaining = range(index + 1, len(scenario.file.steps))
                self._steps += (self._result(entry, status="not_run") for entry in remaining)
                return
        self._take.begin(None)
        await self._judge_whole()

    def _session(
        self, name: str | None, opened: AsyncExitStack, heard: dict[str | None, list[Event]]
    ) -> Session:
        """Return the scenario's session of that name, opened at its first use."""
        session = self._sessions.get(name)
        if session is None:
            events = heard[name] = []

            def hear(event: Event) -> None:
                events.append(event)
                self._take.hear(name, event)
                if self._stepping_in is not None:
                    self._stepping_in.hear(event)
                if isinstance(event, NoteEvent):
                    self._watching.hear(event, self._sessions[name].folder)

            session = opened.enter_context(
                Session(
                    self._place,
                    None,
                    self._scenario.team,
                    scenario=self._scenario.title,
                    on_event=hear,
                    middlewares=[*self._watching.middlewares(), *self._take.middlewares(name)],
                )
            )
            opened.push_async_callback(session.stop)
            self._sessions[name] = session
        return session

    def _place_workdir(self, workdir: Path) -> Path:
        """Return the copy of an agent's folder; all sessions of the scenario share it."""
        if self._workdirs is None:
            folder = self._sessions[None].folder
            self._workdirs = WorkdirCopies(folder, folder.parent)
        return self._workdirs.place(workdir)

    async def _step(self, index: int, session: Session, events: list[Event]) -> StepResult:
        """Play a step and judge it; if a value that it needs was not saved, it is an error."""
        step = self._scenario.file.steps[index]
        unable = None
        try:
            if step.steer or step.pause:
                self._stepping_in = SteppingIn(step, session)
            if step.flow is not None:
                return await self._play_flow(index, session, events)
            if step.kind in CONTINUING:
                unable = await continue_chain(step, session)
            elif step.kind in ("task", "work"):
                await play_tasks(self._scenario.step_with(index, self._saved), session)
            else:
                sent = self._find_sent(index, session)
                if isinstance(sent, Outgoing) and (earlier := session.find_repeated(sent)):
                    return await self._judge_repeated(index, earlier)
                await _play(step, sent, session)
            if self._take.refusal:
                return self._result(index, error=self._take.refusal, events=events)
            if unable is not None:
                return self._fail(index, step.kind, unable, events)
            check = step.check
            return await (
                self._judged(index, events) if check is None else self._judge_check(index, check)
            )
        except (NotSaved, UsageError) as error:
            reason = str(error)
        finally:
            self._stepping_in = None
        return self._result(index, error=reason, events=events)

    def _find_sent(self, index: int, session: Session) -> Sent:
        """Return what a step sends, with the saved texts that it uses, and what it answers."""
        sent = self._scenario.sent[index]
        if sent is None and self._scenario.file.steps[index].kind not in ("check", "react"):
            sent = self._scenario.sent_with(index, self._saved)
        return resolve_reply(sent, session) if isinstance(sent, Outgoing) else sent

    async def _play_flow(self, index: int, session: Session, events: Sequence[Event]) -> StepResult:
        """Run the flow of a step and judge it; a failure that nothing expects is an error."""
        step = self._scenario.file.steps[index]
        problem = await import_module("arena_cli.scenarios.flow_steps").run_flow(
            self._scenario,
            index,
            session,
            self._place,
            middlewares=[*self._watching.middlewares(), *self._take.guards],
            on_session=self._add_flow_session,
            tape=self._take.tape,
        )
        if self._take.refusal:
            return self._result(index, error=self._take.refusal, events=events)
        talk = self._told(events, index + 1)
        results = await self._checked(step.expect, talk, ("steps", index, "expect"))
        is_expected = "flow" in step.expect.model_fields_set
        error = f"the flow did not succeed: {problem}" if problem and not is_expected else None
        return self._result(index, checks=results, error=error, events=events)

    def _fail(self, index: int, key: str, verdict: Verdict, events: Sequence[Event]) -> StepResult:
        """Return the result of a step whose decision no agent asked for; judge nothing else."""
        result = evaluate.result(verdict, "failed", self._scenario.place, ("steps", index), (key,))
        return self._result(index, checks=[result], events=events)

    async def _judge_check(self, index: int, check: Expect) -> StepResult:
        """Judge a `check`: the steps so far, or those of its session."""
        session = self._scenario.file.steps[index].session
        done = [step for step in self._played if session in (None, step.session)]
        talk = self._told(group_chains(done), index + 1)
        results = await self._checked(check, talk, ("steps", index, "check"))
        return self._result(index, end=talk.end, checks=results)

    async def _judge_repeated(self, index: int, earlier: list[Event]) -> StepResult:
        """Judge a step whose key was used before: by the events of the earlier chain."""
        step = self._scenario.file.steps[index]
        talk = self._told(earlier, index + 1)
        results = self._save(index, step, talk)
        results += await self._checked(step.expect, talk, ("steps", index, "expect"))
        return self._result(index, end=talk.end, checks=results)

    async def _judged(self, index: int, events: Sequence[Event]) -> StepResult:
        """Judge a step: the chain that it ran, from its first step."""
        step, loc = self._scenario.file.steps[index], ("steps", index)
        chain = PlayedChain(self._turns)
        if step.kind in RUNNING:
            continued = self._chains.get(step.session) if step.kind in CONTINUING else None
            chain = self._chains[step.session] = continued or chain
        chain.add(events)
        talk = self._told(chain.events, index + 1)
        results = [*self._save(index, step, talk), *find_cut_prompts(self._scenario, events)]
        missing = self._stepping_in.verdict(talk) if self._stepping_in else None
        if missing is not None:
            place = self._scenario.place
            results.append(evaluate.result(missing, "failed", place, loc, ("after",)))
        current = PlayedStep(step.kind, step.session, events)
        results += await self._checked(step.expect, talk, (*loc, "expect"), current)
        expectation = self._scenario.file.expect
        if any(later.kind in RUNNING for later in self._scenario.file.steps[index + 1 :]):
            # Both are the last chain's.
            expectation = expectation.model_copy(update={"end": [], "paused": []})
        failures = evaluate.unnamed(
            talk,
            step.expect,
            expectation,
            self._rows,
            chain.turns_before,
            since=events[0].seq if events else 0,
        )
        self._turns += len(talk.turns) - chain.turns
        chain.turns = len(talk.turns)
        error = None
        if not (step.pause and talk.pause == "asked"):
            error = evaluate.find_unnamed_pause(talk, step.expect, expectation) or None
        return self._result(
            index,
            end=talk.end,
            checks=results,
            failures=failures,
            error=error,
            events=events,
        )

    async def _checked(
        self, expect: Expect, talk: CheckContext, loc: Loc, *current: PlayedStep
    ) -> list[CheckResult]:
        """Return the results; `current` is a step that has no result yet."""
        if not expect.model_fields_set:
            return []
        expected = self._scenario.expected(loc, expect, self._saved)
        talk = await self._judges.heard(
            expected, talk, lambda: self._told(group_chains([*self._played, *current]))
        )
        results = evaluate.checked(expected, talk, self._scenario.place, loc)
        return [self._redacted(result) for result in results]

    def _redacted(self, result: CheckResult) -> CheckResult:
        """Redact the report of a user's check: it may quote text that is not from an agent."""
        actual = self._redactor.text_or_nothing(result.actual)
        return result if actual == result.actual else result.model_copy(update={"actual": actual})

    def _save(self, index: int, step: Step, conversation: CheckContext) -> list[CheckResult]:
        """Keep the texts that the step saves; return a result for each missing one."""
        missing = []
        for name, saved in step.save.items():
            status: Literal["failed", "error"] = "failed"
            try:
                verdict = save_text(saved, conversation)
            except PatternTimeout as error:
                status, verdict = "error", Verdict(False, f"/{saved.regex}/", str(error))
            if verdict.holds:
                self._saved[name] = verdict.actual
            else:
                loc, below = ("steps", index), ("save", name)
                missing.append(evaluate.result(verdict, status, self._scenario.place, loc, below))
        return missing

    async def _judge_whole(self) -> None:
        scenario = self._scenario
        used = [session.journal.fold.scripted_used for session in self._sessions.values()]
        used.append(self._judges.aside.used)
        talk = self._told(group_chains(self._played))
        self._checks = find_unused_replies(scenario, used)
        try:
            self._checks += await self._checked(scenario.file.expect, talk, ("expect",))
        except (NotSaved, UsageError) as error:
            self._error = str(error)

    @property
    def _played(self) -> list[PlayedStep]:
        return [PlayedStep(step.kind, step.session, step.events) for step in self._steps]

    def _told(self, events: Sequence[Event], step: int | None = None) -> CheckContext:
        talk = CheckContext(self._place.workspace, read_conversation(events))
        talk.scenario = self._scenario.path
        talk.anywhere = self._scenario.anywhere
        talk.step = step
        talk.live = self._take.mode in ("live", "record")
        talk.snapshots = self._snapshots
        talk.inputs, talk.noted_texts = self._watching.inputs, self._watching.noted
        name = self._scenario.file.steps[step - 1].session if step else None
        talk.tasks = find_board([self._sessions.get(name)] if step else self._sessions.values())
        return talk

    def _result(
        self,
        index: int,
        *,
        status: StepStatus | None = None,
        end: str = "",
        checks: Sequence[CheckResult] = (),
        failures: Sequence[Failure] = (),
        error: str | None = None,
        events: Sequence[Event] = (),
    ) -> StepResult:
        """Return the result of a step; without a `status`, it is that of its checks."""
        step = self._scenario.file.steps[index]
        return StepResult(
            number=index + 1,
            kind=step.kind,
            name=step.step,
            place=functools.partial(self._scenario.place, ("steps", index)),
            status=status or ("error" if error else evaluate.status_of(checks, failures)),
            end=end,
            session=step.session,
            checks=list(checks),
            failures=list(failures),
            error=error,
            usage=_sum(e.usage for e in events if isinstance(e, ChainFinished) and e.replies),
            events=list(events),
            before=self._before(step),
        )

    def _before(self, step: Step) -> list[Event]:
        """Return the events of earlier steps of the chain that the step continues."""
        chain = self._chains.get(step.session) if step.kind in CONTINUING else None
        return chain.before if chain else []


def _sum(usages: Iterable[Usage | None]) -> Usage | None:
    known_usages = [usage for usage in usages if usage is not None]
    return Usage.total(known_usages) if known_usages else None


def _remove(folder: Path) -> None:
    """Remove a session's folder; most hold nothing but files."""
    try:
        for entry in folder.iterdir():
            entry.unlink()
        folder.rmdir()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


async def _play(step: Step, sent: Sent, session: Session) -> None:
    if step.react is not None:
        react(step, session)
    elif isinstance(sent, Outgoing):
        await session.send(sent)
    elif isinstance(sent, Planted):
        session.plant(sent)
