"""What a file that is not UTF-8 most likely is, for the message about it."""

from __future__ import annotations

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)


def guess(raw: bytes) -> tuple[str, str]:
    """The name of the encoding, "" where nothing fits, and the text as it reads it."""
    found = next((mark[1:] for mark in _MARKS if raw.startswith(mark[0])), None)
    if found is None and b"\0" in raw[:4]:
        found = ("UTF-16", "utf-16-be" if raw[:1] == b"\0" else "utf-16-le")
    if found is None:
        runs = re.findall(rb"[\x80-\xff]+", raw)
        pairs = sum(len(run) > 1 for run in runs)
        # A Chinese text has most of its bytes in pairs, a Latin one a letter here and there.
        chinese = ("GBK", "gb18030")
        found = chinese if pairs * 2 > len(runs) else ("Windows-1252", "cp1252")
    try:
        return found[0], raw.decode(found[1])
    except UnicodeDecodeError:
        return "", raw.decode("utf-8", "replace")
