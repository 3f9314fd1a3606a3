"""Short facts that lines are made of: a time, tokens, a face, a step's name, why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from arena_cli.ground.protocol import COST_NOT_TAKEN, Usage
from arena_cli.ground.text import shown_line
from arena_cli.report.spans import Span
from arena_cli.report.words import Words
from arena_cli.transcript.events import PassedOver

LONGEST_AVATAR = 12


def clock(ts: str) -> str:
    """The time of day, in the zone of whoever looks."""
    try:
        return f"{datetime.fromisoformat(ts).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def avatar(text: str) -> str:
    """A profile's `avatar` as it may stand before a name; empty for the address of a picture."""
    told = shown_line(text.strip())
    return "" if len(told) > LONGEST_AVATAR or "/" in told or "." in told else told


def tokens(usage: Usage) -> str:
    """Tokens in and out; `~` before an estimate; the cost where it is known."""
    about = "~" if usage.estimated else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return f"{about}{sent} → {about}{usage.output_tokens} tokens{cost}"


def cost_not_taken(metadata: Mapping[str, Any], say: Words) -> str:
    """Return the words for a cost that nobody believes; empty where there is none."""
    cost = metadata.get(COST_NOT_TAKEN)
    return "" if cost is None else say("cost not counted: {cost} USD", cost=shown_line(str(cost)))


def passed_over(why: PassedOver, say: Words) -> str:
    """Why a candidate was not asked."""
    relevance = f"{why.relevance:g}"
    if why.threshold is not None:
        threshold = f"{why.threshold:g}"
        return say("relevance {relevance} < {threshold}", relevance=relevance, threshold=threshold)
    reason = shown_line(why.reason or "")
    return say("relevance {relevance}, {reason}", relevance=relevance, reason=reason)


def joined(parts: Iterable[list[Span]], between: str) -> list[Span]:
    """The parts one after the other."""
    spans: list[Span] = []
    for part in parts:
        spans += [Span(between, "dim"), *part] if spans else part
    return spans


def step(number: int, name: str, say: Words, kind: str = "") -> str:
    """`step 2: the name that its file gives it`; `kind` stands behind the number."""
    named = f"{say(': ')}{shown_line(name)}" if name else ""
    return f"{say('step {number}', number=number)}{kind}{named}"
