"""Draw how two conversations differ, as lines: the first difference, then chain by chain.

Makes lines of pieces (`reports.lines`). Texts of agents are escaped. Fields that follow from others
are only named, at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from arena_cli.reports import lines
from arena_cli.reports.diff import text
from arena_cli.reports.diff.model import (
    Changed,
    Compared,
    ConversationDiff,
    Difference,
    EntryDiff,
    Parted,
    ReplyDiff,
    Side,
    Told,
    TurnDiff,
)
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.transcript.events import PassedOver
from arena_cli.util.text import cut_text, escape_line

STYLES: dict[Side, str] = {"a": text.OLD_STYLE, "b": text.NEW_STYLE}
MARKS: dict[Side, str] = {"a": text.GONE, "b": text.NEW}
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


def drawn(difference: Difference, say: Words) -> Iterator[Line]:
    """The lines for all of it."""
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


def compared(what: Compared, side: Side, say: Words, told: Told | None = None) -> Line:
    """`A  session login`, and how much there is of it."""
    kinds = {
        "session": "session {name}",
        "recording": "recording {name}",
        "result": "result {name}",
    }
    name = Span(escape_line(what.name), "strong")
    more = [BETWEEN, _told(told, say)] if told else []
    return line(_side(side), say.spans(kinds[what.kind], name=[name]), more, hang=3)


def fields(changed: Iterable[Changed], say: Words, *, indent: str) -> Iterator[Line]:
    """Each field, and what stands in it on both sides."""
    for one in changed:
        yield from _field(one, say, indent)


def only(side: Side | None, say: Words) -> list[Span]:
    """` · only in A`, behind what is; nothing for what is on both sides."""
    if side is None:
        return []
    return [BETWEEN, Span(say("only in {side}", side=side.upper()), STYLES[side])]


def left_out(names: Iterable[str], say: Words) -> Line:
    """The fields that differ, and are only named."""
    told = say("also differ: {fields}", fields=say(", ").join(names))
    return line(Span(f"{told} {say('(--json tells where)')}", "dim"), hang=2)


def _side(side: Side) -> Span:
    return Span(f"{side.upper()}  ", STYLES[side])


def _told(told: Told, say: Words) -> Span:
    counts = [
        (told.chains, "1 chain", "{count} chains"),
        (told.turns, "1 turn", "{count} turns"),
        (told.replies, "1 reply", "{count} replies"),
    ]
    parts = [say(one) if count == 1 else say(many, count=count) for count, one, many in counts]
    if told.usage:
        parts.append(lines.tokens(told.usage))
    return Span(" · ".join(parts), "dim")


class _Drawing:
    """Draws one conversation beside another; knows which fields it left out."""

    def __init__(self, say: Words) -> None:
        self._say = say
        self._left_out: dict[str, None] = {}
        self._parting: Parted | None = None

    def heading(self, conversation_diff: ConversationDiff) -> Iterator[Line]:
        """Yield the lines that name a conversation of a recording, and its size."""
        say = self._say
        name = [
            *(
                [say("case {name}", name=escape_line(conversation_diff.case))]
                if conversation_diff.case
                else ()
            ),
            *(
                [say("session {name}", name=escape_line(conversation_diff.session))]
                if conversation_diff.session
                else ()
            ),
        ]
        if name:
            yield line(Span(say(", ").join(name), "strong"))
        if conversation_diff.a:
            yield line(
                _side("a"),
                _told(conversation_diff.a, say),
                only(conversation_diff.only, say),
                hang=3,
            )
        if conversation_diff.b:
            yield line(
                _side("b"),
                _told(conversation_diff.b, say),
                only(conversation_diff.only, say),
                hang=3,
            )

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
        told = (
            say("they part in {chain}, turn {turn}", chain=chain, turn=parted.turn)
            if parted.turn is not None
            else say("they part at the end of {chain}", chain=chain)
        )
        yield line(Span(told, "strong"))
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
        for turn in entry.turns:
            there = self._parting
            told = there.fields if there and (there.a, there.turn) == (entry.a, turn.turn) else []
            yield from self._turn(turn, told)

    def _turn(self, turn: TurnDiff, told: Sequence[Changed]) -> Iterator[Line]:
        """A turn, without what was told of it above."""
        name = self._say("turn {turn}", turn=turn.turn)
        rest = [field for field in turn.fields if field not in told]
        rows = list(self._fields(rest, turn.only, INDENT * 2))
        if rows or (turn.only and not turn.replies):
            yield line(INDENT, Span(name, "strong"), only(turn.only, self._say), hang=4)
            yield from rows
        for reply in turn.replies:
            rows = list(self._reply(reply))
            if rows or reply.only:
                agent = Span(escape_line(reply.agent), "strong")
                there = only(reply.only, self._say)
                yield line(INDENT, Span(name), BETWEEN, agent, there, hang=4)
                yield from rows

    def _reply(self, reply: ReplyDiff) -> Iterator[Line]:
        if reply.shown_otherwise:
            told = self._say("it was shown something else, though nothing said before differs")
            yield line(INDENT * 2, Span(told, "warned"), hang=6)
        yield from self._fields(reply.fields, reply.only, INDENT * 2)

    def _fields(self, changed: Sequence[Changed], side: Side | None, indent: str) -> Iterator[Line]:
        called = next((one for one in changed if one.field == "next_mentions"), None)
        for one in changed:
            if side:
                yield from self._alone(one, side, indent)
            elif one.field in FOLLOWS or _repeats(one, called):
                self._left_out[one.field] = None
            else:
                yield from _field(one, self._say, indent)

    def _alone(self, one: Changed, side: Side, indent: str) -> Iterator[Line]:
        """Yield what is on one side only: the texts, and an end that is not a good one."""
        value = one.a if side == "a" else one.b
        if one.field == "status" and value != "success":
            yield line(indent, Span(self._say.enum(escape_line(str(value))), STYLES[side]))
        elif one.field in _ALONE:
            yield from text.marked(_text(value), MARKS[side], indent=indent)


def _repeats(one: Changed, called: Changed | None) -> bool:
    """Return True if the names in the text repeat the agents that it calls."""
    if called is None or one.field != "mentions":
        return False
    return bool(one.a == called.a and one.b == called.b)


def _numbers(a: int | None, b: int | None, say: Words) -> str:
    if a is None or b is None or a == b:
        return say("chain {number}", number=a if a is not None else b)
    return say("chain {number}, in B {other}", number=a, other=b)


def _field(one: Changed, say: Words, indent: str) -> Iterator[Line]:
    if one.field != "content":
        yield line(indent, Span(escape_line(one.field), "dim"), hang=len(indent) + 2)
        indent += INDENT
    is_long = one.field != "passed_over" and (_is_long(one.a) or _is_long(one.b))
    if one.field in _TEXTS or is_long:
        yield from text.drawn(_text(one.a), _text(one.b), say, indent=indent)
        return
    for side, value in (("a", one.a), ("b", one.b)):
        told = _value(one.field, value, say)
        style = STYLES["a" if side == "a" else "b"]
        yield line(indent, Span(f"{side.upper()} {told}", style), hang=len(indent) + 2)


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" in value or len(value) > LONGEST_VALUE
    if isinstance(value, list):
        return any(not isinstance(one, (str, int, float)) or _is_long(one) for one in value)
    return isinstance(value, dict) and len(json.dumps(value)) > LONGEST_VALUE


def _text(value: Any) -> str:
    """A value as a text of several lines."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False, indent=2)


def _value(field: str, value: Any, say: Words) -> str:
    if value is None:
        return say("nothing")
    if field == "passed_over" and isinstance(value, dict):
        name = (
            f"{escape_line(agent)} ({lines.passed_over(PassedOver.model_validate(why), say)})"
            for agent, why in value.items()
        )
        return say(", ").join(name)
    if isinstance(value, str):
        return say.enum(escape_line(value))
    if isinstance(value, list):
        return say(", ").join(escape_line(str(one)) for one in value) or say("nobody")
    return escape_line(json.dumps(value, ensure_ascii=False))
