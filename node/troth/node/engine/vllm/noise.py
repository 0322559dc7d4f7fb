"""Public noise inside vLLM: a logits processor that leaves each row the token which `troth.protocol.tokens` chooses.

Rows are taken as float32, tokens are those of the rule itself, and every other token gets minus infinity,
so that vLLM's greedy sampler can only take the one. Runs in vLLM's process, for all rows of a step at once and where
they are (`engine.choice`). `PublicNoise` is for the first of vLLM's model runners, `slot_noise` for the second. Where
layers are shared out over cards, each process has the same logits and so takes the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from troth.node.engine.choice import choose_tokens
from troth.node.engine.interface import TokenDraw
from troth.node.engine.vllm.sampling_words import SamplingDraw, draw_from_words
from troth.protocol.masks import RowRule, TextRules
from troth.protocol.tokens import Sampling, choose, noise


@dataclass
class NoisyText:
    """One text that draws its tokens; `rules` are what transforms its rows, once there was one."""

    draw: SamplingDraw
    rules: TextRules | None = None

    def at(self, position: int) -> TokenDraw:
        """How the next token is chosen; `position` is that of the row whose logits choose it."""
        return TokenDraw(Sampling.of(self.draw.request), self.draw.seed, position)

    def rule(self, said: Callable[[], Sequence[int]], vocabulary: int, tokenizer: Callable[[], str]) -> RowRule | None:
        """What transforms the row after the tokens `said`; the tokenizer is read where a grammar needs it."""
        request = self.draw.request
        if not request.transforms.any:
            return None
        if self.rules is None:
            self.rules = TextRules(request, vocabulary, tokenizer() if request.transforms.grammar else "")
        self.rules.take_all(said()[self.rules.taken :])
        return self.rules.row()


class NoisyRow(NamedTuple):
    """A row of logits that chooses: its place in the batch, its text, its position, and what the text has said."""

    place: int
    text: NoisyText
    position: int
    said: Callable[[], Sequence[int]]


def choose_in_place(logits: torch.Tensor, rows: Sequence[NoisyRow], tokenizer: Callable[[], str]) -> None:
    """Leave each of these rows of (rows, vocabulary) logits its token."""
    plain: list[NoisyRow] = []
    for row in rows:
        rule = row.text.rule(row.said, logits.shape[1], tokenizer)
        if rule is None:
            plain.append(row)
        else:
            _leave_only(logits, [row.place], [_by_rule(logits[row.place], row.text.at(row.position), rule)])
    if plain:
        places = [row.place for row in plain]
        draws = [row.text.at(row.position) for row in plain]
        _leave_only(logits, places, choose_tokens(logits[places].float(), draws))


def tokenizer_of(vllm_config: Any) -> Callable[[], str]:
    """Reads the model's tokenizer.json, once."""
    return cache(lambda: (Path(vllm_config.model_config.model) / "tokenizer.json").read_text(encoding="utf-8"))


def require_draw(sampling_params: Any) -> SamplingDraw | None:
    """The draw of vLLM's SamplingParams; ValueError, which fails one request alone, for words that are none."""
    try:
        return draw_from_words(sampling_params.extra_args)
    except Exception as error:
        raise ValueError(str(error)) from error


@dataclass
class _BatchedText(NoisyText):
    """vLLM appends to `output` itself."""

    prompt: int = 0
    output: list[int] = field(default_factory=list)

    def said(self) -> Sequence[int]:
        """What the text has said so far."""
        return self.output


class PublicNoise(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Greedy where the temperature is 0, Gumbel-max with the task's noise elsewhere; the lowest id among equals."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._drawn: dict[int, _BatchedText] = {}
        self._tokenizer = tokenizer_of(vllm_config)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse words that are no draw before they reach the engine."""
        require_draw(sampling_params)

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
                self._drawn[index] = _BatchedText(draw, None, len(prompt), output)
        for source, target, direction in batch_update.moved:
            moved, other = self._drawn.pop(source, None), self._drawn.pop(target, None)
            if moved is not None:
                self._drawn[target] = moved
            if direction == MoveDirectionality.SWAP and other is not None:
                self._drawn[source] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """One token per row that draws, in place; shape (requests, vocabulary)."""
        rows = [
            NoisyRow(index, text, text.prompt + len(text.output) - 1, text.said)
            for index, text in self._drawn.items()
            if index < len(logits)
        ]
        choose_in_place(logits, rows, self._tokenizer)
        return logits


def _by_rule(row: torch.Tensor, draw: TokenDraw, rule: RowRule) -> int:
    """A grammar's mask, penalties and biases are defined on the host."""
    sampling, seed, position = draw
    values = row.float().cpu().numpy()
    return choose(values, sampling, noise(seed, position, len(values)) if sampling.temperature > 0 else None, rule)


def _leave_only(logits: torch.Tensor, rows: list[int], tokens: Sequence[int]) -> None:
    """Nothing but these tokens can be sampled in these rows."""
    places = torch.tensor(rows, device=logits.device)
    logits[places] = float("-inf")
    logits[places, torch.tensor(tokens, device=logits.device)] = 0.0
