"""The relay that a gateway runs beside itself: whoever is carried carries others.

It is a process of its own, with keys of its own that lead to no wallet: what strangers send it never meets the wallet's
memory. The client's own paths leave it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from troth.client.configuration import ClientConfiguration
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.overlay.relay.configuration import FILE, load
from troth.overlay.relay.initialisation import RelayInitOptions, committee_of, initialise
from troth.transport.errors import OverlayError
from troth.transport.identity import load_identity

log = logging.getLogger(__name__)

DEFAULT_PORT = 9001
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STOP_SECONDS = 10.0
_DIE_WITH_PARENT = 1


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the relay listens, and "address:port" as others reach it; empty for this machine's own address."""

    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere
    port: int = DEFAULT_PORT
    address: str = ""


def own_relay_name(home: Home) -> bytes:
    """The name of this home's relay in the directory, empty if there is none."""
    try:
        return load_identity(load(home.relay).tls_folder).spki_sha256 if (home.relay / FILE).exists() else b""
    except OverlayError:
        return b""


def prepare_relay(home: Home, configuration: ClientConfiguration, listen: ListenAddress) -> str:
    """Write the relay's configuration and keys on first use; where it says that it is reached.

    Raises OverlayError, or ConfigurationError where it belongs to another committee.
    """
    if not (home.relay / FILE).exists():
        address = listen.address or f"{_outward(configuration.rpc)}:{listen.port}"
        committee = committee_of(configuration.committee, configuration.rpc, configuration.region, 0)
        initialise(
            home.relay, RelayInitOptions(listen.host, listen.port, address, None, proxy=True, committee=committee)
        )
    written = load(home.relay)
    if written.committee is None or written.committee.contract.lower() != configuration.committee.lower():
        raise ConfigurationError(
            "The relay beside the gateway was set up for another committee",
            home.relay,
            "Move that folder away and a new one is made, or use --no-relay.",
        )
    host, port = written.address
    return f"{host}:{port}"


@asynccontextmanager
async def running_relay(home: Home) -> AsyncIterator[None]:
    """`troth relay start` runs inside the block, and again whenever it ends."""
    keeper = asyncio.create_task(_keep(home.relay), name="own relay")
    try:
        yield
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


async def _keep(folder: Path) -> None:
    pause = FIRST_PAUSE
    while True:
        began = asyncio.get_running_loop().time()
        code = await _run(folder)
        lived = asyncio.get_running_loop().time() - began
        pause = FIRST_PAUSE if lived > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
        log.warning("the relay ended with code %s and is started again in %g s", code, pause)
        await asyncio.sleep(pause)


async def _run(folder: Path) -> int | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from troth.command.main import main; main()"),
        *("relay", "start", "--home", str(folder), "--log-level", "warning"),
        stdin=asyncio.subprocess.DEVNULL,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        # A second signal: it need not wait for its circuits.
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _outward(rpc: str) -> str:
    """This machine's address on the way to the chain node. Nothing is sent: connecting UDP only asks for the route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((urlsplit(rpc).hostname or "127.0.0.1", 9))
        return str(probe.getsockname()[0])


def _die_with_parent() -> None:
    """Linux ends the relay with the gateway, even after kill -9."""
    ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
