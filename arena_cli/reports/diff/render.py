"""Draw how two conversations differ, as lines: the first difference, then chain by chain.

It makes lines of pieces (`reports.lines`). Texts of agents are escaped. Fields that follow from
others are only named, at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from arena_cli.reports import lines
from arena_cli.reports.diff.model import (
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
from arena_cli.reports.diff.text import GONE, NEW, NEW_STYLE, OLD_STYLE, draw_text_diff, marked
from arena_cli.reports.lines import BETWEEN, EMPTY, INDENT, Line, Span, Words, line
from arena_cli.transcript.compare import Changed
from arena_cli.util.text import cut_text, escape_line

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


def compared(compared_side: Compared, side: Side, say: Words, size: Told | None = None) -> Line:
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


def _draw_size(size: Told, say: Words) -> Span:
    counts = [
        (size.chains, "1 chain", "{count} chains"),
        (size.turns, "1 turn", "{count} turns"),
        (size.replies, "1 reply", "{count} replies"),
    ]
    counts_text = [
        say(singular) if count == 1 else say(many, count=count) for count, singular, many in counts
    ]
    if size.usage:
        counts_text.append(lines.tokens(size.usage))
    return Span(" · ".join(counts_text), "dim")


class _Drawing:
    """Draws the differences of two conversations; keeps the fields that it left out."""

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
                _draw_size(conversation_diff.a, say),
                only(conversation_diff.only, say),
                hang=3,
            )
        if conversation_diff.b:
            yield line(
                _side("b"),
                _draw_size(conversation_diff.b, say),
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
        for turn in entry.turns:
            parting = self._parting
            shown_fields = (
                parting.fields
                if parting and (parting.a, parting.turn) == (entry.a, turn.turn)
                else []
            )
            yield from self._turn(turn, shown_fields)

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
    for side, value in (("a", change.a), ("b", change.b)):
        told = _value(change.field, value, say)
        style = STYLES["a" if side == "a" else "b"]
        yield line(indent, Span(f"{side.upper()} {told}", style), hang=len(indent) + 2)


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
