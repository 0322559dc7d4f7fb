"""The clients of a load: orders with all they need, sent by many at once, and acknowledged when that is due."""

from __future__ import annotations

import asyncio
import secrets as randomness
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from benchmarks.market.running.toy_network import LAG_BLOCKS, LISTED, Client, ToyNetwork
from benchmarks.market.running.wire import Wire, unpinned
from troth.protocol.market import canonical, lottery, messages, prices, tabs
from troth.protocol.market.bodies import Acknowledgement, ShownSecret, Submission
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.signed import Order, Result
from troth.protocol.market.types import Tab, TabState
from troth.protocol.request import Request, canonical_bytes, request_hash
from troth.protocol.types import Hash32, pack_ends
from troth.testnet.anvil import rpc
from troth.transport import sealing

PROMPT, WRITTEN = 16, 8
"""Tokens of a short task."""
DEADLINE_SECONDS = 600
_REPLY = Hash32(sealing.public_key(b"\x21" * 32))


@dataclass(slots=True)
class Sent:
    """One order: what is sent, and what it leads to."""

    payer: Payer
    order: Order
    order_id: Hash32
    body: bytes
    secrets: lottery.Secrets
    seconds: float = 0.0
    fee: int | None = None
    due: int = 0
    failure: str = ""


@dataclass
class Payer:
    """One client's book of its tab."""

    network: ToyNetwork
    client: Client
    master: bytes = field(default_factory=lambda: randomness.token_bytes(32))
    book: tabs.PayerBook = field(init=False)
    open: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = tabs.PayerBook(messages.tab_id(self.tab))

    @property
    def tab(self) -> Tab:
        return Tab(self.client.wallet.address, self.network.stage.scheduler.address, self.client.key.address)

    def order(self, block: int) -> Sent:
        """The next order, signed."""
        stage, domain, key = self.network.stage, self.network.stage.market.domain, self.client.key.secret
        salt = Hash32(randomness.token_bytes(32))
        prompt = tuple(2 + byte % 60 for byte in randomness.token_bytes(PROMPT))
        request = Request(stage.class_id, prompt, WRITTEN, 0, 1_000_000, ())
        hashed = request_hash(request, salt)
        definition = stage.execution_class
        rules = prices.rules_of(definition, hidden_size=stage.model.hidden_size, layers=stage.model.layers)
        secrets = lottery.secrets_for(self.master, self.book.tab, self.book.sequence + 1, hashed)
        order = Order(
            tab=self.book.tab,
            sequence=self.book.sequence + 1,
            execution_class=stage.class_id,
            request_hash=hashed,
            ends=pack_ends((stage.model.layers,)),
            prompt_price=LISTED.prompt,
            cached_price=LISTED.cached,
            written_price=LISTED.written,
            node_share=LISTED.node_share,
            max_fee=1,
            check_rate=definition.least_check_rate,
            deadline=int(time.time()) + DEADLINE_SECONDS,
            reference_block=block,
            draw_hash=secrets.draw_hash,
            tiles_hash=secrets.tiles_hash,
            reply_key=_REPLY,
        )
        order = replace(order, max_fee=prices.most(order, rules, 1, prompt=len(prompt), written=WRITTEN))
        self.book, _ = tabs.order_next(self.book, order.max_fee, TabState(1 << 90, known=True))
        voucher = sign(self.book.voucher, domain, key)
        body = Submission(sign(order, domain, key), self.tab, voucher, canonical_bytes(request), salt)
        made = Sent(self, order, messages.order_id(order, domain), canonical.encode(body), secrets)
        self.open.append(made)
        return made

    def acknowledge(self, block: int) -> bytes | None:
        """A voucher for everything that is due, oldest first; None if nothing is."""
        due = [one for one in self.open if one.failure or (one.fee is not None and one.due <= block)]
        if not due:
            return None
        for one in due:
            try:
                self.book = tabs.acknowledge(self.book, one.order.sequence, one.fee or 0)
            except tabs.InvalidVoucher:
                break  # an older one is not due yet
            self.open.remove(one)
        domain = self.network.stage.market.domain
        return canonical.encode(Acknowledgement(self.tab, sign(self.book.voucher, domain, self.client.key.secret)))


class Load:
    """All clients of a network, with so many requests under way at once.

    ``reveals``: each client shows its first secret, and goes through its check where that hits.
    """

    def __init__(self, network: ToyNetwork, *, concurrent: int, reveals: bool) -> None:
        self.network = network
        self.payers = [Payer(network, client) for client in network.clients]
        self.checked = 0
        self._concurrent = concurrent
        self._reveals = reveals
        self._port = int(network.endpoint.rpartition(":")[2])
        self._context = unpinned()
        definition, model = network.stage.execution_class, network.stage.model
        self._rules = prices.rules_of(definition, hidden_size=model.hidden_size, layers=model.layers)

    def block(self) -> int:
        """The chain's newest block."""
        return int(str(rpc(self.network.rpc, "eth_blockNumber")), 16)

    def signed(self, count: int) -> list[Sent]:
        """Orders that are ready to be sent, over all tabs in turn."""
        block = self.block() - 1
        return [self.payers[number % len(self.payers)].order(block) for number in range(count)]

    async def send(self, orders: Sequence[Sent], progress: Callable[[int], None] = lambda _done: None) -> float:
        """Send all; the seconds from the first to the end of the last."""
        waiting, begun, done = iter(orders), time.perf_counter(), 0

        def note() -> None:
            nonlocal done
            done += 1
            progress(done)

        await asyncio.gather(*[self._worker(waiting, note) for _ in range(self._concurrent)])
        return time.perf_counter() - begun

    async def _worker(self, waiting: Iterator[Sent], note: Callable[[], None]) -> None:
        wire = Wire(self._port, self._context)
        try:
            for one in waiting:
                try:
                    await self._one(wire, one)
                except RuntimeError as error:
                    one.failure = str(error)
                note()
        finally:
            wire.close()

    async def _one(self, wire: Wire, one: Sent) -> None:
        begun = time.perf_counter()
        async for line in wire.post("/v1/orders", one.body):
            if line.startswith(b'{"type":"results"'):
                one.seconds = time.perf_counter() - begun
                (signed,) = canonical.from_json(tuple[Signed[Result], ...], msgspec.json.decode(line)["results"])
                one.fee = prices.fee(one.order, self._rules, 1, signed.message)
            elif line.startswith(b'{"type":"draw"'):
                drawn_at = int(msgspec.json.decode(line)["draw"]["message"]["block_number"])
                one.due = drawn_at + LAG_BLOCKS
            elif line.startswith(b'{"type":"failed"'):
                one.failure = line.decode()
        if self._reveals and not one.failure:
            await self._reveal(wire, one)

    async def _reveal(self, wire: Wire, one: Sent) -> None:
        path, drawn = f"/v1/orders/0x{one.order_id.hex()}", False
        async for line in wire.post(path + "/secret", canonical.encode(ShownSecret(one.secrets.draw))):
            drawn = drawn or line.startswith(b'{"type":"verdicts"')
        if drawn:
            self.checked += 1
            async for _ in wire.post(path + "/tiles", canonical.encode(ShownSecret(one.secrets.tiles))):
                pass

    async def acknowledge(self) -> int:
        """Acknowledge on every tab what is due; how many orders are left open."""
        wire, block = Wire(self._port, self._context), self.block()
        for payer in self.payers:
            body = payer.acknowledge(block)
            if body is not None:
                async for _ in wire.post("/v1/vouchers", body):
                    pass
        wire.close()
        return sum(len(payer.open) for payer in self.payers)
