"""Model the turns, replies and ends that an expectation covers, of one chain or of several."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.protocol import Attachment, Message, Usage
from arena_cli.transcript.events import (
    FREE_KINDS,
    Candidates,
    ChainFinished,
    Compacted,
    Deviation,
    Event,
    MessageEvent,
    NoteEvent,
    PassedOver,
    ReplyFinished,
    ReplyStarted,
    TurnStarted,
)
from arena_cli.util import files

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.snapshots import Snapshots


class Folders(NamedTuple):
    """The workspace, and the scenario's file, where there is one: files may lie beside it.

    With `anywhere` they may lie outside of both.
    """

    workspace: Path
    scenario: Path | None = None
    anywhere: bool = False

    def located(self, name: str) -> Path | None:
        """The file of that name: below the workspace, else beside the scenario's file.

        Raises OutsideError.
        """
        return files.locate_file(
            name,
            self._folders(),
            root=self.workspace,
            scenario=self.scenario,
            anywhere=self.anywhere,
        )

    def shown(self, path: Path) -> str:
        """The path as the user is shown it."""
        root = self.workspace.resolve()
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()

    @property
    def mend(self) -> str:
        """The hint where a file is missing."""
        return f"paths start from {self.workspace}, or from the folder of this file"

    def _folders(self) -> list[Path]:
        return [self.workspace, *([self.scenario.parent] if self.scenario else [])]


FAILED = frozenset({"timeout", "error"})


class Call(NamedTuple):
    """A call of an agent that ended. `turn` counts from 1 through all that is covered."""

    turn: int
    done: ReplyFinished

    @property
    def agent(self) -> str:
        return self.done.agent

    @property
    def text(self) -> str:
        """The text of the reply; empty where the agent was silent or failed."""
        return self.done.message.content if self.done.message else ""

    @property
    def message(self) -> Message | None:
        return self.done.message


@dataclass
class Turn:
    """A turn, with facts by agent."""

    number: int
    must: list[str]
    asked: list[str] = field(default_factory=list)
    passed_over: dict[str, PassedOver] = field(default_factory=dict)
    started: dict[str, ReplyStarted] = field(default_factory=dict)
    results: dict[str, ReplyFinished] = field(default_factory=dict)

    def calls(self) -> Iterator[Call]:
        """Yield the finished calls, in order of call."""
        for agent in (*self.must, *self.asked):
            done = self.results.get(agent)
            if done is not None:
                yield Call(self.number, done)

    def cost_of(self, call: Call) -> float | None:
        """Return the cost of a call of this turn in US dollars.

        0 for a scripted one that says none.
        """
        usage = call.done.usage
        if usage is not None and usage.cost_usd is not None:
            return usage.cost_usd
        return 0.0 if self._adapter(call) in FREE_KINDS else None

    def live_ms(self) -> int | None:
        """Return the milliseconds that its live agents took; None where none was called."""
        longest: dict[str, int] = {}
        for call in self.calls():
            if self._adapter(call) not in FREE_KINDS:
                phase = call.done.phase
                longest[phase] = max(longest.get(phase, 0), call.done.latency_ms)
        return sum(longest.values()) if longest else None

    def _adapter(self, call: Call) -> str:
        started = self.started.get(call.agent)
        return started.adapter if started else ""


@dataclass
class Conversation:
    """`end` and `awaits` are the last chain's; `unresolved` are names of nobody, each once.

    `system` are the texts of system messages. Paths start from `workspace`, those of files that
    checks name also from the folder of the file `scenario`; with `anywhere` they may lie outside of
    both. `step` counts from 1, None: it covers
    them all. `live` is False where answers come from a recording. `verdicts` are those of judges,
    by what they were asked; `whole` is all that was told so far, where that is more.
    `given` are the messages that are no replies, each with the number of turns before it. `noted`,
    `deviations` and `compactions` (those that hold) are in order. `inputs` are the texts that
    agents were shown, by the hash of the input, `noted_texts` those of notes as they were then;
    both only where something is expected of them.
    """

    workspace: Path
    scenario: Path | None = None
    anywhere: bool = False
    step: int | None = None
    live: bool = True
    verdicts: Mapping[Hashable, Any] = field(default_factory=dict)
    whole: Conversation | None = None
    snapshots: Snapshots | None = None
    turns: list[Turn] = field(default_factory=list)
    end: str = ""
    awaits: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    given: list[tuple[int, Message]] = field(default_factory=list)
    noted: list[NoteEvent] = field(default_factory=list)
    deviations: list[Deviation] = field(default_factory=list)
    compactions: list[Compacted] = field(default_factory=list)
    inputs: Mapping[str, str] = field(default_factory=dict)
    noted_texts: Mapping[NoteEvent, str] = field(default_factory=dict)

    def calls(self) -> list[Call]:
        """Every call that ended, in order of call."""
        return [call for turn in self.turns for call in turn.calls()]

    def messages(self) -> list[Message]:
        """All that was said, in order; replies in order of call."""
        messages: list[Message] = []
        for number in range(len(self.turns) + 1):
            if number:
                replies = [call.message for call in self.turns[number - 1].calls()]
                messages += [message for message in replies if message]
            messages += [message for position, message in self.given if position == number]
        return messages

    def replies(self, agent: str | None = None) -> list[Call]:
        """The calls that were answered, in order of call; of one agent, or of all."""
        return [
            call
            for call in self.calls()
            if call.done.status == "success" and agent in (None, call.agent)
        ]

    def failures(self) -> list[Call]:
        """The calls that failed, in order of call."""
        return [call for call in self.calls() if call.done.status in FAILED]

    def outcome(self, agent: str) -> str:
        """The status of the agent's last call, else `passed_over`, else `not_called`."""
        calls = [turn.results[agent].status for turn in self.turns if agent in turn.results]
        if calls:
            return calls[-1]
        return "passed_over" if self.passings(agent) else "not_called"

    def shown_at(self, call: Call) -> str:
        """Return the system text and prompt that the agent was shown at a call.

        Raises LookupError where that is not known.
        """
        return self.inputs[self.turns[call.turn - 1].started[call.agent].input_hash]

    def notes_shown(self, agent: str) -> list[str] | None:
        """The ids of the notes that the agent was shown, each once; None if it was not called."""
        started = [turn.started[agent] for turn in self.turns if agent in turn.started]
        if not started:
            return None
        return list(dict.fromkeys(note for reply in started for note in reply.notes))

    def passings(self, agent: str) -> list[PassedOver]:
        """Each time that the agent was passed over, and why."""
        return [turn.passed_over[agent] for turn in self.turns if agent in turn.passed_over]

    @property
    def folders(self) -> Folders:
        """The folders of files that checks name."""
        return Folders(self.workspace, self.scenario, self.anywhere)

    def read(self, attachment: Attachment) -> str:
        """The content of an attachment as text. Raises OSError where it is gone."""
        path = self.workspace / (attachment.path or "")
        return files.read_regular(path).decode("utf-8", "replace")

    def tokens(self) -> int:
        """The tokens, in and out, that all calls used."""
        used = [call.done.usage for call in self.calls() if call.done.usage is not None]
        total = Usage.total(used)
        cached = total.cache_read_tokens + total.cache_write_tokens
        return total.input_tokens + total.output_tokens + cached

    def cost_usd(self) -> float | None:
        """Return the cost of all calls; None where that of a live one is not known."""
        costs = [turn.cost_of(call) for turn in self.turns for call in turn.calls()]
        known_costs = [cost for cost in costs if cost is not None]
        return round(sum(known_costs), 10) if len(known_costs) == len(costs) else None

    def live_s(self) -> float | None:
        """Return the seconds that live agents took, turn after turn; None where none was called."""
        if not self.live:
            return None
        took = [ms for turn in self.turns if (ms := turn.live_ms()) is not None]
        return sum(took) / 1000 if took else None


class Subject(NamedTuple):
    """A text that is checked, and where it comes from.

    `call` is the call that said or carried it; None for a message of the system. `part` tells which
    part of that it is, where it is not the reply's own text.
    """

    text: str
    told: Conversation
    call: Call | None = None
    part: tuple[str | int, ...] = ()

    @property
    def place(self) -> tuple[str | int, ...]:
        """The location, alike in every run: step (0: all), agent, its n-th reply, part."""
        step = self.told.step or 0
        if self.call is None:
            return (step, "", 0, *self.part)
        replies = self.told.replies(self.call.agent)
        number = next(n for n, call in enumerate(replies, 1) if call.done is self.call.done)
        return (step, self.call.agent, number, *self.part)


def read_conversation(events: Iterable[Event], workspace: Path) -> Conversation:
    """The conversation that these events tell, in order."""
    conversation = Conversation(workspace)
    by_number: dict[int, Turn] = {}
    unresolved: dict[str, None] = {}
    for event in events:
        match event:
            case MessageEvent():
                unresolved.update(dict.fromkeys(event.unresolved))
                conversation.given.append((len(conversation.turns), event.message))
                if event.message.author_type == "system":
                    conversation.system.append(event.message.content)
            case TurnStarted():
                turn = Turn(len(conversation.turns) + 1, event.must)
                conversation.turns.append(turn)
                # Sessions number their turns alike, and take turns with each other.
                by_number[event.turn] = turn
            case ReplyStarted():
                by_number[event.turn].started[event.agent] = event
            case Candidates():
                by_number[event.turn].asked = event.asked
                by_number[event.turn].passed_over = event.passed_over
            case ReplyFinished():
                by_number[event.turn].results[event.agent] = event
                unresolved.update(dict.fromkeys(event.unresolved))
            case ChainFinished():
                conversation.end = event.end
                conversation.awaits = event.awaits
            case NoteEvent():
                conversation.noted.append(event)
            case Deviation():
                conversation.deviations.append(event)
            case Compacted() if not event.rolled_back:
                conversation.compactions.append(event)
            case _:
                pass
    conversation.unresolved = list(unresolved)
    return conversation
