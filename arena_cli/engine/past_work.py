"""Estimate work before it begins: earlier chains that are similar, its size, the way to do it.

The numbers are those of the decision tree that planners are shown (`engine.plan_texts`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from arena_cli.engine.plan import Room
from arena_cli.notes import text
from arena_cli.notes.model import Note
from arena_cli.transcript import reader
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished
from arena_cli.transcript.plan_events import PlanMode
from arena_cli.util.text import cut_text

MOST_SIMILAR = 5
LEAST_SIMILAR = 0.3
"""The similarity by words from which an earlier message counts, from 0 to 1."""

LEAST_NEAR = 0.7
"""The similarity of vectors from which it counts, where the workspace has an embedding."""

SIMPLE, MEDIUM, MODULAR = 300, 1_000, 2_000
"""Bounds in lines: below the first work is simple, up to the second medium, then complex."""

Level = Literal["simple", "medium", "complex"]

_MOST_SESSIONS = 200
_MOST_EVENTS = 20_000
_MOST_COMPARED = 1_000
_LONGEST_MESSAGE = 300
_LINES_OF_FILE = 150
_BASE, _PART = 40, 60

_COUNTED = (
    (r"endpoints?|routes?|接口|端点", "endpoints", 40),
    (r"pages?|screens?|views?|页面|屏幕", "pages", 80),
    (r"charts?|graphs?|图表", "charts", 60),
    (r"modules?|services?|subsystems?|模块|服务|子系统", "modules", 200),
    (r"tables?|entities|数据表|实体", "tables", 50),
)
_NUMBER = r"(\d{1,6})(?:\s*(?:个|张|项)|\s*-\s*\d{1,6})?[ \t]*(?:[a-z-]{1,20} )?"
_OF_LINES = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,7})\s*(?:lines?\b|loc\b|行)", re.IGNORECASE)
_SEPARATOR = re.compile(r"\n\s*(?:[-*•]|\d+[.)、])\s+|[;；、,，]|\band\b|以及|和", re.IGNORECASE)
_APART = re.compile(
    r"\b(?:independent|side by side|in parallel|separately)\b|独立|并行|分别|同时", re.IGNORECASE
)
_ARCHITECTURE = re.compile(
    r"\b(?:architecture|subsystems?|microservices?|distributed|multi-tenant|from scratch)\b"
    r"|架构|子系统|微服务|分布式|从零",
    re.IGNORECASE,
)
_DEPENDENCIES = re.compile(
    r"\b(?:databases?|sql|postgres|redis|queues?|kafka|auth|oauth|jwt|login|payments?|email|cache|"
    r"cms|seo|search|api|docker|kubernetes|websockets?|uploads?)\b"
    r"|数据库|队列|登录|认证|支付|邮件|缓存|搜索|上传|部署",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w/.-])[\w-]+(?:/[\w.-]+)*\.[A-Za-z]{1,5}\b")
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class PastChain(NamedTuple):
    """An earlier chain: its message, its end, how it was planned, and what it wrote.

    `similarity` is from 0 to 1; `lines` and `files` count what its agents wrote.
    """

    session: str
    chain: int
    similarity: float
    message: str
    end: str
    mode: str = ""
    agents: Sequence[str] = ()
    lines: int = 0
    files: int = 0

    @property
    def place(self) -> str:
        """The session, and the number of the chain in it."""
        return f"{self.session} #{self.chain}"


class Estimate(NamedTuple):
    """The size of work: lines, files, what it depends on; `rests_on` says where that comes from.

    `mode` is the way that fits by these numbers.
    """

    lines: int
    files: int
    dependencies: Sequence[str]
    level: Level
    mode: PlanMode
    rests_on: str


def decide_mode(lines: int, *, has_modules: bool, needs_architecture: bool) -> PlanMode:
    """Return the way of doing work of that many lines; the first rule that holds decides."""
    if lines < SIMPLE:
        return "single"
    if has_modules and lines < MODULAR:
        return "parallel"
    if lines > MEDIUM or needs_architecture:
        return "layered"
    return "orchestrator"


def estimate_complexity(
    requirement: str, similar: Sequence[PastChain] = (), root: Path | None = None
) -> Estimate:
    """Return the estimated size of work.

    It rests on similar earlier chains that wrote something, or else on rules of thumb. `root` is
    the folder in which files that the requirement names are looked for.
    """
    measured = [chain for chain in similar if chain.lines]
    named = _list_named_files(requirement, root)
    if measured:
        lines = round(median(chain.lines for chain in measured))
        files = round(median(max(chain.files, 1) for chain in measured))
        places = ", ".join(f"{chain.place} ({chain.lines} lines)" for chain in measured)
        rests_on = f"similar earlier chains: {places}"
    else:
        lines, rests_on = _estimate_lines(requirement)
        files = max(1, math.ceil(lines / _LINES_OF_FILE))
    if named:
        files = max(files, len(named))
        rests_on += f"; files that it names: {', '.join(named)}"
    level: Level = "simple" if lines < SIMPLE else "medium" if lines <= MEDIUM else "complex"
    dependencies = list(dict.fromkeys(_DEPENDENCIES.findall(requirement.casefold())))
    mode = decide_mode(
        lines,
        has_modules=bool(_APART.search(requirement)),
        needs_architecture=bool(_ARCHITECTURE.search(requirement)),
    )
    return Estimate(lines, files, dependencies, level, mode, rests_on)


def _estimate_lines(requirement: str) -> tuple[int, str]:
    """Return the lines of a requirement by rules of thumb, and which of them."""
    if match := _OF_LINES.search(requirement):
        lines = int(match[1].replace(",", ""))
        return lines, f"the {lines} lines that it names"
    total, counted = 0, []
    for words, name, weight in _COUNTED:
        numbers = re.findall(_NUMBER + rf"(?:{words})", requirement, re.IGNORECASE)
        count = min(sum(map(int, numbers)), 10_000)
        if count:
            total += count * weight
            counted.append(f"{count} {name} of {weight} lines")
    parts = [part for part in _SEPARATOR.split(requirement) if part and part.strip()]
    if not counted:
        total = _PART * min(max(len(parts), 1), 100)
        counted = [f"{min(max(len(parts), 1), 100)} parts of {_PART} lines"]
    return _BASE + total, f"a rule of thumb: {_BASE} lines, and {', '.join(counted)}"


def _list_named_files(requirement: str, root: Path | None) -> list[str]:
    """Return the files of a folder that a text names, at most ten."""
    if root is None:
        return []
    names = dict.fromkeys(_PATH.findall(requirement))
    paths = ((name, root / name) for name in names)
    named = (name for name, path in paths if ".." not in path.parts and path.is_file())
    return list(islice(named, 10))


def find_similar(
    requirement: str, room: Room, *, limit: int = MOST_SIMILAR, least: float = LEAST_SIMILAR
) -> list[PastChain]:
    """Return the earlier chains of the workspace with a similar message, the most similar first.

    Similar is what vectors say, or the words where there are none (`least`). In a scenario they are
    those of its own session.
    """
    terms = frozenset(text.of_question(requirement))
    path = getattr(room.journal.log, "path", None)
    if not terms or (path is None and not room.config.shared_notes):
        return []
    current = room.scene.fold.open.number if room.scene.fold.open else 0
    past = [
        chain
        for transcript in _list_transcripts(room, path)
        for chain in _read_chains(transcript)
        if path is None or transcript != path or chain.chain != current
    ]
    chains = _compare_vectors(requirement, past, room)
    if chains is None:
        chains = [chain for chain in _compare_words(terms, past) if chain.similarity >= least]
    chains.sort(key=lambda chain: (-chain.similarity, chain.session, chain.chain))
    return [
        chain._replace(
            similarity=round(chain.similarity, 2),
            message=cut_text(" ".join(chain.message.split()), _LONGEST_MESSAGE),
        )
        for chain in chains[:limit]
    ]


def _compare_vectors(
    requirement: str, past: Sequence[PastChain], room: Room
) -> list[PastChain] | None:
    """Return the chains whose messages mean nearly the same; None without vectors of them."""
    recollection = room.scene.recollection
    if recollection is None or not past:
        return None
    compared = past[:_MOST_COMPARED]
    messages = [chain.message for chain in compared]
    near = recollection.find_near(requirement, messages, LEAST_NEAR)
    if near is None:
        return None
    return [compared[place]._replace(similarity=cosine) for place, cosine in near.items()]


def _compare_words(terms: frozenset[str], past: Iterable[PastChain]) -> Iterator[PastChain]:
    """Yield the chains with the similarity of their words."""
    for chain in past:
        words = frozenset(text.of_question(chain.message))
        similarity = 2 * len(terms & words) / (len(terms) + len(words)) if words else 0.0
        yield chain._replace(similarity=similarity)


def _list_transcripts(room: Room, own: Path | None) -> list[Path]:
    """Return the transcripts of the sessions, the last written first."""
    if not room.config.shared_notes:
        return [own] if own is not None and own.is_file() else []
    folder = room.config.workspace / "sessions"
    entries = []
    for path in folder.glob("*/transcript.jsonl"):
        if path.parent.is_symlink():
            continue
        try:
            entries.append((-path.stat().st_mtime, path))
        except OSError:
            continue
    return [path for _, path in sorted(entries)[:_MOST_SESSIONS]]


def _read_chains(transcript: Path) -> Iterator[PastChain]:
    """Yield the finished chains of a session, the last one first."""
    types = {"message", "reply_finished", "chain_finished", "planned", "tool_finished"}
    events: list[Event] = []
    try:
        size = transcript.stat().st_size
        for count, entry in enumerate(reader.newest_first(transcript, size, types)):
            if count > _MOST_EVENTS:
                return
            if isinstance(entry, bytes):
                continue
            events.append(entry)
            if isinstance(entry, MessageEvent) and entry.chain is not None:
                if (chain := _describe_chain(entry, events, transcript.parent.name)) is not None:
                    yield chain
                events = []
    except OSError:
        return


def _describe_chain(opening: MessageEvent, events: Iterable[Any], session: str) -> PastChain | None:
    """Return a chain by its events, the newest first; None unless it ended, for all."""
    end, mode, agents, lines = "", "", [], 0
    files: set[str] = set()
    for event in events:
        match event.type:
            case "chain_finished":
                end = event.end
            case "planned" if not mode and not event.fallback:
                mode, agents = event.mode, event.agents
            case "tool_finished":
                lines += _count_added(event.diff)
                files.update(list_changed(event.diff))
            case "reply_finished" if isinstance(event, ReplyFinished) and event.message:
                lines += sum(block.count("\n") for block in _FENCE.findall(event.message.content))
            case _:
                pass
    if not end or opening.chain is None or opening.message.thread:
        return None
    content = opening.message.content
    return PastChain(session, opening.chain, 0.0, content, end, mode, agents, lines, len(files))


def list_changed(diff: str) -> list[str]:
    """Return the paths of the files that a diff makes or changes."""
    names = re.findall(r"^\+\+\+ (?:b/)?([^\t\n]+)", diff, re.MULTILINE)
    return [name for name in names if name != "/dev/null"]


def _count_added(diff: str) -> int:
    return len(re.findall(r"^\+(?!\+\+)", diff, re.MULTILINE))


def search_notes(room: Room, query: str, kinds: Sequence[str], limit: int) -> list[Note] | None:
    """Return the notes of these kinds that fit a query; None if the session keeps none."""
    recollection = room.scene.recollection
    if recollection is None:
        return None
    recollection.follow()
    index = recollection.index()
    if index is None:
        return []
    hits = index.search(
        query,
        kinds=kinds,
        session=room.scene.session_id,
        approved_only=recollection.rules.approved_only,
        limit=limit,
    )
    return [hit.note for hit in hits]
