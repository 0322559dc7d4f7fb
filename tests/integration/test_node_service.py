"""A whole task between nodes: prompts, rows, repeats, restarts, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.node_network import (  # noqa: E402
    BLOCK_HASH,
    CLIENT,
    DOMAIN,
    HIDDEN,
    LAYERS,
    PROMPT,
    SALT,
    VOCABULARY,
    VRF_SECRET,
    Network,
    build,
    countersigned,
    infer,
    put_on_chain,
    run_to_commit,
    tiny_model,
    verdicts,
)

from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import BadInput, NotAssigned  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.quantise import quantise  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.signing_record import SigningRecord  # noqa: E402
from troth.protocol import typed_data, vrf  # noqa: E402
from troth.protocol.assignment import sample_alpha  # noqa: E402
from troth.protocol.dtype import Dtype  # noqa: E402
from troth.protocol.errors import (  # noqa: E402
    InvalidRows,
    WireError,
    WrongAssignment,
)
from troth.protocol.identifiers import verdict_commitment  # noqa: E402
from troth.protocol.request import output_hash  # noqa: E402
from troth.protocol.sampling import tile_indices  # noqa: E402
from troth.protocol.tensors import rows_from_bytes, tokens_to_bytes  # noqa: E402
from troth.protocol.trace import TileOpening, opening_root, tile_count  # noqa: E402
from troth.protocol.types import (  # noqa: E402
    Hash32,
    Segment,
    TraceRoot,
)
from troth.protocol.wire import Commit, Forward, Open, Release, Rows  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


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
    with pytest.raises(BadInput, match="not the one that was computed"):
        await network.ask(network.parties[1][1], Commit(network.task, 1, 1, start, 12), forged)
    forged = tokens_to_bytes([*text[:-1], (text[-1] + 1) % VOCABULARY])
    with pytest.raises(BadInput, match="earlier attempt" if streamed == 12 else "this node chose"):
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
