"""What went wrong over HTTP, told as a failure of the right class with what to do."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime

import httpx
import httpx2
import pytest

from arena_cli.adapters.api import http
from arena_cli.ground.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
)

ASKED = http.Asked("bot", "POST https://api.example/v1/chat", model="m-1", key="OPENAI_API_KEY")
NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)


def failed(status: int, body: str = "", **headers: str) -> AgentError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.status_failure(ASKED, status, named, body, now=NOW)


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (401, '{"error": {"message": "bad key"}}', AgentRefused, "see OPENAI_API_KEY"),
        (403, "", AgentRefused, "forbids it"),
        (404, '{"error": "no such model"}', AgentRefused, "there is no model m-1"),
        (400, '{"error": {"message": "prompt is too long: 9 > 8"}}', AgentRefused, "window_tokens"),
        (400, "maximum context length is 8192 tokens", AgentRefused, "window_tokens"),
        (413, "", AgentRefused, "window_tokens"),
        (400, '{"error": {"message": "unknown field"}}', AgentRefused, "unknown field"),
        (422, "", AgentRefused, "refused the request"),
        (500, '[{"error": {"message": "oops"}}]', AgentUnavailable, "oops"),
        (502, "", AgentUnavailable, "HTTP 502"),
        (504, "", AgentUnavailable, "try again later"),
        (408, "", AgentUnavailable, "HTTP 408"),
        (429, "", AgentOverloaded, "asked too often"),
        (503, "", AgentOverloaded, "overloaded"),
        (529, '{"type":"error","error":{"type":"overloaded_error"}}', AgentOverloaded, "529"),
        (307, "", AgentProtocolError, "no answer"),
        (502, "<html><title>Bad gateway</title>", AgentProtocolError, "a web page"),
        (503, "<!DOCTYPE html><title>登录</title>", AgentProtocolError, "登录"),
        (200, " <html>", AgentProtocolError, "a web page"),
    ],
)
def test_a_status_is_a_failure_of_its_class(
    status: int, body: str, kind: type[AgentError], told: str
) -> None:
    error = failed(status, body)
    assert type(error) is kind
    assert told in str(error)
    assert str(error).startswith("bot: ")
    assert "\n" not in str(error)
    assert error.metadata["http_status"] == status


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("86400", 86400.0),
        ("Sat, 28 Nov 2026 09:30:10 GMT", 10.0),
        ("Sat, 28 Nov 2026 09:29:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("٣", None),
        ("", None),
    ],
)
def test_c21_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    error = failed(429, retry_after=value)
    assert isinstance(error, AgentOverloaded)
    assert error.retry_after == seconds
    assert http.retry_after_s({"Retry-After": value}, now=NOW) == seconds


def test_c21_how_long_was_asked_is_said() -> None:
    assert "asks to wait 86400 s" in str(failed(429, retry_after="86400"))


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (httpx.ConnectError("[Errno 111] refused"), AgentUnavailable, "nothing answers at api.ex"),
        (httpx2.ConnectError("all failed"), AgentUnavailable, "start the server"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), AgentUnavailable, "no host"),
        (
            caused(httpx.ConnectError("x"), socket.gaierror(8, "unknown")),
            AgentUnavailable,
            "api.example, or no network",
        ),
        (
            caused(httpx.ConnectError("x"), ssl.SSLCertVerificationError("self-signed")),
            AgentUnavailable,
            "SSL_CERT_FILE",
        ),
        (httpx.ProxyError("407"), AgentUnavailable, "NO_PROXY"),
        (httpx.ReadTimeout("late"), AgentTimeout, "in time"),
        (caused(RuntimeError("wrapped"), httpx2.ConnectTimeout("t")), AgentTimeout, "in time"),
        (httpx2.RemoteProtocolError("peer closed"), AgentProtocolError, "was cut"),
        (httpx.ReadError(""), AgentProtocolError, "was cut"),
    ],
)
def test_a_connection_that_fails_is_a_failure_of_its_class(
    error: BaseException, kind: type[AgentError], told: str
) -> None:
    failure = http.connection_failure(ASKED, error)
    assert type(failure) is kind
    assert told in str(failure)
