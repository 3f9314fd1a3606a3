"""What a call cost: by the profile's rates, by the price list, or not known."""

from __future__ import annotations

import pytest
from product import Rates, Usage, cost_usd
from pydantic import ValidationError

USAGE = Usage(input_tokens=490, output_tokens=100, cache_read_tokens=500, cache_write_tokens=10)


def test_the_profiles_rates_come_first() -> None:
    rates = Rates(input_per_m=1, output_per_m=10)
    assert cost_usd(USAGE, model="claude-sonnet-4-5", pricing=rates) == 0.002
    cheap = Rates(input_per_m=1, output_per_m=10, cache_read_per_m=0.1, cache_write_per_m=2)
    assert cost_usd(USAGE, model="anything", pricing=cheap) == 0.00156


def test_what_is_free_costs_nothing_even_where_tokens_are_estimated() -> None:
    assert cost_usd(USAGE.model_copy(update={"estimated": True}), model="m", pricing="free") == 0.0


def test_the_price_list_knows_models_and_what_their_cache_costs() -> None:
    # Anthropic's list in 2026 for Sonnet 4.5: 3 and 15 dollars a million, a tenth for what the
    # cache gives, a quarter more for what it takes.
    assert cost_usd(USAGE, model="claude-sonnet-4-5", provider="anthropic") == 0.0031575
    assert cost_usd(USAGE, model="claude-sonnet-4-5-20250929") == 0.0031575


@pytest.mark.parametrize("provider", [None, "anthropic", "no-such-provider"])
def test_the_cost_of_an_unknown_model_is_not_known(provider: str | None) -> None:
    assert cost_usd(USAGE, model="no-such-model", provider=provider) is None


def test_the_cost_of_an_estimate_is_not_known() -> None:
    guessed = USAGE.model_copy(update={"estimated": True})
    assert cost_usd(guessed, model="claude-sonnet-4-5") is None
    assert cost_usd(guessed, model="m", pricing=Rates(input_per_m=1, output_per_m=1)) is None


@pytest.mark.parametrize("price", [-1, float("inf"), float("nan")])
def test_rates_are_no_less_than_nothing_and_finite(price: float) -> None:
    with pytest.raises(ValidationError):
        Rates(input_per_m=price, output_per_m=1)
