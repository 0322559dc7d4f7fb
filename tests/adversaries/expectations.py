"""What must hold after a trial, in words for what does not."""

from __future__ import annotations

from collections.abc import Iterator

from adversaries.registry import CONTRACT_MAJORITY, CONTRACT_TILES, NOT_CAUGHT, SCHEDULER, STATES, TOKENS
from adversaries.trial import Finding

CAUGHT_IN_TIME = {CONTRACT_MAJORITY, CONTRACT_TILES, SCHEDULER, STATES, TOKENS}
"""What leaves no pay for any cheat of a trial; a copied opening has an accomplice who opened its own and is paid."""


def broken(found: Finding) -> list[str]:
    """Every statement of the registry that the trial contradicts."""
    return list(_contradictions(found))


def _contradictions(found: Finding) -> Iterator[str]:
    adversary = found.adversary
    if found.outcome != adversary.outcome:
        yield f"the outcome is {found.outcome}, not {adversary.outcome}"
    if sorted(found.slashed_seats.items()) != sorted(adversary.slashed):
        yield f"slashed are {found.slashed_seats}, not {dict(adversary.slashed)}"
    if adversary.outcome != "accepted" and (found.cost, found.released) != (0, found.fee):
        yield f"the client paid {found.cost} wei and got {found.released} of {found.fee} back"
    if adversary.caught_by in {STATES, TOKENS}:
        checks = {one.caught_by for one in found.judged}
        if checks != {adversary.caught_by}:
            yield f"honest verifiers' checks say {checks}, not {adversary.caught_by}"
    if (
        adversary.caught_by == NOT_CAUGHT
        and adversary.role == "inferencer"
        and any(one.caught_by for one in found.judged)
    ):
        yield "a verifier caught it"
    if adversary.caught_by in CAUGHT_IN_TIME and any(found.credited.get(rogue) for rogue in found.rogues):
        yield "the cheat was paid"
    if adversary.refusal not in found.error:
        yield f"the client was told {found.error!r}, not of {adversary.refusal!r}"
    if not found.judged and not adversary.scheduler and len(adversary.verifiers) < 3:
        yield "no honest verifier judged"
