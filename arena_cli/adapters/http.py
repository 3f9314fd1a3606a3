"""Handle calls over HTTP for every kind: errors by status, server-sent events, attachments.

It only reads statuses, headers and chains of causes, so that it works with any HTTP library.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from arena_cli.adapters.base import Endpoint
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
)
from arena_cli.protocol import Attachment
from arena_cli.util import files
from arena_cli.util.text import cut_text

FailureT = TypeVar("FailureT", bound=AgentError)

CONNECT_LIMIT_S = 20.0
_SHOWN = 300
_SOON_S = 60.0
_END_OF_HOST = re.compile(r"[/?#]")
_LOGIN = re.compile(r"(?<=://)[^/\s]*@")
# OpenAI's, Anthropic's and Qwen's words for it; others answer with 402.
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|\bArrearage\b")
_UNKNOWN_HOST = re.compile("Name or service not known|nodename nor servname|getaddrinfo failed")
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
class HttpRequest:
    """The request of a call: its agent, its model, its target (`POST https://...`).

    `key` is how the key is set, for the hint if it is wrong.
    """

    agent_id: str
    url: str
    model: str = ""
    key: str = "api_key"


def client(
    library: Any,
    request: HttpRequest,
    base_url: str,
    headers: Mapping[str, str],
    *,
    limit_s: float | None = None,
) -> Any:
    """Return a client of httpx or httpx2, which follows no redirects.

    `limit_s` limits each wait; the deadline of a call is handled outside. Raises AgentUnavailable
    if the proxy or certificate settings of the environment are invalid.
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
            request.agent_id,
            f"the proxy or certificate settings of the environment are invalid: {error}",
            asked=request.url,
            mend="check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from error


def endpoint(address: object) -> Endpoint:
    """Return the server of an address: its scheme, host and port; `${env:...}` is kept as it is."""
    scheme, mark, remainder = str(address).partition("://")
    host = _END_OF_HOST.split(remainder if mark else scheme, maxsplit=1)[0].rpartition("@")[2]
    return Endpoint("host", f"{scheme}{mark}{host}" if mark else host)


def status_failure(
    request: HttpRequest,
    status: int,
    headers: Mapping[str, str],
    body: str,
    *,
    moment: datetime | None = None,
) -> AgentError:
    """Return the error for a response with this status; `moment` is the base of an HTTP date."""
    message = said_in(body)
    elsewhere = next((v for name, v in headers.items() if name.lower() == "location"), "")
    summary = " ".join(text for text in (str(status), elsewhere, message) if text)
    metadata: dict[str, Any] = {"http_status": status, "raw": _json(body)}
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(body)):
        problem = "its provider reports that no credit is left"
        mend = "top up the account that its key belongs to"
        return failure(AgentRefused, request, problem, summary, mend, metadata)
    wait = retry_after_s(headers, moment=moment)
    is_page = bool(_WEB_PAGE.match(body))
    if status in (429, 503, 529) and (wait is not None or not is_page):
        return _overloaded(request, status, wait, summary, metadata)
    if not is_page and is_too_long(status, message):
        problem = "the prompt is too long for the model"
        mend = "lower `context.window_tokens` in its profile, or use a model with a larger window"
        error = failure(AgentRefused, request, problem, summary, mend, metadata)
        error.overflow = True
        return error
    kind, problem, mend = _meaning(request, status, is_page=is_page)
    return failure(kind, request, problem, summary, mend, metadata)


def is_too_long(status: int, message: str) -> bool:
    """Return True if an error means that the prompt is too long; status 0: not known."""
    if status in (400, 413, 422):
        return status == 413 or bool(_TOO_LONG.search(message))
    return status in (0, 500) and bool(_EXCEEDED.search(message))


def _meaning(
    request: HttpRequest, status: int, *, is_page: bool
) -> tuple[type[AgentError], str, str]:
    """Return the class of the error, what happened and a hint."""
    meaning: tuple[type[AgentError], str, str] = (
        AgentProtocolError,
        f"its provider returned HTTP {status} instead of an answer",
        "see `base_url` in its profile",
    )
    if is_page and status < 500:
        meaning = (
            AgentProtocolError,
            f"its provider returned a web page instead of an answer (HTTP {status})",
            "check base_url, and whether a proxy or a login page answers instead",
        )
    elif status in (401, 403):
        reason = "does not accept the key" if status == 401 else "forbids it"
        meaning = (AgentRefused, f"its provider {reason}", f"see {request.key}")
    elif status == 404:
        problem = f"there is no model {request.model}, or nothing at this address"
        meaning = (AgentRefused, problem, "see `model` and `base_url` in its profile")
    elif status >= 500 or status in (408, 409):
        name = "its provider, or a proxy in between, " if is_page else "its provider "
        meaning = (AgentUnavailable, f"{name}failed (HTTP {status})", "try again later")
    elif status >= 400:
        problem = f"its provider refused the request (HTTP {status})"
        meaning = (AgentRefused, problem, "see `model` and the other keys of its adapter")
    return meaning


def _overloaded(
    request: HttpRequest, status: int, wait: float | None, summary: str, metadata: dict[str, Any]
) -> AgentOverloaded:
    problem = (
        "too many requests (HTTP 429)" if status == 429 else f"it is overloaded (HTTP {status})"
    )
    if wait is not None:
        problem += f": its provider asks to wait {wait:.10g} s"
    mend = "try again later" + (", or set `on_failure: retry`" if (wait or 0) <= _SOON_S else "")
    error = failure(AgentOverloaded, request, problem, summary, mend, metadata)
    error.retry_after = wait
    return error


def once_spoken(failure: AgentError) -> AgentError:
    """Mark the error as not to be retried, since part of the answer was received."""
    failure.again = False
    if isinstance(failure, AgentOverloaded):
        failure.mend = "try again later"
    return failure


def retry_after_s(headers: Mapping[str, str], *, moment: datetime | None = None) -> float | None:
    """Return the seconds to wait, from `Retry-After` in seconds or as a date; None without it.

    RFC 9110, section 10.2.3. A date in the past gives 0.
    """
    value = next((v for name, v in headers.items() if name.lower() == "retry-after"), "").strip()
    if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", value, re.ASCII):
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, round((until - (moment or datetime.now(UTC))).total_seconds(), 3))


def connection_failure(request: HttpRequest, error: BaseException) -> AgentError:
    """Return the error for a missing or partial answer: no connection, cut off, too late."""
    causes = list(_causes(error))
    names = {type(cause).__name__ for cause in causes}
    host = urlsplit(request.url.rpartition(" ")[2]).netloc or request.url
    messages = [str(cause) for cause in causes if str(cause)] or [type(error).__name__]
    message = cut_text(messages[-1], _SHOWN)
    if names & {"SSLCertVerificationError"} or "CERTIFICATE_VERIFY_FAILED" in message:
        problem = f"the certificate of {host} is not trusted"
        mend = "if the certificate is your own, set SSL_CERT_FILE to the file of its authority"
    elif "ProxyError" in names:
        problem = "the proxy refuses the connection"
        mend = "see HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment"
    elif "gaierror" in names or _UNKNOWN_HOST.search(message):
        problem = f"there is no host {host}, or no network"
        mend = "check `base_url` in its profile, and the network"
    elif names & {"ConnectTimeout", "PoolTimeout", "ReadTimeout", "WriteTimeout", "TimeoutError"}:
        problem = f"{host} did not answer in time"
        mend = "try again later; check the network and the proxy settings"
        return failure(AgentTimeout, request, problem, mend=mend)
    elif names & {"ConnectError", "ConnectionRefusedError"}:
        problem = f"nothing answers at {host}"
        mend = "start the server, or see `base_url` in its profile"
    else:
        problem = f"the connection to {host} was cut before the answer ended"
        return failure(AgentProtocolError, request, problem, message, "try again")
    return failure(AgentUnavailable, request, problem, message, mend)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, the outermost first, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        is_plain = error.__cause__ is None and not error.__suppress_context__
        error = error.__context__ if is_plain else error.__cause__


def without_login(url: str) -> str:
    """Return the address without user name and password, fit to be shown."""
    return _LOGIN.sub("", url)


def is_on_this_machine(url: object) -> bool:
    """Return True if an address is this machine: no proxy is used, and calls are free."""
    try:
        host = (urlsplit(url).hostname or "") if isinstance(url, str) else ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def said_in(body: str) -> str:
    """Return an error's body in one line: its message, the title of a page, else its start."""
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
    return cut_text(" ".join(body.split()), _SHOWN)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def failure(
    kind: type[FailureT],
    request: HttpRequest,
    problem: str,
    answer: str = "",
    mend: str = "",
    metadata: Mapping[str, Any] | None = None,
    *,
    again: bool = True,
) -> FailureT:
    """Return an error of this class for a request."""
    return kind(
        request.agent_id,
        problem,
        asked=request.url,
        came=answer,
        mend=mend,
        metadata=metadata,
        again=again,
    )


class StreamReader:
    """A parser of server-sent events: bytes in, the data of each complete event out.

    The events do not depend on how the bytes are split. Lines end at LF, CR or CRLF; comments and
    other fields are skipped; an event ends at an empty line
    (https://html.spec.whatwg.org/multipage/server-sent-events.html). Unlike there, an event that
    the end of the stream cuts off before its empty line counts, since some servers write none.
    """

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._line: list[str] = []
        self._data: list[str] = []

    def feed(self, chunk: bytes, *, final: bool = False) -> list[str]:
        """Return the data of the events that these bytes complete."""
        first, *others = self._decoder.decode(chunk, final).split("\n")
        self._line.append(first)
        events: list[str] = []
        for line in others:
            events += self._read_line("".join(self._line))
            self._line = [line]
        return events

    def finish(self) -> list[str]:
        """Return the data of the event that the end of the stream completes."""
        return self.feed(b"\n\n", final=True)

    def _read_line(self, line: str) -> list[str]:
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            return []
        data, self._data = self._data, []
        return ["\n".join(data)] if data else []


# What is larger is told of by name only: a provider that refuses it would refuse every later call
# too (Anthropic takes images of up to 5 MiB, counted as base64, which is longer by a third).
MOST_BYTES = 3_900_000

# A longer text would fill a window of 32,000 tokens alone.
MOST_TEXT_BYTES = 100_000

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Attached(NamedTuple):
    """A file's name, its content, and its type by its first bytes, since a name may be wrong.

    `media_type` is `text/plain` for all UTF-8 text, `application/octet-stream` for unknown content.
    """

    name: str
    media_type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """True if it is an image of a type that models accept."""
        return self.media_type in {"image/png", "image/jpeg", "image/gif", "image/webp"}

    @property
    def text(self) -> str | None:
        """The text, None if the file is not text."""
        return self.data.decode("utf-8") if self.media_type == "text/plain" else None


def read(attachment: Attachment, workspace: Path) -> Attached | None:
    """Return the file of an attachment; None if it is missing or too large to be sent.

    A path that leads out of the workspace (arena never writes one) is not read.
    """
    if attachment.path is None:
        return None
    try:
        path = (workspace / attachment.path).resolve()
        if not path.is_relative_to(workspace.resolve()) or path.stat().st_size > MOST_BYTES:
            return None
        data = files.read_regular(path)
    except OSError:
        return None
    attached = Attached(attachment.name, _media_type(data), data)
    is_long = attached.media_type == "text/plain" and len(data) > MOST_TEXT_BYTES
    return None if is_long else attached


def is_all_text(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the messages of a request are nothing but text, whose tokens can be counted.

    Their content is a text, or a list of blocks.
    """
    contents = [message["content"] for message in messages]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    return all(block["type"] == "text" for block in blocks)


def not_shown(attachment: Attachment, attached: Attached | None) -> str:
    """Return the text in place of a file that cannot be sent to an agent."""
    reason = "it is neither text in UTF-8 nor of a kind that you can be shown"
    if attached is None:
        reason = "it is gone, or too large"
    elif attached.text is not None:
        reason = "it is empty"
    return f"The file {json.dumps(attachment.name, ensure_ascii=False)} cannot be shown: {reason}."


def _media_type(data: bytes) -> str:
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    try:
        is_text = "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        is_text = False
    return "text/plain" if is_text else "application/octet-stream"
