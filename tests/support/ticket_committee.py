"""Members of a committee that signs tickets, dealt in one place: their shares, parts and signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_arkworks_bls12381 import G1Point

from troth.protocol.tickets.curve import encode_point
from troth.protocol.tickets.dealing import EpochKeys, deal, draw_polynomials, keys_of, share_of, shares_for
from troth.protocol.tickets.purchases import TicketSecret
from troth.protocol.tickets.signing import combine, sign_blinded
from troth.protocol.types import address_from_bytes


@dataclass(frozen=True)
class TicketCommittee:
    """``shares`` by the member's number, from 1; of each denomination."""

    keys: EpochKeys
    shares: dict[int, tuple[int, ...]]

    @classmethod
    def dealt(cls, *, members: int, threshold: int, denominations: int, epoch: int = 0) -> TicketCommittee:
        """Every member deals."""
        dealt = {number: draw_polynomials(denominations, threshold) for number in range(1, members + 1)}
        operators = [address_from_bytes(number.to_bytes(20, "big")) for number in dealt]
        dealings = [deal(epoch, operators[number - 1], operators, one) for number, one in dealt.items()]
        shares = {number: share_of(shares_for(one, number) for one in dealt.values()) for number in dealt}
        return cls(keys_of(dealings), shares)

    def part(self, number: int, point: G1Point, denomination: int = 0) -> G1Point:
        """A member's part of a signature."""
        return sign_blinded(point, self.shares[number][denomination])

    def answer(self, number: int, points: Sequence[G1Point], denomination: int = 0) -> list[bytes]:
        """A member's answer to a request."""
        return [encode_point(self.part(number, point, denomination)) for point in points]

    def signed_blinded(self, point: G1Point, denomination: int = 0, blinding: int = 1) -> G1Point:
        """The members' signature over a blinded point, or over what it blinds."""
        chosen = sorted(self.shares)[: self.keys.threshold]
        return combine({number: self.part(number, point, denomination) for number in chosen}, blinding)

    def signature(self, ticket: TicketSecret, denomination: int = 0) -> bytes:
        """The signature of a ticket."""
        return encode_point(self.signed_blinded(ticket.point, denomination, ticket.blinding))
