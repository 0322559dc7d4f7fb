"""Three `troth relay start` processes on loopback, one echoing destination, and a client in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.relay_network import ANSWER_BYTES, RelayNetwork, relay_network
from support.waiting import SECONDS, eventually

from troth.overlay.circuits.client import CircuitClient
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.testnet.ports import free_port
from troth.transport.errors import CircuitFailed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayNetwork]:
    with relay_network(tmp_path_factory.mktemp("relays"), settings="[waits]\ndrain = 5.0\n") as started:
        yield started


def listens(place: PinnedAddress) -> bool:
    """Whether a relay takes links; one that drains takes none."""
    try:
        socket.create_connection((place.host, place.port), SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_relays_carry_drain_and_fail_as_they_say(network: RelayNetwork) -> None:
    """In this order, since processes are slow to start: messages, a kill, a graceful end."""
    client = CircuitClient()
    guard, middle, proxy = network.relays
    name = network.destination.name
    circuits = [await client.build(network.path) for _ in range(4)]
    for length in (10, 30_000, 500_000):
        message = os.urandom(length)
        answers = await asyncio.gather(*(circuit.request(name, message) for circuit in circuits))
        assert answers == [message[:ANSWER_BYTES]] * 4
    two_hops = await client.build([guard.descriptor, proxy.descriptor])
    middle.kill()
    with pytest.raises(CircuitFailed) as caught:
        await circuits[0].request(name, b"late")
    assert caught.value.hop == "middle"
    assert await two_hops.request(name, b"still here") == b"still here"
    ending = asyncio.create_task(asyncio.to_thread(proxy.stop))
    await eventually(lambda: not listens(proxy.descriptor.place))
    assert await two_hops.request(name, b"under way") == b"under way"
    assert await ending == 0
    with pytest.raises(CircuitFailed) as caught:
        await two_hops.request(name, b"too late")
    assert caught.value.hop == "proxy"
    with pytest.raises(CircuitFailed):
        await client.build([guard.descriptor, proxy.descriptor])
    await client.close()
    assert await asyncio.to_thread(guard.stop) == 0


def test_the_command_says_whether_it_is_ready_and_reads_its_directory_again(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    troth = [sys.executable, "-c", "from troth.command.main import main; main()", "relay"]
    home = ["--home", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    init = [*troth, "init", *home, "--port", str(port), "--metrics-port", str(metrics), "--json"]
    subprocess.run(init, env=environment, check=True, capture_output=True)
    again = subprocess.run(init, env=environment, check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "already" in again.stdout + again.stderr
    entry = subprocess.run([*troth, "entry", *home], env=environment, check=True, capture_output=True, text=True).stdout
    assert entry.startswith("[[relay]]")
    started = subprocess.Popen([*troth, "start", *home], env=environment, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{metrics}"
        transport = httpx.HTTPTransport(retries=100)
        with httpx.Client(base_url=url, transport=transport, timeout=SECONDS) as health:
            assert health.get("/livez").json() == {"live": True}
            assert "names no relay" in health.get("/readyz").text
            (tmp_path / "directory.toml").write_text(entry)
            started.send_signal(signal.SIGHUP)
            assert _eventually_ready(health)
            assert "troth_relay_circuits 0.0" in health.get("/metrics").text
        started.send_signal(signal.SIGTERM)
        assert started.wait(timeout=SECONDS) == 0
    finally:
        started.kill()
        started.wait()


def _eventually_ready(health: httpx.Client) -> bool:
    give_up = time.monotonic() + SECONDS
    while health.get("/readyz").status_code != 200:
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True
