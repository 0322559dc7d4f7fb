"""The operator's own transactions: simulated always, sent only when asked to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key, address_in, load_account, load_vrf_secret
from troth.chain.passwords import read_password
from troth.overlay.identity import load_identity
from troth.overlay.operator import Operator
from troth.protocol import vrf
from troth.protocol.calls import (
    Call,
    claim,
    close,
    deregister,
    register_scheduler,
    top_up,
    withdraw,
)
from troth.protocol.calls.views import account_of, parameters_of
from troth.protocol.contract_types import Role, SchedulerRegistration
from troth.protocol.types import Address, Consent, Hash32, to_address
from troth.scheduler.configuration import Configuration, load
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.market.registering import Owner
from troth.scheduler.reading import read_hash
from troth.scheduler.status import operator_of
from troth.scheduler.task_errors import UnknownTask

Result = dict[str, Any]
OpenKey = Callable[[], Key]


async def register_scheduler_of(folder: Path, owner: Owner, password_file: Path | None, *, broadcast: bool) -> Result:
    """Register, or top a registered scheduler's stake up to the minimum."""
    configuration = load(folder)
    owner_address = address_in(owner.keystore)
    if owner_address is None:
        raise ConfigurationInvalid("The owner's keystore names no address", owner.keystore, "Name another file.")
    async with _chain(configuration) as chain:
        call = await _registration(chain, configuration, owner, owner_address, password_file)

        def open_owner() -> Key:
            return load_account(owner.keystore, read_password(owner.password_file, purpose="the owner's keystore"))

        return await _submit(chain, call, owner_address, open_owner, broadcast=broadcast)


async def _registration(
    chain: Chain, configuration: Configuration, owner: Owner, owner_address: Address, password_file: Path | None
) -> Call:
    operator = operator_of(configuration)
    account, parameters = await chain.read(account_of(operator)), await chain.read(parameters_of())
    minimum = parameters.minimum_scheduler_stake
    if account.role is Role.SCHEDULER:
        return top_up(operator, owner.stake if owner.stake is not None else max(0, minimum - account.stake))
    password = read_password(password_file, purpose="the scheduler's keystores")
    x, y = vrf.public_key(load_vrf_secret(configuration.vrf_keystore, password))
    secret = load_account(configuration.operator_keystore, password).secret
    registration = SchedulerRegistration(
        operator=operator,
        payout=to_address(owner.payout) if owner.payout else owner_address,
        vrf_x=x,
        vrf_y=y,
        endpoint=configuration.endpoint,
        tls_key_hash=Hash32(load_identity(configuration.folder / "tls").spki_sha256),
    )
    consent = Operator(secret, chain.domain).sign(Consent(owner_address, operator))
    return register_scheduler(registration, consent, owner.stake if owner.stake is not None else 2 * minimum)


async def exit_of(folder: Path, password_file: Path | None, *, broadcast: bool) -> Result:
    """Deregister."""
    return await _own(folder, password_file, lambda _chain, me: _ready(deregister(me)), broadcast=broadcast)


async def withdraw_of(folder: Path, password_file: Path | None, *, broadcast: bool) -> Result:
    """Pay everything out after the exit block."""
    return await _own(folder, password_file, lambda _chain, me: _ready(withdraw(me)), broadcast=broadcast)


async def claim_of(folder: Path, password_file: Path | None, *, broadcast: bool) -> Result:
    """Pay the credit out."""
    return await _own(folder, password_file, lambda _chain, me: _ready(claim(me)), broadcast=broadcast)


async def close_of(folder: Path, task: str, password_file: Path | None, *, broadcast: bool) -> Result:
    """Close a late task of any scheduler, from this operator's account."""
    task_id, configuration = read_hash(task, "task id"), load(folder)

    async def build(chain: Chain, _me: Address) -> Call:
        follower = EventFollower(
            chain, configuration.folder / "events-command.sqlite", start_block=configuration.start_block
        )
        try:
            record = (await follower.catch_up()).tasks.get(task_id)
        finally:
            await follower.close()
        if record is None or not record.live:
            raise UnknownTask("There is no such live task on chain", task, "Check the id.")
        return close(task_id, record.task)

    return await _own(folder, password_file, build, broadcast=broadcast)


async def _ready(call: Call) -> Call:
    return call


async def _own(
    folder: Path,
    password_file: Path | None,
    build: Callable[[Chain, Address], Awaitable[Call]],
    *,
    broadcast: bool,
) -> Result:
    configuration = load(folder)
    me = operator_of(configuration)
    async with _chain(configuration) as chain:
        call = await build(chain, me)

        def open_operator() -> Key:
            return load_account(configuration.operator_keystore, read_password(password_file))

        return await _submit(chain, call, me, open_operator, broadcast=broadcast)


async def _submit(chain: Chain, call: Call, sender: Address, open_key: OpenKey, *, broadcast: bool) -> Result:
    simulation = await chain.simulate(call, sender)
    if simulation.rejection is not None:
        raise ChainRejected(call.function, simulation.rejection)
    plan: Result = {
        "function": call.function,
        "contract": chain.contract,
        "from": sender,
        "value": str(call.value),
        "gas": simulation.gas,
        "maximum_cost": str(simulation.maximum_cost),
        "sent": broadcast,
    }
    if not broadcast:
        return {**plan, "note": "dry run, nothing was sent: add --broadcast"}
    receipt = await chain.execute(call, open_key())
    return {**plan, "transaction": "0x" + receipt.transaction.hex(), "block": receipt.block, "gas": receipt.gas_used}


@asynccontextmanager
async def _chain(configuration: Configuration) -> AsyncIterator[Chain]:
    async with await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id) as chain:
        yield chain
