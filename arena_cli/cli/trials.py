"""`arena agents test`: who is called, and what came of it, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.ground import nearest
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown, shown_line
from arena_cli.report import facts
from arena_cli.report.spans import INDENT
from arena_cli.session.trial import Tried
from arena_cli.team import ids, roster
from arena_cli.team.model import Member, TeamConfig
from arena_cli.team.workspace import Workspace


def member(loaded: Workspace, called: str) -> Member:
    """The agent of that id, name or alias, with `@` or without; of two so called, the first.

    Raises UsageError.
    """
    members = [Member(one, one.name or one.agent_id) for one in loaded.profiles.values()]
    found = roster.Roster(members).whole(called.removeprefix("@").removeprefix("＠"))
    one = loaded.loaded.get(found.id if isinstance(found, roster.Somebody) else ids.normal(called))
    if one is None:
        names = dict.fromkeys(name for member in members for name in (member.id, member.name))
        hint = nearest.hint(called, names) or "`arena agents add` makes one"
        raise UsageError(f"there is no agent `{shown_line(called)}`", hint)
    profile = one.profile
    return Member(profile, profile.name or profile.agent_id, role_prompt=one.role_prompt)


def limit_s(loaded: Workspace) -> float:
    """Seconds that a reply may take in the team that talks where none is named."""
    is_team = loaded.file.team or any(one.member for one in loaded.profiles.values())
    config = loaded.team(loaded.file.team).config if is_team else TeamConfig()
    return config.turn_timeout_s


def document(member: Member, tried: Tried) -> dict[str, Any]:
    """The call as JSON."""
    reply = tried.finished
    return {
        "agent": member.id,
        "adapter": member.profile.adapter["type"],
        "ok": tried.works,
        "status": reply.status,
        "latency_ms": reply.latency_ms,
        "usage": reply.usage.model_dump() if reply.usage else None,
        "sent": {"system": tried.system, "prompt": tried.prompt},
        "content": reply.message.content if reply.message else None,
        "error": reply.error,
        "metadata": reply.metadata,
    }


def lines(member: Member, tried: Tried) -> Iterator[str]:
    """The call as text: what was sent, what came, then whether it worked, time, tokens, cost."""
    reply = tried.finished
    came = reply.message.content if reply.message else str(reply.metadata.get("partial", ""))
    parts = [("sent: system", tried.system), ("sent: prompt", tried.prompt), ("came", came)]
    for title, text in parts:
        if text.strip():
            yield f"── {title}"
            yield from below(text.rstrip())
    state = "ok" if tried.works else "NOT OK"
    told = [f"{state} {shown_line(member.id)}", f"{reply.latency_ms / 1000:.1f} s"]
    if reply.usage:
        told.append(facts.tokens(reply.usage))
    if reply.status == "declined":
        told.append("it declined, which is an answer too")
    yield f"── {' · '.join(told)}"
    if reply.error:
        yield from below(reply.error.removeprefix(f"{member.id}: "))


def below(text: str) -> Iterator[str]:
    """The lines of an untrusted text, escaped and indented."""
    for line in shown(text).split("\n"):
        yield f"{INDENT}{line}".rstrip()
