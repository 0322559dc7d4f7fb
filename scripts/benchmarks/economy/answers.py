"""Coalitions that give false answers: at any rate, in bursts, before leaving, behind sham cases, by many addresses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random

from benchmarks.economy import cases, leaves
from benchmarks.economy.cases import Side
from benchmarks.economy.coalition import Coalition, Worlds, everywhere, gas_prices
from benchmarks.economy.leaves import BOTH, Cheat
from benchmarks.economy.world import CHEAT_RATES, World
from troth.protocol.market import convictions, shipped
from troth.protocol.market.types import Parameters

NODE = Cheat(scheduler=False)
ANSWERS = 1_000
BURSTS = (1, 2, 5, 10, 50, 200, 1_000, 10_000)
CHECKED_AFTER = 5
"""Blocks from a false answer to the case over it: a check takes seconds, its opening a few blocks."""
OWNERS, ADDRESSES, OWNER_SEATS = 4, 20, 20


def at_rate(world: World, rate: float, cheat: Cheat) -> float:
    """A thousand answers of which this share is false; the honest ones' pay is not counted."""
    return ANSWERS * rate * leaves.false_answer(world, cheat)


def sample_at_rate(world: World, source: Random, rate: float, cheat: Cheat) -> float:
    """The same, one answer for a thousand."""
    return ANSWERS * leaves.play_false_answer(world, source, cheat) if source.random() < rate else 0.0


def by_proof(world: World) -> float:
    """What the scheduler's own signature convicts it of: nodes, beta, heads, two draws. Its leaf is void, too."""
    return -float(convictions.fine(world.parameters.scheduler_stake, world.penalty)[0])


def reporting(world: World) -> float:
    """What such a conviction is worth to who reports it."""
    gas = 260_000
    return (
        convictions.fine(world.parameters.scheduler_stake, world.penalty)[1] + world.paid_back(110_000) - world.wei(gas)
    )


# ------------------------------------------------------------------------------------------------------------ bursts


def is_paid_before(parameters: Parameters) -> bool:
    """Whether an answer is acknowledged before a false one of the same block is found."""
    return parameters.lag <= CHECKED_AFTER


def stake_after_exit(world: World) -> int:
    """What is left to take from a node that deregisters at once, when the last case over its answers ends."""
    return world.money.seat if world.parameters.unbonding > shipped.longest_case(world.parameters) else 0


def taken(world: World, convicted: int, stake: int) -> int:
    """What so many convictions take of a stake."""
    total = 0
    for _ in range(convicted):
        total += convictions.fine(stake - total, world.penalty)[0]
        if total == stake:
            break
    return total


def burst(world: World, size: int, stake: int) -> float:
    """That many false answers in one block: all are void if one of them is convicted before it is paid."""
    fate = leaves.fate(world)
    fined = sum(chance * taken(world, many, stake) for many, chance in enumerate(_few(size, fate.convicted)))
    paid = 1.0 if is_paid_before(world.parameters) else fate.paid * (1 - fate.convicted) ** (size - 1)
    return size * (paid * BOTH.gain(world) + fate.side) - fined


def _few(size: int, chance: float) -> list[float]:
    """Chances of 0 to 9 convictions among ``size`` answers, and of more, which take no more stake than there is."""
    head = [(1 - chance) ** size]
    for many in range(1, min(size, 9) + 1):
        head.append(head[-1] * (size - many + 1) / many * chance / (1 - chance))
    return [*head, max(1 - sum(head), 0.0)]


def sample_burst(world: World, source: Random, size: int) -> float:
    """The same with real draws."""
    gain, stake = BOTH.gain(world), world.money.seat
    found, side, paid = 0, 0.0, 0.0
    for _ in range(size):
        outcome = leaves.play_outcome(world, source, BOTH)
        found += outcome.convicted
        side += outcome.side
        paid += gain if outcome.paid or is_paid_before(world.parameters) else 0.0
    if found and not is_paid_before(world.parameters):
        paid = 0.0
    return paid + side - taken(world, found, stake)


def largest_burst(world: World) -> float:
    """The best size of a burst."""
    return max(burst_of(world, size) for size in BURSTS)


def burst_of(world: World, size: int) -> float:
    """A burst of this size by a node that stays."""
    return burst(world, size, world.money.seat)


def burst_and_exit(world: World) -> float:
    """The best size of a burst after which the node deregisters."""
    return max(burst(world, size, stake_after_exit(world)) for size in BURSTS)


# ------------------------------------------------------------------------------------------------------- other ways out


def nothing_shown(world: World) -> float:
    """A false answer whose node shows the court nothing."""
    return leaves.false_answer(world, Cheat(shown=False))


def self_conviction(world: World) -> float:
    """A false answer whose rejection a friend brings first, for the opener's reward."""
    return leaves.false_answer(world, Cheat(opener=Side.COALITION))


def sham_cases(world: World) -> float:
    """A false answer whose node, once it is rejected, has friends open two sham cases that lock its stake first.

    A friendly check lies in stock. Each sham case is lost for want of its prompt, with its bond; what is locked for it
    is beyond the reach of the true case.
    """
    spared = min(2 * world.penalty, world.money.seat) / world.money.seat
    cheat = Cheat(spared=spared)
    rejected = leaves.rejected(world, BOTH)
    return leaves.false_answer(world, cheat) - rejected * 2 * cases.bond(world)


def addresses(world: World) -> Iterable[World]:
    """Four honest owners with twenty seats each against twenty addresses of one owner with a seat each."""
    owners = ((OWNER_SEATS, True),) * OWNERS + ((1, False),) * ADDRESSES
    for gas in gas_prices(world):
        yield world.at(owners=owners, honest=OWNERS * OWNER_SEATS, gas_gwei=gas)


def owners_once(world: World) -> Iterable[World]:
    """The same owners under a rule that counts each owner once, whatever it holds."""
    owners = ((1, True),) * OWNERS + ((1, False),) * ADDRESSES
    for one in addresses(world):
        yield one.at(owners=owners)


def cheating(cheat: Cheat, who: str) -> list[Coalition]:
    """One coalition at every rate."""
    return [
        Coalition(
            f"{who} {'all' if rate == 1 else f'{rate:.1%}'} of the time",
            "1,000 answers",
            partial(at_rate, rate=rate, cheat=cheat),
            partial(sample_at_rate, rate=rate, cheat=cheat),
            plays=int(20_000 / max(rate, 0.1)),
        )
        for rate in CHEAT_RATES
    ]


def many_addresses(worlds: Worlds = addresses) -> Coalition:
    """Twenty addresses of one owner; ``worlds`` says by what rule seats are drawn."""
    return Coalition(
        "twenty addresses of one owner against four honest owners with 80 %",
        "false answer",
        leaves.false_answer,
        leaves.play_false_answer,
        plays=20_000,
        worlds=worlds,
    )


def coalitions() -> list[Coalition]:
    """All that give false answers."""
    return [
        *cheating(NODE, "node cheats"),
        *cheating(BOTH, "scheduler and node cheat"),
        Coalition(
            "scheduler cheats: other nodes, beta, heads or draws than its proofs",
            "order",
            by_proof,
            honest=reporting,
            whom="who reports it",
        ),
        Coalition(
            "burst within the lag, of the best size",
            "burst",
            largest_burst,
        ),
        Coalition(
            "burst of 200 within the lag",
            "burst",
            partial(burst_of, size=200),
            partial(sample_burst, size=200),
            plays=150,
        ),
        Coalition("exit after a burst of the best size", "burst", burst_and_exit, worlds=everywhere),
        Coalition("cheat that shows the court nothing", "false answer", nothing_shown),
        Coalition("cheat whose friend brings its rejection first", "false answer", self_conviction),
        Coalition("cheat whose stake two sham cases lock first", "false answer", sham_cases),
        many_addresses(),
    ]
