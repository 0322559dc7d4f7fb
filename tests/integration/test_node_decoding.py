"""An inferencer of the whole model that decodes alone: the same tokens, rows and signatures, and nothing for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.node_network import DOMAIN, LAYERS, PROMPT, VOCABULARY, Network, build, tiny_model  # noqa: E402

from troth.node.engine.interface import Computed  # noqa: E402
from troth.node.errors import BadInput, Busy, OutOfOrder  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.service.decoding import AHEAD  # noqa: E402
from troth.node.signing_record import ROW, Subject  # noqa: E402
from troth.protocol.logprobs import logprobs_from_bytes  # noqa: E402
from troth.protocol.rows import RowChain, verify_rows  # noqa: E402
from troth.protocol.tensors import tokens_from_bytes, tokens_to_bytes  # noqa: E402
from troth.protocol.wire import Commit, Decode, Decoded, Forward, Release, Rows  # noqa: E402

ROW_BYTES, START = 32 * 4, len(PROMPT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def network(folder: ModelFolder, tmp_path: Path) -> Network:
    return build(folder, tmp_path, ends=(LAYERS,), max_tokens=200)


async def prefilled(network: Network, node: str | None = None, **fields: Any) -> tuple[Rows, bytes]:
    reply: tuple[Rows, bytes] = await network.ask(
        node or network.parties[0][0], *network.first_message(0, tokens_to_bytes(PROMPT), START, emit=True, **fields)
    )
    return reply


async def decoded(
    network: Network, start: int, most: int = 64, **fields: Any
) -> tuple[Decoded, tuple[int, ...], bytes]:
    reply, payload = await network.ask(network.parties[0][0], Decode(network.task, 0, 0, start, most, **fields))
    size = 4 * reply.count
    return reply, tokens_from_bytes(payload[:size], reply.count, VOCABULARY), payload[size:]


async def until_the_end(network: Network, most: int = 64) -> tuple[list[int], bytes]:
    """Every token and row of an answer; each signature is checked on the way."""
    rows, data = await prefilled(network)
    tokens = [rows.token]
    chain, signer = RowChain(network.task, 0, 0), network.parties[0][0]
    chain, _ = verify_rows(chain, data, ROW_BYTES, rows.row, signer=signer, domain=DOMAIN, tokens=PROMPT)
    finished, start = None, START
    while finished is None:
        reply, chosen, more = await decoded(network, start, most)
        bound = [tokens[-1], *chosen[:-1]]
        chain, _ = verify_rows(chain, more, ROW_BYTES, reply.row, signer=signer, domain=DOMAIN, tokens=bound)
        tokens, data, start, finished = [*tokens, *chosen], data + more, start + reply.count, reply.finished
    assert finished == "length"
    return tokens, data


async def relayed(network: Network) -> tuple[list[int], bytes]:
    """The same answer, asked for token by token."""
    node = network.parties[0][0]
    rows, data = await prefilled(network)
    tokens, start = [rows.token], START
    while rows.finished is None:
        again = Forward(network.task, 0, 0, start, 1, "tokens", True)
        rows, more = await network.ask(node, again, tokens_to_bytes(tokens[-1:]))
        tokens, data, start = [*tokens, rows.token], data + more, start + 1
    return tokens, data


@pytest.mark.parametrize("most", [1, 7, 64])
async def test_what_is_decoded_alone_is_what_would_have_been_relayed(
    folder: ModelFolder, network: Network, tmp_path: Path, most: int
) -> None:
    tokens, data = await until_the_end(network, most)
    other = build(folder, tmp_path / "relayed", ends=(LAYERS,), max_tokens=200)
    assert (tokens, data) == await relayed(other)
    assert len(tokens) == 200
    committed, _ = await network.ask(network.parties[0][0], Commit(network.task, 0, 0, START + 199))
    expected, _ = await other.ask(other.parties[0][0], Commit(other.task, 0, 0, START + 199))
    assert (committed.root, committed.output_hash) == (expected.root, expected.output_hash)


async def test_a_lost_answer_is_given_again(network: Network) -> None:
    await prefilled(network)
    first = await decoded(network, START, 3)
    await decoded(network, START + first[0].count, 1)
    again = await decoded(network, START, first[0].count)
    assert again[1:] == first[1:]
    assert again[0].row == first[0].row


async def test_the_record_knows_every_row_that_a_signature_covers(network: Network) -> None:
    await prefilled(network)
    start = START
    while start < START + 20:
        start += (await decoded(network, start, 5))[0].count
    subject = Subject(network.task, 0, 0, ROW, start - 1)
    known = network.benches[network.parties[0][0]].record._known(subject, [0])
    assert sorted(known) == list(range(start))


async def test_log_probabilities_come_with_every_token(network: Network) -> None:
    await prefilled(network, logprobs=3)
    reply, chosen, _ = await decoded(network, START, 9, logprobs=3)
    assert len(reply.logprobs) == reply.count
    for packed, token in zip(reply.logprobs, chosen, strict=True):
        assert len(logprobs_from_bytes(packed, token, count=3, vocabulary=VOCABULARY).top) == 3
    with pytest.raises(BadInput, match="other log probabilities"):
        await decoded(network, START + reply.count)


async def test_messages_that_do_not_fit_change_nothing(folder: ModelFolder, network: Network, tmp_path: Path) -> None:
    with pytest.raises(OutOfOrder, match="no such session"):
        await decoded(network, START)
    await prefilled(network)
    for start in (0, START - 1, START + 1, 2**32 - 1):
        with pytest.raises(OutOfOrder):
            await decoded(network, start)
    verifier = network.parties[0][2]
    await network.ask(verifier, *network.first_message(0, tokens_to_bytes(PROMPT), START))
    with pytest.raises(BadInput, match="only the inferencer"):
        await network.ask(verifier, Decode(network.task, 0, 0, START, 1))
    parts = build(folder, tmp_path / "parts")
    node = parts.parties[0][0]
    await parts.ask(node, *parts.first_message(0, tokens_to_bytes(PROMPT), START))
    with pytest.raises(BadInput, match="whole model"):
        await parts.ask(node, Decode(parts.task, 0, 0, START, 1))
    assert (await decoded(network, START))[0].start == START


async def test_before_a_token_was_chosen_there_is_nothing_to_go_on_from(network: Network) -> None:
    await network.ask(network.parties[0][0], *network.first_message(0, tokens_to_bytes(PROMPT), START))
    with pytest.raises(OutOfOrder, match="no token was chosen"):
        await decoded(network, START)


async def test_nothing_comes_after_the_end(network: Network) -> None:
    tokens, _ = await until_the_end(network)
    end = START + len(tokens) - 1
    with pytest.raises(BadInput, match="the text has ended"):
        await decoded(network, end)
    await network.ask(network.parties[0][0], Commit(network.task, 0, 0, end))
    with pytest.raises(OutOfOrder, match="committed"):
        await decoded(network, START)


async def test_it_runs_ahead_only_so_far(network: Network) -> None:
    """A scheduler that goes away gets no free answer: the loop waits once it is `AHEAD` positions further."""
    node = network.parties[0][0]
    engine, computed = network.benches[node].engine, []
    reached = {AHEAD + 1: asyncio.Event(), AHEAD + 41: asyncio.Event()}
    forward = engine.forward

    async def counted(*arguments: Any) -> Computed:
        computed.append(arguments[2])
        if len(computed) in reached:
            reached[len(computed)].set()
        return await forward(*arguments)

    await prefilled(network)
    engine.forward = counted  # type: ignore[method-assign]
    await decoded(network, START, 1)
    await reached[AHEAD + 1].wait()
    work = network.services[node]._works[network.task, 0, 0]
    async with work.lock:
        # The loop has done that position now, and would be at the next one.
        await asyncio.sleep(0)
    async with work.lock:
        assert len(computed) == AHEAD + 1
    await decoded(network, START + 40, 1)
    await reached[AHEAD + 41].wait()


async def test_release_ends_the_loop_and_tells_who_waits(network: Network) -> None:
    node = network.parties[0][0]
    engine, held = network.benches[node].engine, asyncio.Event()

    async def never(*_arguments: Any) -> Computed:
        held.set()
        await asyncio.Event().wait()
        raise AssertionError

    await prefilled(network)
    engine.forward = never  # type: ignore[method-assign]
    waiting = asyncio.create_task(decoded(network, START))
    await held.wait()
    await network.ask(node, Release(network.task))
    with pytest.raises(OutOfOrder, match="released"):
        await waiting
    assert engine.cache_bytes == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "decoding"]


async def test_after_a_failure_of_the_engine_it_goes_on_where_it_was(
    folder: ModelFolder, network: Network, tmp_path: Path
) -> None:
    node = network.parties[0][0]
    engine = network.benches[node].engine
    forward, calls = engine.forward, []

    async def failing(*arguments: Any) -> Computed:
        calls.append(arguments[2])
        if len(calls) == 4:
            raise Busy("no memory left", None, "Try again.")
        return await forward(*arguments)

    rows, _ = await prefilled(network)
    engine.forward = failing  # type: ignore[method-assign]
    tokens, start = [rows.token], START
    while start < START + 30:
        # Whoever waits is told; whoever asks afterwards is not.
        with contextlib.suppress(Busy):
            reply, chosen, _ = await decoded(network, start)
            tokens, start = [*tokens, *chosen], start + reply.count
    assert len(calls) > len(set(calls))
    undisturbed, _ = await relayed(build(folder, tmp_path / "relayed", ends=(LAYERS,), max_tokens=200))
    assert tokens == undisturbed[: len(tokens)]


async def test_a_release_that_comes_with_the_first_decode_leaves_nobody_waiting(network: Network) -> None:
    """Both in one packet: the loop is stopped before its first step, and must say so. A request that is never answered
    holds its place for ever, and a few dozen of them would close the node to everybody."""
    await prefilled(network)
    node = network.parties[0][0]
    asking = asyncio.create_task(network.ask(node, Decode(network.task, 0, 0, START, 64)))
    releasing = asyncio.create_task(network.ask(node, Release(network.task)))
    async with asyncio.timeout(60):
        with pytest.raises(OutOfOrder, match="released"):
            await asking
        await releasing
