"""What bears on a question: notes by their words, and by their meaning, put together."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from arena_cli.memory import ranking, vectors, words
from arena_cli.memory.note import Note
from arena_cli.memory.ranking import Ranked
from arena_cli.memory.words import Stems

_AMONG = "IN (SELECT value FROM json_each(?))"


class Hit(NamedTuple):
    """A note that was found; `score` is its relevance times its kind's weight, at most 3.

    `why` names the words of the question that it has, and `meaning` where that is alike.
    """

    note: Note
    score: float
    why: str


@dataclass(frozen=True, eq=False)
class Scope:
    """The notes that may be found, by number, and how many words they have on average."""

    notes: frozenset[int]
    average: float
    read_keys: Callable[[], tuple[str, str]]

    @cached_property
    def keys(self) -> dict[int, str]:
        """The keys of their passages."""
        return dict(zip(*map(json.loads, self.read_keys()), strict=True))


class _Found(NamedTuple):
    relevance: float = 0.0
    words: Sequence[str] = ()


def hits(
    connection: sqlite3.Connection,
    stems: Stems,
    query: str,
    scope: Scope,
    nearness: Callable[[], Mapping[int, float]],
    limit: int,
) -> list[Hit]:
    """The best of the notes in scope; `nearness` says which are near in meaning, 0 to 1."""
    if not scope.notes or limit < 1 or not query.strip():
        return []
    named = _by_words(connection, stems, query, scope)
    near = nearness()
    relevance = {
        note: ranking.together(named.get(note, _Found()).relevance, near.get(note))
        for note in {*named, *ranking.nearest(near)}
    }
    rows = connection.execute(
        f"SELECT note, kind, importance, updated, id, file FROM note WHERE note {_AMONG}",
        (json.dumps(list(relevance)),),
    )
    # A copy may stand beside each.
    best = ranking.ranked(Ranked(relevance[row[0]], *row) for row in rows)[: 2 * limit]
    notes = records(connection, [one.note for one in best])
    copies = _copies(notes)
    found = []
    for one in best:
        # Another process may have taken it out meanwhile.
        if one.note not in notes or one.note in copies:
            continue
        why = [*named.get(one.note, _Found()).words]
        why += ["meaning"] if near.get(one.note) else []
        found.append(Hit(notes[one.note], round(one.score, 4), ", ".join(why)))
    return found[:limit]


def _copies(notes: Mapping[int, Note]) -> frozenset[int]:
    """Those shared notes that stand beside a session's own of which they are copies."""
    own = {
        (note.session, note.kind, note.title)
        for note in notes.values()
        if note.is_living and not note.is_shared
    }
    return frozenset(
        number
        for number, note in notes.items()
        if note.is_shared
        and any((one, note.kind, note.title) in own for one in note.related_sessions)
    )


def records(connection: sqlite3.Connection, some: Iterable[int]) -> dict[int, Note]:
    """Notes by their numbers."""
    rows = connection.execute(
        f"SELECT note, json FROM record WHERE note {_AMONG}", (json.dumps(list(some)),)
    )
    return {number: Note.model_validate_json(record) for number, record in rows}


def passages(connection: sqlite3.Connection, some: Iterable[int]) -> dict[int, str]:
    """What of some notes a model is given."""
    return {number: vectors.passage(note) for number, note in records(connection, some).items()}


def scope(connection: sqlite3.Connection, where: str, values: Mapping[str, str]) -> Scope:
    """The notes that an SQL condition holds for."""

    def read(columns: str) -> Any:
        return connection.execute(f"SELECT {columns} FROM note WHERE {where}", values).fetchone()

    # As one text they come ten times as fast as row by row.
    numbers, average = read("json_group_array(note), avg(words)")
    notes = frozenset(json.loads(numbers))
    return Scope(
        notes, average or 0.0, lambda: read("json_group_array(note), json_group_array(text)")
    )


def _by_words(
    connection: sqlite3.Connection, stems: Stems, query: str, scope: Scope
) -> dict[int, _Found]:
    """The notes that share words with the question.

    FTS5 says which notes hold a word; how much that tells is counted over the notes in scope alone,
    which its own bm25 does not know: so what is found in one session hangs on no other's notes.
    """
    asked = words.of_question(query[: words.LONGEST_QUESTION])
    notes = scope.notes
    terms: dict[str, ranking.Term] = {}
    for word, stem in zip(asked, stems.of(asked), strict=True):
        if stem not in terms:
            (found,) = connection.execute(
                "SELECT json_group_array(rowid) FROM words WHERE words MATCH ?", (f'"{stem}"',)
            ).fetchone()
            holding = notes.intersection(json.loads(found))
            terms[stem] = ranking.Term(word, ranking.weight(len(notes), len(holding)), holding)
    terms = ranking.chosen(terms, len(notes))
    rows = connection.execute(
        f"SELECT rowid, title, body FROM words WHERE rowid {_AMONG}",
        (json.dumps(ranking.candidates(terms)),),
    )
    scored = {
        note: _Found(*ranking.by_words(terms, title.split(), body.split(), scope.average))
        for note, title, body in rows
    }
    return {note: got for note, got in scored.items() if got.relevance >= ranking.LEAST_RELEVANCE}
