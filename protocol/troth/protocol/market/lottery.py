"""The client's lottery: two fresh secrets an order commits to, and whether the first one hits.

The client signs keccak256 of both secrets before anybody serves it. The scheduler shows beta, a VRF output over the
order, only after the nodes have signed their results. Whether keccak256(secret ‖ beta) lies below q decides whether
the answer is checked. Node and scheduler do not know the secret, the client does not know beta, and neither can be
changed, so nobody who could still cheat knows whether it will be looked at. The results are not part of the draw: a
client and a node could grind the node's salt until every answer is drawn at the scheduler's cost.

The second secret picks the tiles of a check, after every verifier has committed to its trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.hashing import keccak256
from troth.protocol.market.errors import InvalidSecret
from troth.protocol.market.prices import MILLION
from troth.protocol.market.signed import Draw as SignedDraw
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Parameters
from troth.protocol.types import Hash32, to_hash32

SECRETS_TAG = keccak256(b"troth/market/secrets/1")
_BUCKET = ((1 << 256) - 1) // MILLION


@dataclass(frozen=True, slots=True)
class Secrets:
    """The two secrets of one order; never shown by repr, since a log could tell them to a scheduler."""

    draw: Hash32
    tiles: Hash32

    def __repr__(self) -> str:
        return "Secrets(…)"

    @property
    def draw_hash(self) -> Hash32:
        """What the order says about the first secret."""
        return Hash32(keccak256(to_hash32(self.draw)))

    @property
    def tiles_hash(self) -> Hash32:
        """What the order says about the second secret."""
        return Hash32(keccak256(to_hash32(self.tiles)))


def secrets_for(master: bytes, tab: Hash32, sequence: int, request_hash: Hash32) -> Secrets:
    """Both secrets of an order, derived from a client's 32-byte master secret.

    The request's hash has a fresh salt, so a client that was restored from an old backup, and gives a sequence number
    out twice, still does not use a secret twice: who has seen one would know whether the next order is checked.
    """
    head = SECRETS_TAG + to_hash32(master) + to_hash32(tab) + sequence.to_bytes(32) + to_hash32(request_hash)
    return Secrets(Hash32(keccak256(head + b"draw")), Hash32(keccak256(head + b"tiles")))


def hits(secret: Hash32, beta: Hash32, check_rate: int) -> bool:
    """Whether the secret hits: keccak256(secret ‖ beta) below q of all values; ``check_rate`` is q in millionths."""
    if check_rate >= MILLION:
        return True
    return int.from_bytes(keccak256(to_hash32(secret) + to_hash32(beta))) // _BUCKET < check_rate


def is_drawn(order: Order, secret: Hash32, beta: Hash32) -> bool:
    """Whether an order's first secret hits; raises InvalidSecret if it is not the one that the order committed to."""
    require_draw_secret(order, secret)
    return hits(secret, beta, order.check_rate)


def require_draw_secret(order: Order, secret: Hash32) -> None:
    """Raise InvalidSecret unless ``secret`` is the first secret that the order committed to."""
    _require(order.draw_hash, secret, "first")


def require_tiles_secret(order: Order, secret: Hash32) -> None:
    """Raise InvalidSecret unless ``secret`` is the second secret that the order committed to."""
    _require(order.tiles_hash, secret, "second")


def _require(committed: Hash32, secret: Hash32, which: str) -> None:
    actual = keccak256(to_hash32(secret))
    if actual != committed:
        # The secret stays out of the message: an error may be logged.
        what = f"This is not the {which} secret of the order, but one whose hash is"
        raise InvalidSecret(what, actual, "Ask the client for the secret that it committed to.")


def secret_due(draw: SignedDraw, parameters: Parameters) -> int:
    """Last block at which a secret counts that was neither shown nor summoned before: half the lag after the draw.

    Later the answer stays undrawn. Otherwise a client could keep all its secrets and ask for every check on one day.
    """
    return draw.block_number + parameters.lag // 2
