"""What is known of the model that a profile's adapter names: its context window, and its prices.

`arena.yaml`'s `models` come first, then the list of `genai-prices`, which is on disk; nothing is
fetched, and what neither knows is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from arena_cli.adapters.api import openai_presets, pricing
from arena_cli.team.model import ModelFacts

FILE = "arena.yaml"
LIST = "the public list"
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
API_KINDS = ("anthropic", "openai")


class Known(NamedTuple):
    """A model's window in tokens, and from where that and its price are known (empty: unknown)."""

    model: str
    window_tokens: int | None = None
    window_from: str = ""
    price_from: str = ""


def window_of(adapter: Mapping[str, Any], models: Mapping[str, ModelFacts]) -> int | None:
    """The context window in tokens of the model that an adapter names; None: not known."""
    model = _model(adapter)
    if not model:
        return None
    facts = models.get(model)
    if facts is not None and facts.window_tokens is not None:
        return facts.window_tokens
    found = _listed(adapter, model)
    return None if found is None else found.context_window


def known(adapter: Mapping[str, Any], models: Mapping[str, ModelFacts]) -> Known | None:
    """What is known of the model of an agent behind an API; None for other kinds."""
    model = _model(adapter)
    if not model or adapter.get("type") not in API_KINDS:
        return None
    facts = models.get(model)
    window = window_of(adapter, models)
    by_file = facts is not None and facts.window_tokens is not None
    source = FILE if by_file else LIST
    return Known(model, window, source if window is not None else "", _price_from(adapter, facts))


def _price_from(adapter: Mapping[str, Any], facts: ModelFacts | None) -> str:
    if adapter.get("pricing") is not None:
        return PROFILE
    if pricing.given(None, facts) is not None:
        return FILE
    if _is_free(adapter):
        return "its own machine"
    return LIST if _listed(adapter, _model(adapter)) is not None else ""


def _model(adapter: Mapping[str, Any]) -> str:
    """The model that it names, where its kind is one that the list may know."""
    model = adapter.get("model")
    return model if adapter.get("type") in _PROVIDERS and isinstance(model, str) else ""


def _is_free(adapter: Mapping[str, Any]) -> bool:
    """Whether the model runs on one's own machine, by its preset."""
    preset = openai_presets.of(adapter.get("preset"))
    return adapter.get("type") == "openai" and preset.local


def _listed(adapter: Mapping[str, Any], model: str) -> Any:
    """The model in the public list; None where it does not stand there.

    Nor does one of a server that is not its maker's: it has the context that it was started with,
    at whatever price.
    """
    kind = str(adapter["type"])
    provider = _PROVIDERS[kind]
    if kind == "openai":
        preset = adapter.get("preset")
        if not openai_presets.key_variable(preset, adapter.get("base_url")):
            return None
        provider = openai_presets.of(preset).provider
    from genai_prices import data_snapshot  # noqa: PLC0415 - a sixth of a second; few need it

    try:
        return data_snapshot.get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None
