"""Two inequalities of the contracts' library ``Economy``, for tests of the least amounts that fulfil them."""

from __future__ import annotations

from troth.protocol.market.economy import GAIN_TIMES, LOSS_TIMES, ONE, REWARD_SHARE
from troth.protocol.market.prices import PER


def deters(penalty: int, gain: int, probability: int) -> bool:
    """Whether a penalty L outweighs what can be gained with fees of at most g: 2 L p >= 3 g (1 - p)."""
    return LOSS_TIMES * penalty * probability >= GAIN_TIMES * gain * (ONE - probability)


def rewards(penalty: int, convicting: int, gas: int, gas_price: int) -> bool:
    """Whether bringing a rejection pays: a tenth of L where it convicts, against a case's ``gas`` where it does not."""
    return penalty * convicting * PER >= REWARD_SHARE * gas * gas_price * (ONE - convicting)
