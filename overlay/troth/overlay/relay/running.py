"""A running relay: listener, switch, sweeper and health endpoints; started together, drained, stopped.

Once a second a relay ends what has lasted too long: circuits half-open, idle or old, messages, links.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from troth.chain.duty import Duty
from troth.overlay.cells.format import EndReason
from troth.overlay.circuits.descriptors import Directory
from troth.overlay.circuits.handshake import RelayIdentity
from troth.overlay.circuits.link import Link
from troth.overlay.relay.circuit import RelayCircuit
from troth.overlay.relay.configuration import RelayConfiguration, load_directory
from troth.overlay.relay.keys import load_handshake_key
from troth.overlay.relay.limits import RelayLimits
from troth.overlay.relay.listener import LinkListener
from troth.overlay.relay.metrics import RelayMetrics
from troth.overlay.relay.switch import Switch
from troth.transport.identity import TlsIdentity, load_identity

if TYPE_CHECKING:
    from troth.overlay.relay.listing import Listed

LINK_IDLE_SECONDS = 60.0
QUIET_SECONDS = 5.0
"""A draining relay ends circuits that have been quiet for so long and expect no answer."""
log = logging.getLogger(__name__)
SWEEP_SECONDS = 1.0


def sweep(switch: Switch, links: tuple[Link, ...], now: float) -> None:
    """End what has lasted too long at loop time `now`."""
    for circuit in list(switch.circuits):
        reason = overdue(circuit, switch.limits, now)
        if reason is None and switch.draining and _quiet(circuit, now):
            reason = EndReason.DRAINING
        if reason is not None:
            switch.close(circuit, reason)
    switch.deliveries.expire(now)
    for link in links:
        if not switch.routes(link) and now - link.last_used > LINK_IDLE_SECONDS:
            link.close()
    switch.batch_ended()


def overdue(circuit: RelayCircuit, limits: RelayLimits, now: float) -> EndReason | None:
    """Why this circuit has to end now, or None."""
    if not circuit.proven and now - circuit.began > limits.half_open_seconds:
        return EndReason.IDLE
    if now - circuit.last_used > limits.idle_seconds:
        return EndReason.IDLE
    if now - circuit.began > limits.circuit_seconds:
        return EndReason.QUOTA
    if circuit.proxy is not None and now - circuit.proxy.reassembly.oldest() > limits.message_seconds:
        return EndReason.IDLE
    return None


def _quiet(circuit: RelayCircuit, now: float) -> bool:
    busy = circuit.extending is not None or (circuit.proxy is not None and circuit.proxy.busy)
    return not busy and now - circuit.last_used > QUIET_SECONDS


class RunningRelay:
    """One relay of one configuration."""

    def __init__(self, configuration: RelayConfiguration) -> None:
        self._configuration = configuration
        self._tls: TlsIdentity = load_identity(configuration.tls_folder)
        secret = load_handshake_key(configuration.handshake_key)
        self.metrics = RelayMetrics()
        self.switch = Switch(
            RelayIdentity(self._tls.spki_sha256, secret),
            load_directory(configuration.directory) if configuration.committee is None else Directory({}, {}),
            configuration.limits,
            self.metrics,
            proxy=configuration.proxy,
        )
        self.listener = LinkListener(self.switch, self._tls)
        self.listed = _listed(configuration, self.switch)
        self._hurry = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """The relay listens inside the block; yields its port. Leaving the block drains first."""
        port = self.listener.start(self._configuration.host, self._configuration.port)
        sweeping = Duty("looking at circuits", self._sweep, every=SWEEP_SECONDS, longest=SWEEP_SECONDS).start()
        if self.listed is not None:
            self.listed.start()
        try:
            yield port
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._configuration.drain_seconds):
                    await self._drain()
        finally:
            await sweeping.stop()
            if self.listed is not None:
                await self.listed.stop()
            await self._close()

    def hurry(self) -> None:
        """Do not wait for circuits any longer."""
        self._hurry.set()

    def reload(self) -> None:
        """Read the directory again, from its file or from the committee; an unusable one is reported, the old stays."""
        if self.listed is not None:
            self.listed.hurry()
            return
        try:
            self.switch.directory = load_directory(self._configuration.directory)
        except Exception as error:  # noqa: BLE001 - a running relay outlives a bad file
            log.warning("the directory was not read again: %s", error)
        else:
            log.info("directory: %d relays", len(self.switch.directory.relays))

    def reasons(self) -> list[str]:
        """Why this relay is not ready; empty when it is."""
        switch = self.switch
        found = ["draining: no new circuits are taken"] if switch.draining else []
        if self.listed is not None:
            found += self.listed.reasons()
        elif not switch.directory.relays:
            found.append(f"the directory {self._configuration.directory} names no relay")
        if len(switch.circuits) >= switch.limits.circuits:
            found.append(f"all {switch.limits.circuits} circuits are taken")
        self.metrics.hand_over()
        self.metrics.circuits.set(len(switch.circuits))
        self.metrics.links.labels("accepted").set(len(self.listener.links))
        self.metrics.links.labels("dialed").set(len(switch.pool))
        self.metrics.backlog.set(switch.backlog_bytes)
        return found

    async def _sweep(self) -> None:
        """Without it circuits would never end, and a list that has ended would go on naming relays."""
        links = (*self.listener.links, *self.switch.pool.links())
        sweep(self.switch, links, asyncio.get_running_loop().time())
        if self.listed is not None:
            self.listed.check()
        self.reasons()

    async def _drain(self) -> None:
        self.switch.draining = True
        self.listener.stop_listening()
        while self.switch.circuits and not self._hurry.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self._hurry.wait()

    async def _close(self) -> None:
        self.listener.stop_listening()
        for circuit in list(self.switch.circuits):
            self.switch.close(circuit, EndReason.DRAINING)
        self.switch.batch_ended()
        self.switch.deliveries.close()
        await self.switch.pool.close()
        self.listener.close()


def _listed(configuration: RelayConfiguration, switch: Switch) -> Listed | None:
    if configuration.committee is None:
        return None
    # It brings an Ethereum client along, which a relay with a file of its own has no use for.
    from troth.overlay.relay.listing import Listed

    return Listed(configuration, configuration.committee, switch)


async def run_until_stopped(configuration: RelayConfiguration) -> None:
    """Serve until SIGINT or SIGTERM, then drain; a second signal ends draining. SIGHUP reads the directory again."""
    relay = RunningRelay(configuration)
    stop = asyncio.Event()

    def signalled() -> None:
        if stop.is_set():
            relay.hurry()
        else:
            log.info("stopping once circuits are quiet; a second signal stops at once")
            stop.set()

    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, signalled)
    loop.add_signal_handler(signal.SIGHUP, relay.reload)
    async with AsyncExitStack() as stack:
        if configuration.metrics_port is not None:
            health = await stack.enter_async_context(_health(relay, configuration.metrics_port))
            log.info("health and metrics on 127.0.0.1:%d", health)
        port = await stack.enter_async_context(relay.serving())
        # What the start has made stays for good; a collection has no need to look at it again.
        gc.collect()
        gc.freeze()
        log.info("relaying on %s:%d", configuration.host, port)
        await stop.wait()
    log.info("stopped")


@asynccontextmanager
async def _health(relay: RunningRelay, port: int) -> AsyncIterator[int]:
    # Here, for a relay without it starts in half the time.
    from fastapi import FastAPI

    from troth.transport.health import health_routes
    from troth.transport.server import TlsServer, serving

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(health_routes(relay.reasons, relay.metrics.registry))
    async with serving(TlsServer(app, None, "127.0.0.1", port)) as server:
        yield server.port
