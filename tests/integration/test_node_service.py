"""A whole task between seven nodes of a small model, with real proofs, signatures, records and engines.

The scheduler's side is played by the test; only the chain is a fake: the state that a follower would have folded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import BadInput, NotAssigned, OutOfOrder  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.classes import default_class  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.quantise import quantise  # noqa: E402
from troth.node.service.bench import Bench  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.signing_record import SigningRecord  # noqa: E402
from troth.node.traces import UNDECIDED, TraceStore  # noqa: E402
from troth.overlay.operator import Operator  # noqa: E402
from troth.protocol import typed_data, vrf  # noqa: E402
from troth.protocol.announcement import Announcement, announcement_to_wire  # noqa: E402
from troth.protocol.assignment import assignment_alpha, draw, sample_alpha, tile_indices  # noqa: E402
from troth.protocol.contract_types import Account, Parameters, Role  # noqa: E402
from troth.protocol.dtype import Dtype  # noqa: E402
from troth.protocol.errors import (  # noqa: E402
    InvalidProof,
    InvalidRows,
    InvalidSignature,
    WireError,
    WrongAssignment,
)
from troth.protocol.identifiers import class_id, fee, model_id, task_id, trace_commitment, verdict_commitment  # noqa: E402
from troth.protocol.request import Request, output_hash, request_hash  # noqa: E402
from troth.protocol.task import Phase, Progress, Task, Terms, pack_ends  # noqa: E402
from troth.protocol.tensors import rows_from_bytes, tokens_to_bytes  # noqa: E402
from troth.protocol.trace import TileOpening, opening_root, tile_count  # noqa: E402
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
from troth.protocol.wire import Commit, Committed, Compare, Forward, Open, Release, Rows, RowSignature  # noqa: E402

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
    head: int = HEAD
    balance: int = 10**18
    domain: typed_data.Domain = DOMAIN
    parameters: Parameters = field(
        default_factory=lambda: Parameters(20, 20, 20, 300, 1, typed_data.address_of(b"\x78" * 32))
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
        return list(self.nodes) if segment in SEGMENTS else []

    def escrow(self, client: Address) -> int:
        return self.balance

    def task(self, task: Hash32) -> Task | None:
        return self.tasks.get(task)

    def ended(self, task: Hash32) -> bool:
        return False

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def announce(view: FakeView, request: Request, nonce: int) -> Announcement:
    order = Order(
        class_id(view.execution), request_hash(request, SALT), typed_data.address_of(SCHEDULER),
        10**18, int(NOW) + 600, HEAD - 1, nonce,
    )  # fmt: skip
    task = task_id(order, DOMAIN)
    alphas = [
        assignment_alpha(DOMAIN, task, index, group_size=len(view.nodes), reference_block=HEAD - 1)
        for index in range(len(ENDS))
    ]
    proofs = [vrf.prove(VRF_SECRET, alpha) for alpha in alphas]
    betas = [Hash32(vrf.verify(vrf.public_key(VRF_SECRET), a, p)) for a, p in zip(alphas, proofs, strict=True)]
    signature = typed_data.sign(order, DOMAIN, CLIENT)
    return Announcement(order, signature, ENDS, tuple(betas), tuple(proofs), request, SALT)


def build(
    folder: ModelFolder, tmp_path: Path, *, dtype: int = 0, temperature: int = 700_000, nonce: int = 1
) -> Network:
    model = ModelDescriptor("llama/tiny", LAYERS, HIDDEN, VOCABULARY, dtype, Hash32(b"w" * 32))
    execution = default_class(model_id(model), dtype, "tiny", 10)
    secrets = [bytes([40 + index]) * 32 for index in range(7)]
    view = FakeView(execution, model, [typed_data.address_of(secret) for secret in secrets])
    request = Request(class_id(execution), PROMPT, 12, temperature, 950_000, ())
    announcement = announce(view, request, nonce)
    services, benches = {}, {}
    for secret in secrets:
        operator = Operator(secret, DOMAIN)
        home = tmp_path / operator.address
        bench = Bench(
            TorchEngine(folder, Segment(0, LAYERS), dtype), view, operator, class_id(execution),
            SigningRecord(home / "signed.sqlite"), TraceStore(home / "traces"), clock=lambda: NOW,
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


async def run_to_commit(network: Network) -> tuple[Inferred, list[list[Any]]]:
    result = await infer(network)
    compared: list[list[Any]] = [[], []]
    for segment in (0, 1):
        for verifier in network.parties[segment][2:]:
            promise, reply = await verify(network, result, segment, verifier)
            signed = TraceCommitment(network.task, segment, 0, promise.commitment)
            typed_data.require_signer(signed, DOMAIN, promise.signature, verifier)
            statement = VerdictCommitment(network.task, segment, 0, reply.commitment)
            typed_data.require_signer(statement, DOMAIN, reply.signature, verifier)
            compared[segment].append(reply)
    return result, compared


@pytest.mark.parametrize(("dtype", "temperature"), [(0, 700_000), (0, 0), (1, 700_000)])
async def test_a_task_from_prompt_to_opening(folder: ModelFolder, tmp_path: Path, dtype: int, temperature: int) -> None:
    network = build(folder, tmp_path, dtype=dtype, temperature=temperature)
    result, compared = await run_to_commit(network)
    assert len(result.tokens) == 12
    assert result.roots[1].output_hash == output_hash(SALT, result.tokens)
    for segment in (0, 1):
        reply = result.roots[segment]
        positions = len(PROMPT) + len(result.tokens) - 1
        statement = TraceRoot(network.task, segment, 0, positions, Hash32(reply.root), Hash32(reply.output_hash))
        typed_data.require_signer(statement, DOMAIN, reply.signature, network.parties[segment][0])
        assert verdicts(network, segment) == [1, 1, 1]
    task = put_on_chain(network, result, compared)
    alpha = sample_alpha(DOMAIN, network.task, posts=task.progress.posts, block_hash=BLOCK_HASH)
    proof = vrf.prove(VRF_SECRET, alpha)
    seed = Hash32(vrf.verify(vrf.public_key(VRF_SECRET), alpha, proof))
    count = tile_count(task.progress.positions, HIDDEN, Dtype(dtype))
    for segment in (0, 1):
        for party, node in enumerate([network.parties[segment][0], *network.parties[segment][2:]]):
            opened, payload = await network.ask(node, Open(network.task, segment, 0, proof))
            siblings = payload[opened.tiles * 512 :]
            opening = TileOpening(
                payload[: opened.tiles * 512], tuple(siblings[i : i + 32] for i in range(0, len(siblings), 32))
            )
            indices = tile_indices(seed, segment, 1, count)
            assert opening_root(task.progress.positions, HIDDEN, Dtype(dtype), indices, opening) == opened.root
            if party:
                expected = verdict_commitment(
                    network.task, segment, node, root=Hash32(opened.root), verdict=True, salt=Hash32(opened.salt)
                )
                assert expected == task.posts_of(segment)[party]


async def test_int8_weights_are_rejected_by_every_verifier(folder: ModelFolder, tmp_path: Path) -> None:
    networks = (build(folder, tmp_path / str(nonce), nonce=nonce) for nonce in range(20))
    network = next(found for found in networks if found.parties[1][0] not in found.parties[0])
    cheater = network.parties[1][0]
    cheap = quantise(folder, tmp_path / "int8", 8, lambda line: None)
    engine = TorchEngine(cheap, Segment(0, LAYERS), 0)
    network.services[cheater] = NodeService(dataclasses.replace(network.benches[cheater], engine=engine), Metrics())
    await run_to_commit(network)
    assert verdicts(network, 0) == [1, 1, 1]
    assert verdicts(network, 1) == [0, 0, 0]


async def test_a_repeated_message_gets_the_same_answer(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    node = network.parties[0][0]
    first = await network.ask(node, header, payload)
    repeated = await network.ask(node, header, payload)
    assert (repeated[0].row, repeated[1]) == (first[0].row, first[1])
    again = Forward(network.task, 0, 0, 2, 3, "tokens", False)
    reply, data = await network.ask(node, again, tokens_to_bytes(PROMPT[2:5]))
    assert data == first[1][2 * HIDDEN * 4 : 5 * HIDDEN * 4]
    assert isinstance(reply, Rows)
    assert reply.row.position == 4


async def test_a_restarted_node_never_signs_another_row(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node = network.parties[0][0]
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    await network.ask(node, header, payload)
    cheap = quantise(folder, tmp_path / "int8", 8, lambda line: None)
    bench = network.benches[node]
    bench.record.close()
    changed = dataclasses.replace(
        bench,
        engine=TorchEngine(cheap, Segment(0, LAYERS), 0),
        record=SigningRecord(tmp_path / node / "signed.sqlite"),
    )
    network.services[node] = NodeService(changed, Metrics())
    with pytest.raises(Exception, match="signed something else"):
        await network.ask(node, header, payload)


async def test_announcements_that_do_not_hold_are_refused(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    node = network.parties[0][0]
    outsider = next(node for node in network.view.nodes if node not in network.parties[0])
    with pytest.raises(NotAssigned, match="not among"):
        await network.ask(outsider, header, payload)
    with pytest.raises(NotAssigned, match="another scheduler"):
        await network.ask(node, header, payload, sender=typed_data.address_of(CLIENT))
    with pytest.raises(NotAssigned, match="another task"):
        await network.ask(node, _changed(header, task_id=b"x" * 32), payload)
    network.view.balance = 0
    with pytest.raises(NotAssigned, match="escrow"):
        await network.ask(node, header, payload)
    network.view.balance = 10**18
    network.view.nodes.append(outsider)
    with pytest.raises(WrongAssignment, match="VRF"):
        await network.ask(node, header, payload)
    assert network.services[node].sessions == 0


def _changed(header: Any, **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(header, **changes)


async def test_bad_tensors_change_nothing(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    lower, data = await network.ask(
        network.parties[0][0], *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    )
    node = network.parties[1][0]
    rows = rows_from_bytes(data, len(PROMPT), HIDDEN, Dtype.FLOAT32).copy()
    rows[3, 3] = np.nan
    bound = tokens_to_bytes(PROMPT)
    header, payload = network.first_message(
        1, bound + data, len(PROMPT), upstream=lower.row, countersignature=countersigned(network, lower.row)
    )
    request = payload[: header.request_size]
    outside = tokens_to_bytes((VOCABULARY, *PROMPT[1:]))
    for bad in (data, bound[:-1], bound + data[:-4], bound + data + data, bound + rows.tobytes(), outside + data, b""):
        with pytest.raises(WireError):
            await network.ask(node, header, request + bad)
    for first, states in ((PROMPT[0] + 1, data), (PROMPT[0], bytes([data[0] ^ 1]) + data[1:])):
        with pytest.raises(InvalidRows, match="not those that"):
            await network.ask(node, header, request + tokens_to_bytes((first, *PROMPT[1:])) + states)
    with pytest.raises(BadInput, match="signature"):
        await network.ask(node, _changed(header, upstream=None), payload)
    reply, _ = await network.ask(node, header, payload)
    assert reply.row.position == len(PROMPT) - 1


async def test_the_prompt_that_was_ordered_is_the_one_that_is_computed(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    other = (4, *PROMPT[1:])
    with pytest.raises(BadInput, match="prompt"):
        await network.ask(network.parties[0][0], *network.first_message(0, tokens_to_bytes(other), len(other)))
    for emit in (True,):
        with pytest.raises(BadInput, match="chooses tokens"):
            await network.ask(
                network.parties[0][0], *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT), emit=emit)
            )


async def test_a_verifier_commits_before_it_sees_rows_and_only_once(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    result = await infer(network)
    verifier = network.parties[0][2]
    header, payload = network.first_message(0, tokens_to_bytes((*PROMPT, *result.tokens[:-1])), 21)
    await network.ask(verifier, header, payload)
    rows = b"".join(result.rows[0])
    with pytest.raises(OutOfOrder, match="committed"):
        await network.ask(verifier, comparison(network, result, 0), rows)
    promise, _ = await network.ask(verifier, Commit(network.task, 0, 0, 21))
    trace = network.benches[verifier].traces.find(network.task, 0, 0)
    assert trace is not None
    root, salt = Hash32(trace.root), Hash32(trace.salt)
    assert promise.commitment == trace_commitment(network.task, 0, verifier, root=root, salt=salt)
    forged = bytes([rows[0] ^ 1]) + rows[1:]
    with pytest.raises(Exception, match=r"signed|chained"):
        await network.ask(verifier, comparison(network, result, 0), forged)
    with pytest.raises(InvalidSignature):
        await network.ask(verifier, comparison(network, result, 0, root=b"r" * 32), rows)
    first = await compare(network, result, 0, verifier)
    assert await compare(network, result, 0, verifier) == first


@pytest.mark.parametrize("position", [len(PROMPT), 15, 20])
async def test_a_verifier_that_was_shown_other_tokens_refuses_to_judge(
    folder: ModelFolder, tmp_path: Path, position: int
) -> None:
    """A scheduler cannot have an honest inferencer slashed by handing its verifiers another text."""
    network = build(folder, tmp_path)
    result = await infer(network)
    text = [*PROMPT, *result.tokens[:-1]]
    text[position] = (text[position] + 1) % VOCABULARY
    deceived, honest = network.parties[0][2:4]
    await network.ask(deceived, *network.first_message(0, tokens_to_bytes(text), len(text)))
    await network.ask(deceived, Commit(network.task, 0, 0, len(text)))
    with pytest.raises(InvalidRows, match="not those that"):
        await compare(network, result, 0, deceived)
    trace = network.benches[deceived].traces.find(network.task, 0, 0)
    assert trace is not None
    assert (trace.verdict, trace.commitment) == (UNDECIDED, b"")
    await verify(network, result, 0, honest)
    trace = network.benches[honest].traces.find(network.task, 0, 0)
    assert trace is not None
    assert trace.verdict == 1


async def test_rows_to_compare_may_come_in_pieces(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    result = await infer(network)
    verifier = network.parties[0][2]
    header, payload = network.first_message(0, tokens_to_bytes((*PROMPT, *result.tokens[:-1])), 21)
    await network.ask(verifier, header, payload)
    await network.ask(verifier, Commit(network.task, 0, 0, 21))
    rows, size = b"".join(result.rows[0]), HIDDEN * 4
    received, _ = await network.ask(verifier, comparison(network, result, 0, count=8), rows[: 8 * size])
    assert received.positions == 8
    with pytest.raises(OutOfOrder):
        await network.ask(verifier, comparison(network, result, 0, start=9, count=12), rows[9 * size :])
    await network.ask(verifier, comparison(network, result, 0, start=8, count=13), rows[8 * size :])
    trace = network.benches[verifier].traces.find(network.task, 0, 0)
    assert trace is not None
    assert trace.verdict == 1


async def test_nothing_is_opened_early_or_for_a_seed_of_choice(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    result, compared = await run_to_commit(network)
    node = network.parties[0][0]
    alpha = sample_alpha(DOMAIN, network.task, posts=(), block_hash=BLOCK_HASH)
    proof = vrf.prove(VRF_SECRET, alpha)
    with pytest.raises(OutOfOrder, match="not on chain"):
        await network.ask(node, Open(network.task, 0, 0, proof))
    task = put_on_chain(network, result, compared)
    with pytest.raises(InvalidProof):
        await network.ask(node, Open(network.task, 0, 0, proof))
    with pytest.raises(OutOfOrder, match="seed"):
        await network.ask(node, Open(network.task, 0, 0))
    good = vrf.prove(VRF_SECRET, sample_alpha(DOMAIN, network.task, posts=task.progress.posts, block_hash=BLOCK_HASH))
    with pytest.raises(NotAssigned):
        await network.ask(node, Open(network.task, 0, 0, good), sender=typed_data.address_of(CLIENT))
    others = list(task.progress.posts)
    others[0] = Hash32(b"o" * 32)
    network.view.tasks[network.task] = Task(task.terms, dataclasses.replace(task.progress, posts=tuple(others)))
    with pytest.raises(OutOfOrder, match="another commitment"):
        await network.ask(node, Open(network.task, 0, 0, good))


async def test_a_node_killed_after_committing_still_opens(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    result, compared = await run_to_commit(network)
    task = put_on_chain(network, result, compared)
    verifier = network.parties[1][3]
    bench = network.benches[verifier]
    bench.traces.close()
    reborn = dataclasses.replace(bench, traces=TraceStore(tmp_path / verifier / "traces"))
    network.services[verifier] = NodeService(reborn, Metrics())
    proof = vrf.prove(VRF_SECRET, sample_alpha(DOMAIN, network.task, posts=task.progress.posts, block_hash=BLOCK_HASH))
    opened, _ = await network.ask(verifier, Open(network.task, 1, 0, proof))
    assert opened.verdict


async def test_after_commit_there_is_no_other_row(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node = network.parties[0][0]
    await network.ask(node, *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    with pytest.raises(OutOfOrder, match="computed"):
        await network.ask(node, Commit(network.task, 0, 0, len(PROMPT) + 1))
    first = await network.ask(node, Commit(network.task, 0, 0, len(PROMPT)))
    assert await network.ask(node, Commit(network.task, 0, 0, len(PROMPT))) == first
    with pytest.raises(OutOfOrder, match="committed already"):
        await network.ask(node, Forward(network.task, 0, 0, len(PROMPT), 1, "tokens", False), tokens_to_bytes([1]))


@pytest.mark.parametrize("streamed", [1, 5, 12])
async def test_another_candidate_takes_over(folder: ModelFolder, tmp_path: Path, streamed: int) -> None:
    network = build(folder, tmp_path)
    result = await infer(network)
    text = result.tokens[:streamed]
    sequence = (*PROMPT, *text[:-1]) if streamed == 12 else (*PROMPT, *text)
    lower, data = await _second_attempt(network, 0, tokens_to_bytes(sequence), len(sequence))
    proof = {"upstream": lower.row, "countersignature": countersigned(network, lower.row, 1)}
    data = tokens_to_bytes(sequence) + data
    upper, _ = await _second_attempt(network, 1, data, len(sequence), emit=streamed < 12, **proof)
    start = len(sequence)
    while streamed < 12 and not upper.finished:
        text.append(upper.token)
        again = Forward(network.task, 0, 1, start, 1, "tokens", False)
        lower, data = await network.ask(network.parties[0][1], again, tokens_to_bytes(text[-1:]))
        again = Forward(
            network.task, 1, 1, start, 1, "rows", True, lower.row, countersigned(network, lower.row, 1)
        )  # fmt: skip
        upper, _ = await network.ask(network.parties[1][1], again, tokens_to_bytes(text[-1:]) + data)
        start += 1
    text = result.tokens if streamed == 12 else [*text, upper.token]
    assert text == result.tokens
    forged = tokens_to_bytes([(text[0] + 1) % VOCABULARY, *text[1:]])
    with pytest.raises(BadInput, match="earlier attempt"):
        await network.ask(network.parties[1][1], Commit(network.task, 1, 1, start, 12), forged)
    reply, _ = await network.ask(network.parties[1][1], Commit(network.task, 1, 1, start, 12), tokens_to_bytes(text))
    assert reply.output_hash == output_hash(SALT, text)


async def _second_attempt(network: Network, segment: int, payload: bytes, count: int, **fields: Any) -> Any:
    header, whole = network.first_message(segment, payload, count, **fields)
    return await network.ask(network.parties[segment][1], _changed(header, attempt=1), whole)


async def test_release_frees_memory(folder: ModelFolder, tmp_path: Path) -> None:
    network = build(folder, tmp_path)
    node = network.parties[0][0]
    await network.ask(node, *network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT)))
    assert network.benches[node].engine.cache_bytes > 0
    await network.ask(node, Release(network.task))
    assert network.benches[node].engine.cache_bytes == 0
    assert network.services[node].sessions == 0
