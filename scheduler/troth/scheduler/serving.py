"""The running process behind `troth scheduler start`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from troth.chain.keystore import load_account, load_vrf_secret
from troth.chain.passwords import read_password
from troth.overlay.identity import load_identity
from troth.overlay.server import TlsServer, run_until_stopped
from troth.overlay.sessions.entry import EntryKeys, overlay_entry
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.configuration import Configuration, load
from troth.scheduler.keys import Keys
from troth.scheduler.market.serving import DRAIN_SECONDS
from troth.scheduler.pool.coordinator import REPORT_LIMITS

log = logging.getLogger(__name__)


async def serve(folder: Path, password_file: Path | None) -> None:
    """Open the keys, take up unfinished tasks, serve until a signal, drain."""
    configuration = load(folder)
    password = read_password(password_file, purpose="the scheduler's keystores")
    keys = await open_keys(configuration, password)
    identity = load_identity(folder / "tls")
    async with assembled(configuration, keys) as scheduler:
        for reason in scheduler.reasons():
            log.warning("not ready: %s", reason)
        app = scheduler_app(scheduler)
        server = TlsServer(
            app,
            identity,
            configuration.host,
            configuration.port,
            drain=scheduler.drain,
            drain_seconds=DRAIN_SECONDS,
            limits=REPORT_LIMITS,
        )
        entry_keys = EntryKeys("scheduler", keys.operator.secret, identity, configuration.seal_key)
        async with overlay_entry(configuration.overlay, configuration.rpc, entry_keys, app, scheduler.metrics.registry):
            await run_until_stopped(
                server, lambda port: log.info("serving %s on port %d", configuration.endpoint, port)
            )
    log.info("stopped")


async def open_keys(configuration: Configuration, password: str) -> Keys:
    """Both keystores at once: each costs a second of scrypt on purpose."""
    operator, vrf_secret = await asyncio.gather(
        asyncio.to_thread(load_account, configuration.operator_keystore, password),
        asyncio.to_thread(load_vrf_secret, configuration.vrf_keystore, password),
    )
    return Keys(operator, vrf_secret)
