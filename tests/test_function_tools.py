"""Functions of the user are tools: their schema, their calls, their errors, their processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from adapter_setups import pids_in, runs
from product import FunctionPool, ToolFailed

CODE = '''
import asyncio, dataclasses, enum, os, sys, time
from typing import Annotated, Literal, Optional
import pydantic

class Size(pydantic.BaseModel):
    width: int
    height: int = 2

def add(a: int, b: Annotated[float, "the second"], *, mode: Literal["x", "y"] = "x",
        tags: list[str] | None = None, size: Optional[Size] = None):
    """Add two numbers.

    Carefully.

    Args:
        a: the first number
            of two
        b: ignored
        mode (str): how

    Returns:
        the sum
    """
    print("noise on stdout")
    width = size.width if size else 0
    return {"sum": a + b + width, "mode": mode, "tags": tags}

def plain(anything, /, schema="s", model_config=1, **others):
    return [anything, schema, model_config, others]

def fail(x: int):
    raise ValueError(f"bad {x}")

async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"

def nothing() -> None: ...
def odd(): return object()
def leave(): sys.exit(3)
def die(): os._exit(4)
def pid(): return os.getpid()
def big(): return "x" * 3_000_000

def hang(path: str):
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    while True:
        time.sleep(1)

def unknown(x: "Missing"): ...
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calc.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("def f():\n    return (\n")
    return tmp_path


def pool(folder: Path, target: str) -> FunctionPool:
    return FunctionPool(target, folder, os.environ, folder / "sessions" / "processes", "dev")


async def using(made: FunctionPool, *calls: Any) -> list[Any]:
    """Return the result of each call, or its error."""
    results: list[Any] = []
    try:
        for arguments in calls:
            try:
                results.append(await made.call(arguments))
            except ToolFailed as failure:
                results.append(f"error: {failure}")
    finally:
        await made.stop()
    return results


def call(folder: Path, name: str, *calls: Any) -> list[Any]:
    return asyncio.run(using(pool(folder, f"calc.py:{name}"), *calls))


def describe(folder: Path, target: str) -> Any:
    async def run() -> Any:
        made = pool(folder, target)
        try:
            return await made.describe()
        finally:
            await made.stop()

    return asyncio.run(run())


def test_the_schema_is_that_of_the_signature_and_the_docstring(folder: Path) -> None:
    spec = describe(folder, "calc.py:add")
    assert (spec.name, spec.description) == ("add", "Add two numbers.\n\nCarefully.")
    schema = spec.input_schema
    assert schema["required"] == ["a", "b"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["a"] == {"type": "integer", "description": "the first number of two"}
    assert properties["b"] == {"type": "number", "description": "the second"}
    assert properties["mode"] == {
        "type": "string",
        "enum": ["x", "y"],
        "default": "x",
        "description": "how",
    }
    strings = {"type": "array", "items": {"type": "string"}}
    assert properties["tags"] == {"anyOf": [strings, {"type": "null"}], "default": None}
    assert schema["$defs"]["Size"]["required"] == ["width"]
    loose = describe(folder, "calc:plain").input_schema
    assert loose["additionalProperties"] is True
    assert list(loose["properties"]) == ["anything", "schema", "model_config"]
    assert describe(folder, "calc:nothing").input_schema["properties"] == {}


def test_a_call_has_values_of_the_right_types(folder: Path) -> None:
    arguments = {"a": 1, "b": 2, "size": {"width": 4}, "tags": ["\u00e9"]}
    assert call(folder, "add", arguments, {"a": 1}) == [
        '{"sum": 7.0, "mode": "x", "tags": ["\u00e9"]}',
        "error: calc.py:add: b: Field required",
    ]
    assert call(folder, "plain", {"anything": 1, "schema": 2, "more": {"x": 1}}) == [
        '[1, 2, 1, {"more": {"x": 1}}]'
    ]


def test_results_that_are_no_text(folder: Path) -> None:
    assert call(folder, "nothing", {}) == ["(no result)"]
    (text,) = call(folder, "odd", {})
    assert text.startswith("error: calc.py:odd: the function returned a value that JSON cannot")
    assert [len(text) for text in call(folder, "big", {})] == [3_000_000]


def test_an_error_has_its_text_and_its_place(folder: Path) -> None:
    line = CODE.splitlines().index('    raise ValueError(f"bad {x}")') + 1
    place = f"({folder / 'calc.py'}:{line})"
    assert call(folder, "fail", {"x": 1}, {"x": 2}) == [
        f"error: calc.py:fail: ValueError: bad 1 {place}",
        f"error: calc.py:fail: ValueError: bad 2 {place}",
    ]
    (left,) = call(folder, "leave", {})
    assert left.startswith("error: calc.py:leave: SystemExit: 3")


def test_a_function_that_ends_its_process_is_called_in_another(folder: Path) -> None:
    problem = "its Python process failed with exit code 4 before it answered"
    assert call(folder, "die", {}, {}) == [f"error: calc.py:die: {problem}"] * 2


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("broken.py:f", "broken.py:f: SyntaxError: '(' was never closed ("),
        ("calc.py:none", "calc.py:none: there is no function none in calc.py"),
        ("calc.py:unknown", "calc.py:unknown: no schema can be made of its signature: NameError: "),
    ],
)
def test_a_function_that_is_no_tool_is_explained(folder: Path, target: str, problem: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        describe(folder, target)
    assert str(failure.value).startswith(problem)


def test_calls_side_by_side_have_processes_of_their_own_and_later_ones_reuse_them(
    folder: Path,
) -> None:
    async def run() -> None:
        made = pool(folder, "calc.py:pid")
        try:
            first = await asyncio.gather(*(made.call({}) for _ in range(3)))
            second = await asyncio.gather(*(made.call({}) for _ in range(3)))
        finally:
            await made.stop()
        assert len(set(first)) == 3
        assert set(second) == set(first)
        assert not any(runs(int(pid)) for pid in first)

    asyncio.run(run())
    assert call(folder, "wait", {"seconds": 0.01}) == ["waited"]


def test_a_call_that_is_cancelled_ends_its_process(folder: Path) -> None:
    async def run() -> None:
        made = pool(folder, "calc.py:hang")
        path = folder / "pid"
        task = asyncio.create_task(made.call({"path": str(path)}))
        (pid,) = await pids_in(path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not runs(pid)
        await made.stop()

    asyncio.run(run())
