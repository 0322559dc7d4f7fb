"""What the contracts do with money and the packages only read: how fines are paid, how movements are packed."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.market.court_money import BURNT, Pot, pot_of
from troth.protocol.market.types import Movement, PotKind
from troth.protocol.types import Address, Hash32


def fine_movements(
    convict: Address, stake: int, taken: int, payees: Sequence[tuple[Address, int]]
) -> tuple[Movement, ...]:
    """How what was taken is paid (library Fines): to the payees in order, as far as it reaches; the rest is burnt.

    Free stake goes first; what it lacks is unlocked before.
    """
    own = pot_of(PotKind.STAKE, convict)
    unlocked = max(taken - stake, 0)
    movements, rest = [Movement(*pot_of(PotKind.LOCKED, convict), *own, unlocked)], taken
    for account, owed in payees:
        movements.append(Movement(*own, *pot_of(PotKind.CREDIT, account), min(owed, rest)))
        rest -= min(owed, rest)
    movements.append(Movement(*own, *BURNT, rest))
    return tuple(one for one in movements if one.amount)


def pack_movements(subject: Hash32, movements: Sequence[Movement]) -> bytes:
    """Movements of a case as Bank.moveMany takes them: a bond is the case's, what is burnt is nobody's."""
    packed = bytearray()
    for one in movements:
        accounts = {pot for kind, pot in _ends(one) if kind not in {PotKind.BOND, PotKind.BURNT}}
        bonds = {pot for kind, pot in _ends(one) if kind is PotKind.BOND}
        if len(accounts) > 1 or not bonds <= {subject}:
            raise ValueError(f"a case moves money between its bond, one account and nobody: {one}")
        account = accounts.pop()[12:] if accounts else bytes(20)
        packed += bytes([one.from_kind << 4 | one.to_kind]) + account + one.amount.to_bytes(12)
    return bytes(packed)


def _ends(movement: Movement) -> tuple[Pot, Pot]:
    return (movement.from_kind, movement.from_id), (movement.to_kind, movement.to_id)
