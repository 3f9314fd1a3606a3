"""The prose of the documentation contains no banned phrase."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prose_words import BANNED, BannedPhrase, find_banned_phrases

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "docs" / "reference" / "help.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path != GENERATED),
]

_FENCE = re.compile(r"^ *(`{3,})[^\n`]*\n.*?^ *\1[ ]*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|https?://\S+")


def blank_code(text: str) -> str:
    """Return the text with code, link targets and addresses blanked; line numbers stay."""
    for pattern in (_FENCE, _CODE_SPAN, _TARGET):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n") or "_", text)
    return text


def find_in_page(text: str) -> list[BannedPhrase]:
    """Return the banned phrases in the prose of a page."""
    return list(find_banned_phrases(blank_code(text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_has_no_banned_phrase(page: Path) -> None:
    problems = [
        f"{page.relative_to(ROOT)}:{phrase.line}: `{phrase.phrase}`; write: {phrase.replacement}"
        for phrase in find_in_page(page.read_text(encoding="utf-8"))
    ]
    assert not problems, "\n".join(problems)


def list_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a module, with its first line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text


def test_docstrings_have_no_banned_phrase() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{line + phrase.line - 1}: `{phrase.phrase}`; "
        f"write: {phrase.replacement}"
        for path in sorted((ROOT / "arena_cli").rglob("*.py"))
        for line, text in list_docstrings(path.read_text(encoding="utf-8"))
        for phrase in find_in_page(text)
    ]
    assert not problems, "\n".join(problems)


def test_a_docstring_is_read_with_its_line() -> None:
    assert list(list_docstrings('x = 1\n\n\ndef f():\n    """Stand anew."""\n')) == [
        (5, "Stand anew.")
    ]


@pytest.mark.parametrize(
    ("text", "line", "phrase"),
    [
        ("arena starts.\nThe index is made anew.", 2, "anew"),
        ("A mistake is told with its mend.", 1, "is told"),
        ("Take it\nover with `--update`.", 1, "Take it over"),
        ("```sh\narena run\n```\n\nNobody answers.", 5, "Nobody"),
        ("See `arena run` and\n`arena show`, whatever happens.", 2, "whatever"),
    ],
)
def test_a_banned_phrase_is_found_with_its_line(text: str, line: int, phrase: str) -> None:
    assert (line, phrase) in [(found.line, found.phrase) for found in find_in_page(text)]


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ arena run\nnobody is called\n```\n",
        "The timeline prints `must reply: none`.",
        "``a ` nobody``",
        "See [ignored notes](knowledge.md#did-it-heed-what-it-knew).",
        "Recommended amendments for a default.",
    ],
)
def test_code_links_and_longer_words_are_no_prose(text: str) -> None:
    assert find_in_page(text) == []


def test_every_banned_phrase_has_a_replacement() -> None:
    for pattern, replacement in BANNED.items():
        assert replacement.strip(), pattern
        assert not list(find_banned_phrases(replacement)), pattern
