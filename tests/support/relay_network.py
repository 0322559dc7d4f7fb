"""Real `troth relay start` processes on loopback, with an echoing destination in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.relay.configuration import relay_entry
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.relay.initialisation import RelayInitOptions, initialise, own_descriptor
from troth.testnet.ports import free_port
from troth.transport.identity import create_identity

START_SECONDS = 60.0
ANSWER_BYTES = 2000
"""The destination answers with the beginning of the message: at most so many bytes."""
ECHO = "from support.relay_network import serve_echo; serve_echo()"
_TROTH = ("-c", "from troth.command.main import main; main()")


@dataclass
class RelayProcess:
    """One relay."""

    process: subprocess.Popen[bytes]
    descriptor: RelayDescriptor
    home: Path

    @property
    def cpu_seconds(self) -> float:
        """User and system time that it has used."""
        return cpu_seconds(self.process.pid)

    def kill(self) -> None:
        """End it at once, as a machine that loses power does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to stop and wait; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=START_SECONDS)


@dataclass
class RelayNetwork:
    """Relays that know each other, and where messages may go."""

    relays: list[RelayProcess]
    destination: PinnedAddress

    @property
    def path(self) -> list[RelayDescriptor]:
        """All relays, in order."""
        return [relay.descriptor for relay in self.relays]


def destination_entry(place: PinnedAddress) -> str:
    """A destination's [[destination]] table in a directory."""
    return (
        f'[[destination]]\nhost = "{place.host}"\nport = {place.port}\ntls_key_hash = "0x{place.tls_key_hash.hex()}"\n'
    )


@contextmanager
def relay_network(
    folder: Path, relays: int = 3, settings: str = "", destination_code: str = ECHO
) -> Iterator[RelayNetwork]:
    """Starts everything, yields when it answers, ends every process.

    `settings` is added to each relay.toml. The destination's process runs `destination_code`; its arguments are the
    folder of its TLS key and its port.
    """
    homes = [folder / f"relay{number}" for number in range(relays)]
    for home in homes:
        port = free_port()
        initialise(home, RelayInitOptions("127.0.0.1", port, f"127.0.0.1:{port}", None, True))
        with (home / "relay.toml").open("a", encoding="utf-8") as file:
            file.write(settings)
    identity = create_identity(folder / "destination")
    destination = PinnedAddress("127.0.0.1", free_port(), identity.spki_sha256)
    descriptors = [own_descriptor(home) for home in homes]
    directory = "\n".join([*map(relay_entry, descriptors), destination_entry(destination)])
    for home in homes:
        (home / "directory.toml").write_text(directory, encoding="utf-8")
    echo = start_python("-c", destination_code, str(folder / "destination"), str(destination.port))
    started = [
        RelayProcess(
            start_python(*_TROTH, "relay", "start", "--home", str(home), "--log-level", "warning"), descriptor, home
        )
        for home, descriptor in zip(homes, descriptors, strict=True)
    ]
    processes = [echo, *(relay.process for relay in started)]
    try:
        for place in (destination, *(descriptor.place for descriptor in descriptors)):
            wait_for(place, processes)
        yield RelayNetwork(started, destination)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_seconds(process: int) -> float:
    """User and system time that the process of this id has used, all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_python(*arguments: str) -> subprocess.Popen[bytes]:
    """A process of this interpreter that finds what this one finds."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, *arguments], env=environment)


def wait_for(place: PinnedAddress, processes: list[subprocess.Popen[bytes]]) -> None:
    """Until somebody listens there; raises OSError if nobody does in time or a process has ended."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((place.host, place.port), 1.0).close()
        except OSError:
            if time.monotonic() > give_up or any(process.poll() is not None for process in processes):
                raise
            time.sleep(0.05)
        else:
            return


async def _echo(message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
    yield message[:ANSWER_BYTES], True


async def _serve(folder: Path, port: int) -> None:
    from troth.transport.identity import load_identity

    await DeliveryServer(load_identity(folder), _echo).start("127.0.0.1", port)
    await asyncio.Event().wait()


def serve_echo() -> None:
    """A destination process: its arguments are the folder of its TLS key and its port."""
    import uvloop

    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
