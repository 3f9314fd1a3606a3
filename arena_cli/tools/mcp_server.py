"""Run MCP servers: each is started when it is first needed, shared, and ended for real."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena_cli.adapters.base import SessionConfig
from arena_cli.adapters.process import cleanup, diagnosis, run, spawn
from arena_cli.adapters.process.output import OtherOutput
from arena_cli.adapters.process.spawn import Process, Program
from arena_cli.errors import AgentError, AgentUnavailable
from arena_cli.protocol import StatusEvent, ToolSpec
from arena_cli.tools.base import SessionLost, ToolFailed, ToolOutput, ToolScope
from arena_cli.util import process_signals
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, cut_text
from arena_cli.workspace import agents
from arena_cli.workspace.acting import McpServer
from arena_cli.workspace.models import AgentProfile

if TYPE_CHECKING:
    from arena_cli.tools.mcp_client import Connection

START_LIMIT_S = 20.0
"""The longest time until a server has answered with its tools."""

_STOP_GRACE_S = 0.5
_CLOSE_LIMIT_S = 5.0
_DIED_GRACE_S = 1.0
_MOST_DEATHS = 2
_MOST_PROGRESS = 100
_LONGEST_REASON = 300
_MOST_LINES = 3
_LOGIN = (401, 403)


class Host(NamedTuple):
    """The session that runs servers: its folder, variables, and the records of its programs.

    `redact` hides secrets in a text.
    """

    workspace: Path
    records: Path
    environ: Mapping[str, str]
    redact: Callable[[str], str]


class SharedServer:
    """A server of a session, shared by the replies of all agents that name it the same way.

    A server that has ended is started again at the next call; one that ends twice without an answer
    is not. `version` counts the changes of its list of tools. `root` is the folder that it may ask
    for.
    """

    def __init__(
        self, name: str, settings: McpServer, host: Host, *, agent: str, root: Path
    ) -> None:
        self.name = name
        self.version = 0
        self._settings = settings
        self._host = host
        self._agent = agent
        self._root = root
        self._link: _Link | None = None
        self._starting: _Link | None = None
        self._lock = asyncio.Lock()
        self._deaths = 0
        self._wrote = ""
        self._has_told_noise = False
        self._specs: tuple[int, list[ToolSpec]] | None = None

    async def list_tools(self) -> list[ToolSpec]:
        """Return its tools, and start it if it does not run. Raises AgentUnavailable."""
        if self._specs is not None and self._specs[0] == self.version:
            return self._specs[1]
        version = self.version
        try:
            async with asyncio.timeout(START_LIMIT_S):
                link = await self._open()
                specs = await link.connection.list_tools()
        except TimeoutError as error:
            raise await self._fail_to_start(
                f"it did not answer within {START_LIMIT_S:g} s"
            ) from error
        except (ToolFailed, ConnectionError) as error:
            raise await self._fail_to_start(f"it lists no tools: {error}") from error
        self._specs = (version, specs)
        return specs

    async def call(self, tool: str, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Call a tool. Raises ToolFailed."""
        try:
            try:
                return await self._call(tool, arguments, scope)
            except SessionLost:
                await self._close()  # it was restarted meanwhile
                return await self._call(tool, arguments, scope)
        except ConnectionError as error:
            raise await self._die() from error

    async def _call(self, tool: str, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(START_LIMIT_S):
                link = await self._open()
        except TimeoutError as error:
            raise ToolFailed(f"the MCP server {self.name} did not start in time") from error
        except AgentError as error:
            reasons = filter(None, (error.what, error.came, error.mend))
            raise ToolFailed("; ".join(reasons)) from error
        self._tell_noise(link, scope)
        progress = _CallProgress(f"{self.name}.{tool}", scope)
        try:
            async with asyncio.timeout(limit_s) as timeout:
                output = await link.connection.call_tool(tool, arguments, progress)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            problem = f"{self.name}.{tool} did not answer within {limit_s:g} s"
            raise ToolFailed(problem, "timeout") from error
        self._deaths = 0
        return output

    @property
    def noise(self) -> str:
        """The last text on its stdout that was no message, "" if there was none."""
        return self._host.redact(self._link.quote_noise()) if self._link else ""

    def _tell_noise(self, link: _Link, scope: ToolScope) -> None:
        """Report once that it writes text to its stdout, where only messages belong."""
        if link.other.log.text and not self._has_told_noise:
            self._has_told_noise = True
            detail = f"the MCP server {self.name} wrote text to stdout, skipped: {self.noise}"
            scope.report(StatusEvent(status="waiting", detail=detail))

    async def stop(self) -> None:
        """End it with all processes that it started, also while it is being started."""
        if self._starting is not None:
            await self._starting.stop()
        async with self._lock:
            await self._close()

    async def _open(self) -> _Link:
        """Return the running server, started if it does not run. Raises AgentUnavailable."""
        async with self._lock:
            if self._link is not None and self._link.is_open:
                return self._link
            if self._link is not None:
                await self._close()
                self._deaths += 1
            if self._deaths >= _MOST_DEATHS:
                problem = "it has ended twice without an answer, and is not started again"
                raise self._unavailable(problem, self._suggest())
            link = _Link(self._fill(), self._host, self._root, self._count_change)
            self._starting = link
            try:
                await link.start(self._make_program)
            except BaseException as error:
                await link.stop()
                self._wrote = link.quote()
                if isinstance(error, AgentError) or not isinstance(error, Exception):
                    raise
                raise self._explain(link, error) from error
            finally:
                self._starting = None
            self._link = link
            return link

    async def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.stop()

    def _count_change(self) -> None:
        self.version += 1

    def _fill(self) -> McpServer:
        """Return the settings with each `${env:NAME}` filled. Raises AgentUnavailable."""
        filled, _ = agents.fill_settings(
            self._settings.model_dump(),
            self._host.environ,
            agent_id=self._agent,
            place=f"mcp.{self.name}",
        )
        return McpServer.model_validate(filled)

    def _make_program(self, settings: McpServer) -> Program:
        """Return the program of the server. Raises AgentUnavailable if it is not there."""
        host, cwd = self._host, settings.cwd or "."
        try:
            program = run.locate_program(
                settings.command[0],
                cwd,
                agent_id=self._agent,
                workspace=host.workspace,
                environ=host.environ,
                key=f"mcp.{self.name}.command",
            )
        except AgentUnavailable as error:
            raise self._unavailable(error.what, error.mend) from error
        return Program(
            argv=[str(program), *settings.command[1:]],
            cwd=run.prepare_folder(host.workspace, cwd).resolve(),
            environ=run.build_environment(host.environ, settings.env),
            records=host.records,
            agent=self._agent,
        )

    # Errors.

    def _unavailable(
        self, problem: str, mend: str = "", output: str = "", *, again: bool = False
    ) -> AgentUnavailable:
        redact = self._host.redact
        return AgentUnavailable(
            self._agent,
            redact(f"the MCP server {self.name} is not available: {problem}"),
            came=redact(output),
            mend=redact(mend),
            again=again,
        )

    async def _fail_to_start(self, problem: str) -> AgentUnavailable:
        """End a server that does not work; return why, with what it wrote."""
        output = self._link.quote() if self._link else self._wrote
        async with self._lock:
            await self._close()
        return self._unavailable(problem, self._suggest(), output)

    def _suggest(self) -> str:
        if self._settings.url:
            return "check its `url`: it must be that of the streamable HTTP endpoint"
        return f"run `mcp.{self.name}.command` by hand"

    def _explain(self, link: _Link, error: Exception) -> AgentUnavailable:
        """Return why a server did not start."""
        if isinstance(error, ImportError):
            mend = process_signals.describe_install("mcp")
            return self._unavailable("the library of the protocol is missing", mend)
        if link.status in _LOGIN:
            return self._unavailable(
                f"it asks for a login (HTTP {link.status})",
                'give it a token: `headers: {Authorization: "Bearer ${env:NAME}"}`',
            )
        if self._settings.url:
            status = f"HTTP {link.status}" if link.status >= 400 else str(error)
            address = self._settings.url.partition("?")[0].rpartition("@")[2]
            problem = f"{address} does not answer as one: {status}"
            return self._unavailable(problem, self._suggest(), again=True)
        reason = link.describe_end() or f"{type(error).__name__}: {error}"
        return self._unavailable(cut_text(reason, _LONGEST_REASON), self._suggest(), link.quote())

    async def _die(self) -> ToolFailed:
        """Return the error of a call during which the server ended."""
        link = self._link
        reason = ""
        if link is not None:
            await link.wait_until_over()
            reason = ": ".join(filter(None, (link.describe_end(), link.quote())))
        again = "the next call starts it again" if self._deaths + 1 < _MOST_DEATHS else ""
        problem = f"the MCP server {self.name} {reason or 'closed the connection'}"
        return ToolFailed("; ".join(filter(None, (problem, again))))


class ServerPool:
    """The servers of a session; each is started once for all that describe it the same way."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._servers: dict[str, SharedServer] = {}

    def list_servers(
        self, profile: AgentProfile, settings: Mapping[str, McpServer]
    ) -> dict[str, SharedServer]:
        """Return servers of an agent by name; none is started."""
        root = (self._host.workspace / (profile.workdir or ".")).resolve()
        servers = {}
        for name, server_settings in settings.items():
            key = json.dumps([server_settings.model_dump(), str(root)], sort_keys=True)
            if key not in self._servers:
                self._servers[key] = SharedServer(
                    name, server_settings, self._host, agent=profile.agent_id, root=root
                )
            servers[name] = self._servers[key]
        return servers

    async def stop(self) -> None:
        """End all servers."""
        await asyncio.gather(*(server.stop() for server in self._servers.values()))


def make_pool(config: SessionConfig, redactor: Redactor) -> ServerPool:
    """Return the servers of a session, none of them started."""

    def redact(text: str) -> str:
        return redactor.text_or_nothing(clean_text(text)[0])

    records = cleanup.records_folder(config.workspace)
    return ServerPool(Host(config.workspace, records, config.environ, redact))


class _Link:
    """A server that runs: the task that owns its connection, and what it wrote.

    `status` is the last HTTP status that was an error, or 0.
    """

    def __init__(
        self, settings: McpServer, host: Host, root: Path, on_change: Callable[[], None]
    ) -> None:
        self.connection: Connection
        self.other = OtherOutput()
        self.status = 0
        self._settings = settings
        self._host = host
        self._root = root
        self._on_change = on_change
        self._process: Process | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """True while calls may be made."""
        return not self._over.is_set()

    async def start(self, make_program: Callable[[McpServer], Program]) -> None:
        """Start the server and greet it. Raises AgentError, or any error of its connection."""
        program = make_program(self._settings) if self._settings.command else None
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._run(program, ready))
        waiting: Coroutine[Any, Any, Any] = ready.wait()
        is_ready = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({self._task, is_ready}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_ready.cancel()
        if not ready.is_set():
            raise self._failure or ConnectionError("it closed the connection")

    async def _run(self, program: Program | None, ready: asyncio.Event) -> None:
        """Hold the connection until it is over: it must be closed by the task that opened it."""
        client: Any = None
        try:
            if program is not None:
                self._process = await spawn.start_process(program)
            # The program starts while the SDK is imported.
            client = await asyncio.to_thread(import_module, "arena_cli.tools.mcp_client")
            async with client.connect(
                self._open_transport(client), root=self._root, on_change=self._on_change
            ) as connection:
                self.connection = connection
                ready.set()
                await self._over.wait()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - reported by `start`
            self._failure = client.find_cause(error) if client else error
        finally:
            self._over.set()
            if self._process is not None:
                await self._end(self._process)

    def _open_transport(self, client: Any) -> Any:
        if self._process is not None:
            return client.open_pipes(self._process, self.other, self._over.set)
        settings = self._settings
        return client.open_http(
            settings.url, settings.headers, settings.timeout_s, self._note_status
        )

    def _note_status(self, status: int) -> None:
        if status >= 400:
            self.status = status

    async def _end(self, process: Process) -> None:
        """Close the program's stdin, wait a moment for it to end, then end its tree."""
        process.write(b"")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_GRACE_S):
                    while process.returncode is None or not self.other.stderr.has_ended:
                        event = await process.event()
                        if event is not None and event.source == "stderr":
                            self.other.stderr.add_bytes(event.data)
        finally:
            await process.end()

    async def stop(self) -> None:
        """Close the connection and end the program, even if the caller is cancelled meanwhile."""
        self._over.set()
        task = self._task
        if task is None:
            return
        cancelled = False
        if not hasattr(self, "connection"):
            task.cancel()
        while not task.done():
            try:
                await asyncio.wait({task}, timeout=_CLOSE_LIMIT_S)
                task.cancel()
            except asyncio.CancelledError:
                cancelled = True
                task.cancel()
        if cancelled:
            raise asyncio.CancelledError

    async def wait_until_over(self) -> None:
        """Wait a moment for the end of a connection that is lost."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_DIED_GRACE_S)

    def describe_end(self) -> str:
        """Return how it ended: by its exit code, or the error of its connection."""
        code = self._process.returncode if self._process else None
        if code is not None:
            return run.describe_exit(code)
        return f"failed: {self._failure}" if self._failure else ""

    def quote(self) -> str:
        """Return the last lines that it wrote to stderr, or to stdout, redacted."""
        lines = diagnosis.list_last_lines(self.other.stderr.text) or self.quote_noise()
        return self._host.redact(lines)

    def quote_noise(self) -> str:
        """Return the first of the last lines on stdout that are no messages."""
        lines = [line for line in clean_text(self.other.log.text)[0].splitlines() if line.strip()]
        return cut_text(" | ".join(lines[:_MOST_LINES]), _LONGEST_REASON)


class _CallProgress:
    """Report the progress of a call; not more often than anybody reads."""

    def __init__(self, tool: str, scope: ToolScope) -> None:
        self._tool = tool
        self._scope = scope
        self._last: tuple[float | None, str] | None = None
        self._count = 0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        share = progress / total if total and 0 <= progress <= total else None
        detail = f"{self._tool}: {message}" if message else self._tool
        if (share, detail) == self._last or self._count >= _MOST_PROGRESS:
            return
        self._last = (share, detail)
        self._count += 1
        self._scope.report(StatusEvent(status="waiting", detail=detail, progress=share))
