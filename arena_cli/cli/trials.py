"""`arena agents test`: what came of a call, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.ground.text import shown, shown_line
from arena_cli.report import facts
from arena_cli.report.spans import INDENT
from arena_cli.session.trial import Tried
from arena_cli.team.model import Member


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
