"""`arena`, and `python -m arena_cli`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys

from arena_cli import __version__
from arena_cli.util import process_signals


def main() -> None:
    """Run the program that `sys.argv` asks for, and exit with its code."""
    process_signals.exit_at_once()  # until the program handles them: nothing has begun yet
    if sys.argv[1:] in (["--version"], ["-V"]):
        with contextlib.suppress(OSError):  # the program below says what is wrong with stdout
            print(f"arena {__version__}", flush=True)
            return
    gc.disable()  # nothing of what is imported is garbage
    from arena_cli.cli import main  # noqa: PLC0415 - costs more than the line above

    gc.enable()
    atexit.register(gc.freeze)  # the process ends: looking for garbage takes a sixth of a `send`
    main.run()


if __name__ == "__main__":
    main()
