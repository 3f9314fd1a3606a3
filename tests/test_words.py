"""The fixed words of reports: each has its Chinese, and keeps what is filled in."""

from __future__ import annotations

import ast
import errno
import gettext
import os
import string
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import jinja2
import pytest
import typer
from babel.messages import pofile
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes
from product import (
    Attachment,
    End,
    ReplyStatus,
    StructuredContent,
    Words,
    choose_language,
    lines,
    translate_message,
)
from product import protocol_Status as Status

REPORT = Path(lines.__file__).parent
SOURCE = REPORT / "locale" / "zh" / "LC_MESSAGES" / "arena.po"
with SOURCE.open("rb") as source:
    CATALOG = list(pofile.read_po(source, locale="zh"))
CHINESE = {str(one.id): str(one.string) for one in CATALOG if one.id and one.context is None}
CLI = REPORT.parent / "cli"
SPEAKERS = {*REPORT.rglob("*.py"), *CLI.glob("*.py")}
SPEAK = {"say", "_say", "spans", "_phase"}
# Errors, by their text: raised in English anywhere, translated where they are printed.
MESSAGES = {str(one.id): str(one.string) for one in CATALOG if one.context == "message"}
PUT_TOGETHER = {  # from parts of fewer than three words
    "must be a number, not {text}",
    "must be a whole number, not {text}",
    "must be true or false, not {text}",
    "must be a list of numbers, for example [1, 2], not {text}",
    'must be a list of texts, for example ["a", "b"], not {text}',
    "missing argument '{name}'",
    "missing option '{name}'",
    "a number or {expected}",
    "an error, as scripted",
    "install that program, or {hint}",
    "is not UTF-8; it looks like {encoding}",
    "its provider forbids it",
    "no answer in time, as scripted",
    "overloaded, as scripted",
    "refused to answer, as scripted",
    "write a list",
    *(f"{{agent}} is {state} from now on" for state in ("paused", "running", "terminated")),
    *(f"{{agent}} is {state} already" for state in ("running", "terminated")),
    "{name}: cannot read it: {reason}",
}
TYPER = Path(typer.__file__).parent


def texts() -> tuple[set[str], set[str]]:
    """The texts that reports say, where they are written out; and all texts that stand in code."""
    said, standing = set(), set()
    for path in REPORT.parent.rglob("*.py"):
        if path.name == "chinese.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                standing.add(node.value)
            if not (isinstance(node, ast.Call) and node.args):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else None
            name = node.func.id if isinstance(node.func, ast.Name) else name
            first = node.args[0]
            if path in SPEAKERS and name in SPEAK and isinstance(first, ast.Constant):
                said.add(first.value)
    in_templates = spoken_in_templates()
    return said | in_templates, standing | in_templates


def spoken_in_templates() -> set[str]:
    """The texts of every `say("...")` in a template."""
    found: set[str] = set()
    for path in REPORT.rglob("*.html"):
        page = jinja2.Environment().parse(path.read_text(encoding="utf-8"))
        for call in page.find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "say":
                assert isinstance(call.args[0], nodes.Const)
                found.add(call.args[0].value)
    return found


def fields(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def test_every_text_has_its_chinese_and_nothing_else_has() -> None:
    said, standing = texts()
    assert said <= set(CHINESE)
    assert set(CHINESE) <= standing
    for text, beside in CHINESE.items():
        assert fields(text) == fields(beside)


def triples(text: str) -> Iterator[str]:
    """Return every three words in a row between the values of a text, or fewer if that is all."""
    for literal, _, _, _ in string.Formatter().parse(text):
        words = literal.strip(" `'\"(),.:").split()
        yield from (" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2)) if words)


def test_every_translated_error_is_raised_somewhere() -> None:
    """A reworded error loses its Chinese: this test finds it; some are put together from parts."""
    raised = {os.strerror(number) for number in errno.errorcode}
    for folder in (REPORT.parent, TYPER):
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    raised |= {node.value, node.value[:1].lower() + node.value[1:]}
    code = "\n".join(raised)
    kept = {text: [triple in code for triple in triples(text)] for text in MESSAGES}
    lost = {text for text, found in kept.items() if 2 * sum(found) < len(found)}
    assert lost == PUT_TOGETHER
    assert len(MESSAGES) > 300


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_a_translated_error_keeps_its_values(text: str, data: st.DataObject) -> None:
    names = dict.fromkeys(fields(text))
    values = {name: data.draw(st.from_regex(r"\A[a-zå文/.{}]{1,8}\Z")) for name in names}
    assert sorted(names) == sorted(dict.fromkeys(fields(MESSAGES[text])))
    is_template = "{" in text
    filled = text.format(**values) if is_template else text
    translated = MESSAGES[text].format(**values) if is_template else MESSAGES[text]
    assert translate_message(filled, "zh") == translated
    assert translate_message(filled, "en") == filled


@pytest.mark.parametrize(
    ("message", "chinese"),
    [
        (
            "dev: no answer within 3 s; raise its timeout_s, or the team's turn_timeout_s, if it "
            "needs longer",
            "dev: 3 秒内没有回答；如果它需要更长时间，请调大它的 timeout_s 或团队的 turn_timeout_s",
        ),
        ("a b\n  remove it", "a b\n  请删掉它"),
        (  # the text of a rule is its author's
            "dev: refused by rule plain: Write plain words; remove it\nWrite a message.",
            "dev：被规则 plain 拒绝：Write plain words; remove it\nWrite a message.",
        ),
        ("rule house failed: remove it", "规则 house 出错：remove it"),
        ("must be a list, not the text `索引`", "应该是列表，不是文本 `索引`"),
        ("unknown key: unknown", "unknown key: unknown"),
        ("something new; asked: curl a: b", "something new；请求：curl a: b"),
        ("", ""),
    ],
)
def test_an_error_is_translated_part_by_part(message: str, chinese: str) -> None:
    assert translate_message(message, "zh") == chinese


@pytest.mark.parametrize(
    ("check", "chinese"),
    [
        ("by dev · reaction ❓ · to maya", "由 dev · 表态 ❓ · 对 maya"),
        ("is JSON", "是 JSON"),
        ('is JSON, text is "it is so"', '是 JSON，text 为 "it is so"'),
        (
            "is JSON without a fence, of a.json, rows[0] exists",
            "是不带围栏的 JSON，符合 a.json，有 rows[0]",
        ),
        ("1 note of the kind decision", "decision 类型的笔记：1 条"),
        ("at least 2 notes of the kind task", "task 类型的笔记：至少 2 条"),
        (
            'fixer · calls run · with {command: ["a"]}\nthen calls read · ok · at most 2 times',
            'fixer · 调用 run · 参数为 {command: ["a"]}\n然后调用 read · ok · 不超过 2 次',
        ),
        (
            "requester dev · target rev · mode wait · turns at least 1 · end done · not announced",
            "提问者 dev · 被问者 rev · 方式 wait · 轮数 至少 1 · 结束 done · 未宣布",
        ),
        (
            "agent ops · action deploy · decision approved",
            "智能体 ops · 操作 deploy · 决定 approved",
        ),
        (
            "turn 1 · should_reply dev, ops · replan true",
            "第 1 轮 · 指定回复：dev, ops · 重新安排 true",
        ),
        ("1 unread\nmaya: to all · by hand", "1 条未读\nmaya: to all · by hand"),
        # texts of agents stay as they are
        ("to all", "to all"),
        ("to all · it is so", "to all · it is so"),
        ("by dev · to maya\nit is so", "by dev · to maya\nit is so"),
    ],
)
def test_what_a_check_describes_is_translated_by_its_parts(check: str, chinese: str) -> None:
    assert Words("zh").check(check) == chinese
    assert Words().check(check) == check


def test_the_compiled_catalog_is_that_of_its_source() -> None:
    texts = gettext.translation("arena", SOURCE.parents[2], ["zh"])
    for one in CATALOG:
        if one.id and one.context:
            assert texts.pgettext(one.context, str(one.id)) == one.string
        elif one.id:
            assert texts.gettext(str(one.id)) == one.string


def test_words_of_files_are_kept_and_explained() -> None:
    kinds = [StructuredContent.model_fields["type"], Attachment.model_fields["type"]]
    listed = {
        *get_args(End),
        *get_args(ReplyStatus),
        *get_args(Status),
        *(word for kind in kinds for word in get_args(kind.annotation)),
    }
    for word in listed:
        assert Words("zh").enum(word).startswith(f"{word}（")
        assert Words().enum(word) == word


def test_what_is_filled_in_is_not_read() -> None:
    say = Words("zh")
    assert say("team {name}", name="{x} {0}") == "团队 {x} {0}"
    (before, name) = say.spans("team {name}", name="{x}")
    assert (before.text, name.text) == ("团队 ", "{x}")


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_HK", "LANG": "en_GB"}, "zh"),
        ({"LC_ALL": "de_DE", "LC_MESSAGES": "zh_HK", "LANG": "zh_CN"}, "en"),
        ({"ARENA_LANG": "zh", "LC_ALL": "de_DE"}, "zh"),
        ({"ARENA_LANG": "ZH-Hans"}, "zh"),
        ({"ARENA_LANG": "en", "LANG": "zh_CN"}, "en"),
        ({"ARENA_LANG": "klingon", "LANG": "zh_CN"}, "en"),
        ({"ARENA_LANG": "", "LANG": "zh_CN"}, "zh"),
    ],
)
def test_the_language_is_asked_for(
    environ: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert choose_language(environ) == language


@pytest.mark.parametrize(("tag", "language"), [(0x0804, "zh"), (0x0404, "zh"), (0x0409, "en")])
def test_windows_says_the_language_of_its_windows(
    tag: int, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ctypes

    class Windows:
        class kernel32:  # noqa: N801 - so it is called
            @staticmethod
            def GetUserDefaultUILanguage() -> int:  # noqa: N802 - its name in Windows
                return tag

    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr(ctypes, "windll", Windows, raising=False)
    assert choose_language({}) == language
    assert choose_language({"LANG": "en_GB"}) == "en"
    monkeypatch.delattr(ctypes, "windll")
    assert choose_language({}) == "en"


def test_every_reason_why_a_recording_was_not_kept_has_its_chinese() -> None:
    """They come from below the reports, which cannot say them where they stand."""
    source = REPORT.parent / "scenarios" / "recording" / "playback.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    deciding = [
        node
        for node in ast.walk(tree)
        if getattr(node, "name", "") in ("unkept", "_unkept_failure")
    ]
    said = {
        part.value
        for function in deciding
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value
    }
    assert len(said) > 3
    said.discard("error")
    assert said <= set(CHINESE)
