"""Read and write a note's file as text, and change it without touching any other byte.

A file begins with its front matter: YAML between two lines `---`. A file without one is a note all
the same, of the kind in its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from arena_cli.errors import Fault, FileFaults
from arena_cli.notes.model import CATEGORIES, KINDS, Kind, Note
from arena_cli.util.text import cut_text, lazy_pattern
from arena_cli.yamlio import loader, nodes
from arena_cli.yamlio.loader import Fragment

LONGEST_BODY = 65_536
"""Characters of a note's text that are read; its file may hold more, and is kept as it is."""

_RULE = lazy_pattern(r"---[ \t]*(\r\n|\n|\r|\Z)")
_LINE = lazy_pattern(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_HEADING = lazy_pattern(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_LINE_ENDS = "\r\n"
_BOM = "\ufeff"


class NoteFault(FileFaults):
    """A note's file cannot be read; its fields are those of its first error."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults)
        first = self.faults[0]
        self.file, self.line, self.what, self.mend = first.file, first.line, first.what, first.mend


# What the front matter may set; other keys are ignored.
_FIELDS = tuple(key for key in Note.model_fields if key not in ("id", "file", "approval", "body"))

_REQUIRED = {"id": "", "file": "", "title": "", "kind": "reference"}

# What else there is stands in a new file only where it says something.
_ALWAYS = frozenset(
    {"title", "kind", "status", "importance", "tags", "created", "updated"}
    | {"related_sessions", "occurrences"}
)

# What an act on a note sets, whatever its text has become meanwhile.
_STANDING = {"status", "updated", "approved_by", "approved_at", "superseded_by"}
_STANDING |= {"occurrences", "related_sessions"}


class _Parts(NamedTuple):
    """The parts of a file's text.

    `before` ends where the YAML begins; `after` begins at the closing `---`.
    """

    before: str
    front: str | None
    after: str
    body: str
    newline: str


def decoded(raw: bytes, file: str, *, is_cut: bool = False) -> str:
    """Decode the bytes of a note, including a byte order mark; `is_cut`: there are more bytes.

    Raises NoteFault if they are not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_cut and error.end == len(raw) and len(raw) - error.start < 4:
            return raw[: error.start].decode("utf-8")
        line = raw.count(b"\n", 0, error.start) + 1
    name, _ = loader.guess_encoding(raw)
    guess = f"; it looks like {name}" if name else ""
    raise NoteFault([Fault(file, line, "", f"is not UTF-8{guess}", "save the file as UTF-8")])


def parse(text: str, *, id: str, file: str) -> Note:
    """Return the note in a file's text. `file` is its path within the workspace.

    Raises NoteFault with file and line if its front matter cannot be read.
    """
    file_parts = _split(text, file)
    fields = _front(file_parts.front, file) if file_parts.front is not None else {}
    body = file_parts.body
    if len(body) > LONGEST_BODY:
        body = cut_text(body, LONGEST_BODY)
    title = fields.pop("title", "").strip() or _title(body, id)
    return Note(
        **{"id": id, "file": file, "title": title, "kind": _kind(id), "body": body} | fields
    )


def is_cut(note: Note, text: str) -> bool:
    """Return True if the file has more text than the note has."""
    return len(_split(text, note.file).body) > len(note.body)


def write_note(note: Note) -> str:
    """Return the text of a new file for this note."""
    fields: dict[str, Any] = {}
    for key in _FIELDS:
        value = getattr(note, key)
        if value or key in _ALWAYS:
            fields[key] = value
    front = "".join(f"{_entry(key, value)}\n" for key, value in fields.items())
    body = note.body.strip(_LINE_ENDS)
    return f"---\n{front}---\n" + (f"\n{body}\n" if body else "")


def changed(text: str, **fields: Any) -> str:
    """Return the text with these fields set in its front matter, and every other byte unchanged.

    A text without front matter gets one. Raises NoteFault if it cannot be read, or if its form does
    not allow the change.
    """
    file_parts = _split(text, "note")
    if file_parts.front is None:
        lines = "".join(f"{_entry(key, value)}\n" for key, value in fields.items())
        front_text = f"---\n{lines}---\n".replace("\n", file_parts.newline)
        return file_parts.before + front_text + file_parts.after
    front = file_parts.front
    for key, value in fields.items():
        front = _with_field(front, key, value, file_parts.newline)
    result = file_parts.before + front + file_parts.after
    values = _front(front, "note")
    wrong = [key for key, value in fields.items() if (values.get(key) or None) != (value or None)]
    if wrong:
        problem = f"its front matter has a form in which `{wrong[0]}` cannot be set"
        raise NoteFault([Fault("note", 1, wrong[0], problem, "write one `key: value` per line")])
    return result


def appended(text: str, heading: str, addition: str) -> str:
    """Return the text with an addition at its end, under a heading; no other byte is changed."""
    newline = _split(text, "note").newline
    gap = "" if text.endswith(("\n\n", "\r\n\r\n")) else "\n"
    if not text.endswith(("\n", "\r")):
        gap = "\n\n"
    added = f"{gap}## {heading}\n\n{addition.strip(_LINE_ENDS)}\n"
    return text + added.replace("\n", newline)


def standing_of(text: str) -> dict[str, Any]:
    """Return the status fields of the front matter. Raises NoteFault."""
    front = _split(text, "note").front
    fields = _front(front, "note") if front is not None else {}
    return {key: value for key, value in fields.items() if key in _STANDING}


def body_of(text: str) -> str:
    """Return all text after the front matter. Raises NoteFault if that is never closed."""
    return _split(text, "note").body


def _split(text: str, file: str) -> _Parts:
    bom = _BOM if text.startswith(_BOM) else ""
    first = _LINE.match(text)
    newline = "\r\n" if first and first.group().endswith("\r\n") else "\n"
    opened = _RULE.match(text, len(bom))
    if opened is None:
        return _Parts(bom, None, text[len(bom) :], text[len(bom) :], newline)
    closed = _closing(text, opened.end())
    if closed is None:
        problem = "the front matter that begins here is never closed"
        mend = "close it with a line `---`, or remove the first line"
        raise NoteFault([Fault(file, 1, "", problem, mend)])
    start, end = closed
    body = text[end:]
    # The empty line that parts the two is no part of the text.
    body = body.removeprefix(newline)
    return _Parts(text[: opened.end()], text[opened.end() : start], text[start:], body, newline)


def _closing(text: str, start: int) -> tuple[int, int] | None:
    """Return the start and end of the line `---` that closes the front matter."""
    index = start
    while index < len(text):
        match = _RULE.match(text, index)
        if match:
            return index, match.end()
        line = _LINE.match(text, index)
        index = line.end() if line else len(text)
    return None


def _front(front: str, file: str) -> dict[str, Any]:
    """Return the fields that a front matter sets."""
    # The line `---` before it counts, so that faults have the lines of the file.
    document = loader.parse("\n" + front, file)
    data = {} if document.data is None else document.data
    keys: set[str] = set()
    if isinstance(data, dict):
        keys = {key for key in _FIELDS if data.get(key) is not None}
        data = _REQUIRED | {key: data[key] for key in keys}
    note, faults = loader.validate_merged(data, Note, [Fragment(document)])
    problems = [*document.faults, *faults]
    if problems or note is None:
        raise NoteFault(problems)
    return note.model_dump(include=keys)


def _kind(id: str) -> Kind:
    folder, slash, _ = id.partition("/")
    if slash:
        return next((kind for kind, name in CATEGORIES.items() if name == folder), "reference")
    prefix = id.partition("-")[0]
    return next((kind for kind in KINDS if kind == prefix), "reference")


def _title(body: str, id: str) -> str:
    heading = _HEADING.search(body[:4096])
    if heading:
        return heading[1].strip()
    name = id.rpartition("/")[2]
    prefix, dash, remainder = name.partition("-")
    return (remainder if dash and prefix in KINDS else name).replace("-", " ")


def _entry(key: str, value: Any) -> str:
    return f"{key}: {_value(key, value)}"


def _value(key: str, value: Any, *, in_flow: bool = False) -> str:
    """Return the value in YAML as it is written after its key, in one line."""
    entry = loader.dump_yaml({key: value})
    text = entry.removeprefix(f"{key}:").strip()
    # A text such as `“yes”` is plain YAML, and looks like a slip to whoever reads it.
    if "\n" in text or in_flow or loader.parse(entry, "").faults:
        return json.dumps(value, ensure_ascii=False)
    return text


def _with_field(front: str, key: str, value: Any, newline: str) -> str:
    root = nodes.compose(front)
    in_flow = isinstance(root, yaml.MappingNode) and bool(root.flow_style)
    span = _place(root, key)
    if span:
        start, end = (_offset(front, *position) for position in span)
        end = start + len(front[start:end].rstrip(_LINE_ENDS))  # a `|` text holds its last line end
        gap = "" if front[start - 1 : start].isspace() else " "
        return f"{front[:start]}{gap}{_value(key, value, in_flow=in_flow)}{front[end:]}"
    if not value:
        return front
    if in_flow and root is not None:
        end = _offset(front, root.end_mark.line, root.end_mark.column) - 1
        entry = f"{key}: {_value(key, value, in_flow=True)}"
        return f"{front[:end]}{', ' if root.value else ''}{entry}{front[end:]}"
    return f"{front}{_entry(key, value)}{newline}"


def _place(root: yaml.Node | None, key: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the start and end, as (line, column) from 0, of the value of that key."""
    for name, node in root.value if isinstance(root, yaml.MappingNode) else ():
        if isinstance(name, yaml.ScalarNode) and name.value == key:
            last = node
            while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
                item = last.value[-1]
                last = item[1] if isinstance(item, tuple) else item
            begins = node.start_mark
            is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
            index = name.end_mark if is_block else begins
            column = index.column + 1 if is_block else index.column  # after its colon
            return (index.line, column), (last.end_mark.line, last.end_mark.column)
    return None


def _offset(text: str, line: int, column: int) -> int:
    index = 0
    for _ in range(line):
        match = _LINE.match(text, index)
        index = match.end() if match else len(text)
    return min(index + column, len(text))
