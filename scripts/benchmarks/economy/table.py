"""All rows of the economy: what ships, coalitions where they do best, sweeps, honest parties, weaker rules."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.economy import answers, cases, committees, honest, leaves, payments
from benchmarks.economy.coalition import TOLERATED, Coalition, Row, best, gas_prices
from benchmarks.economy.world import CHECK_RATES, HONEST_SHARES, World
from benchmarks.figures import Figure
from troth.protocol.market import economy, prices, shipped

ETHER = 10**18


@dataclass(frozen=True, slots=True)
class Economy:
    """What a run found."""

    world: World
    coalitions: list[Row]
    parties: list[Row]
    weakened: list[Row]

    @property
    def winners(self) -> list[Row]:
        """Coalitions that do not lose."""
        return [row for row in self.coalitions if not row.loses]

    @property
    def poor(self) -> list[Row]:
        """Honest parties that do not earn."""
        return [row for row in self.parties if row.profit <= 0]

    @property
    def off(self) -> list[Row]:
        """Rows whose plays are further from their exact value than chance allows."""
        return [row for row in self.coalitions if row.off > TOLERATED]


def every_coalition() -> list[Coalition]:
    """All coalitions, in the order of the table."""
    return [*answers.coalitions(), *committees.coalitions(), *payments.coalitions()]


def run(world: World, seed: int, share: float = 1.0) -> Economy:
    """Plays everything; ``share`` of the usual number of plays."""
    return Economy(
        world,
        [best(one, world, seed=_seed(seed, one), share=share) for one in every_coalition()],
        [_worst(one, world) for one in honest.parties()],
        [best(one, weak, seed=_seed(seed, one), share=share) for one, weak in honest.weakened(world)],
    )


def _seed(seed: int, coalition: Coalition) -> int:
    return seed + zlib.crc32(coalition.name.encode())


def _worst(coalition: Coalition, world: World) -> Row:
    """An honest party where it earns least."""
    worlds = list(coalition.worlds(world))
    profits = [coalition.profit(one) / one.g for one in worlds]
    least = min(profits)
    return Row(coalition.name, coalition.per, least, worlds[profits.index(least)], None, None, "")


# ------------------------------------------------------------------------------------------------------------ figures


def figures(found: Economy, seed: int) -> list[Figure]:
    """The whole table; profits are in g, the most that an order costs, and a coalition is to stay below 0."""
    world = found.world
    return [
        *_deployment(world, seed),
        *(_figure(row) for row in found.coalitions),
        *_by_share(world),
        *_by_gas(world),
        *_by_rate(world),
        *(_earning(row) for row in found.parties),
        *(_figure(row, "without a rule: ") for row in found.weakened),
    ]


def _figure(row: Row, before: str = "") -> Figure:
    note = f"best at {row.where}: {row.profit * row.world.g / 10**9:,.0f} gwei"
    if row.played is not None:
        note += f"; played {row.played.mean:.4g} ± {row.played.error:.2g} ({row.off:.1f} sigma)"
    if row.honest is not None:
        note += f"; {row.whom} {row.honest:+.4g} at worst"
    return Figure(before + row.name, row.profit, f"g / {row.per}", reach=None if before else 0.0, note=note)


def _earning(row: Row) -> Figure:
    note = f"least at {row.where}: {row.profit * row.world.g / 10**9:,.0f} gwei"
    return Figure(row.name, row.profit, f"g / {row.per}", note=note)


def _deployment(world: World, seed: int) -> Iterable[Figure]:
    money = world.money
    committees_ = shipped.Committees(money.least_check_rate, money.verifiers, money.reviewers, money.honest_share)
    small = shipped.warning_of(world.parameters)
    asked = f"q {world.rate:.0%}, k {money.verifiers}, m' {money.reviewers}, r {money.honest_share / 100:.0f} %"
    yield Figure("g: the most that an order costs", world.g / 10**9, "gwei", note=small or f"seed {seed}")
    yield Figure("p: a false answer is convicted", committees_.detection / economy.ONE, "", note=asked)
    yield Figure("1.5 g (1 - p) / p", world.inequality / world.g, "g", note="L must reach it")
    yield Figure("L", world.penalty / world.g, "g", note=f"{world.penalty / ETHER:.3g} coins: a true rejection pays")
    yield Figure("a seat", money.seat / world.g, "g", note=f"{money.seat / ETHER:.3g} coins")
    yield Figure("a case's bond", cases.bond(world) / world.g, "g", note="eight units, m' seats, gas of two rounds")


def _by_share(world: World) -> Iterable[Figure]:
    for share in (share for share in HONEST_SHARES if 100 * share >= world.money.honest_share):
        one = world.at(honest=share)
        brought, convicted = leaves.rejected(one), leaves.fate(one).convicted
        note = f"found {brought:.4f}, convicted {convicted:.4f}; bringing it {leaves.bringing(one) / one.g:+.3g} g"
        yield Figure(f"r {share} %: a false answer", leaves.false_answer(one) / one.g, "g", reach=0.0, note=note)


def _by_gas(world: World) -> Iterable[Figure]:
    """The best of what gas decides: cases, summons, tabs."""
    for gas in gas_prices(world):
        one = world.at(gas_gwei=gas)
        profits = {coalition.name: coalition.profit(one) / one.g for coalition in every_coalition()}
        name = max(profits, key=lambda key: profits[key])
        note = f"best: {name}; orders from {payments.least_order(one):,.4g} gwei earn"
        yield Figure(f"gas at {gas:g} gwei: the best of all coalitions", profits[name], "g", reach=0.0, note=note)


def _by_rate(world: World) -> Iterable[Figure]:
    """Classes made for another least q."""
    for rate in CHECK_RATES:
        money = class_for(world, rate)
        one = world.at(money=money, check_rate=rate)
        note = f"L {one.penalty / one.g:.4g} g beside {one.inequality / one.g:.4g} g"
        name = f"q {rate / prices.MILLION:.0%}: a false answer in a class made for it"
        yield Figure(name, leaves.false_answer(one) / one.g, "g", reach=0.0, note=note)


def class_for(world: World, rate: int) -> shipped.ClassMoney:
    """The same class with another least check rate."""
    money = world.money
    return shipped.money(
        world.parameters,
        fee_cap=money.fee_cap,
        positions=world.positions,
        check_price=money.check_price,
        check_rate=rate,
        verifiers=money.verifiers,
        reviewers=money.reviewers,
        honest_share=money.honest_share,
    )
