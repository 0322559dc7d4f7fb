"""Creating a network, and describing one that stands: what ends with a network.json.

Every transaction is in the journal before it is sent, and the factory knows which parts stand; so a run that was
killed is carried on by the same command. What was made is verified on chain before its file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troth.chain import decoding
from troth.chain.deployment import (
    BEGIN_STEP,
    COMMITTEE_STEP,
    DISPUTES_STEP,
    FACTORY_STEP,
    IMPRINTS_STEP,
    NUMBERS_STEP,
    STEPS_STEP,
    deploy_market,
)
from troth.chain.errors import RpcRefused
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, find_deployed
from troth.chain.records import TransactionReceipt
from troth.chain.retries import attempts_of
from troth.chain.rpc import Rpc
from troth.network.description import (
    CONTRACTS_WITH_CODE,
    CommitteePlace,
    DisputesPlace,
    ImprintsPlace,
    NetworkDescription,
    write_description,
)
from troth.network.disputes import disputes_deployed, numbers_of
from troth.network.errors import CreationRefused
from troth.network.imprints import imprints_place
from troth.network.journal import CreationJournal, MinedStep, journal_of
from troth.network.planning import CreationPlan, CreationWish
from troth.network.probing import ProbedChain, probe_chain
from troth.network.services import CHECK_NUMBERS, SERVICES, ServicePlace
from troth.network.verifying import Verification, verify
from troth.protocol.amounts import COIN
from troth.protocol.bindings import DISPUTES, IMPRINTS, MARKET_PARTS
from troth.protocol.hashing import keccak256
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.shipped import BLOCK_SECONDS
from troth.protocol.runtime_code import runtime_of
from troth.protocol.types import Address, Hash32

RECEIPT_SECONDS = 600.0
"""Until a transaction is mined; the next run goes on waiting for it."""
VERIFY_ATTEMPTS, VERIFY_PAUSE = 5, 2.0
"""Public chain nodes are several machines, some of which lag a block behind."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CreatedNetwork:
    """A network that stands and was verified; gas and wei over all runs."""

    network: NetworkDescription
    gas: int
    cost: int
    verification: Verification


async def create(url: str, wish: CreationWish, plan: CreationPlan, key: Key, progress: Progress) -> CreatedNetwork:
    """Deploy what is missing, verify it, write the file.

    Raises ChainUnfit, CreationRefused where money or a file stands in the way, and what sending raises; a later call
    with the same wish carries on.
    """
    plan.chain.require_fit()
    if wish.output.exists() and not journal_of(wish.output).exists():
        remedy = "Choose another --output; a network that stands is never overwritten."
        raise CreationRefused("There is a file already", wish.output, remedy)
    require_money(plan, key.address, wish)
    journal = CreationJournal(journal_of(wish.output))
    try:
        journal.require_wish(await _identity(url, wish, plan, key))
        place = await _deploy(url, wish, plan, key, journal, progress)
        steps = journal.steps()
        # A new factory is where everything begins; of one that stands, what it made before is another network's.
        start = min([place.block, *(step.block for step in steps.values())])
        if made := {DISPUTES_STEP, IMPRINTS_STEP} & steps.keys():
            wish = replace(wish, parameters=replace(wish.parameters, prover=_created(steps, made.pop())))
        network = await _described(url, wish, plan.chain, place.factory, steps, start=start)
        verification = await _verified(network, url)
        write_description(wish.output, network)
        gas, cost = (sum(getattr(step, name) for step in steps.values()) for name in ("gas", "cost"))
        created = CreatedNetwork(network, gas, cost, verification)
    except RpcRefused as error:
        journal.close()
        if "insufficient" not in error.message.lower():
            raise
        what = "The account ran out of money for gas; what was deployed stays"
        remedy = f"Send it more on chain {plan.chain.chain_id}, and repeat the command: it carries on."
        raise CreationRefused(what, key.address, remedy) from error
    except BaseException:
        journal.close()
        raise
    journal.remove()
    return created


def require_money(plan: CreationPlan, payer: Address, wish: CreationWish) -> None:
    """CreationRefused where the account cannot pay for what is planned; a run that is carried on was half paid."""
    if plan.under_way or plan.balance is None or plan.balance >= plan.cost:
        return
    short = COIN.show(plan.cost - plan.balance)
    what = f"The account has too little for gas: {short} more are needed at the present price"
    raise CreationRefused(
        what, payer, f"Send it there on chain {plan.chain.chain_id}, then repeat this for {wish.name}."
    )


async def describe(
    url: str,
    name: str,
    factory: Address,
    *,
    bank: Address | None = None,
    committee: Address | None = None,
    services: Mapping[str, Address] | None = None,
    start: int = 0,
    suggested: tuple[str, ...] = (),
) -> NetworkDescription:
    """A network that stands already, read from its chain.

    Raises WrongChain if the factory has not exactly one deployment that fits, CreationRefused if its contracts are not
    this release's.
    """
    chain = await probe_chain(url)
    found = await find_deployed(url, factory, bank, start)
    if contracts_of(factory, found.parameters) != found.contracts:
        remedy = "Use the release of Troth that made it. Put no money there before its `network verify` holds."
        raise CreationRefused("These are not this release's contracts", factory, remedy)
    wish = CreationWish(name, found.parameters, Path(), factory, committee=committee, suggested=suggested).checked()
    made = await _described(url, wish, chain, factory, {}, start=found.meta.block)
    return replace(made, services=await _found_services(url, services or {}, chain.block))


async def _found_services(url: str, places: Mapping[str, Address], last: int) -> dict[str, ServicePlace]:
    rpc = Rpc(url)
    try:
        return {
            name: ServicePlace(place, await _code_hash(rpc, place), await creation_of(rpc, place, last))
            for name, place in places.items()
        }
    finally:
        await rpc.close()


async def creation_of(rpc: Rpc, contract: Address, last: int) -> Hash32 | None:
    """The transaction that created a contract, by bisection over old states; None where the node has not kept them."""
    first = 0
    try:
        while first < last:
            middle = (first + last) // 2
            if decoding.data(await rpc.request("eth_getCode", contract, hex(middle))):
                last = middle
            else:
                first = middle + 1
        block: Any = await rpc.request("eth_getBlockByNumber", hex(last), True)
        for sent in block["transactions"]:
            if sent.get("to") is None:
                receipt = decoding.receipt(await rpc.request("eth_getTransactionReceipt", sent["hash"]))
                if receipt.created == contract:
                    return receipt.transaction
    except (RpcRefused, KeyError, TypeError, AttributeError):
        return None
    return None


async def _identity(url: str, wish: CreationWish, plan: CreationPlan, key: Key) -> dict[str, object]:
    """What must be the same in every run of one creation."""
    rpc = Rpc(url)
    try:
        genesis = (await rpc.request("eth_getBlockByNumber", "0x0", False) or {}).get("hash")
    finally:
        await rpc.close()
    return {
        "name": wish.name,
        "chain": plan.chain.chain_id,
        "genesis block": genesis,
        "payer": key.address,
        "parameters": repr(wish.parameters),
        "factory": wish.factory,
        "committee": wish.committee,
        "disputes": wish.disputes,
        "imprints": repr(wish.imprints),
        "services": repr(wish.services),
        "members": [f"{one.operator},0x{one.tls_key_hash.hex()},{one.endpoint}" for one in wish.members],
    }


async def _deploy(  # noqa: PLR0917
    url: str, wish: CreationWish, plan: CreationPlan, key: Key, journal: CreationJournal, progress: Progress
) -> DeploymentPlace:
    """Everything on chain, and where it is."""
    names, done = [step.name for step in plan.steps], 0

    def report(step: str, receipt: TransactionReceipt | None) -> None:
        nonlocal done
        done += 1
        how = "stands already" if receipt is None else f"block {receipt.block:,}, {receipt.gas_used:,} gas"
        progress(f"{done} of {len(names)}  {_called(step)}: {how}")

    market, _ = await deploy_market(
        url,
        wish.parameters,
        key,
        factory=wish.factory,
        members=wish.members,
        disputes=wish.disputes,
        imprints=wish.imprints,
        committee=wish.committee,
        services=wish.services,
        record=journal,
        report=report,
        receipt_timeout=RECEIPT_SECONDS,
    )
    async with market:
        return market.place


async def _described(
    url: str, wish: CreationWish, chain: ProbedChain, factory: Address, steps: dict[str, MinedStep], *, start: int
) -> NetworkDescription:
    """The network that stands, with the code that its addresses have now."""
    contracts, made = contracts_of(factory, wish.parameters), steps.get(FACTORY_STEP)
    places = {"factory": factory} | {part: getattr(contracts, part) for part in MARKET_PARTS}
    committee = steps[COMMITTEE_STEP].created if COMMITTEE_STEP in steps else wish.committee
    rpc = Rpc(url)
    try:
        return NetworkDescription(
            name=wish.name,
            chain_id=chain.chain_id,
            rpc=wish.suggested,
            block_seconds=chain.block_seconds or float(BLOCK_SECONDS),
            start_block=start,
            factory=factory,
            created_by=await creation_of(rpc, factory, start) if made is None else made.transaction,
            contracts=contracts,
            code={name: await _code_hash(rpc, places[name]) for name in CONTRACTS_WITH_CODE},
            parameters=wish.parameters,
            committee=None if committee is None else CommitteePlace(committee, await _code_hash(rpc, committee)),
            disputes=await _disputes(rpc, wish.parameters.prover, steps, start),
            imprints=await _imprints(rpc, wish.parameters.prover, steps, start),
            services={name: await _served(rpc, steps[name]) for name in SERVICES if name in steps},
        )
    finally:
        await rpc.close()


async def _disputes(rpc: Rpc, prover: Address, steps: dict[str, MinedStep], start: int) -> DisputesPlace | None:
    """The contracts of disputes, where the deployment's prover is a Disputes."""
    code = decoding.data(await rpc.request("eth_getCode", prover, "latest"))
    if not runtime_of(DISPUTES).fits(code):
        return None
    created_by = await _creation_of(rpc, prover, steps.get(DISPUTES_STEP), start)
    deployed = await disputes_deployed(rpc, prover)
    numbers = numbers_of(decoding.data(await rpc.request("eth_getCode", deployed.steps, "latest")))
    return DisputesPlace(prover, deployed.steps, numbers, created_by)


async def _imprints(rpc: Rpc, prover: Address, steps: dict[str, MinedStep], start: int) -> ImprintsPlace | None:
    """The contract of imprints, where the deployment's prover is an Imprints."""
    if not runtime_of(IMPRINTS).fits(decoding.data(await rpc.request("eth_getCode", prover, "latest"))):
        return None
    return await imprints_place(rpc, prover, await _creation_of(rpc, prover, steps.get(IMPRINTS_STEP), start))


async def _creation_of(rpc: Rpc, contract: Address, step: MinedStep | None, last: int) -> Hash32 | None:
    """The transaction that created a contract: this run's, or the one that is found."""
    return await creation_of(rpc, contract, last) if step is None else step.transaction


def _created(steps: dict[str, MinedStep], step: str) -> Address:
    created = steps[step].created
    assert created is not None
    return created


async def _served(rpc: Rpc, step: MinedStep) -> ServicePlace:
    if step.created is None:
        raise CreationRefused("A creation's receipt names no contract", step.transaction.hex(), "Use another node.")
    return ServicePlace(step.created, await _code_hash(rpc, step.created), step.transaction)


async def _code_hash(rpc: Rpc, place: Address) -> Hash32:
    return Hash32(keccak256(decoding.data(await rpc.request("eth_getCode", place, "latest"))))


async def _verified(network: NetworkDescription, url: str) -> Verification:
    """The checks of what was made; CreationRefused where one fails again and again.

    Only the node's memory of old transactions (N3, N9 to N12) and other nodes (N8) may leave a check open.
    """
    repeated = attempts_of(lambda error: isinstance(error, CreationRefused), most=VERIFY_ATTEMPTS, pause=VERIFY_PAUSE)
    async for attempt in repeated:
        with attempt:
            verification = await verify(network, url)
            _require_standing(verification)
            return verification
    raise AssertionError("the last failure is raised")


def _require_standing(verification: Verification) -> None:
    may_be_open = {"N3", "N8", *CHECK_NUMBERS.values(), "N12"}
    if verification.exit_code != 1 and all(one.ok for one in verification.findings if one.number not in may_be_open):
        return
    wrong = next(one for one in verification.findings if not one.ok)
    what = f"What stands on chain does not verify, so no file was written: {wrong.number}, {wrong.what}"
    raise CreationRefused(what, wrong.found, "Repeat this over another --rpc: this node may not show the chain.")


def _called(step: str) -> str:
    names = {
        FACTORY_STEP: "the factory",
        BEGIN_STEP: "parameters",
        COMMITTEE_STEP: "the committee",
        NUMBERS_STEP: "the numbers of disputes",
        STEPS_STEP: "the steps of disputes",
        DISPUTES_STEP: "disputes",
        IMPRINTS_STEP: "imprints",
    }
    return names.get(step, f"the {step}")
