"""The local EVM: an anvil process."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from troth.testnet.errors import MissingTool
from troth.testnet.ports import free_port
from troth.testnet.processes import Child, ProcessGroup, wait_until

CHAIN_ID = 31337
STATES = 500
"""Past states that are kept, in memory: more blocks than any reorganisation takes back."""


def find_anvil() -> str:
    """Path of the anvil program: on the PATH, or in the node_modules of a checkout.

    npm's `anvil` is a script that runs the real program as a child, which would outlive the script: look behind it.
    """
    local = Path.cwd() / "node_modules" / ".bin" / "anvil"
    found = shutil.which("anvil") or (str(local) if local.exists() else None)
    if found is None:
        raise MissingTool(
            "The local chain needs anvil",
            "not on the PATH",
            "Run `npm install` in a checkout of Troth, or `make demo`.",
        )
    script = Path(found).resolve()
    if script.suffix != ".mjs":
        return found
    programs = sorted(script.parent.parent.glob("anvil-*/bin/anvil*"))
    if not programs:
        raise MissingTool(
            "npm did not install anvil for this platform", script.parent.parent, "Install Foundry, then try again."
        )
    return str(programs[0])


def has_anvil() -> bool:
    """Whether the program is here."""
    try:
        return bool(find_anvil())
    except MissingTool:
        return False


def start_anvil(processes: ProcessGroup, block_seconds: float = 1.0) -> tuple[Child, str]:
    """Start a chain that mines every `block_seconds` (0: a block a transaction) and return it with its RPC address."""
    port = free_port()
    command = [
        find_anvil(),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--chain-id",
        str(CHAIN_ID),
        "--quiet",
        # Otherwise it writes every block's state to the home folder: gigabytes, which a kill leaves there.
        "--prune-history",
        str(STATES),
    ]
    if block_seconds:
        command += ["--block-time", f"{block_seconds:g}"]
    child = processes.start("anvil", command)
    address = f"http://127.0.0.1:{port}"
    wait_until(lambda: rpc_answers(address), "The local chain's first answer", 30, [child])
    return child, address


def rpc(address: str, method: str, *parameters: object) -> object:
    """One JSON-RPC call to the local chain."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}).encode()
    request = urllib.request.Request(address, body, {"content-type": "application/json"})  # noqa: S310 - loopback only
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback only
        answer = json.load(response)
    if "error" in answer:
        raise MissingTool(f"The local chain refused {method}", answer["error"], "Is it really anvil?")
    return answer["result"]


def rpc_answers(address: str) -> bool:
    """Whether the chain answers yet."""
    try:
        return rpc(address, "eth_chainId") == hex(CHAIN_ID)
    except (urllib.error.URLError, OSError):
        return False


def fund(address: str, account: str, wei: int) -> None:
    """Give an account of the local chain `wei`."""
    rpc(address, "anvil_setBalance", account, hex(wei))


def gas_used(address: str, transaction: str) -> int:
    """Gas of a mined transaction."""
    receipt = rpc(address, "eth_getTransactionReceipt", transaction)
    if not isinstance(receipt, dict):
        raise MissingTool("The local chain does not know a transaction", transaction, "Is it the chain of this run?")
    return int(str(receipt["gasUsed"]), 16)
