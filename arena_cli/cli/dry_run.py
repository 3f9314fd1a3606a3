"""`arena send --dry-run`: what a preview says, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.reports.lines import INDENT, Words
from arena_cli.session.preview import Asked, Judged, Preview
from arena_cli.util.text import escape_line, escape_text


def document(preview: Preview) -> dict[str, Any]:
    """The preview as JSON; tokens are estimates."""
    message = preview.message
    asked = [one.asked for one in preview.others if one.asked]
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
                part.model_dump(include={"type", "name", "size"}) for part in message.attachments
            ],
        },
        "unresolved": preview.unresolved,
        "redacted": preview.redacted,
        "must": [one._asdict() for one in preview.must],
        "deferred": preview.deferred,
        "others": [
            {**one._asdict(), "asked": one.asked._asdict() if one.asked else None}
            for one in preview.others
        ],
        "input_tokens": {"must": _sum(preview.must), "asked": _sum(asked)},
    }


def lines(preview: Preview, say: Words) -> Iterator[str]:
    """The preview as text, without line ends."""
    name = escape_line(preview.session or "")
    if preview.is_new:
        session = say("a new session {name}", name=name) if name else say("a new session")
    else:
        session = say("session {name}", name=name)
    team = preview.team and say("team {name}", name=escape_line(preview.team))
    yield say("dry run: nobody is called, nothing is written")
    yield f"{session} · {team or say('every agent')}"
    if preview.busy:
        yield say("it is busy: a send would wait for what another arena is doing there")
    if preview.interrupts:
        yield say(
            "chain {chain}, which was cut short, would be closed as interrupted",
            chain=preview.interrupts,
        )
    yield ""
    yield from _message(preview, say)
    yield ""
    yield from _must(preview, say)
    yield from _others(preview, say)
    yield ""
    yield from _sums(preview, say)


def _message(preview: Preview, say: Words) -> Iterator[str]:
    message = preview.message
    redacted = f" · {say('redacted')}" if preview.redacted else ""
    yield f"{escape_line(message.author_name)}{redacted}"
    for line in escape_text(message.content).split("\n") if message.content else ():
        yield INDENT + line if line else ""
    for part in message.attachments:
        size = say("{count} bytes", count=part.size)
        yield f"{INDENT}[{say.enum(part.type)}: {escape_line(part.name)}, {size}]"
    if preview.unresolved:
        said = say(", ").join(f"@{escape_line(name)}" for name in preview.unresolved)
        yield f"{INDENT}{say('nobody is called {names}', names=said)}"


def _must(preview: Preview, say: Words) -> Iterator[str]:
    yield say("must reply:") if preview.must else say("nobody must reply")
    for one in preview.must:
        yield f"{INDENT}{_name(one)} · {_context(one, say)}"
    if preview.deferred:
        deferred = say(", ").join(escape_line(agent) for agent in preview.deferred)
        yield say("deferred to the next turn: {who}", who=deferred)


def _others(preview: Preview, say: Words) -> Iterator[str]:
    if not preview.others:
        return
    if preview.must:
        yield say("may reply, judged by this message alone; what is answered first may change it:")
    else:
        yield say("may reply, judged by this message alone:")
    for one in preview.others:
        decision = say("asked") if one.asked else say("passed over")
        told = [_name(one), decision, _judgement(one, preview, say)]
        if one.hits:
            words = say(", ").join(escape_line(word) for word in one.hits)
            told.append(say("found: {words}", words=words))
        yield INDENT + " · ".join(told)
        if one.asked:
            yield INDENT * 2 + _context(one.asked, say)


def _judgement(one: Judged, preview: Preview, say: Words) -> str:
    relevance, threshold = f"{one.relevance:g}", f"{one.threshold:g}"
    measured = say("relevance {relevance}", relevance=relevance)
    if preview.selection == "relevance":
        sign = "<" if one.relevance < one.threshold else ">="
        measured += f" {sign} {threshold}"
    if one.asked or one.below:
        return measured
    return say("{measured}, {reason}", measured=measured, reason=say(one.reason))


def _context(one: Asked, say: Words) -> str:
    """What of the session it is shown."""
    if one.of == 1:
        told = say("{count} of 1 message", count=one.messages)
    else:
        told = say("{count} of {all} messages", count=one.messages, all=one.of)
    left_out = one.of - one.messages
    rest = say(" ({count} older do not fit its window)", count=left_out) if left_out else ""
    return f"{told}{rest} · ~{one.input_tokens} tokens"


def _sums(preview: Preview, say: Words) -> Iterator[str]:
    must = _sum(preview.must)
    may = _sum([one.asked for one in preview.others if one.asked])
    if not preview.must and not may:
        first = next((one.agent for one in preview.others), "id")
        call = say("To call one, name it in the message: {name}", name=f"@{escape_line(first)}")
        yield say("Nobody would be asked. {call}", call=call)
        return
    total = say("~{tokens} tokens in turn 1", tokens=must + may)
    parts = say(": ~{must} must, ~{may} may", must=must, may=may) if preview.must and may else ""
    yield f"{total}{parts}"


def _sum(asked: list[Asked]) -> int:
    return sum(one.input_tokens for one in asked)


def _name(one: Asked | Judged) -> str:
    return escape_line(f"{one.name} ({one.agent})" if one.name != one.agent else one.agent)
