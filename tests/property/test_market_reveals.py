"""What reviewers show is packed and read again without a loss, whatever masks it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.market import reveals
from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.proceedings import Reveal
from troth.protocol.market.reveals import CLEAR, NODE, Sample
from troth.protocol.market.signed import Opinion
from troth.protocol.trace import TILE_BYTES
from troth.protocol.types import Hash32

hashes = st.binary(min_size=32, max_size=32).map(Hash32)
numbers = st.integers(0, 2**32 - 1)


@st.composite
def shown(draw: st.DrawFn, sample: Sample, roots: list[Hash32]) -> Reveal:
    opinion = draw(st.sampled_from(Opinion))
    if opinion is Opinion.NONE:
        return Reveal()
    tiles, siblings = b"", ()
    if sample.tiles and opinion in {Opinion.ACCEPT, Opinion.REJECT}:
        pattern = draw(st.binary(min_size=1, max_size=4))
        tiles = (pattern * TILE_BYTES * sample.tiles)[: TILE_BYTES * sample.tiles]
        siblings = tuple(draw(hashes) for _ in range(sample.tiles * sample.depth))
    said = (draw(st.sampled_from(roots)), int(opinion), draw(numbers), draw(numbers), reveals.salt_of(draw(hashes)))
    return Reveal(*said, tiles, siblings)


@st.composite
def committees(draw: st.DrawFn) -> tuple[Sample, tuple[Reveal, ...], bytes]:
    sample = draw(st.sampled_from([Sample(), Sample(1, 0), Sample(2, 3)]))
    roots = draw(st.lists(hashes, min_size=1, max_size=3))
    node = draw(st.sampled_from([b"", b"\x05" * TILE_BYTES * sample.tiles]))
    return sample, tuple(draw(st.lists(shown(sample, roots), max_size=5))), node


@pytest.mark.slow
@given(committees())
def test_what_is_packed_is_read(committee: tuple[Sample, tuple[Reveal, ...], bytes]) -> None:
    sample, given_, node = committee
    packed = reveals.encode(given_, node)
    assert reveals.decode(packed, len(given_), sample, node) == given_
    for wrong in (packed + b"\x00", packed[:-1]):
        if wrong:
            with pytest.raises(InvalidCase):
                reveals.decode(wrong, len(given_), sample, node)


def test_who_agrees_with_another_is_masked_by_it() -> None:
    node, near, far = (bytes([byte]) * TILE_BYTES for byte in (1, 2, 3))
    made = [Reveal(Hash32(bytes([n]) * 32), 2, 0, 0, Hash32(bytes(32)), near, ()) for n in (1, 2)]
    packed = reveals.encode(made, node)
    alone = reveals.encode(made[:1], node)
    assert packed[len(alone) + 57] == 0
    assert packed[-TILE_BYTES:] == bytes(TILE_BYTES)
    (one,) = (reveals.encode([Reveal(made[0].root, 1, 0, 0, made[0].salt, node, ())], node),)
    assert one[57] == NODE
    assert reveals.encode([Reveal(made[0].root, 1, 0, 0, made[0].salt, far, ())])[57] == CLEAR


@pytest.mark.parametrize("mask", [0, 1, 7, NODE])
def test_a_mask_must_stand_before(mask: int) -> None:
    (made,) = (Reveal(Hash32(bytes([1]) * 32), 2, 0, 0, Hash32(bytes(32)), bytes(TILE_BYTES), ()),)
    packed = bytearray(reveals.encode([made]))
    packed[57] = mask
    with pytest.raises(InvalidCase):
        reveals.decode(bytes(packed), 1, Sample(1, 0))


def test_a_salt_that_does_not_fit_is_not_packed() -> None:
    made = Reveal(Hash32(bytes([1]) * 32), 2, 0, 0, Hash32(bytes(31) + b"\x01"))
    assert not reveals.is_short(made.salt)
    with pytest.raises(InvalidCase, match="salt has 16 bytes"):
        reveals.encode([made])
