"""The shape of the table of agent programs: one row a kind (`program_rows`).

A call of a row's program is

    program *begin *options --model MODEL *args  (*new | *resume)  *system  *end   < prompt

`{id}` in `new` and `resume` is the id of the session, `{file}` in `system` a file with the system
text. What it writes on stdout and stderr is read object by object: every `Reads` whose `where` an
object has takes what it says from it.

    ECHO = ProgramKind(
        name="echo",
        program="echo-agent",
        install="npm install -g echo-agent",
        login="`echo-agent login`, or a key in ECHO_API_KEY",
        keys=("ECHO_API_KEY",),
        logins=(".echo/login.json",),
        begin=("run", "--json"),
        options=(("--mode", "read-only"),),
        resume=("--resume", "{id}"),
        reads=(
            Reads({"type": "start"}, session="session.id"),
            Reads({"type": "delta"}, delta="text"),
            Reads({"type": "result"}, text="result", usage=UsageAt("in", "out"), last=True),
            Reads({"type": "error"}, failure="error.message", status="error.code"),
        ),
        lost=r"no session with id",
    )

and its adapter a class without a body in `program_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_cli.ground.protocol import Status

SYSTEM_FILE = "{file}"


@dataclass(frozen=True)
class UsageAt:
    """Where in an object the tokens and the cost (US$) stand; dotted paths, "" where nowhere.

    `input_has_cached` says that the input's tokens include what the cache took and gave. Where
    there is a `total`, the output is all of it that is no input: what was thought included.
    """

    input: str
    output: str
    cache_read: str = ""
    cache_write: str = ""
    cost: str = ""
    total: str = ""
    input_has_cached: bool = False


@dataclass(frozen=True)
class Reads:
    """What an object says that has the values of `where` (dotted path: value).

    `session`: the session's id. `delta`: the next piece of the answer's text. `text`: a whole text;
    the last one is the answer. `part`: a whole part of the answer, which the next one goes on; one
    that says again all that the parts said is left out. A text may be a list of parts, of which
    those with a `text` count.
    `anew`: what was said so far was talk before a tool was used; it is the answer only if nothing
    follows. `usage` of several objects adds up. `failure`: a message that says why there is no
    answer, `status` its HTTP status. `because`: such a message in words of the row. `ends`: the
    program is ended then, as it would go on by itself. `trouble`: a message about something that
    the program tries to get over. `doing`: a status, and the path of its detail. `last`: no more of
    interest comes; a program that ends without such an object, where its row has any, was cut
    short.
    """

    where: Mapping[str, Any]
    session: str = ""
    delta: str = ""
    part: str = ""
    text: str = ""
    anew: bool = False
    usage: UsageAt | None = None
    failure: str = ""
    status: str = ""
    because: str = ""
    ends: bool = False
    trouble: str = ""
    doing: tuple[Status, str] | None = None
    last: bool = False


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True)
class ProgramKind:
    """One row.

    name, program, install, login: what it is called; how to get it and how to log in, as the user
    is told. keys: the variables in which it looks for a key; it gets them only if the profile's
    `env` says so. logins: files below the home folder of which one is there after a login. environ:
    variables that it is always given, save where `env` says else; but not of those with `{file}`,
    which stands for a file with the system text, as in `system`.

    begin, options, new, resume, system, end: its arguments, see above; each of `options` is left
    out where the profile's `args` have its first word. escape: what is done to the prompt first, so
    that nothing in it is a command or a path to the program; unescape: what is done to the answer
    for it. Without `{file}` the system text stands before the prompt of a session's first call.

    reads: what is read; only_stdout: but not on stderr, which may hold it again. adds_up: whether
    the usage that it tells is the whole session's. lost: what it says (regular expression) where
    the session to resume is no longer there. retries: what it says, as trouble or on stderr, where
    it will try again by itself for long; it is ended then, and what a group named `said` matched is
    told, with the HTTP status that another group matched. says, exits: HTTP statuses by what it
    says (regular expressions), and by exit code.
    """

    name: str
    program: str
    install: str
    login: str
    reads: tuple[Reads, ...]
    only_stdout: bool = False
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    begin: tuple[str, ...] = ()
    options: tuple[tuple[str, ...], ...] = ()
    new: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    escape: Callable[[str], str] = _as_it_is
    unescape: Callable[[str], str] = _as_it_is
    adds_up: bool = False
    lost: str = ""
    retries: str = ""
    says: Mapping[str, int] = field(default_factory=dict)
    exits: Mapping[int, int] = field(default_factory=dict)

    @property
    def takes_system(self) -> bool:
        """Whether it is given the system text in a file."""
        return any(SYSTEM_FILE in word for word in (*self.system, *self.environ.values()))
