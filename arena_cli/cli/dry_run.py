"""Print what sending a message would do, and call no agent: `arena send --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.adapters.base import SessionConfig
from arena_cli.cli import common
from arena_cli.reports.lines import INDENT, Words, unresolved, user_words
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.preview import Judged, PlannedCall, Preview, preview_send
from arena_cli.util.text import escape_line, escape_text
from arena_cli.workspace.models import Team


def print_preview(
    config: SessionConfig, name: str | None, team: Team, message: Outgoing, *, as_json: bool
) -> None:
    """Print what sending the message would do, as text or as JSON."""
    previewed = preview_send(config, name, team, message)
    if as_json:
        common.print_json(_make_document(previewed))
        return
    for line in _draw_preview(previewed, user_words()):
        common.print_line(line)


def _make_document(preview: Preview) -> dict[str, Any]:
    """Return the preview as JSON; tokens are estimates."""
    message = preview.message
    calls = [candidate.asked for candidate in preview.others if candidate.asked]
    return {
        "session": preview.session,
        "new": preview.is_new,
        "busy": preview.busy,
        "team": preview.team,
        "interrupts": preview.interrupts,
        "message": {
            "author": message.author_id,
            "content": message.content,
            "mentions": message.mentions,
            "attachments": [
                attachment.model_dump(include={"type", "name", "size"})
                for attachment in message.attachments
            ],
        },
        "unresolved": preview.unresolved,
        "redacted": preview.redacted,
        "supervisor": preview.supervisor._asdict() if preview.supervisor else None,
        "planner": preview.planner._asdict() if preview.planner else None,
        "must": [candidate._asdict() for candidate in preview.must],
        "deferred": preview.deferred,
        "others": [
            {**candidate._asdict(), "asked": candidate.asked._asdict() if candidate.asked else None}
            for candidate in preview.others
        ],
        "input_tokens": {"must": _sum_tokens(preview.must), "asked": _sum_tokens(calls)},
    }


def _draw_preview(preview: Preview, say: Words) -> Iterator[str]:
    """Yield the preview as text, without line ends."""
    name = escape_line(preview.session or "")
    if preview.is_new:
        session = say("a new session {name}", name=name) if name else say("a new session")
    else:
        session = say("session {name}", name=name)
    team = preview.team and say("team {name}", name=escape_line(preview.team))
    yield say("dry run: no agent is called, nothing is written")
    yield f"{session} · {team or say('every agent')}"
    if preview.busy:
        yield say("it is busy: `arena send` would wait for another arena that writes to it")
    if preview.interrupts:
        yield say(
            "chain {chain} was cut short and would be closed as interrupted",
            chain=preview.interrupts,
        )
    yield ""
    yield from _draw_message(preview, say)
    yield ""
    if preview.planner:
        yield say("asked first, and plans the work:")
        yield _draw_call(preview.planner, say)
        yield ""
        yield say("~{tokens} tokens for its plan", tokens=preview.planner.input_tokens)
        return
    if preview.supervisor:
        yield say("asked first, and decides which agents reply:")
        yield _draw_call(preview.supervisor, say)
        yield ""
        yield say("~{tokens} tokens for its decision", tokens=preview.supervisor.input_tokens)
        return
    yield from _draw_must(preview, say)
    yield from _draw_others(preview, say)
    yield ""
    yield from _draw_sums(preview, say)


def _draw_message(preview: Preview, say: Words) -> Iterator[str]:
    message = preview.message
    redacted = f" · {say('redacted')}" if preview.redacted else ""
    yield f"{escape_line(message.author_name)}{redacted}"
    for line in escape_text(message.content).split("\n") if message.content else ():
        yield INDENT + line if line else ""
    for attachment in message.attachments:
        size = say("{count} bytes", count=attachment.size)
        yield f"{INDENT}[{say.enum(attachment.type)}: {escape_line(attachment.name)}, {size}]"
    if preview.unresolved:
        members = {call.agent: call.name for call in preview.must}
        members |= {candidate.agent: candidate.name for candidate in preview.others}
        yield INDENT + unresolved(preview.unresolved, members, say)


def _draw_must(preview: Preview, say: Words) -> Iterator[str]:
    yield say("must reply:") if preview.must else say("no agent must reply")
    for call in preview.must:
        yield _draw_call(call, say)
    if preview.deferred:
        deferred = say(", ").join(escape_line(agent) for agent in preview.deferred)
        yield say("deferred to the next turn: {who}", who=deferred)


def _draw_call(call: PlannedCall, say: Words) -> str:
    return f"{INDENT}{_format_name(call)} · {_describe_context(call, say)}"


def _draw_others(preview: Preview, say: Words) -> Iterator[str]:
    if not preview.others:
        return
    if preview.must:
        yield say("may reply, judged by this message alone (earlier replies may change it):")
    else:
        yield say("may reply, judged by this message alone:")
    for candidate in preview.others:
        decision = say("asked") if candidate.asked else say("passed over")
        columns = [_format_name(candidate), decision, _describe_judgement(candidate, preview, say)]
        if candidate.hits:
            words = say(", ").join(escape_line(word) for word in candidate.hits)
            columns.append(say("found: {words}", words=words))
        yield INDENT + " · ".join(columns)
        if candidate.asked:
            yield INDENT * 2 + _describe_context(candidate.asked, say)


def _describe_judgement(candidate: Judged, preview: Preview, say: Words) -> str:
    relevance, threshold = f"{candidate.relevance:g}", f"{candidate.threshold:g}"
    text = "relevance {relevance}"
    if preview.selection == "relevance":
        text = "relevance {relevance} >= {threshold}"
        if candidate.relevance < candidate.threshold:
            text = "relevance {relevance} < {threshold}"
    measured = say(text, relevance=relevance, threshold=threshold)
    if candidate.asked or candidate.below:
        return measured
    return say("{measured}, {reason}", measured=measured, reason=say(candidate.reason))


def _describe_context(call: PlannedCall, say: Words) -> str:
    """Describe how much of the session the agent is shown."""
    if call.of == 1:
        share = say("{count} of 1 message", count=call.messages)
    else:
        share = say("{count} of {all} messages", count=call.messages, all=call.of)
    left_out = call.of - call.messages
    omitted = say(" ({count} older do not fit its window)", count=left_out) if left_out else ""
    return f"{share}{omitted} · ~{call.input_tokens} tokens"


def _draw_sums(preview: Preview, say: Words) -> Iterator[str]:
    must = _sum_tokens(preview.must)
    may = _sum_tokens([candidate.asked for candidate in preview.others if candidate.asked])
    if not preview.must and not may:
        first = next((candidate.agent for candidate in preview.others), "id")
        call = say(
            "To call an agent, mention it in the message: {name}", name=f"@{escape_line(first)}"
        )
        yield say("No agent would be called. {call}", call=call)
        return
    total = say("~{tokens} tokens in turn 1", tokens=must + may)
    shares = say(": ~{must} must, ~{may} may", must=must, may=may) if preview.must and may else ""
    yield f"{total}{shares}"


def _sum_tokens(calls: list[PlannedCall]) -> int:
    return sum(call.input_tokens for call in calls)


def _format_name(candidate: PlannedCall | Judged) -> str:
    return escape_line(
        f"{candidate.name} ({candidate.agent})"
        if candidate.name != candidate.agent
        else candidate.agent
    )
