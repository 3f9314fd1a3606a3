"""Expected numbers: exact ones and ranges."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arena_cli.workspace.file_shape import FileShape


class Range(FileShape):
    """`{min, max}`, both included; one of them may be left out."""

    min: float | None = Field(default=None, ge=0)
    max: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounds_something(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("needs `min` or `max`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is more than max {self.max:g}")
        if not self.min and self.max is None and self.holds_of_unknown:
            raise ValueError("every number is at least 0, so this cannot fail; raise `min`")
        return self

    @property
    def holds_of_unknown(self) -> bool:
        """True if it holds for an unknown number."""
        return True


class Cost(Range):
    """A range in US dollars. An unknown cost is not free: it fails, unless `pass`."""

    unknown: Literal["fail", "pass"] = "fail"

    @property
    def holds_of_unknown(self) -> bool:
        return self.unknown == "pass"


Count = Annotated[int, Field(ge=0)] | Range
Amount = Annotated[float, Field(ge=0)] | Range


def within(expected: float | Range, actual: float) -> bool:
    """Return True if a number equals the expected one, or lies in the expected range."""
    if not isinstance(expected, Range):
        return actual == expected
    least, most = expected.min, expected.max
    return (least is None or actual >= least) and (most is None or actual <= most)


def describe_limit(expected: float | Range) -> str:
    """Describe an expectation in words."""
    if not isinstance(expected, Range):
        return f"{expected:g}"
    least, most = expected.min, expected.max
    if least is not None and most is not None:
        return f"{least:g} to {most:g}"
    return f"at most {most:g}" if least is None else f"at least {least:g}"
