"""The conversation that an expectation covers, as its checks read it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from arena_cli.errors import UsageError
from arena_cli.protocol import Attachment, Message, Usage
from arena_cli.transcript.conversation import FAILED, Conversation, Turn
from arena_cli.transcript.events import (
    FREE_KINDS,
    ChainFinished,
    Compacted,
    NoteEvent,
    ReplyFinished,
    SideEvent,
    TurnStarted,
)
from arena_cli.transcript.spending import read_spent
from arena_cli.util import files

if TYPE_CHECKING:
    from arena_cli.scenarios.expect.snapshots import Snapshots
    from arena_cli.transcript.acting_events import AgentEnded, ToolFinished, ToolRequested
    from arena_cli.transcript.control_events import ChainPaused, RuleBroken, Supervised
    from arena_cli.transcript.exchange_events import ExchangeFinished, ExchangeStarted
    from arena_cli.transcript.flow_events import StepFinished
    from arena_cli.transcript.plan_events import PlanMade
    from arena_cli.transcript.task_events import TaskBoard


class UsedTool(NamedTuple):
    """A call of a tool that an agent asked for, and how it ended; None if it did not."""

    asked: ToolRequested
    ended: ToolFinished | None

    @property
    def status(self) -> str:
        return self.ended.status if self.ended else "open"


class Folders(NamedTuple):
    """The workspace, and the folder of the scenario's file, if any: files may be next to it.

    With `anywhere` they may be outside of both.
    """

    workspace: Path
    scenario: Path | None = None
    anywhere: bool = False

    def locate(self, name: str) -> Path:
        """Return the file of that name: below the workspace, else next to the scenario's file.

        Raises UsageError.
        """
        path = files.locate_file(
            name,
            [self.workspace, *([self.scenario.parent] if self.scenario else [])],
            root=self.workspace,
            scenario=self.scenario,
            anywhere=self.anywhere,
        )
        if path is None:
            mend = f"paths start from {self.workspace}, or from the folder of this file"
            raise UsageError(f"there is no file `{name}`", mend)
        return path

    def shown(self, path: Path) -> str:
        """Return the path as shown to the user."""
        root = self.workspace.resolve()
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


class Call(NamedTuple):
    """A call of an agent that ended. `turn` counts from 1 over all covered turns."""

    turn: int
    done: ReplyFinished
    adapter: str = ""

    @property
    def agent(self) -> str:
        return self.done.agent

    @property
    def text(self) -> str:
        """The text of the reply; empty if the agent was silent or failed."""
        return self.done.message.content if self.done.message else ""

    @property
    def message(self) -> Message | None:
        return self.done.message

    @property
    def is_free(self) -> bool:
        """True if it called no model."""
        return self.adapter in FREE_KINDS

    @property
    def cost_usd(self) -> float | None:
        """Its cost in US dollars; 0 for a scripted one without a cost, None if unknown."""
        usage = self.done.usage
        if usage is not None and usage.cost_usd is not None:
            return usage.cost_usd
        return 0.0 if self.is_free else None


@dataclass
class CheckContext:
    """The conversation that checks are about, and all other data that they may use.

    Paths start from `workspace`; those of files that checks name also start from the folder of the
    file `scenario`. With `anywhere` they may be outside of both. `step` counts from 1; None: it
    covers all steps. `live` is False if answers come from a recording. `verdicts` are those of
    judges, by their question. `whole` is the complete conversation so far, if that is more.
    `inputs` are the texts that agents were shown, by the hash of the input; `noted_texts` are those
    of notes at that time. Both are set only if something is expected of them.
    """

    workspace: Path
    conversation: Conversation = field(default_factory=Conversation)
    scenario: Path | None = None
    anywhere: bool = False
    step: int | None = None
    live: bool = True
    verdicts: Mapping[Hashable, Any] = field(default_factory=dict)
    whole: CheckContext | None = None
    snapshots: Snapshots | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    noted_texts: Mapping[NoteEvent, str] = field(default_factory=dict)
    tasks: TaskBoard | None = None

    @cached_property
    def turns(self) -> list[Turn]:
        """The turns, in order."""
        return list(self.conversation.turns)

    @property
    def end(self) -> str:
        """The reason why the last chain waits, else the end of the last chain that ended."""
        return self.pause or (self._ends[-1].end if self._ends else "")

    @property
    def pause(self) -> str:
        """The reason why the last chain waits; empty if it does not."""
        pause = self.last_pause
        return pause.reason if pause else ""

    @property
    def last_pause(self) -> ChainPaused | None:
        """The pause of the last chain, if it waits."""
        chain = next(reversed(self.conversation.chains), None)
        if chain is None or chain.finished or chain.control is None:
            return None
        return chain.control.pause

    @property
    def awaits(self) -> list[str]:
        """The humans that the last chain that ended waits for."""
        return self._ends[-1].awaits if self._ends else []

    @cached_property
    def _ends(self) -> list[ChainFinished]:
        return [chain.finished for chain in self.conversation.chains if chain.finished]

    @cached_property
    def unresolved(self) -> list[str]:
        """The names that no member has, each once."""
        names = [name for event in self.conversation.said() for name in event.unresolved]
        return list(dict.fromkeys(names))

    @cached_property
    def system(self) -> list[str]:
        """The texts of system messages."""
        return [message.content for message in self.messages() if message.author_type == "system"]

    @cached_property
    def noted(self) -> list[NoteEvent]:
        """The acts on notes, in order."""
        return self._list("note")

    @cached_property
    def supervised(self) -> list[tuple[int, Supervised]]:
        """The decisions of supervisors, in order, each with its turn of the chain, from 1."""
        decisions = []
        for chain in self.conversation.chains:
            turns = 0
            for event in chain.events:
                turns += isinstance(event, TurnStarted)
                if event.type == "supervised":
                    decisions.append((turns + 1, cast("Supervised", event)))
        return decisions

    @cached_property
    def plans(self) -> list[PlanMade]:
        """The plans of planners, in order."""
        return self._list("planned")

    @cached_property
    def compactions(self) -> list[Compacted]:
        """The summaries that are valid, in order."""
        return [event for event in self._list("compacted") if not event.rolled_back]

    @cached_property
    def broken_rules(self) -> list[RuleBroken]:
        """The rules that were broken, in order."""
        return self._list("rule_broken")

    @cached_property
    def used_tools(self) -> list[UsedTool]:
        """The calls of tools, in order of call within each reply."""
        asked = {(event.reply, event.call): event for event in self._list("tool_requested")}
        ends = {(event.reply, event.call): event for event in self._list("tool_finished")}
        return [UsedTool(request, ends.get(key)) for key, request in asked.items()]

    @cached_property
    def acting_ends(self) -> dict[str, AgentEnded]:
        """The last end of each agent that acted, by its id."""
        ends = self._list("agent_ended")
        return {event.agent: event for event in ends if not event.is_in_exchange}

    @cached_property
    def exchanges(self) -> list[tuple[ExchangeStarted, ExchangeFinished | None]]:
        """What agents asked each other directly, in order, each with its end if it has one."""
        started = {event.exchange: event for event in self._list("exchange_started")}
        ends = {event.exchange: event for event in self._list("exchange_finished")}
        ordered = sorted(started.values(), key=lambda event: (event.reply, event.order_in_reply))
        return [(event, ends.get(event.exchange)) for event in ordered]

    @cached_property
    def timed_out_exchanges(self) -> set[str]:
        """The numbers of the exchanges whose agent gave up waiting."""
        return {event.exchange for event in self._list("exchange_timed_out")}

    @cached_property
    def flow_steps(self) -> dict[str, StepFinished]:
        """The last end of each step of a flow, by its id."""
        return {event.step: event for event in self._list("step_finished")}

    def _list(self, kind: str) -> list[Any]:
        return [event for event in self._side_events if event.type == kind]

    @cached_property
    def _side_events(self) -> list[SideEvent]:
        return [event for event in self.conversation.events if isinstance(event, SideEvent)]

    def calls(self) -> list[Call]:
        """Return every call that ended, in order of call."""
        return [
            Call(number, reply.ends[-1], reply.adapter)
            for number, turn in enumerate(self.turns, 1)
            for reply in (turn.replies[agent] for agent in turn.called if agent in turn.replies)
            if reply.ends
        ]

    def messages(self) -> list[Message]:
        """Return all messages, in order; replies are in order of call."""
        return [event.message for event in self.conversation.said() if event.message]

    def replies(self, agent: str | None = None) -> list[Call]:
        """Return the calls that were answered, in order of call; of one agent, or of all."""
        return [
            call
            for call in self.calls()
            if call.done.status == "success" and agent in (None, call.agent)
        ]

    def failures(self) -> list[Call]:
        """Return the calls that failed, in order of call."""
        return [call for call in self.calls() if call.done.status in FAILED]

    def outcome(self, agent: str) -> str:
        """Return the status of the agent's last call, else `passed_over`, else `not_called`."""
        replies = [turn.replies[agent] for turn in self.turns if agent in turn.replies]
        ends = [reply.ends[-1] for reply in replies if reply.ends]
        if ends:
            return ends[-1].status
        was_passed_over = any(agent in turn.passed_over for turn in self.turns)
        return "passed_over" if was_passed_over else "not_called"

    def shown_at(self, call: Call) -> str:
        """Return the system text and prompt that the agent was shown at a call.

        Raises LookupError if they are not known.
        """
        started = self.turns[call.turn - 1].replies[call.agent].started
        return self.inputs[started.input_hash if started else ""]

    def notes_shown(self, agent: str) -> list[str] | None:
        """Return the ids of the notes shown to the agent, each once; None if it was not called."""
        replies = [turn.replies[agent] for turn in self.turns if agent in turn.replies]
        if not replies:
            return None
        return list(dict.fromkeys(note for reply in replies for note in reply.notes))

    @property
    def folders(self) -> Folders:
        """The folders of files that checks name."""
        return Folders(self.workspace, self.scenario, self.anywhere)

    def read(self, attachment: Attachment) -> str:
        """Return the content of an attachment as text. Raises OSError if the file is missing."""
        path = self.workspace / (attachment.path or "")
        return files.read_regular(path).decode("utf-8", "replace")

    def tokens(self) -> int:
        """Return the tokens that all calls used, input and output."""
        used = [call.done.usage for call in self.calls() if call.done.usage is not None]
        total = Usage.total(used)
        cached = total.cache_read_tokens + total.cache_write_tokens
        return total.input_tokens + total.output_tokens + cached

    def spent_tokens(self) -> int:
        """Return the tokens of all calls, cancelled ones and those for memory and control too."""
        spent = (read_spent(event) for event in self.conversation.events)
        return sum(used[1].tokens for used in spent if used)

    def spent_usd(self) -> float | None:
        """Return the cost of all these calls in US dollars; None if that of a live one is unknown.

        A reply whose usage is not known counts as one of unknown cost.
        """
        costs: list[float | None] = []
        for turn in self.turns:
            for reply in turn.replies.values():
                costs += [Call(0, done, reply.adapter).cost_usd for done in reply.ends]
        for event in self._side_events:
            if call := event.agent_call:
                free = 0.0 if call.is_free else None
                cost = call.usage.cost_usd if call.usage else None
                costs.append(free if cost is None else cost)
        return _sum_costs(costs)

    def cost_usd(self) -> float | None:
        """Return the cost of all calls; None if that of a live one is unknown."""
        return _sum_costs([call.cost_usd for call in self.calls()])

    def live_s(self) -> float | None:
        """Return the seconds that live agents took, turn after turn; None if none was called."""
        longest: dict[tuple[int, str], int] = {}
        for call in self.calls() if self.live else ():
            if not call.is_free:
                phase = (call.turn, call.done.phase)
                longest[phase] = max(longest.get(phase, 0), call.done.latency_ms)
        return sum(longest.values()) / 1000 if longest else None


def _sum_costs(costs: Sequence[float | None]) -> float | None:
    known_costs = [cost for cost in costs if cost is not None]
    return round(sum(known_costs), 10) if len(known_costs) == len(costs) else None


class Subject(NamedTuple):
    """A text that is checked, and its origin.

    `call` is the call that produced or carried it; None for a message of the system. `part` is the
    path of the text in the reply, if it is not the reply's own text.
    """

    text: str
    context: CheckContext
    call: Call | None = None
    part: tuple[str | int, ...] = ()

    @property
    def place(self) -> tuple[str | int, ...]:
        """The location, the same in every run: step (0: all), agent, its n-th reply, part."""
        step = self.context.step or 0
        if self.call is None:
            return (step, "", 0, *self.part)
        replies = self.context.replies(self.call.agent)
        number = next(n for n, call in enumerate(replies, 1) if call.done is self.call.done)
        return (step, self.call.agent, number, *self.part)
