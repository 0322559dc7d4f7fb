"""A deployment whose prover is a Disputes: nodes that signed rows, and everybody's turns as transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from support.tabs_stage import PARAMETERS, TabsStage, execution_class_of, tabs_stage

from troth.chain.adapter import Chain
from troth.chain.deployment import disputes_creation, submit
from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.chain.records import TransactionReceipt
from troth.protocol.calls import Call
from troth.protocol.disputes import calls
from troth.protocol.disputes.calls import Accusation
from troth.protocol.disputes.game import ENDED, Dispute, Matter, NamedNode
from troth.protocol.disputes.life import Life, after, lives
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages
from troth.protocol.market.addresses import factory_code
from troth.protocol.market.layers import mark_of, with_layers
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.signed import Order, Result, SignedOrder
from troth.protocol.market.types import Parameters, PotKind
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, pack_ends

BLANK = Hash32(keccak256(b"blank"))


@dataclass
class Played:
    """A dispute under way, as both sides know it from the chain."""

    life: Life
    gas: list[tuple[str, int]] = field(default_factory=list)

    @property
    def id(self) -> Hash32:
        return self.life.id

    @property
    def matter(self) -> Matter:
        return self.life.matter

    @property
    def shape(self) -> bytes:
        return self.life.shape

    @property
    def state(self) -> Dispute:
        return self.life.state

    @property
    def shown(self) -> tuple[Hash32, ...]:
        """What was shown last."""
        return self.life.looks[-1].nodes if self.life.looks else ()


@dataclass
class DisputeStage:
    """``accuser`` has coins; the node number 0 signs."""

    stage: TabsStage
    chain: Chain
    follower: MarketFollower
    shape: bytes
    bond: int
    turn: int
    accuser: Key
    orders: int = 0

    @property
    def node(self) -> Key:
        """Who is accused."""
        return self.stage.nodes[0]

    def pot(self, kind: PotKind, account: Address) -> int:
        """What an account has in the Bank, as far as it was followed."""
        return self.follower.state.pot(kind, account)

    def accusation(
        self,
        output_head: Hash32 | Callable[[Hash32], Hash32],
        position: int,
        rows: int,
        *,
        ends: Sequence[int] = (),
        **changes: Any,
    ) -> Accusation:
        """Of a result that the node signs now over so many rows, with this head or the one made of the order's digest;
        ``changes`` replace the result's fields."""
        self.orders += 1
        order = self.order(tuple(ends) or (self.stage.model.layers,))
        domain = self.stage.market.domain
        digest = messages.order_id(order, domain)
        head = output_head if isinstance(output_head, bytes) else output_head(digest)
        result = Result(
            order=digest, segment=0, input_head=order.request_hash, output_head=head, prompt=rows, cached=0,
            written=1, trace_commitment=BLANK, output_hash=ZERO_HASH,
        )  # fmt: skip
        return self.accuse(order, replace(result, **changes), position)

    def accuse(self, order: Order, result: Result, position: int) -> Accusation:
        """Of a row under a result that the node signs."""
        stage, name = self.stage, self.stage.execution_class.name
        signed = SignedOrder(order, stage.client.address, stage.scheduler.address, stage.tab_key.address, b"")
        signature = sign(result, stage.market.domain, self.node.secret).signature
        return Accusation(
            signed, stage.execution_class, stage.model, result, signature, self.shape, mark_of(name), position
        )

    def order(self, ends: Sequence[int], request_hash: Hash32 = BLANK) -> Order:
        """One of the client, unsigned; ``orders`` numbers it."""
        return Order(
            tab=tab_id(self.stage.client_tab), sequence=self.orders, execution_class=self.stage.class_id,
            request_hash=request_hash, ends=pack_ends(tuple(ends)), prompt_price=1, cached_price=1, written_price=1,
            node_share=8_000, max_fee=10**13, check_rate=1_000_000, deadline=1 << 40,
            reference_block=self.follower.block - 1, draw_hash=BLANK, tiles_hash=BLANK, reply_key=BLANK,
        )  # fmt: skip

    async def open(self, accusation: Accusation, accuser: Key | None = None) -> Played:
        """A dispute that somebody opens."""
        accuser = accuser or self.accuser
        if self.stage.asset is not None:
            await self.stage.asset.provide(accuser, self.chain.contract)
        value = self.bond if self.stage.asset is None else 0
        receipt = await self.send(calls.open_dispute(accusation, value), accuser)
        (opened,) = (calls.decode_event(log) for log in receipt.logs if log.address == self.chain.contract)
        assert opened is not None
        (found,) = lives([opened], self.turn).values()
        played = Played(found, [("open", receipt.gas_used)])
        await self._require_kept(played)
        return played

    async def move(self, played: Played, call: Call, key: Key) -> None:
        """A turn; what it changed is read from its events."""
        receipt = await self.send(call, key)
        played.gas.append((call.function, receipt.gas_used))
        for log in receipt.logs:
            event = calls.decode_event(log) if log.address == self.chain.contract else None
            if event is not None:
                played.life = after(played.life, event, self.turn)
        await self._require_kept(played)

    async def _require_kept(self, played: Played) -> None:
        """The contract keeps the hash of the very state that its events tell of."""
        kept = await self.chain.read(calls.dispute_of(played.id))
        assert kept == (ENDED if played.life.ending else played.state.hash)

    async def show(self, played: Played, nodes: tuple[Hash32, ...]) -> None:
        """The accused's turn."""
        await self.move(played, calls.show(played.id, played.state, nodes), self.node)

    async def choose(self, played: Played, choice: NamedNode, key: Key | None = None) -> None:
        """The accuser's turn, but the last."""
        state = played.state
        if state.shown < state.left:
            call = calls.choose(played.id, state, choice)
        else:
            call = calls.choose_tensor(played.id, state, played.matter, played.shape, choice)
        await self.move(played, call, key or self.accuser)

    async def send(self, call: Call, key: Key) -> TransactionReceipt:
        """A transaction to the Disputes; ChainRejected if it refuses. The follower has seen its block."""
        self.stage.anvil.fund(key)
        receipt = await submit(self.stage.anvil.url, call, key, self.chain.contract)
        await self.follower.catch_up()
        return receipt

    def subject(self, played: Played) -> Hash32:
        """The signature that a conviction is for."""
        return played.state.result


@asynccontextmanager
async def dispute_stage(
    anvil: Any,
    steps: Call,
    shape: bytes,
    model: ModelDescriptor,
    parameters: Parameters = PARAMETERS,
    **changes: Any,
) -> AsyncIterator[DisputeStage]:
    """Deploy the factory, what computes steps, the Disputes, and the market whose prover it is; ``changes`` as for
    ``execution_class_of``."""
    factory, prover = await factory_and_prover(anvil, steps, parameters)
    definition = execution_class_of(model, **changes)
    definition = replace(definition, name=with_layers(definition.name, Hash32(keccak256(shape))))
    staged = tabs_stage(
        anvil, parameters=replace(parameters, prover=prover), model=model, execution_class=definition, nodes=2,
        tabs=False, factory=factory,
    )  # fmt: skip
    async with staged as stage, MarketFollower(stage.market, poll_interval=0.05) as follower:
        await follower.catch_up()
        async with await Chain.connect(anvil.url, prover) as chain:
            bond, (turn, _) = await chain.read(calls.bond_for()), await chain.read(calls.windows())
            yield DisputeStage(stage, chain, follower, shape, bond, turn, anvil.keys[6])


async def factory_and_prover(anvil: Any, steps: Call, parameters: Parameters = PARAMETERS) -> tuple[Address, Address]:
    """A factory, and the Disputes of the deployment that it is to make, with the contract that ``steps`` creates."""
    anvil.mine(3)
    deployer = anvil.keys[0]
    factory = await _created(anvil, Call("factory", factory_code()), deployer)
    computing = await _created(anvil, steps, deployer)
    return factory, await _created(anvil, disputes_creation(factory, parameters, computing), deployer)


async def _created(anvil: Any, call: Call, key: Key) -> Address:
    created = (await submit(anvil.url, call, key)).created
    assert created is not None
    return created
