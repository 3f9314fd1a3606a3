"""Lines of a report as data: pieces of text, each with its style. No colours here.

Agents choose the shape of the data of a structured part: each kind reads the usual shapes; any
other shape is shown as JSON, so that nothing is left out. All of it is escaped.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from arena_cli import errors, protocol
from arena_cli.protocol import (
    COST_NOT_TAKEN,
    NOT_SHOWN,
    Attachment,
    Message,
    StructuredContent,
    Usage,
)
from arena_cli.transcript.events import ChainFinished, PassedOver, ReplyFinished
from arena_cli.util import task_lists
from arena_cli.util.language import Texts, current_language
from arena_cli.util.text import escape_line, escape_text


class Span(NamedTuple):
    """A piece of a line, escaped text. `style` is its kind (`terminal.STYLES`)."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """A line. In a narrow terminal its further rows begin `hang` columns in.

    If `hang` is None, they begin where its own text does. `whole` lines are never broken, so that a
    copy of them equals the original.
    """

    spans: tuple[Span, ...]
    hang: int | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        """The line as plain text, without a line end."""
        if len(self.spans) == 1:
            return self.spans[0].text
        return "".join([span.text for span in self.spans])


EMPTY = Line(())
INDENT = "  "
BETWEEN = Span(" · ", "dim")

Who = Callable[[str], list[Span] | str]
"""The name of an agent, or of somebody else, by id, as a report shows it."""


def line(*pieces: str | Span | Iterable[Span], hang: int | None = None) -> Line:
    """Return a line of texts, spans and lists of spans."""
    spans: list[Span] = []
    for piece in pieces:
        if isinstance(piece, Span):
            spans.append(piece)
        elif isinstance(piece, str):
            spans.append(Span(piece))
        else:
            spans.extend(piece)
    return Line(tuple(spans), hang)


def as_spans(name: list[Span] | str) -> list[Span]:
    """Return a name as pieces of a line."""
    return [Span(name)] if isinstance(name, str) else name


def count_of(say: Words, count: int, one: str, many: str) -> str:
    """Return `1 warning` or `2 warnings`."""
    return say(one) if count == 1 else say(many, count=count)


def count_replies(event: ChainFinished, say: Words) -> str:
    """Return how many replies a chain had, in how many turns."""
    replies = count_of(say, event.replies, "1 reply", "{count} replies")
    turns = count_of(say, event.turns, "1 turn", "{count} turns")
    return say("{replies} in {turns}", replies=replies, turns=turns)


CALLED_ALREADY = (
    "{who} (was called in this turn, is not called again: re_invoke_already_replied is false)"
)
BEING_CALLED = (
    "{who} (is called in this turn, again only if it declines: re_invoke_already_replied is false)"
)


def quote(name: str) -> str:
    """Return a name as an argument in a shell's command; in quotes if it has a space."""
    name = escape_line(name)
    return f'"{name}"' if " " in name else name


def unresolved(names: Iterable[str], members: Mapping[str, str], say: Words) -> str:
    """Return the text of names that no member has, with near ones; `members` are names by id."""
    listed = say(", ").join(f"@{escape_line(name)}" for name in names)
    known = (*members, *members.values())
    near = dict.fromkeys(filter(None, (errors.find_nearest(name, known) for name in names)))
    if not near:
        return say("no member is called {names}", names=listed)
    hints = say(", ").join(f"@{escape_line(name)}" for name in near)
    return say("no member is called {names} (did you mean {near}?)", names=listed, near=hints)


class Words(Texts):
    """Fixed texts in one language, also as pieces of a line."""

    def spans(
        self, text: str, style: str = "", context: str = "", /, **values: str | int | list[Span]
    ) -> Iterator[Span]:
        """Yield the text as pieces of a line; a value may be pieces with their own styles."""
        for literal, name, _, _ in string.Formatter().parse(self.translate(text, context)):
            if literal:
                yield Span(literal, style)
            if name is not None:
                value = values[name]
                if isinstance(value, list):
                    yield from value
                else:
                    yield Span(str(value), style)


def user_words() -> Words:
    """Return the texts in the language of this process's user."""
    return Words(current_language())


LONGEST_AVATAR = 12


def clock(ts: str) -> str:
    """Return the time of day in the local time zone."""
    try:
        return f"{datetime.fromisoformat(ts).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def avatar(text: str) -> str:
    """Return a profile's `avatar` for use before a name; empty for the address of a picture."""
    escaped = escape_line(text.strip())
    return "" if len(escaped) > LONGEST_AVATAR or "/" in escaped or "." in escaped else escaped


def tokens(usage: Usage) -> str:
    """Return input and output tokens, `~` before an estimate, and the cost if it is known."""
    about = "~" if usage.estimated else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return f"{about}{sent} → {about}{usage.output_tokens} tokens{cost}"


def cost_not_taken(metadata: Mapping[str, Any], say: Words) -> str:
    """Return the message about an implausible cost that is not counted; "" if there is none."""
    cost = metadata.get(COST_NOT_TAKEN)
    return "" if cost is None else say("cost not counted: {cost} USD", cost=escape_line(str(cost)))


def remarks(reply: ReplyFinished, say: Words) -> list[str]:
    """Return the lines about what an agent was refused or not shown, and about its fallback."""
    refused = [
        say("refused: {action}", action=escape_line(str(action)))
        for action in reply.refused_actions
    ]
    fallback = reply.metadata.get("fallback")
    if isinstance(fallback, dict):
        called = " ".join(escape_line(str(fallback.get(key, ""))) for key in ("type", "model"))
        number = escape_line(str(fallback.get("number")))
        refused.append(
            say("fallback {number} was called: {adapter}", number=number, adapter=called.strip())
        )
    names = reply.metadata.get(NOT_SHOWN)
    if not isinstance(names, list) or not names:
        return refused
    shown = say(", ").join(escape_line(str(name)) for name in names)
    return [*refused, say("not shown, only its path was given: {names}", names=shown)]


_BREAKER = re.compile(r"circuit breaker open until (\S+): (.*)")


def local_time(moment: str) -> str:
    """Return a time as a local one, with its date; any other text as it is."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return escape_line(moment)


_ALONE = re.compile(r"(\S+) answers alone")


def describe_unavailable(reason: str, say: Words) -> str:
    """Explain why control keeps an agent out of a turn; return "" for any other reason."""
    if reason in ("paused", "terminated"):
        return say.enum(reason)
    match = _BREAKER.fullmatch(reason)
    if match is None:
        alone = _ALONE.fullmatch(reason)
        return say("{agent} answers alone", agent=escape_line(alone[1])) if alone else ""
    until, why = local_time(match[1]), say.message(escape_line(match[2]))
    return say("until {until}: {reason}", until=until, reason=why)


def passed_over(reason: PassedOver | Mapping[str, Any], say: Words) -> str:
    """Explain why a candidate was not asked."""
    passed_over = PassedOver.model_validate(reason)
    if reason_text := describe_unavailable(passed_over.reason or "", say):
        return reason_text
    relevance = f"{passed_over.relevance:g}"
    if passed_over.threshold is not None:
        threshold = f"{passed_over.threshold:g}"
        return say("relevance {relevance} < {threshold}", relevance=relevance, threshold=threshold)
    text = escape_line(passed_over.reason or "")
    if not passed_over.relevance:
        return text  # of a mentioned agent, it was not measured
    return say("relevance {relevance}, {reason}", relevance=relevance, reason=text)


def joined(groups: Iterable[list[Span]], between: str) -> list[Span]:
    """Return the groups joined by a separator."""
    spans: list[Span] = []
    for group in groups:
        spans += [Span(between, "dim"), *group] if spans else group
    return spans


def step(number: int, name: str, say: Words, kind: str = "") -> str:
    """Return `step 2: its name`; `kind` follows the number."""
    suffix = f"{say(': ')}{escape_line(name)}" if name else ""
    return f"{say('step {number}', number=number)}{kind}{suffix}"


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SOURCES = ("code", "source", "content", "text", "diagram", "diff", "patch")
_LANGUAGES = ("language", "lang", "format", "syntax", "type")
_FILES = ("filename", "file", "path", "name", "title")
_DIAGRAMS = ("mermaid", "plantuml", "dot", "graphviz", "d2", "ascii", "svg")
_ASKED = ("action", "command", "title", "reason")


def draw_message(message: Message, say: Words) -> Iterator[Line]:
    """Yield the lines for all content of a message."""
    if message.quoted:
        yield line(INDENT, Span(escape_line(f"re: {message.reply_to}, {message.quoted}"), "dim"))
    yield from draw_text(message.content)
    if message.reactions:
        yield line(
            INDENT, say("reaction: {emojis}", emojis=escape_line(" ".join(message.reactions)))
        )
    for item in message.structured:
        yield from draw_structured(item, say)
    for attachment in message.attachments:
        yield line(INDENT, Span(describe_attachment(attachment, say), "dim"))


def draw_text(content: str, *, style: str = "") -> Iterator[Line]:
    """Yield a text line by line; lines in code fences are never wrapped."""
    fence = ""
    for row in escape_text(content).split("\n") if content else ():
        match = _FENCE.match(row)
        inside = bool(fence)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not row[match.end() :].strip():
            fence = ""
        yield Line((Span(INDENT + row, style),), whole=inside) if row else EMPTY


def draw_structured(structured_content: StructuredContent, say: Words) -> Iterator[Line]:
    """Yield a structured item: a line with its type, and its data indented below."""
    draw = _DRAWERS.get(structured_content.type)
    drawing = draw(structured_content.data) if draw else None
    title, body = drawing or ("", _as_json(structured_content.data))
    yield line(INDENT, Span(f"[{say.enum(structured_content.type)}{title}]", "dim"))
    yield from body


Drawn = tuple[str, list[Line]]


def _task_list(data: Any) -> Drawn | None:
    """Draw a list of texts or tasks, or an object that holds one; return None if it is neither."""
    if isinstance(data, dict) and (actions := _task_actions(data.get("actions"))):
        others = _omit(data, "actions")
        label, drawn = (_task_list(others) if others else None) or ("", list(_fields(others)))
        return label, [*drawn, *actions]
    title, tasks, remaining = _find_list(data) if isinstance(data, dict) else ("", data, {})
    rows = _tasks(tasks, 0) if isinstance(tasks, list) and tasks else None
    if rows is None:
        return None
    return (f": {escape_line(title)}" if title else ""), [*rows, *_fields(remaining)]


def _find_list(data: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Return the title of an object, its list of tasks or None, and its other fields."""
    key = _find_key(data, task_lists.TASK_LIST_KEYS, list)
    if key is None:
        return "", None, data
    remaining = _omit(data, key)
    return _pop_text(remaining, task_lists.TASK_TITLE_KEYS), data[key], remaining


def _task_actions(actions: Any) -> list[Line] | None:
    """Return a line for each change of a task; None if these are no changes."""
    rows = []
    for action in actions if isinstance(actions, list) else ():
        if not isinstance(action, dict) or not isinstance(action.get("action"), str):
            return None
        fields = {name: value for name, value in action.items() if name not in ("action", "text")}
        words = escape_line(" ".join(str(action["action"]).split()))
        text = f": {escape_line(str(action['text']))}" if action.get("text") else ""
        pieces = (Span("▸ ", "dim"), words, _describe_fields(fields), text)
        rows.append(line(INDENT * 2, *pieces, hang=6))
    return rows


def _tasks(tasks: list[Any], depth: int) -> list[Line] | None:
    """Return a checklist; None if an entry is neither a text nor a task with a title."""
    rows: list[Line] = []
    for task in tasks:
        remaining = dict(task) if isinstance(task, dict) else {"title": task}
        key = _find_key(remaining, task_lists.TASK_LIST_KEYS, list) or "subtasks"
        below = remaining.pop(key, None) or []
        title = _pop_text(remaining, task_lists.TASK_TITLE_KEYS)
        if not title or not isinstance(below, list) or depth > task_lists.TASK_MAX_DEPTH:
            return None
        done = _done(remaining)
        mark = Span("[x] ", "added") if done else Span("[ ] ")
        body = Span(escape_line(title), "dim" if done else "")
        indent = INDENT * (2 + depth)
        rows.append(line(indent, mark, body, _describe_fields(remaining), hang=len(indent) + 4))
        further = _tasks(below, depth + 1)
        if further is None:
            return None
        rows += further
    return rows


def _done(task: dict[str, Any]) -> bool:
    """Return True if a task is done, and remove its mark from the task."""
    for key in task_lists.TASK_STATE_KEYS:
        value = task.get(key)
        if isinstance(value, str) and value.strip().casefold() in task_lists.TASK_DONE_WORDS:
            del task[key]
            return True
        decided = protocol.parse_decision(value) if key in task else None
        if decided is not None:
            del task[key]
            return decided
    return False


def _code(data: Any) -> Drawn | None:
    """Draw a text, or an object with its source and optionally its language and file."""
    if isinstance(data, str):
        return "", _whole(data)
    source_and_rest = _source(data)
    if source_and_rest is None:
        return None
    source, remaining = source_and_rest
    names = [_pop_text(remaining, _LANGUAGES), _pop_text(remaining, _FILES)]
    labels = ", ".join(escape_line(name) for name in names if name)
    return (f": {labels}" if labels else ""), [*_whole(source), *_fields(remaining)]


def _diagram(data: Any) -> Drawn | None:
    """Draw a diagram as code; also an object whose key is the language (`mermaid: ...`)."""
    if isinstance(data, dict):
        key = _find_key(data, _DIAGRAMS, str)
        if key is not None and not any(name in data for name in _SOURCES):
            return f": {key}", [*_whole(data[key]), *_fields(_omit(data, key))]
    return _code(data)


def _diff(data: Any) -> Drawn | None:
    """Draw a text, an object with one, or a list of such objects (also as `files` or `changes`)."""
    items = data
    remaining: dict[str, Any] = {}
    if isinstance(data, dict):
        key = _find_key(data, ("files", "changes"), list)
        items = data[key] if key else [data]
        remaining = _omit(data, key) if key else {}
    elif not isinstance(data, list):
        items = [data]
    rows: list[Line] = []
    for item in items:
        source_and_rest = (item, {}) if isinstance(item, str) else _source(item)
        if source_and_rest is None:
            return None
        source, item_rest = source_and_rest
        name = _pop_text(item_rest, _FILES)
        if name:
            rows.append(line(INDENT * 2, Span(escape_line(name), "strong")))
        rows += [*_whole(source, _diff_style), *_fields(item_rest)]
    return ("", [*rows, *_fields(remaining)]) if rows else None


def draw_diff(diff: str) -> Iterator[Line]:
    """Yield a unified diff of an agent, marked so that none of it looks like arena's lines."""
    for row in escape_text(diff.removesuffix("\n")).split("\n"):
        yield line(INDENT * 2, Span("| ", "dim"), Span(row, _diff_style(row)))._replace(whole=True)


def _diff_style(row: str) -> str:
    if row.startswith(("+++", "---", "diff ", "index ")):
        return "strong"
    if row.startswith("@@"):
        return "hunk"
    return {"+": "added", "-": "removed"}.get(row[:1], "")


def _approval(data: Any) -> Drawn | None:
    """Draw a text, or an object: first the request and its reason, then all other fields."""
    if isinstance(data, str):
        return "", [
            Line((Span(INDENT * 2 + row, "strong"),)) for row in escape_text(data).split("\n")
        ]
    if not isinstance(data, dict) or not data:
        return None
    ordered = {key: data[key] for key in _ASKED if key in data} | data
    options = ordered.get("options")
    if not (isinstance(options, list) and options and all(isinstance(o, str) for o in options)):
        return "", list(_fields(ordered, strong=_ASKED[:2]))
    del ordered["options"]
    choices = [
        line(INDENT * 3, Span(f"{number}. {escape_line(option)}", "strong"), hang=9)
        for number, option in enumerate(options, 1)
    ]
    return "", [*_fields(ordered, strong=_ASKED[:2]), *choices]


_DRAWERS: dict[str, Callable[[Any], Drawn | None]] = {
    "task_list": _task_list,
    "code_block": _code,
    "architecture_diagram": _diagram,
    "diff": _diff,
    "approval_request": _approval,
}


def _source(data: Any) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(data, dict):
        return None
    key = _find_key(data, _SOURCES, str)
    return None if key is None else (data[key], _omit(data, key))


def _pop_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Remove and return the first of these keys that holds a text; return "" if there is none."""
    key = next((key for key in keys if isinstance(fields.get(key), str) and fields[key]), None)
    return str(fields.pop(key)) if key is not None else ""


def _fields(fields: dict[str, Any], strong: tuple[str, ...] = ()) -> Iterator[Line]:
    """Yield `key: value` lines; multi-line texts and nested data are put below their key."""
    for key, value in fields.items():
        name = Span(f"{escape_line(str(key))}:", "dim")
        if isinstance(value, str) and "\n" in value:
            yield line(INDENT * 2, name)
            for row in _whole(value):
                yield Line((Span(INDENT), *row.spans), whole=True) if row.spans else row
        else:
            span = Span(_compact(value), "strong" if key in strong else "")
            yield line(INDENT * 2, name, " ", span, hang=6)


def _compact(value: Any) -> str:
    return escape_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _as_json(data: Any) -> list[Line]:
    if isinstance(data, str):
        return _whole(data)
    return _whole(json.dumps(data, ensure_ascii=False, indent=2))


def _describe_fields(fields: Mapping[str, Any]) -> Span:
    """Return the fields in parentheses; nothing if there are none."""
    facts = ", ".join(f"{escape_line(str(key))}: {_compact(fields[key])}" for key in fields)
    return Span(f" ({facts})" if facts else "", "dim")


def _omit(fields: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != key}


def _find_key(fields: Mapping[str, Any], keys: Iterable[str], kind: type) -> str | None:
    """Return the first of these keys whose value is of that kind."""
    return next((key for key in keys if isinstance(fields.get(key), kind)), None)


def _whole(source: str, style: Callable[[str], str] = lambda _: "") -> list[Line]:
    """Return text that is copied unchanged: its lines are never broken."""
    return [
        Line((Span(INDENT * 2), Span(row, style(row))), whole=True) if row else EMPTY
        for row in escape_text(source.removesuffix("\n")).split("\n")
    ]


def describe_attachment(attachment: Attachment, say: Words) -> str:
    """Return the kind, name, size and path of an attachment."""
    size = f", {say('{count} bytes', count=attachment.size)}" if attachment.size is not None else ""
    path = f" {say('at {path}', path=escape_line(attachment.path))}" if attachment.path else ""
    return f"[{say.enum(attachment.type)}: {escape_line(attachment.name)}{size}{path}]"
