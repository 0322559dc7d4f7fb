"""Public noise inside vLLM: a logits processor that leaves each row the token which `troth.protocol.tokens` chooses.

Rows are taken as float32, tokens are those of the rule itself, and every other token gets minus infinity,
so that vLLM's greedy sampler can only take the one. Runs in vLLM's process (model runner 1), for all rows of a step at
once and where they are (`engine.choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from troth.node.engine.choice import choose_tokens
from troth.node.engine.interface import TokenDraw
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
    def next_draw(self) -> TokenDraw:
        """How the next token is chosen; its position is the trace row whose logits choose it."""
        return TokenDraw(Sampling.of(self.draw.request), self.draw.seed, self.prompt + len(self.output) - 1)

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
        plain: list[int] = []
        for index, drawn in self._drawn.items():
            if index >= len(logits):
                continue
            rule = drawn.rule(logits.shape[1], lambda: self._tokenizer)
            if rule is None:
                plain.append(index)
            else:
                _leave_only(logits, [index], [_choice(logits[index], drawn, rule)])
        if plain:
            draws = [self._drawn[index].next_draw for index in plain]
            _leave_only(logits, plain, choose_tokens(logits[plain].float(), draws))
        return logits


def _choice(row: torch.Tensor, drawn: _NoisyRequest, rule: RowRule) -> int:
    """A grammar's mask, penalties and biases are defined on the host."""
    sampling, seed, position = drawn.next_draw
    values = row.float().cpu().numpy()
    return choose(values, sampling, noise(seed, position, len(values)) if sampling.temperature > 0 else None, rule)


def _leave_only(logits: torch.Tensor, rows: list[int], tokens: Sequence[int]) -> None:
    """Nothing but these tokens can be sampled in these rows."""
    places = torch.tensor(rows, device=logits.device)
    logits[places] = float("-inf")
    logits[places, torch.tensor(tokens, device=logits.device)] = 0.0
