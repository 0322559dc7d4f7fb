"""What ``troth scheduler status``, ``tabs`` and ``prices`` report for a market: no password, no running process.

What is stuck is a problem, and the exit code says so: a summons or an objection with the block by which it is due, an
entry of the log that is overdue, an order that is unfinished while no process runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.keystore import address_in
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import asset_of, described
from troth.protocol.amounts import COIN, Asset
from troth.protocol.market import messages, views
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind, Role
from troth.protocol.types import Address, Hash32
from troth.scheduler.configuration import SchedulerConfiguration, load_market
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.pool.showing import asked_here, placement_of
from troth.scheduler.tabs.client_tabs import ClientTab, ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTab, NodeTabs
from troth.transport.identity import Operator

Report = dict[str, Any]
ASKED_NODES = 32
GAS_RESERVE = 10**16
"""Wei below which a warning is due: some tens of tasks at ordinary fees."""


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """A deployment as a command sees it."""

    configuration: SchedulerConfiguration
    market: Market
    state: State
    block: int
    operator: Address


@asynccontextmanager
async def looking(folder: Path) -> AsyncIterator[DeploymentStatus]:
    """Follow the deployment once, into a file of the commands' own."""
    configuration = load_market(folder)
    async with await reach(configuration) as market, following(configuration, market) as looked:
        yield looked


async def reach(configuration: SchedulerConfiguration) -> Market:
    """The deployment, of which nothing is followed yet: a few requests, however long its history is."""
    named = configuration.market
    place = await find_place(configuration.rpc, named.factory, named.bank, named.start_block)
    return await Market.connect(configuration.rpc, place, chain_id=configuration.chain_id)


@asynccontextmanager
async def following(configuration: SchedulerConfiguration, market: Market) -> AsyncIterator[DeploymentStatus]:
    """The same, followed to its newest block."""
    operator = operator_in(configuration)
    follower = MarketFollower(market, configuration.folder / "market-events-command.sqlite")
    try:
        state = await follower.catch_up()
        yield DeploymentStatus(configuration, market, state, follower.block, operator)
    finally:
        await follower.close()


def operator_in(configuration: SchedulerConfiguration) -> Address:
    """The operator's address, from its keystore without a password."""
    address = address_in(configuration.operator_keystore)
    if address is None:
        raise ConfigurationInvalid("The keystore names no address", configuration.operator_keystore, "Restore it.")
    return address


async def status_of_market(folder: Path) -> Report:
    """Standing on chain, money, what runs and what is stuck."""
    async with looking(folder) as looked:
        state, me = looked.state, looked.operator
        balance, asset = await looked.market.chain.balance(me), await asset_of(looked.market)
        nodes = await _nodes(looked)
        party = state.parties.get(me)
        stuck, overdue, unfinished = _stuck(looked), list[int](), list[str]()
        if (database := _database(folder)) is not None:
            try:
                overdue = _overdue(database)
                unfinished = ["0x" + one.order_id.hex() for one in OrderStore(database).running()]
            finally:
                await database.close()
        problems = [*_standing(looked, asset), *stuck, *_unconnected(nodes), *_left_behind(overdue, unfinished, nodes)]
        if balance < GAS_RESERVE:
            problems.append(f"{COIN.show(balance)} for gas: send some to {me}")
        return {
            "operator": me,
            "block": looked.block,
            "process": f"does not answer on port {looked.configuration.port}" if nodes is None else "answers",
            "role": "none" if party is None else party.role.name.lower(),
            "stake_units": str(state.pot(PotKind.STAKE, me)),
            "credit_units": str(state.pot(PotKind.CREDIT, me)),
            "exit_block": None if party is None else party.exit_block or None,
            "gas_money_wei": str(balance),
            **described(asset),
            "unfinished_orders": unfinished,
            "nodes": None if nodes is None else [f"{one['operator']}: {_seen(one)}" for one in nodes],
            "placement": await placement_of(looked.configuration),
            "stuck": stuck,
            "problems": problems,
        }


def _left_behind(overdue: list[int], unfinished: list[str], nodes: list[Report] | None) -> list[str]:
    """What its own records say is late, and what nobody finishes."""
    found = [f"entry {number} of the log is closed and not posted" for number in overdue]
    if unfinished and nodes is None:
        words = "order is" if len(unfinished) == 1 else "orders are"
        found.append(f"{len(unfinished)} {words} unfinished and no process answers: `troth scheduler start`")
    return found


async def _nodes(looked: DeploymentStatus) -> list[Report] | None:
    """How the running scheduler sees the nodes of its classes; None where it does not run on this machine."""
    served = {one.class_id for one in looked.configuration.served}
    parties = (one for one in looked.state.parties.values() if one.role is Role.NODE and not one.exit_block)
    named = [one.operator for one in parties if one.execution_class in served][:ASKED_NODES]
    answers = await asked_here(looked.configuration, ["/livez", *(f"/v1/nodes/{one}" for one in named)])
    return answers[1:] if answers else None


def _seen(node: Report) -> str:
    if node.get("connected"):
        return "connected"
    return "; ".join(map(str, node.get("why") or [])) or "not connected"


def _unconnected(nodes: list[Report] | None) -> list[str]:
    """Without a node no order is served; which one to look after is said beside each."""
    if nodes is None or any(one.get("connected") for one in nodes):
        return []
    if not nodes:
        return ["no node is registered for what this scheduler serves: no order can be served"]
    first = f"{nodes[0]['operator']}: {_seen(nodes[0])}"
    return [f"no node is connected, of {len(nodes)} that serve its classes: no order can be served ({first})"]


def _standing(looked: DeploymentStatus, asset: Asset) -> list[str]:
    party = looked.state.parties.get(looked.operator)
    if party is None or party.role is not Role.SCHEDULER:
        return ["not registered: troth scheduler register --owner-keystore FILE --broadcast"]
    if party.exit_block:
        return [f"leaving: withdraw after block {party.exit_block}"]
    missing = views.parameters_of(looked.state).scheduler_stake - looked.state.pot(PotKind.STAKE, looked.operator)
    return [f"{asset.show(missing)} of stake are missing"] if missing > 0 else []


def _stuck(looked: DeploymentStatus) -> list[str]:
    """What is asked on chain of this scheduler, with the block by which it is due."""
    found = [
        f"summoned for {record.state.kind.name.lower()} of order 0x{record.state.order.hex()}, "
        f"due by block {record.state.deadline}, {record.state.deadline - looked.block} blocks left"
        for record in looked.state.summons.values()
        if record.state.scheduler == looked.operator and record.answered is None
    ]
    for tab, record in looked.state.tabs.items():
        if record.tab.payee == looked.operator and record.claim is not None:
            found += [
                f"an objection to number {number} of the claim on tab 0x{tab.hex()} is due by block {one.deadline}"
                for number, one in record.claim.objections.items()
            ]
    return found


def _overdue(database: SchedulerDatabase) -> list[int]:
    rows = database.read("SELECT number FROM log_entry WHERE closed = 1 AND posted IS NULL ORDER BY number")
    return [number for (number,) in rows[:-1]]


def _database(folder: Path) -> SchedulerDatabase | None:
    path = folder / "market.sqlite"
    return SchedulerDatabase(path) if path.exists() else None


async def tabs_of_market(folder: Path) -> Report:
    """Every tab, of clients and with nodes: what it holds, what is owed, what is open."""
    async with looking(folder) as looked:
        database = _database(folder)
        if database is None:
            return {"clients": [], "nodes": []}
        try:
            asset = await asset_of(looked.market)
            # Nothing is signed here: a secret that no account has stands for the operator's.
            operator = Operator(b"\x01" * 32, looked.market.domain)
            clients = [_client(looked, one) for one in ClientTabs(database)]
            books = {one.book.tab: one for one in NodeTabs(database, operator)}
            own = (tab for tab, one in looked.state.tabs.items() if one.tab.payer == looked.operator)
            nodes = [_node(looked, tab, books.get(tab)) for tab in own]
        finally:
            await database.close()
        return {"clients": clients, "nodes": nodes, **described(asset)}


def _client(looked: DeploymentStatus, held: ClientTab) -> dict[str, Any]:
    tab_id = messages.tab_id(held.tab)
    state = looked.state.tab_state(tab_id)
    return {
        "tab": "0x" + tab_id.hex(),
        "client": held.tab.payer,
        "balance_units": str(state.balance),
        "redeemable_units": str(held.book.payable - state.redeemed),
        "unacknowledged_units": str(held.book.exposure),
        "unacknowledged_orders": len(held.book.worth),
        "closes_at_block": state.closes_at or None,
    }


def _node(looked: DeploymentStatus, tab: Hash32, held: NodeTab | None) -> dict[str, Any]:
    state, node = looked.state.tab_state(tab), looked.state.tabs[tab].tab.payee
    spent, authorised, opened = (0, 0, 0) if held is None else (held.book.spent, held.book.authorised, len(held.owed))
    return {
        "tab": "0x" + tab.hex(),
        "node": node,
        "balance_units": str(state.balance),
        "acknowledged_units": str(spent),
        "free_units": str(max(state.balance + state.redeemed - authorised, 0)),
        "open_promises": opened,
        "closes_at_block": state.closes_at or None,
    }


def prices_of_market(folder: Path) -> Report:
    """The price list as it is configured."""
    configuration = load_market(folder)
    listed = [
        {
            "execution_class": "0x" + class_id.hex(),
            "prompt_units_per_billion": str(one.prompt),
            "cached_units_per_billion": str(one.cached),
            "written_units_per_billion": str(one.written),
            "node_share_basis_points": one.node_share,
        }
        for class_id, one in configuration.prices.items()
    ]
    return {"prices": listed, "published": f"{configuration.endpoint}/v1/prices"}
