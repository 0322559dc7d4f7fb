"""What of a class arithmetic proves, in words: what an accuser is told where it cannot convict that way."""

from __future__ import annotations

from troth.protocol.market.layers import layers_of
from troth.protocol.market.types import ExecutionClass
from troth.protocol.tensors import Dtype

COURT = "Bring the answer to the court: `troth case open`."
DISPUTE = "Its rows may be wrong all the same: `troth node dispute`."
BFLOAT16 = (
    "In a bfloat16 class arithmetic proves a wrong token (`troth node accuse`) and no wrong row: honest rounding moves "
    "single numbers of a row as far as cheaper weights do, so that no tolerance is proven"
)
NO_LAYERS = (
    "The class does not name how its layers compute, so that arithmetic proves a wrong token (`troth node accuse`) and "
    "no wrong row"
)


def rows_are_not(definition: ExecutionClass) -> str:
    """Why a wrong row of this class is not provable; empty where it is."""
    if definition.dtype != Dtype.FLOAT32:
        return BFLOAT16
    return "" if layers_of(definition.name) is not None else NO_LAYERS


def behind_tokens(definition: ExecutionClass) -> str:
    """What is left where no token of an answer is wrong."""
    why = rows_are_not(definition)
    return f"{why}. {COURT}" if why else DISPUTE
