"""A case as it will be once its reviewers or its tiles are drawn: the due block picks them, whoever says so and when.

Parties that read the block themselves give their parts at once; then one call draws and goes on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from troth.cases.calls import reviewers_request
from troth.cases.courtroom import CallRefused, Courtroom
from troth.protocol.market import court, messages
from troth.protocol.market.proceedings import CasePhase, CaseState
from troth.protocol.market.types import Parameters, Rules


def due_block(state: CaseState, parameters: Parameters) -> int:
    """The block whose RANDAO draws the reviewers of a round, or the tiles of one that has its commitments."""
    return state.phase_block + parameters.lookahead


async def foreseen(
    courtroom: Courtroom, state: CaseState, rules: Rules, parameters: Parameters, block: int
) -> CaseState | None:
    """The state with its reviewers, or with its tiles, which the chain has fixed by ``block`` and nobody has drawn.

    None where there is none. The block is past, so that nothing that is given now can change either; a reorganisation
    can, and then what was given is asked for anew.
    """
    due = due_block(state, parameters)
    if not due <= block <= due + parameters.draw_window:
        return None
    if state.phase is CasePhase.OPENED:
        return await _with_reviewers(courtroom, state, rules, due)
    if state.phase is not CasePhase.COMMITTED or rules.exact:
        return None
    header = await courtroom.header(due)
    seed = messages.tiles_seed(court.case_of(state), state.commitments, header.randao)
    return replace(state, phase=CasePhase.SEEDED, seed=seed)


async def _with_reviewers(courtroom: Courtroom, state: CaseState, rules: Rules, due: int) -> CaseState | None:
    header = await courtroom.header(due)
    try:
        drawn = await courtroom.drawn(reviewers_request(state, rules, header.randao))
    except CallRefused:
        # Too few seats are found: the case lapses, and nobody judges in it.
        return None
    seats = Counter(drawn)
    phase = replace(state, phase=CasePhase.DRAWN, phase_block=due)
    return replace(phase, reviewers=tuple(seats), seats=bytes(seats.values()))
