"""Public noise inside vLLM: a logits processor that leaves each row the token which `troth.protocol.tokens` chooses.

The rule itself is called, not repeated: the row is handed over as float32, and every other token gets minus infinity,
so that vLLM's greedy sampler can only take the one. Runs in vLLM's process (model runner 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from troth.node.engine.vllm.sampling_words import SamplingDraw, draw_from_words
from troth.protocol.masks import RowRule, TextRules
from troth.protocol.tokens import Sampling, choose, noise


@dataclass
class _NoisyRequest:
    """One request of the batch; vLLM appends to `output` itself."""

    draw: SamplingDraw
    prompt: int
    output: list[int]
    rules: TextRules | None = None

    @property
    def position(self) -> int:
        """The trace row whose logits choose the next token."""
        return self.prompt + len(self.output) - 1

    def rule(self, vocabulary: int, tokenizer: Callable[[], str]) -> RowRule | None:
        """What transforms the next row; the tokenizer is read where a grammar needs it."""
        request = self.draw.request
        if not request.transforms.any:
            return None
        if self.rules is None:
            self.rules = TextRules(request, vocabulary, tokenizer() if request.transforms.grammar else "")
        self.rules.take_all(self.output[self.rules.taken :])
        return self.rules.row()


class PublicNoise(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Greedy where the temperature is 0, Gumbel-max with the task's noise elsewhere; the lowest id among equals."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._drawn: dict[int, _NoisyRequest] = {}
        self._config = vllm_config

    @cached_property
    def _tokenizer(self) -> str:
        return (Path(self._config.model_config.model) / "tokenizer.json").read_text(encoding="utf-8")

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
        for index, drawn in self._drawn.items():
            if index < len(logits):
                token = _choice(logits[index], drawn, lambda: self._tokenizer)
                logits[index].fill_(float("-inf"))
                logits[index, token] = 0.0
        return logits


def _choice(row: torch.Tensor, drawn: _NoisyRequest, tokenizer: Callable[[], str]) -> int:
    request, seed = drawn.draw
    sampling, values = Sampling.of(request), row.float().cpu().numpy()
    gumbel = noise(seed, drawn.position, len(values)) if sampling.temperature > 0 else None
    return choose(values, sampling, gumbel, drawn.rule(len(values), tokenizer))
