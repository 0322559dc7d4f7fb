"""What follows from public seeds: the noise that chooses tokens, and the tiles that are opened."""

from __future__ import annotations

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.types import Hash32, to_hash32

NOISE_TAG = keccak256(b"troth/noise/1")


def noise_seed(task: Hash32, beta: Hash32) -> Hash32:
    """Seed of the public token noise, from the VRF output of the last segment."""
    return Hash32(abi_keccak(["bytes32", "bytes32", "bytes32"], [NOISE_TAG, to_hash32(task), to_hash32(beta)]))


def tile_indices(seed: Hash32, segment: int, tiles: int, count: int) -> tuple[int, ...]:
    """Indices of the ``tiles`` opened out of ``count``, one per stratum; raises InvalidField if there are too few."""
    if not 0 < tiles <= count:
        raise InvalidField(
            f"A trace of {count} tiles cannot open so many", tiles, "Use a class that opens fewer tiles."
        )
    bounds = [stratum * count // tiles for stratum in range(tiles + 1)]
    return tuple(
        bounds[stratum] + _index_draw(seed, segment, stratum) % (bounds[stratum + 1] - bounds[stratum])
        for stratum in range(tiles)
    )


def _index_draw(seed: Hash32, segment: int, stratum: int) -> int:
    return int.from_bytes(keccak256(to_hash32(seed) + segment.to_bytes(32) + stratum.to_bytes(32)))
