"""Remember which workspaces this user trusts: a small file each, outside the workspace."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from arena_cli.adapters.contacts import Contact
from arena_cli.errors import DiskRefused, UsageError

CONFIG_HOME = "ARENA_CONFIG_HOME"

_FOLDER = "trust"


class TrustRecord(NamedTuple):
    """A trusted workspace: its folder, and the variables that may go to each contact, by key."""

    workspace: str
    contacts: dict[str, list[str]]


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the user's folder for arena's settings; it may not exist. Raises UsageError."""
    folder = environ.get(CONFIG_HOME)
    if folder:
        return Path(folder).absolute()
    base = environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "arena"
    try:
        return Path.home() / ".config" / "arena"
    except RuntimeError as error:
        message = "there is no home folder to keep the trust in"
        raise UsageError(message, f"set HOME, or {CONFIG_HOME}") from error


def load(workspace: Path, environ: Mapping[str, str]) -> TrustRecord:
    """Return the trust record of a workspace; empty if the user never trusted it.

    A file that cannot be read is an error (UsageError), so that nothing is trusted by accident.
    """
    folder = _normal(workspace)
    path = _path(folder, environ)
    try:
        record = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return TrustRecord(folder, {})
    # Another folder's file under this name is no consent to this one.
    return record if record.workspace == folder else TrustRecord(folder, {})


def add(workspace: Path, contacts: Iterable[Contact], environ: Mapping[str, str]) -> None:
    """Trust a workspace with these contacts, in addition to the known ones.

    Raises UsageError if the file is broken, DiskRefused if it cannot be written.
    """
    record = load(workspace, environ)
    merged = {key: set(names) for key, names in record.contacts.items()}
    for contact in contacts:
        merged.setdefault(contact.key, set()).update(contact.variables)
    data = {
        "version": 1,
        "workspace": record.workspace,
        "contacts": {key: sorted(names) for key, names in sorted(merged.items())},
    }
    path = _path(record.workspace, environ)
    text = json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise DiskRefused(
            message, f"free disk space or fix the permissions there, or set {CONFIG_HOME}"
        ) from error


def revoke(workspace: Path, environ: Mapping[str, str]) -> bool:
    """Revoke the trust in a workspace; return whether it was trusted. Raises DiskRefused."""
    path = _path(_normal(workspace), environ)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DiskRefused(f"{path} cannot be removed: {error.strerror or error}") from error
    return True


def everything(environ: Mapping[str, str]) -> list[TrustRecord]:
    """Return every trusted workspace, by folder. Raises UsageError for a broken file."""
    records = []
    for path in sorted((config_home(environ) / _FOLDER).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            records.append(_read(path))
    return sorted(records)


def _normal(workspace: Path) -> str:
    return os.path.normcase(workspace.resolve())


def _path(folder: str, environ: Mapping[str, str]) -> Path:
    name = hashlib.sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return config_home(environ) / _FOLDER / f"{name}.json"


def _read(path: Path) -> TrustRecord:
    """Return the record in a file. Raises FileNotFoundError, and UsageError if it is invalid."""
    try:
        data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        contacts = {
            str(key): [str(name) for name in data["contacts"][key]] for key in data["contacts"]
        }
        return TrustRecord(str(data["workspace"]), contacts)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a record of arena"
        message = f"{path} cannot be read: {reason}"
        raise UsageError(message, "remove it, then run `arena trust` in the workspace") from error


def _replace(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, completely or not at all. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
