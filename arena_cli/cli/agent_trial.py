"""Print what `arena agents test` sent to an agent, and what it answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.reports import lines
from arena_cli.reports.lines import INDENT
from arena_cli.session.one_shot import Trial
from arena_cli.util import language
from arena_cli.util.text import escape_line, escape_text
from arena_cli.workspace.models import Member


def make_document(member: Member, trial: Trial) -> dict[str, Any]:
    """Return the call as a JSON document."""
    reply = trial.finished
    return {
        "agent": member.id,
        "adapter": member.profile.adapter["type"],
        "ok": trial.works,
        "status": reply.status,
        "latency_ms": reply.latency_ms,
        "usage": reply.usage.model_dump() if reply.usage else None,
        "sent": {"system": trial.system, "prompt": trial.prompt},
        "content": reply.message.content if reply.message else None,
        "error": reply.error,
        "metadata": reply.metadata,
    }


def draw_trial(member: Member, trial: Trial) -> Iterator[str]:
    """Yield the call as text: the input, the answer, then status, time, tokens and cost."""
    say, reply = lines.user_words(), trial.finished
    reply_text = reply.message.content if reply.message else str(reply.metadata.get("partial", ""))
    sections = [
        (say("sent: system"), trial.system),
        (say("sent: prompt"), trial.prompt),
        (say("came"), reply_text),
    ]
    for title, text in sections:
        if text.strip():
            yield f"── {title}"
            yield from indent_text(text.rstrip())
    state = say("ok") if trial.works else say("NOT OK")
    seconds = say("{seconds} s", seconds=f"{reply.latency_ms / 1000:.1f}")
    columns = [f"{state} {escape_line(member.id)}", seconds]
    if reply.usage:
        columns.append(lines.tokens(reply.usage))
    if reply.status == "declined":
        columns.append(say("it declined, which is a valid answer"))
    yield f"── {' · '.join(columns)}"
    if reply.error:
        yield from indent_text(
            language.translate_message(reply.error.removeprefix(f"{member.id}: "))
        )


def indent_text(text: str) -> Iterator[str]:
    """Yield the lines of an untrusted text, escaped and indented."""
    for line in escape_text(text).split("\n"):
        yield f"{INDENT}{line}".rstrip()
