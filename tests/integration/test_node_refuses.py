"""What `troth node start` does not serve: weights that are not its class's, and an overlay entry of half a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")

from support.operated import DEADLINE, Operated, init_words, joined, operated_in, wait_until_ready
from support.tabs_stage import tabs_stage
from support.tiny_llama import tiny_model

from troth.node.models.descriptor import describe
from troth.testnet.forked import Forked
from troth.testnet.ports import free_port
from troth.transport.https import pinned_sync_client

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
def processes() -> Iterator[list[Forked]]:
    started: list[Forked] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def stopped(process: Forked) -> None:
    process.terminate()
    assert process.wait(DEADLINE) == 0


async def test_other_weights_are_not_served(anvil: Any, tmp_path: Path, processes: list[Forked]) -> None:
    """A node that served its class well, and has other weights of the same shape in its folder from then on."""
    folder = tiny_model(tmp_path / "model")
    async with tabs_stage(anvil, nodes=1, model=describe(folder, 0), tabs=False) as stage:
        operated, made = await joined(stage, anvil, tmp_path)
        processes.append(operated.start())
        wait_until_ready(operated, made, processes[-1])
        stopped(processes[-1])
        other = tiny_model(tmp_path / "other", seed=8)
        (folder.path / "model.safetensors").write_bytes((other.path / "model.safetensors").read_bytes())
        processes.append(operated.start())
        assert processes[-1].wait(DEADLINE) == 1
        assert "is not the registered model: weights_root differs" in operated.log
        assert listens_nowhere(made)


def listens_nowhere(made: dict[str, Any]) -> bool:
    """No scheduler can reach it, so that none can draw it in vain for long."""
    with pinned_sync_client(made["endpoint"], bytes.fromhex(made["tls_key_hash"][2:])) as client:
        try:
            client.get("/readyz")
        except httpx.ConnectError:
            return True
    return False


async def test_an_entry_of_the_overlay_hosts_the_whole_model(
    anvil: Any, tmp_path: Path, processes: list[Forked]
) -> None:
    folder = tiny_model(tmp_path / "model")
    async with tabs_stage(anvil, nodes=1, model=describe(folder, 0), tabs=False) as stage:
        overlay_port = free_port()
        # Nobody answers there as a committee: an entry is open before it is listed.
        entry = ("--committee", stage.market.place.factory, "--overlay-port", overlay_port)
        operated = operated_in(tmp_path)
        part = operated.run(
            *init_words(stage, tmp_path, "--slice", "0:1", *entry), "--password-file", operated.password
        )
        assert part.returncode == 1
        assert "--slice 0:2" in part.stderr
        assert not (operated.home / "node.toml").exists()
        operated, made = await joined(stage, anvil, tmp_path, *entry)
        processes.append(operated.start())
        wait_until_ready(operated, made, processes[-1])
        one_identity(made, overlay_port)
        assert (operated.home / "keys" / "seal.pem").stat().st_mode & 0o777 == 0o600
        stopped(processes[-1])
        move_to_a_part(operated)
        processes.append(operated.start())
        assert processes[-1].wait(DEADLINE) == 1
        assert "an overlay entry needs the whole model" in operated.log
        assert "Host layers 0:2" in operated.log


def one_identity(made: dict[str, Any], overlay_port: int) -> None:
    """Whom the directory names is who is bonded; what is spoken behind that TLS key is not HTTP."""
    key = bytes.fromhex(made["tls_key_hash"][2:])
    with (
        pinned_sync_client(f"https://127.0.0.1:{overlay_port}", key) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get("/")
    with pinned_sync_client(made["endpoint"], key) as client:
        assert "troth_node_entry_under_way 0.0" in client.get("/metrics").text


def move_to_a_part(operated: Operated) -> None:
    assert operated.signed("move", "0:1", "--broadcast")["sent"]
