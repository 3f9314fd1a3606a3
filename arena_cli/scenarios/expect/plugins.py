"""Load checks of other packages, by an entry point of the group `arena.expectations`.

The entry point's name is the key of the check. Its value is a pydantic model that describes the
options at that key, with a method `check(self, reply, run)`, which is called and answers as in
`own`. A key of arena's own is never one of these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from arena_cli import errors
from arena_cli.scenarios.expect import python_checks, text_checks
from arena_cli.scenarios.expect.context import Subject
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.yamlio.schema_errors import explain_error

GROUP = "arena.expectations"


def installed() -> Mapping[str, Sequence[Any]]:
    """Return the entry points by name; there are several if several packages define the name."""
    return _installed(tuple(sys.path))


@lru_cache(maxsize=8)
def _installed(_: tuple[str, ...]) -> Mapping[str, Sequence[Any]]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # only for keys that are not arena's

    by_name: dict[str, list[Any]] = {}
    for point in entry_points(group=GROUP):
        by_name.setdefault(point.name, []).append(point)
    return by_name


def options(key: str, raw: Any) -> BaseModel:
    """Return the options at the key of a plugged-in check, as its shape.

    Raises ValidationError, each error below the key, if they do not fit, or if there is no shape.
    """
    point, *duplicates = installed()[key]
    if duplicates:
        packages = " and ".join(
            sorted(entry_point.dist.name for entry_point in (point, *duplicates))
        )
        raise _wrong(key, f"{packages} both have a check of this name; uninstall one", raw)
    try:
        shape = point.load()
    except (Exception, SystemExit) as error:
        raise _wrong(key, f"cannot be imported: {type(error).__name__}: {error}", raw) from error
    if not (isinstance(shape, type) and issubclass(shape, BaseModel) and hasattr(shape, "check")):
        raise _wrong(key, f"{point.value} is not a pydantic model with a method `check`", raw)
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        details = [
            _detail(key, entry_point, shape) for entry_point in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data(key, details) from error
    except Exception as error:
        problem = f"its own code failed on it: {type(error).__name__}: {error}"
        raise _wrong(key, problem, raw) from error


def misspelt(key: str, keys: list[str]) -> ValidationError | None:
    """Return the error for an unknown key if the nearest name is that of an installed plugin."""
    near = errors.find_nearest(key, [*keys, *installed()])
    if near is None or near in keys:
        return None
    return _wrong(key, f"unknown key: did you mean `{near}`?", None)


def judge(subject: Subject, named_options: tuple[str, BaseModel], **_: bool) -> Verdict:
    """Check that the plugin confirms. Raises OwnCheckError if it gives no answer."""
    check = named_options[1].check  # type: ignore[attr-defined]  # `options` saw it
    return python_checks.verdict(subject, check, asks(named_options))


def asks(named_options: tuple[str, BaseModel], **_: bool) -> str:
    """Return the key and its options."""
    name, model = named_options
    text = json.dumps(model.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)
    return f"{name}: {text_checks.shortened(text)}"


def _wrong(key: str, problem: str, raw: Any) -> ValidationError:
    error = PydanticCustomError("plugged", "{what}", {"what": problem})
    return ValidationError.from_exception_data(
        key, [InitErrorDetails(type=error, loc=(key,), input=raw)]
    )


def _detail(key: str, error: Any, shape: type[BaseModel]) -> InitErrorDetails:
    """Return an error of the options, below their key; a missing key is reported at its parent."""
    problem, loc = explain_error(error), error["loc"]
    if error["type"] == "missing":
        problem, loc = f"`{loc[-1]}` is missing", loc[:-1]
    elif error["type"] == "extra_forbidden":
        hint = errors.suggest_nearest(str(loc[-1]), shape.model_fields) if len(loc) == 1 else ""
        problem = f"unknown key: {hint}" if hint else "unknown key"
    kind = PydanticCustomError("plugged", "{what}", {"what": problem})
    return InitErrorDetails(type=kind, loc=(key, *loc), input=error["input"])
