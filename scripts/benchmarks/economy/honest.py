"""What honest parties earn, at worst, in every world of the grid; and what each rule is worth: who wins without it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.economy import answers, cases, chances, committees, leaves, payments
from benchmarks.economy.cases import Play
from benchmarks.economy.coalition import Coalition, here
from benchmarks.economy.committees import Attack
from benchmarks.economy.leaves import BOTH
from benchmarks.economy.world import COST, GAS, NODE_SHARE, World
from troth.protocol.market import economy, shipped
from troth.protocol.market.proceedings import CaseKind

# ------------------------------------------------------------------------------------------------------ honest parties


def node(world: World) -> float:
    """An answer at its node: its share of the work's price, less what the work costs."""
    return NODE_SHARE * world.work * (1 - COST)


def scheduler(world: World) -> float:
    """An answer at its scheduler: the rest of the price, less its own costs and all gas of a task."""
    return (1 - NODE_SHARE) * world.work * (1 - COST) - world.wei(GAS.task)


def verifier(world: World) -> float:
    """A check by one seat."""
    return world.reward * (1 - COST)


def reviewer(world: World) -> float:
    """A review by one honest seat, of a false answer or of a framed honest one, whichever pays less."""
    return min(_reviewing(world, false=True), _reviewing(world, false=False)) - cases.review_cost(world)


def _reviewing(world: World, *, false: bool) -> float:
    earned = seats = 0.0
    for drawn in chances.verifying(world, node_honest=not false):
        attack = Attack(CaseKind.REJECTION)
        brought = leaves.rejects(world, drawn.honest, BOTH) if false else committees.is_lie(world, attack, drawn.honest)
        if not brought:
            continue
        lying = world.money.verifiers - drawn.honest
        for honest, chance in enumerate(chances.reviewing(world, drawn.left)):
            play: Play = BOTH.play(world, drawn.honest, honest) if false else attack.play(world, lying, honest)
            earned += drawn.chance * chance * cases.judge(world, play).reviewers
            seats += drawn.chance * chance * honest
    return earned / seats


def parties() -> list[Coalition]:
    """Every honest role; its profit is at its worst where another's would be at its best."""
    named = (
        ("honest node", "answer", node),
        ("honest scheduler", "answer", scheduler),
        ("honest verifier", "check", verifier),
        ("honest verifier that brings a rejection", "case", leaves.bringing),
        ("honest reviewer", "review", reviewer),
        ("honest client that summons a refused check", "summons", committees.summoning),
        ("honest witness that reports a scheduler's signatures", "report", answers.reporting),
    )
    return [Coalition(name, per, profit) for name, per, profit in named]


# ------------------------------------------------------------------------------------------------------- weaker rules


def with_money(world: World, **changed: int) -> World:
    """The world with other money in its class."""
    return world.at(money=replace(world.money, **changed))


def with_parameters(world: World, **changed: int) -> World:
    """The world with other windows."""
    return world.at(parameters=replace(world.parameters, **changed))


def with_ceiling(world: World, gwei: float) -> World:
    """The world on a chain where gas is cheap, with a class made for it."""
    cheap = with_parameters(world, gas_price=int(gwei * 10**18))
    money = shipped.money(
        cheap.parameters,
        fee_cap=world.g,
        positions=world.positions,
        check_price=world.money.check_price,
        check_rate=world.money.least_check_rate,
        verifiers=world.money.verifiers,
        reviewers=world.money.reviewers,
        honest_share=world.money.honest_share,
    )
    return cheap.at(money=money, gas_gwei=gwei)


def weakened(world: World) -> list[tuple[Coalition, World]]:
    """One rule less each, and a coalition that then wins: what the rule is there for."""
    inequality = world.inequality
    dear = world.at(gas_gwei=world.parameters.gas_price / 10**18)
    little = with_money(world, penalty=inequality // 4, seat=economy.least_seat(inequality // 4, 0, 0))
    return [
        (_one("L is a quarter of the inequality: scheduler and node cheat", leaves.false_answer), little),
        (
            _one("L is the inequality alone: no rejection is worth its court", leaves.false_answer),
            with_money(world, penalty=inequality),
        ),
        (_one("lag 0: a burst is paid before it is found", answers.largest_burst), with_parameters(world, lag=0)),
        (
            replace(answers.many_addresses(answers.owners_once), name="one owner once: twenty addresses"),
            world,
        ),
        (
            _one("unbonding shorter than a case: exit after a burst", answers.burst_and_exit),
            with_parameters(world, unbonding=shipped.longest_case(world.parameters)),
        ),
        (
            _one("a bare verdict is paid: verifier always yes", partial(committees.lazy, false_share=0.001, bare=True)),
            world,
        ),
        (_one("a pool of 16: framing by odd prompts", committees.odd_prompts), with_money(world, pool_limit=16)),
        (_one("tabs hold no gas of a claim: payer that vanishes", partial(payments.vanishing, careful=False)), dear),
        (
            _one("cheap bonds, and each case locks stake of its own: two sham cases", answers.sham_cases),
            with_ceiling(world, 0.1),
        ),
        (
            _one("nodes trust the stake, not the tab: fifty tabs", partial(payments.many_tabs, covered=False)),
            with_parameters(world, scheduler_stake=payments.TABS * payments.ORDERS * world.g // 10),
        ),
    ]


def _one(name: str, profit: object) -> Coalition:
    assert callable(profit)
    return Coalition(name, "play", profit, worlds=here)
