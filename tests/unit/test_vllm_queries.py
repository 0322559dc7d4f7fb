"""Each query of a step as a sequence of its own: what vLLM's CPU attention is told in exact classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from troth.node.engine.vllm.processor_kernels import single_queries  # noqa: E402

pytestmark = pytest.mark.torch


@dataclass
class Batch:
    """What vLLM says of a step, as far as attention reads it."""

    query_start_loc: Any
    query_start_loc_cpu: Any
    seq_lens: Any
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: Any
    slot_mapping: Any


def test_each_query_sees_the_keys_up_to_its_own() -> None:
    starts = torch.tensor([0, 3, 4, 6], dtype=torch.int32)
    blocks = torch.tensor([[7, 8], [1, 0], [5, 6]], dtype=torch.int32)
    seen, slots = torch.tensor([3, 40, 12], dtype=torch.int32), torch.arange(6)
    found = single_queries(Batch(starts, starts, seen, 3, 6, 3, 40, blocks, slots))
    # A prompt of three from its beginning, a text that is at its 40th position, the last two of a prompt of twelve.
    assert found.seq_lens.tolist() == [1, 2, 3, 40, 11, 12]
    assert found.query_start_loc.tolist() == found.query_start_loc_cpu.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert found.block_table_tensor.tolist() == [[7, 8]] * 3 + [[1, 0]] + [[5, 6]] * 2
    assert (found.num_reqs, found.max_query_len, found.max_seq_len, found.num_actual_tokens) == (6, 1, 40, 6)
    assert found.slot_mapping is slots
    assert {found.seq_lens.dtype, found.query_start_loc.dtype, found.block_table_tensor.dtype} == {torch.int32}


def test_a_step_that_only_writes_is_what_it_was() -> None:
    starts, seen = torch.arange(4, dtype=torch.int32), torch.tensor([5, 9, 2], dtype=torch.int32)
    blocks = torch.tensor([[1], [2], [3]], dtype=torch.int32)
    found = single_queries(Batch(starts, starts, seen, 3, 3, 1, 9, blocks, torch.arange(3)))
    assert found.seq_lens.tolist() == [5, 9, 2]
    assert found.query_start_loc.tolist() == [0, 1, 2, 3]
    assert found.block_table_tensor.tolist() == [[1], [2], [3]]
