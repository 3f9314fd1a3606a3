"""The desk of tasks: which agent takes which task in the next turn of a chain that works on tasks.

A session without tasks never imports this module (`Control.tasks`). A task is started by a message
to the group and its event, before the turn opens in which its agent is called. The desk looks at
what is written already, so that after a crash it continues as it would have; `engine.task_ends`
writes how the work on each ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from arena_cli.engine import rules, task_changes, task_texts
from arena_cli.engine.plan import Room
from arena_cli.engine.task_changes import ARENA, get_board
from arena_cli.protocol import Message
from arena_cli.transcript.control_events import control_of, find_control
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.task_events import Task, TaskBoard, TaskChanged, WorkStarted
from arena_cli.workspace.mentions import parse_mentions
from arena_cli.workspace.models import Member, Team
from arena_cli.workspace.relevance import Haystack, score_relevance

WORK = "work"
"""The key in the metadata of a message that opens a chain which works on tasks."""

LEFT = "left"
"""The action in the metadata of the message about tasks that are left at the end."""


class _Due(NamedTuple):
    """The agents that are called by messages, by whom, and the ids of these messages."""

    agents: tuple[str, ...] = ()
    mentioned_by: Mapping[str, list[str]] = {}
    trigger: tuple[str, ...] = ()
    depth: int = 0


class _Started(NamedTuple):
    """A task that was started since the last turn, its agent, and the message about it."""

    task: str
    agent: str
    message: str


class TaskDesk:
    """Gives the tasks of a session to its agents.

    `_scores` are the relevances of a task to members, by its id; `_begun` are the tasks that were
    started in the chain of that number, up to that many of its events.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._scores: dict[str, dict[str, float]] = {}
        self._begun: tuple[int, int, set[str]] = (0, 0, set())

    def works(self, chain: Chain) -> bool:
        """Return True if a chain works on tasks; write that it does if its message says so."""
        if find_control(chain).work is not None:
            return True
        fields = chain.opening.message.metadata.get(WORK)
        if chain.turns or not isinstance(fields, dict):
            return False
        self._room.journal.write(WorkStarted, chain=chain.number, **fields)
        return True

    def next_step(
        self,
        step: rules.Step,
        chain: Chain,
        joining: Sequence[Message],
        unavailable: Mapping[str, str],
    ) -> rules.Step:
        """Return the step of a chain that works on tasks, given that of the turn rules.

        `joining` are messages that joined the chain, `unavailable` agents that may not be called
        now, with the reasons.
        """
        work = control_of(chain).work
        assert work is not None
        if isinstance(step, rules.TellLimit):
            return step
        board, team = get_board(self._room), self._room.scene.team
        due = self._find_due(step, chain, joining)
        started = self._keep_started(chain, board, unavailable)
        decided = _find_decided(joining, chain, board)
        called = [agent for agent in due.agents if agent not in decided]
        limit = self._find_limit(work, chain)
        if limit != "until":
            busy = {*called, *unavailable, *(start.agent for start in started)}
            idle = [member for member in team.members if member.id not in busy]
            ready = self._list_ready(work, board, unavailable)
            if due.agents:
                ready = _put_decided_first(ready, decided, chain)
            places = team.config.max_responders - len(called) - len(started)
            started += self._start(ready, idle, places, work, chain)
        if started or due.agents:
            return self._open_turn(due, started)
        return self._finish(work, board, chain, limit, unavailable)

    # The agents that messages call.

    def _find_due(self, step: rules.Step, chain: Chain, joining: Sequence[Message]) -> _Due:
        """Return the agents that messages call; the one that opened the chain calls none."""
        team = self._room.scene.team
        due = _Due()
        if isinstance(step, rules.StartTurn):
            agents = (*step.must, *step.deferred)
            if not chain.turns:
                opening = rules.first_must(chain.opening.message, team)[0] if joining else agents
                agents = tuple(agent for agent in agents if agent not in opening)
            due = _Due(agents, step.mentioned_by, step.trigger, step.depth)
        return self._add_helpers(due, chain) if chain.turns else due

    def _add_helpers(self, due: _Due, chain: Chain) -> _Due:
        """Return the agents that are due, and those that agents asked for help with their tasks."""
        depth = chain.turns[-1].started.depth + 1
        asked = [event for event in _list_helped(chain) if event.to]
        if not asked or depth > self._room.scene.team.config.chain_depth_limit:
            return due
        mentioned_by = {agent: list(names) for agent, names in due.mentioned_by.items()}
        for event in asked:
            names = mentioned_by.setdefault(event.to, [])
            names += [event.by] if event.by not in names else []
        agents = tuple(dict.fromkeys((*due.agents, *(event.to for event in asked))))
        messages = [event.message for event in asked if event.message]
        trigger = due.trigger or rules.list_new_replies(chain)
        return _Due(agents, mentioned_by, tuple(dict.fromkeys((*trigger, *messages))), depth)

    def _open_turn(self, due: _Due, started: Sequence[_Started]) -> rules.StartTurn:
        """Return the turn of the agents that are due, and of those that took a task."""
        places = max(self._room.scene.team.config.max_responders - len(started), 0)
        takers = [start.agent for start in started]
        called = [agent for agent in due.agents if agent not in takers]
        return rules.StartTurn(
            0 if started else due.depth,
            (*called[:places], *takers),
            tuple(called[places:]),
            (*(due.trigger if due.agents else ()), *(start.message for start in started)),
            dict(due.mentioned_by),
        )

    # Tasks that are started.

    def _keep_started(
        self, chain: Chain, board: TaskBoard, unavailable: Mapping[str, str]
    ) -> list[_Started]:
        """Return the tasks that were started for the next turn, as before a crash.

        Other tasks that are still running wait again: their agents cannot be called now.
        """
        started = [
            start
            for start in list_started(chain)
            if start.agent not in unavailable and _is_running(board.tasks.get(start.task), start)
        ]
        kept = {start.task for start in started}
        for task in board.list_running():
            if task.id not in kept:
                reason = unavailable.get(task.assigned_to)
                text = f"{task.assigned_to} is {reason}" if reason else "the work was interrupted"
                task_changes.write_change(self._room, task.id, "retry", ARENA, text)
        return started

    def _start(
        self,
        ready: Sequence[Task],
        idle: Sequence[Member],
        places: int,
        work: WorkStarted,
        chain: Chain,
    ) -> list[_Started]:
        """Start tasks for agents that are idle, at most `places`."""
        begun = self._list_begun(chain)
        left = len(ready) if work.max_tasks is None else max(0, work.max_tasks - len(begun))
        if left == 0:
            ready = [task for task in ready if task.id in begun]
        started: list[_Started] = []
        for task, agent in self._choose(ready, idle):
            if len(started) >= places:
                break
            if task.id not in begun:
                if left == 0:
                    continue
                left -= 1
            message = task_changes.write_change(
                self._room, task.id, "start", ARENA, to=agent, metadata={"agent": agent}
            )
            started.append(_Started(task.id, agent, message))
        return started

    def _choose(self, ready: Sequence[Task], idle: Sequence[Member]) -> Iterator[tuple[Task, str]]:
        """Yield tasks with the agents that take them.

        First come those that are assigned, then those that fit an agent, then all others, which
        are offered to the agents in order of relevance.
        """
        free = {member.id: member for member in idle}
        unassigned: list[Task] = []
        for task in ready:
            if not task.assigned_to:
                unassigned.append(task)
            elif free.pop(task.assigned_to, None) is not None:
                yield task, task.assigned_to
        free = {agent: member for agent, member in free.items() if self._takes(member)}
        for is_offer in (False, True):
            left: list[Task] = []
            for task in unassigned:
                if agent := self._find_best(task, free, is_offer=is_offer):
                    del free[agent]
                    yield task, agent
                else:
                    left.append(task)
            unassigned = left

    def _find_best(self, task: Task, free: Mapping[str, Member], *, is_offer: bool = False) -> str:
        """Return the agent to which a task fits best, "" if it fits none.

        An offer fits every agent that has not passed it.
        """
        best, highest = "", -1.0
        for agent, member in free.items():
            score = self._score(task, member)
            fits = is_offer or score >= member.profile.response.threshold
            if fits and score > highest and agent not in task.passed:
                best, highest = agent, score
        return best

    def _score(self, task: Task, member: Member) -> float:
        """Return how relevant a task is to a member."""
        scores = self._scores.get(task.id)
        if scores is None:
            texts = [text for text in (task.title, task.type, task.description) if text]
            haystack = Haystack(texts, self._room.roster)
            members = self._room.scene.team.members
            scores = {other.id: score_relevance(haystack, other) for other in members}
            self._scores[task.id] = scores
        return scores.get(member.id, 0.0)

    def _takes(self, member: Member) -> bool:
        """Return True if a member takes tasks that are not assigned to it."""
        supervisor = self._room.scene.team.supervisor
        is_supervisor = supervisor is not None and supervisor.id == member.id
        return member.profile.response.auto_respond and not is_supervisor

    # Tasks that may be started, and limits.

    def _list_ready(
        self, work: WorkStarted, board: TaskBoard, unavailable: Mapping[str, str]
    ) -> list[Task]:
        """Return the tasks that may be started, in order.

        Tasks of agents that have left are assigned to none; those that every agent has passed are
        blocked.
        """
        team = self._room.scene.team
        takers = {member.id for member in team.members if self._takes(member)}
        ready = []
        for found in board.list_ready(_list_names(work, self._room)):
            task = found
            if reason := self._explain_leaving(task.assigned_to):
                task_changes.write_change(self._room, task.id, "reassign", ARENA, reason)
                task = board.tasks[task.id]
            if task.passed and not task.assigned_to and takers.issubset(task.passed):
                names = ", ".join(task.passed)
                text = f"no agent takes it: {names} handed it back"
                task_changes.write_change(self._room, task.id, "block", ARENA, text)
            elif task.assigned_to not in unavailable:
                ready.append(task)
        return ready

    def _explain_leaving(self, agent: str) -> str:
        """Return how an agent has left, "" if it has not, or if there is none."""
        control = self._room.scene.fold.control
        if agent and all(member.id != agent for member in self._room.scene.team.members):
            return f"{agent} is not in the team any more"
        if control and control.agents.get(agent) == "terminated":
            return f"{agent} is terminated"
        return ""

    def _list_begun(self, chain: Chain) -> set[str]:
        """Return the tasks that were started in a chain."""
        number, count, begun = self._begun
        if number != chain.number:
            count, begun = 0, set()
        for event in chain.events[count:]:
            if isinstance(event, TaskChanged) and event.action == "start":
                begun.add(event.task)
        self._begun = (chain.number, len(chain.events), begun)
        return begun

    def _find_limit(self, work: WorkStarted, chain: Chain) -> str:
        """Return the limit that is reached: `until` or `max_tasks`; "" if none is."""
        if work.until and self._room.clock.now() >= datetime.fromisoformat(work.until):
            return "until"
        if work.max_tasks is not None and len(self._list_begun(chain)) >= work.max_tasks:
            return "max_tasks"
        return ""

    # The end of the chain.

    def _finish(
        self,
        work: WorkStarted,
        board: TaskBoard,
        chain: Chain,
        limit: str,
        unavailable: Mapping[str, str],
    ) -> rules.FinishChain:
        """Return the end of the chain, after the message about tasks that are left."""
        left = board.list_open(_list_names(work, self._room))
        if not left:
            return _end_without_tasks(chain, self._room.scene.team)
        waiting = [task for task in left if task.status == "pending" and not board.unmet(task)]
        is_limited = bool(limit and waiting)
        if task_changes.find_message(chain, "", LEFT) is None:
            texts = task_texts.describe_left(
                left, board, unavailable, self._room.language, limit=limit if is_limited else ""
            )
            blocked = [task.id for task in left if task.status == "blocked"]
            task_changes.tell_group(self._room, texts, task="", action=LEFT, blocked=blocked)
        if is_limited:
            return rules.FinishChain("chain_limit", ())
        return rules.FinishChain("awaiting_human", self._list_awaited(left, chain))

    def _list_awaited(self, left: Sequence[Task], chain: Chain) -> tuple[str, ...]:
        """Return the people whom blocked tasks name, else the one that opened the chain."""
        room, opener = self._room, chain.opening.message.author_id
        people = {opener, *(human.id for human in room.scene.team.humans)}
        named: dict[str, None] = {}
        for task in left:
            found = parse_mentions(task.error, room.roster, author=task.assigned_to, opener=opener)
            named.update(dict.fromkeys(name for name in found.ids if name in people))
        return tuple(named) or (opener,)


def _list_names(work: WorkStarted, room: Room) -> Sequence[str]:
    """Return the tasks on which the open chain works; none: on all.

    To those of a plan belong the tasks that its agents add.
    """
    chain = room.scene.fold.open
    if not work.tasks or chain is None or not control_of(chain).plans:
        return work.tasks
    return [*dict.fromkeys((*work.tasks, *task_changes.list_begotten(chain)))]


def _end_without_tasks(chain: Chain, team: Team) -> rules.FinishChain:
    """Return the end of a chain that has no open task left."""
    ended = {event.action for event in chain.events if isinstance(event, TaskChanged)}
    if "fail" in ended and "complete" not in ended:
        return rules.FinishChain("failed", ())
    return rules.FinishChain(*rules.decide_end(chain, team, is_limited=bool(chain.limits_told)))


def _is_running(task: Task | None, start: _Started) -> bool:
    return task is not None and (task.status, task.assigned_to) == ("running", start.agent)


def _list_helped(chain: Chain) -> list[TaskChanged]:
    """Return the questions about tasks that agents asked in the last turn."""
    if not chain.turns:
        return []
    return [
        event
        for event in chain.turns[-1].side_events
        if isinstance(event, TaskChanged) and event.action == "help"
    ]


def _find_decided(joining: Sequence[Message], chain: Chain, board: TaskBoard) -> dict[str, str]:
    """Return the tasks for which agents asked for an approval that is decided now, by agent."""
    told = {message.metadata.get("agent") for message in joining if message.author_type == "system"}
    return {
        event.by: event.task
        for event in _list_helped(chain)
        if event.by in told and not event.to and board.tasks[event.task].status == "pending"
    }


def _put_decided_first(
    ready: Sequence[Task], decided: Mapping[str, str], chain: Chain
) -> list[Task]:
    """Return the tasks without those that wait for the answer to a question; it comes first."""
    helped = {event.task for event in _list_helped(chain)}
    first = [task for task in ready if decided.get(task.assigned_to) == task.id]
    return [*first, *(task for task in ready if task.id not in helped)]


def list_started(chain: Chain) -> list[_Started]:
    """Return the tasks that were started since the last turn was finished, in order."""
    started = []
    for event in reversed(chain.events):
        if event.type == "turn_finished":
            break
        if isinstance(event, TaskChanged) and event.action == "start":
            started.append(_Started(event.task, event.to, event.message or ""))
    return started[::-1]


def list_started_by(chain: Chain, agents: Collection[str]) -> dict[str, str]:
    """Return the tasks that agents were given for the turn that is open, by agent."""
    return {start.agent: start.task for start in list_started(chain) if start.agent in agents}
