"""Random teams, messages, failures, decisions, kills and resumes against `reference_model.py`.

After every step the transcript is read again, record by record, by the reference: it says who must
reply, who may, and how each chain ends. The agents keep their own books of what they were asked and
what they did.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from product import (
    AgentInput,
    AgentOutput,
    AgentProtocolError,
    AgentTimeout,
    ControlRequest,
    Emit,
    Health,
    Inbox,
    PermissionRequest,
    Setup,
    StructuredContent,
    Team,
    Usage,
    UsageError,
    loop,
    reader,
)
from pydantic import BaseModel
from reference_model import Reference, Rules
from support import PuppetSettings, Talk, canonical, puppet, team

IDS = ("ana", "bob", "cyd", "dov", "eve", "fay")
WORDS = ("parse", "cache", "disk")
CHIEF = "chief"
OUTPUT = 100
ACTS = ("alpha", "beta")

spoken = st.lists(
    st.sampled_from([*(f"@{name}" for name in IDS), "@all", "@user", "@maya", *WORDS]), max_size=4
).map(lambda words: " ".join(["well", *words]))

deeds = st.one_of(
    st.tuples(st.just("say"), spoken),
    st.tuples(st.just("say"), spoken),
    st.tuples(st.just("call"), spoken, st.lists(st.sampled_from(IDS), min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["pass", "error", "timeout", "flaky"])),
    st.tuples(st.just("permit"), st.sampled_from(ACTS)),
    st.tuples(st.just("permit twice"), st.sampled_from(ACTS)),
    st.tuples(st.just("ask"), st.sampled_from(ACTS), spoken),
    st.tuples(st.just("choose"), st.sampled_from(ACTS), spoken),
)
requests = st.one_of(
    st.builds(ControlRequest, act=st.sampled_from(["pause", "cancel"])),
    st.builds(ControlRequest, act=st.just("cancel"), agent=st.sampled_from(IDS)),
    st.builds(
        ControlRequest,
        act=st.just("steer"),
        text=spoken,
        now=st.booleans(),
        by=st.sampled_from(["user", "maya"]),
    ),
    st.builds(
        ControlRequest,
        act=st.just("agent_state"),
        agent=st.sampled_from(IDS),
        state=st.sampled_from(["running", "paused", "terminated"]),
    ),
)
meddling = st.tuples(st.just("meddle"), requests, spoken)
decisions = st.tuples(
    st.lists(st.sampled_from([*IDS, "nobody", CHIEF]), max_size=3),
    st.sampled_from(["parallel", "sequence"]),
    st.sampled_from([False, False, True]),
)


people = st.sampled_from([None, None, "maya"])
kills = st.one_of(
    st.none(), st.none(), st.tuples(st.integers(1, 25), st.sampled_from([0.0, 0.5, 1.0, 1.0]))
)


class Killed(BaseException):
    """The process is gone."""


class World:
    """What stays when a process is killed: the agents' lines, their books, the clock."""

    def __init__(self, lines: dict[str, list[Any]], plans: list[Any]) -> None:
        self.lines = lines
        self.plans = plans
        self.acts: Counter[tuple[str, str]] = Counter()
        self.answers: dict[tuple[str, int], tuple[str, str]] = {}
        self.tries: Counter[tuple[str, int]] = Counter()
        self.folder = Path()
        self.final: Any = ()
        self.is_dead = False
        self.has_meddled = False
        self.has_acted = False

    def adapter_type(self, kind: str) -> type[Any]:
        world = self

        class Agent:
            settings_type = PuppetSettings

            def __init__(self, setup: Setup) -> None:
                self.agent_id = setup.agent_id

            async def start(self) -> None: ...

            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                if world.is_dead:
                    raise asyncio.CancelledError
                return await world.answer(input, emit)

            async def health(self) -> Health:
                return Health(True)

            async def stop(self) -> None: ...

        return Agent

    async def answer(self, shown: AgentInput, emit: Emit) -> AgentOutput:
        number = int(shown.turn_id.rpartition("t")[2] or 0) if shown.turn_id else 0
        if shown.invocation == "supervise":
            names, order, done = self.plans[shown.call % len(self.plans)]
            plan = {"should_reply": names, "order": order, "done": done}
            return AgentOutput(content=json.dumps(plan), usage=Usage(output_tokens=5))
        agent = shown.agent_id
        place = (agent, number)
        assert place not in self.final, f"{place} is called after its end"
        mine = self.lines[agent]
        deed = mine[number % len(mine)]
        self.tries[place] += 1
        output = await self.do(deed, place, emit)
        if not self.is_dead:
            status = "success" if output.should_respond else "declined"
            self.answers[place] = (status, output.content)
        return output

    async def do(self, deed: Any, place: tuple[str, int], emit: Emit) -> AgentOutput:
        agent, number = place
        usage = Usage(output_tokens=40 + 80 * (number % 3))
        match deed:
            case ["say", text]:
                return AgentOutput(content=text, usage=usage)
            case ["call", text, names]:
                return AgentOutput(content=text, next_mentions=names, usage=usage)
            case ["pass"]:
                return AgentOutput(should_respond=False)
            case ["error" | "timeout" | "flaky" as kind]:
                if kind == "flaky" and self.tries[place] > 1:
                    return AgentOutput(content="well again", usage=usage)
                self.answers[place] = ("timeout" if kind == "timeout" else "error", "")
                failure = AgentTimeout if kind == "timeout" else AgentProtocolError
                raise failure(agent, "as told")
            case ["permit" | "permit twice" as kind, act]:
                words = []
                for _ in range(1 + (kind == "permit twice")):
                    words.append(await self.permit(agent, act, emit))
                return AgentOutput(content=" ".join(["well", *words]), usage=usage)
            case ["ask" | "choose" as kind, act, text]:
                data: dict[str, Any] = {"action": "deploy", "detail": act}
                if kind == "choose":
                    data["options"] = ["red", "blue"]
                part = StructuredContent(type="approval_request", data=data)
                return AgentOutput(content=text, structured=[part], usage=usage)
            case ["meddle", request, text]:
                await self.meddle(request)
                return AgentOutput(content=text, usage=usage)
        raise AssertionError(deed)

    async def permit(self, agent: str, act: str, emit: Emit) -> str:
        self.has_acted = True
        asked = PermissionRequest(action=f"run_{act}", detail=f"do {act}")
        verdict = (await emit.permit(asked)).verdict
        if verdict == "allowed" and not self.is_dead:
            self.acts[agent, act] += 1
        return {"allowed": "did", "denied": "refused", "asked": "waits"}[verdict]

    async def meddle(self, request: ControlRequest) -> None:
        """A person's request from another process, while this reply runs."""
        self.has_meddled = True
        inbox = Inbox(self.folder)
        path = inbox.put(request)
        for _ in range(200):
            await asyncio.sleep(0)
            if inbox.read_answer(path) is not None:
                return
        inbox.withdraw(path)


@st.composite
def teams(draw: st.DrawFn) -> Rules:
    ids = IDS[: draw(st.integers(2, len(IDS)))]
    some = st.lists(st.sampled_from(ids), max_size=2, unique=True).map(tuple)
    words = st.lists(st.sampled_from(WORDS), unique=True).map(tuple)
    policy = st.sampled_from(["ask", "ask", "allow", "deny"])
    scopes = st.sampled_from(["turn", "chain", "session"])
    mode = draw(st.sampled_from(["free", "free", "supervisor", "mixed"]))
    return Rules(
        members=ids,
        keywords={name: draw(words) for name in ids},
        silent=frozenset(draw(st.lists(st.sampled_from(ids)))),
        threshold=0.4,
        on_failure=draw(
            st.dictionaries(st.sampled_from(ids), st.sampled_from(["skip", "retry", "abort"]))
        ),
        may_mention=draw(st.dictionaries(st.sampled_from(ids), some, max_size=1)),
        selection=draw(st.sampled_from(["relevance", "ask", "none"])),
        max_responders=draw(st.integers(1, 4)),
        depth_limit=draw(st.integers(0, 4)),
        re_invoke=draw(st.booleans()),
        mention_all=draw(st.booleans()),
        default_responders=draw(some),
        policies={name: draw(policy) for name in ("run_alpha", "run_beta", "deploy")},
        supervisor="" if mode == "free" else CHIEF,
        is_mixed=mode == "mixed",
        bounds=draw(
            st.one_of(
                st.just({}),
                st.just({}),
                st.dictionaries(scopes, st.integers(500, 4000), min_size=1),
            )
        ),
        most_output=OUTPUT,
    )


def build(rules: Rules) -> Team:
    """The team with these rules."""
    context = {"max_output_tokens": OUTPUT}
    members = []
    for name in rules.members:
        response = {
            "keywords": list(rules.keywords[name]),
            "auto_respond": name not in rules.silent,
            "threshold": rules.threshold,
        }
        may_mention = rules.may_mention.get(name)
        members.append(
            puppet(
                name,
                response=response,
                retries=1,
                context=context,
                on_failure=rules.on_failure.get(name),
                may_mention=None if may_mention is None else list(may_mention),
            )
        )
    config: dict[str, Any] = {}
    if rules.bounds:
        config["budget"] = {"tokens": rules.bounds}
    if rules.supervisor:
        config |= {"mode": "mixed" if rules.is_mixed else "supervisor", "supervisor": CHIEF}
    made = team(
        *members,
        humans=["maya"],
        selection=rules.selection,
        max_responders=rules.max_responders,
        chain_depth_limit=rules.depth_limit,
        re_invoke_already_replied=rules.re_invoke,
        agents_may_mention_all=rules.mention_all,
        default_responders=list(rules.default_responders),
        approvals={"default": "ask", **rules.policies},
        **config,
    )
    if rules.supervisor:
        object.__setattr__(made, "supervisor", puppet(CHIEF, member=False, context=context))
    return made


class Sessions(RuleBasedStateMachine):
    """One session of a random team, with everything that people and the machine do to it."""

    steps = 0

    @initialize(rules=teams(), data=st.data())
    def begin(self, rules: Rules, data: Any) -> None:
        self.team, self.rules = build(rules), rules
        free = st.one_of(deeds, deeds, meddling) if data.draw(st.booleans()) else deeds
        lines = {
            name: data.draw(st.lists(free, min_size=1, max_size=5)) for name in self.rules.members
        }
        plans = data.draw(st.lists(decisions, min_size=1, max_size=4))
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(lines, plans)
        self.talk = self.talk_in(self.folder, self.world)
        self.kill_at, self.cut_at = 0, 1.0
        self.inputs: list[tuple[str, Any]] = []
        self.is_comparable, self.kills = True, 0
        self.reference, self.seen = Reference(self.rules), b""
        self.is_cut = False

    def talk_in(self, folder: Path, world: World) -> Talk:
        talk = Talk(folder, self.team, adapter_type=world.adapter_type)
        world.folder = talk.transcript.parent
        return talk

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self.compare()
            finally:
                shutil.rmtree(self.folder)

    # What happens.

    def heard(self, event: Any) -> None:
        self.kill_at -= 1
        if self.kill_at != 0:
            return
        self.world.is_dead = True
        whole = self.talk.transcript.read_bytes()
        begin = whole.rfind(b"\n", 0, len(whole) - 1) + 1
        self.snapshot = whole[: begin + int((len(whole) - begin) * self.cut_at)]
        raise Killed

    def do(self, act: Any) -> Any:
        """Let a process do something; it may be killed at any event."""
        world = self.world
        world.is_dead, world.has_meddled, world.has_acted = False, False, False
        world.tries.clear()
        world.final = set(self.reference.finals)
        self.snapshot = None
        self.talk.on_event = self.heard
        try:
            return act()
        except Killed:
            return Killed
        except UsageError as error:
            return error
        except asyncio.CancelledError:
            assert world.is_dead
            return Killed
        finally:
            if self.snapshot is not None:
                self.talk.transcript.write_bytes(self.snapshot)
                self.kills += 1
                self.is_comparable &= not (world.has_meddled or world.has_acted)
            world.is_dead = False
            self.kill_at = 0

    def carry_out(self, request: ControlRequest) -> Any:
        def act() -> str:
            with self.talk.open() as session:
                return session.carry_out(request)

        return self.do(act)

    def note(self, kind: str, what: Any, result: Any) -> None:
        """Keep an input for the run without kills."""
        if isinstance(result, UsageError):
            return
        self.inputs.append((kind, what))
        if result is Killed and kind not in ("send", "resume"):
            self.is_comparable = False

    @precondition(lambda self: not self.is_open)
    @rule(text=spoken, by=people, kill=kills)
    def send(self, text: str, by: str | None, kill: Any) -> None:
        self.will_be_killed(kill)
        self.say(text, by)

    @precondition(lambda self: self.is_open)
    @rule(text=spoken, by=people)
    def send_and_leave_the_open_chain(self, text: str, by: str | None) -> None:
        self.is_comparable &= not self.is_cut
        self.say(text, by)

    def say(self, text: str, by: str | None) -> None:
        before = self.counted()
        result = self.do(lambda: self.talk.send(text, author=by))
        if result is not Killed or self.counted()["chain"] > before["chain"]:
            self.note("send", (text, by), result)

    def will_be_killed(self, kill: tuple[int, float] | None) -> None:
        """At which event from now, and where in its line."""
        self.kill_at, self.cut_at = kill or (0, 1.0)

    @precondition(lambda self: self.is_open)
    @rule(kill=kills)
    def resume(self, kill: Any) -> None:
        self.will_be_killed(kill)
        before, was_cut = self.counted(), self.is_cut
        result = self.do(self.talk.resume)
        has_begun = result is not Killed or self.counted()["resumed"] > before["resumed"]
        if has_begun and not was_cut:
            self.note("resume", None, result)

    @precondition(lambda self: self.is_open)
    @rule()
    def resume_until_it_is_over(self) -> None:
        """What was cut ends, and people approve what is asked."""
        for _ in range(6):
            chain = self.reference.open
            if chain is None or (chain.pause and chain.pause["reason"] == "budget"):
                break
            pending = chain.pending
            if not self.is_cut and pending:
                self.decide(0, approve=True, by="user", kill=None)
            else:
                self.resume(None)
            self.the_transcript_is_what_the_rules_say()

    @precondition(lambda self: self.is_open)
    @rule(
        which=st.integers(0, 3),
        approve=st.booleans(),
        by=st.sampled_from(["user", "maya"]),
        kill=kills,
    )
    def decide(self, which: int, approve: bool, by: str, kill: Any) -> None:
        self.will_be_killed(kill)
        pending = self.reference.chain.pending
        number = which + 1
        option = ""
        if pending:
            asked = pending[which % len(pending)].asked
            number = asked["request"]
            option = "blue" if approve and asked.get("options") else ""
        request = ControlRequest(
            act="decide",
            request=number,
            by=by,
            decision="approved" if approve else "rejected",
            option=option,
        )
        if self.is_cut:
            self.is_comparable = False
        result = self.carry_out(request)
        if not pending:
            assert isinstance(result, UsageError) or result is Killed
        self.note("request", request, result)

    @precondition(lambda self: self.is_open)
    @rule(request=requests)
    def step_in(self, request: ControlRequest) -> None:
        if self.is_cut:
            self.is_comparable = False
        self.note("request", request, self.carry_out(request))

    @precondition(lambda self: self.is_open and self.rules.bounds)
    @rule(tokens=st.integers(1, 3000))
    def raise_budget(self, tokens: int) -> None:
        request = ControlRequest(act="raise_budget", tokens=tokens)
        if self.is_cut:
            self.is_comparable = False
        self.note("request", request, self.carry_out(request))

    @rule(seconds=st.sampled_from([-100_000, -10, 10, 100_000]))
    def clock_jumps(self, seconds: int) -> None:
        self.talk.clock.seconds = max(0, self.talk.clock.seconds + seconds)
        self.is_comparable = False

    def counted(self) -> Counter[str]:
        """How often each type of event stands in the transcript; openings count as chains."""
        records = self.records() if self.talk.transcript.exists() else []
        openings = sum(one["type"] == "message" and bool(one.get("chain")) for one in records)
        return Counter({**Counter(one["type"] for one in records), "chain": openings})

    def records(self) -> list[dict[str, Any]]:
        lines = self.talk.transcript.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    # What holds.

    @property
    def is_open(self) -> bool:
        return self.reference.open is not None

    @invariant()
    def the_transcript_is_what_the_rules_say(self) -> None:
        if not hasattr(self, "talk") or not self.talk.transcript.exists():
            return
        type(self).steps += 1
        reference = self.reference
        raw = self.talk.transcript.read_bytes()
        if not (raw.startswith(self.seen) and self.seen.endswith(b"\n")):
            reference, self.seen = Reference(self.rules), b""  # what it had seen was cut off
        for line in raw[len(self.seen) :].splitlines(keepends=True):
            if line.endswith(b"\n"):
                reference.take(json.loads(line))
        self.reference, self.seen = reference, raw
        chain = reference.open
        self.is_cut = bool(chain and not chain.pause)
        self.check_replies(reference)
        self.check_acts(reference)
        self.check_cache()

    def check_replies(self, reference: Reference) -> None:
        """Each reply is what its agent said, and calls whom it may."""
        for (agent, turn), record in reference.finals.items():
            status = record["status"]
            if status == "cancelled" or record.get("error_code") == "budget":
                continue
            said = self.world.answers[agent, turn]
            assert said[0] == status, (agent, turn, said, record)
            if status != "success":
                continue
            content = record["message"]["content"]
            assert content == said[1]
            deed = self.world.lines[agent][turn % len(self.world.lines[agent])]
            names = list(deed[2]) if deed[0] == "call" else []
            assert sorted(record["next_mentions"]) == sorted(
                self.rules.calls(content, agent, names)
            )

    def check_acts(self, reference: Reference) -> None:
        """No act without its grant."""
        used: Counter[tuple[str, str]] = Counter()
        for request in reference.requests.values():
            asked = request.asked
            if asked["detail"].startswith("do "):
                used[asked["agent"], asked["detail"][3:]] += request.used
        for (agent, act), count in self.world.acts.items():
            if self.rules.policies.get(f"run_{act}", "ask") != "allow":
                assert count <= used[agent, act], (agent, act)

    def check_cache(self) -> None:
        """The state is the same, read from its cache and read anew."""
        path = self.talk.transcript
        elsewhere = path.with_name("copy.jsonl")
        shutil.copy(path, elsewhere)
        one, two = (_fold(one) for one in (path, elsewhere))
        elsewhere.unlink()
        assert one == two, [(key, one[key], two[key]) for key in one if one[key] != two[key]]

    def compare(self) -> None:
        """What was killed and resumed is what was never killed."""
        if not (self.is_comparable and self.kills) or self.is_cut:
            return
        with self.talk.open():
            pass  # it mends a torn line
        with tempfile.TemporaryDirectory() as folder:
            talk = self.talk_in(Path(folder), World(self.world.lines, self.world.plans))
            for kind, what in self.inputs:
                if kind == "send":
                    talk.send(what[0], author=what[1])
                elif kind == "resume":
                    talk.resume()
                else:
                    with talk.open() as session:
                        session.carry_out(what)
            one, two = (_comparable(told.transcript) for told in (self.talk, talk))
            for pair in zip_longest(one, two):
                assert pair[0] == pair[1], (*pair, self.inputs)


def _fold(path: Path) -> dict[str, Any]:
    shown: list[str] = []
    fold = reader.load_fold(
        path,
        on_message=lambda message: shown.append(message.id),
        weigh=lambda _: 1,
        budget=10**9,
        keep=False,
    )
    return {**_plain(fold), "spent": fold.spent(), "shown": shown}


def _plain(value: Any) -> Any:
    """A state as values that can be compared; what is private is derived."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "__dict__"):
        public = (key for key in vars(value) if not key.startswith("_") and key != "on_message")
        return {key: _plain(vars(value)[key]) for key in public}
    return value


def _comparable(transcript: Path) -> Any:
    return [
        {key: value for key, value in record.items() if key not in ("expires", "input_hash")}
        for record in canonical(transcript)
    ]


@pytest.fixture(autouse=True)
def _requests_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "WATCH_S", 0.0)
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=25)
