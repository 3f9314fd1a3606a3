"""Match the steps of a recording with those of a scenario, and list the facts of both.

Steps are matched by their messages, not by number. Facts are the decisions of the rules, the
messages and the notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from arena_cli.protocol import Derived, MessageRef, Position, Volatile
from arena_cli.scenarios import task_steps
from arena_cli.scenarios.model import CONTINUING, Scenario
from arena_cli.scenarios.recording import file
from arena_cli.scenarios.recording.inner_calls import find_step
from arena_cli.scenarios.recording.model import CaseRecord, Recording
from arena_cli.scenarios.recording.recorder import Ignoring, Tape
from arena_cli.session.outgoing import USER, Outgoing
from arena_cli.transcript import compare
from arena_cli.transcript.compare import FieldReader
from arena_cli.transcript.conversation import Turn, follow
from arena_cli.transcript.events import (
    ChainFinished,
    Event,
    MessageEvent,
    ReplyFinished,
    SideEvent,
)

COMPARED_CHARS = 200

_RESUMED = "resumed"
_OF_A_CHAIN = frozenset({"turn_started", "reply_started", "turn_finished", "chain_paused"})

_EQUAL = 5.0  # more than two pairs of changed messages together
_CHANGED = 1.0  # to which the likeness of the texts is added, at most 1
_SILENT = 0.5
_SAME_NUMBER = 0.01
_OTHER_SESSION = 0.5


class StepMessage(NamedTuple):
    """The message that a step sends or plants; `text` is None for a step that only checks."""

    session: str | None
    author: str | None
    text: str | None


def renumber(case: CaseRecord, scenario: Scenario, ignoring: Ignoring) -> CaseRecord:
    """Return the case with its steps numbered as those of the scenario with the same message.

    A recorded step that the scenario no longer has gets a number after all of its steps.
    """
    recorded = _recorded_steps(case, ignoring)
    numbers = match([*recorded.values()], _scenario_steps(scenario, ignoring))
    free = len(scenario.file.steps)
    renamed: dict[int, int] = {}
    for index, number in enumerate(recorded):
        if index in numbers:
            renamed[number] = numbers[index] + 1
        else:
            free = max(free + 1, number)
            renamed[number] = free
    if all(old == new for old, new in renamed.items()):
        return case

    def rename(step: int | None) -> int | None:
        return renamed.get(step or 0, step)

    lines = [
        {**line, "step": rename(line["step"])} if line["type"] == "step" else line
        for line in case.lines
    ]
    calls = [
        call._replace(key=call.key._replace(step=rename(call.key.step))) for call in case.calls
    ]
    flow_steps = [record._replace(step=rename(record.step)) for record in case.flow_steps]
    return replace(case, lines=lines, calls=calls, flow_steps=flow_steps)


def has_common_step(recording: Recording, scenarios: Iterable[Scenario]) -> bool:
    """Return whether one of these scenarios still sends a message of the recording."""
    for scenario in scenarios:
        case = recording.cases.get(scenario.case.id if scenario.case else None)
        if case is None:
            continue
        ignoring = Ignoring([ignored.regex for ignored in scenario.file.ignore])
        texts = {step.text for step in _recorded_steps(case, ignoring).values() if step.text}
        if any(step.text in texts for step in _scenario_steps(scenario, ignoring)):
            return True
    return False


def match(recorded: Sequence[StepMessage], played: Sequence[StepMessage]) -> dict[int, int]:
    """Return the index of the played step for each recorded one that has a counterpart.

    Both keep their order. Of all such pairings it is the one with the most equal messages, then
    with the most similar texts.
    """
    same = count_equal(recorded, played)
    # Steps at the end too, so that a long scenario with one new step costs next to nothing.
    last = count_equal(recorded[same:][::-1], played[same:][::-1])
    ends = len(recorded) - last, len(played) - last
    matched = _match_rest(recorded[same : ends[0]], played[same : ends[1]])
    return {
        **{index: index for index in range(same)},
        **{same + a: same + b for a, b in matched.items()},
        **{ends[0] + index: ends[1] + index for index in range(last)},
    }


def count_equal(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Return the number of equal items at the beginning of two sequences."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, pair in pairs if pair[0] != pair[1]), min(len(old), len(new)))


def _match_rest(recorded: Sequence[StepMessage], played: Sequence[StepMessage]) -> dict[int, int]:
    gains = [
        [
            _gain(recorded_step, played_step, row == column)
            for column, played_step in enumerate(played)
        ]
        for row, recorded_step in enumerate(recorded)
    ]
    best = [[0.0] * (len(played) + 1) for _ in range(len(recorded) + 1)]
    for row in range(len(recorded) - 1, -1, -1):
        for column in range(len(played) - 1, -1, -1):
            gain = gains[row][column]
            paired = gain + best[row + 1][column + 1] if gain else 0.0
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    matched: dict[int, int] = {}
    row = column = 0
    while row < len(recorded) and column < len(played):
        gain = gains[row][column]
        if gain and gain + best[row + 1][column + 1] == best[row][column]:
            matched[row] = column
            row, column = row + 1, column + 1
        elif best[row + 1][column] == best[row][column]:
            row += 1
        else:
            column += 1
    return matched


def _gain(step_message: StepMessage, played_step: StepMessage, is_same_number: bool) -> float:
    gain = _score(step_message, played_step)
    return gain + _SAME_NUMBER if gain and is_same_number else gain


def _score(step_message: StepMessage, played_step: StepMessage) -> float:
    """Return how well two steps match, 0 if they cannot be the same."""
    if (step_message.text is None) != (played_step.text is None):
        return 0.0
    if step_message.text is None or played_step.text is None:
        return _SILENT if step_message.session == played_step.session else 0.0
    factor = 1.0 if step_message.session == played_step.session else _OTHER_SESSION
    if step_message.text == played_step.text and step_message.author == played_step.author:
        return _EQUAL * factor
    texts = step_message.text[:COMPARED_CHARS], played_step.text[:COMPARED_CHARS]
    likeness = SequenceMatcher(None, *texts, autojunk=False).quick_ratio()
    return (_CHANGED + likeness) * factor


def _recorded_steps(case: CaseRecord, ignoring: Ignoring) -> dict[int, StepMessage]:
    """Return the message of each recorded step, by number."""
    steps: dict[int, StepMessage] = {}
    number: int | None = None
    for line in case.lines:
        if line["type"] == "step":
            number = line["step"]
            if number is not None:
                steps[number] = StepMessage(line["session"], None, None)
        elif number:
            steps[number] = _read_line(steps[number], line, ignoring)
    return steps


def _read_line(step: StepMessage, line: Mapping[str, Any], ignoring: Ignoring) -> StepMessage:
    """Return the message of a step after a line of it."""
    if line["type"] == "flow_started":
        return step._replace(text=f"flow {line['file']}")
    if _is_sent(line) and step.text in (None, _RESUMED):
        message = line["message"]
        text = ignoring.text(message["content"])
        if message.get("kind") == "task" and not line.get("planted"):
            text = task_steps.WORK
        return step._replace(author=message["author_id"], text=text)
    if step.text is None and (text := _describe_decision(line)):
        return step._replace(text=text)
    return step


def _describe_decision(line: Mapping[str, Any]) -> str:
    """Return the text of a step that continues a chain, if this is its first line of the chain."""
    if line["type"] == "approval_decided" and line["decision"] != "expired":
        return " ".join(filter(None, (line["decision"], line["agent"], line.get("option"))))
    if line["type"] == "task":
        facts = line.get("facts") or {}
        return task_steps.describe_change(line["action"], facts.get("title") or line["task"])
    return _RESUMED if line["type"] in _OF_A_CHAIN else ""


def _is_sent(line: Mapping[str, Any]) -> bool:
    if line["type"] != "message":
        return False
    return bool(line.get("planted")) or line.get("chain") is not None


def _scenario_steps(scenario: Scenario, ignoring: Ignoring) -> list[StepMessage]:
    """Return the message of each step of the scenario."""
    steps = []
    keys: set[tuple[str | None, str]] = set()
    for index, step in enumerate(scenario.file.steps):
        author, text = _read_step(scenario, index, ignoring)
        if step.key is not None:
            if (step.session, step.key) in keys:
                author = text = None  # its chain is that of the other step
            keys.add((step.session, step.key))
        steps.append(StepMessage(step.session, author, text))
    return steps


def _read_step(scenario: Scenario, index: int, ignoring: Ignoring) -> tuple[str | None, str | None]:
    """Return the author and the text of a step."""
    step, sent = scenario.file.steps[index], scenario.sent[index]
    if sent is not None:
        author = sent.author.id if isinstance(sent, Outgoing) else sent.author_id
        return author, ignoring.text(sent.content)
    if step.work is not None:
        return step.author or USER.id, task_steps.WORK
    if step.kind in ("check", "react"):
        return None, None
    return None, _describe_step(scenario, index)


def _describe_step(scenario: Scenario, index: int) -> str:
    """Return the text by which a step is found that sends no message, or none that is known yet."""
    step = scenario.file.steps[index]
    if step.flow is not None:
        return f"flow {scenario.flows[index].name}"
    if step.task is not None:
        return step.task.described
    if step.choose is not None:
        return f"approved {step.choose.agent} {step.choose.option}"
    if step.kind not in CONTINUING:  # what an earlier step saves: the text as it is in the file
        return str(scenario.data["steps"][index].get(step.kind))
    decided = step.approve or step.reject
    if decided is None:
        return _RESUMED
    return f"{'rejected' if step.reject else 'approved'} {decided.agent}"


MESSAGE = "message"
SYSTEM = "system"

_TEXTS = (MESSAGE, SYSTEM, "note")
_FLOW = ("flow_started", "step_started", "step_finished", "reflected", "flow_finished")
_NOT_COMPARED = frozenset({"context_usage", *_FLOW})
"""Kinds of events that are estimates only, or that are compared step by step (`inner_calls`)."""


class Fact(NamedTuple):
    """A decision, a message or an act of memory: its place, its agent, its content.

    `is_memory`: it is about a `SideEvent`, whose type is the `field`.
    """

    step: int | None
    turn: int | None
    field: str
    agent: str | None
    value: str
    is_memory: bool = False


class _StepEvents(NamedTuple):
    number: int | None
    events: list[Event]


def recorded(case: CaseRecord, tape: Tape, session: str | None) -> Iterator[Fact]:
    """Yield the facts of a session when it was recorded, in order."""
    steps = [_StepEvents(0, [])]
    current: str | None = None
    for line in case.lines:
        if line["type"] == "step":
            current = line["session"]
            steps.append(_StepEvents(line["step"], []))
        elif current == session and tape.was_played(steps[-1].number):
            event = file.restore(line)
            steps[-1].events.extend([event] if event else [])
    return _list_facts(steps, tape)


def played(tape: Tape, session: str | None) -> Iterator[Fact]:
    """Yield the facts of a session as played now, in order."""
    stretches = [stretch for stretch in tape.stretches if stretch.session == session]
    steps = [
        _StepEvents(stretch.step, list(compare.ordered(stretch.events))) for stretch in stretches
    ]
    return _list_facts(steps, tape)


def _list_facts(steps: Iterable[_StepEvents], tape: Tape) -> Iterator[Fact]:
    for step in steps:
        turn: int | None = None
        for event, chain in follow(step.events):
            last = chain.turns[-1] if chain and chain.turns else None
            if last and event is last.started:
                turn = last.number
            for field, agent, value in _facts(event, last):
                text = tape.ignoring.text(value) if field in _TEXTS else value
                is_memory = isinstance(event, SideEvent)
                yield Fact(step.number, turn, field, agent, text, is_memory)


def _facts(event: Event, turn: Turn | None) -> Iterator[tuple[str, str | None, str]]:
    """Yield the facts of an event, each with the agent it is about; `turn` is its turn."""
    match event:
        case SideEvent():
            if event.type not in _NOT_COMPARED and find_step(event) is None:
                yield event.type, *_describe(event)
        case MessageEvent(message=message):
            is_notice = message.author_type == "system" and not event.planted
            author = None if is_notice else message.author_id
            yield SYSTEM if is_notice else MESSAGE, author, message.content
        case ReplyFinished():
            yield "status", event.agent, event.status
            if calls := "; ".join(_calls(event)):
                yield "calls", event.agent, calls
        case ChainFinished():
            yield "end", None, event.end
            if event.awaits:
                yield "awaits", None, ", ".join(event.awaits)
        case _ if turn:
            yield from _routing(event, turn)


def _routing(event: Event, turn: Turn) -> Iterator[tuple[str, str | None, str]]:
    if event is turn.started:
        yield "must", None, ", ".join(turn.must)
        if turn.started.deferred:
            yield "deferred", None, ", ".join(turn.started.deferred)
    elif event is turn.candidates:
        yield "asked", None, ", ".join(turn.asked)
        for agent, over in sorted(turn.passed_over.items()):
            reason = f", {over.reason}" if over.threshold is None else f" < {over.threshold:g}"
            yield "passed_over", agent, f"relevance {over.relevance:g}{reason}"
    elif turn.finished and event is turn.finished:
        yield "next", None, ", ".join(turn.finished.next)


def _describe(event: Any) -> tuple[str | None, str]:
    """Return the agent that a side event is about, and its description."""
    match event.type:
        case "note":
            subject = event.title or event.reason
            return None, f"{event.note} {event.act} by {event.by}: {subject}".strip()
        case "compacted":
            outcome = f"rolled back: {event.rolled_back}" if event.rolled_back else "kept"
            # How a summary without an agent is made may be called otherwise in a later version.
            author = event.by.partition(" (")[0]
            return None, f"{event.messages} messages by {author}, {outcome}"
        case "deviation":
            return event.agent, f"{event.note}, {event.level}"
        case "extracted":
            return event.by, f"{event.notes} notes"
        case _:
            fields = FieldReader((Volatile, Derived, Position, MessageRef)).event(event)
            fields.pop("agent", None)
            text = ", ".join(f"{name}: {value}" for name, value in fields.items())
            return getattr(event, "agent", None), text


def _calls(done: ReplyFinished) -> Iterator[str]:
    if done.next_mentions:
        yield ", ".join(done.next_mentions)
    for agent, reason in done.refused.items():
        yield f"not {agent} ({reason})"
    for name in done.unresolved:
        yield f"nobody is @{name}"
