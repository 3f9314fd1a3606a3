"""Why who spoke: of each message whom it names, of each turn how near everyone was to being asked.

Read from the events of a step and the team, with the team's own rules of mentions and relevance.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from arena_cli.ground.protocol import Message
from arena_cli.scenario.result import ScenarioResult, StepResult
from arena_cli.team import mentions, relevance, roster
from arena_cli.team.mentions import Spot
from arena_cli.team.model import Member, Team
from arena_cli.team.relevance import Haystack
from arena_cli.team.roster import Everybody, Opener, Somebody
from arena_cli.transcript.events import Candidates, Event, MessageEvent, ReplyFinished, TurnStarted
from arena_cli.transcript.fold import ChainState, Fold

HIDDEN = {
    "code": "it stands in code",
    "quote": "it stands in a quoted line",
    "address": "it stands in an address",
    "word": "it stands straight after a letter or digit",
}
NOBODY = "no member has this name"
OWN_NAME = "it is its author's own"
UNDER = "under its threshold"
ALL = "everyone"
ADDED = "named in next_mentions"


@dataclass(frozen=True)
class Named:
    """What came of an `@`. `ids` are whom it names, `by` which of their names it is.

    Where it names nobody, `why` says why not; `count` is how often it stands there.
    """

    written: str
    ids: list[str]
    by: str
    why: str
    count: int = 1


@dataclass(frozen=True)
class Naming:
    """A message and whom it names. `calls` are the agents whom a reply calls after all limits,
    `refused` those whom it may not call, with the reason; None: it is no reply.

    `added` are whom only the `next_mentions` of a reply's output name; an id, or as it is written
    there where nobody has that name.
    """

    message: str
    author: str
    content: str
    planted: bool
    names: list[Named]
    calls: list[str] | None = None
    refused: dict[str, str] = field(default_factory=dict)
    added: list[Named] = field(default_factory=list)


@dataclass(frozen=True)
class Called:
    """Who had to reply in a turn: named by whom, else `why`. `turn` counts over the chain."""

    turn: int
    must: dict[str, list[str]]
    why: str
    deferred: list[str]


@dataclass(frozen=True)
class FoundWord:
    """A word of a member that was found, and in which messages."""

    word: str
    kind: str
    messages: list[str]


@dataclass(frozen=True)
class Other:
    """A member that did not have to reply: what was found of it, and what came of it.

    `decision` is `asked`, `passed over` or `no candidate`; `relevance` None: it was not measured.
    """

    agent: str
    decision: str
    why: str = ""
    relevance: float | None = None
    threshold: float | None = None
    found: list[FoundWord] = field(default_factory=list)


@dataclass(frozen=True)
class Others:
    """How everyone else in a turn was judged, the nearest first, by the messages `searched`."""

    turn: int
    selection: str
    searched: list[str]
    others: list[Other]


Told = Naming | Called | Others


def of(step: StepResult, team: Team) -> list[Told]:
    """The step's messages and turns, in the order of the transcript."""
    return list(_told(step.events, team))


def document(result: ScenarioResult) -> list[list[dict[str, Any]]]:
    """The same of each step, as JSON."""
    return [[dataclasses.asdict(one) for one in of(step, result.team)] for step in result.steps]


def _told(events: Iterable[Event], team: Team) -> Iterator[Told]:
    """The chain is the fold's, as the engine has it."""
    fold = Fold()
    for event in events:
        chain = fold.open
        match event:
            case MessageEvent():
                yield _message(event, team)
            case ReplyFinished(message=Message() as message) if chain:
                names = _names(message, chain.opening.message.author_id, team)
                yield _naming(
                    message,
                    names,
                    calls=event.next_mentions,
                    refused=event.refused,
                    added=_added(event, message, names, team),
                )
            case Candidates() if chain and chain.turns:
                yield _others(event, chain, team)
            case _:
                pass
        fold.apply(event)
        if isinstance(event, TurnStarted) and fold.open:
            yield _called(event, fold.open, team)


def _message(event: MessageEvent, team: Team) -> Naming:
    message = event.message
    opener = "user" if event.chain is None else message.author_id
    return _naming(message, _names(message, opener, team), planted=event.planted)


def _naming(message: Message, names: list[Named], **more: Any) -> Naming:
    more = {"planted": False, **more}
    return Naming(
        message=message.id,
        author=message.author_id,
        content=message.content,
        names=names,
        **more,
    )


def _names(message: Message, opener: str, team: Team) -> list[Named]:
    """What came of each `@`, the same ones together."""
    spots = mentions.spots(message.content, mentions.roster_of(team))
    return [
        dataclasses.replace(_named(spot, message.author_id, opener, team), count=count)
        for spot, count in Counter(spots).items()
    ]


def _added(event: ReplyFinished, message: Message, names: list[Named], team: Team) -> list[Named]:
    """Whom the text of a reply does not account for."""
    in_text = {one for named in names for one in named.ids}
    # Everyone at once calls nobody where that is not allowed.
    calling = team.config.agents_may_mention_all
    callable_ = {one for named in names if calling or named.by != ALL for one in named.ids}
    added = [one for one in event.next_mentions if one not in callable_]
    added += [one for one in (*event.refused, *message.mentions) if one not in in_text]
    unknown = {roster.folded_name(named.written) for named in names if named.why == NOBODY}
    return [
        *(Named("", [one], ADDED, "") for one in dict.fromkeys(added)),
        *(
            Named(name, [], ADDED, NOBODY)
            for name in event.unresolved
            if roster.folded_name(name) not in unknown
        ),
    ]


def _named(spot: Spot, author: str, opener: str, team: Team) -> Named:
    """Whom it names, by which name, or why nobody."""
    if spot.hidden is not None:
        return Named(spot.written, [], "", HIDDEN[spot.hidden])
    match spot.target:
        case Everybody():
            ids, by = [member.id for member in team.members], ALL
        case Opener():
            ids, by = [opener], "who opened the chain"
        case Somebody(id=one):
            ids, by = [one], _which_name(spot.written, one, team)
        case None:
            return Named(spot.written, [], "", NOBODY)
    others = [one for one in ids if one != author]
    return Named(spot.written, others, by, "") if others else Named(spot.written, [], by, OWN_NAME)


def _which_name(written: str, one: str, team: Team) -> str:
    folded = roster.folded_name(written)
    if folded == roster.folded_name(one):
        return "id"
    member = team.member(one)
    aliases = member.profile.aliases if member else ()
    return "alias" if folded in map(roster.folded_name, aliases) else "name"


def _called(event: TurnStarted, chain: ChainState, team: Team) -> Called:
    must = {agent: event.mentioned_by.get(agent, []) for agent in event.must}
    why = ""
    if must and not chain.opening.message.mentions and event.depth == 0:
        why = "default_responders" if team.config.default_responders else "the only member"
    return Called(event.depth + 1, must, why, event.deferred)


def _others(event: Candidates, chain: ChainState, team: Team) -> Others:
    """Everyone who did not have to reply."""
    turn = chain.turns[-1]
    names = mentions.roster_of(team)
    messages = chain.new_messages(turn)
    whole = Haystack([one.content for one in messages], names)
    parts = {one.id: Haystack([one.content], names) for one in messages}
    order = {agent: place for place, agent in enumerate((*event.asked, *event.passed_over))}
    judged = [
        _judged(member, event, whole, parts)
        if member.id in order
        else Other(member.id, "no candidate", _why_none(member, chain, team))
        for member in team.members
        if member.id not in turn.started.must
    ]
    judged.sort(key=lambda one: order.get(one.agent, len(order)))
    return Others(turn.started.depth + 1, team.config.selection, list(parts), judged)


def _judged(
    member: Member, event: Candidates, whole: Haystack, parts: dict[str, Haystack]
) -> Other:
    found = [
        FoundWord(hit.word, hit.kind, [name for name, part in parts.items() if hit.is_in(part)])
        for hit in relevance.found(whole, member)
    ]
    over = event.passed_over.get(member.id)
    return Other(
        agent=member.id,
        decision="passed over" if over else "asked",
        why=(over.reason or UNDER) if over else "",
        relevance=relevance.of_hits(len(found)),
        threshold=member.profile.response.threshold,
        found=found,
    )


def _why_none(member: Member, chain: ChainState, team: Team) -> str:
    if member.id in chain.turns[-1].started.deferred:
        return "deferred to the next turn"
    if member.id in chain.called:
        return "called in this chain already"
    return "selection: none" if team.config.selection == "none" else "auto_respond: false"
