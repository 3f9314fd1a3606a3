"""Text at the edge: cleaned, decoded, made safe to print, cut."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    TOO_DEEP,
    clean_text,
    clean_value,
    cut_text,
    decode_output,
    escape_json,
    escape_line,
    escape_text,
    shorten_text,
)

# Surrogates included: what a program's JSON escapes decode to.
any_text = st.text(st.characters())
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
EMBEDDINGS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("raw", "cleaned", "replaced"),
    [
        ("中文 ok 😀", "中文 ok 😀", False),
        ("a\ud83d", "a\ufffd", True),
        ("\ude00\ud83dx", "\ufffd\ufffdx", True),
        ("\ud83d\ude00", "😀", False),
        ("was \ufffd before", "was \ufffd before", False),
    ],
)
def test_clean(raw: str, cleaned: str, replaced: bool) -> None:
    assert clean_text(raw) == (cleaned, replaced)


@settings(deadline=None)
@given(any_text)
def test_cleaned_text_is_valid_and_stays_as_it_is(raw: str) -> None:
    cleaned, replaced = clean_text(raw)
    cleaned.encode("utf-8")
    assert clean_text(cleaned) == (cleaned, False)
    assert replaced or not re.search("[\ud800-\udfff]", raw) or len(cleaned) < len(raw)


@pytest.mark.parametrize(
    ("data", "decoded", "replaced"),
    [
        ("架构".encode(), "架构", False),
        (b"\xef\xbb\xbfhello", "hello", False),
        (b"a\xffb", "a\ufffdb", True),
        (b"\xef\xbb\xbfa\xff", "a\ufffd", True),
        ("GDPR 要求".encode()[:-1], "GDPR 要\ufffd", True),
    ],
)
def test_decode(data: bytes, decoded: str, replaced: bool) -> None:
    assert decode_output(data) == (decoded, replaced)


@settings(deadline=None)
@given(json_like)
def test_cleaned_data_can_be_written_as_json(value: Any) -> None:
    cleaned, _ = clean_value(value)
    json.dumps(cleaned, ensure_ascii=False).encode("utf-8")
    assert clean_value(cleaned) == (cleaned, False)


def test_cleaned_data_keeps_its_form_and_says_what_was_replaced() -> None:
    value = {"k\ud83d": [1, True, None, 0.5, b"\xff", ("x", "\udc00")], "ok": {"中": "文"}}
    assert clean_value(value) == (
        {"k\ufffd": [1, True, None, 0.5, b"\xff", ["x", "\ufffd"]], "ok": {"中": "文"}},
        True,
    )


def test_data_that_is_nested_too_deeply_is_cut_off() -> None:
    value: Any = "inside"
    for _ in range(5000):
        value = [value]
    assert TOO_DEEP in json.dumps(clean_value(value)[0])


def steering(text: str) -> list[str]:
    """The characters in a text that move a cursor, end a line or turn one around."""
    return [
        char
        for char in text
        if char not in "\n\t"
        and (
            unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}
            or unicodedata.bidirectional(char) in EMBEDDINGS
        )
    ]


def test_no_character_that_is_shown_steers_a_terminal() -> None:
    every_character = "".join(map(chr, range(0x110000)))
    assert steering(every_character)
    assert steering(escape_text(every_character)) == []


def test_json_that_is_shown_is_safe_and_the_same_data() -> None:
    england = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    written = json.dumps({"all": every, "flag": england}, ensure_ascii=False)
    shown = escape_json(written)
    assert json.loads(shown) == json.loads(written)
    assert england in shown
    assert escape_text(shown) == shown
    assert escape_json('"\ud83d"') == '"\\ud83d"'


@settings(deadline=None)
@given(any_text)
def test_what_is_shown_can_be_shown_again(raw: str) -> None:
    shown = escape_text(raw)
    assert steering(shown) == []
    assert escape_text(shown) == shown
    assert not any(char in "\n\t" for char in escape_line(raw))


commands = st.lists(
    st.sampled_from(["::", "##[", "##vso[", "VSO", *" :#[x\u3000\t\n\r\u2028\x0b\x1b\u200d\ufe0f"]),
    max_size=12,
).map("".join)


@settings(deadline=None)
@given(commands)
def test_what_is_shown_holds_no_ci_command(raw: str) -> None:
    # A runner looks past white space and past what a language ignores.
    seen = re.sub("[\u200d\ufe0f]", "", escape_text(raw))
    assert not re.search(r"(?m)^\s*::", seen)
    assert not re.search(r"(?i)##[a-z]*\[", seen)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\r\nb\rc\x85", "a\nb\\rc\\x85"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("\ufffe\U0010ffff\ud83d", r"\ufffe\U0010ffff\ud83d"),
        ("hidden \U000e0041", r"hidden \U000e0041"),
        ("::error::x", r"\::error::x"),
        ("a\n \u3000::set-env::x", "a\n \u3000\\::set-env::x"),
        ("std::vector", "std::vector"),
        ("see ##[group]a", r"see ##\[group]a"),
        ("##vso[task.complete]", r"##vso\[task.complete]"),
        ("##teamcity[x]", r"##teamcity\[x]"),
        ("## heading [1]", "## heading [1]"),
        ("👩‍🔬 ❤️ می‌خواهم 🏴󠁧󠁢󠁥󠁮󠁧󠁿 架构师 ✓", "👩‍🔬 ❤️ می‌خواهم 🏴󠁧󠁢󠁥󠁮󠁧󠁿 架构师 ✓"),
    ],
)
def test_shown(raw: str, shown: str) -> None:
    assert escape_text(raw) == shown


def test_shown_in_one_line() -> None:
    assert escape_line("a\tb\r\n::c\x1b") == r"a\tb\n\::c\x1b"


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("plain", 3, "pla"),
        ("short", 9, "short"),
        ("ab👩‍🔬c", 4, "ab"),
        ("ab👩‍🔬c", 5, "ab👩‍🔬"),
        ("👍🏽!", 1, "👍"),
        ("ab👍🏽!", 3, "ab"),
        ("🇨🇳🇺🇸", 3, "🇨🇳"),
        ("xe\u0301", 2, "x"),
        ("a\r\nb", 2, "a"),
        ("a\ud83d\ude00", 2, "a"),
        ("abc", 0, ""),
        ("abc", -1, ""),
    ],
)
def test_cut(text: str, limit: int, expected: str) -> None:
    assert cut_text(text, limit) == expected


def test_a_shortened_text_says_that_it_was_cut() -> None:
    assert shorten_text("中文", 2) == "中文"
    assert shorten_text("中文字", 2) == "中文…"


def test_a_run_of_marks_without_end_is_cut_at_the_limit() -> None:
    assert len(cut_text("e" + "\u0301" * 1000, 200)) == 200


@settings(deadline=None)
@given(any_text, st.integers(0, 20))
def test_a_cut_text_is_the_beginning_within_the_limit(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    assert text.startswith(cut)
    assert len(cut) <= limit
    assert cut or not text or limit == 0
