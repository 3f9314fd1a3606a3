"""Price a model call: by the profile, else by `arena.yaml`, else by the public list.

The list comes with `genai-prices` (https://github.com/pydantic/genai-prices); nothing is fetched.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from arena_cli.adapters.openai import presets
from arena_cli.protocol import Usage
from arena_cli.workspace.models import ModelFacts

_M = 1_000_000


class Rates(BaseModel):
    """Prices in US dollars per million tokens.

    Without prices for cache reads and writes, both are charged as input.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    input_per_m: float = Field(ge=0)
    output_per_m: float = Field(ge=0)
    cache_read_per_m: float | None = Field(default=None, ge=0)
    cache_write_per_m: float | None = Field(default=None, ge=0)


Pricing = Literal["free"] | Rates


_MOST = 1e15  # a greater number is none of tokens or dollars


def read_count(value: object) -> int:
    """Return a number of tokens as a provider reports it, 0 if it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST
    return cast("int", value) if is_count else 0


def read_cost(value: object) -> float | None:
    """Return a cost as a provider reports it, None if it is no number.

    It may be negative or infinite, which `Usage` refuses.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _MOST else math.inf


def given_pricing(pricing: Pricing | None, facts: ModelFacts | None) -> Pricing | None:
    """Return the prices of a profile's `pricing`, else those of the model in `arena.yaml`.

    None if neither has them, so that the price list is used.
    """
    if pricing is not None or facts is None:
        return pricing
    if facts.input_per_m is None or facts.output_per_m is None:
        return None
    return Rates(input_per_m=facts.input_per_m, output_per_m=facts.output_per_m)


def load_ahead(pricing: Pricing | None) -> None:
    """Load the price list, if it is needed, in the background during the first call."""
    if pricing is None and "genai_prices" not in sys.modules:
        loading = (Usage(input_tokens=1), "claude-sonnet-4-5", "anthropic")
        threading.Thread(target=_by_list, args=loading, daemon=True).start()


def cost_usd(
    usage: Usage, *, model: str, provider: str | None = None, pricing: Pricing | None = None
) -> float | None:
    """Return the cost of this usage in US dollars; None if it is not known, which is not free.

    `provider` is its id in the price list; None searches all providers. An estimated usage has no
    known cost, unless the model is free.
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


FILE = "arena.yaml"
LIST = "the public list"
OWN_LIST = "arena's own list"
PROFILE = "its profile"

# Whose models a kind calls, by the id in the price list; None: nobody's in particular.
_PROVIDERS: Mapping[str, str | None] = {
    "anthropic": "anthropic",
    "claude_code": "anthropic",
    "codex": "openai",
    "gemini": "google",
    "openai": None,
    "cursor": None,
    "opencode": None,
    "pi": None,
}
# Windows in tokens of models that the public list lacks, by preset. A server of one's own may be
# started with less; `models` in arena.yaml says so, and names larger windows of later versions.
_WINDOWS: Mapping[str, Mapping[str, int]] = {
    "deepseek": {"deepseek-coder": 32_768},
    "qwen": {"qwen-turbo": 8_192, "qwen-plus": 32_768, "qwen-max": 8_192},
    "ollama": {"llama2": 4_096, "mistral": 8_192, "codellama": 16_384},
}
API_KINDS = ("anthropic", "openai")


class Known(NamedTuple):
    """A model's window in tokens, and the sources of its window and price ("" if unknown)."""

    model: str
    window_tokens: int | None = None
    window_from: str = ""
    price_from: str = ""


def window_of(adapter: Mapping[str, Any], models: Mapping[str, ModelFacts]) -> int | None:
    """Return the context window, in tokens, of the model that an adapter names; None if unknown."""
    model = _model(adapter)
    if not model:
        return None
    return _find_window(adapter, model, models.get(model))[0]


def _find_window(
    adapter: Mapping[str, Any], model: str, facts: ModelFacts | None
) -> tuple[int | None, str]:
    """Return the window of a model and its source; (None, "") if it is not known."""
    if facts is not None and facts.window_tokens is not None:
        return facts.window_tokens, FILE
    listed = _find_in_list(adapter, model)
    if listed is not None and listed.context_window is not None:
        return listed.context_window, LIST
    own = _find_in_own_list(adapter, model)
    return own, OWN_LIST if own is not None else ""


def _find_in_own_list(adapter: Mapping[str, Any], model: str) -> int | None:
    preset = adapter.get("preset")
    windows = _WINDOWS.get(preset, {}) if isinstance(preset, str) else {}
    if presets.find_preset(preset).local:
        return windows.get(model.partition(":")[0])  # whatever its size and quantization
    is_makers = bool(presets.key_variable(preset, adapter.get("base_url")))
    return windows.get(model.removesuffix("-latest")) if is_makers else None


def find_model_facts(adapter: Mapping[str, Any], models: Mapping[str, ModelFacts]) -> Known | None:
    """Return the known facts of an agent's model; None for kinds without an API."""
    model = _model(adapter)
    if not model or adapter.get("type") not in API_KINDS:
        return None
    facts = models.get(model)
    window, source = _find_window(adapter, model, facts)
    return Known(model, window, source, _price_from(adapter, facts))


def _price_from(adapter: Mapping[str, Any], facts: ModelFacts | None) -> str:
    if adapter.get("pricing") is not None:
        return PROFILE
    if given_pricing(None, facts) is not None:
        return FILE
    if _is_free(adapter):
        return "its own machine"
    return LIST if _find_in_list(adapter, _model(adapter)) is not None else ""


def estimate_cost(
    usage: Usage, adapter: Mapping[str, Any], models: Mapping[str, ModelFacts]
) -> float | None:
    """Return the cost in US dollars of a usage, also of an estimated one, by an agent's settings.

    None if no price is known.
    """
    usage = usage.model_copy(update={"estimated": False})
    model = _model(adapter)
    pricing = given_pricing(_read_pricing(adapter), models.get(model))
    if pricing is None and _is_free(adapter):
        pricing = "free"
    if pricing is not None:
        return cost_usd(usage, model=model, pricing=pricing)
    if not model or _find_in_list(adapter, model) is None:
        return None
    return _by_list(usage, model, _find_provider(adapter))


def offers_model(adapter: Mapping[str, Any], model: str, models: Mapping[str, ModelFacts]) -> bool:
    """Return True if an agent can be called with that model: its settings name one.

    A provider of the public list must have it there, or `arena.yaml` must name it.
    """
    if not _model(adapter):
        return "model" in adapter
    if model in models or _find_provider(adapter) is None:
        return True
    return _find_in_list(adapter, model) is not None


def _read_pricing(adapter: Mapping[str, Any]) -> Pricing | None:
    given = adapter.get("pricing")
    if given is None or given == "free":
        return given
    try:
        return Rates.model_validate(given)
    except ValidationError:  # the adapter reports it when it starts
        return None


def _model(adapter: Mapping[str, Any]) -> str:
    """Return the model that an adapter names; "" for kinds that the price list does not cover."""
    model = adapter.get("model")
    return model if adapter.get("type") in _PROVIDERS and isinstance(model, str) else ""


def _is_free(adapter: Mapping[str, Any]) -> bool:
    """Return True if the model runs on the user's own machine, by its preset."""
    preset = presets.find_preset(adapter.get("preset"))
    return adapter.get("type") == "openai" and preset.local


def _is_at_provider(adapter: Mapping[str, Any]) -> bool:
    """Return True if an `openai` agent calls the server of a known provider."""
    return bool(presets.key_variable(adapter.get("preset"), adapter.get("base_url")))


def _find_provider(adapter: Mapping[str, Any]) -> str | None:
    """Return the id in the price list of the provider of an agent's models; None for any."""
    if adapter["type"] == "openai" and _is_at_provider(adapter):
        return presets.find_preset(adapter.get("preset")).provider
    return _PROVIDERS[str(adapter["type"])]


def _find_in_list(adapter: Mapping[str, Any], model: str) -> Any:
    """Return the model in the public list; None if it is not listed.

    A model on a third-party server is not looked up either: its window and price depend on that
    server.
    """
    if adapter["type"] == "openai" and not _is_at_provider(adapter):
        return None
    provider = _find_provider(adapter)
    from genai_prices import data_snapshot  # noqa: PLC0415 - a sixth of a second; few need it

    try:
        return data_snapshot.get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None
