"""Conversion into a model folder: safetensors, tokenizer.json, chat template, config.json.

A GGUF file is dequantised by transformers; a folder is taken over as it is (`sources`). The result is written to a
hidden sibling folder and renamed at the end, so that an interrupted import leaves nothing that looks like a model.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from troth.node.errors import ModelError
from troth.node.models.broken_numbers import require_numbers
from troth.node.models.families import require_decoder
from troth.node.models.folder import MODELS_FOLDER, ModelFolder, open_folder
from troth.node.models.packages import PACKAGED, packaged_file
from troth.node.models.quantised import unpacked
from troth.node.models.sources import (
    cached_repository,
    note_links,
    require_sound,
    require_there,
    source_folder,
    wanted_files,
)
from troth.node.models.taking import Report, open_source
from troth.node.models.unfinished import unfinished

if TYPE_CHECKING:
    import torch

PLAIN_TEMPLATE = """\
{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}
Question: {{ message['content'] | trim }}
{% elif message['role'] == 'assistant' %}
Answer: {{ message['content'] | trim }}
{% else %}
{{ message['content'] | trim }}
{% endif %}{% endfor %}{% if add_generation_prompt %}
Answer:{% endif %}
"""
"""The chat template of a model that brings none: one that was trained on text and never taught a chat format.

Without any, a conversation would become an empty prompt. Questions and answers in turn are a form that such models
have read often enough to go on with.
"""


def import_model(source: str, home: Path, name: str, report: Report) -> ModelFolder:
    """Convert `source` into $TROTH_HOME/models/`name`; returns at once when that already exists.

    Args:
        source: a .gguf file, a folder with safetensors, one of Hugging Face's cache, the name of a repository that is
            there, or a name in `packages.PACKAGED`.
        report: receives one line per step, for a person to read.

    Raises:
        ModelError: the source is missing, in an unknown format, damaged, or of a model that is not supported.
    """
    if not name or name.startswith(".") or Path(name).name != name:
        raise ModelError("a model's name is one path component", name, "Choose a name such as smollm2-135m.")
    target = home / MODELS_FOLDER / name
    with _alone(target, report):
        return _imported(source, target, report)


@contextmanager
def _alone(target: Path, report: Report) -> Iterator[None]:
    """One process at a time makes a folder; others wait for it, and find it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.parent / f".{target.name}.lock"
    while True:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"another process imports {target.name}: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever had the lock removed its file: another one may lie there by now.
            if not path.exists() or not os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def _imported(source: str, target: Path, report: Report) -> ModelFolder:
    if target.is_dir():
        report(f"{target.name} is already there and stays as it is; with --name another one comes beside it")
        return open_folder(target)
    path = Path(source).expanduser()
    if not path.exists() and (cached := cached_repository(source)) is not None:
        path = cached
    with staged(target) as staging:
        if source in PACKAGED:
            with packaged_file(source, target.parent) as packaged:
                _convert_gguf(packaged, staging, report)
        elif path.is_file() and path.suffix == ".gguf":
            _convert_gguf(path, staging, report)
        elif path.is_dir():
            _take_folder(path, staging, report)
        else:
            what = "This is no model to import" if path.exists() else "There is no such file or folder"
            remedy = "Name a .gguf file, a folder with safetensors, a repository that is in Hugging Face's cache "
            remedy += f"(`hf download ORG/NAME` puts it there), or one of {', '.join(sorted(PACKAGED))}."
            raise ModelError(what, str(path), remedy)
        open_folder(staging)
    report(f"wrote {target}")
    return open_folder(target)


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A temporary sibling folder that becomes `target` when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(target.parent, target.name) as staging:
        yield staging
        if target.exists():
            raise ModelError("the target folder exists", str(target), "Remove it or choose another name.")
        staging.chmod(0o755)
        staging.rename(target)


def save_tensors(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write a model's tensors into its folder; ModelError where the disk does not take them."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
    except (OSError, SafetensorError) as error:
        needed = f"{sum(tensor.nbytes for tensor in tensors.values()) / 1e9:.2g} GB"
        remedy = f"Make room for {needed}, or name another --home; then give the command again."
        raise ModelError(f"the tensors cannot be written: {error}", str(folder.parent), remedy) from error


def _convert_gguf(source: Path, staging: Path, report: Report) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    report(f"dequantising {source.name}")
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32, trust_remote_code=False
    )
    require_decoder(model.config.to_dict())
    state = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    report(f"saving {len(state)} tensors")
    save_tensors({key: value.contiguous() for key, value in state.items()}, staging)
    config = {**_without_quantisation(model.config.to_dict()), "architectures": [type(model).__name__]}
    write_config(config, staging)
    report("saving the tokenizer")
    _save_tokenizer(source, staging, report)
    _require_sound(staging, report)


def _save_tokenizer(source: Path, staging: Path, report: Report) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, trust_remote_code=False).save_pretrained(
        staging
    )
    if not ModelFolder(staging).chat_template:
        report("it brings no chat template: conversations become questions and answers in turn")
        (staging / "chat_template.jinja").write_text(PLAIN_TEMPLATE, encoding="utf-8")


def _without_quantisation(config: dict[str, Any]) -> dict[str, Any]:
    # A loader that reads quantization_config expects packed tensors, and transformers will not save a model with it.
    return {key: value for key, value in config.items() if key != "quantization_config" and not key.startswith("_")}


def write_config(config: dict[str, Any], folder: Path) -> None:
    """Write config.json with sorted keys."""
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _take_folder(path: Path, staging: Path, report: Report) -> None:
    source = source_folder(path)
    names = wanted_files(source)
    require_there(source, names)
    with open_source(source) as opened:
        for name in names:
            opened.take(name, staging / name, report)
    note_links(staging)
    _require_sound(staging, report)


def _require_sound(staging: Path, report: Report) -> None:
    folder = open_folder(staging)
    tensors = require_sound(folder)
    total, seen = sum(one.length for one in tensors), 0

    def progress(size: int) -> None:
        nonlocal seen
        before, seen = seen, seen + size
        if seen * 10 // max(1, total) > before * 10 // max(1, total):
            report(f"looked for NaN in {100 * seen / total:.0f} % of {total / 1e9:.1f} GB")

    settings = folder.quantisation
    require_numbers(tensors, progress, method=str((settings or {}).get("quant_method", "")))
    if settings is None:
        return
    found = unpacked(tensors, settings)
    if found.on_cards:
        report(f"vLLM serves it on a graphics card alone: {', '.join(sorted(found.on_cards))}")
    if found.in_torch:
        report(f"vLLM does not serve it, torch does: {', '.join(sorted(found.in_torch))}")
