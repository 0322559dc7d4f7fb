"""The tables of strategies: what each is expected to pay, and how far honesty is ahead."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.disputes.game import EVERYBODY, INFERENCERS, NOBODY, World
from benchmarks.disputes.replies import RANDOM, RIVALS, inferencer, reviewer, verifier, where_it_pays
from benchmarks.disputes.rules import Prize
from benchmarks.disputes.table import Table, marked, units

SHARES = tuple(round(0.55 + 0.05 * step, 2) for step in range(9))
COMMITTEES = (5, 9, 15, 31)
USUAL = 15


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
            *(f"{share:.2f}", units(found.honest_disputing), units(found.honest)),
            *(units(found.cheat), units(found.cheat_disputing)),
            *(marked(found.lead), "" if found.best_honest > 0 else "honest serving costs"),
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
        cells = (units(found.rivals[name]) for name in names)
        rows.append((f"{share:.2f}", units(found.honest), *cells, marked(found.lead)))
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
        rows.append((f"{share:.2f}", *(f"{one.honest:.2f} ({marked(one.lead)})" for one in found)))
    return Table(
        "Reviewer: expected units of an honest one, in brackets its lead over the best other way",
        ("r", *(f"m' = {members}" for members in COMMITTEES)),
        tuple(rows),
    )


def leads() -> Table:
    """Who is ahead, for each committee and four populations."""
    rows = []
    for share in SHARES:
        for members in COMMITTEES:
            fixed = [World(share, members, policy) for policy in (NOBODY, INFERENCERS, EVERYBODY)]
            worlds = (*fixed[:2], sensible(share, members), fixed[2])
            cells = (f"{marked(inferencer(one).lead)} / {marked(verifier(one).lead)}" for one in worlds)
            rows.append((f"{share:.2f}", str(members), *cells))
    return Table(
        "Lead of honesty in units, inferencer / verifier, by who disputes",
        ("r", "m'", "nobody", "rejected inferencers that were honest", "all where it pays", "all always, out of spite"),
        tuple(rows),
        "The second population is what nodes do unless told otherwise. (!): another reply pays more.",
    )


def wider_first_round() -> Table:
    """More verifiers in the first round."""
    rows = []
    for share in SHARES[:4]:
        for count in (3, 5, 7):
            world = sensible(share, USUAL, verifiers=count)
            one, two = inferencer(world), verifier(world)
            rows.append((f"{share:.2f}", str(count), *map(marked, (one.best_honest, one.lead, two.lead))))
    return Table(
        f"A larger first committee, m' = {USUAL}, where honest nodes are few",
        ("r", "m", "honest inferencer", "its lead", "verifier's lead"),
        tuple(rows),
    )
