"""What needs no approval is matched against the whole command or path, never a part of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import Approvals, act_patterns


@pytest.mark.parametrize(
    ("pattern", "command", "matches"),
    [
        ("git status", "git status", True),
        ("git status", " git   'status'", True),
        ("git status", "git status -s", False),
        ("pytest *", "pytest", True),
        ("pytest *", "pytest -k 'a; b' tests", True),
        ("pytest *", "pytest; rm -rf x", False),
        ("pytest *", "pytest $(rm x)", False),
        ("pytest *", 'pytest "`rm x`"', False),
        ("pytest *", "pytest '$(not run)'", True),
        ("pytest *", "pytest\nrm x", False),
        ("pytest *", "pytest > file", False),
        ("pytest *", "pytests", False),
        ("pytest *", "X=1 pytest", False),
        ("git * --dry-run", "git push -f --dry-run", True),
        ("git * --dry-run", "git push -f", False),
        ("cat docs/*", "cat docs/a.md", True),
        ("cat docs/*", "cat docs/../secret", False),
        ("cat docs/*", "cat docs/a.md secret", False),
    ],
)
def test_a_pattern_is_matched_against_the_whole_command(
    pattern: str, command: str, matches: bool
) -> None:
    assert act_patterns.matches_command(pattern, command) is matches
    policy = Approvals(allow=[pattern]).decide("execute_command", command)[0]
    assert policy == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("docs/*", "docs/a.md", True),
        ("docs/*", "./docs//a.md", True),
        ("docs/*", "docs/deep/a.md", False),
        ("docs/**", "docs/deep/a.md", True),
        ("src/**/*.py", "src/a.py", True),
        ("docs/*", "docs/../a.md", False),
        ("docs/**", "docs/../../etc/passwd", False),
        ("**", "../a", False),
        ("docs/*", "/docs/a.md", False),
        ("README.md", "README.md", True),
        ("app/(group)/*", "app/(group)/page.tsx", True),
        ("**", "2 files: a, b", False),
    ],
)
def test_a_pattern_is_matched_against_the_whole_path(
    pattern: str, path: str, matches: bool
) -> None:
    policy = Approvals(allow=[pattern]).decide("modify_file", path)[0]
    assert policy == ("allow" if matches else "ask")


def test_the_four_names_ask_and_all_others_are_denied_by_default() -> None:
    rules = Approvals()
    for action in ("execute_command", "modify_file", "external_api_call", "deploy"):
        assert rules.decide(action, "x") == ("ask", f"approvals.{action}: ask")
    assert rules.decide("publish", "x") == ("deny", "approvals.default: deny")
    own = Approvals.model_validate({"publish": "ask", "default": "allow"})
    assert own.decide("publish", "x") == ("ask", "approvals.publish: ask")
    assert own.decide("allow", "x")[0] == "allow"  # the name of a setting is no name of an action


FRAGMENTS = (
    *("pytest", " ", "a", "-k", "'", '"', "\\", ";", "|", "&", "&&", "||", "\n", "\t", "é", "!"),
    *(
        "$(touch x)",
        "`touch x`",
        "${y}",
        "$y",
        ">x",
        "<x",
        "(",
        ")",
        ">(touch x)",
        "touch x",
        "=",
        ",",
    ),
)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash to compare with")
@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8))
def test_what_matches_is_for_a_shell_one_program_with_these_words(fragments: list[str]) -> None:
    command = "pytest " + "".join(fragments)
    if not act_patterns.matches_command("pytest *", command):
        return
    script = f"pytest() {{ printf '%s\\0' pytest \"$@\"; }}\n{command}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=False)
        assert list(Path(folder).iterdir()) == []
    words = done.stdout.decode().split("\0")[:-1]
    assert (words, done.stderr) == (act_patterns.split_command(command), b"")
