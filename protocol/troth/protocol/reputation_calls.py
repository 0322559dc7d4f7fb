"""Calls and reads of contracts/reputation/Reputation.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.bindings import REPUTATION
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import Call, View, calldata
from troth.protocol.market.signed import VrfProof
from troth.protocol.reputation import EpochUpdate, ReputationRules, SignedSilence, UpdateEvidence
from troth.protocol.types import Address, Hash32

NO_PROOF = VrfProof(b"", ())
"""In place of a leader's proof that did not come: the seed draws."""


def rules() -> View[ReputationRules]:
    """What the deployment decided."""
    return View("rules", _data("rules"), converter(ReputationRules), REPUTATION)


def epoch_now() -> View[int]:
    """The current epoch."""
    return View("epochNow", _data("epochNow"), int, REPUTATION)


def seed_of(epoch: int) -> View[Hash32]:
    """Hash of the last block before an epoch; zero if it is to come or too old."""
    return View("seedOf", _data("seedOf", epoch), Hash32, REPUTATION)


def enroll(operator: Address, vrf_key: tuple[int, int], consent: bytes, bond: int) -> Call:
    """Bond a member; ``consent`` is its signature of EnrollRater, ``bond`` in wei."""
    return Call("enroll", _data("enroll", operator, *vrf_key, consent), bond)


def leave(operator: Address) -> Call:
    """Stop counting after this epoch."""
    return Call("leave", _data("leave", operator))


def withdraw(operator: Address) -> Call:
    """The bond back to the owner, after the exit block."""
    return Call("withdraw", _data("withdraw", operator))


def settle(update: EpochUpdate, lead: VrfProof, reports: Sequence[SignedSilence], signatures: Sequence[bytes]) -> Call:
    """Settle the current epoch; reports and signatures in ascending order of their signers."""
    return Call("settle", _data("settle", update, lead, list(reports), list(signatures)))


def report_silence(update: EpochUpdate, reports: Sequence[SignedSilence]) -> Call:
    """Rate whom the update that settled an epoch left unscored; reports in ascending order of their signers."""
    return Call("reportSilence", _data("reportSilence", update, list(reports)))


def expel(operator: Address, epoch: int, seed: Hash32, first: UpdateEvidence, second: UpdateEvidence) -> Call:
    """Expel a member that signed both."""
    return Call("expel", _data("expel", operator, epoch, seed, first, second))


def _data(function: str, *arguments: object) -> bytes:
    return calldata(REPUTATION, function, *arguments)
