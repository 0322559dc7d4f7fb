"""Identifiers against plain eth_abi encodings with the contract's types written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_abi.abi import encode

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id, model_id
from troth.protocol.types import Hash32, ModelDescriptor, Segment

ONE = Hash32(bytes([1]) * 32)
MODEL = ModelDescriptor("llama/0xabc/0xdef", 30, 576, 49152, 0, ONE)


@pytest.mark.parametrize("architecture", ["", "llama/0xabc/0xdef", "l" * 31, "l" * 32, "l" * 33, "ä" * 16])
def test_model_id(architecture: str) -> None:
    values = (architecture, 30, 576, 49152, 0, ONE)
    assert model_id(replace(MODEL, architecture=architecture)) == keccak256(
        encode(["(string,uint16,uint32,uint32,uint8,bytes32)"], [values])
    )


@pytest.mark.parametrize(
    "change",
    [{"layers": 2**16}, {"dtype": 256}, {"vocabulary": -1}, {"weights_root": b"short"}, {"architecture": "\ud800"}],
)
def test_model_that_does_not_fit(change: dict[str, object]) -> None:
    with pytest.raises(InvalidField):
        model_id(replace(MODEL, **change))


def test_group_id() -> None:
    assert group_id(ONE, Segment(3, 9)) == keccak256(encode(["bytes32", "uint8", "uint8"], [ONE, 3, 9]))


def test_group_of_a_hash_that_is_too_short() -> None:
    with pytest.raises(InvalidField):
        group_id(Hash32(b"short"), Segment(3, 9))
