"""What a model says while it thinks, kept out of what is shown as it comes."""

from __future__ import annotations

import re

_OPENING = re.compile(r"<(think|thinking)\s{0,8}>", re.IGNORECASE)
_CLOSING = {
    name: re.compile(rf"</{name}\s{{0,8}}>", re.IGNORECASE) for name in ("think", "thinking")
}
_FENCES = ("```", "~~~")
_LONGEST_TAG = len("</thinking        >")
_LINE_KEPT = 80


class Spoken:
    """Text as it comes, without its blocks of thinking, as far as can be told by now.

    It is for the live view alone: what may be the beginning of a tag is held back, and a tag in
    code is mere text. What counts is the whole answer, as `reading` reads it.
    """

    def __init__(self) -> None:
        self._held = ""
        self._passed: list[str] = []
        self._within: str | None = None
        self._line = ""
        self._in_fence = False

    def feed(self, text: str) -> str:
        """What may be shown now."""
        if not (self._held or self._within) and "<" not in text:
            self._passed.append(text)
            return text
        self._keep_up("".join(self._passed))
        self._passed.clear()
        self._held += text
        shown: list[str] = []
        while (piece := self._next_piece()) is not None:
            shown.append(piece)
        return "".join(shown)

    def finish(self) -> str:
        """What was held back, and was no tag after all."""
        rest, self._held = self._held, ""
        return "" if self._within else rest

    def _next_piece(self) -> str | None:
        """What is to be shown up to the next tag; None if nothing more can be told by now."""
        if self._within:
            closing = _CLOSING[self._within].search(self._held)
            if closing is None:
                self._held = self._held[-_LONGEST_TAG:]
                return None
            self._held = self._held[closing.end() :]
            self._within = None
            return ""
        opening = next(filter(self._counts, _OPENING.finditer(self._held)), None)
        if opening is not None:
            self._within = opening[1].lower()
            return self._take(opening.start(), opening.end())
        begun = self._held.rfind("<", -_LONGEST_TAG if len(self._held) > _LONGEST_TAG else 0)
        if begun < 0 or ">" in self._held[begun:]:
            begun = len(self._held)
        return self._take(begun, begun) if begun else None

    def _take(self, end: int, to: int) -> str:
        shown, self._held = self._held[:end], self._held[to:]
        self._keep_up(shown)
        return shown

    def _keep_up(self, shown: str) -> None:
        """Note where in the text this leads: within a fence or not, and in which line."""
        self._in_fence, line = self._after(shown)
        self._line = line if len(line) < _LINE_KEPT else line[: _LINE_KEPT // 2] + line[-1]

    def _counts(self, tag: re.Match[str]) -> bool:
        in_fence, line = self._after(tag.string[: tag.start()])
        return not (in_fence or line.endswith("`") or line.lstrip().startswith(_FENCES))

    def _after(self, text: str) -> tuple[bool, str]:
        """Whether a fence is open after this text, and the line in which it ends."""
        *lines, last = (self._line + text).split("\n")
        fences = sum(line.lstrip().startswith(_FENCES) for line in lines)
        return self._in_fence ^ (fences % 2 == 1), last
