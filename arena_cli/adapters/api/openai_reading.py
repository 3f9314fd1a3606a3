"""How an answer of OpenAI's protocol is read from the wire, and what is told of it as it comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from arena_cli.adapters.api import sse
from arena_cli.adapters.api.openai_answer import Answer, NoAnswerError
from arena_cli.ground.protocol import Emit, StatusEvent, TextDelta

if TYPE_CHECKING:
    import httpx

GRACE_S = 2.0
MOST_BYTES = 32_000_000
_BEGINNING = 4000

_OPENING = re.compile(r"\s*<(think|thinking)\s{0,8}>", re.IGNORECASE)
_LONGEST_TAG = len("</thinking        >")


class Spoken:
    """Text as it comes, without the thinking that some models begin it with.

    It is for the live view alone. What counts is the whole answer, as `reading` reads it.
    """

    def __init__(self) -> None:
        self._held = ""
        self._within = ""
        self._has_begun = False

    def feed(self, text: str) -> str:
        """What may be shown now: nothing as long as it may be thinking."""
        if self._has_begun:
            return text
        self._held += text
        while True:
            if not self._within:
                opening = _OPENING.match(self._held)
                if opening is None:
                    break
                self._within = opening[1]
                self._held = self._held[opening.end() :]
            closing = re.search(rf"</{self._within}\s{{0,8}}>", self._held, re.IGNORECASE)
            if closing is None:
                self._held = self._held[-_LONGEST_TAG:]
                return ""
            self._within = ""
            self._held = self._held[closing.end() :]
        if "<thinking".startswith(self._held.strip().lower()):
            return ""
        self._has_begun = True
        return self.finish()

    def finish(self) -> str:
        """What was held back, and was no thinking after all."""
        rest, self._held = self._held, ""
        return "" if self._within else rest


class Call:
    """One request's answer, and what was told of it as it came."""

    def __init__(self, emit: Emit, *, shown: bool) -> None:
        self.emit = emit
        self.answer = Answer()
        self._shown = shown
        self._spoken = Spoken()
        self._told: list[str] = []
        self._statuses: set[str] = set()
        self.ended = False

    def take(self, data: object, *, live: bool) -> None:
        """Take in a piece of the answer; tell of it, if it is one of a stream."""
        text, thinking = self.answer.add(data)
        self.ended = self.ended or self.answer.finish_reason is not None
        spoken = self._spoken.feed(text) if text else ""
        if thinking and live:
            self._status("analyzing")
        if spoken:
            self._tell(spoken, live=live)

    def finish(self, *, live: bool) -> None:
        """Tell what was held back."""
        if spoken := self._spoken.finish():
            self._tell(spoken, live=live)

    def _tell(self, text: str, *, live: bool) -> None:
        self._told.append(text)
        if live:
            self._status("generating")
            if self._shown:
                self.emit(TextDelta(text))

    def _status(self, status: Literal["analyzing", "generating"]) -> None:
        if status not in self._statuses:
            self._statuses.add(status)
            self.emit(StatusEvent(status=status))

    def thought(self) -> bool:
        """Whether the model thought before it answered."""
        details = self.answer.reported.get("completion_tokens_details")
        hidden = isinstance(details, dict) and details.get("reasoning_tokens")
        spoken = sum(map(len, self._told))
        return bool(hidden or self.answer.thinking or spoken < sum(map(len, self.answer.text)))

    def said(self) -> bool:
        """Whether some of the answer itself came."""
        return bool("".join(self._told).strip())

    def answer_notes(self) -> dict[str, Any]:
        """What is kept beside an answer's text."""
        thinking = "".join(self.answer.thinking).strip()
        return {**({"thinking": thinking} if thinking else {}), "raw": self.answer.raw()}

    def notes(self) -> dict[str, Any]:
        """What is kept of an answer that is none: nothing where nothing came."""
        if not (self.answer.head or self.answer.text or self.answer.thinking):
            return {}
        partial = "".join(self._told)
        return {**self.answer_notes(), **({"partial": partial} if partial.strip() else {})}


async def read_stream(response: httpx.Response, call: Call) -> None:
    """Read to the end; once the answer's end was told, not for long, and a cut does no harm."""
    import httpx  # noqa: PLC0415  # it is here by now

    reader = sse.Reader()
    beginning = b""
    try:
        async with asyncio.timeout(None) as limit:
            async for chunk in _limited(response):
                if len(beginning) < _BEGINNING:
                    beginning += chunk
                for data in reader.feed(chunk):
                    _take(data, call)
                if call.ended and limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + GRACE_S)
    except (TimeoutError, httpx.HTTPError):
        if not call.ended:
            raise
    for data in reader.finish():
        _take(data, call)
    if not (call.ended or call.notes()) and beginning.strip():
        # It may be an error, written as if nobody had asked for a stream.
        call.take(_parsed(beginning.decode("utf-8", "replace")), live=True)
    call.finish(live=True)


def _take(data: str, call: Call) -> None:
    if data.strip() == "[DONE]":
        call.ended = True
    elif data.strip():
        call.take(_parsed(data), live=True)


async def read_whole(response: httpx.Response, call: Call) -> None:
    """Read an answer that comes in one piece."""
    body = await text_of(response)
    data = _parsed(body)
    call.take(data, live=False)
    call.finish(live=False)
    if not isinstance(data, dict) or not data.get("choices"):
        raise NoAnswerError("JSON came that has no `choices`", body)


async def text_of(response: httpx.Response) -> str:
    """All of what came."""
    body = b"".join([chunk async for chunk in _limited(response)])
    return body.decode("utf-8", "replace")


async def _limited(response: httpx.Response) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MOST_BYTES:
            raise NoAnswerError(f"more than {MOST_BYTES // 1_000_000} MB came")
        yield chunk


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswerError("what came is no JSON", text) from error
