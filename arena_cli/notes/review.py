"""Review a team's notes: solved, stale, duplicate or contradictory ones. Pure.

- *approval*: a note claims an approval that is not recorded, or was changed since. It is only
  reported.
- *solved*: a message later than the blocker says that it is solved
  (`compliance.says_solved`). Proposed are a conclusion, and archiving the blocker.
- *stale*: a next action that was not changed for more than 30 days. Proposed is archiving it.
- *duplicate*: two notes of one kind whose titles say the same; the approved one is kept, else the
  earlier. Compared are the words of the claim in order, and a denial.
- *contradiction*: two decisions or requirements about the same thing that differ in a denial, in an
  amount, or in the choice (`notes.contradictions`). It is only reported: people decide which one
  is valid.

Both are also found between titles that say it in other words (`notes.paraphrases`), and with
vectors in another language. These are only reported.

Only living notes are reviewed: not archived, not superseded.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from arena_cli.notes import (
    compliance,
    contradictions,
    extraction,
    lifecycle,
    paraphrases,
    phrases,
    staging,
    statements,
)
from arena_cli.notes import text as text_module
from arena_cli.notes.contradictions import Contrast
from arena_cli.notes.model import PINNING_KINDS, Draft, Note
from arena_cli.notes.statements import Claim
from arena_cli.notes.vectors import AlikeNotes
from arena_cli.protocol import Message, parse_seq

STALE_AFTER = timedelta(days=30)

_ORDER = ("approval", "solved", "stale", "duplicate", "contradiction")

_MOST_SLIPS = 2  # words that two titles may write differently and still say the same

_WHY = {
    "en": {
        "changed": staging.CHANGED,
        "untold": staging.UNTOLD,
        "solved": "{message} says that it is solved: {said}",
        "stale": "unchanged for {days} days",
        "duplicate": "says the same as {other}",
        "alike": "says the same as {other} in other words",
        "terms": "{reason}; found by their terms",
        "meaning": "{reason}; found by vectors, cosine {cosine:.2f}",
        "negation": "one denies what the other says",
        "number": "they differ in a number ({ours} and {theirs})",
        "option": "another choice for the same thing ({ours} and {theirs})",
    },
    "zh": {
        "changed": "批准之后被改动过",
        "untold": "写着已批准，但没有批准的记录",
        "solved": "{message} 说已经解决：{said}",
        "stale": "{days} 天没有改动",
        "duplicate": "与 {other} 说的相同",
        "alike": "用别的话说了与 {other} 相同的内容",
        "terms": "{reason}；按词语比较得出",
        "meaning": "{reason}；按向量比较得出，余弦 {cosine:.2f}",
        "negation": "一个否定了另一个",
        "number": "数字不同（{ours} 与 {theirs}）",
        "option": "对同一件事选择不同（{ours} 与 {theirs}）",
    },
}


class NoteFinding(NamedTuple):
    """A problem of a note that a person should look at, and the reason.

    `other` is the note that a duplicate repeats, or that contradicts it. `message` is the message
    that declares a blocker solved, `conclusion` its words. `by` is how two notes were compared:
    word by word, by the same terms in another wording, or by the `cosine` of vectors.
    """

    what: Literal["approval", "solved", "stale", "duplicate", "contradiction"]
    note: Note
    reason: str
    other: Note | None = None
    message: str = ""
    conclusion: str = ""
    by: Literal["words", "terms", "meaning"] = "words"
    cosine: float | None = None

    @property
    def can_be_applied(self) -> bool:
        """True if arena can apply the proposal by itself."""
        return self.what not in ("approval", "contradiction") and self.by == "words"


def inspect(
    notes: Iterable[Note],
    messages: Iterable[Message],
    now: datetime,
    *,
    seen: Mapping[str, int] | None = None,
    alike: Iterable[AlikeNotes] = (),
    language: str = "en",
) -> list[NoteFinding]:
    """Return all findings, by kind of finding, then in the order of the notes.

    `messages` are those of the notes' session, in order; `seen` is the seq of the last message that
    each note, by its id, was taken from. `alike` are notes whose titles are alike in meaning. A
    note gets at most one finding that can be applied, and then no contradiction.
    """
    reason = _WHY.get(language, _WHY["en"])
    living = [note for note in notes if note.is_living]
    findings = [
        *_find_solved(living, messages, seen or {}, reason),
        *_find_stale(living, now, reason),
    ]
    findings += _find_duplicates(_exclude_found(living, findings), reason)
    remaining = _exclude_found(living, findings)
    findings += _find_contradictions(remaining, reason)
    findings += _find_paraphrases(alike, remaining, findings, reason)
    findings += _find_approvals(living, reason)
    return sorted(findings, key=lambda finding: _ORDER.index(finding.what))


def _exclude_found(notes: Sequence[Note], findings: Iterable[NoteFinding]) -> list[Note]:
    """Return the notes that have no finding."""
    done = {finding.note.id for finding in findings}
    return [note for note in notes if note.id not in done]


def _find_approvals(notes: Sequence[Note], reasons: Mapping[str, str]) -> Iterator[NoteFinding]:
    for note in notes:
        if note.approval:
            reason = "changed" if note.approval == staging.CHANGED else "untold"
            yield NoteFinding("approval", note, reasons[reason])


def _find_solved(
    notes: Sequence[Note],
    messages: Iterable[Message],
    seen: Mapping[str, int],
    reason: Mapping[str, str],
) -> Iterator[NoteFinding]:
    blockers = [note for note in notes if note.kind == "blocker"]
    solved: dict[str, NoteFinding] = {}
    for message in messages if blockers else ():
        later = [note for note in blockers if _is_later(message, note, seen)]
        for note, sentence in compliance.says_solved(later, message.content):
            solved.setdefault(
                note.id,
                NoteFinding(
                    "solved",
                    note,
                    reason["solved"].format(message=message.id, said=extraction.title_of(sentence)),
                    message=message.id,
                    conclusion=extraction.title_of(phrases.without_marker(sentence)),
                ),
            )
    yield from (solved[note.id] for note in blockers if note.id in solved)


def _is_later(message: Message, note: Note, seen: Mapping[str, int]) -> bool:
    """Return True if a message is later than the last message that the blocker was taken from."""
    last_seq = seen.get(note.id) or parse_seq(note.source or "")
    if last_seq:
        return message.seq > last_seq
    written, received = _read_time(note.created), _read_time(message.timestamp)
    return written is not None and received is not None and received > written


def _find_stale(
    notes: Sequence[Note], now: datetime, reason: Mapping[str, str]
) -> Iterator[NoteFinding]:
    for note in notes:
        touched = _read_time(note.updated) or _read_time(note.created)
        if note.kind == "next_action" and touched and now - touched > STALE_AFTER:
            yield NoteFinding("stale", note, reason["stale"].format(days=(now - touched).days))


def _read_time(text: str) -> datetime | None:
    """Return the time of a note, in UTC if it has no zone; None if it is invalid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _find_duplicates(notes: Sequence[Note], reasons: Mapping[str, str]) -> list[NoteFinding]:
    """Return a finding for each duplicate; all duplicates of a note refer to the same one."""
    by_note: dict[str, NoteFinding] = {}
    by_claim: dict[tuple[object, ...], Note] = {}
    originals = _Originals(notes)
    for note in sorted(notes, key=_rank):
        titled = _Titled.from_note(note)
        claim = titled.claim
        key = (note.kind, claim.denies, claim.rejected, claim.stems)
        same = by_claim.get(key) if claim.stems else None
        same = same or originals.find_or_add(titled)
        if same is None:
            by_claim[key] = note
        else:
            reason = reasons["duplicate"].format(other=same.id)
            by_note[note.id] = NoteFinding("duplicate", note, reason, same)
    return [by_note[note.id] for note in notes if note.id in by_note]


class _Titled(NamedTuple):
    """A note, the words of its title, the set of these words, and the claim of the title."""

    note: Note
    words: tuple[str, ...]
    word_set: frozenset[str]
    claim: Claim

    @classmethod
    def from_note(cls, note: Note) -> _Titled:
        words = lifecycle.words(note.title)
        return cls(note, words, frozenset(words), statements.read_claim(note.title))


_Key = tuple[str, int, frozenset[str], object, str]


class _Originals:
    """Notes that repeat no other one, by the rarest words of their titles.

    Of two titles that say the same, each has at most `_MOST_SLIPS` words that the other lacks. So
    they share one of their rarest, one more than that, and only such titles are compared. Titles
    with fewer words may share none, and are compared too.
    """

    def __init__(self, notes: Sequence[Note]) -> None:
        self._counts = Counter(word for note in notes for word in set(lifecycle.words(note.title)))
        self._titles: list[_Titled] = []
        self._holding: defaultdict[_Key, list[int]] = defaultdict(list)

    def find_or_add(self, titled: _Titled) -> Note | None:
        """Return the first note that says the same; if there is none, add this one."""
        keys = self._list_keys(titled)
        for number in sorted({number for key in keys for number in self._holding.get(key, ())}):
            other = self._titles[number]
            is_near = len(other.word_set - titled.word_set) <= _MOST_SLIPS
            if is_near and lifecycle.match_titles(other.note.title, titled.note.title):
                return other.note
        for key in keys:
            self._holding[key].append(len(self._titles))
        self._titles.append(titled)
        return None

    def _list_keys(self, titled: _Titled) -> list[_Key]:
        rarest = sorted(titled.word_set, key=lambda word: (self._counts[word], word))
        keys = rarest[: _MOST_SLIPS + 1]
        if len(rarest) <= _MOST_SLIPS:
            keys.append("")
        numbers = text_module.numbers(titled.note.title)
        kind, periods = titled.note.kind, titled.claim.periods
        return [(kind, len(titled.words), numbers, periods, word) for word in keys]


def _find_contradictions(
    notes: Sequence[Note], reasons: Mapping[str, str]
) -> Iterator[NoteFinding]:
    pinning = (note for note in notes if note.kind in PINNING_KINDS)
    for earlier, later, contrast in contradictions.find_contradictions(pinning):
        yield _describe_contradiction(earlier, later, contrast, reasons)


def _describe_contradiction(
    earlier: Note, later: Note, contrast: Contrast, reasons: Mapping[str, str]
) -> NoteFinding:
    reason = reasons[contrast.type].format(ours=contrast.first, theirs=contrast.second)
    return NoteFinding("contradiction", later, reason, earlier)


def _find_paraphrases(
    alike: Iterable[AlikeNotes],
    notes: Sequence[Note],
    known: Iterable[NoteFinding],
    reasons: Mapping[str, str],
) -> Iterator[NoteFinding]:
    """Yield a finding for notes with titles that share terms or a meaning, but for `known` pairs.

    A note is a duplicate once at most, and nothing is a duplicate of that.
    """
    reviewed = {note.id for note in notes}
    compared = {
        frozenset((finding.note.id, finding.other.id)) for finding in known if finding.other
    }
    copies: set[str] = set()
    for first, second, cosine in (*_pair_by_terms(notes), *alike):
        names = frozenset((first.id, second.id))
        if not names <= reviewed or names in compared:
            continue
        finding = _compare_titles(first, second, cosine, reasons)
        if finding is None:
            continue
        if finding.what == "duplicate":
            if names & copies:
                continue
            copies.add(finding.note.id)
        compared.add(names)
        by: Literal["terms", "meaning"] = "terms" if cosine is None else "meaning"
        reason = reasons[by].format(reason=finding.reason, cosine=cosine)
        yield finding._replace(reason=reason, by=by, cosine=cosine)


def _compare_titles(
    first: Note, second: Note, cosine: float | None, reasons: Mapping[str, str]
) -> NoteFinding | None:
    """Return a finding for two notes, if their titles say the same or contradict each other."""
    earlier, later = sorted((first, second), key=lambda note: (note.created, note.id))
    paraphrase = paraphrases.compare(earlier.title, later.title, cosine)
    if paraphrase is None:
        return None
    if paraphrase.contrast:
        are_pinning = {earlier.kind, later.kind} <= PINNING_KINDS
        contrast = paraphrase.contrast
        return _describe_contradiction(earlier, later, contrast, reasons) if are_pinning else None
    if earlier.kind != later.kind:
        return None
    kept, copy = sorted((first, second), key=_rank)
    return NoteFinding("duplicate", copy, reasons["alike"].format(other=kept.id), kept)


def _pair_by_terms(notes: Sequence[Note]) -> Iterator[tuple[Note, Note, None]]:
    claims = [statements.read_claim(note.title) for note in notes]
    for first, second in contradictions.pair_by_topic(claims):
        yield notes[first], notes[second], None


def _rank(note: Note) -> tuple[bool, str, str]:
    """Return the key by which the first of some equal notes is kept: approved, then earlier."""
    return note.status != "approved", note.created, note.id


_EMPTY_SECTION = re.compile(r"^#{1,6}[ \t][^\r\n]*\s*(?=^#{1,6}[ \t]|\Z)", re.MULTILINE)
_CONVERTED = {"en": "Solved blocker: {title}", "zh": "已解决的阻塞：{title}"}


def conclude(finding: NoteFinding, text: str, *, language: str = "en") -> Draft:
    """Return the conclusion of a solved blocker, with its text, owner and tags.

    `text` is all that is in the blocker's file after its front matter; its empty sections are left
    out.
    """
    blocker = finding.note
    head = _CONVERTED.get(language, _CONVERTED["en"]).format(title=blocker.title)
    return Draft(
        "conclusion",
        finding.conclusion,
        f"{head}\n\n{_EMPTY_SECTION.sub('', text).strip()}".rstrip(),
        source=finding.message,
        tags=tuple(blocker.tags),
        owner=blocker.owner,
    )
