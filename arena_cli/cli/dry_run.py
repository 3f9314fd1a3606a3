"""`arena send --dry-run`: what a preview says, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_cli.ground.text import shown, shown_line
from arena_cli.session.preview import Asked, Judged, Preview

INDENT = "  "


def document(preview: Preview) -> dict[str, Any]:
    """The preview as JSON; tokens are estimates."""
    message = preview.message
    asked = [one.asked for one in preview.others if one.asked]
    return {
        "session": preview.session,
        "new": preview.is_new,
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


def lines(preview: Preview) -> Iterator[str]:
    """The preview as text, without line ends."""
    session = "a new session" if preview.is_new else "session"
    if preview.session:
        session += f" {shown_line(preview.session)}"
    team = f"team {shown_line(preview.team)}" if preview.team else "every agent"
    yield "dry run: nobody is called, nothing is written"
    yield f"{session} · {team}"
    if preview.interrupts:
        yield f"chain {preview.interrupts}, which was cut short, would be closed as interrupted"
    yield ""
    yield from _message(preview)
    yield ""
    yield from _must(preview)
    yield from _others(preview)
    yield ""
    yield from _sums(preview)


def _message(preview: Preview) -> Iterator[str]:
    message = preview.message
    yield f"{shown_line(message.author_name)}{' · redacted' if preview.redacted else ''}"
    for line in shown(message.content).split("\n") if message.content else ():
        yield INDENT + line if line else ""
    for part in message.attachments:
        yield f"{INDENT}[{part.type}: {shown_line(part.name)}, {part.size} bytes]"
    if preview.unresolved:
        said = ", ".join(f"@{shown_line(name)}" for name in preview.unresolved)
        yield f"{INDENT}nobody is called {said}"


def _must(preview: Preview) -> Iterator[str]:
    yield "must reply:" if preview.must else "nobody must reply"
    for one in preview.must:
        yield f"{INDENT}{_name(one)} · {_context(one)}"
    if preview.deferred:
        deferred = ", ".join(shown_line(agent) for agent in preview.deferred)
        yield f"deferred to the next turn: {deferred}"


def _others(preview: Preview) -> Iterator[str]:
    if not preview.others:
        return
    changes = "; what is answered first may change it" if preview.must else ""
    yield f"may reply, judged by this message alone{changes}:"
    for one in preview.others:
        facts = [_name(one), "asked" if one.asked else "passed over", _judgement(one, preview)]
        if one.hits:
            facts.append(f"found: {', '.join(shown_line(word) for word in one.hits)}")
        yield INDENT + " · ".join(facts)
        if one.asked:
            yield INDENT * 2 + _context(one.asked)


def _judgement(one: Judged, preview: Preview) -> str:
    if preview.selection == "relevance":
        sign = "<" if one.relevance < one.threshold else ">="
        measured = f"relevance {one.relevance:g} {sign} {one.threshold:g}"
    else:
        measured = f"relevance {one.relevance:g}"
    return measured if one.asked or one.below else f"{measured}, {one.reason}"


def _context(one: Asked) -> str:
    """What of the session it is shown."""
    word = "message" if one.of == 1 else "messages"
    left_out = one.of - one.messages
    rest = f" ({left_out} older do not fit its window)" if left_out else ""
    return f"{one.messages} of {one.of} {word}{rest} · ~{one.input_tokens} tokens"


def _sums(preview: Preview) -> Iterator[str]:
    asked = [one.asked for one in preview.others if one.asked]
    if not preview.must and not asked:
        first = next((one.agent for one in preview.others), "id")
        yield f"Nobody would be asked. To call one, name it in the message: @{shown_line(first)}"
        return
    total = f"~{_sum(preview.must) + _sum(asked)} tokens in turn 1"
    parts = f": ~{_sum(preview.must)} must, ~{_sum(asked)} may" if preview.must and asked else ""
    yield f"{total}{parts}"


def _sum(asked: list[Asked]) -> int:
    return sum(one.input_tokens for one in asked)


def _name(one: Asked | Judged) -> str:
    return shown_line(f"{one.name} ({one.agent})" if one.name != one.agent else one.agent)
