"""What went wrong over HTTP, told as a failure of the right class with what to do."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime

import httpx
import httpx2
import pytest
from product import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
    http,
)

ASKED = http.HttpRequest(
    "bot", "POST https://api.example/v1/chat", model="m-1", key="OPENAI_API_KEY"
)
NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)


def failed(status: int, body: str = "", **headers: str) -> AgentError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.status_failure(ASKED, status, named, body, moment=NOW)


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
        (429, "", AgentOverloaded, "too many requests"),
        (503, "", AgentOverloaded, "overloaded"),
        (529, '{"type":"error","error":{"type":"overloaded_error"}}', AgentOverloaded, "529"),
        (307, "", AgentProtocolError, "instead of an answer"),
        (402, "", AgentRefused, "top up"),
        (429, '{"error": {"code": "insufficient_quota"}}', AgentRefused, "no credit is left"),
        (400, '{"error": {"message": "Your credit balance is too low"}}', AgentRefused, "top up"),
        (502, "<html><title>Bad gateway</title>", AgentUnavailable, "a proxy in between"),
        (503, "<!DOCTYPE html><title>登录</title>", AgentUnavailable, "登录"),
        (403, "<!DOCTYPE html><title>登录</title>", AgentProtocolError, "a web page"),
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
    assert http.retry_after_s({"Retry-After": value}, moment=NOW) == seconds


def test_c21_how_long_was_asked_is_said() -> None:
    error = str(failed(429, retry_after="86400"))
    assert "asks to wait 86400 s" in error
    assert "on_failure" not in error
    assert "on_failure" in str(failed(429, retry_after="3"))


def test_c21_a_page_may_ask_to_wait() -> None:
    error = failed(503, "<html><title>Busy</title>", retry_after="3")
    assert isinstance(error, AgentOverloaded)
    assert error.retry_after == 3.0


def test_where_a_redirect_leads_is_said() -> None:
    assert "308 https://other.example/v1" in str(failed(308, location="https://other.example/v1"))


def test_a_login_in_an_address_is_not_shown() -> None:
    assert http.without_login("POST https://me:pa@ss@host:8/v1") == "POST https://host:8/v1"
    assert http.without_login("https://host/v1/@x") == "https://host/v1/@x"


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
        (caused(RuntimeError("long advice"), httpx2.ConnectTimeout("")), AgentTimeout, "in time"),
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
    assert "long advice" not in str(failure)
