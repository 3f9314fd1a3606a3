"""Run checks that are Python code: `python: "checks.py:names_modules"`, and checks of plugins.

`python` names a function of the user, `def f(reply, run)`.

A plugin is another package with an entry point of the group `arena.expectations`. The entry point's
name is the key of the check. Its value is a pydantic model that describes the options at that key,
with a method `check(self, reply, run)`, which is called and answers as in `python`. A key of
arena's own is never one of these.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dis
import functools
import itertools
import json
import re
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from arena_cli import errors
from arena_cli.errors import UsageError
from arena_cli.protocol import Message, Usage
from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.context import Call, CheckContext, Folders, Subject
from arena_cli.scenarios.expect.text_checks import NoVerdict, Verdict
from arena_cli.util import files
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.schema_errors import explain_error

LIMIT_S = 10.0  # for one check, with the import of its file


class OwnCheckError(NoVerdict):
    """A user's check gave no verdict; the message has the place and the reason."""


@dataclass(frozen=True)
class Reply:
    """A reply: its text, its author, and its turn (from 1, counted over all covered turns).

    `mentions` are ids; `structured` is a tuple of (type, data), `attachments` of (name, path), the
    path an absolute one. `usage` is None if none was reported. For a message of the system, `agent`
    is `system` and `turn` is 0.
    """

    text: str
    agent: str
    turn: int
    mentions: tuple[str, ...] = ()
    structured: tuple[tuple[str, Any], ...] = ()
    attachments: tuple[tuple[str, Path], ...] = ()
    usage: Usage | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ReplyView:
    """A message of any author: `kind` is `human`, `agent` or `system`."""

    author: str
    kind: str
    text: str


@dataclass(frozen=True)
class CheckedRun:
    """The result of the step, or, in a `check` and over a whole scenario, of all steps so far.

    `replies` are in order of call; `messages` are all messages, including those of humans and the
    system. `end` is the end of the last chain, `awaits` are the humans that it waits for.
    """

    replies: tuple[Reply, ...]
    messages: tuple[ReplyView, ...]
    turns: int
    end: str
    awaits: tuple[str, ...]
    workspace: Path


def verdict(
    subject: Subject,
    check: Callable[[Reply, CheckedRun], Any],
    expected: str,
    file: Path | None = None,
) -> Verdict:
    """Call a check on a subject; `file` is the file with the check. Raises OwnCheckError."""
    talk = subject.context
    outcome = _came_of(lambda: check(_reply(subject), _run(talk)))
    if outcome is None:
        raise OwnCheckError(expected, f"it did not return within {LIMIT_S:g} s")
    answer, error = outcome
    if error is not None:
        raise OwnCheckError(expected, _what_happened(error, file, talk.folders)) from error
    if answer is True:
        return Verdict(True, expected, text_checks.excerpt(subject.text))
    if answer is False:
        return Verdict(False, expected, f"it returned False: {text_checks.excerpt(subject.text)}")
    if isinstance(answer, str) and answer.strip():
        return Verdict(False, expected, text_checks.shortened(str(answer), text_checks.REASON))
    if isinstance(answer, Coroutine):
        answer.close()  # else Python warns of it some time later
    problem = f"it returned {_in_words(answer)}; return True, or a text that explains the failure"
    raise OwnCheckError(expected, problem)


def _came_of(ask: Callable[[], Any]) -> tuple[Any, BaseException | None] | None:
    """Return the answer, or the exception raised; None if there is neither within the limit.

    Output of the function goes to stderr.
    """
    outcomes: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            outcomes.append((ask(), None))
        except BaseException as error:  # noqa: BLE001  # also sys.exit in the user's code
            outcomes.append((None, error))

    worker = threading.Thread(target=work, daemon=True)  # one that never ends holds up no exit
    with contextlib.redirect_stdout(sys.stderr):
        worker.start()
        worker.join(LIMIT_S)
    return outcomes[0] if outcomes else None


def _in_words(answer: Any) -> str:
    """Describe a returned value; for an object its kind, as its text differs from run to run."""
    if isinstance(answer, str):
        return "an empty text"
    if answer is None or isinstance(answer, int | float):
        return text_checks.shortened(repr(answer))
    return f"a {type(answer).__name__}"


def _what_happened(error: BaseException, file: Path | None, folders: Folders) -> str:
    """Describe an exception and its place: the last line in `file`, else the last outside arena."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if (Path(frame.filename) == file if file else frame.filename != __file__)
    ]
    location = f"{folders.shown(Path(frames[-1].filename))}:{frames[-1].lineno}: " if frames else ""
    text = ""
    with contextlib.suppress(Exception):  # the user's `__str__` too may raise
        text = text_checks.shortened(str(error), text_checks.REASON)
    return f"{location}{type(error).__name__}{f': {text}' if text else ''}"


def _reply(subject: Subject) -> Reply:
    if subject.call is None:
        return Reply(subject.text, "system", 0)
    return _of_call(subject.call, subject.context, subject.text)


def _of_call(call: Call, conversation: CheckContext, text: str) -> Reply:
    message = call.message
    assert message is not None  # only what was said is checked
    return Reply(
        text=text,
        agent=call.agent,
        turn=call.turn,
        mentions=tuple(message.mentions),
        structured=tuple((item.type, copy.deepcopy(item.data)) for item in message.structured),
        attachments=tuple(
            (item.name, conversation.workspace / (item.path or "")) for item in message.attachments
        ),
        usage=call.done.usage,
    )


def _run(conversation: CheckContext) -> CheckedRun:
    return CheckedRun(
        replies=tuple(_of_call(call, conversation, call.text) for call in conversation.replies()),
        messages=tuple(_said(message) for message in conversation.messages()),
        turns=len(conversation.turns),
        end=conversation.end,
        awaits=tuple(conversation.awaits),
        workspace=conversation.workspace,
    )


def _said(message: Message) -> ReplyView:
    return ReplyView(message.author_id, message.author_type, message.content)


_TARGET = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_numbers = itertools.count()  # files of one name are modules of several


def _target(target: str) -> str:
    if not _TARGET.fullmatch(target):
        raise ValueError('write the file and the function in it: "checks.py:names_modules"')
    return target


Target = Annotated[str, AfterValidator(_target)]


def judge(subject: Subject, target: str, **_: bool) -> Verdict:
    """Check that the function confirms. Raises OwnCheckError if it gives no answer."""
    name, function = _split(target)
    try:
        path = subject.context.folders.locate(name)
    except UsageError as error:
        raise OwnCheckError(asks(target), error.what) from error

    def check(reply: Reply, run: CheckedRun) -> Any:
        return _function(path, function)(reply, run)

    return verdict(subject, check, asks(target), path)


def asks(target: str, **_: bool) -> str:
    """Describe the function that decides."""
    return f"{target} returns True"


def wrong(target: str, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """Yield problems of the file or the function: place, problem, hint; run nothing."""
    name, function = _split(target)
    try:
        path = folders.locate(name)
    except UsageError as error:
        yield (), error.what, error.mend
        return
    stat = path.stat()
    for problem, mend in _faults(
        path, function, folders.shown(path), stat.st_mtime_ns, stat.st_size
    ):
        yield (), problem, mend


@functools.lru_cache(maxsize=1024)  # many cases name one function
def _faults(path: Path, function: str, label: str, *_stamp: int) -> tuple[tuple[str, str], ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are told when it is run
            tree = ast.parse(files.read_regular(path), str(path))
            code = compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        problem = f"{label}:{error.lineno or 1}: {error.msg}"
        return ((problem, "it is not valid Python"),)
    except (OSError, ValueError, RecursionError) as error:
        return ((f"{label}: cannot be read: {error}", ""),)
    functions = {node.name: node for node in tree.body if isinstance(node, _FUNCTIONS)}
    if function in functions:
        return tuple(_wrong_form(functions[function], label))
    instructions = dis.get_instructions(code)
    bound = {found.argval for found in instructions if found.opname == "STORE_NAME"}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    if function in bound or any(node.names[0].name == "*" for node in imports):
        return ()
    return (
        (
            f"there is no function `{function}` in {label}",
            errors.suggest_nearest(function, functions),
        ),
    )


def _split(target: str) -> tuple[str, str]:
    name, _, function = target.rpartition(":")
    return name, function


def _wrong_form(
    node: ast.FunctionDef | ast.AsyncFunctionDef, label: str
) -> Iterator[tuple[str, str]]:
    location = f"{label}:{node.lineno}"
    mend = f"write it as `def {node.name}(reply, run):`"
    if isinstance(node, ast.AsyncFunctionDef):
        yield f"{location}: `{node.name}` is async, which a check cannot be", mend
        return
    parameters = node.args
    places = [*parameters.posonlyargs, *parameters.args]
    needed = len(places) - len(parameters.defaults)
    must_be_named = any(default is None for default in parameters.kw_defaults)
    if needed > 2 or (len(places) < 2 and not parameters.vararg) or must_be_named:
        yield f"{location}: `{node.name}` does not take a reply and a run", mend


def _function(path: Path, name: str) -> Callable[[Reply, CheckedRun], Any]:
    """Return the function; its file is executed at its first use and may raise any exception."""
    stat = path.stat()
    function = getattr(_module(path, stat.st_mtime_ns, stat.st_size), name, None)
    if not callable(function):
        raise AttributeError(f"there is no function `{name}` in {path.name}")
    return function  # type: ignore[no-any-return]  # the user's


@functools.lru_cache(maxsize=256)
def _module(path: Path, *_stamp: int) -> types.ModuleType:
    """Load the file as a module; it can import its neighbours, which hide no other module."""
    module = types.ModuleType(f"arena_check_{next(_numbers)}_{path.stem}")
    module.__file__ = str(path)
    code = compile(files.read_regular(path), str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # dataclasses look their own module up
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    exec(code, module.__dict__)
    return module


PLUGIN_GROUP = "arena.expectations"


def list_plugins() -> Mapping[str, Sequence[Any]]:
    """Return the entry points by name; there are several if several packages define the name."""
    return _list_plugins(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _list_plugins(_: tuple[str, ...]) -> Mapping[str, Sequence[Any]]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # only for keys that are not arena's

    by_name: dict[str, list[Any]] = {}
    for point in entry_points(group=PLUGIN_GROUP):
        by_name.setdefault(point.name, []).append(point)
    return by_name


def read_plugin_options(key: str, raw: Any) -> BaseModel:
    """Return the options at the key of a plugged-in check, as its shape.

    Raises ValidationError, each error below the key, if they do not fit, or if there is no shape.
    """
    point, *duplicates = list_plugins()[key]
    if duplicates:
        packages = " and ".join(
            sorted(entry_point.dist.name for entry_point in (point, *duplicates))
        )
        raise _plugin_error(key, f"{packages} both have a check of this name; uninstall one", raw)
    try:
        shape = point.load()
    except (Exception, SystemExit) as error:
        raise _plugin_error(
            key, f"cannot be imported: {type(error).__name__}: {error}", raw
        ) from error
    if not (isinstance(shape, type) and issubclass(shape, BaseModel) and hasattr(shape, "check")):
        raise _plugin_error(
            key, f"{point.value} is not a pydantic model with a method `check`", raw
        )
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        details = [
            _plugin_detail(key, entry_point, shape)
            for entry_point in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data(key, details) from error
    except Exception as error:
        problem = f"its own code failed on it: {type(error).__name__}: {error}"
        raise _plugin_error(key, problem, raw) from error


def explain_misspelt_plugin(key: str, keys: list[str]) -> ValidationError | None:
    """Return the error for an unknown key if the nearest name is that of an installed plugin."""
    near = errors.find_nearest(key, [*keys, *list_plugins()])
    if near is None or near in keys:
        return None
    return _plugin_error(key, f"unknown key: did you mean `{near}`?", None)


def judge_plugin(subject: Subject, named_options: tuple[str, BaseModel], **_: bool) -> Verdict:
    """Check that the plugin confirms. Raises OwnCheckError if it gives no answer."""
    check = named_options[1].check  # type: ignore[attr-defined]  # `options` saw it
    return verdict(subject, check, describe_plugin(named_options))


def describe_plugin(named_options: tuple[str, BaseModel], **_: bool) -> str:
    """Return the key and its options."""
    name, model = named_options
    text = json.dumps(model.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)
    return f"{name}: {text_checks.shortened(text)}"


def _plugin_error(key: str, problem: str, raw: Any) -> ValidationError:
    error = PydanticCustomError("plugged", "{what}", {"what": problem})
    return ValidationError.from_exception_data(
        key, [InitErrorDetails(type=error, loc=(key,), input=raw)]
    )


def _plugin_detail(key: str, error: Any, shape: type[BaseModel]) -> InitErrorDetails:
    """Return an error of the options, below their key; a missing key is reported at its parent."""
    problem, loc = explain_error(error), error["loc"]
    if error["type"] == "missing":
        problem, loc = f"`{loc[-1]}` is missing", loc[:-1]
    elif error["type"] == "extra_forbidden":
        hint = errors.suggest_nearest(str(loc[-1]), shape.model_fields) if len(loc) == 1 else ""
        problem = f"unknown key: {hint}" if hint else "unknown key"
    kind = PydanticCustomError("plugged", "{what}", {"what": problem})
    return InitErrorDetails(type=kind, loc=(key, *loc), input=error["input"])
