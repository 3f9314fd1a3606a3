"""The shapes of a flow file (docs/guides/workflows.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from arena_cli.workspace.acting import InputSpec
from arena_cli.workspace.control import RuleEntry, StepKind
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape, omit_default

BlockKind = Literal["group", "each", "repeat", "choose", "flow"]
LEAF_KINDS: tuple[StepKind, ...] = get_args(StepKind)
KINDS: tuple[str, ...] = (*LEAF_KINDS, *get_args(BlockKind))

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

OnFailure = Literal["retry", "skip", "abort"]

_PYTHON = ["python3", "-c"]

RETRIES = 3
TIMEOUT_S = 600.0
"""The time limit of a step that is neither an agent's nor has steps of its own."""


class HttpCall(FileShape):
    """A request; without `expect`, every status of 2xx is a success."""

    method: str = Field(default="GET", pattern="^[A-Z]+$")
    url: str
    headers: dict[str, str] = {}
    body: Any = None
    expect: int | list[int] | None = None

    def accepts(self, status: int) -> bool:
        """Return True if the step succeeds with this status."""
        if self.expect is None:
            return 200 <= status < 300
        return status in ([self.expect] if isinstance(self.expect, int) else self.expect)


class SqlStatement(FileShape):
    """A statement with its values for `:name`; a list of values repeats it for each."""

    statement: str
    values: Any = None


class SqlCall(FileShape):
    """Statements in one transaction, on a SQLite file (`database`) or another one (`dsn`)."""

    database: str | None = None
    dsn: str | None = None
    run: list[str | SqlStatement] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_one(self) -> SqlCall:
        if (self.database is None) == (self.dsn is None):
            raise ValueError("name either `database` or `dsn`")
        return self


class ContainerCall(FileShape):
    """A command in a container of its own, which docker or podman runs and removes.

    `code` is the last argument of the command: a program, in Python unless `command` says else.
    """

    image: str
    command: list[str] = []
    code: str | None = omit_default(min_length=1)
    env: dict[str, str] = {}
    network: str | None = None

    @property
    def words(self) -> list[str]:
        """The program that runs in the container, with its arguments."""
        return self.command if self.code is None else [*(self.command or _PYTHON), self.code]


class Repeat(FileShape):
    """When a `repeat` ends: `until` is true after a round, or after `max` rounds it fails."""

    until: str
    max: int = Field(gt=0, le=10_000)
    delay_s: float = Field(default=0, ge=0)


class Branch(FileShape):
    """One of the branches of a `choose`; the first whose `when` is true is taken."""

    when: str | None = None
    steps: list[StepSpec] = Field(min_length=1)


class Reflect(FileShape):
    """The agent that looks at a finished flow, and how often it may have failed steps run again."""

    agent: str
    max_reflections: int = Field(default=1, ge=0, le=10)


class StepSpec(FileShape):
    """A step: one kind of work, the steps that it `needs`, and what happens if it fails."""

    id: str = Field(max_length=64)
    needs: list[str] = []
    when: str | None = None
    on_failure: OnFailure = "retry"
    retries: int | None = Field(default=None, ge=0, le=100)
    retry_delay_s: float = Field(default=1, ge=0)
    timeout_s: float | None = Field(default=None, gt=0)

    send: str | None = None
    team: str | None = None
    to: list[str] = []
    agent: str | None = None
    message: str | None = None
    python: str | None = None
    inputs: dict[str, Any] = {}
    shell: list[str] | None = Field(default=None, min_length=1)
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    http: HttpCall | None = None
    sql: SqlCall | None = None
    container: ContainerCall | None = None
    group: list[StepSpec] | None = Field(default=None, min_length=1)
    each: Any = None
    parallel: int = Field(default=1, gt=0, le=1000)
    repeat: Repeat | None = None
    choose: list[Branch] | None = Field(default=None, min_length=1)
    flow: str | None = None
    steps: list[StepSpec] = []

    @field_validator("id")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("may have letters a to z, digits and `_` only, and no digit first")
        return value

    @field_validator("python")
    @classmethod
    def _is_function(cls, value: str | None) -> str | None:
        file, _, name = (value or "").rpartition(":")
        if value is not None and not (file and _NAME.fullmatch(name)):
            raise ValueError("must be FILE.py:FUNCTION")
        return value

    @field_validator("shell", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        if isinstance(value, str) and value.strip():
            words = json.dumps(value.split(), ensure_ascii=False)
            raise ValueError(f"must be a list of words: {words}")
        return value

    @model_validator(mode="after")
    def _is_one(self) -> StepSpec:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            which = " and ".join(f"`{kind}`" for kind in kinds)
            problem = f"{which} are two kinds of steps" if kinds else "the step does nothing"
            raise ValueError(f"{problem}; give it one of {', '.join(KINDS)}")
        for key, owners in _OWNERS.items():
            if key in self.model_fields_set and kinds[0] not in owners:
                raise ValueError(f"`{key}` belongs to {' and '.join(owners)}")
        if kinds[0] in ("each", "repeat") and not self.steps:
            raise ValueError(f"`{kinds[0]}` needs `steps`")
        return self

    @property
    def kind(self) -> str:
        """The kind of work."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def most_attempts(self) -> int:
        """The number of attempts at most."""
        default = RETRIES if self.on_failure == "retry" and self.kind in LEAF_KINDS else 0
        return 1 + (default if self.retries is None else self.retries)

    @property
    def time_limit(self) -> float | None:
        """The time limit of an attempt, in seconds; None without one."""
        has_own = self.kind in ("send", "agent") or self.kind not in LEAF_KINDS
        return self.timeout_s or (None if has_own else TIMEOUT_S)

    def list_blocks(self) -> Iterator[tuple[Loc, list[StepSpec]]]:
        """Yield the lists of steps within it, with their places in the step."""
        if self.group is not None:
            yield ("group",), self.group
        if self.steps:
            yield ("steps",), self.steps
        for index, branch in enumerate(self.choose or ()):
            yield ("choose", index, "steps"), branch.steps


_OWNERS: Mapping[str, tuple[str, ...]] = {
    "team": ("send",),
    "to": ("send",),
    "message": ("agent",),
    "inputs": ("agent", "python", "flow"),
    "cwd": ("shell",),
    "env": ("shell",),
    "stdin": ("shell", "container"),
    "parallel": ("each",),
    "steps": ("each", "repeat"),
}


class FlowFile(FileShape):
    """A flow: its title, its inputs, and its steps; at most `parallel` of them run at once.

    `rules` are those on its steps, and on those of the flows that it names.
    """

    flow: str = Field(min_length=1)
    description: str = ""
    inputs: dict[str, InputSpec] = {}
    parallel: int = Field(default=16, gt=0, le=1000)
    rules: list[RuleEntry] = []
    steps: list[StepSpec] = Field(min_length=1)
    reflect: Reflect | None = None
