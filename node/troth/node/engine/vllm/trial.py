"""Whether the vLLM that is installed here computes: a small model with made-up weights, decoded and in one prefill.

Usage: python -m troth.node.engine.vllm.trial DEVICE
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from troth.node.engine.probe import PROBED, probe
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import open_folder

BFLOAT16 = 1
SHAPE = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 2 * PROBED,
}  # fmt: skip


async def trial(device: str) -> str:
    """The probe of the made-up model.

    Raises:
        EngineError: vLLM cannot be started.
        ModelError: it computes other rows in a prefill than when it decodes.
    """
    with tempfile.TemporaryDirectory(prefix="troth-trial-") as made:
        path = Path(made)
        write_model(path)
        settings = EngineSettings(path, BFLOAT16, device, positions=PROBED, cache_bytes=1 << 27, threads=1)
        engine = VllmEngine(open_folder(path), settings)
        try:
            return await probe(engine)
        finally:
            await engine.close()


def write_model(path: Path) -> None:
    """A Llama of two layers, with a tokenizer of numbers."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**SHAPE)).to(torch.bfloat16).save_pretrained(path)
    Tokenizer(WordLevel({str(number): number for number in range(SHAPE["vocab_size"])})).save(
        str(path / "tokenizer.json")
    )


def main() -> None:
    """Print one line if it works; whatever goes wrong is raised."""
    found = asyncio.run(trial(sys.argv[1]))
    has = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    print(f"decode has the bits of prefill ({found}), with {has}")


if __name__ == "__main__":
    main()
