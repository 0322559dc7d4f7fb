"""A contract's whole life for the auditor: honest tasks, cheats and laggards, on a real chain without a model.

`python tests/support/audit_stage.py FILE RPC` plays it on an anvil and writes the bundle that the unit tests read.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import audit_stage_reviews  # noqa: E402
from support.audit_stage_names import TASKS  # noqa: E402

from scripts.benchmarks import lifecycle  # noqa: E402
from scripts.benchmarks.lifecycle import COLUMNS, POSITIONS, Request, World  # noqa: E402
from troth.audit.bundle_writing import write_bundle  # noqa: E402
from troth.audit.running import collect  # noqa: E402
from troth.chain.keystore import Key  # noqa: E402
from troth.demo.anvil import fund, rpc  # noqa: E402
from troth.protocol import calls  # noqa: E402
from troth.protocol.contract_types import ABSENT, NO_PROOF  # noqa: E402
from troth.protocol.dtype import Dtype  # noqa: E402
from troth.protocol.identifiers import verdict_commitment  # noqa: E402
from troth.protocol.trace import TileLayout  # noqa: E402
from troth.protocol.typed_data import sign  # noqa: E402
from troth.protocol.types import Address, Hash32, Row  # noqa: E402


@dataclass(frozen=True, slots=True)
class Played:
    """The contract and what became of it; ``culprits`` by the task they were found wrong in."""

    contract: Address
    tasks: dict[str, Hash32]
    culprits: dict[str, Address]


async def play(url: str) -> Played:
    """Everything once."""
    world = await lifecycle.build(url, exact=False)
    try:
        return await _play(world, url)
    finally:
        await world.chain.close()


async def _play(world: World, url: str) -> Played:
    exact, reviewed = await _exact_world(world), await audit_stage_reviews.reviewed_world(world)
    acts: list[Callable[[], object]] = [
        lambda: lifecycle.cooperative(world, 1),
        lambda: lifecycle.merged(world, 2),
        lambda: lifecycle.step_by_step(world, 3),
        lambda: lifecycle.cooperative(exact, 4),
        lambda: rejected(world, 5),
        lambda: silent(world, 6),
        lambda: expired(world, 7),
        lambda: aborted(world, 8),
        *(partial(act, reviewed, 9 + number) for number, act in enumerate(audit_stage_reviews.ACTS)),
        lambda: opened_only(world, 15),
    ]
    requests = {}
    for name, act in zip(TASKS, acts, strict=True):
        requests[name] = await act()  # type: ignore[misc]
    liar = await equivocate(world, requests["own calls"])
    rpc(url, "anvil_mine", hex(101))
    culprits = {
        "rejected": requests["rejected"].parties[0],
        "silent": requests["silent"].parties[world.rules.candidates + 1],
        "expired": world.scheduler.address,
        "own calls": liar,
        "overturned": requests["overturned"].parties[world.rules.candidates],
        "refunded": requests["refunded"].parties[0],
        "dispute lost": requests["dispute lost"].parties[world.rules.candidates],
        "unreviewed": world.scheduler.address,
    }
    tasks = {name: request.task_id for name, request in requests.items()}
    return Played(world.chain.contract, tasks, {name: Address(culprit) for name, culprit in culprits.items()})


async def _exact_world(world: World) -> World:
    """The same contract, scheduler and client, with a class in which roots must be equal."""
    rules = replace(world.rules, name="exact", exact=True, tiles=0)
    await world.chain.execute(calls.register_class(rules), world.owner)
    other = replace(world, rules=rules, nodes={}, slots=[])
    for _ in range(rules.candidates + rules.verifiers):
        await lifecycle._register_node(other)
    return other


async def rejected(world: World, nonce: int) -> Request:
    """The inferencer computed something else, and all verifiers say so."""
    request = await lifecycle.place(world, nonce)
    other = np.random.default_rng(8).standard_normal((POSITIONS, COLUMNS), dtype=np.float32)
    layout = TileLayout(request.task_id, world.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
    request.traces[0] = layout.commit(other)
    verifiers = request.parties[world.rules.candidates :]
    request.posts = (
        Hash32(request.traces[0].root),
        *(
            verdict_commitment(request.task_id, 0, Address(verifier), root=Hash32(trace.root), verdict=False, salt=salt)
            for verifier, trace, salt in zip(verifiers, request.traces[1:], request.salts[1:], strict=True)
        ),
    )
    await _committed(request)
    proof, seed = await request.sample_proof()
    openings = [replace(opening, verdict=False) for opening in request.openings(seed, masked=True)]
    await request.send("settle", calls.settle(request.task_id, _task(request), proof, openings), world.scheduler)
    return request


async def silent(world: World, nonce: int) -> Request:
    """One verifier does not open; the others settle after the window."""
    request = await lifecycle.place(world, nonce)
    await _committed(request)
    proof, seed = await request.sample_proof()
    await request.send("sample", calls.sample(request.task_id, _task(request), proof), world.scheduler)
    rpc(world.rpc, "anvil_mine", hex(101))
    openings = request.openings(seed, masked=True)
    openings[2] = ABSENT
    await request.send("settle", calls.settle(request.task_id, _task(request), NO_PROOF, openings), world.owner)
    return request


async def expired(world: World, nonce: int) -> Request:
    """The scheduler never samples; its slash goes to those who worked."""
    request = await lifecycle.place(world, nonce)
    await _committed(request)
    rpc(world.rpc, "anvil_mine", hex(101))
    await request.send("close", calls.close(request.task_id, _task(request)), world.owner)
    await world.chain.execute(calls.top_up(world.scheduler.address, lifecycle.ETHER), world.owner)
    return request


async def aborted(world: World, nonce: int) -> Request:
    """The scheduler gives up before there are commitments."""
    request = await opened_only(world, nonce)
    await request.send("abort", calls.abort(request.task_id, _task(request)), world.scheduler)
    return request


async def opened_only(world: World, nonce: int) -> Request:
    """Opened, then nothing."""
    request = await lifecycle.place(world, nonce)
    await request.send("open", calls.open_task(request.order, request.signature), world.scheduler)
    return request


async def equivocate(world: World, request: Request) -> str:
    """The inferencer signed two rows for one position; the second account of a stranger reports it."""
    liar, reporter = request.key(0), Key.generate()
    fund(world.rpc, reporter.address, lifecycle.ETHER)
    zero = Hash32(bytes(32))
    rows = [Row(request.task_id, 0, 0, 5, Hash32(secrets.token_bytes(32)), zero) for _ in range(2)]
    signatures = [sign(row, world.chain.domain, liar.secret) for row in rows]
    call = calls.prove_equivocation(rows[0], signatures[0], rows[1], signatures[1])
    await world.chain.execute(call, reporter)
    return liar.address


async def _committed(request: Request) -> None:
    world = request.world
    call = calls.open_and_commit(request.order, request.signature, [request.proof], request.submission())
    await request.send("openAndCommit", call, world.scheduler)
    await world.chain.execute(calls.deposit(world.client.address, 1), world.owner)


def _task(request: Request):  # type: ignore[no-untyped-def]
    assert request.task is not None
    return request.task


async def _record(file: Path, url: str) -> None:
    played = await play(url)
    print(write_bundle(file, await collect(url, played.contract, start=0, last=None)))


if __name__ == "__main__":
    asyncio.run(_record(Path(sys.argv[1]), sys.argv[2]))
