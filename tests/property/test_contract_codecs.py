"""Calldata, logs and reverts: what is written is read back, and what nobody wrote is refused by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from eth_abi import encode
from hypothesis import example, given, settings
from hypothesis import strategies as st

from troth.protocol import calls
from troth.protocol.bindings import named
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.calls import CommitCall, OpenAndCommitCall, RevealCall, SettleCall, mask_tiles, read_task_call
from troth.protocol.calls.reading import plain_openings
from troth.protocol.contract_errors import decode_error, ether
from troth.protocol.contract_types import CommitSubmission, Opening, VrfProof
from troth.protocol.ends import pack_ends, unpack_ends
from troth.protocol.errors import InvalidField
from troth.protocol.events import EVENT_TYPES, Evicted, Log, LogMeta, parse_log
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import Address, Hash32, Order, address_from_bytes

hashes = st.binary(min_size=32, max_size=32).map(Hash32)
addresses = st.binary(min_size=20, max_size=20).map(address_from_bytes)
uint8, uint32, uint40, uint64, uint96 = (st.integers(0, 2**bits - 1) for bits in (8, 32, 40, 64, 96))
ends = st.lists(st.integers(1, 255), min_size=1, max_size=32, unique=True).map(lambda found: tuple(sorted(found)))


def many(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=4).map(tuple)


openings = st.builds(Opening, hashes, st.booleans(), hashes, st.binary(max_size=64), many(hashes))
proofs = st.builds(VrfProof, st.binary(max_size=90), many(st.integers(0, 2**256 - 1)))
submissions = st.builds(CommitSubmission, uint8, uint32, hashes, hashes, many(hashes), st.binary(max_size=200))
orders = st.builds(Order, hashes, hashes, addresses, uint96, uint64, uint64, uint64, ends.map(pack_ends))
terms = st.builds(Terms, addresses, addresses, hashes, uint96, uint64, ends.map(pack_ends))
progress = st.builds(
    Progress,
    phase=st.sampled_from(Phase),
    phase_block=uint40,
    segments=uint8,
    candidates=uint8,
    attempt=uint8,
    positions=uint32,
    output_hash=hashes,
    seed=hashes,
    parties=many(addresses),
    posts=many(hashes),
    revealed=many(hashes),
)
tasks = st.builds(Task, terms, progress)
metas = st.builds(LogMeta, uint32, uint32, hashes, hashes)


@given(orders, st.binary(max_size=70), many(proofs), submissions)
def test_open_and_commit_is_read_back(
    order: Order, signature: bytes, given_proofs: Any, submission: CommitSubmission
) -> None:
    call = calls.open_and_commit(order, signature, given_proofs, submission)
    assert read_task_call(call.data) == OpenAndCommitCall(order, signature, given_proofs, submission)


@given(hashes, tasks, many(proofs), submissions)
def test_commit_is_read_back(key: Hash32, task: Task, given_proofs: Any, submission: CommitSubmission) -> None:
    assert read_task_call(calls.commit(key, task, given_proofs, submission).data) == CommitCall(
        key, task, given_proofs, submission
    )


@given(hashes, tasks, uint8, uint8, openings)
def test_reveal_is_read_back(key: Hash32, task: Task, segment: int, party: int, opening: Opening) -> None:
    call = calls.reveal(key, task, segment, party, opening)
    assert read_task_call(call.data) == RevealCall(key, task, segment, party, opening)


@given(hashes, tasks, proofs, many(openings))
def test_settle_is_read_back(key: Hash32, task: Task, proof: VrfProof, shown: Any) -> None:
    assert read_task_call(calls.settle(key, task, proof, shown).data) == SettleCall(key, task, proof, shown)


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=4, max_size=4), st.sets(st.integers(0, 3)))
def test_masked_tiles_come_back(tiles: list[bytes], absent: set[int]) -> None:
    plain = [b"" if index in absent else tile for index, tile in enumerate(tiles)]
    masked = [plain[0], *(mask_tiles(tile, plain[0]) if tile else b"" for tile in plain[1:])]
    shown = tuple(Opening(tiles=tile) for tile in masked)
    assert [one.tiles for one in plain_openings(shown, 4)] == plain


@given(ends)
def test_ends_are_packed_and_unpacked(split: tuple[int, ...]) -> None:
    assert unpack_ends(pack_ends(split)) == split


@given(st.binary(max_size=300))
def test_foreign_calldata_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidField):
        read_task_call(data)


@given(st.sampled_from(["settle", "commit", "reveal", "open", "openAndCommit"]), st.binary(max_size=400))
def test_broken_calldata_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(InvalidField):
        read_task_call(named("function")[name].selector + body)


@given(st.binary(max_size=300))
def test_any_revert_data_is_described(data: bytes) -> None:
    assert decode_error(data).remedy


@given(st.sampled_from(sorted(named("error"))), st.binary(max_size=200))
def test_broken_custom_errors_are_still_described(name: str, body: bytes) -> None:
    assert decode_error(named("error")[name].selector + body).remedy


def test_errors_are_named_with_their_values() -> None:
    entry = named("error")["InsufficientEscrow"]
    client = Address("0x" + "00" * 19 + "07")
    error = decode_error(entry.selector + encode_parameters(entry.inputs, [client, 10**17, 3 * 10**17]))
    assert str(error).startswith("InsufficientEscrow(client=0x")
    assert error.arguments["balance"] == 10**17
    assert "0.2 ETH" in error.remedy
    text = decode_error(bytes.fromhex("08c379a0") + encode(["string"], ["no way"]))
    assert (text.name, text.arguments) == ("Error", {"message": "no way"})
    panic = decode_error(bytes.fromhex("4e487b71") + (0x11).to_bytes(32))
    assert panic.arguments == {"code": "arithmetic overflow"}
    assert decode_error(b"").name == "Reverted"
    assert decode_error(b"\x01\x02\x03\x04").name == "Unknown"


def test_ether_is_exact() -> None:
    assert [ether(wei) for wei in (0, 1, 10**18, 15 * 10**17)] == [
        "0 ETH",
        "0.000000000000000001 ETH",
        "1 ETH",
        "1.5 ETH",
    ]


def drawn_value(solidity: str, data: st.DataObject) -> Any:
    """A value that the ABI codec can encode as this type."""
    if solidity.endswith("[]"):
        return [drawn_value(solidity[:-2], data) for _ in range(data.draw(st.integers(0, 3)))]
    if solidity.startswith("("):
        return None
    if solidity.startswith("uint"):
        return data.draw(st.integers(0, 2 ** int(solidity[4:]) - 1))
    drawn = {"bytes32": hashes, "address": addresses, "bool": st.booleans(), "string": st.text(), "bytes": st.binary()}
    return data.draw(drawn[solidity])


FLAT = [kind for kind in EVENT_TYPES if not any(one.components for one in named("event")[kind.__name__].inputs)]
ENUMS = {
    "reason": st.integers(1, 7),
    "outcome": st.integers(1, 5),
    "taskOutcome": st.integers(1, 5),
    "phase": st.integers(0, 5),
}


@settings(max_examples=200)
@given(st.sampled_from(FLAT), metas, st.data())
def test_logs_become_events_with_every_field(kind: Any, meta: LogMeta, data: st.DataObject) -> None:
    entry = named("event")[kind.__name__]
    values: dict[str, Any] = {}
    for one in entry.inputs:
        values[one.name] = data.draw(ENUMS[one.name]) if one.name in ENUMS else drawn_value(one.type, data)
    if "segmentOutcomes" in values:
        values["segmentOutcomes"] = [1 + number % 3 for number in values["segmentOutcomes"]]
    topics = [encode([one.type], [values[one.name]]) for one in entry.inputs if one.indexed]
    body = [one for one in entry.inputs if not one.indexed]
    log = Log(
        Address("0x" + "00" * 20),
        (Hash32(entry.topic), *(Hash32(topic) for topic in topics)),
        encode([one.type for one in body], [values[one.name] for one in body]),
        meta,
    )
    event = parse_log(log)
    assert type(event) is kind
    assert event.meta == meta
    names = [one.name for one in fields(kind)][:-1]
    assert set(names) <= set(get_type_hints(kind))
    for name, expected in zip(names, values.values(), strict=True):
        found = getattr(event, name)
        assert (list(found) if isinstance(expected, list) else found) == expected


def test_unknown_enum_members_are_refused() -> None:
    entry = named("event")["TaskExpired"]
    meta = LogMeta(1, 0, Hash32(bytes(32)), Hash32(bytes(32)))
    log = Log(Address("0x" + "00" * 20), (Hash32(entry.topic), Hash32(bytes(32))), (9).to_bytes(32), meta)
    with pytest.raises(InvalidField, match="Phase"):
        parse_log(log)


@given(metas, st.binary(max_size=200), st.lists(hashes, max_size=4).map(tuple))
def test_foreign_logs_are_refused(meta: LogMeta, body: bytes, topics: Any) -> None:
    with pytest.raises(InvalidField):
        parse_log(Log(Address("0x" + "00" * 20), topics, body, meta))


@given(st.sampled_from(EVENT_TYPES), metas, st.binary(max_size=31), st.lists(hashes, max_size=4))
@example(Evicted, LogMeta(1, 0, Hash32(bytes(32)), Hash32(bytes(32))), b"", [Hash32(bytes(32))])
def test_truncated_logs_are_refused(kind: Any, meta: LogMeta, body: bytes, topics: list[Hash32]) -> None:
    entry = named("event")[kind.__name__]
    log = Log(Address("0x" + "00" * 20), (Hash32(entry.topic), *topics), body, meta)
    if is_whole(entry, topics):
        assert parse_log(log).meta == meta
        return
    with pytest.raises(InvalidField):
        parse_log(log)


def is_whole(entry: Any, topics: list[Hash32]) -> bool:
    """Whether topics alone make this event: every field is indexed, and each topic is a value of its type."""
    if len(topics) != len(entry.inputs) or not all(one.indexed for one in entry.inputs):
        return False
    widths = {"bytes32": 256, "address": 160}
    return all(int.from_bytes(topic) >> widths[one.type] == 0 for one, topic in zip(entry.inputs, topics, strict=True))
