"""POST /v1/embeddings in OpenAI's form: each input is an order of one token, and its embedding the last state.

The state is the row from which the model chooses that token, after its last norm, as the node signed it; it is scaled
to length one. What a decoder that was not trained for it says by this state is told in docs/how-to/gateway.md.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.client.choices import SamplingChoices
from troth.client.gateway.choice import WholeChoice
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import (
    ONE_OF_THESE,
    Defaults,
    Fields,
    GatewayRequest,
    read_check,
    read_prompts,
    read_wait,
)
from troth.client.gateway.shapes import ReplyShapes
from troth.client.orders.terms import CheckedOffer
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market.last_row import row_tolerance

MOST_INPUTS = 64
"""A tab takes 256 orders that are not paid yet, so a batch of OpenAI's 2,048 would close it for a while."""
MOST_BENT = 0.05
"""How far a state may be from an honest one and pass its check, relative to its size: a cosine of 0.998 at least."""
FORMATS = ("float", "base64")


def read_embedding(body: object, defaults: Defaults) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter or Unsupported, naming the field."""
    fields = Fields(body)
    fields.refuse_unless("dimensions", [], "the model's states were not trained to be cut")
    form = fields.text("encoding_format", "float")
    if form not in FORMATS:
        raise InvalidParameter("'encoding_format' is float or base64", "", ONE_OF_THESE, param="encoding_format")
    inputs = read_prompts(fields.get("input"), "input", MOST_INPUTS)
    if "" in inputs:
        raise InvalidParameter("'input' should not be empty", "", "Leave empty texts out.", param="input")
    return GatewayRequest(
        kind="embedding",
        model=fields.text("model"),
        prompts=inputs,
        choices=SamplingChoices(max_tokens=1),
        count=1,
        stops=(),
        logprobs=NO_LOGPROBS,
        stream=False,
        include_usage=False,
        wait=read_wait(fields, defaults.wait),
        check=_check(fields),
        told={"encoding_format": form},
    )


def _check(fields: Fields) -> str:
    word = read_check(fields)
    require_checkable(word)
    return word


def require_checkable(mode: str) -> None:
    """Raise Unsupported for a check by the own model, which looks at texts and not at the state that is shown."""
    if mode.strip().lower() == "self":
        what = "Embeddings are not checked by your own model, which judges texts"
        raise Unsupported(what, "", "Use a share such as 5%, always or court.", param="troth.check")


def require_held(offer: CheckedOffer) -> None:
    """Raise Unsupported for a class whose check does not hold a single state: its embeddings would be anybody's."""
    if row_tolerance(offer.execution_class) > MOST_BENT:
        what = "In this execution class a check tolerates any change of a single state, and an embedding is one"
        remedy = "Use an exact or a float32 class: `troth client models` lists what there is."
        raise Unsupported(what, offer.execution_class.name[:80], remedy, param="model")


def embedding_of(state: NDArray[np.float32]) -> NDArray[np.float32]:
    """A state scaled to length one, shape (hidden size,)."""
    wide = state.astype(np.float64)
    scaled: NDArray[np.float32] = (wide / max(float(np.linalg.norm(wide)), np.finfo(np.float64).tiny)).astype("<f4")
    return scaled


class EmbeddingShapes(ReplyShapes):
    """The list of embeddings, in the order of the inputs; see ``shapes.ReplyShapes``."""

    def whole(self, answers: Sequence[WholeChoice]) -> dict[str, Any]:
        """The answer in one object."""
        completion = self._completion
        data = [
            {"object": "embedding", "index": number, "embedding": self._shown(completion.states[number])}
            for number in range(len(answers))
        ]
        usage = self._usage()
        # One token of each order is written and paid; it is nothing that the caller is given.
        del usage["completion_tokens"]
        usage["total_tokens"] = usage["prompt_tokens"]
        return {
            "object": "list",
            "data": data,
            "model": completion.model,
            "usage": usage,
            "troth": self.troth(),
        }

    def _shown(self, state: NDArray[np.float32]) -> list[float] | str:
        vector = embedding_of(state)
        if self._completion.wanted.told["encoding_format"] == "base64":
            return base64.b64encode(vector.tobytes()).decode("ascii")
        return [float(one) for one in vector]
