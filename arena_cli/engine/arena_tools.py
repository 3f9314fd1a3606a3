"""The tools by which agents use arena itself: its notes, its history, its members, its approvals.

They are part of arena, so a replay runs them (`internal`), unlike tools that act on the outside.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from arena_cli.engine import after_turn
from arena_cli.engine.plan import Room
from arena_cli.engine.toolbox import EngineTool, make_schema
from arena_cli.notes import extraction, text
from arena_cli.notes.model import KINDS
from arena_cli.protocol import Attachment, Message, PermissionRequest, ToolSpec
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope
from arena_cli.transcript import queries, reader
from arena_cli.transcript.acting_events import GOAL_MOST, Goal, GoalChanged, ToolFinished
from arena_cli.transcript.events import MessageEvent, ReplyFinished
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util import files
from arena_cli.util.text import cut_text
from arena_cli.workspace.acting import InlineTool
from arena_cli.workspace.models import Member

MOST_FOUND = 20
LONGEST_EXCERPT = 500
LONGEST_PIECE = 4_000
"""Characters of an attachment that one call returns: they fit into a result in any script."""

_MOST_SCANNED = 20_000
_EXPERIENCE = ("pit", "pattern", "solution")

_TEXT = {"type": "string"}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST_FOUND}
_KIND = {"type": "string", "enum": list(KINDS)}


_SPECS = {
    "list_members": ToolSpec(
        name="list_members",
        description="List the members of your team: id, name and role.",
        input_schema=make_schema(),
    ),
    "search_notes": ToolSpec(
        name="search_notes",
        description="Search the notes of this session and the shared notes by words. "
        "Returns id, kind, status, title and an excerpt of each.",
        input_schema=make_schema(["query"], query=_TEXT, kind=_KIND, limit=_LIMIT),
    ),
    "search_history": ToolSpec(
        name="search_history",
        description="Search all messages of this session, also those you are no longer shown. "
        "Returns id, author, time and an excerpt of each.",
        input_schema=make_schema(["query"], query=_TEXT, limit=_LIMIT),
    ),
    "add_note": ToolSpec(
        name="add_note",
        description="Write a note for the team. It is a draft until a person approves it.",
        input_schema=make_schema(
            ["title", "kind", "text"],
            title=_TEXT,
            kind=_KIND,
            text=_TEXT,
            importance={"type": "number", "minimum": 0, "maximum": 1},
            tags={"type": "array", "items": _TEXT},
            owner=_TEXT,
        ),
    ),
    "read_attachment": ToolSpec(
        name="read_attachment",
        description="Read a text file that is attached to a message, or the whole result of one "
        f"of your calls that was cut. Returns up to {LONGEST_PIECE} characters from `offset` on.",
        input_schema=make_schema(["name"], name=_TEXT, offset={"type": "integer", "minimum": 0}),
    ),
    "check_patterns": ToolSpec(
        name="check_patterns",
        description="Find known pits, patterns and solutions that fit what you are about to do.",
        input_schema=make_schema(["text"], text=_TEXT, limit=_LIMIT),
    ),
    "estimate_complexity": ToolSpec(
        name="estimate_complexity",
        description="Estimate the size of some work: lines, files, dependencies, level (simple, "
        "medium, complex), the mode that fits, on what it rests, and similar earlier work with "
        "how it ended.",
        input_schema=make_schema(["requirement"], requirement=_TEXT),
    ),
    "request_approval": ToolSpec(
        name="request_approval",
        description="Ask a person to approve an act before you do it. `action` is its kind, such "
        "as deploy, `detail` exactly what you want to do.",
        input_schema=make_schema(["action", "detail"], action=_TEXT, detail=_TEXT),
    ),
}

_OF_PLANNER = " It also finds similar work of other sessions, with how it ended."


class ArenaSource:
    """Arena's own tools of a session."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._goals: dict[str, GoalStack] = {}

    async def find(self, entry: str | InlineTool, member: Member) -> list[Tool]:
        """Return the tool of that name; `goals` are three."""
        if entry == "goals":
            stack = self._goals.setdefault(member.id, GoalStack(self._room, member.id))
            return list(stack.make_tools())
        if entry not in _SPECS:
            return []
        desk, spec = _Desk(self._room, member), _SPECS[str(entry)]
        match entry:
            case "search_history" if desk.is_planner:
                description = f"{spec.description}{_OF_PLANNER}"
                spec = spec.model_copy(update={"description": description})
            case "request_approval":
                return [EngineTool(spec, desk.request_approval, act=_describe_act)]
            case _:
                pass
        return [EngineTool(spec, getattr(desk, spec.name), idempotent=spec.name != "add_note")]


def _import_past_work() -> Any:
    return import_module("arena_cli.engine.past_work")


def _describe_act(arguments: Mapping[str, Any]) -> PermissionRequest:
    action, detail = str(arguments["action"]).strip(), str(arguments["detail"]).strip()
    if not action or not detail:
        raise ToolFailed("`action` and `detail` must not be empty")
    return PermissionRequest(
        action=action, detail=detail, tool="request_approval", arguments={"detail": detail}
    )


class _Desk:
    """Answers the calls of one agent: a method for each tool, by its name."""

    def __init__(self, room: Room, member: Member) -> None:
        self._room = room
        self._member = member
        planner = room.scene.team.planner
        self.is_planner = planner is not None and planner.id == member.id

    async def list_members(self, _: Mapping[str, Any], __: ToolScope) -> ToolOutput:
        infos = [info.model_dump() for info in self._room.scene.team.infos]
        return _as_json(infos)

    async def search_notes(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        kinds = [arguments["kind"]] if "kind" in arguments else []
        return self._find_notes(arguments["query"], kinds, arguments.get("limit", 5))

    async def check_patterns(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        return self._find_notes(arguments["text"], _EXPERIENCE, arguments.get("limit", 5))

    async def estimate_complexity(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        past_work = _import_past_work()
        requirement, room = arguments["requirement"], self._room
        similar = await asyncio.to_thread(past_work.find_similar, requirement, room)
        estimate = past_work.estimate_complexity(requirement, similar, room.workspace)
        chains = [chain._asdict() for chain in similar]
        return _as_json({**estimate._asdict(), "similar": chains})

    def _find_notes(self, query: str, kinds: Sequence[str], limit: int) -> ToolOutput:
        notes = _import_past_work().search_notes(self._room, query, kinds, limit)
        if notes is None:
            raise ToolFailed("this session keeps no notes")
        if not notes:
            return ToolOutput("no note matches; try other words")
        return _as_json(
            [
                {
                    "id": note.id,
                    "kind": note.kind,
                    "status": note.status,
                    "title": note.title,
                    "text": cut_text(note.body.strip(), LONGEST_EXCERPT),
                }
                for note in notes
            ]
        )

    async def search_history(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        terms = text.of_question(arguments["query"])
        if not terms:
            raise ToolFailed("the query has no words to search for")
        scored = []
        for message in self._messages():
            words = set(text.of_note(message.content))
            hits = sum(term in words for term in terms)
            if hits:
                scored.append((hits, message.seq, message))
        scored.sort(key=lambda row: row[:2], reverse=True)
        rows = [
            {
                "id": message.id,
                "author": message.author_name,
                "time": message.timestamp,
                "text": cut_text(message.content, LONGEST_EXCERPT),
            }
            for _, _, message in scored[: arguments.get("limit", 5)]
        ]
        rows += await self._find_earlier_work(arguments["query"])
        return _as_json(rows) if rows else ToolOutput("no message matches; try other words")

    async def _find_earlier_work(self, query: str) -> list[dict[str, Any]]:
        """Return the chains of other sessions that fit a query of the planner; none for others."""
        if not self.is_planner:
            return []
        past_work = _import_past_work()
        chains = await asyncio.to_thread(past_work.find_similar, query, self._room)
        own = self._room.scene.session_id
        return [chain._asdict() for chain in chains if chain.session != own]

    async def add_note(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        fields = {**arguments, "body": arguments["text"]}
        written = extraction.draft_of(fields, by=self._member.id, source=None)
        if not written.drafts:
            raise ToolFailed("; ".join(written.problems))
        control = self._room.control.current
        if control is not None:
            reasons = await control.check_notes(written.drafts, self._member.id, scope.reply)
            if reasons[0]:
                raise ToolFailed(f"not allowed: {reasons[0]}", "denied")
        note_ids = after_turn.add_notes(written.drafts, self._room)
        if not note_ids:
            raise ToolFailed("this session keeps no notes, or the note could not be written")
        return ToolOutput("; ".join([f"noted as {note_ids[0]}", *written.problems]))

    async def read_attachment(self, arguments: Mapping[str, Any], _: ToolScope) -> ToolOutput:
        name, offset = arguments["name"], arguments.get("offset", 0)
        names: dict[str, None] = {}
        for attachment in self._attachments():
            names[attachment.name] = None
            if attachment.name == name and attachment.path:
                return _read_piece(self._room.workspace / attachment.path, name, offset)
        listing = ", ".join(list(names)[:MOST_FOUND]) or "none"
        raise ToolFailed(f"there is no attachment {name}; there are: {listing}")

    async def request_approval(self, _: Mapping[str, Any], __: ToolScope) -> ToolOutput:
        return ToolOutput("approved: do exactly this now, once")

    def _messages(self) -> Iterator[Message]:
        """Yield the messages that the agent may be shown, the newest first."""
        for event in self._events({"message", "reply_finished"}):
            if isinstance(event, (MessageEvent, ReplyFinished)) and event.message is not None:
                yield event.message

    def _attachments(self) -> Iterator[Attachment]:
        """Yield the files of those messages, and of the agent's own calls, the newest first."""
        for event in self._events({"message", "reply_finished", "tool_finished"}):
            if isinstance(event, ToolFinished):
                yield from event.attachments
            elif isinstance(event, (MessageEvent, ReplyFinished)) and event.message is not None:
                yield from event.message.attachments

    def _events(self, types: set[str]) -> Iterator[MessageEvent | ReplyFinished | ToolFinished]:
        """Yield the events of these types that the agent may know of, the newest first."""
        revisions = self._room.scene.fold.revisions or NO_REVISIONS
        path = getattr(self._room.journal.log, "path", None)  # a single call keeps no transcript
        if path is None or not path.exists():
            return
        newest = reader.newest_first(path, path.stat().st_size, types)
        for event in itertools.islice(newest, _MOST_SCANNED):
            if isinstance(event, bytes) or revisions.is_skipped(event.seq):
                continue
            if isinstance(event, ToolFinished) and event.agent == self._member.id:
                yield event
            elif (isinstance(event, MessageEvent) and self._is_for_me(event.message)) or (
                isinstance(event, ReplyFinished) and self._is_shown(event)
            ):
                yield revisions.correct(event)

    def _is_for_me(self, message: Message) -> bool:
        return not message.shown_to or self._member.id in message.shown_to

    def _is_shown(self, done: ReplyFinished) -> bool:
        """Return True unless it is of a phase that still runs, or for other agents."""
        if done.message is not None and not self._is_for_me(done.message):
            return False
        chain = self._room.scene.fold.open
        if chain is None or not chain.turns or done.message is None:
            return True
        is_running = done.turn == chain.turns[-1].started.turn
        return not is_running or done.message.id in chain.shown


def _as_json(value: Any) -> ToolOutput:
    return ToolOutput(json.dumps(value, ensure_ascii=False))


def _read_piece(path: Path, name: str, offset: int) -> ToolOutput:
    """Return a piece of a text file from a character on."""
    try:
        data = files.read_regular(path)
    except OSError as error:
        raise ToolFailed(f"{name} cannot be read: {error.strerror or error}") from error
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError:
        return ToolOutput(f"{name} is no text: {len(data)} bytes")
    piece = content[offset : offset + LONGEST_PIECE]
    end = offset + len(piece)
    if end < len(content):
        piece += f"\n(characters {offset} to {end} of {len(content)}; continue at offset {end})"
    return ToolOutput(piece or f"(nothing from offset {offset} on; it has {len(content)})")


# The goals of an agent: a stack that it keeps by its tools, and is shown on every turn.

_GOAL_TEXT = {"type": "string", "minLength": 1, "maxLength": 500}
_PUSH = ToolSpec(
    name="push_goal",
    description="Begin a goal; it is below the current one, and becomes the current one.",
    input_schema={
        "type": "object",
        "properties": {"description": _GOAL_TEXT},
        "required": ["description"],
    },
)
_POP = ToolSpec(
    name="pop_goal",
    description="End the current goal: it is reached, or given up. Its parent becomes current.",
    input_schema={"type": "object", "properties": {"result": {"type": "string"}}},
)
_SPLIT = ToolSpec(
    name="split_goal",
    description="Split the current goal into parts, in order; the first part becomes current.",
    input_schema={
        "type": "object",
        "properties": {"parts": {"type": "array", "items": _GOAL_TEXT, "minItems": 1}},
        "required": ["parts"],
    },
)


class GoalStack:
    """The open goals of an agent in a session; the last one is the current one."""

    def __init__(self, room: Room, agent: str) -> None:
        self._room = room
        self._agent = agent
        self._goals, self._count = self._read()

    def make_tools(self) -> Iterator[Tool]:
        """Yield the three tools."""
        for spec, change in ((_PUSH, self._push), (_POP, self._pop), (_SPLIT, self._split)):
            run = partial(self._change, change)
            yield EngineTool(spec, run, idempotent=False, remind=self.describe)

    async def _change(
        self,
        change: Callable[[Mapping[str, Any], int], str],
        arguments: Mapping[str, Any],
        scope: ToolScope,
    ) -> ToolOutput:
        """Change the stack, and return it."""
        done = change(arguments, scope.reply)
        return ToolOutput(f"{done}\n{self.describe() or 'There is no open goal.'}")

    def describe(self) -> str:
        """Return the open goals as text, the current one last; "" if there are none."""
        if not self._goals:
            return ""
        lines = [
            f"{'current: ' if goal is self._goals[-1] else ''}{goal.id} {goal.description}"
            + (f" (part of {goal.parent})" if goal.parent else "")
            for goal in self._goals
        ]
        return "Your open goals:\n" + "\n".join(f"- {line}" for line in lines)

    def _push(self, arguments: Mapping[str, Any], reply: int) -> str:
        self._check_room(1)
        parent = self._goals[-1].id if self._goals else ""
        goal = self._add(arguments["description"], parent)
        self._write("push", goal, reply)
        return f"{goal.id} is the current goal."

    def _pop(self, arguments: Mapping[str, Any], reply: int) -> str:
        if not self._goals:
            raise ToolFailed("there is no open goal")
        goal = self._goals.pop()
        self._write("pop", goal, reply, str(arguments.get("result", "")))
        return f"{goal.id} is ended."

    def _split(self, arguments: Mapping[str, Any], reply: int) -> str:
        if not self._goals:
            raise ToolFailed("there is no open goal to split; push one first")
        descriptions = arguments["parts"]
        self._check_room(len(descriptions))
        goal = self._goals[-1]
        names = [f"{goal.id}.{number}" for number in range(1, len(descriptions) + 1)]
        open_ids = {open_goal.id for open_goal in self._goals}
        if open_ids & set(names):
            raise ToolFailed(f"{goal.id} is split already")
        subgoals = [
            Goal(id=name, description=description, parent=goal.id)
            for name, description in zip(names, descriptions, strict=True)
        ]
        self._goals += reversed(subgoals)
        self._write("split", goal, reply)
        return f"{goal.id} has {len(subgoals)} parts; {subgoals[0].id} is the current goal."

    def _check_room(self, count: int) -> None:
        if len(self._goals) + count > GOAL_MOST:
            raise ToolFailed(f"{GOAL_MOST} goals may be open; end one with pop_goal first")

    def _add(self, description: str, parent: str) -> Goal:
        self._count += 1
        goal = Goal(id=f"g{self._count}", description=description, parent=parent)
        self._goals.append(goal)
        return goal

    def _write(self, action: str, goal: Goal, reply: int, result: str = "") -> None:
        self._room.journal.write(
            GoalChanged,
            reply=reply,
            agent=self._agent,
            action=action,
            goal=goal,
            open=list(self._goals),
            count=self._count,
            result=result,
        )

    def _read(self) -> tuple[list[Goal], int]:
        """Return the open goals of the session so far, and how many were pushed."""
        path = getattr(self._room.journal.log, "path", None)  # a single call keeps no transcript
        for event in queries.list_newest(path, {"goal"}, self._room.scene.fold.revisions):
            if isinstance(event, GoalChanged) and event.agent == self._agent:
                return list(event.open), event.count
        return [], 0
