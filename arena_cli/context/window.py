"""What an agent is shown of a conversation: the newest messages that fit, and always the triggers.

Everything that can be made once per message or per member is made once: building an input costs the
same however long the session is.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import digest, render, tokens
from arena_cli.ground.protocol import (
    AgentInput,
    Invocation,
    MemberInfo,
    Message,
    ShownMessage,
)
from arena_cli.team.model import Member, Team

# For what stands around the messages in a prompt, the question at its end above all.
_PROMPT_TOKENS = 120

# What tells of an attachment, its name apart: its type, path and size.
_ATTACHMENT_TOKENS = 40

# The least that the line above a message takes up.
_FRAME_TOKENS = 4

# Never forgotten, however small the windows: a deferred agent's triggers may lie this far back.
_KEPT_AT_LEAST = 512


class Head(NamedTuple):
    """What all inputs of one member in one team have in common.

    `tokens` is the estimate for all but the messages, `budget` what remains for them.
    """

    agent_id: str
    role_prompt: str
    members: list[MemberInfo]
    max_output_tokens: int
    tokens: int
    budget: int
    digest: digest.HeadDigest

    @classmethod
    def of(cls, team: Team, member: Member) -> Head:
        """The head for a member of the team."""
        members = team.infos
        settings = member.profile.context
        system = render.system_text(member.id, member.role_prompt, members)
        used = tokens.estimate(system) + _PROMPT_TOKENS
        return cls(
            agent_id=member.id,
            role_prompt=member.role_prompt,
            members=members,
            max_output_tokens=settings.max_output_tokens,
            tokens=used,
            budget=settings.window_tokens - settings.reserved_output_tokens - used,
            digest=digest.HeadDigest(
                member.id, member.role_prompt, members, settings.max_output_tokens
            ),
        )


class Call(NamedTuple):
    """What is particular to one call (see `AgentInput`)."""

    session_id: str
    turn_id: str
    turn: int
    call: int
    trigger: Sequence[str]
    invocation: Invocation
    mentioned_by: Sequence[str] = ()
    deadline_s: float | None = None


class Built(NamedTuple):
    """An input, its hash, those of its messages (`digest`), and the estimate of its tokens."""

    input: AgentInput
    input_hash: str
    input_tokens: int
    digests: Sequence[str]


@dataclass
class _View:
    """The newest of the history as one agent is shown it, from message number `first` on."""

    first: int
    shown: list[ShownMessage] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


class History:
    """The messages of a session in their order, oldest first, ready to be shown.

    What no window of `max_tokens` reaches is forgotten (None: nothing is).
    """

    def __init__(self, max_tokens: int | None = None) -> None:
        self._max_tokens = max_tokens
        self._messages: list[ShownMessage] = []
        self._digests: list[str | None] = []
        self._before: list[int] = []
        self._total = 0
        self._views: dict[str, _View] = {}
        self._forgotten = 0
        self._number: dict[str, int] = {}

    @classmethod
    def of(cls, team: Team) -> History:
        """An empty one that reaches as far as the widest window of the team's members."""
        return cls(budget_of(team))

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: Message) -> None:
        """Takes the next message."""
        shown = _shown(message)
        self._number[message.id] = self._forgotten + len(self._messages)
        self._messages.append(shown)
        self._digests.append(None)
        self._before.append(self._total)
        self._total += _weight(shown)
        if self._max_tokens is not None:
            self._forget(self._max_tokens)

    def select(
        self, agent_id: str, budget: int, trigger: Sequence[str]
    ) -> tuple[list[ShownMessage], list[str], int]:
        """What an agent is shown within a budget of tokens, the hashes, and the tokens.

        It is the triggers, and as many of the newest messages as fit beside them.
        """
        start = self._fitting(budget)
        numbers = {self._number.get(message_id) for message_id in trigger}
        wanted = sorted(number - self._forgotten for number in numbers if number is not None)
        older = [at for at in wanted if at < start]
        extra = 0
        while older and (more := sum(map(self._cost, older))) != extra:
            extra = more
            start = self._fitting(budget - extra)
            older = [at for at in wanted if at < start]
        messages, digests = self._newest(agent_id, start)
        if older:
            pairs = [self._as_shown(at, agent_id) for at in older]
            messages = [*(shown for shown, _ in pairs), *messages]
            digests = [*(hashed for _, hashed in pairs), *digests]
        left_out = self._before[start] if start < len(self._before) else self._total
        return messages, digests, self._total - left_out + extra

    def _fitting(self, budget: int) -> int:
        return bisect.bisect_left(self._before, self._total - max(budget, 0))

    def _cost(self, at: int) -> int:
        after = self._before[at + 1] if at + 1 < len(self._before) else self._total
        return after - self._before[at]

    def _newest(self, agent_id: str, start: int) -> tuple[list[ShownMessage], list[str]]:
        """The messages from index `start` on as an agent is shown them, and their hashes."""
        view = self._views.get(agent_id)
        if view is None or view.first - self._forgotten > start:
            # Windows move forwards, so that a view is made from scratch once, as a rule.
            view = self._views[agent_id] = _View(start + self._forgotten)
        for at in range(view.first - self._forgotten + len(view.shown), len(self._messages)):
            shown, hashed = self._as_shown(at, agent_id)
            view.shown.append(shown)
            view.digests.append(hashed)
        skipped = start - (view.first - self._forgotten)
        return view.shown[skipped:], view.digests[skipped:]

    def _as_shown(self, at: int, agent_id: str) -> tuple[ShownMessage, str]:
        shown = self._messages[at]
        if shown.author_id == agent_id and shown.author_type == "agent":
            own = shown.model_copy(update={"role": "assistant"})
            return own, digest.message_digest(own)
        hashed = self._digests[at]
        if hashed is None:
            hashed = self._digests[at] = digest.message_digest(shown)
        return shown, hashed

    def _forget(self, max_tokens: int) -> None:
        """Forgets what is out of reach, once that is half of what is remembered."""
        most = len(self._messages) - _KEPT_AT_LEAST
        if most < len(self._messages) // 2:
            return
        count = min(most, self._fitting(max_tokens))
        if count < len(self._messages) // 2:
            return
        for shown in self._messages[:count]:
            self._number.pop(shown.id, None)
        self._forgotten += count
        for agent_id, view in list(self._views.items()):
            gone = self._forgotten - view.first
            if gone > len(view.shown):
                del self._views[agent_id]
            elif gone > 0:
                del view.shown[:gone], view.digests[:gone]
                view.first = self._forgotten
        del self._messages[:count], self._digests[:count], self._before[:count]


@lru_cache(maxsize=256)
def head_of(team: Team, agent_id: str) -> Head:
    """The head for a member of the team, made once."""
    member = team.member(agent_id)
    if member is None:
        raise KeyError(agent_id)
    return Head.of(team, member)


def build(head: Head, history: History, call: Call) -> Built:
    """What an agent is shown at one call."""
    messages, digests, used = history.select(head.agent_id, head.budget, call.trigger)
    input_hash = head.digest.of(call.invocation, call.turn, digests, mentioned_by=call.mentioned_by)
    built = AgentInput(
        session_id=call.session_id,
        turn_id=call.turn_id,
        turn=call.turn,
        call=call.call,
        trigger=list(call.trigger),
        agent_id=head.agent_id,
        role_prompt=head.role_prompt,
        invocation=call.invocation,
        mentioned_by=list(call.mentioned_by),
        members=head.members,
        messages=messages,
        max_output_tokens=head.max_output_tokens,
        deadline_s=call.deadline_s,
        input_hash=input_hash,
    )
    return Built(built, input_hash, head.tokens + used, digests)


def budget_of(team: Team) -> int:
    """The widest window of the team's members, in tokens."""
    return max((member.profile.context.window_tokens for member in team.members), default=0)


def weigh(message: Message) -> int:
    """How many tokens a message takes up in a prompt at least, by a quick look."""
    return tokens.estimate(message.content) + _FRAME_TOKENS


def _weight(shown: ShownMessage) -> int:
    # Where an attachment lies has the message's id in it, which follows the order of arrival.
    bare = shown.model_copy(update={"attachments": []}) if shown.attachments else shown
    names = "".join(part.name for part in shown.attachments)
    extra = len(shown.attachments) * _ATTACHMENT_TOKENS + tokens.estimate(names)
    return tokens.estimate(render.frame(bare)) + extra + 1


def _shown(message: Message) -> ShownMessage:
    """The message as everyone but its author is shown it."""
    role = "system" if message.author_type == "system" else "user"
    return ShownMessage.model_validate({**vars(message), "metadata": {}, "role": role})
