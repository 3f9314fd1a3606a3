"""The lines of a reply with tools, for timelines and pages: its calls, thoughts, goals and end.

They are drawn below the heading of the reply when it has ended, so that agents that act side by
side do not mix. While it runs, `LiveSteps` describes it in one line.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena_cli.reports.lines import (
    INDENT,
    Line,
    Span,
    Who,
    Words,
    as_spans,
    describe_attachment,
    draw_diff,
    line,
)
from arena_cli.transcript.acting_events import (
    ActingEvent,
    AgentEnded,
    GoalChanged,
    Thought,
    ToolFinished,
    ToolRequested,
)
from arena_cli.util.text import cut_text, escape_line, escape_text

COMPLETE_TASK = "complete_task"
LONGEST_ARGUMENTS = 120
LONGEST_RESULT = 100
LONGEST_ROW = 500
MOST_LINES = 20
"""Lines of a result that `--steps` shows, each of at most `LONGEST_ROW` characters."""

_LONGEST_LIVE = 60
_SHORT_RESULT = 60
_SLOW_MS = 100
_GOAL_TOOLS = ("push_goal", "pop_goal", "split_goal")
"""Tools whose effect has a line of its own."""

_AFTER_ALL = 1_000_000


@dataclass(frozen=True)
class ShownCall:
    """A call of a tool: its request and its end; without an end, it runs or was cut short.

    Of a part of a session, the request may be missing. `number` is that of the call; `ended` is the
    end of an agent that was called as a tool.
    """

    number: str
    requested: ToolRequested | None = None
    finished: ToolFinished | None = None
    ended: AgentEnded | None = None

    @property
    def depth(self) -> int:
        """The number of agents around it: 0 for a call of the replying agent itself."""
        return self.number.count(".")

    @property
    def event(self) -> ToolRequested | ToolFinished:
        """The event that names its agent and its tool."""
        event = self.requested or self.finished
        assert event is not None
        return event

    @property
    def is_shown(self) -> bool:
        """False for an output that was handed in, which is the message, and for goals."""
        is_accepted = self.finished is not None and self.finished.status == "ok"
        is_output = self.event.tool == COMPLETE_TASK and not self.depth
        return not (is_accepted and (is_output or self.event.tool in _GOAL_TOOLS))


class ReplyStep(NamedTuple):
    """A step of a reply, at its `depth` in agents that are called as tools."""

    item: ShownCall | Thought | GoalChanged
    depth: int


def list_steps(events: Iterable[ActingEvent]) -> list[ReplyStep]:
    """Return the steps of a reply in the order of its calls, those of an agent below its call.

    An event that was written twice, because its reply was interrupted, counts once.
    """
    events = list(events)
    steps: dict[tuple[tuple[int, ...], ...], ReplyStep] = {}
    for call in _pair_calls(events):
        steps[_place(call.number)] = ReplyStep(call, call.depth)
    first_calls = _find_first_calls(events)
    goal_call = {}
    for index, event in enumerate(events):
        match event:
            case ToolRequested() if event.tool in _GOAL_TOOLS:
                goal_call[event.agent] = event.call
            case GoalChanged():
                call_number = goal_call.get(event.agent, "")
                steps[*_place(call_number), (0, index)] = ReplyStep(event, call_number.count("."))
            case Thought():
                number = first_calls.get((event.within, event.step), _AFTER_ALL)
                position = (number, 0, event.step, int(event.kind == "text"))
                depth = event.within.count(".") + 1 if event.within else 0
                steps[*_place(event.within), position] = ReplyStep(event, depth)
            case _:
                pass
    return [steps[place] for place in sorted(steps)]


def _pair_calls(events: Sequence[ActingEvent]) -> list[ShownCall]:
    requests = {event.call: event for event in events if isinstance(event, ToolRequested)}
    ends = {event.call: event for event in events if isinstance(event, ToolFinished)}
    agents = {event.within: event for event in events if isinstance(event, AgentEnded)}
    return [
        ShownCall(number, requests.get(number), ends.get(number), agents.get(number))
        for number in {**requests, **ends}
    ]


def _find_first_calls(events: Sequence[ActingEvent]) -> dict[tuple[str, int], int]:
    """Return the number of the first call of each turn of a model."""
    first: dict[tuple[str, int], int] = {}
    for event in events:
        if isinstance(event, ToolRequested):
            within, _, number = event.call.rpartition(".")
            turn = (within, event.step)
            first[turn] = min(first.get(turn, _AFTER_ALL), int(number))
    return first


def _place(call: str) -> tuple[tuple[int, ...], ...]:
    """Return the position of a call among the steps of a reply; blocks (`b1`) follow all calls."""
    return tuple((_count_part(part), 1) for part in call.split(".")) if call else ()


def _count_part(part: str) -> int:
    """Return the number of a call; answers (`s1`) and the announcement (`say`) have later ones."""
    number = part.lstrip(string.ascii_lowercase)
    return int(number) if number == part else _AFTER_ALL + int(number or _AFTER_ALL)


def find_end(events: Iterable[ActingEvent]) -> AgentEnded | None:
    """Return how the reply itself ended; None while it has not."""
    ends = [event for event in events if isinstance(event, AgentEnded) and not event.within]
    return ends[-1] if ends else None


def list_unfinished(events: Sequence[ActingEvent]) -> list[ActingEvent]:
    """Return the requests of calls that have no end yet."""
    ended = {event.call for event in events if isinstance(event, ToolFinished)}
    return [
        event for event in events if isinstance(event, ToolRequested) and event.call not in ended
    ]


def describe_end(ended: AgentEnded, say: Words) -> list[Span]:
    """Return the facts about the end of an agent that acts, for its heading."""
    turns = say("1 turn of the model") if ended.turns == 1 else ""
    turns = turns or say("{count} turns of the model", count=ended.turns)
    facts = [Span(turns, "dim")]
    if ended.mode != "goal":
        facts.append(Span(say.enum(ended.mode), "failed"))
    return facts


def draw_calls(events: Sequence[ActingEvent], say: Words, who: Who) -> Iterator[Line]:
    """Yield a line for each call of a reply, with the diffs of changed files, and for its goals."""
    for item, depth in list_steps(events):
        if isinstance(item, GoalChanged):
            yield _draw_goal(item, depth, say)
        elif isinstance(item, ShownCall) and item.is_shown:
            yield _draw_call(item, say, who)
            yield from _draw_file_diff(item)


def draw_steps(events: Sequence[ActingEvent], say: Words, who: Who) -> Iterator[Line]:
    """Yield all steps of a reply: what the model thought, what it called, and what it got."""
    for item, depth in list_steps(events):
        margin = f"{_margin(depth)}  "
        match item:
            case ShownCall():
                yield _draw_call(item, say, who)
                yield from _draw_details(item, say, margin, f"{margin}| ", MOST_LINES)
                yield from _draw_file_diff(item)
            case GoalChanged():
                yield _draw_goal(item, depth, say)
            case Thought():
                label = [Span(_name_thought(item, say), "dim")]
                if depth:
                    label += [Span(" · ", "dim"), *as_spans(who(item.agent))]
                yield line(margin, label)
                yield from _draw_block(item.text, f"{margin}| ", say, is_prose=True)


class PageStep(NamedTuple):
    """A step of a reply on a page: one line, and the lines that open below it."""

    spans: Sequence[Span]
    details: list[Line]
    depth: int


def list_page_steps(events: Sequence[ActingEvent], say: Words, who: Who) -> Iterator[PageStep]:
    """Yield the steps of a reply, each with all its details."""
    for item, depth in list_steps(events):
        match item:
            case ShownCall(is_shown=True):
                details = list(_draw_details(item, say, INDENT, INDENT))
                if item.finished is not None and item.finished.diff:
                    diff = draw_diff(item.finished.diff)
                    details += [row._replace(spans=(Span(INDENT), *row.spans[2:])) for row in diff]
                yield PageStep(_describe_call(item, say, who), details, depth)
            case GoalChanged():
                yield PageStep(list(_describe_goal(item, say)), [], depth)
            case Thought():
                text = item.text.strip()
                first = _cut(text.split("\n", 1)[0], LONGEST_RESULT)
                label = f"{_name_thought(item, say)}{say(': ')}{first}"
                is_whole = first == escape_line(text)
                details = [] if is_whole else list(_draw_block(text, INDENT, say, is_prose=True))
                yield PageStep([Span(label, "dim")], details, depth)
            case _:
                pass


def _margin(depth: int) -> str:
    return f"{INDENT}{'  ' * depth}"


def _draw_goal(event: GoalChanged, depth: int, say: Words) -> Line:
    return line(_margin(depth), _describe_goal(event, say), hang=len(_margin(depth)) + 2)


def _draw_file_diff(call: ShownCall) -> Iterator[Line]:
    """Yield the diff of the file that a call changed."""
    for row in draw_diff(call.finished.diff) if call.finished and call.finished.diff else ():
        spans = (Span("  " * call.depth), *row.spans) if call.depth else row.spans
        yield row._replace(spans=spans)


def _draw_call(call: ShownCall, say: Words, who: Who) -> Line:
    margin = _margin(call.depth)
    return line(Span(f"{margin}▸ ", "dim"), _describe_call(call, say, who), hang=len(margin) + 4)


def _describe_call(call: ShownCall, say: Words, who: Who) -> list[Span]:
    """Return a call in one line: its tool and arguments, how it ended, and a short result."""
    done = call.finished
    spans = [Span(escape_line(call.event.tool), "strong")]
    spans.append(Span(f"({_write_arguments(call.requested, LONGEST_ARGUMENTS)})"))
    facts: list[Sequence[Span]] = []
    if call.depth:
        facts.append(as_spans(who(call.event.agent)))
    if done is None:
        facts.append([Span(say("no result"), "warned")])
    elif done.status != "ok":
        facts.append([Span(say.enum(done.status), "failed")])
    if done is not None and done.ms >= _SLOW_MS:
        facts.append([Span(say("{seconds} s", seconds=f"{done.ms / 1000:.1f}"), "dim")])
    if call.ended is not None:
        facts += [[fact] for fact in describe_end(call.ended, say)]
    if done is not None and done.usage is not None and done.usage.cost_usd:
        facts.append([Span(f"${done.usage.cost_usd:.4f}", "dim")])
    for fact in facts:
        spans += [Span(" · ", "dim"), *fact]
    return [*spans, *_describe_result(done, say)]


def _describe_result(done: ToolFinished | None, say: Words) -> list[Span]:
    """Return the first line of an error, or a result that is short."""
    result = done.result.strip() if done else ""
    if done is None or not result:
        return []
    if done.status != "ok":
        first = _cut(result.split("\n", 1)[0], LONGEST_RESULT)
        return [Span(f"{say(': ')}{first}", "failed")]
    return [Span(f" → {escape_line(result)}", "dim")] if _is_result_short(done) else []


def _is_result_short(done: ToolFinished) -> bool:
    """Return True if the line of a call has its whole result."""
    most = _SHORT_RESULT if done.status == "ok" else LONGEST_RESULT
    result = done.result.strip()
    return len(result) <= most and "\n" not in result


def _draw_details(
    call: ShownCall, say: Words, margin: str, mark: str, most: int | None = None
) -> Iterator[Line]:
    """Yield the arguments and the result (`most` lines) of a call, unless its line has all.

    `margin` comes before labels, `mark` before each line of a text.
    """
    if call.requested is not None and len(_join_arguments(call.requested)) > LONGEST_ARGUMENTS:
        written = json.dumps(call.requested.arguments, ensure_ascii=False, indent=2)
        yield line(margin, Span(say("arguments"), "dim"))
        yield from _draw_block(written, mark, say, most)
    done = call.finished
    if done is None:
        return
    if not _is_result_short(done):
        yield line(margin, Span(say("result"), "dim"))
        yield from _draw_block(done.result, mark, say, most)
    for attachment in done.attachments:
        yield line(margin, Span(describe_attachment(attachment, say), "dim"))


def _draw_block(
    text: str, mark: str, say: Words, most: int | None = None, *, is_prose: bool = False
) -> Iterator[Line]:
    """Yield a text of an agent or a tool, with a mark, so that none of it looks like arena's lines.

    Prose is dim and may be broken between words. `most` bounds the number of lines; each has then
    at most `LONGEST_ROW` characters.
    """
    rows = escape_text(text.strip("\n")).split("\n")
    for row in rows[:most]:
        shown = row if most is None else cut_text(row, LONGEST_ROW)
        spans = [Span(mark, "dim"), Span(shown, "dim" if is_prose else "")]
        if len(shown) < len(row):
            more = say("{count} more characters", count=len(row) - len(shown))
            spans.append(Span(f" … {more}", "dim"))
        yield line(spans, hang=len(mark))._replace(whole=not is_prose)
    if most is not None and len(rows) > most:
        more = say("{count} more lines", count=len(rows) - most)
        yield line(mark.removesuffix("| "), Span(more, "dim"))


def _name_thought(thought: Thought, say: Words) -> str:
    return say("thinking") if thought.kind == "thinking" else say("text")


def _write_arguments(requested: ToolRequested | None, most: int) -> str:
    """Return the arguments of a call in one line: `path: "a.py", limit: 5`."""
    return "…" if requested is None else _cut(_join_arguments(requested), most)


def _join_arguments(requested: ToolRequested) -> str:
    arguments: Mapping[str, Any] = requested.arguments
    return ", ".join(
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
    )


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text in one line, marked if it is cut."""
    shown = cut_text(text, most)
    return f"{escape_line(shown)}…" if len(shown) < len(text) else escape_line(shown)


def _describe_goal(event: GoalChanged, say: Words) -> Iterable[Span]:
    texts = {
        "push": "goal {id} begins: {text}",
        "pop": "goal {id} ends: {text}",
        "split": "goal {id} is split: {text}",
    }
    text = event.result if event.action == "pop" and event.result else event.goal.description
    values = {"id": escape_line(event.goal.id), "text": escape_line(text)}
    return say.spans(texts[event.action], "dim", **values)


@dataclass
class LiveSteps:
    """What a reply with tools does now: the calls that run, and the last thought."""

    thought: str = ""
    _running: dict[str, ToolRequested] = field(default_factory=dict)

    def apply(self, event: ActingEvent) -> None:
        """Apply an event of the reply."""
        match event:
            case ToolRequested():
                self._running[event.call] = event
            case ToolFinished():
                self._running.pop(event.call, None)
            case Thought():
                self.thought = event.text
            case _:
                pass

    def describe(self, say: Words) -> str:
        """Return the innermost calls that run; without any, that the model writes."""
        around = {call.rpartition(".")[0] for call in self._running}
        calls = [
            f"{escape_line(event.tool)}({_write_arguments(event, _LONGEST_LIVE)})"
            for call, event in self._running.items()
            if call not in around
        ]
        if not calls:
            return say.enum("generating")
        return f"▸ {say(', ').join(calls)}"
