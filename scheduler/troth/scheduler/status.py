"""What `troth scheduler status` reports, without a password and without a running process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.keystore import address_in
from troth.protocol.calls.views import account_of, parameters_of
from troth.protocol.contract_types import Role
from troth.protocol.types import Address
from troth.scheduler.configuration import Configuration, load
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.journal import Journal
from troth.scheduler.market.status import GAS_RESERVE
from troth.scheduler.pool.asking import placement_of


def operator_of(configuration: Configuration) -> Address:
    """The operator's address, from its keystore without a password."""
    address = address_in(configuration.operator_keystore)
    if address is None:
        raise ConfigurationInvalid("The keystore names no address", configuration.operator_keystore, "Restore it.")
    return address


async def status_of(folder: Path) -> dict[str, Any]:
    """Standing on chain, money, unfinished tasks, and what keeps the scheduler from serving."""
    configuration = load(folder)
    operator = operator_of(configuration)
    async with await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id) as chain:
        account = await chain.read(account_of(operator))
        parameters = await chain.read(parameters_of())
        balance, block = await chain.balance(operator), await chain.block_number()
    problems = []
    if account.role is not Role.SCHEDULER:
        problems.append("not registered: troth scheduler register --owner-keystore FILE --broadcast")
    elif account.exit_block:
        problems.append(f"leaving: withdraw after block {account.exit_block}")
    elif account.stake < parameters.minimum_scheduler_stake:
        problems.append(f"{parameters.minimum_scheduler_stake - account.stake} wei of stake are missing")
    if balance < GAS_RESERVE:
        problems.append(f"{balance} wei for gas: send ETH to {operator}")
    return {
        "placement": await placement_of(configuration),
        "operator": operator,
        "block": block,
        "role": account.role.name.lower(),
        "stake": str(account.stake),
        "credit": str(account.credit),
        "exit_block": account.exit_block or None,
        "gas_balance": str(balance),
        "unfinished_tasks": _unfinished(folder),
        "problems": problems,
    }


def _unfinished(folder: Path) -> list[str]:
    path = folder / "journal.sqlite"
    if not path.exists():
        return []
    journal = Journal(path)
    try:
        return ["0x" + task.hex() for task in journal.unfinished()]
    finally:
        journal.close()
