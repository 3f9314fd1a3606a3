"""YAML files: what they say, where it stands, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from product import FileShape, Fragment
from product import yamlio_loader as loader
from pydantic import AfterValidator, Field


def _refuse_exclamations(value: str) -> str:
    if value.startswith("!"):
        raise ValueError("a pattern cannot start with !")
    return value


class Inner(FileShape):
    limit: int = Field(default=1, ge=1, le=9)
    headers: dict[str, str] = {}


class Entry(FileShape):
    agent: str
    role: str = ""


class Shape(FileShape):
    not_built: ClassVar[frozenset[str]] = frozenset({"budget"})

    name: str
    mode: Literal["skip", "retry"] = "skip"
    ratio: float = 0.5
    flag: bool = False
    words: list[str] = []
    pair: tuple[int, int] | None = None
    inner: Inner = Inner()
    entries: list[str | Entry] = []
    pattern: Annotated[str, AfterValidator(_refuse_exclamations)] = ""


def faults(text: str) -> list[str]:
    """The faults of `text` as a Shape, each in one line: `line field: what | mend`."""
    instance, found = loader.validate(loader.parse(text, "f.yaml"), Shape)
    assert (instance is None) == bool(found)
    assert all(fault.file == "f.yaml" for fault in found)
    return [f"{fault.line} {fault.field}: {fault.what} | {fault.mend}" for fault in found]


def data(text: str) -> Any:
    document = loader.parse(text, "f.yaml")
    assert document.faults == ()
    return document.data


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("2026-11-28", "2026-11-28"),
        ("2026-11-28T09:30:00Z", "2026-11-28T09:30:00Z"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("0o17", 15),
        ("017", 17),
        ("0xfF", 255),
        ("-12", -12),
        ("+3", 3),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.INF", float("-inf")),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("Null", None),
        ("", None),
        ("nULL", "nULL"),
        ("!!str 12", "12"),
        ("'12'", "12"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_scalars_are_read_as_yaml_1_2_reads_them(written: str, value: object) -> None:
    read = data(f"key: {written}\n")["key"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_texts_as_they_are_written() -> None:
    assert data("no: 1\n1: 2\n1.0: 3\ntrue: 4\n") == {"no": 1, "1": 2, "1.0": 3, "true": 4}


def test_merge_keys_and_aliases() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nboth:\n  <<: [*b, *o]\n  x: 9\n"
    assert data(text)["both"] == {"x": 9, "y": 2, "z": 4}
    assert data(text + "'<<': text\n")["<<"] == "text"


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc-_", max_size=4), inner)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(plain_data)
def test_json_is_read_as_it_is(value: Any) -> None:
    assert data(json.dumps({"value": value}, ensure_ascii=False)) == {"value": value}


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("ab:1 -{}[],'\"\\@`*&!%|>#?\t\n~<é中"), max_size=40))
def test_any_text_gives_data_or_faults_with_a_line(text: str) -> None:
    document = loader.parse(text, "f.yaml")
    lines = text.count("\n") + 1
    for fault in document.faults:
        assert 1 <= fault.line <= lines
        assert fault.what
    try:
        yaml.compose(text, yaml.CSafeLoader)
    except yaml.YAMLError:
        assert document.faults


def test_line_of_keys_items_and_what_is_not_there() -> None:
    document = loader.parse("# top\na:\n  b: 1\n  c:\n    - x\n    - {d: y}\n", "f.yaml")
    assert document.line() == 2
    assert document.line(("a", "c")) == 4
    assert document.line(("a", "c", 1)) == 6
    assert document.line(("a", "c", 1, "d")) == 6
    assert document.line(("a", "none", "x")) == 2


def test_line_of_a_merged_key_is_where_it_is_written() -> None:
    document = loader.parse("base: &b\n  x: 1\nother:\n  <<: *b\n  y: 2\n", "f.yaml")
    assert document.line(("other", "x")) == 2
    assert document.line(("other", "y")) == 5


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: `x`\n", 2, 'starts with ` must be quoted | write: b: "`x`"'),
        ("a: %x\n", 1, "starts with % must be quoted"),
        ("a: **bold** text\n", 1, 'starts with * must be quoted | write: a: "**bold** text"'),
        ("a: *name\n", 1, "starts with * must be quoted"),
        ("a: & b\n", 1, "starts with & must be quoted"),
        ("a: !important x\n", 1, 'not read here | write: a: "!important x"'),
        ("a: > hello\n", 1, "starts with > must be quoted"),
        ("a: ] x\n", 1, "starts with ] must be quoted"),
        ("a: [x, @b]\n", 1, 'write: a: [x, "@b"]'),
        ("a: {x: @b, y: 1}\n", 1, 'write: a: {x: "@b", y: 1}'),
        ("a: @it's # why\n", 1, 'write: a: "@it\'s" # why'),
        ("a: {say: hi, there}\n", 1, "a comma inside {} ends a text: `there` is read as a key"),
        ("a: {say:hi}\n", 1, "no space after its colon"),
        ("a: {re: x{2}}\n", 1, 'must be quoted inside {} and [] | write: a: {re: "x{2}"}'),
        ("a: [b, x[0]]\n", 1, "must be quoted inside {} and []"),
        (
            "a: {b: [1, 2}\n",
            1,
            "the [ that opens here is not closed before the } | close it",
        ),
        ("a: [1,\nb: 2\n", 1, "the [ that opens here is never closed"),
        ("a: {x: 1,\n  y: 2\nb: 3\n", 1, "the { that opens here is not closed before line 3"),
        ("a: 1\nb: [[1\n", 2, "closed"),
        ('a: 1\nb: "\\d+"\n', 2, "has no meaning between double quotes | write: b: '\\d+'"),
        ('a: "\\u12"\n', 1, "has no meaning between double quotes"),
        ('a: "x\nb: 1\n', 1, 'the " that opens here is never closed'),
        ("a: 'x\nb: 1\n", 1, "the ' that opens here is never closed"),
        (
            "a: 'it's'\n",
            1,
            "text follows the closing '; quote the whole value | write: a: \"it's\"",
        ),
        ('a: "x" y\n', 1, "follows the closing"),
        ("a: note: this\n", 1, 'colon and a space in it must be quoted | write: a: "note: this"'),
        ("a:b\nc: 1\n", 1, "`a:` needs a space after its colon"),
        ("a: 1\nb\nc: 1\n", 2, "not a `key: value`"),
        ("a: - b\n", 1, 'a value that starts with - must be quoted | write: a: "- b"'),
        ("a: 1\n  b: 2\n", 2, "more than the other keys, from line 1 | remove the spaces before"),
        ("a:\n  b: 1\n c: 2\n", 3, "does not fit the keys from line 1 | remove the spaces before"),
        ("- a\nb: 1\n", 2, "start it with `- `"),
        ("a: >\n x\n\ty\n", 3, "a tab cannot indent"),
        ("a: 1\n---\nb: 2\n", 2, "expected a single document in the stream"),
        ("%x\na: 1\n", 1, "starts with % must be quoted"),
        ("? [a]\n: b\n", 1, "a key must be a text"),
        ("a: !!binary eA==\n", 1, "not read here"),
        ("a: !!int x\n", 1, "cannot be read as !!int"),
        ("a: &x [*x]\n", 1, "is inside the value that it names"),
        ("<<: 3\n", 1, "can merge only a mapping"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ("a: 1\nb: x\u2028y\n", 2, "U+2028"),
        ("a: &x {}\nb: &x {}\nc: *x\n", 2, "found duplicate anchor"),
        ("a: " + "[" * 300 + "]" * 300, 1, "nested deeper"),
        ("a: " + "[" * 5000, 1, "nested too deep"),
    ],
)
def test_what_trips_people_is_told_with_its_cause(text: str, line: int, words: str) -> None:
    found = loader.parse(text, "f.yaml").faults
    assert [fault.line for fault in found] == [line]
    assert words in f"{found[0].what} | {found[0].mend}"


def test_a_syntax_error_is_told_alone_and_all_that_does_not_fit_at_once() -> None:
    text = 'name: a\npattern: "!d"\nwords: b\nnmae: 1\n'
    assert sorted(line.split(" | ")[0] for line in faults(text)) == [
        "2 pattern: a pattern cannot start with !",
        "3 words: must be a list, not the text `b`",
        "4 nmae: unknown key",
    ]
    assert [line.split(" | ")[0] for line in faults(text + "x: @y\n")] == [
        "5 : a value that starts with @ must be quoted",
    ]


def test_aliases_that_stand_for_too_much_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 30):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    found = loader.parse("\n".join(lines), "f.yaml").faults
    assert "aliases expand to more than" in found[0].what


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes("name: a\nother: 中文\n".encode("gbk"))
    (fault,) = loader.load(path, "f.yaml").faults
    assert (fault.line, fault.what) == (2, "is not UTF-8; it looks like GBK")
    (fault,) = loader.load(tmp_path / "none.yaml", "none.yaml").faults
    assert (fault.line, "cannot be read" in fault.what) == (0, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1 : the file is empty | it needs `name`"),
        ("- a\n", "1 : the file must be a mapping of keys, not a list | "),
        ("name: 1.10\n", '1 name: must be a text, not the number 1.1 | write: name: "1.10"'),
        ("name: true\n", '1 name: must be a text, not true | write: name: "true"'),
        (
            "name:\n",
            "1 name: must be a text; the value is empty | write a value",
        ),
        (
            "name: a\nflag: yes\n",
            "2 flag: must be true or false, not the text `yes` | write: flag: true",
        ),
        (
            "name: a\nratio: '1'\n",
            "2 ratio: must be a number, not the text `1` | write: ratio: 1",
        ),
        ("name: a\nratio: .inf\n", "2 ratio: must be a finite number | "),
        ("name: a\nwords: b\n", "2 words: must be a list, not the text `b` | write: words: [b]"),
        (
            "name: a\nmode: skipp\n",
            "2 mode: must be one of skip, retry, not `skipp` | did you mean `skip`?",
        ),
        ("name: a\nbudget: {x: 1}\n", "2 budget: is not implemented yet | remove it"),
        ("name: a\nwrods: []\n", "2 wrods: unknown key | did you mean `words`?"),
        ("name: a\ninner:\n  limit: 0\n", "3 inner.limit: must be at least 1, not 0 | "),
        ("name: a\ninner:\n  limit: 1.5\n", "3 inner.limit: must be a whole number, not the"),
        ("name: a\ninner:\n  limti: 2\n", "3 inner.limti: unknown key | did you mean `limit`?"),
        ("name: a\ninner: 3\n", "2 inner: must be a mapping of keys, not the number 3 | "),
        (
            "name: a\nentries: [b, 3]\n",
            "2 entries[1]: must be a text or a mapping with `agent`, `role`, not the number 3",
        ),
        ("name: a\nentries:\n  - role: x\n", "3 entries[0].agent: is missing | "),
        ("name: a\nentries: [{agnet: b, agent: c}]\n", "2 entries[0].agnet: unknown key"),
        ("name: a\npattern: '!x'\n", "2 pattern: a pattern cannot start with ! | "),
    ],
)
def test_what_does_not_fit_is_told_once_in_plain_words(text: str, told: str) -> None:
    (found,) = faults(text)
    assert found.startswith(told)


def test_numbers_and_lists_that_fit() -> None:
    document = loader.parse("name: no\nratio: 1\npair: [1, 2]\nentries: [a, {agent: b}]\n", "f")
    instance, found = loader.validate(document, Shape)
    assert found == []
    assert instance == Shape(name="no", ratio=1.0, pair=(1, 2), entries=["a", Entry(agent="b")])


def test_free_keys_are_taken_out_of_shapes_and_left_in_maps() -> None:
    text = (
        "x-note: 1\n"
        "name: a\n"
        "inner: {x-why: [], headers: {x-api-key: k}}\n"
        "entries: [{agent: b, x-y: 1}]\n"
    )
    instance, found = loader.validate(loader.parse(text, "f"), Shape)
    assert found == []
    assert instance is not None
    assert instance.inner == Inner(headers={"x-api-key": "k"})
    assert instance.entries == [Entry(agent="b")]


def test_merged_parts_tell_faults_where_they_stand() -> None:
    near = loader.parse("over:\n  inner: {limit: 0}\n", "near.yaml")
    far = loader.parse("name: 3\ninner:\n  headers: {a: 1}\n", "far.yaml")
    merged = {"name": 3, "inner": {"limit": 0, "headers": {"a": 1}}}
    _, found = loader.validate_merged(merged, Shape, [Fragment(near, ("over",)), Fragment(far)])
    places = {(fault.file, fault.line, fault.field) for fault in found}
    assert places == {
        ("near.yaml", 2, "over.inner.limit"),
        ("far.yaml", 1, "name"),
        ("far.yaml", 3, "inner.headers.a"),
    }
