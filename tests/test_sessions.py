"""The folder of sessions: what is listed, found, made, checked and let go of."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from product import AgentOutput, Attachment, DiskRefused, UsageError, doctor, log, reader, session
from product import session_store as store
from program import Program
from support import Puppets, Talk, member, puppet, team

PICTURE = "iVBORw0KGgo="


def talk(folder: Path, name: str | None = "talk") -> Talk:
    return Talk(folder, team(member("a", [{"say": "ok"}])), name=name)


# Sessions that go while they are looked at


def looked_at(monkeypatch: pytest.MonkeyPatch, verb: str, then: Callable[[Path], None]) -> None:
    """Whenever a transcript is looked at by that method of `Path`, this happens right after."""
    real = getattr(Path, verb)

    def look(path: Path, *args: object, **kwargs: object) -> object:
        found = real(path, *args, **kwargs)
        if path.name == store.TRANSCRIPT:
            then(path)
        return found

    monkeypatch.setattr(Path, verb, look)


@pytest.mark.parametrize("verb", ["is_file", "stat"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda root: [one.name for one in store.stored(root)],
        lambda root: [one["session"] for one in store.summaries(root)],
        lambda root: [store.last(root).name],
    ],
    ids=["stored", "summaries", "last"],
)
def test_a_session_that_goes_meanwhile_is_passed_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    ask: Callable[[Path], list[str]],
) -> None:
    for name in ("stays", "goes"):
        talk(tmp_path, name).send("hello")
    os.utime(tmp_path / "sessions" / "stays" / store.TRANSCRIPT, (1, 1))

    def gone(transcript: Path) -> None:
        if transcript.parent.name == "goes":
            shutil.rmtree(transcript.parent, ignore_errors=True)

    looked_at(monkeypatch, verb, gone)
    # Some of them may still name it; what is asked next is answered all the same.
    assert "stays" in ask(tmp_path)
    assert ask(tmp_path) == ["stays"]


def test_a_session_that_goes_once_it_is_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("goes", "stays"):
        talk(tmp_path, name).send("hello")
    listed = store.stored(tmp_path)
    monkeypatch.setattr(store, "stored", lambda _: sorted(listed, key=lambda one: one.name))
    shutil.rmtree(tmp_path / "sessions" / "goes")
    assert store.last(tmp_path).name == "stays"
    assert [one["session"] for one in store.summaries(tmp_path)] == ["stays"]


def test_a_session_that_goes_when_it_is_named_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(tmp_path).send("hello")
    looked_at(monkeypatch, "is_file", lambda path: shutil.rmtree(path.parent, ignore_errors=True))
    with pytest.raises(UsageError, match="there is no session 'talk'"):
        store.find(tmp_path, "talk")


# Names


@pytest.mark.parametrize("name", ["😀" * 64, "𠀀" * 64], ids=["emoji", "han"])
def test_a_name_too_long_for_a_folder_is_wrong_use(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="longer than 255 bytes"):
        store.make_session_folder(tmp_path, name, talk(tmp_path).clock)
    with pytest.raises(UsageError, match="longer than 255 bytes"):
        store.find(tmp_path, name)
    assert store.make_session_folder(tmp_path, "文" * 64, talk(tmp_path).clock).is_dir()


@pytest.mark.parametrize("name", ["CON", "CON .x", "nul.txt", "COM¹", "conin$"])
def test_a_devices_name_is_reserved(name: str) -> None:
    with pytest.raises(UsageError, match="that name is reserved"):
        store.checked(name)


def test_a_name_is_as_its_folder_writes_it_where_case_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(tmp_path, "foo").send("hello")
    real = Path.is_dir
    monkeypatch.setattr(
        Path, "is_dir", lambda path: real(path) or real(path.with_name(path.name.casefold()))
    )
    assert store.find(tmp_path, "Foo").name == "foo"
    assert store.make_session_folder(tmp_path, "FOO", talk(tmp_path).clock).name == "foo"


def test_a_name_that_is_there_exactly_goes_before_one_that_is_alike(tmp_path: Path) -> None:
    for name in ("foo", "Foo"):
        (tmp_path / name).mkdir(exist_ok=True)
    there = {path.name for path in tmp_path.iterdir()}
    found = {str(store.existing(tmp_path, name)) for name in ("foo", "Foo")}
    assert found == {str(tmp_path / name) for name in there}
    decomposed = tmp_path / "e\u0301"
    decomposed.mkdir()
    same = store.existing(tmp_path, "\u00e9")
    assert same is not None
    assert same.samefile(decomposed)


# Attachments that agents send


def test_an_agents_attachment_of_any_name_is_kept_and_redacted(tmp_path: Path) -> None:
    sent = [
        Attachment(name="文" * 96 + ".txt", data="hunter2"),
        Attachment(type="image", name="hunter2.png", data=PICTURE),
    ]
    puppets = Puppets({"a": lambda _: AgentOutput(content="look", attachments=sent)})
    told = Talk(tmp_path, team(puppet("a")), adapter_type=puppets, redact=["hunter2", "iVBO"])
    assert told.send("hello").end == "quiet"
    text, picture = told.last("reply_finished").message.attachments
    assert (tmp_path / text.path).read_text() == "[redacted]"
    assert picture.name == "[redacted].png"
    assert (tmp_path / picture.path).read_bytes() == b"\x89PNG\r\n\x1a\n"
    written = [str(path) for path in (tmp_path / "sessions").rglob("*")]
    assert "hunter2" not in told.transcript.read_text(encoding="utf-8") + "".join(written)


def test_a_picture_that_a_human_sends_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "hunter2.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    told = Talk(tmp_path, team(member("a", [{"say": "ok"}])), redact=["hunter2", "iVBO"])
    told.send("look", files=[tmp_path / "hunter2.png"])
    (picture,) = told.of("message")[0].message.attachments
    assert picture.name == "[redacted].png"
    assert (tmp_path / picture.path).read_bytes() == b"\x89PNG\r\n\x1a\n"


# What `arena doctor` finds


def problems(told: Talk, *lines: bytes) -> list[str]:
    told.transcript.write_bytes(b"".join(lines))
    found = doctor.examine(told.transcript, told.workspace).problems
    return [what.removeprefix(f"{told.transcript}:") for what in found]


def test_a_missing_event_is_told_beside_lines_that_cannot_be_read(tmp_path: Path) -> None:
    told = talk(tmp_path)
    told.send("one")
    told.send("two")
    lines = told.transcript.read_bytes().splitlines(keepends=True)
    bad = b"not JSON\n"
    assert problems(told, *lines) == []
    assert problems(told, *lines[:2], bad, *lines[3:]) == ["3: not JSON"]
    assert problems(told, *lines[:2], bad, *lines[3:9], *lines[10:]) == [
        "3: not JSON",
        "10: event 10 is missing",
    ]
    assert problems(told, *lines[:4], *lines[6:]) == ["5: events 5 to 6 are missing"]
    assert problems(told, *lines[:2], bad, *lines[4:]) == [
        "3: not JSON",
        "4: events are missing between event 2 and event 5",
    ]
    # A line too much stands for none that is missing later.
    assert problems(told, *lines[:2], bad, *lines[2:6], *lines[7:]) == [
        "3: not JSON",
        "8: event 7 is missing",
    ]
    # What could be mended took no number, and what is of a later version has one.
    mended = lines[2][:-1] + lines[3]
    assert problems(told, *lines[:2], mended, *lines[5:]) == [
        "3: two records on one line",
        "4: event 5 is missing",
    ]
    later = json.dumps({"seq": 5, "ts": "x", "type": "later"}).encode() + b"\n"
    assert problems(told, *lines[:4], later, *lines[5:]) == []


# Letting go


def test_a_transcript_that_is_gone_does_not_keep_the_session_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    told = talk(tmp_path)
    with told.open():
        told.transcript.unlink()
    told.send("again")
    assert told.last("chain_finished").end == "quiet"


def test_a_session_that_cannot_be_opened_is_let_go_of_wholly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = talk(tmp_path)
    opened: list[log.Log] = []
    closed: list[log.Log] = []

    class Kept(log.Log):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            opened.append(self)

        def append(self, event: object) -> None:
            raise DiskRefused("full")

        def close(self) -> None:
            super().close()
            closed.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(session, "Log", Kept)
        with pytest.raises(DiskRefused):
            told.open()
    assert len(opened) == 1
    assert closed == opened
    told.send("again")


# Previews


def test_a_new_session_is_new_whatever_another_is_called(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hi"})
    program.run("send", "-s", "new", "-q", "one").check()
    shown = json.loads(program.run("send", "--dry-run", "--json", "hello").stdout)
    assert (shown["session"], shown["new"]) == (None, True)
    known = json.loads(program.run("send", "-s", "new", "--dry-run", "--json", "hello").stdout)
    assert (known["session"], known["new"]) == ("new", False)
