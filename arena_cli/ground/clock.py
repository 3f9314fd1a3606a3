"""Time, ids and chance, passed in so that a run can be told again byte for byte."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where time and chance come from."""

    def now(self) -> datetime:
        """The wall clock, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let so many seconds go by."""
        ...

    def jitter(self) -> float:
        """A fraction in [0, 1)."""
        ...

    def token(self, digits: int) -> str:
        """So many hexadecimal digits that nobody had before."""
        ...


class SystemClock:
    """The machine's own."""

    def now(self) -> datetime:
        """The time of the machine, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment before; setting the machine's time does not change them."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, and let others work meanwhile."""
        import asyncio  # noqa: PLC0415  # who can wait has it; the others need not load it

        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """A fraction in [0, 1), in millionths."""
        return secrets.randbelow(1_000_000) / 1_000_000

    def token(self, digits: int) -> str:
        """So many random hexadecimal digits."""
        return secrets.token_hex((digits + 1) // 2)[:digits]


class HastyClock:
    """Another clock, in whose time nobody waits."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.jitter = clock.jitter
        self.token = clock.token

    async def sleep(self, seconds: float) -> None:
        """It is over at once."""


def timestamp(moment: datetime) -> str:
    """UTC in ISO 8601 with milliseconds and `Z`: `2026-11-28T09:30:00.125Z`."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
