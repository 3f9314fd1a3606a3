"""Correct the estimates of tokens by the counts of providers, for each agent and its model.

This is state of the fold: the same events produce the same numbers. A reply counts if its metadata
report that its provider was sent exactly the text that arena renders, once (`input_counted`), and
if it succeeded at the first attempt. The factor is the sum of counts divided by the sum of
estimates, and each further reply halves the earlier sums. So the longest and the latest inputs
weigh most, and the tokens that a provider adds to each call (a chat's frames, a tool) matter less
as inputs grow.

A server whose context is too small cuts prompts silently, and one with a cache may count only the
uncached part. Such counts are reported (`cut_suspected`), and are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from arena_cli.transcript.events import ChainFinished, Event, ReplyFinished, ReplyStarted

MARK = "input_counted"

# Tokenizers in use make 0.6 (a large vocabulary's Hindi) to 3 (a small model's Chinese) of the
# estimate, few more: a correction beyond that would rather come of something else.
LEAST, MOST = 0.4, 3.0

# So much more than the estimate is no text's (a small model's Thai is 5 times): it is a prompt of
# the provider's own.
_NO_TEXT = 6.0

# The least that servers give a context by default (Ollama's was 2,048 tokens); others double it.
SMALLEST_WINDOW = 2_048

_KEPT = 0.5


@dataclass
class _Learned:
    """The counts of one agent's model. `cut` is the last count, if it is one that is not used.

    `estimated` and `counted` are the sums, `last_estimated` and `last_counted` those of the last
    reply that was used.
    """

    model: str
    estimated: float = 0.0
    counted: float = 0.0
    last_estimated: float = 0.0
    last_counted: int = 0
    cut: int | None = None

    @property
    def factor(self) -> float:
        if not self.estimated:
            return 1.0
        return round(min(MOST, max(LEAST, self.counted / self.estimated)), 3)

    def hear(self, estimated: float, counted: int) -> None:
        """Add one count of an input, in tokens, with its uncorrected estimate."""
        if self._is_short(estimated, counted):
            self.cut = counted
            return
        self.cut = None
        if counted > _NO_TEXT * estimated:
            return
        self.estimated = round(self.estimated * _KEPT + estimated, 3)
        self.counted = round(self.counted * _KEPT + counted, 3)
        self.last_estimated, self.last_counted = estimated, counted

    def _is_short(self, estimated: float, counted: int) -> bool:
        """Return True if the count cannot be that of the whole input."""
        expected = estimated * self.factor
        if counted < LEAST * estimated:
            return True
        if expected >= 0.9 * SMALLEST_WINDOW and counted < 0.6 * expected:
            return True
        if _fills_a_window(counted) and expected > 1.15 * counted:
            return True
        if not self.last_counted:
            return False
        grown = estimated / self.last_estimated - 1
        count_grown = counted / self.last_counted - 1
        if grown > 0.1:
            return count_grown < grown / 4
        return grown > -0.05 and count_grown < -0.1


def _fills_a_window(counted: int) -> bool:
    """Return True for a power of two, from the smallest window on, or up to 2 % less."""
    window = SMALLEST_WINDOW
    while window < counted:
        window *= 2
    return 0.98 * window <= counted


class Counts:
    """The ratio of its model's counts to the estimates, by agent."""

    def __init__(self) -> None:
        self._learned: dict[str, _Learned] = {}
        self._asked: dict[int, float] = {}

    def factor(self, agent: str) -> float:
        """Return the factor that corrects an estimate for this agent; 1.0 if none is known."""
        learned = self._learned.get(agent)
        return learned.factor if learned else 1.0

    def cut_suspected(self, agent: str) -> int | None:
        """Return the provider's last count if it cannot have read the whole input, else None."""
        learned = self._learned.get(agent)
        return learned.cut if learned else None

    def apply(self, event: Event) -> None:
        """Apply one event."""
        if isinstance(event, ReplyStarted):
            # What the event tells is corrected already.
            self._asked[event.reply] = event.input_tokens / self.factor(event.agent)
        elif isinstance(event, ReplyFinished):
            self._finished(event, self._asked.pop(event.reply, 0.0))
        elif isinstance(event, ChainFinished):
            self._asked.clear()

    def _finished(self, event: ReplyFinished, estimated: float) -> None:
        usage = event.usage
        if not event.metadata.get(MARK) or usage is None or usage.estimated or estimated <= 0:
            return
        if event.attempts != 1 or event.status not in ("success", "declined"):
            return
        counted = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        model = str(event.metadata.get("model", ""))
        learned = self._learned.get(event.agent)
        if learned is None or learned.model != model:
            learned = self._learned[event.agent] = _Learned(model)
        if counted > 0:
            learned.hear(round(estimated, 3), counted)

    def record(self) -> dict[str, list[Any]]:
        """Return the counts as JSON; a call that is not answered yet is left out."""
        return {agent: list(astuple(learned)) for agent, learned in self._learned.items()}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Restore the recorded state. Raises TypeError or ValueError if it has another shape."""
        learned = {str(agent): _restored(*figures) for agent, figures in record.items()}
        self._learned, self._asked = learned, {}


def _restored(
    model: object,
    estimated: float,
    counted: float,
    last_estimated: float,
    last_counted: int,
    cut: int | None,
) -> _Learned:
    return _Learned(
        str(model),
        float(estimated),
        float(counted),
        float(last_estimated),
        int(last_counted),
        None if cut is None else int(cut),
    )
