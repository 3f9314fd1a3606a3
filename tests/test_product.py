"""Tests know the product's modules through `product.py` alone, where a moved module is renamed."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def list_imports(path: Path) -> list[str]:
    """Return the modules that a file that names the package imports at its top level."""
    modules: list[str] = []
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body if "arena_cli" in text else ():
        if isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return modules


def test_no_other_test_file_imports_the_package() -> None:
    files = [*TESTS.glob("*.py"), *(TESTS / "cases").glob("*.py")]
    direct = {
        path.name
        for path in files
        for module in list_imports(path)
        if module.partition(".")[0] == "arena_cli"
    }
    assert direct == {"product.py"}
