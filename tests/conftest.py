"""Fixtures that need a real chain: an anvil process, funded keys, fresh contracts.

A module shares `anvil`, `deployed` is a new market per test, `start_anvil` makes processes that a test may kill.
Tests that use them carry the marker `chain`.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eth_account  # noqa: F401 - it raises the bound on recursion for the whole process, see below
import httpx
import pytest
from hypothesis import HealthCheck, settings
from support.distribution import NICENESS, FillingScheduling, is_filler

from troth.chain.deployment import deploy_market
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.protocol.hashing import keccak256
from troth.protocol.market import shipped
from troth.protocol.market.types import Parameters
from troth.testnet.anvil import find_anvil
from troth.testnet.errors import MissingTool
from troth.testnet.ports import free_port

sys.setrecursionlimit(1000)
"""Python's own, as in every process of Troth: none imports eth_account, with which tests compare."""

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", UNTIMED, derandomize=True)
settings.register_profile("random", UNTIMED)
settings.load_profile("fixed")
"""`make test` must never fail by chance: its examples are the same in every run, and how long one takes beside other
tests is no finding. `make fuzz` takes random ones."""

ROOT = Path(__file__).resolve().parent.parent
START_DEADLINE = 120.0
ANSWER_DEADLINE = 120.0
"""Seconds, on a machine that does much else."""

FUNDED_KEYS = 16
MINED_AT_ONCE = 50
FUNDS = 10_000 * 10**18


@dataclass
class Anvil:
    """A running node with instant mining; `keys` are funded. `client` speaks to it from outside the adapter.

    `standing` is what `tabs_stage` left there for the next test that wants the same, and `stages` how many are in use.
    """

    process: subprocess.Popen[bytes]
    port: int
    keys: tuple[Key, ...]
    client: httpx.Client
    standing: Any = None
    stages: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rpc(self, method: str, *parameters: object) -> Any:
        """A JSON-RPC call from outside the adapter."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}
        answer = self.client.post(self.url, json=body).json()
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def mine(self, blocks: int = 1) -> None:
        """Mine empty blocks, a few per call: each costs the more, the more contracts the node has seen."""
        for start in range(0, blocks, MINED_AT_ONCE):
            self.rpc("anvil_mine", hex(min(MINED_AT_ONCE, blocks - start)))

    def fund(self, key: Key) -> None:
        """Give an account ether."""
        self.rpc("anvil_setBalance", key.address, hex(FUNDS))

    def stop(self) -> None:
        """Kill the process, as a node that goes away does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def key_number(number: int) -> Key:
    """A key that depends on its number alone."""
    return Key.from_secret(keccak256(b"troth test key %d" % number))


def _anvil() -> str | None:
    try:
        return find_anvil()
    except MissingTool:
        return None


ANVIL = _anvil()
"""Looked for before a test leaves this folder."""


@contextmanager
def anvil_process(port: int | None = None) -> Iterator[Anvil]:
    if ANVIL is None:
        pytest.skip("anvil is not installed; run npm ci")
    chosen = port or free_port()
    command = [ANVIL, "--port", str(chosen), "--hardfork", "osaka", "--silent", "--accounts", "1"]
    # Otherwise it writes every block's state to the home folder, and leaves it there when it is killed.
    command += ["--prune-history", "500"]
    # Where it is a script around the binary: a group of their own, so that stop() ends both.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    # One for all calls, and without TLS: each new one would read all root certificates of the system.
    with httpx.Client(verify=False, trust_env=False, timeout=ANSWER_DEADLINE) as client:
        node = Anvil(process, chosen, tuple(key_number(number) for number in range(FUNDED_KEYS)), client)
        try:
            wait_for_answer(node)
            for key in node.keys:
                node.fund(key)
            yield node
        finally:
            node.stop()


def wait_for_answer(node: Anvil) -> None:
    give_up = time.monotonic() + START_DEADLINE
    while True:
        try:
            node.rpc("eth_chainId")
        except httpx.TransportError:
            if node.process.poll() is not None or time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    """One node for a module: what a block costs it grows with every contract, so one for the session would crawl."""
    with anvil_process() as node:
        yield node


@pytest.fixture
def start_anvil() -> Iterator[Callable[..., Anvil]]:
    """Starts nodes of a test's own, on a given port if it wants one back there."""
    with ExitStack() as stack:
        yield lambda port=None: stack.enter_context(anvil_process(port))


@dataclass
class Deployed:
    """A market that no other test knows; `deployer` paid for it."""

    anvil: Anvil
    market: Market
    deployer: Key
    parameters: Parameters


@pytest.fixture
def parameters() -> Parameters:
    """Short windows, so that deadlines are a few mined blocks away."""
    return shipped.DEMO


@pytest.fixture
async def deployed(anvil: Anvil, parameters: Parameters) -> AsyncIterator[Deployed]:
    """Fresh contracts."""
    deployer = anvil.keys[0]
    anvil.mine(3)
    market, _ = await deploy_market(anvil.url, parameters, deployer)
    async with market:
        yield Deployed(anvil, market, deployer, parameters)


gc.disable()
"""Until the tests are collected: nearly half of that time was spent looking for garbage among modules that stay."""


def pytest_collection_finish() -> None:
    """What was imported is looked at no more."""
    gc.enable()
    gc.freeze()


SLOW = {"slow", "torch", "model", "chain", "browser", "gpu", "vllm", "namespaces", "network"}
"""Markers of tests that the inner loop leaves out."""
INNER_LOOP = "quick"
LEFT_OUT = re.compile(rf"^pytestmark = (?:pytest|\[\s*pytest)\.mark\.(?:{'|'.join(sorted(SLOW))})\b", re.MULTILINE)
"""A file whose every test is left out."""


def is_inner_loop(config: pytest.Config) -> bool:
    """Whether `make quick` runs, or a part of it."""
    return bool(config.option.markexpr == INNER_LOOP)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The inner loop does not even import a file of which it runs no test: torch alone costs each worker a second."""
    if not is_inner_loop(config) or collection_path.suffix != ".py":
        return None
    return True if LEFT_OUT.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is quick, so that `pytest -m quick` needs no list of its own."""
    for item in items:
        if not SLOW.intersection(marker.name for marker in item.iter_markers()):
            item.add_marker(pytest.mark.quick)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that brings torch into the inner loop fails by its name, which is told from a worker as well."""
    was_there = "torch" in sys.modules
    report = yield
    if is_inner_loop(collector.config) and not was_there and "torch" in sys.modules:
        why = "the inner loop imported torch: begin this file's pytestmark with pytest.mark.torch"
        return pytest.CollectReport(report.nodeid, "failed", why, result=[])
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many of several workers are fillers; see support/distribution.py."""
    parser.addoption("--fillers", type=int, default=0, help="workers that run quick folders alone, at low priority")


def pytest_configure(config: pytest.Config) -> None:
    """A filler lets the others go first."""
    worker = getattr(config, "workerinput", None)
    if worker and is_filler(worker["workerid"], worker["workercount"], config.option.fillers):
        os.nice(NICENESS)


@pytest.hookimpl(optionalhook=True)  # what runs alone knows no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FillingScheduling | None:
    """Who runs what where there are fillers; else what --dist says."""
    return FillingScheduling(config, log, config.option.fillers) if config.option.fillers else None
