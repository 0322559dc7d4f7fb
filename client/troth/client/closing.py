"""Getting the fee back from a scheduler that went silent: anyone may close its task after the deadline it missed."""

from __future__ import annotations

from typing import Any

from troth.chain.keystore import Key
from troth.client.chain_view import view
from troth.client.configuration import Configuration
from troth.client.errors import ReceiptNotFound
from troth.client.home import Home
from troth.client.receipts import opened
from troth.client.task_transactions import transact
from troth.protocol import calls
from troth.protocol.types import Address, Hash32

DIGITS = 64


async def close_task(
    home: Home, configuration: Configuration, task: str, key: Key | None, sender: Address, *, broadcast: bool
) -> dict[str, Any]:
    """Close a live task, named by its whole id or by the beginning of one of this wallet's own.

    Raises:
        ReceiptNotFound: there is no such task, or it is closed already.
        TransactionRefused: its scheduler still has time.
    """
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            identifier = whole_id(task) or receipts.find(task).identifier
        record = follower.state.tasks.get(identifier)
        if record is None or not record.live:
            state = "was never opened on chain, so nothing was charged" if record is None else "is decided already"
            raise ReceiptNotFound(f"The task {state}", "0x" + identifier.hex(), "There is nothing to close.")
        return await transact(chain, calls.close(identifier, record.task), key, sender, broadcast=broadcast)


def whole_id(task: str) -> Hash32 | None:
    """A task id written out in full; None for anything shorter or else."""
    digits = task.lower().removeprefix("0x")
    if len(digits) != DIGITS or not set(digits) <= set("0123456789abcdef"):
        return None
    return Hash32(bytes.fromhex(digits))
