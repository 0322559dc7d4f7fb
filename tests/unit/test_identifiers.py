"""Identifiers against plain eth_abi encodings with the contract's types written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_abi.abi import encode

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import (
    class_id,
    either_verdict,
    fee,
    group_id,
    model_id,
    task_id,
    trace_commitment,
    verdict_commitment,
)
from troth.protocol.typed_data import Domain, digest
from troth.protocol.types import ExecutionClass, Hash32, ModelDescriptor, Order, Segment, address_from_bytes

ONE, TWO, THREE = (Hash32(bytes([number]) * 32) for number in (1, 2, 3))
MODEL = ModelDescriptor("llama/0xabc/0xdef", 30, 576, 49152, 0, ONE)
RULES = ExecutionClass(
    model=ONE,
    name="torch cpu float32",
    dtype=0,
    exact=False,
    mantissa_bits=10,
    steps=8,
    theta=9000,
    tiles=1,
    candidates=2,
    verifiers=3,
    reviewers=15,
    unit=10**12,
    minimum_stake=10**15,
    state_cut=1000,
    margin_cut=20000,
    calibration=TWO,
)
ALICE = address_from_bytes(b"\xaa" * 20)


@pytest.mark.parametrize("architecture", ["", "llama/0xabc/0xdef", "l" * 31, "l" * 32, "l" * 33, "ä" * 16])
def test_model_id(architecture: str) -> None:
    values = (architecture, 30, 576, 49152, 0, ONE)
    assert model_id(replace(MODEL, architecture=architecture)) == keccak256(
        encode(["(string,uint16,uint32,uint32,uint8,bytes32)"], [values])
    )


def test_class_id() -> None:
    types = (
        "(bytes32,string,uint8,bool,uint8,uint16,uint16,uint8,uint8,uint8,uint8,uint96,uint96,uint32,uint32,bytes32)"
    )
    values = (ONE, "torch cpu float32", 0, False, 10, 8, 9000, 1, 2, 3, 15, 10**12, 10**15, 1000, 20000, TWO)
    assert class_id(RULES) == keccak256(encode([types], [values]))


def test_every_field_changes_the_class_id() -> None:
    changes = {
        "model": TWO, "name": "x", "dtype": 1, "exact": True, "mantissa_bits": 9, "steps": 7, "theta": 1, "tiles": 2,
        "candidates": 1, "verifiers": 5, "reviewers": 7, "unit": 1, "minimum_stake": 1, "state_cut": 1, "margin_cut": 1,
        "calibration": ONE,
    }  # fmt: skip
    assert len({class_id(replace(RULES, **{name: value})) for name, value in changes.items()}) == len(changes)
    assert set(changes) == set(RULES.__dataclass_fields__)


@pytest.mark.parametrize(
    "change", [{"unit": 2**96}, {"tiles": 256}, {"theta": -1}, {"model": b"short"}, {"name": "\ud800"}, {"exact": 1}]
)
def test_class_that_does_not_fit(change: dict[str, object]) -> None:
    with pytest.raises(InvalidField):
        class_id(replace(RULES, **change))


def test_group_id() -> None:
    assert group_id(ONE, Segment(3, 9)) == keccak256(encode(["bytes32", "uint8", "uint8"], [ONE, 3, 9]))


def test_task_id_is_the_signed_digest() -> None:
    order = Order(ONE, TWO, ALICE, 1, 2, 3, 4, ONE)
    domain = Domain(5, ALICE)
    assert task_id(order, domain) == digest(order, domain)
    assert task_id(replace(order, nonce=5), domain) != task_id(order, domain)


def test_fee_pays_everyone_six_units() -> None:
    assert fee(RULES, 1) == 6 * 10**12 * (4 * 1 + 1)
    assert fee(RULES, 2) == 6 * 10**12 * (4 * 2 + 1)
    with pytest.raises(InvalidField):
        fee(RULES, 0)


def test_quorum_and_party_count() -> None:
    assert (RULES.quorum, RULES.parties) == (2, 5)


def test_commitments_hide_behind_the_salt() -> None:
    types = ["bytes32", "uint8", "address", "bytes32", "bool", "bytes32"]
    assert verdict_commitment(ONE, 7, ALICE, root=TWO, verdict=True, salt=THREE) == keccak256(
        encode(types, [ONE, 7, ALICE, TWO, True, THREE])
    )
    both = [verdict_commitment(ONE, 7, ALICE, root=TWO, verdict=verdict, salt=THREE) for verdict in (True, False)]
    assert trace_commitment(ONE, 7, ALICE, root=TWO, salt=THREE) == keccak256(b"".join(sorted(both)))
    assert either_verdict(both[0], both[1]) == either_verdict(both[1], both[0])
    with pytest.raises(InvalidField):
        trace_commitment(ONE, 256, ALICE, root=TWO, salt=THREE)
    with pytest.raises(InvalidField):
        trace_commitment(ONE, 0, ALICE, root=Hash32(b"short"), salt=THREE)
