"""What holds for every test: no waiting between retries, no network, no `CI`, one time zone."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest
from product import call, run

pytest.register_assert_rewrite("program")

# HYPOTHESIS_PROFILE=nightly looks longer than a run that somebody waits for. A slow machine is no
# error, neither in an example nor in making one.
_ANY_SPEED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("ci", max_examples=15, **_ANY_SPEED)
hypothesis.settings.register_profile("nightly", max_examples=500, **_ANY_SPEED)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Let `-n auto` start more workers than there are cores: tests often wait for processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(2, (cores or 1) * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while all tests are imported, and never in what they are.

    That took a third of the time of each worker until its first test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "compute_backoff", lambda *_: 0.001)


@pytest.fixture(autouse=True)
def _no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes stay in the cache of the system; only new processes still wait."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a program that pauses in its output or takes long to exit, however slow it is.

    A test that is about a program that never goes on sets a short limit itself.
    """
    for name in ("GRACE_S", "_END_GRACE_S"):
        monkeypatch.setattr(run, name, 60.0)


@pytest.fixture(autouse=True)
def _hangup_ends_programs() -> Iterator[None]:
    """Let programs be ended by SIGHUP, though pytest itself may run under nohup."""
    ignores = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    if ignores:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    if ignores:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if not isinstance(address, str) and address[0] not in ("127.0.0.1", "::1"):
            raise OSError(f"tests have no network: {address}")
        connect(self, address)  # event loops on Windows talk to themselves

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_TRUST", "1")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that is about CI sets the variable itself: live calls are refused where it is set."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    if hasattr(time, "tzset"):
        time.tzset()
