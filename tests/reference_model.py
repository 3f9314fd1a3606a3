"""A second reading of the turn rules and of control, that shares no code with the product.

`Reference` takes the records of a transcript one by one. It computes by itself who must reply, who
may, who is due, and how each chain ends, and raises `Mistake` at the first record that differs.
What agents and people did is an input; what follows from it is computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Record = Mapping[str, Any]
Joined = tuple[str, str, list[str] | None]
"""A message that joined: its id, its author, and whom it names; None for a decision."""

FAILED = ("error", "timeout")
PEOPLE = ("user", "maya")
SLACK_S = 5.0
"""Seconds that a clock that counts looks may go on between a look and its record."""


class Mistake(AssertionError):
    """A record that is not what the rules say."""


@dataclass(frozen=True)
class Rules:
    """The rules of a team, as plain values; `members` are in team order."""

    members: tuple[str, ...]
    keywords: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    threshold: float = 0.6
    on_failure: Mapping[str, str] = field(default_factory=dict)
    may_mention: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    selection: str = "relevance"
    max_responders: int = 5
    depth_limit: int = 5
    re_invoke: bool = False
    mention_all: bool = False
    default_responders: tuple[str, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    supervisor: str = ""
    is_mixed: bool = False
    bounds: Mapping[str, int] = field(default_factory=dict)
    most_output: int = 0

    def first(self) -> list[str]:
        """Rule 2: who replies where nobody is mentioned."""
        return list(self.default_responders) or list(self.members[:1] * (len(self.members) == 1))

    def named(self, text: str, author: str, opener: str) -> list[str]:
        """Rule 1, for the plain `@name` of these tests: agents and people, in order, each once."""
        names: dict[str, None] = {}
        for name in re.findall(r"@(\w+)", text):
            found = self.members if name == "all" else [opener if name == "user" else name]
            names.update(dict.fromkeys(one for one in found if one != author))
        return [name for name in names if name in self.members or name in PEOPLE]

    def calls(self, text: str, agent: str, further: list[str]) -> list[str]:
        """Whom a reply calls: those that it may name, without itself and people."""
        allowed = self.may_mention.get(agent, self.members)
        spoken = re.findall(r"@(\w+)", text) + further
        names: dict[str, None] = {}
        for name in spoken:
            if name == "all" and self.mention_all:
                names.update(dict.fromkeys(self.members))
            elif name != "all":
                names[name] = None
        return [
            name for name in names if name in self.members and name != agent and name in allowed
        ]

    def relevance(self, agent: str, texts: list[str]) -> float:
        """Rule 3: `1 - 0.6^n`."""
        words = set(re.findall(r"\w+", re.sub(r"@\w+", " ", " ".join(texts)).casefold()))
        hits = sum(word in words for word in self.keywords.get(agent, ())) + (agent in words)
        return round(1 - 0.6**hits, 4)


@dataclass
class Turn:
    """One turn, as far as its records say."""

    number: int
    depth: int
    must: list[str]
    deferred: list[str]
    trigger: list[str]
    mentioned_by: dict[str, list[str]]
    is_sequence: bool = False
    asked: list[str] | None = None
    started: dict[str, Record] = field(default_factory=dict)
    running: dict[str, Record] = field(default_factory=dict)
    done: dict[str, Record] = field(default_factory=dict)
    cut: list[Record] = field(default_factory=list)
    excess: dict[str, str] = field(default_factory=dict)
    next: list[str] | None = None

    @property
    def called(self) -> list[str]:
        return [*self.must, *(self.asked or [])]

    @property
    def results(self) -> list[Record]:
        return [self.done[agent] for agent in self.called if agent in self.done]

    @property
    def successes(self) -> list[Record]:
        return [one for one in self.results if one["status"] == "success"]


@dataclass
class Request:
    """A request for approval, and what became of it."""

    asked: Record
    decided: Record | None = None
    used: int = 0


@dataclass
class Chain:
    """The open chain, or one that has ended."""

    number: int
    opener: str
    opening: str
    mentions: list[str]
    turns: list[Turn] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    naming: dict[str, list[str]] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)
    steering: list[tuple[str, str, list[str]]] = field(default_factory=list)
    supervised: dict[int, Record] = field(default_factory=dict)
    told_limit: list[str] | None = None
    told_after: set[int] = field(default_factory=set)
    pause: Record | None = None
    raised: int = 0
    end: str = ""

    @property
    def triggers(self) -> set[str]:
        return {name for turn in self.turns for name in turn.trigger}

    @property
    def pending(self) -> list[Request]:
        return [one for one in self.requests.values() if one.decided is None]


class Reference:
    """The state of a session by the rules; `take` checks one more record."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.seq = 0
        self.ts = ""
        self.chains: list[Chain] = []
        self.states: dict[str, str] = {}
        self.finals: dict[tuple[str, int], Record] = {}
        self.cancelled: set[tuple[str, int]] = set()
        self.requests: dict[int, Request] = {}
        self.turns = 0
        self.replies = 0
        self.spent = 0
        self.raised = 0
        self.joins: Record | None = None

    @property
    def open(self) -> Chain | None:
        return self.chains[-1] if self.chains and not self.chains[-1].end else None

    @property
    def chain(self) -> Chain:
        self.demand(self.open is not None, "no chain is open")
        return self.chains[-1]

    @property
    def turn(self) -> Turn:
        self.demand(bool(self.chain.turns), "no turn is open")
        return self.chain.turns[-1]

    def demand(self, holds: bool, why: str) -> None:
        if not holds:
            raise Mistake(f"record {self.seq}: {why}")

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.demand(found == expected, f"{what}: found {found!r}, the rules say {expected!r}")

    def take(self, record: Record) -> None:
        """Check the next record of the transcript."""
        self.same("seq", record["seq"], self.seq + 1)
        self.seq, self.ts = record["seq"], record["ts"]
        kind = record["type"]
        if self.joins is not None and kind != "steered":
            self.joins = None  # the process was killed between the two
        chain = self.open
        if chain and chain.pause and kind in ("turn_started", "reply_started", "candidates"):
            self.demand(False, f"{kind} in a paused chain")
        getattr(self, f"_take_{kind}", lambda _: None)(record)

    # Messages.

    def _take_message(self, record: Record) -> None:
        message = record["message"]
        name, author, text = message["id"], message["author_id"], message["content"]
        self.same("id", name, f"m{record['seq']}")
        if record.get("chain"):
            self.demand(self.open is None, "a chain opens while another is open")
            self.same("chain", record["chain"], len(self.chains) + 1)
            mentions = self.rules.named(text, author, author)
            self.same("mentions", message["mentions"], mentions)
            self.chains.append(Chain(record["chain"], author, name, mentions))
        elif message["author_type"] == "system":
            notice = message["metadata"].get("notice")
            if notice == "chain_limit":
                self._take_limit(text)
        else:
            opener = self.chain.opener
            self.same("mentions", message["mentions"], self.rules.named(text, author, opener))
            self.joins = message
        if self.open:
            self.open.texts[name] = text
            self.open.naming[name] = list(message["mentions"])

    def _take_limit(self, text: str) -> None:
        self.demand(len(self.chain.turns) not in self.chain.told_after, "the limit is told twice")
        self.demand(not self.chain.pending, "the limit is told while requests are open")
        named = [one for one in re.findall(r"\w+", text) if one in self.rules.members]
        self.chain.told_limit = named
        self.chain.told_after.add(len(self.chain.turns))

    def _take_steered(self, record: Record) -> None:
        joins = self.joins
        self.demand(joins is not None and joins["id"] == record["message"], "no message joins")
        assert joins is not None
        self.chain.steering.append((joins["id"], joins["author_id"], list(joins["mentions"])))
        self.joins = None

    # Turns.

    def _joining(self) -> list[Joined]:
        """What joined the chain since its last turn: the id, the author, whom it names.

        A decision has None there: it is for the agent that asked (instead of the author).
        """
        chain = self.chain
        triggers = chain.triggers
        joined: list[Joined] = []
        for request in chain.requests.values():
            decided, agent = request.decided, request.asked["agent"]
            message = decided and decided.get("message")
            if message and message not in triggers and agent not in self.unavailable():
                joined.append((message, agent, None))
        joined += [one for one in chain.steering if one[0] not in triggers]
        return joined

    def unavailable(self) -> dict[str, str]:
        return {agent: state for agent, state in self.states.items() if state != "running"}

    def _is_aborted(self, turn: Turn) -> bool:
        return any(
            one["status"] in FAILED and self.rules.on_failure.get(one["agent"]) == "abort"
            for one in turn.results
        )

    def _free_due(self) -> list[str]:
        """Who is due by the free rules, when the last turn is over."""
        chain = self.chain
        if not chain.turns:
            agents = [name for name in chain.mentions if name in self.rules.members]
            return agents if chain.mentions else self.rules.first()
        turn = chain.turns[-1]
        self.demand(turn.next is not None, "the turn before is not over")
        assert turn.next is not None
        return [] if self._is_aborted(turn) else turn.next

    def _is_at_limit(self) -> bool:
        turns = self.chain.turns
        return bool(turns) and turns[-1].depth >= self.rules.depth_limit

    def _take_turn_started(self, record: Record) -> None:
        chain, rules = self.chain, self.rules
        self.same("chain", record["chain"], chain.number)
        self.turns += 1
        self.same("turn", record["turn"], self.turns)
        due = self._free_due()
        self.demand(not (chain.turns and chain.pending), "a turn opens while requests are open")
        joined = self._joining()
        is_next = bool(due) and not self._is_at_limit()
        if not chain.turns:
            is_next = True
        depth = chain.turns[-1].depth if chain.turns else 0
        stopped = [] if is_next else self._stopped(joined)
        self.demand(not stopped or len(stopped) < len(joined), "a turn beyond the depth limit")
        joined, all_joined = [one for one in joined if one not in stopped], joined
        steered = [one for one in joined if one[2] is not None]
        by_policy = [one for one in joined if one[2] is None and self._is_by_policy(one[0])]
        supervised = chain.supervised.get(self.turns)
        decides = supervised is not None and not supervised["fallback"]
        is_named = bool(decides and supervised and supervised["should_reply"] and not joined)
        if chain.turns and (is_next or steered or by_policy or is_named):
            depth += 1
        if not is_next and not decides:
            self.demand(bool(joined), "a turn opens and nobody is due")
            self._check_told([*due, *(one[1] for one in stopped)])
        self.same("depth", record["depth"], depth)
        people = sum(1 for _ in chain.steering)
        self.demand(depth <= rules.depth_limit + people, "a turn beyond the depth limit")
        must = self._who_must(joined, due if is_next else [], supervised if decides else None)
        left_out = {one: self.states[one] for one in must if one in self.unavailable()}
        self.same("passed_over", record.get("passed_over", {}), left_out)
        must = [one for one in must if one not in left_out]
        places = rules.max_responders
        self.same("must", record["must"], must[:places])
        self.same("deferred", record["deferred"], must[places:])
        for one in all_joined:
            self.demand(one[0] in record["trigger"], f"{one[0]} joined and is not in the trigger")
        if not decides and not left_out:
            by = self._mentioned_by(must, joined, is_next=is_next)
            self.same("mentioned_by", record["mentioned_by"], by)
        chain.turns.append(
            Turn(
                self.turns,
                depth,
                list(record["must"]),
                list(record["deferred"]),
                list(record["trigger"]),
                dict(record["mentioned_by"]),
                record.get("order") == "sequence",
            )
        )

    def _check_told(self, due: list[str]) -> None:
        """Rule 7: a message names all whom the limit stops."""
        chain = self.chain
        if due:
            self.demand(len(chain.turns) in chain.told_after, "nobody is told who was still due")
            self.demand(set(due) <= set(chain.told_limit or ()), "the limit does not name all")

    def _stopped(self, joined: list[Joined]) -> list[Joined]:
        """Decisions by the settings call nobody beyond the limit."""
        if not self._is_at_limit():
            return []
        return [one for one in joined if one[2] is None and self._is_by_policy(one[0])]

    def _is_by_policy(self, message: str) -> bool:
        decided = [one.decided for one in self.chain.requests.values() if one.decided]
        return any(one.get("message") == message and one["by"] == "policy" for one in decided)

    def _who_must(
        self,
        joined: list[Joined],
        due: list[str],
        supervised: Record | None,
    ) -> list[str]:
        must: dict[str, None] = {}
        for _, author, named in joined:
            if named is None:
                must[author] = None
            elif supervised is None:
                must.update(dict.fromkeys(self._called_by_person(named)))
        if supervised is not None:
            if supervised["should_reply"]:
                must.update(dict.fromkeys(self.turn.deferred if self.chain.turns else []))
            must.update(dict.fromkeys(supervised["should_reply"]))
        else:
            must.update(dict.fromkeys(due))
        return list(must)

    def _called_by_person(self, named: list[str]) -> list[str]:
        """A steering message calls whom it names, or those who spoke last."""
        agents = [name for name in named if name in self.rules.members]
        if named or self.rules.first():
            return agents if named else self.rules.first()
        turns = self.chain.turns
        return [one["agent"] for one in turns[-1].successes] if turns else []

    def _mentioned_by(
        self,
        must: list[str],
        joined: list[Joined],
        *,
        is_next: bool,
    ) -> dict[str, list[str]]:
        chain = self.chain
        by: dict[str, list[str]] = {}
        if is_next and not chain.turns:
            by = {one: [chain.opener] for one in chain.mentions if one in must}
        elif is_next:
            turn = chain.turns[-1]
            for agent in turn.next or []:
                names = list(turn.mentioned_by.get(agent, [])) if agent in turn.deferred else []
                names += [one["agent"] for one in turn.successes if agent in one["next_mentions"]]
                if names:
                    by[agent] = list(dict.fromkeys(names))
        for _, author, named in joined:
            if named is not None:
                by |= {one: [author] for one in named if one in self.rules.members}
        return by

    def _take_candidates(self, record: Record) -> None:
        turn, chain, rules = self.turn, self.chain, self.rules
        self.same("turn", record["turn"], turn.number)
        self.demand(turn.asked is None, "candidates twice")
        self.demand(all(one in turn.done for one in turn.must), "phase A is not over")
        self.demand(not self._is_aborted(turn), "candidates after an abort")
        called = {agent for one in chain.turns for agent in one.called}
        open_to_it = [
            agent
            for agent in rules.members
            if agent not in (called | set(turn.deferred) | rules.silent)
        ]
        asked, passed_over = [], {}
        texts = [chain.texts[name] for name in turn.trigger]
        texts += [one["message"]["content"] for one in turn.successes]
        scores = {agent: rules.relevance(agent, texts) for agent in open_to_it}
        places = rules.max_responders - len(turn.must)
        if rules.selection != "none":
            for agent in sorted(open_to_it, key=lambda agent: -scores[agent]):
                if agent in self.unavailable():
                    passed_over[agent] = self.states[agent]
                elif rules.selection == "relevance" and scores[agent] < rules.threshold:
                    passed_over[agent] = ""
                elif len(asked) >= places:
                    passed_over[agent] = "no place left"
                else:
                    asked.append(agent)
        self.same("asked", record["asked"], asked)
        found = {agent: one.get("reason") or "" for agent, one in record["passed_over"].items()}
        self.same("passed over", found, passed_over)
        for agent, one in record["passed_over"].items():
            self.same(f"relevance of {agent}", one["relevance"], scores[agent])
        turn.asked = asked

    def _take_turn_finished(self, record: Record) -> None:
        turn = self.turn
        self.same("turn", record["turn"], turn.number)
        self.demand(turn.next is None, "a turn ends twice")
        self.demand(turn.asked is not None or self._is_aborted(turn), "no candidates were chosen")
        missing = [agent for agent in turn.called if agent not in turn.done]
        self.same("replies that are missing at the end of the turn", missing, [])
        self.same("called", record["called"], turn.called)
        self.same("replied", record["replied"], [one["agent"] for one in turn.successes])
        due = dict.fromkeys(turn.deferred)
        for one in turn.successes:
            due.update(dict.fromkeys(one["next_mentions"]))
        if not self.rules.re_invoke:
            for agent in turn.called:
                if turn.done[agent]["status"] != "declined":
                    due.pop(agent, None)
        self.same("next", record["next"], list(due))
        turn.next = list(due)

    def _take_chain_finished(self, record: Record) -> None:
        chain = self.chain
        self.same("chain", record["chain"], chain.number)
        end = record["end"]
        successes = [one for turn in chain.turns for one in turn.successes]
        self.same("replies", record["replies"], len(successes))
        self.same("turns", record["turns"], len(chain.turns))
        if end not in ("interrupted", "cancelled"):
            is_open = bool(chain.pending) and end != "failed"  # nothing waits after an abort
            self.demand(not is_open, "a chain ends while requests are open")
            self._check_end(record, successes)
        chain.end = end

    def _check_end(self, record: Record, successes: list[Record]) -> None:
        chain, end = self.chain, record["end"]
        supervised = chain.supervised.get(self.turns + 1)
        decides = supervised is not None and not supervised["fallback"]
        if decides:
            self.demand(not supervised["should_reply"] or self._is_at_limit(), "somebody is named")
        due = self._free_due() if chain.turns or not decides else []
        joined = self._joining()
        if decides and supervised:  # it saw what joined before it decided
            asked_seq = supervised["seq"]
            joined = [one for one in joined if one[2] is None or int(one[0][1:]) > asked_seq]
        if any(map(self._is_aborted, chain.turns)):
            joined = []  # nothing waits after an abort
        if joined:  # only what the settings decided may stay without a turn, at the limit
            is_policy = all(one[2] is None and self._is_by_policy(one[0]) for one in joined)
            self.demand(is_policy and self._is_at_limit(), "somebody waits for an answer")
            due = [*dict.fromkeys([*(one[1] for one in joined), *due])]
        if due and not decides:
            self.demand(bool(chain.turns) and self._is_at_limit(), f"{due} are due")
            self._check_told(due)
        self.same("end", end, self._end(successes, is_limited=chain.told_limit is not None))
        named = [
            one["message"]["mentions"]
            for one in successes
            if end == "awaiting_human" and one["message"]
        ]
        people = [name for names in named for name in names if name in (chain.opener, "maya")]
        self.same("awaits", record["awaits"], list(dict.fromkeys(people)))

    def _end(self, successes: list[Record], *, is_limited: bool) -> str:
        chain = self.chain
        results = [one for turn in chain.turns for one in turn.results]
        failed = any(one["status"] in FAILED for one in results)
        if any(map(self._is_aborted, chain.turns)) or (failed and not successes):
            return "failed"
        if is_limited:
            return "chain_limit"
        people = {chain.opener, "maya"}
        if any(people & set(one["message"]["mentions"]) for one in successes):
            return "awaiting_human"
        return "quiet" if successes else "no_reply"

    # Replies.

    def _take_reply_started(self, record: Record) -> None:
        turn, agent = self.turn, record["agent"]
        self.same("turn", record["turn"], turn.number)
        self.demand(turn.next is None, "a reply starts in a turn that is over")
        phase = turn.must if turn.asked is None else turn.asked
        self.demand(agent in phase, f"nobody called {agent}")
        self.same("phase", record["phase"], "A" if turn.asked is None else "B")
        self.demand(agent not in turn.done, f"{agent} is called again after its reply")
        if turn.is_sequence and turn.asked is None:
            earlier = turn.must[: turn.must.index(agent)]
            self.demand(all(one in turn.done for one in earlier), f"{agent} is called too early")
        before = turn.started.get(agent)
        if before is None:
            self.replies += 1
            self.same("reply", record["reply"], self.replies)
        else:
            self.same("reply", record["reply"], before["reply"])
        attempt = before["attempt"] + 1 if before else 1
        self.same("attempt", record["attempt"], attempt)
        turn.excess.pop(agent, None)
        self._check_bounds(record, turn)
        turn.started[agent] = record

    def _check_bounds(self, record: Record, turn: Turn) -> None:
        """No call is made that would pass a bound, by the estimates of those that run."""
        chain = self.chain
        turn.running.pop(record["agent"], None)
        estimate = record["input_tokens"] + self.rules.most_output
        running = sum(one["input_tokens"] + self.rules.most_output for one in turn.running.values())
        for scope, bound in self.rules.bounds.items():
            if scope == "session":
                used, raised = self.spent, self.raised
            else:
                turns = chain.turns if scope == "chain" else [turn]
                raised = chain.raised
                used = sum(_tokens(end) for one in turns for end in _ends(one))
                used += sum(map(_tokens, chain.supervised.values())) if scope == "chain" else 0
            total = used + running + estimate
            if total > bound + raised:
                turn.excess[record["agent"]] = f"{total} of {bound + raised} tokens: {scope}"
                return
        turn.running[record["agent"]] = record

    def _take_reply_finished(self, record: Record) -> None:
        turn, agent = self.turn, record["agent"]
        self.same("turn", record["turn"], turn.number)
        self.demand(agent not in turn.done, f"{agent} has two replies in turn {turn.number}")
        is_refused = record["error_code"] == "budget" if "error_code" in record else False
        is_begun = agent in turn.running or agent in turn.excess
        self.demand(is_begun, f"{agent} ends a reply it never began")
        excess = turn.excess.pop(agent, "")
        self.demand(not excess or is_refused, f"a call beyond its budget: {excess}")
        turn.running.pop(agent, None)
        self.spent += _tokens(record)
        if record["status"] == "cancelled" and not record.get("cancelled_by"):
            turn.cut.append(record)
            return
        turn.done[agent] = record
        self.finals[agent, turn.number] = record
        if record["status"] == "success":
            message = record["message"]
            named = self.rules.named(message["content"], agent, self.chain.opener)
            self.same("mentions", message["mentions"], named)
            self.chain.texts[message["id"]] = message["content"]
        else:
            self.same("next_mentions", record["next_mentions"], [])

    # Control.

    def _take_resumed(self, record: Record) -> None:
        self.same("chain", record["chain"], self.chain.number)
        self.demand(not (self.chain.pause and self.chain.pending), "requests are still open")
        self.chain.pause = None
        if self.chain.turns:
            self.turn.running.clear()

    def _take_chain_paused(self, record: Record) -> None:
        chain = self.chain
        self.same("chain", record["chain"], chain.number)
        self.demand(chain.pause is None, "the chain is paused twice")
        reason = record["reason"]
        if reason in ("approval", "choice"):
            self.demand(bool(chain.pending), "nothing is asked")
            self.demand(not chain.turns or self.turn.next is not None, "the turn is not over")
            is_choice = all(one.asked.get("options") for one in chain.pending)
            self.same("reason", reason, "choice" if is_choice else "approval")
        elif reason == "budget":
            self.demand(bool(self.rules.bounds), "there is no budget")
        else:
            self.same("reason", reason, "asked")
        chain.pause = record

    def _take_approval_requested(self, record: Record) -> None:
        self.same("request", record["request"], len(self.requests) + 1)
        twins = [
            one
            for one in self.chain.pending
            if (one.asked["agent"], one.asked["digest"]) == (record["agent"], record["digest"])
        ]
        self.same("open requests for the same act", [one.asked["request"] for one in twins], [])
        policy = self.rules.policies.get(record["action"], "ask")
        if not record.get("in_message"):
            self.same("policy", policy, "ask")
        request = Request(record)
        self.requests[record["request"]] = self.chain.requests[record["request"]] = request

    def _take_approval_decided(self, record: Record) -> None:
        request = self.chain.requests.get(record["request"])
        self.demand(request is not None, "no such request in the open chain")
        assert request is not None
        self.demand(request.decided is None, "decided twice")
        self.same("digest", record["digest"], request.asked["digest"])
        late = _seconds(record["ts"]) - _seconds(request.asked["expires"])
        policy = self.rules.policies.get(request.asked["action"], "ask")
        if record["by"] == "policy":
            decision = {"allow": "approved", "deny": "rejected"}.get(policy)
            self.same("decision by the settings", record["decision"], decision)
        elif record["by"] == "time":
            self.same("decision", record["decision"], "expired")
            self.demand(late >= 0, "expired before its time")
        else:
            self.demand(record["by"] in PEOPLE, "only a person decides")
            self.demand(late <= SLACK_S, "decided after its time")
        request.decided = record

    def _take_approval_used(self, record: Record) -> None:
        request = self.requests.get(record["request"])
        self.demand(request is not None, "no such request")
        assert request is not None
        self.demand(request.decided is not None, "used before it is decided")
        assert request.decided is not None
        self.same("decision", request.decided["decision"], "approved")
        request.used += 1
        self.same("uses", request.used, 1)
        mine = self.turn.started.get(request.asked["agent"])
        self.same("reply", record["reply"], mine and mine["reply"])

    def _take_agent_state(self, record: Record) -> None:
        self.demand(self.states.get(record["agent"]) != "terminated", "it is terminated for good")
        self.states[record["agent"]] = record["state"]

    def _take_budget(self, record: Record) -> None:
        self.chain.raised += record["tokens"]
        self.raised += record["tokens"]

    def _take_supervised(self, record: Record) -> None:
        self.same("turn", record["turn"], self.turns + 1)
        self.same("agent", record["agent"], self.rules.supervisor)
        self.demand(not self.chain.turns or self.turn.next is not None, "the turn is not over")
        self.chain.supervised[record["turn"]] = record
        self.spent += _tokens(record)


def _ends(turn: Turn) -> list[Record]:
    return [*turn.done.values(), *turn.cut]


def _tokens(record: Record) -> int:
    usage = record.get("usage") or {}
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return sum(usage.get(kind, 0) for kind in kinds)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
