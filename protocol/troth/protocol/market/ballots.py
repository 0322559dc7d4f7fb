"""Ballots: what the public log of a veiled class shows of a check in place of named verdicts.

A verdict is signed by name, since it is paid, convicts and goes to court. A log would show for ever who rejected whom.
The name of a **veiled** class ends in "/veiled", before "/head:" if it names its head. In such a class each verifier
signs its opinion once more, as a ring signature by all verifiers of the segment that have spoken (``rings``). The log
shows the ring and its ballots, ordered by tag. Everybody sees that drawn verifiers spoke, how many said what, and that
nobody spoke twice. The scheduler knows who said what, as it does anyway. So do a court and its readers, once a case is
opened.

With one verifier alone there is no ring: its verdict is logged by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from troth.protocol import rings, secp256k1, typed_data
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.heads import without_head
from troth.protocol.market.signed import Opinion
from troth.protocol.secp256k1 import KEY_BYTES
from troth.protocol.types import Address, Hash32, Uint8, to_hash32

VEILED = "/veiled"
SCOPE_TAG = keccak256(b"troth/market/ballot/1")
BALLOTS_LIMIT = 3 << 14
"""Bytes of all ballots in a line of the log, which has 64 kB."""
BALLOT_FRAME = 128
"""Bytes of a ballot in a line beside its signature: names of fields, and its share of the ring."""
REMEDY = "Show the ballots as their verifiers signed them."


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a verifier signs without its name: its opinion of one result. Signed as EIP-712 typed data."""

    order: Hash32
    segment: Uint8
    result: Hash32
    opinion: Uint8


@dataclass(frozen=True, slots=True)
class CastBallot:
    """An opinion with its ring signature, encoded; the first 33 bytes are the tag."""

    opinion: Opinion
    signature: bytes

    @property
    def tag(self) -> bytes:
        """The same for every ballot that one verifier casts over one segment of an order."""
        return self.signature[:KEY_BYTES]


def is_veiled(class_name: str) -> bool:
    """Whether the logs of this class name no verifier."""
    return without_head(class_name).endswith(VEILED)


def hides_verifiers(class_name: str, verifiers: int, segments: int) -> bool:
    """Whether a log line of so many segments, each checked by so many seats, shows ballots.

    Each ballot grows with the ring, and a line has a limit: three verifiers are hidden in 36 segments, fifteen in two.
    Beyond that verifiers are named.
    """
    one = 2 * rings.signature_bytes(verifiers) + BALLOT_FRAME
    return is_veiled(class_name) and verifiers <= rings.MOST and segments * verifiers * one <= BALLOTS_LIMIT


def veiled(class_name: str) -> str:
    """The name of such a class, by a name that says nothing of it and names no head yet."""
    return class_name if is_veiled(class_name) else class_name + VEILED


def scope_of(order: Hash32, segment: int) -> Hash32:
    """Where a verifier counts once. The order's id is of one deployment, so that no tag comes again in another."""
    return Hash32(keccak256(SCOPE_TAG + to_hash32(order) + segment.to_bytes(1)))


def members_of(ring: Iterable[bytes]) -> tuple[Address, ...]:
    """The operators of a ring, in its order."""
    return tuple(secp256k1.account_of(key) for key in ring)


def cast(secret: bytes, ring: Sequence[bytes], ballot: Ballot, domain: typed_data.Domain) -> CastBallot:
    """The ballot of one member; raises InvalidField where the key is not in the ring."""
    signed = rings.sign(secret, ring, scope_of(ballot.order, ballot.segment), typed_data.digest(ballot, domain))
    return CastBallot(Opinion(ballot.opinion), rings.encode(signed))


def require_ballot(cast_ballot: CastBallot, ring: Sequence[bytes], ballot: Ballot, domain: typed_data.Domain) -> None:
    """Raise InvalidCheck unless some member of the ring cast this ballot."""
    if cast_ballot.opinion != ballot.opinion:
        raise InvalidCheck("The ballot says something else", cast_ballot.opinion, REMEDY)
    try:
        signature = rings.decode(cast_ballot.signature, len(ring))
        scope = scope_of(ballot.order, ballot.segment)
        rings.verify(signature, ring, scope, typed_data.digest(ballot, domain))
    except (InvalidProof, InvalidField) as error:
        raise InvalidCheck(f"A ballot is of nobody in its ring ({error.what})", cast_ballot.tag, REMEDY) from error


def count(
    cast_ballots: Sequence[CastBallot],
    ring: Sequence[bytes],
    place: tuple[Hash32, int, Hash32],
    *,
    drawn: Collection[Address],
    domain: typed_data.Domain,
) -> dict[bytes, Opinion]:
    """Opinions by tag. ``place``: order, segment, and the struct hash of the result.

    (1) Every key of the ring is a drawn verifier's; (2) each ballot is of a member, over this result; (3) nobody cast
    two. Raises InvalidCheck.
    """
    order, segment, result = place
    try:
        strangers = [one for one in members_of(ring) if one not in drawn]
    except InvalidProof as error:
        raise InvalidCheck("A ring's key is no point of secp256k1", len(ring), REMEDY) from error
    if strangers:
        raise InvalidCheck("A ring holds the key of a node that was not drawn", strangers[0], REMEDY)
    opinions: dict[bytes, Opinion] = {}
    for one in cast_ballots:
        require_ballot(one, ring, Ballot(order, segment, result, one.opinion), domain)
        if one.tag in opinions:
            raise InvalidCheck("One verifier cast two ballots", one.tag, REMEDY)
        opinions[one.tag] = one.opinion
    return opinions
