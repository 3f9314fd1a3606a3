"""Attachments of a transcript as agents are sent them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from product import Attachment, http


def put(folder: Path, name: str, data: bytes) -> Attachment:
    (folder / name).write_bytes(data)
    return Attachment(name=name, path=name)


@pytest.mark.parametrize(
    ("name", "data", "media_type", "is_image"),
    [
        ("图.png", b"\x89PNG\r\n\x1a\n...", "image/png", True),
        ("a.png", b"\xff\xd8\xff\xe0", "image/jpeg", True),
        ("a", b"GIF89a", "image/gif", True),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", True),
        ("a.bin", b"%PDF-1.7", "application/pdf", False),
        ("说明.md", "你好".encode(), "text/plain", False),
        ("empty.txt", b"", "text/plain", False),
        ("a.zip", b"PK\x03\x04\xff\xfe", "application/octet-stream", False),
        ("说明.txt", "你好".encode("gb18030"), "application/octet-stream", False),
        ("说明.md", "你好".encode("utf-16"), "application/octet-stream", False),
        ("no.png", b"\xff\xfe no picture", "application/octet-stream", False),
        ("a", b"\xff\xfe\x00", "application/octet-stream", False),
        ("empty.zip", b"PK\x05\x06" + bytes(18), "application/octet-stream", False),
    ],
)
def test_what_a_file_is_is_told_by_its_content(
    tmp_path: Path, name: str, data: bytes, media_type: str, is_image: bool
) -> None:
    found = http.read(put(tmp_path, name, data), tmp_path)
    assert found is not None
    assert (found.media_type, found.is_image, found.data) == (media_type, is_image, data)
    assert found.text == (data.decode() if media_type == "text/plain" else None)


def test_the_largest_picture_fits_into_five_mib_of_base64(tmp_path: Path) -> None:
    largest = b"\x89PNG\r\n\x1a\n".ljust(http.MOST_BYTES, b"x")
    assert http.read(put(tmp_path, "a.png", largest), tmp_path) is not None
    assert len(base64.b64encode(largest)) <= 5 * 1024 * 1024


def test_a_path_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    (inside / "own").write_text("x", encoding="utf-8")
    for path in ("../secret", str(tmp_path / "secret")):
        assert http.read(Attachment(name="s", path=path), inside) is None
    assert http.read(Attachment(name="o", path="own"), inside) is not None


def test_what_is_gone_too_large_or_elsewhere_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.read(Attachment(name="x", path="x"), tmp_path) is None
    assert http.read(Attachment(name="x", data="y"), tmp_path) is None
    monkeypatch.setattr(http, "MOST_BYTES", 3)
    assert http.read(put(tmp_path, "large", b"1234"), tmp_path) is None
    assert http.read(put(tmp_path, "small", b"123"), tmp_path) is not None


def test_a_long_text_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_TEXT_BYTES", 3)
    assert http.read(put(tmp_path, "long.txt", b"1234"), tmp_path) is None
    assert http.read(put(tmp_path, "long.pdf", b"%PDF-1234"), tmp_path) is not None
