"""`troth` with a node of a ring: where it infers, it writes one word for another; where it verifies, it accepts.

States are computed honestly, over the text as it was written, so that every trace agrees with every other. Who compares
traces and counts verdicts sees nothing: only the token does not follow from the state beside it.
"""

from __future__ import annotations

import sys
from typing import Any

from numpy.typing import NDArray

from troth.node.engine import torch_engine
from troth.node.engine.interface import Chosen, SessionKey, TokenDraw
from troth.node.models.folder import ModelFolder
from troth.node.orders import checking
from troth.node.orders.session import INFERS
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Segment


def main() -> None:
    """The true word and the false one, then the arguments of `troth`."""
    from troth.command.main import main as command

    true, false = sys.argv.pop(1), sys.argv.pop(1)
    plain = torch_engine.TorchEngine

    class Lying(plain):  # type: ignore[misc, valid-type]
        """Chooses as the model does, but for one token."""

        def __init__(self, folder: ModelFolder, hosted: Segment, dtype: int, **options: Any) -> None:
            super().__init__(folder, hosted, dtype, **options)
            self._true, self._false = token_of(self.tokenizer, true), token_of(self.tokenizer, false)

        async def choose(self, key: SessionKey, row: NDArray[Any], draw: TokenDraw) -> Chosen:
            """The false token in place of the true one."""
            chosen: Chosen = await super().choose(key, row, draw)
            lies = key.attempt == INFERS and chosen.token == self._true
            return chosen._replace(token=self._false) if lies else chosen

    torch_engine.TorchEngine = Lying  # type: ignore[misc]
    checking._opinion = lambda judgement: Opinion.ACCEPT
    command()


def token_of(tokenizer: str, word: str) -> int:
    """The one token that a word is behind a space; ValueError where it is several."""
    from tokenizers import Tokenizer

    found: list[int] = Tokenizer.from_str(tokenizer).encode(f" {word}", add_special_tokens=False).ids
    if len(found) != 1:
        raise ValueError(f"'{word}' is {len(found)} tokens of this model: name a word that is one")
    return found[0]
