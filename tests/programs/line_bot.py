"""A program that is kept alive: it answers each line of stdin as the line's first word says.

Its answer is {"type": "result", "text": ..., "lines": how many it has read, "pid": ...}.

echo TEXT; bare TEXT: without a line end, then it exits; say TEXT: the text as it is on stdout, then
an answer; err N: N bytes on stderr first, then an answer; long N: a text of N bytes; hex HEX: the
bytes as they are, then an answer; fill N: N bytes on stdout and no answer; exit N: write "dying" to
stderr, exit; leave TEXT: answer, then exit; hang FILE: start a program that sleeps, write both pids
to FILE, never answer; progress N: N objects before the answer.
With the argument `deaf` it ignores the end of stdin and SIGTERM; with `silent` it exits at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LONG_S = 600


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main() -> None:
    if "silent" in sys.argv:
        sys.stderr.write("cannot begin\n")
        sys.exit(4)
    for count, line in enumerate(sys.stdin, 1):
        verb, _, rest = line.rstrip("\n").partition(" ")
        answer = {"type": "result", "text": rest, "lines": count, "pid": os.getpid()}
        if verb == "say":
            write(rest.replace("\\e", "\x1b").encode() + b"\n")
        elif verb == "hex":
            write(bytes.fromhex(rest))
        elif verb == "err":
            sys.stderr.write("e" * int(rest) + "\n")
            sys.stderr.flush()
        elif verb == "long":
            answer["text"] = "x" * int(rest)
        elif verb == "progress":
            for step in range(int(rest)):
                write(json.dumps({"type": "progress", "step": step}).encode() + b"\n")
        elif verb == "fill":
            write(b"x" * int(rest))
            continue
        elif verb == "exit":
            sys.stderr.write("dying\n")
            sys.stderr.flush()
            os._exit(int(rest))
        elif verb == "hang":
            child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"])
            part = Path(rest + ".part")
            part.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
            part.rename(rest)
            time.sleep(LONG_S)
        write(json.dumps(answer).encode() + (b"" if verb == "bare" else b"\n"))
        if verb in {"bare", "leave"}:
            os._exit(0)
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(LONG_S)


main()
