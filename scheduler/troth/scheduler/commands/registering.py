"""Registering and other transactions of a scheduler: simulated always, sent only when asked to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain.keystore import Key, address_in, load_account, load_vrf_secret, read_password
from troth.chain.market import Market
from troth.chain.sending import TransactionSender, carry_out_paying
from troth.chain.tokens import asset_of, described
from troth.protocol import vrf
from troth.protocol.amounts import Asset
from troth.protocol.market import views
from troth.protocol.market.calls import PartCall, build, view
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS, Consent, PotKind, Role, SchedulerRegistration
from troth.protocol.types import Address, Hash32, to_address
from troth.scheduler.commands.status import DeploymentStatus, following, operator_in, reach
from troth.scheduler.configuration import SchedulerConfiguration, load_market
from troth.scheduler.errors import ConfigurationInvalid
from troth.transport.identity import Operator, load_identity

STAKES = 2
"""Times the least stake that a scheduler puts up unless told otherwise: orders that are open at once need it."""


async def register_in_market(
    folder: Path, owner: Owner, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Register, or top a registered scheduler's stake up.

    The chain's node is asked first, then keyfiles are opened, and only then the deployment is followed, which may take
    minutes: whoever typed a wrong password is told so at once.
    """
    owner_address = address_in(owner.keystore)
    if owner_address is None:
        raise ConfigurationInvalid("The owner's keystore names no address", owner.keystore, "Name another file.")
    configuration = load_market(folder)
    async with await reach(configuration) as market:
        known = await _is_scheduler(market, operator_in(configuration))
        keys = None if known else RegistrationKeys.opened(configuration, password_file)
        payer = _owner_key(owner) if broadcast else None
        async with following(configuration, market) as looked:
            asset = await asset_of(market)
            call, amount = _top_up(looked, owner, asset)
            if keys is not None:
                call, amount = _registration(looked, owner, owner_address, keys, asset)

            def open_owner() -> Key:
                return payer or _owner_key(owner)

            sender = TransactionSender(owner_address, open_owner)
            told = await carry_out_paying(market, call, amount, sender, broadcast=broadcast)
            return {**told, "stake_units": str(amount), **described(asset)}


@dataclass(frozen=True, slots=True)
class RegistrationKeys:
    """What a scheduler's registration is made with: the operator's secret, and the VRF key that is registered."""

    secret: bytes = field(repr=False)
    vrf_point: tuple[int, int]

    @classmethod
    def opened(cls, configuration: SchedulerConfiguration, password_file: Path | None) -> RegistrationKeys:
        """From the keyfiles, which one password opens; raises one of KeystoreError's kinds."""
        password = read_password(password_file, purpose="the scheduler's keystores")
        point = vrf.public_key(load_vrf_secret(configuration.vrf_keystore, password))
        return cls(load_account(configuration.operator_keystore, password).secret, point)


def _owner_key(owner: Owner) -> Key:
    return load_account(owner.keystore, read_password(owner.password_file, purpose="the owner's keystore"))


async def _is_scheduler(market: Market, operator: Address) -> bool:
    role, _, _ = await market.read(
        view(market.contracts, Part.REGISTRY, "roleOf", operator, returns=(int, Address, int))
    )
    return Role(role) is Role.SCHEDULER


def _top_up(looked: DeploymentStatus, owner: Owner, asset: Asset) -> tuple[PartCall, int]:
    """The call that adds stake to a registered scheduler's, and what it takes of the asset."""
    missing = views.parameters_of(looked.state).scheduler_stake - looked.state.pot(PotKind.STAKE, looked.operator)
    amount = asset.parse(owner.stake) if owner.stake else max(0, missing)
    value = amount if asset.is_coin else 0
    return build(looked.market.contracts, Part.REGISTRY, "topUp", looked.operator, amount, value=value), amount


def _registration(
    looked: DeploymentStatus, owner: Owner, owner_address: Address, keys: RegistrationKeys, asset: Asset
) -> tuple[PartCall, int]:
    """The call that registers, and what it takes of the asset."""
    configuration, contracts = looked.configuration, looked.market.contracts
    stake = asset.parse(owner.stake) if owner.stake else STAKES * views.parameters_of(looked.state).scheduler_stake
    x, y = keys.vrf_point
    registration = SchedulerRegistration(
        operator=looked.operator,
        payout=to_address(owner.payout) if owner.payout else NO_ADDRESS,
        vrf_x=x,
        vrf_y=y,
        stake=stake,
        endpoint=configuration.endpoint,
        tls_key_hash=Hash32(load_identity(configuration.folder / "tls").spki_sha256),
    )
    consent = Operator(keys.secret, looked.market.domain).sign(Consent(owner_address, looked.operator))
    value = stake if asset.is_coin else 0
    return build(contracts, Part.REGISTRY, "registerScheduler", registration, consent, value=value), stake


@dataclass(frozen=True, slots=True)
class Owner:
    """The cold party of a registration; ``stake`` is an amount as text, empty for the default."""

    keystore: Path
    password_file: Path | None
    payout: str | None
    stake: str
