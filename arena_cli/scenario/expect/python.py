"""`python: "checks.py:names_modules"`: a function of one's own, `def f(reply, run)`."""

from __future__ import annotations

import ast
import dis
import functools
import itertools
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from arena_cli.ground import nearest, regularfiles
from arena_cli.ground.bounds import OutsideError
from arena_cli.scenario.expect import own
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Subject
from arena_cli.scenario.expect.folders import Folders
from arena_cli.scenario.expect.own import OwnCheckError, Reply, Run
from arena_cli.yamlio.nodes import Loc

_TARGET = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_numbers = itertools.count()  # files of one name are modules of several


def _target(target: str) -> str:
    if not _TARGET.fullmatch(target):
        raise ValueError('write the file and the function in it: "checks.py:names_modules"')
    return target


Target = Annotated[str, AfterValidator(_target)]


def judge(subject: Subject, target: str, **_: bool) -> Verdict:
    """The function says that it holds. Raises OwnCheckError where it says nothing."""
    name, function = _split(target)
    try:
        path = subject.told.folders.located(name)
    except OutsideError as error:
        raise OwnCheckError(asks(target), error.what) from error
    if path is None:
        raise OwnCheckError(asks(target), f"there is no file `{name}`")

    def check(reply: Reply, run: Run) -> Any:
        return _function(path, function)(reply, run)

    return own.verdict(subject, check, asks(target), path)


def asks(target: str, **_: bool) -> str:
    """The function that decides."""
    return f"{target} says that it holds"


def wrong(target: str, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """What is wrong with the file or the function: where, what, what to do. Nothing is run."""
    name, function = _split(target)
    try:
        path = folders.located(name)
    except OutsideError as error:
        yield (), error.what, error.mend
        return
    if path is None:
        yield (), f"there is no file `{name}`", folders.mend
        return
    stat = path.stat()
    for what, mend in _faults(path, function, folders.shown(path), stat.st_mtime_ns, stat.st_size):
        yield (), what, mend


@functools.lru_cache(maxsize=1024)  # many cases name one function
def _faults(path: Path, function: str, shown: str, *_stamp: int) -> tuple[tuple[str, str], ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are told when it is run
            tree = ast.parse(regularfiles.read(path), str(path))
            code = compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        what = f"{shown}:{error.lineno or 1}: {error.msg}"
        return ((what, "it is no Python as it stands"),)
    except (OSError, ValueError, RecursionError) as error:
        return ((f"{shown}: cannot be read: {error}", ""),)
    there = {node.name: node for node in tree.body if isinstance(node, _FUNCTIONS)}
    if function in there:
        return tuple(_wrong_form(there[function], shown))
    bound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    if function in bound or _imports_all(tree):
        return ()
    return ((f"there is no function `{function}` in {shown}", nearest.hint(function, there)),)


def _split(target: str) -> tuple[str, str]:
    name, _, function = target.rpartition(":")
    return name, function


def _imports_all(tree: ast.Module) -> bool:
    """Whether it may have names from elsewhere that it does not tell."""
    return any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)
    )


def _wrong_form(
    node: ast.FunctionDef | ast.AsyncFunctionDef, shown: str
) -> Iterator[tuple[str, str]]:
    place = f"{shown}:{node.lineno}"
    mend = f"write it as `def {node.name}(reply, run):`"
    if isinstance(node, ast.AsyncFunctionDef):
        yield f"{place}: `{node.name}` is async, which a check cannot be", mend
        return
    given = node.args
    places = [*given.posonlyargs, *given.args]
    needed = len(places) - len(given.defaults)
    must_be_named = any(default is None for default in given.kw_defaults)
    if needed > 2 or (len(places) < 2 and not given.vararg) or must_be_named:
        yield f"{place}: `{node.name}` does not take a reply and a run", mend


def _function(path: Path, name: str) -> Callable[[Reply, Run], Any]:
    """The function; its file is run at its first use. Raises what that raises."""
    stat = path.stat()
    found = getattr(_module(path, stat.st_mtime_ns, stat.st_size), name, None)
    if not callable(found):
        raise AttributeError(f"there is no function `{name}` in {path.name}")
    return found  # type: ignore[no-any-return]  # the user's


@functools.lru_cache(maxsize=256)
def _module(path: Path, *_stamp: int) -> types.ModuleType:
    """The file as a module. Its neighbours can be imported; they stand in nobody's way."""
    module = types.ModuleType(f"arena_check_{next(_numbers)}_{path.stem}")
    module.__file__ = str(path)
    code = compile(regularfiles.read(path), str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # dataclasses look their own module up
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    exec(code, module.__dict__)
    return module
