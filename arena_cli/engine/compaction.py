"""Summarise older messages at a turn's end: when a window is full, or at an interval.

Summarised messages stay in the transcript; agents are shown the summary in their place. An invalid
summary is not used, and another is only tried when there is more to summarise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from arena_cli.context import extractive, summary, window
from arena_cli.context.summary import PinnedFact, Sections
from arena_cli.context.tokens import estimate
from arena_cli.engine import call
from arena_cli.engine.plan import Room
from arena_cli.protocol import ShownMessage, Usage
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Compacted, ContextUsage
from arena_cli.transcript.state import Fold
from arena_cli.util.text import cut_text
from arena_cli.workspace.models import Member

Level = Literal["warning", "saturated"]

MOST_CALLS = 8
"""So often an agent is asked at most for one summary, part by part where its window is small."""

_GROWN = 1.25
_FRAMED_TWICE = 1.2
_SHOWN = 2_000

# However small the smallest window is, the others are to have this much.
_LEAST_ASKED = 300


@dataclass(frozen=True)
class _Old:
    """The input of a summary: messages, oldest first, the earlier summary, facts to include.

    `asked_now` is the request that opened the open chain, if it is among the messages. `tokens` is
    the estimate for messages and earlier summary. The agent with the smallest window can be shown a
    summary of `least_shown` tokens, that with the widest one of `most_shown`.
    """

    messages: Sequence[ShownMessage]
    earlier: str
    count: int
    facts: Sequence[PinnedFact]
    asked_now: str
    tokens: int
    least_shown: int
    most_shown: int

    @property
    def asked(self) -> int:
        """The length to request for the summary, in tokens."""
        shown_tokens = max(_LEAST_ASKED, self.least_shown)
        return summary.asked_tokens(self.tokens, estimate(self.earlier), shown_tokens)

    def too_long(self, text: str) -> str:
        """Explain why a summary is too long; return "" if it is not."""
        return summary.too_long(self.tokens, estimate(text), self.most_shown)

    @property
    def upto(self) -> str:
        """The id of the last message that the summary replaces."""
        return max(self.messages, key=lambda message: message.seq).id


@dataclass(frozen=True)
class _Attempt:
    """A summary by an agent or an algorithm, and why it is invalid, if it is."""

    by: str
    text: str
    fault: str = ""
    usage: Usage | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


async def after_turn(room: Room) -> None:
    """Report how full the windows are, and summarise if it is time to.

    It does nothing if it has already summarised in this turn. After a crash, the summarizing agent
    may have failed and the extractive summary be missing; then only that is made. Raises
    DiskRefused.
    """
    fold = room.scene.fold
    chain = fold.open
    if chain is None or not chain.turns:
        return
    compactions = chain.turns[-1].compactions
    if any(not event.rolled_back or not event.is_by_agent for event in compactions):
        return
    is_full = _tell_usage(room, chain)
    old = _old(room, chain) if compactions or is_full or _is_due(room) else None
    if old is None or not (compactions or _is_worth_it(old, fold)):
        return
    if room.summarizer is not None and not compactions:
        attempt = await _by_agent(room, room.summarizer, old)
        _write(room, old, attempt)
        if not attempt.fault:
            return
    _write(room, old, await _extracted(room, old))


def _tell_usage(room: Room, chain: Chain) -> bool:
    """Write how full the windows of the called agents are; return True if one is full.

    Each level of an agent is written once.
    """
    fold, history, rules = room.scene.fold, room.scene.history, room.scene.team.config.memory
    memory = room.scene.summary()
    turn = chain.turns[-1]
    unheard = sum(
        window.weigh(done.message)
        for done in turn.successes()
        if done.message and history.message(done.message.id) is None
    )
    is_full = False
    for agent in turn.called:
        if room.scene.team.member(agent) is None:
            continue
        head, factor = room.scene.head(agent), fold.counts.factor(agent)
        used = window.sum_usage(head, history, memory, factor) + round(unheard * max(factor, 1.0))
        most = room.scene.room(agent)
        ratio = used / most
        level = _level(ratio, rules.warn_at, rules.saturated_at)
        is_full = is_full or level == "saturated"
        if level and fold.levels.get(agent) not in (level, "saturated"):
            _write_usage(room, agent, level, used, most)
    return is_full


def _level(ratio: float, warn_at: float, saturated_at: float) -> Level | None:
    if ratio >= saturated_at:
        return "saturated"
    return "warning" if ratio >= warn_at else None


def _write_usage(room: Room, agent: str, level: Level, used: int, budget: int) -> None:
    room.journal.write(
        ContextUsage,
        agent=agent,
        level=level,
        usage_ratio=round(used / budget, 4),
        tokens=used,
        budget=budget,
    )


def _is_due(room: Room) -> bool:
    """Return True if the team's interval between summaries, in messages, has been reached."""
    every, last = room.scene.team.config.auto_summary_interval, room.scene.fold.tried
    if every is None:
        return False
    return len(room.scene.history.after(last.seq if last else 0)) >= every


def _old(room: Room, chain: Chain) -> _Old | None:
    """Return the input of a summary made now; None if nothing can be summarised."""
    last, history = room.scene.summary(), room.scene.history
    messages = summary.old_part(history.after(last.upto), chain.turns[-1].started.turn)
    if not messages:
        return None
    upto = max(message.seq for message in messages)
    pinned = room.scene.memory("").pinned
    facts = [
        PinnedFact(pinned_message.note.title, pinned_message.note.kind)
        for pinned_message in pinned
        if pinned_message.message.seq <= upto
    ]
    opening = chain.opening.message
    is_old = opening.seq <= upto
    rooms = [_summary_room(room, member) for member in room.scene.team.members]
    return _Old(
        messages=messages,
        earlier=last.summary,
        count=len(messages) + last.summarised,
        facts=facts,
        asked_now=summary.now_asked(opening, room.language) if is_old else "",
        tokens=sum(map(history.weight_of, messages)) + estimate(last.summary),
        least_shown=min(rooms),
        most_shown=max(rooms),
    )


def _summary_room(room: Room, member: Member) -> int:
    """Return the length of the longest summary that a member can be shown, in tokens."""
    room_tokens = room.scene.room(member.id) / max(room.scene.fold.counts.factor(member.id), 1.0)
    return int((room_tokens - room.scene.head(member.id).tokens) * window.SUMMARY_SHARE)


def _is_worth_it(old: _Old, fold: Fold) -> bool:
    """Return True if there is more to summarise than in the last summary or attempt."""
    if old.tokens < 2 * estimate(old.earlier):
        return False
    last = fold.tried
    return last is None or not last.rolled_back or old.tokens >= last.tokens_before * _GROWN


async def _by_agent(room: Room, member: Member, old: _Old) -> _Attempt:
    """Return the summary of an agent, which is asked part by part if its window is small."""
    most = old.asked
    head = window.Head.of(room.scene.team, member, room.scene.windows.get(member.id))
    batches = _parts(old, head.room - head.tokens, most, room.scene.history.weight_of)
    if not 0 < len(batches) <= MOST_CALLS:
        problem = "its window is too small for what there is to summarise"
        return _Attempt(member.id, "", problem, Usage(cost_usd=0.0))
    attempt = _Attempt(member.id, old.earlier)
    for number, batch in enumerate(batches, 1):
        question = summary.question(batch, attempt.text, most, room.language)
        answer = await call.ask(member, question, room)
        used = [usage for usage in (attempt.usage, answer.usage) if usage is not None]
        text, fault = "", answer.error
        if not fault:
            text, fault = _checked(answer.text, old if number == len(batches) else None, room)
        attempt = _Attempt(
            member.id,
            answer.text if fault else text,
            fault,
            Usage.total(used) if used else None,
            answer.metadata,
        )
        if fault:
            break
    return attempt


def _parts(
    old: _Old, room: int, most: int, weight_of: Callable[[ShownMessage], int]
) -> list[Sequence[ShownMessage]]:
    """Split the messages into parts that fit into a window.

    Each part leaves room for the question and the summary so far. Returns no part if the window has
    no room for any. `weight_of` returns the tokens of a message.
    """
    question_tokens = estimate(summary.question((), "", most, "en"))
    room -= question_tokens + 2 * max(most, estimate(old.earlier))
    if room <= 0:
        return []
    batches: list[list[ShownMessage]] = []
    tokens_left = 0
    for message in old.messages:
        # Each is framed twice: as what was said, and as a part of the question.
        cost = round(weight_of(message) * _FRAMED_TWICE)
        if cost > tokens_left or not batches:
            batches.append([])
            tokens_left = room
        batches[-1].append(message)
        tokens_left -= cost
    return list(batches)


def _checked(answer: str, old: _Old | None, room: Room) -> tuple[str, str]:
    """Return a summary in arena's form, and why it is invalid; `old` is None for a part."""
    if not answer.strip():
        return "", "it is empty"
    sections = summary.parse_summary(answer)
    facts = old.facts if old else ()
    fault = summary.fault(sections, ())
    completed = summary.completed(summary.opened(sections, old.asked_now if old else ""), facts)
    text = summary.write_summary(completed, room.language)
    if old and not fault:
        fault = summary.fault(completed, facts) or old.too_long(text)
    return text, fault


async def _extracted(room: Room, old: _Old) -> _Attempt:
    """Return the extractive summary, computed outside of the event loop."""
    sections: Sections = await asyncio.to_thread(
        extractive.summarize,
        old.messages,
        summary.opened(summary.parse_summary(old.earlier), ""),
        old.facts,
        old.asked,
        room.scene.team.config.memory.patterns,
        old.asked_now,
    )
    text = summary.write_summary(sections, room.language)
    fault = "" if text else "there is no sentence in it"
    fault = fault or old.too_long(text)
    return _Attempt(extractive.BY, text, fault)


def _write(room: Room, old: _Old, attempt: _Attempt) -> None:
    room.journal.write(
        Compacted,
        by=attempt.by,
        upto=old.upto,
        messages=old.count,
        summary=cut_text(attempt.text, _SHOWN) if attempt.fault else attempt.text,
        tokens_before=old.tokens,
        tokens_after=estimate(attempt.text),
        usage=attempt.usage,
        rolled_back=attempt.fault,
        metadata=attempt.metadata,
    )
