"""Numbers and ranges that are expected."""

from __future__ import annotations

from arena_cli.scenario.expect.shapes import Range


def within(expected: float | Range, actual: float) -> bool:
    """Whether a number is that one, or in that range."""
    if not isinstance(expected, Range):
        return actual == expected
    least, most = expected.min, expected.max
    return (least is None or actual >= least) and (most is None or actual <= most)


def wanted(expected: float | Range) -> str:
    """What is expected, in words."""
    if not isinstance(expected, Range):
        return f"{expected:g}"
    least, most = expected.min, expected.max
    if least is not None and most is not None:
        return f"{least:g} to {most:g}"
    return f"at most {most:g}" if least is None else f"at least {least:g}"
