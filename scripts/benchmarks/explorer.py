"""How long the explorer's pages take, and how large they are, over an index of 100,000 tasks: `scripts/bench explorer`.

The index is made up, row by row, in the form in which the reader writes it; `--tasks N` makes another size, `--keep
FOLDER` leaves it there for `troth explorer export` or for looking at it. `--database URL` writes it into an empty
Postgres database, and reads the pages from there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter, time
from typing import Any

from support.market_logs import CONTRACTS, address
from support.market_record import PLACE
from support.market_scene import DOMAIN

from benchmarks.figures import Figure, median_milliseconds
from troth.explorer.figures import FILE_ROWS
from troth.explorer.index import CHAIN, ExplorerIndex
from troth.explorer.reading import INDEX_FILE
from troth.explorer.rows import amount_text, hexadecimal
from troth.explorer.site import Site
from troth.protocol.hashing import keccak256

REACH_MILLISECONDS, REACH_BYTES = 100.0, 100_000.0
ETHER = 10**18
NODES, SCHEDULERS, CASES, ENTRY = 240, 6, 300, 1_000
FIRST_BLOCK, LAST_BLOCK = 4_180_000, 4_391_204
MODELS = (
    ("llama/Llama-3.3-70B-Instruct", "vLLM, bfloat16", 80, ((0, 80), (0, 40), (40, 80), (0, 20), (20, 60), (60, 80))),
    ("gemma3/gemma-3-27b-it", "torch, bfloat16", 62, ((0, 62), (0, 31), (31, 62))),
    ("llama/SmolLM2-135M-Instruct", "torch cpu, float32", 30, ((0, 30),)),
)
REPEATS = 15
CHECKS = ((1, "Events follow from each other"), (2, "Money is conserved"), (5, "Reviewers are those that were drawn"))


def identifier(*words: object) -> str:
    """A hash that depends on words alone."""
    return hexadecimal(keccak256(repr(words).encode()))


class Generated:
    """A made-up network's rows, the same for the same number of tasks."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.random = random.Random(7)  # noqa: S311 -- rows to look at
        self.schedulers = [str(address(1_000 + number)) for number in range(SCHEDULERS)]
        self.nodes = [str(address(2_000 + number)) for number in range(NODES)]
        self.of = {node: self.random.choices(range(3), (5, 3, 4))[0] for node in self.nodes}
        self.slices = {node: self.random.choice(MODELS[self.of[node]][3]) for node in self.nodes}
        self.entries = -(-tasks // ENTRY)

    def block(self, entry: int) -> int:
        return FIRST_BLOCK + (LAST_BLOCK - FIRST_BLOCK - 40) * (entry + 1) // self.entries

    def parties(self) -> Iterator[tuple[Any, ...]]:
        for number, node in enumerate(self.nodes):
            first, end = self.slices[node]
            stake = (40 + self.random.randrange(160)) * ETHER // 100
            convicted = number % 61 == 3
            where = (identifier("class", self.of[node]), first, end, FIRST_BLOCK + 800 * number)
            money = (amount_text(stake), amount_text(ETHER // 100 if convicted else 0), stake * 50 // ETHER)
            host = f"https://node{number}.example.org:7000"
            rest = (0, *money, 0, int(convicted), 0, amount_text(0))
            yield (node, "node", str(address(5_000 + number // 2)), host, *where, *rest)
        for number, scheduler in enumerate(self.schedulers):
            stake, earned = (amount_text(part * ETHER // 10) for part in (50 * (number + 2), number + 1))
            money = (stake, amount_text(0), 0, 0, 0, 40 + 31 * number, earned)
            host = f"https://scheduler{number}.example.org"
            yield (scheduler, "scheduler", str(address(6_000 + number)), host, "", None, None, FIRST_BLOCK, 0, *money)

    def members(self) -> Iterator[tuple[Any, ...]]:
        for node in self.nodes:
            price = 10**14 + self.random.randrange(10**14)
            where = (identifier("class", self.of[node]), *self.slices[node])
            yield (*where, node, 20 + self.random.randrange(80), price, price // 10, 3 * price)

    def asks(self) -> Iterator[tuple[Any, ...]]:
        for number in range(2_000):
            node = self.random.choice(self.nodes)
            block = FIRST_BLOCK + (LAST_BLOCK - FIRST_BLOCK) * number // 2_000
            price = 10**14 + self.random.randrange(10**14) - number * 2 * 10**10
            where = (identifier("class", self.of[node]), *self.slices[node])
            yield (block, number, *where, node, price, price // 10, 3 * price)

    def classes(self) -> Iterator[tuple[Any, ...]]:
        for number, (model, name, layers, _) in enumerate(MODELS):
            money = [amount_text(one) for one in (ETHER // 4, ETHER // 50, 10**14, ETHER // 500)]
            exact = int("vLLM" in name)
            yield (identifier("class", number), name, identifier(model), model, layers, exact, 3, 15, 50_000, *money)

    def posted(self) -> Iterator[tuple[Any, ...]]:
        for entry in range(self.entries):
            name = (self.schedulers[entry % SCHEDULERS], entry // SCHEDULERS + 1, self.block(entry))
            counts = (ENTRY, ENTRY * 900, 50, 50, int(entry % 9 == 0), 11)
            hashes = [identifier(what, entry) for what in ("transaction", "root", "data")]
            yield (*name, *hashes, *counts, amount_text(ETHER // 3), "clean", 0)

    def work(self) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]:
        """Each task's row, and those of who worked on it."""
        by_class = [[one for one in self.nodes if self.of[one] == number] for number in range(3)]
        for number in range(self.tasks):
            entry = number // ENTRY
            place = ((self.block(entry) - self.random.randrange(600)) // 64, identifier("order", number))
            name = (self.schedulers[entry % SCHEDULERS], entry // SCHEDULERS + 1)
            chosen = self.random.choices(range(3), (5, 3, 4))[0]
            drawn, hidden = int(number % 20 == 0), int(number % 90 == 7)
            rejected = int(number % 9_000 == 0)
            flags = (int(not hidden), drawn, drawn, rejected, 0)
            bucket = self.random.randrange(6, 13)
            row = (*place, *name, identifier("class", chosen), bucket, 50_000, 1, *flags)
            workers = self.random.sample(by_class[chosen], 4 if drawn else 1)
            done = [(workers[0], *place, *name, "infer", 0, "")]
            opinion = "reject" if rejected else "accept"
            done += [(one, *place, *name, "check", 0, opinion) for one in workers[1:]]
            yield row, done

    def court(self) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]:
        """Each case's row, and its life."""
        outcomes = ("convicted", "upheld", "refunded", "convicted", "undecided")
        for number in range(CASES):
            opened = FIRST_BLOCK + (LAST_BLOCK - FIRST_BLOCK) * number // CASES
            name, node = identifier("case", number), self.nodes[number * 7 % NODES]
            outcome = "" if number >= CASES - 3 else outcomes[number % len(outcomes)]
            about = (identifier("order", number * 20), 0, node, self.schedulers[number % SCHEDULERS], "rejection")
            opener = ("a verifier", "its client", "a verifier", "another party")[number % 4]
            stand = ("committed", 0, outcome, opened, opened + 190, opener, amount_text(ETHER // 20))
            more = (amount_text(ETHER // 900), identifier("class", 0), 12)
            yield (name, *about, *stand, *more), list(life(name, opened, node, opener, outcome))

    def transactions(self) -> Iterator[tuple[Any, ...]]:
        kinds = (
            ("vouchers redeemed", 61_000),
            ("tab opened", 63_500),
            ("log entry", 40_800),
            ("case decided", 640_000),
        )
        kinds = (*kinds, ("case opened", 310_000), ("registration", 420_000), ("claim", 74_000))
        for number in range(9_000):
            (kind, used) = self.random.choices(kinds, (40, 20, 12, 2, 2, 2, 6))[0]
            block = FIRST_BLOCK + (LAST_BLOCK - FIRST_BLOCK) * number // 9_000
            price = 10**9 + self.random.randrange(4 * 10**9)
            yield (identifier("transaction of", number), block, kind, used + self.random.randrange(used // 8), price)

    def slashes(self) -> Iterator[tuple[Any, ...]]:
        for number, (case, _) in enumerate(self.court()):
            if case[8] == "convicted":
                bounds = (case[9] - 50, case[9] + 190)
                taken = (amount_text(ETHER // 4), amount_text(ETHER // 5))
                where = (case[10], number, identifier("decided", number))
                yield (*where, case[3], "node", "false_result", "case", case[0], *taken, *bounds)


def batched(these: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """So many at a time: as the reader writes an entry's tasks at once."""
    while some := list(islice(these, size)):
        yield some


def life(case: str, opened: int, node: str, opener: str, outcome: str) -> Iterator[tuple[Any, ...]]:
    """The steps of a case."""
    steps = [
        (opened, "opener", f"opened by {opener}: rejection", ""),
        (opened, "node", f"{node} is out of all draws", ""),
        (opened, "money", "from the node to the node's lock", amount_text(ETHER // 4)),
        (opened + 132, "court", "12 reviewers drawn for round 1", ""),
        *((opened + 140 + place, "reviewers", f"{address(2_100 + place)} committed", "") for place in range(4)),
        (opened + 150, "court", "12 commitments are complete", ""),
        (opened + 182, "court", "the tiles to open are known", ""),
        (opened + 184, "node", f"{node} showed its part", ""),
    ]
    if outcome:
        steps.append((opened + 190, "court", f"decided: {outcome}", ""))
    if outcome == "convicted":
        steps += [
            (opened + 190, "money", "from the node's lock to its client", amount_text(ETHER // 900)),
            (opened + 190, "money", "from the node's lock to reviewers and others", amount_text(ETHER // 40)),
            (opened + 190, "money", "from the node's lock, burnt", amount_text(ETHER // 5)),
            (opened + 190, "node", f"{node} is convicted", ""),
        ]
    for number, (block, lane, words, amount) in enumerate(steps):
        yield (case, block, number, 0, identifier("step", case, block), lane, words, amount)


def generate(folder: Path, tasks: int, database: str = "") -> Generated:
    """Write an index of so many tasks into a folder, or into a Postgres database."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Generated(tasks)
    place = replace(PLACE, block=FIRST_BLOCK, contracts=replace(PLACE.contracts, lens=CONTRACTS.lens))
    index = ExplorerIndex.open(database or folder / INDEX_FILE, DOMAIN.chain_id, place)
    with index.writing():
        for table in ("parties", "members", "asks", "classes", "transactions", "slashes"):
            index.insert(table, getattr(made, table)())
        index.insert("entries", made.posted())
        for case, steps in made.court():
            index.insert("cases", [case])
            index.insert("case_events", steps)
        tallies: dict[tuple[Any, ...], int] = {}
        for some in batched(made.work(), ENTRY):
            index.insert("tasks", [task for task, _ in some])
            index.insert("work", [one for _, done in some for one in done])
            for one in (one for _, done in some for one in done):
                name = (one[0], *one[3:6], one[7])
                tallies[name] = tallies.get(name, 0) + 1
        index.insert("tallies", ((*name, count) for name, count in tallies.items()))
        index.insert("results", ((CHAIN, f"M{number}", title, 40 * number, 0, 0) for number, title in CHECKS))
        index.database.execute(
            "UPDATE progress SET block=?, audited=?, seen=?, audited_at=?",
            (LAST_BLOCK, LAST_BLOCK - 3, time() + 10**6, time()),
        )
    index.close()
    return made


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """Time and size of each page."""
    parser = argparse.ArgumentParser(prog="scripts/bench explorer", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="write the index into this folder and leave it there")
    parser.add_argument("--database", default="", help="write the index into this empty Postgres database")
    chosen = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as folder:
        home = chosen.keep or Path(folder)
        began = perf_counter()
        made = generate(home, chosen.tasks, chosen.database)
        took = perf_counter() - began
        site = Site.open(chosen.database or home / INDEX_FILE, home)
        size = size_of(site, home)
        figures = [figure for name, page, query in pages(made) for figure in page_figures(site, name, page, query)]
        figures.append(file_figure(site))
        site.close()
    note = f"{chosen.tasks:,} tasks"
    return [
        *figures,
        Figure("index, size", size / 1e6, "MB", note=note),
        Figure("index, made in", took, "s", note=note),
    ]


def size_of(site: Site, home: Path) -> int:
    """Bytes of the index."""
    if (home / INDEX_FILE).is_file():
        return (home / INDEX_FILE).stat().st_size
    return int(site.database.execute("SELECT pg_database_size(current_database())").fetchone()[0])


def pages(made: Generated) -> Iterator[tuple[str, str, dict[str, str]]]:
    """What is looked at: the first page, and those that would be slow without an index."""
    scheduler, node = made.schedulers[0], made.nodes[0]
    middle = f"{made.block(made.entries // 2) // 64}~{identifier('order', 5)}~{scheduler}~1"
    yield from ((name, name.split(",")[0].replace("network", ""), {}) for name in ("network", "nodes", "logs", "cases"))
    yield from ((name, name, {}) for name in ("slashes", "audit", "receipt"))
    yield "logs, rejected", "logs", {"state": "rejected"}
    yield "logs, findings", "logs", {"state": "wrong"}
    yield "logs, of a scheduler", "logs", {"scheduler": scheduler}
    yield "logs, in the middle", "logs", {"after": middle}
    yield "node", f"nodes/{node}", {}
    yield "scheduler", f"schedulers/{scheduler}", {}
    yield "task", f"tasks/{identifier('order', 20)}", {}
    yield "case", f"cases/{identifier('case', 0)}", {}


def page_figures(site: Site, name: str, page: str, query: dict[str, str]) -> Iterator[Figure]:
    """A page's time and size."""
    body = site.page(page, query)
    taken = median_milliseconds(lambda: site.page(page, query), REPEATS, 2)
    yield Figure(f"{name}, time", taken, "ms", reach=REACH_MILLISECONDS)
    yield Figure(f"{name}, size", len(body.encode()), "bytes", reach=REACH_BYTES)


def file_figure(site: Site) -> Figure:
    """The largest file that is given out at once."""
    taken = median_milliseconds(lambda: site.figure("tasks", {}).as_json(), 5, 1)
    return Figure(f"tasks.json of {FILE_ROWS:,} rows, time", taken, "ms")
