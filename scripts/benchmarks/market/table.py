"""The market's table: each figure beside what was set out to be reached."""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.market import cases, convictions, groups, tabs
from benchmarks.market.cases import Case
from benchmarks.market.convictions import LANES
from benchmarks.market.stage import COLUMNS, LAYERS, Stage, build_stage, class_of, key
from benchmarks.market.tabs import Claims, Tabs
from troth.chain import decoding
from troth.protocol.bindings import MARKET_PARTS
from troth.protocol.market import economy, prices
from troth.protocol.market.addresses import creation_code
from troth.protocol.market.parts import Part
from troth.protocol.market.types import ExecutionClass

MEMBERS = 150
"""Nodes of a group: enough that fifteen seats are often fifteen nodes."""

DEAR = ((5, 6), (13, 6), (15, 5))
"""Reviewers and tiles of classes whose calls are as large as they may be."""
CLIENTS, TASKS = 1_000, 1_000
REDEMPTIONS = 4
NODES, SCHEDULERS, WEEKS = 50, 4, 30 / 7
TASKS_AN_ENTRY = 1_000
IN_COURT = 0.0002
PAPER_TASK = 797_838
"""VeriLLM's Table 8: one of each of its five operations, which every task of the paper's needs."""
PAPER_STEPS = {"open": 141_466, "commit": 167_100, "seed": 284_740}
"""Its operations that a step of a case corresponds to: create, commit verification, sample.

Its reveal (134,000) is a part of our decide, which judges and pays as well.
"""
_ONCE = "was 318k to 745k when every task was settled on chain; the paper's total is one of each of its operations"


def measure(url: str) -> list[Figure]:
    """All figures of the market, on the chain at ``url``."""
    stage = build_stage(url)
    exact, tolerant = class_of("exact", exact=True), class_of("tolerant", exact=False)
    crowded = class_of("crowded", exact=True)
    faulty = class_of("faulty", exact=True)
    dear = [
        class_of(f"{reviewers}, {tiles}", exact=False, reviewers=reviewers, tiles=tiles) for reviewers, tiles in DEAR
    ]
    for rules in (exact, tolerant, crowded, faulty, *dear):
        stage.send(Part.CLASSES, "registerClass", rules, sender=stage.scheduler.address)
    # Closing, claiming and a payer's conviction wait for thousands of blocks. Each costs the chain the more, the more
    # nodes it holds.
    on_tabs = tabs.measure(stage, url)
    joined = {exact.name: _join(stage, exact)}
    stage.mine(30)
    node = _name(exact, 2)
    fees = prices.rules_of(exact, hidden_size=COLUMNS, layers=LAYERS)
    claimed = tabs.measure_claims(stage, exact, fees, key(node).address)
    log = tabs.measure_log(stage)
    convicted = convictions.convict(stage, faulty)
    joined |= {rules.name: _join(stage, rules) for rules in (tolerant, *dear)}
    stage.mine(30)
    heard = {rules.name: _heard(stage, rules, first=5) for rules in (exact, tolerant)}
    together = {rules.name: _heard(stage, rules, first=15, together=True) for rules in (exact, tolerant)}
    suspending = {rules.name: _heard(stage, rules, first=25, suspend=True) for rules in (exact, tolerant, *dear)}
    summoned = convictions.summon(stage, exact, key(node).address)
    drawn = groups.measure(stage, crowded)
    return [
        Figure("a served task that nobody doubts", 0, "gas", PAPER_TASK, 0, _ONCE),
        *_of_tabs(on_tabs),
        _month(on_tabs, log, together["tolerant"], together["exact"]),
        *_of_claims(claimed),
        *_of_summons(summoned),
        Figure("log entry", log, "gas", reach=40_000),
        *_of_case(
            "exact", together["exact"], heard["exact"], 800_000, "now 874k; all reject, which convicts and evicts"
        ),
        *_of_case("tolerant, one tile", together["tolerant"], heard["tolerant"], 1_100_000, "now 1.31M with six tiles"),
        Figure(
            "case: open that suspends, three verifiers lock stake",
            suspending["exact"].gas["open"],
            "gas",
            note="in place of open above",
        ),
        *_of_dear([(exact, suspending["exact"]), *((rules, suspending[rules.name]) for rules in (tolerant, *dear))]),
        *_of_convictions(convicted),
        Figure(
            "registering a node, one group",
            max(joined[exact.name][-LANES:]),
            "gas",
            277_000,
            220_000,
            "dearest of four: each fourth takes a new slot for the group's size",
        ),
        *_of_draws(drawn),
        *_sizes(stage),
    ]


def _name(rules: ExecutionClass, number: int) -> str:
    return f"{rules.name} node {number}"


def _join(stage: Stage, rules: ExecutionClass) -> list[int]:
    return [stage.register_node(_name(rules, number), rules).gas for number in range(MEMBERS)]


def _heard(stage: Stage, rules: ExecutionClass, *, first: int, suspend: bool = False, together: bool = False) -> Case:
    """The second case of its kind, when every slot that outlives one has been written; ``first``: who is judged."""
    for number in range(2):
        node = key(_name(rules, first + number)).address
        name = f"{rules.name} {first} {number}"
        case = cases.carry(stage, rules, node, name, suspend=suspend, together=together)
    return case


# -------------------------------------------------------------------------------------------------------------- rows


def _of_tabs(gas: Tabs) -> list[Figure]:
    return [
        Figure("openTab with consent: coin", gas.open_coin, "gas", reach=52_000),
        Figure(
            "openTab with consent: token, by permit",
            gas.open_token,
            "gas",
            reach=90_000,
            note="the payer's second permit; a first one writes its nonce: 17,100 more",
        ),
        Figure("top-up", gas.top_up, "gas", reach=30_000),
        Figure(
            "redeem one",
            gas.redeem,
            "gas",
            reach=48_000,
            note=f"a payee's first: {gas.redeem_first:,}",
        ),
        Figure("redeemMany, a tab of 32", gas.redeem_many, "gas", reach=16_000, note=f"of 4: {gas.redeem_four:,}"),
        Figure(
            "close, both calls",
            gas.close + gas.finish_closing,
            "gas",
            reach=70_000,
            note=f"close {gas.close:,} + finishClosing {gas.finish_closing:,}",
        ),
    ]


def _month(gas: Tabs, log: int, tolerant: Case, exact: Case) -> Figure:
    """A month of 1,000 clients with 1,000 tasks each, a task; every case in the dearer kind of class."""
    tasks = CLIENTS * TASKS
    parts = {
        "tabs opened": CLIENTS * gas.open_coin,
        "redeemed": CLIENTS * REDEMPTIONS * gas.redeem_many,
        "nodes paid": NODES * SCHEDULERS * WEEKS * gas.redeem_four,
        "log": tasks / TASKS_AN_ENTRY * log,
        "court": tasks * IN_COURT * sum(tolerant.gas.values()),
    }
    a_task = {name: round(value / tasks) for name, value in parts.items()}
    saved = tasks * IN_COURT * (sum(tolerant.gas.values()) - sum(exact.gas.values())) / tasks
    return Figure(
        "all-in, a task of a month's million",
        round(sum(parts.values()) / tasks),
        "gas",
        PAPER_TASK,
        450,
        " + ".join(f"{name} {value}" for name, value in a_task.items()) + f"; in an exact class {saved:.0f} less",
    )


def _of_claims(gas: Claims) -> list[Figure]:
    return [
        Figure("claim of a root of 1,000 leaves", gas.claim, "gas", reach=75_000),
        Figure("objection to one leaf", gas.objection, "gas", reach=70_000),
        Figure("answer to an objection: order, result, draw, ten steps", gas.answer, "gas"),
        Figure("settlement of a claim", gas.settle, "gas"),
    ]


def _of_summons(gas: convictions.Summons) -> list[Figure]:
    return [
        Figure("summons of a check", gas.check, "gas", reach=90_000, note=f"of results: {gas.results:,}"),
        Figure(
            "its answer: one segment, k = 3",
            gas.answer_check,
            "gas",
            reach=110_000,
            note=f"of results: {gas.answer_results:,}",
        ),
    ]


def _of_case(kind: str, together: Case, apart: Case, reach: int, note: str) -> list[Figure]:
    """In three calls, where everybody speaks; then a call a step, as it is where somebody does not."""
    first = Figure(f"case, all calls, m' = 15: {kind}", sum(together.gas.values()), "gas", PAPER_TASK, reach, note)
    slow = Figure(f"case, a call a step, m' = 15: {kind}", sum(apart.gas.values()), "gas")
    steps = apart.gas | {step: gas for step, gas in together.gas.items() if step not in apart.gas}
    return [
        first,
        slow,
        *(Figure(f"case: {step}, {kind}", gas, "gas", PAPER_STEPS.get(step)) for step, gas in steps.items()),
    ]


def _of_dear(heard: list[tuple[ExecutionClass, Case]]) -> list[Figure]:
    """What a seat reserves for a case, and what the dearest way through the court costs."""
    rows = []
    for rules, case in heard:
        name = f"case that suspends, a call a step: {rules.reviewers} reviewers, {rules.tiles} tiles"
        reserved = economy.case_gas_of(rules)
        rows.append(Figure(name, sum(case.gas.values()), "gas", reach=reserved, note="what a seat reserves"))
    return rows


def _of_convictions(gas: dict[str, int]) -> list[Figure]:
    dearest = max(gas, key=lambda name: gas[name])
    first = Figure(
        "conviction in one transaction, the dearest",
        gas[dearest],
        "gas",
        reach=260_000,
        note=f"{dearest}; evicted from two groups whose last take its places, and whose sizes take a new slot",
    )
    return [first, *(Figure(f"conviction: {name}", value, "gas") for name, value in gas.items())]


def _of_draws(drawn: dict[int, groups.Draws]) -> list[Figure]:
    rows = []
    for seats, gas in drawn.items():
        few, many = f"{groups.FEW}", f"{groups.MANY:,}"
        values = (gas.few, gas.many, gas.after)
        apart = f"{max(values) / min(values) - 1:.0%} apart: {gas.few:,} at {few}, {gas.many:,} at {many}"
        note = (
            f"{apart}, {gas.after:,} at {few} when {many} have left (written into storage); who is drawn again is warm"
        )
        rows.append(Figure(f"draw of {seats} seats, the dearest", max(values), "gas", 117_000, 1.2 * min(values), note))
    return rows


def _sizes(stage: Stage) -> list[Figure]:
    runtime = {
        part.value: len(decoding.data(stage.node.rpc("eth_getCode", part.of(stage.place.contracts), "latest")))
        for part in Part
    }
    creation = {part: len(creation_code(part)) for part in MARKET_PARTS}
    largest, heaviest = max(runtime, key=lambda name: runtime[name]), max(creation, key=lambda name: creation[name])
    return [
        Figure("runtime code of the largest contract", runtime[largest], "bytes", 24_200, 20_000, largest),
        Figure("creation code of the largest contract", creation[heaviest], "bytes", 48_000, 40_000, heaviest),
    ]
