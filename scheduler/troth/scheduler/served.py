"""A class that this scheduler serves, and the texts a client needs to speak to its model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from troth.protocol.architecture import architecture_name, canonical_config, text_part
from troth.protocol.chat_templates import MORE_TEMPLATES, TEMPLATE_FILE, chosen_template
from troth.protocol.types import Hash32
from troth.routing.placement.hardware import ModelShape
from troth.scheduler.errors import ConfigurationInvalid


@dataclass(frozen=True, slots=True)
class ModelTexts:
    """Tokenizer, chat template and canonical configuration, exactly as the model's descriptor hashes them."""

    tokenizer: str
    chat_template: str
    config: str
    architecture: str
    context: int

    @classmethod
    def load(cls, folder: Path) -> ModelTexts:
        """Read a model folder's config.json, tokenizer.json and chat template (may be missing)."""
        try:
            config = json.loads((folder / "config.json").read_text("utf-8"))
            tokenizer = (folder / "tokenizer.json").read_text("utf-8")
            template = _chat_template(folder)
        except (OSError, ValueError) as error:
            raise ConfigurationInvalid(
                f"The model folder {folder} cannot be used",
                error,
                "Give the folder with config.json and tokenizer.json.",
            ) from error
        context = text_part(config).get("max_position_embeddings")
        if not isinstance(context, int) or context < 1:
            raise ConfigurationInvalid("config.json names no max_position_embeddings", folder, "Set `context` instead.")
        return cls(
            tokenizer=tokenizer,
            chat_template=template,
            config=canonical_config(config).decode(),
            architecture=architecture_name(config, tokenizer.encode(), template),
            context=context,
        )


def _chat_template(folder: Path) -> str:
    """The one that a node takes, since both make the model's identifier of it."""
    template, settings = folder / TEMPLATE_FILE, folder / "tokenizer_config.json"
    alone = template.read_text("utf-8") if template.exists() else None
    more = [path.stem for path in (folder / MORE_TEMPLATES).glob("*.jinja")]
    told = json.loads(settings.read_text("utf-8")) if settings.exists() and alone is None else None
    return chosen_template(alone, more, told.get("chat_template") if isinstance(told, dict) else None)


@dataclass(frozen=True, slots=True)
class ServedClass:
    """One class: the ends of its segments, its texts, and the longest sequence that is taken.

    `placing`: the ends follow the placement, and those here are offered until there is one. `shape` is for models whose
    sizes their configuration does not name.
    """

    class_id: Hash32
    ends: tuple[int, ...]
    texts: ModelTexts
    context: int
    placing: bool = False
    shape: ModelShape | None = None
