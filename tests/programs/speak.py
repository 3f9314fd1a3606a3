"""A program that does what its arguments say, one step after the other.

say TEXT / raw HEX / err TEXT: write to stdout or stderr; read: read stdin; tell: write what was
read; size: write how many bytes were read; exit N; sleep: for long; wait FILE: until it is there;
close: close stdout; fill N: write N bytes to stderr; long N: write a JSON line of about N bytes;
spawn FILE / escape FILE: start a program that sleeps for long, in this group or in a session of its
own, and write both pids to FILE; deaf: ignore SIGTERM; outlive FILE: make FILE at SIGTERM, go on;
args: write the arguments after it; env: write the environment; cwd.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LONG_S = 600


def spawn(path: str, *, escape: bool, keep_stdout: bool = True) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep({LONG_S})"],
        start_new_session=escape,
        stdout=None if keep_stdout else subprocess.DEVNULL,
    )
    write_pids(path, child.pid)


def write_pids(path: str, *more: int) -> None:
    whole = Path(path + ".part")
    whole.write_text(" ".join(map(str, [os.getpid(), *more])), encoding="utf-8")
    whole.rename(path)


def main() -> None:
    out = sys.stdout.buffer
    words = iter(sys.argv[1:])
    given = b""
    for word in words:
        if word == "say":
            out.write(next(words).encode().replace(b"\\n", b"\n").replace(b"\\e", b"\x1b"))
            out.flush()
        elif word == "raw":
            out.write(bytes.fromhex(next(words)))
            out.flush()
        elif word == "err":
            sys.stderr.write(next(words).replace("\\n", "\n"))
            sys.stderr.flush()
        elif word == "read":
            given = sys.stdin.buffer.read()
        elif word == "tell":
            out.write(given)
        elif word == "size":
            out.write(str(len(given)).encode())
        elif word == "fill":
            sys.stderr.write("e" * int(next(words)))
            sys.stderr.flush()
        elif word == "long":
            out.write(json.dumps({"type": "result", "content": "x" * int(next(words))}).encode())
            out.write(b"\n")
        elif word == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif word == "outlive":
            mark = Path(next(words))
            signal.signal(signal.SIGTERM, lambda *_, mark=mark: mark.touch())
        elif word == "pids":
            write_pids(next(words))
        elif word == "wait":
            path = Path(next(words))
            while not path.exists():
                time.sleep(0.02)
        elif word in {"spawn", "escape"}:
            spawn(next(words), escape=word == "escape")
        elif word == "close":
            out.flush()
            os.close(1)
        elif word == "args":
            out.write(json.dumps(list(words)).encode())
        elif word == "file":
            out.write(Path(next(words)).read_bytes())
        elif word == "env":
            out.write(json.dumps(dict(os.environ)).encode())
        elif word == "cwd":
            out.write(str(Path.cwd()).encode())
        elif word == "exit":
            out.flush()
            os._exit(int(next(words)))
        elif word == "signal":
            os.kill(os.getpid(), int(next(words)))
        elif word == "sleep":
            time.sleep(LONG_S)
        else:
            raise SystemExit(f"speak does not know {word}")


main()
