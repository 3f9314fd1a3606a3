"""What an agent is shown at a call, within its window (docs/memory.md).

It is a function of what was said and noted, the member, and the call alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import digest, layers, render, tokens
from arena_cli.context.history import History
from arena_cli.context.layers import Chosen
from arena_cli.context.remembered import NOTHING, Memory
from arena_cli.ground.protocol import AgentInput, Invocation, MemberInfo, Message
from arena_cli.team.model import ContextSettings, Member, Team

# For what stands around the messages in a prompt, the question at its end above all.
_PROMPT_TOKENS = 120

# The least that the line above a message takes up.
_FRAME_TOKENS = 4


class Head(NamedTuple):
    """What all inputs of one member in one team have in common.

    `room` is its window less what its answer needs, `tokens` the estimate for all but the messages.
    """

    agent_id: str
    role_prompt: str
    members: list[MemberInfo]
    max_output_tokens: int
    tokens: int
    room: int
    digest: digest.HeadDigest

    @classmethod
    def of(cls, team: Team, member: Member, model_window: int | None = None) -> Head:
        """The head for a member of the team; `model_window` is what its model takes, if known."""
        members = team.infos
        settings = member.profile.context
        takes, reserved = sizes(settings, model_window)
        system = render.system_text(member.id, member.role_prompt, members)
        return cls(
            agent_id=member.id,
            role_prompt=member.role_prompt,
            members=members,
            max_output_tokens=settings.max_output_tokens,
            tokens=tokens.estimate(system) + _PROMPT_TOKENS,
            room=takes - reserved,
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


class Limits(NamedTuple):
    """What decides how much fits beside the head.

    `factor` is what the agent's model counts over what is estimated; from `concise_from` of the
    room on the agent is asked to be concise. `most`, in estimated tokens, is a nearer limit.
    """

    factor: float = 1.0
    concise_from: float = 1.0
    most: int | None = None


UNLIMITED = Limits()


class Built(NamedTuple):
    """An input, its hash, those of its messages (`digests`), and the estimate of its tokens."""

    input: AgentInput
    input_hash: str
    input_tokens: int
    digests: Sequence[str]
    chosen: Chosen


def history_of(team: Team) -> History:
    """An empty one that reaches as far as the widest window of the team's members."""
    return History(budget_of(team))


@lru_cache(maxsize=256)
def head_of(team: Team, agent_id: str, model_window: int | None = None) -> Head:
    """The head for a member of the team, made once."""
    member = team.member(agent_id)
    if member is None:
        raise KeyError(agent_id)
    return Head.of(team, member, model_window)


def build(
    head: Head, history: History, call: Call, memory: Memory = NOTHING, limits: Limits = UNLIMITED
) -> Built:
    """What an agent is shown at one call."""
    chosen = layers.choose(head.agent_id, history, call.trigger, memory, _room(head, limits))
    selection = chosen.selection
    digests = selection.digests
    memory_context = "\n\n".join(part for part in (chosen.stable, chosen.noted) if part) or None
    is_concise = usage_ratio(head, history, memory, limits.factor) >= limits.concise_from
    input_hash = head.digest.of(
        call.invocation,
        call.turn,
        digests,
        mentioned_by=call.mentioned_by,
        memory_context=memory_context,
        prefer_concise=is_concise,
    )
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
        messages=selection.messages,
        memory_context=memory_context,
        max_output_tokens=head.max_output_tokens,
        prefer_concise=is_concise,
        deadline_s=call.deadline_s,
        memory_stable=len(chosen.stable),
        input_hash=input_hash,
    )
    used = head.tokens + chosen.stable_tokens + chosen.noted_tokens + selection.tokens
    return Built(built, input_hash, round(used * limits.factor), digests, chosen)


def usage_ratio(head: Head, history: History, memory: Memory, factor: float = 1.0) -> float:
    """What all that is not summarised takes, over what the window has room for."""
    return usage_of(head, history, memory, factor) / max(head.room, 1)


def usage_of(head: Head, history: History, memory: Memory, factor: float = 1.0) -> int:
    """The tokens that an agent would be shown if all that is not summarised were."""
    used = head.tokens + tokens.estimate(memory.summary) + history.tokens_after(memory.upto)
    return round(used * max(factor, 1.0))


def reaches(head: Head, history: History, seq: int, memory: Memory, limits: Limits) -> bool:
    """Whether the message of that seq is among the newest that an agent has room for."""
    room = _room(head, limits)
    return seq > layers.fitting(memory, room).upto and history.tokens_after(seq - 1) <= room


def _room(head: Head, limits: Limits) -> int:
    """What there is beside the head, in estimated tokens."""
    # What is estimated too high only leaves room unused; and what is loaded reaches no further.
    room = int(head.room / max(limits.factor, 1.0))
    return (room if limits.most is None else min(room, limits.most)) - head.tokens


def sizes(settings: ContextSettings, model_window: int | None = None) -> tuple[int, int]:
    """The window of an agent, and how much of it is kept for its answer, in tokens.

    `model_window` is what its model takes, if known. Of a window that is no larger than what should
    be kept, half is kept.
    """
    takes = min(settings.window_tokens, model_window or settings.window_tokens)
    reserved = settings.reserved_output_tokens
    return takes, reserved if reserved < takes else takes // 2


def budget_of(team: Team) -> int:
    """The widest window of the team's members, in tokens."""
    return max((member.profile.context.window_tokens for member in team.members), default=0)


def weigh(message: Message) -> int:
    """How many tokens a message takes up in a prompt at least, by a quick look."""
    return tokens.estimate(message.content) + _FRAME_TOKENS
