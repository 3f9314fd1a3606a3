"""One writer a session: a lock beside the transcript, held for a whole chain.

The operating system keeps it (flock, or LockFile on Windows), so that a dead owner's is free.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from arena_cli.ground.errors import SessionBusy, UsageError


def acquire(folder: Path, *, wait_s: float, on_wait: Callable[[], None]) -> FileLock:
    """Hold the lock of a session's folder; `on_wait` is told once if somebody else has it.

    Raises SessionBusy after `wait_s` seconds, UsageError where the folder refuses the file.
    """
    # With a mode that only its owner writes, the library need not probe the folder first.
    lock = FileLock(folder / "transcript.lock", mode=0o644, thread_local=False)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if wait_s > 0:
                on_wait()
            lock.acquire(timeout=wait_s, poll_interval=0.05)
    except Timeout as error:
        raise SessionBusy(
            f"session {folder.name} is busy: another arena is writing to it "
            f"(waited {wait_s:g} s)\n"
            "  Nothing was written. Send again later, or wait longer with --wait SECONDS."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot write here: {error.strerror or error}",
            "arena keeps transcripts there; mend the rights, or choose another --workspace.",
        ) from error
    return lock
