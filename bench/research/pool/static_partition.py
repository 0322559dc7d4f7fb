"""Static partition, as HexGen does it (Jiang et al., ICML 2024): a genetic search over groups, then fixed.

Groups of machines are the genes; mutations move a machine, swap two, split a group or merge two. Each group gets its
best layout of unequal stages, and the finalists are simulated on another trace of the same rate; the best stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from benchmarks.trace import sharegpt

from research.pool.estimate import MOST_STAGES, Estimate, best_pipeline
from research.pool.pipelines import Pipelines
from research.pool.simulation import Simulation
from research.pool.world import World

POPULATION, GENERATIONS, CHILDREN = 12, 100, 8
FINALISTS, REHEARSED, REHEARSAL_SEED = 4, 150, 1_000_003

Kind = tuple[str, int]
"""A type of machine and its region: machines of one kind are the same to the search."""
Gene = tuple[int, ...]
"""A group: how many of each kind."""
Individual = tuple[Gene, ...]


class PartitionSearch:
    """Finds static partitions of one world; layouts of groups are kept from one search to the next."""

    def __init__(self, world: World, seed: int = 0, generations: int = GENERATIONS) -> None:
        self._world, self._generations = world, generations
        self._draw = random.Random(f"partition {seed}")  # noqa: S311 - a reproducible search, no secret
        kinds: dict[Kind, list[int]] = {}
        for place, site in enumerate(world.sites):
            kinds.setdefault((site.gpu.name, site.region), []).append(place)
        self._members = [kinds[kind] for kind in sorted(kinds)]
        self._regions = [region for _, region in sorted(kinds)]
        self._known: dict[Gene, Estimate | None] = {}
        self.ranking = self._search()

    def pipelines(self, rate: float) -> Pipelines:
        """The finalist with the least mean latency in a rehearsal at this rate."""
        finalists = [self.built(individual) for individual in self.ranking[:FINALISTS]]
        trace = sharegpt(REHEARSED, rate, REHEARSAL_SEED)

        def latency(pipelines: Pipelines) -> float:
            fresh = Pipelines(self._world, pipelines.name, pipelines.routes, pipelines.rates)
            outcome = Simulation(self._world, fresh).run(trace)
            if outcome.dropped:
                return float("inf")
            return sum(ended.last_token - ended.request.arrival for ended in outcome.ended)

        return min(finalists, key=latency) if len(finalists) > 1 else finalists[0]

    def built(self, individual: Individual) -> Pipelines:
        """Real machines for the genes."""
        left = [list(places) for places in self._members]
        layouts = []
        for gene in individual:
            places = [left[kind].pop() for kind, count in enumerate(gene) for _ in range(count)]
            layout = best_pipeline(self._world, places)
            if layout is not None:
                layouts.append(layout)
        routes, rates = [layout.route for layout in layouts], [layout.rate for layout in layouts]
        return Pipelines(self._world, "static partition", routes, rates)

    def estimated(self, individual: Individual) -> tuple[float, float]:
        """Requests a second of all groups when full, and minus the mean seconds of a token, to be maximised."""
        layouts = [layout for gene in individual if (layout := self._layout(gene)) is not None]
        rate = sum(layout.rate for layout in layouts)
        if not layouts:
            return 0.0, 0.0
        return rate, -sum(layout.rate * layout.token_seconds for layout in layouts) / rate

    def _layout(self, gene: Gene) -> Estimate | None:
        if gene not in self._known:
            places = [
                place
                for members, count in zip(self._members, gene, strict=True)
                for place in members[:count]
            ]  # fmt: skip
            self._known[gene] = best_pipeline(self._world, places)
        return self._known[gene]

    def _search(self) -> list[Individual]:
        """All individuals seen that serve, best first, half by rate and half by the time of a token."""
        population = [self._canonical(individual) for individual in self._seeds()]
        seen = {individual: self.estimated(individual) for individual in population}
        for _ in range(self._generations):
            for _ in range(CHILDREN):
                parent = self._draw.choice(population)
                child = self._canonical(self._draw.choice(self._mutations())(list(parent)))
                if child not in seen:
                    seen[child] = self.estimated(child)
            population = sorted(seen, key=lambda individual: (seen[individual], individual), reverse=True)[:POPULATION]
        serving = [individual for individual in seen if seen[individual][0] > 0]
        by_rate = sorted(serving, key=lambda individual: (seen[individual], individual), reverse=True)
        by_time = sorted(serving, key=lambda individual: (-seen[individual][1], individual))
        mixed = [individual for pair in zip(by_rate, by_time, strict=True) for individual in pair]
        return list(dict.fromkeys(mixed))

    def _seeds(self) -> list[Individual]:
        """One group per region, split again and again while its parts still hold the model; all in one group."""
        counts = [len(members) for members in self._members]
        regional = [
            tuple(count if region == wanted else 0 for count, region in zip(counts, self._regions, strict=True))
            for wanted in sorted(set(self._regions))
        ]
        seeds: list[Individual] = [(tuple(counts),), tuple(regional)]
        for start in (1, 1, 1, 1, 0, 0):
            groups = list(seeds[start])
            for _ in range(4 * sum(counts)):
                split = self._split(list(groups))
                if all(sum(gene) > MOST_STAGES or self._layout(gene) is not None for gene in split):
                    groups = split
            seeds.append(tuple(groups))
        return seeds

    def _mutations(self) -> Sequence[Callable[[list[Gene]], list[Gene]]]:
        return (self._move, self._move, self._swap, self._split, self._merge)

    def _move(self, groups: list[Gene]) -> list[Gene]:
        """A machine from one group to another."""
        if len(groups) < 2:
            return groups
        giver, taker = self._draw.sample(range(len(groups)), 2)
        kind = self._draw.choice([kind for kind, count in enumerate(groups[giver]) if count])
        groups[giver], groups[taker] = _plus(groups[giver], kind, -1), _plus(groups[taker], kind, 1)
        return groups

    def _swap(self, groups: list[Gene]) -> list[Gene]:
        """Two machines of two groups change places."""
        if len(groups) < 2:
            return groups
        one, other = self._draw.sample(range(len(groups)), 2)
        kinds = [
            self._draw.choice([kind for kind, count in enumerate(groups[group]) if count]) for group in (one, other)
        ]
        groups[one] = _plus(_plus(groups[one], kinds[0], -1), kinds[1], 1)
        groups[other] = _plus(_plus(groups[other], kinds[1], -1), kinds[0], 1)
        return groups

    def _split(self, groups: list[Gene]) -> list[Gene]:
        """A group in two parts."""
        chosen = self._draw.randrange(len(groups))
        share = self._draw.uniform(0.1, 0.9)
        part = tuple(min(count, int(count * share + self._draw.random())) for count in groups[chosen])
        rest = tuple(count - taken for count, taken in zip(groups[chosen], part, strict=True))
        return [*groups[:chosen], part, rest, *groups[chosen + 1 :]] if any(part) and any(rest) else groups

    def _merge(self, groups: list[Gene]) -> list[Gene]:
        """Two groups in one."""
        if len(groups) < 2:
            return groups
        one, other = sorted(self._draw.sample(range(len(groups)), 2))
        both = tuple(a + b for a, b in zip(groups[one], groups.pop(other), strict=True))
        groups[one] = both
        return groups

    def _canonical(self, groups: Sequence[Gene]) -> Individual:
        return tuple(sorted((gene for gene in groups if any(gene)), reverse=True))


def _plus(gene: Gene, kind: int, count: int) -> Gene:
    return tuple(held + count * (place == kind) for place, held in enumerate(gene))
