"""Explain routing: the reasons of each step, as data, text and JSON (`arena run --explain`)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_cli.protocol import Message
from arena_cli.reports import lines
from arena_cli.reports.lines import INDENT, Line, Span, Words, line
from arena_cli.scenarios.result import ScenarioResult, StepResult
from arena_cli.transcript.control_events import Supervised
from arena_cli.transcript.conversation import Chain
from arena_cli.transcript.events import Candidates, Event, MessageEvent, ReplyFinished
from arena_cli.transcript.state import Fold
from arena_cli.util.text import escape_line, shorten_text
from arena_cli.workspace import mentions, visible_text
from arena_cli.workspace.mentions import Everybody, MentionSpot, Opener, Somebody
from arena_cli.workspace.models import Member, Team
from arena_cli.workspace.relevance import Haystack, find_hits, score_hits

HIDDEN = {
    "code": "it is in code",
    "quote": "it is in a quoted line",
    "address": "it is in an address",
    "word": "it directly follows a letter or digit",
}
NOBODY = "no member has this name"
OWN_NAME = "it is the author's own name"
UNDER = "below its threshold"
ALL = "everyone"
ADDED = "named in next_mentions"


@dataclass(frozen=True)
class MentionReason:
    """The result of an `@`: `ids` are the members it names, `by` is the kind of name that matched.

    If it names no member, `why` is the reason. `count` is the number of its occurrences.
    """

    written: str
    ids: list[str]
    by: str
    why: str
    count: int = 1


@dataclass(frozen=True)
class Naming:
    """A message and the names in it.

    `calls` are the agents that a reply calls after all limits; None if the message is no reply.
    `refused` are the agents that it may not call, with the reason.

    `added` are the agents that only the `next_mentions` of a reply's output name: an id, or the
    name as written if no member has it.
    """

    message: str
    author: str
    content: str
    planted: bool = False
    names: list[MentionReason] = field(default_factory=list)
    calls: list[str] | None = None
    refused: dict[str, str] = field(default_factory=dict)
    added: list[MentionReason] = field(default_factory=list)


@dataclass(frozen=True)
class Called:
    """A reason why an agent had to reply in a turn: the author of its mention, else `why`.

    `turn` counts over the chain.
    """

    turn: int
    must: dict[str, list[str]]
    why: str
    deferred: list[str]


@dataclass(frozen=True)
class Chosen:
    """The decision of a supervisor before a turn; `fallback` is why the free rules decided."""

    turn: int
    supervisor: str
    agents: list[str]
    order: str
    reason: str
    done: bool
    fallback: str
    replan: bool


@dataclass(frozen=True)
class FoundWord:
    """A word of a member that was found, and the messages that contain it."""

    word: str
    kind: str
    messages: list[str]


@dataclass(frozen=True)
class Other:
    """A member that did not have to reply, with the evidence and the decision.

    `decision` is `asked`, `passed over` or `no candidate`. `relevance` is None if it was not
    measured.
    """

    agent: str
    decision: str
    why: str = ""
    relevance: float | None = None
    threshold: float | None = None
    found: list[FoundWord] = field(default_factory=list)


@dataclass(frozen=True)
class Others:
    """The decisions on all other members in a turn, the most relevant first.

    They are based on the `searched` messages.
    """

    turn: int
    selection: str
    searched: list[str]
    others: list[Other]


Explanation = Naming | Called | Chosen | Others


def explain_step(step: StepResult, team: Team) -> list[Explanation]:
    """Return the step's messages and turns, in the order of the transcript."""
    return list(_explain_events(step.events, team, step.before))


def document(result: ScenarioResult) -> list[list[dict[str, Any]]]:
    """Return the explanation of each step as JSON."""
    return [
        [dataclasses.asdict(reason) for reason in explain_step(step, result.team)]
        for step in result.steps
    ]


def _explain_events(
    events: Iterable[Event], team: Team, before: Iterable[Event]
) -> Iterator[Explanation]:
    """Explain each event, with the chain as the fold (and so the engine) has it.

    `before` are earlier events of the chain.
    """
    fold = Fold()
    for event in before:
        fold.apply(event)
    for event in events:
        chain = fold.open
        match event:
            case MessageEvent():
                opener = "user" if event.chain is None else event.message.author_id
                names = _names(event.message, opener, team)
                yield _explain_naming(event.message, names, planted=event.planted)
            case ReplyFinished(message=Message() as message) if chain:
                names = _names(message, chain.opening.message.author_id, team)
                yield _explain_naming(
                    message,
                    names,
                    calls=event.next_mentions,
                    refused=event.refused,
                    added=_explain_added(event, message, names, team),
                )
            case Supervised() if chain:
                yield _explain_choice(event, chain)
            case Candidates() if chain and chain.turns:
                yield _explain_others(event, chain, team)
            case _:
                pass
        fold.apply(event)
        if fold.open and fold.open.turns and event is fold.open.turns[-1].started:
            yield _explain_called(fold.open, team)


def _explain_naming(message: Message, names: list[MentionReason], **fields: Any) -> Naming:
    content = message.content or " ".join(message.reactions)
    return Naming(message.id, message.author_id, content, names=names, **fields)


def _names(message: Message, opener: str, team: Team) -> list[MentionReason]:
    """Return the result of each `@`; equal ones are merged."""
    spots = mentions.find_mention_spots(message.content, mentions.build_roster(team))
    return [
        dataclasses.replace(_explain_mention(spot, message.author_id, opener, team), count=count)
        for spot, count in Counter(spots).items()
    ]


def _explain_added(
    event: ReplyFinished, message: Message, names: list[MentionReason], team: Team
) -> list[MentionReason]:
    """Return the names that the text of a reply does not explain."""
    # Everyone at once calls nobody where that is not allowed.
    is_all_allowed = team.config.agents_may_mention_all
    in_text = _named_by(names)
    calling = in_text if is_all_allowed else _named_by(use for use in names if use.by != ALL)
    added = [member_id for member_id in event.next_mentions if member_id not in calling]
    added += [
        member_id for member_id in (*event.refused, *message.mentions) if member_id not in in_text
    ]
    unknown = {visible_text.fold_name(use.written) for use in names if use.why == NOBODY}
    unnamed = [name for name in event.unresolved if visible_text.fold_name(name) not in unknown]
    return [
        *(MentionReason("", [member_id], ADDED, "") for member_id in dict.fromkeys(added)),
        *(MentionReason(name, [], ADDED, NOBODY) for name in unnamed),
    ]


def _named_by(names: Iterable[MentionReason]) -> set[str]:
    return {member_id for name_used in names for member_id in name_used.ids}


def _explain_mention(spot: MentionSpot, author: str, opener: str, team: Team) -> MentionReason:
    """Return the members that an `@` names, by which name, or the reason for none."""
    if spot.hidden is not None:
        return MentionReason(spot.written, [], "", HIDDEN[spot.hidden])
    match spot.target:
        case Everybody():
            ids, by = [member.id for member in team.members], ALL
        case Opener():
            ids, by = [opener], "who opened the chain"
        case Somebody(id=member_id):
            ids, by = [member_id], _which_name(spot.written, member_id, team)
        case None:
            return MentionReason(spot.written, [], "", NOBODY)
    other_ids = [member_id for member_id in ids if member_id != author]
    return MentionReason(spot.written, other_ids, by, "" if other_ids else OWN_NAME)


def _which_name(written: str, member_id: str, team: Team) -> str:
    folded = visible_text.fold_name(written)
    if folded == visible_text.fold_name(member_id):
        return "id"
    member = team.member(member_id)
    aliases = member.profile.aliases if member else ()
    return "alias" if folded in map(visible_text.fold_name, aliases) else "name"


def _explain_called(chain: Chain, team: Team) -> Called:
    event = chain.turns[-1].started
    must = {agent: event.mentioned_by.get(agent, []) for agent in event.must}
    reason = ""
    if must and not chain.opening.message.mentions and event.depth == 0:
        reason = "default_responders" if team.config.default_responders else "the only member"
    return Called(chain.turns[-1].number, must, reason, event.deferred)


def _explain_choice(event: Supervised, chain: Chain) -> Chosen:
    return Chosen(
        turn=len(chain.turns) + 1,
        supervisor=event.agent,
        agents=event.should_reply,
        order=event.order,
        reason=event.reason,
        done=event.done or not (event.should_reply or event.fallback),
        fallback=event.fallback,
        replan=event.replan,
    )


def _explain_others(event: Candidates, chain: Chain, team: Team) -> Others:
    """Return all members that did not have to reply."""
    turn = chain.turns[-1]
    names = mentions.build_roster(team)
    messages = chain.new_messages(turn)
    haystack = Haystack([message.content for message in messages], names)
    by_message = {message.id: Haystack([message.content], names) for message in messages}
    order = {agent: index for index, agent in enumerate((*event.asked, *event.passed_over))}
    judged = [
        _explain_candidate(member, event, haystack, by_message)
        if member.id in order
        else Other(member.id, "no candidate", _why_none(member, chain, team))
        for member in team.members
        if member.id not in turn.started.must
    ]
    judged.sort(key=lambda one: order.get(one.agent, len(order)))
    return Others(turn.number, team.config.selection, list(by_message), judged)


def _explain_candidate(
    member: Member, event: Candidates, haystack: Haystack, by_message: dict[str, Haystack]
) -> Other:
    found_words = []
    for hit in find_hits(haystack, member):
        messages = [name for name, content in by_message.items() if hit.is_in(content)]
        found_words.append(FoundWord(hit.word, hit.kind, messages))
    over = event.passed_over.get(member.id)
    return Other(
        agent=member.id,
        decision="passed over" if over else "asked",
        why=(over.reason or UNDER) if over else "",
        relevance=score_hits(len(found_words)),
        threshold=member.profile.response.threshold,
        found=found_words,
    )


def _why_none(member: Member, chain: Chain, team: Team) -> str:
    if member.id in chain.turns[-1].started.deferred:
        return "deferred to the next turn"
    if member.id in chain.called:
        return "called in this chain already"
    selection = team.config.selection
    is_by_selection = selection in ("none", "relevance_if_unnamed")
    return f"selection: {selection}" if is_by_selection else "auto_respond: false"


EXCERPT = 60  # characters of a message that tell which one it is


def draw_explanation(result: ScenarioResult, say: Words) -> Iterator[Line]:
    """Yield the lines for every step of a scenario that has messages."""
    for step in result.steps:
        reasons = explain_step(step, result.team)
        if not reasons:
            continue
        title = lines.step(step.number, step.name, say)
        yield line(INDENT, Span(say("why, in {step}", step=title), "dim"))
        for reason in reasons:
            match reason:
                case Naming():
                    yield from _draw_naming(reason, result.team, say)
                case Called():
                    yield from _draw_called(reason, say)
                case Chosen():
                    yield _draw_choice(reason, say)
                case Others():
                    yield from _draw_others(reason, say)


def _draw_naming(naming: Naming, team: Team, say: Words) -> Iterator[Line]:
    text = escape_line(shorten_text(naming.content, EXCERPT))
    planted = f" ({say('planted')})" if naming.planted else ""
    head = Span(f"{naming.message} {escape_line(naming.author)}{planted}{say(': ')}", "strong")
    yield line(INDENT * 2, head, text, hang=6)
    entries = (*naming.names, *naming.added)
    yield from (_draw_mention(entry, say) for entry in entries)
    named = dict.fromkeys(member_id for entry in entries for member_id in entry.ids)
    if naming.calls is not None and naming.calls != list(filter(team.member, named)):
        text = say("so it calls: {who}", who=_join_names(naming.calls, say))
        yield line(INDENT * 3, text, hang=8)
    for agent, reason in naming.refused.items():
        who, problem = escape_line(agent), escape_line(reason)
        text = say("may not call {who}: {reason}", who=who, reason=problem)
        yield line(INDENT * 3, text, hang=8)


def _draw_mention(entry: MentionReason, say: Words) -> Line:
    reason = f"{say(': ')}{say(entry.why)}" if entry.why else ""
    if entry.by == ADDED:
        label = f"{escape_line(entry.written)} " if entry.written else ""
        reason += f" ({say(ADDED)})"
    else:
        times = f" ×{entry.count}" if entry.count > 1 else ""
        label = f"@{escape_line(entry.written)}{times} "
        reason = reason or f" ({say(entry.by)})"
    spans = (Span("→ ", "dim"), Span(_join_names(entry.ids, say)), Span(reason, "dim"))
    return line(INDENT * 3, label, spans, hang=8)


def _draw_called(called: Called, say: Words) -> Iterator[Line]:
    name = say(", ").join(
        _must(agent, by, called.why, say) for agent, by in called.must.items()
    ) or say("none")
    text = say("must reply: {who}", who=name)
    yield line(INDENT * 2, _turn(called.turn, say), f" · {text}", hang=6)
    if called.deferred:
        deferred = _join_names(called.deferred, say)
        yield line(INDENT * 3, say("deferred to the next turn: {who}", who=deferred), hang=8)


def _draw_choice(chosen: Chosen, say: Words) -> Line:
    if chosen.fallback:
        text = "{who} decided nothing, the free rules decide: {why}"
    elif chosen.done:
        text = "{who} ends the chain"
    elif chosen.order == "sequence":
        text = "{who} calls one after the other: {agents}"
    else:
        text = "{who} calls {agents}"
    agents, why = _join_names(chosen.agents, say), say.message(escape_line(chosen.fallback))
    text = say(text, who=escape_line(chosen.supervisor), agents=agents, why=why)
    again = say(" (asked for another plan)") if chosen.replan else ""
    has_reason = chosen.reason and not chosen.fallback
    reason = f"{say(': ')}{escape_line(chosen.reason)}" if has_reason else ""
    return line(INDENT * 2, _turn(chosen.turn, say), f" · {text}{reason}{again}", hang=6)


def _must(agent: str, by: Sequence[str], reason: str, say: Words) -> str:
    cause = say("named by {who}", who=_join_names(by, say)) if by else say(reason)
    name = escape_line(agent)
    return say("{who} ({reason})", who=name, reason=cause) if cause else name


def _draw_others(others: Others, say: Words) -> Iterator[Line]:
    if not others.others:
        return
    searched = say("who may reply, judged by {messages}", messages=say(", ").join(others.searched))
    yield line(INDENT * 2, _turn(others.turn, say), f" · {searched}", hang=6)
    not_asked: dict[str, list[str]] = {}
    for candidate in others.others:
        if candidate.relevance is None:
            not_asked.setdefault(candidate.why, []).append(candidate.agent)
            continue
        yield _draw_judged(candidate, candidate.relevance, others.selection, say)
        for hit in candidate.found:
            location = say("in {messages}", messages=say(", ").join(hit.messages))
            span = Span(f"({say(hit.kind)}) {location}", "dim")
            yield line(INDENT * 4, f"{escape_line(hit.word)} ", span, hang=10)
    for reason, agents in not_asked.items():
        span = Span(f"{say('no candidate')} · {say(reason)}", "dim")
        yield line(INDENT * 3, f"{_join_names(agents, say)}{say(': ')}", span, hang=8)


def _draw_judged(candidate: Other, relevance: float, selection: str, say: Words) -> Line:
    decision = Span(say(candidate.decision), "added" if candidate.decision == "asked" else "dim")
    sum_text = f" · {_sum(candidate, relevance, selection, say)}"
    if candidate.why and candidate.why != UNDER:
        sum_text += f" · {say(candidate.why)}"
    name = f"{escape_line(candidate.agent)}{say(': ')}"
    return line(INDENT * 3, name, decision, sum_text, hang=8)


def _sum(candidate: Other, relevance: float, selection: str, say: Words) -> str:
    """Return `3 hits: 1 - 0.6^3 = 0.784 >= 0.6`."""
    count = len(candidate.found)
    hits = lines.count_of(say, count, "1 hit", "{count} hits")
    text = f"{hits}{say(': ')}1 - 0.6^{count} = {relevance:g}"
    if selection == "ask" or candidate.threshold is None:
        return f"{text} (selection: {selection})"
    return f"{text} {'>=' if relevance >= candidate.threshold else '<'} {candidate.threshold:g}"


def _turn(turn: int, say: Words) -> Span:
    return Span(say("turn {turn}", turn=turn), "strong")


def _join_names(names: Sequence[str], say: Words) -> str:
    return say(", ").join(map(escape_line, names)) or say("none")
