"""A program that does what its arguments say, one step after the other.

say TEXT / raw HEX / err TEXT: write to stdout or stderr; read: read stdin; tell: write what was
read; size: write how many bytes were read; exit N; sleep: for long; wait FILE: until it is there;
close: close stdout; fill N: write N bytes to stderr; long N: write a JSON line of about N bytes;
spawn FILE / escape FILE: start a program that sleeps for long, in this group or in a session of its
own, and write both pids to FILE; deaf: ignore SIGTERM; outlive FILE: make FILE at SIGTERM, go on;
args: write the arguments after it; env: write the environment; cwd.

It is started more than a thousand times in a run of all tests, so each step imports what it needs.
"""

import os
import sys
import time

LONG_S = 600


def spawn(path: str, *, escape: bool, keep_stdout: bool = True) -> None:
    import subprocess

    child = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep({LONG_S})"],
        start_new_session=escape,
        stdout=None if keep_stdout else subprocess.DEVNULL,
    )
    write_pids(path, child.pid)


def write_pids(path: str, *more: int) -> None:
    with open(path + ".part", "w", encoding="utf-8") as part:
        part.write(" ".join(map(str, [os.getpid(), *more])))
    os.rename(path + ".part", path)


def write_json(value):
    import json

    sys.stdout.buffer.write(json.dumps(value).encode())


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
            write_json({"type": "result", "content": "x" * int(next(words))})
            out.write(b"\n")
        elif word == "deaf":
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif word == "outlive":
            import signal

            mark = next(words)
            signal.signal(signal.SIGTERM, lambda *_, mark=mark: open(mark, "ab").close())
        elif word == "pids":
            write_pids(next(words))
        elif word == "wait":
            path = next(words)
            while not os.path.exists(path):
                time.sleep(0.02)
        elif word in {"spawn", "escape"}:
            spawn(next(words), escape=word == "escape")
        elif word == "close":
            out.flush()
            os.close(1)
        elif word == "args":
            write_json(list(words))
        elif word == "file":
            with open(next(words), "rb") as file:
                out.write(file.read())
        elif word == "env":
            write_json(dict(os.environ))
        elif word == "cwd":
            out.write(os.getcwd().encode())
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
