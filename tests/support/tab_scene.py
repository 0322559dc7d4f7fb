"""A market in memory with a scheduler on it: a state folded from made-up events, toy nodes, a client with a tab."""

from __future__ import annotations

import json
import secrets as randomness
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from fastapi import FastAPI
from support.market_logs import CONTRACTS, FACTORY, META
from support.tabs_stage import ASK, MODEL, PARAMETERS, execution_class_of
from support.toy_peers import ToyPeers
from support.toy_tab_node import ToyTabNode

from troth.protocol import typed_data, vrf
from troth.protocol.architecture import architecture_name
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.market import canonical, checks, fold, lottery, messages, prices, tabs, views
from troth.protocol.market import events as on
from troth.protocol.market.bodies import ShownSecret, Submission
from troth.protocol.market.calls import read_call
from troth.protocol.market.checks import OrderView
from troth.protocol.market.messages import market_domain, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State
from troth.protocol.market.types import ExecutionClass, GroupEntry, PotKind, Tab
from troth.protocol.reputation import UNRATED
from troth.protocol.request import Request, canonical_bytes, request_hash
from troth.protocol.transforms import NO_TRANSFORMS
from troth.protocol.types import Address, Hash32, ModelDescriptor, address_from_bytes, pack_ends, segments_from_ends
from troth.scheduler.log.entries import LogBook
from troth.scheduler.nodes.patience import GenerationPatience
from troth.scheduler.orders.context import SchedulerContext, Waits
from troth.scheduler.orders.http import mount_orders, refuse_with_words
from troth.scheduler.orders.offers import Offers, PriceList
from troth.scheduler.orders.rows_kept import KeptRows
from troth.scheduler.orders.service import Orders
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.served import ModelTexts, ServedClass
from troth.scheduler.tabs.client_tabs import ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.transport import sealing
from troth.transport.identity import Operator

BANK = address_from_bytes(b"\xba" * 20)
DOMAIN = market_domain(31337, BANK)
VRF_SECRET = b"\x04" * 32
CLIENT_KEY, TAB_KEY, SCHEDULER_KEY = (keccak256(name) for name in (b"client", b"tab key", b"scheduler"))
CLIENT_TAB = Tab(*(typed_data.address_of(key) for key in (CLIENT_KEY, SCHEDULER_KEY, TAB_KEY)))
REPLY_SECRET = b"\x21" * 32
NOW = 1_800_000_000
JOINED = 10
CONTEXT = 256
LISTED = PriceList(prompt=1_000_000_000, cached=100_000_000, written=2_000_000_000)
DEPOSIT = 10**15


def texts(folder: Path) -> ModelTexts:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return ModelTexts.load(folder)


def descriptor() -> ModelDescriptor:
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    return replace(MODEL, architecture=architecture_name(config, b"{}", ""))


class FakeLedger:
    """A chain in memory: what is executed is noted, and answered by the events that ``react`` returns."""

    def __init__(self, state: State, block: int) -> None:
        self.state = state
        self.block = block
        self.contracts = replace(CONTRACTS, bank=BANK)
        self.parameters = PARAMETERS
        self.sent: list[Any] = []
        self.react: Callable[[Any], list[Any]] = lambda _call: []
        self.failure: Exception | None = None
        self.logs = 0

    async def catch_up(self) -> None:
        if self.failure is not None:
            raise self.failure

    def fold(self, *events: Any) -> None:
        for event in events:
            self.logs += 1
            meta = replace(META, block=self.block, log_index=self.logs)
            self.state = fold.apply(replace(event, meta=meta), self.state)

    async def execute(self, call: Any, spends: int = 0) -> int:
        if self.failure is not None:
            raise self.failure
        self.sent.append(call)
        self.block += 1
        self.fold(*self.react(call))
        return self.block

    async def pass_deposit(self) -> int:
        return 1_000

    async def objection_deposit(self) -> int:
        return 2_000


def standing(
    definition: ExecutionClass, ends: tuple[int, ...], nodes: list[Address], *, tabs_with: list[Address], stake: int
) -> list[Any]:
    """The events of a deployment on which everybody stands."""
    x, y = vrf.public_key(VRF_SECRET)
    class_id, scheduler = messages.state_hash(definition), typed_data.address_of(SCHEDULER_KEY)
    contracts = replace(CONTRACTS, bank=BANK)
    made: list[Any] = [
        on.Deployed(messages.state_hash(PARAMETERS), contracts, PARAMETERS, META),
        on.ModelRegistered(definition.model, descriptor(), META),
        on.ClassRegistered(class_id, definition.model, definition, META),
        _staked(scheduler, stake),
        on.SchedulerRegistered(
            scheduler, owner_of(scheduler), owner_of(scheduler), x, y, "https://s.example", META.block_hash, META
        ),
        opened(CLIENT_TAB, DEPOSIT),
    ]
    for number, node in enumerate(nodes):
        owner = owner_of(node)
        layers = MODEL.layers
        made.append(_staked(node, 2 * definition.seat))
        made.append(
            on.NodeRegistered(node, owner, class_id, owner, 0, layers, "https://n.example", META.block_hash, META)
        )
        for segment in segments_from_ends(ends, layers):
            entry = GroupEntry(node, JOINED, JOINED, 2, 2)
            made.append(on.EntryChanged(group_id(class_id, segment), number, entry, number + 1, META))
            made.append(on.AskChanged(node, segment.first, segment.end, ASK, META))
    made += [opened(Tab(scheduler, node, scheduler), DEPOSIT) for node in tabs_with]
    return made


def owner_of(party: Address) -> Address:
    return address_from_bytes(keccak256(b"owner" + party.encode())[12:])


def _staked(party: Address, stake: int) -> Any:
    pot = Hash32(bytes(12) + bytes.fromhex(party[2:]))
    return on.Collected(META.block_hash, owner_of(party), PotKind.STAKE, pot, stake, stake, META)


def opened(tab: Tab, amount: int) -> Any:
    return on.TabOpened(messages.tab_id(tab), *(getattr(tab, one.name) for one in fields(tab)), amount, META)


@dataclass
class Asked:
    """An order as its client knows it."""

    submission: Submission
    request: Request
    secrets: lottery.Secrets
    domain: Any = DOMAIN
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def order(self) -> Order:
        return self.submission.order.message

    @property
    def order_id(self) -> Hash32:
        return messages.order_id(self.order, self.domain)

    def of(self, kind: str) -> dict[str, Any]:
        return next(line for line in self.lines if line["type"] == kind)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(line["id"] for line in self.lines if line["type"] == "token")


class TabScene:
    """Everything: start a scheduler with ``start``, stop or kill it, and start it again over the same folder."""

    domain: Any = DOMAIN
    scheduler_key, tab_key, vrf_secret = SCHEDULER_KEY, TAB_KEY, VRF_SECRET
    client_tab = CLIENT_TAB
    model = descriptor()

    settled = 0
    """Blocks that follow the one that an order names."""
    first = 0
    """The oldest of them that is taken."""
    waits = Waits(GenerationPatience(token=30.0, prefill=60.0), check=60.0)
    """Longer than anything takes on a loaded machine: that a node is silent, toy nodes say at once."""
    reputations: Mapping[Address, float] = MappingProxyType({})
    """What a committee says of nodes; nothing of those that are not in it."""

    def __init__(
        self,
        folder: Path,
        *,
        ends: tuple[int, ...] = (2,),
        nodes: int = 14,
        unpaid: int = 0,
        stake: int = 10**18,
        **changes: Any,
    ) -> None:
        self.folder = folder
        self.ends = ends
        self.definition = execution_class_of(descriptor(), **changes)
        self.class_id = messages.state_hash(self.definition)
        self.ledger = FakeLedger(State(), JOINED)
        self.now = NOW
        secrets = [keccak256(b"toy %d" % number) for number in range(nodes)]
        made = [ToyTabNode(secret, DOMAIN, self.chain) for secret in secrets]
        self.nodes = {node.address: node for node in made}
        addresses = list(self.nodes)
        paid = addresses[unpaid:]
        self.ledger.fold(*standing(self.definition, ends, addresses, tabs_with=paid, stake=stake))
        self.ledger.block = 20
        self.peers = ToyPeers(self.nodes)
        self.payer = tabs.PayerBook(messages.tab_id(CLIENT_TAB))
        self.database: SchedulerDatabase | None = None

    def chain(self) -> tuple[State, int, int]:
        """State, block and time, as everybody sees them."""
        return self.ledger.state, self.ledger.block, self.now

    # ---- the scheduler

    def start(
        self, database: type[SchedulerDatabase] = SchedulerDatabase, *, concurrent: int = 64, **log: Any
    ) -> Orders:
        operator = Operator(self.scheduler_key, self.domain)
        self.database = database(self.folder / "market.sqlite")
        store = OrderStore(self.database)
        self.context = SchedulerContext(
            operator=operator,
            vrf_secret=self.vrf_secret,
            ledger=self.ledger,
            database=self.database,
            store=store,
            client_tabs=ClientTabs(self.database),
            node_tabs=NodeTabs(self.database, operator),
            rows=KeptRows(self.folder / "rows", self.database),
            peers=self.peers,  # type: ignore[arg-type]
            offers=Offers([self.served()], {self.class_id: LISTED}),
            waits=self.waits,
            factory=FACTORY,
            clock=lambda: float(self.now),
            settled=self.settled,
            first=self.first,
            reputation=lambda node: self.reputations.get(node, UNRATED),
        )
        self.book = LogBook(self.database, store, self.ledger, operator.address, clock=lambda: float(self.now), **log)
        self.orders = Orders(self.context, self.book, concurrent=concurrent)
        self.app = FastAPI()
        mount_orders(self.app, self.orders)
        refuse_with_words(self.app)
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="https://scheduler", timeout=30)
        return self.orders

    def served(self) -> ServedClass:
        return ServedClass(self.class_id, self.ends, texts(self.folder / "model"), CONTEXT)

    async def stop(self) -> None:
        await self.orders.abandon()
        await self.http.aclose()
        assert self.database is not None
        await self.database.close()

    # ---- the client

    def asked(
        self, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 6, *, check_rate: int = 1_000_000, **changes: Any
    ) -> Asked:
        """A fresh order that is right in all points but those in ``changes``."""
        key = changes.pop("key", self.tab_key)
        salt = Hash32(randomness.token_bytes(32))
        request = Request(
            self.class_id,
            prompt,
            max_tokens,
            0,
            1_000_000,
            changes.pop("end_tokens", ()),
            changes.pop("transforms", NO_TRANSFORMS),
            may_end_early=changes.pop("may_end_early", False),
        )
        hashed = request_hash(request, salt)
        rules = prices.rules_of(self.definition, hidden_size=MODEL.hidden_size, layers=MODEL.layers)
        tab = messages.tab_id(self.client_tab)
        secrets = lottery.secrets_for(b"\x07" * 32, tab, self.payer.sequence + 1, hashed)
        order = Order(
            tab=tab,
            sequence=self.payer.sequence + 1,
            execution_class=self.class_id,
            request_hash=hashed,
            ends=pack_ends(self.ends),
            prompt_price=LISTED.prompt,
            cached_price=LISTED.cached,
            written_price=LISTED.written,
            node_share=LISTED.node_share,
            max_fee=1,
            check_rate=check_rate,
            deadline=self.now + 600,
            reference_block=self.ledger.block - 1,
            draw_hash=secrets.draw_hash,
            tiles_hash=secrets.tiles_hash,
            reply_key=Hash32(sealing.public_key(REPLY_SECRET)),
        )
        most = prices.most(order, rules, len(self.ends), prompt=len(prompt), written=max_tokens)
        order = replace(order, max_fee=most)
        order = replace(order, **changes)
        self.payer, _ = tabs.order_next(self.payer, order.max_fee, self.ledger.state.tab_state(order.tab))
        voucher = sign(self.payer.voucher, self.domain, key)
        submission = Submission(sign(order, self.domain, key), self.client_tab, voucher, canonical_bytes(request), salt)
        return Asked(submission, request, secrets, self.domain)

    async def send(self, asked: Asked) -> Asked:
        """Post an order and read its lines to the end."""
        answer = await self.http.post("/v1/orders", content=canonical.encode(asked.submission))
        assert answer.status_code == 200, answer.text
        asked.lines = [json.loads(line) for line in answer.text.splitlines()]
        return asked

    async def refused(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        answer = await self.http.post("/v1/orders", content=canonical.encode(asked.submission))
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error"]

    async def show(self, asked: Asked) -> list[dict[str, Any]]:
        body = canonical.encode(ShownSecret(asked.secrets.draw))
        answer = await self.http.post(f"/v1/orders/0x{asked.order_id.hex()}/secret", content=body)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    async def tiles(self, asked: Asked) -> list[dict[str, Any]]:
        body = canonical.encode(ShownSecret(asked.secrets.tiles))
        answer = await self.http.post(f"/v1/orders/0x{asked.order_id.hex()}/tiles", content=body)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["segments"]
        return found


def history_of(scene: TabScene, asked: Asked) -> Any:
    """An order as far as the scheduler has come."""
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    return history


def view_of(scene: TabScene, asked: Asked) -> OrderView:
    """What an order's client sees of the chain."""
    return views.view_of(
        scene.ledger.state, asked.order, CLIENT_TAB, chain_id=31337, block=scene.ledger.block, time=scene.now
    )


def verifiers_of(scene: TabScene, asked: Asked) -> tuple[Address, ...]:
    """Who is drawn to check an order's first segment."""
    history, view = history_of(scene, asked), view_of(scene, asked)
    beta, nodes = history.drawn.draw.message.beta, history.admitted.nodes
    return checks.verifiers(history.order, history.results, asked.secrets.draw, beta, nodes=nodes, view=view)[
        0
    ].operators


def called(scene: TabScene, part: Part, name: str) -> Any:
    """The newest call that the scheduler sent, which must be of this function."""
    call = scene.ledger.sent[-1]
    assert call.to == part.of(scene.ledger.contracts)
    read = read_call(part, call.call.data)
    assert read.entry.name == name
    return read
