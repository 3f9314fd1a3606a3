"""Approvals: what an agent may do by itself, what a person is asked, and what a decision grants.

An agent asks while it replies (`permit`), or by an `approval_request` in its message. A request is
decided once, by a person or by the team's settings; nothing else approves it. An approval is a
grant for exactly that act, once: `approval_used` is written before the act.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, ValidationError, model_validator

from arena_cli import errors
from arena_cli.adapters.runtime import Heard
from arena_cli.engine.inbox import ControlRequest
from arena_cli.engine.notices import write_notice
from arena_cli.engine.plan import Planned, Room
from arena_cli.errors import UsageError
from arena_cli.protocol import CallNote, Permission, PermissionRequest, Shape
from arena_cli.transcript import queries
from arena_cli.transcript.control_events import (
    ApprovalDecided,
    ApprovalDecision,
    ApprovalRequested,
    ApprovalUsed,
    Request,
    SessionControl,
    find_control,
)
from arena_cli.transcript.conversation import Chain, Turn
from arena_cli.transcript.events import ReplyFinished
from arena_cli.util.clock import format_timestamp
from arena_cli.util.language import Language, Texts
from arena_cli.util.text import cut_text, escape_line
from arena_cli.workspace.control import ApprovalPolicy, Approvals
from arena_cli.yamlio.schema_errors import explain_first

NOTICE = "approval"
"""The `notice` in the metadata of the system message that tells an agent of a decision."""

REFUSED_NOTICE = "approval_refused"
"""The `notice` of the system message about requests that cannot be read."""

POLICY = "policy"
TIME = "time"
"""The `by` of decisions that no person made: by the settings, and by the end of the time."""

ALLOWED = "allowed"
"""The key of a reply's metadata with the acts that were allowed without a request."""

_LONGEST_S = 100 * 365 * 86_400.0
_MOST_DETAIL = 300
_APPROVALS = Approvals()


class ApprovalQuestion(NamedTuple):
    """A request that a person is asked about: its agent's name, and what the agent said."""

    asked: ApprovalRequested
    name: str
    text: str


class PersonAnswer(NamedTuple):
    """A person's decision; `always`: the same act needs no approval in the rest of the session."""

    decision: Literal["approved", "rejected"]
    option: str = ""
    always: bool = False


AskPerson = Callable[[ApprovalQuestion], Awaitable[PersonAnswer | None]]
"""Asks a person at a terminal; returns None if the person decides later."""


def _check_line(text: str) -> str:
    if not text.strip() or "\n" in text:
        raise ValueError("must be a text in one line")
    return text


_Line = Annotated[str, AfterValidator(_check_line)]


class _RequestData(Shape):
    """The data of an `approval_request` in a message; with `options`, it asks for a choice."""

    action: _Line = "choose"
    detail: Annotated[str, Field(pattern=r"\S")]
    arguments: dict[str, Any] = {}
    diff: str = ""
    options: list[_Line] = []

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> _RequestData:
        if not self.options and "action" not in self.model_fields_set:
            raise ValueError("needs an action, or options to choose from")
        if self.options and len(set(self.options)) < max(2, len(self.options)):
            raise ValueError("needs at least two different options")
        return self

    @property
    def digest(self) -> str:
        """The digest of the act, or of the choice with its options."""
        if self.options:
            return make_digest(self.action, {"detail": self.detail, "options": self.options})
        return make_digest(self.action, self.arguments or {"detail": self.detail})


def make_digest(action: str, arguments: dict[str, Any]) -> str:
    """Return the SHA-256 over an action and its arguments as JSON with sorted keys."""
    text = json.dumps([action, arguments], ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ApprovalDesk:
    """The requests of one session and their decisions; `room` is the session's."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._one_question = asyncio.Lock()
        self._questions: dict[int, asyncio.Future[PersonAnswer | None]] = {}
        self._live: set[int] = set()
        self._put_off: set[int] = set()

    # Acts of agents at work.

    async def permit(self, planned: Planned, heard: Heard, act: PermissionRequest) -> Permission:
        """Return whether an agent at work may do this now. Raises DiskRefused."""
        digest = make_digest(act.action, act.arguments or {"detail": act.detail})
        policy, setting = self._decide_by_policy(planned.agent, act.action, act.detail, digest)
        if policy == "deny":
            return Permission("denied", setting)
        if policy == "allow":
            note = f"{act.action}: {act.detail} ({setting})"
            heard(CallNote({ALLOWED: [*heard.notes.get(ALLOWED, ()), note]}))
            return Permission("allowed", setting)
        request = self._find_request(planned.agent, digest)
        if request is None:
            request = self._write_request(
                planned.agent,
                planned.reply,
                action=act.action,
                detail=act.detail,
                arguments={} if act.arguments == {"detail": act.detail} else act.arguments,
                diff=act.diff,
                digest=digest,
            )
        if request.decided is None and self._room.ask_person is not None:
            await self._ask_live(request, str(heard.metadata(failed=True).get("partial", "")))
        if request.is_granted:
            self._use(request, planned.reply)
            return Permission("allowed", f"request {request.asked.request}")
        if request.decided is not None:
            by = _describe_decision(request.decided)
            return Permission("denied", f"request {request.asked.request} is {by}")
        return Permission("asked", f"request {request.asked.request}")

    def _decide_by_policy(
        self, agent: str, action: str, detail: str, digest: str
    ) -> tuple[ApprovalPolicy, str]:
        """Return the policy for an act of an agent, and what decides it."""
        policy, setting = self._rules(agent).decide(action, detail)
        if policy == "ask" and (agent, digest) in self._session_control.always:
            return "allow", "approved for this session"
        return policy, setting

    def _find_request(self, agent: str, digest: str) -> Request | None:
        """Return the request for this act that still counts.

        A grant counts once, an open request until it is decided, and the last rejection as long as
        the chain is open.
        """
        newest: Request | None = None
        for request in self._find(agent, digest):
            if request.decided is None or request.is_granted:
                return request
            newest = newest or request
        is_rejected = newest and newest.decided and newest.decided.decision == "rejected"
        return newest if is_rejected else None

    def _rules(self, agent: str) -> Approvals:
        team = self._room.scene.team
        member = team.member(agent)
        return (member and member.profile.approvals) or team.config.approvals or _APPROVALS

    def _find(self, agent: str, digest: str) -> Iterator[Request]:
        """Yield the requests of the open chain for this act of this agent, the newest first."""
        for request in reversed(self._requests().values()):
            if (request.asked.agent, request.asked.digest) == (agent, digest):
                yield request

    @property
    def _session_control(self) -> SessionControl:
        return self._room.scene.fold.control or SessionControl()

    def _requests(self) -> dict[int, Request]:
        return find_control(self._room.scene.fold.open).requests

    def _use(self, request: Request, reply: int) -> None:
        """Use a grant up, on disk, before the act is done."""
        self._room.journal.write(ApprovalUsed, request=request.asked.request, reply=reply)

    def _write_request(self, agent: str, reply: int, **fields: Any) -> Request:
        room = self._room
        lasts_s = min(self._rules(agent).expires_s, _LONGEST_S)
        event = room.journal.write(
            ApprovalRequested,
            request=self._session_control.requests + 1,
            reply=reply,
            agent=agent,
            expires=format_timestamp(room.clock.now() + timedelta(seconds=lasts_s)),
            **fields,
        )
        return self._requests()[event.request]

    def request_plan(self, agent: str, action: str, mode: str, steps: list[str]) -> None:
        """Ask for the approval of a plan, which belongs to no reply. Raises DiskRefused."""
        arguments: dict[str, Any] = {"mode": mode, "steps": steps}
        digest = make_digest(action, arguments)
        detail = f"{mode}: {len(steps)} steps"
        self._write_request(
            agent, 0, action=action, detail=detail, arguments=arguments, digest=digest
        )

    # Requests in messages.

    def take_structured(self, turn: Turn) -> None:
        """Write the requests in the messages of a turn, those that are not written yet.

        What cannot be read is reported in a system message. Raises DiskRefused.
        """
        for done in turn.successes():
            blocks = done.message.structured if done.message else []
            faults = []
            for block in blocks:
                if block.type != "approval_request":
                    continue
                try:
                    self._take(_RequestData.model_validate(block.data), done)
                except ValidationError as error:
                    faults.append(explain_first(error))
            if faults and not self._is_reported(done.reply):
                self._report_faults(done, faults)

    def _take(self, data: _RequestData, done: ReplyFinished) -> None:
        digest = data.digest
        earlier = list(self._find(done.agent, digest))
        if any(request.decided is None or request.asked.reply == done.reply for request in earlier):
            return
        request = self._write_request(
            done.agent, done.reply, digest=digest, in_message=True, **data.model_dump()
        )
        if data.options:
            return
        policy, setting = self._decide_by_policy(done.agent, data.action, data.detail, digest)
        if policy != "ask":
            decision: ApprovalDecision = "approved" if policy == "allow" else "rejected"
            self._write_decision(request, decision, POLICY, because=setting)

    def _is_reported(self, reply: int) -> bool:
        chain = self._room.scene.fold.open
        messages = chain.messages.values() if chain else ()
        return any(
            message.metadata.get("notice") == REFUSED_NOTICE
            and message.metadata.get("reply") == reply
            for message in messages
        )

    def _report_faults(self, done: ReplyFinished, faults: list[str]) -> None:
        text = Texts(self._room.language)(
            "A request of {name} for approval cannot be read, nobody is asked: {reason}.",
            name=self._name(done.agent),
            reason=escape_line(cut_text("; ".join(faults), _MOST_DETAIL)),
        )
        self._write_message(text, {"notice": REFUSED_NOTICE, "reply": done.reply})

    def start_reply(self, planned: Planned, turn: Turn) -> None:
        """Use up the grants of which an agent learns by this reply and whose act it does itself.

        An agent that has left the team does nothing: its grant stays unused.
        """
        if self._room.scene.team.member(planned.agent) is None:
            return
        trigger = turn.started.trigger
        for request in list(self._requests().values()):
            question, decided = request.asked, request.decided
            is_told = decided is not None and decided.message in trigger
            is_own = (
                question.agent == planned.agent and question.in_message and not question.options
            )
            if is_told and is_own and request.is_granted:
                self._use(request, planned.reply)

    # Questions at a terminal.

    @property
    def is_all_decided(self) -> bool:
        """True if no request of the open chain waits for a decision."""
        return all(request.decided for request in self._requests().values())

    async def ask_pending(self, chain: Chain) -> None:
        """Ask at the terminal about the open requests of the chain.

        A request that the person decides later is asked about once in a process. Raises
        DiskRefused.
        """
        for number, request in list(self._requests().items()):
            if request.decided is None and number not in self._put_off:
                message = chain.turns[-1].result(request.asked.agent) if chain.turns else None
                content = message.message.content if message and message.message else ""
                await self._ask(request, content, told=True)

    def withdraw_questions(self) -> None:
        """Take back the questions for which no agent waits: they are decided later."""
        for number, asking in self._questions.items():
            if number not in self._live:
                self._put_off.update(self._requests())
                asking.cancel()

    async def _ask_live(self, request: Request, text: str) -> None:
        """Ask about an act that waits for the answer."""
        number = request.asked.request
        self._live.add(number)
        try:
            await self._ask(request, text, told=False)
        finally:
            self._live.discard(number)

    async def _ask(self, request: Request, text: str, *, told: bool) -> None:
        """Ask a person at the terminal, one question at a time, unless somebody decides first."""
        room, number = self._room, request.asked.request
        async with self._one_question:
            if request.decided is not None or room.ask_person is None:
                return
            question = ApprovalQuestion(request.asked, self._name(request.asked.agent), text)
            asking = asyncio.ensure_future(room.ask_person(question))
            self._questions[number] = asking
            try:
                answer = await asking
            except asyncio.CancelledError:
                task = asyncio.current_task()
                is_withdrawn = number in self._put_off
                if (task and task.cancelling()) or not (request.decided or is_withdrawn):
                    raise
                return  # decided, or stopped, from another process
            finally:
                del self._questions[number]
        chain = room.scene.fold.open
        if answer is None:
            self._put_off.add(number)
        elif request.decided is None and chain is not None:
            self._write_decision(
                request,
                answer.decision,
                chain.opening.message.author_id,
                option=answer.option,
                always=answer.always,
                told=told,
            )

    # Decisions of people.

    def decide(self, command: ControlRequest) -> str:
        """Decide a request; return what was decided. Raises UsageError or DiskRefused."""
        request = self._open_request(command.request)
        question = request.asked
        if command.decision == "approved" and question.options and not command.option:
            raise UsageError(
                f"request {question.request} asks for a choice, not for approval",
                f"`arena choose {self._session} {question.request} OPTION`, one of: "
                + ", ".join(map(escape_line, question.options)),
            )
        if command.option and not question.options:
            raise UsageError(
                f"request {question.request} asks for approval, not for a choice",
                f"`arena approve {self._session} {question.request}`, or `arena reject`.",
            )
        option = _find_option(command.option, question) if command.option else ""
        self._check_agent(question.agent, command.decision)
        is_live = question.request in self._live
        self._write_decision(
            request,
            command.decision,
            command.by,
            option=option,
            because=command.text,
            told=not is_live,
        )
        if question.request in self._questions:
            self._questions[question.request].cancel()
        return self._describe(request)

    @property
    def _session(self) -> str:
        return escape_line(self._room.scene.session_id)

    def _open_request(self, number: int) -> Request:
        """Return a request that is not decided. Raises UsageError."""
        session, request = self._session, self._requests().get(number)
        if request is None and 0 < number <= self._session_control.requests:
            path = self._room.journal.log.path
            for event in queries.list_newest(path, {"approval_decided"}, None):
                if isinstance(event, ApprovalDecided) and event.request == number:
                    decision = _describe_decision(event)
                    raise UsageError(
                        f"request {number} is decided: {decision}", "Its chain has ended."
                    )
            all_of_them = f"`arena approvals {session} --all` lists it with its decision."
            raise UsageError(f"the chain of request {number} has ended", all_of_them)
        if request is None:
            hint = f"`arena approvals {session}` lists the open ones."
            raise UsageError(f"session {session} has no request {number}", hint)
        self._expire(request)
        if request.decided is not None:
            raise UsageError(
                f"request {number} is decided: {_describe_decision(request.decided)}",
                f"`arena resume {session}` continues the chain.",
            )
        return request

    def _check_agent(self, agent: str, decision: str) -> None:
        """Raise UsageError if the act of an agent is approved that cannot be called any more."""
        is_member = self._room.scene.team.agent(agent) is not None
        is_terminated = self._session_control.agents.get(agent) == "terminated"
        if decision == "rejected" or (is_member and not is_terminated):
            return
        state = "is terminated in this session" if is_member else "is no longer in the team"
        fix = f"Reject the request, or end the chain: `arena cancel {self._session}`."
        raise UsageError(f"{escape_line(agent)} {state}", fix)

    def _describe(self, request: Request) -> str:
        question, decided = request.asked, request.decided
        assert decided is not None
        text = f"request {question.request} of {question.agent} is {decided.decision}"
        if decided.option:
            text = f"request {question.request} of {question.agent}: {decided.option} is chosen"
        state = find_control(self._room.scene.fold.open)
        still_open = ", ".join(str(pending.asked.request) for pending in state.pending)
        if still_open:
            return f"{text}; still open: {still_open}"
        return f"{text}; `arena resume {self._session}` continues" if state.pause else text

    def expire(self) -> None:
        """Close the requests whose time is over. Raises DiskRefused."""
        for request in list(self._requests().values()):
            self._expire(request)

    def _expire(self, request: Request) -> None:
        timestamp = format_timestamp(self._room.clock.now())
        if request.decided is None and request.asked.expires <= timestamp:
            self._write_decision(request, "expired", TIME)

    def _write_decision(
        self,
        request: Request,
        decision: ApprovalDecision,
        by: str,
        *,
        option: str = "",
        because: str = "",
        always: bool = False,
        told: bool = True,
    ) -> None:
        """Write a decision, and the message by which its agent learns of it, if it is `told`."""
        question, room = request.asked, self._room
        because = room.runtime.redactor.text(escape_line(because))
        is_told = told and room.scene.team.member(question.agent) is not None
        is_told = is_told and question.reply > 0  # the engine itself goes on with a plan
        text = _word_decision(
            question, self._name(question.agent), decision, by, option, room.language
        )
        if because:
            text = Texts(room.language)("{text} ({because})", text=text, because=because)
        metadata = {
            "notice": NOTICE,
            "request": question.request,
            "agent": question.agent,
            "by": by,
        }
        room.journal.write(
            ApprovalDecided,
            request=question.request,
            decision=decision,
            agent=question.agent,
            digest=question.digest,
            option=option,
            by=by,
            because=because,
            always=always,
            message=self._write_message(text, metadata) if is_told else None,
        )

    def _write_message(self, text: str, metadata: dict[str, Any]) -> str:
        """Write a system message of the open chain; return its id."""
        return write_notice(self._room, text, metadata, chain=self._room.scene.fold.open).id

    def _name(self, agent: str) -> str:
        member = self._room.scene.team.member(agent)
        return member.name if member else agent


def _describe_decision(decided: ApprovalDecided) -> str:
    if decided.by == TIME:
        return f"expired at {decided.ts}"
    option = f" ({decided.option})" if decided.option else ""
    because = f": {decided.because}" if decided.because else ""
    return f"{decided.decision}{option} by {decided.by} at {decided.ts}{because}"


def _find_option(choice: str, question: ApprovalRequested) -> str:
    """Return the option of that text, or of that number from 1. Raises UsageError."""
    if choice in question.options:
        return choice
    if choice.isdecimal() and 0 < int(choice) <= len(question.options):
        return question.options[int(choice) - 1]
    raise UsageError(
        f"request {question.request} has no option {escape_line(choice)!r}",
        errors.suggest_nearest(choice, question.options),
    )


def _word_decision(
    question: ApprovalRequested,
    name: str,
    decision: ApprovalDecision,
    by: str,
    option: str,
    language: Language,
) -> str:
    """Return the system message about a decision."""
    detail = escape_line(cut_text(question.detail, _MOST_DETAIL))
    act = f'{escape_line(question.action)}, "{detail}"'
    say, by = Texts(language), escape_line(by)
    begin = say("Request {id} of {name} ({act})", id=question.request, name=name, act=act)
    if option:
        return say('{begin}: {by} chose "{option}".', begin=begin, by=by, option=option)
    if decision == "expired":
        return say("{begin} expired before a person decided: it must not be done.", begin=begin)
    if decision == "rejected":
        return say("{begin} was rejected by {by}: it must not be done.", begin=begin, by=by)
    return say(
        "{begin} was approved by {by}: it may be done once, with exactly these arguments.",
        begin=begin,
        by=by,
    )
