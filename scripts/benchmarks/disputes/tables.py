"""All exact tables of ``scripts/disputes``: strategies, and where right disputes stop paying or wrong ones begin to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.committees import smallest
from benchmarks.disputes.example import FAILED, Example
from benchmarks.disputes.game import NOBODY, World, review_right
from benchmarks.disputes.replies import (
    client_gain,
    coalition_gain,
    hostile_gain,
    inferencer,
    inferencer_gain,
    verifier,
    verifier_gain,
    where_it_pays,
)
from benchmarks.disputes.rules import Prize
from benchmarks.disputes.strategies import (
    COMMITTEES,
    SHARES,
    USUAL,
    inferencers,
    leads,
    reviewers,
    sensible,
    verifiers,
    wider_first_round,
)
from benchmarks.disputes.table import Table, marked, units, wrong
from troth.protocol.review import reviewers_needed

ON_CHAIN = 31
"""The largest m' that the contract takes."""
ERRORS = (0.1, 0.01)
LIMIT = 1501
"""Where the search for a committee gives up."""


def tables() -> list[Table]:
    """All of them."""
    return [
        inferencers(USUAL),
        verifiers(USUAL),
        reviewers(),
        leads(),
        gains(),
        committees(),
        wider_first_round(),
        example(),
        other_rules(),
    ]


def gains() -> Table:
    """For whom a dispute pays."""
    rows = []
    for share in SHARES:
        for members in sorted({*COMMITTEES, _needed(share, ERRORS[1])}):
            world = World(share, members, NOBODY)
            rows.append((
                *(f"{share:.2f}", str(members) + (" *" if members > ON_CHAIN else "")),
                f"{100 * review_right(world):.2f} %",
                *(marked(inferencer_gain(world, honest=True)), marked(verifier_gain(world))),
                *(marked(client_gain(world)), wrong(inferencer_gain(world, honest=False))),
                *(wrong(hostile_gain(world)), wrong(coalition_gain(world))),
            ))  # fmt: skip
    return Table(
        "What disputing adds, in units",
        (
            *("r", "m'", "review right", "rejected honest", "honest verifier", "client"),
            *("rejected cheat", "attacker", "all attackers together"),
        ),
        tuple(rows),
        "Beside 5, 9, 15 and 31 stands Lemma E.2's m' for 1 % error; * is more than the contract takes. (!): a right "
        "dispute that costs, or a wrong one that pays.",
    )


def committees() -> Table:
    """The smallest committees that do."""
    rows = []
    for share in SHARES:
        rows.append((
            f"{share:.2f}",
            *(f"{_needed(share, error)} / {smallest(share, error)}" for error in ERRORS),
            _first(share, lambda world: inferencer_gain(world, honest=True)),
            _first(share, verifier_gain),
            _first(share, client_gain),
            _first(share, lambda world: inferencer(replace(world, policy=where_it_pays(world))).best_honest),
        ))  # fmt: skip
    return Table(
        "The smallest m' (5 is the least)",
        (
            *("r", "10 % error: lemma / exact", "1 % error: lemma / exact", "rejected honest disputes"),
            *("honest verifier disputes", "client disputes", "serving honestly pays"),
        ),
        tuple(rows),
        f"The contract takes up to {ON_CHAIN}; * is more. 'lemma' is Lemma E.2's bound, 'exact' the binomial sum.",
    )


def example() -> Table:
    """The paper's example, and where it stops working."""
    rows = []
    for share in SHARES:
        members = _needed(share, ERRORS[1])
        at_five, lemma = Example(share, 5), Example(share, members)
        marks = [] if members <= ON_CHAIN else ["m' exceeds a chain's"]
        marks += ["bond short by m' = 5 already"] if at_five.shortfall else []
        marks += ["dispute does not pay"] if min(at_five.gain(honest=True), lemma.gain(honest=True)) <= 0 else []
        marks += ["cheat's dispute pays"] if max(at_five.gain(honest=False), lemma.gain(honest=False)) > 0 else []
        rows.append((
            *(f"{share:.2f}", str(members), units(lemma.lead), units(lemma.verifier_lead)),
            *(units(lemma.gain(honest=True)), units(lemma.gain(honest=False))),
            *(units(at_five.gain(honest=True)), units(at_five.gain(honest=False))),
            *(f"{at_five.shortfall:.1f}", f"{lemma.shortfall:.0f}"),
            *(f"{100 * lemma.accepted_cheats:.1f} %", "; ".join(marks)),
        ))  # fmt: skip
    return Table(
        f"The paper's example, +6 / -2 / 8, {-FAILED} for a failed dispute, m' from Lemma E.2 for 1 % error",
        (
            *("r", "m'", "inferencer's lead", "verifier's lead", "right dispute adds", "wrong one adds"),
            *("right, m' = 5", "wrong, m' = 5", "unpaid, m' = 5", "unpaid, m'", "cheats nobody disputes", "stops at"),
        ),
        tuple(rows),
        "Unpaid: units owed to the reviewers of a failed dispute beyond the 10 that it brought.",
    )


def other_rules() -> Table:
    """Three other rules for the pay of a review."""
    rows = []
    for share in SHARES[:5]:
        for members in COMMITTEES:
            for prize in Prize:
                world, there = World(share, members, NOBODY, prize), sensible(share, members, prize)
                serving = inferencer(there)
                rightful = (inferencer_gain(world, honest=True), verifier_gain(world))
                wrongful = (inferencer_gain(world, honest=False), hostile_gain(world), coalition_gain(world))
                cells = (*map(marked, rightful), *map(wrong, wrongful))
                rest = map(marked, (serving.best_honest, serving.lead, verifier(there).lead))
                rows.append((f"{share:.2f}", str(members), prize.value, *cells, *rest))
    return Table(
        "Other rules: what disputing adds, then what honest serving pays and both leads where all dispute that gain",
        (
            *("r", "m'", "rule", "rejected honest", "honest verifier", "rejected cheat", "attacker", "all attackers"),
            *("honest inferencer", "its lead", "verifier's lead"),
        ),
        tuple(rows),
        "The bond alone leaves 6 units a reviewer unpaid; a prize as large as the risk is paid by the first round's "
        "losers, to the disputer.",
    )


def _needed(share: float, error: float) -> int:
    return max(COMMITTEES[0], reviewers_needed(share, error))


def _first(share: float, value: Callable[[World], float]) -> str:
    for members in range(COMMITTEES[0], LIMIT, 2):
        if value(World(share, members, NOBODY)) > 0:
            return _starred(members)
    return f"> {LIMIT}"


def _starred(members: int) -> str:
    return f"{members} *" if members > ON_CHAIN else str(members)
