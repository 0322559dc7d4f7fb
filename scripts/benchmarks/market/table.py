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
from troth.protocol.market import prices
from troth.protocol.market.addresses import creation_code
from troth.protocol.market.parts import Part
from troth.protocol.market.types import ExecutionClass

MEMBERS = 150
"""Nodes of a group: enough that fifteen seats are often fifteen nodes."""

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
    for rules in (exact, tolerant, crowded, faulty):
        stage.send(Part.CLASSES, "registerClass", rules, sender=stage.scheduler.address)
    joined = {rules.name: _join(stage, rules) for rules in (exact, tolerant)}
    stage.mine(30)
    node = _name(exact, 2)
    on_tabs = tabs.measure(stage, url)
    fees = prices.rules_of(exact, hidden_size=COLUMNS, layers=LAYERS)
    claimed = tabs.measure_claims(stage, exact, fees, key(node).address)
    log = tabs.measure_log(stage)
    heard = {rules.name: _heard(stage, rules) for rules in (exact, tolerant)}
    suspending = _heard(stage, exact, suspend=True)
    summoned = convictions.summon(stage, exact, key(node).address)
    convicted = convictions.convict(stage, faulty)
    drawn = groups.measure(stage, crowded)
    return [
        Figure("a served task that nobody doubts", 0, "gas", PAPER_TASK, 0, _ONCE),
        *_of_tabs(on_tabs),
        _month(on_tabs, log, heard["tolerant"], heard["exact"]),
        *_of_claims(claimed),
        *_of_summons(summoned),
        Figure("log entry", log, "gas", reach=40_000),
        *_of_case("exact", heard["exact"], 800_000, "15 reviewers, all reject, which convicts and evicts"),
        *_of_case(
            "tolerant, one tile",
            heard["tolerant"],
            1_100_000,
            "15 reviewers, who open a tile each as well",
        ),
        Figure(
            "case: open that suspends, three verifiers lock stake",
            suspending.gas["open"],
            "gas",
            note="in place of open above",
        ),
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


def _heard(stage: Stage, rules: ExecutionClass, *, suspend: bool = False) -> Case:
    """The second case of its kind, when every slot that outlives one has been written."""
    first = 3 if suspend else 0
    for number in range(2):
        node = key(_name(rules, first + 5 + number)).address
        case = cases.carry(stage, rules, node, f"{rules.name} {suspend} {number}", suspend=suspend)
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


def _of_case(kind: str, case: Case, reach: int, note: str) -> list[Figure]:
    steps = [Figure(f"case: {step}, {kind}", gas, "gas", PAPER_STEPS.get(step)) for step, gas in case.gas.items()]
    total = Figure(f"case, all calls, m' = 15: {kind}", sum(case.gas.values()), "gas", PAPER_TASK, reach, note)
    return [total, *steps]


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
