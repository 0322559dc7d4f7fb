"""A pipeline of one segment: its inferencer decodes alone, and everything else is as with several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from support.real_nodes import HIDDEN, LAYERS, VOCABULARY, RealNode, real_stage

from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.wire import DECODE_LIMIT, Decode, Decoded, Forward
from troth.scheduler.assembly import assembled

pytestmark = [pytest.mark.chain, pytest.mark.slow]

Change = Callable[[Decoded, bytes], tuple[Decoded, bytes]]


async def collected(lifecycle: Any) -> list[dict[str, Any]]:
    return [line async for line in lifecycle.stream.lines()]


def tokens(lines: list[dict[str, Any]]) -> list[int]:
    return [line["id"] for line in lines if line["type"] == "token"]


def counting(node: RealNode) -> list[type]:
    """The kinds of messages that a node gets from now on."""
    seen: list[type] = []
    handle = node._service.handle

    async def noted(sender: Any, header: Any, payload: Any) -> Any:
        seen.append(type(header))
        return await handle(sender, header, payload)

    node._service.handle = noted  # type: ignore[method-assign]
    return seen


def altering(node: RealNode, change: Change) -> None:
    """A node whose answers to Decode are changed on their way."""
    handle = node._service.handle

    async def altered(sender: Any, header: Any, payload: Any) -> Any:
        reply, data = await handle(sender, header, payload)
        return change(reply, data) if isinstance(reply, Decoded) else (reply, data)

    node._service.handle = altered  # type: ignore[method-assign]


@pytest.mark.parametrize("dtype", [0, 1], ids=["float32", "bfloat16"])
async def test_an_answer_decoded_alone_is_verified_and_paid(deployed: Any, tmp_path: Path, dtype: int) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,), dtype=dtype) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        seen = [counting(node) for node in scene.nodes]
        lines = await collected(await scheduler.submit(await scene.order(max_tokens=100, logprobs=2)))
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert len(tokens(lines)) == 100
        assert all(len(line["top"]) == 2 for line in lines if line["type"] == "token")
        asked = [kind for node in seen for kind in node]
        assert asked.count(Decode) >= 2
        # The inferencer's prefill and three verifications; nobody was sent a token at a time.
        assert asked.count(Forward) == 4
        unit = scene.execution_class.unit
        assert sum(scheduler.desk.ledger.state.account(node.address).credit for node in scene.nodes) == 24 * unit


async def test_who_fails_in_the_middle_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order(max_tokens=120))
        failing = scene.node(lifecycle.task.assignment.candidates(0)[0])
        failing.refuses_from = (Decode, 4)
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated.attempt >= 1
        failing.refuses_from = None
        whole = await collected(await scheduler.submit(await scene.order(max_tokens=120)))
        assert tokens(lines) == tokens(whole)


def _other_token(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    first = int.from_bytes(data[:4], "little")
    return reply, tokens_to_bytes([(first + 1) % VOCABULARY]) + data[4:]


def _no_token(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return reply, tokens_to_bytes([VOCABULARY]) + data[4:]


def _short(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return reply, data[:-4]


def _other_state(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return reply, data[:-1] + bytes([data[-1] ^ 1])


def _not_a_number(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return reply, data[: -4 * HIDDEN] + b"\xff" * 4 * HIDDEN


def _early_end(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, finished="stop"), data


def _endless(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, finished=None), data


def _elsewhere(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, start=reply.start + 1), data


def _more(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, count=DECODE_LIMIT), data


def _other_position(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, row=msgspec.structs.replace(reply.row, position=reply.row.position + 1)), data


def _too_many_logprobs(reply: Decoded, data: bytes) -> tuple[Decoded, bytes]:
    return msgspec.structs.replace(reply, logprobs=(b"",) * (reply.count + 1)), data


LIES = (
    _no_token, _short, _other_state, _not_a_number, _early_end, _endless, _elsewhere, _more,
    _other_position, _too_many_logprobs,
)  # fmt: skip


async def test_answers_that_lie_cost_the_liar_its_place(deployed: Any, tmp_path: Path) -> None:
    """Each lie in turn: the other candidate gives the answer, whole; nothing of the lie reaches the client."""
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        expected = tokens(await collected(await scheduler.submit(await scene.order(max_tokens=12))))
        honest = {node.address: node._service.handle for node in scene.nodes}
        for lie in LIES:
            lifecycle = await scheduler.submit(await scene.order(max_tokens=12))
            candidates = lifecycle.task.assignment.candidates(0)
            liar = scene.node(candidates[0])
            altering(liar, lie)
            lines = await collected(lifecycle)
            liar._service.handle = honest[liar.address]
            assert lines[-1].get("outcome") == "accepted", (lie, lines[-1])
            assert tokens(lines) == expected, lie


async def test_a_token_that_its_own_rows_contradict_costs_the_client_nothing(deployed: Any, tmp_path: Path) -> None:
    """The next row binds the token, one answer too late to take it back: nobody can go on from it."""
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        before = scheduler.desk.ledger.state.escrow_of(scene.client.address)
        lifecycle = await scheduler.submit(await scene.order(max_tokens=12))
        for candidate in lifecycle.task.assignment.candidates(0):
            altering(scene.node(candidate), _other_token)
        lines = await collected(lifecycle)
        assert lines[-1]["type"] == "failed"
        assert not lines[-1]["charged"]
        assert scheduler.desk.ledger.state.escrow_of(scene.client.address) == before
