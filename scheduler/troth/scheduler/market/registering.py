"""``troth scheduler register`` for a market: simulated always, sent only when asked to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.keystore import Key, address_in, load_account, load_vrf_secret
from troth.chain.passwords import read_password
from troth.overlay.identity import load_identity
from troth.overlay.operator import Operator
from troth.protocol import vrf
from troth.protocol.market import views
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS, Consent, PotKind, Role, SchedulerRegistration
from troth.protocol.types import Address, Hash32, to_address
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.market.sending import carry_out_paying
from troth.scheduler.market.status import Looked, looking

STAKES = 2
"""Times the least stake that a scheduler puts up unless told otherwise: orders that are open at once need it."""


async def register_in_market(
    folder: Path, owner: Owner, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Register, or top a registered scheduler's stake up."""
    owner_address = address_in(owner.keystore)
    if owner_address is None:
        raise ConfigurationInvalid("The owner's keystore names no address", owner.keystore, "Name another file.")
    async with looking(folder) as looked:
        call, amount = _call(looked, owner, owner_address, password_file)

        def open_owner() -> Key:
            return load_account(owner.keystore, read_password(owner.password_file, purpose="the owner's keystore"))

        return await carry_out_paying(looked.market, call, amount, owner_address, open_owner, broadcast=broadcast)


def _call(looked: Looked, owner: Owner, owner_address: Address, password_file: Path | None) -> tuple[PartCall, int]:
    """The call, and what it takes of the asset."""
    configuration, contracts = looked.configuration, looked.market.contracts
    parameters = views.parameters_of(looked.state)
    coin = parameters.asset == NO_ADDRESS
    party = looked.state.parties.get(looked.operator)
    if party is not None and party.role is Role.SCHEDULER:
        missing = parameters.scheduler_stake - looked.state.pot(PotKind.STAKE, looked.operator)
        amount = owner.stake if owner.stake is not None else max(0, missing)
        value = amount if coin else 0
        return build(contracts, Part.REGISTRY, "topUp", looked.operator, amount, value=value), amount
    stake = owner.stake if owner.stake is not None else STAKES * parameters.scheduler_stake
    password = read_password(password_file, purpose="the scheduler's keystores")
    x, y = vrf.public_key(load_vrf_secret(configuration.vrf_keystore, password))
    secret = load_account(configuration.operator_keystore, password).secret
    registration = SchedulerRegistration(
        operator=looked.operator,
        payout=to_address(owner.payout) if owner.payout else NO_ADDRESS,
        vrf_x=x,
        vrf_y=y,
        stake=stake,
        endpoint=configuration.endpoint,
        tls_key_hash=Hash32(load_identity(configuration.folder / "tls").spki_sha256),
    )
    consent = Operator(secret, looked.market.domain).sign(Consent(owner_address, looked.operator))
    value = stake if coin else 0
    return build(contracts, Part.REGISTRY, "registerScheduler", registration, consent, value=value), stake


@dataclass(frozen=True, slots=True)
class Owner:
    """The cold party of a registration."""

    keystore: Path
    password_file: Path | None
    payout: str | None
    stake: int | None
