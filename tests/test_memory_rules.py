"""The rules of the memory on texts that they were not tuned on (benchmarks/memory_rules.py)."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from product import KINDS, extraction, phrases

FILE = Path(__file__).parents[1] / "benchmarks" / "memory_rules.py"


def load_benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("memory_rules", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = load_benchmark()
SETS = ("judge", "fresh", "field-judge")


def score(cases: list[Any]) -> tuple[float, float]:
    """Return precision and recall."""
    count = Counter(outcome for case in cases for _, outcome in case.score())
    return (
        count["right"] / (count["right"] + count["wrong"]),
        count["right"] / (count["right"] + count["missed"]),
    )


@pytest.mark.parametrize("part", SETS)
@pytest.mark.parametrize(
    ("subject", "precision", "recall"),
    [("notes", 0.9, 0.7), ("heeding", 0.8, 0.8), ("pairs", 1.0, 0.8)],
)
def test_the_rules_are_right_and_find_most(
    part: str, subject: str, precision: float, recall: float
) -> None:
    cases = list(BENCHMARK.SUBJECTS[subject](part))
    actual = score(cases)
    assert actual[0] >= precision
    assert actual[1] >= recall


@pytest.mark.parametrize("subject", BENCHMARK.SUBJECTS)
def test_the_sets_are_large_and_in_both_languages(subject: str) -> None:
    cases = [case for part in SETS for case in BENCHMARK.SUBJECTS[subject](part)]
    chinese = sum(any("一" <= char <= "鿿" for char in case.text) for case in cases)
    assert len(cases) >= 130
    assert len(cases) / 3 < chinese < len(cases) * 2 / 3
    assert sum(not case.expected for case in cases) > len(cases) / 3


def test_the_prefilter_loses_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, every phrase is searched in every sentence."""
    texts = [
        text for part in ("tune", *SETS) for _, text in BENCHMARK.read_rows("note_rules.tsv", part)
    ]
    filtered = [extraction.extract_by_rules(text, by="", source="m1") for text in texts]
    monkeypatch.setattr(phrases, "cued_kinds", lambda text: set(KINDS))
    unfiltered = [extraction.extract_by_rules(text, by="", source="m1") for text in texts]
    lost = [
        (text, complete)
        for text, drafts, complete in zip(texts, filtered, unfiltered, strict=True)
        if drafts != complete
    ]
    assert lost == []
