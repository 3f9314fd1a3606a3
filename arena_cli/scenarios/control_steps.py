"""What people do in steps: decide, steer, pause, answer and react, as `Playing` carries it out.

Here are also the checks of a scenario that are no keys of `expect` (saved texts, prompts, scripts),
and the data that expectations need: inputs of agents, and texts of notes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arena_cli.adapters.runtime import Answer, CallNext, CallRequest, Middleware
from arena_cli.context import render
from arena_cli.engine import side_calls
from arena_cli.engine.inbox import ControlRequest
from arena_cli.errors import ArenaError, UsageError
from arena_cli.protocol import Message
from arena_cli.scenarios import lint
from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import Expect, Noted, NoteRow
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.scenarios.model import CONTINUING, OPENING, Saved, Scenario, ScenarioFile, Step
from arena_cli.scenarios.result import CheckResult
from arena_cli.session.outgoing import USER, Outgoing
from arena_cli.session.session import Session, own_notes
from arena_cli.transcript import reader
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Event, MessageEvent, NoteEvent, ReplyFinished
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util.language import Language
from arena_cli.util.text import cut_text, escape_line
from arena_cli.yamlio.loader import find_holder
from arena_cli.yamlio.nodes import Loc, format_loc

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Request


class PlayedStep(NamedTuple):
    """A step that was played: its kind, its session, and the events that it wrote."""

    kind: str
    session: str | None
    events: Sequence[Event]


@dataclass
class PlayedChain:
    """The chain of a session so far, from its first step: its events.

    `before` are those of its earlier steps. `turns_before` is the number of turns of the scenario
    before it, `turns` that of its own that are counted.
    """

    turns_before: int
    events: list[Event] = field(default_factory=list)
    before: list[Event] = field(default_factory=list)
    turns: int = 0

    def add(self, events: Sequence[Event]) -> None:
        """Add the events of a step."""
        self.before = self.events
        self.events = [*self.before, *events]


def group_chains(steps: Iterable[PlayedStep]) -> list[Event]:
    """Return the events of steps in order; those of a chain that waited follow each other."""
    groups: list[list[Event]] = []
    chains: dict[str | None, list[Event]] = {}
    for step in steps:
        if step.kind in CONTINUING and step.session in chains:
            chains[step.session] += step.events
            continue
        groups.append([*step.events])
        if step.kind in OPENING:
            chains[step.session] = groups[-1]
    return [event for group in groups for event in group]


class SteppingIn:
    """What a step's person does while its chain runs: `steer` and `pause`, `after` a reply."""

    def __init__(self, step: Step, session: Session) -> None:
        self._session = session
        self._after = step.after
        self._replies = 0
        by = step.author or USER.id
        self._requests: list[ControlRequest] = []
        if step.steer is not None:
            self._requests.append(ControlRequest(act="steer", by=by, text=step.steer))
        if step.pause:
            self._requests.append(ControlRequest(act="pause", by=by))

    def hear(self, event: Event) -> None:
        """Ask for it when the reply has ended, or at the first event of the chain."""
        if self._after is None:
            if self._session.open_chain is not None:
                self._post()
        elif _is_end_of(event, self._after.agent):
            self._replies += 1
            if self._replies == self._after.reply:
                self._post()

    def _post(self) -> None:
        for request in self._requests:
            self._session.post(request)
        self._requests = []

    def verdict(self, conversation: CheckContext) -> Verdict | None:
        """Return the failed verdict if the reply never came; None if all of it was done."""
        after, count = self._after, self._replies
        if not self._requests or after is None:
            return None
        number = "a reply" if after.reply == 1 else f"reply {after.reply}"
        actual = f"{count} replies" if count != 1 else "1 reply"
        outcome = conversation.outcome(after.agent)
        return Verdict(False, f"{number} of {after.agent} in this step", f"{actual}: {outcome}")


def _is_end_of(event: Event, agent: str) -> bool:
    if not isinstance(event, ReplyFinished) or event.agent != agent:
        return False
    return event.status != "cancelled" or bool(event.cancelled_by)


async def continue_chain(step: Step, session: Session) -> Verdict | None:
    """Decide what the step decides, and continue the chain; return the failed verdict if it cannot.

    Raises DiskRefused, and UsageError if the team's rules cannot be applied.
    """
    expected = _describe_decision(step)
    chain = session.open_chain
    if chain is None:
        return Verdict(False, expected, "no chain is open: the last one has ended")
    if step.kind != "resume":
        request = _find_request(step, chain)
        if request is None:
            return Verdict(False, expected, _describe_open(chain))
        try:
            session.carry_out(_make_decision(step, request))
        except UsageError as error:
            return Verdict(False, expected, str(error))
    seq = session.journal.fold.seq
    end = await session.resume()
    is_resumed = end is not None and end.seq > seq
    if step.kind == "resume" and not is_resumed:
        return Verdict(False, expected, _describe_open(chain))
    return None


def _find_request(step: Step, chain: Chain) -> Request | None:
    """Return the oldest open request that the step decides."""
    for request in chain.control.pending if chain.control else ():
        asked = request.asked
        if step.choose is not None:
            if asked.agent == step.choose.agent and step.choose.option in asked.options:
                return request
            continue
        decided = step.approve or step.reject
        assert decided is not None
        if asked.agent != decided.agent or decided.action not in ("", asked.action):
            continue
        if step.reject or not asked.options:
            return request
    return None


def _make_decision(step: Step, request: Request) -> ControlRequest:
    because = next(part.because for part in (step.approve, step.reject, step.choose) if part)
    return ControlRequest(
        act="decide",
        by=step.author or USER.id,
        text=because,
        request=request.asked.request,
        decision="rejected" if step.reject else "approved",
        option=step.choose.option if step.choose else "",
    )


def _describe_decision(step: Step) -> str:
    if step.choose:
        return f"an open request of {step.choose.agent} with the option {step.choose.option}"
    decided = step.approve or step.reject
    if decided is None:
        return "a chain that waits, with every request decided"
    action = f" for {decided.action}" if decided.action else ""
    return f"an open request of {decided.agent}{action}"


def _describe_open(chain: Chain) -> str:
    """Return the open requests of a chain as a text."""
    lines = []
    for request in chain.control.pending if chain.control else ():
        asked = request.asked
        options = f" (choose one of {', '.join(asked.options)})" if asked.options else ""
        lines.append(f"open: request {asked.request} of {asked.agent} for {asked.action}{options}")
    return "\n".join(lines) or "no request is open"


_ID = re.compile(r"m\d+")
_TYPES = frozenset({"message", "reply_finished"})


def find_last(messages: Iterable[Message | None], author: str) -> Message | None:
    """Return the first of these messages, the newest first, that the author wrote to the group."""
    return next(
        (
            message
            for message in messages
            if message is not None
            and (message.author_id, message.shown_to) == (author, [])
            and message.content
        ),
        None,
    )


def list_messages(listed: Iterable[Event]) -> list[Message]:
    """Return the messages of events, in order."""
    return [
        event.message
        for event in listed
        if isinstance(event, (MessageEvent, ReplyFinished)) and event.message
    ]


def find_answered(message: Message, messages: Sequence[Message]) -> str | None:
    """Return the author of the message that one answers; None if it is not the author's last."""
    earlier = [other for other in reversed(messages) if other.seq < message.seq]
    target = next((other for other in earlier if other.id == message.reply_to), None)
    if target is None or find_last(earlier, target.author_id) != target:
        return None
    return target.author_id


def resolve_reply(sent: Outgoing, session: Session) -> Outgoing:
    """Return the message with the id of the one that it answers. Raises UsageError."""
    if sent.reply_to is None or _ID.fullmatch(sent.reply_to):
        return sent
    return sent._replace(reply_to=_find_last_id(sent.reply_to, session))


def react(step: Step, session: Session) -> None:
    """Write the reaction of the step's person. Raises UsageError."""
    assert step.react is not None
    target = step.react.message or _find_last_id(step.react.agent, session)
    by = step.author or USER.id
    session.carry_out(ControlRequest(act="react", by=by, target=target, text=step.react.emoji))


def _find_last_id(author: str, session: Session) -> str:
    path = session.journal.log.path
    revisions = session.journal.fold.revisions or NO_REVISIONS
    messages = (
        event.message
        for event in reader.newest_first(path, path.stat().st_size, _TYPES)
        if isinstance(event, (MessageEvent, ReplyFinished)) and not revisions.is_skipped(event.seq)
    )
    found = find_last(messages, author)
    if found is None:
        raise UsageError(f"{escape_line(author)} has written no message to the group")
    return found.id


_SCRIPTED = "scripted"


def save_text(saved: Saved, conversation: CheckContext) -> Verdict:
    """Return the text saved of the agent's last reply, as `actual`."""
    replies = conversation.replies(saved.agent)
    pattern = f" that matches /{saved.regex}/" if saved.regex else ""
    expected = f"a reply of {saved.agent}{pattern}"
    if not replies:
        return Verdict(False, expected, f"no reply: {conversation.outcome(saved.agent)}")
    text = replies[-1].text
    if saved.regex is None:
        return Verdict(True, expected, text)
    match = text_checks.compiled(saved.regex).search(text_checks.form(text))
    if match is None:
        return Verdict(False, expected, f"no match in {text_checks.excerpt(text)}")
    matched = match[1] if match.re.groups else match[0]
    if not matched:
        return Verdict(False, expected, f"nothing is matched in {text_checks.excerpt(text)}")
    return Verdict(True, expected, matched)


def find_unused_replies(
    scenario: Scenario, used: Sequence[Mapping[str, set[int]]]
) -> list[CheckResult]:
    """Return a failed result for each script entry that no session of the scenario used.

    It covers members and judges; `used` has a session's entries (from 0) by agent.
    """
    judges = {member.id: member for member in scenario.judges.values()}
    return [
        _unused(scenario, member.id, index, entry)
        for member in (*scenario.team.agents, *judges.values())
        if member.profile.adapter.get("strict") is True
        and member.profile.adapter["type"] == _SCRIPTED
        for index, entry in enumerate(member.profile.adapter["replies"])
        if not any(index in session.get(member.id, ()) for session in used)
    ]


def _unused(scenario: Scenario, agent: str, index: int, entry: object) -> CheckResult:
    loc: Loc = ("adapter", "replies", index)
    fragments = scenario.profiles[agent].source.fragments
    holder = find_holder(fragments, loc)
    return CheckResult(
        place=lambda: (holder.document.name, holder.document.line((*holder.loc, *loc))),
        field=format_loc((*holder.loc, *loc)),
        status="failed",
        expected=f"the script of {agent} is used up (strict)",
        actual="never used: "
        + cut_text(json.dumps(entry, ensure_ascii=False), text_checks.EXCERPT),
    )


def find_cut_prompts(scenario: Scenario, events: Sequence[Event]) -> list[CheckResult]:
    """Return a failed result for each reply whose prompt its server cut, with the key set."""
    if not scenario.file.strict_context:
        return []
    replies = (event for event in events if isinstance(event, ReplyFinished))
    return [
        CheckResult(
            place=functools.partial(scenario.place, ("strict_context",)),
            field="strict_context",
            status="failed",
            expected=f"the server of {reply.agent} reads the whole prompt",
            actual=str(reply.metadata["prompt_cut"]),
        )
        for reply in replies
        if "prompt_cut" in reply.metadata
    ]


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
