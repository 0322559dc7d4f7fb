"""Registering a node, and what a draw costs in groups of ten, of ten thousand, and after these have left again."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.market.orders import hash_of
from benchmarks.market.stage import CALL_GAS, FUNDS, GWEI, WHOLE, Node, Stage, account, key
from troth.chain import decoding
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Ask, DrawRequest, ExecutionClass
from troth.protocol.types import Address

FEW, MANY = 10, 10_000
SAMPLES = 24
"""Draws of which the mean is taken: how many tries one needs is chance."""
TOGETHER = 250
"""Calls in one request to the chain."""
A_BLOCK = 60
"""Calls in a block."""
BLOCK_GAS = CALL_GAS * A_BLOCK


@dataclass(frozen=True, slots=True)
class Draws:
    """Mean gas of a draw of m' seats, as a transaction of its own."""

    few: int
    many: int
    after: int


def measure(stage: Stage, few: ExecutionClass, many: ExecutionClass, excluded: Sequence[Address]) -> Draws:
    """The groups of two classes; owners are few, so that nobody is in the way of the others."""
    _send(stage, [_joining(stage, few, number) for number in range(FEW)])
    _send(stage, [_joining(stage, many, number) for number in range(MANY)])
    stage.mine(100)
    ten, thousands = _draw(stage, few, excluded), _draw(stage, many, excluded)
    _send(stage, [_leaving(stage, many, number) for number in range(FEW, MANY)])
    stage.mine(1)
    return Draws(ten, thousands, _draw(stage, many, excluded))


def _draw(stage: Stage, rules: ExecutionClass, excluded: Sequence[Address]) -> int:
    block, sender, gas = stage.block - 1, account("who draws"), []
    stage.fund(sender)
    for number in range(SAMPLES):
        request = DrawRequest(
            execution_class=state_hash(rules),
            first=WHOLE.first,
            end=WHOLE.end,
            block_number=block,
            seed=hash_of(f"draw {number}"),
            count=rules.reviewers,
            seasoned=True,
            distinct=False,
            excluded=tuple(excluded),
            bound=Ask(),
        )
        gas.append(stage.send(Part.REGISTRY, "draw", request, sender=sender).gas)
    return round(statistics.mean(gas))


def _name(rules: ExecutionClass, number: int) -> str:
    return f"{rules.name} member {number}"


def _joining(stage: Stage, rules: ExecutionClass, number: int) -> tuple[Address, PartCall]:
    operator = key(_name(rules, number))
    owner = account(f"owner {number % FEW} of {rules.name}")
    registration = stage.registration(operator, rules, (WHOLE,))
    arguments = (registration, stage.consent(operator, owner))
    return owner, build(stage.place.contracts, Part.REGISTRY, "registerNode", *arguments, value=rules.seat)


def _leaving(stage: Stage, rules: ExecutionClass, number: int) -> tuple[Address, PartCall]:
    owner = account(f"owner {number % FEW} of {rules.name}")
    operator = key(_name(rules, number)).address
    return owner, build(stage.place.contracts, Part.REGISTRY, "deregister", operator)


def _send(stage: Stage, calls: Sequence[tuple[Address, PartCall]]) -> None:
    """Many calls, a block for each ``A_BLOCK`` of them: the chain is told to mine only then."""
    node, senders = stage.node, {sender for sender, _ in calls}
    node.many([("anvil_setBalance", (sender, hex(1_000 * FUNDS))) for sender in senders])
    nonces = {sender: decoding.quantity(node.rpc("eth_getTransactionCount", sender, "latest")) for sender in senders}
    node.rpc("evm_setBlockGasLimit", hex(BLOCK_GAS))
    node.rpc("evm_setAutomine", False)
    messages = []
    for sender, call in calls:
        messages.append(_message(sender, call, nonces[sender]))
        nonces[sender] += 1
    for start in range(0, len(messages), TOGETHER):
        _send_some(node, messages[start : start + TOGETHER])
    node.rpc("evm_setAutomine", True)


def _send_some(node: Node, messages: Sequence[dict[str, str]]) -> None:
    sent = node.many([("eth_sendTransaction", (message,)) for message in messages])
    while sent:
        node.rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
        node.rpc("evm_mine")
        receipts = node.many([("eth_getTransactionReceipt", (transaction,)) for transaction in sent])
        assert all(receipt is None or int(receipt["status"], 16) == 1 for receipt in receipts)
        sent = [transaction for transaction, receipt in zip(sent, receipts, strict=True) if receipt is None]


def _message(sender: Address, call: PartCall, nonce: int) -> dict[str, str]:
    return {
        "from": sender,
        "to": call.to,
        "value": hex(call.call.value),
        "data": decoding.hexadecimal(call.call.data),
        "nonce": hex(nonce),
        "gas": hex(1_000_000),
        "gasPrice": hex(2 * GWEI),
    }
