"""How vLLM is started: what belongs to the execution class is fixed here, so that two nodes cannot differ in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DTYPES = ("float32", "bfloat16")
BLOCK = 32
"""Tokens of a cache block: what vLLM's CPU kernels want a multiple of, and short enough for most prefixes to share."""
FIXED_ROWS = 16
"""Rows of every matrix product on CPU (`fixed_rows`): the height of a tile of the processor's matrix unit."""

ENVIRONMENT = {
    # The first model runner has the batch that the row tap and the noise processor read.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Long contexts would be cut by how many threads there are, and sums with them.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
}
CUDA_ENVIRONMENT = {
    # Kernels whose result for one request does not depend on what else is in the batch. On CPU the ordinary ones are
    # so already, and this switch would call kernels that are not there.
    "VLLM_BATCH_INVARIANT": "1",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine.

    Args:
        dtype: 0 float32, 1 bfloat16.
        device: cpu, or cuda for the first graphics card.
        positions: longest text, prompt and answer together.
        cache_bytes: memory of keys and values.
        threads: of the CPU kernels; None for one per core. It does not change a bit of any row.
        step_tokens: positions computed in one step; longer prompts are cut into chunks.
        batch: requests at once.
    """

    model: Path
    dtype: int
    device: str = "cpu"
    positions: int = 8192
    cache_bytes: int = 2 << 30
    threads: int | None = None
    step_tokens: int = 2048
    batch: int = 64

    def arguments(self, folder: Path) -> dict[str, Any]:
        """Arguments of vLLM's AsyncEngineArgs; `folder` holds the sockets of this engine."""
        return {
            "model": str(self.model),
            "skip_tokenizer_init": True,
            "dtype": DTYPES[self.dtype],
            # One more than a text has: a prefill of all of it also chooses a token that nobody asked for.
            "max_model_len": self.positions + 1,
            "max_num_seqs": self.batch,
            "max_num_batched_tokens": self.step_tokens,
            "enable_chunked_prefill": True,
            "enable_prefix_caching": True,
            "prefix_caching_hash_algo": "sha256",
            "block_size": BLOCK,
            "kv_cache_memory_bytes": self.cache_bytes,
            "enforce_eager": True,
            "async_scheduling": False,
            "generation_config": "vllm",
            "seed": 0,
            "trust_remote_code": False,
            "worker_extension_cls": "troth.node.engine.vllm.worker.RowTap",
            "logits_processors": ["troth.node.engine.vllm.noise:PublicNoise"],
            "kv_events_config": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"ipc://{folder}/blocks",
                "topic": "",
            },
        }

    def prepare_environment(self) -> None:
        """Set what vLLM reads from the environment; before it is imported, for this process and those it starts."""
        os.environ.update(ENVIRONMENT)
        if self.device == "cuda":
            os.environ.update(CUDA_ENVIRONMENT)
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        # Standard output belongs to the command: it may be JSON.
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
        os.environ["OMP_NUM_THREADS"] = str(self.threads or os.cpu_count() or 1)
