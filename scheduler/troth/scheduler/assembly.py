"""Putting a scheduler together from its configuration and keys, and taking it apart again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.overlay.operator import Operator
from troth.protocol import vrf
from troth.protocol.calls.views import parameters_of
from troth.protocol.types import Address
from troth.scheduler.admission import Admission
from troth.scheduler.catalogue import Catalogue
from troth.scheduler.configuration import Configuration
from troth.scheduler.desk import Desk
from troth.scheduler.journal import Journal
from troth.scheduler.keys import Keys
from troth.scheduler.ledger import Ledger
from troth.scheduler.metrics import Metrics
from troth.scheduler.peers import Contact, Peers
from troth.scheduler.pool.gauges import Gauges
from troth.scheduler.pool.pace import Pace
from troth.scheduler.pool.task_coordinator import TaskCoordinator
from troth.scheduler.service import Scheduler
from troth.scheduler.trace_store import TraceStore

PRUNE_INTERVAL = 3600.0
"""Seconds between two removals of old rows."""


@asynccontextmanager
async def assembled(
    configuration: Configuration,
    keys: Keys,
    open_journal: Callable[[Path], Journal] = Journal,
    pace: Callable[[], Pace] = Pace,
) -> AsyncIterator[Scheduler]:
    """A scheduler that follows the chain and has taken up its unfinished tasks; `pace` says when nodes are moved."""
    async with AsyncExitStack() as stack:
        chain = await stack.enter_async_context(
            await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id)
        )
        follower = EventFollower(
            chain,
            configuration.folder / "events.sqlite",
            start_block=configuration.start_block,
            poll_interval=configuration.poll_seconds,
        )
        await stack.enter_async_context(follower)
        await follower.catch_up()
        operator = Operator(keys.operator.secret, chain.domain)
        peers = Peers(operator, lambda node: _contact(follower, node))
        stack.push_async_callback(peers.close)
        journal = open_journal(configuration.folder / "journal.sqlite")
        stack.callback(journal.close)
        parameters = await chain.read(parameters_of())
        metrics = Metrics()
        coordinator = TaskCoordinator(
            configuration.served, lambda: (follower.state, follower.block), peers, Gauges(metrics.registry), pace
        )
        desk = Desk(
            scheduler=operator,
            vrf_secret=keys.vrf_secret,
            vrf_key=vrf.public_key(keys.vrf_secret),
            commit_window=parameters.commit_window,
            reveal_window=parameters.reveal_window,
            journal=journal,
            traces=TraceStore(configuration.folder / "traces"),
            peers=peers,
            ledger=Ledger(chain, follower, keys.operator, minimum_stake=parameters.minimum_scheduler_stake),
            waits=configuration.waits,
            chains=coordinator,
        )
        catalogue = Catalogue(configuration.served, coordinator.ends)
        admission = Admission(catalogue, operator.address, keys.vrf_secret, chain.domain)
        scheduler = Scheduler(desk, admission, catalogue, metrics, coordinator, concurrent=configuration.concurrent)
        stack.push_async_callback(scheduler.abandon)
        await scheduler.resume()
        pruning = asyncio.create_task(_prune(scheduler, configuration.keep_rows_seconds))
        stack.callback(pruning.cancel)
        watching = asyncio.create_task(scheduler.watch_endings())
        stack.callback(watching.cancel)
        for job in (coordinator.watch(), coordinator.measure_ways()):
            stack.callback(asyncio.create_task(job).cancel)
        reviewing = asyncio.create_task(scheduler.reviews.watch())
        stack.push_async_callback(scheduler.reviews.abandon)
        stack.callback(reviewing.cancel)
        yield scheduler


def _contact(follower: EventFollower, operator: Address) -> Contact | None:
    node = follower.state.nodes.get(operator)
    return None if node is None else Contact(node.endpoint, node.tls_key_hash)


async def _prune(scheduler: Scheduler, keep_seconds: float) -> None:
    while True:
        scheduler.prune(keep_seconds)
        await asyncio.sleep(PRUNE_INTERVAL)
