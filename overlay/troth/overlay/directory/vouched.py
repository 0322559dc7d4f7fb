"""Machines that a committee vouches for, with a measurement that one trusts: whom an attested party speaks to.

What is attested is a TLS key and a seal key. The chain may name another TLS key a moment later, since owners may change
it; so whoever is about to send looks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from troth.overlay.attestation.measurement import Measurement
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.protocol.types import Address
from troth.transport.errors import OverlayError


@dataclass(frozen=True, slots=True)
class VouchedMachines:
    """The list that holds now, read for what it says of machines.

    Args:
        listing: the newest list; raises an OverlayError while there is none.
        trusted: measurements of images that may read prompts.
    """

    listing: Callable[[], Listing]
    trusted: Collection[Measurement]
    clock: Callable[[], float] = time.time

    def entry(self, operator: Address, kind: str, tls_key_hash: bytes) -> ListedDestination | None:
        """A party's entry, if its machine runs what is trusted and holds exactly this TLS key; None otherwise, and
        while there is no list."""
        try:
            destinations = self.listing().destinations
        except OverlayError:
            return None
        for one in destinations:
            named = (one.operator, one.kind, one.place.tls_key_hash) == (operator, kind, tls_key_hash)
            if named and one.attested is not None and one.attested.until > self.clock():
                return one if one.attested.measurement in self.trusted else None
        return None

    def require(self, operator: Address, kind: str, tls_key_hash: bytes) -> ListedDestination:
        """The same; raises DirectoryUnavailable where nobody vouches for the party now."""
        found = self.entry(operator, kind, tls_key_hash)
        if found is None:
            remedy = "Wait for the next list, or use another one."
            raise DirectoryUnavailable(f"The committee does not vouch for this {kind}'s machine", operator, remedy)
        return found
