"""Server-sent events as servers of models write them: only what stands in `data`."""

from __future__ import annotations


class Reader:
    """Bytes in, the data of each whole event out; any cut of the bytes gives the same events.

    Lines end at LF, CR or CRLF; comments and other fields are passed over; an event ends at an
    empty line (https://html.spec.whatwg.org/multipage/server-sent-events.html). Not from there: one
    that the end of the stream cuts off from its empty line counts, as some servers write none.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that these bytes end."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        *whole, rest = (*chunk.splitlines(), b"") if chunk[-1:] in b"\r\n" else chunk.splitlines()
        events = []
        for line in whole:
            self._line.append(line)
            event = self._end_line()
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
        return events

    def finish(self) -> list[str]:
        """The data of the event that the end of the stream ends."""
        last = [self._end_line(), self._end_line()]
        return [event for event in last if event is not None]

    def _end_line(self) -> str | None:
        line = b"".join(self._line)
        self._line.clear()
        if not self._begun:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._begun = True
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        event = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        return event
