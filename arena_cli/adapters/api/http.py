"""What went wrong with a call over HTTP, as an agent's failure: one table for every kind.

It reads statuses, headers and the chain of causes only, so that it serves any HTTP library.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from arena_cli.adapters.base import Endpoint
from arena_cli.ground import text as texts
from arena_cli.ground.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
)

CONNECT_LIMIT_S = 20.0
_SHOWN = 300
_SOON_S = 60.0
_END_OF_HOST = re.compile(r"[/?#]")
_LOGIN = re.compile(r"(?<=://)[^/\s]*@")
# OpenAI's, Anthropic's and Qwen's words for it; others answer with 402.
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|\bArrearage\b")
_WEB_PAGE = re.compile(r"\s*(?:<!doctype\b|<html\b|<\?xml\b)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]{0,200})", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context.{0,12}(?:length|window|size)|prompt is too long|too many tokens|maximum.{0,20}tokens"
    r"|exceeds? (?:the )?context limit"  # Anthropic's, of prompt and answer together
    r"|input length should be"  # Qwen's
    r"|`inputs`.{0,60}tokens",  # text-generation-inference's
    re.IGNORECASE,
)
# A server's own fault may speak of a context too; these say that it was too small.
_EXCEEDED = re.compile(
    r"exceed.{0,40}context|context.{0,40}exceed|prompt is too long", re.IGNORECASE
)


@dataclass(frozen=True)
class Asked:
    """What was asked: by which agent, of which model, where (`POST https://...`).

    `key` says how the key is given, for what to do where it is wrong.
    """

    agent_id: str
    url: str
    model: str = ""
    key: str = "api_key"


def client(
    library: Any,
    asked: Asked,
    base_url: str,
    headers: Mapping[str, str],
    *,
    limit_s: float | None = None,
) -> Any:
    """A client of httpx, or of httpx2, which follows nobody elsewhere.

    `limit_s` bounds each wait; the deadline of a call stands outside. Raises AgentUnavailable where
    the environment does not allow one.
    """
    try:
        # Reading the certificates takes as long as ten calls; without them, none is trusted.
        tls = base_url.startswith("https:")
        verify = library.create_ssl_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return library.AsyncClient(
            headers=headers,
            verify=verify,
            # What listens on this machine alone can be reached by no proxy.
            trust_env=not is_on_this_machine(base_url),
            timeout=library.Timeout(limit_s, connect=limit_s or CONNECT_LIMIT_S),
            limits=library.Limits(max_connections=None, max_keepalive_connections=64),
        )
    except (OSError, ValueError, ImportError, library.InvalidURL) as error:
        raise AgentUnavailable(
            asked.agent_id,
            f"what the environment says about proxies and certificates cannot be used: {error}",
            asked=asked.url,
            mend="see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from error


def endpoint(address: object) -> Endpoint:
    """Return the server of an address: its scheme, host and port; `${env:...}` stays as it is."""
    scheme, mark, rest = str(address).partition("://")
    host = _END_OF_HOST.split(rest if mark else scheme, maxsplit=1)[0].rpartition("@")[2]
    return Endpoint("host", f"{scheme}{mark}{host}" if mark else host)


def status_failure(
    asked: Asked, status: int, headers: Mapping[str, str], body: str, *, now: datetime | None = None
) -> AgentError:
    """What an answer with this status means; `now` is what an HTTP date counts from."""
    said = said_in(body)
    elsewhere = next((v for name, v in headers.items() if name.lower() == "location"), "")
    came = " ".join(part for part in (str(status), elsewhere, said) if part)
    metadata: dict[str, Any] = {"http_status": status, "raw": _json(body)}
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(body)):
        what = "its provider says that there is no credit left"
        mend = "top up the account that its key belongs to"
        return failure(AgentRefused, asked, what, came, mend, metadata)
    wait = retry_after_s(headers, now=now)
    is_page = bool(_WEB_PAGE.match(body))
    if status in (429, 503, 529) and (wait is not None or not is_page):
        return _overloaded(asked, status, wait, came, metadata)
    if not is_page and is_too_long(status, said):
        return _overflow(asked, came, metadata)
    kind, what, mend = _meaning(asked, status, is_page=is_page)
    return failure(kind, asked, what, came, mend, metadata)


def is_too_long(status: int, said: str) -> bool:
    """Whether an error says that the prompt is more than the model takes; status 0: not known."""
    if status in (400, 413, 422):
        return status == 413 or bool(_TOO_LONG.search(said))
    return status in (0, 500) and bool(_EXCEEDED.search(said))


def _meaning(asked: Asked, status: int, *, is_page: bool) -> tuple[type[AgentError], str, str]:
    """The class, what happened, what to do."""
    found: tuple[type[AgentError], str, str] = (
        AgentProtocolError,
        f"its provider answered with HTTP {status}, which is no answer",
        "see `base_url` in its profile",
    )
    if is_page and status < 500:
        found = (
            AgentProtocolError,
            f"a web page came instead of an answer (HTTP {status})",
            "see whether a proxy or a login page stands in between, and that base_url is right",
        )
    elif status in (401, 403):
        how = "does not accept the key" if status == 401 else "forbids it"
        found = (AgentRefused, f"its provider {how}", f"see {asked.key}")
    elif status == 404:
        what = f"there is no model {asked.model}, or nothing at this address"
        found = (AgentRefused, what, "see `model` and `base_url` in its profile")
    elif status >= 500 or status in (408, 409):
        who = "its provider, or a proxy in between, " if is_page else "its provider "
        found = (AgentUnavailable, f"{who}failed (HTTP {status})", "try again later")
    elif status >= 400:
        what = f"its provider refused the request (HTTP {status})"
        found = (AgentRefused, what, "see `model` and the other keys of its adapter")
    return found


def _overflow(asked: Asked, came: str, metadata: dict[str, Any]) -> AgentRefused:
    error = AgentRefused(
        asked.agent_id,
        "what it is shown is more than the model takes",
        asked=asked.url,
        came=came,
        mend="lower `context.window_tokens` in its profile, or take a model with a larger window",
        metadata=metadata,
    )
    error.overflow = True
    return error


def _overloaded(
    asked: Asked, status: int, wait: float | None, came: str, metadata: dict[str, Any]
) -> AgentOverloaded:
    what = "asked too often (HTTP 429)" if status == 429 else f"it is overloaded (HTTP {status})"
    if wait is not None:
        what += f": its provider asks to wait {wait:.10g} s"
    return AgentOverloaded(
        asked.agent_id,
        what,
        retry_after=wait,
        asked=asked.url,
        came=came,
        mend="try again later" + (", or set `on_failure: retry`" if (wait or 0) <= _SOON_S else ""),
        metadata=metadata,
    )


def once_spoken(failure: AgentError) -> AgentError:
    """The failure as it counts after some of the answer came: it is not tried again."""
    failure.again = False
    if isinstance(failure, AgentOverloaded):
        failure.mend = "try again later"
    return failure


def retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds to wait, from `Retry-After` in seconds or as a date; None where it says nothing.

    RFC 9110, section 10.2.3. A date that has passed is no wait.
    """
    value = next((v for name, v in headers.items() if name.lower() == "retry-after"), "").strip()
    if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", value, re.ASCII):
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, round((until - (now or datetime.now(UTC))).total_seconds(), 3))


def connection_failure(asked: Asked, error: BaseException) -> AgentError:
    """What it means that no whole answer came: not reached, cut off, late."""
    causes = list(_causes(error))
    names = {type(cause).__name__ for cause in causes}
    host = urlsplit(asked.url.rpartition(" ")[2]).netloc or asked.url
    told = [str(cause) for cause in causes if str(cause)] or [type(error).__name__]
    came = texts.cut(told[-1], _SHOWN)
    kind: type[AgentError] = AgentUnavailable
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes) or (
        "CERTIFICATE_VERIFY_FAILED" in came
    ):
        what = f"the certificate of {host} is not trusted"
        mend = "if it is your own, name its authority's file in SSL_CERT_FILE"
    elif "ProxyError" in names:
        what = "the proxy does not let it through"
        mend = "see HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment"
    elif any(isinstance(cause, socket.gaierror) for cause in causes) or _is_unknown_host(came):
        what = f"there is no host {host}, or no network"
        mend = "see `base_url` in its profile, and whether there is a network"
    elif names & {"ConnectTimeout", "PoolTimeout", "ReadTimeout", "WriteTimeout", "TimeoutError"}:
        kind, what, came = AgentTimeout, f"no answer came from {host} in time", ""
        mend = "try again later; see whether there is a network, or a proxy to be named"
    elif names & {"ConnectError", "ConnectionRefusedError"}:
        what = f"nothing answers at {host}"
        mend = "start the server, or see `base_url` in its profile"
    else:
        kind, what = AgentProtocolError, f"the connection to {host} was cut before the answer ended"
        mend = "try again"
    return failure(kind, asked, what, came, mend, {})


def _is_unknown_host(said: str) -> bool:
    known = ("Name or service not known", "nodename nor servname", "getaddrinfo failed")
    return any(words in said for words in known)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, the outermost first, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        is_plain = error.__cause__ is None and not error.__suppress_context__
        error = error.__context__ if is_plain else error.__cause__


def without_login(url: str) -> str:
    """The address without a name and a password in it, as it may be shown."""
    return _LOGIN.sub("", url)


def is_on_this_machine(url: object) -> bool:
    """Whether an address names this machine itself: no proxy reaches it, nobody is paid for it."""
    try:
        host = (urlsplit(url).hostname or "") if isinstance(url, str) else ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def said_in(body: str) -> str:
    """What an error's body says, in one line: its message, the title of a page, else its start."""
    data = _json(body)
    if isinstance(data, list) and data:
        data = data[0]
    if isinstance(data, dict):
        error = data.get("error", data)
        if isinstance(error, dict):
            error = error.get("message") or error.get("type") or error
        body = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    elif page := _TITLE.search(body):
        body = page[1]
    return texts.cut(" ".join(body.split()), _SHOWN)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def failure(
    kind: type[AgentError],
    asked: Asked,
    what: str,
    came: str,
    mend: str,
    metadata: dict[str, Any],
) -> AgentError:
    return kind(asked.agent_id, what, asked=asked.url, came=came, mend=mend, metadata=metadata)
