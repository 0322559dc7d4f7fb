"""Public noise for vLLM's second model runner, in which a request has a slot from its beginning to its end.

What a text has said stays on the device, and is read only where a text's rules need it. The runner asks for a row of
each request of a step, also while its prompt is read in chunks: such rows choose nothing that anybody takes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from troth.node.engine.vllm.noise import NoisyRow, NoisyText, choose_in_place, require_draw, tokenizer_of


class SlotNoise(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """See `noise.PublicNoise`."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self._texts: dict[int, NoisyText] = {}
        self._states = req_states
        self._tokenizer = tokenizer_of(vllm_config)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse words that are no draw before they reach the engine."""
        require_draw(sampling_params)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """A request takes a slot, and whoever had it before is gone; whether it draws its tokens."""
        self._texts.pop(req_idx, None)
        draw = require_draw(sampling_params)
        if draw is not None:
            self._texts[req_idx] = NoisyText(draw)
        return draw is not None

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """One token per row that draws, in place; (rows, vocabulary), a row for each request of the step in order.

        Without speculation, which is never asked for, the lengths that the host knows are exact.
        """
        rows = []
        for index, (slot, length) in enumerate(zip(ctx.idx_mapping_np, ctx.seq_lens_upper_bound_np, strict=True)):
            text = self._texts.get(int(slot))
            if text is not None and length >= self._states.prefill_len.np[slot]:
                rows.append(NoisyRow(index, text, int(length) - 1, partial(self._said, int(slot), int(length))))
        choose_in_place(logits, rows, self._tokenizer)
        return logits

    def _said(self, slot: int, length: int) -> list[int]:
        prompt = int(self._states.prompt_len.np[slot])
        said: list[int] = self._states.all_token_ids.gpu[slot, prompt:length].tolist()
        return said
