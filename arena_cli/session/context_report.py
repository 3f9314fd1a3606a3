"""Explain the input that an agent of a session would get now."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from arena_cli import errors
from arena_cli.context import window as window_module
from arena_cli.context.history import Memory
from arena_cli.context.window import Built, CallContext, build, sizes
from arena_cli.engine.state import Scene
from arena_cli.errors import UsageError
from arena_cli.session import preview, session
from arena_cli.session.session import SessionConfig
from arena_cli.session.store import Stored
from arena_cli.transcript.events import Compacted
from arena_cli.util.text import escape_line
from arena_cli.workspace.models import Member, Team


class Explained(NamedTuple):
    """An input as it would be now; `of` is the number of messages of the session.

    `window` is the number of tokens that the agent accepts, `reserved` those of it for the answer.
    `usage_ratio` is the fill level if all messages without a summary were shown. `factor` is the
    ratio of its model's counts to the estimates; it is not yet included in the tokens of the layers
    (`counted`).
    """

    member: Member
    built: Built
    memory: Memory
    head_tokens: int
    pinned_tokens: int
    window: int
    reserved: int
    usage_ratio: float
    factor: float
    of: int
    summary: Compacted | None

    def counted(self, estimated: int) -> int:
        """Return an estimate as the agent's model is expected to count it, in tokens."""
        return round(estimated * self.factor)


def explain_context(config: SessionConfig, stored: Stored, team: Team, agent: str) -> Explained:
    """Return the agent's input if it were called for the last message of another author.

    Raises UsageError if the team has no such agent, or if there is no message yet.
    """
    member = team.member(agent)
    if member is None:
        ids = [one.id for one in team.members]
        raise UsageError(
            f"no member of this team has the id {escape_line(agent)!r}",
            errors.suggest_nearest(agent, ids),
        )
    with contextlib.closing(session.open_recollection(config, stored.folder, team)) as recollection:
        scene = preview.make_scene(config, stored.folder, team, recollection, is_new=False)
        return _explained(stored, member, scene)


def _explained(stored: Stored, member: Member, scene: Scene) -> Explained:
    agent = member.id
    messages = scene.history.after()
    if not messages:
        raise UsageError(f"session {stored.name} has no message yet")
    fold, head, limits = scene.fold, scene.head(agent), scene.limits(agent)
    by_others = (message for message in reversed(messages) if message.author_id != agent)
    last = next(by_others, messages[-1])
    memory = scene.memory(last.content)
    built = build(
        head,
        scene.history,
        CallContext(
            session_id=stored.name,
            turn_id=f"t{fold.turn + 1}",
            turn=1,
            call=fold.calls.get(agent, 0) + 1,
            trigger=[last.id],
            invocation="must_reply",
        ),
        memory,
        limits,
    )
    _, reserved = sizes(member.profile.context, scene.windows.get(agent))
    return Explained(
        member=member,
        built=built,
        memory=memory,
        head_tokens=head.tokens,
        pinned_tokens=sum(scene.history.weight_of(entry.message) for entry in built.chosen.pinned),
        window=scene.room(agent) + reserved,
        reserved=reserved,
        usage_ratio=window_module.usage_ratio(head, scene.history, memory, limits.factor),
        factor=limits.factor,
        of=fold.messages,
        summary=fold.summary,
    )
