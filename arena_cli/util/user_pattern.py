"""Regular expressions that a user wrote: in the syntax of `re`, with a limit on their time.

`re` cannot be stopped, and a pattern may take years on a text of a line; `regex` has a time limit.
It is imported when such a pattern is first looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from arena_cli.errors import UsageError
from arena_cli.util.text import lazy_pattern

if TYPE_CHECKING:
    import regex


LIMIT_S = 1.0

_LONGEST_EXCERPT = 200
_FLAGS = ("IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE", "ASCII")
# What `regex` takes for an approximate match is a plain brace for `re`: `{e<=1}`, `{name}`.
_NO_QUANTIFIER = lazy_pattern(
    r"(\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\{(?!\d+(?:,\d*)?\}|,\d*\})", re.DOTALL
)


class PatternTimeout(UsageError):
    """A pattern did not finish within `LIMIT_S`."""


class UserPattern:
    """A regular expression that a user wrote, at `where` (a file and line, or a setting).

    Every use raises PatternTimeout if it takes longer than `LIMIT_S`; `failed` is the last of these
    errors. Raise `re.error` if it is no pattern.
    """

    def __init__(self, pattern: re.Pattern[str] | str, flags: int = 0, *, where: str = "") -> None:
        self.plain = re.compile(pattern, flags) if isinstance(pattern, str) else pattern
        self.where = where
        self.failed: PatternTimeout | None = None

    @property
    def pattern(self) -> str:
        return self.plain.pattern

    @property
    def flags(self) -> int:
        return self.plain.flags

    def search(self, text: str) -> regex.Match[str] | None:
        """Return the first match in the text."""
        try:
            return self._timed.search(text, timeout=LIMIT_S)
        except TimeoutError as error:
            raise self._timeout(text) from error

    def finditer(self, text: str) -> Iterator[regex.Match[str]]:
        """Yield the matches in the text, all within the limit."""
        try:
            yield from self._timed.finditer(text, timeout=LIMIT_S)
        except TimeoutError as error:
            raise self._timeout(text) from error

    def sub(self, change: Callable[[regex.Match[str]], str], text: str) -> str:
        """Return the text with every match changed."""
        try:
            return self._timed.sub(change, text, timeout=LIMIT_S)
        except TimeoutError as error:
            raise self._timeout(text) from error

    def _timeout(self, text: str) -> PatternTimeout:
        prefix = f"{self.where}: " if self.where else ""
        excerpt = (
            self.pattern
            if len(self.pattern) <= _LONGEST_EXCERPT
            else f"{self.pattern[:_LONGEST_EXCERPT]}…"
        )
        self.failed = PatternTimeout(
            f"{prefix}the pattern /{excerpt}/ takes longer than {LIMIT_S:g} s "
            f"on a text of {len(text)} characters",
            "write it so that it can match in one way only: no repetition within a repetition",
        )
        return self.failed

    @cached_property
    def _timed(self) -> regex.Pattern[str]:
        import regex  # noqa: PLC0415 - takes a while, and few have patterns of their own

        flags = regex.VERSION0
        for name in _FLAGS:
            if self.flags & getattr(re, name):
                flags |= getattr(regex, name)
        source = _NO_QUANTIFIER.sub(lambda match: match[1] or r"\{", self.pattern)
        try:
            return regex.compile(source, flags)
        except regex.error as error:
            problem = f"{self.where}: the pattern /{self.pattern}/ cannot be used: {error}"
            raise UsageError(problem.removeprefix(": "), "rewrite it") from error
