"""Compare two conversations: match their entries, list what differs, and draw it.

Two conversations are the same if their canonical forms are, except for the numbers of chains, turns
and replies, and derived sums.

It is drawn as lines of pieces (`reports.lines`): the first difference, then chain by chain. Texts
of agents are escaped. Fields that follow from others are only named, at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from arena_cli.reports import lines
from arena_cli.reports.diff import model, text
from arena_cli.reports.diff.model import (
    Compared,
    ComparedConversation,
    ConversationDiff,
    ConversationSize,
    Difference,
    Entry,
    EntryDiff,
    Fields,
    Parted,
    ReplyDiff,
    Side,
    TurnDiff,
)
from arena_cli.reports.diff.text import GONE, NEW, NEW_STYLE, OLD_STYLE, draw_text_diff, marked
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.transcript.compare import Changed, list_changes
from arena_cli.util.text import cut_text, escape_line

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
    left, right = ({(item.case, item.session): item for item in side} for side in (ours, theirs))
    pairs = [(left.get(key), right.get(key)) for key in dict.fromkeys([*left, *right])]
    if len(ours) == len(theirs) == 1:
        pairs = [(ours[0], theirs[0])]
    diffs = [_conversations(*pair, passed_over) for pair in pairs]
    return Difference(a=a, b=b, conversations=diffs)


def _conversations(
    a: ComparedConversation | None, b: ComparedConversation | None, passed_over: frozenset[str]
) -> ConversationDiff:
    present = a or b
    assert present is not None
    header: Fields = {"case": present.case, "session": present.session}
    header |= {side: _measure_size(item) for side, item in (("a", a), ("b", b)) if item}
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


def _measure_size(conversation: ComparedConversation) -> ConversationSize:
    return ConversationSize(
        **{name: getattr(conversation, name) for name in ConversationSize.model_fields}
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


STYLES: dict[Side, str] = {"a": OLD_STYLE, "b": NEW_STYLE}
MARKS: dict[Side, str] = {"a": GONE, "b": NEW}
LONGEST_OPENING = 48
LONGEST_VALUE = 60

FOLLOWS = frozenset(
    {
        *("input_hash", "input_tokens", "input.messages", "input.mentioned_by"),
        *("usage", "adapter", "author_name", "reply_to", "trigger", "mentioned_by"),
        *("called", "replied", "next", "turns", "replies"),
    }
)
"""What differs because something else does, or in every run of a model."""

_TEXTS = ("content", "error")
_ALONE = frozenset({*_TEXTS, "structured", "attachments", "failure", "messages"})


def draw_difference(difference: Difference, say: Words) -> Iterator[Line]:
    """Yield the lines for the whole difference."""
    single = difference.conversations[0] if len(difference.conversations) == 1 else None
    yield compared(difference.a, "a", say, single.a if single else None)
    yield compared(difference.b, "b", say, single.b if single else None)
    for conversation in difference.conversations:
        drawing = _Drawing(say)
        if not conversation.same and not single:
            yield EMPTY
            yield from drawing.heading(conversation)
        yield from drawing.conversation(conversation)
    if difference.same:
        yield EMPTY
        yield line(Span(say("no difference"), "strong"))


def compared(
    compared_side: Compared, side: Side, say: Words, size: ConversationSize | None = None
) -> Line:
    """Return `A  session login` and the size of that side."""
    kinds = {
        "session": "session {name}",
        "recording": "recording {name}",
        "result": "result {name}",
    }
    name = Span(escape_line(compared_side.name), "strong")
    suffix = [BETWEEN, _draw_size(size, say)] if size else []
    return line(_side(side), say.spans(kinds[compared_side.kind], name=[name]), suffix, hang=3)


def fields(changed: Iterable[Changed], say: Words, *, indent: str) -> Iterator[Line]:
    """Yield each field with its values on both sides."""
    for change in changed:
        yield from _field(change, say, indent)


def only(side: Side | None, say: Words) -> list[Span]:
    """Return ` · only in A`, to append to an item; nothing for an item that both sides have."""
    if side is None:
        return []
    return [BETWEEN, Span(say("only in {side}", side=side.upper()), STYLES[side])]


def left_out(names: Iterable[str], say: Words) -> Line:
    """Return the line that names the fields whose differences are not shown."""
    text = say("also differ: {fields}", fields=say(", ").join(names))
    return line(Span(f"{text} {say('(--json shows where)')}", "dim"), hang=2)


def _side(side: Side) -> Span:
    return Span(f"{side.upper()}  ", STYLES[side])


def _draw_size(size: ConversationSize, say: Words) -> Span:
    counts = [
        lines.count_of(say, size.chains, "1 chain", "{count} chains"),
        lines.count_of(say, size.turns, "1 turn", "{count} turns"),
        lines.count_of(say, size.replies, "1 reply", "{count} replies"),
    ]
    if size.usage:
        counts.append(lines.tokens(size.usage))
    return Span(" · ".join(counts), "dim")


class _Drawing:
    """Draws the differences of two conversations; keeps the fields that it left out."""

    def __init__(self, say: Words) -> None:
        self._say = say
        self._left_out: dict[str, None] = {}
        self._parting: Parted | None = None

    def heading(self, conversation_diff: ConversationDiff) -> Iterator[Line]:
        """Yield the lines that name a conversation of a recording, and its size."""
        say = self._say
        names = {
            "case {name}": conversation_diff.case,
            "session {name}": conversation_diff.session,
        }
        shown = [say(text, name=escape_line(name)) for text, name in names.items() if name]
        if shown:
            yield line(Span(say(", ").join(shown), "strong"))
        sizes: dict[Side, ConversationSize | None] = {
            "a": conversation_diff.a,
            "b": conversation_diff.b,
        }
        for side, size in sizes.items():
            if size:
                note = only(conversation_diff.only, say)
                yield line(_side(side), _draw_size(size, say), note, hang=3)

    def conversation(self, conversation_diff: ConversationDiff) -> Iterator[Line]:
        """Yield the differences in a conversation."""
        say = self._say
        if conversation_diff.settings:
            yield EMPTY
            yield line(Span(say("settings"), "strong"))
            yield from fields(conversation_diff.settings, say, indent=INDENT)
        if conversation_diff.parted:
            self._parting = conversation_diff.parted
            yield EMPTY
            yield from self._parted(conversation_diff.parted)
        for entry in conversation_diff.entries:
            yield from self._entry(entry)
        if self._left_out:
            yield EMPTY
            yield left_out(self._left_out, say)

    def _parted(self, parted: Parted) -> Iterator[Line]:
        say = self._say
        chain = _numbers(parted.a, parted.b, say)
        text = (
            say("they diverge in {chain}, turn {turn}", chain=chain, turn=parted.turn)
            if parted.turn is not None
            else say("they diverge at the end of {chain}", chain=chain)
        )
        yield line(Span(text, "strong"))
        yield from fields(parted.fields, say, indent=INDENT)

    def _entry(self, entry: EntryDiff) -> Iterator[Line]:
        rows = list(self._of_entry(entry))
        if rows or entry.only:
            yield EMPTY
            yield self._heading(entry)
            yield from rows

    def _heading(self, entry: EntryDiff) -> Line:
        say = self._say
        kinds = {
            "chain": _numbers(entry.a, entry.b, say),
            "message": say("a message between chains"),
            "settings": say("the team changes"),
            "judge": say("a judge's call"),
        }
        spans = [Span(kinds[entry.kind], "strong"), *only(entry.only, say)]
        first = entry.opening.strip().partition("\n")[0]
        if first and not entry.only:  # else all of it stands below
            short = cut_text(first, LONGEST_OPENING)
            spans += [BETWEEN, Span(escape_line(short) + ("" if short == first else "…"))]
        return line(spans, hang=2)

    def _of_entry(self, entry: EntryDiff) -> Iterator[Line]:
        yield from self._fields(entry.fields, entry.only, INDENT)
        parting = self._parting
        for turn in entry.turns:
            is_parting = parting and (parting.a, parting.turn) == (entry.a, turn.turn)
            yield from self._turn(turn, parting.fields if parting and is_parting else [])

    def _turn(self, turn: TurnDiff, shown_fields: Sequence[Changed]) -> Iterator[Line]:
        """Yield a turn, without the fields that are already shown above."""
        name = self._say("turn {turn}", turn=turn.turn)
        remaining = [field for field in turn.fields if field not in shown_fields]
        rows = list(self._fields(remaining, turn.only, INDENT * 2))
        if rows or (turn.only and not turn.replies):
            yield line(INDENT, Span(name, "strong"), only(turn.only, self._say), hang=4)
            yield from rows
        for reply in turn.replies:
            rows = list(self._reply(reply))
            if rows or reply.only:
                agent = Span(escape_line(reply.agent), "strong")
                side_note = only(reply.only, self._say)
                yield line(INDENT, Span(name), BETWEEN, agent, side_note, hang=4)
                yield from rows

    def _reply(self, reply: ReplyDiff) -> Iterator[Line]:
        if reply.shown_otherwise:
            text = self._say("its input differs, although all earlier messages are equal")
            yield line(INDENT * 2, Span(text, "warned"), hang=6)
        yield from self._fields(reply.fields, reply.only, INDENT * 2)

    def _fields(self, changed: Sequence[Changed], side: Side | None, indent: str) -> Iterator[Line]:
        called = next((change for change in changed if change.field == "next_mentions"), None)
        for change in changed:
            if side:
                yield from self._alone(change, side, indent)
            elif change.field in FOLLOWS or _repeats(change, called):
                self._left_out[change.field] = None
            else:
                yield from _field(change, self._say, indent)

    def _alone(self, change: Changed, side: Side, indent: str) -> Iterator[Line]:
        """Yield the content that only one side has: the texts, and an abnormal end."""
        value = change.a if side == "a" else change.b
        if change.field == "status" and value != "success":
            yield line(indent, Span(self._say.enum(escape_line(str(value))), STYLES[side]))
        elif change.field in _ALONE:
            yield from marked(_text(value), MARKS[side], indent=indent)


def _repeats(change: Changed, called: Changed | None) -> bool:
    """Return True if the names in the text repeat the agents that it calls."""
    if called is None or change.field != "mentions":
        return False
    return bool(change.a == called.a and change.b == called.b)


def _numbers(a: int | None, b: int | None, say: Words) -> str:
    if a is None or b is None or a == b:
        return say("chain {number}", number=a if a is not None else b)
    return say("chain {number}, in B {other}", number=a, other=b)


def _field(change: Changed, say: Words, indent: str) -> Iterator[Line]:
    if change.field != "content":
        yield line(indent, Span(escape_line(change.field), "dim"), hang=len(indent) + 2)
        indent += INDENT
    is_long = change.field != "passed_over" and (_is_long(change.a) or _is_long(change.b))
    if change.field in _TEXTS or is_long:
        yield from draw_text_diff(_text(change.a), _text(change.b), say, indent=indent)
        return
    sides: dict[Side, Any] = {"a": change.a, "b": change.b}
    for side, value in sides.items():
        text = f"{side.upper()} {_value(change.field, value, say)}"
        yield line(indent, Span(text, STYLES[side]), hang=len(indent) + 2)


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" in value or len(value) > LONGEST_VALUE
    if isinstance(value, list):
        return any(not isinstance(item, (str, int, float)) or _is_long(item) for item in value)
    return isinstance(value, dict) and len(json.dumps(value)) > LONGEST_VALUE


def _text(value: Any) -> str:
    """Return a value as a text of several lines."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False, indent=2)


def _value(field: str, value: Any, say: Words) -> str:
    if value is None:
        return say("nothing")
    if field == "passed_over" and isinstance(value, dict):
        name = (
            say("{who} ({reason})", who=escape_line(agent), reason=lines.passed_over(reason, say))
            for agent, reason in value.items()
        )
        return say(", ").join(name)
    if isinstance(value, str):
        return say.enum(escape_line(value))
    if isinstance(value, list):
        return say(", ").join(escape_line(str(item)) for item in value) or say("none")
    return escape_line(json.dumps(value, ensure_ascii=False))
