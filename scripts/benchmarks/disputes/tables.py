"""The exact tables of ``scripts/disputes``: rows of text, so that they print and read as JSON alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.committees import bound_of_lemma, smallest
from benchmarks.disputes.example import FAILED, Example
from benchmarks.disputes.game import EVERYBODY, NOBODY, World, review_right
from benchmarks.disputes.replies import (
    RANDOM,
    RIVALS,
    client_gain,
    coalition_gain,
    hostile_gain,
    inferencer,
    inferencer_gain,
    reviewer,
    verifier,
    verifier_gain,
    where_it_pays,
)
from benchmarks.disputes.rules import Prize
from troth.protocol.review import reviewers_needed

SHARES = tuple(round(0.55 + 0.05 * step, 2) for step in range(9))
COMMITTEES = (5, 9, 15, 31)
ON_CHAIN = 31
"""The largest m' that the contract takes."""
ERRORS = (0.1, 0.01)
USUAL = 15
LIMIT = 1501
"""Where the search for a committee gives up."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a row of column names, rows of cells, and what to know when reading it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


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


def sensible(share: float, members: int, prize: Prize = Prize.BUILT, verifiers: int = 3) -> World:
    """A world in which everybody disputes exactly where that pays."""
    world = World(share, members, NOBODY, prize, verifiers)
    return replace(world, policy=where_it_pays(world))


def inferencers(members: int) -> Table:
    """The four ways to infer."""
    rows = []
    for share in SHARES:
        found = inferencer(sensible(share, members))
        rows.append((
            *(f"{share:.2f}", _units(found.honest_disputing), _units(found.honest)),
            *(_units(found.cheat), _units(found.cheat_disputing)),
            *(_marked(found.lead), "" if found.best_honest > 0 else "honest serving costs"),
        ))  # fmt: skip
    return Table(
        f"Inferencer, m' = {members}: expected units per task, others dispute where it pays",
        ("r", "honest, disputes", "honest, never", "cheats, never", "cheats, disputes", "lead", "mark"),
        tuple(rows),
        "The lead is the best honest reply less the best cheat: what cheating must save, in units, to break even.",
    )


def verifiers(members: int) -> Table:
    """The ways to verify."""
    names = (*(conduct.value for conduct in RIVALS[:2]), RANDOM, *(conduct.value for conduct in RIVALS[2:]))
    rows = []
    for share in SHARES:
        found = verifier(sensible(share, members))
        cells = (_units(found.rivals[name]) for name in names)
        rows.append((f"{share:.2f}", _units(found.honest), *cells, _marked(found.lead)))
    return Table(
        f"Verifier, m' = {members}: expected units per task; a share r of the inferencers is honest too",
        ("r", "honest", *names, "lead"),
        tuple(rows),
        "Who sides with the cheat accepts what it is handed: level with honesty as long as no inferencer cheats.",
    )


def reviewers() -> Table:
    """A reviewer's lead."""
    rows = []
    for share in SHARES:
        found = [reviewer(World(share, members)) for members in COMMITTEES]
        rows.append((f"{share:.2f}", *(f"{one.honest:.2f} ({_marked(one.lead)})" for one in found)))
    return Table(
        "Reviewer: expected units of an honest one, in brackets its lead over the best other way",
        ("r", *(f"m' = {members}" for members in COMMITTEES)),
        tuple(rows),
    )


def leads() -> Table:
    """Who is ahead, for each committee and for three populations."""
    rows = []
    for share in SHARES:
        cells = []
        for members in COMMITTEES:
            worlds = (World(share, members, NOBODY), sensible(share, members), World(share, members, EVERYBODY))
            both = ((inferencer(world), verifier(world)) for world in worlds)
            cells.append("  ".join(f"{_marked(one.lead)}/{_marked(two.lead)}" for one, two in both))
        rows.append((f"{share:.2f}", *cells))
    return Table(
        "Lead of honesty, inferencer/verifier: nobody disputes, all do where it pays, all do always out of spite",
        ("r", *(f"m' = {members}" for members in COMMITTEES)),
        tuple(rows),
        "Marked (!): another reply pays more.",
    )


def gains() -> Table:
    """For whom a dispute pays."""
    rows = []
    for share in SHARES:
        for members in sorted({*COMMITTEES, _needed(share, ERRORS[1])}):
            world = World(share, members, NOBODY)
            rows.append((
                *(f"{share:.2f}", str(members) + (" *" if members > ON_CHAIN else "")),
                f"{100 * review_right(world):.2f} %",
                *(_marked(inferencer_gain(world, honest=True)), _marked(verifier_gain(world))),
                *(_marked(client_gain(world)), _wrong(inferencer_gain(world, honest=False))),
                *(_wrong(hostile_gain(world)), _wrong(coalition_gain(world))),
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


def wider_first_round() -> Table:
    """More verifiers in the first round."""
    rows = []
    for share in SHARES[:4]:
        for count in (3, 5, 7):
            world = sensible(share, USUAL, verifiers=count)
            one, two = inferencer(world), verifier(world)
            rows.append((f"{share:.2f}", str(count), *map(_marked, (one.best_honest, one.lead, two.lead))))
    return Table(
        f"A larger first committee, m' = {USUAL}, where honest nodes are few",
        ("r", "m", "honest inferencer", "its lead", "verifier's lead"),
        tuple(rows),
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
            *(f"{share:.2f}", str(members), _units(lemma.lead), _units(lemma.verifier_lead)),
            *(_units(lemma.gain(honest=True)), _units(lemma.gain(honest=False))),
            *(_units(at_five.gain(honest=True)), _units(at_five.gain(honest=False))),
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
    """Two other rules for the pay of a review."""
    rows = []
    for share in SHARES[:5]:
        for prize in Prize:
            cells = []
            for members in COMMITTEES:
                world = World(share, members, NOBODY, prize)
                right = (inferencer_gain(world, honest=True), verifier_gain(world))
                wrong = (inferencer_gain(world, honest=False), hostile_gain(world))
                cells.append(" ".join((*map(_marked, right), *map(_wrong, wrong))))
            rows.append((f"{share:.2f}", prize.value, *cells))
    return Table(
        "What disputing adds under other rules: rejected honest, honest verifier, rejected cheat, attacker",
        ("r", "rule", *(f"m' = {members}" for members in COMMITTEES)),
        tuple(rows),
        "The bond alone leaves 6 units a reviewer unpaid; a prize as large as the risk is paid by the first round's losers.",
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


def _units(value: float) -> str:
    return f"{value:+.2f}"


def _marked(value: float) -> str:
    return _units(value) + (" (!)" if value <= 0 else "")


def _wrong(value: float) -> str:
    return _units(value) + (" (!)" if value > 0 else "")
