"""Compare two conversations: match their entries, and list what differs.

Two conversations are the same if their canonical forms are, except for the numbers of chains, turns
and replies, and derived sums. Nothing is drawn here (`reports.diff.render` does that).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from arena_cli.reports.diff import model, text
from arena_cli.reports.diff.model import (
    Compared,
    ComparedConversation,
    ConversationDiff,
    Difference,
    Entry,
    EntryDiff,
    Fields,
    Parted,
    ReplyDiff,
    Side,
    Told,
    TurnDiff,
)
from arena_cli.transcript.compare import Changed, list_changes

# A recording keeps no estimates, and failures in another form; what was shown is hashed there
# without what its scenario ignores. A session has no inputs.
_OF_ONE_KIND = frozenset(
    {
        *("input_hash", "input_tokens", "usage", "error", "failure", "earlier_attempts"),
        *(f"input.{name}" for name in (*model.OF_INPUT, "messages")),
    }
)
_HEARD = frozenset({"content", "structured", "attachments", "status"})
_PARTING = ("must", "deferred", "asked")


def between(
    a: Compared,
    b: Compared,
    ours: Sequence[ComparedConversation],
    theirs: Sequence[ComparedConversation],
) -> Difference:
    """Pair the conversations by case and session, or two single ones directly, and compare them."""
    passed_over = frozenset() if a.kind == b.kind else _OF_ONE_KIND
    if len(ours) == len(theirs) == 1:
        diffs = [_conversations(ours[0], theirs[0], passed_over)]
    else:
        by_key = {(conversation.case, conversation.session): conversation for conversation in ours}
        right = {(conversation.case, conversation.session): conversation for conversation in theirs}
        diffs = [
            _conversations(by_key.get(key), right.get(key), passed_over)
            for key in dict.fromkeys([*by_key, *right])
        ]
    return Difference(a=a, b=b, conversations=diffs)


def _conversations(
    a: ComparedConversation | None, b: ComparedConversation | None, passed_over: frozenset[str]
) -> ConversationDiff:
    present = a or b
    assert present is not None
    header = {
        "case": present.case,
        "session": present.session,
        "a": _measure_size(a),
        "b": _measure_size(b),
    }
    if a is None or b is None:
        return ConversationDiff(**header, only="a" if a else "b")
    comparing = _Comparing(passed_over)
    entry_diffs = list(comparing.entries(a.entries, b.entries))
    return ConversationDiff(
        **header,
        settings=list(_settings(a.settings, b.settings, mixed=bool(passed_over))),
        parted=comparing.parted,
        entries=entry_diffs,
    )


def _measure_size(conversation: ComparedConversation | None) -> Told | None:
    if conversation is None:
        return None
    return Told(
        chains=conversation.chains,
        turns=conversation.turns,
        replies=conversation.replies,
        usage=conversation.usage,
    )


def _settings(a: Fields, b: Fields, *, mixed: bool) -> Iterator[Changed]:
    """Yield changed settings of members and agents that both sides have."""
    owners = [{_owner(path) for path in side} for side in (a, b)]
    for change in list_changes(a, b):
        owner = _owner(change.field)
        of_agent = change.field.startswith("agents[")
        if owner and not all(owner in owner_set for owner_set in owners):
            continue
        if not (mixed and of_agent and not change.field.endswith(".adapter.type")):
            yield change


def _owner(path: str) -> str:
    """Return `members[tester]` of `members[tester].name`; "" for a setting of the team."""
    prefix, bracket, _ = path.partition("]")
    return prefix if bracket else ""


class _Comparing:
    """Compares entries in order; `parted` is the first place where a chain took another course.

    `passed_over` are fields of replies and chains that the kinds of both sides do not share.
    """

    def __init__(self, passed_over: frozenset[str]) -> None:
        self._passed_over = passed_over
        self._heard_alike = True
        self.parted: Parted | None = None

    def entries(self, a: Sequence[Entry], b: Sequence[Entry]) -> Iterator[EntryDiff]:
        """Yield the entries that differ, paired by the messages that opened them."""
        keys = [[entry.key for entry in side] for side in (a, b)]
        for left_index, right in text.pairs(*keys):
            first = a[left_index] if left_index is not None else None
            second = b[right] if right is not None else None
            if first and second and first.kind == second.kind:
                if first.text != second.text:
                    yield from self._pair(first, second)
                continue
            if first:
                yield self._alone(first, "a")
            if second:
                yield self._alone(second, "b")

    def _alone(self, entry: Entry, side: Side) -> EntryDiff:
        if entry.kind != "judge":
            self._heard_alike = False
        content = entry.content()
        fields: Fields = {"kind": entry.kind, side: entry.chain, "only": side}
        if entry.kind != "chain":
            return EntryDiff(**fields, opening=_opening(content), fields=self._of(side, content))
        return EntryDiff(
            **fields,
            opening=_opening(content["opening"]),
            fields=self._of(side, _of_chain(content)),
            turns=[self._turn_alone(turn, side) for turn in content["turns"]],
        )

    def _turn_alone(self, turn: Fields, side: Side) -> TurnDiff:
        replies = [
            ReplyDiff(agent=agent, only=side, fields=self._of(side, reply))
            for agent, reply in turn["replies"].items()
        ]
        fields = self._of(side, _of_turn(turn))
        return TurnDiff(turn=turn["turn"], only=side, fields=fields, replies=replies)

    def _pair(self, entry: Entry, second: Entry) -> Iterator[EntryDiff]:
        a, b = entry.content(), second.content()
        header: Fields = {"kind": entry.kind, "a": entry.chain, "b": second.chain}
        if entry.kind != "chain":
            fields = self._changed(a, b)
            self._hear(fields, heard=entry.kind == "message")
            if fields:
                yield EntryDiff(**header, opening=_opening(a), fields=fields)
            return
        fields = self._changed(_of_chain(a), _of_chain(b))
        self._hear(fields)
        turns = list(self._turns(a["turns"], b["turns"]))
        if fields or turns:
            if self.parted is None and entry.chain and second.chain:
                self.parted = _parted(entry.chain, second.chain, a, b)
            yield EntryDiff(**header, opening=_opening(a["opening"]), fields=fields, turns=turns)

    def _turns(self, a: Sequence[Fields], b: Sequence[Fields]) -> Iterator[TurnDiff]:
        ours, theirs = ({turn["turn"]: turn for turn in side} for side in (a, b))
        for number in sorted({*ours, *theirs}):
            first, second = ours.get(number), theirs.get(number)
            if first is None or second is None:
                self._heard_alike = False
                yield self._turn_alone(first or second or {}, "a" if first else "b")
                continue
            fields = self._changed(_of_turn(first), _of_turn(second))
            replies = list(self._replies(first["replies"], second["replies"]))
            if fields or replies:
                yield TurnDiff(turn=number, fields=fields, replies=replies)

    def _replies(self, a: Mapping[str, Fields], b: Mapping[str, Fields]) -> Iterator[ReplyDiff]:
        """Yield the replies that differ, by phase: replies of one phase do not see each other."""
        for phase in ("A", "B", None):
            diffs = []
            for agent in dict.fromkeys([*a, *b]):
                first, second = a.get(agent), b.get(agent)
                if (first or second or {}).get("phase") == phase:
                    diffs.append(self._reply(agent, first, second))
            yield from (diff for diff in diffs if diff)
            for diff in filter(None, diffs):
                self._hear(diff.fields, heard=True)

    def _reply(self, agent: str, first: Fields | None, second: Fields | None) -> ReplyDiff | None:
        if first is None or second is None:
            side: Side = "a" if first is not None else "b"
            return ReplyDiff(agent=agent, only=side, fields=self._of(side, first or second or {}))
        fields = self._changed(first, second)
        if not fields:
            return None
        otherwise = self._heard_alike and any(first.field == "input_hash" for first in fields)
        return ReplyDiff(agent=agent, shown_otherwise=otherwise, fields=fields)

    def _hear(self, fields: Iterable[Changed], *, heard: bool = True) -> None:
        """Record that later inputs differ if one of these fields changes what agents see."""
        if heard and any(field.field in _HEARD for field in fields):
            self._heard_alike = False

    def _changed(self, a: Fields, b: Fields) -> list[Changed]:
        return [change for change in list_changes(a, b) if change.field not in self._passed_over]

    def _of(self, side: Side, fields: Fields) -> list[Changed]:
        """Return all fields of an item that the other side does not have."""
        return self._changed(fields, {}) if side == "a" else self._changed({}, fields)


def _opening(message: Fields) -> str:
    return str(message.get("content", ""))


def _of_chain(chain: Fields) -> Fields:
    """Return the fields of a chain: its opening, its system messages, its end."""
    messages = [message.get("content", "") for message in chain["messages"]]
    system_fields = {"messages": messages} if messages else {}
    return {**chain["opening"], **system_fields, **chain["end"]}


def _of_turn(turn: Fields) -> Fields:
    return {name: value for name, value in turn.items() if name not in ("turn", "replies")}


def _parted(number: int, second_number: int, a: Fields, b: Fields) -> Parted | None:
    ours, theirs = ({turn["turn"]: turn for turn in side["turns"]} for side in (a, b))
    for turn in sorted({*ours, *theirs}):
        fields = list_changes(_way(ours.get(turn, {})), _way(theirs.get(turn, {})))
        if fields:
            return Parted(a=number, b=second_number, turn=turn, fields=fields)
    fields = list_changes(*({"end": fields_of_side["end"].get("end")} for fields_of_side in (a, b)))
    return Parted(a=number, b=second_number, turn=None, fields=fields) if fields else None


def _way(turn: Fields) -> Fields:
    """Return the routing of a turn: who had to reply, was asked, was passed over."""
    routing = {name: turn[name] for name in _PARTING if name in turn}
    passed_over = turn.get("passed_over")
    return {**routing, "passed_over": sorted(passed_over)} if passed_over else routing
