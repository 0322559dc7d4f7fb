"""A contract on anvil, toy nodes, and what a scheduler needs to serve them; a client that orders."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.toy_node import CANDIDATES, COLUMNS, LAYERS, REVIEWERS, TILES, VERIFIERS, VOCABULARY, ToyNode

from troth.chain.adapter import Chain
from troth.chain.keystore import Key
from troth.overlay.operator import Operator
from troth.overlay.server import serving
from troth.protocol import vrf
from troth.protocol.architecture import architecture_name
from troth.protocol.calls import (
    deposit,
    register_class,
    register_model,
    register_node,
    register_scheduler,
    withdraw_escrow,
)
from troth.protocol.calls.views import outcome_of, parameters_of
from troth.protocol.contract_types import NodeRegistration, SchedulerRegistration
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, fee, model_id
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.request import Request, request_hash
from troth.protocol.typed_data import sign
from troth.protocol.types import (
    Address,
    Consent,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Order,
    Segment,
    pack_ends,
    segments_from_ends,
    unpack_ends,
)
from troth.scheduler.admission import SubmittedOrder, SubmittedRequest
from troth.scheduler.configuration import Configuration
from troth.scheduler.desk import Waits
from troth.scheduler.keys import Keys
from troth.scheduler.patience import Patience
from troth.scheduler.served import Served, Texts

UNIT = 10**9
ENDS = (1, 2)
CONTEXT = 256
VRF_SECRET = vrf.generate_key()


def texts(folder: Path) -> Texts:
    """A model folder with the least that a client needs."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return Texts.load(folder)


def descriptor() -> ModelDescriptor:
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    name = architecture_name(config, b"{}", "")
    return ModelDescriptor(name, LAYERS, COLUMNS, VOCABULARY, 0, Hash32(keccak256(b"toy weights")))


def execution_class(*, exact: bool = False) -> ExecutionClass:
    return ExecutionClass(
        model=model_id(descriptor()),
        name="toy",
        dtype=0,
        exact=exact,
        mantissa_bits=10,
        steps=8,
        theta=9000,
        tiles=0 if exact else TILES,
        candidates=CANDIDATES,
        verifiers=VERIFIERS,
        reviewers=REVIEWERS,
        unit=UNIT,
        minimum_stake=100 * UNIT,
        state_cut=1000,
        margin_cut=20000,
        calibration=Hash32(bytes(32)),
    )


def plain_configuration(
    folder: Path, url: str, contract: str, chain_id: int, served: bytes, ends: tuple[int, ...] = ENDS
) -> Configuration:
    """A scheduler's configuration with short waits."""
    return Configuration(
        folder=folder / "scheduler",
        rpc=url,
        contract=Address(contract),
        chain_id=chain_id,
        start_block=0,
        poll_seconds=0.05,
        operator_keystore=folder / "operator.json",
        vrf_keystore=folder / "vrf.json",
        host="127.0.0.1",
        port=0,
        endpoint="https://127.0.0.1:1",
        served=(Served(Hash32(served), ends, texts(folder / "model"), CONTEXT),),
        concurrent=4,
        keep_rows_seconds=3600.0,
        waits=Waits(Patience(token=2.0, prefill=4.0), locking=20.0, verification=6.0, opening=4.0),
    )


@dataclass
class Stage:
    """Everything but the scheduler, which the test runs."""

    anvil: Any
    chain: Chain
    url: str
    client: Key
    scheduler: Key
    owner: Key
    execution_class: ExecutionClass
    nodes: list[Any]
    folder: Path
    nonce: int = 0
    ends: tuple[int, ...] = ENDS

    @property
    def class_id(self) -> Hash32:
        return class_id(self.execution_class)

    @property
    def fee(self) -> int:
        return fee(self.execution_class, len(self.ends))

    @property
    def keys(self) -> Keys:
        return Keys(self.scheduler, VRF_SECRET)

    def node(self, address: str) -> Any:
        return next(node for node in self.nodes if node.address == address)

    def configuration(self, **changes: Any) -> Configuration:
        plain = plain_configuration(
            self.folder, self.url, self.chain.contract, self.chain.chain_id, class_id(self.execution_class), self.ends
        )
        return replace(plain, **changes)

    async def order(self, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 6, **changes: Any) -> SubmittedOrder:
        """A fresh order that is right in all points but those in `changes`."""
        end_tokens = changes.pop("end_tokens", ())
        logprobs = changes.pop("logprobs", NO_LOGPROBS)
        salt = Hash32(secrets.token_bytes(32))
        request = Request(self.class_id, prompt, max_tokens, 0, 1_000_000, end_tokens)
        self.nonce += 1
        order = Order(
            execution_class=self.class_id,
            request_hash=request_hash(request, salt),
            scheduler=self.scheduler.address,
            max_fee=self.fee,
            deadline=int(time.time()) + 3600,
            reference_block=await self.chain.block_number(),
            nonce=self.nonce,
            ends=pack_ends(self.ends),
        )
        order = replace(order, **changes)
        signature = sign(order, self.chain.domain, self.client.secret)
        shown = SubmittedRequest(prompt, max_tokens, 0, 1_000_000, end_tokens)
        return SubmittedOrder(order, signature, shown, salt, logprobs)

    async def withdraw(self, wei: int) -> None:
        """The client takes escrow back."""
        await self.chain.execute(withdraw_escrow(wei), self.client)

    async def outcome(self, task_id: bytes) -> Any:
        return await self.chain.read(outcome_of(Hash32(task_id)))


def body_of(submitted: SubmittedOrder) -> dict[str, Any]:
    """The JSON of POST /v1/orders."""
    order, request = submitted.order, submitted.request
    return {
        "order": {
            "execution_class": "0x" + order.execution_class.hex(),
            "request_hash": "0x" + order.request_hash.hex(),
            "scheduler": order.scheduler,
            "max_fee": str(order.max_fee),
            "deadline": order.deadline,
            "reference_block": order.reference_block,
            "nonce": order.nonce,
            "ends": list(unpack_ends(order.ends)),
        },
        "signature": "0x" + submitted.signature.hex(),
        "request": {
            "prompt_tokens": list(request.prompt_tokens),
            "max_tokens": request.max_tokens,
            "temperature_millionths": request.temperature_millionths,
            "top_p_millionths": request.top_p_millionths,
            "end_tokens": list(request.end_tokens),
        },
        "salt": "0x" + submitted.salt.hex(),
        "logprobs": submitted.logprobs,
    }


@dataclass(frozen=True)
class Cast:
    """Which model is played, by which nodes, how split. `make_node(secret, chain, folder, scheduler)` makes one."""

    model: ModelDescriptor
    rules: ExecutionClass
    make_node: Callable[[bytes, Chain, Path, Address], Any]
    ends: tuple[int, ...] = ENDS


def toys(*, exact: bool = False) -> Cast:
    """The toy model."""
    rules = execution_class(exact=exact)

    def make(secret: bytes, chain: Chain, folder: Path, scheduler: Address) -> ToyNode:
        return ToyNode(secret, chain.domain, folder, rules.model, scheduler)

    return Cast(descriptor(), rules, make)


@asynccontextmanager
async def stage(
    deployed: Any,
    folder: Path,
    *,
    exact: bool = False,
    nodes: int = 6,
    cast: Cast | None = None,
    hosted: Callable[[int], Segment] = lambda _: Segment(0, LAYERS),
) -> AsyncIterator[Stage]:
    """Model, class, scheduler, nodes and a client's escrow on a fresh contract."""
    anvil, chain = deployed.anvil, deployed.chain
    owner, client, scheduler = anvil.keys[1], anvil.keys[2], anvil.keys[3]
    playing = cast or toys(exact=exact)
    rules = playing.rules
    await chain.execute(register_model(playing.model), owner)
    await chain.execute(register_class(rules), owner)
    await chain.execute(deposit(client.address, 100 * fee(rules, len(playing.ends))), client)
    await _register_scheduler(chain, owner, scheduler, deployed.parameters.minimum_scheduler_stake)
    async with AsyncExitStack() as stack:
        made = []
        for number in range(nodes):
            secret = keccak256(b"toy node %d" % number + chain.contract.encode())
            node = playing.make_node(secret, chain, folder / f"node-{number}", scheduler.address)
            await stack.enter_async_context(serving(node.server))
            await _register_node(chain, owner, node, rules, hosted(number), playing.ends)
            made.append(node)
        for node in made:
            node.members = [other.address for other in made]
        anvil.mine(2)
        yield Stage(anvil, chain, anvil.url, client, scheduler, owner, rules, made, folder, ends=playing.ends)


@asynccontextmanager
async def second_scheduler(scene: Stage, key: Key) -> AsyncIterator[Stage]:
    """The same stage with another scheduler, registered and known to the nodes, in a folder of its own."""
    parameters = await scene.chain.read(parameters_of())
    await _register_scheduler(scene.chain, scene.owner, key, parameters.minimum_scheduler_stake)
    for node in scene.nodes:
        node.schedulers.add(key.address)
    scene.anvil.mine()
    yield replace(scene, scheduler=key, folder=scene.folder / "second", nonce=10**6)


async def _register_scheduler(chain: Chain, owner: Key, scheduler: Key, stake: int) -> None:
    x, y = vrf.public_key(VRF_SECRET)
    registration = SchedulerRegistration(
        scheduler.address, owner.address, x, y, "https://127.0.0.1:1", Hash32(bytes(32))
    )
    consent = Operator(scheduler.secret, chain.domain).sign(Consent(owner.address, scheduler.address))
    await chain.execute(register_scheduler(registration, consent, stake), owner)


async def _register_node(
    chain: Chain, owner: Key, node: Any, rules: ExecutionClass, hosted: Segment, ends: tuple[int, ...]
) -> None:
    segments = [one for one in segments_from_ends(ends, LAYERS) if hosted.first <= one.first and one.end <= hosted.end]
    registration = NodeRegistration(
        operator=node.address,
        payout=owner.address,
        execution_class=class_id(rules),
        first=hosted.first,
        end=hosted.end,
        segments=tuple(segments),
        endpoint=node.endpoint,
        tls_key_hash=Hash32(node.identity.spki_sha256),
    )
    consent = node.operator.sign(Consent(owner.address, node.address))
    await chain.execute(register_node(registration, consent, rules.minimum_stake), owner)
