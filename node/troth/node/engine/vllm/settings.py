"""How vLLM is started: what belongs to the execution class is fixed here, so that two nodes cannot differ in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.node.engine.vllm.machine import CardMachine

DTYPES = ("float32", "bfloat16")
BLOCK = 32
"""Tokens of a cache block: what vLLM's CPU kernels want a multiple of, and short enough for most prefixes to share."""
FIXED_ROWS = 16
"""Rows of every matrix product on CPU (`fixed_rows`): the height of a tile of the processor's matrix unit."""

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Long contexts would be cut by how many threads there are, and sums with them.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
    # Tokens are chosen before vLLM's sampler; this one of its ways reads the batch's size (issue 51187).
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
ROUNDING = (
    *("VLLM_MARLIN_INPUT_DTYPE", "VLLM_HUMMING_INPUT_QUANT_CONFIG"),
    *("VLLM_FLOAT32_MATMUL_PRECISION", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
"""By these an operator, or whoever made the container, could have numbers rounded that the class has whole."""
PROCESSORS = {1: "troth.node.engine.vllm.noise:PublicNoise", 2: "troth.node.engine.vllm.slot_noise:SlotNoise"}
"""What chooses tokens, for each of vLLM's model runners. The second one needs Triton, which no CPU build has."""
CARD_BATCH, CARD_STEP = 256, 8192
"""Requests at once, and positions of a step, on a graphics card."""
CARD_SHARE = 0.9
"""Of a card's memory that vLLM takes: weights, what a step needs, and all the rest for keys and values."""
CARD_ROWS = 4 << 30
"""Memory of the host for rows of cached prefixes where the cache is sized by the card."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine.

    Args:
        dtype: 0 float32, 1 bfloat16.
        device: cpu, or cuda for the first graphics cards.
        positions: longest text, prompt and answer together.
        cache_bytes: memory of keys and values; 0 on cuda is what the card has left.
        threads: of the CPU kernels; None for one per core. It does not change a bit of any row.
        step_tokens: positions computed in one step; longer prompts are cut into chunks. 0: by the device.
        batch: requests at once. 0: by the device.
        exact: whether a row may not depend on its batch. On cuda that costs a fifth to a third of the speed.
        machine: the cards and how they are used, as an exact class names them; on cuda only.
        graphs: whether steps that only write are replayed as CUDA graphs; they run the same kernels.
        spared: bytes of a card that are left for others than vLLM: the float32 reference of a tolerant class.
        runner: which of vLLM's model runners; 0: by the device.
        parallel: over how many cards, or processes on a CPU, layers are shared out.
    """

    model: Path
    dtype: int
    device: str = "cpu"
    positions: int = 8192
    cache_bytes: int = 2 << 30
    threads: int | None = None
    step_tokens: int = 0
    batch: int = 0
    exact: bool = True
    machine: CardMachine | None = None
    graphs: bool = True
    spared: int = 0
    runner: int = 0
    parallel: int = 1

    @property
    def on_card(self) -> bool:
        """Whether it is a graphics card that computes."""
        return self.device.partition(":")[0] == "cuda"

    @property
    def row_bytes(self) -> int:
        """Memory for the rows of cached prefixes, beside that of keys and values."""
        return self.cache_bytes // 8 or CARD_ROWS

    def arguments(self, folder: Path) -> dict[str, Any]:
        """Arguments of vLLM's AsyncEngineArgs; `folder` holds the sockets of this engine."""
        return {
            "model": str(self.model),
            "skip_tokenizer_init": True,
            "dtype": DTYPES[self.dtype],
            # One more than a text has: a prefill of all of it also chooses a token that nobody asked for.
            "max_model_len": self.positions + 1,
            "max_num_seqs": self.batch or (CARD_BATCH if self.on_card else 64),
            "max_num_batched_tokens": self.step_tokens or (CARD_STEP if self.on_card else 2048),
            "enable_chunked_prefill": True,
            "enable_prefix_caching": True,
            "prefix_caching_hash_algo": "sha256",
            "block_size": BLOCK,
            "async_scheduling": False,
            "generation_config": "vllm",
            "seed": 0,
            "trust_remote_code": False,
            "use_tqdm_on_load": False,
            "worker_extension_cls": "troth.node.engine.vllm.worker.RowTap",
            "logits_processors": [PROCESSORS[self._runner]],
            "kv_events_config": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"ipc://{folder}/blocks",
                "topic": "",
            },
            "tensor_parallel_size": self.parallel,
            **(self._card() if self.on_card else {"enforce_eager": True}),
            **({"kv_cache_memory_bytes": self.cache_bytes} if self.cache_bytes else {}),
        }

    def _card(self) -> dict[str, Any]:
        """What is only said to graphics cards. Nothing is compiled: what is fused has other bits than what is not."""
        said: dict[str, Any] = {"gpu_memory_utilization": self._share()}
        if self.machine is not None:
            said["attention_config"] = self.machine.attention
        if not self.graphs:
            return said | {"enforce_eager": True}
        return said | {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}}

    def _share(self) -> float:
        if not self.spared:
            return CARD_SHARE
        import torch

        return max(0.1, CARD_SHARE - self.spared / int(torch.cuda.get_device_properties(0).total_memory))

    @property
    def _runner(self) -> int:
        return self.runner or (2 if self.on_card else 1)

    def environment(self) -> dict[str, str]:
        """What vLLM reads from the environment and the class depends on."""
        return ENVIRONMENT | {
            "VLLM_USE_V2_MODEL_RUNNER": str(self._runner - 1),
            # Kernels whose result for one request does not depend on what else is in the batch. On CPU the ordinary
            # ones are so already, and this switch would call kernels that are not there.
            "VLLM_BATCH_INVARIANT": str(int(self.on_card and self.exact)),
            # Where a processor has AMX, vLLM would round what enters layers of 4 bits to 8: far from the float32
            # states that a tolerant class is judged by. An exact class has bits of its own, with or without.
            "VLLM_CPU_INT4_W4A8": str(int(self.exact)),
        }

    def prepare_environment(self, folder: Path) -> None:
        """Set it, before vLLM is imported, for this process and those it starts; `folder` is as in `arguments`."""
        os.environ.update(self.environment())
        # vLLM never removes its sockets: they go with the folder.
        os.environ["VLLM_RPC_BASE_PATH"] = str(folder)
        for name in ROUNDING:
            os.environ.pop(name, None)
        # Its warnings are about defaults that a class fixes on purpose; whoever looks for one sets INFO.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        # Standard output belongs to the command: it may be JSON.
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
        os.environ["OMP_NUM_THREADS"] = str(self.threads or os.cpu_count() or 1)
