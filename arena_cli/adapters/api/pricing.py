"""What a call of a model cost: by the profile, else by `arena.yaml`, else by the public price list.

The list comes with `genai-prices` (https://github.com/pydantic/genai-prices); nothing is fetched.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from arena_cli.ground.protocol import Usage
from arena_cli.team.model import ModelFacts

_M = 1_000_000


class Rates(BaseModel):
    """Prices in US dollars per million tokens.

    Where the prices of what the provider's cache takes and gives are left out, both are charged as
    input.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input_per_m: float = Field(ge=0)
    output_per_m: float = Field(ge=0)
    cache_read_per_m: float | None = Field(default=None, ge=0)
    cache_write_per_m: float | None = Field(default=None, ge=0)


Pricing = Literal["free"] | Rates


def given(pricing: Pricing | None, facts: ModelFacts | None) -> Pricing | None:
    """What is charged by a profile's `pricing`, else by what `arena.yaml` says of the model.

    None where neither says it, so that the list does.
    """
    if pricing is not None or facts is None:
        return pricing
    if facts.input_per_m is None or facts.output_per_m is None:
        return None
    return Rates(input_per_m=facts.input_per_m, output_per_m=facts.output_per_m)


def load_ahead(pricing: Pricing | None) -> None:
    """Load the price list, if it is needed, while the first answer is waited for."""
    if pricing is None and "genai_prices" not in sys.modules:
        loading = (Usage(input_tokens=1), "claude-sonnet-4-5", "anthropic")
        threading.Thread(target=_by_list, args=loading, daemon=True).start()


def cost_usd(
    usage: Usage, *, model: str, provider: str | None = None, pricing: Pricing | None = None
) -> float | None:
    """What this usage cost in US dollars; None where it is not known, which is not free.

    `provider` is its id in the price list; None looks for the model at all of them. What is only
    estimated has no known cost, save where it is free.
    """
    if pricing == "free":
        return 0.0
    if usage.estimated:
        return None
    if pricing is not None:
        return round(_by_rates(usage, pricing), 10)
    return _by_list(usage, model, provider)


def _by_rates(usage: Usage, rates: Rates) -> float:
    read = rates.input_per_m if rates.cache_read_per_m is None else rates.cache_read_per_m
    write = rates.input_per_m if rates.cache_write_per_m is None else rates.cache_write_per_m
    return (
        usage.input_tokens * rates.input_per_m
        + usage.output_tokens * rates.output_per_m
        + usage.cache_read_tokens * read
        + usage.cache_write_tokens * write
    ) / _M


def _by_list(usage: Usage, model: str, provider: str | None) -> float | None:
    import genai_prices  # noqa: PLC0415 - it takes a sixth of a second, and free models need none

    counted = genai_prices.Usage(
        # The list's input holds what the cache took and gave.
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    with contextlib.suppress(LookupError, ValueError):
        price = genai_prices.calc_price(counted, model_ref=model, provider_id=provider)
        return round(float(price.total_price), 10)
    return None
