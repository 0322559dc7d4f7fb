"""The keys that a scheduler signs with."""

from __future__ import annotations

from dataclasses import dataclass, field

from troth.chain.keystore import Key


@dataclass(frozen=True, slots=True)
class Keys:
    """The operator's account and the VRF secret, out of their keystores."""

    operator: Key
    vrf_secret: bytes = field(repr=False)
