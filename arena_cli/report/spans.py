"""Lines of a report as data: pieces of text, and what each of them is. No colours here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line, harmless text. `style` says what it is (`terminal.STYLES`)."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """One line. In a narrow terminal its further rows begin `hang` columns in.

    `hang` None: as far in as its own text. `whole` lines are never broken: they run on, so that
    what is copied is what was written.
    """

    spans: tuple[Span, ...]
    hang: int | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        """The line as plain text, without a line end."""
        if len(self.spans) == 1:
            return self.spans[0].text
        return "".join([span.text for span in self.spans])


EMPTY = Line(())
INDENT = "  "
BETWEEN = Span(" · ", "dim")


def line(*parts: str | Span | Iterable[Span], hang: int | None = None) -> Line:
    """A line of texts, spans and lists of spans."""
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, Span):
            spans.append(part)
        elif isinstance(part, str):
            spans.append(Span(part))
        else:
            spans.extend(part)
    return Line(tuple(spans), hang)
