"""List known servers with OpenAI's protocol: their addresses and differences."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import urlsplit

PresetName = Literal["ollama", "vllm", "llamacpp", "lmstudio", "deepseek", "qwen", "openrouter"]

OPENAI_URL = "https://api.openai.com/v1"


class ServerPreset(NamedTuple):
    """A known kind of server.

    `key` is the variable with its key, sent to `hosts` only; `provider` is its id in the price
    list. A local server has none of these. Its hints are: `start`, the command that starts it;
    `model`, how to get a model, if the server has more than one; `window`, how to set a longer
    context. `schema` is False if it accepts no JSON schema as `response_format`.
    """

    base_url: str
    key: str = ""
    hosts: tuple[str, ...] = ()
    provider: str = ""
    start: str = ""
    model: str = ""
    window: str = ""
    schema: bool = True

    @property
    def local(self) -> bool:
        """True if it runs on the user's own machine, so that calls are free."""
        return bool(self.start)


OPENAI = ServerPreset(OPENAI_URL, "OPENAI_API_KEY", ("api.openai.com",), "openai")

PRESETS: dict[PresetName, ServerPreset] = {
    # Ollama reads no length of context from this protocol (github.com/ollama/ollama/pull/6504).
    "ollama": ServerPreset(
        "http://127.0.0.1:11434/v1",
        start="ollama serve",
        model="ollama pull {}",
        window="start it with OLLAMA_CONTEXT_LENGTH=32768 ollama serve",
    ),
    "vllm": ServerPreset(
        "http://127.0.0.1:8000/v1",
        start="vllm serve MODEL",
        model="vllm serve {}",
        window="start it with --max-model-len 32768",
    ),
    "llamacpp": ServerPreset(
        "http://127.0.0.1:8080/v1",
        start="llama-server -m MODEL.gguf",
        window="start it with -c 32768",
    ),
    "lmstudio": ServerPreset(
        "http://127.0.0.1:1234/v1",
        start="lms server start",
        model="lms get {}",
        window="load the model with a longer context",
    ),
    "deepseek": ServerPreset(
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        ("api.deepseek.com",),
        "deepseek",
        schema=False,
    ),
    # The keys of one region are not valid in another: `base_url` names another one.
    "qwen": ServerPreset(
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        (
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "dashscope-us.aliyuncs.com",
            "cn-hongkong.dashscope.aliyuncs.com",
        ),
        "qwen",
    ),
    "openrouter": ServerPreset(
        "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ("openrouter.ai",), "openrouter"
    ),
}


KEYS_AT = {
    "OPENAI_API_KEY": "get a key at https://platform.openai.com/api-keys",
    "DEEPSEEK_API_KEY": "get a key at https://platform.deepseek.com/api_keys",
    "DASHSCOPE_API_KEY": "get a key at https://bailian.console.aliyun.com",
    "OPENROUTER_API_KEY": "get a key at https://openrouter.ai/settings/keys",
}


def find_preset(name: object) -> ServerPreset:
    """Return the preset of that name, by default OpenAI's."""
    return next((preset for known, preset in PRESETS.items() if known == name), OPENAI)


def key_variable(name: object, base_url: object) -> str:
    """Return the variable with the key for this server; "" for a host that is not the preset's."""
    preset = find_preset(name)
    address = str(base_url or preset.base_url)
    safe = address.startswith("https://") and host_of(address) in preset.hosts
    return preset.key if safe else ""


def host_of(address: str) -> str:
    """Return the host of an HTTP address; "" if it is invalid."""
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return ""
    return (parts.hostname or "") if known else ""
