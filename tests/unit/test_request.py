"""The canonical request: a frozen vector, limits, and bytes that are not canonical."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from troth.protocol.errors import InvalidRequest
from troth.protocol.hashing import keccak256
from troth.protocol.request import (
    PROMPT_LIMIT,
    Request,
    canonical_bytes,
    from_canonical_bytes,
    output_hash,
    request_hash,
    request_terms,
    token_blind,
    token_leaf,
    token_path,
)
from troth.protocol.transforms import NO_TRANSFORMS, Transforms, transforms_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import root_of_path

CLASS, SALT = Hash32(b"\x11" * 32), Hash32(b"\x22" * 32)
REQUEST = Request(CLASS, (1, 2, 2**32 - 1), 16, 700_000, 950_000, (0, 2))
VECTOR = (
    "01" + "11" * 32 + "00000010" + "000aae60" + "000e7ef0"
    "00000002" + "00000000" + "00000002"
    "00000003" + "00000001" + "00000002" + "ffffffff"
)  # fmt: skip


def test_canonical_bytes_are_the_frozen_vector() -> None:
    assert canonical_bytes(REQUEST).hex() == VECTOR
    assert from_canonical_bytes(bytes.fromhex(VECTOR)) == REQUEST


def test_cuts_stand_behind_the_prompt_and_the_version_tells_of_them() -> None:
    cut = replace(REQUEST, top_k=40, min_p_millionths=50_000)
    assert canonical_bytes(cut).hex() == "03" + VECTOR[2:] + "00000028" + "0000c350"
    both = replace(cut, transforms=Transforms(presence=1))
    transforms = canonical_bytes(replace(both, top_k=0, min_p_millionths=0))[len(VECTOR) // 2 :].hex()
    assert canonical_bytes(both).hex() == "04" + VECTOR[2:] + "00000028" + "0000c350" + transforms
    for request in (cut, both, replace(cut, top_k=0), replace(cut, min_p_millionths=0)):
        assert from_canonical_bytes(canonical_bytes(request)) == request
        assert not request.keeps_all
    assert not REQUEST.keeps_all
    assert replace(REQUEST, top_p_millionths=1_000_000).keeps_all
    # Whoever signed one set of terms cannot show another: the version is a part of both hashes.
    assert len({request_hash(one, SALT) for one in (REQUEST, cut, both, replace(cut, top_k=41))}) == 4


def test_a_version_that_promises_what_is_not_there_is_refused() -> None:
    plain, nothing = VECTOR[2:], "00000000" * 2
    cuts = "00000028" + "0000c350"
    empty = transforms_to_bytes(NO_TRANSFORMS).hex()
    for wrong in ("03" + plain, "03" + plain + nothing, "03" + plain + cuts + "00", "03" + plain + cuts[:-2],
                  "04" + plain + cuts, "04" + plain + cuts + empty, "02" + plain + empty, "01" + plain + cuts,
                  "04" + plain + nothing + transforms_to_bytes(Transforms(presence=1)).hex(),
                  "03" + plain + "00000028" + "000f4241", "05" + plain + cuts):  # fmt: skip
        with pytest.raises(InvalidRequest):
            pytest.fail(str(from_canonical_bytes(bytes.fromhex(wrong))))


def test_a_request_s_hash_shows_its_terms_without_its_prompt() -> None:
    data = bytes.fromhex(VECTOR)
    terms, blind = request_terms(REQUEST, SALT)
    assert (terms, blind) == (data[:45], keccak256(SALT + data))
    assert request_hash(REQUEST, SALT) == keccak256(keccak256(b"troth/request/2") + terms + blind)


def test_an_answer_s_hash_opens_one_token() -> None:
    leaves = [
        keccak256(b"\0" + keccak256(SALT + index.to_bytes(4, "big")) + token.to_bytes(4, "big"))
        for index, token in enumerate((5, 258, 7))
    ]
    left, right = (keccak256(b"\1" + one + other) for one, other in (leaves[:2], (leaves[2], bytes(32))))
    tag = keccak256(b"troth/output/2")
    expected = keccak256(tag + (3).to_bytes(4, "big") + keccak256(b"\1" + left + right))
    assert output_hash(SALT, [5, 258, 7]) == expected
    assert token_path(SALT, (5, 258, 7), 2) == (bytes(32), left)
    assert root_of_path(token_leaf(token_blind(SALT, 1), 258), 1, 3, (leaves[0], right)) == keccak256(
        b"\1" + left + right
    )
    assert output_hash(SALT, []) == keccak256(tag + bytes(4) + keccak256(SALT))
    assert len({output_hash(SALT, [0] * count) for count in range(5)}) == 5


def test_hashes_need_a_whole_salt() -> None:
    for short in (b"", bytes(31)):
        with pytest.raises(InvalidRequest):
            request_hash(REQUEST, Hash32(short))
    with pytest.raises(InvalidRequest):
        output_hash(SALT, [-1])


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_tokens": ()},
        {"prompt_tokens": (1,) * (PROMPT_LIMIT + 1)},
        {"prompt_tokens": (-1,)},
        {"prompt_tokens": (2**32,)},
        {"prompt_tokens": (1.0,)},
        {"prompt_tokens": (True,)},
        {"prompt_tokens": [1]},
        {"max_tokens": 0},
        {"max_tokens": 65_537},
        {"max_tokens": True},
        {"max_tokens": 1.5},
        {"temperature_millionths": -1},
        {"temperature_millionths": 2_000_001},
        {"top_p_millionths": 0},
        {"top_p_millionths": 1_000_001},
        {"top_k": -1},
        {"top_k": 2**32},
        {"top_k": 1.0},
        {"min_p_millionths": -1},
        {"min_p_millionths": 1_000_001},
        {"end_tokens": (2, 2)},
        {"end_tokens": (2, 1)},
        {"end_tokens": tuple(range(65))},
        {"execution_class": b"short"},
    ],
)
def test_request_outside_its_limits(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        replace(REQUEST, **change)


def test_limits_themselves_are_allowed() -> None:
    Request(CLASS, (0,), 65_536, 0, 1, ())
    longest = Request(CLASS, (7,) * PROMPT_LIMIT, 1, 2_000_000, 1_000_000, tuple(range(64)))
    assert from_canonical_bytes(canonical_bytes(longest)) == longest
    assert longest.position_limit == PROMPT_LIMIT


@pytest.mark.parametrize("size", [0, 1, 44, 45, 48, 49, 56, 60, len(VECTOR) // 2 - 1])
def test_truncated_bytes(size: int) -> None:
    with pytest.raises(InvalidRequest):
        from_canonical_bytes(bytes.fromhex(VECTOR)[:size])


def test_bytes_that_are_not_canonical() -> None:
    data = bytes.fromhex(VECTOR)
    end_count, prompt_count = 45, 57
    wrong = {
        "other version": b"\x02" + data[1:],
        "trailing byte": data + b"\0",
        "trailing token": data + bytes(4),
        "huge end count": data[:end_count] + struct.pack(">I", 2**32 - 1) + data[end_count + 4 :],
        "huge prompt count": data[:prompt_count] + struct.pack(">I", 2**32 - 1) + data[prompt_count + 4 :],
        "far too long": data + bytes(4 * PROMPT_LIMIT),
    }
    for name, changed in wrong.items():
        with pytest.raises(InvalidRequest):
            pytest.fail(f"{name}: {from_canonical_bytes(changed)}")
