"""`arena`, and `python -m arena_cli`."""

from __future__ import annotations

import contextlib
import sys


def main() -> None:
    """Run the program that `sys.argv` asks for, and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from arena_cli import __version__  # noqa: PLC0415 - nothing else is needed

        with contextlib.suppress(OSError):  # the program below says what is wrong with stdout
            print(f"arena {__version__}", flush=True)
            return
    try:
        from arena_cli.cli import main as program  # noqa: PLC0415 - costs more than the line above

        program.run()
    except KeyboardInterrupt:  # before the program had its own way to end
        from arena_cli.ground import exits  # noqa: PLC0415 - the same

        sys.exit(exits.INTERRUPTED)


if __name__ == "__main__":
    main()
