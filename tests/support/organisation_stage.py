"""A market with two organisations and their nodes, a committee that rates them, and Organisations, on a real EVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from conftest import Anvil
from support.market_world import DESCRIPTOR, LAYERS, PARAMETERS, class_of
from support.reputation_stage import ReputationStage, reputation_stage

from troth.chain.deployment import deploy_market, organisations_creation, submit
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.organisations import OrganisationsReading, read_organisations
from troth.chain.records import TransactionReceipt
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import build
from troth.protocol.market.messages import sign, state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS, Ask, Consent, ExecutionClass, NodeRegistration
from troth.protocol.organisation_calls import post
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ONE, paper_rules
from troth.protocol.types import Address, Hash32, Segment, address_to_bytes

EPOCH, BOND = 40, 10**15
OWN_MODEL = replace(DESCRIPTOR, architecture="llama/own/model", weights_root=Hash32(b"\x02" * 32))


def own_class() -> ExecutionClass:
    """Of the model that an organisation brings."""
    return replace(class_of(), model=state_hash(OWN_MODEL), name="float32 own")


@dataclass
class OrganisationStage:
    """``nodes`` by name; everybody is funded."""

    anvil: Anvil
    market: Market
    reputation: ReputationStage
    place: OrganisationsPlace
    nodes: dict[str, Key] = field(default_factory=dict)

    @property
    def alice(self) -> Key:
        """An organisation that serves first and deploys later."""
        return self.anvil.keys[6]

    @property
    def bob(self) -> Key:
        """Another one."""
        return self.anvil.keys[7]

    async def register(
        self, name: str, owner: Key, execution_class: ExecutionClass, segment: Segment = Segment(0, LAYERS)
    ) -> Address:
        """A node of an owner that hosts these layers."""
        operator = Key.from_secret(keccak256(name.encode()))
        self.anvil.fund(operator)
        stake = 2 * execution_class.seat
        registration = NodeRegistration(
            operator.address,
            NO_ADDRESS,
            state_hash(execution_class),
            segment.first,
            segment.end,
            (segment,),
            (Ask(1, 1, 1),),
            stake,
            f"https://{name}.example",
            Hash32(keccak256(name.encode())),
        )
        consent = sign(Consent(owner.address, operator.address), self.market.domain, operator.secret)
        call = build(self.market.contracts, Part.REGISTRY, "registerNode", registration, consent.signature, value=stake)
        await self.market.execute(call, owner)
        self.nodes[name] = operator
        return operator.address

    async def epoch(self) -> int:
        """The current one."""
        return (await self.market.chain.block_number() - self.reputation.start_block) // EPOCH

    async def next_epoch(self) -> int:
        """Mine until the next epoch has begun, and one block of it is over."""
        await self.reputation.to_epoch(await self.epoch() + 1)
        self.anvil.mine(1)
        return await self.epoch()

    async def rate(self, credits: Mapping[str, int]) -> None:
        """Settle the current epoch with these credits of nodes by name; what was listed is listed again."""
        listed = {self.nodes[name].address: credit for name, credit in credits.items()}
        await self.reputation.settle(await self.reputation.update(listed))

    async def list_nodes(self, *names: str) -> None:
        """From the next epoch on these nodes are examined."""
        found = sorted((self.nodes[name].address for name in names), key=address_to_bytes)
        self.reputation.nodes = tuple(found)
        await self.reputation.settle(await self.reputation.update())

    async def reading(self) -> OrganisationsReading:
        """What the chain says now."""
        async with MarketFollower(self.market) as follower:
            state = await follower.catch_up()
        return await read_organisations(self.anvil.url, self.place, state, self.market.contracts.registry)

    async def send(self, call: Call, key: Key) -> TransactionReceipt:
        """A transaction to Organisations, mined."""
        return await submit(self.anvil.url, call, key, self.place.contract)

    async def post(self, *names: str) -> None:
        """Credit each node, sent by its operator."""
        for name in names:
            reading = await self.reading()
            due = reading.due(self.nodes[name].address)
            assert due is not None, name
            await self.send(post(due.epoch, [due.presence]), self.nodes[name])

    async def serve(self, *names: str, credit: int = ONE) -> None:
        """These nodes serve the rest of this epoch well, and are credited in the next one."""
        await self.rate(dict.fromkeys(names, credit))
        await self.next_epoch()
        await self.post(*names)


async def organisation_stage(anvil: Anvil) -> OrganisationStage:
    """Both classes are registered and no node is; the committee of seven has its first whole epoch before it."""
    anvil.mine(3)
    payer = anvil.keys[0]
    market, _ = await deploy_market(anvil.url, PARAMETERS, payer)
    for function, argument in (
        ("registerModel", DESCRIPTOR),
        ("registerModel", OWN_MODEL),
        ("registerClass", class_of()),
        ("registerClass", own_class()),
    ):
        await market.execute(build(market.contracts, Part.CLASSES, function, argument), payer)

    def fund(account: Address, amount: int) -> None:
        anvil.rpc("anvil_setBalance", account, hex(amount))

    registry = market.contracts.registry
    rules = paper_rules(EPOCH, BOND)
    reputation = await reputation_stage(anvil.url, payer, anvil.mine, rules, fund, registry=registry)
    created = await submit(anvil.url, organisations_creation(reputation.contract), payer)
    assert created.created is not None
    place = OrganisationsPlace(created.created, created.block)
    return OrganisationStage(anvil, market, reputation, place)
