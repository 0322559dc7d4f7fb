"""What ships: a deployment's parameters, and a class's money made from g, q, k, m' and r, in one place.

``MAIN`` is for a chain like Ethereum, with a block every twelve seconds and its own coin. ``DEMO`` has short windows
and little stake, so that a whole life fits into minutes; a program that uses it prints ``warning_of``. ``money`` makes
the fields of an execution class that cost or earn something; ``penalty`` says why L is as large as it is. What
coalitions make of both sets is printed by ``scripts/bench economy``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from troth.protocol.market import court_money, economy
from troth.protocol.market.court import INCLUSION, SUMMONS_WINDOWS
from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.prices import BASIS_POINTS, BOND_UNITS, PER, REWARD_UNITS
from troth.protocol.market.types import NO_ADDRESS, ExecutionClass, Parameters

MAIN_POSITIONS, DEMO_POSITIONS = 1 << 16, 1 << 12
"""The longest orders, prompt and answer, of the classes that ship."""
MAIN_CHECK_RATE = 50_000
MAIN_HONEST_SHARE = 6_000
MAIN_VERIFIERS, MAIN_REVIEWERS = 3, 15
DEMO_CHECK_RATE = 250_000
DEMO_VERIFIERS, DEMO_REVIEWERS = 3, 5

BLOCK_SECONDS = 12
_MINUTE, _HOUR, _DAY = 60 // BLOCK_SECONDS, 3_600 // BLOCK_SECONDS, 86_400 // BLOCK_SECONDS

MAIN = Parameters(
    asset=NO_ADDRESS,
    lag=10 * _MINUTE,
    summons_window=4 * _MINUTE,
    lookahead=132,
    draw_window=1 * _HOUR,
    commit_window=30 * _MINUTE,
    reveal_window=1 * _HOUR,
    claim_delay=12 * _HOUR,
    answer_window=2 * _HOUR,
    close_delay=1 * _DAY,
    unbonding=7 * _DAY,
    seasoning=7 * _DAY,
    reference_age=20 * _MINUTE,
    suspension_pause=1 * _DAY,
    scheduler_stake=5 * 10**18,
    gas_price=50 * 10**9 * PER,
    weights=NO_ADDRESS,
    prover=NO_ADDRESS,
)
"""D covers half of itself, a summons and its inclusion; a claim outlasts the longest case, closing a claim and its last
objection, unbonding both. A node has an hour to show its part, since one that shows nothing loses L. Gas is paid back
up to 50 gwei."""

DEMO = Parameters(
    asset=NO_ADDRESS,
    lag=40,
    summons_window=15,
    lookahead=4,
    draw_window=60,
    commit_window=20,
    reveal_window=20,
    claim_delay=900,
    answer_window=60,
    close_delay=1_000,
    unbonding=2_000,
    seasoning=0,
    reference_age=100,
    suspension_pause=100,
    scheduler_stake=10**17,
    gas_price=1 * 10**9 * PER,
    weights=NO_ADDRESS,
    prover=NO_ADDRESS,
)
"""For one machine and a chain that anybody can wind on: nothing seasons, a case takes minutes, stake costs nothing."""
BRINGING_NUMERATOR, BRINGING_DENOMINATOR = 4, 3
"""Room in what makes a rejection worth bringing: the owners of its honest verifiers are missing in court."""
TILES = 1
"""Tiles that a reviewer of a class that ships opens: its court is paid for them, and others' for more."""
SEAT_CAP = 8
"""Most seats of one node. A group may be full of nodes with one seat each, and a try hits such a node once in so many:
at 16 one check in 400 could not be drawn within its tries, and an honest scheduler would be convicted for it."""
HISTORY = 8_191
"""Block hashes that EIP-2935 knows."""
_MAY_BE_NONE = {"seasoning", "suspension_pause"}
_WINDOWS = (
    *("lag", "summons_window", "lookahead", "draw_window", "commit_window", "reveal_window", "claim_delay"),
    *("answer_window", "close_delay", "unbonding", "seasoning", "reference_age", "suspension_pause"),
)


@dataclass(frozen=True, slots=True)
class ClassMoney:
    """The fields of an execution class that are money or decide about it, under the names that they have there."""

    verifiers: int
    reviewers: int
    check_price: int
    fee_cap: int
    least_check_rate: int
    honest_share: int
    penalty: int
    seat: int
    seat_cap: int
    pool_limit: int
    pool_window: int

    def put_into(self, execution_class: ExecutionClass) -> ExecutionClass:
        """The same class with this money."""
        return replace(execution_class, **{name: getattr(self, name) for name in self.__slots__})


def money(
    parameters: Parameters,
    *,
    fee_cap: int,
    positions: int,
    check_price: int,
    check_rate: int = MAIN_CHECK_RATE,
    verifiers: int = MAIN_VERIFIERS,
    reviewers: int = MAIN_REVIEWERS,
    honest_share: int = MAIN_HONEST_SHARE,
    tiles: int = TILES,
) -> ClassMoney:
    """The money of a class whose orders cost at most ``fee_cap`` (g) and have at most ``positions``.

    ``check_price`` is what a seat earns for checking 10^9 positions, ``check_rate`` the smallest q in millionths,
    ``honest_share`` the lowest r that it is made for, in basis points, and ``tiles`` what a reviewer opens.
    """
    committees = Committees(check_rate, verifiers, reviewers, honest_share, tiles)
    reward = -(-check_price * positions // PER)
    taken = penalty(parameters, committees, fee_cap=fee_cap, reward=reward)
    return ClassMoney(
        verifiers=verifiers,
        reviewers=reviewers,
        check_price=check_price,
        fee_cap=fee_cap,
        least_check_rate=check_rate,
        honest_share=honest_share,
        penalty=taken,
        seat=economy.least_seat(taken, committees.case_gas, parameters.gas_price),
        seat_cap=SEAT_CAP,
        pool_limit=pool_limit(committees, taken, reward=reward),
        pool_window=parameters.unbonding,
    )


@dataclass(frozen=True, slots=True)
class Committees:
    """Who decides about a false result: q in millionths, k, m', the share r of honest seats in basis points, and the
    tiles that each reviewer opens (none in an exact class)."""

    check_rate: int
    verifiers: int
    reviewers: int
    honest_share: int
    tiles: int = TILES

    @property
    def case_gas(self) -> int:
        """Of a whole case."""
        return economy.case_gas(self.reviewers, self.tiles)

    @property
    def bond_gas(self) -> int:
        """What a bond covers: an opening and two rounds over the longest trace. What is left of it is burnt."""
        return court_money.most_paid(self.reviewers, self.tiles, economy.MOST_LEVELS)

    @property
    def detection(self) -> int:
        """p with 18 decimals."""
        return economy.detection(self.check_rate, self.honest_share, self.verifiers, self.reviewers)

    @property
    def convicted(self) -> int:
        """With 18 decimals: two thirds of the court are honest."""
        return economy.at_least(self.reviewers, economy.supermajority(self.reviewers), self.honest_share)

    @property
    def decided(self) -> int:
        """With 18 decimals: most of the court are honest."""
        return economy.at_least(self.reviewers, self.reviewers // 2 + 1, self.honest_share)


def penalty(parameters: Parameters, committees: Committees, *, fee_cap: int, reward: int) -> int:
    """L: the largest of what deters a cheat, what pays everybody in court, and what makes a true rejection pay.

    ``reward`` is the dearest check's pay for one seat, six units.
    """
    return max(
        economy.least_penalty(fee_cap, committees.detection),
        paying(parameters, committees, fee_cap=fee_cap, reward=reward),
        worth_bringing(parameters, committees, reward=reward),
    )


def paying(parameters: Parameters, committees: Committees, *, fee_cap: int, reward: int) -> int:
    """The L out of which a conviction pays refund, reviewers, gas at its ceiling, and then the opener's whole tenth."""
    owed = fee_cap + committees.reviewers * reward + _worth(committees.case_gas, parameters)
    return -(-owed * economy.REWARD_SHARE // (economy.REWARD_SHARE - 1))


def worth_bringing(parameters: Parameters, committees: Committees, *, reward: int) -> int:
    """The L whose tenth outweighs, for who brings a true rejection, a court that is too small a majority, or captured.

    Where fewer than two thirds are honest the bond pays reviewers and gas; where most are not it is lost whole. Without
    this a rejection is best left alone, and the inequality says nothing. Raises WeakEconomy where no court convicts.
    """
    if committees.convicted <= 0:
        raise WeakEconomy("No court of this class convicts", committees, "Raise the honest share.")
    gas = _worth(committees.case_gas, parameters)
    narrow = (economy.supermajority(committees.reviewers) - 1) * reward + gas
    bond = -(-BOND_UNITS * reward // REWARD_UNITS) + committees.reviewers * reward
    bond += _worth(committees.bond_gas, parameters)
    fined = -(-2 * committees.verifiers * reward // REWARD_UNITS)
    risked = (committees.decided - committees.convicted) * narrow + (economy.ONE - committees.decided) * (bond + fined)
    least = -(-economy.REWARD_SHARE * risked // committees.convicted)
    return -(-BRINGING_NUMERATOR * least // BRINGING_DENOMINATOR)


def pool_limit(committees: Committees, taken: int, *, reward: int) -> int:
    """Outcomes between the cuts that an owner may have in a pool's window.

    A client that knows prompts with much honest noise must pay honest reviewers more, to fill the pool of an honest
    owner with its cases, than the opener's reward for the conviction that follows.
    """
    spent = committees.reviewers * reward * committees.honest_share // BASIS_POINTS
    return -(-BRINGING_NUMERATOR * taken // (BRINGING_DENOMINATOR * economy.REWARD_SHARE * spent))


def longest_case(parameters: Parameters) -> int:
    """Blocks from the last moment at which a case can be opened to the end of its second round."""
    opening = parameters.lag + SUMMONS_WINDOWS * parameters.summons_window
    randomness = parameters.lookahead + parameters.draw_window
    return opening + 2 * (2 * randomness + parameters.commit_window + parameters.reveal_window)


def broken_windows(parameters: Parameters) -> tuple[str, ...]:
    """The rules that a set of parameters breaks; none for a set that may be deployed.

    They are those of contracts/market/libraries/Windows.sol, and one more: unbonding outlasts closing.
    """
    case = longest_case(parameters) + 2 * INCLUSION
    opening = parameters.reference_age + parameters.lag + SUMMONS_WINDOWS * parameters.summons_window
    claim = parameters.claim_delay + parameters.answer_window
    named = ((name, getattr(parameters, name)) for name in _WINDOWS)
    rules = {
        "nothing is instant, and nothing lasts for ever": all(
            (0 if name in _MAY_BE_NONE else 1) <= blocks <= 1 << 30 for name, blocks in named
        ),
        "a check summoned at half of D is answered within D": (
            parameters.lag > 2 * parameters.summons_window + INCLUSION
        ),
        "a RANDAO can still be proven": parameters.lookahead + parameters.draw_window <= HISTORY,
        "commitments and reveals have four blocks": min(parameters.commit_window, parameters.reveal_window) >= 4,
        "a claim outlasts the longest case": parameters.claim_delay > case,
        "a claim can be objected to and answered": parameters.claim_delay > 2 * parameters.answer_window,
        "closing outlasts a claim and its last answer": parameters.close_delay > claim,
        "unbonding outlasts an order, its claim and the last answer": (
            parameters.unbonding > opening + claim + INCLUSION
        ),
        "unbonding outlasts closing and the longest case": parameters.unbonding > parameters.close_delay + case,
        "stake and gas are worth something": min(parameters.scheduler_stake, parameters.gas_price) > 0,
    }
    return tuple(rule for rule, holds in rules.items() if not holds)


def stretched(parameters: Parameters, block_seconds: float) -> Parameters:
    """The same set for a chain of another pace: every window lasts as long in seconds as with blocks of 12 seconds.

    Not ``lookahead``: it is the distance in blocks beyond which nobody can choose the randomness.
    """
    factor = BLOCK_SECONDS / block_seconds
    windows = {name: max(round(getattr(parameters, name) * factor), 1) for name in _WINDOWS if name != "lookahead"}
    kept = {name: 0 for name in _MAY_BE_NONE if getattr(parameters, name) == 0}
    return replace(parameters, **(windows | kept))


def main_money() -> ClassMoney:
    """The class that ships: an order of 65,536 positions costs at most a thousandth of a coin.

    A seat checks for a seventh of that, so that three of them can check every order at four sevenths for the work.
    """
    return money(MAIN, fee_cap=10**15, positions=MAIN_POSITIONS, check_price=10**15 * PER // (7 * MAIN_POSITIONS))


def demo_money() -> ClassMoney:
    """A class for demos: q is a quarter, a court has five seats, an order costs at most a hundred-thousandth coin."""
    return money(
        DEMO,
        fee_cap=10**13,
        positions=DEMO_POSITIONS,
        check_price=10**13 * PER // (7 * DEMO_POSITIONS),
        check_rate=DEMO_CHECK_RATE,
        verifiers=DEMO_VERIFIERS,
        reviewers=DEMO_REVIEWERS,
        honest_share=MAIN_HONEST_SHARE,
    )


def warning_of(parameters: Parameters) -> str:
    """What a program prints beside parameters that protect nobody's money; empty for a set with full windows."""
    if parameters.seasoning >= MAIN.seasoning and parameters.lookahead >= MAIN.lookahead:
        return ""
    return (
        f"These parameters are small, for demos and tests: stake counts in checks and courts {parameters.seasoning:,} "
        f"blocks after it was put up ({MAIN.seasoning:,} on a real network), a court is drawn by the randomness of "
        f"{parameters.lookahead:,} blocks later ({MAIN.lookahead:,}), and what nobody checked is paid after "
        f"{parameters.lag:,} blocks ({MAIN.lag:,}). Put no money at stake here."
    )


def _worth(gas: int, parameters: Parameters) -> int:
    """What gas costs at the ceiling."""
    return -(-gas * parameters.gas_price // PER)
