"""Secrets are taken out of text, ordinary text stays."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import REDACTED, Attachment, Redactor

LETTERS = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 3)
# Put together here, so that no scanner takes this file for a leak.
KEYS = [
    "sk-" + LETTERS,
    "sk-ant-" + "api03-" + LETTERS,
    "sk-proj-" + LETTERS,
    "sk_" + "live_" + LETTERS,
    "ghp_" + LETTERS,
    "gho_" + LETTERS,
    "github_" + "pat_" + LETTERS,
    "glpat-" + LETTERS,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + LETTERS,
    "xoxb-" + "123456789012-" + LETTERS,
    "hf_" + LETTERS,
    "npm_" + LETTERS,
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN " + f"RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN " + f"PRIVATE KEY-----\n{BODY}",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "密钥{}。", '"{}"', "key={}\n"])
def test_known_key_shapes_are_replaced(key: str, around: str) -> None:
    assert Redactor().text(around.format(key)) == around.format(REDACTED)


def test_a_bearer_token_is_replaced_and_its_label_stays() -> None:
    text = "Authorization: Bearer " + LETTERS + ", bearer " + LETTERS
    assert Redactor().text(text) == f"Authorization: Bearer {REDACTED}, bearer {REDACTED}"


@pytest.mark.parametrize(
    "text",
    [
        "a task-force of five; sk- is a prefix; use sk-learn-compatible-estimators-api",
        "risk-assessment-2024-with-more-than-twenty-letters",
        "Bearer authentication-is-described-there, bearer of news",
        "hf_transfer npm_config_registry ghp_ AKIA eyJ",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END CERTIFICATE-----",
        "需求拆解如下：1. 用户认证 2. 权限管理 3. 数据加密 @全栈开发 请按此方案实现",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor(["", "another secret"]).text(text) == text


def test_a_mention_of_a_key_does_not_take_the_rest_with_it() -> None:
    text = "It begins with -----BEGIN " + "PRIVATE KEY----- and then the rest follows."
    assert Redactor().text(text) == f"It begins with {REDACTED} and then the rest follows."


def test_the_longest_secret_is_taken_whole() -> None:
    redactor = Redactor(["hunter22", "hunter22-and-more", ""])
    assert redactor.text("a hunter22-and-more b hunter22 c") == f"a {REDACTED} b {REDACTED} c"


def test_secrets_that_overlap_leave_nothing_behind() -> None:
    assert Redactor(["abcabc"]).text("abcabcabc") == REDACTED


def test_a_secret_is_found_as_json_writes_it() -> None:
    secret = 'p"ss\nwörd'
    redactor = Redactor([secret])
    for ascii_only in (True, False):
        line = json.dumps({"key": secret}, ensure_ascii=ascii_only)
        assert json.loads(redactor.text(line)) == {"key": REDACTED}


def test_patterns_of_the_workspace() -> None:
    redactor = Redactor((), [r"\d{4}-\d{4}", re.compile("acme", re.IGNORECASE), "", "x*"])
    assert redactor.text("ACME 1234-5678 xx ok") == f"{REDACTED} {REDACTED} {REDACTED} ok"


def test_a_pattern_that_fits_the_mark_does_not_grow_it() -> None:
    assert (
        Redactor(["redacted"], [r"[a-z]+"]).text(f"one {REDACTED} two")
        == f"{REDACTED} {REDACTED} {REDACTED}"
    )


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(re.error):
        Redactor((), ["("])


def test_data_is_redacted_keys_included() -> None:
    value = {"hunter22": ["x hunter22", 1, None, b"hunter22", {"a": "hunter22"}]}
    assert Redactor(["hunter22"]).value(value) == {
        REDACTED: [f"x {REDACTED}", 1, None, b"hunter22", {"a": REDACTED}]
    }


pieces = st.lists(
    st.sampled_from(
        [*KEYS, REDACTED, "hunter22", "hunter", "22", "12-34", "[", "]", " ", "Bearer ", "中"]
    )
    | st.text(max_size=5),
    max_size=8,
).map("".join)


@settings(deadline=None)
@given(pieces)
def test_redacting_twice_is_redacting_once_and_no_secret_is_left(text: str) -> None:
    redactor = Redactor(["hunter22", "22hunter"], [r"\d\d-\d\d"])
    redacted = redactor.text(text)
    assert redactor.text(redacted) == redacted
    assert "hunter22" not in redacted
    assert "22hunter" not in redacted
    assert not re.search(r"\d\d-\d\d", redacted)


def test_an_attachments_name_is_redacted_and_its_picture_is_not_touched() -> None:
    redactor = Redactor(patterns=["hunter2", "iVBO"])
    picture = Attachment(type="image", name="hunter2.png", data="iVBORw0KGgo=")
    assert redactor.attachment(picture) == Attachment(
        type="image", name="[redacted].png", data="iVBORw0KGgo="
    )
    drawn = Attachment(type="image", name="a.svg", data="<svg>hunter2</svg>")
    assert redactor.attachment(drawn).data == "<svg>[redacted]</svg>"
    listed = Attachment(type="json", name="a.json", data={"hunter2": ["hunter2", 1]})
    assert redactor.attachment(listed).data == {"[redacted]": ["[redacted]", 1]}
    raw = Attachment(name="a.bin", data=b"\xffhunter2")
    assert redactor.attachment(raw).data == b"\xffhunter2"
