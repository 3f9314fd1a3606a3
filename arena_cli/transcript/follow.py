"""Reading on in a transcript that another process appends to: whole lines only, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from arena_cli.transcript import read
from arena_cli.transcript.events import Event
from arena_cli.transcript.read import Line

POLL_S = 0.25


def follow(
    path: Path, start: int, *, wait: Callable[[], None], on_cut: Callable[[], None]
) -> Iterator[Line]:
    """Every whole line from byte `start` on, those too that come later; ends if the file is gone.

    `wait` is called whenever all there is was told. Where the transcript became shorter than what
    was told, or another file took its place, `on_cut` is called, and what was told is not told
    again. A torn last line is told when it is whole.
    """
    place, file_id, seen = start, None, None
    last: Event | None = None
    cut = False
    while True:
        try:
            now = path.stat()
            if now.st_size < place or file_id not in (None, now.st_ino):
                place, cut = 0, True
                on_cut()
            file_id = now.st_ino
            if (now.st_size, now.st_mtime_ns) != seen:
                for line in read.lines(path, start=place):
                    place = line.end
                    told = [one for one in line.events if not cut or _is_new(one, last)]
                    last = told[-1] if told else last
                    yield line._replace(events=tuple(told))
                seen = now.st_size, now.st_mtime_ns
        except FileNotFoundError:
            return
        wait()


def _is_new(event: Event, last: Event | None) -> bool:
    """Whether an event of a transcript that was cut is none of those told before the cut.

    Numbers begin again behind the cut, times do not.
    """
    return last is None or event.seq > last.seq or event.ts > last.ts
