"""Search notes by their words and by their meaning, put together."""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from arena_cli.notes import text, vectors
from arena_cli.notes.model import Kind, Note
from arena_cli.notes.text import Stems

KIND_WEIGHTS: dict[Kind, float] = {
    "blocker": 3,
    "next_action": 2,
    "progress": 0.8,
    "reference": 0.5,
}
"""What a note's relevance is multiplied by; those that are not named count 1."""

MOST_SHOWN = 6

MOST_WORDS = 48
"""So many words of a long question are looked for, the rarest of them."""

ENOUGH_WORDS = 8
"""A note with so many of a question's rarest words has all that can be asked of it."""

MANY_NOTES = 100
ENOUGH_NOTES = 500
MOST_CANDIDATES = 120
MOST_NEAR = 500
LEAST_RELEVANCE = 0.05
"""One rare word of a long question is a hit, one that many notes hold is none."""

# Okapi BM25 with its usual constants; a word in a title counts as three in the text.
_K1, _B = 1.2, 0.75
_TITLE = 3


class Term(NamedTuple):
    """A word of the question as it was written, its weight, and the notes that hold it."""

    word: str
    weight: float
    notes: Set[int]


def weight(total: int, holding: int) -> float:
    """Return the weight of a word by the number of notes that hold it (BM25's idf as in Lucene)."""
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def chosen(terms: Mapping[str, Term], total: int) -> dict[str, Term]:
    """The rarest of the terms that any note holds, by stem; of equals the first ones.

    Of many notes, a word that a third of them hold tells nothing, unless there is no other.
    """
    held = {stem: term for stem, term in terms.items() if term.notes}
    most = total / 3 if total >= MANY_NOTES else total
    telling = {stem: term for stem, term in held.items() if len(term.notes) <= most} or held
    rarest = sorted(telling, key=lambda stem: -telling[stem].weight)[:MOST_WORDS]
    return {stem: telling[stem] for stem in rarest}


def candidates(terms: Mapping[str, Term]) -> list[int]:
    """The notes that hold most of the terms, which come rarest first; at most `MOST_CANDIDATES`.

    Once enough notes hold a rare one, those that hold only commoner ones are passed over.
    """
    sums: dict[int, float] = {}
    for term in terms.values():
        if len(sums) < ENOUGH_NOTES:
            for note in term.notes:
                sums[note] = sums.get(note, 0.0) + term.weight
        else:
            for note in sums.keys() & term.notes:
                sums[note] += term.weight
    return heapq.nsmallest(MOST_CANDIDATES, sums, key=lambda note: (-sums[note], note))


def nearest(near: Mapping[int, float]) -> list[int]:
    """The notes that are near at all, at most `MOST_NEAR`."""
    candidates = (note for note, score in near.items() if score > 0)
    return heapq.nsmallest(MOST_NEAR, candidates, key=lambda note: (-near[note], note))


def by_words(
    terms: Mapping[str, Term], title: Sequence[str], body: Sequence[str], average: float
) -> tuple[float, list[str]]:
    """From 0 to 1, how far a note of these stems has the terms, and which of them."""
    counts, titled = Counter(body), Counter(title)
    length = 1 - _B + _B * (len(body) + len(title)) / max(average, 1)
    total, hits = 0.0, []
    for stem, term in terms.items():
        often = counts[stem] + _TITLE * titled[stem]
        if often:
            total += term.weight * often / (often + _K1 * length)
            hits.append(term.word)
    best = sorted((term.weight for term in terms.values()), reverse=True)[:ENOUGH_WORDS]
    return min(total / sum(best), 1.0), hits


def together(by_words: float, by_meaning: float | None) -> float:
    """Combine both into a relevance from 0 to 1; `by_meaning` None: there is no vector.

    The shares are the best of those tried on tests/data/questions.yaml, where equal ones do nearly
    as well.
    """
    return by_words if by_meaning is None else 0.4 * by_words + 0.6 * by_meaning


class Ranked(NamedTuple):
    """A note that has to do with the question, and what decides between equals."""

    relevance: float
    note: int
    kind: Kind
    importance: float
    updated: str
    id: str
    file: str

    @property
    def score(self) -> float:
        """Its relevance times its kind's weight."""
        return self.relevance * KIND_WEIGHTS.get(self.kind, 1)


def ranked(hits: Iterable[Ranked]) -> list[Ranked]:
    """The best first; of equals the more important, then the newest, then by id and file."""
    by_name = sorted(hits, key=lambda one: (one.id, one.file))
    newest_first = sorted(by_name, key=lambda one: one.updated, reverse=True)
    return sorted(newest_first, key=lambda one: (-round(one.score, 4), -one.importance))


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


class _Candidates(NamedTuple):
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
    word_hits = _by_words(connection, stems, query, scope)
    near = nearness()
    relevance = {
        note: together(word_hits.get(note, _Candidates()).relevance, near.get(note))
        for note in {*word_hits, *nearest(near)}
    }
    rows = connection.execute(
        f"SELECT note, kind, importance, updated, id, file FROM note WHERE note {_AMONG}",
        (json.dumps(list(relevance)),),
    )
    # A copy may stand beside each.
    best = ranked(Ranked(relevance[row[0]], *row) for row in rows)[: 2 * limit]
    notes = records(connection, [hit.note for hit in best])
    copies = _copies(notes)
    result = []
    for hit in best:
        # Another process may have taken it out meanwhile.
        if hit.note not in notes or hit.note in copies:
            continue
        reason = [*word_hits.get(hit.note, _Candidates()).words]
        reason += ["meaning"] if near.get(hit.note) else []
        result.append(Hit(notes[hit.note], round(hit.score, 4), ", ".join(reason)))
    return result[:limit]


def _copies(notes: Mapping[int, Note]) -> frozenset[int]:
    """Return the shared notes that are copies of a session's own."""
    own_notes = {
        (note.session, note.kind, note.title)
        for note in notes.values()
        if note.is_living and not note.is_shared
    }
    return frozenset(
        number
        for number, note in notes.items()
        if note.is_shared
        and any(
            (related_session, note.kind, note.title) in own_notes
            for related_session in note.related_sessions
        )
    )


def records(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Note]:
    """Notes by their numbers."""
    rows = connection.execute(
        f"SELECT note, json FROM record WHERE note {_AMONG}", (json.dumps(list(numbers)),)
    )
    return {number: Note.model_validate_json(record) for number, record in rows}


def passages(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, str]:
    """Return the passages of some notes as a model is given them."""
    return {number: vectors.passage(note) for number, note in records(connection, numbers).items()}


def scope(connection: sqlite3.Connection, condition: str, values: Mapping[str, str]) -> Scope:
    """The notes that an SQL condition holds for."""

    def read(columns: str) -> Any:
        return connection.execute(
            f"SELECT {columns} FROM note WHERE {condition}", values
        ).fetchone()

    # As one text they come ten times as fast as row by row.
    numbers, average = read("json_group_array(note), avg(words)")
    notes = frozenset(json.loads(numbers))
    return Scope(
        notes, average or 0.0, lambda: read("json_group_array(note), json_group_array(text)")
    )


def _by_words(
    connection: sqlite3.Connection, stems: Stems, query: str, scope: Scope
) -> dict[int, _Candidates]:
    """The notes that share words with the question.

    FTS5 says which notes hold a word; how much that tells is counted over the notes in scope alone,
    which its own bm25 does not know: so what is found in one session hangs on no other's notes.
    """
    question_words = text.of_question(query[: text.LONGEST_QUESTION])
    notes = scope.notes
    terms: dict[str, Term] = {}
    for word, stem in zip(question_words, stems.of(question_words), strict=True):
        if stem not in terms:
            (numbers,) = connection.execute(
                "SELECT json_group_array(rowid) FROM words WHERE words MATCH ?", (f'"{stem}"',)
            ).fetchone()
            holding = notes.intersection(json.loads(numbers))
            terms[stem] = Term(word, weight(len(notes), len(holding)), holding)
    terms = chosen(terms, len(notes))
    rows = connection.execute(
        f"SELECT rowid, title, body FROM words WHERE rowid {_AMONG}",
        (json.dumps(candidates(terms)),),
    )
    scored = {
        note: _Candidates(*by_words(terms, title.split(), body.split(), scope.average))
        for note, title, body in rows
    }
    return {note: got for note, got in scored.items() if got.relevance >= LEAST_RELEVANCE}
