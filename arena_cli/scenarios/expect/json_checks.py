"""Check a text as JSON: by itself or in a fence, by a schema, by a value at a path (`json`)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field

from arena_cli.errors import UsageError, find_nearest
from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.context import Folders, Subject
from arena_cli.scenarios.expect.text_checks import NoVerdict, Verdict
from arena_cli.util import files
from arena_cli.util.user_pattern import PatternTimeout
from arena_cli.workspace.schema import DIALECT
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


Steps = tuple[str | int, ...]

_STEP = re.compile(r"""\.?(?P<key>[^.\[\]'"]+)|\[(?P<index>\d+)\]|\[(["'])(?P<quoted>.+?)\3\]""")


def steps_of(path: str) -> Steps:
    """Return the keys and indexes of `items[0].file`; `["a.b"]` is a key with a dot.

    Raises ValueError.
    """
    if path.startswith("$"):
        raise ValueError("a path begins with a key or an index: write it without `$.`")
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None or (step[0].startswith(".") != bool(step["key"] and end)):
            raise ValueError(f"not a path at `{path[end:]}`; write it like items[0].file")
        steps.append(int(step["index"]) if step["index"] else step["key"] or step["quoted"])
        end = step.end()
    return tuple(steps)


def at(value: Any, steps: Steps) -> tuple[bool, Any]:
    """Return True and the value at a path; else False and the reason, at the first failing step."""
    for number, step in enumerate(steps):
        if isinstance(step, int) and isinstance(value, list):
            if step >= len(value):
                return False, _missing(steps, number, f"has {len(value)} items")
        elif isinstance(step, int):
            return False, _missing(steps, number, f"is not a list: {show_value(value)}")
        elif not isinstance(value, dict):
            return False, _missing(steps, number, f"is not an object: {show_value(value)}")
        elif step not in value:
            return False, _missing(steps, number, f"has {_keys(value)}")
        value = value[step]
    return True, value


def _missing(steps: Steps, number: int, reason: str) -> str:
    parent = dotted(steps[:number]) or "the whole"
    return f"no {dotted(steps[: number + 1])}: {parent} {reason}"


def _keys(value: Mapping[str, Any]) -> str:
    return text_checks.shortened(", ".join(value)) if value else "no keys"


def dotted(steps: Iterable[str | int]) -> str:
    """Return a path as it is written in a file."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _STEP.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{text_checks.quoted(step)}]"
    return text


def show_value(value: Any) -> str:
    """Return a value as JSON, shortened if it is long."""
    return text_checks.shortened(json.dumps(value, ensure_ascii=False))


def equal_values(value: Any, expected: Any, ignore_case: bool) -> bool:
    """Compare as JSON does: 1 equals 1.0, true is no number. Texts are compared in NFKC."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            equal_values(value[key], expected[key], ignore_case) for key in value
        )
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(
            equal_values(item, expected_item, ignore_case)
            for item, expected_item in zip(value, expected, strict=True)
        )
    if isinstance(value, str) and isinstance(expected, str):
        return text_checks.form(value, ignore_case) == text_checks.form(expected, ignore_case)
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


# Keywords that no validator of `jsonschema` stands for: what others read, or what only describes.
_OTHERS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
        *("$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
        *("contentSchema", "then", "else", "minContains", "maxContains"),
    }
)


class NotASchema(Exception):
    """An invalid schema; the message has the reason, `mend` is the hint."""

    def __init__(self, reason: str, mend: str = "") -> None:
        super().__init__(reason)
        self.mend = mend


class CannotTell(Exception):
    """A value that cannot be validated by a schema; the message has the reason."""


def load_validator(schema: str | Mapping[str, Any], folders: Folders) -> Validator:
    """Return the validator of the schema, or of its file.

    Raises NotASchema, which names the file.
    """
    if not isinstance(schema, str):
        return _checked(json.dumps(schema))
    try:
        path = folders.locate(schema)
    except UsageError as error:
        raise NotASchema(error.what, error.mend) from error
    try:
        return _checked(files.read_regular(path).decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        line = f"{folders.shown(path)}:{error.lineno}"
        raise NotASchema(f"{line}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise NotASchema(f"{folders.shown(path)}: is not UTF-8") from error
    except OSError as error:
        raise NotASchema(f"{folders.shown(path)}: cannot be read: {error.strerror}") from error
    except (NotASchema, ValueError) as error:
        raise NotASchema(f"{folders.shown(path)}: {error}") from error


@lru_cache(maxsize=64)
def _checked(text: str) -> Validator:
    """Return the validator of a schema's text; fetch nothing. Raises NotASchema."""
    try:
        return _make_validator(json.loads(text))
    except RecursionError as error:
        raise NotASchema("it is nested too deep") from error


def _import_schemas() -> Any:
    """Return the module for JSON Schemas, which few scenarios have."""
    return import_module("arena_cli.util.json_schemas")


def _make_validator(schema: Any) -> Validator:
    import jsonschema  # noqa: PLC0415 - few scenarios have a schema

    json_schemas = _import_schemas()
    if not isinstance(schema, dict):
        raise NotASchema(f"a JSON Schema is a mapping, not {show_value(schema)}")
    dialect = _dialect(schema)
    find_validator = jsonschema.validators.validator_for
    kind = find_validator({"$schema": dialect}, default=None)  # type: ignore[arg-type]  # None is given back
    if kind is None:
        raise NotASchema(f"unknown JSON Schema dialect {show_value(dialect)}")
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        path = dotted(error.absolute_path)
        raise NotASchema(f"not a JSON Schema: {_with_path(path, error.message)}") from error
    if problem := json_schemas.find_unresolved(schema, dialect):
        raise NotASchema(problem)
    made: Validator = json_schemas.make_validator(kind, schema)
    return made


def list_unknown_keywords(validator: Validator) -> list[tuple[str, str]]:
    """Return the keywords that are unknown to JSON Schema, each with the nearest known one or "".

    Names that begin with `x-` are always allowed.
    """
    from arena_cli.util import json_schemas  # noqa: PLC0415 - few scenarios have a schema

    keywords = {*type(validator).VALIDATORS, *_OTHERS}
    unknown: dict[str, str] = {}
    schema = validator.schema
    assert isinstance(schema, Mapping)  # `of` takes no other
    for resource, _ in json_schemas.list_resources(schema, _dialect(schema)):
        contents = resource.contents
        for key in contents if isinstance(contents, dict) else ():
            if key not in keywords and not key.startswith("x-"):
                unknown[key] = find_nearest(key, keywords) or ""
    return list(unknown.items())


def _dialect(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$schema", DIALECT))


def validate_schema(value: Any, validator: Validator) -> str:
    """Describe the first violation of the schema in a value; empty without one.

    Raises CannotTell.
    """
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - few scenarios have a schema

    json_schemas = _import_schemas()
    try:
        json_schemas.check_names(validator.schema, value)
        errors = sorted(
            validator.iter_errors(value),
            key=lambda error: [(isinstance(step, int), step) for step in error.absolute_path],
        )
    except RecursionError as error:
        raise CannotTell("the schema leads back to itself, or both are nested too deep") from error
    except PatternTimeout as error:
        raise CannotTell(str(error)) from error
    except OverflowError as error:
        raise CannotTell(f"a number in it is too large: {error}") from error
    first = best_match(errors[:1])
    return "" if first is None else _with_path(dotted(first.absolute_path), first.message)


def _with_path(path: str, message: str) -> str:
    return f"{path}: {text_checks.shortened(message)}" if path else text_checks.shortened(message)


# JSON begins right behind a fence and its word, or in the next line. In a span of code within a
# line only a whole object or list counts: `true` in prose is no answer.
_FENCE = re.compile(r"(?<![`~])(?P<run>`{3,}+|~{3,}+)(?:\w*+[ \t]*+(?=[{\[])|[^\n`]*+\n)")
_SPAN = re.compile(r"(?<!`)(?P<run>`{1,2}+)(?=[ \t]*+[{\[])")
_BLANK = re.compile(r"\s*+")
_MOST = 1000  # fences that are looked at, lest the time grow with the square of the text


class NotJson(Exception):
    """A text that is not JSON; the message has the reason."""


class _RepeatedKey(NotJson):
    """An object with a repeated key, of which each reader may use another value."""


def _path(path: str) -> str:
    steps_of(path)
    return path


class JsonCheck(FileShape):
    """A text that is JSON, by itself or in a fence, unless that is forbidden.

    The whole text must match the `schema` (a file, or the schema itself). At `path` there must be a
    value, or the value of `equals`.
    """

    of_schema: str | dict[str, Any] | None = Field(default=None, alias="schema")
    path: Annotated[str, AfterValidator(_path)] = ""
    equals: Any = None
    fenced: Literal["allow", "forbid"] = "allow"

    @property
    def compares(self) -> bool:
        """True if a value is expected; it may be null."""
        return "equals" in self.model_fields_set


def number(checks: JsonCheck | Sequence[JsonCheck]) -> Iterator[tuple[Loc, JsonCheck]]:
    """Yield one check, or each of several, with its place below the key."""
    if isinstance(checks, JsonCheck):
        yield (), checks
    else:
        yield from (((index,), check) for index, check in enumerate(checks))


def judge(subject: Subject, json_check: JsonCheck, *, ignore_case: bool = False) -> Verdict:
    """Check all given conditions; the verdict shows the first place that fails one.

    Raises NoVerdict if the schema gives no result.
    """
    try:
        value = _value(subject, json_check)
    except NotJson as error:
        expected = asks(json_check, ignore_case=ignore_case)
        return Verdict(False, expected, f"{error}: {text_checks.excerpt(subject.text)}")
    return judge_value(value, json_check, subject.context.folders, ignore_case=ignore_case)


def judge_value(
    value: Any, json_check: JsonCheck, folders: Folders, *, ignore_case: bool = False
) -> Verdict:
    """Check all given conditions on a value, as `judge` does on a text."""
    expected = asks(json_check, ignore_case=ignore_case)
    if json_check.of_schema is not None:
        try:
            schema = load_validator(json_check.of_schema, folders)
            against = validate_schema(value, schema)
        except (NotASchema, CannotTell) as error:
            raise NoVerdict(expected, str(error)) from error
        if against:
            return Verdict(False, expected, against)
    is_present, actual = at(value, steps_of(json_check.path))
    if not is_present:
        return Verdict(False, expected, actual)
    description = f"{json_check.path or 'it'} is {show_value(actual)}"
    holds = not json_check.compares or equal_values(actual, json_check.equals, ignore_case)
    return Verdict(holds, expected, description)


def judge_output(output: Any, json_check: JsonCheck, folders: Folders, why_none: str) -> Verdict:
    """Check an output; None is no output."""
    if output is None:
        return Verdict(False, asks(json_check), why_none)
    return judge_value(output, json_check, folders)


def asks(json_check: JsonCheck, *, ignore_case: bool = False) -> str:
    """Describe the expectation about the JSON in words."""
    facts = ["is JSON" if json_check.fenced == "allow" else "is JSON without a fence"]
    if json_check.of_schema is not None:
        is_file = isinstance(json_check.of_schema, str)
        facts.append(f"of {json_check.of_schema}" if is_file else "of its schema")
    if json_check.compares:
        text = f"{json_check.path or 'it'} is {show_value(json_check.equals)}"
        facts.append(f"{text}{text_checks.case(ignore_case)}")
    elif json_check.path:
        facts.append(f"{json_check.path} exists")
    return ", ".join(facts)


def wrong(json_check: JsonCheck, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """Yield the problems of its schema: the place below it, the problem, the hint."""
    if json_check.of_schema is None:
        return
    try:
        schema = load_validator(json_check.of_schema, folders)
    except NotASchema as error:
        yield ("schema",), str(error), error.mend
        return
    for keyword, suggestion in list_unknown_keywords(schema):
        if suggestion:
            problem = f"JSON Schema has no keyword {text_checks.quoted(keyword)}"
            yield ("schema",), problem, f"did you mean `{suggestion}`?"


def unknown_keywords(json_check: JsonCheck, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """Yield (place, problem, hint) of unknown keywords in a schema that `wrong` does not report.

    Raises NotASchema if `wrong` does.
    """
    if json_check.of_schema is None:
        return
    for keyword, suggestion in list_unknown_keywords(load_validator(json_check.of_schema, folders)):
        if not suggestion:
            problem = (
                f"JSON Schema has no keyword {text_checks.quoted(keyword)}, so it checks nothing"
            )
            yield ("schema",), problem, "remove it, or write it as `x-...`"


def _value(subject: Subject, json_check: JsonCheck) -> Any:
    """Return the text as JSON; structured data is JSON already. Raises NotJson."""
    if subject.part[:1] == ("structured",) and subject.call and subject.call.message:
        data = subject.call.message.structured[int(subject.part[1]) - 1].data
        if not isinstance(data, str):
            return data
    return find_json(subject.text, fenced=json_check.fenced == "allow")


def find_json(text: str, *, fenced: bool = True) -> Any:
    """Return the JSON value of a text; else, with `fenced`, that of its first fence with JSON.

    A value ends where JSON ends it, so a fence inside one of its texts does not end it. Raises
    NotJson.
    """
    text = text.removeprefix("\ufeff")
    try:
        return _DECODER.decode(text)
    except _RepeatedKey:
        raise
    except (ValueError, RecursionError) as error:
        reason = error
    values, wrong = _in_fences(text)
    if values and fenced:
        return values[0]
    if values:
        raise NotJson("JSON in a fence, not by itself")
    raise NotJson(_why_not(wrong if wrong and fenced else reason))


def _in_fences(text: str) -> tuple[list[Any], Exception | None]:
    """Return the values in fences and code spans, and the error of the first invalid one."""
    values = []
    wrong: Exception | None = None
    for pattern in (_FENCE, _SPAN):
        for opening in itertools.islice(pattern.finditer(text), _MOST):
            start = _behind_blanks(text, opening.end())
            try:
                value, end = _DECODER.raw_decode(text, start)
                end = _behind_blanks(text, end)
                # A fence may be left open at the end of a text, a span of code may not.
                closed = text.startswith(opening["run"], end)
                if not closed and (pattern is _SPAN or end < len(text)):
                    raise json.JSONDecodeError("Extra data", text, end)
                values.append(value)
            except _RepeatedKey:
                if not values:
                    raise
            except (ValueError, RecursionError) as error:
                if text.startswith(("{", "["), start):
                    wrong = wrong or error
    return values, wrong


def _why_not(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
    return f"not JSON: {str(error) or type(error).__name__}"


def _behind_blanks(text: str, start: int) -> int:
    blank = _BLANK.match(text, start)
    return blank.end() if blank else start


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _RepeatedKey(
                f"the key {text_checks.shortened(text_checks.quoted(key))} appears twice"
            )
        result[key] = value
    return result


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)
