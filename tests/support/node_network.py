"""Seven nodes of a small model with real proofs, signatures, records and engines, and a scheduler that a test plays.

Only the chain is a fake: the state that a follower would have folded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.margin_pool import MarginPool  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.classes import default_class  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.service.bench import Bench  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.signing_record import SigningRecord  # noqa: E402
from troth.node.traces import TraceStore  # noqa: E402
from troth.overlay.operator import Operator  # noqa: E402
from troth.protocol import typed_data, vrf  # noqa: E402
from troth.protocol.announcement import Announcement, announcement_to_wire  # noqa: E402
from troth.protocol.assignment import assignment_alpha, draw  # noqa: E402
from troth.protocol.contract_types import Account, Parameters, Role  # noqa: E402
from troth.protocol.ends import pack_ends  # noqa: E402
from troth.protocol.identifiers import class_id, fee, model_id, task_id  # noqa: E402
from troth.protocol.request import Request, request_hash  # noqa: E402
from troth.protocol.state import ReviewRecord, State  # noqa: E402
from troth.protocol.task import Phase, Progress, Task, Terms  # noqa: E402
from troth.protocol.tensors import tokens_to_bytes  # noqa: E402
from troth.protocol.types import (  # noqa: E402
    ZERO_HASH,
    Address,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Order,
    Row,
    Segment,
    TraceCommitment,
    TraceRoot,
    VerdictCommitment,
)
from troth.protocol.wire import Commit, Committed, Compare, Forward  # noqa: E402
from troth.protocol.wire_fields import RowSignature  # noqa: E402

ENDS, LAYERS, HIDDEN, VOCABULARY = (2, 4), 4, 32, 48
SEGMENTS = (Segment(0, 2), Segment(2, 4))
PROMPT = (3, 14, 15, 9, 26, 5, 35, 8, 9, 7)
DOMAIN = typed_data.Domain(31337, typed_data.address_of(b"\x77" * 32))
NOW, HEAD, SALT = 1_000_000.0, 100, Hash32(b"s" * 32)
SCHEDULER, CLIENT, VRF_SECRET = b"\x11" * 32, b"\x22" * 32, (12345).to_bytes(32, "big")
BLOCK_HASH = Hash32(b"b" * 32)


@dataclass
class FakeView:
    """The state of a chain at one block."""

    execution: ExecutionClass
    model: ModelDescriptor
    nodes: list[Address]
    tasks: dict[bytes, Task] = field(default_factory=dict)
    reviews: dict[bytes, ReviewRecord] = field(default_factory=dict)
    registry: State = field(default_factory=State)
    head: int = HEAD
    balance: int = 10**18
    domain: typed_data.Domain = DOMAIN
    parameters: Parameters = field(
        default_factory=lambda: Parameters(20, 20, 20, 20, 400, 1, typed_data.address_of(b"\x78" * 32))
    )

    def account(self, operator: Address) -> Account | None:
        return Account(1, 0, 0, Role.SCHEDULER) if operator == typed_data.address_of(SCHEDULER) else None

    def vrf_key(self, scheduler: Address) -> tuple[int, int] | None:
        return vrf.public_key(VRF_SECRET)

    def descriptor(self, model: Hash32) -> ModelDescriptor | None:
        return self.model if model == model_id(self.model) else None

    def execution_class(self, class_: Hash32) -> ExecutionClass | None:
        return self.execution if class_ == class_id(self.execution) else None

    def members(self, class_: Hash32, segment: Segment, block: int) -> list[Address | None]:
        return list(self.nodes) if segment in (*SEGMENTS, Segment(0, LAYERS)) else []

    def slice_of(self, operator: Address, class_: Hash32) -> Segment | None:
        node = self.registry.nodes.get(operator)
        return node.slice if node else None

    def segments_of(self, operator: Address, since: int) -> frozenset[Segment]:
        return self.registry.segments_of(operator, since)

    def escrow(self, client: Address) -> int:
        return self.balance

    def task(self, task: Hash32) -> Task | None:
        return self.tasks.get(task)

    def ended_at(self, task: Hash32) -> int | None:
        return None

    def record(self, task: Hash32) -> None:
        return None

    def review(self, review: Hash32) -> ReviewRecord | None:
        return self.reviews.get(review)

    async def block_hash(self, block: int) -> Hash32:
        return BLOCK_HASH

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        return condition()


@dataclass
class Network:
    """Seven nodes and the scheduler's knowledge of one task."""

    services: dict[Address, NodeService]
    benches: dict[Address, Bench]
    view: FakeView
    announcement: Announcement
    parties: list[tuple[Address, ...]]
    task: Hash32
    sender: Address

    async def ask(self, node: Address, header: Any, payload: bytes = b"", sender: Address | None = None) -> Any:
        return await self.services[node].handle(sender or self.sender, header, memoryview(payload))

    def first_message(self, segment: int, payload: bytes, count: int, **fields: Any) -> tuple[Forward, bytes]:
        part, request = announcement_to_wire(self.announcement)
        header = Forward(
            self.task, segment, 0, 0, count, "rows" if segment else "tokens", fields.pop("emit", False),
            announcement=part, request_size=len(request), **fields,
        )  # fmt: skip
        return header, request + payload


def tiny_model(path: Path) -> ModelFolder:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=256,
        initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    path.mkdir()
    state = {name: value.contiguous() for name, value in model.state_dict().items() if "lm_head" not in name}
    save_file(state, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)


def announce(view: FakeView, request: Request, nonce: int, ends: tuple[int, ...] = ENDS) -> Announcement:
    order = Order(
        class_id(view.execution), request_hash(request, SALT), typed_data.address_of(SCHEDULER),
        10**18, int(NOW) + 600, HEAD - 1, nonce, pack_ends(ends),
    )  # fmt: skip
    task = task_id(order, DOMAIN)
    alphas = [
        assignment_alpha(DOMAIN, task, index, group_size=len(view.nodes), reference_block=HEAD - 1)
        for index in range(len(ends))
    ]
    proofs = [vrf.prove(VRF_SECRET, alpha) for alpha in alphas]
    betas = [Hash32(vrf.verify(vrf.public_key(VRF_SECRET), a, p)) for a, p in zip(alphas, proofs, strict=True)]
    signature = typed_data.sign(order, DOMAIN, CLIENT)
    return Announcement(order, signature, ends, tuple(betas), tuple(proofs), request, SALT)


def build(
    folder: ModelFolder, tmp_path: Path, *, dtype: int = 0, temperature: int = 700_000, nonce: int = 1,
    ends: tuple[int, ...] = ENDS, max_tokens: int = 12,
) -> Network:  # fmt: skip
    model = ModelDescriptor("llama/tiny", LAYERS, HIDDEN, VOCABULARY, dtype, Hash32(b"w" * 32))
    execution = default_class(model_id(model), dtype, "tiny", 10)
    secrets = [bytes([40 + index]) * 32 for index in range(7)]
    view = FakeView(execution, model, [typed_data.address_of(secret) for secret in secrets])
    request = Request(class_id(execution), PROMPT, max_tokens, temperature, 950_000, ())
    announcement = announce(view, request, nonce, ends)
    services, benches = {}, {}
    for secret in secrets:
        operator = Operator(secret, DOMAIN)
        home = tmp_path / operator.address
        bench = Bench(
            TorchEngine(folder, Segment(0, LAYERS), dtype), view, operator, class_id(execution),
            SigningRecord(home / "signed.sqlite"), TraceStore(home / "traces"),
            MarginPool(home / "margins.sqlite"), clock=lambda: NOW,
        )  # fmt: skip
        benches[operator.address] = bench
        services[operator.address] = NodeService(bench, Metrics())
    parties = [draw(beta, view.nodes, execution.parties) for beta in announcement.betas]
    order_task = task_id(announcement.order, DOMAIN)
    return Network(services, benches, view, announcement, parties, order_task, typed_data.address_of(SCHEDULER))


@dataclass
class Inferred:
    """What the scheduler holds after inference."""

    tokens: list[int] = field(default_factory=list)
    rows: list[list[bytes]] = field(default_factory=lambda: [[], []])
    last: dict[int, RowSignature] = field(default_factory=dict)
    roots: dict[int, Committed] = field(default_factory=dict)


def countersigned(network: Network, signature: RowSignature | None, attempt: int = 0) -> bytes | None:
    if signature is None:
        return None
    row = Row(
        network.task, 0, attempt, signature.position, Hash32(signature.row_hash), Hash32(signature.previous)
    )  # fmt: skip
    return typed_data.sign(row, DOMAIN, SCHEDULER)


async def infer(network: Network) -> Inferred:
    result, first, last = Inferred(), network.parties[0][0], network.parties[1][0]
    start, tokens = 0, list(PROMPT)
    while True:
        if start == 0:
            header, payload = network.first_message(0, tokens_to_bytes(tokens), len(tokens))
        else:
            header, payload = Forward(network.task, 0, 0, start, 1, "tokens", False), tokens_to_bytes(tokens)
        lower, data = await network.ask(first, header, payload)
        result.rows[0].append(data)
        data = tokens_to_bytes(tokens) + data
        if start == 0:
            header, payload = network.first_message(
                1, data, len(tokens), emit=True, upstream=lower.row, countersignature=countersigned(network, lower.row)
            )
        else:
            proof = {"upstream": lower.row, "countersignature": countersigned(network, lower.row)}
            header, payload = Forward(network.task, 1, 0, start, 1, "rows", True, **proof), data
        upper, data = await network.ask(last, header, payload)
        result.rows[1].append(data)
        result.last = {0: lower.row, 1: upper.row}
        start, tokens = start + len(tokens), [upper.token]
        result.tokens.append(upper.token)
        if upper.finished:
            break
    for segment in (0, 1):
        reply, _ = await network.ask(network.parties[segment][0], Commit(network.task, segment, 0, start))
        result.roots[segment] = reply
    return result


async def verify(network: Network, result: Inferred, segment: int, verifier: Address) -> tuple[Any, Any]:
    positions = len(PROMPT) + len(result.tokens) - 1
    sequence = (*PROMPT, *result.tokens[:-1])
    below = b"".join((tokens_to_bytes(sequence), *(result.rows[0] if segment else ())))
    upstream = result.last[0] if segment else None
    header, payload = network.first_message(
        segment, below, positions, upstream=upstream, countersignature=countersigned(network, upstream)
    )
    await network.ask(verifier, header, payload)
    tokens = tokens_to_bytes(result.tokens) if segment else b""
    promise, _ = await network.ask(
        verifier, Commit(network.task, segment, 0, positions, len(result.tokens) if segment else 0), tokens
    )
    return promise, await compare(network, result, segment, verifier)


def comparison(network: Network, result: Inferred, segment: int, **changes: Any) -> Compare:
    positions, root = len(PROMPT) + len(result.tokens) - 1, result.roots[segment]
    fields = {
        "inferencer": network.parties[segment][0], "positions": positions, "start": 0, "count": positions,
        "row": result.last[segment], "root": root.root, "output_hash": root.output_hash,
        "root_signature": root.signature, **changes,
    }  # fmt: skip
    return Compare(network.task, segment, 0, **fields)


async def compare(network: Network, result: Inferred, segment: int, verifier: Address) -> Any:
    reply, _ = await network.ask(verifier, comparison(network, result, segment), b"".join(result.rows[segment]))
    return reply


def put_on_chain(network: Network, result: Inferred, compared: list[list[Any]]) -> Task:
    order = network.announcement.order
    posts = [word for s in (0, 1) for word in (result.roots[s].root, *(reply.commitment for reply in compared[s]))]
    terms = Terms(
        typed_data.address_of(CLIENT), order.scheduler, order.execution_class,
        fee(network.view.execution, 2), order.reference_block, pack_ends(ENDS),
    )  # fmt: skip
    progress = Progress(
        Phase.COMMITTED, HEAD, 2, 2, 0, len(PROMPT) + len(result.tokens) - 1, result.roots[1].output_hash, ZERO_HASH,
        (*network.parties[0], *network.parties[1]), tuple(Hash32(post) for post in posts),
    )  # fmt: skip
    task = Task(terms, progress)
    network.view.tasks[network.task] = task
    network.view.head = HEAD + 1
    return task


def verdicts(network: Network, segment: int) -> list[int]:
    found = []
    for verifier in network.parties[segment][2:]:
        trace = network.benches[verifier].traces.find(network.task, segment, 0)
        assert trace is not None
        found.append(trace.verdict)
    return found


def result_positions(result: Inferred) -> int:
    return len(PROMPT) + len(result.tokens) - 1


async def run_to_commit(network: Network) -> tuple[Inferred, list[list[Any]]]:
    result = await infer(network)
    compared: list[list[Any]] = [[], []]
    for segment in (0, 1):
        for verifier in network.parties[segment][2:]:
            promise, reply = await verify(network, result, segment, verifier)
            signed = TraceCommitment(network.task, segment, 0, promise.commitment)
            typed_data.require_signer(signed, DOMAIN, promise.signature, verifier)
            root = result.roots[segment]
            place = (network.task, segment, 0)
            claim = TraceRoot(*place, result_positions(result), Hash32(root.root), Hash32(root.output_hash))
            statement = VerdictCommitment(*place, reply.commitment, typed_data.struct_hash(claim))
            typed_data.require_signer(statement, DOMAIN, reply.signature, verifier)
            compared[segment].append(reply)
    return result, compared
