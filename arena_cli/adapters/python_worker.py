"""Run an agent's Python function in its own process: JSON lines in, JSON lines out.

The first argument is the target. Each line in is an AgentInput; each line out is `{"output": ...}`,
or `{"error": {"what", "where", "trace", "found"}}`: the exception, the file:line in the user's
code, the end of the traceback, and whether the function was found. With the second argument `json`,
the function gets each line as JSON and may return any value.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from arena_cli.protocol import AgentInput, AgentOutput

if TYPE_CHECKING:
    import asyncio


ROOT = Path(__file__).resolve().parents[2]
TRACE_LINES = 20

Wait = Callable[[Any], Any]
"""Returns a value, or the result of an awaitable."""

AnswerWith = Callable[[Callable[..., Any], bytes, Wait], Any]
"""Returns the output for an input line from the user's function, whose result it waits for."""


class TargetError(Exception):
    """The function cannot be loaded."""


class ReturnedError(Exception):
    """The function returned a value that is not an answer."""


class Caller:
    """The user's function, called in one event loop if it is async."""

    def __init__(self, target: str, answer_with: AnswerWith) -> None:
        self._target = target
        self._answer_with = answer_with
        self._function: Callable[..., Any] | None = None
        self._runner: asyncio.Runner | None = None

    def answer(self, line: bytes) -> str:
        """Return the output line for an input line.

        An exception of the user's code becomes the `error` of the output line.
        """
        try:
            if self._function is None:
                self._function = load(self._target)
            return json.dumps({"output": self._answer_with(self._function, line, self._wait)})
        except BaseException as error:  # noqa: BLE001 - also sys.exit in the user's code
            return json.dumps({"error": describe(error, found=self._function is not None)})

    def close(self) -> None:
        """End the remaining async work."""
        if self._runner is not None:
            self._runner.close()

    def _wait(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        import asyncio  # noqa: PLC0415 - most functions are not async

        if self._runner is None:
            self._runner = asyncio.Runner()

        async def wait() -> Any:
            return await value

        return self._runner.run(wait())


def main() -> None:
    """Answer as the arguments of the program say."""
    serve(sys.argv[1], _call_plainly if sys.argv[2:] == ["json"] else _answer_as_agent)


def _call_plainly(function: Callable[..., Any], line: bytes, wait: Wait) -> Any:
    return wait(function(json.loads(line)))


def _answer_as_agent(function: Callable[..., Any], line: bytes, wait: Wait) -> dict[str, Any]:
    result = wait(function(AgentInput.model_validate_json(line)))
    if result is None:
        raise ReturnedError("the function returned nothing (None)")
    if isinstance(result, AgentOutput):
        result = result.model_dump()
    if isinstance(result, str):
        result = {"content": result}
    if not isinstance(result, dict):
        kind = type(result).__name__
        raise ReturnedError(f"the function returned {kind}, expected str, AgentOutput or dict")
    try:
        json.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise ReturnedError(
            f"the function returned a value that JSON cannot represent: {error}"
        ) from error
    return result


def serve(target: str, answer_with: AnswerWith) -> None:
    """Answer line by line until the input ends."""
    lines, answers = _take_the_streams()
    _prepare_imports(target)
    caller = Caller(target, answer_with)
    for line in lines:
        answer = caller.answer(line)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the user's code may have closed it
                stream.flush()
        answers.write(answer.encode("utf-8") + b"\n")
        answers.flush()
    caller.close()


def split(target: str) -> tuple[str, str]:
    """Split `module:function` or `file.py:function` into module or file, and function."""
    where, _, name = target.rpartition(":")
    return where, name


def is_file(where: str) -> bool:
    """Return True if the first half of a target is a file rather than a module."""
    return where.lower().endswith(".py") or "/" in where or "\\" in where


def load(target: str) -> Callable[..., Any]:
    """Return the function. Raises TargetError, or the exception of importing its module."""
    where, name = split(target)
    module = _module_of_file(Path(where)) if is_file(where) else importlib.import_module(where)
    function = getattr(module, name, None)
    if not callable(function):
        raise TargetError(f"there is no function {name} in {where}")
    return function  # type: ignore[no-any-return]  # the user's


def describe(error: BaseException, *, found: bool) -> dict[str, Any]:
    """Return an exception as the `error` of an output line; see the module."""
    if isinstance(error, (TargetError, ReturnedError)):
        return {"what": str(error), "where": "", "trace": "", "found": found}
    text = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if _is_the_users(frame.filename)]
    where = f"{users[-1].filename}:{users[-1].lineno}" if users else ""
    if isinstance(error, SyntaxError) and error.filename:
        where, text = f"{error.filename}:{error.lineno}", error.msg
    trace = "".join(traceback.format_exception(error)).splitlines()[-TRACE_LINES:]
    name = type(error).__name__
    return {
        "what": f"{name}: {text}" if text else name,
        "where": where,
        "trace": "\n".join(trace),
        "found": found,
    }


def _take_the_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return streams for the input and output lines, out of reach of the user's code."""
    lines = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    return lines, answers


def _prepare_imports(target: str) -> None:
    """Make imports start at the user's code, without this file's folder, and find arena last."""
    where, _ = split(target)
    first = Path(where).resolve().parent if is_file(where) else Path.cwd()
    own = Path(sys.argv[0]).resolve().parent
    others = [entry for entry in sys.path if not entry or Path(entry).resolve() != own]
    sys.path[:] = [str(first), *others, str(ROOT)]


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    name = path.stem if path.stem not in sys.modules else f"agent_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_the_users(filename: str) -> bool:
    path = Path(filename)
    return (
        not filename.startswith("<")
        and not {"site-packages", "dist-packages"}.intersection(path.parts)
        and not path.is_relative_to(Path(os.__file__).parent)
        and not path.is_relative_to(ROOT / "arena_cli")
    )


if __name__ == "__main__":
    main()
