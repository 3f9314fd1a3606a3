"""Cases from the field about YAML files."""

from __future__ import annotations

from pathlib import Path

import pytest
from product import AgentProfile
from product import yamlio_loader as loader

TEXT = "agent_id: dev\nname: 开发\nadapter:\n  type: scripted\n  replies: [你好]\n"


def test_c41_a_value_that_starts_with_at_must_be_quoted() -> None:
    (fault,) = loader.parse("step: 1\nmessage: @alice hi\n", "s.yaml").faults
    assert (
        str(fault) == "s.yaml:2: a value that starts with @ must be quoted\n"
        "  message: @alice hi\n"
        "           ^\n"
        '  write: message: "@alice hi"'
    )


def test_c41_a_tab_cannot_indent() -> None:
    (fault,) = loader.parse("adapter:\n\ttype: cli\n", "a.yaml").faults
    assert str(fault) == (
        "a.yaml:2: a tab cannot indent in YAML\n  \\ttype: cli\n  ^\n  indent with spaces"
    )


@pytest.mark.parametrize("text", ["no", "1:30", "2026-11-28", "on", "yes", "off"])
def test_c41_what_looks_like_a_text_stays_a_text(text: str) -> None:
    document = loader.parse(f"{TEXT}avatar: {text}\n", "dev.yaml")
    profile, faults = loader.validate(document, AgentProfile)
    assert faults == []
    assert profile is not None
    assert profile.avatar == text


def test_c42_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    (fault,) = loader.parse(f"{TEXT}  model: a\n  model: b\n", "dev.yaml").faults
    assert (
        str(fault) == "dev.yaml:7: adapter.model: appears twice; first on line 6\n"
        "  model: b\n"
        "  ^\n"
        "  remove one of them"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        TEXT.replace("\n", "\r\n", 2).encode(),
        b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n", 3).encode(),
    ],
    ids=["bom", "crlf", "cr", "mixed", "bom and mixed"],
)
def test_c42_bom_and_line_endings_make_no_difference(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "dev.yaml"
    path.write_bytes(raw)
    read, plain = loader.load(path, "dev.yaml"), loader.parse(TEXT, "dev.yaml")
    assert (read.data, read.faults) == (plain.data, ())
    assert read.line(("adapter", "replies", 0)) == plain.line(("adapter", "replies", 0)) == 5
