"""Time, ids and chance, passed as arguments so that a run can be repeated byte for byte."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from typing import Protocol

from arena_cli.errors import UsageError
from arena_cli.util.text import escape_line, lazy_pattern


class Clock(Protocol):
    """The source of time and chance."""

    def now(self) -> datetime:
        """Return the wall clock, with its zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...

    def jitter(self) -> float:
        """Return a fraction in [0, 1)."""
        ...

    def token(self, digits: int) -> str:
        """Return a number of hexadecimal digits, different each time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of the machine, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; setting the machine's time changes nothing."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, and let other tasks run meanwhile."""
        import asyncio  # noqa: PLC0415  # who can wait has it; the others need not load it

        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Return a fraction in [0, 1), in millionths."""
        return int.from_bytes(os.urandom(8)) % 1_000_000 / 1_000_000

    def token(self, digits: int) -> str:
        """Return a number of random hexadecimal digits."""
        return os.urandom((digits + 1) // 2).hex()[:digits]


class HastyClock:
    """A clock whose `sleep` returns at once; else the same as another one."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.jitter = clock.jitter
        self.token = clock.token

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


def format_timestamp(moment: datetime) -> str:
    """Return UTC in ISO 8601 with milliseconds and `Z`: `2026-11-28T09:30:00.125Z`."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


_AGO = lazy_pattern(r"(\d{1,6}) ?(s|m|min|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


def parse_time(text: str, now: datetime) -> str:
    """Return a time as events have it: of a time today, a date, both, or a time ago.

    Times without a zone are local. Raises UsageError.
    """
    word = text.strip()
    if (ago := _AGO.fullmatch(word)) is not None:
        return format_timestamp(now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
    try:
        if word[2:3] == ":":
            moment = datetime.combine(now.astimezone().date(), time_of_day.fromisoformat(word))
        else:
            moment = datetime.fromisoformat(word)
        return format_timestamp(moment.astimezone())
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{escape_line(text)!r} is no time",
            "Write 14:30, 2026-11-28, 2026-11-28T14:30, or 2h (ago).",
        ) from error
