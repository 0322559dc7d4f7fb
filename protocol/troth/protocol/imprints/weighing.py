"""Whether a token is beaten, over rounded rows: the rule of the circuit ``Beaten``, in whole numbers.

A logit is a sum of products in units of 2**-107. What rounding took of it is below |state| u' + |weights| u + n u u',
where u and u' are the rows' units and |row| the sum of its magnitudes. Both logits' losses together are ``lost``. The
rival wins where

    ahead = rival - own + lead - lost  >  2**-24 + 2**-24 (sizes + lost) (n + 2 + floor(n / 128)),

and in a class of bfloat16 by 2**-8 (|own| + |rival| + lost + 2**-24 (sizes + lost) (n + 2 + floor(n / 128))) more. So
it is never nearer than the exact rule (``exact_numbers``): who is beaten here is beaten there; no honest machine is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from troth.protocol.errors import InvalidNumbers
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.imprints.rows import RoundedRow
from troth.protocol.public_noise import BITS as NOISE_BITS
from troth.protocol.public_noise import gumbel
from troth.protocol.types import Address, Hash32

UNIT_BITS = 107
LEAD_UNIT, LEAD_BITS = 64, 84
TOKEN_BITS = 32
MILLION = 1_000_000
MOST_COLUMNS = 8_192
CONTEXT_TAG = keccak256(b"troth/imprints/context/1")


@dataclass(frozen=True, slots=True)
class WeighedPair:
    """In units of 2**-107: both logits, the sizes of all their terms, and what rounding may have taken."""

    own: int
    rival: int
    sizes: int
    lost: int
    columns: int

    def beaten(self, lead: int, *, rounded: bool) -> bool:
        """Whether the rival wins by more than machines may differ by; ``lead`` of its noise in units of 2**-64."""
        summing = (self.sizes + self.lost) * (self.columns + 2 + self.columns // 128)
        ahead = self.rival - self.own + (lead << (UNIT_BITS - LEAD_UNIT)) - self.lost
        needed = (summing + (1 << UNIT_BITS)) << 8
        if rounded:
            needed += (abs(self.own) + abs(self.rival) + self.lost << 24) + summing
        return ahead << 32 > needed


def weigh(state: RoundedRow, own: RoundedRow, rival: RoundedRow) -> WeighedPair:
    """A state by two rows of the head; raises InvalidNumbers for rows of other lengths."""
    columns = len(state.magnitudes)
    if not 0 < columns <= MOST_COLUMNS or {len(own.magnitudes), len(rival.magnitudes)} != {columns}:
        raise InvalidNumbers("Rows have one length, at most 8,192", columns, "Such a model has no imprints.")
    total, found = int(state.magnitudes.sum()), []
    for row in (own, rival):
        unit = 1 << (state.scale + row.scale)
        # 2**40 times 8,192 columns are below 2**63.
        logit = int(np.dot(state.numbers, row.numbers)) * unit
        size = int(np.dot(state.magnitudes, row.magnitudes)) * unit
        found.append((logit, size, (total + int(row.magnitudes.sum()) + columns) * unit))
    (one, one_size, one_lost), (other, other_size, other_lost) = found
    return WeighedPair(one, other, one_size + other_size, one_lost + other_lost, columns)


def noise_lead(seed: Hash32, position: int, pair: tuple[int, int], temperature: int, *, cut: bool) -> int:
    """By how much the noise of the second token of a pair is the larger one, in units of 2**-64; where tokens are left
    out it helps no rival. ``temperature`` in millionths."""
    if not temperature:
        return 0
    token, rival = pair
    lead = (gumbel(seed, position, rival) - gumbel(seed, position, token)) * temperature
    # Solidity's division rounds towards zero, and its shift downwards.
    whole = (lead // MILLION if lead >= 0 else -(-lead // MILLION)) >> (NOISE_BITS - LEAD_UNIT)
    return min(whole, 0) if cut else whole


def terms_of(pair: tuple[int, int], lead: int, *, rounded: bool) -> int:
    """The third public input: lead, whether logits are rounded, token and rival, the lowest bits first."""
    token, rival = pair
    return ((rival << TOKEN_BITS | token) << 1 | int(rounded)) << LEAD_BITS | lead + (1 << LEAD_BITS - 1)


def context_of(chain_id: int, contract: Address, result: Hash32, recipient: Address) -> int:
    """The fourth: what a proof is for."""
    types = ["bytes32", "uint256", "address", "bytes32", "address"]
    return int.from_bytes(abi_keccak(types, [CONTEXT_TAG, chain_id, contract, result, recipient]), "big") >> 8
