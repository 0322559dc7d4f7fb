"""Is honesty the best reply? The game of VeriLLM Appendix E over the rules as built, beside the paper's example.

``measure`` is the short form for ``scripts/bench``; ``scripts/disputes`` prints all tables and plays the contract.
"""

from __future__ import annotations

from benchmarks.committees import smallest
from benchmarks.disputes.example import Example
from benchmarks.disputes.replies import inferencer, inferencer_gain, verifier, verifier_gain
from benchmarks.disputes.strategies import SHARES, USUAL, sensible
from benchmarks.disputes.tables import ERRORS, ON_CHAIN
from benchmarks.figures import Figure
from troth.protocol.review import reviewers_needed


def measure() -> list[Figure]:
    """Rows for each honest share; the paper's column is its example with a second committee by Lemma E.2."""
    return [figure for honest in SHARES for figure in _of_share(honest)]


def _of_share(honest: float) -> list[Figure]:
    lemma = reviewers_needed(honest, ERRORS[1])
    world, example = sensible(honest, USUAL), Example(honest, lemma)
    serving = inferencer(world)
    name = f"r = {honest:.2f}"
    return [
        Figure(
            f"{name}: honest inferencer's lead over the best cheat",
            *(serving.lead, "units", example.lead),
            note="cheating must save less" if serving.best_honest > 0 else "but honest serving costs by itself",
        ),
        Figure(f"{name}: honest verifier's lead", verifier(world).lead, "units", example.verifier_lead),
        Figure(
            f"{name}: a dispute adds to a wrongly rejected inferencer",
            *(inferencer_gain(world, honest=True), "units", example.gain(honest=True)),
            note=_against(inferencer_gain(world, honest=True)),
        ),
        Figure(
            f"{name}: and to the one honest verifier of an accepted cheat",
            *(verifier_gain(world), "units", 0.0),
            note=_against(verifier_gain(world)) or "the paper pays no verifier for it",
        ),
        Figure(f"{name}: and to a rightly rejected cheat", inferencer_gain(world, honest=False), "units"),
        Figure(
            f"{name}: reviewers for 1 % error",
            *(smallest(honest, ERRORS[1]), "nodes", lemma),
            note="Lemma E.2's is more than a chain carries" if lemma > ON_CHAIN else "the paper's is Lemma E.2's",
        ),
        Figure(
            f"{name}: what a failed dispute leaves its reviewers unpaid",
            *(0.0, "units", example.shortfall),
            note="the disputer pays them all",
        ),
    ]


def _against(gain: float) -> str:
    return "" if gain > 0 else "not worth it"
