"""What texts of a flow refer to: `${steps.ID.output.key}`, `${inputs.name}`, `${item}`, `when`.

A placeholder is a path, never code. Expressions are a small part of Python that `simpleeval`
carries out, with paths in place of attributes: no object of arena can be reached from one.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from arena_cli.errors import ArenaError
from arena_cli.util.text import fill_template, iter_texts, list_placeholders, map_texts

ENV = "env:"
ROOTS = frozenset({"steps", "inputs", "item", "index", "round"})

_STEP = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\.(\d+)")
_ALONE = re.compile(r"\$\{([^{}\n]*)\}")
_LONGEST = 2000
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": len,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "abs": abs,
    "min": min,
    "max": max,
    "sum": sum,
    "round": round,
    "any": any,
    "all": all,
}


class ValueMissing(ArenaError):
    """A placeholder or an expression names a value that is not there, or cannot be used."""


class ValuePath(NamedTuple):
    """A path to a value: `keys` are names and numbers, the first one a name of `ROOTS`."""

    text: str
    keys: tuple[str | int, ...]


def parse_reference(text: str) -> ValuePath | None:
    """Return the path that a placeholder is, None if it is none."""
    keys: list[str | int] = []
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        match = _STEP.match(stripped, position)
        if match is None:
            return None
        name, *numbers = match.groups()
        number = next((digits for digits in numbers if digits), None)
        keys.append(name if number is None else int(number))
        position = match.end()
    return ValuePath(stripped, tuple(keys)) if keys and keys[0] in ROOTS else None


def list_references(data: Any) -> Iterator[str]:
    """Yield the text of each placeholder in nested data, but for `env:`."""
    for _, text in iter_texts(data):
        yield from (name for name in list_placeholders(text) if not name.startswith(ENV))


def fill(data: Any, values: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """Return nested data with all placeholders filled: one that is alone keeps its type.

    Raises ValueMissing.
    """

    def value_of(name: str) -> Any:
        if name.startswith(ENV):
            variable = name.removeprefix(ENV)
            if variable not in environ:
                raise ValueMissing(f"the variable {variable} is not set")
            return environ[variable]
        reference = parse_reference(name)
        assert reference is not None  # the loader has checked it
        return look_up(reference, values)

    def change(text: str, _: Any) -> Any:
        alone = _ALONE.fullmatch(text)
        if alone and not text.startswith("$${"):
            return value_of(alone[1])
        return fill_template(text, lambda name: as_text(value_of(name)))

    return map_texts(data, change)


def as_text(value: Any) -> str:
    """Return a value as it is written into a text: nothing for null, JSON if it is no text."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def look_up(reference: ValuePath, values: Mapping[str, Any]) -> Any:
    """Return the value at a path; that below the output of a skipped step is null.

    Raises ValueMissing.
    """
    value: Any = values
    for number, key in enumerate(reference.keys):
        if value is None and number > 1:
            return None
        value = _child(value, key, reference.text)
    return value


def _child(value: Any, key: str | int, shown: str) -> Any:
    if isinstance(value, Mapping) and str(key) in value:
        return value[str(key)]
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    known = ", ".join(map(str, value)) if isinstance(value, Mapping) else ""
    hint = f"there are: {known}" if known else ""
    raise ValueMissing(f"`{shown}`: there is no `{key}`", hint)


def is_available() -> bool:
    """Return True if expressions can be carried out."""
    try:
        import_module("simpleeval")
    except ImportError:
        return False
    return True


def parse_expression(text: str) -> ast.Expression:
    """Return an expression as a tree. Raises ValueError, with the problem."""
    if len(text) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"is no expression: {reason}") from error


def list_paths(tree: ast.AST) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each name in an expression, as far as its keys are constant."""
    path: list[str | int] = []
    node = tree
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, (str, int)):
            path.insert(0, node.slice.value)
        else:
            path.clear()
            yield from list_paths(node.slice)
        node = node.value
    if isinstance(node, ast.Name):
        yield (node.id, *path)
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            yield from list_paths(child)


def list_unknown_calls(tree: ast.AST) -> Iterator[str]:
    """Yield what an expression calls that is no function of expressions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            if name not in _FUNCTIONS or not isinstance(node.func, ast.Name):
                yield name


def is_function(name: str) -> bool:
    """Return True if expressions may call it."""
    return name in _FUNCTIONS


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression. Raises ValueMissing."""
    simpleeval = import_module("simpleeval")
    evaluator = simpleeval.EvalWithCompoundTypes(
        names={**values, "true": True, "false": False, "null": None}, functions=dict(_FUNCTIONS)
    )

    def read_attribute(node: ast.Attribute) -> Any:
        value = evaluator._eval(node.value)
        return None if value is None else _child(value, node.attr, ast.unparse(node))

    evaluator.nodes[ast.Attribute] = read_attribute
    try:
        return evaluator.eval(text.strip())
    except ValueMissing:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueMissing(f"`{text.strip()}` cannot be decided: {reason}") from error
