"""The work of one attempt at a step: programs, functions, requests, SQL and containers.

All that a step starts is ended when it ends, when its time is over, or when it is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from arena_cli.adapters import http
from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.process import diagnosis, run, spawn
from arena_cli.adapters.process.spawn import Program
from arena_cli.errors import AgentError
from arena_cli.flows import sql_worker
from arena_cli.flows.model import ContainerCall, HttpCall, SqlCall, StepSpec
from arena_cli.session import store
from arena_cli.tools.base import ToolFailed
from arena_cli.tools.functions import FunctionPool
from arena_cli.util import files
from arena_cli.util.text import decode_output, strip_ansi

MOST_BYTES = 1_000_000
"""The size of an output, which the transcript keeps."""

RUNTIMES = ("docker", "podman")

MEMORY = ":memory:"
"""The `database` of statements that keep nothing."""

_GRACE_S = 1.0
_SHOWN = 400
_RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class StepFailed(Exception):
    """An attempt failed; `code` is the class of the error, `output` what there is of an output.

    After an attempt that `is_final` there is no other one: it is the last of a recording.
    """

    def __init__(
        self,
        problem: str,
        code: str,
        *,
        retryable: bool = False,
        output: Any = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(problem)
        self.is_final = is_final
        self.code = code
        self.retryable = retryable
        self.output = output


class Work:
    """The work of steps that is not that of agents, in a workspace; `stop` ends what is kept."""

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._root = config.workspace
        self._records = store.process_records_folder(config.workspace)
        self._pools: dict[str, FunctionPool] = {}

    async def stop(self) -> None:
        """End the processes of functions."""
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))

    async def run(self, spec: StepSpec) -> Any:
        """Carry out an attempt at a step whose placeholders are filled; return its output.

        Raises StepFailed.
        """
        match spec.kind:
            case "python":
                return await self._call_function(str(spec.python), spec.inputs)
            case "shell":
                return await self._run_program(spec)
            case "http":
                assert spec.http is not None
                return await self._request(spec.http)
            case "sql":
                assert spec.sql is not None
                return await self._run_sql(spec.sql)
        assert spec.container is not None
        return await self._run_container(spec.container, spec.stdin)

    async def _call_function(self, target: str, inputs: Mapping[str, Any]) -> Any:
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = FunctionPool(
                target, self._root, self._config.environ, self._records, "flow"
            )
        try:
            return await pool.call_typed(inputs)
        except ToolFailed as error:
            raise StepFailed(str(error), "python", retryable=True) from error

    async def _run_program(self, spec: StepSpec) -> Any:
        words = spec.shell or []
        cwd = self._place(spec.cwd or ".")
        environ = run.build_environment(self._config.environ, spec.env)
        program = run.find_program(words[0], workspace=self._root, environ=environ)
        if program is None:
            problem, hint = run.explain_missing(
                words[0], workspace=self._root, key="shell", cwd=spec.cwd or "."
            )
            raise StepFailed(f"{problem}; {hint}", "unavailable")
        if any(run.holds_commands(program, word) for word in words[1:]):
            problem = f"{program.name} is a batch file, in which an argument here runs commands"
            raise StepFailed(problem, "refused")
        return await self._finish([str(program), *words[1:]], cwd, environ, spec.stdin)

    def _place(self, name: str) -> Path:
        path = self._root / name
        if not files.is_inside(path, self._root):
            raise StepFailed(f"`{name}` is not in the workspace", "refused")
        return path

    async def _finish(
        self, argv: Sequence[str], cwd: Path, environ: Mapping[str, str], stdin: str | None
    ) -> dict[str, Any]:
        """Run a program; return its output. Raises StepFailed if it fails."""
        code, stdout, stderr = await self._execute(argv, cwd, environ, (stdin or "").encode())
        output: dict[str, Any] = {"code": code, "stdout": stdout, "stderr": stderr}
        if stdout.lstrip()[:1] in ("{", "["):
            try:
                output["json"] = json.loads(stdout)
            except (ValueError, RecursionError):
                output.pop("json", None)
        if code:
            name = Path(argv[0]).name
            detail = _last_line(stderr) or _last_line(stdout)
            problem = f"{name} {run.describe_exit(code)}{f': {detail}' if detail else ''}"
            raise StepFailed(problem, "exit_code", retryable=True, output=output)
        return output

    async def _execute(
        self, argv: Sequence[str], cwd: Path, environ: Mapping[str, str], stdin: bytes
    ) -> tuple[int, str, str]:
        """Run a program to its end; return its exit code and outputs. Raises StepFailed."""
        program = Program(argv, cwd, environ, self._records, "flow")
        try:
            process = await spawn.start_process(program)
        except (OSError, ValueError) as error:
            raise StepFailed(f"{argv[0]} could not be started: {error}", "unavailable") from error
        outputs = {"stdout": bytearray(), "stderr": bytearray()}
        is_open = {"stdout", "stderr"}
        grace: float | None = None
        try:
            process.write(stdin)
            while is_open or process.returncode is None:
                event = await process.event(grace)
                if event is None:
                    break  # a process that it left behind holds its output open
                if event.source == "exit":
                    grace = _GRACE_S
                elif not event.data:
                    is_open.discard(event.source)
                else:
                    outputs[event.source] += event.data
                    if len(outputs[event.source]) > MOST_BYTES:
                        problem = f"it wrote more than {MOST_BYTES // 1_000_000} MB; use a file"
                        raise StepFailed(problem, "too_large")
        finally:
            await process.end()
        texts = [strip_ansi(decode_output(bytes(data))[0]) for data in outputs.values()]
        code = process.returncode
        return (1 if code is None else code), texts[0], texts[1]

    async def _request(self, call: HttpCall) -> dict[str, Any]:
        library = import_module("httpx")
        content, headers = None, dict(call.headers)
        if isinstance(call.body, str):
            content = call.body.encode()
        elif call.body is not None:
            content = json.dumps(call.body, ensure_ascii=False).encode()
            if not any(name.lower() == "content-type" for name in headers):
                headers["Content-Type"] = "application/json"
        shown = http.without_login(call.url)
        try:
            client = http.client(library, HttpRequest("flow", call.url), call.url, headers)
            async with (
                client,
                client.stream(call.method, call.url, content=content) as response,
            ):
                data = bytearray()
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > MOST_BYTES:
                        problem = f"{shown} answered more than {MOST_BYTES // 1_000_000} MB"
                        raise StepFailed(problem, "too_large")
        except AgentError as error:
            raise StepFailed(error.what, "unavailable") from error
        except (library.InvalidURL, library.UnsupportedProtocol, UnicodeError) as error:
            raise StepFailed(f"{shown} is no URL: {error}", "usage") from error
        except library.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise StepFailed(f"{shown}: {reason}", "unavailable", retryable=True) from error
        return _read_response(call, shown, response, bytes(data))

    async def _run_sql(self, call: SqlCall) -> Any:
        statements = [
            [entry, None] if isinstance(entry, str) else [entry.statement, entry.values]
            for entry in call.run
        ]
        request: dict[str, Any] = {"run": statements}
        if call.dsn is not None:
            request["dsn"] = call.dsn
        else:
            is_kept = call.database != MEMORY
            request["database"] = str(self._place(str(call.database))) if is_kept else MEMORY
        argv = [sys.executable, "-I", str(Path(sql_worker.__file__).resolve())]
        data = json.dumps(request).encode()
        code, stdout, stderr = await self._execute(argv, self._root, self._config.environ, data)
        if code:
            raise StepFailed(f"the SQL process failed: {_last_line(stderr)}", "sql")
        answer = json.loads(stdout)
        if "error" in answer:
            raise StepFailed(answer["error"], answer["code"], retryable=answer["retryable"])
        return answer

    async def _run_container(self, call: ContainerCall, stdin: str | None) -> Any:
        environ = run.build_environment(self._config.environ, {})
        found = [
            path
            for name in RUNTIMES
            if (path := run.find_program(name, workspace=self._root, environ=environ))
        ]
        if not found:
            problem = "a `container` step needs docker or podman, and neither is on PATH"
            raise StepFailed(problem, "unavailable")
        runtime = str(found[0])
        name = f"arena-{self._config.clock.token(12)}"
        words = [runtime, "run", "--rm", "--name", name, *(["-i"] if stdin else [])]
        words += ["--network", call.network] if call.network else []
        for key, value in call.env.items():
            words += ["--env", f"{key}={value}"]
        words += [call.image, *call.words]
        is_over = False
        try:
            output = await self._finish(words, self._root, environ, stdin)
            is_over = True
            return output
        except StepFailed as error:
            is_over = error.code == "exit_code"
            raise
        finally:
            if not is_over:  # the client has ended, its container may not have
                await asyncio.shield(self._remove(runtime, name, environ))

    async def _remove(self, runtime: str, name: str, environ: Mapping[str, str]) -> None:
        try:
            await self._execute([runtime, "rm", "--force", name], self._root, environ, b"")
        except StepFailed:
            return


def _read_response(call: HttpCall, shown: str, response: Any, data: bytes) -> dict[str, Any]:
    text = data.decode(response.charset_encoding or "utf-8", "replace")
    body: Any = text
    if "json" in response.headers.get("content-type", ""):
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = text
    output = {"status": response.status_code, "headers": dict(response.headers), "body": body}
    if not call.accepts(response.status_code):
        detail = " ".join(text.split())[:_SHOWN]
        problem = f"{call.method} {shown} answered {response.status_code}"
        is_retryable = response.status_code in _RETRYABLE_STATUS
        raise StepFailed(
            f"{problem}: {detail}" if detail else problem,
            "http_status",
            retryable=is_retryable,
            output=output,
        )
    return output


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return diagnosis.drop_usage_hints(lines)[-1][:_SHOWN] if lines else ""
