"""arena's whole program, run inside the test's process: a sixth of the CPU of a new process."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import io
import logging
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import typer
from product import __main__

# Typer reads the signatures of a command and of its neighbours anew in each run.
typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)
typer.completion.get_params_from_function = typer.main.get_params_from_function

_make_schema = functools.cache(pydantic.BaseModel.model_json_schema.__func__)


def _model_json_schema(shape: type[pydantic.BaseModel], **options: Any) -> dict[str, Any]:
    """Make the schema of a shape once; each `arena init` makes those of all files."""
    return copy.deepcopy(_make_schema(shape, **options))


pydantic.BaseModel.model_json_schema = classmethod(_model_json_schema)

_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]
_INSTALLED = [Path(__main__.__file__).parent, *map(Path, sysconfig.get_paths().values())]


@dataclass(frozen=True)
class Ran:
    """Bytes of stdout and stderr, and the exit code."""

    stdout: bytes
    stderr: bytes
    code: int


def run(
    args: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    stdin: bytes,
    *,
    one_stream: bool = False,
) -> Ran:
    """Run `arena ARGS` in a folder with exactly this environment; the process stays as it was.

    With `one_stream`, stderr is written into stdout, as on a terminal.
    """
    stdout = io.BytesIO()
    stderr = stdout if one_stream else io.BytesIO()
    with _process_state(), _environment(folder, env):
        sys.argv = ["arena", *args]
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(stdout, encoding="utf-8", write_through=True)
        sys.stderr = io.TextIOWrapper(stderr, encoding="utf-8", write_through=True)
        streams = sys.stdin, sys.stdout, sys.stderr
        code = _exit_code()
        for stream in streams[1:]:
            stream.flush()
            stream.detach()  # the bytes are read after the wrapper is gone
    return Ran(stdout.getvalue(), b"" if one_stream else stderr.getvalue(), code)


def _exit_code() -> int:
    try:
        __main__.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _environment(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    cwd, environ = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environ)


@contextlib.contextmanager
def _process_state() -> Iterator[None]:
    """Put back what a program may set for its process: streams, signals, hooks, modules' path."""
    streams = sys.stdin, sys.stdout, sys.stderr
    argv, path, hook = sys.argv, list(sys.path), sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    thresholds = gc.get_threshold()
    modules = set(sys.modules)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv, sys.path[:], sys.unraisablehook = argv, path, hook
        for number, handler in handlers.items():
            signal.signal(number, handler)
        gc.set_threshold(*thresholds)
        logging.getLogger("asyncio").disabled = False
        asyncio.set_event_loop(None)
        for name in set(sys.modules) - modules:
            if not _is_installed(sys.modules[name]):  # the next workspace's may have its name
                del sys.modules[name]


def _is_installed(module: object) -> bool:
    """Say whether a module is arena's or a library's, not a file of a test's workspace."""
    file = getattr(module, "__file__", None)
    return file is None or any(Path(file).is_relative_to(place) for place in _INSTALLED)
