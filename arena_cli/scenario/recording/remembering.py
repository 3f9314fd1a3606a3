"""Which note, or the summary, makes what an agent remembers another text than it was."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

SUMMARY = "summary"
WHOLE = "memory_context"
NOTE = "note "


def differences(
    before: str | None, after: str | None, noted_before: Sequence[str], noted: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """What differs between two texts of memory: `summary`, or `note <id>`, and its text in each.

    The ids are those of the notes in each, in order. Where the notes are alike, and only their
    order is another one, that is the whole text.
    """
    was, now = _pieces(before or "", noted_before), _pieces(after or "", noted)
    found = [
        (name, was.get(name, ""), now.get(name, ""))
        for name in dict.fromkeys([*was, *now])
        if was.get(name, "") != now.get(name, "")
    ]
    yield from found or [(WHOLE, before or "", after or "")]


def is_given(name: str, made: Container[str]) -> bool:
    """Whether what differs is a note that the scenario was given, which follows from nothing else.

    Notes that were `made` of what was said, and a summary, follow from that.
    """
    return name.startswith(NOTE) and name.removeprefix(NOTE) not in made


def _pieces(text: str, notes: Sequence[str]) -> dict[str, str]:
    """The summary with all that stands before the notes, then each note.

    A note begins with `- [id] ` in a line of its own; no other line of it does, for its text is
    indented (`context.remembered`). They are looked for from the end: a summary may read likewise.
    """
    found: dict[str, str] = {}
    end = len(text)
    for note in reversed(notes):
        mark = f"- [{note}] "
        start = text.rfind(f"\n{mark}", 0, end) + 1
        if not start and not text.startswith(mark):
            break
        found[f"{NOTE}{note}"] = text[start:end].strip("\n")
        end = start
    pieces = dict(reversed(found.items()))
    before = text[:end].strip("\n")
    return {SUMMARY: before, **pieces} if before else pieces
