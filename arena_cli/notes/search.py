"""Search notes by words and by meaning, combined."""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import eq, itemgetter
from typing import NamedTuple, TypeVar

from arena_cli.notes import text, vectors
from arena_cli.notes.model import Kind, Note
from arena_cli.notes.text import Stems

_K = TypeVar("_K")

_AMONG = "IN (SELECT value FROM json_each(?))"

KIND_WEIGHTS: dict[Kind, float] = {
    "blocker": 3,
    "next_action": 2,
    "progress": 0.8,
    "reference": 0.5,
}
"""What a note's relevance is multiplied by; those that are not named count 1."""

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

_MOST_KEPT = 1_000  # notes that are kept, and notes whose words are kept
_MOST_HELD = 100  # stems of which the notes that hold them are kept
_TITLE = 3


class Term(NamedTuple):
    """A word of the question as it was written, its weight, and the notes that contain it."""

    word: str
    weight: float
    notes: Set[int]


def weight(total: int, holding: int) -> float:
    """Return the weight of a word in `holding` of `total` notes (BM25's idf as in Lucene)."""
    return math.log1p((total - holding + 0.5) / (holding + 0.5))


def _choose(terms: Mapping[str, Term], total: int) -> dict[str, Term]:
    """Return the rarest terms that any note contains, by stem; among equals the first ones.

    If there are many notes, a word that a third of them contain is only used if there is no other.
    """
    held = {stem: term for stem, term in terms.items() if term.notes}
    most = total / 3 if total >= MANY_NOTES else total
    telling = {stem: term for stem, term in held.items() if len(term.notes) <= most} or held
    rarest = sorted(telling, key=lambda stem: -telling[stem].weight)[:MOST_WORDS]
    return {stem: telling[stem] for stem in rarest}


def _candidates(terms: Mapping[str, Term]) -> list[int]:
    """Return the notes with the most terms, which are sorted rarest first.

    At most `MOST_CANDIDATES` are returned. Once enough notes contain a rare term, notes that
    contain only more common ones are skipped.
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


class NoteWords(NamedTuple):
    """The stems of a note's title and body, each between blanks of its own, and how many it has."""

    title: str
    body: str
    length: int

    @classmethod
    def of(cls, title: str, body: str) -> NoteWords:
        """Return the words of a note with these stems."""
        length = title.count(" ") + bool(title) + body.count(" ") + bool(body)
        return cls(f" {title.replace(' ', '  ')} ", f" {body.replace(' ', '  ')} ", length)

    def count(self, stem: str) -> int:
        """Return how often the note has a stem; in the title each counts more than once."""
        word = f" {stem} "
        return self.body.count(word) + _TITLE * self.title.count(word)


class FoundNotes:
    """The notes that questions found, and their words, kept until a note changes."""

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._words: dict[int, NoteWords] = {}

    def words_of(
        self, connection: sqlite3.Connection, numbers: Iterable[int]
    ) -> dict[int, NoteWords]:
        """Return the words of these notes, read if they are not known."""
        known = {number: self._words.get(number) for number in numbers}
        rows = connection.execute(
            f"SELECT rowid, title, body FROM words WHERE rowid {_AMONG}",
            (json.dumps([number for number, words in known.items() if words is None]),),
        )
        if len(self._words) > _MOST_KEPT:
            self._words.clear()
        for number, title, body in rows:
            known[number] = self._words[number] = NoteWords.of(title, body)
        return {number: words for number, words in known.items() if words is not None}

    def records_of(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Note]:
        """Return these notes, read if they are not known."""
        known = {number: self._notes[number] for number in numbers if number in self._notes}
        new = records(connection, [number for number in numbers if number not in known])
        if len(self._notes) > _MOST_KEPT:
            self._notes.clear()
        self._notes.update(new)
        return {**known, **new}


def _score(
    terms: Mapping[str, Term], note: int, note_words: NoteWords, average: float
) -> tuple[float, list[str]]:
    """Return the score of a note, and the words of the question that it contains.

    `average` is the mean number of words in scope.
    """
    length = 1 - _B + _B * note_words.length / max(average, 1)
    total, words = 0.0, []
    for stem, term in terms.items():
        if note in term.notes:
            often = note_words.count(stem)
            if often:
                total += term.weight * often / (often + _K1 * length)
                words.append(term.word)
    return total, words


def _combine(by_words: float, by_meaning: float | None) -> float:
    """Combine both into a relevance from 0 to 1; `by_meaning` is None without a vector.

    The shares are the best of those tried on tests/data/questions.yaml; equal shares are nearly as
    good.
    """
    return by_words if by_meaning is None else 0.4 * by_words + 0.6 * by_meaning


_NEAR_WORD = 70.0  # of 100, by rapidfuzz
_NEAR_PAIR = 50.0  # one of the two characters into which text without spaces is cut
_MOST_NEAR_WORDS = 5
_MOST_ASKED = 8
_MOST_ALIKE = 20


class Hit(NamedTuple):
    """A note that was found; `score` is its relevance times its kind's weight, at most 3.

    `why` names the words of the question that it contains, and `meaning` if that is similar.
    """

    note: Note
    score: float
    why: str


@dataclass(frozen=True, eq=False)
class Scope:
    """The notes that may be found, by number, and their average number of words.

    `held` are the notes that hold a stem, for stems that were asked for.
    """

    notes: frozenset[int]
    average: float
    held: dict[str, frozenset[int]] = field(default_factory=dict)


class _WordMatch(NamedTuple):
    relevance: float = 0.0
    words: Sequence[str] = ()


_NO_MATCH = _WordMatch()


def hits(
    connection: sqlite3.Connection,
    stems: Stems,
    found: FoundNotes,
    query: str,
    scope: Scope,
    nearness: Callable[[], Mapping[int, float]],
    limit: int,
) -> list[Hit]:
    """Return the best notes in scope; `nearness` returns how near notes are in meaning, 0 to 1."""
    if not scope.notes or limit < 1 or not query.strip():
        return []
    word_hits = _by_words(connection, stems, found, query, scope)
    near = nearness()
    nearest = heapq.nsmallest(MOST_NEAR, near, key=lambda note: (-near[note], note))
    relevance = {
        note: _combine(word_hits.get(note, _NO_MATCH).relevance, near.get(note))
        for note in {*word_hits, *(note for note in nearest if near[note] > 0)}
    }
    rows = connection.execute(
        f"SELECT note, kind, importance FROM note WHERE note {_AMONG} "
        "ORDER BY updated DESC, id, file",
        (json.dumps(list(relevance)),),
    )
    scored = [
        (-round(relevance[note] * KIND_WEIGHTS.get(kind, 1), 4), -importance, note)
        for note, kind, importance in rows
    ]
    best = sorted(scored, key=itemgetter(0, 1))[: 2 * limit]  # a copy may stand beside each
    notes = found.records_of(connection, [note for _, _, note in best])
    copies = _copies(notes)
    result = []
    for score, _, note in best:
        # Another process may have taken it out meanwhile.
        if note not in notes or note in copies:
            continue
        reason = [*word_hits.get(note, _NO_MATCH).words]
        reason += ["meaning"] if near.get(note) else []
        result.append(Hit(notes[note], -score, ", ".join(reason)))
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


def select(
    connection: sqlite3.Connection, condition: str, values: Sequence[str], *, has_body: bool
) -> list[tuple[Note, str]]:
    """Return the notes that satisfy an SQL condition, each with the hash of its approved parts.

    Without `has_body` their texts are not read.
    """
    body = "body" if has_body else "''"
    rows = connection.execute(
        f"SELECT json, {body}, approval FROM note JOIN record USING (note) "
        f"WHERE kind != '' {condition}",
        values,
    )
    return [(_read(record, text), sha) for record, text, sha in rows]


def _read(record: str, body: str) -> Note:
    """Return a note from its fields, and its text if that is not empty, as JSON."""
    return Note.model_validate_json(f'{record[:-1]},"body":{body}}}' if body else record)


def records(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Note]:
    """Return notes by their numbers."""
    rows = connection.execute(
        f"SELECT note, json, body FROM record WHERE note {_AMONG}", (json.dumps(list(numbers)),)
    )
    return {number: _read(record, body) for number, record, body in rows}


def passages(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, str]:
    """Return the passages of some notes, as passed to the model."""
    return {number: vectors.passage(note) for number, note in records(connection, numbers).items()}


def scope(connection: sqlite3.Connection, condition: str, values: Mapping[str, str]) -> Scope:
    """Return the notes that satisfy an SQL condition."""
    # As one text they come ten times as fast as row by row.
    numbers, average = connection.execute(
        f"SELECT json_group_array(note), avg(words) FROM note WHERE {condition}", values
    ).fetchone()
    return Scope(frozenset(json.loads(numbers)), average or 0.0)


def passage_keys(
    connection: sqlite3.Connection, condition: str, values: Mapping[str, str]
) -> dict[int, str]:
    """Return the keys of the passages of these notes, by the number of the note."""
    row = connection.execute(
        f"SELECT json_group_array(note), json_group_array(text) FROM note WHERE {condition}", values
    ).fetchone()
    return dict(zip(*map(json.loads, row), strict=True))


def spelled_alike(text: str, choices: Mapping[_K, str], least: float) -> list[tuple[float, _K]]:
    """Return how nearly alike each choice is spelled, up to 100, and its key; the best first."""
    from rapidfuzz import fuzz, process  # noqa: PLC0415 - most processes compare none

    near = process.extract(text, choices, scorer=fuzz.ratio, score_cutoff=least, limit=None)
    return [(score, key) for _, score, key in near]


def near_words(connection: sqlite3.Connection, stems: Stems, query: str, scope: Scope) -> list[str]:
    """Return words of the notes in scope that are spelled nearly like words of the question."""
    asked = stems.of(text.of_question(query[: text.LONGEST_QUESTION]))[:_MOST_ASKED]
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab('main', 'words', 'row')"
    )
    rows = connection.execute("SELECT term FROM vocabulary WHERE length(term) > 1")
    terms = {term: term for (term,) in rows}
    near: list[tuple[float, str]] = []
    for stem in asked:
        is_pair = len(stem) == 2 and not stem.isascii()
        alike = spelled_alike(stem, terms, _NEAR_PAIR if is_pair else _NEAR_WORD)
        if is_pair:  # with one other character, not with the same ones elsewhere
            alike = [(score, term) for score, term in alike if any(map(eq, stem, term))]
        near += ((-score, term) for score, term in alike[:_MOST_ALIKE])
    words: dict[str, None] = {}
    for _, term in sorted(near):
        if len(words) < _MOST_NEAR_WORDS and (word := _spell(connection, stems, term, scope)):
            words[word] = None
    return list(words)


def _spell(connection: sqlite3.Connection, stems: Stems, stem: str, scope: Scope) -> str | None:
    """Return the word of that stem as a note in scope has it; None if none has it."""
    rows = connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (f'"{stem}"',))
    number = next((number for (number,) in rows if number in scope.notes), None)
    note = records(connection, [number]).get(number) if number is not None else None
    if note is None:
        return None
    words = text.of_note(" ".join((note.title, *note.tags, *note.aliases, note.body)))
    return next((word for word in words if stems.of([word]) == [stem]), None)


def _holding(connection: sqlite3.Connection, stem: str, scope: Scope) -> frozenset[int]:
    """Return the notes in scope that hold a stem."""
    holding = scope.held.get(stem)
    if holding is None:
        (numbers,) = connection.execute(
            "SELECT json_group_array(rowid) FROM words WHERE words MATCH ?", (f'"{stem}"',)
        ).fetchone()
        if len(scope.held) >= _MOST_HELD:
            scope.held.clear()
        holding = scope.held[stem] = scope.notes.intersection(json.loads(numbers))
    return holding


def _by_words(
    connection: sqlite3.Connection,
    stems: Stems,
    found: FoundNotes,
    query: str,
    scope: Scope,
) -> dict[int, _WordMatch]:
    """Return the notes that share words with the question.

    FTS5 finds the notes that contain a word. The weight of a word is computed over the notes in
    scope alone, which FTS5's own bm25 cannot do: so the results in one session do not depend on
    other sessions' notes.
    """
    question_words = text.of_question(query[: text.LONGEST_QUESTION])
    notes = scope.notes
    terms: dict[str, Term] = {}
    for word, stem in zip(question_words, stems.of(question_words), strict=True):
        if stem not in terms:
            holding = _holding(connection, stem, scope)
            terms[stem] = Term(word, weight(len(notes), len(holding)), holding)
    terms = _choose(terms, len(notes))
    best = sum(heapq.nlargest(ENOUGH_WORDS, (term.weight for term in terms.values())))
    matches: dict[int, _WordMatch] = {}
    for note, note_words in found.words_of(connection, _candidates(terms)).items():
        score, words = _score(terms, note, note_words, scope.average)
        if score >= LEAST_RELEVANCE * best:
            matches[note] = _WordMatch(min(score / best, 1.0), words)
    return matches
