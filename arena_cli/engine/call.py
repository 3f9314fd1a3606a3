"""Call an agent for a reply: attempts within the deadline, and the event at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from threading import ThreadError
from typing import TYPE_CHECKING, Any

from arena_cli.adapters.base import find_tool_way
from arena_cli.adapters.runtime import Answer, Heard
from arena_cli.context import tokens
from arena_cli.engine import own_sessions, plan, rules
from arena_cli.engine.answers import NOT_IN_THREAD, CalledAgents, read_silence, resolve_calls
from arena_cli.engine.plan import Planned, Room
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
    DiskRefused,
)
from arena_cli.protocol import (
    AgentInput,
    AgentOutput,
    Message,
    Permission,
    PermissionRequest,
    StatusEvent,
    Usage,
)
from arena_cli.transcript.events import ReplyFinished, ReplyStarted, ReplyStatus, StatusReported
from arena_cli.transcript.log import Stamp
from arena_cli.transcript.state import FITS
from arena_cli.util import tickets
from arena_cli.util.clock import format_timestamp
from arena_cli.util.tickets import Ticket
from arena_cli.workspace.models import Language, Member

if TYPE_CHECKING:
    from arena_cli.engine.reply_rules import Review

_PLACE_POLL_S = 0.05
_ASKS = "```ask"
MOST_ASKED = 5
"""An agent that asks others is called again at most so often within one reply."""

BUDGET = "budget"
"""The `error_code` of a reply whose call alone exceeds a bound of the team's budget."""

LONGEST_WAIT_S = 30.0
_MOST_DOUBLED = 64
LONGEST_RETRY_AFTER_S = 60.0

# What an agent that is told too much is shown instead, and how often it is tried.
_SHRINK = 0.6
_MOST_SHRUNK = 3
_TOO_MUCH = (
    "its prompt has about {} tokens{} and cannot be shortened: set its "
    "context.window_tokens to the model's limit, or send a shorter message"
)


class OutOfBudget(Exception):
    """The team's budget allows no further turn of an agent that acts."""


@dataclass
class _Ending:
    """The fields of `reply_finished` that are not in the plan.

    `by` is the person that ended it, `refused` are the calls of colleagues that rules refuse.
    """

    status: ReplyStatus
    error: str | None = None
    answer: Answer | None = None
    agent_session: dict[str, object] | None = None
    metadata: dict[str, object] = field(default_factory=dict)
    error_code: str | None = None
    retryable: bool | None = None
    by: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)


def announce(planned: Planned, room: Room) -> None:
    """Write that the next attempt of a reply starts."""
    adapter = str(planned.member.profile.adapter["type"]) if planned.member else ""

    room.journal.write(
        ReplyStarted,
        reply=planned.reply,
        turn=planned.turn,
        phase=planned.phase,
        agent=planned.agent,
        adapter=adapter,
        invocation=planned.input.invocation,
        attempt=planned.attempt,
        input_hash=planned.sent.input_hash,
        input_tokens=planned.input_tokens,
        notes=list(planned.notes),
    )


def withhold(planned: Planned, room: Room, reason: str) -> None:
    """End the reply of an agent that may not be called any more, for that reason."""
    heard = Heard(room.runtime.redactor, lambda _: None)
    ending = _Ending("cancelled", error=f"{planned.agent} is {reason}", by=reason)
    _finish(planned, room, heard, room.clock.monotonic(), ending)


async def run(planned: Planned, room: Room) -> None:
    """Call an agent whose first attempt is announced, and write how it ended.

    If the workspace bounds the replies that run at once, it waits for its place, outside of its
    deadline, and keeps it for all attempts. If cancelled, it writes `cancelled` and raises, unless
    a person cancelled this reply; otherwise it only raises DiskRefused.
    """
    running = room.control.running
    running[planned.agent] = asyncio.current_task()
    try:
        if room.draw_place is None:
            await _run(planned, room)
        else:
            with room.draw_place(planned.agent) as place:
                await _run(planned, room, place)
    finally:
        del running[planned.agent]
        room.control.cancelled.pop(planned.agent, None)  # it may have ended by itself before
        if (budget := room.control.budget) is not None:
            budget.release(planned.agent)


async def _run(planned: Planned, room: Room, place: Ticket | None = None) -> None:
    began = room.clock.monotonic()
    heard = Heard(
        room.runtime.redactor,
        lambda status: _report(status, planned, room),
        on_text=partial(room.on_text, planned.agent) if room.on_text else None,
        on_delta=partial(room.config.on_delta, planned.agent) if room.config.on_delta else None,
    )
    control = room.control.current
    review = control.begin_review(planned) if control else None
    try:
        if place is not None and await wait_for_place(place, planned, room):
            began = room.clock.monotonic()
        ending = await _attempts(planned, room, heard, began, review)
    except asyncio.CancelledError:
        cancelled = _Ending("cancelled", metadata=heard.metadata(failed=True))
        cancelled.by = room.control.cancelled.pop(planned.agent, "")
        with contextlib.suppress(DiskRefused):
            _finish(planned, room, heard, began, cancelled)
        task = asyncio.current_task()
        if cancelled.by and task is not None and not task.uncancel():
            return
        raise
    if review is not None:
        review.settle(has_reply=ending.answer is not None)
        ending.refused = review.refused
    _finish(planned, room, heard, began, ending)


async def wait_for_place(place: Ticket, planned: Planned, room: Room) -> bool:
    """Wait until a place is reached, and report each change; return True if it waited."""
    reported = 0
    while position := _find_position(place):
        if position != reported:
            detail = _describe_place(place.path.name, position, room.language)
            _report(StatusEvent(status="waiting", detail=detail), planned, room)
            reported = position
        await asyncio.sleep(_PLACE_POLL_S)
    if reported:
        _report(StatusEvent(status="generating"), planned, room)
    return reported > 0


async def wait_unreported(place: Ticket) -> None:
    """Wait until a place is reached, for a call that is no reply. Raises DiskRefused."""
    position = _find_position(place)
    while position:
        await asyncio.sleep(_PLACE_POLL_S)
        position = _find_position(place)


def _find_position(place: Ticket) -> int:
    try:
        return place.find_position()
    except (OSError, ThreadError) as error:
        raise tickets.refused(place.path.parent, error) from error


def _describe_place(lane: str, position: int, language: Language) -> str:
    if language == "zh":
        return f"通道 {lane} 第 {position} 位"
    return f"place {position} in lane {lane}"


async def _attempts(
    planned: Planned, room: Room, heard: Heard, began: float, review: Review | None
) -> _Ending:
    if planned.member is None:
        problem = f"{planned.agent} is no longer in the team"
        return _Ending("error", problem, error_code=AgentUnavailable.kind, retryable=False)
    if planned.refused or planned.unfilled:
        return _refuse(planned)
    ends_at = began + plan.limit_s(planned.member, room.scene.team)
    while True:
        member = planned.member  # the budget may give it another model before an attempt
        seconds_left = ends_at + planned.waited_s - room.clock.monotonic()
        try:
            answer = await _attempt(planned, member, room, heard, seconds_left)
            if review is not None:
                answer = await review.check(answer, heard)
        except OutOfBudget as error:
            return _stop_for_budget(planned, heard, error)
        except AgentError as error:
            last = ends_at + planned.waited_s
            if not await _may_try_again(error, planned, member, room, last, review):
                return _fail(heard, error)
            if (budget := room.control.budget) and not budget.admit(planned, heard.list_usage()):
                return _stop_for_budget(planned, heard, error)
            planned.failed += 1
            planned.attempt += 1
            announce(planned, room)
            heard.forget()
            continue
        if _asks_others(answer, planned):
            rest = await _ask_others(answer, planned, member, room, heard)
            if rest is None:
                continue
            answer = rest
        for status_event in answer.output.status_updates:
            _report(status_event, planned, room)
        return _succeed(answer, planned, member, heard)


def _succeed(answer: Answer, planned: Planned, member: Member, heard: Heard) -> _Ending:
    """Return the end of a reply that the agent gave or declined."""
    metadata = {**heard.metadata(failed=False), **answer.output.metadata}
    if planned.shrunk:
        metadata[FITS] = planned.input_tokens
    status: ReplyStatus = "declined" if answer.declined else "success"
    ending = _Ending(status, answer=answer, metadata=metadata)
    if heard.session_id:
        ending.agent_session = own_sessions.record(
            heard.session_id, planned.input, planned.digests, member
        )
    return ending


def _fail(heard: Heard, error: AgentError) -> _Ending:
    """Return the end of a reply whose last attempt failed."""
    return _Ending(
        "timeout" if isinstance(error, AgentTimeout) else "error",
        str(error),
        metadata={**heard.metadata(failed=True), **error.metadata},
        error_code=error.kind,
        retryable=error.again and not isinstance(error, AgentRefused),
    )


def _asks_others(answer: Answer, planned: Planned) -> bool:
    """Return True if an answer has questions to others; an output that was handed in has none."""
    has_handed_in = planned.acting is not None and planned.acting.output is not None
    return _ASKS in answer.output.content and not has_handed_in


async def _ask_others(
    answer: Answer, planned: Planned, member: Member, room: Room, heard: Heard
) -> Answer | None:
    """Ask what the blocks of an answer ask; return the rest of it.

    None if the agent is called again, with the answers.
    """
    texts = import_module("arena_cli.engine.exchange_texts")
    exchanges = room.tools.get_exchanges(room)
    rest, told = await exchanges.take_blocks(member, answer.output.content, planned)
    budget = room.control.budget
    if told and planned.asked < MOST_ASKED:
        heard.usage = _usage_of(planned, answer)
        if budget is None or budget.admit(planned, heard.list_usage()):
            now = format_timestamp(room.clock.now())
            planned.tell(texts.make_answers(told, rest, now, room.language))
            announce(planned, room)
            heard.forget()
            return None
        heard.usage = None
    output = answer.output.model_copy(update={"content": rest})
    is_empty = not (rest or output.structured or output.attachments)
    return Answer(output, declined=answer.declined or is_empty)


def _stop_for_budget(planned: Planned, heard: Heard, error: Exception) -> _Ending:
    """Return the end of a reply that is not called again until the budget is raised, or never."""
    if planned.refused:
        return _refuse(planned, heard)
    # The chain pauses, and the reply continues when the budget allows it.
    metadata = {**heard.metadata(failed=True), **getattr(error, "metadata", {})}
    problem = f"no further attempt, the budget is used up: {error}"
    return _Ending("cancelled", problem, metadata=metadata)


def _refuse(planned: Planned, heard: Heard | None = None) -> _Ending:
    """Return the end of a reply that its inputs, or the team's budget, never allow."""
    metadata = heard.metadata(failed=True) if heard else {}
    if planned.unfilled:
        kind = AgentUnavailable.kind
        return _Ending("error", planned.unfilled, error_code=kind, retryable=False)
    return _Ending("error", planned.refused, metadata=metadata, error_code=BUDGET, retryable=False)


async def _may_try_again(
    error: AgentError,
    planned: Planned,
    member: Member,
    room: Room,
    ends_at: float,
    review: Review | None,
) -> bool:
    """Shorten an input that was too long, or wait before a retry; return False if neither helps.

    An answer that rules refuse is corrected at once, if they allow it.
    """
    if review is not None and review.corrects(error, ends_at - room.clock.monotonic()):
        return True
    if isinstance(error, AgentRefused) and error.overflow:
        if planned.shrunk < _MOST_SHRUNK and _smaller(planned, room):
            return True
        error.mend = _TOO_MUCH.format(planned.input_tokens, _attached(planned))
    if rules.choose_strategy(member, room.scene.team, error.kind) != "retry":
        return False
    retried = planned.failed - planned.shrunk - planned.corrected - planned.asked
    wait = compute_wait(error, retried, member, room)
    if wait is None or wait >= ends_at - room.clock.monotonic():
        return False
    await room.clock.sleep(wait)
    return True


def _smaller(planned: Planned, room: Room) -> bool:
    """Plan the next attempt with fewer messages; return False if there is nothing to leave out."""
    chain = room.scene.fold.open
    if chain is None:
        return False
    most = round(planned.input_tokens * _SHRINK / room.scene.limits(planned.agent).factor)
    again = plan.plan(
        planned.agent, planned.phase, chain, room.scene, most=most, is_concise=planned.is_concise
    )
    if again.input_tokens >= planned.input_tokens:
        return False
    planned.take_input(again)
    planned.shrunk += 1
    return True


def _attached(planned: Planned) -> str:
    """Describe the files that the estimate of an input omits: adapters decide what is sent."""
    files = sum(len(message.attachments) for message in planned.input.messages)
    return f", without the {files} attached file{'s' if files > 1 else ''}" if files else ""


async def _attempt(
    planned: Planned, member: Member, room: Room, heard: Heard, seconds_left: float
) -> Answer:
    if member.profile.acts:
        is_loop = find_tool_way(member.profile) == "loop"
        acting = import_module(f"arena_cli.engine.{'tool_loop' if is_loop else 'served_tools'}")
        acted: Answer = await acting.attempt(planned, member, room, heard, seconds_left)
        return acted
    limit = plan.attempt_limit_s(seconds_left, room.scene.team)
    agent_input = count_failed(planned.sent, planned.failed, limit)
    return await invoke(member, agent_input, room, heard, limit, planned)


def count_failed(agent_input: AgentInput, failed: int, limit: float) -> AgentInput:
    """Return the input of the next attempt, after `failed` ones that failed."""
    if failed:
        call = agent_input.call + failed
        agent_input = agent_input.afresh().model_copy(
            update={"call": call, "deadline_s": round(limit, 3)}
        )
    return agent_input


async def invoke(
    member: Member,
    agent_input: AgentInput,
    room: Room,
    heard: Heard,
    limit: float,
    planned: Planned | None = None,
) -> Answer:
    """Call an agent once; only for a reply (`planned`) it may ask for permissions."""
    try:
        async with asyncio.timeout(limit) as timeout:
            if planned is not None:
                heard.on_permit = Asking(planned, room, heard, timeout).permit
            answer = await room.runtime.invoke(member, agent_input, heard)
    except TimeoutError as error:
        raise AgentTimeout(
            member.id,
            f"no answer within {round(limit, 3):.10g} s",
            came=str(heard.notes.get("trouble", "")),
            mend="raise its timeout_s, or the team's turn_timeout_s, if it needs longer",
        ) from error
    finally:
        # It refers to `heard`: the input would live until garbage is collected.
        heard.on_permit = None
    return apply_silence(answer, member, room, heard)


class Asking:
    """The permissions of an attempt, whose deadline stands still while a person is asked.

    `timeout` is the deadline; None if the caller itself adds `planned.waited_s`.
    """

    def __init__(
        self, planned: Planned, room: Room, heard: Heard, timeout: asyncio.Timeout | None
    ) -> None:
        self._planned, self._room, self._heard = planned, room, heard
        self._timeout = timeout
        self._count = 0
        self._began = 0.0
        self._ends_at: float | None = None

    async def permit(self, act: PermissionRequest) -> Permission:
        """Return whether the agent may do this."""
        control = self._room.control.get(self._room)
        self._stop()
        try:
            if refused := await control.check_action(self._planned.agent, self._planned.reply, act):
                return Permission("denied", refused)
            return await control.approvals.permit(self._planned, self._heard, act)
        finally:
            self._go_on()

    def _stop(self) -> None:
        self._count += 1
        if self._count == 1:
            self._began = asyncio.get_running_loop().time()
            self._ends_at = self._timeout.when() if self._timeout else None
            self._reschedule(None)

    def _go_on(self) -> None:
        self._count -= 1
        if self._count == 0:
            waited_s = asyncio.get_running_loop().time() - self._began
            self._planned.waited_s += waited_s
            if self._ends_at is not None:
                self._reschedule(self._ends_at + waited_s)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None:
            with contextlib.suppress(RuntimeError):  # the attempt is over
                self._timeout.reschedule(when)


def apply_silence(answer: Answer, member: Member, room: Room, heard: Heard) -> Answer:
    """Apply the team's markers of silence; a failed answer counts its usage."""
    try:
        return read_silence(answer, room.scene.team.config.silence, member.id)
    except AgentError:
        heard.usage = answer.output.usage
        raise


def compute_wait(error: AgentError, failed: int, member: Member, room: Room) -> float | None:
    """Return the seconds to wait before the next attempt; None if there is none.

    The wait doubles from `retry_delay_s` to 30 s; half of it is random. `Retry-After` is used if it
    is at most 60 s; for a longer one there is no further attempt (RFC 9110, section 10.2.3).
    """
    config, profile = room.scene.team.config, member.profile
    retries = config.retries if profile.retries is None else profile.retries
    if failed >= retries or not error.again or isinstance(error, AgentRefused):
        return None
    retry_after_s = error.retry_after if isinstance(error, AgentOverloaded) else None
    if retry_after_s is not None:
        return retry_after_s if retry_after_s <= LONGEST_RETRY_AFTER_S else None
    wait = compute_backoff(profile.retry_delay_s or config.retry_delay_s, failed)
    return wait / 2 + room.clock.jitter() * wait / 2


def compute_backoff(delay_s: float, failed: int) -> float:
    """Return the longest wait before a retry, in seconds, after `failed` retries."""
    return min(delay_s * 2.0 ** min(failed, _MOST_DOUBLED), max(delay_s, LONGEST_WAIT_S))


def _report(status: StatusEvent, planned: Planned, room: Room) -> None:
    room.journal.write(
        StatusReported,
        reply=planned.reply,
        agent=planned.agent,
        status=status.status,
        detail=status.detail,
        progress=status.progress,
    )


def _finish(planned: Planned, room: Room, heard: Heard, began: float, ending: _Ending) -> None:
    latency = round((room.clock.monotonic() - began) * 1000)
    answer = ending.answer
    output = answer.output if answer and ending.status == "success" else None
    calls = (
        resolve_calls(output, planned.member, room.scene.team, room.roster, opener=planned.opener)
        if output and planned.member
        else CalledAgents((), (), {}, ())
    )
    if ending.refused:
        calls = calls.without(ending.refused)
    chain = room.scene.fold.open
    if chain is not None and chain.thread:
        agents = chain.opening.message.shown_to
        outside = [name for name in calls.next_mentions if name not in agents]
        calls = calls.without(dict.fromkeys(outside, NOT_IN_THREAD))
    if planned.acting is not None:
        tool_steps = import_module("arena_cli.engine.tool_steps")
        tool_steps.write_end(planned, ending.status, ending.by, room)

    stamp = room.journal.stamp()
    room.journal.write(
        ReplyFinished,
        stamp=stamp,
        reply=planned.reply,
        turn=planned.turn,
        phase=planned.phase,
        agent=planned.agent,
        status=ending.status,
        message=_message(planned, room, output, calls, stamp) if output else None,
        next_mentions=list(calls.next_mentions),
        refused=calls.refused,
        refused_actions=[*heard.earlier_refused, *heard.refused],
        unresolved=list(calls.unresolved),
        usage=_usage(planned, answer, heard),
        latency_ms=latency,
        attempts=planned.attempt,
        cancelled_by=ending.by,
        error=ending.error,
        error_code=ending.error_code,
        retryable=ending.retryable,
        agent_session=ending.agent_session,
        metadata=ending.metadata,
    )


def _message(
    planned: Planned, room: Room, output: AgentOutput, calls: CalledAgents, stamp: Stamp
) -> Message:
    reference: dict[str, Any] = {"reply_to": planned.reply_to, "structured": output.structured}
    if output.reply_to or any(part.type == "reaction" for part in output.structured):
        references = import_module("arena_cli.engine.references")
        reference = references.read_reference(planned, room, output)._asdict()
    message = Message(
        id=stamp.message_id,
        turn_id=planned.input.turn_id,
        author_id=planned.agent,
        author_name=planned.member.name if planned.member else planned.agent,
        author_type="agent",
        content=output.content,
        mentions=list(calls.mentions),
        attachments=room.keep(output.attachments, stamp.message_id),
        timestamp=stamp.ts,
        kind=output.kind,
        **reference,
    )
    chain = room.scene.fold.open
    return chain.put_in_thread(message) if chain else message


def _usage(planned: Planned, answer: Answer | None, heard: Heard) -> Usage | None:
    """Return the usage of all attempts, as reported by the agent.

    The usage of an answer without a report is estimated; a failed call without one counts as zero.
    """
    last = heard.usage
    if answer is not None:
        last = _usage_of(planned, answer)
    if not heard.earlier_usage:
        return last
    return Usage.total([*heard.earlier_usage, *([last] if last else [])])


def _usage_of(planned: Planned, answer: Answer) -> Usage:
    """Return the usage of the last attempt, estimated if the agent reports none."""
    return answer.output.usage or Usage(
        input_tokens=planned.input_tokens,
        output_tokens=tokens.estimate(answer.output.content),
        estimated=True,
    )
