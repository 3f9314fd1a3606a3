"""A note's file as text: what is read of it, and what a change leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import KINDS, Kind, Note, NoteFault, markdown
from product import notes_model as model

FILE = "sessions/s/knowledge/decision-auth.md"


def parse(text: str, id: str = "decision-auth") -> Note:
    return markdown.parse(text, id=id, file=FILE)


def fault(text: str) -> NoteFault:
    with pytest.raises(NoteFault) as told:
        parse(text)
    return told.value


def test_all_fields_are_read_and_unknown_keys_are_left_alone() -> None:
    note = parse(
        "---\ntitle: Use OAuth\nkind: decision\nstatus: approved\nimportance: 1\n"
        "tags: [auth, 安全]\nowner: dev\nsource: m3\nrelated_sessions:\n  - s\n"
        "occurrences: 2\napproved_by: ann\nx-obsidian: yes\ncssclass: wide\n---\n\nBecause.\n"
    )
    assert (note.title, note.kind, note.status, note.importance) == (
        *("Use OAuth", "decision", "approved"),
        1.0,
    )
    assert (note.tags, note.owner, note.source) == (["auth", "安全"], "dev", "m3")
    assert (note.related_sessions, note.occurrences, note.body) == (["s"], 2, "Because.\n")
    assert note.pins


@pytest.mark.parametrize(
    ("id", "text", "kind", "title"),
    [
        ("pit-slow-db", "no heading", "pit", "slow db"),
        ("next_action-call", "# Call them #\n\ntext", "next_action", "Call them"),
        ("thoughts", "", "reference", "thoughts"),
        ("pits/慢", "text", "pit", "慢"),
        ("solutions/x", "\ufeff# 好\r\ntext\r\n", "solution", "好"),
    ],
)
def test_a_file_without_front_matter_is_a_draft(id: str, text: str, kind: str, title: str) -> None:
    note = parse(text, id)
    assert (note.kind, note.title, note.status) == (kind, title, "draft")
    assert note.body == text.removeprefix("\ufeff")


def test_front_matter_that_says_nothing_of_kind_or_title_is_filled_in_alike() -> None:
    note = parse("---\ntags: [a]\nowner:\ntitle: ~\n---\n# Heading\n")
    assert (note.kind, note.title, note.tags, note.owner) == ("decision", "Heading", ["a"], "")
    assert parse("---\n---\ntext").body == "text"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("---\ntitle: x\nstatus: aproved\n---\n", 3, "aproved"),
        ("---\ntitle: x\n\nkind: [pit]\n---\n", 4, "kind"),
        ("\ufeff---\r\ntitle: x\r\noccurrences: two\r\n---\r\n", 3, "occurrences"),
        ("---\ntitle: one\ntitle: two\n---\n", 3, "twice"),
        ("---\ntitle: @dev said\n---\n", 2, "@"),
        ("---\nimportance: 7\n---\n", 2, "importance"),
        ("---\n- a\n- b\n---\n", 2, ""),
        ("---\ntitle: never closed\n", 1, "never closed"),
    ],
)
def test_broken_front_matter_is_told_with_file_and_line(text: str, line: int, what: str) -> None:
    told = fault(text)
    assert (told.file, told.line) == (FILE, line)
    assert what in str(told)


def test_bytes_that_are_no_utf8_are_told_with_their_line() -> None:
    with pytest.raises(NoteFault) as told:
        markdown.decoded("---\ntitle: 数据库\n---\n".encode("gbk"), FILE)
    assert (told.value.file, told.value.line) == (FILE, 2)
    assert "GBK" in told.value.what


def test_a_character_that_is_cut_at_the_limit_is_no_fault() -> None:
    assert markdown.decoded("数据".encode()[:5], FILE, is_cut=True) == "数"


def test_of_a_huge_text_only_the_beginning_is_in_the_record() -> None:
    text = "---\ntitle: x\n---\n" + "字" * 2_000_000
    assert len(parse(text).body) == markdown.LONGEST_BODY
    assert markdown.changed(text, status="archived").endswith("字" * 2_000_000)


LINES = "---{e}# mine{e}title:  Use OAuth   # short{e}status: draft # for now{e}{e}x: 1{e}---{e}"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_change_keeps_every_other_byte(bom: str, end: str) -> None:
    text = bom + LINES.format(e=end) + f"{end}Body{end}mixed\nends\r\n\r\n---{end}tail  "
    result = markdown.changed(text, status="approved", approved_by="ann", superseded_by="")
    expected = text.replace("status: draft", "status: approved", 1)
    expected = expected.replace(f"x: 1{end}", f"x: 1{end}approved_by: ann{end}", 1)
    assert result == expected


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("related_sessions:\n  - a\n  - b # last\nx: 1\n", "related_sessions: [c, d] # last\nx: 1"),
        ("related_sessions:\n- a\n# end\n", "related_sessions: [c, d]\n# end"),
        ("related_sessions: [a,\n  b]\nx: 1\n", "related_sessions: [c, d]\nx: 1"),
        ("related_sessions: # none\nx: 1\n", "related_sessions: [c, d] # none\nx: 1"),
        ("related_sessions:\n", "related_sessions: [c, d]"),
        ('"related_sessions" : []\n', '"related_sessions" : [c, d]'),
        ("{title: x, related_sessions: [a]}\n", '{title: x, related_sessions: ["c", "d"]}'),
        ("{title: x}\n", '{title: x, related_sessions: ["c", "d"]}'),
        ("{}\n", '{related_sessions: ["c", "d"]}'),
        ("", "related_sessions: [c, d]"),
    ],
)
def test_a_list_is_changed_however_it_is_written(front: str, expected: str) -> None:
    result = markdown.changed(f"---\n{front}---\nbody", related_sessions=["c", "d"])
    assert result == f"---\n{expected}\n---\nbody"


def test_a_text_of_several_lines_is_changed_in_its_place() -> None:
    text = "---\nowner: |\n  one\n  two\ntitle: >\n  long\n  title\n---\nbody"
    result = markdown.changed(text, owner="dev", title="short")
    assert result == "---\nowner: dev\ntitle: short\n---\nbody"


def test_a_file_without_front_matter_gets_one() -> None:
    assert markdown.changed("\ufeff# A\r\ntext", status="archived") == (
        "\ufeff---\r\nstatus: archived\r\n---\r\n# A\r\ntext"
    )


def test_more_is_added_below_what_is_there() -> None:
    text = "---\r\ntitle: x\r\n---\r\nbody without an end"
    result = markdown.appended(text, "Added", "more\nlines\n")
    assert result == text + "\r\n\r\n## Added\r\n\r\nmore\r\nlines\r\n"
    assert markdown.appended("body\n", "Added", "m") == "body\n\n## Added\n\nm\n"


words = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(max_examples=200, deadline=None)
@given(words, words, st.lists(words, max_size=3), st.sampled_from(KINDS), words)
def test_what_is_written_is_read_back(
    title: str, owner: str, tags: list[str], kind: Kind, body: str
) -> None:
    note = Note(
        id=f"{kind}-x",
        file=FILE,
        title=model.line(title) or "x",
        kind=kind,
        owner=model.line(owner),
        tags=list(map(model.line, tags)),
        occurrences=3,
    )
    text = markdown.write_note(note)
    assert parse(text, note.id) == note
    changed = markdown.changed(text, owner=model.line(body), tags=["a"], approved_by=note.title)
    assert parse(changed, note.id) == note.model_copy(
        update={"owner": model.line(body), "tags": ["a"], "approved_by": note.title}
    )
