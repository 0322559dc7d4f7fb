"""A model folder on disk: config.json, *.safetensors, tokenizer.json and a chat template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.node.errors import ModelError
from troth.node.models.families import require_decoder
from troth.node.models.tensor_files import weight_files
from troth.node.models.texts import LARGEST_CONFIG, LARGEST_TEMPLATE, read_bytes, read_object, read_text
from troth.protocol.architecture import architecture_name, text_part
from troth.protocol.chat_templates import MORE_TEMPLATES, TEMPLATE_FILE, chosen_template
from troth.protocol.errors import InvalidField

MODELS_FOLDER = "models"
REQUIRED = ("config.json", "tokenizer.json")
QUANTISATIONS = ("quantization_config", "compression_config")
"""Names by which engines look for the settings of a quantisation."""
SETTINGS_APART = ("hf_quant_config.json", "quantize_config.json")
"""Files in which engines look for them besides, of which the weights root says nothing."""
REMEDY = "Use another copy of the model, or correct config.json."


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that holds one model; reading is lazy, nothing is cached.

    Args:
        path: where its files are read.
        named: where its owner keeps it, if that is elsewhere; `files` are held as long as somebody has the folder
            (`holding`).
    """

    path: Path
    named: Path | None = None
    files: object = field(default=None, repr=False, compare=False)

    @property
    def place(self) -> Path:
        """Where its owner keeps it: what people are told, and what lies beside it."""
        return self.path if self.named is None else self.named

    @property
    def config(self) -> dict[str, Any]:
        """config.json as written."""
        return read_object(self.path / "config.json", LARGEST_CONFIG)

    @property
    def text_config(self) -> dict[str, Any]:
        """The part of config.json that is the decoder's."""
        return text_part(self.config)

    def longest_text(self, limit: int) -> int:
        """Positions of the longest text, prompt and answer together, up to a limit: one less than the model knows."""
        known = self.known_positions
        return limit if known is None else min(limit, known - 1)

    @property
    def known_positions(self) -> int | None:
        """How many positions the model was made for; None where its configuration does not say."""
        known = self.text_config.get("max_position_embeddings")
        return None if known is None else int(known)

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return int(self.text_config["num_hidden_layers"])

    @property
    def tokenizer_json(self) -> bytes:
        """tokenizer.json, byte for byte."""
        return read_bytes(self.path / "tokenizer.json")

    @property
    def chat_template(self) -> str:
        """The chat template, empty when there is none; see `chat_templates`."""
        template, settings = self.path / TEMPLATE_FILE, self.path / "tokenizer_config.json"
        alone = read_text(template, LARGEST_TEMPLATE) if template.exists() else None
        more = [path.stem for path in (self.path / MORE_TEMPLATES).glob("*.jinja")]
        told = read_object(settings).get("chat_template") if settings.exists() and alone is None else None
        try:
            return chosen_template(alone, more, told)
        except InvalidField as error:
            raise ModelError(f"{self.place}: {error.what}", error.value, error.remedy) from error

    @property
    def architecture(self) -> str:
        """The descriptor's architecture string, without a version."""
        return architecture_name(self.config, self.tokenizer_json, self.chat_template)

    @property
    def quantisation(self) -> dict[str, Any] | None:
        """How the weights are quantised, as config.json has it; None where they are not.

        Raises:
            ModelError: it says so twice and differently, where engines read one of both and the weights root the other.
        """
        config = self.config
        places = (config, nested) if isinstance(nested := config.get("text_config"), dict) else (config,)
        said = [part[name] for part in places for name in QUANTISATIONS if part.get(name) is not None]
        if any(not isinstance(one, dict) or one != said[0] for one in said):
            raise ModelError("config.json says twice, or in another form, how weights are quantised", said, REMEDY)
        return said[0] if said else None

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
    for name in REQUIRED:
        if (path / name).exists() and not (path / name).is_file():
            raise ModelError("this is no file, as a model's are", str(path / name), REMEDY)
    missing = [name for name in REQUIRED if not (path / name).is_file()]
    if not path.is_dir() or missing or not folder.weight_files:
        lacking = ", ".join(missing) or "*.safetensors"
        raise ModelError(
            f"no usable model folder: {lacking} missing", str(path), "Create it with `troth model import`."
        )
    require_decoder(folder.text_config)
    if folder.quantisation is None and (apart := [name for name in SETTINGS_APART if (path / name).exists()]):
        what = "settings of a quantisation lie beside config.json, where no weights root says anything of them"
        raise ModelError(what, ", ".join(apart), "Put them into config.json as quantization_config.")
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
