"""`troth node status`: what the chain and the running process say about this node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.node.configuration import load
from troth.node.process import operator_of, process_state
from troth.node.transactions import run
from troth.protocol.calls import views
from troth.protocol.contract_types import Role


def status(home: Path) -> dict[str, Any]:
    """On chain: role, stake, credit, gas money. Process: ready or the reasons why not."""
    configuration = load(home)
    operator = operator_of(configuration)

    async def ask() -> dict[str, Any]:
        async with await Chain.connect(configuration.rpc, configuration.contract) as chain:
            account = await chain.read(views.account_of(operator))
            minimum: int = await chain.read(views.minimum_stake_of(configuration.execution_class))
            return {
                "operator": operator,
                "role": Role(account.role).name.lower(),
                "stake": str(account.stake),
                "minimum_stake": str(minimum),
                "credit": str(account.credit),
                "exit_block": account.exit_block,
                "gas_money": str(await chain.balance(operator)),
                "block": await chain.block_number(),
            }

    told: dict[str, Any] = run(ask())
    return {**told, "endpoint": configuration.endpoint, "process": process_state(configuration)}
