"""A model folder on disk: config.json, *.safetensors, tokenizer.json and a chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.node.errors import ModelError
from troth.node.models.families import require_decoder
from troth.node.models.tensor_files import weight_files
from troth.protocol.architecture import architecture_name, text_part

MODELS_FOLDER = "models"
REQUIRED = ("config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that holds one model; reading is lazy, nothing is cached."""

    path: Path

    @property
    def config(self) -> dict[str, Any]:
        """config.json as written."""
        config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ModelError("config.json is not an object", str(self.path), "Restore it from the model's source.")
        return config

    @property
    def text_config(self) -> dict[str, Any]:
        """The part of config.json that is the decoder's."""
        return text_part(self.config)

    def longest_text(self, limit: int) -> int:
        """Positions of the longest text, prompt and answer together, up to a limit: one less than the model knows."""
        return min(limit, int(self.text_config.get("max_position_embeddings", limit + 1)) - 1)

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return int(self.text_config["num_hidden_layers"])

    @property
    def tokenizer_json(self) -> bytes:
        """tokenizer.json, byte for byte."""
        return (self.path / "tokenizer.json").read_bytes()

    @property
    def chat_template(self) -> str:
        """The chat template, from chat_template.jinja or tokenizer_config.json; empty when there is none."""
        template = self.path / "chat_template.jinja"
        if template.exists():
            return template.read_text(encoding="utf-8")
        settings = self.path / "tokenizer_config.json"
        found = json.loads(settings.read_text(encoding="utf-8")).get("chat_template") if settings.exists() else None
        return found if isinstance(found, str) else ""

    @property
    def architecture(self) -> str:
        """The descriptor's architecture string, without a version."""
        return architecture_name(self.config, self.tokenizer_json, self.chat_template)

    @property
    def quantisation(self) -> dict[str, Any] | None:
        """How the weights are quantised, as config.json has it; None where they are not."""
        found = self.text_config.get("quantization_config", self.config.get("quantization_config"))
        return found if isinstance(found, dict) else None

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, sorted by name, without a second copy of the weights."""
        return weight_files(self.path)


def open_folder(path: Path) -> ModelFolder:
    """Check that a model folder is complete.

    Raises:
        ModelError: a file is missing, or the family is not one the engine knows.
    """
    folder = ModelFolder(path)
    missing = [name for name in REQUIRED if not (path / name).is_file()]
    if not path.is_dir() or missing or not folder.weight_files:
        lacking = ", ".join(missing) or "*.safetensors"
        raise ModelError(
            f"no usable model folder: {lacking} missing", str(path), "Create it with `troth model import`."
        )
    require_decoder(folder.text_config)
    return folder


def find_model(home: Path, name_or_path: str) -> ModelFolder:
    """The folder named under $TROTH_HOME/models, or any path to a model folder."""
    named = home / MODELS_FOLDER / name_or_path
    return open_folder(named if named.is_dir() else Path(name_or_path).expanduser())


def stored_models(home: Path) -> Iterator[str]:
    """Names of the finished models under $TROTH_HOME/models."""
    for path in sorted((home / MODELS_FOLDER).glob("*")):
        if path.is_dir() and not path.name.startswith("."):
            yield path.name
