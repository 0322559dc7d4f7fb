"""Public noise inside vLLM: a logits processor that leaves each row the token which `troth.protocol.tokens` chooses.

Rows are taken as float32, tokens are those of the rule itself, and every other token gets minus infinity,
so that vLLM's greedy sampler can only take the one. Runs in vLLM's process (model runner 1), for all rows of a step at
once and where they are (`engine.choice`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from troth.node.engine.choice import TokenDraw, choose_tokens
from troth.node.engine.vllm.sampling_words import SamplingDraw, draw_from_words


class _NoisyRequest(NamedTuple):
    """One request of the batch; vLLM appends to `output` itself."""

    draw: SamplingDraw
    prompt: int
    output: list[int]

    @property
    def next_draw(self) -> TokenDraw:
        """How the next token is chosen; its position is the trace row whose logits choose it."""
        return TokenDraw(self.draw.sampling, self.draw.seed, self.prompt + len(self.output) - 1)


class PublicNoise(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Greedy where the temperature is 0, Gumbel-max with the task's noise elsewhere; the lowest id among equals."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._drawn: dict[int, _NoisyRequest] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse words that are no draw before they reach the engine."""
        try:
            draw_from_words(sampling_params.extra_args)
        except Exception as error:
            raise ValueError(str(error)) from error

    def is_argmax_invariant(self) -> bool:
        """Noise changes which token is the argmax."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow which request stands at which row of the batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._drawn.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self._drawn.pop(index, None)
            draw = draw_from_words(params.extra_args)
            if draw is not None and prompt is not None:
                self._drawn[index] = _NoisyRequest(draw, len(prompt), output)
        for source, target, direction in batch_update.moved:
            moved, other = self._drawn.pop(source, None), self._drawn.pop(target, None)
            if moved is not None:
                self._drawn[target] = moved
            if direction == MoveDirectionality.SWAP and other is not None:
                self._drawn[source] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """One token per row that draws, in place; shape (requests, vocabulary)."""
        rows = [index for index in self._drawn if index < len(logits)]
        if rows:
            places = torch.tensor(rows, device=logits.device)
            draws = [self._drawn[index].next_draw for index in rows]
            chosen = torch.tensor(choose_tokens(logits[places].float(), draws), device=logits.device)
            logits[places] = float("-inf")
            logits[places, chosen] = 0.0
        return logits
