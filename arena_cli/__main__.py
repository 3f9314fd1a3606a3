"""`arena`, and `python -m arena_cli`."""

from __future__ import annotations

import contextlib
import sys

from arena_cli.ground import signals


def main() -> None:
    """Run the program that `sys.argv` asks for, and exit with its code."""
    signals.exit_at_once()  # until the program handles them: nothing has begun yet
    if sys.argv[1:] in (["--version"], ["-V"]):
        from arena_cli import __version__  # noqa: PLC0415 - nothing else is needed

        with contextlib.suppress(OSError):  # the program below says what is wrong with stdout
            print(f"arena {__version__}", flush=True)
            return
    from arena_cli.cli import main as program  # noqa: PLC0415 - costs more than the line above

    program.run()


if __name__ == "__main__":
    main()
