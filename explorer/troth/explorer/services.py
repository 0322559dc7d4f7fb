"""Tickets and organisations in the index: their tables, how they are filled, and the figures that show them.

Of tickets there are sums by epoch and price alone. A row for each purchase beside one for each spending would be no
secret, since the chain has both, but it would invite to guess who is who by time and number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from troth.audit.services import ReadServices
from troth.chain.organisations import OrganisationsReading
from troth.chain.tickets import TicketsReading
from troth.explorer.database import Database
from troth.explorer.disputes import DISPUTE_QUERIES
from troth.explorer.figures import QUERIES, Column, FigureReader, Query
from troth.explorer.reputation import REPUTATION_QUERIES, fill_reputation
from troth.explorer.rows import Row, hexadecimal

SCHEMA = """
CREATE TABLE IF NOT EXISTS ticket_sales (
    epoch INTEGER NOT NULL, price TEXT NOT NULL, sold INTEGER NOT NULL, spent INTEGER NOT NULL,
    refunded INTEGER NOT NULL, outstanding INTEGER NOT NULL, held TEXT NOT NULL, keys INTEGER NOT NULL,
    PRIMARY KEY (epoch, price)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticket_money (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 0), received TEXT NOT NULL, paid TEXT NOT NULL, fees TEXT NOT NULL,
    returned TEXT NOT NULL, held TEXT NOT NULL, passed_over INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS credits (
    owner TEXT PRIMARY KEY, credits TEXT NOT NULL, set_aside TEXT NOT NULL, earned TEXT NOT NULL, nodes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deployments (
    number INTEGER PRIMARY KEY, owner TEXT NOT NULL, class TEXT NOT NULL, replicas INTEGER NOT NULL,
    first INTEGER NOT NULL, "end" INTEGER NOT NULL, hosted INTEGER NOT NULL, reserve TEXT NOT NULL,
    hosts INTEGER NOT NULL, source TEXT NOT NULL
);
"""
_SOURCE = 120
"""Characters of where a model is to be had: an owner's own words."""

SERVICE_QUERIES: Mapping[str, Query] = {
    "tickets": Query(
        "Tickets by epoch and price",
        (
            Column("epoch", "Epoch", "number"),
            Column("price", "Price", "amount"),
            Column("sold", "Sold", "number"),
            Column("spent", "Spent", "number"),
            Column("refunded", "Refunded", "number"),
            Column("outstanding", "Outstanding", "number"),
            Column("held", "Held for them", "amount"),
        ),
        "SELECT epoch, price, sold, spent, refunded, outstanding, held FROM ticket_sales WHERE 1 = 1 {where}",
        "epoch DESC, length(price), price",
        filters={"epoch": "epoch = ?"},
    ),
    "ticket-money": Query(
        "Money of tickets",
        (
            Column("received", "Brought in", "amount"),
            Column("paid", "To tabs", "amount"),
            Column("fees", "Fees", "amount"),
            Column("returned", "Refunded", "amount"),
            Column("held", "Outstanding", "amount"),
            Column("passed_over", "Shown again", "number"),
        ),
        "SELECT received, paid, fees, returned, held, passed_over FROM ticket_money WHERE 1 = 1 {where}",
        '"only"',
    ),
    "credits": Query(
        "Contribution credits",
        (
            Column("owner", "Organisation", "hash"),
            Column("credits", "Credits", "text"),
            Column("set_aside", "Set aside", "text"),
            Column("earned", "Earned in all", "text"),
            Column("nodes", "Nodes that earned", "number"),
        ),
        "SELECT owner, credits, set_aside, earned, nodes FROM credits WHERE 1 = 1 {where}",
        "length(earned) DESC, earned DESC, owner",
        filters={"owner": "owner = ?"},
    ),
    "deployments": Query(
        "Deployments",
        (
            Column("number", "Deployment", "number"),
            Column("owner", "Organisation", "hash"),
            Column("class", "Model", "class"),
            Column("replicas", "Machines", "number"),
            Column("hosts", "Hosts now", "number"),
            Column("hosted", "Layers hosted", "number"),
            Column("first", "From epoch", "number"),
            Column("end", "Until epoch", "number"),
            Column("reserve", "Credits left", "text"),
            Column("source", "Files"),
        ),
        'SELECT number, owner, class, replicas, hosts, hosted, first, "end", reserve, source '
        "FROM deployments WHERE 1 = 1 {where}",
        "number DESC",
        filters={"owner": "owner = ?"},
    ),
}
ALL_QUERIES: Mapping[str, Query] = {**QUERIES, **DISPUTE_QUERIES, **SERVICE_QUERIES, **REPUTATION_QUERIES}
"""Every figure that there is."""


def reader_of(database: Database) -> FigureReader:
    """Reads every figure from a connection to the index."""
    return FigureReader(database, ALL_QUERIES)


def fill(database: Database, read: ReadServices) -> None:
    """Put what was read in place of what was there; inside the index's ``writing``."""
    made: dict[str, Iterable[Row]] = {}
    if read.tickets is not None:
        made |= {"ticket_sales": _sales(read.tickets), "ticket_money": [_money(read.tickets)]}
    if read.organisations is not None:
        made |= {"credits": _credits(read.organisations), "deployments": _deployments(read.organisations)}
    for table, rows in made.items():
        database.execute(f"DELETE FROM {table}")  # noqa: S608 -- own names
        if filled := list(rows):
            database.insert(table, filled)
    if read.reputation is not None:
        fill_reputation(database, read.reputation)


def _sales(reading: TicketsReading) -> Iterable[Row]:
    prices = reading.fold.rules.prices
    for (epoch, denomination), counts in reading.fold.sold.items():
        held = str(counts.outstanding * prices[denomination])
        tally = counts.sold, counts.spent, counts.refunded, counts.outstanding
        yield epoch, str(prices[denomination]), *tally, held, int(epoch in reading.fold.keys)


def _money(reading: TicketsReading) -> Row:
    fold = reading.fold
    sums = (str(units) for units in (fold.received, fold.paid, fold.fees, fold.returned, fold.held))
    return (0, *sums, fold.passed_over)


def _credits(reading: OrganisationsReading) -> Iterable[Row]:
    state = reading.state
    for owner, balance in state.balances.items():
        reserved = sum(one.reserve for one in state.deployments.values() if one.owner == owner)
        mine = [one for one in state.movements if one.owner == owner]
        earned = sum(one.amount for one in mine)
        yield owner, str(balance), str(reserved), str(earned), len({one.node for one in mine})


def _deployments(reading: OrganisationsReading) -> Iterable[Row]:
    hosts = [one.number for one, _ in reading.state.hosts_in(reading.epoch).values()]
    for one in reading.state.deployments.values():
        place = one.number, one.owner, hexadecimal(one.execution_class), one.replicas, one.first, one.end
        yield *place, one.hosted, str(one.reserve), hosts.count(one.number), one.source[:_SOURCE]
