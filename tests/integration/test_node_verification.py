"""Verifiers: they commit before they see, judge what was signed, and open when it is time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support.node_network import (  # noqa: E402
    BLOCK_HASH,
    CLIENT,
    DOMAIN,
    HIDDEN,
    LAYERS,
    PROMPT,
    VOCABULARY,
    VRF_SECRET,
    build,
    compare,
    comparison,
    infer,
    put_on_chain,
    run_to_commit,
    tiny_model,
    verdicts,
    verify,
)

from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import NotAssigned, OutOfOrder  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.quantise import quantise  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.traces import UNDECIDED, TraceStore  # noqa: E402
from troth.protocol import typed_data, vrf  # noqa: E402
from troth.protocol.assignment import sample_alpha  # noqa: E402
from troth.protocol.errors import (  # noqa: E402
    InvalidProof,
    InvalidRows,
    InvalidSignature,
)
from troth.protocol.identifiers import class_id, trace_commitment  # noqa: E402
from troth.protocol.pooling import LEAST_TOKENS, Pool  # noqa: E402
from troth.protocol.task import Task  # noqa: E402
from troth.protocol.tensors import tokens_to_bytes  # noqa: E402
from troth.protocol.types import (  # noqa: E402
    Hash32,
    Segment,
)
from troth.protocol.wire import Commit, Forward, Open  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


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


async def test_margins_are_pooled_per_inferencer_and_decide_when_there_are_enough(
    folder: ModelFolder, tmp_path: Path
) -> None:
    """A verifier that has seen an inferencer lose too much in earlier texts refuses the next one, good as it is."""
    network = build(folder, tmp_path, dtype=1)
    inferencer, wary = network.parties[1][0], network.parties[1][-1]
    class_ = class_id(network.view.execution)
    network.benches[wary].margins.add(inferencer, class_, Hash32(b"e" * 32), Pool(LEAST_TOKENS, 60.0, 1.0))
    await run_to_commit(network)
    assert verdicts(network, 0) == [1, 1, 1]
    assert verdicts(network, 1) == [1, 1, 0]
    for verifier in network.parties[1][2:]:
        seen = network.benches[verifier].margins.of(inferencer, class_).tokens
        assert seen == 12 + (LEAST_TOKENS if verifier == wary else 0)


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
