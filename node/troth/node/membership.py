"""Joining, moving and leaving: register with a stake, host other layers, deregister, withdraw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.keystore import Key, load_account
from troth.chain.passwords import read_password
from troth.node.configuration import Configuration, load
from troth.node.configured_slice import text_of, write_slice
from troth.node.errors import ConfigError
from troth.node.keyfiles import open_keystore, run
from troth.node.transactions import carry_out
from troth.overlay.identity import load_identity
from troth.protocol import typed_data
from troth.protocol.calls import Call, change_slice, deregister, register_node, views, withdraw
from troth.protocol.contract_types import NodeRegistration
from troth.protocol.types import Consent, Hash32, Segment, to_address

STAKES = 10
"""Default stake in minimum stakes: a node below the minimum after one slash would lose its slots at once."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Who joins: the operator whose key signs messages, the owner who pays."""

    configuration: Configuration
    operator: Key
    owner: Key
    payout: str
    stake: int


def register(
    home: Path,
    owner_keystore: Path | None,
    owner_password_file: Path | None,
    password_file: Path | None,
    *,
    payout: str,
    stake: int,
    broadcast: bool,
) -> dict[str, Any]:
    """Register the configured node; the operator's consent is signed here."""
    configuration = load(home)
    operator = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))
    owner = open_keystore(owner_keystore, owner_password_file or password_file, "the owner", "--owner-keystore")
    joining = Joining(configuration, operator, owner, payout, stake)

    async def send() -> dict[str, Any]:
        async with await Chain.connect(configuration.rpc, configuration.contract) as chain:
            minimum = await chain.read(views.minimum_stake_of(configuration.execution_class))
            call = registration_of(joining, chain, minimum)
            told = await carry_out(chain, call, owner, broadcast=broadcast)
            return {**told, "operator": operator.address, "stake": str(call.value), "minimum_stake": str(minimum)}

    result: dict[str, Any] = run(send())
    return result


def registration_of(joining: Joining, chain: Chain, minimum: int) -> Call:
    """The call that registers a node, with its operator's consent; raises ConfigError if the stake is too low."""
    configuration, stake = joining.configuration, joining.stake or STAKES * minimum
    if not minimum:
        shown = "0x" + configuration.execution_class.hex()
        raise ConfigError("the execution class is not registered", shown, "Register it: `troth model add --broadcast`.")
    if stake < minimum:
        raise ConfigError("the stake is below the class's minimum", stake, f"Stake at least {minimum} wei.")
    registration = NodeRegistration(
        operator=joining.operator.address,
        payout=to_address(joining.payout) if joining.payout else joining.owner.address,
        execution_class=configuration.execution_class,
        first=configuration.slice.first,
        end=configuration.slice.end,
        segments=configuration.segments,
        endpoint=configuration.endpoint,
        tls_key_hash=Hash32(load_identity(configuration.tls_folder).spki_sha256),
    )
    consent = Consent(joining.owner.address, joining.operator.address)
    return register_node(registration, typed_data.sign(consent, chain.domain, joining.operator.secret), stake)


def move(
    home: Path, hosted: Segment, segments: Sequence[Segment], password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Host other layers, by the operator: on chain, and once that is done in node.toml. A running node follows."""
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await Chain.connect(configuration.rpc, configuration.contract) as chain:
            before = await chain.read(views.slice_of(key.address))
            told = await carry_out(chain, change_slice(key.address, hosted, segments), key, broadcast=broadcast)
            return {**told, "before": f"{before.first}:{before.end}"}

    told: dict[str, Any] = run(send())
    told |= {"slice": text_of(hosted), "segments": [text_of(segment) for segment in segments]}
    if broadcast:
        write_slice(home, hosted, segments)
    return told


def leave(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Deregister by the operator; says when the stake is free."""
    return _by_operator(home, password_file, deregister, broadcast=broadcast)


def take_out(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Withdraw stake and credit to the payout address."""
    return _by_operator(home, password_file, withdraw, broadcast=broadcast)


def _by_operator(home: Path, password_file: Path | None, build: Any, *, broadcast: bool) -> dict[str, Any]:
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await Chain.connect(configuration.rpc, configuration.contract) as chain:
            told = await carry_out(chain, build(key.address), key, broadcast=broadcast)
            account = await chain.read(views.account_of(key.address))
            return {**told, "exit_block": account.exit_block, "block": await chain.block_number()}

    result: dict[str, Any] = run(send())
    return result
