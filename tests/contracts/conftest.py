"""A real chain process with one of the harnesses deployed on it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

from troth.testnet.anvil import find_anvil
from troth.testnet.ports import free_port

ROOT = Path(__file__).parents[2]
BINARIES = ROOT / "node_modules" / ".bin"
START_SECONDS = 120


@pytest.fixture(scope="session")
def library_harness() -> Iterator[Any]:
    """The harness contract: each function of the libraries as a view call."""
    with _deployed_harness("contracts/test/LibraryHarness.sol") as contract:
        yield contract


@pytest.fixture(scope="session")
def market_harness() -> Iterator[Any]:
    """The same for the libraries of the market."""
    with _deployed_harness("contracts/test/MarketLibraryHarness.sol") as contract:
        yield contract


@pytest.fixture(scope="session")
def court_harness() -> Iterator[Any]:
    """The parts of a market that the stateless ones ask, as a contract of which a test says all answers."""
    with _deployed_harness("contracts/test/MarketCourtHarness.sol") as contract:
        yield contract


@pytest.fixture(scope="session")
def proof_harness() -> Iterator[Any]:
    """The arithmetic of proofs."""
    with _deployed_harness("contracts/test/ProofLibraryHarness.sol") as contract:
        yield contract


@pytest.fixture(scope="session")
def arithmetic_harness() -> Iterator[Any]:
    """Canonical arithmetic."""
    with _deployed_harness("contracts/test/ArithmeticHarness.sol") as contract:
        yield contract


@pytest.fixture(scope="session")
def ring_harness() -> Iterator[Any]:
    """Ring signatures."""
    with _deployed_harness("contracts/test/RingHarness.sol") as contract:
        yield contract


@contextmanager
def _deployed_harness(source: str) -> Iterator[Any]:
    compiled = _compile(source)
    port = free_port()
    limits = ["--gas-limit", "100000000000"]
    process = subprocess.Popen([find_anvil(), "--port", str(port), "--silent", "--prune-history", "500", *limits])
    try:
        web3 = Web3(Web3.HTTPProvider(f"http://127.0.0.1:{port}", request_kwargs={"timeout": 120}))
        _wait_until_connected(web3, process)
        factory = web3.eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
        receipt = web3.eth.wait_for_transaction_receipt(factory.constructor().transact({"from": web3.eth.accounts[0]}))
        yield web3.eth.contract(address=receipt["contractAddress"], abi=compiled["abi"])
    finally:
        process.terminate()
        process.wait()


def _compile(source: str) -> dict[str, Any]:
    """As hardhat has compiled it, unless a source has changed since."""
    return _found(source) or _compiled_alone(source)


def _found(source: str) -> dict[str, Any] | None:
    artifacts = ROOT / "artifacts"
    try:
        found: dict[str, Any] = json.loads((artifacts / source / f"{Path(source).stem}.json").read_text())
        built = json.loads((artifacts / "build-info" / f"{found['buildInfoId']}.json").read_text())
    except FileNotFoundError:
        return None
    for name, text in built["input"]["sources"].items():
        path = ROOT / name.removeprefix("project/")
        if name.startswith("project/") and (not path.is_file() or path.read_text() != text["content"]):
            return None
    return found


def _compiled_alone(source: str) -> dict[str, Any]:
    script = Path(__file__).with_name("compile_library_harness.mjs")
    command = [BINARIES / "node", script, ROOT, source]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    compiled: dict[str, Any] = json.loads(finished.stdout)
    return compiled


def _wait_until_connected(web3: Web3, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not web3.is_connected():
        assert process.poll() is None, "anvil ended before it answered"
        assert time.monotonic() < deadline, f"anvil did not answer in {START_SECONDS} seconds"
