"""Reputation in the index: its tables, how they are filled, and the figures that show them.

A node below the bar takes no work until its score has climbed to it again. No epoch for that is fixed: what is shown is
the first one in which it could be back, should every answer from now on be worth 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from troth.chain.reputation_reading import ReputationReading
from troth.explorer.database import Database
from troth.explorer.figures import Column, Query
from troth.explorer.rows import Row, hexadecimal, plain
from troth.protocol.reputation import ONE, ReputationRules, Standing, rated, shared_scores
from troth.protocol.types import Address

SCHEMA = """
CREATE TABLE IF NOT EXISTS reputation_rules (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 0), contract TEXT NOT NULL, epoch INTEGER NOT NULL,
    epoch_blocks INTEGER NOT NULL, bar INTEGER NOT NULL, abnormal INTEGER NOT NULL, "window" INTEGER NOT NULL,
    members INTEGER NOT NULL, expelled INTEGER NOT NULL, broken TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS standings (
    operator TEXT PRIMARY KEY, score INTEGER NOT NULL, shared INTEGER NOT NULL, bar INTEGER NOT NULL,
    banned INTEGER NOT NULL, back INTEGER, rated INTEGER NOT NULL, abnormal INTEGER NOT NULL,
    last_epoch INTEGER NOT NULL, credit INTEGER NOT NULL, silent INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epochs (
    epoch INTEGER PRIMARY KEY, block INTEGER NOT NULL, leader TEXT NOT NULL, leader_check TEXT NOT NULL,
    signers INTEGER NOT NULL, scored INTEGER NOT NULL, silent INTEGER NOT NULL, gas INTEGER,
    "transaction" TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ratings (
    operator TEXT NOT NULL, epoch INTEGER NOT NULL, credit INTEGER NOT NULL, silent INTEGER NOT NULL,
    score INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (operator, epoch)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ratings_epoch ON ratings (epoch, operator);
"""
MOST_EPOCHS = 1_000
"""Good epochs that are tried to lift a node to the bar."""
_NODE = Column("operator", "Node", "node")
_SCORE = Column("score_billionths", "Score", "score")
_CREDIT = Column("credit_billionths", "Credit", "score")
_SILENT = Column("silent", "Silent", "flag")

REPUTATION_QUERIES: Mapping[str, Query] = {
    "reputation": Query(
        "Nodes by score",
        (
            _NODE,
            _SCORE,
            Column("shared_billionths", "With its owner's", "score"),
            Column("bar_billionths", "Bar", "score"),
            Column("below_the_bar", "Takes no work", "flag"),
            Column("earliest_epoch", "Not before epoch", "known"),
            Column("epochs", "Epochs", "number"),
            Column("abnormal", "Abnormal of the last", "count"),
            Column("last_epoch", "Last in epoch", "number"),
            _CREDIT,
            _SILENT,
        ),
        "SELECT operator, score, shared, bar, banned, back, rated, abnormal, last_epoch, credit, silent FROM standings "
        "WHERE 1 = 1 {where}",
        "shared DESC, operator DESC",
        filters={"operator": "operator = ?"},
        choices={"state": {"banned": "banned > 0", "trusted": "banned = 0"}},
        cursor=("shared", "operator"),
        after=("shared_billionths", "operator"),
    ),
    "epochs": Query(
        "Epochs",
        (
            Column("epoch", "Epoch", "number"),
            Column("block", "Block", "number"),
            Column("leader", "Leader", "hash"),
            Column("leader_check", "Drawn", "leader"),
            Column("signatures", "Signatures", "number"),
            Column("scored", "Scored", "number"),
            Column("silent", "Silent", "count"),
            Column("gas", "Gas", "known"),
            Column("transaction", "Transaction", "hash"),
        ),
        'SELECT epoch, block, leader, leader_check, signers, scored, silent, gas, "transaction" FROM epochs '
        "WHERE 1 = 1 {where}",
        "epoch DESC",
        cursor=("epoch",),
        after=("epoch",),
    ),
    "ratings": Query(
        "Epochs of a node",
        (_NODE, Column("epoch", "Epoch", "number"), _CREDIT, _SILENT, _SCORE, Column("block", "Block", "number")),
        "SELECT operator, epoch, credit, silent, score, block FROM ratings WHERE 1 = 1 {where}",
        "epoch DESC, operator DESC",
        filters={"operator": "operator = ?"},
        cursor=("epoch", "operator"),
        after=("epoch", "operator"),
    ),
}


def fill_reputation(database: Database, reading: ReputationReading) -> None:
    """Put what was read in place of what was there; inside the index's ``writing``."""
    made: dict[str, Iterable[Row]] = {
        "reputation_rules": [_rules(reading)],
        "standings": _standings(reading),
        "epochs": _epochs(reading),
        "ratings": _ratings(reading),
    }
    for table, rows in made.items():
        database.execute(f"DELETE FROM {table}")  # noqa: S608 -- own names
        if filled := list(rows):
            database.insert(table, filled)


def _rules(reading: ReputationReading) -> Row:
    state = reading.state
    assert state.deployed is not None
    rules = state.deployed.rules
    counting = sum(one.counts(reading.epoch) for one in state.raters.values())
    told = (rules.epoch_blocks, rules.bar, rules.abnormal, rules.window, counting, len(state.expelled))
    return (0, reading.place.contract, reading.epoch, *told, plain(reading.broken, 200))


def _standings(reading: ReputationReading) -> Iterable[Row]:
    state = reading.state
    assert state.deployed is not None
    rules, shared = state.deployed.rules, shared_scores(state.standings)
    for node, standing in state.standings.items():
        last, banned = state.ratings[node], shared[node] < rules.bar
        back = earliest_return(state.standings, node, rules, reading.epoch) if banned else None
        told = (standing.score, shared[node], rules.bar, int(banned), back)
        bits = standing.abnormal.bit_count()
        yield node, *told, standing.rated, bits, last.epoch, last.credit, int(last.silent)


def earliest_return(
    standings: Mapping[Address, Standing], node: Address, rules: ReputationRules, epoch: int
) -> int | None:
    """The first epoch in which a node can take work again, if from this epoch on every credit of it is 1; None: never,
    since its owner's other nodes hold it down."""
    owner = standings[node].owner
    here = {one: standing for one, standing in standings.items() if standing.owner == owner}
    for after in range(1, MOST_EPOCHS + 1):
        here[node] = rated(here[node], ONE, epoch, rules)
        if shared_scores(here)[node] >= rules.bar:
            return epoch + after
        if here[node].score == ONE:
            break
    return None


def _epochs(reading: ReputationReading) -> Iterable[Row]:
    for one in reading.epochs:
        event = one.event
        place = event.epoch, event.meta.block, event.leader, one.leader.value, event.signers
        yield *place, one.scored, one.silent, one.gas, hexadecimal(event.meta.transaction)


def _ratings(reading: ReputationReading) -> Iterable[Row]:
    for one in reading.ratings:
        yield one.node, one.epoch, one.credit, int(one.silent), one.score, one.meta.block
