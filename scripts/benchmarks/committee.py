"""The committee: gas by receipts of a real EVM, what verifying a machine's quote takes, whether challenges can be told
from users' orders and how long a member's own corpus lasts, and what credits make of cheats (`confidential`,
`indistinguishable`, `own_corpora`, `ratings`). It takes half an hour of processor time, and as long again when it
writes the texts that are scored, once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.reputation_stage import ReputationStage, reputation_stage

from benchmarks.figures import Figure
from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, submit
from troth.chain.keystore import Key
from troth.protocol import committee_calls as calls
from troth.protocol import reputation_calls, typed_data
from troth.protocol.committee import AddMember, CommitteeMember, RemoveMember
from troth.protocol.hashing import keccak256
from troth.protocol.reputation import paper_rules
from troth.protocol.types import Address, Hash32
from troth.testnet.anvil import fund, start_anvil
from troth.testnet.anvil import rpc as node_call
from troth.testnet.processes import ProcessGroup

MEMBERS = 4
RATERS, REPORTERS, RATED, EPOCH_BLOCKS, BOND = 7, 3, 50, 20, 10**15
CREDIT = 947_000_000


def measure() -> Iterator[Figure]:
    """Gas, quotes, scores, pairs told apart: what takes longest comes last."""
    from benchmarks import confidential, indistinguishable, own_corpora, ratings

    for part in (measure_gas, confidential.measure, ratings.measure, indistinguishable.measure, own_corpora.measure):
        yield from part()


def measure_gas() -> list[Figure]:
    """A committee of four, one more, and one less; epochs of fifty nodes and of one, by seven members."""
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, rpc = start_anvil(processes, block_seconds=0)
            payer = Key.generate()
            fund(rpc, payer.address, 10**18)
            return [*asyncio.run(_measure(rpc, payer)), *asyncio.run(_epochs(rpc, payer))]
        finally:
            processes.stop_all()


async def _measure(rpc: str, payer: Key) -> list[Figure]:
    keys = sorted((_key(number) for number in range(MEMBERS)), key=lambda key: key.address.lower())
    created = await submit(rpc, committee_creation([_member(key) for key in keys]), payer)
    assert created.created is not None
    async with await Chain.connect(rpc, created.created) as chain:
        domain = chain.domain
    new = _member(_key(MEMBERS))
    adding = AddMember(new.operator, new.tls_key_hash, new.endpoint, 0)
    removing = RemoveMember(new.operator, 1)
    signed = {message: [typed_data.sign(message, domain, key.secret) for key in keys] for message in (adding, removing)}
    added = await submit(rpc, calls.add_member(new, signed[adding]), payer, created.created)
    removed = await submit(rpc, calls.remove_member(new.operator, signed[removing]), payer, created.created)
    return [
        Figure("committee: deployment with 4 members", created.gas_used, "gas"),
        Figure("committee: addMember, 4 signatures", added.gas_used, "gas"),
        Figure("committee: removeMember, 4 signatures", removed.gas_used, "gas"),
    ]


def _key(number: int) -> Key:
    return Key.from_secret(keccak256(b"troth committee benchmark %d" % number))


def _member(key: Key) -> CommitteeMember:
    return CommitteeMember(key.address, Hash32(keccak256(key.address.encode())), "https://member.example.org:8543")


async def _epochs(rpc: str, payer: Key) -> list[Figure]:
    many = await _settled(rpc, payer, RATED)
    one = await _settled(rpc, payer, 1)
    late = await _left_out(rpc, payer)
    ratio = RATED * one / many
    note = f"{many / RATED:,.0f} a node; {ratio:.1f} times below {RATED} updates of one node, {one:,} each"
    return [
        Figure(
            f"gas of an epoch of {RATED} nodes, {RATERS} members",
            many,
            "gas",
            paper=RATED * one,
            reach=RATED * one / 10,
            note=note,
        ),
        Figure(f"gas of an epoch of one node, {RATERS} members", one, "gas"),
        Figure(f"gas of reports that were left out: {REPORTERS} of {RATERS}, over one of {RATED} nodes", late, "gas"),
    ]


async def _stage(rpc: str, payer: Key, nodes: int) -> ReputationStage:
    return await reputation_stage(
        rpc, payer, lambda blocks: _mine(rpc, blocks), paper_rules(EPOCH_BLOCKS, BOND),
        lambda account, amount: fund(rpc, account, amount), members=RATERS, nodes=nodes,
    )  # fmt: skip


async def _settled(rpc: str, payer: Key, nodes: int) -> int:
    """Gas of an epoch in which every node was rated before, and whose leader the last one's VRF drew."""
    stage = await _stage(rpc, payer, nodes)
    try:
        leader = await _epoch(stage, 1, None, {})
        leader = await _epoch(stage, 2, leader, dict.fromkeys(stage.nodes, CREDIT))
        await _epoch(stage, 3, leader, dict.fromkeys(stage.nodes, CREDIT - 1))
        return stage.receipts[-1].gas_used
    finally:
        await stage.chain.close()


async def _left_out(rpc: str, payer: Key) -> int:
    """Gas of what rates a node as silent that was rated before, after an epoch was settled without the reports."""
    stage = await _stage(rpc, payer, RATED)
    try:
        leader = await _epoch(stage, 1, None, {})
        leader = await _epoch(stage, 2, leader, dict.fromkeys(stage.nodes, CREDIT))
        await stage.to_epoch(3)
        proof = stage.proof(leader, 3, await stage.chain.read(reputation_calls.seed_of(3)))
        update = await stage.update(dict.fromkeys(stage.nodes[1:], CREDIT), proof=proof)
        await stage.settle(update, proof)
        reports = stage.reports(update, 1, REPORTERS)
        return (await stage.send(reputation_calls.report_silence(update, reports))).gas_used
    finally:
        await stage.chain.close()


async def _epoch(stage: ReputationStage, epoch: int, leader: Address | None, credits: dict[Address, int]) -> Address:
    await stage.to_epoch(epoch)
    if leader is None:
        update = await stage.update()
        await stage.settle(update)
        return update.leader
    proof = stage.proof(leader, epoch, await stage.chain.read(reputation_calls.seed_of(epoch)))
    update = await stage.update(credits, proof=proof)
    await stage.settle(update, proof)
    return update.leader


def _mine(rpc: str, blocks: int) -> None:
    node_call(rpc, "anvil_mine", hex(blocks))
