"""Ring signatures of ballots, and proofs of a node's signature: time and bytes by members, and gas on chain.

Gas is a whole transaction's on anvil that checks one ballot by the library `RingSignature`, its calldata and the fixed
21,000 included.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import anvil_process
from support.ring_keys import SCOPE, keys_of, ring_of_keys
from web3 import Web3

from benchmarks.figures import Figure
from troth.protocol import possession, rings, typed_data
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = (3, 10)
TRIED_MILLISECONDS, TRIED_BYTES = 1.8, 384
"""Of ten members with Ed25519, as it was tried before; bytes of a proof without a tag."""
TRIED_GAS = {4: 80_000, 10: 154_000, 25: 338_000}
REPEATS = 100
MESSAGE = Hash32(keccak256(b"message"))


def measure() -> list[Figure]:
    """Times on one thread of this machine, and receipts."""
    return [*[one for count in MEMBERS for one in _times(count)], *_gas()]


def _times(count: int) -> list[Figure]:
    secrets = keys_of(count)
    ring = ring_of_keys(secrets)
    signed = rings.sign(secrets[0], ring, SCOPE, MESSAGE)
    signature = typed_data.sign_digest(MESSAGE, secrets[0])
    proof = possession.prove(signature, MESSAGE, ring)
    tried = TRIED_MILLISECONDS if count == 10 else None
    return [
        Figure(f"ballot, {count} members: sign", _time(lambda: rings.sign(secrets[0], ring, SCOPE, MESSAGE)), "ms"),
        Figure(f"ballot, {count} members: verify", _time(lambda: rings.verify(signed, ring, SCOPE, MESSAGE)), "ms"),
        Figure(f"ballot, {count} members", len(rings.encode(signed)), "bytes"),
        Figure(f"row, {count} members: prove", _time(lambda: possession.prove(signature, MESSAGE, ring)), "ms"),
        Figure(
            f"row, {count} members: verify",
            _time(lambda: possession.verify(proof, MESSAGE, ring)),
            "ms",
            note="" if tried is None else f"tried with Ed25519: {tried} ms",
        ),
        Figure(
            f"row, {count} members",
            len(proof),
            "bytes",
            note="" if tried is None else f"tried with Ed25519: {TRIED_BYTES} bytes",
        ),
    ]


def _time(action: Callable[[], object]) -> float:
    """The fastest of many: what a busy machine adds is not the protocol's."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return 1e3 * min(seconds)


def _gas() -> list[Figure]:
    with anvil_process() as anvil:
        web3 = Web3(Web3.HTTPProvider(anvil.url, request_kwargs={"timeout": 60}))
        compiled = _compiled("contracts/test/RingHarness.sol")
        factory = web3.eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
        sender = web3.eth.accounts[0]
        made = web3.eth.wait_for_transaction_receipt(factory.constructor().transact({"from": sender}))
        harness = web3.eth.contract(address=made["contractAddress"], abi=compiled["abi"])
        figures = []
        for count, tried in TRIED_GAS.items():
            secrets = keys_of(count)
            ring = ring_of_keys(secrets)
            signed = rings.sign(secrets[1], ring, SCOPE, MESSAGE)
            given = rings.hints(signed, ring, SCOPE, MESSAGE)
            call = harness.functions.verify(b"".join(ring), SCOPE, MESSAGE, rings.encode(signed), given)
            spent = web3.eth.wait_for_transaction_receipt(call.transact({"from": sender}))["gasUsed"]
            figures.append(Figure(f"ballot on chain, {count} members", spent, "gas", note=f"tried: {tried:,}"))
        return figures


def _compiled(source: str) -> dict[str, Any]:
    """ABI and bytecode of a harness, compiled alone."""
    script = ROOT / "tests" / "contracts" / "compile_library_harness.mjs"
    command = ["node", str(script), str(ROOT), source]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    compiled: dict[str, Any] = json.loads(finished.stdout)
    return compiled
