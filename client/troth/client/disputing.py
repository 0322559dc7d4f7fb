"""Having an answer verified again, by more nodes: for clients who have reason to doubt an accepted one."""

from __future__ import annotations

from typing import Any

from troth.chain.keystore import Key
from troth.client.chain_view import view
from troth.client.closing import whole_id
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.receipts import opened
from troth.client.task_transactions import transact
from troth.protocol import calls
from troth.protocol.calls import views
from troth.protocol.disputable import dispute_of
from troth.protocol.settlement import Outcome
from troth.protocol.types import Address


async def dispute_task(  # noqa: PLR0917
    home: Home,
    configuration: Configuration,
    task: str,
    segment: int | None,
    key: Key | None,
    sender: Address,
    *,
    broadcast: bool,
) -> dict[str, Any]:
    """Dispute a segment of a task, named by its whole id or by the beginning of one of this wallet's own.

    Raises:
        ReceiptNotFound: no such task is known here.
        NotDisputable: nothing of it can be disputed; says why.
        TransactionRefused: the escrow does not cover the bond.
    """
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            identifier = whole_id(task) or receipts.find(task).identifier
        window = (await chain.read(views.parameters_of())).dispute_window
        found = dispute_of(follower.state, identifier, segment, sender, block=follower.block, window=window)
        call = calls.dispute(identifier, found.record.task, found.settled, found.segment)
        done = await transact(chain, call, key, sender, broadcast=broadcast)
        return {
            **done,
            "segment": found.segment,
            "outcome": Outcome(found.settled.outcomes[found.segment]).name.lower(),
            "bond_wei": str(found.bond),
            "lost_at_most_wei": str(found.at_most),
            "last_block": found.last_block,
        }
