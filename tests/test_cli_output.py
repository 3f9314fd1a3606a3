"""What a program wrote as an answer, without a program."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import AgentOutput, AnswerFormat, NotAnAnswerError, ProgramOutput

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


def read(
    data: bytes, *, cuts: tuple[int, ...] = (), err: bytes = b"", **keys: Any
) -> ProgramOutput:
    output = ProgramOutput(AnswerFormat(**keys), emit=lambda _: None)
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        output.feed("stdout", data[start:end])
    output.feed("stderr", err)
    output.finish()
    return output


def answer(text: str, **keys: Any) -> AgentOutput:
    return read(text.encode(), **{"kind": "json", **keys}).answer()


def wrong(text: str, **keys: Any) -> NotAnAnswerError:
    with pytest.raises(NotAnAnswerError) as caught:
        answer(text, **keys)
    return caught.value


@settings(deadline=None)
@given(st.binary(max_size=60), st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_text_is_the_same_however_it_comes(data: bytes, cuts: tuple[int, int]) -> None:
    data = b"a\x1b[31m\xf0\x9f\x98\x80\x1b]0;t\x07" + data + b"\r\n\xef\xbf\xbd"
    inside = tuple(min(cut, len(data)) for cut in cuts)
    whole = read(data).answer()
    assert read(data, cuts=inside).answer() == whole
    assert whole.metadata.get("replaced_bytes", False) == (
        data.decode("utf-8", "replace").count("\ufffd") != data.count(b"\xef\xbf\xbd")
    )


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), min_size=1, max_size=4),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=4),
    st.sampled_from(["", "banner {\n", "[INFO] {x} [y]\n", '{"open":\n', "{\n", '"\n', "[\n"]),
)
def test_the_last_object_is_found_in_every_layout(
    values: list[dict[str, Any]], indent: int | None, as_array: bool, cuts: list[int], banner: str
) -> None:
    marked = [{**value, "n": n} for n, value in enumerate(values)]
    layout = (
        json.dumps(marked, indent=indent)
        if as_array
        else "\n".join(json.dumps(value, indent=indent, ensure_ascii=False) for value in marked)
    )
    data = (banner + layout + "\n").encode()
    inside = tuple(min(cut, len(data)) for cut in cuts)
    for n in range(len(values)):
        output = read(data, cuts=inside, kind="jsonl", where={"n": n}, answer="n")
        assert output.answer().content == str(n)
    assert read(data, cuts=inside, kind="json", answer="n").answer().content == str(len(values) - 1)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("a.b", "deep"),
        ("list.0.text", "first"),
        ("list.-1.text", "last"),
        ("number", "3"),
        ("flag", "true"),
        ("many", '["ä", 1]'),
        ("out", "inner"),
    ],
)
def test_answer_is_a_dotted_path(place: str, content: str) -> None:
    text = json.dumps(
        {
            "a": {"b": "deep"},
            "list": [{"text": "first"}, {"text": "last"}],
            "number": 3,
            "flag": True,
            "many": ["ä", 1],
            "out": {"content": "inner", "next_mentions": ["b"]},
        }
    )
    assert answer(text, answer=place).content == content


def test_without_answer_the_object_is_an_agent_output() -> None:
    got = answer('{"content":"hi","next_mentions":["b"],"usage":{"input_tokens":4},"x":1}')
    assert got.next_mentions == ["b"]
    assert got.usage is not None
    assert got.usage.input_tokens == 4
    assert got.metadata["x"] == 1


def test_where_takes_the_last_that_matches_all() -> None:
    lines = '{"t":"r","i":{"k":1},"content":"one"}\n{"t":"r","i":{"k":1},"content":"two"}\n'
    lines += '{"t":"r","i":{"k":true},"content":"three"}\n'
    assert answer(lines, where={"t": "r", "i.k": 1}).content == "two"
    assert answer(lines, where={"i.k": True}).content == "three"
    fault = wrong(lines, where={"t": "x"})
    assert fault.what == 'none of its 3 JSON objects has t: "x"'
    assert "where" in fault.mend


@pytest.mark.parametrize(
    ("text", "keys", "says"),
    [
        ("", {}, "answered nothing"),
        ("just text\n", {}, "no JSON object"),
        ('"text"', {}, "no JSON object"),
        ('{"content": {"a": 1}}', {}, "content: must be a text, not a mapping"),
        ('{"content":"x","attachments":[{"type":"odd"}]}', {}, "attachments.0."),
        ('{"type":"start"}', {}, "no `content`, only type"),
        ('{"a":1}', {"answer": "b.c"}, "no `b.c`, only a"),
        ('{"a":null}', {"answer": "a"}, "answered nothing"),
        ('{"a":" "}', {"answer": "a"}, "answered nothing"),
        ('{"a":[1]}', {"answer": "a.1"}, "no `a.1`"),
        ("{" * 100_000, {}, "no JSON object"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, {}, "no JSON object"),
        ('{"a":' + "9" * 10_000 + "}", {}, "no JSON object"),
    ],
)
def test_what_is_no_answer_says_why(text: str, keys: dict[str, Any], says: str) -> None:
    assert says in wrong(text, **keys).what


def test_what_nests_deeply_can_still_be_written() -> None:
    got = answer('{"content":"x","deep":' + "[" * 400 + "]" * 400 + "}")
    assert got.content == "x"
    got.model_dump_json()


def test_stdout_goes_before_stderr_and_both_are_bounded() -> None:
    err = b'{"content":"from stderr"}\n' + b"e" * 20_000
    output = read(b'{"content":"from stdout"}', err=err, kind="json").answer()
    assert output.content == "from stdout"
    assert len(output.metadata["stderr"]) == 8192
    log = read(b"log line\n" * 5000 + b'{"content":"x"}', kind="json").answer().metadata["log"]
    assert len(log) <= 8192


def test_a_repeated_opening_costs_no_more_than_its_length() -> None:
    lines = '{"a":\n' * 50_000 + '{"content":"found"}\n'
    assert answer(lines).content == "found"


def test_a_result_is_there_when_it_is_whole() -> None:
    output = ProgramOutput(AnswerFormat(kind="json"), emit=lambda _: None)
    seen = []
    for piece in ['{"content"', ':"a}', '"}', "\n[", '{"content":"b"},', '{"content":"c"}', "]"]:
        output.feed("stdout", piece.encode())
        seen.append(output.has_result())
    assert seen == [False, False, True, False, False, False, True]
    output.finish()
    assert output.answer().content == "c"


def test_a_result_is_there_when_where_matches_and_not_before() -> None:
    output = ProgramOutput(
        AnswerFormat(kind="jsonl", where={"type": "result"}), emit=lambda _: None
    )
    output.feed("stdout", b'{"type":"start","content":"x"}\n')
    assert not output.has_result()
    output.feed("stdout", b'{"type":"result","content":"y"}')
    assert output.has_result()
    output.feed("stdout", b"\nbye\n")
    assert output.has_result()
    output = ProgramOutput(AnswerFormat(kind="text"), emit=lambda _: None)
    output.feed("stdout", b'{"content":"x"}\n')
    assert not output.has_result()


def test_a_result_is_noticed_behind_prose_that_looks_like_the_beginning_of_one() -> None:
    output = ProgramOutput(
        AnswerFormat(kind="jsonl", where={"type": "result"}), emit=lambda _: None
    )
    output.feed("stdout", b'{\n  it says "hi\n{"type":"result","content":"x"}\n')
    assert output.has_result()
