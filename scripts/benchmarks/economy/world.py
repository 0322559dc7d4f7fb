"""Where coalitions play: a deployment that ships, its class, a group of a hundred seats, and what gas costs.

Money is in wei and printed in g, the most that an order costs. A share r of the seats is honest; all others are one
coalition, whose addresses cost nothing. Every seat has an owner of its own unless a world says otherwise, which is the
worst case for a rule that counts owners, and the exact sums' case.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from troth.protocol.hashing import keccak256
from troth.protocol.market import economy, prices, shipped
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.signed import Order, Result
from troth.protocol.market.types import Ask, GroupEntry, Parameters, Rules
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, address_from_bytes

GWEI = 10**9
SEATS = 100
"""Seats of the group: r in percent is the number of honest ones."""
HONEST_SHARES = (60, 65, 70, 80, 90, 95)
GAS_PRICES = (0.01, 0.1, 1.0, 10.0, 50.0)
CHECK_RATES = (10_000, 50_000, 200_000, 1_000_000)
CHEAT_RATES = (0.001, 0.01, 0.1, 1.0)
COST = 0.6
"""What honest work costs of what it is paid."""
NODE_SHARE = 0.8
"""Of the price of the work: the node's; the rest is the scheduler's."""
SEGMENT = Segment(0, 32)
CLASS_ID = Hash32(keccak256(b"economy: class"))
REFERENCE_BLOCK = 10_000_000


@dataclass(frozen=True, slots=True)
class Gas:
    """Gas of the calls that coalitions and honest parties make: what ``scripts/bench gas`` is to reach, or sees."""

    open_tab: int = 52_000
    close_tab: int = 70_000
    claim: int = 75_000
    settle: int = 60_000
    objection: int = 70_000
    strike: int = 60_000
    summons: int = 90_000
    answer: int = 110_000
    unanswered: int = 150_000
    case: int = 900_000
    """In an exact class, a call a step, where nobody's step is joined with another's."""
    conviction: int = 260_000
    registration: int = 220_000
    task: int = 450
    """All-in, a served task over a month."""


GAS = Gas()


def address(name: str) -> Address:
    """The account of that name."""
    return address_from_bytes(keccak256(name.encode())[:20])


@dataclass(frozen=True)
class World:
    """A deployment at one honest share, gas price and check rate; ``honest`` of SEATS seats are honest."""

    parameters: Parameters
    money: shipped.ClassMoney
    positions: int
    honest: int = 60
    gas_gwei: float = 1.0
    check_rate: int = shipped.MAIN_CHECK_RATE
    owners: tuple[tuple[int, bool], ...] = field(default=())
    """Seats of each owner, and whether it is honest; empty: one seat each."""

    @cached_property
    def rules(self) -> Rules:
        """What the contracts keep of the class: an exact one, so that honest traces agree bit by bit."""
        return Rules(
            penalty=self.money.penalty,
            seat=self.money.seat,
            seat_cap=self.money.seat_cap,
            dtype=1,
            exact=True,
            mantissa_bits=7,
            tiles=0,
            verifiers=self.money.verifiers,
            reviewers=self.money.reviewers,
            check_price=self.money.check_price,
            fee_cap=self.money.fee_cap,
            least_check_rate=self.money.least_check_rate,
            theta=10_000,
            steps=0,
            second_cut=2_000_000,
            pool_limit=self.money.pool_limit,
            pool_window=self.money.pool_window,
            hidden_size=4_096,
            layers=SEGMENT.end,
            candidates=3,
        )

    @property
    def share(self) -> float:
        """r."""
        return self.honest / SEATS

    @property
    def rate(self) -> float:
        """q of the orders that are played, at least the class's."""
        return self.check_rate / prices.MILLION

    @property
    def g(self) -> int:
        """The most that an order costs."""
        return self.money.fee_cap

    @property
    def penalty(self) -> int:
        """L."""
        return self.money.penalty

    @property
    def unit(self) -> int:
        """u of the longest order."""
        return prices.unit(self.rules, self.positions)

    @property
    def reward(self) -> int:
        """What a seat earns for checking or reviewing the longest order."""
        return prices.check_reward(self.rules, self.positions)

    @property
    def inequality(self) -> int:
        """1.5 g (1 - p) / p: what L must reach, by the class's own q and r."""
        committees = shipped.Committees(
            self.money.least_check_rate, self.money.verifiers, self.money.reviewers, self.money.honest_share
        )
        return economy.least_penalty(self.g, committees.detection)

    def wei(self, gas: int) -> float:
        """What gas costs who sends it."""
        return gas * self.gas_gwei * GWEI

    def paid_back(self, gas: int) -> float:
        """What the contracts pay back of it: at the block's price, at most at the ceiling."""
        return min(self.wei(gas), gas * self.parameters.gas_price / prices.PER)

    @cached_property
    def order(self) -> Order:
        """The dearest order at this q: its bound and its fee are g, whatever part of it the checks take."""
        checks = self.positions * self.money.check_price * self.money.verifiers * self.check_rate
        price = -(-(self.g * prices.PER * prices.MILLION - checks) // (self.positions * prices.MILLION))
        return Order(
            tab=ZERO_HASH,
            sequence=1,
            execution_class=CLASS_ID,
            request_hash=ZERO_HASH,
            ends=Hash32(bytes([SEGMENT.end]) + bytes(31)),
            prompt_price=price,
            cached_price=price,
            written_price=price,
            node_share=int(NODE_SHARE * prices.BASIS_POINTS),
            max_fee=self.g,
            check_rate=self.check_rate,
            deadline=2**32,
            reference_block=REFERENCE_BLOCK,
            draw_hash=ZERO_HASH,
            tiles_hash=ZERO_HASH,
            reply_key=ZERO_HASH,
        )

    @cached_property
    def fee(self) -> int:
        """What the order costs its client."""
        result = Result(ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, self.positions, 0, 0, ZERO_HASH, ZERO_HASH)
        return prices.fee(self.order, self.rules, 1, result)

    @property
    def work(self) -> float:
        """What the order pays for work, checks aside."""
        return self.fee - self.rate * self.money.verifiers * self.reward

    @cached_property
    def in_court(self) -> World:
        """The same world to a court, which sees votes and no shares: what was judged once need not be judged again."""
        return self.at(honest=SEATS, owners=())

    @cached_property
    def seats_of_owners(self) -> tuple[tuple[int, bool], ...]:
        """Seats and honesty of each owner."""
        if self.owners:
            return self.owners
        return tuple((1, number < self.honest) for number in range(SEATS))

    @cached_property
    def group(self) -> GroupHistory:
        """The group of the class's only segment, all seats seasoned."""
        return _group(self.seats_of_owners, self.money.seat_cap)

    def is_honest(self, operator: Address) -> bool:
        """Whether a member of the group is honest."""
        return _honesty(self.seats_of_owners)[self.group.owners[operator]]

    def is_owner_honest(self, owner: Address) -> bool:
        """Whether an owner of the group is honest."""
        return _honesty(self.seats_of_owners)[owner]

    def owner(self, number: int) -> Address:
        """Owner by its number; the coalition's come last."""
        return address(f"owner {number}")

    @property
    def cheat(self) -> Address:
        """The coalition's owner whose node infers."""
        return self.owner(len(self.seats_of_owners) - 1)

    @property
    def upright(self) -> Address:
        """The honest owner whose node infers where the coalition attacks one."""
        return self.owner(0)

    def at(self, **changed: object) -> World:
        """The same world with other values."""
        return replace(self, **changed)  # type: ignore[arg-type]


@lru_cache
def _honesty(owners: tuple[tuple[int, bool], ...]) -> dict[Address, bool]:
    return {address(f"owner {number}"): honest for number, (_, honest) in enumerate(owners)}


@lru_cache
def _group(owners: tuple[tuple[int, bool], ...], seat_cap: int) -> GroupHistory:
    """A node for each ``seat_cap`` seats of an owner, at places that do not change."""
    places: list[tuple[GroupEntry, ...]] = []
    owner_of: dict[Address, Address] = {}
    for number, (seats, _) in enumerate(owners):
        for node, taken in enumerate(range(0, seats, seat_cap)):
            operator = address(f"owner {number} node {node}")
            own = min(seat_cap, seats - taken)
            places.append((GroupEntry(operator, from_block=1, since=1, seats=own, settled=own),))
            owner_of[operator] = address(f"owner {number}")
    asks = {operator: ((1, Ask(1, 1, 1)),) for operator in owner_of}
    return GroupHistory(((1, len(places)),), tuple(places), owner_of, asks)


def main_world() -> World:
    """The deployment that ships for a chain like Ethereum."""
    return World(shipped.MAIN, shipped.main_money(), shipped.MAIN_POSITIONS)


def demo_world() -> World:
    """The small deployment for demos."""
    return World(
        shipped.DEMO, shipped.demo_money(), shipped.DEMO_POSITIONS, honest=80, check_rate=shipped.DEMO_CHECK_RATE
    )
