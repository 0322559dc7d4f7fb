"""The running process behind ``troth scheduler run`` for a market."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from troth.chain.keystore import load_account, load_vrf_secret, read_password
from troth.overlay.sessions.entry import EntryKeys, overlay_entry, shared_entry
from troth.scheduler.assembly import SchedulerKeys, assembled_market
from troth.scheduler.configuration import load_market
from troth.scheduler.pool.coordinator import REPORT_LIMITS
from troth.scheduler.sections import FILE
from troth.transport.alone import Alone
from troth.transport.identity import load_identity
from troth.transport.listener import require_free
from troth.transport.server import TlsServer, run_until_stopped

log = logging.getLogger(__name__)

DRAIN_SECONDS = 600.0
"""How long tasks under way may take once a stop was asked for; a kill leaves them to the journal."""


async def serve_market(folder: Path, password_file: Path | None) -> None:
    """Open the keys, take up what was cut off, serve until a signal, drain."""
    configuration = load_market(folder)
    require_free(configuration.host, configuration.port, f"listen.port in {folder / FILE}")
    password = read_password(password_file, purpose="the scheduler's keystores")
    operator, vrf_secret = await asyncio.gather(
        asyncio.to_thread(load_account, configuration.operator_keystore, password),
        asyncio.to_thread(load_vrf_secret, configuration.vrf_keystore, password),
    )
    identity = load_identity(folder / "tls")
    keys = SchedulerKeys(operator, vrf_secret)
    async with assembled_market(configuration, keys, looks=True) as scheduler:
        for reason in scheduler.reasons():
            log.warning("not ready: %s", reason)
        app, shared = scheduler.app(), shared_entry(configuration.overlay)
        server = TlsServer(
            app,
            identity,
            configuration.host,
            configuration.port,
            drain=scheduler.orders.drain,
            drain_seconds=DRAIN_SECONDS,
            limits=REPORT_LIMITS,
            shared=None if shared is None else shared.port,
        )
        entry = EntryKeys("scheduler", operator.secret, identity, configuration.seal_key)
        registry = scheduler.metrics.registry
        alone = Alone(lambda: scheduler.ledger.state, operator.address)
        async with overlay_entry(configuration.overlay, configuration.rpc, entry, app, registry, shared):
            await run_until_stopped(
                server, lambda port: log.info("serving %s on port %d", configuration.endpoint, port), alone.watch
            )
    log.info("stopped")
