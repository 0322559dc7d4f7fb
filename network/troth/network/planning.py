"""What a founder wants, and what creating it would do: the dry run, with steps, gas, money and what stands in the way.

The contracts cannot be tried before their factory stands, so the gas of a part is computed from its size; a test holds
the figures to what anvil charges. On an L2 the fee for data on its parent chain comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eth_abi.exceptions import DecodingError

from troth.chain import decoding
from troth.chain.deployment import (
    BEGIN_STEP,
    COMMITTEE_STEP,
    DISPUTE_STEPS,
    FACTORY_STEP,
    IMPRINTS_STEP,
    ServiceRules,
    committee_creation,
    disputes_creation,
    numbers_creation,
    steps_creation,
)
from troth.chain.errors import RpcRefused
from troth.chain.records import Fees
from troth.chain.rpc import Rpc
from troth.chain.tokens import RpcContracts, read_asset
from troth.chain.transactions import Transactions
from troth.network.description import NAME, is_url
from troth.network.errors import CreationRefused
from troth.network.journal import journal_of
from troth.network.probing import ProbedChain, creation_gas, probe_chain
from troth.network.services import planned_gas, require_services
from troth.protocol.amounts import Asset
from troth.protocol.bindings import COMMITTEE, DISPUTES, IMPRINTS, MARKET_PARTS, NUMBERS, STEPS
from troth.protocol.committee import CommitteeMember
from troth.protocol.disputes.game import MOST_TURNS
from troth.protocol.imprints.calls import ImprintKey, imprints_creation
from troth.protocol.market.addresses import creation_code, factory_code
from troth.protocol.market.parts import FACTORY
from troth.protocol.market.shipped import MAIN, broken_windows
from troth.protocol.market.types import NO_ADDRESS, Parameters
from troth.protocol.runtime_code import part_runtime, runtime_of
from troth.protocol.types import Address

BEGIN_GAS = 130_000
KEY_GAS = 225_000
"""Of a key for imprints: 768 bytes of code, and the slot that says where they are."""
MEMBER_GAS = 110_000
"""Of one member of the committee: its slots, and its endpoint."""
PACE_TOLERANCE = 1.25
"""Windows that last so many times shorter or longer than they were made for are worth a word."""


@dataclass(frozen=True, slots=True)
class CreationWish:
    """What a founder wants. ``factory``: one that stands already; ``committee``: a contract that stands already, in
    place of ``members``; ``suggested`` the chain nodes that the file names; ``disputes``: wrong rows convict by
    arithmetic; ``imprints``: keys by which wrong tokens convict and no row is shown; ``services`` what is deployed
    beside it."""

    name: str
    parameters: Parameters
    output: Path
    factory: Address | None = None
    members: tuple[CommitteeMember, ...] = ()
    committee: Address | None = None
    suggested: tuple[str, ...] = ()
    disputes: bool = False
    imprints: tuple[ImprintKey, ...] = ()
    services: ServiceRules = field(default_factory=ServiceRules)

    def checked(self) -> CreationWish:
        """This wish, or CreationRefused where no network can come of it."""
        if NAME.fullmatch(self.name) is None:
            remedy = "Use 1 to 32 of a-z, 0-9 and -, a letter or digit first."
            raise CreationRefused("This is no name of a network", self.name, remedy)
        if self.members and self.committee:
            remedy = "Leave one of the two out."
            raise CreationRefused("A network has one committee", "--member and --committee", remedy)
        require_services(self.services, bool(self.members or self.committee))
        if wrong := [url for url in self.suggested if not is_url(url)]:
            raise CreationRefused("This is no address of a chain node", wrong[0], "Write http://… or https://….")
        self._require_one_prover()
        if self.disputes and self.parameters.unbonding < (longest := MOST_TURNS * self.parameters.answer_window):
            what = f"Stakes may leave before the longest dispute ends: unbonding must be {longest} blocks or more"
            raise CreationRefused(what, self.parameters.unbonding, "Lengthen it, or shorten answer_window.")
        if broken := broken_windows(self.parameters):
            what = "The contracts refuse these parameters, which break a rule"
            raise CreationRefused(what, "; ".join(broken), "Change the windows; the dry run shows how long each lasts.")
        return self

    def _require_one_prover(self) -> None:
        if (self.disputes or self.imprints) and self.parameters.prover != NO_ADDRESS:
            remedy = "Leave prover out of the parameters, or --disputes and --imprints."
            raise CreationRefused("A deployment has one prover", self.parameters.prover, remedy)
        if self.disputes and self.imprints:
            remedy = "Leave one out. Without --imprints wrong tokens convict all the same, with their rows shown."
            raise CreationRefused("A deployment has one prover", "--disputes and --imprints", remedy)
        widths = [key.columns for key in self.imprints]
        if len(set(widths)) != len(widths):
            raise CreationRefused("There are two keys for rows of one width", widths, "Name one --imprints for each.")


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One transaction: what it creates, and its gas, about."""

    name: str
    gas: int


@dataclass(frozen=True, slots=True)
class CreationPlan:
    """What would be sent, what it would cost, and why it cannot be sent yet. ``balance`` in wei; None: no account."""

    chain: ProbedChain
    steps: tuple[PlannedStep, ...]
    fees: Fees
    balance: int | None
    paid: Asset
    under_way: bool

    @property
    def gas(self) -> int:
        """Of all steps."""
        return sum(step.gas for step in self.steps)

    @property
    def cost(self) -> int:
        """Wei at the present price of gas."""
        return self.gas * ((self.fees.maximum - self.fees.priority) // 2 + self.fees.priority)

    @property
    def most(self) -> int:
        """Wei if the base fee doubles."""
        return self.gas * self.fees.maximum


async def plan_creation(url: str, wish: CreationWish, sender: Address | None) -> CreationPlan:
    """Ask the chain about everything; nothing is sent. Raises ChainUnavailable, or CreationRefused for the asset."""
    chain = await probe_chain(url)
    rpc = Rpc(url)
    try:
        paid = await asset_of(rpc, wish.parameters.asset)
        await _require_code(rpc, wish.factory, FACTORY, "--factory")
        await _require_code(rpc, wish.committee, COMMITTEE, "--committee")
        balance = None if sender is None else decoding.quantity(await rpc.request("eth_getBalance", sender, "latest"))
        fees = await Transactions(rpc, chain.chain_id).fees()
    finally:
        await rpc.close()
    return CreationPlan(chain, planned_steps(wish), fees, balance, paid, journal_of(wish.output).exists())


def planned_steps(wish: CreationWish) -> tuple[PlannedStep, ...]:
    """The transactions of a creation, in their order."""
    factory = PlannedStep(FACTORY_STEP, creation_gas(len(factory_code()), runtime_of(FACTORY).length) + 130_000)
    parts = (
        PlannedStep(part, creation_gas(len(creation_code(part)), part_runtime(part).length)) for part in MARKET_PARTS
    )
    made = (
        () if wish.factory else (factory,),
        _dispute_steps(wish),
        _imprints_step(wish),
        (PlannedStep(BEGIN_STEP, BEGIN_GAS), *parts),
        _committee_step(wish.members),
        tuple(PlannedStep(name, gas) for name, gas in planned_gas(wish.services).items()),
    )
    return tuple(step for steps in made for step in steps)


def _dispute_steps(wish: CreationWish) -> tuple[PlannedStep, ...]:
    if not wish.disputes:
        return ()
    calls = (numbers_creation(), steps_creation(NO_ADDRESS), disputes_creation(NO_ADDRESS, wish.parameters, NO_ADDRESS))
    sizes = zip(DISPUTE_STEPS, (NUMBERS, STEPS, DISPUTES), calls, strict=True)
    return tuple(PlannedStep(name, creation_gas(len(call.data), runtime_of(code).length)) for name, code, call in sizes)


def _imprints_step(wish: CreationWish) -> tuple[PlannedStep, ...]:
    if not wish.imprints:
        return ()
    size = len(imprints_creation(NO_ADDRESS, wish.parameters, wish.imprints).data)
    gas = creation_gas(size, runtime_of(IMPRINTS).length) + KEY_GAS * len(wish.imprints)
    return (PlannedStep(IMPRINTS_STEP, gas),)


def _committee_step(members: Sequence[CommitteeMember]) -> tuple[PlannedStep, ...]:
    if not members:
        return ()
    size = len(committee_creation(members).data)
    return (PlannedStep(COMMITTEE_STEP, creation_gas(size, runtime_of(COMMITTEE).length) + MEMBER_GAS * len(members)),)


def pace_words(parameters: Parameters, block_seconds: float, made_for: float) -> str:
    """What to say of windows on a chain of another pace than they were made for; empty where there is nothing."""
    if not block_seconds or parameters.lookahead < MAIN.lookahead:
        return ""
    ratio = made_for / block_seconds
    if 1 / PACE_TOLERANCE <= ratio <= PACE_TOLERANCE:
        return ""
    return (
        f"A block takes {block_seconds:g} s here, and these windows were made for {made_for:g} s. Repeat this with "
        f"--block-seconds {block_seconds:g}, so that they last as long as they should."
    )


async def asset_of(rpc: Rpc, asset: Address) -> Asset:
    """What a deployment is paid in; CreationRefused for an address that is no token."""
    try:
        return await read_asset(RpcContracts(rpc), asset)
    except (RpcRefused, DecodingError) as error:
        remedy = "Name an ERC-20 of this chain, or leave --asset out to be paid in the chain's coin."
        raise CreationRefused("The asset is no ERC-20 token", asset, remedy) from error


async def _require_code(rpc: Rpc, account: Address | None, contract: str, option: str) -> None:
    """CreationRefused unless the shipped contract stands there: any other would take the money for gas and more."""
    if account is None:
        return
    code = decoding.data(await rpc.request("eth_getCode", account, "latest"))
    if not runtime_of(contract).fits(code):
        what = "Another contract lives there" if code else "No contract lives there"
        raise CreationRefused(what, account, f"Check {option} and --rpc; leave the option out for a new one.")
