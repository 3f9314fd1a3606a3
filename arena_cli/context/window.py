"""Choose an agent's input within its window (docs/concepts/memory.md).

The choice depends only on the messages and notes, the member, and the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.context import hashing, layers, render
from arena_cli.context.history import NOTHING, History, Memory
from arena_cli.context.tokens import estimate
from arena_cli.protocol import (
    AgentInput,
    ExampleTurn,
    Invocation,
    Message,
    Supervision,
)
from arena_cli.util.language import Texts
from arena_cli.workspace.models import ContextSettings, Member, Team

# For what stands around the messages in a prompt, the question at its end above all.
_PROMPT_TOKENS = 120
# The least that the line above a message takes up.
_FRAME_TOKENS = 4


def _estimate_turn(turn: ExampleTurn) -> int:
    return estimate(turn.text) + _FRAME_TOKENS


class Head(NamedTuple):
    """The part of the input that all calls of one member in one team have in common.

    `common` is an input with it alone. `room` is the member's window minus the tokens reserved for
    its answer; `tokens` is the estimate for everything except the messages.
    """

    common: AgentInput
    tokens: int
    room: int
    digest: hashing.HeadDigest

    @property
    def agent_id(self) -> str:
        """The id of the member."""
        return self.common.agent_id

    @classmethod
    def of(cls, team: Team, member: Member, model_window: int | None = None) -> Head:
        """Return the head for a member; `model_window` is its model's limit in tokens, if known."""
        settings = member.profile.context
        takes, reserved = sizes(settings, model_window)
        system = render.system_text(member.id, member.role_prompt, team.infos)
        turns = [ExampleTurn.of(turn.user, turn.agent) for turn in member.profile.examples]
        examples = [turn for turn in turns if turn.text.strip()]
        # Its values are arena's own; those of a call are filled in by `build`.
        common = AgentInput.model_construct(
            session_id="",
            turn_id="",
            turn=0,
            call=0,
            trigger=[],
            agent_id=member.id,
            role_prompt=member.role_prompt,
            invocation="must_reply",
            members=team.infos,
            max_output_tokens=settings.max_output_tokens,
            examples=examples,
        )
        tokens = estimate(system) + _PROMPT_TOKENS + sum(map(_estimate_turn, examples))
        return cls(common, tokens, takes - reserved, _digest_head(common))

    def halve_output(self) -> Head:
        """Return the head for an answer of half the length."""
        most = max(self.common.max_output_tokens // 2, 1)
        common = self.common.model_copy(update={"max_output_tokens": most})
        return self._replace(common=common, digest=_digest_head(common))


def _digest_head(common: AgentInput) -> hashing.HeadDigest:
    return hashing.HeadDigest(
        common.agent_id,
        common.role_prompt,
        common.members,
        common.max_output_tokens,
        examples=common.examples,
    )


class CallContext(NamedTuple):
    """The part of the input that belongs to one call (see `AgentInput`)."""

    session_id: str
    turn_id: str
    turn: int
    call: int
    trigger: Sequence[str]
    invocation: Invocation
    mentioned_by: Sequence[str] = ()
    deadline_s: float | None = None
    brief: str = ""
    supervision: Supervision | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of the brief, or of the state of the chain for the supervisor."""
        say, tokens = Texts(), 0
        if self.brief:
            tokens += estimate(render.brief_paragraph(self.brief, say))
        if self.supervision is not None:
            asked = render.supervision_paragraph(self.supervision, say)
            tokens += estimate(asked) + estimate(render.DECISION)
        return tokens


class Limits(NamedTuple):
    """The limits on the content in addition to the head.

    `factor` is the ratio of the model's token counts to the estimates; the agent is asked to be
    concise from the share `concise_from` of the room on. `most`, in estimated tokens, is a lower
    limit. `keep` is the share of the room for the newest messages; `widens` as in
    `layers.choose_context`.
    """

    factor: float = 1.0
    concise_from: float = 1.0
    most: int | None = None
    keep: float = layers.KEEP
    widens: bool = False


UNLIMITED = Limits()


class Built(NamedTuple):
    """An input, its hash, the hashes of its messages (`digests`), and its estimated tokens."""

    input: AgentInput
    input_hash: str
    input_tokens: int
    digests: Sequence[str]
    chosen: layers.Chosen


def make_history(team: Team) -> History:
    """Return an empty history that reaches as far as the widest window of the team's members."""
    return History(history_budget(team))


@lru_cache(maxsize=256)
def make_head(team: Team, agent_id: str, model_window: int | None = None) -> Head:
    """Return the head for a member or the supervisor of the team, from a cache."""
    member = team.agent(agent_id)
    if member is None:
        raise KeyError(agent_id)
    return Head.of(team, member, model_window)


def build(
    head: Head,
    history: History,
    call: CallContext,
    memory: Memory = NOTHING,
    limits: Limits = UNLIMITED,
) -> Built:
    """Build the input of one call of an agent."""
    extra = call.tokens if call.brief or call.supervision else 0
    room = room_for_messages(head, limits) - extra
    chosen = layers.choose_context(
        head.agent_id, history, call.trigger, memory, room, limits.keep, widens=limits.widens
    )
    selection = chosen.selection
    digests = selection.digests
    memory_context = (
        "\n\n".join(paragraph for paragraph in (chosen.stable, chosen.noted) if paragraph) or None
    )
    usage_ratio = sum_usage(head, history, memory, chosen, limits.factor) / max(head.room, 1)
    is_concise = usage_ratio >= limits.concise_from
    input_hash = head.digest.of(
        call.invocation,
        call.turn,
        digests,
        mentioned_by=call.mentioned_by,
        memory_context=memory_context,
        prefer_concise=is_concise,
        brief=call.brief,
        supervision=call.supervision,
    )
    # Its values are arena's own: checking each message again would cost more the more there are.
    built = head.common.model_copy(
        update={
            "session_id": call.session_id,
            "turn_id": call.turn_id,
            "turn": call.turn,
            "call": call.call,
            "trigger": list(call.trigger),
            "invocation": call.invocation,
            "mentioned_by": list(call.mentioned_by),
            "members": list(head.common.members),
            "messages": selection.messages,
            "memory_context": memory_context,
            "prefer_concise": is_concise,
            "deadline_s": call.deadline_s,
            "brief": call.brief,
            "supervision": call.supervision,
            "examples": list(head.common.examples),
            "memory_stable": len(chosen.stable),
            "input_hash": input_hash,
        }
    )
    used = head.tokens + chosen.stable_tokens + chosen.noted_tokens + selection.tokens + extra
    return Built(built, input_hash, round(used * limits.factor), digests, chosen)


def sum_usage(
    head: Head, history: History, memory: Memory, chosen: layers.Chosen, factor: float = 1.0
) -> int:
    """Return the tokens of an input with everything that is not summarised."""
    unshown = estimate(memory.summary) if memory.summary and not chosen.has_summary else 0
    pinned = layers.sum_weights((entry.message for entry in chosen.pinned), history)
    used = head.tokens + chosen.stable_tokens + unshown + pinned + chosen.noted_tokens
    return round((used + history.tokens_after(memory.upto)) * max(factor, 1.0))


def measure_usage(
    agent_id: str, head: Head, history: History, memory: Memory, limits: Limits
) -> tuple[int, int]:
    """Return the tokens of a member's input with everything that is not summarised.

    No message is new in it, as between two calls. The second number is that of the pinned messages
    of which not even the title has room.
    """
    room = room_for_messages(head, limits)
    if memory.pinned or memory.notes:
        chosen = layers.choose_context(agent_id, history, (), memory, room, limits.keep)
        unlisted = len(chosen.titles) - chosen.listed
        return sum_usage(head, history, memory, chosen, limits.factor), unlisted
    shown = layers.fit_summary(memory, room, 0, limits.keep)
    unshown = estimate(memory.summary) if memory.summary and not shown.summary else 0
    used = (
        head.tokens + layers.estimate_summary(shown) + unshown + history.tokens_after(memory.upto)
    )
    return round(used * max(limits.factor, 1.0)), 0


def reaches(head: Head, history: History, seq: int, memory: Memory, limits: Limits) -> bool:
    """Return True if the message of that seq is among the newest that fit into the window."""
    room = room_for_messages(head, limits)
    return (
        seq > layers.fit_summary(memory, room, 0, limits.keep).upto
        and history.tokens_after(seq - 1) <= room
    )


def room_for_messages(head: Head, limits: Limits) -> int:
    """Return the room in addition to the head, in estimated tokens."""
    # What is estimated too high only leaves room unused; and what is loaded reaches no further.
    room = int(head.room / max(limits.factor, 1.0))
    return (room if limits.most is None else min(room, limits.most)) - head.tokens


def sizes(settings: ContextSettings, model_window: int | None = None) -> tuple[int, int]:
    """Return the window of an agent, and the part of it reserved for its answer, in tokens.

    `model_window` is its model's limit, if known. If the window is not larger than the setting for
    the answer, half of the window is reserved.
    """
    takes = min(settings.window_tokens, model_window or settings.window_tokens)
    reserved = settings.reserved_output_tokens
    return takes, reserved if reserved < takes else takes // 2


def history_budget(team: Team) -> int:
    """Return the widest window of the team's agents, in tokens."""
    return max((member.profile.context.window_tokens for member in team.agents), default=0)


def weigh(message: Message) -> int:
    """Return a lower bound of a message's tokens in a prompt, estimated quickly."""
    return estimate(message.content) + _FRAME_TOKENS
