"""A coalition: what its best play is worth in any world of a grid, and the same played through the real draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from benchmarks.economy.leaves import Played, play
from benchmarks.economy.world import GAS_PRICES, HONEST_SHARES, World

Profit = Callable[[World], float]
"""Expected profit in a world, in wei."""
Sample = Callable[[World, Random], float]
"""The profit of one play with real draws."""
Worlds = Callable[[World], Iterable[World]]

TOLERATED = 3.0
"""Standard errors that a mean may lie off its exact value."""


def gas_prices(world: World) -> tuple[float, ...]:
    """Gas prices up to the deployment's ceiling."""
    return tuple(gas for gas in GAS_PRICES if gas <= world.parameters.gas_price / 10**18)


def everywhere(world: World) -> Iterable[World]:
    """Every honest share that the class is made for, every gas price that is paid back, and the least q."""
    for honest in (share for share in HONEST_SHARES if 100 * share >= world.money.honest_share):
        for gas in gas_prices(world):
            yield world.at(honest=honest, gas_gwei=gas)


def here(world: World) -> Iterable[World]:
    """This world alone."""
    yield world


@dataclass(frozen=True, slots=True)
class Coalition:
    """Who plays what, in the words of the issue; ``per`` says what one profit is for.

    ``honest`` is what the honest parties of the same play have of it at worst, and ``whom`` names them.
    """

    name: str
    per: str
    profit: Profit
    sample: Sample | None = None
    plays: int = 0
    worlds: Worlds = everywhere
    honest: Profit | None = None
    whom: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A coalition where it does best, in units of g."""

    name: str
    per: str
    profit: float
    world: World
    played: Played | None
    honest: float | None
    whom: str

    @property
    def loses(self) -> bool:
        """Whether the coalition is poorer for it in every world that was tried."""
        return self.profit < 0

    @property
    def off(self) -> float:
        """Standard errors between what was played and what is exact."""
        return 0.0 if self.played is None else self.played.off(self.profit)

    @property
    def where(self) -> str:
        """The world in which it does best."""
        return f"r {self.world.honest} %, {self.world.gas_gwei:g} gwei"


def best(coalition: Coalition, world: World, *, seed: int, share: float = 1.0) -> Row:
    """The world of the grid in which the coalition does best, and its play there; ``share`` of the usual plays."""
    worlds = list(coalition.worlds(world))
    profits = [coalition.profit(one) / one.g for one in worlds]
    profit = max(profits)
    chosen = worlds[profits.index(profit)]
    played = None
    sample = coalition.sample
    if sample is not None:
        played = play(max(int(coalition.plays * share), 2), lambda source: sample(chosen, source) / chosen.g, seed)
    honest = None if coalition.honest is None else min(coalition.honest(one) / one.g for one in worlds)
    return Row(coalition.name, coalition.per, profit, chosen, played, honest, coalition.whom)
