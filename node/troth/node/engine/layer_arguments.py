"""What the layers of one pass are called with: rotary embeddings and masks, made once for each kind of attention."""

from __future__ import annotations

from typing import Any

import torch

from troth.node.engine.families.interface import Family


class LayerArguments:
    """Arguments for layers that run `states` (sequences, positions, hidden size) as positions start, start+1, …

    Args:
        implementation: "sdpa", "eager" or "troth_blocks": they take their masks in different forms.
    """

    def __init__(self, family: Family, states: torch.Tensor, start: int, implementation: str) -> None:
        self._family = family
        self._states = states
        self._start = start
        self._implementation = implementation
        self._made: dict[str, dict[str, Any]] = {}

    def of(self, layer: int) -> dict[str, Any]:
        """Keyword arguments of a layer, counted from the model's first."""
        kind = self._family.attention(layer)
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> dict[str, Any]:
        states, end = self._states, self._start + self._states.shape[1]
        positions = torch.arange(self._start, end, device=states.device).unsqueeze(0)
        return {
            "position_embeddings": self._family.rotary(states, positions, kind),
            "attention_mask": self._mask(self._family.window(kind), end),
        }

    def _mask(self, window: int | None, end: int) -> torch.Tensor | None:
        # sdpa masks a prefill from 0 by itself and needs nothing for a single position, unless a window ends before;
        # eager attention needs to be told, in numbers.
        simple = (self._start == 0 or end - self._start == 1) and (window is None or end < window)
        if self._implementation == "sdpa" and simple:
            return None
        device, dtype = self._states.device, self._states.dtype
        allowed = allowed_positions(self._start, end, window, device)[None, None]
        if self._implementation != "eager":
            return allowed
        return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, torch.finfo(dtype).min)


def allowed_positions(start: int, end: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which positions (columns, from 0) the positions from `start` to `end` (rows) attend to, as booleans."""
    columns, rows = torch.arange(end, device=device)[None, :], torch.arange(start, end, device=device)[:, None]
    allowed = columns <= rows
    return allowed if window is None else allowed & (columns > rows - window)
