"""A case as it will be once its tiles are drawn: the due block picks them, whoever says so on chain and when.

Parties that read the block themselves show their parts at once; then one call draws the tiles and decides.
"""

from __future__ import annotations

from dataclasses import replace

from troth.cases.courtroom import Courtroom
from troth.protocol.market import court, messages
from troth.protocol.market.types import CasePhase, CaseState, Parameters, Rules


def tiles_block(state: CaseState, parameters: Parameters) -> int:
    """The block whose RANDAO picks the tiles of a round that has its commitments."""
    return state.phase_block + parameters.lookahead


async def foreseen(
    courtroom: Courtroom, state: CaseState, rules: Rules, parameters: Parameters, block: int
) -> CaseState | None:
    """The state with its tiles, which the chain has fixed by ``block`` and nobody has drawn; None where there is none.

    All commitments stand in it and the block is past, so that nothing that is shown now can change either.
    """
    if rules.exact or state.phase is not CasePhase.COMMITTED:
        return None
    due = tiles_block(state, parameters)
    if not due <= block <= due + parameters.draw_window:
        return None
    header = await courtroom.header(due)
    seed = messages.tiles_seed(court.case_of(state), state.commitments, header.randao)
    return replace(state, phase=CasePhase.SEEDED, seed=seed)
