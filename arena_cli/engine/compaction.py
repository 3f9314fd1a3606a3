"""Summarise older messages at a turn's end: when a window is full, or at an interval.

Only the oldest part is summarised, so that the newest messages keep their share of the room and the
beginning of an input changes seldom. Summarised messages stay in the transcript; agents are shown
the summary in their place. A summary by an agent that fails a check is asked for once more, then
the extractive one is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from arena_cli.context import layers, summary, summary_checks, window
from arena_cli.context.summary import PinnedFact, Replaced, Sections
from arena_cli.context.summary_checks import Sources
from arena_cli.context.tokens import estimate
from arena_cli.engine import plan, side_calls
from arena_cli.engine.plan import Room
from arena_cli.notes.text import of_note
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
# By so much a summary by an agent may exceed its length.
_TOLERANCE = 1.25
_ALMOST = 0.05
# The tokens of headings in an extractive summary.
_HEADINGS = 16
_SMALL_ROOM_SHARE = 0.4
# In a room narrower than this, less than the share of the newest messages stays: summaries, which
# change the beginning of the input, are made less often. A small room has no such reserve.
_NARROW = 4_000
_LOWER_MARK = 0.8
# The share of an agent's own limit of output that its summary may take.
_OUTPUT_SHARE = 0.8


@dataclass(frozen=True)
class _Old:
    """The input of a summary: messages, oldest first, the earlier summary, facts to include.

    `later` are the messages that stay, `replaced` what no longer applies. `drafts` are the titles
    of draft notes from messages up to here, `corrected` those that later messages correct,
    `outdated` what these messages correct. `asked_now` is the request that opened the open chain,
    if it is among the messages. `tokens` is the estimate for messages and earlier summary. `asked`
    is the length to request, in tokens; a summary of more than `most_shown` has room in no window.
    """

    messages: Sequence[ShownMessage]
    later: Sequence[ShownMessage]
    earlier: str
    count: int
    facts: Sequence[PinnedFact]
    replaced: Sequence[Replaced]
    drafts: Sequence[str]
    corrected: Sequence[str]
    asked_now: str
    tokens: int
    asked: int
    most_shown: int
    outdated: Sequence[str] = ()

    def too_long(self, text: str) -> str:
        """Explain why a summary is too long; return "" if it is not."""
        tokens = estimate(summary.without_message_ids(text))
        earlier = estimate(self.earlier)
        return summary_checks.find_length_fault(self.tokens, earlier, tokens, self.most_shown)

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
    full = _report_usage(room, chain)
    old = _old(room, chain, full) if compactions or full or _is_due(room) else None
    if old is not None and (compactions or _is_worth_it(old, fold)):
        await _summarize(room, old, asks=not compactions)


async def _summarize(room: Room, old: _Old, *, asks: bool) -> None:
    """Write a summary: by the summarizing agent, if `asks`, else the extractive one."""
    old = await asyncio.to_thread(_without_corrected, old)
    if room.summarizer is not None and asks:
        attempt = await _by_agent(room, room.summarizer, old)
        _write(room, old, attempt)
        if not attempt.fault:
            return
    _write(room, old, await _extracted(room, old))


def _extractive() -> ModuleType:
    """Return the summary without an agent, whose patterns take time to compile."""
    return import_module("arena_cli.context.extractive")


def _without_corrected(old: _Old) -> _Old:
    """Return the input without the facts and drafts that a later message corrects."""
    known = frozenset(old.corrected)
    titles = [*old.drafts, *(fact.title for fact in old.facts)]
    titles = [title for title in titles if title not in known]
    found = _extractive().find_corrected(titles, old.messages, old.later) if titles else []
    return replace(
        old,
        facts=[fact for fact in old.facts if fact.title not in found],
        outdated=found,
        corrected=[*old.corrected, *(title for title in found if title in old.drafts)],
    )


def _report_usage(room: Room, chain: Chain) -> list[str]:
    """Write how full the windows of the called agents are; return the agents whose window is full.

    Each level of an agent is written once.
    """
    fold, history, rules = room.scene.fold, room.scene.history, room.scene.team.config.memory
    turn = chain.turns[-1]
    unheard = sum(
        window.weigh(done.message)
        for done in turn.successes()
        if done.message and history.message(done.message.id) is None
    )
    growth = history.tokens_after(turn.started.seq) + unheard
    full = []
    for agent in turn.called:
        if room.scene.team.member(agent) is None:
            continue
        head, limits = room.scene.head(agent), room.scene.limits(agent)
        used, unlisted = _usage(room, agent, chain, head, limits)
        used += round(unheard * max(limits.factor, 1.0))
        most = room.scene.room(agent)
        level = _level(used / most, rules.warn_at, rules.saturated_at)
        if _is_full(head, limits, used, growth, rules.saturated_at):
            full.append(agent)
        if level and fold.levels.get(agent) not in (level, "saturated"):
            left = 0 if agent in fold.crowded else unlisted
            _write_usage(room, agent, level, used, most, left)
    return full


def _is_full(
    head: window.Head, limits: window.Limits, used: int, growth: int, saturated_at: float
) -> bool:
    """Return True if it is time to summarise what an agent's room for messages and memory holds.

    `growth` are the tokens of the last turn. A summary changes the beginning of the input, so it
    waits until a turn like the last one would not fit, or until the room is almost used.
    """
    space = window.room_for_messages(head, limits)
    filled = used / max(limits.factor, 1.0) - head.tokens
    if space <= 0 or filled < space * saturated_at:
        return False
    return filled + growth > space or filled >= space * (saturated_at + _ALMOST)


def _usage(
    room: Room, agent: str, chain: Chain, head: window.Head, limits: window.Limits
) -> tuple[int, int]:
    """Return what `window.measure_usage` does for an agent's next input."""
    scene, reply = room.scene, chain.turns[-1].replies.get(agent)
    about = plan.about(agent, reply.phase, chain) if reply else ""
    return window.measure_usage(agent, head, scene.history, scene.memory(about), limits)


def _level(ratio: float, warn_at: float, saturated_at: float) -> Level | None:
    if ratio >= saturated_at:
        return "saturated"
    return "warning" if ratio >= warn_at else None


def _write_usage(
    room: Room, agent: str, level: Level, used: int, budget: int, pinned_left: int
) -> None:
    room.journal.write(
        ContextUsage,
        agent=agent,
        level=level,
        usage_ratio=round(used / budget, 4),
        tokens=used,
        budget=budget,
        pinned_left=pinned_left,
    )


def _is_due(room: Room) -> bool:
    """Return True if the team's interval between summaries, in messages, has been reached."""
    every, last = room.scene.team.config.auto_summary_interval, room.scene.fold.tried
    if every is None:
        return False
    return len(room.scene.history.after(last.seq if last else 0)) >= every


def _old(room: Room, chain: Chain, full: Sequence[str]) -> _Old | None:
    """Return the input of a summary made now; None if nothing can be summarised.

    If windows are `full`, the newest messages that fit into their share of the smallest of these
    stay, else the last two turns.
    """
    scene, history = room.scene, room.scene.history
    last = scene.summary()
    newer = history.after(last.upto)
    if full:
        space = min(map(scene.room_for_messages, full))
        most = (
            space
            * scene.team.config.memory.keep
            * (_LOWER_MARK if layers.SMALL_ROOM <= space < _NARROW else 1)
        )
        messages = summary.oldest(newer, int(most), history.weight_of)
    else:
        messages = summary.old_part(newer, chain.turns[-1].started.turn)
    if not messages:
        return None
    upto = max(message.seq for message in messages)
    opening = chain.opening.message
    earlier = scene.stored_summary()
    tokens = sum(map(history.weight_of, messages))
    rooms = [scene.room_for_messages(member.id) for member in scene.team.members]
    facts = _facts(room, messages, earlier)
    drafts = scene.drafts(upto)
    keep, pinned = scene.team.config.memory.keep, scene.memory("").pinned
    pinned_tokens = sum(history.weight_of(entry.message) for entry in pinned)
    shares = [_summary_share(space, pinned_tokens, keep) for space in rooms]
    length = max(min(shares), min(_LEAST_ASKED, max(shares)))
    return _Old(
        messages=messages,
        later=newer[len(messages) :],
        earlier=earlier,
        count=len(messages) + last.summarised,
        facts=facts,
        replaced=scene.replaced(),
        drafts=drafts,
        corrected=[title for title in scene.corrected() if title in drafts],
        asked_now=(
            summary.now_asked(opening, room.language)
            if opening.seq <= upto and not chain.thread
            else ""
        ),
        tokens=tokens + estimate(last.summary),
        asked=summary.asked_tokens(
            tokens,
            estimate(last.summary),
            length,
            summary.LARGEST_SHARE if full else summary.USUAL_SHARE,
        ),
        most_shown=int(max(*shares, _LEAST_ASKED) * _TOLERANCE),
    )


def _summary_share(room_tokens: int, pinned_tokens: int, keep: float) -> int:
    """Return the length of a summary in a room of that size, in tokens.

    In a small room it may use what pinned messages do not take. In a larger one the free room is
    worth more: the beginning of the input stays the same for more calls.
    """
    if room_tokens >= layers.SMALL_ROOM:
        return int(room_tokens * layers.SHARE)
    left = room_tokens * (1 - keep) - pinned_tokens
    return int(max(room_tokens * layers.SHARE, min(left, room_tokens * _SMALL_ROOM_SHARE)))


def _facts(room: Room, messages: Sequence[ShownMessage], earlier: str) -> list[PinnedFact]:
    """Return the facts that pin summarised messages: approved ones, then the newest, first.

    A draft that the earlier summary leaves out stays out: something has corrected it.
    """
    pinned = room.scene.memory("").pinned
    if not pinned:
        return []
    upto = max(message.seq for message in messages)
    new = {message.id for message in messages}
    words = frozenset(of_note(earlier))
    return [
        PinnedFact(entry.note.title, entry.note.kind)
        for entry in sorted(pinned, key=layers.best_first)
        if entry.message.seq <= upto
        and (
            entry.message.id in new
            or entry.note.status == "approved"
            or summary.holds(words, entry.note.title)
        )
    ]


def _is_worth_it(old: _Old, fold: Fold) -> bool:
    """Return True if there is more to summarise than in the last attempt."""
    last = fold.tried
    return last is None or not last.rolled_back or old.tokens >= last.tokens_before * _GROWN


async def _by_agent(room: Room, member: Member, old: _Old) -> _Attempt:
    """Return the summary of an agent, which is asked part by part if its window is small."""
    most = min(old.asked, int(member.profile.context.max_output_tokens * _OUTPUT_SHARE))
    head = window.Head.of(room.scene.team, member, room.scene.windows.get(member.id))
    batches = _parts(old, head.room - head.tokens, most, room.scene.history.weight_of)
    if not 0 < len(batches) <= MOST_CALLS:
        problem = "its window is too small for what there is to summarise"
        return _Attempt(member.id, "", problem, Usage(cost_usd=0.0))
    attempt = _Attempt(member.id, old.earlier)
    is_repeated = False
    for number, batch in enumerate(batches, 1):
        checked = old if number == len(batches) else None
        before = attempt
        attempt, is_rejected = await _ask(room, member, before, batch, most, old, checked)
        if is_rejected and not is_repeated:
            is_repeated = True
            retry = replace(attempt, text=before.text)
            attempt, _ = await _ask(room, member, retry, batch, most, old, checked)
        if attempt.fault:
            break
    return attempt


async def _ask(
    room: Room,
    member: Member,
    before: _Attempt,
    batch: Sequence[ShownMessage],
    most: int,
    old: _Old,
    checked: _Old | None,
) -> tuple[_Attempt, bool]:
    """Ask an agent about a part; return its summary so far, and True if a check rejects it.

    `before` is the attempt so far; if it is invalid, the agent is asked again, with the reason.
    `checked` is None if further parts follow.
    """
    question = summary.question(
        batch,
        summary.without_message_ids(before.text),
        most,
        room.language,
        replaced=[*old.replaced, *map(Replaced, old.outdated)],
        fault=before.fault,
    )
    answer = await side_calls.ask(member, question, room)
    used = [usage for usage in (before.usage, answer.usage) if usage is not None]
    text, fault = "", answer.error
    if not fault:
        sources = Sources(
            batch,
            before.text,
            (*(fact.title for fact in old.facts), *(entry.by for entry in old.replaced)),
        )
        text, fault = _checked(answer.text, sources, checked, room)
    attempt = _Attempt(
        member.id,
        answer.text if fault else text,
        fault,
        Usage.total(used) if used else None,
        answer.metadata,
    )
    return attempt, bool(fault) and not answer.error


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


def _checked(answer: str, sources: Sources, old: _Old | None, room: Room) -> tuple[str, str]:
    """Return a summary in arena's form, and why it is invalid; `old` is None for a part."""
    if not answer.strip():
        return "", "it is empty"
    sections = summary.parse_summary(answer)
    source = sources.text
    fault = (
        summary_checks.find_form_fault(sections)
        or summary_checks.find_order(answer)
        or summary_checks.find_other_script(sections, source)
        or summary_checks.find_invention(sections, source)
    )
    if not old or fault:
        return summary.write_summary(sections, room.language), fault
    rules = room.scene.team.config.memory
    facts = summary.fitting_facts(old.facts, old.asked)
    fault = summary_checks.find_gap(
        sections,
        sources.messages,
        [fact for fact in facts if fact.kind == "decision"],
        rules.decisions_covered,
        rules.messages_covered,
        sources.earlier,
    )
    current = {
        name: [item for item in items if not summary.states_replaced(item, old.replaced)]
        for name, items in sections.items()
    }
    completed = summary.completed(summary.opened(current, old.asked_now), facts)
    text = summary.write_summary(completed, room.language, old.earlier)
    return text, fault or old.too_long(text)


async def _extracted(room: Room, old: _Old) -> _Attempt:
    """Return the extractive summary, computed outside of the event loop."""
    sections: Sections = await asyncio.to_thread(
        _extractive().summarize,
        old.messages,
        summary.opened(summary.parse_summary(old.earlier), ""),
        old.facts,
        max(old.asked - _HEADINGS, old.asked // 2),
        room.scene.team.config.memory.patterns,
        old.asked_now,
        replaced=old.replaced,
        later=old.later,
    )
    text = summary.write_summary(sections, room.language, old.earlier)
    fault = "" if text else "there is no sentence in it"
    fault = fault or old.too_long(text)
    return _Attempt(_extractive().BY, text, fault)


def _write(room: Room, old: _Old, attempt: _Attempt) -> None:
    room.journal.write(
        Compacted,
        by=attempt.by,
        upto=old.upto,
        messages=old.count,
        summary=cut_text(attempt.text, _SHOWN) if attempt.fault else attempt.text,
        tokens_before=old.tokens,
        tokens_after=estimate(summary.without_message_ids(attempt.text)),
        usage=attempt.usage,
        rolled_back=attempt.fault,
        corrected=[] if attempt.fault else list(old.corrected),
        metadata=attempt.metadata,
    )
