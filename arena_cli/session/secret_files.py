"""Recognise files that hold secrets by their name or content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from arena_cli.errors import UsageError
from arena_cli.util.text import escape_line

_ENV_FILES = (".env", ".env.*", "*.env", ".envrc")
_KEY_FILES = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"),
    *(".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials"),
    *("credentials.json", "credentials.yaml", "credentials.yml", "credentials.toml"),
)
# What is written to be read by all: `.env.example`.
_EXAMPLES = ("*.example", "*.sample", "*.template", "*.dist")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|^PuTTY-User-Key-File")
_LOOKED_AT = 1 << 20  # bytes of a file


def refuse(paths: Iterable[Path], option: str) -> None:
    """Raise UsageError for the first of the files that seems to hold secrets."""
    for path in paths:
        reason = _reason(path)
        if reason:
            raise UsageError(
                f"{option} {escape_line(str(path))}: {reason}; every agent that is "
                "called would read it",
                "`--force` sends it anyway",
            )


def _reason(path: Path) -> str:
    for name in (path.name, Path(os.path.realpath(path)).name):
        if reason := reason_of_name(name):
            return reason
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            holds_key = _PRIVATE_KEY.search(file.read(_LOOKED_AT)) is not None
    except OSError:
        return ""  # whoever reads it reports that
    return "it contains a private key" if holds_key else ""


def reason_of_name(name: str) -> str:
    """Return why a file of that name is assumed to hold secrets; empty if it is not."""
    name = name.casefold()
    if _is_any(name, _EXAMPLES):
        return ""
    if _is_any(name, _ENV_FILES):
        return "this is a file of environment variables"
    return "this is a file of keys or passwords" if _is_any(name, _KEY_FILES) else ""


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
