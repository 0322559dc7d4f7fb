"""Deploying from packaged bytecode: the market by its factory, and the contracts that stand beside a market."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, Chain
from troth.chain.errors import TransactionDropped, WrongChain
from troth.chain.headers import RawHeader, header_of
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, Market, find_deployed
from troth.chain.records import Simulation, TransactionReceipt
from troth.chain.retries import attempts_of
from troth.chain.rpc import Rpc
from troth.chain.transactions import SEND_ATTEMPTS, Transactions, message
from troth.protocol.bindings import (
    COMMITTEE,
    DISPUTES,
    MARKET_PARTS,
    NUMBERS,
    ORGANISATIONS,
    REPUTATION,
    STEPS,
    TICKETS,
    named,
    read_resource,
)
from troth.protocol.bindings.structs import converter, decode_parameters, encode_parameters
from troth.protocol.calls import Call
from troth.protocol.committee import CommitteeMember
from troth.protocol.errors import InvalidField
from troth.protocol.imprints.calls import ImprintKey, imprints_creation
from troth.protocol.market.addresses import contracts_of, creation_code, factory_code
from troth.protocol.market.calls import build_factory
from troth.protocol.market.parts import FACTORY
from troth.protocol.market.reverts import decode_error
from troth.protocol.market.types import Contracts, Parameters
from troth.protocol.reputation import ReputationRules
from troth.protocol.tickets.messages import TicketRules
from troth.protocol.types import Address

FACTORY_STEP, BEGIN_STEP, COMMITTEE_STEP = "factory", "begin", "committee"
DISPUTE_STEPS = NUMBERS_STEP, STEPS_STEP, DISPUTES_STEP = "numbers", "steps", "disputes"
IMPRINTS_STEP = "imprints"
"""Names of the steps beside the parts, which are called as ``MARKET_PARTS``."""

HEADERS_BACK = 64
"""Blocks that are searched for two headers with different RANDAO; the EVM knows the hashes of 256."""

Outcome = TypeVar("Outcome")
Report = Callable[[str, TransactionReceipt | None], None]
"""Told of each step when it is done; without a receipt where the step was done before."""


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """What stands beside a market, by the rules that each is created with; None or False: it does not."""

    tickets: TicketRules | None = None
    reputation: ReputationRules | None = None
    organisations: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of what is wanted."""
        return tuple(name for name in ("tickets", "reputation", "organisations") if getattr(self, name))


class DeploymentRecord(Protocol):
    """What is written down of a deployment, so that another run carries it on after a kill."""

    def attempts(self, step: str) -> Sequence[bytes]:
        """The transactions that were signed for a step so far, the oldest first."""

    def keep(self, step: str, raw: bytes) -> None:
        """Write a signed transaction down, durably: it is sent when this returns."""

    def mined(self, step: str, receipt: TransactionReceipt) -> None:
        """A step is done."""


class NoRecord:
    """For deployments that nobody carries on."""

    def attempts(self, step: str) -> Sequence[bytes]:
        """None."""
        del step
        return ()

    def keep(self, step: str, raw: bytes) -> None:
        """Nothing is kept."""

    def mined(self, step: str, receipt: TransactionReceipt) -> None:
        """Nothing is kept."""


def committee_creation(members: Sequence[CommitteeMember]) -> Call:
    """What creates a Committee with these first members (1 to 32)."""
    code = _unhex(read_resource("committee.bytecode.json")["bytecode"])
    inputs = named("constructor", COMMITTEE)["constructor"].inputs
    return Call("deployment of Committee", code + encode_parameters(inputs, [list(members)]))


def reputation_creation(committee: Address, registry: Address, rules: ReputationRules) -> Call:
    """What creates a Reputation of a market's nodes, by the members of a Committee."""
    code = _unhex(read_resource("reputation.bytecode.json")["bytecode"])
    inputs = named("constructor", REPUTATION)["constructor"].inputs
    return Call("deployment of Reputation", code + encode_parameters(inputs, [committee, registry, rules]))


def organisations_creation(reputation: Address) -> Call:
    """What creates an Organisations over a Reputation, whose epochs and market it takes."""
    code = _unhex(read_resource("organisations.bytecode.json")["bytecode"])
    inputs = named("constructor", ORGANISATIONS)["constructor"].inputs
    return Call("deployment of Organisations", code + encode_parameters(inputs, [reputation]))


def tickets_creation(committee: Address, bank: Address, rules: TicketRules) -> Call:
    """What creates Tickets for a market's Bank, by the members of a Committee."""
    code = _unhex(read_resource("tickets/tickets.bytecode.json")["bytecode"])
    inputs = named("constructor", TICKETS)["constructor"].inputs
    return Call("deployment of Tickets", code + encode_parameters(inputs, [committee, bank, rules]))


def service_arguments(name: str, data: bytes) -> tuple[Any, ...] | None:
    """What ``tickets``, ``reputation`` or ``organisations`` was created with; None for any code but the shipped one."""
    binding = {"tickets": TICKETS, "reputation": REPUTATION, "organisations": ORGANISATIONS}[name]
    code = _unhex(read_resource(f"{binding}.bytecode.json")["bytecode"])
    inputs = named("constructor", binding)["constructor"].inputs
    if not data.startswith(code):
        return None
    try:
        given = decode_parameters(inputs, data[len(code) :])
    except InvalidField:
        return None
    return tuple(
        converter(Address)(one) if part.type == "address" else one for part, one in zip(inputs, given, strict=True)
    )


def numbers_creation() -> Call:
    """What creates the contract that computes for Steps; neither keeps state, and they serve any number of Disputes."""
    return Call("deployment of Numbers", _unhex(read_resource(f"{NUMBERS}.bytecode.json")["bytecode"]))


def steps_creation(numbers: Address) -> Call:
    """What creates the arithmetic of disputes."""
    code = _unhex(read_resource(f"{STEPS}.bytecode.json")["bytecode"])
    inputs = named("constructor", STEPS)["constructor"].inputs
    return Call("deployment of Steps", code + encode_parameters(inputs, [numbers]))


def disputes_creation(factory: Address, parameters: Parameters, steps: Address) -> Call:
    """What creates the Disputes of a deployment to come: the one that ``factory`` makes by these parameters with the
    new contract as ``prover``."""
    code = _unhex(read_resource(f"{DISPUTES}.bytecode.json")["bytecode"])
    inputs = named("constructor", DISPUTES)["constructor"].inputs
    return Call("deployment of Disputes", code + encode_parameters(inputs, [factory, parameters, steps]))


async def submit(
    url: str, call: Call, key: Key, to: Address | None = None, *, receipt_timeout: float = RECEIPT_TIMEOUT
) -> TransactionReceipt:
    """Send a creation, or a call, and wait.

    Raises ChainRejected if the contract refuses it.
    """
    rpc = Rpc(url)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        return await transactions.execute(call, key, to, receipt_timeout)
    finally:
        await rpc.close()


async def estimate(url: str, call: Call, sender: Address, to: Address | None = None) -> Simulation:
    """What a creation, or a call, would cost, without sending it; raises ChainRejected if it would revert."""
    rpc = Rpc(url)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        fees, gas = await transactions.fees(), await transactions.estimate(call, sender, to)
    finally:
        await rpc.close()
    return Simulation(call.function, sender, call.value, gas, gas * fees.maximum, None)


def _unhex(digits: str) -> bytes:
    return bytes.fromhex(digits.removeprefix("0x"))


async def deploy_market(
    url: str,
    parameters: Parameters,
    key: Key,
    *,
    factory: Address | None = None,
    members: Sequence[CommitteeMember] = (),
    disputes: bool = False,
    imprints: Sequence[ImprintKey] = (),
    committee: Address | None = None,
    services: ServiceRules | None = None,
    record: DeploymentRecord | None = None,
    report: Report = lambda step, receipt: None,
    receipt_timeout: float = RECEIPT_TIMEOUT,
) -> tuple[Market, tuple[TransactionReceipt, ...]]:
    """Deploy from ``key``, through ``factory`` or a new one; the connected market, and a receipt per transaction.

    With ``disputes`` a Disputes comes first, which becomes the parameters' prover, or with keys of ``imprints`` an
    Imprints, whose next prover are the deployment's Proofs. With ``members`` the directory's committee comes after the
    deployment, and then ``services``, by the members of that one or of ``committee``. What ``record`` kept of an
    earlier run is carried on, and what stands already is not made again.

    Raises ChainRejected if the factory refuses parameters, chain or code.
    """
    rpc = Rpc(url)
    try:
        chain_id = decoding.quantity(await rpc.request("eth_chainId"))
        sender = Transactions(rpc, chain_id, decode_error)
        maker = _Maker(rpc, sender, key, receipt_timeout, record or NoRecord(), report)
        maker.factory = factory or await maker.create_factory()
        if disputes:
            parameters = await maker.create_disputes(parameters)
        elif imprints:
            parameters = await maker.create_imprints(parameters, imprints)
        await maker.create_parts(parameters)
        contracts = contracts_of(maker.factory, parameters)
        if members:
            committee = (await maker.step(COMMITTEE_STEP, committee_creation(members), None)).created
        if services is not None and committee is not None:
            await maker.create_services(services, committee, contracts)
        if maker.receipts:
            first = min(receipt.block for receipt in maker.receipts)
        else:
            first = (await find_deployed(url, maker.factory, contracts.bank)).meta.block
        chain = Chain(Rpc(url), chain_id, contracts.bank)
    except BaseException:
        await rpc.close()
        raise
    return Market(chain, rpc, DeploymentPlace(maker.factory, contracts, first)), tuple(maker.receipts)


class _Maker:
    """One deployment under way."""

    def __init__(  # noqa: PLR0917
        self, rpc: Rpc, transactions: Transactions, key: Key, timeout: float, record: DeploymentRecord, report: Report
    ) -> None:
        self._rpc = rpc
        self._transactions = transactions
        self._key = key
        self._timeout = timeout
        self._record = record
        self._report = report
        self.factory = Address("")
        self.receipts: list[TransactionReceipt] = []

    async def create_factory(self) -> Address:
        """The factory of exactly the packaged parts."""
        return await self._contract(FACTORY_STEP, Call("deployment of the factory", factory_code()))

    async def create_disputes(self, parameters: Parameters) -> Parameters:
        """The Disputes of the deployment to come, and its parameters with it as the prover."""
        numbers = await self._contract(NUMBERS_STEP, numbers_creation())
        steps = await self._contract(STEPS_STEP, steps_creation(numbers))
        made = await self._contract(DISPUTES_STEP, disputes_creation(self.factory, parameters, steps))
        return replace(parameters, prover=made)

    async def create_imprints(self, parameters: Parameters, keys: Sequence[ImprintKey]) -> Parameters:
        """The Imprints of the deployment to come, and its parameters with it as the prover."""
        call = imprints_creation(self.factory, parameters, keys)
        return replace(parameters, prover=await self._contract(IMPRINTS_STEP, call))

    async def _contract(self, name: str, call: Call) -> Address:
        receipt = await self.step(name, call, None)
        if receipt.created is None:
            what = "The receipt of a creation names no contract"
            raise WrongChain(what, receipt.transaction.hex(), "Use another node.")
        return receipt.created

    async def create_parts(self, parameters: Parameters) -> None:
        """Parameters, and the headers of two blocks that show that this chain's RANDAO changes; then each part.

        The parts come in any order, so that all are on their way at once: blocks take what fits into them.
        """
        begun, bits = await self._progress(parameters)
        if begun:
            self._report(BEGIN_STEP, None)
        else:
            newest, before = await differing_headers(self._rpc)
            call = build_factory(self.factory, "begin", parameters, newest.raw, before.raw).call
            await self.step(BEGIN_STEP, call, self.factory)
        missing: dict[str, Call] = {}
        for index, part in enumerate(MARKET_PARTS):
            if bits >> index & 1:
                self._report(part, None)
                continue
            made = build_factory(self.factory, "create", parameters, index, creation_code(part)).call
            missing[part] = Call(f"creation of the {part}", made.data)
        # What an earlier run signed comes first: a new transaction would take its nonce.
        found = await _all(self._resumed(part) for part in missing)
        left = [part for part, receipt in zip(missing, found, strict=True) if receipt is None]
        await _all(self._new(part, missing[part], self.factory) for part in left)

    async def create_services(self, rules: ServiceRules, committee: Address, contracts: Contracts) -> None:
        """What stands beside the market, each by a plain transaction."""
        if rules.tickets is not None:
            await self.step("tickets", tickets_creation(committee, contracts.bank, rules.tickets), None)
        if rules.reputation is None:
            return
        call = reputation_creation(committee, contracts.registry, rules.reputation)
        reputation = (await self.step("reputation", call, None)).created
        if rules.organisations and reputation is not None:
            await self.step("organisations", organisations_creation(reputation), None)

    async def step(self, name: str, call: Call, to: Address | None) -> TransactionReceipt:
        """A transaction, mined: one that an earlier run signed, if it can still be, or a new one."""
        return await self._resumed(name) or await self._new(name, call, to)

    async def _resumed(self, name: str) -> TransactionReceipt | None:
        for raw in self._record.attempts(name):
            found = await self._transactions.resume(raw, self._timeout)
            if found is not None:
                return self._done(name, found)
        return None

    async def _new(self, name: str, call: Call, to: Address | None) -> TransactionReceipt:
        """Anew where another one took its nonce: a node that is moving one of several into a block may give its number
        out again."""
        kept = lambda raw: self._record.keep(name, raw)  # noqa: E731
        async for attempt in attempts_of(lambda error: isinstance(error, TransactionDropped), most=SEND_ATTEMPTS):
            with attempt:
                if attempt.num > 1 and (found := await self._resumed(name)) is not None:
                    return found
                transaction = await self._transactions.send(call, self._key, to, keep=kept)
                return self._done(name, await self._transactions.wait(transaction, 1, self._timeout))
        raise AssertionError("the last failure is raised")

    def _done(self, name: str, receipt: TransactionReceipt) -> TransactionReceipt:
        self._record.mined(name, receipt)
        self.receipts.append(receipt)
        self._report(name, receipt)
        return receipt

    async def _progress(self, parameters: Parameters) -> tuple[bool, int]:
        """Whether this deployment was begun at the factory, and a bit for each part that stands."""
        asked = build_factory(self.factory, "progressOf", parameters).call
        answer = await self._rpc.request("eth_call", message(asked, None, self.factory), "latest")
        outputs = named("function", FACTORY)["progressOf"].outputs
        begun, bits = decode_parameters(outputs, decoding.data(answer))
        return bool(begun), int(bits)


async def _all(steps: Iterable[Awaitable[Outcome]]) -> list[Outcome]:
    """What all of them gave; the first failure is raised when none is under way any more, so that each is recorded."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    given = [one for one in outcomes if not isinstance(one, BaseException)]
    for failure in outcomes:
        if isinstance(failure, BaseException):
            raise failure
    return given


async def differing_headers(rpc: Rpc) -> tuple[RawHeader, RawHeader]:
    """The newest header and one before it with another RANDAO: some chains keep one value for several blocks.

    Raises WrongChain if the last blocks all have the same.
    """
    newest = header_of(await rpc.request("eth_getBlockByNumber", "latest", False))
    for number in range(newest.number - 1, max(newest.number - HEADERS_BACK, 0) - 1, -1):
        before = header_of(await rpc.request("eth_getBlockByNumber", hex(number), False))
        if before.randao != newest.randao:
            return newest, before
    what = f"The chain's RANDAO did not change in {HEADERS_BACK} blocks, and a court is drawn by it"
    raise WrongChain(what, f"block {newest.number}", "Deploy on a chain whose blocks have PREVRANDAO (EIP-4399).")
