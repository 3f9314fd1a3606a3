"""Run a flow: each step once its needs have ended, side by side, each end kept as an event.

The events are the only state. A flow that was cut short continues by them: what has ended is not
done again, unless its lines in the file, or what it needs, have changed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import ArenaError, UsageError
from arena_cli.flows import calls, values
from arena_cli.flows.calls import AgentCalls, ChainWaits
from arena_cli.flows.loader import Flow, FlowStep, complete_inputs
from arena_cli.flows.model import LEAF_KINDS, Reflect, StepSpec
from arena_cli.flows.outcomes import FlowCaller, FlowResult, StepLog, StepOutcome
from arena_cli.flows.step_rules import FLOW, StepRules
from arena_cli.flows.work import MOST_BYTES, StepFailed, Work
from arena_cli.session import store
from arena_cli.transcript.flow_events import (
    FlowFinished,
    FlowStarted,
    FlowStatus,
    Reflected,
    StepFinished,
    StepStarted,
)
from arena_cli.transcript.log import Journal
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_value
from arena_cli.workspace.control import RuleSpec
from arena_cli.yamlio.schema_errors import explain_first

_LONGEST_NAME, _LONGEST_KEY = 64, 40


class FlowAborted(Exception):
    """A step failed, and ends its flow."""


@dataclass
class _ListScope:
    """Where a list of steps runs: their prefix, the values they refer to, and their rules."""

    prefix: str
    values: Mapping[str, Any]
    rules: Sequence[RuleSpec] = ()
    outcomes: dict[str, StepOutcome] = field(default_factory=dict)

    def all_values(self) -> dict[str, Any]:
        """Return all values, with the steps of this list that have ended."""
        own = {key: outcome.facts for key, outcome in self.outcomes.items()}
        return {**self.values, "steps": {**self.values.get("steps", {}), **own}}


Answer = Callable[[str, StepSpec, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Returns the output of an attempt at a step: what it is called with gives, or a record."""


async def _carry_out(_: str, __: StepSpec, carry_out: Callable[[], Awaitable[Any]]) -> Any:
    return await carry_out()


class FlowRun:
    """A run of a flow in a session, whose events are written to its journal.

    `caller` is the agent that runs it, if one does.
    """

    def __init__(
        self,
        flow: Flow,
        journal: Journal,
        config: SessionConfig,
        agents: AgentCalls,
        *,
        session: str,
        redactor: Redactor,
        earlier: StepLog | None = None,
        caller: FlowCaller | None = None,
    ) -> None:
        self._flow = flow
        self._journal = journal
        self._config = config
        self._agents = agents
        self._session = session
        self._redactor = redactor
        self._finished = dict(earlier.finished) if earlier else {}
        self._open_sessions = dict(earlier.open_sessions) if earlier else {}
        self._attempts = dict(earlier.attempts) if earlier else {}
        self._definitions = dict(earlier.definitions) if earlier else {}
        self._is_resumed = earlier is not None
        self._caller = caller
        self._answer: Answer = _carry_out
        self._places = asyncio.Semaphore(flow.file.parallel)
        self._work = Work(config)
        self._rules = StepRules(config, journal, redactor, by=caller.agent if caller else FLOW)
        self._failed: dict[str, str] = {}
        self._waits: list[str] = []

    def answer_by(self, answer: Answer) -> None:
        """Let a recording answer in place of the work of steps."""
        self._answer = answer

    async def run(self, inputs: Mapping[str, Any]) -> FlowResult:
        """Run all steps; return how the flow ended. Raises DiskRefused."""
        caller = self._caller or FlowCaller("", "")
        self._journal.write(
            FlowStarted,
            flow=self._flow.file.flow,
            file=self._flow.name,
            inputs=self._redactor.value(dict(inputs)),
            resumed=self._is_resumed,
            by=caller.agent,
            caller=caller.key,
            team=caller.team,
            digest=caller.digest,
        )
        try:
            result = await self._run_once(inputs)
            reflect = self._flow.file.reflect
            for _ in range(reflect.max_reflections if reflect else 0):
                assert reflect is not None
                if result.status == "paused" or not await self._reflect(reflect, result):
                    break
                result = await self._run_once(inputs)
        finally:
            await self._work.stop()
            await self._rules.stop()
        self._journal.write(
            FlowFinished, status=result.status, failed=list(result.errors), waits=result.waits
        )
        return result

    async def _run_once(self, inputs: Mapping[str, Any]) -> FlowResult:
        self._failed, self._waits = {}, []
        scope = _ListScope("", {"inputs": inputs}, self._flow.rules)
        is_aborted = False
        try:
            await self._run_list(self._flow.steps, scope)
        except FlowAborted:
            is_aborted = True
        status: FlowStatus = "failed" if is_aborted else "paused" if self._waits else "success"
        waits = [] if is_aborted else self._waits
        return FlowResult(status, scope.outcomes, waits, self._failed)

    async def _run_list(
        self, steps: Sequence[FlowStep], scope: _ListScope
    ) -> dict[str, StepOutcome]:
        """Run a list of steps; return their ends. Raises FlowAborted."""
        tasks: dict[str, asyncio.Task[StepOutcome]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for step in steps:
                    needs = [tasks[need] for need in step.needs]
                    work = self._run_after(step, needs, scope)
                    tasks[step.spec.id] = group.create_task(work)
        except BaseExceptionGroup as errors:
            unlike = errors.subgroup(lambda error: not isinstance(error, FlowAborted))
            if unlike is not None:
                raise _first_error(unlike) from errors
            raise FlowAborted from errors
        return scope.outcomes

    async def _run_after(
        self, step: FlowStep, needs: Sequence[asyncio.Task[StepOutcome]], scope: _ListScope
    ) -> StepOutcome:
        outcomes = [await need for need in needs]
        if any(outcome.status == "waiting" for outcome in outcomes):
            outcome = StepOutcome("waiting")
        else:
            has_news = any(outcome.is_new for outcome in outcomes)
            outcome = await self._run_step(step, scope, has_news=has_news)
        scope.outcomes[step.spec.id] = outcome
        return outcome

    async def _run_step(self, step: FlowStep, scope: _ListScope, *, has_news: bool) -> StepOutcome:
        """Return the end of a step: the earlier one if it still holds. Raises FlowAborted.

        It does not hold if the step has changed, or if what it needs was done again (`has_news`).
        """
        key = f"{scope.prefix}{step.spec.id}"
        if has_news or self._definitions.get(key, step.definition) != step.definition:
            self.forget(key)
        earlier = self._finished.get(key)
        if earlier is not None and earlier.status in ("success", "skipped"):
            return StepOutcome.of(earlier, is_new=False)
        return await _Attempts(self, step, key, scope).run()

    def forget(self, key: str) -> None:
        """Forget how a step ended before, with all steps in it."""
        for known in (self._finished, self._open_sessions, self._definitions):
            for step in [step for step in known if step == key or is_within(step, key)]:
                del known[step]

    def forget_failures(self, key: str) -> None:
        """Forget the failures of steps within one: it tries again, or is skipped."""
        for step in [step for step in self._failed if is_within(step, key)]:
            del self._failed[step]

    async def _reflect(self, reflect: Reflect, result: FlowResult) -> bool:
        """Ask the agent about a run that has ended; return True if its failed steps run again."""
        session = self.find_session_name("reflect")
        fields: dict[str, Any] = {"by": reflect.agent, "session": session}
        try:
            message = calls.make_reflection(self._flow, result)
            spec = StepSpec(id="reflect", agent=reflect.agent, message=message)
            ask = partial(self._agents.ask, reflect.agent, message, {}, session)
            answer = calls.read_json(await self._answer("reflected", spec, ask))
            event_fields = calls.read_assessment(answer)
            self._journal.write(Reflected, **fields, **self._redactor.value(event_fields))
        except (StepFailed, ArenaError, ValueError, ChainWaits) as error:
            problem = str(error)
            if isinstance(error, ChainWaits):
                problem = f"it waits for a person in the session {error.name}"
            if isinstance(error, ValidationError):
                problem = explain_first(error)
            self._journal.write(Reflected, **fields, error=self._redactor.text(problem))
            return False
        return bool(event_fields["should_retry"]) and bool(result.errors)

    def find_session_name(self, key: str) -> str:
        """Return the unused name of a session for a step."""
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", key).strip("-")[:_LONGEST_KEY]
        folder = store.sessions_folder(self._config.workspace)
        for count in itertools.count(1):
            ending = f".{plain}" if count == 1 else f".{plain}-{count}"
            name = f"{self._session[: _LONGEST_NAME - len(ending)]}{ending}"
            if not os.path.lexists(folder / name):
                break
        return name


class _Attempts:
    """The attempts at one step, until it has ended."""

    def __init__(self, run: FlowRun, step: FlowStep, key: str, scope: _ListScope) -> None:
        self._run = run
        self._step = step
        self._spec = step.spec
        self._key = key
        self._scope = scope
        self._clock = run._config.clock
        self._began = self._clock.monotonic()
        self._count = 0

    async def run(self) -> StepOutcome:
        """Carry the step out. Raises FlowAborted."""
        try:
            if self._spec.when is not None and not self._decide(self._spec.when):
                return self._finish("skipped")
            return await self._try_often()
        except ChainWaits as waits:
            self._run._waits.append(waits.name)
            return StepOutcome("waiting")
        except ArenaError as error:
            if not isinstance(error, values.ValueMissing):
                raise
            return self._fail(StepFailed(str(error), "missing_value"))
        except asyncio.CancelledError:
            if self._count:
                self._finish("cancelled")
            raise

    def _decide(self, text: str) -> bool:
        return bool(values.evaluate(text, self._scope.all_values()))

    async def _try_often(self) -> StepOutcome:
        while True:
            try:
                output = await self._try_once()
                break
            except _StepWaits:
                return StepOutcome("waiting")
            except StepFailed as failure:
                is_over = failure.is_final or self._count >= self._spec.most_attempts
                if is_over or not failure.retryable:
                    return self._fail(failure)
            self._run.forget_failures(self._key)
            await self._clock.sleep(self._spec.retry_delay_s)
        return self._finish("success", output)

    async def _try_once(self) -> Any:
        """Make one attempt. Raises StepFailed, FlowAborted, ChainWaits or _StepWaits."""
        limit = self._spec.time_limit
        if self._spec.kind in LEAF_KINDS:
            async with self._run._places:
                return await self._limit(self._work, limit)
        try:
            return self._keep(await self._limit(self._run_block, limit))
        except FlowAborted as error:
            inner = [key for key in self._run._failed if is_within(key, self._key)]
            problem = "; ".join(f"{key}: {self._run._failed[key]}" for key in inner)
            raise StepFailed(problem, "step_failed", retryable=True) from error

    async def _limit(self, work: Callable[[], Any], limit: float | None) -> Any:
        try:
            async with asyncio.timeout(limit) as timer:
                return await work()
        except TimeoutError as error:
            if not timer.expired():
                raise
            problem = f"it took longer than {limit:g} s, its time limit"
            raise StepFailed(problem, "timeout", retryable=True) from error

    def _start(self, *, session: str = "") -> None:
        run = self._run
        self._count += 1
        run._attempts[self._key] = run._attempts.get(self._key, 0) + 1
        run._journal.write(
            StepStarted,
            step=self._key,
            kind=self._spec.kind,
            attempt=run._attempts[self._key],
            session=session,
            definition=self._step.definition,
        )

    async def _work(self) -> Any:
        """Carry out a step without steps in it."""
        if self._spec.kind in ("send", "agent"):
            session = self._run._open_sessions.pop(self._key, "")
            if not session:
                session = self._run.find_session_name(self._key)
            self._start(session=session)
            spec = await self._fill()
            work = self._run._agents.send if spec.kind == "send" else self._run._agents.call
            carry_out = partial(work, spec, session)
        else:
            self._start()
            spec = await self._fill()
            carry_out = partial(self._run._work.run, spec)
        return self._keep(await self._run._answer(self._key, spec, carry_out))

    async def _fill(self) -> StepSpec:
        """Return the step with its placeholders filled, if rules let it run.

        Raises StepFailed or ValueMissing.
        """
        run, scope = self._run, self._scope
        spec = fill_step(self._spec, scope.all_values(), run._config.environ)
        if scope.rules:
            await run._rules.check(scope.rules, self._key, spec)
        return spec

    def _keep(self, output: Any) -> Any:
        """Return an output as the transcript holds it. Raises StepFailed if it is too large."""
        clean = self._run._redactor.value(clean_value(output)[0])
        if len(json.dumps(clean, ensure_ascii=False)) > MOST_BYTES:
            problem = f"its output is larger than {MOST_BYTES // 1_000_000} MB; use a file"
            raise StepFailed(problem, "too_large")
        return clean

    async def _run_block(self) -> Any:
        """Carry out a step that has steps of its own."""
        spec = self._spec
        self._start()
        if spec.each is not None:
            return await self._run_each()
        if spec.repeat is not None:
            return await self._run_repeat()
        if self._step.flow is not None:
            filled = values.fill(spec.inputs, self._scope.all_values(), self._run._config.environ)
            try:
                given = complete_inputs(self._step.flow, filled)
            except UsageError as error:
                raise StepFailed(error.what, "usage") from error
            rules = (*self._scope.rules, *self._step.flow.rules)
            inner = _ListScope(f"{self._key}.", {"inputs": given}, rules)
            return await self._run_inner(self._step.flow.steps, inner)
        block: Sequence[FlowStep] = self._step.blocks[0] if spec.group is not None else ()
        if spec.choose is not None:
            for branch, steps in zip(spec.choose, self._step.blocks, strict=True):
                if branch.when is None or self._decide(branch.when):
                    block = steps
                    break
        return await self._run_inner(block, self._make_scope(f"{self._key}."))

    def _make_scope(self, prefix: str, **names: Any) -> _ListScope:
        return _ListScope(prefix, {**self._scope.all_values(), **names}, self._scope.rules)

    async def _run_inner(self, steps: Sequence[FlowStep], scope: _ListScope) -> dict[str, Any]:
        """Run a list of steps; return their outputs by id. Raises _StepWaits."""
        outcomes = await self._run._run_list(steps, scope)
        if any(outcome.status == "waiting" for outcome in outcomes.values()):
            raise _StepWaits
        return {step.spec.id: outcomes[step.spec.id].output for step in steps}

    async def _run_each(self) -> list[Any]:
        items = values.fill(self._spec.each, self._scope.all_values(), self._run._config.environ)
        if not isinstance(items, list):
            raise StepFailed(f"`each` needs a list, not {type(items).__name__}", "usage")
        places = asyncio.Semaphore(self._spec.parallel)
        is_waiting = False
        outputs: list[Any] = [None] * len(items)

        async def run_item(number: int, item: Any) -> None:
            nonlocal is_waiting
            async with places:
                scope = self._make_scope(f"{self._key}[{number}].", item=item, index=number)
                try:
                    outputs[number] = await self._run_inner(self._step.blocks[0], scope)
                except _StepWaits:
                    is_waiting = True

        try:
            async with asyncio.TaskGroup() as group:
                for number, item in enumerate(items):
                    group.create_task(run_item(number, item))
        except BaseExceptionGroup as errors:
            raise _first_error(errors) from errors
        if is_waiting:
            raise _StepWaits
        return outputs

    async def _run_repeat(self) -> dict[str, Any]:
        repeat = self._spec.repeat
        assert repeat is not None
        for number in range(repeat.max):
            if number and repeat.delay_s:
                await self._clock.sleep(repeat.delay_s)
            scope = self._make_scope(f"{self._key}[{number}].", round=number)
            outputs = await self._run_inner(self._step.blocks[0], scope)
            if values.evaluate(repeat.until, scope.all_values()):
                return {**outputs, "rounds": number + 1}
        problem = f"`until` was not true after {repeat.max} rounds"
        raise StepFailed(problem, "max_rounds", output=outputs)

    def _fail(self, failure: StepFailed) -> StepOutcome:
        """Write the end of a step that failed; return it if it may be skipped."""
        problem = self._run._redactor.text(str(failure))
        if self._spec.on_failure == "skip":
            self._run.forget_failures(self._key)
            return self._finish("skipped", error=problem, failure=failure)
        self._run._failed[self._key] = problem
        outcome = self._finish("failed", failure.output, error=problem, failure=failure)
        self._scope.outcomes[self._spec.id] = outcome
        raise FlowAborted

    def _finish(
        self,
        status: Literal["success", "failed", "skipped", "cancelled"],
        output: Any = None,
        *,
        error: str | None = None,
        failure: StepFailed | None = None,
    ) -> StepOutcome:
        run = self._run
        event = run._journal.write(
            StepFinished,
            step=self._key,
            kind=self._spec.kind,
            status=status,
            output=run._redactor.value(clean_value(output)[0]) if failure else output,
            error=error,
            error_code=failure.code if failure else None,
            retryable=failure.retryable if failure else None,
            attempts=self._count,
            ms=round((self._clock.monotonic() - self._began) * 1000),
            definition=self._step.definition,
        )
        run._finished[self._key] = event
        return StepOutcome.of(event, is_new=True)


_TEXTS = ("send", "message", "stdin", "agent", "cwd", "url", "image", "code", "database")


def fill_step(spec: StepSpec, known: Mapping[str, Any], environ: Mapping[str, str]) -> StepSpec:
    """Return a step with its placeholders filled. Raises StepFailed or ValueMissing."""
    data = spec.model_dump(exclude_unset=True, exclude={"steps", "group", "choose"})
    filled = values.fill(data, known, environ)
    try:
        return StepSpec.model_validate(_as_texts(filled))
    except ValidationError as error:
        raise StepFailed(explain_first(error), "usage") from error


def _as_texts(filled: dict[str, Any]) -> dict[str, Any]:
    """Return filled keys of a step, those that are texts as texts: a placeholder keeps its type."""
    changed = dict(filled)
    for key, value in filled.items():
        if key in _TEXTS:
            changed[key] = values.as_text(value)
        elif key in ("shell", "command") and value is not None:
            changed[key] = [values.as_text(word) for word in value]
        elif key in ("env", "headers") and value is not None:
            changed[key] = {name: values.as_text(inner) for name, inner in value.items()}
        elif key in ("http", "container", "sql") and isinstance(value, dict):
            changed[key] = _as_texts(value)
    return changed


class _StepWaits(Exception):
    """A step within this one waits for a person."""


def is_within(key: str, outer: str) -> bool:
    """Return True if a step is one of those within `outer`."""
    return key.startswith((f"{outer}.", f"{outer}["))


def _first_error(errors: BaseExceptionGroup[Any]) -> BaseException:
    """Return the error that decides: one of arena before the end of the flow."""
    flat: list[BaseException] = []

    def collect(group: BaseException) -> None:
        if isinstance(group, BaseExceptionGroup):
            for error in group.exceptions:
                collect(error)
        else:
            flat.append(group)

    collect(errors)
    return min(flat, key=lambda error: isinstance(error, FlowAborted))
