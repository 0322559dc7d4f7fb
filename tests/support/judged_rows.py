"""Rows of an honest node or of a cheat, and what a verifier says of them, as one node would judge another: SmolLM2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from troth.node.calibration.generating import words
from troth.node.calibration.stack import Stack
from troth.node.engine.interface import SessionKey
from troth.node.judging.verdicts import Judgement, judge_rows
from troth.node.models.folder import ModelFolder
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_HASH, Segment

WHOLE = Segment(0, 30)
PROMPT = 24


async def decoded(engine: Any, tokens: Sequence[int]) -> np.ndarray:
    """What an honest node computes: the prompt at once, then one by one."""
    found, key = [], SessionKey(b"node", 0, 0)
    for start, end in [(0, PROMPT), *((place, place + 1) for place in range(PROMPT, len(tokens)))]:
        found.append((await engine.forward(key, WHOLE, start, np.array(tokens[start:end]))).rows)
    await engine.forget(key)
    return np.concatenate(found)


def cheated(folder: ModelFolder, tokens: Sequence[int], change: Callable[[Stack], None]) -> np.ndarray:
    """What a node computes that changed its model."""
    stack = Stack(folder, torch.bfloat16)
    change(stack)
    with torch.inference_mode():
        return words(stack.forward(stack.embed(torch.tensor([tokens])), WHOLE, stack.cache(), 0), 1)[0]


async def judged(engine: Any, rules: Any, tokens: Sequence[int], claimed: np.ndarray) -> Judgement:
    """By a verifier whose own rows are a prefill; the text is what its last row chooses, so that states alone count."""
    key = SessionKey(b"verifier", 0, 0)
    own = (await engine.forward(key, WHOLE, 0, np.array(tokens))).rows
    await engine.forget(key)
    request = Request(
        execution_class=ZERO_HASH, prompt_tokens=tuple(tokens), max_tokens=1, temperature_millionths=0,
        top_p_millionths=1_000_000, end_tokens=(),
    )  # fmt: skip
    text = (int((await engine.logits(claimed[-1:])).rows.argmax()),)
    seat = SimpleNamespace(
        execution_class=rules, layers=WHOLE, dtype=Dtype.BFLOAT16, is_last=True, request=request,
        prompt_positions=PROMPT, noise_seed=ZERO_HASH,
    )  # fmt: skip
    inputs = np.array(tokens)
    session: Any = SimpleNamespace(seat=seat, tokens=text, all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, claimed, root_matches=True)
