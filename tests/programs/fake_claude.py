"""A stand-in for Claude Code where the real one cannot be brought to say something.

For each line of stdin it takes the next word of $FAKE_CLAUDE (the last one again, when they are
used up): the path of a file, whose content it writes, with the uuid of the line in place of each
`"own"`; `die=N`, exit N; `hang=FILE`, start a program
that sleeps, write both pids to FILE and never answer. `lost` in first place: a session that is to
be resumed is not found, told on stderr only, as some versions do. What it is called with and what
it reads it adds to $FAKE_CLAUDE_LOG, each as a line of JSON.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

LONG_S = 600


def log(value: object) -> None:
    with Path(os.environ["FAKE_CLAUDE_LOG"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def do(word: str, read: dict[str, object]) -> None:
    verb, _, rest = word.partition("=")
    if verb == "die":
        sys.stderr.write("its last words\n")
        sys.stderr.flush()
        os._exit(int(rest))
    elif verb == "hang":
        child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"])
        part = Path(rest + ".part")
        part.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
        part.rename(rest)
        time.sleep(LONG_S)
    else:
        content = Path(word).read_bytes()
        sys.stdout.buffer.write(content.replace(b'"own"', json.dumps(read.get("uuid")).encode()))
        sys.stdout.buffer.flush()


def main() -> None:
    args = sys.argv[1:]
    system = Path(args[args.index("--system-prompt-file") + 1]).read_text(encoding="utf-8")
    log({"args": args, "system": system})
    words = os.environ["FAKE_CLAUDE"].split(os.pathsep)
    if words[0] == "lost":
        words.pop(0)
        if "--resume" in args:
            sys.exit("No conversation found with session ID: " + args[args.index("--resume") + 1])
    for line in sys.stdin:
        read = json.loads(line)
        log({"read": read})
        do(words[0] if len(words) == 1 else words.pop(0), read)


main()
