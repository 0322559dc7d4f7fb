"""The real contract on a local chain with a group of nodes, and many calls in one block.

The chain takes calls for any sender (anvil's impersonation), so that a hundred of them are one request; what parties
sign for the contract, orders, roots, commitments and proofs, is really signed.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.deployment import deploy
from troth.chain.keystore import Key
from troth.demo.anvil import fund, rpc, start_anvil
from troth.demo.processes import ProcessGroup
from troth.protocol import calls, vrf
from troth.protocol.contract_types import NodeRegistration, Parameters, SchedulerRegistration, VrfProof
from troth.protocol.events import Event
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, model_id
from troth.protocol.typed_data import sign
from troth.protocol.types import ZERO_HASH, Address, Consent, ExecutionClass, Hash32, ModelDescriptor, Segment
from troth.protocol.vrf_hints import hints

UNIT = 10**9
ETHER = 10**18
LAYERS, COLUMNS, POSITIONS = 2, 32, 16
WHOLE = Segment(0, LAYERS)
CALL_GAS = 12_000_000
ROOMY = ("--gas-limit", "100000000000", "--auto-impersonate", "--no-request-size-limit", "--hardfork", "osaka")
TIMEOUT = 120.0


@dataclass(slots=True)
class Network:
    """A deployed contract, its one scheduler, client and class, and the nodes by operator, in slot order."""

    url: str
    chain: Chain
    rules: ExecutionClass
    owner: Key
    scheduler: Key
    client: Key
    vrf_secret: bytes
    nodes: dict[Address, Key]

    @property
    def members(self) -> list[Address | None]:
        """The group of the whole model."""
        return list(self.nodes)

    def proof(self, alpha: bytes) -> tuple[VrfProof, Hash32]:
        """The scheduler's proof with the contract's hints, and its output."""
        proof = vrf.prove(self.vrf_secret, alpha)
        found = hints(vrf.public_key(self.vrf_secret), alpha, proof)
        return VrfProof(proof, tuple(found)), Hash32(vrf.proof_to_hash(proof))

    async def mine(self, sent: Sequence[tuple[Address, calls.Call]]) -> list[Event]:
        """One block of these calls; its events. Raises ChainRejected with the contract's error if one fails."""
        if not sent:
            return []
        transactions = await self._unsigned(sent)
        before = await self.chain.block_number()
        hashes = await self._batch("eth_sendTransaction", [[one] for one in transactions])
        await self._batch("evm_mine", [[]])
        receipts = await self._batch("eth_getTransactionReceipt", [[one] for one in hashes])
        for receipt, (sender, call) in zip(receipts, sent, strict=True):
            if receipt is None or int(receipt["status"], 16) != 1:
                error = (await self.chain.simulate(call, sender)).rejection
                raise RuntimeError(f"the contract refused {call.function}: {error or 'out of gas, or too late'}")
        return await self.chain.events(before + 1, before + 1)

    async def _unsigned(self, sent: Sequence[tuple[Address, calls.Call]]) -> list[dict[str, str]]:
        senders = sorted({sender for sender, _ in sent})
        counts = await self._batch("eth_getTransactionCount", [[sender, "latest"] for sender in senders])
        nonces = {sender: int(count, 16) for sender, count in zip(senders, counts, strict=True)}
        transactions = []
        for sender, call in sent:
            fields = {"from": sender, "to": self.chain.contract, "data": "0x" + call.data.hex(), "gas": hex(CALL_GAS)}
            # Calls of one request are taken in any order, so that the node could give two of them one nonce.
            transactions.append(fields | {"nonce": hex(nonces[sender])})
            nonces[sender] += 1
        return transactions

    async def _batch(self, method: str, parameters: list[list[object]]) -> list[Any]:
        body = [
            {"jsonrpc": "2.0", "id": index, "method": method, "params": given} for index, given in enumerate(parameters)
        ]
        answers = await asyncio.to_thread(_post, self.url, body)
        found = sorted(answers, key=lambda answer: int(answer["id"]))
        for answer in found:
            if "error" in answer:
                raise RuntimeError(f"the local chain refused {method}: {answer['error']}")
        return [answer["result"] for answer in found]


def _post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310 - loopback only
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310 - loopback only
        return json.load(response)


@asynccontextmanager
async def network(*, exact: bool, reviewers: int, nodes: int, name: str = "game") -> AsyncIterator[Network]:
    """A chain process with everything on it; it ends with the context."""
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, url = start_anvil(processes, 0, "anvil", ROOMY)
            built = await _build(url, exact=exact, reviewers=reviewers, nodes=nodes, name=name)
            async with built.chain:
                rpc(url, "evm_mine")  # who joins in a block is a member from the next one on
                rpc(url, "evm_setAutomine", False)
                yield built
        finally:
            processes.stop_all()


def execution_class(model: Hash32, *, exact: bool, reviewers: int) -> ExecutionClass:
    """One candidate, three verifiers; a stake that no run exhausts is paid in on top of the minimum."""
    return ExecutionClass(
        model=model,
        name="game",
        dtype=0,
        exact=exact,
        mantissa_bits=10,
        steps=8,
        theta=9_000,
        tiles=0 if exact else 1,
        candidates=1,
        verifiers=3,
        reviewers=reviewers,
        unit=UNIT,
        minimum_stake=UNIT * 300,
        state_cut=1_000,
        margin_cut=20_000,
        calibration=ZERO_HASH,
    )


async def _build(url: str, *, exact: bool, reviewers: int, nodes: int, name: str) -> Network:
    people = {who: _key(f"{name} {who}") for who in ("owner", "scheduler", "client")}
    for key in people.values():
        fund(url, key.address, 10**6 * ETHER)
    owner, scheduler = people["owner"], people["scheduler"]
    chain, _ = await deploy(url, Parameters(100, 100, 100, 100, 2_000, ETHER, owner.address), owner)
    descriptor = ModelDescriptor("llama/game/game", LAYERS, COLUMNS, 100, 0, Hash32(b"\1" * 32))
    rules = execution_class(model_id(descriptor), exact=exact, reviewers=reviewers)
    built = Network(url, chain, rules, owner, scheduler, people["client"], keccak256(name.encode()), {})
    await chain.execute(calls.register_model(descriptor), owner)
    await chain.execute(calls.register_class(rules), owner)
    x, y = vrf.public_key(built.vrf_secret)
    registration = SchedulerRegistration(scheduler.address, owner.address, x, y, "https://127.0.0.1:1", _hash("tls"))
    await chain.execute(calls.register_scheduler(registration, _consent(built, scheduler), ETHER), owner)
    await chain.execute(calls.deposit(built.client.address, 100 * ETHER), owner)
    for number in range(nodes):
        await _register(built, _key(f"{name} node {number}"))
    return built


async def _register(built: Network, node: Key) -> None:
    fund(built.url, node.address, ETHER)
    registration = NodeRegistration(
        *(node.address, built.owner.address, class_id(built.rules), 0, LAYERS, (WHOLE,)),
        *("https://127.0.0.1:2", _hash("tls")),
    )
    await built.chain.execute(calls.register_node(registration, _consent(built, node), ETHER), built.owner)
    built.nodes[node.address] = node


def _consent(built: Network, operator: Key) -> bytes:
    return sign(Consent(built.owner.address, operator.address), built.chain.domain, operator.secret)


def _key(name: str) -> Key:
    return Key.from_secret(keccak256(name.encode()))


def _hash(text: str) -> Hash32:
    return Hash32(keccak256(text.encode()))
