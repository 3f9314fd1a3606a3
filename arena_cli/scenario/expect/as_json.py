"""`json`: a text is JSON, by itself or in a fence; of a schema; with a value at a path."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field

from arena_cli.ground.bounds import OutsideError
from arena_cli.scenario.expect import checks, json_schema, json_values
from arena_cli.scenario.expect.checks import NoVerdict, Verdict
from arena_cli.scenario.expect.conversation import Subject
from arena_cli.scenario.expect.folders import Folders
from arena_cli.scenario.expect.json_schema import CannotTell, NotASchema
from arena_cli.team.model import FileShape
from arena_cli.yamlio.nodes import Loc

# JSON begins right behind a fence and its word, or in the next line. In a span of code within a
# line only a whole object or list counts: `true` in prose is no answer.
_FENCE = re.compile(r"(?<![`~])(?P<run>`{3,}+|~{3,}+)(?:\w*+[ \t]*+(?=[{\[])|[^\n`]*+\n)")
_SPAN = re.compile(r"(?<!`)(?P<run>`{1,2}+)(?=[ \t]*+[{\[])")
_BLANK = re.compile(r"\s*+")
_MOST = 1000  # fences that are looked at, lest the time grow with the square of the text


class NotJson(Exception):
    """A text is not JSON; the message says why not."""


class _RepeatedKey(NotJson):
    """An object has a key twice, so that each reader may take another value."""


def _path(path: str) -> str:
    json_values.steps_of(path)
    return path


class JsonCheck(FileShape):
    """A text that is JSON, by itself or in a fence, unless that is forbidden.

    The whole is of the `schema` (a file, or the schema itself); at `path` something stands, or what
    `equals` says.
    """

    of_schema: str | dict[str, Any] | None = Field(default=None, alias="schema")
    path: Annotated[str, AfterValidator(_path)] = ""
    equals: Any = None
    fenced: Literal["allow", "forbid"] = "allow"

    @property
    def compares(self) -> bool:
        """Whether a value is asked for; it may be null."""
        return "equals" in self.model_fields_set


def judge(subject: Subject, given: JsonCheck, *, ignore_case: bool = False) -> Verdict:
    """Everything that is given holds; shows the first place where it does not.

    Raises NoVerdict where the schema does not say.
    """
    expected = asks(given, ignore_case=ignore_case)
    try:
        value = _value(subject, given)
    except NotJson as error:
        return Verdict(False, expected, f"{error}: {checks.excerpt(subject.text)}")
    if given.of_schema is not None:
        try:
            schema = json_schema.of(given.of_schema, subject.told.folders)
            against = json_schema.against(value, schema)
        except (NotASchema, CannotTell) as error:
            raise NoVerdict(expected, str(error)) from error
        if against:
            return Verdict(False, expected, against)
    there, actual = json_values.at(value, json_values.steps_of(given.path))
    if not there:
        return Verdict(False, expected, actual)
    said = f"{given.path or 'it'} is {json_values.shown(actual)}"
    holds = not given.compares or json_values.same(actual, given.equals, ignore_case)
    return Verdict(holds, expected, said)


def asks(given: JsonCheck, *, ignore_case: bool = False) -> str:
    """What is asked of the JSON, in words."""
    facts = ["is JSON" if given.fenced == "allow" else "is JSON without a fence"]
    if given.of_schema is not None:
        named = isinstance(given.of_schema, str)
        facts.append(f"of {given.of_schema}" if named else "of its schema")
    if given.compares:
        wanted = f"{given.path or 'it'} is {json_values.shown(given.equals)}"
        facts.append(f"{wanted}{checks.case(ignore_case)}")
    elif given.path:
        facts.append(f"{given.path} is there")
    return ", ".join(facts)


def wrong(given: JsonCheck, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """What is wrong with its schema: where below it, what, and what to do."""
    if given.of_schema is None:
        return
    try:
        if isinstance(given.of_schema, str) and folders.located(given.of_schema) is None:
            yield ("schema",), f"there is no file `{given.of_schema}`", folders.mend
            return
        schema = json_schema.of(given.of_schema, folders)
    except OutsideError as error:
        yield ("schema",), error.what, error.mend
        return
    except NotASchema as error:
        yield ("schema",), str(error), ""
        return
    for keyword, meant in json_schema.unknown_keywords(schema):
        if meant:
            what = f"JSON Schema has no keyword {checks.quoted(keyword)}"
            yield ("schema",), what, f"did you mean `{meant}`?"


def unknown_keywords(given: JsonCheck, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """Yield (place, problem, hint) of what a schema has and nobody reads, where `wrong` does not.

    Raises NotASchema where `wrong` does.
    """
    if given.of_schema is None:
        return
    for keyword, meant in json_schema.unknown_keywords(json_schema.of(given.of_schema, folders)):
        if not meant:
            what = f"JSON Schema has no keyword {checks.quoted(keyword)}, so it checks nothing"
            yield ("schema",), what, "take it out, or write it as `x-...`"


def _value(subject: Subject, given: JsonCheck) -> Any:
    """What the text is as JSON; structured data is that already. Raises NotJson."""
    if subject.part[:1] == ("structured",) and subject.call and subject.call.message:
        data = subject.call.message.structured[int(subject.part[1]) - 1].data
        if not isinstance(data, str):
            return data
    return found(subject.text, fenced=given.fenced == "allow")


def found(text: str, *, fenced: bool = True) -> Any:
    """The JSON that a text is; else, with `fenced`, what its first fence with JSON holds.

    The end of a value is where JSON ends it, so that a fence within one of its texts ends nothing.
    Raises NotJson.
    """
    text = text.removeprefix("\ufeff")
    try:
        return _DECODER.decode(text)
    except _RepeatedKey:
        raise
    except (ValueError, RecursionError) as error:
        why = error
    values, wrong = _in_fences(text)
    if values and fenced:
        return values[0]
    if values:
        raise NotJson("JSON in a fence, not by itself")
    raise NotJson(_why_not(wrong if wrong and fenced else why))


def _in_fences(text: str) -> tuple[list[Any], Exception | None]:
    """The values in fences and spans of code, and what is wrong with the first that is none."""
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
        return f"no JSON: {error.msg} in line {error.lineno}, column {error.colno}"
    return f"no JSON: {str(error) or type(error).__name__}"


def _behind_blanks(text: str, start: int) -> int:
    blank = _BLANK.match(text, start)
    return blank.end() if blank else start


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKey(f"the key {checks.shortened(checks.quoted(key))} stands twice")
        found[key] = value
    return found


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)
