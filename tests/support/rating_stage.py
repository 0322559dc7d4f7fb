"""Members that rate nodes on a real chain, through their real routes, in one process; what nodes answer is a toy's.

A toy's answer is an order of which only its tokens mean something: they tell node and worth. What real answers must be
is tested where there are real orders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
from fastapi import FastAPI, Request
from starlette.responses import Response
from support.reputation_stage import ReputationStage, vrf_secret

from troth.chain.deployment import submit
from troth.chain.reputation import followed_reputation
from troth.committee import requests
from troth.committee.errors import CommitteeError
from troth.committee.rating.answers import ChallengeAnswer
from troth.committee.rating.asking import ExaminableNodes
from troth.committee.rating.challenges import Challenge, PromptOpening
from troth.committee.rating.epochs import EpochJournal
from troth.committee.rating.member import RatingMember, RatingTerms
from troth.committee.rating.moments import EpochClock
from troth.committee.rating.requests import PATHS, rating_router
from troth.committee.rating.store import EpochStore
from troth.committee.rating.turns import EpochTurns
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.calls import Call
from troth.protocol.committee import CommitteeMember
from troth.protocol.credit import NO_EVIDENCE, Credit, CreditEvidence
from troth.protocol.hashing import keccak256
from troth.protocol.market.bodies import Admitted, Results
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission, Order
from troth.protocol.market.types import Tab
from troth.protocol.reputation import ONE
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32
from troth.transport.errors import encode_failure, failure_of

AGREEING = 50
TERMS = RatingTerms(prompts=2, tokens=64, attempts=2)


@dataclass
class ToyMarket:
    """Nodes, what their answers are worth, and who is silent; every prompt with the node that it reached.

    A node that ``knows`` prompts answers no others. One that is ``off`` has texts so many standard deviations away in
    each epoch.
    """

    nodes: tuple[Address, ...]
    worth: dict[Address, int]
    silent: set[Address] = field(default_factory=set)
    knows: dict[Address, frozenset[str]] = field(default_factory=dict)
    off: dict[Address, float] = field(default_factory=dict)
    prompts: list[tuple[str, Address]] = field(default_factory=list)


@dataclass
class ToyExaminer:
    """An Examiner of one member; ``orders`` is its journal, which survives a kill."""

    market: ToyMarket
    orders: dict[str, tuple[Challenge, Address]] = field(default_factory=dict)
    lie: int = 0

    def hosts(self, first: int) -> ExaminableNodes:
        return ExaminableNodes(frozenset(self.market.nodes), frozenset(self.market.nodes))

    def asked(self, name: str) -> bool:
        return name in self.orders

    async def ask(self, name: str, challenge: Challenge) -> None:
        # In turns, so that every node is asked.
        drawn = self.market.nodes[int(name.rpartition("-")[2]) % len(self.market.nodes)]
        self.orders[name] = (challenge, drawn)
        self.market.prompts.append((challenge.prompt, drawn))
        await asyncio.sleep(0)

    def under_way(self, names: Iterable[str]) -> bool:
        return False

    def answers(self, names: Mapping[int, str]) -> list[ChallengeAnswer]:
        found = []
        for place, name in names.items():
            if name in self.orders and self._answers(name):
                found.append(_answer(place, name, self.orders[name][1], self.market))
        return found

    def silent(self, names: Iterable[str]) -> frozenset[Address]:
        asked = [name for name in names if name in self.orders]
        spoke = {self.orders[name][1] for name in asked if self._answers(name)}
        return frozenset({self.orders[name][1] for name in asked} - spoke)

    def _answers(self, name: str) -> bool:
        challenge, node = self.orders[name]
        known = self.market.knows.get(node)
        return node not in self.market.silent and (known is None or challenge.prompt in known)

    async def credits(
        self,
        answers: Sequence[ChallengeAnswer],
        openings: Sequence[PromptOpening],
        first: int,
        before: Mapping[Address, CreditEvidence],
    ) -> dict[Address, Credit]:
        worth = {self.market.nodes[answer.tokens[0]]: answer.tokens[1] - self.lie for answer in answers}
        return {node: self._credit(node, value, before.get(node, NO_EVIDENCE)) for node, value in worth.items()}

    def _credit(self, node: Address, worth: int, before: CreditEvidence) -> Credit:
        """As texts would have it that are this far from what they should be."""
        z = self.market.off.get(node, 0.0)
        evidence = before.after(z)
        return Credit(round(worth * (1 - evidence.doubt / 2)), worth / ONE, z, 1, 1, evidence)


def _answer(place: int, name: str, node: Address, market: ToyMarket) -> ChallengeAnswer:
    order = Order(ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, ZERO_HASH, *[0] * 8, ZERO_HASH, ZERO_HASH, ZERO_HASH)
    tab = Tab(ZERO_ADDRESS, ZERO_ADDRESS, ZERO_ADDRESS)
    admitted = Admitted(Signed(Admission(ZERO_HASH, ZERO_HASH, 0), b""), (node,), b"")
    signed = Signed(order, keccak256(name.encode()))
    tokens = (market.nodes.index(node), market.worth[node])
    return ChallengeAnswer(place, signed, tab, b"", ZERO_HASH, admitted, Results("end", ()), tokens)


@dataclass
class ToyWire:
    """MemberCalls without sockets: signed headers, and the routes of whoever is awake."""

    stage: RatingStage
    secret: bytes
    operator: Address

    async def ask(self, operator: Address, kind: str, body: bytes, epoch: int) -> bytes:
        member = self.stage.members[operator]
        if member.app is None:
            return b""
        headers = requests.headers_of(kind, body, epoch, self.stage.membership.domain, self.secret)
        transport = httpx.ASGITransport(member.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://member") as client:
            answer = await client.post("/v1/reputation/" + PATHS[kind], content=body, headers=headers)
        if answer.status_code != 200:
            self.stage.refusals.append(answer.text)
            return b""
        return answer.content

    async def ask_all(
        self, kind: str, body: bytes, epoch: int, *, enough: int, among: Collection[Address] | None = None
    ) -> dict[Address, bytes]:
        others = [operator for operator in self.stage.members if operator != self.operator]
        others = others if among is None else [operator for operator in others if operator in among]
        found = {operator: await self.ask(operator, kind, body, epoch) for operator in others}
        return {operator: answer for operator, answer in found.items() if answer}


@dataclass
class StagedMember:
    """A member; ``app`` is None while it is down. What it has on disk, and its client's journal, survive a kill."""

    folder: Path
    number: int
    examiner: ToyExaminer
    app: FastAPI | None = None
    rater: RatingMember | None = None
    turns: EpochTurns | None = None

    @property
    def awake(self) -> EpochTurns:
        assert self.turns is not None
        return self.turns


@dataclass
class RatingStage:
    """``members`` by operator, the chain, and what members refused each other."""

    reputation: ReputationStage
    folder: Path
    market: ToyMarket
    membership: CommitteeMembership
    clock: EpochClock
    members: dict[Address, StagedMember] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    def start(self, operator: Address, terms: RatingTerms = TERMS) -> StagedMember:
        """What `troth committee start` does with a member's folder."""
        member, secret = self.members[operator], self.reputation.key(operator).secret
        journal = EpochJournal(member.folder / "reputation.sqlite")
        store, proving = EpochStore(member.folder / "rating.sqlite"), vrf_secret(member.number)
        member.rater = RatingMember(secret, proving, self.clock.moment, journal, store, member.examiner, terms)
        wire = ToyWire(self, secret, operator)
        member.turns = EpochTurns(member.rater, wire, lambda call: self.send(call, operator))  # type: ignore[arg-type]
        member.app = FastAPI()
        member.app.include_router(rating_router(member.rater, lambda: self.membership))

        @member.app.exception_handler(CommitteeError)
        async def refused(_request: Request, error: CommitteeError) -> Response:
            return Response(encode_failure(failure_of(error)), status_code=error.status)

        return member

    def kill(self, operator: Address) -> None:
        """As kill -9 does: files stay, and nothing else."""
        member = self.members[operator]
        assert member.rater is not None
        member.rater.journal.close()
        member.rater.store.close()
        member.app = member.rater = member.turns = None

    async def send(self, call: Call, operator: Address) -> object:
        return await submit(self.reputation.url, call, self.reputation.key(operator), self.reputation.contract)

    async def to(self, epoch: int, progress: float, *, reorganised: bool = False) -> None:
        """Mine to a moment of an epoch, and wait until it was followed; another branch where blocks were taken back."""
        rules, start = self.reputation.rules, self.reputation.start_block
        block = start + epoch * rules.epoch_blocks + round(progress * rules.epoch_blocks)
        here = await self.reputation.chain.block_number()
        assert block >= here, f"{here - block} blocks too late"
        self.reputation.mine(block - here)
        if reorganised:
            await self.clock.follower.catch_up()
        await self.followed()

    async def followed(self) -> None:
        await self.clock.follower.reach(await self.reputation.chain.block_number(), 20)

    async def act(self, *, but: Sequence[Address] = ()) -> None:
        """Every member that is awake takes a look, and what it asks is answered."""
        for operator, member in self.members.items():
            if member.turns is not None and operator not in but:
                await self.look(operator)

    async def look(self, operator: Address) -> None:
        turns = self.members[operator].awake
        try:
            await turns.act()
        except CommitteeError as error:
            self.refusals.append(str(error))
        await asyncio.gather(*turns._asking.values())
        await self.followed()

    async def leader(self, *, by_seed: bool = False) -> Address:
        """Who leads the current epoch."""
        now = (await self.clock.moment()).now
        if by_seed or now.state.leader not in self.members:
            return now.leader(b"")
        return now.leader(now.lead(vrf_secret(self.members[now.state.leader].number)))

    def last_leader(self) -> Address:
        """Who led the update that was settled last."""
        return self.clock.follower.state.leader

    async def opened_by_the_leader(self) -> list[PromptOpening]:
        """The prompts that the update that was settled last fixed."""
        settled = self.clock.follower.state.settled
        assert settled is not None
        rater = self.members[settled.leader].rater
        assert rater is not None
        return rater.opened(await self.clock.moment()) or []

    def credits(self) -> dict[Address, int]:
        """The last credit of each node on chain."""
        return {node: rating.credit for node, rating in self.clock.follower.state.ratings.items()}

    def through(self) -> int:
        return self.clock.follower.state.through


@asynccontextmanager
async def rating_stage(
    reputation: ReputationStage, folder: Path, worth: Callable[[int], int]
) -> AsyncIterator[RatingStage]:
    """Every member of a ReputationStage, started."""
    nodes = reputation.nodes
    market = ToyMarket(nodes, {node: worth(number) for number, node in enumerate(nodes)})
    listed = [CommitteeMember(key.address, Hash32(bytes(32)), "https://192.0.2.1:8543") for key in reputation.keys]
    domain = replace(reputation.chain.domain, contract=ZERO_ADDRESS)
    membership = CommitteeMembership.of(domain, tuple(listed))
    async with AsyncExitStack() as stack:
        follower = await stack.enter_async_context(
            followed_reputation(reputation.url, reputation.contract, start_block=reputation.start_block)
        )
        clock = EpochClock(reputation.chain, follower, lambda: membership, AGREEING)
        made = RatingStage(reputation, folder, market, membership, clock)
        for number, key in enumerate(reputation.keys):
            home = folder / f"member{number}"
            made.members[key.address] = StagedMember(home, number, ToyExaminer(market))
            made.start(key.address)
        yield made
        for operator, member in made.members.items():
            if member.turns is not None:
                made.kill(operator)
