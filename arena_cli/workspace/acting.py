"""The settings of agents that act: inputs, output, tools, limits (docs/guides/tools.md)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from arena_cli.yamlio.shapes import FileShape, omit_default

InputType = Literal["string", "number", "integer", "boolean", "string[]", "number[]"]


class InputSpec(FileShape):
    """An input of an agent, which its `role_prompt` and `query` name as `${name}`.

    One without a `default` is required, unless it says `required: false`.
    """

    type: InputType = "string"
    description: str = ""
    required: bool | None = None
    default: Any = None


class OutputSpec(FileShape):
    """The result that an agent hands in: `name`, and the JSON `schema` of its value.

    `process` is a function of the user (`file.py:function`) that turns the value into the text of
    the message.
    """

    name: str = "result"
    description: str = ""
    schema_: Any = Field(default=None, alias="schema")
    process: str | None = None


class McpServer(FileShape):
    """An MCP server: a program (`command`, with `env` and `cwd`), or a `url` with `headers`.

    `${env:NAME}` is filled when it starts. A call may last `timeout_s` seconds.
    """

    command: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    timeout_s: float = Field(default=60, gt=0)

    @model_validator(mode="after")
    def _is_one(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("name either `command` or `url`")
        if self.url and not self.url.startswith(("http://", "https://", "${env:")):
            raise ValueError("`url` must begin with http:// or https://")
        return self


class RunLimits(FileShape):
    """The limits of a reply with tools.

    After `max_turns` turns of the model, or `max_minutes`, the agent has one last turn of at most
    `grace_s` seconds to finish. `max_parallel_tools` calls run at once. With `shell`, `run_command`
    also takes a text for the shell.
    """

    max_turns: int = Field(default=15, ge=1)
    max_minutes: float = Field(default=5, gt=0)
    grace_s: float = Field(default=60, gt=0)
    max_parallel_tools: int = Field(default=8, ge=1)
    shell: bool = omit_default(False)


class InlineTool(FileShape):
    """A tool that is declared in the profile: a function of the user, with its own schema."""

    name: str = Field(min_length=1)
    description: str = ""
    schema_: dict[str, Any] = Field(alias="schema")
    python: str = Field(min_length=1)
    idempotent: bool = False


class Example(FileShape):
    """A turn of an example conversation before the first message; exactly one of the two."""

    user: str = ""
    agent: str = ""

    @model_validator(mode="after")
    def _is_one(self) -> Example:
        if bool(self.user) == bool(self.agent):
            raise ValueError("name either `user` or `agent`")
        return self
