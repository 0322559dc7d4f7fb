"""Deploy the directory's committee from the packaged bytecode."""

from __future__ import annotations

from collections.abc import Sequence

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, REQUEST_TIMEOUT
from troth.chain.keystore import Key
from troth.chain.records import Receipt, Simulation
from troth.chain.rpc import Rpc
from troth.chain.transactions import Transactions
from troth.protocol.bindings import COMMITTEE, named, read_resource
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.calls import Call
from troth.protocol.committee import Member
from troth.protocol.types import Address


def committee_creation(members: Sequence[Member]) -> Call:
    """What creates a Committee with these first members (1 to 32)."""
    code = _unhex(read_resource("committee.bytecode.json")["bytecode"])
    inputs = named("constructor", COMMITTEE)["constructor"].inputs
    return Call("deployment of Committee", code + encode_parameters(inputs, [list(members)]))


async def submit(
    url: str, call: Call, key: Key, to: Address | None = None, *, receipt_timeout: float = RECEIPT_TIMEOUT
) -> Receipt:
    """Send a creation, or a call, and wait.

    Raises ChainRejected if the contract refuses it.
    """
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        transaction = await transactions.send(call, key, to, None)
        return await transactions.wait(transaction, 1, receipt_timeout)
    finally:
        await rpc.close()


async def estimate_creation(url: str, creation: Call, sender: Address) -> Simulation:
    """What a creation would cost, without sending it."""
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        fees, gas = await transactions.fees(), await transactions.estimate(creation, sender, None)
    finally:
        await rpc.close()
    return Simulation(creation.function, sender, 0, gas, gas * fees.maximum, None)


def _unhex(digits: str) -> bytes:
    return bytes.fromhex(digits.removeprefix("0x"))
