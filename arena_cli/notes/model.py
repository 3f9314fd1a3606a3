"""A note of knowledge: its front matter, and its text.

A session has its own notes; shared notes belong to all sessions. A note's id is its file without
`.md`: `decision-auth` in a session's `knowledge` folder, `decisions/auth` for a shared note.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from arena_cli.protocol import Shape
from arena_cli.util.text import clean_text, cut_text, is_device_name, lazy_pattern
from arena_cli.workspace.models import NoteKind

Kind = NoteKind
Status = Literal["draft", "pending_user", "approved", "archived"]
Category = Literal["pits", "patterns", "decisions", "solutions"]

KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)

CATEGORIES: dict[Kind, Category] = {
    "pit": "pits",
    "pattern": "patterns",
    "decision": "decisions",
    "solution": "solutions",
}
"""The kinds that can be shared, and the folder of each."""

PINNING_KINDS: frozenset[Kind] = frozenset({"decision", "requirement"})
RULES = "rules"
"""The author of a note that the rules extracted."""

MOST_SHOWN = 6
"""The number of notes that an agent is shown, unless its team says otherwise."""

PINNING_IMPORTANCE = 0.8
MOST_ALIASES = 32
LONGEST_ALIAS = 200  # characters


class Draft(NamedTuple):
    """The content of a note before it has a file: found in a message, or entered by a person.

    `by` is the id of an agent or a human, or `rules`; `source` the id of the message. `importance`
    is from 0 to 1.
    """

    kind: Kind
    title: str
    body: str = ""
    by: str = ""
    source: str | None = None
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    owner: str = ""
    supersedes: str = ""
    aliases: tuple[str, ...] = ()


_Alias = Annotated[str, Field(min_length=1, max_length=LONGEST_ALIAS)]


class Note(Shape):
    """A note as read from its file. Times are ISO 8601 in UTC; `importance` is from 0 to 1.

    `source` is the id of its source message, in the first session of `related_sessions`.
    `occurrences` counts how often it was seen. `superseded_by` is the id of the note that replaces
    it; `supersedes` that of the note that it replaces once it is approved. `aliases` are terms by
    which a search finds it too, such as those of another language. `body` is the text after the
    front matter, unchanged. `file` is the path of the file within the workspace, with `/`.
    `approval` is why the approval that the file claims is invalid (`notes.staging`); `status` is
    then the one that counts.
    """

    id: str
    file: str
    title: str
    kind: Kind
    status: Status = "draft"
    importance: float = Field(default=0.5, ge=0, le=1)
    tags: list[str] = Field(default_factory=list)  # a plain default is copied for every note
    aliases: list[_Alias] = Field(
        default_factory=list, max_length=MOST_ALIASES, exclude_if=lambda value: not value
    )
    owner: str = ""
    created: str = ""
    updated: str = ""
    source: str | None = None
    related_sessions: list[str] = Field(default_factory=list)
    occurrences: int = Field(default=1, ge=1)
    approved_by: str = ""
    approved_at: str = ""
    supersedes: str = ""
    superseded_by: str = ""
    approval: str = Field(default="", exclude_if=lambda value: not value)
    body: str = ""

    @property
    def is_shared(self) -> bool:
        """True if it belongs to the workspace, not to one session."""
        return "/" in self.id

    @property
    def standing(self) -> str:
        """Its status for display, with the problem of an invalid approval."""
        if self.approval and self.status == "draft":
            return f"draft ({self.approval})"
        return self.approval or self.status

    @property
    def session(self) -> str:
        """The session that owns it; "" for a shared one."""
        return "" if self.is_shared else "".join(self.file.split("/")[-3:-2])

    @property
    def is_living(self) -> bool:
        """True if it is neither archived nor superseded."""
        return self.status != "archived" and not self.superseded_by

    @property
    def pins(self) -> bool:
        """True if its source message is always shown."""
        worth = self.kind in PINNING_KINDS or self.importance >= PINNING_IMPORTANCE
        return worth and self.status != "archived" and self.source is not None


_SECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "en": {
        "pit": ("Problem", "Root cause", "Solution", "Prevention"),
        "decision": ("Decision", "Context", "Consequences"),
        "solution": ("Solution", "Problem", "How it was checked"),
        "pattern": ("Pattern", "When to use it", "Example"),
        "blocker": ("Blocker", "What it blocks", "What would solve it"),
    },
    "zh": {
        "pit": ("问题", "根本原因", "解决办法", "如何预防"),
        "decision": ("决定", "背景", "影响"),
        "solution": ("解决办法", "问题", "如何验证"),
        "pattern": ("做法", "适用情形", "示例"),
        "blocker": ("阻碍", "受阻的工作", "解除条件"),
    },
}

_ADDED = {"en": "Added {date} by {who}", "zh": "{date} 由 {who} 补充"}
_HEADING = lazy_pattern(r"^#{1,6}[ \t]", re.MULTILINE)


def section_names(kind: Kind, language: str = "en") -> tuple[str, ...]:
    """Return the section headings of a note of that kind; most kinds have none."""
    return _SECTIONS.get(language, _SECTIONS["en"]).get(kind, ())


def body(kind: Kind, text: str, language: str = "en") -> str:
    """Return the text of a new note: in the first section of its kind, unless it has headings."""
    names = section_names(kind, language)
    text = text.strip("\n")
    if not names or _HEADING.search(text):
        return text
    first, *further = (f"## {name}" for name in names)
    return "\n\n".join([first, *([text] if text.strip() else []), *further])


def added(date: str, name: str, language: str = "en") -> str:
    """Return the heading for text that is added to an existing note."""
    return _ADDED.get(language, _ADDED["en"]).format(date=date, who=name)


MOST_BYTES = 120  # of UTF-8: 40 Chinese characters; leaves room for the kind and a number

NOTHING = "note"


def slugify(title: str) -> str:
    """Return the title as part of a file name: letters, digits and marks, joined by `-`."""
    normal = unicodedata.normalize("NFC", unicodedata.normalize("NFC", title).lower())
    characters = "".join(map(_slug_char, normal))
    words = [word for word in characters.split("-") if word]
    slug = "-".join(words)
    short = slug.encode("utf-8")[:MOST_BYTES].decode("utf-8", "ignore")
    slug = cut_text(slug, len(short)).strip("-") or NOTHING
    return f"{NOTHING}-{slug}" if is_device_name(slug) else slug


def folded(name: str) -> str:
    """Return a form that is equal for names that some file system treats as the same."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def all_folded(names: Sequence[str]) -> list[str]:
    """Return each of the names folded; joining them is ten times as fast as one by one."""
    return folded("\0".join(names)).split("\0") if names else []  # no name of a file holds a NUL


def _slug_char(char: str) -> str:
    if char == "_" or unicodedata.category(char)[0] in "LNM":
        return char
    # What joins letters, or cannot be seen, is left out; all else parts words.
    return "" if unicodedata.category(char) in ("Cf", "Cs", "Cc") and not char.isspace() else "-"


LONGEST_TITLE = 200  # characters
LISTED_TITLE = 100  # characters of a title that a list shows


def aliases(terms: Iterable[str]) -> list[str]:
    """Return the valid ones of some aliases, each once, as many as a note may have."""
    lines = dict.fromkeys(filter(None, map(line, terms)))
    return [term for term in lines if len(term) <= LONGEST_ALIAS][:MOST_ALIASES]


def line(text: str) -> str:
    """Return a text as a line of a front matter: valid, without controls, single spaces."""
    characters = (
        " " if char.isspace() or unicodedata.category(char) == "Cc" else char
        for char in clean_text(text)[0]
    )
    return " ".join("".join(characters).split())


def short(title: str, longest: int = LONGEST_TITLE) -> str:
    """Return the title, cut if it is longer than that many characters."""
    if len(title) <= longest:
        return title
    return cut_text(title, longest - 1).rstrip() + "…"


def valid(text: str) -> str:
    r"""Return the text as valid Unicode with `\n` as its line ends."""
    return clean_text(text)[0].replace("\r\n", "\n").replace("\r", "\n")
