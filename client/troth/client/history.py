"""What became of earlier questions, and getting the fee back from a scheduler that went silent."""

from __future__ import annotations

import json
from typing import Any

from troth.chain.keystore import Key
from troth.client.configuration import Configuration
from troth.client.errors import ReceiptNotFound
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.receipts import Receipt, Receipts, opened
from troth.client.session import view
from troth.client.wallet import transact
from troth.protocol import calls
from troth.protocol.state import State
from troth.protocol.types import Address, Hash32


async def print_receipts(home: Home, configuration: Configuration, task: str, as_json: bool) -> None:
    """Print one receipt, or all, brought up to date with the chain."""
    async with view(home, configuration) as (_, follower):
        with opened(home.receipts) as receipts:
            shown = [_refreshed(receipts, one, follower.state) for one in ([receipts.find(task)] if task else receipts.all())]
    if as_json:
        print(json.dumps(shown[0].to_json() if task else [one.to_json() for one in shown]))
        return
    for one in shown:
        print(f"{one.task_id}  {one.outcome or one.failure or 'undecided':<14} {format_amount(one.cost)}")
        for step, transaction in one.transactions.items() if task else ():
            print(f"  {step:<10} {transaction}")


async def close_task(
    home: Home, configuration: Configuration, task: str, key: Key | None, sender: Address, *, broadcast: bool
) -> dict[str, Any]:
    """Close a live task that is past its scheduler's deadline; the contract refuses it before."""
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts) as receipts:
            identifier = Hash32(bytes.fromhex(receipts.find(task).task_id[2:]))
        record = follower.state.tasks.get(identifier)
        if record is None or not record.live:
            state = "was never opened on chain, so nothing was charged" if record is None else "is closed already"
            raise ReceiptNotFound(f"The task {state}", "0x" + identifier.hex(), "There is nothing to close.")
        return await transact(chain, calls.close(identifier, record.task), key, sender, broadcast=broadcast)


def _refreshed(receipts: Receipts, receipt: Receipt, state: State) -> Receipt:
    identifier = Hash32(bytes.fromhex(receipt.task_id[2:]))
    record = state.tasks.get(identifier)
    if record is None or record.outcome is None or receipt.outcome is not None:
        return receipt
    receipts.decided(identifier, record.outcome.name.lower())
    return receipts.find(receipt.task_id)
